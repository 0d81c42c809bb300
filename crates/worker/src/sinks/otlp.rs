//! Statistics in OpenTelemetry's words: one metric with one data point for each, as Envoy tells them.

use std::time::SystemTime;

use postrider_grpc::Message as _;
use postrider_grpc::otlp::{
    CUMULATIVE, DELTA, Data, ExportRequest, Gauge, Histogram, HistogramDataPoint, KeyValue, Metric, Number,
    NumberDataPoint, Resource, ResourceMetrics, ScopeMetrics, Sum,
};
use postrider_model::OtlpSink;
use postrider_telemetry::samples::{Sample, Value};
use postrider_telemetry::sink::Sink;
use postrider_telemetry::stats::Distribution;

use super::{Courier, nanos};

pub(super) struct Otlp {
    model: OtlpSink,
    resource: Resource,
    courier: Courier,
    /// Of the flush under way.
    metrics: Vec<Metric>,
    times: Times,
}

/// Since the epoch, in nanoseconds.
struct Times {
    /// Since when totals are counted.
    started: u64,
    /// Since when what is new is counted: the last flush.
    last: u64,
    now: u64,
}

impl Otlp {
    pub(super) fn new(model: OtlpSink, started: SystemTime, courier: Courier) -> Otlp {
        let program = [
            ("telemetry.sdk.language", "rust"),
            ("telemetry.sdk.name", "postrider"),
            ("telemetry.sdk.version", env!("CARGO_PKG_VERSION")),
        ];
        let is_said = |name: &str| model.resource.iter().any(|(said, _)| said == name);
        let program = program.into_iter().filter(|(name, _)| !is_said(name));
        let mut attributes: Vec<KeyValue> = program.map(|(name, value)| KeyValue::text(name, value)).collect();
        attributes.extend(model.resource.iter().map(|(name, value)| KeyValue::text(name, value)));
        let started = nanos(started);
        let times = Times { started, last: started, now: started };
        Otlp { model, resource: Resource { attributes }, courier, metrics: Vec::new(), times }
    }

    fn number(&self, attributes: Vec<KeyValue>, start: u64, value: u64) -> NumberDataPoint {
        let value = Number::Int(i64::try_from(value).unwrap_or(i64::MAX));
        NumberDataPoint { attributes, start_time_unix_nano: start, time_unix_nano: self.times.now, value: Some(value) }
    }

    /// Which of the two is told, as of when, and what that is called.
    fn choose<T>(&self, deltas: bool, new: T, total: T) -> (T, u64, i32) {
        if deltas { (new, self.times.last, DELTA) } else { (total, self.times.started, CUMULATIVE) }
    }

    fn histogram(
        &self,
        attributes: Vec<KeyValue>,
        start: u64,
        recorded: &Distribution,
        bounds: &[f64],
    ) -> HistogramDataPoint {
        let mut before = 0;
        let mut counts: Vec<u64> = Vec::with_capacity(bounds.len() + 1);
        for bound in bounds {
            let upto = recorded.at_most(*bound);
            counts.push(upto - before);
            before = upto;
        }
        counts.push(recorded.count() - before);
        HistogramDataPoint {
            attributes,
            start_time_unix_nano: start,
            time_unix_nano: self.times.now,
            count: recorded.count(),
            sum: Some(recorded.sum() as f64),
            bucket_counts: counts,
            explicit_bounds: bounds.to_vec(),
        }
    }

    fn message(&self, metrics: Vec<Metric>) -> Vec<u8> {
        let scope_metrics = vec![ScopeMetrics { metrics }];
        let resource_metrics = vec![ResourceMetrics { resource: Some(self.resource.clone()), scope_metrics }];
        ExportRequest { resource_metrics }.encode_to_vec()
    }
}

impl Sink for Otlp {
    fn begin(&mut self, now: SystemTime) {
        self.times.now = nanos(now);
    }

