//! Listeners: Envoy's `listener.` and `listener_manager.` names.

use crate::stats::{Part, Sums};

crate::stat_set! {
    /// Connections of a listener; prefix: its address with `:` as `_`, or its `stat_prefix`.
    pub mod listener = "listener";
    counters {
        DOWNSTREAM_CX_TOTAL = "downstream_cx_total",
        DOWNSTREAM_CX_DESTROY = "downstream_cx_destroy",
        DOWNSTREAM_CX_OVERFLOW = "downstream_cx_overflow",
        DOWNSTREAM_CX_OVERLOAD_REJECT = "downstream_cx_overload_reject",
        DOWNSTREAM_CX_TRANSPORT_SOCKET_CONNECT_TIMEOUT = "downstream_cx_transport_socket_connect_timeout",
        DOWNSTREAM_GLOBAL_CX_OVERFLOW = "downstream_global_cx_overflow",
        DOWNSTREAM_LISTENER_FILTER_ERROR = "downstream_listener_filter_error",
        DOWNSTREAM_LISTENER_FILTER_REMOTE_CLOSE = "downstream_listener_filter_remote_close",
        DOWNSTREAM_PRE_CX_TIMEOUT = "downstream_pre_cx_timeout",
        NO_FILTER_CHAIN_MATCH = "no_filter_chain_match",
    }
    gauges {
        DOWNSTREAM_CX_ACTIVE = "downstream_cx_active",
        DOWNSTREAM_PRE_CX_ACTIVE = "downstream_pre_cx_active",
    }
    histograms {
        DOWNSTREAM_CX_LENGTH_MS = "downstream_cx_length_ms" Milliseconds,
        CONNECTIONS_ACCEPTED_PER_SOCKET_EVENT = "connections_accepted_per_socket_event" Unspecified,
    }
}

crate::stat_set! {
    /// Filters of a listener that come from a control plane; prefix: as for the listener.
    pub mod listener_discovery = "listener";
    unchanging = super::super::unchanging::LISTENER_DISCOVERY;
}

crate::stat_set! {
    /// What one thread accepted; prefix: `<listener>.worker_<number>`, or `admin.main_thread`.
    pub mod listener_worker = "listener";
    counters {
        DOWNSTREAM_CX_TOTAL = "downstream_cx_total",
    }
    gauges {
        DOWNSTREAM_CX_ACTIVE = "downstream_cx_active",
    }
}

crate::stat_set! {
    /// Responses of one listener by class; prefix: `<listener>.http.<stat_prefix>`.
    pub mod listener_http = "listener";
    counters {
        DOWNSTREAM_RQ_1XX = "downstream_rq_1xx",
        DOWNSTREAM_RQ_2XX = "downstream_rq_2xx",
        DOWNSTREAM_RQ_3XX = "downstream_rq_3xx",
        DOWNSTREAM_RQ_4XX = "downstream_rq_4xx",
        DOWNSTREAM_RQ_5XX = "downstream_rq_5xx",
        DOWNSTREAM_RQ_COMPLETED = "downstream_rq_completed",
    }
    sums = super::of_listener;
}

/// A request with a status of a known class is counted once, there.
fn of_listener(part: Part) -> Sums {
    use listener_http::*;
    let classes = [DOWNSTREAM_RQ_1XX, DOWNSTREAM_RQ_2XX, DOWNSTREAM_RQ_3XX, DOWNSTREAM_RQ_4XX, DOWNSTREAM_RQ_5XX];
    Sums::of_one(part, &classes, DOWNSTREAM_RQ_COMPLETED)
}

crate::stat_set! {
    /// TLS with the clients of one listener; prefix: as for the listener.
    pub mod listener_ssl = "listener";
    counters {
        CONNECTION_ERROR = "ssl.connection_error",
        HANDSHAKE = "ssl.handshake",
        NO_CERTIFICATE = "ssl.no_certificate",
        SESSION_REUSED = "ssl.session_reused",
        FAIL_VERIFY_NO_CERT = "ssl.fail_verify_no_cert",
        FAIL_VERIFY_CERT_HASH = "ssl.fail_verify_cert_hash",
        FAIL_VERIFY_ERROR = "ssl.fail_verify_error",
        FAIL_VERIFY_SAN = "ssl.fail_verify_san",
    }
    lazy_counters {
        CIPHER_ECDHE_ECDSA_AES128_GCM_SHA256 = "ssl.ciphers.ECDHE-ECDSA-AES128-GCM-SHA256",
        CIPHER_ECDHE_ECDSA_AES256_GCM_SHA384 = "ssl.ciphers.ECDHE-ECDSA-AES256-GCM-SHA384",
        CIPHER_ECDHE_ECDSA_CHACHA20_POLY1305 = "ssl.ciphers.ECDHE-ECDSA-CHACHA20-POLY1305",
        CIPHER_ECDHE_RSA_AES128_GCM_SHA256 = "ssl.ciphers.ECDHE-RSA-AES128-GCM-SHA256",
        CIPHER_ECDHE_RSA_AES256_GCM_SHA384 = "ssl.ciphers.ECDHE-RSA-AES256-GCM-SHA384",
        CIPHER_ECDHE_RSA_CHACHA20_POLY1305 = "ssl.ciphers.ECDHE-RSA-CHACHA20-POLY1305",
        CIPHER_TLS_AES_128_GCM_SHA256 = "ssl.ciphers.TLS_AES_128_GCM_SHA256",
        CIPHER_TLS_AES_256_GCM_SHA384 = "ssl.ciphers.TLS_AES_256_GCM_SHA384",
        CIPHER_TLS_CHACHA20_POLY1305_SHA256 = "ssl.ciphers.TLS_CHACHA20_POLY1305_SHA256",
        CURVE_MLKEM1024 = "ssl.curves.MLKEM1024",
        CURVE_MLKEM768 = "ssl.curves.MLKEM768",
        CURVE_P_256 = "ssl.curves.P-256",
        CURVE_P_384 = "ssl.curves.P-384",
        CURVE_P_521 = "ssl.curves.P-521",
        CURVE_SECP256R1MLKEM768 = "ssl.curves.SecP256r1MLKEM768",
        CURVE_X25519 = "ssl.curves.X25519",
        CURVE_X25519MLKEM768 = "ssl.curves.X25519MLKEM768",
        VERSION_TLS1_2 = "ssl.versions.TLSv1.2",
        VERSION_TLS1_3 = "ssl.versions.TLSv1.3",
    }
    unchanging = super::super::unchanging::SSL;
}

