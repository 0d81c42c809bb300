//! Hosts that answer badly are left out for a while (`OutlierDetection`).

use std::time::Duration;

use crate::{AccessLogSink, HeaderMatch};

/// Which answers count as bad (`MatchPredicate`, as far as it is about the head of an answer).
#[derive(Debug, Clone, PartialEq)]
pub enum AnswerMatch {
    Any,
    /// All of them hold.
    Headers(Vec<HeaderMatch>),
    All(Vec<AnswerMatch>),
    One(Vec<AnswerMatch>),
    Not(Box<AnswerMatch>),
}

impl AnswerMatch {
    /// `holds` says so of a condition on a header.
    pub fn matches(&self, holds: &impl Fn(&HeaderMatch) -> bool) -> bool {
        match self {
            AnswerMatch::Any => true,
            AnswerMatch::Headers(headers) => headers.iter().all(holds),
            AnswerMatch::All(all) => all.iter().all(|each| each.matches(holds)),
            AnswerMatch::One(any) => any.iter().any(|each| each.matches(holds)),
            AnswerMatch::Not(inner) => !inner.matches(holds),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct OutlierDetection {
    /// How often rates are looked at, and whether somebody may come back.
    pub interval: Duration,
    /// The first time; each further one takes so much longer.
    pub base_ejection_time: Duration,
    pub max_ejection_time: Duration,
    /// Up to so much is added at random.
    pub max_jitter: Duration,
    /// Of all hosts of the cluster.
    pub max_ejection_percent: u32,
    /// One may be left out whatever that percentage says.
    pub always_ejects_one: bool,
    /// So many failures in a row are too many; 0 is never.
    pub consecutive_5xx: u32,
    pub consecutive_gateway_failure: u32,
    pub consecutive_local_origin_failure: u32,
    pub success_rate: SuccessRate,
    pub failure_percentage: FailurePercentage,
    /// Failures to reach a host count apart from its bad answers.
    pub splits_origins: bool,
    pub enforcing: Enforcing,
    /// A host that passes an active check comes back at once.
    pub returns_on_passed_check: bool,
    /// A host that says in an answer that it is degraded counts so for a while.
    pub detects_degraded: bool,
    pub event_log: Option<AccessLogSink>,
}

/// A host is compared with the mean of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SuccessRate {
    pub min_hosts: u32,
    /// Requests in an interval without which a host does not count.
    pub request_volume: u32,
    /// Thousandths of a standard deviation that a host may be below the mean.
    pub stdev_factor: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailurePercentage {
    pub threshold: u32,
    pub min_hosts: u32,
    pub request_volume: u32,
}

/// In how many of a hundred cases a finding has consequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enforcing {
    pub consecutive_5xx: u32,
    pub consecutive_gateway_failure: u32,
    pub consecutive_local_origin_failure: u32,
    pub success_rate: u32,
    pub local_origin_success_rate: u32,
    pub failure_percentage: u32,
    pub local_origin_failure_percentage: u32,
}

impl OutlierDetection {
    /// One that runs with the rules of `other` can go on with these: what is done about outliers differs in numbers at most.
    pub fn continues(&self, other: &OutlierDetection) -> bool {
        self.always_ejects_one == other.always_ejects_one
            && self.splits_origins == other.splits_origins
            && self.returns_on_passed_check == other.returns_on_passed_check
            && self.detects_degraded == other.detects_degraded
            && self.event_log == other.event_log
    }
}

impl Default for OutlierDetection {
    /// Envoy's.
    fn default() -> Self {
        OutlierDetection {
            interval: Duration::from_secs(10),
            base_ejection_time: Duration::from_secs(30),
            max_ejection_time: Duration::from_secs(300),
            max_jitter: Duration::ZERO,
            max_ejection_percent: 10,
            always_ejects_one: false,
            consecutive_5xx: 5,
            consecutive_gateway_failure: 5,
            consecutive_local_origin_failure: 5,
            success_rate: SuccessRate { min_hosts: 5, request_volume: 100, stdev_factor: 1900 },
            failure_percentage: FailurePercentage { threshold: 85, min_hosts: 5, request_volume: 50 },
            splits_origins: false,
            enforcing: Enforcing {
                consecutive_5xx: 100,
                consecutive_gateway_failure: 0,
                consecutive_local_origin_failure: 100,
                success_rate: 100,
                local_origin_success_rate: 100,
                failure_percentage: 0,
                local_origin_failure_percentage: 0,
            },
            returns_on_passed_check: true,
            detects_degraded: false,
            event_log: None,
        }
    }
}
