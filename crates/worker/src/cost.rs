//! What each filter costs, by route: calls of its hooks, their time and their allocations.
//!
//! Plugins are not counted here: their hosts know more of them.

use postrider_filter_api::{Moment, RouteBlocks, RouteFacts, Sampling, stat_part};
use postrider_telemetry::WorkerStats;
use postrider_telemetry::stats::sets::filter as stat;

use crate::clock::Clock;

/// One filter's account on one worker.
pub(crate) struct Cost {
    blocks: RouteBlocks,
    sampling: Sampling,
}

/// The beginning of a call that is measured.
pub(crate) struct Measure {
    began: Moment,
    allocations: u64,
    /// For so many calls.
    stands_for: u32,
}

/// What statistics call a filter: one part of a name, so that the route's begins behind it.
pub fn filter_stat_name(filter: &str) -> String {
    stat_part(filter).replace('.', "_")
}

impl Cost {
    pub(crate) fn new(stats: &WorkerStats, filter: &str) -> Cost {
        Cost { blocks: RouteBlocks::new(stats, &stat::SET, filter_stat_name(filter)), sampling: Sampling::default() }
    }

    /// A hook is about to be called.
    #[inline]
    pub(crate) fn begin(&self, clock: &Clock) -> Option<Measure> {
        let stands_for = self.sampling.take()?;
        Some(Measure { began: clock.exact(), allocations: postrider_sys::allocations(), stands_for })
    }

    /// It came back.
    #[inline]
    pub(crate) fn end(&self, measure: Option<Measure>, route: Option<&RouteFacts>, clock: &Clock) {
        self.blocks.count(route, |block| {
            block.inc(stat::CALLS);
            if let Some(Measure { began, allocations, stands_for }) = measure {
                let took = clock.exact().saturating_duration_since(began).as_nanos() as u64;
                let allocated = postrider_sys::allocations().wrapping_sub(allocations);
                block.add(stat::TIME_NS, took * u64::from(stands_for));
                block.add(stat::ALLOCATIONS, allocated * u64::from(stands_for));
            }
        });
    }

    /// The filter answered instead of an upstream.
    #[cold]
    pub(crate) fn answered(&self, route: Option<&RouteFacts>) {
        self.blocks.count(route, |block| block.inc(stat::LOCAL_REPLIES));
    }
}
