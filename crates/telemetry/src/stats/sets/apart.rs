//! Answers that clusters count apart, beside those of all hosts: of canaries, and by the zones between which they went.

use super::Block;

crate::stat_set! {
    /// Answers of canaries; prefix: the cluster's name.
    pub mod cluster_canary = "cluster";
    lazy_counters {
        UPSTREAM_RQ_1XX = "canary.upstream_rq_1xx",
        UPSTREAM_RQ_2XX = "canary.upstream_rq_2xx",
        UPSTREAM_RQ_3XX = "canary.upstream_rq_3xx",
        UPSTREAM_RQ_4XX = "canary.upstream_rq_4xx",
        UPSTREAM_RQ_5XX = "canary.upstream_rq_5xx",
        UPSTREAM_RQ_COMPLETED = "canary.upstream_rq_completed",
    }
    lazy_histograms {
        UPSTREAM_RQ_TIME = "canary.upstream_rq_time" Milliseconds,
    }
    codes {
        UPSTREAM_RQ_BY_CODE = "canary.upstream_rq_",
    }
}

crate::stat_set! {
    /// Answers from one zone for another; prefix: `<cluster>.zone.<ours>.<theirs>`.
    pub mod cluster_zone_pair = "cluster";
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

/// Counts an answer of a canary: completed, class, code and time.
pub fn count_canary_response(block: &Block, status: u16, milliseconds: u64) {
    use cluster_canary::*;
    block.inc(UPSTREAM_RQ_COMPLETED);
    block.count_code(UPSTREAM_RQ_BY_CODE, status);
    block.record(UPSTREAM_RQ_TIME, milliseconds);
    match status / 100 {
        1 => block.inc(UPSTREAM_RQ_1XX),
        2 => block.inc(UPSTREAM_RQ_2XX),
        3 => block.inc(UPSTREAM_RQ_3XX),
        4 => block.inc(UPSTREAM_RQ_4XX),
        5 => block.inc(UPSTREAM_RQ_5XX),
        _ => {}
    }
}

/// The same of an answer that came from another zone, or from the same.
pub fn count_zone_response(block: &Block, status: u16, milliseconds: u64) {
    use cluster_zone_pair::*;
    block.inc(UPSTREAM_RQ_COMPLETED);
    block.count_code(UPSTREAM_RQ_BY_CODE, status);
    block.record(UPSTREAM_RQ_TIME, milliseconds);
    match status / 100 {
        1 => block.inc(UPSTREAM_RQ_1XX),
        2 => block.inc(UPSTREAM_RQ_2XX),
        3 => block.inc(UPSTREAM_RQ_3XX),
        4 => block.inc(UPSTREAM_RQ_4XX),
        5 => block.inc(UPSTREAM_RQ_5XX),
        _ => {}
    }
}
