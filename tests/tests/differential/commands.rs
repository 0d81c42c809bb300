//! The commands of access logs beside those that every scene has in its log: what they tell of requests and connections.

use serde_json::{Map, Value};

/// What a line says in front of a value of which the form alone is compared: a time, or a number of the machine's choice.
pub const FORM: &str = "form of ";

/// Commands whose values are the same on both sides.
const EXACT: &[&str] = &[
    "ACCESS_LOG_TYPE",
    "BYTES_RECEIVED",
    "BYTES_SENT",
    "CEL(request.method)",
    "CEL(response.code)",
    "CEL(connection.mtls)",
    "CLUSTER_METADATA(ns:k)",
    "COALESCE({\"operators\": [{\"command\": \"REQ\", \"param\": \"x-none\"}, {\"command\": \"REQ\", \"param\": \":METHOD\"}]})",
    "CUSTOM_FLAGS",
    "DOWNSTREAM_DETECTED_CLOSE_TYPE",
    "DOWNSTREAM_DIRECT_LOCAL_ADDRESS",
    "DOWNSTREAM_DIRECT_LOCAL_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_LOCAL_CLOSE_REASON",
    "DOWNSTREAM_LOCAL_DNS_SAN",
    "DOWNSTREAM_LOCAL_EMAIL_SAN",
    "DOWNSTREAM_LOCAL_IP_SAN",
    "DOWNSTREAM_LOCAL_OTHERNAME_SAN",
    "DOWNSTREAM_LOCAL_SUBJECT",
    "DOWNSTREAM_LOCAL_URI_SAN",
    "DOWNSTREAM_PEER_CERT",
    "DOWNSTREAM_PEER_CERT_V_END",
    "DOWNSTREAM_PEER_CERT_V_START",
    "DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_1",
    "DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_256",
    "DOWNSTREAM_PEER_CHAIN_SERIALS",
    "DOWNSTREAM_PEER_DNS_SAN",
    "DOWNSTREAM_PEER_EMAIL_SAN",
    "DOWNSTREAM_PEER_FINGERPRINT_1",
    "DOWNSTREAM_PEER_FINGERPRINT_256",
    "DOWNSTREAM_PEER_IP_SAN",
    "DOWNSTREAM_PEER_ISSUER",
    "DOWNSTREAM_PEER_OTHERNAME_SAN",
    "DOWNSTREAM_PEER_SERIAL",
    "DOWNSTREAM_PEER_SUBJECT",
    "DOWNSTREAM_PEER_URI_SAN",
    "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT(8)",
    "DOWNSTREAM_TLS_CIPHER",
    "DOWNSTREAM_TLS_GROUP",
    "DOWNSTREAM_TLS_VERSION",
    "DOWNSTREAM_TRANSPORT_FAILURE_REASON",
    "DYNAMIC_METADATA(ns)",
    "DYNAMIC_METADATA(ns:k)",
    "DYNAMIC_METADATA(ns:list)",
    "ENVIRONMENT(POSTRIDER_NONE)",
    "FILTER_CHAIN_NAME",
    "FILTER_STATE(none)",
    "FILTER_STATE(none:PLAIN)",
    "GRPC_STATUS(CAMEL_STRING)",
    "GRPC_STATUS(SNAKE_STRING)",
    "GRPC_STATUS(NUMBER)",
    "GRPC_STATUS_NUMBER",
    "HOSTNAME",
    "LISTENER_NAME",
    "METADATA(CLUSTER:ns:k)",
    "METADATA(DYNAMIC:ns:k)",
    "METADATA(LISTENER:ns:k)",
    "METADATA(LISTENER_FILTER_CHAIN:ns:k)",
    "METADATA(ROUTE:ns:k)",
    "METADATA(UPSTREAM_HOST:ns:k)",
    "METADATA(VIRTUAL_HOST:ns:k)",
    "PATH",
    "PATH(NQ:ORIG)",
    "PATH(NQ:PATH)",
    "PATH(WQ:ORIG_OR_PATH)",
    "QUERY_PARAMS",
    "QUERY_PARAMS(DECODED)",
    "QUERY_PARAMS(ORIG)",
    "REQUESTED_SERVER_NAME",
    "REQUEST_HEADER(X-LONG):5",
    "REQ_WITHOUT_QUERY(:PATH)",
    "REQ_WITHOUT_QUERY(X-NONE?:PATH)",
    "REQ(X-NONE?X-LONG):3",
    "RESPONSE_HEADER(X-ORIGIN)",
    "RESPONSE_TRAILER(X-END)",
    "RESPONSE_TRAILERS_BYTES",
    "RESP(X-NONE?X-ORIGIN):2",
    "ROUTE_RESOLUTION_COUNT",
    "SPAN_ID",
    "TLS_JA3_FINGERPRINT",
    "TLS_JA4_FINGERPRINT",
    "TRACE_ID",
    "TRAILER(X-NONE?X-MORE)",
    "UPSTREAM_DETECTED_CLOSE_TYPE",
    "UPSTREAM_FILTER_STATE(none)",
    "UPSTREAM_HOSTS_ATTEMPTED",
    "UPSTREAM_HOSTS_ATTEMPTED_WITHOUT_PORT",
    "UPSTREAM_HOST_NAME",
    "UPSTREAM_HOST_NAMES_ATTEMPTED",
    "UPSTREAM_HOST_NAMES_ATTEMPTED_WITHOUT_PORT",
    "UPSTREAM_HOST_NAME_WITHOUT_PORT",
    "UPSTREAM_LOCAL_ADDRESS_WITHOUT_PORT",
    "UPSTREAM_LOCAL_CLOSE_REASON",
    "UPSTREAM_LOCAL_DNS_SAN",
    "UPSTREAM_LOCAL_IP_SAN",
    "UPSTREAM_LOCAL_URI_SAN",
    "UPSTREAM_METADATA(ns:k)",
    "UPSTREAM_PEER_CERT",
    "UPSTREAM_PEER_CERT_V_END",
    "UPSTREAM_PEER_CERT_V_START",
    "UPSTREAM_PEER_DNS_SAN",
    "UPSTREAM_PEER_IP_SAN",
    "UPSTREAM_PEER_ISSUER",
    "UPSTREAM_PEER_SUBJECT",
    "UPSTREAM_PEER_URI_SAN",
    "UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT",
    "UPSTREAM_SERVER_NAME",
    "UPSTREAM_TLS_CIPHER",
    "UPSTREAM_TLS_GROUP",
    "UPSTREAM_TLS_VERSION",
];

