//! How old a client's connection of HTTP/1 may become, and how it retires: with one more request, or after waiting for it.

use std::time::Duration;

use postrider_model::ScaledTimer;
use postrider_telemetry::stats::sets::http as stat;

use super::Connection;
use crate::chain::Http;

impl Connection {
    /// How old it may become.
    #[inline]
    pub(super) fn age_limit(&self, http: &Http) -> Option<Duration> {
        http.model.timeouts.max_connection_duration.map(|limit| age_limit(http, limit, self.id))
    }

    /// A connection without a request has waited for long enough; whether it goes on waiting, for a last one.
    #[cold]
    #[inline(never)]
    pub(super) fn retires(&mut self, http: &Http) -> bool {
        let timeouts = &http.model.timeouts;
        if self.retiring && !timeouts.drains_for_good {
            return false;
        }
        if self.retiring || !self.is_aged(http) {
            http.stats.inc(stat::DOWNSTREAM_CX_IDLE_TIMEOUT);
            return false;
        }
        self.begin_to_retire(http);
        let idle_end = timeouts.connection_idle.map(|wait| self.waits_since + wait);
        let drain = with_share(timeouts.drain, timeouts.drain_jitter, self.id);
        let drain_end = (!timeouts.drains_for_good).then(|| self.worker.clock.now() + drain);
        self.deadline.set(idle_end.into_iter().chain(drain_end).min());
        true
    }

    /// It is older than it may become.
    fn is_aged(&self, http: &Http) -> bool {
        let limit = self.worker.overload.hurried(ScaledTimer::ConnectionAge, self.age_limit(http));
        limit.is_some_and(|limit| self.worker.clock.now() >= self.accepted + limit)
    }

    /// Whether this request is its last.
    #[cold]
    #[inline(never)]
    pub(super) fn is_used_up(&mut self, http: &Http) -> bool {
        if http.model.limits.max_requests_per_connection.is_some_and(|limit| self.requests >= limit) {
            http.stats.inc(stat::DOWNSTREAM_CX_MAX_REQUESTS_REACHED);
            return true;
        }
        // The connection of a stream looks to its age itself.
        if !self.retiring && !self.is_stream() && self.is_aged(http) {
            self.begin_to_retire(http);
        }
        self.retiring
    }

    fn begin_to_retire(&mut self, http: &Http) {
        http.stats.inc(stat::DOWNSTREAM_CX_MAX_DURATION_REACHED);
        if http.model.timeouts.drains_for_good {
            http.stats.gauge_inc(stat::DOWNSTREAM_CX_HTTP1_SOFT_DRAIN);
        }
        self.retiring = true;
    }

    /// It is over.
    #[inline]
    pub(super) fn has_retired(&self, http: &Http) {
        if self.retiring && http.model.timeouts.drains_for_good {
            http.stats.gauge_dec(stat::DOWNSTREAM_CX_HTTP1_SOFT_DRAIN);
        }
    }
}

/// How old the connection with this number may become where `limit` is the least of all.
#[cold]
pub(crate) fn age_limit(http: &Http, limit: Duration, id: u64) -> Duration {
    with_share(limit, http.model.timeouts.max_connection_duration_jitter, id)
}

/// `least`, and up to so many percent of it, by the number of a connection.
pub(crate) fn with_share(least: Duration, percent: f64, id: u64) -> Duration {
    // Mixed from its number (Fibonacci hashing), so that nobody has to remember it.
    let share = (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as f64 / f64::from(u32::MAX);
    least + least.mul_f64((percent / 100.0 * share).clamp(0.0, 1.0))
}
