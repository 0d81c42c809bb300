//! Choosing one of several hosts.

use std::cell::{Cell, RefCell};

use postrider_model::{LeastRequest, LoadBalancing};

use crate::Random;
use crate::deadlines::Deadlines;
use crate::hashing::{Bounded, Place, Table, TableSizes};

/// Chooses among hosts by their weights; built anew when the hosts change.
#[derive(Debug)]
pub struct Picker(Kind);

#[derive(Debug)]
enum Kind {
    /// Equal weights.
    Rotate {
        next: Cell<usize>,
        count: usize,
    },
    /// Each host comes up as often as its weight says, spread evenly.
    Turns {
        deadlines: RefCell<Deadlines>,
        weights: Box<[u32]>,
        /// Active requests take something off a weight; 0 is nothing.
        bias: f64,
    },
    FewestOf {
        choices: usize,
        count: usize,
    },
    FewestOfAll {
        count: usize,
    },
    /// By what they cost, with this weight.
    Cheapest {
        choices: usize,
        weights: Box<[u32]>,
    },
    Random {
        count: usize,
    },
    Hash {
        table: Table,
        bounded: Option<Bounded>,
    },
}

/// What a picker asks about the hosts, by their place.
pub trait Hosts {
    /// Active requests.
    fn load(&self, index: usize) -> u32;
    /// Seconds that an answer takes, where that counts.
    fn latency(&self, index: usize) -> f64;
    /// The share of its weight that a host gets: less than 1 for one that is new.
    fn warmth(&self, index: usize) -> f64;
}

/// A host to choose from.
#[derive(Debug, Clone)]
pub struct Candidate {
    pub weight: u32,
    /// For hashing policies.
    pub place: Option<Place>,
}

impl Picker {
    /// `candidates` are the hosts, in order.
    pub fn new(policy: &LoadBalancing, candidates: &[Candidate], random: &Random, hosts: &impl Hosts) -> Picker {
        let count = candidates.len();
        let weights: Box<[u32]> = candidates.iter().map(|candidate| candidate.weight).collect();
        let equal = weights.windows(2).all(|pair| pair.first() == pair.last()) && policy.slow_start().is_none();
        let places = || candidates.iter().filter_map(|candidate| candidate.place.clone()).collect::<Vec<_>>();
        let shares = |places: &[Place]| places.iter().map(|place| place.share).collect();
        Picker(match policy {
            // Workers and snapshots start at different hosts, so that they do not all hit the first at once.
            LoadBalancing::RoundRobin { .. } if equal => Kind::Rotate { next: Cell::new(random.below(count)), count },
            LoadBalancing::RoundRobin { .. } => Kind::turns(weights, 0.0, random, hosts),
            LoadBalancing::LeastRequest(LeastRequest { choices, full_scan, .. }) if equal => match full_scan {
                true => Kind::FewestOfAll { count },
                false => Kind::FewestOf { choices: (*choices).max(2) as usize, count },
            },
            LoadBalancing::LeastRequest(least) => Kind::turns(weights, least.bias, random, hosts),
            LoadBalancing::PeakEwma(peak) => Kind::Cheapest { choices: peak.choices.max(2) as usize, weights },
            LoadBalancing::Random => Kind::Random { count },
            LoadBalancing::RingHash(ring) => {
                let places = places();
                let bounded = ring.keys.balance_factor.map(|factor| Bounded { factor, shares: shares(&places) });
                Kind::Hash { table: Table::ring(ring, &places), bounded }
            }
            LoadBalancing::Maglev(maglev) => {
                let places = places();
                let bounded = maglev.keys.balance_factor.map(|factor| Bounded { factor, shares: shares(&places) });
                Kind::Hash { table: Table::maglev(maglev, &places), bounded }
            }
        })
    }

    /// The index of a host; `None` when there is none. `hash` and `attempt` are for policies that choose by a hash.
    #[inline]
    pub fn pick(&self, random: &Random, hash: Option<u64>, attempt: u32, hosts: &impl Hosts) -> Option<usize> {
        match &self.0 {
            Kind::Rotate { count: 0, .. } => None,
            Kind::Rotate { next, count } => {
                let index = next.get();
                next.set(if index + 1 >= *count { 0 } else { index + 1 });
                Some(index)
            }
            other => other.pick(random, hash, attempt, hosts),
        }
    }
}