    fn take(&mut self, sample: &Sample<'_>) {
        // That nothing is new need not be told, as in Envoy.
        match &sample.value {
            Value::Counter { new: 0, .. } if self.model.counters_as_deltas => return,
            Value::Histogram { new, .. } if self.model.histograms_as_deltas && new.count() == 0 => return,
            _ => {}
        }
        let name = if self.model.names_without_tags { &sample.tagged.name } else { sample.name };
        let name = match &self.model.prefix {
            Some(prefix) => format!("{prefix}.{name}"),
            None => name.to_owned(),
        };
        let tags = sample.tagged.tags.iter().filter(|_| self.model.tags_as_attributes);
        let attributes = tags.map(|(name, value)| KeyValue::text(name, value)).collect();
        let data = match &sample.value {
            Value::Counter { new, total } => {
                let (value, start, aggregation_temporality) = self.choose(self.model.counters_as_deltas, *new, *total);
                let data_points = vec![self.number(attributes, start, value)];
                Data::Sum(Sum { data_points, aggregation_temporality, is_monotonic: true })
            }
            Value::Gauge(value) => {
                // It is what it is: no time before counts.
                Data::Gauge(Gauge { data_points: vec![self.number(attributes, 0, *value)] })
            }
            Value::Histogram { new, total, bounds } => {
                let (recorded, start, aggregation_temporality) =
                    self.choose(self.model.histograms_as_deltas, *new, *total);
                let data_points = vec![self.histogram(attributes, start, recorded, bounds)];
                Data::Histogram(Histogram { data_points, aggregation_temporality })
            }
        };
        self.metrics.push(Metric { name, data: Some(data) });
    }

