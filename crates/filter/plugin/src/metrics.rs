//! Statistics that plugins name themselves.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};

use postrider_telemetry::stats::{HistogramStat, Kind, Stat, StatSet, Unit, construct};
use postrider_telemetry::{Block, WorkerStats};

/// Most statistics that plugins of this process may name: each costs a little memory for good.
const MAX_NAMED: usize = 10_000;

/// The statistics that one plugin named on one worker.
pub struct Metrics {
    stats: WorkerStats,
    /// Stands before the names: `rider.<plugin>`.
    prefix: String,
    /// Tells runtimes apart.
    runtime: &'static str,
    named: RefCell<Vec<Named>>,
    by_name: RefCell<HashMap<(Sort, String), usize>>,
}

/// A statistic on one worker.
pub struct Named {
    sort: Sort,
    block: Rc<Block>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sort {
    Counter,
    Gauge,
    Histogram(Unit),
}

impl Metrics {
    pub fn new(stats: &WorkerStats, prefix: String, runtime: &'static str) -> Metrics {
        Metrics { stats: stats.clone(), prefix, runtime, named: RefCell::default(), by_name: RefCell::default() }
    }

    /// A number for it, from 1, the same for the same name. `None` when there are too many.
    pub fn define(&self, sort: Sort, name: &str) -> Option<usize> {
        if let Some(known) = self.by_name.borrow().get(&(sort, name.to_owned())) {
            return Some(*known);
        }
        let set = set_of(sort, self.runtime, &self.prefix, name)?;
        let scope = self.prefix.split_once('.').map_or("", |(_, scope)| scope);
        let mut named = self.named.borrow_mut();
        named.push(Named { sort, block: self.stats.block(set, scope) });
        self.by_name.borrow_mut().insert((sort, name.to_owned()), named.len());
        Some(named.len())
    }

    /// `None` when there is none of that number.
    pub fn with<T>(&self, id: usize, act: impl FnOnce(&Named) -> T) -> Option<T> {
        id.checked_sub(1).and_then(|at| self.named.borrow().get(at).map(act))
    }
}

impl Named {
    pub fn sort(&self) -> Sort {
        self.sort
    }

    /// Adds to a counter or gauge.
    pub fn add(&self, number: u64) {
        let set = self.block.set().id;
        match self.sort {
            Sort::Counter => self.block.add(construct::counter(0, set), number),
            Sort::Gauge => self.block.gauge_add(construct::gauge(0, set), number),
            Sort::Histogram(_) => {}
        }
    }

    /// Takes from a gauge.
    pub fn sub(&self, number: u64) {
        if self.sort == Sort::Gauge {
            self.block.gauge_sub(construct::gauge(0, self.block.set().id), number);
        }
    }

    /// Sets this worker's share of a gauge.
    pub fn set(&self, number: u64) {
        if self.sort == Sort::Gauge {
            self.block.gauge_set(construct::gauge(0, self.block.set().id), number);
        }
    }

    /// Records in a histogram.
    pub fn record(&self, number: u64) {
        if let Sort::Histogram(_) = self.sort {
            self.block.record(construct::histogram(0, self.block.set().id), number);
        }
    }

    /// This worker's share of a counter or gauge.
    pub fn value(&self) -> Option<u64> {
        let set = self.block.set().id;
        match self.sort {
            Sort::Counter => Some(self.block.value(construct::counter(0, set))),
            Sort::Gauge => Some(self.block.gauge(construct::gauge(0, set))),
            Sort::Histogram(_) => None,
        }
    }
}

/// Sets by kind, runtime, root and name.
type Sets = HashMap<(Sort, &'static str, String, String), &'static StatSet>;

/// The set of one statistic, made once for the process.
fn set_of(sort: Sort, runtime: &'static str, prefix: &str, name: &str) -> Option<&'static StatSet> {
    static SETS: Mutex<Option<Sets>> = Mutex::new(None);
    // A panic with the lock held leaves a whole map behind.
    let mut sets = SETS.lock().unwrap_or_else(PoisonError::into_inner);
    let sets = sets.get_or_insert_default();
    let root = prefix.split('.').next().unwrap_or_default();
    let key = (sort, runtime, root.to_owned(), name.to_owned());
    if let Some(known) = sets.get(&key) {
        return Some(known);
    }
    if sets.len() >= MAX_NAMED {
        return None;
    }
    let unique = format!("{runtime}::{sort:?}::{root}::{name}");
    let name: &'static str = name.to_owned().leak();
    let cell = |kind| -> &'static [Stat] { Box::leak(Box::new([Stat { name, kind }])) };
    let (cells, histograms): (&'static [Stat], &'static [HistogramStat]) = match sort {
        Sort::Counter => (cell(Kind::Counter), &[]),
        Sort::Gauge => (cell(Kind::Gauge), &[]),
        Sort::Histogram(unit) => (&[], Box::leak(Box::new([HistogramStat { name, unit, lazy: false }]))),
    };
    let set: &'static StatSet = Box::leak(Box::new(StatSet {
        root: root.to_owned().leak(),
        cells,
        histograms,
        codes: &[],
        sums: construct::sums(&[]),
        id: construct::set_id(&unique),
    }));
    sets.insert(key, set);
    Some(set)
}
