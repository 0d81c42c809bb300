//! HTTP connection managers and the HTTP/1 codec: Envoy's `http.` and `http1.` names.

use crate::stats::{Part, Sums};

crate::stat_set! {
    /// An HTTP connection manager; prefix: its `stat_prefix`.
    pub mod http = "http";
    counters {
        DOWNSTREAM_CX_DELAYED_CLOSE_TIMEOUT = "downstream_cx_delayed_close_timeout",
        DOWNSTREAM_CX_DESTROY = "downstream_cx_destroy",
        DOWNSTREAM_CX_DESTROY_ACTIVE_RQ = "downstream_cx_destroy_active_rq",
        DOWNSTREAM_CX_DESTROY_LOCAL = "downstream_cx_destroy_local",
        DOWNSTREAM_CX_DESTROY_LOCAL_ACTIVE_RQ = "downstream_cx_destroy_local_active_rq",
        DOWNSTREAM_CX_DESTROY_REMOTE = "downstream_cx_destroy_remote",
        DOWNSTREAM_CX_DESTROY_REMOTE_ACTIVE_RQ = "downstream_cx_destroy_remote_active_rq",
        DOWNSTREAM_CX_DRAIN_CLOSE = "downstream_cx_drain_close",
        DOWNSTREAM_CX_HTTP1_TOTAL = "downstream_cx_http1_total",
        DOWNSTREAM_CX_HTTP2_TOTAL = "downstream_cx_http2_total",
        DOWNSTREAM_CX_IDLE_TIMEOUT = "downstream_cx_idle_timeout",
        DOWNSTREAM_CX_MAX_DURATION_REACHED = "downstream_cx_max_duration_reached",
        DOWNSTREAM_CX_MAX_REQUESTS_REACHED = "downstream_cx_max_requests_reached",
        DOWNSTREAM_CX_OVERLOAD_DISABLE_KEEPALIVE = "downstream_cx_overload_disable_keepalive",
        DOWNSTREAM_CX_PROTOCOL_ERROR = "downstream_cx_protocol_error",
        DOWNSTREAM_CX_RX_BYTES_TOTAL = "downstream_cx_rx_bytes_total",
        DOWNSTREAM_CX_SSL_TOTAL = "downstream_cx_ssl_total",
        DOWNSTREAM_CX_TOTAL = "downstream_cx_total",
        DOWNSTREAM_CX_TX_BYTES_TOTAL = "downstream_cx_tx_bytes_total",
        DOWNSTREAM_CX_UPGRADES_TOTAL = "downstream_cx_upgrades_total",
        DOWNSTREAM_FLOW_CONTROL_PAUSED_READING_TOTAL = "downstream_flow_control_paused_reading_total",
        DOWNSTREAM_FLOW_CONTROL_RESUMED_READING_TOTAL = "downstream_flow_control_resumed_reading_total",
        DOWNSTREAM_RQ_1XX = "downstream_rq_1xx",
        DOWNSTREAM_RQ_2XX = "downstream_rq_2xx",
        DOWNSTREAM_RQ_3XX = "downstream_rq_3xx",
        DOWNSTREAM_RQ_4XX = "downstream_rq_4xx",
        DOWNSTREAM_RQ_5XX = "downstream_rq_5xx",
        DOWNSTREAM_RQ_COMPLETED = "downstream_rq_completed",
        DOWNSTREAM_RQ_FAILED_PATH_NORMALIZATION = "downstream_rq_failed_path_normalization",
        DOWNSTREAM_RQ_HEADER_TIMEOUT = "downstream_rq_header_timeout",
        DOWNSTREAM_RQ_HTTP1_TOTAL = "downstream_rq_http1_total",
        DOWNSTREAM_RQ_HTTP2_TOTAL = "downstream_rq_http2_total",
        DOWNSTREAM_RQ_IDLE_TIMEOUT = "downstream_rq_idle_timeout",
        DOWNSTREAM_RQ_MAX_DURATION_REACHED = "downstream_rq_max_duration_reached",
        DOWNSTREAM_RQ_NON_RELATIVE_PATH = "downstream_rq_non_relative_path",
        DOWNSTREAM_RQ_OVERLOAD_CLOSE = "downstream_rq_overload_close",
        DOWNSTREAM_RQ_REJECTED_VIA_IP_DETECTION = "downstream_rq_rejected_via_ip_detection",
        DOWNSTREAM_RQ_REDIRECTED_WITH_NORMALIZED_PATH = "downstream_rq_redirected_with_normalized_path",
        DOWNSTREAM_RQ_RESPONSE_BEFORE_RQ_COMPLETE = "downstream_rq_response_before_rq_complete",
        DOWNSTREAM_RQ_RX_RESET = "downstream_rq_rx_reset",
        DOWNSTREAM_RQ_TIMEOUT = "downstream_rq_timeout",
        DOWNSTREAM_RQ_TOO_LARGE = "downstream_rq_too_large",
        DOWNSTREAM_RQ_TOO_MANY_PREMATURE_RESETS = "downstream_rq_too_many_premature_resets",
        DOWNSTREAM_RQ_TOTAL = "downstream_rq_total",
        DOWNSTREAM_RQ_TX_RESET = "downstream_rq_tx_reset",
        DOWNSTREAM_RQ_WS_ON_NON_WS_ROUTE = "downstream_rq_ws_on_non_ws_route",
        NO_CLUSTER = "no_cluster",
        NO_ROUTE = "no_route",
        PASSTHROUGH_INTERNAL_REDIRECT_BAD_LOCATION = "passthrough_internal_redirect_bad_location",
        PASSTHROUGH_INTERNAL_REDIRECT_NO_ROUTE = "passthrough_internal_redirect_no_route",
        PASSTHROUGH_INTERNAL_REDIRECT_PREDICATE = "passthrough_internal_redirect_predicate",
        PASSTHROUGH_INTERNAL_REDIRECT_TOO_MANY_REDIRECTS = "passthrough_internal_redirect_too_many_redirects",
        PASSTHROUGH_INTERNAL_REDIRECT_UNSAFE_SCHEME = "passthrough_internal_redirect_unsafe_scheme",
        RQ_DIRECT_RESPONSE = "rq_direct_response",
        RQ_OVERLOAD_LOCAL_REPLY = "rq_overload_local_reply",
        RQ_RESET_AFTER_DOWNSTREAM_RESPONSE_STARTED = "rq_reset_after_downstream_response_started",
        RQ_TOTAL = "rq_total",
        RS_TOO_LARGE = "rs_too_large",
    }
    gauges {
        DOWNSTREAM_CX_ACTIVE = "downstream_cx_active",
        DOWNSTREAM_CX_HTTP1_ACTIVE = "downstream_cx_http1_active",
        DOWNSTREAM_CX_HTTP1_SOFT_DRAIN = "downstream_cx_http1_soft_drain",
        DOWNSTREAM_CX_HTTP2_ACTIVE = "downstream_cx_http2_active",
        DOWNSTREAM_CX_RX_BYTES_BUFFERED = "downstream_cx_rx_bytes_buffered",
        DOWNSTREAM_CX_SSL_ACTIVE = "downstream_cx_ssl_active",
        DOWNSTREAM_CX_TX_BYTES_BUFFERED = "downstream_cx_tx_bytes_buffered",
        DOWNSTREAM_CX_UPGRADES_ACTIVE = "downstream_cx_upgrades_active",
        DOWNSTREAM_RQ_ACTIVE = "downstream_rq_active",
    }
    histograms {
        DOWNSTREAM_CX_LENGTH_MS = "downstream_cx_length_ms" Milliseconds,
        DOWNSTREAM_RQ_TIME = "downstream_rq_time" Milliseconds,
    }
    unchanging = super::super::unchanging::HTTP;
    sums = super::of_http;
}

