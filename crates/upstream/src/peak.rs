//! How fast a host answers: an average that believes bad news at once and good news little by little ("peak EWMA", after
//! Finagle's load balancer of that name).
//!
//! A time above the average replaces it. One below it pulls it down, the more so the longer the last one is ago. Without any
//! the average sinks towards nothing, so that a host that was slow is asked again some time.

use std::cell::Cell;
use std::time::{Duration, Instant};

use postrider_model::PeakEwma;

#[derive(Debug, Clone)]
pub(crate) struct Peak {
    /// Seconds, at the moment of `since`.
    average: Cell<f64>,
    since: Cell<Instant>,
    /// Seconds in which an average sinks to 1/e.
    decay: f64,
}

impl Peak {
    pub(crate) fn new(rules: &PeakEwma, now: Instant) -> Peak {
        Peak {
            average: Cell::new(rules.default_latency.as_secs_f64()),
            since: Cell::new(now),
            decay: rules.decay.as_secs_f64(),
        }
    }

    /// Seconds that an answer is likely to take.
    pub(crate) fn average(&self, now: Instant) -> f64 {
        self.average.get() * self.kept(now)
    }

    /// A request took so long. One that was not `answered` makes nobody faster.
    pub(crate) fn observe(&self, took: Duration, answered: bool, now: Instant) {
        let (took, kept) = (took.as_secs_f64(), self.kept(now));
        let old = self.average.get();
        let new = match took > old {
            true => took,
            false if answered => old * kept + took * (1.0 - kept),
            false => old,
        };
        self.average.set(new);
        self.since.set(now);
    }

    /// What time has left of an average, from 1 to 0.
    fn kept(&self, now: Instant) -> f64 {
        let passed = now.saturating_duration_since(self.since.get()).as_secs_f64();
        (-passed / self.decay).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    fn peak() -> (Peak, Instant) {
        let rules = PeakEwma { decay: seconds(10.0), default_latency: seconds(0.03), choices: 2 };
        let now = Instant::now();
        (Peak::new(&rules, now), now)
    }

    fn is_near(found: f64, expected: f64) -> bool {
        (found - expected).abs() < 1e-6
    }

    #[test]
    fn bad_news_count_at_once_and_good_news_by_and_by() {
        let (peak, start) = peak();
        assert!(is_near(peak.average(start), 0.03));
        peak.observe(seconds(1.0), true, start);
        assert!(is_near(peak.average(start), 1.0));
        // At the same moment a single quick answer says nothing; after a time as long as the decay, most.
        peak.observe(seconds(0.1), true, start);
        assert!(is_near(peak.average(start), 1.0));
        let later = start + seconds(10.0);
        peak.observe(seconds(0.1), true, later);
        let kept = (-1.0f64).exp();
        assert!(is_near(peak.average(later), kept + 0.1 * (1.0 - kept)));
    }

    #[test]
    fn a_host_that_nobody_asks_is_forgiven() {
        let (peak, start) = peak();
        peak.observe(seconds(1.0), true, start);
        assert!(is_near(peak.average(start + seconds(20.0)), (-2.0f64).exp()));
    }

    #[test]
    fn no_answer_is_never_a_fast_one() {
        let (peak, start) = peak();
        peak.observe(seconds(0.5), true, start);
        peak.observe(seconds(0.001), false, start + seconds(1.0));
        assert!(is_near(peak.average(start + seconds(1.0)), 0.5));
        peak.observe(seconds(2.0), false, start + seconds(1.0));
        assert!(is_near(peak.average(start + seconds(1.0)), 2.0));
    }
}
