//! Prometheus' protocol buffers (`io.prometheus.client.MetricFamily`): the fields that are needed, by their numbers.

use super::Query;
use super::prometheus::Type;
use super::series::{At, Scopes, Series};
use super::tagger::Tagged;
use super::tags;
use crate::stats::QUANTILES;

/// Fields of `MetricFamily`.
const NAME: u8 = 1;
const TYPE: u8 = 3;
const METRIC: u8 = 4;

/// Fields of `Metric`.
const LABEL: u8 = 1;
const GAUGE: u8 = 2;
const COUNTER: u8 = 3;
const SUMMARY: u8 = 4;
const HISTOGRAM: u8 = 7;

/// Of the small messages: a pair of texts, a counter, a gauge, a bucket, a quantile.
const FIRST: u8 = 1;
const SECOND: u8 = 2;
/// The buckets of `Histogram`, the quantiles of `Summary`.
const PARTS: u8 = 3;

/// The family without its metrics.
pub(super) fn begin(metric: &str, kind: Type, query: &Query, out: &mut Vec<u8>) {
    let number = match kind {
        Type::Counter => 0,
        Type::Gauge => 1,
        Type::Histogram if query.summaries => 2,
        Type::Histogram => 4,
    };
    bytes(NAME, metric.as_bytes(), out);
    whole(TYPE, number, out);
}

/// One metric of the family.
pub(super) fn metric(
    kind: Type,
    tagged: &Tagged,
    scopes: &Scopes,
    at: At,
    query: &Query,
    name: &str,
    out: &mut Vec<u8>,
) {
    message(METRIC, out, |out| {
        for (tag, value) in &tagged.tags {
            message(LABEL, out, |out| {
                bytes(FIRST, tags::label_name(tag).as_bytes(), out);
                bytes(SECOND, value.as_bytes(), out);
            });
        }
        match (kind, at.1) {
            (_, Series::Histogram(_)) if query.summaries => {
                message(SUMMARY, out, |out| summary(scopes, at, query, out))
            }
            (_, Series::Histogram(_)) => message(HISTOGRAM, out, |out| histogram(scopes, at, query, name, out)),
            (Type::Gauge, _) => message(GAUGE, out, |out| double(FIRST, scopes.value(at) as f64, out)),
            _ => message(COUNTER, out, |out| double(FIRST, scopes.value(at) as f64, out)),
        }
    });
}

/// The family as it stands in a stream of them: behind its length.
pub(super) fn delimited(family: &[u8], out: &mut Vec<u8>) {
    varint(family.len() as u64, out);
    out.extend_from_slice(family);
}

fn histogram(scopes: &Scopes, at: At, query: &Query, name: &str, out: &mut Vec<u8>) {
    let recorded = scopes.histogram(at);
    whole(FIRST, recorded.map_or(0, |recorded| recorded.count()), out);
    double(SECOND, recorded.map_or(0, |recorded| recorded.sum()) as f64, out);
    query.with_bounds(name, |bounds| {
        for bound in bounds {
            message(PARTS, out, |out| {
                whole(FIRST, recorded.map_or(0, |recorded| recorded.at_most(*bound)), out);
                double(SECOND, *bound, out);
            });
        }
    });
}

/// Of the last interval, as in Envoy.
fn summary(scopes: &Scopes, at: At, query: &Query, out: &mut Vec<u8>) {
    let recorded = scopes.within(query.interval.as_deref(), at).filter(|recorded| recorded.count() > 0);
    whole(FIRST, recorded.map_or(0, |recorded| recorded.count()), out);
    double(SECOND, recorded.map_or(0, |recorded| recorded.sum()) as f64, out);
    for (quantile, _) in QUANTILES {
        message(PARTS, out, |out| {
            double(FIRST, quantile, out);
            double(SECOND, recorded.map_or(f64::NAN, |recorded| recorded.quantile(quantile)), out);
        });
    }
}

/// How a field's value is written.
enum Wire {
    Varint = 0,
    Fixed64 = 1,
    Delimited = 2,
}

fn key(field: u8, wire: Wire, out: &mut Vec<u8>) {
    out.push(field << 3 | wire as u8);
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn whole(field: u8, value: u64, out: &mut Vec<u8>) {
    key(field, Wire::Varint, out);
    varint(value, out);
}

fn double(field: u8, value: f64, out: &mut Vec<u8>) {
    key(field, Wire::Fixed64, out);
    out.extend_from_slice(&value.to_le_bytes());
}

fn bytes(field: u8, value: &[u8], out: &mut Vec<u8>) {
    key(field, Wire::Delimited, out);
    varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

fn message(field: u8, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    write(&mut inner);
    bytes(field, &inner, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Registry;
    use crate::render::{PrometheusForm, Tagger, prometheus};
    use crate::stats::sets::cluster;

    #[test]
    fn lengths_have_as_many_bytes_as_they_need() {
        let encoded = |value| {
            let mut out = Vec::new();
            varint(value, &mut out);
            out
        };
        assert_eq!(encoded(1), [1]);
        assert_eq!(encoded(300), [0xac, 0x02]);
        assert_eq!(encoded(u64::MAX).len(), 10);
    }

    #[test]
    fn a_counter_is_a_family_with_a_metric() {
        let registry = Registry::new();
        registry.worker(0).block(&cluster::SET, "a").add(cluster::UPSTREAM_CX_TOTAL, 3);
        let query = Query { filter: Some(Box::new(|name| name.ends_with("upstream_cx_total"))), ..Query::default() };
        let chunks = prometheus(registry.read(&[]), query, Tagger::default(), PrometheusForm::Protobuf);
        let mut want = Vec::new();
        bytes(1, b"envoy_cluster_upstream_cx_total", &mut want);
        want.extend([3 << 3, 0]);
        let mut inner = Vec::new();
        let mut label = Vec::new();
        bytes(1, b"envoy_cluster_name", &mut label);
        bytes(2, b"a", &mut label);
        bytes(1, &label, &mut inner);
        inner.extend([3 << 3 | 2, 9, 1 << 3 | 1]);
        inner.extend(3.0_f64.to_le_bytes());
        bytes(4, &inner, &mut want);
        want.insert(0, want.len() as u8);
        assert_eq!(chunks.flatten().collect::<Vec<u8>>(), want);
    }
}
