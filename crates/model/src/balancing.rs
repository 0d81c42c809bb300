//! How the next host of a cluster is chosen.

use std::time::Duration;

use crate::{HashPolicy, MetadataKey, Subsets};

/// The policy, and what decides beside it which hosts it sees.
#[derive(Debug, Clone, PartialEq)]
pub struct Balancing {
    pub policy: LoadBalancing,
    /// Requests may ask for hosts with certain labels.
    pub subsets: Option<Box<Subsets>>,
    /// A locality is drawn by its weight first, then a host in it.
    pub by_locality: bool,
    /// Percent of traffic that a percent of healthy hosts may take.
    pub overprovisioning: u32,
    /// How much a priority can take is said by the weights of its usable hosts, not by their number.
    pub ability_by_weight: bool,
    /// What stays in the proxy's own zone, where it is known which that is.
    pub zones: ZoneRules,
    /// With too few usable hosts, none is chosen, instead of any.
    pub fails_on_panic: bool,
    /// When hosts come or go, connections to all of them end with their requests.
    pub closes_on_change: bool,
    /// Somebody wants to know who is next, to connect beforehand.
    pub looks_ahead: bool,
    /// Which hosts may be chosen by their address.
    pub by_address: HostStatuses,
    /// Requests may say themselves where they go.
    pub named: Option<Box<NamedHosts>>,
    /// What is hashed, whatever routes say of it; none leaves it to them.
    pub hash_policies: Vec<HashPolicy>,
    /// What is hashed of requests where the policy does not say it, whatever routes say.
    pub request_hash_policies: Vec<HashPolicy>,
    /// Of a million requests so many get no host.
    pub dropped: u32,
    /// Of a hundred requests so many are told that the cluster is being maintained.
    pub maintained: u32,
    /// Of a hundred tries that are worth another one so many get it.
    pub retried: u32,
}

impl Default for Balancing {
    fn default() -> Self {
        Balancing {
            policy: LoadBalancing::default(),
            subsets: None,
            by_locality: false,
            overprovisioning: 140,
            ability_by_weight: false,
            zones: ZoneRules::default(),
            fails_on_panic: false,
            closes_on_change: false,
            looks_ahead: false,
            by_address: HostStatuses::default(),
            named: None,
            hash_policies: Vec::new(),
            request_hash_policies: Vec::new(),
            dropped: 0,
            maintained: 0,
            retried: 100,
        }
    }
}

/// How requests keep to the hosts of the proxy's own zone (`zone_aware_lb_config`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZoneRules {
    /// Percent of requests for which zones count.
    pub percent: u32,
    /// With fewer healthy hosts they do not.
    pub least_hosts: u64,
    /// With so many healthy hosts in the own zone, everything stays there, however much others have to spare.
    pub stays_with: Option<u32>,
    /// Zones are compared by what their hosts weigh, not by their number.
    pub by_weight: bool,
}

impl Default for ZoneRules {
    /// Envoy's.
    fn default() -> Self {
        ZoneRules { percent: 100, least_hosts: 6, stays_with: None, by_weight: false }
    }
}

/// What a host may be, to be chosen by its address (`override_host_status`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostStatuses {
    pub healthy: bool,
    pub degraded: bool,
    pub unhealthy: bool,
    pub draining: bool,
    pub timed_out: bool,
}

impl Default for HostStatuses {
    fn default() -> Self {
        HostStatuses { healthy: true, degraded: true, unhealthy: false, draining: false, timed_out: false }
    }
}

/// Where it is said by their addresses to which hosts a request goes (`OverrideHost`): to the first at its first try, to the next
/// at the next one. Addresses that are no host's are passed over, and behind the last the policy chooses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedHosts {
    /// Never empty; those of the first come first.
    pub sources: Vec<HostSource>,
    /// Where it is noted which host a request goes to.
    pub noted_at: Option<MetadataKey>,
    /// Only hosts of the subset that the request wants may be named.
    pub within_subset: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostSource {
    /// The first line of this name, in lower case: addresses with commas between.
    Header(String),
    /// A text of the same form.
    Metadata(MetadataKey),
}

