//! Spans and log records as OpenTelemetry's protocol carries them (`opentelemetry.proto.trace.v1`,
//! `opentelemetry.proto.logs.v1`). The requests that carry them have one shape: who tells, and what, which gathers as bytes,
//! each entry as it stands in its message, so that nothing is encoded twice when it is sent.

use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};

use super::{AnyValue, KeyValue, Resource};

/// Takes spans.
pub const EXPORT_TRACES: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// Takes log records.
pub const EXPORT_LOGS: &str = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";

/// `SpanKind`.
pub const SERVER: i32 = 2;
pub const CLIENT: i32 = 3;

/// `Status.StatusCode`.
pub const FAILED: i32 = 2;

/// `SpanFlags`: the trace is told, it is known whether the parent is elsewhere, and it is.
pub const SAMPLED: u32 = 0x1;
pub const KNOWS_PARENT: u32 = 0x100;
pub const PARENT_IS_REMOTE: u32 = 0x200;

#[derive(Clone, PartialEq, Message)]
pub struct Span {
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    pub trace_state: String,
    #[prost(bytes = "vec", tag = "4")]
    pub parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub name: String,
    /// [`SERVER`] or [`CLIENT`].
    #[prost(int32, tag = "6")]
    pub kind: i32,
    #[prost(fixed64, tag = "7")]
    pub start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    pub end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<Event>,
    #[prost(message, optional, tag = "15")]
    pub status: Option<Status>,
    #[prost(fixed32, tag = "16")]
    pub flags: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Event {
    #[prost(fixed64, tag = "1")]
    pub time_unix_nano: u64,
    #[prost(string, tag = "2")]
    pub name: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Status {
    /// [`FAILED`], or nothing.
    #[prost(int32, tag = "3")]
    pub code: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct LogRecord {
    #[prost(fixed64, tag = "1")]
    pub time_unix_nano: u64,
    #[prost(message, optional, tag = "5")]
    pub body: Option<AnyValue>,
    #[prost(message, repeated, tag = "6")]
    pub attributes: Vec<KeyValue>,
    #[prost(bytes = "vec", tag = "9")]
    pub trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "10")]
    pub span_id: Vec<u8>,
}

/// Which program made them.
#[derive(Clone, PartialEq, Message)]
pub struct Scope {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub version: String,
}

/// Of `ResourceSpans` and `ResourceLogs`, of `ScopeSpans` and `ScopeLogs`: who, and then what.
const WHO: u32 = 1;
const WHAT: u32 = 2;

/// Appends a [`Span`] or a [`LogRecord`] to those that gathered.
pub fn append(entry: &impl Message, entries: &mut Vec<u8>) {
    encode_key(WHAT, WireType::LengthDelimited, entries);
    // There is always room in a vector.
    let _ = entry.encode_length_delimited(entries);
}

/// The request that carries what gathered.
pub fn request(resource: &Resource, scope: Option<&Scope>, entries: &[u8]) -> Vec<u8> {
    let mut of_scope = Vec::with_capacity(entries.len() + 64);
    if let Some(scope) = scope {
        field(WHO, &scope.encode_to_vec(), &mut of_scope);
    }
    of_scope.extend_from_slice(entries);
    let mut of_resource = Vec::with_capacity(of_scope.len() + 256);
    field(WHO, &resource.encode_to_vec(), &mut of_resource);
    field(WHAT, &of_scope, &mut of_resource);
    let mut out = Vec::with_capacity(of_resource.len() + 8);
    field(WHO, &of_resource, &mut out);
    out
}

fn field(number: u32, content: &[u8], out: &mut Vec<u8>) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(content.len() as u64, out);
    out.extend_from_slice(content);
}

/// What [`request`] makes of spans, for tests that play a collector.
#[derive(Clone, PartialEq, Message)]
pub struct ExportSpans {
    #[prost(message, repeated, tag = "1")]
    pub resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    pub scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub spans: Vec<Span>,
}

/// The same of log records.
#[derive(Clone, PartialEq, Message)]
pub struct ExportLogs {
    #[prost(message, repeated, tag = "1")]
    pub resource_logs: Vec<ResourceLogs>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ResourceLogs {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub scope_logs: Vec<ScopeLogs>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ScopeLogs {
    #[prost(message, repeated, tag = "2")]
    pub log_records: Vec<LogRecord>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_gathered_is_a_request() {
        let span = |name: &str| Span {
            trace_id: vec![1; 16],
            name: name.into(),
            kind: SERVER,
            status: Some(Status { code: FAILED }),
            flags: SAMPLED | KNOWS_PARENT,
            ..Span::default()
        };
        let spans = vec![span("a"), span("b")];
        let mut entries = Vec::new();
        spans.iter().for_each(|span| append(span, &mut entries));
        let resource = Resource { attributes: vec![KeyValue::text("service.name", "shop")] };
        let scope = Scope { name: "s".into(), version: "1".into() };
        let scope_spans = vec![ScopeSpans { scope: Some(scope.clone()), spans }];
        let want =
            ExportSpans { resource_spans: vec![ResourceSpans { resource: Some(resource.clone()), scope_spans }] };
        assert_eq!(request(&resource, Some(&scope), &entries), want.encode_to_vec());

        let record = LogRecord { body: Some(AnyValue::text("x")), ..LogRecord::default() };
        entries.clear();
        append(&record, &mut entries);
        let scope_logs = vec![ScopeLogs { log_records: vec![record] }];
        let want = ExportLogs { resource_logs: vec![ResourceLogs { resource: Some(resource.clone()), scope_logs }] };
        assert_eq!(request(&resource, None, &entries), want.encode_to_vec());
    }
}
