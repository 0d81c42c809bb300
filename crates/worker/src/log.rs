//! Access logs: those of one chain on one worker, and the line of the admin's.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use postrider_filter_api::{Moment, StreamInfo};
use postrider_http::grpc::{Code, Status};
use postrider_http::{Fields, HeaderId, RequestHead, ResponseHead};
use postrider_model::{AccessLog, AccessLogSink, LogCondition, LogFormat};
use postrider_telemetry::access_log::{LogBuffer, Target};

use crate::format::Context;
use crate::worker::Worker;

/// Loggers in the order of the configuration; usually none or one.
#[derive(Default)]
pub(crate) struct Logs(Vec<Logger>);

struct Logger {
    format: LogFormat,
    condition: Option<LogCondition>,
    buffer: Rc<RefCell<LogBuffer>>,
}

impl Logs {
    /// A sink that cannot be opened was refused when the configuration was applied; here it is left out.
    pub(crate) fn new(logs: &[AccessLog], worker: &Worker) -> Logs {
        let logger = |log: &AccessLog| {
            let buffer = worker.log_buffer(&log.sink)?;
            Some(Logger { format: log.format.clone(), condition: log.condition.clone(), buffer })
        };
        Logs(logs.iter().filter_map(logger).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn write(&self, context: &Context<'_>) {
        for logger in &self.0 {
            if logger.condition.as_ref().is_some_and(|condition| !holds(condition, context)) {
                continue;
            }
            logger.buffer.borrow_mut().line(|out| context.write_log(&logger.format, out));
        }
    }
}

/// Whether a line about this stream is wanted.
#[cold]
fn holds(condition: &LogCondition, context: &Context<'_>) -> bool {
    match condition {
        LogCondition::GrpcStatus { codes, exclude } => {
            let listed = match context.answered_grpc() {
                Some(Status::Code(code)) => codes.contains(&code.number()),
                // What is no code is on no list.
                Some(Status::Other(_) | Status::Invalid) => false,
                None => codes.contains(&Code::Unknown.number()),
            };
            listed != *exclude
        }
    }
}

pub fn target(sink: &AccessLogSink) -> Target {
    match sink {
        AccessLogSink::File(path) => Target::Path(path.clone()),
        AccessLogSink::Stdout => Target::Stdout,
        AccessLogSink::Stderr => Target::Stderr,
    }
}

/// A request that the admin answered, for its access log.
#[derive(Debug)]
pub struct AdminRequest<'a> {
    pub method: &'a str,
    /// Path and query.
    pub target: &'a str,
    pub status: u16,
    pub peer: Option<SocketAddr>,
    pub user_agent: Option<&'a str>,
    pub duration: Duration,
}

/// Appends the line that `log` makes of a request to the admin, if it wants one.
pub fn write_admin_line(log: &AccessLog, admin: &AdminRequest<'_>, now: SystemTime, out: &mut Vec<u8>) {
    let started = Moment::default();
    let ended = started + admin.duration;
    let mut info = StreamInfo::new(started, now - admin.duration);
    info.ended = Some(ended);
    info.status = admin.status;
    info.downstream_remote = admin.peer;
    info.downstream_direct_remote = admin.peer;
    let mut request = RequestHead::new();
    // What cannot be written into a head is left out of the line.
    let _ = request.set_method(admin.method.as_bytes());
    let _ = request.set_path(admin.target.as_bytes());
    if let Some(agent) = admin.user_agent {
        let _ = request.fields.set(HeaderId::UserAgent, agent.as_bytes());
    }
    let (response, trailers) = (ResponseHead::new(), Fields::new());
    let context = Context {
        request: &request,
        response: &response,
        trailers: &trailers,
        info: &info,
        route: None,
        reply_body: &[],
        http: true,
        now,
    };
    if log.condition.as_ref().is_none_or(|condition| holds(condition, &context)) {
        context.write_log(&log.format, out);
    }
}
