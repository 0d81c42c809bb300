//! Services that take access logs by gRPC (`CommonGrpcAccessLogConfig` and the two messages around it).

use std::sync::Arc;
use std::time::Duration;

use postrider_model::{EntryKind, LogEntries, LogService, RetryOn, RetryPolicy};

use super::context::Lowering;
use super::{grpc_target, headers, tracing};
use crate::reader::Reader;

/// How long an entry waits for others unless something else is written.
pub(super) const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// How many bytes of entries are sent at once unless something else is written.
pub(super) const BUFFER_BYTES: u32 = 16 * 1024;

/// What stands before the fields of a head, and may be told with them.
const BEFORE_REQUEST: [&str; 4] = [":method", ":path", ":authority", ":scheme"];
const BEFORE_RESPONSE: [&str; 1] = [":status"];

/// What an `HttpGrpcAccessLogConfig` or a `TcpGrpcAccessLogConfig` says.
pub(super) fn entries(cx: &mut Lowering<'_>, config: &Reader<'_>, kind: EntryKind) -> Option<LogEntries> {
    let [request_headers, response_headers, response_trailers] = match kind {
        EntryKind::Http => [
            ("additional_request_headers_to_log", &BEFORE_REQUEST[..]),
            ("additional_response_headers_to_log", &BEFORE_RESPONSE),
            ("additional_response_trailers_to_log", &[]),
        ]
        .map(|(field, before)| headers::shown_names(cx, config, field, before)),
        EntryKind::Tcp => [const { Vec::new() }; 3],
    };
    // What is required was asked for when the file was read.
    let common = config.message("common_config")?;
    let tags = tracing::tags(cx, &common);
    let service = Arc::new(service(cx, &common, kind)?);
    let objects = common.strings("filter_state_objects_to_log").iter().map(|name| name.value.to_owned()).collect();
    Some(LogEntries { service, request_headers, response_headers, response_trailers, objects, tags })
}

fn service(cx: &mut Lowering<'_>, common: &Reader<'_>, kind: EntryKind) -> Option<LogService> {
    grpc_target::version(cx, common);
    let log_name = common.str("log_name").to_owned();
    let flush_interval = common.duration("buffer_flush_interval").unwrap_or(FLUSH_INTERVAL);
    let buffer_bytes = common.u32_wrapper("buffer_size_bytes").unwrap_or(BUFFER_BYTES) as usize;
    let grpc = common.message("grpc_service")?;
    cx.no_effect(&grpc, "timeout", "the stream to an access log service stays open, as in Envoy");
    let mut target = grpc_target::target(cx, &grpc)?;
    if let Some(policy) = grpc_target::retries(cx, common, "grpc_stream_retry_policy") {
        // It says how often, and not when: a stream that cannot be established is tried again, as in Envoy.
        target.retries = Some(Arc::new(RetryPolicy { on: RetryOn::CONNECT_FAILURE, ..(*policy).clone() }));
    }
    Some(LogService { target, log_name, kind, flush_interval, buffer_bytes })
}
