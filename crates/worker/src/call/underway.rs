//! The counts that a request of a filter's own, or a copy, changes while it is under way.

use std::cell::Cell;
use std::rc::Rc;

use postrider_filter_api::Moment;
use postrider_telemetry::Block;
use postrider_telemetry::stats::sets::cluster as stat;
use postrider_upstream::Permit;

use crate::cluster::Host;
use crate::worker::Worker;

/// Counts a request while it is under way, however it ends.
pub(super) struct Underway<'a> {
    host: Rc<Host>,
    stats: Rc<Block>,
    /// What became of it is known: its filter did not abandon it.
    settled: &'a Cell<bool>,
    began: Moment,
    worker: &'a Worker,
    _permit: Permit,
}

impl<'a> Underway<'a> {
    pub(super) fn begin(
        host: &Rc<Host>,
        stats: &Rc<Block>,
        settled: &'a Cell<bool>,
        permit: Permit,
        worker: &'a Worker,
    ) -> Underway<'a> {
        host.active.set(host.active.get() + 1);
        host.totals.requests.set(host.totals.requests.get() + 1);
        stats.inc(stat::UPSTREAM_RQ_TOTAL);
        stats.gauge_inc(stat::UPSTREAM_RQ_ACTIVE);
        let began = worker.clock.now();
        Underway { host: host.clone(), stats: stats.clone(), settled, began, worker, _permit: permit }
    }
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        self.host.active.set(self.host.active.get().saturating_sub(1));
        self.stats.gauge_dec(stat::UPSTREAM_RQ_ACTIVE);
        if self.host.is_timed() {
            let took = self.worker.clock.now().saturating_duration_since(self.began);
            self.host.observe(took, self.settled.get());
        }
        if !self.settled.get() {
            self.stats.inc(stat::UPSTREAM_RQ_CANCELLED);
        }
    }
}
