//! Statistics in Prometheus' words, as Envoy's `MetricsService` takes them: one family with one metric for each.

use std::time::SystemTime;

use postrider_grpc::Message as _;
use postrider_grpc::metrics::{
    Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType, Quantile, StreamMetricsMessage,
    Summary,
};
use postrider_model::MetricsSink;
use postrider_telemetry::samples::{Sample, Value};
use postrider_telemetry::sink::Sink;
use postrider_telemetry::stats::{Distribution, QUANTILES};

use super::{Courier, nanos};

pub(super) struct Metrics {
    model: MetricsSink,
    courier: Courier,
    /// Of the flush under way.
    families: Vec<MetricFamily>,
    /// Since the epoch.
    now_ms: i64,
}

impl Metrics {
    pub(super) fn new(model: MetricsSink, courier: Courier) -> Metrics {
        Metrics { model, courier, families: Vec::new(), now_ms: 0 }
    }

    fn tell(&mut self, sample: &Sample<'_>, kind: MetricType, metric: Metric) {
        let (name, label) = match self.model.tags_as_labels {
            true => {
                let label = |(name, value): &(String, String)| LabelPair {
                    name: Some(name.clone()),
                    value: Some(value.clone()),
                };
                (&*sample.tagged.name, sample.tagged.tags.iter().map(label).collect())
            }
            false => (sample.name, Vec::new()),
        };
        self.families.push(MetricFamily {
            name: Some(name.to_owned()),
            r#type: Some(kind.into()),
            metric: vec![Metric { label, timestamp_ms: Some(self.now_ms), ..metric }],
            ..MetricFamily::default()
        });
    }
}

impl Sink for Metrics {
    fn begin(&mut self, now: SystemTime) {
        self.now_ms = i64::try_from(nanos(now) / 1_000_000).unwrap_or(i64::MAX);
    }

    fn take(&mut self, sample: &Sample<'_>) {
        match &sample.value {
            Value::Counter { new, total } => {
                let value = if self.model.counters_as_deltas { *new } else { *total };
                let counter = Counter { value: Some(value as f64), ..Counter::default() };
                let metric = Metric { counter: Some(counter), ..Metric::default() };
                self.tell(sample, MetricType::Counter, metric);
            }
            Value::Gauge(value) => {
                let gauge = Gauge { value: Some(*value as f64) };
                self.tell(sample, MetricType::Gauge, Metric { gauge: Some(gauge), ..Metric::default() });
            }
            // What is new is told of both, as in Envoy.
            Value::Histogram { new, bounds, .. } => {
                if self.model.summaries {
                    let metric = Metric { summary: Some(summary(new)), ..Metric::default() };
                    self.tell(sample, MetricType::Summary, metric);
                }
                if self.model.histograms {
                    let metric = Metric { histogram: Some(histogram(new, bounds)), ..Metric::default() };
                    self.tell(sample, MetricType::Histogram, metric);
                }
            }
        }
    }

    fn finish(&mut self) -> u64 {
        let mut left = std::mem::take(&mut self.families);
        let mut messages = Vec::new();
        while !left.is_empty() {
            let rest = left.split_off(left.len().min(self.model.batch.unwrap_or(usize::MAX)));
            messages.push(StreamMetricsMessage { identifier: None, envoy_metrics: left }.encode_to_vec());
            left = rest;
        }
        self.courier.send(messages)
    }
}

fn summary(recorded: &Distribution) -> Summary {
    let quantile =
        |(quantile, _): &(f64, &str)| Quantile { quantile: Some(*quantile), value: Some(recorded.quantile(*quantile)) };
    Summary {
        sample_count: Some(recorded.count()),
        sample_sum: Some(recorded.sum() as f64),
        quantile: QUANTILES.iter().map(quantile).collect(),
        ..Summary::default()
    }
}

fn histogram(recorded: &Distribution, bounds: &[f64]) -> Histogram {
    let bucket = |bound: &f64| Bucket {
        cumulative_count: Some(recorded.at_most(*bound)),
        upper_bound: Some(*bound),
        ..Bucket::default()
    };
    Histogram {
        sample_count: Some(recorded.count()),
        sample_sum: Some(recorded.sum() as f64),
        bucket: bounds.iter().map(bucket).collect(),
        ..Histogram::default()
    }
}
