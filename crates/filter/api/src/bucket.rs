//! Token buckets that all workers share: one atomic number each, no lock.
//!
//! A bucket is the moment at which it would have been empty; what it holds follows from the time since. So it fills
//! continuously, and taking is one compare-and-swap.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::Moment;

/// The bits of a number that no clock shows: the bucket was not used yet.
const UNUSED: u64 = f64::NAN.to_bits();

/// What seconds in binary may lack of a token.
const ROUNDING: f64 = 1e-6;

/// Tokens, up to a maximum, that come back at a rate.
#[derive(Debug)]
pub struct Bucket {
    max: f64,
    /// Tokens per second.
    rate: f64,
    /// What it holds when it is first used.
    first: f64,
    /// Bits of the second at which it was, or would have been, empty.
    empty: AtomicU64,
}

impl Bucket {
    /// Full at first. The rate is above zero.
    pub fn full(max: f64, rate: f64) -> Bucket {
        Bucket::holding(max, max, rate)
    }

    /// With `first` tokens when it is first used.
    pub fn holding(first: f64, max: f64, rate: f64) -> Bucket {
        Bucket { max, rate: rate.max(f64::MIN_POSITIVE), first, empty: AtomicU64::new(UNUSED) }
    }

    /// From now on it fills, unless it has been in use before. Without this it begins when it is first used.
    pub fn begin(&self, now: Moment) {
        let empty = seconds(now) - self.first / self.rate;
        let _ = self.empty.compare_exchange(UNUSED, empty.to_bits(), Relaxed, Relaxed);
    }

    pub fn max(&self) -> f64 {
        self.max
    }

    /// Tokens per second.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// What is there now.
    pub fn tokens(&self, now: Moment) -> f64 {
        self.held(self.empty.load(Relaxed), seconds(now))
    }

    /// Takes so many tokens, or none when there are fewer. A negative number puts some back.
    pub fn take(&self, now: Moment, tokens: f64) -> bool {
        self.exchange(now, |held| (held + ROUNDING >= tokens).then_some(tokens)).is_some()
    }

    /// Takes as many whole tokens as there are, up to `most`.
    pub fn take_up_to(&self, now: Moment, most: usize) -> usize {
        let taken = self.exchange(now, |held| Some(held.floor().min(most as f64)).filter(|some| *some >= 1.0));
        taken.unwrap_or(0.0) as usize
    }

    fn exchange(&self, now: Moment, wanted: impl Fn(f64) -> Option<f64>) -> Option<f64> {
        let now = seconds(now);
        let mut old = self.empty.load(Relaxed);
        loop {
            let held = self.held(old, now);
            let taken = wanted(held)?;
            let new = now - (held - taken) / self.rate;
            match self.empty.compare_exchange_weak(old, new.to_bits(), Relaxed, Relaxed) {
                Ok(_) => return Some(taken),
                Err(current) => old = current,
            }
        }
    }

    fn held(&self, empty: u64, now: f64) -> f64 {
        match empty {
            UNUSED => self.first,
            empty => ((now - f64::from_bits(empty)) * self.rate).min(self.max),
        }
    }
}

fn seconds(now: Moment) -> f64 {
    now.saturating_duration_since(Moment::default()).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(seconds: f64) -> Moment {
        Moment::default() + Duration::from_secs_f64(seconds)
    }

    #[test]
    fn it_is_full_at_first_and_fills_as_time_passes() {
        let bucket = Bucket::full(2.0, 4.0);
        assert_eq!((bucket.tokens(at(0.0)), bucket.max(), bucket.rate()), (2.0, 2.0, 4.0));
        let taken = |time, tokens| bucket.take(at(time), tokens);
        assert!(taken(100.0, 1.0) && taken(100.0, 1.0) && !taken(100.0, 1.0));
        assert!(!taken(100.125, 1.0) && taken(100.25, 1.0));
        assert_eq!(bucket.tokens(at(200.0)), 2.0);
        // A clock that was read earlier than another worker's takes nothing that is not there.
        assert!(taken(200.0, 2.0) && !taken(199.0, 1.0));
        assert!(taken(200.0, -1.0) && taken(200.0, 1.0));
    }

    #[test]
    fn it_gives_what_it_has() {
        let bucket = Bucket::holding(50.0, 1000.0, 1000.0);
        assert_eq!(bucket.take_up_to(at(1.0), 80), 50);
        assert_eq!(bucket.take_up_to(at(1.0), 80), 0);
        assert_eq!(bucket.take_up_to(at(1.03125), 80), 31);
        assert_eq!(bucket.take_up_to(at(9.0), 5000), 1000);
    }

    #[test]
    fn it_fills_before_its_first_use_once_it_began() {
        let bucket = Bucket::holding(64.0, 1024.0, 1024.0);
        bucket.begin(at(1.0));
        assert_eq!(bucket.tokens(at(1.0)), 64.0);
        assert_eq!(bucket.take_up_to(at(1.25), 5000), 320);
        // Each worker says so; the first one counts.
        bucket.begin(at(2.0));
        assert_eq!(bucket.take_up_to(at(2.0), 5000), 768);
    }

    #[test]
    fn workers_together_take_no_more_than_there_is() {
        let bucket = Bucket::full(1000.0, 1e-3);
        let taken: usize = std::thread::scope(|scope| {
            let count = || (0..1000).filter(|_| bucket.take(at(1.0), 1.0)).count();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(taken, 1000);
    }
}
