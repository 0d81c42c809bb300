//! Access logs: those of one chain on one worker, and the line of the admin's.

mod condition;
mod entry;
mod objects;
mod otlp;
mod plugin;
mod service;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use postrider_filter_api::{Moment, StreamInfo};
use postrider_http::{Fields, HeaderId, RequestHead, ResponseHead, Version};
use postrider_model::{AccessLog, AccessLogSink, LogEntries, LogFormat, LogOutput};
use postrider_telemetry::access_log::{LogBuffer, Target};

use crate::format::{Context, OfUpstream};
use crate::worker::Worker;
pub(crate) use condition::Condition;
pub(crate) use entry::who;
use otlp::RecordLog;
pub(crate) use plugin::{PluginLog, PluginLogs};
pub(crate) use service::ServiceLog;

/// Loggers in the order of the configuration; usually none or one.
#[derive(Default)]
pub(crate) struct Logs(Vec<Logger>);

struct Logger {
    output: Output,
    condition: Option<Condition>,
}

enum Output {
    Lines { format: LogFormat, buffer: Rc<RefCell<LogBuffer>> },
    Entries { wanted: LogEntries, service: Rc<ServiceLog> },
    Records(Box<RecordLog>),
    Plugin(Rc<PluginLog>),
}

impl Logs {
    /// A sink that cannot be opened was refused when the configuration was applied; here it is left out.
    pub(crate) fn new(logs: &[AccessLog], worker: &Rc<Worker>) -> Logs {
        let logger = |log: &AccessLog| {
            let output = match &log.output {
                LogOutput::Lines { sink, format } => {
                    Output::Lines { format: format.clone(), buffer: worker.log_buffer(sink)? }
                }
                LogOutput::Entries(wanted) => {
                    Output::Entries { wanted: wanted.clone(), service: worker.log_service(&wanted.service) }
                }
                LogOutput::Records(model) => Output::Records(Box::new(RecordLog::new(model, worker))),
                LogOutput::Plugin(slot) => Output::Plugin(worker.log_plugins.of(slot)?),
            };
            Some(Logger { output, condition: log.condition.as_ref().map(Condition::compile) })
        };
        Logs(logs.iter().filter_map(logger).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn write(&self, context: &Context<'_>) {
        for logger in &self.0 {
            if logger.condition.as_ref().is_some_and(|condition| !condition.holds(context)) {
                continue;
            }
            match &logger.output {
                Output::Lines { format, buffer } => {
                    buffer.borrow_mut().line(|out| context.write_log(format, out));
                }
                Output::Entries { wanted, service } => service.write(|out| entry::append(wanted, context, out)),
                Output::Records(log) => log.write(context),
                Output::Plugin(plugin) => plugin.write(context),
            }
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
    /// HTTP/1.0, not HTTP/1.1.
    pub is_http_10: bool,
    pub request_fields: &'a [(&'a str, &'a [u8])],
    /// Bytes of the body.
    pub received: u64,
    pub status: u16,
    pub response_fields: &'a [(&'a str, &'a [u8])],
    /// Bytes of the body.
    pub sent: u64,
    pub local: Option<SocketAddr>,
    pub peer: Option<SocketAddr>,
    pub duration: Duration,
}

/// Appends the line that `log` makes of a request to the admin, if it wants one.
pub fn write_admin_line(log: &AccessLog, admin: &AdminRequest<'_>, now: SystemTime, out: &mut Vec<u8>) {
    let started = Moment::default();
    let ended = started + admin.duration;
    let mut info = StreamInfo::new(started, now - admin.duration);
    info.ended = Some(ended);
    info.status = admin.status;
    info.details = "admin_filter_response".into();
    (info.bytes_received, info.bytes_sent) = (admin.received, admin.sent);
    info.downstream_local = admin.local;
    info.downstream_connection_remote = admin.peer;
    info.downstream_remote = admin.peer;
    info.downstream_direct_remote = admin.peer;
    let mut request = RequestHead::new();
    // What cannot be written into a head is left out of the line.
    let _ = request.set_method(admin.method.as_bytes());
    let _ = request.set_path(admin.target.as_bytes());
    if admin.is_http_10 {
        request.set_version(Version::Http10);
    }
    for (name, value) in admin.request_fields {
        let _ = match *name {
            "host" => request.set_authority(value),
            _ => request.fields.append_name(name.as_bytes(), value),
        };
    }
    // As a listener at the edge adds whom it was asked by.
    if let Some(peer) = admin.peer.filter(|peer| !peer.ip().is_loopback()) {
        let _ = request.fields.append(HeaderId::XForwardedFor, peer.ip().to_string().as_bytes());
    }
    let (mut response, trailers) = (ResponseHead::new(), Fields::new());
    response.set_status(admin.status);
    for (name, value) in admin.response_fields {
        let _ = response.fields.append_name(name.as_bytes(), value);
    }
    let context = Context {
        request: &request,
        response: &response,
        trailers: &trailers,
        info: &info,
        route: None,
        weighted: None,
        reply_body: &[],
        http: true,
        now,
        upstream: OfUpstream::default(),
    };
    let LogOutput::Lines { format, .. } = &log.output else { return };
    if log.condition.as_ref().is_none_or(|condition| Condition::compile(condition).holds(&context)) {
        context.write_log(format, out);
    }
}