crate::stat_set! {
    /// A certificate of a listener, its own or a root; prefix: `<listener>.ssl.certificate.<name>`, computed when read.
    pub mod listener_certificate = "listener";
    gauges {
        EXPIRATION_UNIX_TIME_SECONDS = "expiration_unix_time_seconds",
    }
}

crate::stat_set! {
    /// Connections that begin with the PROXY protocol; prefix: the filter's `stat_prefix`, or none.
    pub mod proxy_protocol = "proxy_proto";
    counters {
        NOT_FOUND_ALLOWED = "not_found_allowed",
        NOT_FOUND_DISALLOWED = "not_found_disallowed",
        V1_DISALLOWED = "versions.v1.disallowed",
        V1_ERROR = "versions.v1.error",
        V1_FOUND = "versions.v1.found",
        V2_DISALLOWED = "versions.v2.disallowed",
        V2_ERROR = "versions.v2.error",
        V2_FOUND = "versions.v2.found",
    }
}

crate::stat_set! {
    /// Greetings that the inspector of TLS looked at; no prefix.
    pub mod tls_inspector = "tls_inspector";
    counters {
        ALPN_FOUND = "alpn_found",
        ALPN_NOT_FOUND = "alpn_not_found",
        CLIENT_HELLO_TOO_LARGE = "client_hello_too_large",
        SNI_FOUND = "sni_found",
        SNI_NOT_FOUND = "sni_not_found",
        TLS_FOUND = "tls_found",
        TLS_NOT_FOUND = "tls_not_found",
    }
    histograms {
        BYTES_PROCESSED = "bytes_processed" Bytes,
    }
}

crate::stat_set! {
    /// Plain connections by what they were seen to speak; no prefix.
    pub mod http_inspector = "http_inspector";
    counters {
        HTTP10_FOUND = "http10_found",
        HTTP11_FOUND = "http11_found",
        HTTP2_FOUND = "http2_found",
        HTTP_NOT_FOUND = "http_not_found",
    }
    unchanging = super::super::unchanging::HTTP_INSPECTOR;
}

crate::stat_set! {
    /// The one name of Envoy's that belongs to nothing; no prefix.
    pub mod proxy_protocol_errors = "";
    counters {
        DOWNSTREAM_CX_PROXY_PROTO_ERROR = "downstream_cx_proxy_proto_error",
    }
}

crate::stat_set! {
    /// A limit of a filter chain's connections; prefix: its own.
    pub mod connection_limit = "connection_limit";
    counters {
        LIMITED_CONNECTIONS = "limited_connections",
    }
    lazy_counters {
        WOULD_DENY = "would_deny",
    }
    gauges {
        ACTIVE_CONNECTIONS = "active_connections",
    }
}

crate::stat_set! {
    /// How often connections come to a filter chain; prefix: the limit's own.
    pub mod local_rate_limit = "local_rate_limit";
    counters {
        RATE_LIMITED = "rate_limited",
    }
    lazy_counters {
        WOULD_DENY = "would_deny",
    }
}

crate::stat_set! {
    /// Listeners as configuration sees them; no prefix, counted by the control plane.
    pub mod listener_manager = "listener_manager";
    counters {
        LISTENER_ADDED = "listener_added",
        LISTENER_CREATE_FAILURE = "listener_create_failure",
        LISTENER_CREATE_SUCCESS = "listener_create_success",
        LISTENER_IN_PLACE_UPDATED = "listener_in_place_updated",
        LISTENER_MODIFIED = "listener_modified",
        LISTENER_REMOVED = "listener_removed",
        LISTENER_STOPPED = "listener_stopped",
    }
    gauges {
        TOTAL_FILTER_CHAINS_DRAINING = "total_filter_chains_draining",
        TOTAL_LISTENERS_ACTIVE = "total_listeners_active",
        TOTAL_LISTENERS_DRAINING = "total_listeners_draining",
        WORKERS_PINNED = "workers_pinned",
        WORKERS_STARTED = "workers_started",
    }
    unchanging = super::super::unchanging::LISTENER_MANAGER;
}
