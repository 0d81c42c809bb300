//! The access logs of one chain, on one worker.

use std::cell::RefCell;
use std::rc::Rc;

use postrider_model::{AccessLog, AccessLogSink, LogFormat};
use postrider_telemetry::access_log::{LogBuffer, Target};

use crate::format::Context;
use crate::worker::Worker;

/// Loggers in the order of the configuration; usually none or one.
#[derive(Default)]
pub(crate) struct Logs(Vec<Logger>);

struct Logger {
    format: LogFormat,
    buffer: Rc<RefCell<LogBuffer>>,
}

impl Logs {
    /// A sink that cannot be opened was refused when the configuration was applied; here it is left out.
    pub(crate) fn new(logs: &[AccessLog], worker: &Worker) -> Logs {
        let logger =
            |log: &AccessLog| Some(Logger { format: log.format.clone(), buffer: worker.log_buffer(&log.sink)? });
        Logs(logs.iter().filter_map(logger).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn write(&self, context: &Context<'_>) {
        for logger in &self.0 {
            logger.buffer.borrow_mut().line(|out| context.write_log(&logger.format, out));
        }
    }
}

pub(crate) fn target(sink: &AccessLogSink) -> Target {
    match sink {
        AccessLogSink::File(path) => Target::Path(path.clone()),
        AccessLogSink::Stdout => Target::Stdout,
        AccessLogSink::Stderr => Target::Stderr,
    }
}
