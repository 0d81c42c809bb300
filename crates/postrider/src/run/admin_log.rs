//! The access log of the admin interface.

use std::time::SystemTime;

use postrider_admin::Served;
use postrider_model::AccessLog;
use postrider_telemetry::access_log::{LogBuffer, LogWriter};
use postrider_worker::{AdminRequest, log_target, write_admin_line};

/// Where lines about the admin's requests go. Requests are few: each line is handed over at once.
pub struct AdminLog(Vec<(AccessLog, LogBuffer)>);

impl AdminLog {
    /// `None` when nothing is to be logged.
    ///
    /// # Errors
    /// A file cannot be opened.
    pub fn open(logs: &[AccessLog], writer: &LogWriter) -> std::io::Result<Option<AdminLog>> {
        // A service is never told of the admin's requests: the configuration was refused.
        let sinks = logs.iter().filter_map(|log| Some((log, log.sink()?)));
        let open = |(log, sink): (&AccessLog, _)| Ok((log.clone(), writer.open(log_target(sink))?.buffer()));
        let loggers = sinks.map(open).collect::<std::io::Result<Vec<_>>>()?;
        Ok((!loggers.is_empty()).then_some(AdminLog(loggers)))
    }

    pub fn write(&mut self, served: &Served<'_>) {
        let request = AdminRequest {
            method: served.method,
            target: served.target,
            is_http_10: served.is_http_10,
            request_fields: &served.request_fields,
            received: served.received,
            status: served.status,
            response_fields: &served.response_fields,
            sent: served.sent,
            local: served.local,
            peer: served.peer,
            duration: served.duration,
        };
        for (log, buffer) in &mut self.0 {
            buffer.line(|out| write_admin_line(log, &request, SystemTime::now(), out));
            buffer.flush();
        }
    }
}
