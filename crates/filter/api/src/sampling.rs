//! Which calls are measured: reading the clock twice costs more than many a call.

use std::cell::Cell;

/// So many calls are all measured: what is hardly called has figures, too.
const ALL_MEASURED: u32 = 1024;

/// Behind them one of so many is, and stands for all of them. A prime: a filter with several hooks has each of them
/// measured in turn.
const MEASURED_EVERY: u32 = 31;

/// Counts calls, and chooses among them.
#[derive(Debug, Default)]
pub struct Sampling(Cell<u32>);

impl Sampling {
    /// One more call: for how many it stands, if it is to be measured.
    #[inline]
    pub fn take(&self) -> Option<u32> {
        let calls = self.0.get();
        self.0.set(calls.wrapping_add(1));
        match calls {
            ..ALL_MEASURED => Some(1),
            _ => calls.is_multiple_of(MEASURED_EVERY).then_some(MEASURED_EVERY),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_calls_are_measured_and_then_a_few_for_all() {
        let sampling = Sampling::default();
        let calls = 1024 + 31 * 64;
        let mut measured = [0, 0];
        let mut taken = 0;
        for call in 0..calls {
            let stands_for = sampling.take();
            assert!(call >= 1024 || stands_for == Some(1), "{call}");
            taken += stands_for.unwrap_or(0);
            let [even, odd] = &mut measured;
            *(if call % 2 == 0 { even } else { odd }) += u32::from(stands_for.is_some());
        }
        assert_eq!(taken, calls);
        assert_eq!(measured, [512 + 32, 512 + 32], "two hooks that take turns");
    }
}
