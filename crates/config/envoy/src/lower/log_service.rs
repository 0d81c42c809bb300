//! Services that take access logs by gRPC (`CommonGrpcAccessLogConfig` and the two messages around it).

use std::sync::Arc;
use std::time::Duration;

use postrider_model::{EntryKind, Format, LogEntries, LogService};

use super::context::Lowering;
use super::{callees, headers};
use crate::reader::Reader;

/// How long an entry waits for others unless something else is written.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// How many bytes of entries are sent at once unless something else is written.
const BUFFER_BYTES: u32 = 16 * 1024;

/// What an `HttpGrpcAccessLogConfig` or a `TcpGrpcAccessLogConfig` says.
pub(super) fn entries(cx: &mut Lowering<'_>, config: &Reader<'_>, kind: EntryKind) -> Option<LogEntries> {
    let [request_headers, response_headers, response_trailers] = match kind {
        EntryKind::Http => [
            "additional_request_headers_to_log",
            "additional_response_headers_to_log",
            "additional_response_trailers_to_log",
        ]
        .map(|field| headers::names(cx, config, field)),
        EntryKind::Tcp => [const { Vec::new() }; 3],
    };
    // What is required was asked for when the file was read.
    let common = config.message("common_config")?;
    let service = Arc::new(service(cx, &common, kind)?);
    Some(LogEntries { service, request_headers, response_headers, response_trailers })
}

fn service(cx: &mut Lowering<'_>, common: &Reader<'_>, kind: EntryKind) -> Option<LogService> {
    if common.enum_name("transport_api_version") != "V3" {
        let text = "the service speaks V3 here: write `transport_api_version: V3`";
        cx.error(common, "transport_api_version", "unsupported-value", text);
    }
    for (field, what) in [
        ("filter_state_objects_to_log", "filter state in the entries of an access log service"),
        ("grpc_stream_retry_policy", "a retry policy for the stream to an access log service"),
        ("custom_tags", "custom tags in the entries of an access log service"),
    ] {
        if common.has(field) {
            cx.refuse(common, field, what);
        }
    }
    let log_name = common.str("log_name").to_owned();
    let flush_interval = common.duration("buffer_flush_interval").unwrap_or(FLUSH_INTERVAL);
    let buffer_bytes = common.u32_wrapper("buffer_size_bytes").unwrap_or(BUFFER_BYTES) as usize;
    let grpc = common.message("grpc_service")?;
    callees::note(cx, grpc.as_message(), grpc.path());
    for (field, what) in
        [("google_grpc", "a gRPC client of its own (`google_grpc`)"), ("retry_policy", "retrying gRPC calls")]
    {
        if grpc.has(field) {
            cx.refuse(&grpc, field, what);
        }
    }
    cx.no_effect(&grpc, "timeout", "the stream to an access log service stays open, as in Envoy");
    let metadata = grpc.list("initial_metadata").iter().filter_map(|header| metadata(cx, header)).collect();
    let envoy = grpc.message("envoy_grpc")?;
    if envoy.has("retry_policy") {
        cx.refuse(&envoy, "retry_policy", "retrying gRPC calls");
    }
    envoy.ignore("skip_envoy_headers", "what it turns off is not sent here in the first place");
    let max_answer = envoy.u32_wrapper("max_receive_message_length").filter(|most| *most > 0);
    Some(LogService {
        cluster: envoy.str("cluster_name").into(),
        authority: authority(cx, &envoy),
        metadata,
        max_answer: max_answer.map(|most| most as usize),
        log_name,
        kind,
        flush_interval,
        buffer_bytes,
    })
}

fn authority(cx: &mut Lowering<'_>, envoy: &Reader<'_>) -> Option<String> {
    let authority = envoy.str("authority");
    if !authority.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~:[]".contains(&byte)) {
        cx.error(envoy, "authority", "invalid-value", format!("`{authority}` is no host with or without a port"));
    }
    (!authority.is_empty()).then(|| authority.to_owned())
}

/// A field that the stream carries. No request stands behind it whose values a format could take.
fn metadata(cx: &mut Lowering<'_>, header: &Reader<'_>) -> Option<(String, String)> {
    if header.has("raw_value") {
        cx.refuse(header, "raw_value", "metadata as bytes");
    }
    let value: Format = cx.format(header, "value", header.str("value"));
    let name = headers::name(cx, header, "key")?;
    match value.as_literal() {
        Some(value) if !value.bytes().any(|byte| byte == 0x7f || (byte < 0x20 && byte != b'\t')) => {
            Some((name, value.to_owned()))
        }
        Some(_) => {
            cx.error(header, "value", "invalid-header-value", "a header value holds no control characters");
            None
        }
        None => {
            cx.refuse_value(header, "value", "metadata with the values of a request, on a stream for many of them");
            None
        }
    }
}