/// A request is counted once by its protocol and once by the class of its status.
fn of_http(part: Part) -> Sums {
    use http::*;
    let classes = [DOWNSTREAM_RQ_1XX, DOWNSTREAM_RQ_2XX, DOWNSTREAM_RQ_3XX, DOWNSTREAM_RQ_4XX, DOWNSTREAM_RQ_5XX];
    let protocols = [DOWNSTREAM_RQ_HTTP1_TOTAL, DOWNSTREAM_RQ_HTTP2_TOTAL];
    let by_class = Sums::of_one(part, &classes, DOWNSTREAM_RQ_COMPLETED);
    Sums {
        counters: [by_class.counters[0], Sums::of_one(part, &protocols, DOWNSTREAM_RQ_TOTAL).counters[0], None, None],
        ..by_class
    }
}

crate::stat_set! {
    /// Calls that filters, plugins and other parts of the proxy make; prefix: [`CALLS`].
    pub mod http_calls = "http";
    counters {
        RQ_TOTAL = "rq_total",
    }
    unchanging = super::super::unchanging::HTTP_CALLS;
}

/// The name that Envoy has for calls of its own.
pub const CALLS: &str = "async-client";

crate::stat_set! {
    /// How routes were found for one request each; prefix: as of [`http`].
    pub mod http_routes = "http";
    histograms {
        DOWNSTREAM_RQ_ROUTE_RESOLUTION_TIME_US = "downstream_rq_route_resolution_time_us" Microseconds,
        DOWNSTREAM_RQ_ROUTE_RESOLUTIONS = "downstream_rq_route_resolutions" Unspecified,
    }
}

crate::stat_set! {
    /// HTTP/2 with clients; no prefix.
    pub mod http2 = "http2";
    counters {
        DROPPED_HEADERS_WITH_UNDERSCORES = "dropped_headers_with_underscores",
        KEEPALIVE_TIMEOUT = "keepalive_timeout",
        REQUESTS_REJECTED_WITH_UNDERSCORES_IN_HEADERS = "requests_rejected_with_underscores_in_headers",
        TX_FLUSH_TIMEOUT = "tx_flush_timeout",
    }
}

crate::stat_set! {
    /// Codec refusals of HTTP/1, both sides; no prefix.
    pub mod http1 = "http1";
    counters {
        DROPPED_HEADERS_WITH_UNDERSCORES = "dropped_headers_with_underscores",
        REQUESTS_REJECTED_WITH_UNDERSCORES_IN_HEADERS = "requests_rejected_with_underscores_in_headers",
    }
    unchanging = super::super::unchanging::HTTP1;
}
