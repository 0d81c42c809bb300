//! What statistics tell of a client's connection: how it began, and whose doing its end was.

use std::time::Duration;

use postrider_telemetry::Block;
use postrider_telemetry::stats::sets::http::*;

pub(crate) fn begin_connection(stats: &Block, secure: bool) {
    stats.inc(DOWNSTREAM_CX_TOTAL);
    stats.gauge_inc(DOWNSTREAM_CX_ACTIVE);
    if secure {
        stats.inc(DOWNSTREAM_CX_SSL_TOTAL);
        stats.gauge_inc(DOWNSTREAM_CX_SSL_ACTIVE);
    }
}

/// How a client's connection ended.
pub(crate) struct Ended {
    pub(crate) by_client: bool,
    /// A request was under way.
    pub(crate) busy: bool,
    pub(crate) secure: bool,
    pub(crate) age: Duration,
}

impl Ended {
    pub(crate) fn count(&self, stats: &Block) {
        stats.gauge_dec(DOWNSTREAM_CX_ACTIVE);
        if self.secure {
            stats.gauge_dec(DOWNSTREAM_CX_SSL_ACTIVE);
        }
        stats.inc(DOWNSTREAM_CX_DESTROY);
        let (ended, ended_busy) = match self.by_client {
            true => (DOWNSTREAM_CX_DESTROY_REMOTE, DOWNSTREAM_CX_DESTROY_REMOTE_ACTIVE_RQ),
            false => (DOWNSTREAM_CX_DESTROY_LOCAL, DOWNSTREAM_CX_DESTROY_LOCAL_ACTIVE_RQ),
        };
        stats.inc(ended);
        if self.busy {
            stats.inc(DOWNSTREAM_CX_DESTROY_ACTIVE_RQ);
            stats.inc(ended_busy);
        }
        stats.record(DOWNSTREAM_CX_LENGTH_MS, crate::cluster::millis(self.age));
    }
}