/// How many bytes something had on the connections.
const BYTES: &[&str] = &[
    "DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED",
    "DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_SENT",
    "DOWNSTREAM_HEADER_BYTES_RECEIVED",
    "DOWNSTREAM_HEADER_BYTES_SENT",
    "DOWNSTREAM_WIRE_BYTES_RECEIVED",
    "DOWNSTREAM_WIRE_BYTES_SENT",
    "REQUEST_HEADERS_BYTES",
    "RESPONSE_HEADERS_BYTES",
    "UPSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED",
    "UPSTREAM_DECOMPRESSED_HEADER_BYTES_SENT",
    "UPSTREAM_HEADER_BYTES_RECEIVED",
    "UPSTREAM_HEADER_BYTES_SENT",
    "UPSTREAM_WIRE_BYTES_RECEIVED",
    "UPSTREAM_WIRE_BYTES_SENT",
];

/// Commands for times and for what the machine chose.
const FORMS: &[&str] = &[
    "BYTES_RETRANSMITTED",
    "COMMON_DURATION(DS_RX_BEG:DS_RX_END:us)",
    "COMMON_DURATION(DS_RX_BEG:DS_TX_END:ms)",
    "COMMON_DURATION(DS_RX_BEG:US_TX_BEG:ns)",
    "COMMON_DURATION(DS_TX_BEG:DS_TX_END:us)",
    "COMMON_DURATION(US_CX_BEG:US_CX_END:us)",
    "COMMON_DURATION(US_CX_BEG:US_HS_END:us)",
    "COMMON_DURATION(US_RX_BEG:US_RX_END:us)",
    "COMMON_DURATION(US_TX_BEG:US_TX_END:us)",
    "CONNECTION_ID",
    "DOWNSTREAM_CX_RTT",
    "DOWNSTREAM_DIRECT_LOCAL_PORT",
    "DOWNSTREAM_DIRECT_REMOTE_PORT",
    "DOWNSTREAM_HANDSHAKE_DURATION",
    "DOWNSTREAM_LOCAL_PORT",
    "DOWNSTREAM_REMOTE_PORT",
    "DURATION",
    "EMIT_TIME",
    "EMIT_TIME(%s.%3f)",
    "EMIT_TIME_LOCAL",
    "PACKETS_RETRANSMITTED",
    "REQUEST_DURATION",
    "REQUEST_TX_DURATION",
    "RESPONSE_DURATION",
    "RESPONSE_TX_DURATION",
    "ROUNDTRIP_DURATION",
    "ROUTE_RESOLUTION_TIME_US",
    "START_TIME",
    "START_TIME(%Y/%m/%dT%H:%M:%S%z %s %f %3f %6f)",
    "START_TIME_LOCAL",
    "STREAM_ID",
    "UNIQUE_ID",
    "UPSTREAM_CONNECTION_ID",
    "UPSTREAM_CONNECTION_IDS_ATTEMPTED",
    "UPSTREAM_CONNECTION_POOL_READY_DURATION",
    "UPSTREAM_LOCAL_ADDRESS",
    "UPSTREAM_LOCAL_PORT",
    "UPSTREAM_REMOTE_PORT",
];

/// Fields for a format in JSON, each a command.
pub fn all() -> Value {
    let mut fields = Map::new();
    for command in EXACT.iter().chain(BYTES) {
        fields.insert((*command).to_owned(), format!("%{command}%").into());
    }
    for command in FORMS {
        fields.insert(format!("{FORM}{command}"), format!("%{command}%").into());
        // As text, they may look another way.
        fields.insert(format!("{FORM}{command} in a text"), format!("of %{command}%").into());
    }
    Value::Object(fields)
}

/// A value with every number, and every word of hexadecimal digits, as `N`.
pub fn form(value: &Value) -> String {
    let text = match value {
        Value::String(text) => format!("{text:?}"),
        other => other.to_string(),
    };
    let mut form = String::new();
    let mut word = String::new();
    for letter in text.chars().chain([' ']) {
        if letter.is_ascii_alphanumeric() {
            word.push(letter);
            continue;
        }
        let number = word.chars().any(|letter| letter.is_ascii_digit() || word.len() >= 4)
            && word.chars().all(|letter| letter.is_ascii_hexdigit() || matches!(letter, 'T' | 'Z'));
        form += if number { "N" } else { &word };
        word.clear();
        form.push(letter);
    }
    form.truncate(form.trim_end().len());
    // On which side of a moment another one lies may be a matter of luck.
    form.replace("of -N", "of N").trim_start_matches('-').to_owned()
}
