//! The log of what checks changed: one line of JSON an event, as Envoy's file sink writes it (`HealthCheckEvent`).

use std::sync::Arc;

use postrider_model::{Address, CheckKind, Endpoint, HealthCheck};
use postrider_telemetry::json;
use postrider_telemetry::time::{self, TimePattern};
use postrider_upstream::Health;
use postrider_upstream::health::{Outcome, Transition};

use crate::worker::Worker;

/// The end of one check.
pub(super) struct Event<'c> {
    pub(super) check: &'c HealthCheck,
    pub(super) outcome: Outcome,
    pub(super) transition: Transition,
    pub(super) first: bool,
    /// What the host was.
    pub(super) before: Health,
    /// Of the answer over HTTP; 0 when there is none.
    pub(super) status: u16,
}

impl Event<'_> {
    pub(super) fn log(&self, worker: &Worker, cluster: &Arc<str>, endpoint: &Endpoint) {
        let Some(sink) = &self.check.event_log else { return };
        let Some(buffer) = worker.log_buffer(sink) else { return };
        let changed = self.transition == Transition::Changed;
        let write = |name: &str, event: String, late: bool| {
            buffer.borrow_mut().line(|out| self.write(worker, cluster, endpoint, (name, &event, late), out));
        };
        if let Outcome::Healthy { degraded } = self.outcome {
            if changed {
                write("add_healthy_event", format!("{{\"first_check\":{}}}", self.first), false);
            }
            if degraded != self.before.degraded {
                let name = if degraded { "degraded_healthy_host" } else { "no_longer_degraded_host" };
                write(name, "{}".to_owned(), true);
            }
            if self.check.logs_every_success {
                write("successful_health_check_event", "{}".to_owned(), true);
            }
            return;
        }
        let failure = match self.outcome {
            Outcome::TimedOut => "NETWORK_TIMEOUT",
            Outcome::Unreachable => "NETWORK",
            Outcome::Resigned => "PASSIVE",
            Outcome::Refused { .. } | Outcome::Healthy { .. } => "ACTIVE",
        };
        let status = self.status;
        if changed {
            let event = format!("{{\"failure_type\":\"{failure}\",\"http_status_code\":{status}}}");
            write("eject_unhealthy_event", event, false);
        }
        if self.check.logs_every_failure {
            let first = self.first;
            let event =
                format!("{{\"failure_type\":\"{failure}\",\"first_check\":{first},\"http_status_code\":{status}}}");
            write("health_check_failure_event", event, true);
        }
    }

    /// `late`: the event stands behind the time.
    fn write(
        &self,
        worker: &Worker,
        cluster: &str,
        endpoint: &Endpoint,
        (name, event, late): (&str, &str, bool),
        out: &mut Vec<u8>,
    ) {
        let kind = match self.check.kind {
            CheckKind::Http(_) => "HTTP",
            CheckKind::Tcp(_) => "TCP",
            CheckKind::Grpc(_) => "GRPC",
            CheckKind::Redis(_) => "REDIS",
            CheckKind::Thrift(_) => "THRIFT",
            CheckKind::Udp(_) => "UDP",
        };
        out.extend_from_slice(format!("{{\"health_checker_type\":\"{kind}\",\"host\":").as_bytes());
        match &endpoint.address {
            Address::Tcp(address) => {
                let (ip, port) = (address.ip(), address.port());
                let host = format!(
                    "{{\"socket_address\":{{\"protocol\":\"TCP\",\"address\":\"{ip}\",\"port_value\":{port},\
                     \"resolver_name\":\"\",\"ipv4_compat\":false,\"network_namespace_filepath\":\"\"}}}}"
                );
                out.extend_from_slice(host.as_bytes());
            }
            Address::Unix { path, .. } => {
                out.extend_from_slice(b"{\"pipe\":{\"path\":");
                json::write_string(path.to_string_lossy().as_bytes(), out);
                out.extend_from_slice(b",\"mode\":0}}");
            }
        }
        out.extend_from_slice(b",\"cluster_name\":");
        json::write_string(cluster.as_bytes(), out);
        let event = format!(",\"{name}\":{event}");
        if !late {
            out.extend_from_slice(event.as_bytes());
        }
        out.extend_from_slice(b",\"timestamp\":\"");
        time::write(&TimePattern::iso8601(), worker.clock.wall_now(), out);
        out.push(b'"');
        if late {
            out.extend_from_slice(event.as_bytes());
        }
        out.extend_from_slice(b",\"locality\":{\"region\":\"\",\"zone\":\"\",\"sub_zone\":\"\"}}\n");
    }
}
