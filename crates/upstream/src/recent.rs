//! How many requests began lately: what a retry budget with an interval is a share of.
//!
//! Each worker counts in slots of its own, a tenth of the interval each; whoever wants to know adds up those of all workers. A
//! slot is used anew when its time comes round, so that nothing has to be cleared.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Slots of an interval, and one more: the oldest is passed only in part.
const SLOTS: u64 = 11;

/// The beginnings of an interval, by worker.
#[derive(Debug)]
pub(crate) struct Recent {
    /// Nanoseconds of a slot.
    width: u64,
    workers: Box<[OfWorker]>,
}

/// On cache lines that nobody else writes.
#[derive(Debug, Default)]
#[repr(align(64))]
struct OfWorker([Slot; SLOTS as usize]);

#[derive(Debug, Default)]
struct Slot {
    /// Which slot since the clock's beginning.
    number: AtomicU64,
    count: AtomicU32,
}

impl Recent {
    pub(crate) fn new(interval: Duration, workers: usize) -> Recent {
        let nanos = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        Recent { width: (nanos / (SLOTS - 1)).max(1), workers: (0..workers).map(|_| OfWorker::default()).collect() }
    }

    /// A request begins on `worker`, and nobody else counts for it. `now` is what the workers' clocks show.
    pub(crate) fn count(&self, worker: usize, now: Duration) {
        let number = self.number(now);
        let place = usize::try_from(number % SLOTS).unwrap_or_default();
        let Some(slot) = self.workers.get(worker).and_then(|of_worker| of_worker.0.get(place)) else { return };
        if slot.number.load(Relaxed) != number {
            slot.count.store(0, Relaxed);
            slot.number.store(number, Relaxed);
        }
        slot.count.store(slot.count.load(Relaxed).saturating_add(1), Relaxed);
    }

    /// How many began within the interval, give or take a tenth of it.
    pub(crate) fn sum(&self, now: Duration) -> u32 {
        let number = self.number(now);
        let oldest = number.saturating_sub(SLOTS - 1);
        let slots = self.workers.iter().flat_map(|of_worker| &of_worker.0);
        let recent = slots.filter(|slot| (oldest..=number).contains(&slot.number.load(Relaxed)));
        recent.fold(0, |sum: u32, slot| sum.saturating_add(slot.count.load(Relaxed)))
    }

    fn number(&self, now: Duration) -> u64 {
        // From one: a slot that was never used has the number zero.
        u64::try_from(now.as_nanos()).unwrap_or(u64::MAX) / self.width + SLOTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_began_is_counted_for_the_interval_and_not_longer() {
        let recent = Recent::new(Duration::from_millis(100), 2);
        let at = Duration::from_millis;
        assert_eq!(recent.sum(at(0)), 0);
        (0..5).for_each(|_| recent.count(0, at(1000)));
        recent.count(1, at(1050));
        assert_eq!((recent.sum(at(1000)), recent.sum(at(1050)), recent.sum(at(1099))), (5, 6, 6));
        assert_eq!((recent.sum(at(1115)), recent.sum(at(1170))), (1, 0));
        // The slot comes round.
        recent.count(0, at(1110));
        assert_eq!(recent.sum(at(1110)), 2);
    }
}
