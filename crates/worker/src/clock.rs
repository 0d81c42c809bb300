//! The time, read from the system at most once per batch of work.

use std::cell::Cell;
use std::time::{Instant, SystemTime};

/// Reads in a row that may share one look at the system's clock. Tens of requests fit into a millisecond, which is
/// what logs and timeouts resolve.
const READS_PER_LOOK: u32 = 8;

thread_local! {
    static STALE: Cell<bool> = const { Cell::new(true) };
}

/// One worker's clock.
#[derive(Debug)]
pub(crate) struct Clock {
    now: Cell<Instant>,
    wall: Cell<SystemTime>,
    reads: Cell<u32>,
    base: Cell<(Instant, SystemTime)>,
}

impl Default for Clock {
    fn default() -> Self {
        let (now, wall) = (look(), SystemTime::now());
        Clock { now: Cell::new(now), wall: Cell::new(wall), reads: Cell::new(0), base: Cell::new((now, wall)) }
    }
}

impl Clock {
    /// The runtime slept: the time that was read before is old. Called by the runtime of each worker.
    pub(crate) fn woke_up() {
        STALE.set(true);
    }

    pub(crate) fn now(&self) -> Instant {
        let reads = self.reads.get() + 1;
        if reads > READS_PER_LOOK || STALE.get() {
            STALE.set(false);
            self.reads.set(0);
            let now = look();
            self.now.set(now);
            self.wall.set(self.wall(now));
        } else {
            self.reads.set(reads);
        }
        self.now.get()
    }

    /// What [`Clock::now`] answered last. For one who knows that it was asked since the task woke up.
    pub(crate) fn recent(&self) -> Instant {
        self.now.get()
    }

    /// The wall clock at the moment that [`Clock::now`] answered last.
    pub(crate) fn wall_now(&self) -> SystemTime {
        self.wall.get()
    }

    /// The wall clock at that moment, as known since the last [`Clock::synchronise`].
    pub(crate) fn wall(&self, at: Instant) -> SystemTime {
        let (instant, wall) = self.base.get();
        match at.checked_duration_since(instant) {
            Some(later) => wall + later,
            None => wall - instant.duration_since(at),
        }
    }

    /// Follows a wall clock that was set; called about once a second.
    pub(crate) fn synchronise(&self) {
        self.base.set((look(), SystemTime::now()));
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place in a worker that reads the system's clock")]
fn look() -> Instant {
    Instant::now()
}
