//! The log of what checks changed: one line of JSON an event, as Envoy's file sink writes it (`HealthCheckEvent`).

use std::sync::Arc;

use postrider_model::{Address, CheckKind, Endpoint, HealthCheck, Locality, Metadata};
use postrider_telemetry::json;
use postrider_telemetry::time::{self, TimePattern};
use postrider_upstream::Health;
use postrider_upstream::health::{Outcome, Transition};

use crate::format::write_value;
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

/// What happened, in the order of the message's fields: some stand before the time, some behind it, one behind the place.
#[derive(Clone, Copy)]
enum Place {
    Early,
    Middle,
    Late,
}

impl Event<'_> {
    pub(super) fn log(&self, worker: &Worker, cluster: &Arc<str>, endpoint: &Endpoint) {
        if self.check.event_logs.is_empty() {
            return;
        }
        let changed = self.transition == Transition::Changed;
        let write = |place: Place, event: &str| {
            for buffer in self.check.event_logs.iter().filter_map(|sink| worker.log_buffer(sink)) {
                buffer.borrow_mut().line(|out| self.write(worker, cluster, endpoint, (place, event), out));
            }
        };
        let first = self.first;
        if let Outcome::Healthy { degraded } = self.outcome {
            if changed {
                write(Place::Early, &format!("\"add_healthy_event\":{{\"first_check\":{first}}}"));
            } else if self.check.logs_every_success {
                write(Place::Late, "\"successful_health_check_event\":{}");
            }
            if degraded != self.before.degraded {
                let name = if degraded { "degraded_healthy_host" } else { "no_longer_degraded_host" };
                write(Place::Middle, &format!("\"{name}\":{{}}"));
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
            let event =
                format!("\"eject_unhealthy_event\":{{\"failure_type\":\"{failure}\",\"http_status_code\":{status}}}");
            write(Place::Early, &event);
        }
        if first || self.check.logs_every_failure {
            let event = format!(
                "\"health_check_failure_event\":{{\"failure_type\":\"{failure}\",\"first_check\":{first},\
                 \"http_status_code\":{status}}}"
            );
            write(Place::Middle, &event);
        }
    }

    fn write(
        &self,
        worker: &Worker,
        cluster: &str,
        endpoint: &Endpoint,
        (place, event): (Place, &str),
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
        write_address(&endpoint.address, out);
        out.extend_from_slice(b",\"cluster_name\":");
        json::write_string(cluster.as_bytes(), out);
        let at = |now: bool, out: &mut Vec<u8>| {
            if now {
                out.push(b',');
                out.extend_from_slice(event.as_bytes());
            }
        };
        at(matches!(place, Place::Early), out);
        out.extend_from_slice(b",\"timestamp\":\"");
        time::write(&TimePattern::iso8601(), worker.clock.wall_now(), out);
        out.push(b'"');
        at(matches!(place, Place::Middle), out);
        write_metadata(endpoint.metadata.as_deref(), out);
        write_place(endpoint.place.as_deref(), out);
        at(matches!(place, Place::Late), out);
        out.extend_from_slice(b"}\n");
    }
}

fn write_address(address: &Address, out: &mut Vec<u8>) {
    match address {
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
}

/// Messages of other types are not in it: there is nothing here to read them with.
fn write_metadata(metadata: Option<&Metadata>, out: &mut Vec<u8>) {
    let Some(metadata) = metadata.filter(|metadata| !metadata.is_empty()) else { return };
    out.extend_from_slice(b",\"metadata\":{\"filter_metadata\":{");
    for (index, (namespace, value)) in metadata.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        json::write_string(namespace.as_bytes(), out);
        out.push(b':');
        write_value(value, out);
    }
    out.extend_from_slice(b"},\"typed_filter_metadata\":{}}");
}

fn write_place(place: Option<&Locality>, out: &mut Vec<u8>) {
    let part = |name: &str, part: fn(&Locality) -> &String, out: &mut Vec<u8>| {
        out.extend_from_slice(name.as_bytes());
        json::write_string(place.map(part).map_or(b"", |text| text.as_bytes()), out);
    };
    part(",\"locality\":{\"region\":", |place| &place.region, out);
    part(",\"zone\":", |place| &place.zone, out);
    part(",\"sub_zone\":", |place| &place.sub_zone, out);
    out.push(b'}');
}
