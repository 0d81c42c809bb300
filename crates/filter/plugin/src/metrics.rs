//! Statistics that plugins name themselves.
//!
//! Counters and histograms are each worker's to count, and are added up when somebody reads them, a plugin too. A gauge is one
//! for all workers: two that set it to 7 make 7.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

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
    /// All of it, where it is one.
    gauge: Option<Arc<AtomicU64>>,
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
        let block = self.stats.block(set, scope);
        let gauge = (sort == Sort::Gauge).then(|| block.whole_gauge(construct::gauge(0, set.id)));
        let mut named = self.named.borrow_mut();
        named.push(Named { sort, block, gauge });
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

    /// Adds to a counter or gauge; a wrapped negative number takes from a gauge.
    pub fn add(&self, number: u64) {
        match (self.sort, &self.gauge) {
            (Sort::Counter, _) => self.block.add(construct::counter(0, self.block.set().id), number),
            (_, Some(gauge)) => drop(gauge.fetch_add(number, Relaxed)),
            _ => {}
        }
    }

    /// Takes from a gauge.
    pub fn sub(&self, number: u64) {
        if let Some(gauge) = &self.gauge {
            gauge.fetch_sub(number, Relaxed);
        }
    }

    /// Sets a gauge.
    pub fn set(&self, number: u64) {
        if let Some(gauge) = &self.gauge {
            gauge.store(number, Relaxed);
        }
    }

    /// Records in a histogram.
    pub fn record(&self, number: u64) {
        if let Sort::Histogram(_) = self.sort {
            self.block.record(construct::histogram(0, self.block.set().id), number);
        }
    }

    /// What a counter counted on all workers, or what a gauge is.
    pub fn value(&self) -> Option<u64> {
        match (self.sort, &self.gauge) {
            (Sort::Counter, _) => Some(self.block.total(construct::counter(0, self.block.set().id))),
            (_, gauge) => gauge.as_ref().map(|gauge| gauge.load(Relaxed)),
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
        unchanging: &[],
        sums: construct::sums(&[]),
        id: construct::set_id(&unique),
    }));
    sets.insert(key, set);
    Some(set)
}

#[cfg(test)]
mod tests {
    use postrider_telemetry::Registry;

    use super::*;

    #[test]
    fn a_gauge_that_several_workers_set_is_not_added_up_and_counters_are() {
        let registry = Registry::new();
        let workers = [registry.worker(0), registry.worker(1)];
        let metrics = workers.each_ref().map(|worker| Metrics::new(worker, "rider.p".to_owned(), "test"));
        let ids = metrics.each_ref().map(|all| [Sort::Gauge, Sort::Counter].map(|sort| all.define(sort, "x").unwrap()));
        for (all, [gauge, counter]) in metrics.iter().zip(ids) {
            all.with(gauge, |named| named.set(7));
            all.with(counter, |named| named.add(7));
        }
        let [first, second] = &metrics;
        let read = |all: &Metrics, id| all.with(id, Named::value).flatten();
        assert_eq!((read(first, ids[0][0]), read(second, ids[1][0])), (Some(7), Some(7)));
        assert_eq!((read(first, ids[0][1]), read(second, ids[1][1])), (Some(14), Some(14)));
        first.with(ids[0][0], |named| named.add(1));
        second.with(ids[1][0], |named| named.sub(3));
        assert_eq!(read(first, ids[0][0]), Some(5));
        let shown: Vec<u64> = registry.read(&[]).iter().map(|scope| scope.cell(0)).collect();
        assert!(shown == [5, 14] || shown == [14, 5], "{shown:?}");
    }
}
