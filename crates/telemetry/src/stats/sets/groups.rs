//! Requests that routes count together, whichever cluster they go to: Envoy's `vhost.` names.

use super::Block;

crate::stat_set! {
    /// A virtual cluster, or the routes with one prefix; prefix: `<virtual host>.vcluster.<name>`, respectively `.route.`.
    pub mod group = "vhost";
    counters {
        UPSTREAM_RQ_RETRY = "upstream_rq_retry",
        UPSTREAM_RQ_RETRY_LIMIT_EXCEEDED = "upstream_rq_retry_limit_exceeded",
        UPSTREAM_RQ_RETRY_OVERFLOW = "upstream_rq_retry_overflow",
        UPSTREAM_RQ_RETRY_SUCCESS = "upstream_rq_retry_success",
        UPSTREAM_RQ_TIMEOUT = "upstream_rq_timeout",
        UPSTREAM_RQ_TOTAL = "upstream_rq_total",
    }
    lazy_counters {
        UPSTREAM_RQ_1XX = "upstream_rq_1xx",
        UPSTREAM_RQ_2XX = "upstream_rq_2xx",
        UPSTREAM_RQ_3XX = "upstream_rq_3xx",
        UPSTREAM_RQ_4XX = "upstream_rq_4xx",
        UPSTREAM_RQ_5XX = "upstream_rq_5xx",
        UPSTREAM_RQ_COMPLETED = "upstream_rq_completed",
    }
    lazy_histograms {
        UPSTREAM_RQ_TIME = "upstream_rq_time" Milliseconds,
    }
    codes {
        UPSTREAM_RQ_BY_CODE = "upstream_rq_",
    }
}

/// Counts the status that ends a request: completed, class and code.
pub fn count_group_response(block: &Block, status: u16) {
    use group::*;
    block.inc(UPSTREAM_RQ_COMPLETED);
    block.count_code(UPSTREAM_RQ_BY_CODE, status);
    match status / 100 {
        1 => block.inc(UPSTREAM_RQ_1XX),
        2 => block.inc(UPSTREAM_RQ_2XX),
        3 => block.inc(UPSTREAM_RQ_3XX),
        4 => block.inc(UPSTREAM_RQ_4XX),
        5 => block.inc(UPSTREAM_RQ_5XX),
        _ => {}
    }
}
