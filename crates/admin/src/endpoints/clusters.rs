//! `/clusters`: who the upstreams are and how they fare.

use super::listeners::address;
use super::stats::matcher;
use crate::control::Control;
use crate::request::Request;
use crate::response::Reply;
use crate::status::{ClusterStatus, EndpointStatus, HealthFlag, RateComparison};
use postrider_model::Thresholds;
use serde_json::{Map, Value, json};
use std::fmt::Write;

pub(super) const PARAMETERS: &[(&str, &str)] = &[
    ("filter", "Regular expression for filtering clusters by name"),
    ("format", "File format to use; One of (text, json)"),
];

pub(super) fn clusters(control: &dyn Control, request: &Request) -> Reply {
    let filter = match request.parameter("filter").map(matcher).transpose() {
        Ok(filter) => filter,
        Err(refusal) => return refusal,
    };
    let mut clusters = control.clusters();
    clusters.retain(|cluster| filter.as_ref().is_none_or(|filter| filter.is_match(&cluster.name)));
    if request.parameter("format") == Some("json") {
        let statuses: Vec<Value> = clusters.iter().map(status).collect();
        return Reply::json(&json!({ "cluster_statuses": statuses }));
    }
    let mut out = String::new();
    for cluster in &clusters {
        // Writing to a String cannot fail.
        let _ = write_cluster(cluster, &mut out);
    }
    Reply::text(out)
}

fn write_cluster(cluster: &ClusterStatus, out: &mut String) -> std::fmt::Result {
    let name = &cluster.name;
    writeln!(out, "{name}::observability_name::{}", cluster.observability_name)?;
    if let Some(outliers) = &cluster.outliers {
        for (of, comparison) in [("", outliers.answers), ("local_origin_", outliers.local_origin)] {
            let comparison = comparison.unwrap_or(RateComparison { average: -1.0, threshold: -1.0 });
            writeln!(out, "{name}::outlier::{of}success_rate_average::{}", six_digits(comparison.average))?;
            writeln!(
                out,
                "{name}::outlier::{of}success_rate_ejection_threshold::{}",
                six_digits(comparison.threshold)
            )?;
        }
    }
    for (priority, limits) in [("default", &cluster.default_priority), ("high", &cluster.high_priority)] {
        for (limit, value) in [
            ("max_connections", limits.max_connections),
            ("max_pending_requests", limits.max_pending_requests),
            ("max_requests", limits.max_requests),
            ("max_retries", limits.max_retries),
        ] {
            writeln!(out, "{name}::{priority}_priority::{limit}::{value}")?;
        }
    }
    writeln!(out, "{name}::added_via_api::{}", cluster.added_via_api)?;
    for endpoint in &cluster.endpoints {
        let start = format!("{name}::{}", endpoint.address);
        let mut counts: Vec<_> = endpoint.counters().into_iter().chain(endpoint.gauges()).collect();
        counts.sort();
        for (count, value) in counts {
            writeln!(out, "{start}::{count}::{value}")?;
        }
        writeln!(out, "{start}::hostname::{}", endpoint.hostname)?;
        writeln!(out, "{start}::health_flags::{}", health_flags(&endpoint.health))?;
        writeln!(out, "{start}::weight::{}", endpoint.weight)?;
        writeln!(out, "{start}::region::{}", endpoint.region)?;
        writeln!(out, "{start}::zone::{}", endpoint.zone)?;
        writeln!(out, "{start}::sub_zone::{}", endpoint.sub_zone)?;
        writeln!(out, "{start}::canary::{}", endpoint.canary)?;
        writeln!(out, "{start}::priority::{}", endpoint.priority)?;
        // Minus one says that there was nothing to compute a rate from.
        writeln!(out, "{start}::success_rate::{}", endpoint.success_rate.unwrap_or(-1.0))?;
        writeln!(out, "{start}::local_origin_success_rate::{}", endpoint.local_origin_success_rate.unwrap_or(-1.0))?;
    }
    Ok(())
}

