//! Names of commands: ours, and those that only Envoy has.

use super::{tls, wire};

/// Every command name, for suggestions.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().copied().chain(tls::names()).chain(wire::NAMES)
}

/// Commands of Envoy that are not among ours, and why.
pub(super) const ELSEWHERE: &[(&str, &str)] =
    &[("FILE_CONTENT", "no file is read for a line"), ("SECRET", "a secret is never shown")];

const NAMES: &[&str] = &[
    "BYTES_RETRANSMITTED",
    "CEL",
    "CLUSTER_METADATA",
    "COALESCE",
    "REQ_WITHOUT_QUERY",
    "ROUNDTRIP_DURATION",
    "SPAN_ID",
    "TRACE_ID",
    "UPSTREAM_HOSTS_ATTEMPTED",
    "UPSTREAM_HOSTS_ATTEMPTED_WITHOUT_PORT",
    "UPSTREAM_HOST_NAME",
    "UPSTREAM_HOST_NAMES_ATTEMPTED",
    "UPSTREAM_HOST_NAMES_ATTEMPTED_WITHOUT_PORT",
    "UPSTREAM_HOST_NAME_WITHOUT_PORT",
    "UPSTREAM_METADATA",
    "COMMON_DURATION",
    "QUERY_PARAMS",
    "RESPONSE_TRAILERS_BYTES",
    "UNIQUE_ID",
    "REQ",
    "REQUEST_HEADER",
    "RESP",
    "RESPONSE_HEADER",
    "TRAILER",
    "RESPONSE_TRAILER",
    "PATH",
    "QUERY_PARAM",
    "START_TIME",
    "EMIT_TIME",
    "DOWNSTREAM_CX_RTT",
    "DOWNSTREAM_DETECTED_CLOSE_TYPE",
    "DOWNSTREAM_LOCAL_CLOSE_REASON",
    "UPSTREAM_DETECTED_CLOSE_TYPE",
    "UPSTREAM_LOCAL_CLOSE_REASON",
    "DOWNSTREAM_DIRECT_LOCAL_ADDRESS",
    "DOWNSTREAM_DIRECT_LOCAL_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_DIRECT_LOCAL_PORT",
    "DOWNSTREAM_HANDSHAKE_DURATION",
    "EMIT_TIME_LOCAL",
    "LISTENER_NAME",
    "PACKETS_RETRANSMITTED",
    "START_TIME_LOCAL",
    "PROTOCOL",
    "UPSTREAM_PROTOCOL",
    "RESPONSE_CODE",
    "RESPONSE_CODE_DETAILS",
    "GRPC_STATUS",
    "GRPC_STATUS_NUMBER",
    "CONNECTION_TERMINATION_DETAILS",
    "ACCESS_LOG_TYPE",
    "RESPONSE_FLAGS",
    "RESPONSE_FLAGS_LONG",
    "CUSTOM_FLAGS",
    "BYTES_RECEIVED",
    "BYTES_SENT",
    "REQUEST_HEADERS_BYTES",
    "RESPONSE_HEADERS_BYTES",
    "DURATION",
    "REQUEST_DURATION",
    "REQUEST_TX_DURATION",
    "RESPONSE_DURATION",
    "RESPONSE_TX_DURATION",
    "UPSTREAM_HOST",
    "UPSTREAM_CLUSTER",
    "UPSTREAM_CLUSTER_RAW",
    "UPSTREAM_LOCAL_ADDRESS",
    "UPSTREAM_LOCAL_ADDRESS_WITHOUT_PORT",
    "UPSTREAM_LOCAL_PORT",
    "UPSTREAM_REMOTE_ADDRESS",
    "UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT",
    "UPSTREAM_REMOTE_PORT",
    "UPSTREAM_REQUEST_ATTEMPT_COUNT",
    "UPSTREAM_TRANSPORT_FAILURE_REASON",
    "UPSTREAM_CONNECTION_ID",
    "UPSTREAM_CONNECTION_IDS_ATTEMPTED",
    "UPSTREAM_CONNECTION_POOL_READY_DURATION",
    "DOWNSTREAM_LOCAL_ADDRESS",
    "DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_LOCAL_PORT",
    "DOWNSTREAM_REMOTE_ADDRESS",
    "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_REMOTE_PORT",
    "DOWNSTREAM_DIRECT_REMOTE_ADDRESS",
    "DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_DIRECT_REMOTE_PORT",
    "DOWNSTREAM_TRANSPORT_FAILURE_REASON",
    "ROUTE_NAME",
    "ROUTE_RESOLUTION_COUNT",
    "VIRTUAL_HOST_NAME",
    "FILTER_CHAIN_NAME",
    "VIRTUAL_CLUSTER_NAME",
    "HOSTNAME",
    "CONNECTION_ID",
    "STREAM_ID",
    "LOCAL_REPLY_BODY",
    "ENVIRONMENT",
    "SCHEME",
    "DYNAMIC_METADATA",
    "METADATA",
    "FILTER_STATE",
    "UPSTREAM_FILTER_STATE",
];

/// Levenshtein distance.
pub(super) fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let above = row[j + 1];
            row[j + 1] = (diagonal + usize::from(x != y)).min(above + 1).min(row[j] + 1);
            diagonal = above;
        }
    }
    row[b.len()]
}
