//! Statistics as Envoy hands them to code: `envoy_on_stats_update` of its WebAssembly sinks.
//!
//! ```text
//! block of counters, then one of gauges; numbers with their lowest byte first
//!   4 bytes  the block's length     4 bytes  1 for counters, 2 for gauges     4 bytes  how many follow
//!   each:    4 bytes  the name's length     the name     up to a multiple of 8 bytes since the beginning of all
//!            8 bytes  the value             8 bytes  what is new, of counters
//! ```
//!
//! Histograms are not told, as in Envoy. How many follow and how long a block is are true here; in Envoy, the first counts what is not
//! told, too, and the second is wrong for gauges.

use postrider_telemetry::samples::{Sample, Value};
use postrider_telemetry::sink::Sink;

use super::Courier;

const COUNTERS: u32 = 1;
const GAUGES: u32 = 2;

pub(super) struct Plugin {
    courier: Courier,
    /// Of the flush under way.
    counters: Vec<(String, u64, u64)>,
    gauges: Vec<(String, u64)>,
}

impl Plugin {
    pub(super) fn new(courier: Courier) -> Plugin {
        Plugin { courier, counters: Vec::new(), gauges: Vec::new() }
    }
}

impl Sink for Plugin {
    fn take(&mut self, sample: &Sample<'_>) {
        match &sample.value {
            Value::Counter { new, total } => self.counters.push((sample.name.to_owned(), *total, *new)),
            Value::Gauge(value) => self.gauges.push((sample.name.to_owned(), *value)),
            Value::Histogram { .. } => {}
        }
    }

    fn finish(&mut self) -> u64 {
        let mut update = Vec::new();
        let counters = std::mem::take(&mut self.counters);
        block(&mut update, COUNTERS, counters.iter().map(|(name, total, new)| (name.as_str(), [*total, *new])));
        let gauges = std::mem::take(&mut self.gauges);
        block(&mut update, GAUGES, gauges.iter().map(|(name, value)| (name.as_str(), [*value])));
        self.courier.send(vec![update])
    }
}

fn block<'a, const N: usize>(out: &mut Vec<u8>, kind: u32, all: impl ExactSizeIterator<Item = (&'a str, [u64; N])>) {
    let start = out.len();
    for number in [0, kind, all.len() as u32] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    for (name, values) in all {
        out.extend_from_slice(&(name.len() as u32).to_le_bytes());
        out.extend_from_slice(name.as_bytes());
        out.resize(out.len().next_multiple_of(size_of::<u64>()), 0);
        for value in values {
            out.extend_from_slice(&value.to_le_bytes());
        }
    }
    let length = (out.len() - start) as u32;
    if let Some(place) = out.get_mut(start..start + size_of::<u32>()) {
        place.copy_from_slice(&length.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_followed_by_values_at_multiples_of_eight() {
        let mut out = Vec::new();
        block(&mut out, COUNTERS, [("abcde", [7, 2]), ("f", [1, 1])].into_iter());
        block(&mut out, GAUGES, [("gauge", [9])].into_iter());
        let counters = [
            &[64, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0][..],
            &[5, 0, 0, 0],
            b"abcde\0\0\0",
            &[7, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0],
            &[1, 0, 0, 0],
            b"f\0\0\0",
            &[1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
        ];
        let gauges =
            [&[32, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0][..], &[5, 0, 0, 0], b"gauge\0\0\0", &[9, 0, 0, 0, 0, 0, 0, 0]];
        assert_eq!(out, [counters.concat(), gauges.concat()].concat());
    }

    #[test]
    fn what_is_empty_is_two_blocks_all_the_same() {
        let mut out = Vec::new();
        block::<2>(&mut out, COUNTERS, [].into_iter());
        block::<1>(&mut out, GAUGES, [].into_iter());
        assert_eq!(out, [12, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    }
}