impl Picker {
    /// Who is next depends on no request, so that it can be said beforehand.
    pub(crate) fn knows_next(&self) -> bool {
        matches!(self.0, Kind::Rotate { .. } | Kind::Turns { .. } | Kind::Random { .. })
    }

    /// Of the table by which hosts are chosen, where there is one.
    pub(crate) fn table_sizes(&self) -> Option<TableSizes> {
        match &self.0 {
            Kind::Hash { table, .. } => table.sizes(),
            _ => None,
        }
    }
}

impl Kind {
    fn turns(weights: Box<[u32]>, bias: f64, random: &Random, hosts: &impl Hosts) -> Kind {
        let now = |index: usize| weight(&weights, bias, index, hosts);
        let deadlines = Deadlines::new((0..weights.len()).map(now), random.below(weights.len()), now);
        Kind::Turns { deadlines: RefCell::new(deadlines), weights, bias }
    }

    fn pick(&self, random: &Random, hash: Option<u64>, attempt: u32, hosts: &impl Hosts) -> Option<usize> {
        match self {
            Kind::Rotate { .. } => None,
            Kind::Turns { deadlines, weights, bias } => {
                deadlines.borrow_mut().next(|index| weight(weights, *bias, index, hosts))
            }
            Kind::FewestOf { count: 0, .. } | Kind::FewestOfAll { count: 0 } | Kind::Random { count: 0 } => None,
            // Of those with equally few, the first that was drawn.
            Kind::FewestOf { choices, count } => {
                (0..*choices).map(|_| random.below(*count)).min_by_key(|index| hosts.load(*index))
            }
            Kind::FewestOfAll { count } => {
                let fewest = (0..*count).map(|index| hosts.load(index)).min()?;
                let tied = || (0..*count).filter(|index| hosts.load(*index) == fewest);
                tied().nth(random.below(tied().count()))
            }
            Kind::Cheapest { choices, weights } => cheapest(*choices, weights, random, hosts),
            Kind::Random { count } => Some(random.below(*count)),
            Kind::Hash { table, bounded } => {
                let hash = hash.unwrap_or_else(|| random.next());
                let found = table.find(hash, attempt)?;
                match bounded {
                    None => Some(found),
                    Some(bounded) => bounded.relieve(found, hash, |index| hosts.load(index)),
                }
            }
        }
    }
}

/// Of hosts that are drawn, the one whose answer costs least; of equal ones the first.
fn cheapest(choices: usize, weights: &[u32], random: &Random, hosts: &impl Hosts) -> Option<usize> {
    let count = weights.len();
    let cost = |index: usize| {
        let weight = f64::from(weights.get(index).copied().unwrap_or(1).max(1));
        hosts.latency(index) * (f64::from(hosts.load(index)) + 1.0) / weight
    };
    let first = random.below(count);
    let behind = |distance: usize| (first + distance).checked_rem(count);
    let mut best = (cost(first), behind(0)?);
    // With as many choices as hosts all are looked at; otherwise the others are drawn beside the first.
    for choice in 1..choices.min(count) {
        let distance = if choices >= count { choice } else { 1 + random.below(count - 1) };
        let index = behind(distance)?;
        let cost = cost(index);
        if cost < best.0 {
            best = (cost, index);
        }
    }
    Some(best.1)
}

