//! Upstream clusters: Envoy's `cluster.` and `cluster_manager.` names.

use super::Block;
use crate::stats::{Counter, Part, Sums};

crate::stat_set! {
    /// TLS with the hosts of one cluster; prefix: its name.
    pub mod cluster_ssl = "cluster";
    counters {
        CONNECTION_ERROR = "ssl.connection_error",
        HANDSHAKE = "ssl.handshake",
        SESSION_REUSED = "ssl.session_reused",
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
    unchanging = super::super::unchanging::SSL_OF_CLUSTER;
}

crate::stat_set! {
    /// The PROXY protocol with the hosts of one cluster; prefix: its name.
    pub mod cluster_proxy = "cluster";
    counters {
        V2_TLVS_EXCEED_MAX_LENGTH = "upstream.proxyprotocol.v2_tlvs_exceed_max_length",
    }
}

crate::stat_set! {
    /// Endpoints by their transport, where one cluster has several that have names; prefix: that of the cluster, `.` and the
    /// transport's name.
    pub mod cluster_transport = "cluster";
    counters {
        TOTAL_MATCH_COUNT = "total_match_count",
    }
}

crate::stat_set! {
    /// How much of its time a request used, in percent of its timeouts, where one cluster wants it; prefix: its name.
    pub mod cluster_timeout_budget = "cluster";
    histograms {
        PER_TRY_PERCENT_USED = "upstream_rq_timeout_budget_per_try_percent_used" Unspecified,
        PERCENT_USED = "upstream_rq_timeout_budget_percent_used" Unspecified,
    }
}

crate::stat_set! {
    /// How large requests and answers are, by try, where one cluster wants it; prefix: its name.
    pub mod cluster_sizes = "cluster";
    histograms {
        RQ_BODY = "upstream_rq_body_size" Bytes,
        RQ_HEADERS_COUNT = "upstream_rq_headers_count" Unspecified,
        RQ_HEADERS = "upstream_rq_headers_size" Bytes,
        RS_BODY = "upstream_rs_body_size" Bytes,
        RS_HEADERS_COUNT = "upstream_rs_headers_count" Unspecified,
        RS_HEADERS = "upstream_rs_headers_size" Bytes,
    }
}

crate::stat_set! {
    /// One endpoint of a cluster that wants them told apart, computed when read; prefix: that of the cluster, `.endpoint.` and
    /// the address with `:` as `_`.
    pub mod cluster_endpoint = "cluster";
    counters {
        CX_CONNECT_FAIL = "cx_connect_fail",
        CX_TOTAL = "cx_total",
        RQ_ERROR = "rq_error",
        RQ_SUCCESS = "rq_success",
        RQ_TIMEOUT = "rq_timeout",
        RQ_TOTAL = "rq_total",
    }
    gauges {
        CX_ACTIVE = "cx_active",
        HEALTHY = "healthy",
        RQ_ACTIVE = "rq_active",
        RQ_PENDING_ACTIVE = "rq_pending_active",
    }
}

crate::stat_set! {
    /// HTTP/2 with the hosts of one cluster; prefix: its name.
    pub mod cluster_http2 = "cluster";
    counters {
        KEEPALIVE_TIMEOUT = "http2.keepalive_timeout",
    }
}

crate::stat_set! {
    /// Active health checks of one cluster; prefix: its name.
    pub mod cluster_health = "cluster";
    counters {
        ATTEMPT = "health_check.attempt",
        SUCCESS = "health_check.success",
        FAILURE = "health_check.failure",
        NETWORK_FAILURE = "health_check.network_failure",
        PASSIVE_FAILURE = "health_check.passive_failure",
        VERIFY_CLUSTER = "health_check.verify_cluster",
    }
    lazy_counters {
        REDIS_EXISTS_FAILURE = "health_check.redis.exists_failure",
    }
    gauges {
        HEALTHY = "health_check.healthy",
        DEGRADED = "health_check.degraded",
    }
}

crate::stat_set! {
    /// One of the checks of a cluster, by its name; prefix: that of the cluster, `.health_check.name.` and the name.
    pub mod cluster_health_named = "cluster";
    counters {
        ATTEMPT = "attempt",
        SUCCESS = "success",
        FAILURE = "failure",
        NETWORK_FAILURE = "network_failure",
        PASSIVE_FAILURE = "passive_failure",
        VERIFY_CLUSTER = "verify_cluster",
    }
    lazy_counters {
        REDIS_EXISTS_FAILURE = "redis.exists_failure",
    }
    gauges {
        HEALTHY = "healthy",
        DEGRADED = "degraded",
    }
}

crate::stat_set! {
    /// The table of a cluster whose hosts are chosen by Maglev; prefix: its name, computed when read.
    pub mod cluster_maglev = "cluster";
    gauges {
        MAX_ENTRIES_PER_HOST = "maglev_lb.max_entries_per_host",
        MIN_ENTRIES_PER_HOST = "maglev_lb.min_entries_per_host",
    }
}

crate::stat_set! {
    /// The ring of a cluster whose hosts are chosen by one; prefix: its name, computed when read.
    pub mod cluster_ring_hash = "cluster";
    gauges {
        MAX_HASHES_PER_HOST = "ring_hash_lb.max_hashes_per_host",
        MIN_HASHES_PER_HOST = "ring_hash_lb.min_hashes_per_host",
        SIZE = "ring_hash_lb.size",
    }
}

crate::stat_set! {
    /// What circuit breakers have left, where that is asked for; prefix: `<cluster>.circuit_breakers.<priority>`, computed
    /// when read.
    pub mod cluster_remaining = "cluster";
    flags {
        CX = "remaining_cx",
        CX_POOLS = "remaining_cx_pools",
        PENDING = "remaining_pending",
        RETRIES = "remaining_retries",
        RQ = "remaining_rq",
    }
}

crate::stat_set! {
    /// Outlier detection of one cluster; prefix: its name.
    pub mod cluster_outlier = "cluster";
    counters {
        EJECTIONS_CONSECUTIVE_5XX = "outlier_detection.ejections_consecutive_5xx",
        DETECTED_CONSECUTIVE_5XX = "outlier_detection.ejections_detected_consecutive_5xx",
        DETECTED_GATEWAY_FAILURE = "outlier_detection.ejections_detected_consecutive_gateway_failure",
        DETECTED_LOCAL_ORIGIN_FAILURE = "outlier_detection.ejections_detected_consecutive_local_origin_failure",
        DETECTED_DEGRADATION = "outlier_detection.ejections_detected_degradation",
        DETECTED_FAILURE_PERCENTAGE = "outlier_detection.ejections_detected_failure_percentage",
        DETECTED_LOCAL_FAILURE_PERCENTAGE = "outlier_detection.ejections_detected_local_origin_failure_percentage",
        DETECTED_LOCAL_SUCCESS_RATE = "outlier_detection.ejections_detected_local_origin_success_rate",
        DETECTED_SUCCESS_RATE = "outlier_detection.ejections_detected_success_rate",
        ENFORCED_CONSECUTIVE_5XX = "outlier_detection.ejections_enforced_consecutive_5xx",
        ENFORCED_GATEWAY_FAILURE = "outlier_detection.ejections_enforced_consecutive_gateway_failure",
        ENFORCED_LOCAL_ORIGIN_FAILURE = "outlier_detection.ejections_enforced_consecutive_local_origin_failure",
        ENFORCED_FAILURE_PERCENTAGE = "outlier_detection.ejections_enforced_failure_percentage",
        ENFORCED_LOCAL_FAILURE_PERCENTAGE = "outlier_detection.ejections_enforced_local_origin_failure_percentage",
        ENFORCED_LOCAL_SUCCESS_RATE = "outlier_detection.ejections_enforced_local_origin_success_rate",
        ENFORCED_SUCCESS_RATE = "outlier_detection.ejections_enforced_success_rate",
        ENFORCED_TOTAL = "outlier_detection.ejections_enforced_total",
        OVERFLOW = "outlier_detection.ejections_overflow",
        EJECTIONS_SUCCESS_RATE = "outlier_detection.ejections_success_rate",
        EJECTIONS_TOTAL = "outlier_detection.ejections_total",
    }
    gauges {
        ACTIVE = "outlier_detection.ejections_active",
    }
}

crate::stat_set! {
    /// Hosts of one cluster by their labels; prefix: its name.
    pub mod cluster_subsets = "cluster";
    counters {
        CREATED = "lb_subsets_created",
        FALLBACK = "lb_subsets_fallback",
        FALLBACK_PANIC = "lb_subsets_fallback_panic",
        REMOVED = "lb_subsets_removed",
        SELECTED = "lb_subsets_selected",
    }
    gauges {
        ACTIVE = "lb_subsets_active",
    }
}

crate::stat_set! {
    /// Subsets of one host each, of one cluster; prefix: its name.
    pub mod cluster_single_hosts = "cluster";
    gauges {
        DUPLICATE = "lb_subsets_single_host_per_subset_duplicate",
    }
}

crate::stat_set! {
    /// The codec of HTTP/1 with the hosts of one cluster; prefix: its name.
    pub mod cluster_http1 = "cluster";
    unchanging = super::super::unchanging::CLUSTER_HTTP1;
}

crate::stat_set! {
    /// Requests to one cluster that brought a name to be counted by; prefix: the cluster's, then that name.
    pub mod cluster_alternative = "cluster";
    counters {}
    lazy_counters {
        EXTERNAL_UPSTREAM_RQ_1XX = "external.upstream_rq_1xx",
        EXTERNAL_UPSTREAM_RQ_2XX = "external.upstream_rq_2xx",
        EXTERNAL_UPSTREAM_RQ_3XX = "external.upstream_rq_3xx",
        EXTERNAL_UPSTREAM_RQ_4XX = "external.upstream_rq_4xx",
        EXTERNAL_UPSTREAM_RQ_5XX = "external.upstream_rq_5xx",
        EXTERNAL_UPSTREAM_RQ_COMPLETED = "external.upstream_rq_completed",
        INTERNAL_UPSTREAM_RQ_1XX = "internal.upstream_rq_1xx",
        INTERNAL_UPSTREAM_RQ_2XX = "internal.upstream_rq_2xx",
        INTERNAL_UPSTREAM_RQ_3XX = "internal.upstream_rq_3xx",
        INTERNAL_UPSTREAM_RQ_4XX = "internal.upstream_rq_4xx",
        INTERNAL_UPSTREAM_RQ_5XX = "internal.upstream_rq_5xx",
        INTERNAL_UPSTREAM_RQ_COMPLETED = "internal.upstream_rq_completed",
        UPSTREAM_RQ_1XX = "upstream_rq_1xx",
        UPSTREAM_RQ_2XX = "upstream_rq_2xx",
        UPSTREAM_RQ_3XX = "upstream_rq_3xx",
        UPSTREAM_RQ_4XX = "upstream_rq_4xx",
        UPSTREAM_RQ_5XX = "upstream_rq_5xx",
        UPSTREAM_RQ_COMPLETED = "upstream_rq_completed",
    }
    lazy_histograms {
        EXTERNAL_UPSTREAM_RQ_TIME = "external.upstream_rq_time" Milliseconds,
        INTERNAL_UPSTREAM_RQ_TIME = "internal.upstream_rq_time" Milliseconds,
        UPSTREAM_RQ_TIME = "upstream_rq_time" Milliseconds,
    }
    codes {
        EXTERNAL_UPSTREAM_RQ_BY_CODE = "external.upstream_rq_",
        INTERNAL_UPSTREAM_RQ_BY_CODE = "internal.upstream_rq_",
        UPSTREAM_RQ_BY_CODE = "upstream_rq_",
    }
}

/// Counts the status that ends a request which brought a name to be counted by, and what its upstream took to answer, in
/// milliseconds. One that is `alone` counts by its status for its origin, and not in all.
pub fn count_alternative_response(block: &Block, status: u16, time: Option<u64>, internal: bool, alone: bool) {
    use cluster_alternative::*;
    let (completed, classes, codes, histogram) = match internal {
        true => (
            INTERNAL_UPSTREAM_RQ_COMPLETED,
            [
                INTERNAL_UPSTREAM_RQ_1XX,
                INTERNAL_UPSTREAM_RQ_2XX,
                INTERNAL_UPSTREAM_RQ_3XX,
                INTERNAL_UPSTREAM_RQ_4XX,
                INTERNAL_UPSTREAM_RQ_5XX,
            ],
            INTERNAL_UPSTREAM_RQ_BY_CODE,
            INTERNAL_UPSTREAM_RQ_TIME,
        ),
        false => (
            EXTERNAL_UPSTREAM_RQ_COMPLETED,
            [
                EXTERNAL_UPSTREAM_RQ_1XX,
                EXTERNAL_UPSTREAM_RQ_2XX,
                EXTERNAL_UPSTREAM_RQ_3XX,
                EXTERNAL_UPSTREAM_RQ_4XX,
                EXTERNAL_UPSTREAM_RQ_5XX,
            ],
            EXTERNAL_UPSTREAM_RQ_BY_CODE,
            EXTERNAL_UPSTREAM_RQ_TIME,
        ),
    };
    let all = [UPSTREAM_RQ_1XX, UPSTREAM_RQ_2XX, UPSTREAM_RQ_3XX, UPSTREAM_RQ_4XX, UPSTREAM_RQ_5XX];
    for counter in [UPSTREAM_RQ_COMPLETED, completed] {
        block.inc(counter);
    }
    let class = usize::from(status / 100).wrapping_sub(1);
    for counter in [all.get(class).filter(|_| !alone), classes.get(class)].into_iter().flatten() {
        block.inc(*counter);
    }
    if !alone {
        block.count_code(UPSTREAM_RQ_BY_CODE, status);
    }
    block.count_code(codes, status);
    if let Some(time) = time {
        block.record(UPSTREAM_RQ_TIME, time);
        block.record(histogram, time);
    }
}

crate::stat_set! {
    /// Routing of one cluster by zone; prefix: its name.
    pub mod cluster_zones = "cluster";
    counters {
        LOCAL_CLUSTER_NOT_OK = "lb_local_cluster_not_ok",
        RECALCULATED = "lb_recalculate_zone_structures",
        CLUSTER_TOO_SMALL = "lb_zone_cluster_too_small",
        NO_CAPACITY_LEFT = "lb_zone_no_capacity_left",
        ALL_DIRECTLY = "lb_zone_routing_all_directly",
        CROSS_ZONE = "lb_zone_routing_cross_zone",
        SAMPLED = "lb_zone_routing_sampled",
    }
}

crate::stat_set! {
    /// An upstream cluster; prefix: its name with `:` as `_`.
    pub mod cluster = "cluster";
    counters {
        BIND_ERRORS = "bind_errors",
        DEFAULT_TRANSPORT = "default.total_match_count",
        LB_HEALTHY_PANIC = "lb_healthy_panic",
        MEMBERSHIP_CHANGE = "membership_change",
        ORIGINAL_DST_HOST_INVALID = "original_dst_host_invalid",
        RETRY_OR_SHADOW_ABANDONED = "retry_or_shadow_abandoned",
        UPDATE_ATTEMPT = "update_attempt",
        UPDATE_FAILURE = "update_failure",
        UPDATE_NO_REBUILD = "update_no_rebuild",
        UPDATE_SUCCESS = "update_success",
        UPSTREAM_CX_CLOSE_NOTIFY = "upstream_cx_close_notify",
        UPSTREAM_CX_CONNECT_ATTEMPTS_EXCEEDED = "upstream_cx_connect_attempts_exceeded",
        UPSTREAM_CX_CONNECT_FAIL = "upstream_cx_connect_fail",
        UPSTREAM_CX_CONNECT_TIMEOUT = "upstream_cx_connect_timeout",
        UPSTREAM_CX_DESTROY = "upstream_cx_destroy",
        UPSTREAM_CX_DESTROY_LOCAL = "upstream_cx_destroy_local",
        UPSTREAM_CX_DESTROY_LOCAL_WITH_ACTIVE_RQ = "upstream_cx_destroy_local_with_active_rq",
        UPSTREAM_CX_DESTROY_REMOTE = "upstream_cx_destroy_remote",
        UPSTREAM_CX_DESTROY_REMOTE_WITH_ACTIVE_RQ = "upstream_cx_destroy_remote_with_active_rq",
        UPSTREAM_CX_DESTROY_WITH_ACTIVE_RQ = "upstream_cx_destroy_with_active_rq",
        UPSTREAM_CX_HTTP1_TOTAL = "upstream_cx_http1_total",
        UPSTREAM_CX_HTTP2_TOTAL = "upstream_cx_http2_total",
        UPSTREAM_CX_IDLE_TIMEOUT = "upstream_cx_idle_timeout",
        UPSTREAM_CX_MAX_DURATION_REACHED = "upstream_cx_max_duration_reached",
        UPSTREAM_CX_MAX_REQUESTS = "upstream_cx_max_requests",
        UPSTREAM_CX_NONE_HEALTHY = "upstream_cx_none_healthy",
        UPSTREAM_CX_OVERFLOW = "upstream_cx_overflow",
        UPSTREAM_CX_POOL_OVERFLOW = "upstream_cx_pool_overflow",
        UPSTREAM_CX_PRECONNECT_SKIPPED = "upstream_cx_preconnect_skipped",
        UPSTREAM_CX_PROTOCOL_ERROR = "upstream_cx_protocol_error",
        UPSTREAM_CX_RX_BYTES_TOTAL = "upstream_cx_rx_bytes_total",
        UPSTREAM_CX_TOTAL = "upstream_cx_total",
        UPSTREAM_CX_TX_BYTES_TOTAL = "upstream_cx_tx_bytes_total",
        UPSTREAM_FLOW_CONTROL_BACKED_UP_TOTAL = "upstream_flow_control_backed_up_total",
        UPSTREAM_FLOW_CONTROL_DRAINED_TOTAL = "upstream_flow_control_drained_total",
        UPSTREAM_FLOW_CONTROL_PAUSED_READING_TOTAL = "upstream_flow_control_paused_reading_total",
        UPSTREAM_FLOW_CONTROL_RESUMED_READING_TOTAL = "upstream_flow_control_resumed_reading_total",
        UPSTREAM_INTERNAL_REDIRECT_FAILED_TOTAL = "upstream_internal_redirect_failed_total",
        UPSTREAM_INTERNAL_REDIRECT_SUCCEEDED_TOTAL = "upstream_internal_redirect_succeeded_total",
        UPSTREAM_RQ_ACTIVE_OVERFLOW = "upstream_rq_active_overflow",
        UPSTREAM_RQ_CANCELLED = "upstream_rq_cancelled",
        UPSTREAM_RQ_COMPLETED = "upstream_rq_completed",
        UPSTREAM_RQ_MAINTENANCE_MODE = "upstream_rq_maintenance_mode",
        UPSTREAM_RQ_MAX_DURATION_REACHED = "upstream_rq_max_duration_reached",
        UPSTREAM_RQ_PENDING_FAILURE_EJECT = "upstream_rq_pending_failure_eject",
        UPSTREAM_RQ_PENDING_OVERFLOW = "upstream_rq_pending_overflow",
        UPSTREAM_RQ_PENDING_TOTAL = "upstream_rq_pending_total",
        UPSTREAM_RQ_PER_TRY_IDLE_TIMEOUT = "upstream_rq_per_try_idle_timeout",
        UPSTREAM_RQ_PER_TRY_TIMEOUT = "upstream_rq_per_try_timeout",
        UPSTREAM_RQ_RETRY = "upstream_rq_retry",
        UPSTREAM_RQ_RETRY_BACKOFF_EXPONENTIAL = "upstream_rq_retry_backoff_exponential",
        UPSTREAM_RQ_RETRY_BACKOFF_RATELIMITED = "upstream_rq_retry_backoff_ratelimited",
        UPSTREAM_RQ_RETRY_LIMIT_EXCEEDED = "upstream_rq_retry_limit_exceeded",
        UPSTREAM_RQ_RETRY_OVERFLOW = "upstream_rq_retry_overflow",
        UPSTREAM_RQ_RETRY_SUCCESS = "upstream_rq_retry_success",
        UPSTREAM_RQ_RX_RESET = "upstream_rq_rx_reset",
        UPSTREAM_RQ_TIMEOUT = "upstream_rq_timeout",
        UPSTREAM_RQ_TOTAL = "upstream_rq_total",
        UPSTREAM_RQ_TX_RESET = "upstream_rq_tx_reset",
    }
    lazy_counters {
        EXTERNAL_UPSTREAM_RQ_1XX = "external.upstream_rq_1xx",
        EXTERNAL_UPSTREAM_RQ_2XX = "external.upstream_rq_2xx",
        EXTERNAL_UPSTREAM_RQ_3XX = "external.upstream_rq_3xx",
        EXTERNAL_UPSTREAM_RQ_4XX = "external.upstream_rq_4xx",
        EXTERNAL_UPSTREAM_RQ_5XX = "external.upstream_rq_5xx",
        EXTERNAL_UPSTREAM_RQ_COMPLETED = "external.upstream_rq_completed",
        INTERNAL_UPSTREAM_RQ_1XX = "internal.upstream_rq_1xx",
        INTERNAL_UPSTREAM_RQ_2XX = "internal.upstream_rq_2xx",
        INTERNAL_UPSTREAM_RQ_3XX = "internal.upstream_rq_3xx",
        INTERNAL_UPSTREAM_RQ_4XX = "internal.upstream_rq_4xx",
        INTERNAL_UPSTREAM_RQ_5XX = "internal.upstream_rq_5xx",
        INTERNAL_UPSTREAM_RQ_COMPLETED = "internal.upstream_rq_completed",
        RETRY_UPSTREAM_RQ_2XX = "retry.upstream_rq_2xx",
        RETRY_UPSTREAM_RQ_3XX = "retry.upstream_rq_3xx",
        RETRY_UPSTREAM_RQ_4XX = "retry.upstream_rq_4xx",
        RETRY_UPSTREAM_RQ_5XX = "retry.upstream_rq_5xx",
        RETRY_UPSTREAM_RQ_COMPLETED = "retry.upstream_rq_completed",
        UPSTREAM_RQ_1XX = "upstream_rq_1xx",
        UPSTREAM_RQ_2XX = "upstream_rq_2xx",
        UPSTREAM_RQ_3XX = "upstream_rq_3xx",
        UPSTREAM_RQ_4XX = "upstream_rq_4xx",
        UPSTREAM_RQ_5XX = "upstream_rq_5xx",
    }
    gauges {
        MAX_HOST_WEIGHT = "max_host_weight",
        MEMBERSHIP_DEGRADED = "membership_degraded",
        MEMBERSHIP_EXCLUDED = "membership_excluded",
        MEMBERSHIP_HEALTHY = "membership_healthy",
        MEMBERSHIP_TOTAL = "membership_total",
        UPSTREAM_CX_ACTIVE = "upstream_cx_active",
        UPSTREAM_CX_RX_BYTES_BUFFERED = "upstream_cx_rx_bytes_buffered",
        UPSTREAM_CX_TX_BYTES_BUFFERED = "upstream_cx_tx_bytes_buffered",
        UPSTREAM_RQ_ACTIVE = "upstream_rq_active",
        UPSTREAM_RQ_PENDING_ACTIVE = "upstream_rq_pending_active",
    }
    flags {
        CIRCUIT_BREAKERS_DEFAULT_CX_OPEN = "circuit_breakers.default.cx_open",
        CIRCUIT_BREAKERS_DEFAULT_CX_POOL_OPEN = "circuit_breakers.default.cx_pool_open",
        CIRCUIT_BREAKERS_DEFAULT_RQ_OPEN = "circuit_breakers.default.rq_open",
        CIRCUIT_BREAKERS_DEFAULT_RQ_PENDING_OPEN = "circuit_breakers.default.rq_pending_open",
        CIRCUIT_BREAKERS_DEFAULT_RQ_RETRY_OPEN = "circuit_breakers.default.rq_retry_open",
        CIRCUIT_BREAKERS_HIGH_CX_OPEN = "circuit_breakers.high.cx_open",
        CIRCUIT_BREAKERS_HIGH_CX_POOL_OPEN = "circuit_breakers.high.cx_pool_open",
        CIRCUIT_BREAKERS_HIGH_RQ_OPEN = "circuit_breakers.high.rq_open",
        CIRCUIT_BREAKERS_HIGH_RQ_PENDING_OPEN = "circuit_breakers.high.rq_pending_open",
        CIRCUIT_BREAKERS_HIGH_RQ_RETRY_OPEN = "circuit_breakers.high.rq_retry_open",
    }
    histograms {
        UPSTREAM_CX_CONNECT_MS = "upstream_cx_connect_ms" Milliseconds,
        UPSTREAM_CX_LENGTH_MS = "upstream_cx_length_ms" Milliseconds,
        UPSTREAM_RQ_PER_CX = "upstream_rq_per_cx" Unspecified,
    }
    lazy_histograms {
        UPSTREAM_RQ_TIME = "upstream_rq_time" Milliseconds,
        EXTERNAL_UPSTREAM_RQ_TIME = "external.upstream_rq_time" Milliseconds,
        INTERNAL_UPSTREAM_RQ_TIME = "internal.upstream_rq_time" Milliseconds,
    }
    codes {
        EXTERNAL_UPSTREAM_RQ_BY_CODE = "external.upstream_rq_",
        INTERNAL_UPSTREAM_RQ_BY_CODE = "internal.upstream_rq_",
        UPSTREAM_RQ_BY_CODE = "upstream_rq_",
        RETRY_UPSTREAM_RQ_BY_CODE = "retry.upstream_rq_",
        EXTERNAL_UPSTREAM_RQ_ALONE = "",
        INTERNAL_UPSTREAM_RQ_ALONE = "",
    }
    unchanging = super::super::unchanging::CLUSTER;
    sums = super::of_cluster;
}

/// An answer is counted once, by its origin and status, and so is its time; this is what they add up to. One that stands
/// alone counts by its status for its origin, and not in all.
fn of_cluster(part: Part) -> Sums {
    match part {
        Part::Code(family, status) => of_code(family, status),
        Part::Histogram(at)
            if [cluster::EXTERNAL_UPSTREAM_RQ_TIME, cluster::INTERNAL_UPSTREAM_RQ_TIME]
                .iter()
                .any(|part| part.index == at) =>
        {
            Sums { histogram: Some(cluster::UPSTREAM_RQ_TIME), ..Sums::default() }
        }
        Part::Histogram(_) | Part::Counter(_) => Sums::default(),
    }
}

fn of_code(family: u16, status: u16) -> Sums {
    use cluster::*;
    let class = |classes: [Counter; 5]| classes.get(usize::from(status / 100).wrapping_sub(1)).copied();
    let all = class([UPSTREAM_RQ_1XX, UPSTREAM_RQ_2XX, UPSTREAM_RQ_3XX, UPSTREAM_RQ_4XX, UPSTREAM_RQ_5XX]);
    let alone = if family == INTERNAL_UPSTREAM_RQ_ALONE.index {
        Some(INTERNAL_UPSTREAM_RQ_BY_CODE)
    } else if family == EXTERNAL_UPSTREAM_RQ_ALONE.index {
        Some(EXTERNAL_UPSTREAM_RQ_BY_CODE)
    } else {
        None
    };
    let family = alone.map_or(family, |origin| origin.index);
    let (completed, class) = if family == INTERNAL_UPSTREAM_RQ_BY_CODE.index {
        let classes = [
            INTERNAL_UPSTREAM_RQ_1XX,
            INTERNAL_UPSTREAM_RQ_2XX,
            INTERNAL_UPSTREAM_RQ_3XX,
            INTERNAL_UPSTREAM_RQ_4XX,
            INTERNAL_UPSTREAM_RQ_5XX,
        ];
        (INTERNAL_UPSTREAM_RQ_COMPLETED, class(classes))
    } else if family == EXTERNAL_UPSTREAM_RQ_BY_CODE.index {
        let classes = [
            EXTERNAL_UPSTREAM_RQ_1XX,
            EXTERNAL_UPSTREAM_RQ_2XX,
            EXTERNAL_UPSTREAM_RQ_3XX,
            EXTERNAL_UPSTREAM_RQ_4XX,
            EXTERNAL_UPSTREAM_RQ_5XX,
        ];
        (EXTERNAL_UPSTREAM_RQ_COMPLETED, class(classes))
    } else {
        return Sums::default();
    };
    let all = all.filter(|_| alone.is_none());
    Sums {
        family: Some(alone.unwrap_or(UPSTREAM_RQ_BY_CODE)),
        counters: [Some(UPSTREAM_RQ_COMPLETED), Some(completed), all, class],
        histogram: None,
    }
}

crate::stat_set! {
    /// The same of a cluster; prefix: `<cluster>.ssl.certificate.<name>`, computed when read.
    pub mod cluster_certificate = "cluster";
    gauges {
        EXPIRATION_UNIX_TIME_SECONDS = "expiration_unix_time_seconds",
    }
}

crate::stat_set! {
    /// Clusters as configuration sees them; no prefix, counted by the control plane.
    pub mod cluster_manager = "cluster_manager";
    counters {
        CLUSTER_ADDED = "cluster_added",
        CLUSTER_MODIFIED = "cluster_modified",
        CLUSTER_REMOVED = "cluster_removed",
        CLUSTER_UPDATED = "cluster_updated",
    }
    gauges {
        ACTIVE_CLUSTERS = "active_clusters",
    }
    unchanging = super::super::unchanging::CLUSTER_MANAGER;
}
