//! Metrics as OpenTelemetry's protocol carries them (OTLP 1.x, `opentelemetry.proto.collector.metrics.v1`): the messages
//! and fields that a proxy needs, with the numbers that the protocol gives them.

pub mod spans;

use prost::{Message, Oneof};

/// Takes an [`ExportRequest`] and answers with an [`ExportResponse`].
pub const EXPORT: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";

/// `AggregationTemporality`.
pub const DELTA: i32 = 1;
pub const CUMULATIVE: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    pub resource_metrics: Vec<ResourceMetrics>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    pub partial_success: Option<PartialSuccess>,
}

/// What a collector did not take.
#[derive(Clone, PartialEq, Message)]
pub struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub rejected_data_points: i64,
    #[prost(string, tag = "2")]
    pub error_message: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct ResourceMetrics {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub scope_metrics: Vec<ScopeMetrics>,
}

/// Who tells.
#[derive(Clone, PartialEq, Message)]
pub struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ScopeMetrics {
    #[prost(message, repeated, tag = "2")]
    pub metrics: Vec<Metric>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Metric {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(oneof = "Data", tags = "5, 7, 9")]
    pub data: Option<Data>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Data {
    #[prost(message, tag = "5")]
    Gauge(Gauge),
    #[prost(message, tag = "7")]
    Sum(Sum),
    #[prost(message, tag = "9")]
    Histogram(Histogram),
}

#[derive(Clone, PartialEq, Message)]
pub struct Gauge {
    #[prost(message, repeated, tag = "1")]
    pub data_points: Vec<NumberDataPoint>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Sum {
    #[prost(message, repeated, tag = "1")]
    pub data_points: Vec<NumberDataPoint>,
    /// [`DELTA`] or [`CUMULATIVE`].
    #[prost(int32, tag = "2")]
    pub aggregation_temporality: i32,
    #[prost(bool, tag = "3")]
    pub is_monotonic: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct Histogram {
    #[prost(message, repeated, tag = "1")]
    pub data_points: Vec<HistogramDataPoint>,
    /// [`DELTA`] or [`CUMULATIVE`].
    #[prost(int32, tag = "2")]
    pub aggregation_temporality: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct NumberDataPoint {
    #[prost(message, repeated, tag = "7")]
    pub attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "2")]
    pub start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    pub time_unix_nano: u64,
    #[prost(oneof = "Number", tags = "4, 6")]
    pub value: Option<Number>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Number {
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(sfixed64, tag = "6")]
    Int(i64),
}

#[derive(Clone, PartialEq, Message)]
pub struct HistogramDataPoint {
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "2")]
    pub start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    pub time_unix_nano: u64,
    #[prost(fixed64, tag = "4")]
    pub count: u64,
    #[prost(double, optional, tag = "5")]
    pub sum: Option<f64>,
    /// One more than there are bounds.
    #[prost(fixed64, repeated, tag = "6")]
    pub bucket_counts: Vec<u64>,
    #[prost(double, repeated, tag = "7")]
    pub explicit_bounds: Vec<f64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub struct AnyValue {
    #[prost(oneof = "Plain", tags = "1, 2, 3, 4, 5, 6")]
    pub value: Option<Plain>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Plain {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(int64, tag = "3")]
    Integer(i64),
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(message, tag = "5")]
    List(ListOfValues),
    #[prost(message, tag = "6")]
    Map(MapOfValues),
}

#[derive(Clone, PartialEq, Message)]
pub struct ListOfValues {
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub struct MapOfValues {
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<KeyValue>,
}

impl AnyValue {
    pub fn text(value: impl Into<String>) -> AnyValue {
        AnyValue { value: Some(Plain::Text(value.into())) }
    }
}

impl KeyValue {
    pub fn text(key: impl Into<String>, value: impl Into<String>) -> KeyValue {
        KeyValue { key: key.into(), value: Some(AnyValue::text(value)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As written by hand from the protocol's definition.
    #[test]
    fn a_counter_has_the_bytes_of_the_protocol() {
        let point = NumberDataPoint {
            attributes: vec![KeyValue::text("a", "b")],
            start_time_unix_nano: 1,
            time_unix_nano: 2,
            value: Some(Number::Int(-1)),
        };
        let sum = Sum { data_points: vec![point], aggregation_temporality: CUMULATIVE, is_monotonic: true };
        let metric = Metric { name: "m".into(), data: Some(Data::Sum(sum)) };
        let scope_metrics = vec![ScopeMetrics { metrics: vec![metric] }];
        let resource = Resource { attributes: vec![KeyValue::text("k", "v")] };
        let resource_metrics = vec![ResourceMetrics { resource: Some(resource), scope_metrics }];
        let bytes = ExportRequest { resource_metrics }.encode_to_vec();
        let field = |number: u8, kind: u8, content: &[u8]| {
            let mut out = vec![number << 3 | kind];
            if kind == 2 {
                out.push(content.len() as u8);
            }
            out.extend_from_slice(content);
            out
        };
        let text = |number, text: &str| field(number, 2, text.as_bytes());
        let pair = |key, value| [text(1, key), field(2, 2, &text(1, value))].concat();
        let fixed = |number, value: i64| field(number, 1, &value.to_le_bytes());
        let point = [fixed(2, 1), fixed(3, 2), fixed(6, -1), field(7, 2, &pair("a", "b"))].concat();
        let sum = [field(1, 2, &point), field(2, 0, &[2]), field(3, 0, &[1])].concat();
        let metric = [text(1, "m"), field(7, 2, &sum)].concat();
        let scope = field(2, 2, &metric);
        let resource = field(1, 2, &pair("k", "v"));
        let all = [field(1, 2, &resource), field(2, 2, &scope)].concat();
        assert_eq!(bytes, field(1, 2, &all));
    }
}
