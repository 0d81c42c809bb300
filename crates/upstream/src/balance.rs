//! Choosing one of several hosts.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use postrider_model::LoadBalancing;

use crate::Random;

/// Chooses among `n` hosts by their weights; built anew when the hosts change.
#[derive(Debug)]
pub struct Picker(Kind);

#[derive(Debug)]
enum Kind {
    /// Equal weights.
    Rotate {
        next: Cell<usize>,
        count: usize,
    },
    /// Each host comes up as often as its weight says, spread evenly: earliest deadline first.
    Deadlines(RefCell<Deadlines>),
    LeastRequest {
        choices: usize,
        weights: Box<[u32]>,
    },
    Random(Box<[u64]>),
}

impl Picker {
    /// `weights` are those of the hosts, in order.
    pub fn new(policy: &LoadBalancing, weights: &[u32], random: &Random) -> Picker {
        let equal = weights.windows(2).all(|pair| pair.first() == pair.last());
        Picker(match policy {
            // Workers and snapshots start at different hosts, so that they do not all hit the first at once.
            LoadBalancing::RoundRobin if equal => {
                Kind::Rotate { next: Cell::new(random.below(weights.len())), count: weights.len() }
            }
            LoadBalancing::RoundRobin => Kind::Deadlines(RefCell::new(Deadlines::new(weights, random))),
            LoadBalancing::LeastRequest { choices } => {
                Kind::LeastRequest { choices: (*choices).max(2) as usize, weights: weights.into() }
            }
            LoadBalancing::Random => Kind::Random(running_sums(weights)),
        })
    }

    /// The index of a host; `None` when there is none. `load` is a host's active requests.
    pub fn pick(&self, random: &Random, load: impl Fn(usize) -> u32) -> Option<usize> {
        match &self.0 {
            Kind::Rotate { count: 0, .. } => None,
            Kind::Rotate { next, count } => {
                let index = next.get();
                next.set(if index + 1 >= *count { 0 } else { index + 1 });
                Some(index)
            }
            Kind::Deadlines(deadlines) => deadlines.borrow_mut().next(),
            Kind::LeastRequest { choices, weights } => (0..*choices)
                .map(|_| random.below(weights.len()))
                .min_by(|a, b| score(load(*a), weights, *a).total_cmp(&score(load(*b), weights, *b)))
                .filter(|index| *index < weights.len()),
            Kind::Random(sums) => {
                let total = usize::try_from(*sums.last()?).unwrap_or(usize::MAX);
                let ticket = random.below(total) as u64;
                Some(sums.partition_point(|sum| *sum <= ticket))
            }
        }
    }
}

/// Load in proportion to weight; an idle heavy host comes before an idle light one.
fn score(load: u32, weights: &[u32], index: usize) -> f64 {
    let weight = weights.get(index).copied().unwrap_or(1).max(1);
    f64::from(load + 1) / f64::from(weight)
}

fn running_sums(weights: &[u32]) -> Box<[u64]> {
    let mut sum = 0;
    weights
        .iter()
        .map(|weight| {
            sum += u64::from(*weight);
            sum
        })
        .collect()
}

/// Weighted round robin: a host's next turn comes `1 / weight` after its last.
#[derive(Debug)]
struct Deadlines {
    /// Deadline in units that every weight divides nearly evenly, order of insertion, host, step.
    heap: BinaryHeap<Reverse<(u64, u64, usize, u64)>>,
    order: u64,
}

impl Deadlines {
    const ONE_TURN: u64 = 1 << 32;
    /// Deadlines are moved back down before they could overflow.
    const HORIZON: u64 = 1 << 62;

    fn new(weights: &[u32], random: &Random) -> Deadlines {
        let mut deadlines = Deadlines { heap: BinaryHeap::with_capacity(weights.len()), order: 0 };
        for (index, weight) in weights.iter().enumerate() {
            let step = Self::ONE_TURN / u64::from((*weight).max(1));
            deadlines.heap.push(Reverse((step, deadlines.order, index, step)));
            deadlines.order += 1;
        }
        for _ in 0..random.below(weights.len()) {
            deadlines.next();
        }
        deadlines
    }

    fn next(&mut self) -> Option<usize> {
        let Reverse((deadline, _, index, step)) = self.heap.pop()?;
        self.heap.push(Reverse((deadline + step, self.order, index, step)));
        self.order += 1;
        if deadline > Self::HORIZON {
            self.heap = self
                .heap
                .drain()
                .map(|Reverse((later, order, index, step))| Reverse((later - deadline.min(later), order, index, step)))
                .collect();
        }
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(policy: &LoadBalancing, weights: &[u32], picks: usize) -> Vec<usize> {
        let random = Random::new(3);
        let picker = Picker::new(policy, weights, &random);
        let mut counts = vec![0; weights.len()];
        for _ in 0..picks {
            counts[picker.pick(&random, |_| 0).unwrap()] += 1;
        }
        counts
    }

    #[test]
    fn round_robin_visits_all_equally() {
        assert_eq!(counts(&LoadBalancing::RoundRobin, &[1, 1, 1], 300), [100, 100, 100]);
        assert_eq!(counts(&LoadBalancing::RoundRobin, &[7, 7], 10), [5, 5]);
    }

    #[test]
    fn weighted_round_robin_follows_weights() {
        let counts = counts(&LoadBalancing::RoundRobin, &[1, 2, 5], 800);
        assert!((99..=101).contains(&counts[0]) && (199..=201).contains(&counts[1]), "{counts:?}");
    }

    #[test]
    fn random_follows_weights_roughly() {
        let counts = counts(&LoadBalancing::Random, &[1, 3], 8000);
        assert!((1700..2300).contains(&counts[0]), "{counts:?}");
    }

    #[test]
    fn least_request_avoids_the_loaded_host() {
        let random = Random::new(5);
        let picker = Picker::new(&LoadBalancing::LeastRequest { choices: 2 }, &[1, 1], &random);
        let picks = (0..100).filter(|_| picker.pick(&random, |index| [0, 9][index]) == Some(0)).count();
        assert!(picks > 60, "{picks}");
    }

    #[test]
    fn no_host_is_no_choice() {
        let random = Random::new(5);
        for policy in [LoadBalancing::RoundRobin, LoadBalancing::Random, LoadBalancing::LeastRequest { choices: 2 }] {
            assert_eq!(Picker::new(&policy, &[], &random).pick(&random, |_| 0), None);
        }
    }
}
