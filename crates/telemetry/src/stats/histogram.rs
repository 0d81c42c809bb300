//! Distributions of whole numbers with two significant decimal digits, as Envoy shows them.
//!
//! Values below 100 are exact; a larger one falls into one of 90 buckets of its decade (10·10ⁿ … 99·10ⁿ), so an error is
//! at most 10%. A decade gets its memory when its first value arrives. One thread records; any thread reads.

use std::array;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Upper bounds of the Prometheus buckets: Envoy's default, whatever the unit.
pub const DEFAULT_BOUNDS: [f64; 19] = [
    0.5,
    1.0,
    5.0,
    10.0,
    25.0,
    50.0,
    100.0,
    250.0,
    500.0,
    1_000.0,
    2_500.0,
    5_000.0,
    10_000.0,
    30_000.0,
    60_000.0,
    300_000.0,
    600_000.0,
    1_800_000.0,
    3_600_000.0,
];

/// The quantiles that Envoy prints, with the text it prints them as.
pub const QUANTILES: [(f64, &str); 10] = [
    (0.0, "0"),
    (0.25, "25"),
    (0.5, "50"),
    (0.75, "75"),
    (0.9, "90"),
    (0.95, "95"),
    (0.99, "99"),
    (0.995, "99.5"),
    (0.999, "99.9"),
    (1.0, "100"),
];

/// Decades above the exact small values: a `u64` has 20 digits, the first decade starts at two.
const DECADES: usize = 19;
/// Buckets in a decade: the two leading digits 10…99.
const PER_DECADE: usize = 90;
/// Values 0…9, which need no decade.
const SMALL: usize = 10;

type Decade = Box<[AtomicU64; PER_DECADE]>;

/// The recording side, owned by one worker's block.
#[derive(Debug)]
pub(crate) struct Recorder {
    sum: AtomicU64,
    small: [AtomicU64; SMALL],
    decades: [OnceLock<Decade>; DECADES],
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Self {
            sum: AtomicU64::new(0),
            small: array::from_fn(|_| AtomicU64::new(0)),
            decades: array::from_fn(|_| OnceLock::new()),
        }
    }

    #[inline]
    pub(crate) fn record(&self, value: u64) {
        add(&self.sum, value);
        if let Some(cell) = self.small.get(value as usize) {
            return add(cell, 1);
        }
        let (decade, step) = place(value);
        let Some(slot) = self.decades.get(decade) else { return };
        let cells = slot.get_or_init(|| Box::new(array::from_fn(|_| AtomicU64::new(0))));
        if let Some(cell) = cells.get(step) {
            add(cell, 1);
        }
    }
}

/// Only the owning worker writes, so a load and a store cannot lose a count; the compiler makes one unlocked add of it.
#[inline]
fn add(cell: &AtomicU64, n: u64) {
    cell.store(cell.load(Relaxed).wrapping_add(n), Relaxed);
}

/// Decade and bucket of a value of at least 10.
#[inline]
fn place(value: u64) -> (usize, usize) {
    // Most durations have two digits: no division for them.
    if value < 100 {
        return (0, value as usize - 10);
    }
    let decade = value.ilog10() - 1;
    (decade as usize, (value / 10_u64.pow(decade)) as usize - 10)
}

/// What was recorded, by one worker or by several together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Distribution {
    sum: u64,
    count: u64,
    /// Lowest value of a bucket -> how many, ascending, no empty ones.
    buckets: Vec<(u64, u64)>,
}

impl Distribution {
    pub(crate) fn merge_recorder(&mut self, recorder: &Recorder) {
        let mut seen = Vec::new();
        for (value, cell) in recorder.small.iter().enumerate() {
            seen.push((value as u64, cell.load(Relaxed)));
        }
        for (decade, cells) in recorder.decades.iter().enumerate() {
            let Some(cells) = cells.get() else { continue };
            let unit = 10_u64.pow(decade as u32);
            for (step, cell) in cells.iter().enumerate() {
                seen.push(((step as u64 + 10).saturating_mul(unit), cell.load(Relaxed)));
            }
        }
        seen.retain(|(_, n)| *n > 0);
        self.add(recorder.sum.load(Relaxed), &seen);
    }

    fn add(&mut self, sum: u64, buckets: &[(u64, u64)]) {
        self.sum = self.sum.wrapping_add(sum);
        for &(low, n) in buckets {
            self.count += n;
            let place = self.buckets.partition_point(|(other, _)| *other < low);
            match self.buckets.get_mut(place) {
                Some((other, total)) if *other == low => *total += n,
                _ => self.buckets.insert(place, (low, n)),
            }
        }
    }

