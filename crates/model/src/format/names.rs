//! Names of commands: ours, and those that only Envoy has.

use super::tls;

/// Every command name, for suggestions.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().copied().chain(tls::names())
}

/// Commands of Envoy that are not among ours, and why.
pub(super) const ELSEWHERE: &[(&str, &str)] = &[
    ("BYTES_RETRANSMITTED", NO_QUIC),
    ("DOWNSTREAM_CX_RTT", NO_QUIC),
    ("DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED", NO_METER),
    ("DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_SENT", NO_METER),
    ("DOWNSTREAM_HANDSHAKE_DURATION", "the handshake is not timed"),
    ("DOWNSTREAM_HEADER_BYTES_RECEIVED", NO_METER),
    ("DOWNSTREAM_HEADER_BYTES_SENT", NO_METER),
    ("DOWNSTREAM_WIRE_BYTES_RECEIVED", NO_METER),
    ("DOWNSTREAM_WIRE_BYTES_SENT", NO_METER),
    ("EMIT_TIME_LOCAL", "times are in UTC; write %EMIT_TIME%"),
    ("FILE_CONTENT", "no file is read for a line"),
    ("SECRET", "a secret is never shown"),
    ("START_TIME_LOCAL", "times are in UTC; write %START_TIME%"),
    ("UPSTREAM_CONNECTION_IDS_ATTEMPTED", NO_ATTEMPTS),
    ("UPSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED", NO_METER),
    ("UPSTREAM_DECOMPRESSED_HEADER_BYTES_SENT", NO_METER),
    ("UPSTREAM_FILTER_STATE", "there are no filters on the upstream side"),
    ("UPSTREAM_HEADER_BYTES_RECEIVED", NO_METER),
    ("UPSTREAM_HEADER_BYTES_SENT", NO_METER),
    ("UPSTREAM_WIRE_BYTES_RECEIVED", NO_METER),
    ("UPSTREAM_WIRE_BYTES_SENT", NO_METER),
];

const NO_ATTEMPTS: &str =
    "tries before the last are not kept; write %UPSTREAM_HOST% and %UPSTREAM_REQUEST_ATTEMPT_COUNT%";
const NO_METER: &str = "bytes on the wire are not counted; write %BYTES_RECEIVED%, %BYTES_SENT%, %REQUEST_HEADERS_BYTES% and \
     %RESPONSE_HEADERS_BYTES%";
const NO_QUIC: &str = "only HTTP/3 measures it";

const NAMES: &[&str] = &[
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
