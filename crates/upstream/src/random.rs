//! Random numbers for load balancing and sampling: fast, per worker, not for secrets.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

/// A xorshift generator (Marsaglia's 64-bit variant with a multiplier).
#[derive(Debug)]
pub struct Random(Cell<u64>);

impl Default for Random {
    /// Seeded from the process's hash keys, so differently in each worker and each process.
    fn default() -> Self {
        Random::new(RandomState::new().hash_one(std::thread::current().id()))
    }
}

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(Cell::new(seed.max(1)))
    }

    pub fn next(&self) -> u64 {
        let mut state = self.0.get();
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        self.0.set(state);
        state.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `bound`; 0 when `bound` is 0.
    pub fn below(&self, bound: usize) -> usize {
        // The high half of the product: unbiased enough for bounds far below 2^64, and no division.
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_below_their_bound_and_reach_all_of_it() {
        let random = Random::new(7);
        let mut seen = [0u32; 5];
        for _ in 0..5000 {
            seen[random.below(5)] += 1;
        }
        assert!(seen.iter().all(|count| *count > 800), "{seen:?}");
        assert_eq!(random.below(0), 0);
    }
}