/// As C's `%g`, which Envoy writes these with.
fn six_digits(value: f64) -> String {
    const DIGITS: i32 = 6;
    let text = format!("{value:.5e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..DIGITS).contains(&exponent) {
        let decimals = usize::try_from(DIGITS - 1 - exponent).unwrap_or_default();
        return trimmed(&format!("{value:.decimals$}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(digits), exponent.unsigned_abs())
}

fn health_flags(flags: &[HealthFlag]) -> String {
    if flags.is_empty() {
        return "healthy".into();
    }
    flags.iter().map(|flag| format!("/{}", flag.names().0)).collect()
}

/// As Envoy's `admin.v3.ClusterStatus`; JSON protobuf leaves out what has its default.
fn status(cluster: &ClusterStatus) -> Value {
    let mut out = Map::new();
    out.insert("name".into(), json!(cluster.name));
    if cluster.added_via_api {
        out.insert("added_via_api".into(), json!(true));
    }
    // A threshold below nothing is none.
    let threshold = |comparison: Option<RateComparison>| comparison.map(|it| it.threshold).filter(|it| *it >= 0.0);
    let outliers = cluster.outliers.unwrap_or_default();
    if let Some(threshold) = threshold(outliers.answers) {
        out.insert("success_rate_ejection_threshold".into(), percent(threshold));
    }
    if !cluster.endpoints.is_empty() {
        out.insert("host_statuses".into(), cluster.endpoints.iter().map(host_status).collect());
    }
    if let Some(threshold) = threshold(outliers.local_origin) {
        out.insert("local_origin_success_rate_ejection_threshold".into(), percent(threshold));
    }
    let high = thresholds(Some("HIGH"), &cluster.high_priority);
    let thresholds = json!([thresholds(None, &cluster.default_priority), high]);
    out.insert("circuit_breakers".into(), json!({ "thresholds": thresholds }));
    out.insert("observability_name".into(), json!(cluster.observability_name));
    Value::Object(out)
}

/// As Envoy's `type.v3.Percent`.
fn percent(value: f64) -> Value {
    if value == 0.0 { json!({}) } else { json!({ "value": value }) }
}

fn thresholds(priority: Option<&str>, limits: &Thresholds) -> Value {
    let mut out = Map::new();
    if let Some(priority) = priority {
        out.insert("priority".into(), json!(priority));
    }
    out.insert("max_connections".into(), json!(limits.max_connections));
    out.insert("max_pending_requests".into(), json!(limits.max_pending_requests));
    out.insert("max_requests".into(), json!(limits.max_requests));
    out.insert("max_retries".into(), json!(limits.max_retries));
    Value::Object(out)
}

fn host_status(endpoint: &EndpointStatus) -> Value {
    let metric = |kind: Option<&str>, name: &str, value: u64| {
        let mut out = Map::new();
        if let Some(kind) = kind {
            out.insert("type".into(), json!(kind));
        }
        if value != 0 {
            // 64-bit numbers are strings in JSON protobuf.
            out.insert("value".into(), json!(value.to_string()));
        }
        out.insert("name".into(), json!(name));
        Value::Object(out)
    };
    let counters = endpoint.counters().into_iter().map(|(name, value)| metric(None, name, value));
    let gauges = endpoint.gauges().into_iter().map(|(name, value)| metric(Some("GAUGE"), name, value));
    let mut out = Map::new();
    out.insert("address".into(), address(&endpoint.address));
    out.insert("stats".into(), counters.chain(gauges).collect());
    out.insert("health_status".into(), health_status(&endpoint.health));
    if let Some(rate) = endpoint.success_rate {
        out.insert("success_rate".into(), percent(rate));
    }
    out.insert("weight".into(), json!(endpoint.weight));
    if !endpoint.hostname.is_empty() {
        out.insert("hostname".into(), json!(endpoint.hostname));
    }
    if endpoint.priority != 0 {
        out.insert("priority".into(), json!(endpoint.priority));
    }
    if let Some(rate) = endpoint.local_origin_success_rate {
        out.insert("local_origin_success_rate".into(), percent(rate));
    }
    let parts = [("region", &endpoint.region), ("zone", &endpoint.zone), ("sub_zone", &endpoint.sub_zone)];
    let parts = parts.into_iter().filter(|(_, value)| !value.is_empty());
    out.insert("locality".into(), parts.map(|(name, value)| (name.to_string(), json!(value))).collect());
    Value::Object(out)
}

fn health_status(flags: &[HealthFlag]) -> Value {
    let mut out = Map::new();
    for name in flags.iter().filter_map(|flag| flag.names().1) {
        out.insert(name.into(), json!(true));
    }
    let configured = if flags.contains(&HealthFlag::FailedByConfiguration) {
        "UNHEALTHY"
    } else if flags.contains(&HealthFlag::DrainingByConfiguration) {
        "DRAINING"
    } else if flags.contains(&HealthFlag::DegradedByConfiguration) {
        "DEGRADED"
    } else {
        "HEALTHY"
    };
    out.insert("eds_health_status".into(), json!(configured));
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    use super::six_digits;

    #[test]
    fn six_digits_are_those_of_c() {
        for (value, text) in [
            (-1.0, "-1"),
            (0.0, "0"),
            (100.0, "100"),
            (250.0 / 3.0, "83.3333"),
            (71.548_220_313_557_54, "71.5482"),
            (-8.25, "-8.25"),
            (99.999_999, "100"),
            (0.000_123_456_78, "0.000123457"),
            (0.000_012_345_678, "1.23457e-05"),
            (1.421_085_471_520_2e-14, "1.42109e-14"),
            (-1_000_000.0, "-1e+06"),
        ] {
            assert_eq!(six_digits(value), text);
        }
    }
}