    fn finish(&mut self) -> u64 {
        let mut left = std::mem::take(&mut self.metrics);
        let mut messages = Vec::new();
        while !left.is_empty() {
            let rest = left.split_off(left.len().min(self.model.max_points.unwrap_or(usize::MAX)));
            messages.push(self.message(left));
            left = rest;
        }
        self.times.last = self.times.now;
        self.courier.send(messages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;
    use crate::sinks::{Way, overheard};
    use postrider_grpc::otlp::AnyValue;
    use postrider_model::{GrpcTarget, OtlpTarget};
    use postrider_telemetry::render::Tagged;
    use std::time::Duration;
    use tokio::sync::mpsc::Receiver;

    fn model() -> OtlpSink {
        let service =
            GrpcTarget { cluster: "c".into(), authority: None, metadata: Vec::new(), max_answer: None, retries: None };
        OtlpSink {
            to: OtlpTarget::Grpc { service, timeout: None },
            resource: vec![("service.name".into(), "shop".into()), ("telemetry.sdk.name".into(), "mine".into())],
            counters_as_deltas: false,
            histograms_as_deltas: false,
            tags_as_attributes: true,
            names_without_tags: true,
            prefix: None,
            max_points: None,
        }
    }

    fn start(model: OtlpSink) -> (Otlp, Receiver<Message>) {
        let (courier, mailbox) = overheard(Way::Otlp(model.to.clone()));
        (Otlp::new(model, SystemTime::UNIX_EPOCH + Duration::from_nanos(1), courier), mailbox)
    }

    /// What two flushes of one counter, gauge and histogram each are told as.
    fn told(model: OtlpSink) -> Vec<ExportRequest> {
        let (mut sink, mut mailbox) = start(model);
        let tagged = Tagged { name: "c.rq".into(), tags: vec![("cluster".into(), "a".into())] };
        let total: Distribution = [1, 20, 700].into_iter().collect();
        let new: Distribution = [20].into_iter().collect();
        for now in [10, 20] {
            sink.begin(SystemTime::UNIX_EPOCH + Duration::from_nanos(now));
            let histogram = Value::Histogram { new: &new, total: &total, bounds: &[0.5, 25.0, 100.0] };
            for value in [Value::Counter { new: 3, total: 9 }, Value::Gauge(7), histogram] {
                sink.take(&Sample { name: "c.a.rq", tagged: &tagged, value });
            }
            assert_eq!(sink.finish(), 0);
        }
        let Ok(Message::Carry(mut carrier)) = mailbox.try_recv() else { panic!("nothing to carry") };
        let flushes = std::iter::from_fn(|| carrier.inbox.try_recv().ok());
        flushes.flatten().map(|message| ExportRequest::decode(message.as_slice()).unwrap()).collect()
    }

    fn metrics(request: &ExportRequest) -> &[Metric] {
        &request.resource_metrics[0].scope_metrics[0].metrics
    }

    #[test]
    fn totals_count_from_the_start() {
        let told = told(model());
        assert_eq!(told.len(), 2);
        let resource = told[0].resource_metrics[0].resource.as_ref().unwrap();
        let text = |name: &str| {
            let found = resource.attributes.iter().filter(|attribute| attribute.key == name);
            found.map(|found| found.value.clone().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(text("service.name"), [AnyValue::text("shop")]);
        assert_eq!(text("telemetry.sdk.name"), [AnyValue::text("mine")]);
        let attributes = || vec![KeyValue::text("cluster", "a")];
        let point = |start, now, value| NumberDataPoint {
            attributes: attributes(),
            start_time_unix_nano: start,
            time_unix_nano: now,
            value: Some(Number::Int(value)),
        };
        let counter =
            Sum { data_points: vec![point(1, 20, 9)], aggregation_temporality: CUMULATIVE, is_monotonic: true };
        let histogram = HistogramDataPoint {
            attributes: attributes(),
            start_time_unix_nano: 1,
            time_unix_nano: 20,
            count: 3,
            sum: Some(721.0),
            bucket_counts: vec![0, 2, 0, 1],
            explicit_bounds: vec![0.5, 25.0, 100.0],
        };
        let want = [
            Data::Sum(counter),
            Data::Gauge(Gauge { data_points: vec![point(0, 20, 7)] }),
            Data::Histogram(Histogram { data_points: vec![histogram], aggregation_temporality: CUMULATIVE }),
        ];
        assert_eq!(metrics(&told[1]), want.map(|data| Metric { name: "c.rq".into(), data: Some(data) }));
    }

    #[test]
    fn deltas_count_from_the_last_flush() {
        let changed = OtlpSink {
            counters_as_deltas: true,
            histograms_as_deltas: true,
            tags_as_attributes: false,
            names_without_tags: false,
            prefix: Some("p".into()),
            ..model()
        };
        let told = told(changed);
        let [counter, _, histogram] = metrics(&told[1]) else { panic!("{told:?}") };
        assert_eq!((&*counter.name, &*histogram.name), ("p.c.a.rq", "p.c.a.rq"));
        let (Some(Data::Sum(counter)), Some(Data::Histogram(histogram))) = (&counter.data, &histogram.data) else {
            panic!("{told:?}")
        };
        assert_eq!((counter.aggregation_temporality, histogram.aggregation_temporality), (DELTA, DELTA));
        let (counter, histogram) = (&counter.data_points[0], &histogram.data_points[0]);
        assert_eq!((counter.start_time_unix_nano, &counter.value), (10, &Some(Number::Int(3))));
        assert_eq!((histogram.start_time_unix_nano, histogram.count, histogram.sum), (10, 1, Some(20.0)));
        assert!(counter.attributes.is_empty() && histogram.attributes.is_empty());
    }

    #[test]
    fn deltas_of_nothing_are_not_told() {
        let none = Distribution::default();
        let total: Distribution = [1].into_iter().collect();
        let tagged = Tagged { name: "c.rq".into(), tags: Vec::new() };
        for (deltas, want) in [(true, 1), (false, 3)] {
            let model = OtlpSink { counters_as_deltas: deltas, histograms_as_deltas: deltas, ..model() };
            let (mut sink, mut mailbox) = start(model);
            let histogram = Value::Histogram { new: &none, total: &total, bounds: &[1.0] };
            for value in [Value::Counter { new: 0, total: 9 }, Value::Gauge(0), histogram] {
                sink.take(&Sample { name: "c.rq", tagged: &tagged, value });
            }
            sink.finish();
            let Ok(Message::Carry(mut carrier)) = mailbox.try_recv() else { panic!("nothing to carry") };
            let message = carrier.inbox.try_recv().unwrap().remove(0);
            assert_eq!(metrics(&ExportRequest::decode(message.as_slice()).unwrap()).len(), want, "{deltas}");
        }
    }

    #[test]
    fn more_points_take_more_requests() {
        let told = told(OtlpSink { max_points: Some(2), ..model() });
        assert_eq!(told.iter().map(|request| metrics(request).len()).collect::<Vec<_>>(), [2, 1, 2, 1]);
        assert!(told.iter().all(|request| request.resource_metrics[0].resource.is_some()));
    }
}