#[derive(Debug, Clone, PartialEq)]
pub enum LoadBalancing {
    RoundRobin { slow_start: Option<SlowStart> },
    LeastRequest(LeastRequest),
    PeakEwma(PeakEwma),
    Random,
    RingHash(RingHash),
    Maglev(Maglev),
}

impl Default for LoadBalancing {
    fn default() -> Self {
        LoadBalancing::RoundRobin { slow_start: None }
    }
}

impl LoadBalancing {
    /// The same hash finds the same host.
    pub fn is_hashing(&self) -> bool {
        matches!(self, LoadBalancing::RingHash(_) | LoadBalancing::Maglev(_))
    }

    pub fn slow_start(&self) -> Option<&SlowStart> {
        match self {
            LoadBalancing::RoundRobin { slow_start } => slow_start.as_ref(),
            LoadBalancing::LeastRequest(least) => least.slow_start.as_ref(),
            LoadBalancing::PeakEwma(_)
            | LoadBalancing::Random
            | LoadBalancing::RingHash(_)
            | LoadBalancing::Maglev(_) => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct LeastRequest {
    /// So many hosts are picked at random, and the one with the fewest active requests is taken.
    pub choices: u32,
    /// Of all hosts instead.
    pub full_scan: bool,
    /// With different weights: how much active requests take off a host's weight.
    pub bias: f64,
    pub slow_start: Option<SlowStart>,
}

impl Default for LeastRequest {
    fn default() -> Self {
        LeastRequest { choices: 2, full_scan: false, bias: 1.0, slow_start: None }
    }
}

/// The host whose answers take the shortest time, by an average that believes bad news at once, and that has the fewest
/// active requests.
#[derive(Debug, Clone, PartialEq)]
pub struct PeakEwma {
    /// In this time an average sinks to 1/e. Positive.
    pub decay: Duration,
    /// What answers are taken to need before there was one.
    pub default_latency: Duration,
    /// So many hosts are picked at random, and the cheapest is taken. At least 2.
    pub choices: u32,
}

impl Default for PeakEwma {
    fn default() -> Self {
        PeakEwma { decay: Duration::from_secs(10), default_latency: Duration::from_millis(30), choices: 2 }
    }
}

/// A host that is new, or well again, gets its share little by little.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SlowStart {
    pub window: Duration,
    /// Positive; 1 is linear, more is faster at first.
    pub aggression: f64,
    /// Of its weight, from 0 to 1: a host never gets less.
    pub least: f64,
}

impl SlowStart {
    /// The share of its weight that a host has after `age`.
    pub fn share(&self, age: Duration) -> f64 {
        if age >= self.window {
            return 1.0;
        }
        let passed = age.max(Duration::from_millis(1)).as_secs_f64() / self.window.as_secs_f64();
        passed.min(1.0).powf(1.0 / self.aggression).max(self.least)
    }
}

/// A ring on which each host has as many places as its weight wants; a request goes to the first place behind its hash.
#[derive(Debug, Clone, PartialEq)]
pub struct RingHash {
    /// Places of all hosts together.
    pub min_size: u64,
    pub max_size: u64,
    pub function: HashFunction,
    pub keys: HashKeys,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HashFunction {
    #[default]
    XxHash,
    Murmur2,
}

/// The table of Google's Maglev.
#[derive(Debug, Clone, PartialEq)]
pub struct Maglev {
    /// A prime.
    pub table_size: u64,
    pub keys: HashKeys,
}

/// What both hashing policies have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HashKeys {
    /// Hosts are known by their names, not by their addresses.
    pub hostnames: bool,
    /// A host with more active requests than this percentage of the mean is passed over.
    pub balance_factor: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_host_warms_up() {
        let start = SlowStart { window: Duration::from_secs(10), aggression: 1.0, least: 0.1 };
        let share = |seconds| start.share(Duration::from_secs(seconds));
        assert_eq!((share(0), share(5), share(10), share(99)), (0.1, 0.5, 1.0, 1.0));
        let eager = SlowStart { aggression: 2.0, ..start };
        assert!((eager.share(Duration::from_millis(2500)) - 0.5).abs() < 1e-9);
    }
}
