//! The log of hosts that are left out and come back: one line of JSON an event, as Envoy writes it
//! (`data.cluster.v3.OutlierDetectionEvent`).

use std::time::Duration;

use postrider_model::Endpoint;
use postrider_telemetry::json;
use postrider_telemetry::time::{self, TimePattern};
use postrider_upstream::outlier::{Cause, Ejection, Event};

use crate::cluster::Cluster;
use crate::worker::Worker;

pub(super) fn log(cluster: &Cluster, worker: &Worker, event: &Event) {
    let sink = cluster.plan.model.outliers.as_ref().and_then(|rules| rules.event_log.as_ref());
    let Some(buffer) = sink.and_then(|sink| worker.log_buffer(sink)) else { return };
    let line = match event {
        Event::Ejected(ejection) => Line {
            kind: name(ejection.cause),
            action: "EJECT",
            endpoint: &ejection.endpoint,
            ejections: ejection.ejections,
            enforced: ejection.enforced,
            since: ejection.since,
            detail: Some(detail(ejection)),
        },
        // The type is the default of its field.
        Event::Returned { endpoint, ejections, since } => Line {
            kind: name(Cause::Consecutive5xx),
            action: "UNEJECT",
            endpoint,
            ejections: *ejections,
            enforced: false,
            since: *since,
            detail: None,
        },
        Event::Degraded(endpoint, begins) => Line {
            // As Envoy writes it: of one that is well again only the defaults are told.
            kind: name(if *begins { Cause::Degradation } else { Cause::Consecutive5xx }),
            action: if *begins { "EJECT" } else { "UNEJECT" },
            endpoint,
            ejections: 0,
            enforced: *begins,
            since: None,
            detail: begins.then(|| EVENT.to_owned()),
        },
        Event::Detected(_) | Event::Overflow => return,
    };
    buffer.borrow_mut().line(|out| line.write(cluster, worker, out));
}

/// What an event tells of that has no numbers.
const EVENT: &str = ",\"eject_consecutive_event\":{}";

struct Line<'e> {
    kind: &'static str,
    action: &'static str,
    endpoint: &'e Endpoint,
    ejections: u32,
    enforced: bool,
    since: Option<Duration>,
    detail: Option<String>,
}

impl Line<'_> {
    fn write(&self, cluster: &Cluster, worker: &Worker, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("{{\"type\":\"{}\",\"timestamp\":\"", self.kind).as_bytes());
        time::write(&TimePattern::iso8601(), worker.clock.wall_now(), out);
        out.push(b'"');
        if let Some(since) = self.since {
            // 64-bit numbers are strings in JSON protobuf.
            out.extend_from_slice(format!(",\"secs_since_last_action\":\"{}\"", since.as_secs()).as_bytes());
        }
        out.extend_from_slice(b",\"cluster_name\":");
        json::write_string(cluster.plan.name.as_bytes(), out);
        out.extend_from_slice(b",\"upstream_url\":");
        json::write_string(self.endpoint.address.to_string().as_bytes(), out);
        let (action, ejections, enforced) = (self.action, self.ejections, self.enforced);
        let rest = format!(",\"action\":\"{action}\",\"num_ejections\":{ejections},\"enforced\":{enforced}");
        out.extend_from_slice(rest.as_bytes());
        if let Some(detail) = &self.detail {
            out.extend_from_slice(detail.as_bytes());
        }
        out.extend_from_slice(b"}\n");
    }
}

/// The part of an event that depends on its cause. Rates are whole percents there.
fn detail(ejection: &Ejection) -> String {
    let [host, mean, least] = ejection.rates.map(|rate| rate.max(0.0) as u32);
    match ejection.cause {
        Cause::Consecutive5xx | Cause::GatewayFailure | Cause::LocalOriginFailure | Cause::Degradation => {
            EVENT.to_owned()
        }
        Cause::SuccessRate | Cause::LocalOriginSuccessRate => format!(
            ",\"eject_success_rate_event\":{{\"host_success_rate\":{host},\"cluster_average_success_rate\":{mean},\
             \"cluster_success_rate_ejection_threshold\":{least}}}"
        ),
        Cause::FailurePercentage | Cause::LocalOriginFailurePercentage => {
            format!(",\"eject_failure_percentage_event\":{{\"host_success_rate\":{host}}}")
        }
    }
}

fn name(cause: Cause) -> &'static str {
    match cause {
        Cause::Consecutive5xx => "CONSECUTIVE_5XX",
        Cause::GatewayFailure => "CONSECUTIVE_GATEWAY_FAILURE",
        Cause::LocalOriginFailure => "CONSECUTIVE_LOCAL_ORIGIN_FAILURE",
        Cause::SuccessRate => "SUCCESS_RATE",
        Cause::LocalOriginSuccessRate => "SUCCESS_RATE_LOCAL_ORIGIN",
        Cause::FailurePercentage => "FAILURE_PERCENTAGE",
        Cause::LocalOriginFailurePercentage => "FAILURE_PERCENTAGE_LOCAL_ORIGIN",
        Cause::Degradation => "DEGRADED",
    }
}