/// What a host weighs now.
fn weight(weights: &[u32], bias: f64, index: usize, hosts: &impl Hosts) -> f64 {
    let weight = f64::from(weights.get(index).copied().unwrap_or(1).max(1)) * hosts.warmth(index);
    match bias {
        0.0 => weight,
        1.0 => weight / (f64::from(hosts.load(index)) + 1.0),
        bias => weight / (f64::from(hosts.load(index)) + 1.0).powf(bias),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_model::{HashFunction, HashKeys, Maglev, PeakEwma, RingHash};

    /// Loads by index.
    struct Loads(Vec<u32>);

    /// Latencies by index, and a load for all.
    struct Latencies(Vec<f64>, u32);

    impl Hosts for Latencies {
        fn load(&self, index: usize) -> u32 {
            if index == 0 { self.1 } else { 0 }
        }

        fn latency(&self, index: usize) -> f64 {
            self.0.get(index).copied().unwrap_or_default()
        }

        fn warmth(&self, _: usize) -> f64 {
            1.0
        }
    }

    impl Hosts for Loads {
        fn load(&self, index: usize) -> u32 {
            self.0.get(index).copied().unwrap_or_default()
        }

        fn latency(&self, _: usize) -> f64 {
            1.0
        }

        fn warmth(&self, _: usize) -> f64 {
            1.0
        }
    }

    fn candidates(weights: &[u32]) -> Vec<Candidate> {
        let sum: u32 = weights.iter().sum();
        let share = |weight: u32| f64::from(weight) / f64::from(sum);
        let place = |index, weight| Place { key: format!("10.0.0.{index}:80"), share: share(weight) };
        (0..).zip(weights).map(|(i, weight)| Candidate { weight: *weight, place: Some(place(i, *weight)) }).collect()
    }

    fn counts(policy: &LoadBalancing, weights: &[u32], loads: &[u32], picks: usize) -> Vec<usize> {
        let (random, loads) = (Random::new(3), Loads(loads.to_vec()));
        let picker = Picker::new(policy, &candidates(weights), &random, &loads);
        let mut counts = vec![0; weights.len()];
        for _ in 0..picks {
            counts[picker.pick(&random, None, 0, &loads).unwrap()] += 1;
        }
        counts
    }

    fn round_robin() -> LoadBalancing {
        LoadBalancing::RoundRobin { slow_start: None }
    }

    fn least(full_scan: bool) -> LoadBalancing {
        LoadBalancing::LeastRequest(LeastRequest { full_scan, ..LeastRequest::default() })
    }

    fn hashing(factor: Option<u32>) -> [LoadBalancing; 2] {
        let keys = HashKeys { hostnames: false, balance_factor: factor };
        [
            LoadBalancing::Maglev(Maglev { table_size: 65_537, keys }),
            LoadBalancing::RingHash(RingHash {
                min_size: 1024,
                max_size: 8 << 20,
                function: HashFunction::XxHash,
                keys,
            }),
        ]
    }

    #[test]
    fn round_robin_visits_all_equally() {
        assert_eq!(counts(&round_robin(), &[1, 1, 1], &[], 300), [100, 100, 100]);
        assert_eq!(counts(&round_robin(), &[7, 7], &[], 10), [5, 5]);
    }

    #[test]
    fn weighted_round_robin_follows_weights() {
        let counts = counts(&round_robin(), &[1, 2, 5], &[], 800);
        assert!((99..=101).contains(&counts[0]) && (199..=201).contains(&counts[1]), "{counts:?}");
    }

    #[test]
    fn least_request_avoids_the_loaded_host() {
        let counted = counts(&least(false), &[1, 1], &[0, 9], 100);
        assert!(counted[0] > 60, "{counted:?}");
        assert_eq!(counts(&least(true), &[1, 1, 1], &[3, 0, 9], 10), [0, 10, 0]);
        let tied = counts(&least(true), &[1, 1, 1], &[0, 5, 0], 1000);
        assert!(tied[1] == 0 && tied[0] > 400 && tied[2] > 400, "{tied:?}");
    }

    #[test]
    fn with_weights_least_request_divides_them_by_the_active_requests() {
        // 8 / (3 + 1) is 2, and 1 / (0 + 1) is 1.
        let counted = counts(&least(false), &[8, 1], &[3, 0], 300);
        assert!((198..=202).contains(&counted[0]), "{counted:?}");
    }

    #[test]
    fn the_bias_says_how_much_active_requests_count() {
        let with = |bias| LoadBalancing::LeastRequest(LeastRequest { bias, ..LeastRequest::default() });
        // Without any, weights alone.
        let counted = counts(&with(0.0), &[2, 1], &[9, 0], 300);
        assert!((198..=202).contains(&counted[0]), "{counted:?}");
        // 8 / (3 + 1)² is 0.5, and 1 / (0 + 1)² is 1.
        let counted = counts(&with(2.0), &[8, 1], &[3, 0], 300);
        assert!((98..=102).contains(&counted[0]), "{counted:?}");
    }

    #[test]
    fn the_least_loaded_of_those_that_are_drawn_is_taken() {
        let with = |choices| LoadBalancing::LeastRequest(LeastRequest { choices, ..LeastRequest::default() });
        let loads = [9, 0, 9, 9];
        // Of two draws one is the idle host in 7 of 16 cases, of ten nearly always.
        let got = |choices| counts(&with(choices), &[1; 4], &loads, 1_600)[1];
        let (two, ten) = (got(2), got(10));
        assert!((600..800).contains(&two) && ten > 1_450, "{two} {ten}");
    }

    #[test]
    fn a_hash_finds_its_host_again_and_weights_count() {
        let random = Random::new(1);
        for policy in hashing(None) {
            let loads = Loads(Vec::new());
            let picker = Picker::new(&policy, &candidates(&[1, 3]), &random, &loads);
            let pick = |hash| picker.pick(&random, Some(hash), 0, &loads).unwrap();
            let hashes: Vec<u64> = (0..4000u64).map(|key| crate::hash::xxh64(&key.to_le_bytes(), 0)).collect();
            let heavy = hashes.iter().filter(|hash| pick(**hash) == 1).count();
            assert!((2800..3200).contains(&heavy), "{heavy}");
            assert!(hashes.iter().all(|hash| pick(*hash) == pick(*hash)));
            let other = (1..64).any(|attempt| picker.pick(&random, Some(1), attempt, &loads) != Some(pick(1)));
            assert!(other, "another attempt may find another host");
        }
    }

    #[test]
    fn an_overloaded_host_is_passed_over_and_always_for_the_same_other() {
        let random = Random::new(1);
        for policy in hashing(Some(125)) {
            let idle = Loads(vec![0; 4]);
            let picker = Picker::new(&policy, &candidates(&[1; 4]), &random, &idle);
            let first = picker.pick(&random, Some(77), 0, &idle).unwrap();
            let mut loads = Loads(vec![1; 4]);
            loads.0[first] = 20;
            let second = picker.pick(&random, Some(77), 0, &loads).unwrap();
            assert_ne!(first, second);
            assert_eq!(picker.pick(&random, Some(77), 0, &loads), Some(second));
            assert_eq!(picker.pick(&random, Some(77), 0, &Loads(vec![1; 4])), Some(first));
        }
    }

    #[test]
    fn the_cheapest_of_those_that_are_drawn_is_taken() {
        let counts = |choices, weights: &[u32], hosts: &Latencies| {
            let policy = LoadBalancing::PeakEwma(PeakEwma { choices, ..PeakEwma::default() });
            let random = Random::new(3);
            let picker = Picker::new(&policy, &candidates(weights), &random, hosts);
            let mut counts = vec![0; weights.len()];
            (0..900).for_each(|_| counts[picker.pick(&random, None, 0, hosts).unwrap()] += 1);
            counts
        };
        assert_eq!(counts(2, &[1, 1], &Latencies(vec![0.1, 0.9], 0)), [900, 0]);
        assert_eq!(counts(2, &[1, 1], &Latencies(vec![0.1, 0.9], 9)), [0, 900], "busy hosts cost more");
        assert_eq!(counts(2, &[1, 20], &Latencies(vec![0.1, 0.9], 0)), [0, 900], "heavy ones less");
        assert_eq!(counts(9, &[1, 1, 1], &Latencies(vec![0.2, 0.1, 0.3], 0)), [0, 900, 0]);
        let equal = counts(2, &[1, 1, 1], &Latencies(vec![0.1; 3], 0));
        assert!(equal.iter().all(|count| (240..360).contains(count)), "{equal:?}");
        let one_slow = counts(2, &[1, 1, 1], &Latencies(vec![0.1, 0.1, 5.0], 0));
        assert_eq!(one_slow[2], 0, "{one_slow:?}");
    }

    #[test]
    fn no_host_is_no_choice() {
        let (random, loads) = (Random::new(5), Loads(Vec::new()));
        let [maglev, ring] = hashing(Some(150));
        for policy in [
            round_robin(),
            LoadBalancing::Random,
            LoadBalancing::PeakEwma(PeakEwma::default()),
            least(false),
            least(true),
            maglev,
            ring,
        ] {
            assert_eq!(Picker::new(&policy, &[], &random, &loads).pick(&random, None, 0, &loads), None);
        }
    }
}
