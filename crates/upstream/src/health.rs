//! The health of a host as active checks find it: a state machine without a clock and without connections.
//!
//! ```text
//! unchecked ──first success──> healthy ──threshold of failures, or one of the host's own──> failed
//!     └───────first failure──> failed  ──threshold of successes──────────────────────────> healthy
//! ```

use std::time::Duration;

use postrider_model::{CheckIntervals, HealthCheck};

use crate::Random;

/// What active checks say about a host. The default is a host that nobody checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Health {
    pub failed: bool,
    /// No check has ended yet.
    pub unchecked: bool,
    /// It serves, but would rather not.
    pub degraded: bool,
    /// The last check of a failed host took too long.
    pub timed_out: bool,
    /// It said itself that it fails, among its answers, and is left out of the share of hosts that are well.
    pub excluded: bool,
}

impl Health {
    /// Of a host that is yet to be checked.
    pub const UNCHECKED: Health =
        Health { failed: true, unchecked: true, degraded: false, timed_out: false, excluded: false };
}

impl Health {
    /// It does not count among the hosts of which some share has to be well.
    pub fn is_excluded(self, ignores_unchecked: bool) -> bool {
        self.excluded || ignores_unchecked && self.unchecked
    }

    /// What several checks of one host say together: each of them has to pass.
    pub fn of_all(checks: impl IntoIterator<Item = Health>) -> Health {
        let all = checks.into_iter().fold(Health::default(), |all, one| Health {
            failed: all.failed || one.failed,
            unchecked: all.unchecked || one.unchecked,
            degraded: all.degraded || one.degraded,
            timed_out: all.timed_out || one.timed_out,
            excluded: all.excluded || one.excluded,
        });
        Health { degraded: all.degraded && !all.failed, ..all }
    }
}

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Healthy {
        degraded: bool,
    },
    /// The host says itself that it is not well; `retriable` when that does not count at once.
    /// `excluded` when it said that with `x-envoy-immediate-health-check-fail`.
    Refused {
        retriable: bool,
        excluded: bool,
    },
    /// It said so in an answer to somebody else (`x-envoy-immediate-health-check-fail`).
    Resigned,
    /// No connection, or one that broke.
    Unreachable,
    TimedOut,
}

impl Outcome {
    pub const REFUSED: Outcome = Outcome::Refused { retriable: false, excluded: false };
}

/// What a check changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transition {
    Unchanged,
    /// On its way, but the threshold is not reached.
    Pending,
    Changed,
}

/// The checks of one host.
#[derive(Debug)]
pub struct Checked {
    pub health: Health,
    successes: u32,
    failures: u32,
}

impl Default for Checked {
    fn default() -> Self {
        Checked { health: Health::UNCHECKED, successes: 0, failures: 0 }
    }
}

impl Checked {
    /// No check has ended yet.
    pub fn is_first(&self) -> bool {
        self.health.unchecked
    }

    /// Takes the end of a check.
    pub fn settle(&mut self, outcome: Outcome, check: &HealthCheck) -> Transition {
        let first = self.is_first();
        self.health.unchecked = false;
        let mut transition = Transition::Unchanged;
        if let Outcome::Healthy { degraded } = outcome {
            self.failures = 0;
            if self.health.failed {
                self.successes += 1;
                // The first success counts at once, so that a start is quick.
                transition = Transition::Pending;
                if first || self.successes >= check.healthy_threshold {
                    self.health = Health::default();
                    transition = Transition::Changed;
                }
            }
            self.health.degraded = degraded;
            return transition;
        }
        self.successes = 0;
        let at_once = matches!(outcome, Outcome::Refused { retriable: false, .. } | Outcome::Resigned);
        self.health.excluded |= matches!(outcome, Outcome::Refused { excluded: true, .. } | Outcome::Resigned);
        if !self.health.failed {
            self.failures += 1;
            transition = Transition::Pending;
            if at_once || self.failures >= check.unhealthy_threshold {
                self.failures = 0;
                self.health.failed = true;
                transition = Transition::Changed;
            }
        }
        self.health.timed_out = self.health.failed && outcome == Outcome::TimedOut;
        transition
    }
}

/// How long to wait for the next check. `traffic`: the cluster has had some.
pub fn interval(
    intervals: &CheckIntervals,
    outcome: Outcome,
    transition: Transition,
    traffic: bool,
    random: &Random,
) -> Duration {
    let passed = matches!(outcome, Outcome::Healthy { .. });
    // As Envoy does, and not as its documentation has it: the edge is what leads to a change, not what comes behind it.
    let pending = transition == Transition::Pending;
    let base = match (traffic, passed) {
        (false, true) if !pending => intervals.idle_healthy,
        (false, _) => intervals.idle,
        (true, true) if pending => intervals.healthy_edge,
        (true, true) => intervals.healthy,
        (true, false) if pending => intervals.unhealthy_edge,
        (true, false) => intervals.unhealthy,
    };
    let share = base.saturating_mul(intervals.jitter_percent) / 100;
    base + draw(share, random) + draw(intervals.jitter, random)
}

