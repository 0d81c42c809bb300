//! Moments on the monotonic clock, as plain numbers: comparing and adding them is one instruction.

use std::num::NonZeroU64;
use std::ops::Add;
use std::time::Duration;

/// Nanoseconds since some moment before the process served anything, and one: never zero, so that an `Option` of it is one word. A request notes
/// a dozen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(NonZeroU64);

impl Default for Moment {
    /// The first of all.
    fn default() -> Moment {
        Moment::from_nanos(0)
    }
}

impl Moment {
    /// As long ago as the clock began.
    pub const fn since_start(self) -> Duration {
        Duration::from_nanos(self.0.get() - 1)
    }

    pub const fn from_nanos(nanos: u64) -> Moment {
        Moment(NonZeroU64::MIN.saturating_add(nanos))
    }

    /// How long after `earlier` this is; zero when it is before.
    pub fn saturating_duration_since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.get().saturating_sub(earlier.0.get()))
    }

    /// The same in whole milliseconds.
    pub fn millis_since(self, earlier: Moment) -> u64 {
        self.0.get().saturating_sub(earlier.0.get()) / 1_000_000
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    /// A moment too far away to be told (five centuries) is the last one.
    fn add(self, later: Duration) -> Moment {
        let nanos = later.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(later.subsec_nanos()));
        Moment(self.0.saturating_add(nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_add_and_differ_without_overflow() {
        let start = Moment::from_nanos(5);
        let later = start + Duration::from_millis(1500);
        assert_eq!(later.saturating_duration_since(start), Duration::from_millis(1500));
        assert_eq!((later.millis_since(start), start.millis_since(later)), (1500, 0));
        assert!(start + Duration::MAX > later);
        assert_eq!(later.saturating_duration_since(Moment::default()), Duration::from_nanos(1_500_000_005));
        assert_eq!(size_of::<Option<Moment>>(), size_of::<u64>());
    }
}
