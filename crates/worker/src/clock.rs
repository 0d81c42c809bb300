//! The time, read from the system at most once per batch of work.

use std::cell::Cell;
use std::time::{Duration, SystemTime};

use postrider_filter_api::Moment;

/// Reads in a row that may share one look at the system's clock. Tens of requests fit into a millisecond, which is
/// what logs and timeouts resolve.
const READS_PER_LOOK: u32 = 16;

/// The wall clock is brought up to date when it is older than this.
const WALL_RESOLUTION: Duration = Duration::from_micros(500);

thread_local! {
    static STALE: Cell<bool> = const { Cell::new(true) };
}

/// One worker's clock.
#[derive(Debug)]
pub(crate) struct Clock {
    now: Cell<Moment>,
    reads: Cell<u32>,
    wall: Cell<SystemTime>,
    wall_due: Cell<Moment>,
    base: Cell<(Moment, SystemTime)>,
}

impl Default for Clock {
    fn default() -> Self {
        let (now, wall) = (look(), SystemTime::now());
        Clock {
            now: Cell::new(now),
            reads: Cell::new(0),
            wall: Cell::new(wall),
            wall_due: Cell::new(now + WALL_RESOLUTION),
            base: Cell::new((now, wall)),
        }
    }
}

impl Clock {
    /// The runtime slept: the time that was read before is old. Called by the runtime of each worker.
    pub(crate) fn woke_up() {
        STALE.set(true);
    }

    #[inline]
    pub(crate) fn now(&self) -> Moment {
        let reads = self.reads.get() + 1;
        if reads > READS_PER_LOOK || STALE.get() {
            self.refresh();
        } else {
            self.reads.set(reads);
        }
        self.now.get()
    }

    /// The time right now, whatever was read before: for one who measures what a plugin takes.
    pub(crate) fn exact(&self) -> Moment {
        self.refresh();
        self.now.get()
    }

    #[inline(never)]
    fn refresh(&self) {
        STALE.set(false);
        self.reads.set(0);
        let now = look();
        self.now.set(now);
        if now >= self.wall_due.get() {
            self.wall.set(self.wall(now));
            self.wall_due.set(now + WALL_RESOLUTION);
        }
    }

    /// What [`Clock::now`] answered last. For one who knows that it was asked since the task woke up.
    pub(crate) fn recent(&self) -> Moment {
        self.now.get()
    }

    /// The wall clock, as old as [`WALL_RESOLUTION`] at most when [`Clock::now`] was asked just before.
    pub(crate) fn wall_now(&self) -> SystemTime {
        self.wall.get()
    }

    /// The wall clock at that moment, as known since the last [`Clock::synchronise`].
    pub(crate) fn wall(&self, at: Moment) -> SystemTime {
        let (moment, wall) = self.base.get();
        wall + at.saturating_duration_since(moment) - moment.saturating_duration_since(at)
    }

    /// Follows a wall clock that was set; called about once a second.
    pub(crate) fn synchronise(&self) {
        self.base.set((look(), SystemTime::now()));
    }
}

fn look() -> Moment {
    Moment::from_nanos(postrider_sys::monotonic_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_times_differ_where_others_share_a_look() {
        let clock = Clock::default();
        let began = clock.exact();
        assert!((0..1_000_000).any(|_| clock.exact() > began));
    }

    #[test]
    fn the_wall_clock_follows_the_monotonic_one_both_ways() {
        let clock = Clock::default();
        let (moment, wall) = clock.base.get();
        assert_eq!(clock.wall(moment + Duration::from_secs(2)), wall + Duration::from_secs(2));
        clock.base.set((moment + Duration::from_secs(3), wall));
        assert_eq!(clock.wall(moment), wall - Duration::from_secs(3));
    }
}
