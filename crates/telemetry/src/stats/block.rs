//! The cells that one worker counts into for one scope.
//!
//! Only the owning worker writes: a relaxed load and store, which is a plain add instruction and never waits. Any thread
//! may read a value that is at most a moment old. Counting never allocates but for a first value (of a histogram's
//! decade, of a status code) and never fails.

use super::histogram::{Distribution, Recorder};
use super::registry::Shared;
use super::set::{Codes, Counter, Gauge, Histogram, Stat, StatSet, construct};
use std::array;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// Status codes that have a counter of their own; others count only in their class (RFC 9110, section 15).
const CODES: std::ops::Range<u16> = 100..600;
/// Codes that get memory together: 200…209.
const CODES_PER_PAGE: usize = 10;
const PAGES: usize = 50;

type Page = Box<[AtomicU64; CODES_PER_PAGE]>;
/// One family's counters, in pages that get memory when their first code is seen.
type Family = Box<[OnceLock<Page>; PAGES]>;

/// The writer's handle. Not `Send`: a second writer would lose counts.
#[derive(Debug)]
pub struct Block {
    cells: Arc<Cells>,
    prefix: Box<str>,
    shared: Arc<Shared>,
    owner: PhantomData<Rc<()>>,
}

/// The memory, shared between its writer and the readers.
#[derive(Debug)]
pub(crate) struct Cells {
    pub(crate) set: &'static StatSet,
    values: Box<[AtomicU64]>,
    histograms: Box<[OnceLock<Box<Recorder>>]>,
    codes: Box<[OnceLock<Family>]>,
}

impl Block {
    pub(crate) fn new(prefix: &str, cells: Arc<Cells>, shared: Arc<Shared>) -> Self {
        Self { cells, prefix: prefix.into(), shared, owner: PhantomData }
    }

    /// Which set it counts.
    pub fn set(&self) -> &'static StatSet {
        self.cells.set
    }

    /// Which scope it counts, as given to `WorkerStats::block`.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Counts one.
    #[inline]
    pub fn inc(&self, counter: Counter) {
        self.add(counter, 1);
    }

    /// The counter that its set shows by this name, which begins with `folder`. Looks through the names: not for every request.
    pub fn counter_named(&self, folder: &str, name: &str) -> Option<Counter> {
        let set = self.cells.set;
        let is_it = |stat: &Stat| stat.kind.is_counter() && stat.name.strip_prefix(folder) == Some(name);
        Some(construct::counter(set.cells.iter().position(is_it)?, set.id))
    }

    /// Counts `n`.
    #[inline]
    pub fn add(&self, counter: Counter, n: u64) {
        debug_assert_eq!(counter.set, self.cells.set.id, "a counter of another set");
        if let Some(cell) = self.cells.values.get(counter.cell as usize) {
            add(cell, n);
        }
    }

    /// One more is there.
    #[inline]
    pub fn gauge_inc(&self, gauge: Gauge) {
        self.gauge_add(gauge, 1);
    }

    /// One fewer is there. Below zero wraps, so that a sum over workers stays right when another one counted up.
    #[inline]
    pub fn gauge_dec(&self, gauge: Gauge) {
        self.gauge_add(gauge, u64::MAX);
    }

    /// `n` more are there; a wrapped negative number takes away.
    #[inline]
    pub fn gauge_add(&self, gauge: Gauge, n: u64) {
        debug_assert_eq!(gauge.set, self.cells.set.id, "a gauge of another set");
        if let Some(cell) = self.cells.values.get(gauge.cell as usize) {
            add(cell, n);
        }
    }

    /// `n` fewer are there.
    #[inline]
    pub fn gauge_sub(&self, gauge: Gauge, n: u64) {
        self.gauge_add(gauge, n.wrapping_neg());
    }

    /// This worker's share is `value`.
    #[inline]
    pub fn gauge_set(&self, gauge: Gauge, value: u64) {
        debug_assert_eq!(gauge.set, self.cells.set.id, "a gauge of another set");
        if let Some(cell) = self.cells.values.get(gauge.cell as usize) {
            cell.store(value, Relaxed);
        }
    }

    /// This worker's own count so far; the whole is the registry's to tell.
    pub fn value(&self, counter: Counter) -> u64 {
        self.cells.value(counter.cell as usize)
    }

    /// This worker's own share of a gauge.
    pub fn gauge(&self, gauge: Gauge) -> u64 {
        self.cells.value(gauge.cell as usize)
    }

    /// What all workers counted, as readers see it. It takes their locks: for what asks seldom.
    pub fn total(&self, counter: Counter) -> u64 {
        self.shared.total(&self.prefix, &self.cells, counter.cell as usize)
    }

    /// A gauge that is one for all workers, in place of a share for each: whoever sets it sets all of it. It lasts as long
    /// as somebody has it.
    pub fn whole_gauge(&self, gauge: Gauge) -> Arc<AtomicU64> {
        debug_assert_eq!(gauge.set, self.cells.set.id, "a gauge of another set");
        self.shared.whole_gauge(&self.prefix, &self.cells, gauge.cell)
    }

    /// Records one value, in the histogram's unit.
    #[inline]
    pub fn record(&self, histogram: Histogram, value: u64) {
        debug_assert_eq!(histogram.set, self.cells.set.id, "a histogram of another set");
        if let Some(slot) = self.cells.histograms.get(histogram.index as usize) {
            slot.get_or_init(|| Box::new(Recorder::new())).record(value);
        }
    }

    /// Counts one status code in its family; codes outside 100…599 have no counter.
    #[inline]
    pub fn count_code(&self, family: Codes, status: u16) {
        debug_assert_eq!(family.set, self.cells.set.id, "codes of another set");
        let Some(slot) = self.cells.codes.get(family.index as usize) else { return };
        if !CODES.contains(&status) {
            return;
        }
        let index = (status - CODES.start) as usize;
        let pages = slot.get_or_init(|| Box::new(array::from_fn(|_| OnceLock::new())));
        let Some(page) = pages.get(index / CODES_PER_PAGE) else { return };
        let page = page.get_or_init(|| Box::new(array::from_fn(|_| AtomicU64::new(0))));
        if let Some(cell) = page.get(index % CODES_PER_PAGE) {
            add(cell, 1);
        }
    }
}

