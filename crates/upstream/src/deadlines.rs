//! Taking turns by weight: the earliest deadline comes first, and a turn's next deadline is `1 / weight` later.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Who is next.
#[derive(Debug)]
pub(crate) struct Deadlines {
    heap: BinaryHeap<Reverse<Turn>>,
    now: f64,
    order: u64,
}

#[derive(Debug, Clone, Copy)]
struct Turn {
    deadline: f64,
    /// Of those with one deadline, the first that got it comes first.
    order: u64,
    index: usize,
}

/// Nobody's deadline is infinite: a weight is at least this.
const LEAST_WEIGHT: f64 = 1e-9;

impl Deadlines {
    /// `weights` are positive. The first `skipped` turns are over.
    pub(crate) fn new(weights: impl Iterator<Item = f64>, skipped: usize, weight: impl Fn(usize) -> f64) -> Deadlines {
        let mut deadlines = Deadlines { heap: BinaryHeap::new(), now: 0.0, order: 0 };
        for (index, weight) in weights.enumerate() {
            deadlines.add(index, weight);
        }
        for _ in 0..skipped {
            deadlines.next(&weight);
        }
        deadlines
    }

    /// `weight` is what an entry weighs by now.
    pub(crate) fn next(&mut self, weight: impl Fn(usize) -> f64) -> Option<usize> {
        let Reverse(Turn { deadline, index, .. }) = self.heap.pop()?;
        self.now = deadline;
        self.add(index, weight(index));
        Some(index)
    }

    fn add(&mut self, index: usize, weight: f64) {
        let deadline = self.now + 1.0 / weight.max(LEAST_WEIGHT);
        self.heap.push(Reverse(Turn { deadline, order: self.order, index }));
        self.order += 1;
    }
}

impl Ord for Turn {
    fn cmp(&self, other: &Self) -> Ordering {
        self.deadline.total_cmp(&other.deadline).then(self.order.cmp(&other.order))
    }
}

impl PartialOrd for Turn {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Turn {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Turn {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_come_by_weight_and_evenly_spread() {
        let weights = [1.0, 2.0];
        let of = |index: usize| weights[index];
        let mut deadlines = Deadlines::new(weights.into_iter(), 0, of);
        let turns: Vec<_> = (0..6).filter_map(|_| deadlines.next(of)).collect();
        assert_eq!(turns, [1, 0, 1, 1, 0, 1]);
        assert_eq!(Deadlines::new(std::iter::empty(), 3, of).next(of), None);
    }
}
