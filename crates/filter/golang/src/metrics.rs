//! Statistics that Go code names itself, and counts from any thread.
//!
//! A count belongs to one worker's memory ([`Block`]). What Go code counts on a worker's own thread is added there; from
//! another thread a worker is asked to. What the code reads back is kept beside it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use postrider_filter_api::Remote;
use postrider_telemetry::stats::{Given, HistogramStat, Kind, Stat, StatSet, Unit, construct};
use postrider_telemetry::{Block, WorkerStats};

use crate::apart::statistics;

/// Most statistics that Go code of this process may name: each costs a little memory for good.
const MAX_NAMED: usize = 10_000;

/// Most changes that wait for a first worker.
const MAX_WAITING: usize = 10_000;

/// The statistics of one filter configuration.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    inner: Mutex<Inner>,
    /// Who counts is the proxy, which is another process and knows the configuration by this number.
    elsewhere: Option<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    named: Vec<Arc<Named>>,
    workers: Vec<Remote>,
    waiting: Vec<Change>,
}

#[derive(Debug)]
struct Named {
    sort: Sort,
    set: &'static StatSet,
    value: AtomicU64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Sort {
    Counter,
    Gauge,
    Histogram,
}

#[derive(Debug, Clone)]
struct Change {
    named: Arc<Named>,
    /// To add, or to record.
    by: u64,
}

thread_local! {
    /// A worker's statistics, and the blocks that it writes of what Go code named.
    static HERE: RefCell<Option<Here>> = const { RefCell::new(None) };
}

struct Here {
    stats: WorkerStats,
    blocks: HashMap<u32, Rc<Block>>,
}

impl Metrics {
    /// Those of a configuration, in the process of its library.
    pub(crate) fn elsewhere(key: u64) -> Metrics {
        Metrics { inner: Mutex::default(), elsewhere: Some(key) }
    }

    /// A number for a statistic of that name, the same for the same name; `None` when there are too many.
    pub(crate) fn define(&self, sort: Sort, name: &str) -> Option<u32> {
        let set = set_of(sort, name)?;
        let mut inner = self.lock();
        let known = inner.named.len();
        let at = inner.named.iter().position(|named| named.sort == sort && named.set == set).unwrap_or_else(|| {
            inner.named.push(Arc::new(Named { sort, set, value: AtomicU64::new(0) }));
            inner.named.len() - 1
        });
        let id = u32::try_from(at).ok()?;
        if let Some(key) = self.elsewhere.filter(|_| at == known) {
            statistics::define(key, id, sort, name);
        }
        Some(id)
    }

    /// Counters only grow.
    pub(crate) fn increment(&self, id: u32, offset: i64) {
        let Some(named) = self.named(id) else { return };
        if let Some(key) = self.elsewhere {
            if named.sort == Sort::Gauge || offset > 0 {
                named.value.fetch_add(offset as u64, Ordering::Relaxed);
            }
            return statistics::increment(key, id, offset);
        }
        match named.sort {
            Sort::Counter if offset > 0 => self.add(named, offset.unsigned_abs()),
            Sort::Gauge => self.add(named, offset as u64),
            Sort::Counter | Sort::Histogram => {}
        }
    }

    pub(crate) fn record(&self, id: u32, value: u64) {
        let Some(named) = self.named(id) else { return };
        if let Some(key) = self.elsewhere {
            match named.sort {
                Sort::Counter => drop(named.value.fetch_add(value, Ordering::Relaxed)),
                Sort::Gauge => named.value.store(value, Ordering::Relaxed),
                Sort::Histogram => {}
            }
            return statistics::record(key, id, value);
        }
        match named.sort {
            Sort::Counter => self.add(named, value),
            Sort::Gauge => {
                let before = named.value.swap(value, Ordering::Relaxed);
                self.change(Change { named, by: value.wrapping_sub(before) });
            }
            Sort::Histogram => self.change(Change { named, by: value }),
        }
    }

    pub(crate) fn value(&self, id: u32) -> Option<u64> {
        self.named(id).map(|named| named.value.load(Ordering::Relaxed))
    }

    /// A worker serves this configuration: it counts for threads that are none. Called on that worker.
    pub(crate) fn serve(&self, stats: &WorkerStats, remote: &Remote) {
        HERE.with_borrow_mut(|here| {
            here.get_or_insert_with(|| Here { stats: stats.clone(), blocks: HashMap::new() });
        });
        let waiting = {
            let mut inner = self.lock();
            inner.workers.push(remote.clone());
            std::mem::take(&mut inner.waiting)
        };
        waiting.into_iter().for_each(|change| drop(change.make_here()));
    }

    fn add(&self, named: Arc<Named>, by: u64) {
        named.value.fetch_add(by, Ordering::Relaxed);
        self.change(Change { named, by });
    }

    fn change(&self, change: Change) {
        let Err(change) = change.make_here() else { return };
        let mut inner = self.lock();
        if inner.workers.is_empty() && inner.waiting.len() < MAX_WAITING {
            inner.waiting.push(change);
            return;
        }
        // The first that is there; those that have ended are forgotten.
        while let Some(worker) = inner.workers.first() {
            let job = change.clone();
            if worker.post(move || drop(job.make_here())).is_ok() {
                return;
            }
            inner.workers.remove(0);
        }
    }

    fn named(&self, id: u32) -> Option<Arc<Named>> {
        self.lock().named.get(usize::try_from(id).ok()?).cloned()
    }

    /// A panic with the lock held leaves whole lists behind.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Change {
    /// # Errors
    /// This thread is no worker's: the change is given back.
    fn make_here(self) -> Result<(), Change> {
        HERE.with_borrow_mut(|here| {
            let Some(here) = here else { return Err(self) };
            let set = self.named.set;
            let block = here.blocks.entry(set.id).or_insert_with(|| here.stats.block(set, ""));
            match self.named.sort {
                Sort::Counter => block.add(construct::counter(0, set.id), self.by),
                Sort::Gauge => block.gauge_add(construct::gauge(0, set.id), self.by),
                Sort::Histogram => block.record(construct::histogram(0, set.id), self.by),
            }
            Ok(())
        })
    }
}

/// The set of one statistic, made once for the process.
fn set_of(sort: Sort, name: &str) -> Option<&'static StatSet> {
    static SETS: Mutex<Vec<(Sort, &'static str, &'static StatSet)>> = Mutex::new(Vec::new());
    // A panic with the lock held leaves a whole list behind.
    let mut sets = SETS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((.., known)) = sets.iter().find(|(of, known, _)| *of == sort && *known == name) {
        return Some(known);
    }
    if sets.len() >= MAX_NAMED {
        return None;
    }
    let name: &'static str = name.to_owned().leak();
    let cell = |kind| -> &'static [Stat] { Box::leak(Box::new([Stat { name, kind }])) };
    let (cells, histograms): (&'static [Stat], &'static [HistogramStat]) = match sort {
        Sort::Counter => (cell(Kind::Counter), &[]),
        Sort::Gauge => (cell(Kind::Gauge), &[]),
        Sort::Histogram => (&[], Box::leak(Box::new([HistogramStat { name, unit: Unit::Unspecified, lazy: false }]))),
    };
    let set: &'static StatSet = Box::leak(Box::new(StatSet {
        root: "",
        cells,
        histograms,
        codes: &[],
        unchanging: &[],
        sums: construct::sums(&[]),
        given: Given::NOTHING,
        id: construct::set_id(&format!("golang::{sort:?}::{name}")),
    }));
    sets.push((sort, name, set));
    Some(set)
}