impl Drop for Block {
    /// What was counted stays in the scope's retired totals.
    fn drop(&mut self) {
        self.shared.retire(&self.prefix, &self.cells);
    }
}

/// No other thread writes this cell, so nothing is lost between the load and the store.
#[inline]
fn add(cell: &AtomicU64, n: u64) {
    cell.store(cell.load(Relaxed).wrapping_add(n), Relaxed);
}

impl Cells {
    pub(crate) fn new(set: &'static StatSet) -> Self {
        Self {
            set,
            values: set.cells.iter().map(|_| AtomicU64::new(0)).collect(),
            histograms: set.histograms.iter().map(|_| OnceLock::new()).collect(),
            codes: set.codes.iter().map(|_| OnceLock::new()).collect(),
        }
    }

    pub(crate) fn value(&self, cell: usize) -> u64 {
        self.values.get(cell).map_or(0, |cell| cell.load(Relaxed))
    }

    pub(crate) fn merge_histogram(&self, index: usize, into: &mut Distribution) {
        if let Some(recorder) = self.histograms.get(index).and_then(OnceLock::get) {
            into.merge_recorder(recorder);
        }
    }

    /// Seen codes of each family: family, status, how many.
    pub(crate) fn codes(&self) -> impl Iterator<Item = (u16, u16, u64)> {
        let families = self.codes.iter().enumerate().filter_map(|(f, pages)| Some((f as u16, pages.get()?)));
        families.flat_map(|(family, pages)| {
            let pages = pages.iter().enumerate().filter_map(|(p, page)| Some((p, page.get()?)));
            pages.flat_map(move |(p, page)| {
                let first = CODES.start + (p * CODES_PER_PAGE) as u16;
                let counts = page.iter().enumerate().map(move |(i, n)| (family, first + i as u16, n.load(Relaxed)));
                counts.filter(|(_, _, n)| *n > 0)
            })
        })
    }
}