    /// How many values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their exact sum, in the histogram's unit.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// What was recorded since `before`.
    pub fn since(&self, before: Option<&Distribution>) -> Distribution {
        let Some(before) = before else { return self.clone() };
        let mut old = before.buckets.iter().peekable();
        let mut new = Distribution { sum: self.sum.saturating_sub(before.sum), ..Distribution::default() };
        for &(low, n) in &self.buckets {
            while old.next_if(|(other, _)| *other < low).is_some() {}
            let known = old.next_if(|(other, _)| *other == low).map_or(0, |(_, n)| *n);
            if let Some(more @ 1..) = n.checked_sub(known) {
                new.count += more;
                new.buckets.push((low, more));
            }
        }
        new
    }

    /// Values with how often each came, ascending. One of more than two digits stands for the middle of its bucket.
    pub fn values(&self) -> impl Iterator<Item = (u64, u64)> {
        let middle = |low: u64| match low {
            0..100 => low,
            _ => low.saturating_add(10_u64.pow(low.ilog10() - 1) / 2),
        };
        self.buckets.iter().map(move |&(low, n)| (middle(low), n))
    }

    /// Non-empty buckets, ascending: lowest value, width, how many.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, f64, u64)> {
        self.buckets.iter().map(|&(low, n)| (low, width(low), n))
    }

    /// The value below which the share `q` (0…1) of the values lies, spread evenly inside a bucket, as Envoy does; NaN
    /// when there is none.
    pub fn quantile(&self, q: f64) -> f64 {
        if self.count == 0 {
            return f64::NAN;
        }
        let rank = ((q * self.count as f64).ceil() as u64).clamp(1, self.count);
        let mut before = 0;
        for &(low, n) in &self.buckets {
            if before + n >= rank {
                return low as f64 + width(low) * (rank - before) as f64 / (n + 1) as f64;
            }
            before += n;
        }
        f64::NAN
    }

    /// How many values are at most `bound`; a bucket that holds the bound counts whole, as in Envoy.
    pub fn at_most(&self, bound: f64) -> u64 {
        self.buckets.iter().take_while(|(low, _)| *low as f64 <= bound).map(|(_, n)| n).sum()
    }
}

impl FromIterator<u64> for Distribution {
    fn from_iter<T: IntoIterator<Item = u64>>(values: T) -> Distribution {
        let recorder = Recorder::new();
        values.into_iter().for_each(|value| recorder.record(value));
        let mut all = Distribution::default();
        all.merge_recorder(&recorder);
        all
    }
}

/// Envoy's bucket widths: a tenth of the unit of the leading digit, also below ten; zero is a point.
fn width(low: u64) -> f64 {
    match low {
        0 => 0.0,
        1..10 => 0.1,
        _ => 10_f64.powi(low.ilog10() as i32 - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn distribution(values: &[u64]) -> Distribution {
        values.iter().copied().collect()
    }

    /// Seen on a real Envoy 1.40: three connections of 1, 1 and 4 ms.
    #[test]
    fn quantiles_are_envoys() {
        let d = distribution(&[1, 1, 4]);
        assert_eq!(d.quantile(0.25).to_string(), "1.0333333333333334");
        assert_eq!(d.quantile(0.5).to_string(), "1.0666666666666667");
        assert_eq!(d.quantile(0.75), 4.05);
        assert_eq!([0.5, 1.0, 5.0].map(|b| d.at_most(b)), [0, 2, 3]);
        assert_eq!(distribution(&[0]).quantile(1.0), 0.0);
        assert!(distribution(&[]).quantile(0.5).is_nan());
    }

    #[test]
    fn every_magnitude_has_a_bucket_within_a_tenth() {
        let mut value = 1_u64;
        loop {
            let d = distribution(&[value]);
            let (low, width, n) = d.buckets().next().unwrap();
            assert_eq!(n, 1);
            assert!(low <= value && (value as f64) < low as f64 + width.max(0.1), "{value}: {low} + {width}");
            assert_eq!(d.sum(), value);
            match value.checked_mul(3) {
                Some(next) => value = next + 1,
                None => break,
            }
        }
        assert_eq!(distribution(&[u64::MAX]).count(), 1);
    }

    #[test]
    fn what_is_new_is_told_by_the_middle_of_buckets() {
        let d = distribution(&[5, 5, 42, 1_234, 1_299]);
        let values = |d: Distribution| d.values().collect::<Vec<_>>();
        assert_eq!(values(d.since(None)), [(5, 2), (42, 1), (1_250, 2)]);
        let new = d.since(Some(&distribution(&[5, 5, 1_234])));
        assert_eq!((new.count(), new.sum()), (2, 1_341));
        assert_eq!(values(new), [(42, 1), (1_250, 1)]);
    }

    #[test]
    fn merging_adds() {
        let mut d = distribution(&[5, 500]);
        let recorder = Recorder::new();
        [5, 7].iter().for_each(|v| recorder.record(*v));
        d.merge_recorder(&recorder);
        assert_eq!(d.buckets().map(|(low, _, n)| (low, n)).collect::<Vec<_>>(), [(5, 2), (7, 1), (500, 1)]);
        assert_eq!((d.count(), d.sum()), (4, 517));
    }
}
