//! What the runtime says in place of the configuration, for all requests and for those of one downstream cluster.
//!
//! Lowering supplies the values of the runtime's keys as `runtime`; here they get their places, once. As in Envoy 1.40, a
//! request that says which cluster it comes from has only the values of that cluster, but for how long it is delayed.

use std::time::Duration;

use postrider_http::grpc::Code;
use postrider_http::{HeaderId, RequestHead};
use postrider_model::{Fraction, Reading, Value};

/// Below this stand the keys of all requests, and of each cluster below its name.
const PREFIX: &str = "fault.http.";

#[derive(Debug, Default, PartialEq)]
pub(super) struct Overrides {
    pub(super) all: Values,
    of_clusters: Vec<(String, Values)>,
    none: Values,
    pub(super) rate_share: Option<Fraction>,
    pub(super) max_active: Option<u64>,
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Values {
    pub(super) delay_share: Option<Fraction>,
    pub(super) delay: Option<Duration>,
    pub(super) abort_share: Option<Fraction>,
    pub(super) http_status: Option<u16>,
    pub(super) grpc_status: Option<Code>,
}

impl Overrides {
    pub(super) fn read(at: &mut Reading<'_>) -> Overrides {
        let mut key = |field: &str, default: &str| at.text(field).map_or(format!("{PREFIX}{default}"), str::to_owned);
        let delay_share = key("delay_percent_runtime", "delay.fixed_delay_percent");
        let delay = key("delay_duration_runtime", "delay.fixed_duration_ms");
        let abort_share = key("abort_percent_runtime", "abort.abort_percent");
        let http_status = key("abort_http_status_runtime", "abort.http_status");
        let grpc_status = key("abort_grpc_status_runtime", "abort.grpc_status");
        let max_active = key("max_active_faults_runtime", "max_active_faults");
        let rate_share = key("response_rate_limit_percent_runtime", "rate_limit.response_percent");
        let Some(Value::Map(entries)) = at.value("runtime") else { return Overrides::default() };
        let find = |key: &str| entries.iter().find(|(known, _)| known == key).map(|(_, value)| value);
        let mut of_clusters: Vec<(String, Values)> = Vec::new();
        for (key, value) in entries {
            let Some((cluster, name)) = key.strip_prefix(PREFIX).and_then(of_cluster) else { continue };
            let at = match of_clusters.iter().position(|(known, _)| known == cluster) {
                Some(at) => at,
                None => {
                    of_clusters.push((cluster.to_owned(), Values::default()));
                    of_clusters.len() - 1
                }
            };
            if let Some((_, values)) = of_clusters.get_mut(at) {
                values.set(name, value);
            }
        }
        let mut all = Values::default();
        for (name, key) in [
            ("delay.fixed_delay_percent", delay_share),
            ("delay.fixed_duration_ms", delay),
            ("abort.abort_percent", abort_share),
            ("abort.http_status", http_status),
            ("abort.grpc_status", grpc_status),
        ] {
            if let Some(value) = find(&key) {
                all.set(name, value);
            }
        }
        Overrides {
            all,
            of_clusters,
            none: Values::default(),
            rate_share: find(&rate_share).and_then(share),
            max_active: find(&max_active).and_then(whole),
        }
    }

    /// The values for a request; `None` where there are none for anybody.
    pub(super) fn of(&self, request: &RequestHead) -> Option<&Values> {
        if self.of_clusters.is_empty() && self.all == self.none {
            return None;
        }
        let Some(cluster) = request.fields.get(HeaderId::XEnvoyDownstreamServiceCluster) else {
            return Some(&self.all);
        };
        let known = self.of_clusters.iter().find(|(known, _)| known.as_bytes() == cluster);
        Some(known.map_or(&self.none, |(_, values)| values))
    }
}

impl Values {
    fn set(&mut self, name: &str, value: &Value) {
        match name {
            "delay.fixed_delay_percent" => self.delay_share = share(value),
            "delay.fixed_duration_ms" => self.delay = whole(value).map(Duration::from_millis),
            "abort.abort_percent" => self.abort_share = share(value),
            // Another number is no status: the configured one stays.
            "abort.http_status" => {
                let status = whole(value).and_then(|status| u16::try_from(status).ok());
                self.http_status = status.filter(|status| (200..600).contains(status));
            }
            "abort.grpc_status" => {
                let code = whole(value).and_then(|code| u32::try_from(code).ok());
                self.grpc_status = code.and_then(Code::from_number);
            }
            _ => {}
        }
    }
}

/// `x.abort.http_status` is `abort.http_status` of the cluster `x`.
fn of_cluster(key: &str) -> Option<(&str, &str)> {
    let at = [".delay.", ".abort."].into_iter().filter_map(|part| key.rfind(part)).max()?;
    Some((key.get(..at)?, key.get(at + 1..)?))
}

/// A number is a percentage.
fn share(value: &Value) -> Option<Fraction> {
    match value {
        Value::Map(parts) => {
            let find = |name: &str| parts.iter().find(|(known, _)| known == name).map(|(_, value)| value);
            let unit = match find("denominator") {
                Some(Value::String(name)) if name == "TEN_THOUSAND" => 100,
                Some(Value::String(name)) if name == "MILLION" => 1,
                _ => 10_000,
            };
            let numerator = find("numerator").and_then(whole).unwrap_or_default();
            Some(Fraction { numerator: u32::try_from(numerator).unwrap_or(u32::MAX), unit })
        }
        value => Some(Fraction { numerator: whole(value)?.min(100) as u32, unit: 10_000 }),
    }
}

fn whole(value: &Value) -> Option<u64> {
    match value {
        Value::Integer(number) => u64::try_from(*number).ok(),
        // A cast of a float saturates.
        Value::Number(number) => (*number >= 0.0).then_some(*number as u64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_clusters_are_told_from_those_of_all() {
        assert_eq!(of_cluster("a.b.abort.http_status"), Some(("a.b", "abort.http_status")));
        assert_eq!(of_cluster("abort.http_status"), None);
        assert_eq!(of_cluster("delay.delay.fixed_duration_ms"), Some(("delay", "delay.fixed_duration_ms")));
    }

    #[test]
    fn values_of_the_runtime_find_their_places() {
        let map = |entries: &[(&str, Value)]| {
            Value::Map(entries.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect())
        };
        let share = map(&[("numerator", Value::Integer(7)), ("denominator", Value::String("MILLION".into()))]);
        let runtime = map(&[
            ("mine", Value::Number(5.0)),
            ("fault.http.abort.http_status", Value::Number(99.0)),
            ("fault.http.x.abort.http_status", Value::Number(507.0)),
            ("fault.http.x.delay.fixed_delay_percent", share),
            ("fault.http.max_active_faults", Value::Number(3.0)),
        ]);
        let value = map(&[("abort_percent_runtime", Value::String("mine".into())), ("runtime", runtime)]);
        let read = Reading::all(&value, Overrides::read).unwrap();
        assert_eq!(read.all.abort_share.map(Fraction::parts_per_million), Some(50_000));
        assert_eq!((read.all.http_status, read.max_active), (None, Some(3)));
        let (name, of_x) = &read.of_clusters[0];
        assert_eq!((name.as_str(), of_x.http_status), ("x", Some(507)));
        assert_eq!(of_x.delay_share.map(Fraction::parts_per_million), Some(7));
    }
}