/// Evenly drawn between nothing and `most`.
pub fn draw(most: Duration, random: &Random) -> Duration {
    Duration::from_millis(random.below(usize::try_from(most.as_millis()).unwrap_or(usize::MAX)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_model::{CheckKind, TcpCheck};

    fn check(unhealthy: u32, healthy: u32) -> HealthCheck {
        let seconds = Duration::from_secs;
        HealthCheck {
            name: String::new(),
            kind: CheckKind::Tcp(TcpCheck { proxy_header: None, send: Vec::new(), receive: Vec::new() }),
            timeout: seconds(1),
            intervals: CheckIntervals {
                healthy: seconds(1),
                unhealthy: seconds(2),
                healthy_edge: seconds(3),
                unhealthy_edge: seconds(4),
                idle: seconds(5),
                idle_healthy: seconds(6),
                jitter: Duration::ZERO,
                jitter_percent: 0,
                initial_jitter: Duration::ZERO,
            },
            unhealthy_threshold: unhealthy,
            healthy_threshold: healthy,
            reuse_connection: true,
            alpn: Vec::new(),
            transport_by: None,
            user_agent: String::new(),
            event_logs: Vec::new(),
            logs_every_failure: false,
            logs_every_success: false,
        }
    }

    const GOOD: Outcome = Outcome::Healthy { degraded: false };

    #[test]
    fn the_first_success_counts_at_once_and_later_ones_by_the_threshold() {
        let check = check(2, 3);
        let mut host = Checked::default();
        assert!(host.health.failed);
        assert_eq!(host.settle(GOOD, &check), Transition::Changed);
        assert_eq!(host.settle(Outcome::Unreachable, &check), Transition::Pending);
        assert!(!host.health.failed);
        assert_eq!(host.settle(Outcome::TimedOut, &check), Transition::Changed);
        assert!(host.health.failed && host.health.timed_out);
        assert_eq!(host.settle(GOOD, &check), Transition::Pending);
        assert_eq!(host.settle(GOOD, &check), Transition::Pending);
        assert_eq!(host.settle(GOOD, &check), Transition::Changed);
        assert_eq!(host.health, Health::default());
    }

    #[test]
    fn a_host_that_says_itself_that_it_is_not_well_fails_at_once() {
        let check = check(3, 1);
        let mut host = Checked::default();
        host.settle(GOOD, &check);
        assert_eq!(host.settle(Outcome::Refused { retriable: true, excluded: false }, &check), Transition::Pending);
        assert_eq!(host.settle(Outcome::REFUSED, &check), Transition::Changed);
        assert_eq!(host.settle(Outcome::Healthy { degraded: true }, &check), Transition::Changed);
        assert!(host.health.degraded && !host.health.failed);
    }

    #[test]
    fn a_first_failure_leaves_an_unchecked_host_failed() {
        let mut host = Checked::default();
        assert_eq!(host.settle(Outcome::Unreachable, &check(3, 3)), Transition::Unchanged);
        assert!(host.health.failed && !host.health.unchecked);
        assert_eq!(host.settle(GOOD, &check(3, 3)), Transition::Pending);
    }

    #[test]
    fn a_host_has_to_pass_every_check() {
        let well = Health::default();
        let failed = Health { failed: true, ..well };
        let degraded = Health { degraded: true, ..well };
        assert_eq!(Health::of_all([well, well]), well);
        assert_eq!(Health::of_all([well, failed]), failed);
        assert_eq!(Health::of_all([degraded, well]), degraded);
        assert_eq!(Health::of_all([degraded, failed]), failed);
        assert_eq!(Health::of_all([Health::UNCHECKED, well]), Health::UNCHECKED);
    }

    #[test]
    fn intervals_follow_state_and_edge() {
        let intervals = check(1, 1).intervals;
        let random = Random::new(1);
        let seconds =
            |outcome, transition, traffic| interval(&intervals, outcome, transition, traffic, &random).as_secs();
        let (unchanged, pending, changed) = (Transition::Unchanged, Transition::Pending, Transition::Changed);
        let each =
            |outcome, traffic| [unchanged, pending, changed].map(|transition| seconds(outcome, transition, traffic));
        assert_eq!(each(GOOD, true), [1, 3, 1]);
        assert_eq!(each(Outcome::TimedOut, true), [2, 4, 2]);
        assert_eq!(each(GOOD, false), [6, 5, 6]);
        assert_eq!(each(Outcome::TimedOut, false), [5, 5, 5]);
    }

    /// Whole percents were drawn, so that one percent was none, and ten had checks coincide.
    #[test]
    fn jitter_is_drawn_from_all_of_its_share() {
        let random = Random::new(1);
        let drawn = |jitter, jitter_percent| {
            let intervals =
                CheckIntervals { healthy: Duration::from_secs(1), jitter, jitter_percent, ..check(1, 1).intervals };
            let waits = (0..5000).map(|_| interval(&intervals, GOOD, Transition::Unchanged, true, &random).as_millis());
            let mut waits: Vec<u128> = waits.collect();
            waits.sort_unstable();
            waits.dedup();
            (waits[0], waits[waits.len() - 1], waits.len())
        };
        let millis = Duration::from_millis;
        assert_eq!(drawn(Duration::ZERO, 0), (1000, 1000, 1));
        assert_eq!(drawn(Duration::ZERO, 1), (1000, 1009, 10));
        assert_eq!(drawn(Duration::ZERO, 10), (1000, 1099, 100));
        assert_eq!(drawn(millis(50), 0), (1000, 1049, 50));
        let (least, most, count) = drawn(millis(5), 1);
        assert_eq!((least, most, count), (1000, 1013, 14));
    }

    #[test]
    fn a_first_check_waits_for_less_than_its_jitter() {
        let random = Random::new(1);
        let mut seen = [false; 3];
        for _ in 0..100 {
            seen[draw(Duration::from_millis(3), &random).as_millis() as usize] = true;
        }
        assert_eq!(seen, [true; 3]);
        assert_eq!(draw(Duration::ZERO, &random), Duration::ZERO);
    }
}
