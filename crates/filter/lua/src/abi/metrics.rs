//! Statistics that scripts name themselves.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_char, c_double, c_int};
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};

use postrider_telemetry::stats::{HistogramStat, Kind, Stat, StatSet, Unit, construct};
use postrider_telemetry::{Block, WorkerStats};

use super::text::take;
use super::turn::with;
use super::{INVALID, LIMIT, OK};

/// Most statistics that scripts of this process may name: each costs a little memory for good.
const MAX_NAMED: usize = 10_000;

/// Longest name.
const MAX_NAME: usize = 256;

/// The statistics that one plugin named on one worker.
pub(crate) struct Metrics {
    stats: WorkerStats,
    /// Stands before the names: `rider.<plugin>`.
    prefix: String,
    named: RefCell<Vec<Named>>,
    by_name: RefCell<HashMap<(Sort, String), usize>>,
}

struct Named {
    sort: Sort,
    block: Rc<Block>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Sort {
    Counter,
    Gauge,
    Histogram(Measure),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Measure {
    Unspecified,
    Milliseconds,
    Microseconds,
    Bytes,
}

impl Metrics {
    pub(crate) fn new(stats: &WorkerStats, prefix: String) -> Metrics {
        Metrics { stats: stats.clone(), prefix, named: RefCell::default(), by_name: RefCell::default() }
    }

    /// A number for it, from 1.
    fn define(&self, sort: Sort, name: &str) -> Option<usize> {
        if let Some(known) = self.by_name.borrow().get(&(sort, name.to_owned())) {
            return Some(*known);
        }
        let set = set_of(sort, &self.prefix, name)?;
        let scope = self.prefix.split_once('.').map_or("", |(_, scope)| scope);
        let mut named = self.named.borrow_mut();
        named.push(Named { sort, block: self.stats.block(set, scope) });
        self.by_name.borrow_mut().insert((sort, name.to_owned()), named.len());
        Some(named.len())
    }
}

/// Sets by kind, root and name.
type Sets = HashMap<(Sort, String, String), &'static StatSet>;

/// The set of one statistic, made once for the process.
fn set_of(sort: Sort, prefix: &str, name: &str) -> Option<&'static StatSet> {
    static SETS: Mutex<Option<Sets>> = Mutex::new(None);
    // A panic with the lock held leaves a whole map behind.
    let mut sets = SETS.lock().unwrap_or_else(PoisonError::into_inner);
    let sets = sets.get_or_insert_default();
    let root = prefix.split('.').next().unwrap_or_default();
    let key = (sort, root.to_owned(), name.to_owned());
    if let Some(known) = sets.get(&key) {
        return Some(known);
    }
    if sets.len() >= MAX_NAMED {
        return None;
    }
    let unique = format!("lua::{sort:?}::{root}::{name}");
    let name: &'static str = name.to_owned().leak();
    let cell = |kind| -> &'static [Stat] { Box::leak(Box::new([Stat { name, kind }])) };
    let (cells, histograms): (&'static [Stat], &'static [HistogramStat]) = match sort {
        Sort::Counter => (cell(Kind::Counter), &[]),
        Sort::Gauge => (cell(Kind::Gauge), &[]),
        Sort::Histogram(measure) => {
            let unit = match measure {
                Measure::Unspecified => Unit::Unspecified,
                Measure::Milliseconds => Unit::Milliseconds,
                Measure::Microseconds => Unit::Microseconds,
                Measure::Bytes => Unit::Bytes,
            };
            (&[], Box::leak(Box::new([HistogramStat { name, unit, lazy: false }])))
        }
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

/// Names a statistic: kind 0 counter, 1 gauge, 2 histogram, 3 to 5 histogram of milliseconds, microseconds, bytes. A
/// number for it, from 1; the same for the same name.
pub(super) unsafe extern "C" fn define(kind: c_int, name: *const c_char, length: usize) -> c_int {
    with(|turn| {
        // SAFETY: the SDK passes a Lua string with its length.
        let Ok(name) = std::str::from_utf8(unsafe { take(name, length) }) else { return INVALID };
        if name.is_empty() || name.len() > MAX_NAME || name.chars().any(|c| c.is_control() || c == ' ') {
            return INVALID;
        }
        let sort = match kind {
            0 => Sort::Counter,
            1 => Sort::Gauge,
            2 => Sort::Histogram(Measure::Unspecified),
            3 => Sort::Histogram(Measure::Milliseconds),
            4 => Sort::Histogram(Measure::Microseconds),
            5 => Sort::Histogram(Measure::Bytes),
            _ => return INVALID,
        };
        let id = turn.plugin.metrics.as_ref().map(|metrics| metrics.define(sort, name));
        match id {
            // A plugin that is only tried out counts nothing, but goes on as if it did.
            None => 1,
            Some(None) => LIMIT,
            Some(Some(id)) => c_int::try_from(id).unwrap_or(LIMIT),
        }
    })
}

fn with_named(id: c_int, act: impl FnOnce(&Named) -> c_int) -> c_int {
    with(|turn| {
        let Some(metrics) = &turn.plugin.metrics else { return OK };
        let named = metrics.named.borrow();
        let at = usize::try_from(id).ok().and_then(|id| id.checked_sub(1));
        at.and_then(|at| named.get(at)).map_or(INVALID, act)
    })
}

/// Adds to a counter or gauge.
pub(super) unsafe extern "C" fn add(id: c_int, offset: c_double) -> c_int {
    with_named(id, |named| {
        let set = named.block.set().id;
        match named.sort {
            Sort::Counter if offset < 0.0 => return INVALID,
            Sort::Counter => named.block.add(construct::counter(0, set), offset as u64),
            Sort::Gauge => named.block.gauge_add(construct::gauge(0, set), offset as i64 as u64),
            Sort::Histogram(_) => return INVALID,
        }
        OK
    })
}

/// Sets a gauge, adds to a counter, records in a histogram.
pub(super) unsafe extern "C" fn record(id: c_int, value: c_double) -> c_int {
    with_named(id, |named| {
        let set = named.block.set().id;
        match named.sort {
            Sort::Counter if value < 0.0 => return INVALID,
            Sort::Counter => named.block.add(construct::counter(0, set), value as u64),
            Sort::Gauge => named.block.gauge_set(construct::gauge(0, set), value as i64 as u64),
            Sort::Histogram(_) => named.block.record(construct::histogram(0, set), value as u64),
        }
        OK
    })
}

/// This worker's share of a counter or gauge; negative when there is no such thing to read.
pub(super) unsafe extern "C" fn value(id: c_int) -> c_double {
    let mut value = if with_named(id, |_| OK) == OK { 0.0 } else { -1.0 };
    with_named(id, |named| {
        let set = named.block.set().id;
        match named.sort {
            Sort::Counter => value = named.block.value(construct::counter(0, set)) as f64,
            Sort::Gauge => value = named.block.gauge(construct::gauge(0, set)) as i64 as f64,
            Sort::Histogram(_) => value = -1.0,
        }
        OK
    });
    value
}
