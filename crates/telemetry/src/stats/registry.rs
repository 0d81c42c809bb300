//! Where all blocks are known: workers take theirs here, readers add them up.
//!
//! Locks guard the lists of scopes and of their blocks, never a count: they are taken when a scope is first counted in, when
//! a block ends and when somebody reads; a reader holds the first for the time of copying the list and the second for
//! one scope at a time, so a worker does not wait for a scrape. What a block counted survives its worker in the scope's retired totals; a reset is a
//! baseline that readers subtract, since nobody but its worker may write a cell.

use super::block::{Block, Cells};
use super::histogram::Distribution;
use super::set::{Counter, Gauge, Kind, Part, StatSet, Sums};
use super::used::{self, Used};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The statistics of the process. Cheap to clone: all clones are one.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    shared: Arc<Shared>,
}

/// A scope that configuration names although nothing may have been counted in it, so that readers see its zeros, with the
/// gauges that are computed when read instead of counted (uptime, membership).
#[derive(Debug, Clone)]
pub struct KnownScope {
    pub set: &'static StatSet,
    pub prefix: String,
    /// Added to what the workers counted.
    pub computed: Vec<(Gauge, u64)>,
    /// The same for what only grows, where it is counted elsewhere.
    pub counted: Vec<(Counter, u64)>,
    pub tags: Option<Box<ScopeTags>>,
}

/// Tags of a scope that its name alone does not tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScopeTags {
    /// So many bytes at the end of the scope's prefix stand for them, and are no part of a name without tags.
    pub tail: usize,
    /// Named as Envoy names them, with dots.
    pub tags: Vec<(&'static str, String)>,
}

impl KnownScope {
    pub fn new(set: &'static StatSet, prefix: impl Into<String>) -> Self {
        Self { set, prefix: prefix.into(), computed: Vec::new(), counted: Vec::new(), tags: None }
    }
}

/// One worker's access. Not `Send`: it hands out blocks that only this thread may write. Cheap to clone: all clones are
/// one, so whoever takes blocks later keeps a clone.
#[derive(Debug, Clone)]
pub struct WorkerStats {
    id: u32,
    shared: Arc<Shared>,
    blocks: Rc<RefCell<Handed>>,
}

/// Blocks in use, by their set and prefix.
type Handed = HashMap<u32, HashMap<String, Weak<Block>>>;

/// The values of one scope, added over the workers at one moment.
#[derive(Debug, Clone)]
pub struct ScopeValues {
    pub set: &'static StatSet,
    pub prefix: String,
    /// By cell, as [`StatSet::cells`]; empty when all are zero.
    pub cells: Vec<u64>,
    /// By position, as [`StatSet::histograms`]; empty when nothing was recorded.
    pub histograms: Vec<Distribution>,
    /// Family (position in [`StatSet::codes`]), status, how many; ascending.
    pub codes: Vec<(u16, u16, u64)>,
    /// What its name does not tell.
    pub tags: Option<Box<ScopeTags>>,
    /// Cells that were ever written.
    used: Used,
    /// What the counters had counted when they were last reset, if they were.
    before_reset: Option<Box<Baseline>>,
}

impl ScopeValues {
    /// A scope in which nothing was counted.
    pub fn zeros(set: &'static StatSet, prefix: &str) -> Self {
        let (cells, histograms, codes) = (Vec::new(), Vec::new(), Vec::new());
        let (prefix, used) = (prefix.to_owned(), Used::default());
        Self { set, prefix, cells, histograms, codes, tags: None, used, before_reset: None }
    }

    /// A counter of this scope's set.
    pub fn counter(&self, counter: Counter) -> u64 {
        debug_assert_eq!(counter.set, self.set.id, "a counter of another set");
        self.cell(counter.cell as usize)
    }

    /// A gauge of this scope's set.
    pub fn gauge(&self, gauge: Gauge) -> u64 {
        debug_assert_eq!(gauge.set, self.set.id, "a gauge of another set");
        self.cells.get(gauge.cell as usize).copied().unwrap_or_default()
    }

    /// Puts in what is known only when all was read.
    pub fn set_gauge(&mut self, gauge: Gauge, value: u64) {
        debug_assert_eq!(gauge.set, self.set.id, "a gauge of another set");
        if self.cells.is_empty() {
            self.cells.resize(self.set.cells.len(), 0);
        }
        if let Some(cell) = self.cells.get_mut(gauge.cell as usize) {
            *cell = value;
            self.used.add(gauge.cell as usize);
        }
    }
}

impl Registry {
    pub fn new() -> Self {
        Self::default()
    }

    /// Access for the calling thread; `id` is the worker's number, for [`WorkerStats::id`] only. Threads of the control
    /// plane take one as well.
    pub fn worker(&self, id: u32) -> WorkerStats {
        WorkerStats { id, shared: self.shared.clone(), blocks: Rc::default() }
    }

    /// Forgets a scope that the configuration no longer has. Blocks still in use keep it alive until the last one ends.
    pub fn remove(&self, set: &'static StatSet, prefix: &str) {
        self.retain(|other, name| other != set || name != prefix);
    }

    /// Forgets every scope for which `keep` is false.
    pub fn retain(&self, keep: impl Fn(&'static StatSet, &str) -> bool) {
        self.shared.before_reset().retain(|key, before| keep(before.set, &key.prefix));
        self.shared.lock().retain(|_, scope| {
            let mut blocks = scope.lock();
            blocks.removed = !keep(scope.set, &scope.prefix);
            !(blocks.removed && blocks.live.is_empty())
        });
    }

    /// How many scopes hold memory.
    pub fn scopes(&self) -> usize {
        self.shared.lock().len()
    }

    /// Every counter reads as zero from now on, in every scope, those of `known` that are counted elsewhere as well; gauges
    /// and histograms stay (Envoy's `/reset_counters`).
    pub fn reset_counters(&self, known: &[KnownScope]) {
        let mut before_reset = self.shared.before_reset();
        before_reset.clear();
        for scope in known.iter().filter(|scope| !scope.counted.is_empty()) {
            let key = Key { set: scope.set.id, prefix: scope.prefix.clone() };
            let before = before_reset.entry(key).or_insert(BeforeReset { set: scope.set, counted: Vec::new() });
            // A scope may be known twice, for different counters.
            before.counted.extend_from_slice(&scope.counted);
        }
        drop(before_reset);
        for scope in self.shared.all() {
            let mut blocks = scope.lock();
            let now = blocks.totals(scope.set);
            let counts = now.cells.iter().zip(scope.set.cells);
            let cells = counts.map(|(n, stat)| if stat.kind.is_counter() { *n } else { 0 }).collect();
            let codes = now.codes.iter().map(|&(family, status, n)| ((family, status), n)).collect();
            blocks.baseline = Some(Baseline { cells, codes });
        }
    }

    /// All scopes that were counted in or are `known`, ascending by [`StatSet::scope_name`]. The counts are read by
    /// and by: workers go on counting meanwhile.
    pub fn read(&self, known: &[KnownScope]) -> Vec<ScopeValues> {
        let mut out: BTreeMap<(String, u32), ScopeValues> = BTreeMap::new();
        let mut companions: HashMap<u32, Vec<(u16, u16)>> = HashMap::new();
        for scope in self.shared.all() {
            let mut blocks = scope.lock();
            let mut values = blocks.totals(scope.set);
            let mut used = blocks.note_used(scope.set, &values);
            let baseline = blocks.baseline.clone();
            drop(blocks);
            if let Some(baseline) = &baseline {
                baseline.subtract(&mut values);
            }
            let companions = companions.entry(scope.set.id).or_insert_with(|| used::companions(scope.set));
            for (gauge, counter) in companions {
                if used.has(*counter as usize) {
                    used.add(*gauge as usize);
                }
            }
            let mut values = values.named(scope.set, scope.prefix.clone(), used);
            values.before_reset = baseline.map(Box::new);
            out.insert((scope.set.scope_name(&scope.prefix), scope.set.id), values);
        }
        let before_reset = self.shared.before_reset();
        for scope in known {
            let before = match before_reset.is_empty() {
                true => None,
                false => before_reset.get(&Key { set: scope.set.id, prefix: scope.prefix.clone() }),
            };
            let key = (scope.set.scope_name(&scope.prefix), scope.set.id);
            let values = out.entry(key).or_insert_with(|| ScopeValues::zeros(scope.set, &scope.prefix));
            values.tags.clone_from(&scope.tags);
            if !scope.computed.is_empty() || !scope.counted.is_empty() {
                values.cells.resize(scope.set.cells.len(), 0);
            }
            for (gauge, value) in &scope.computed {
                debug_assert_eq!(gauge.set, scope.set.id, "a gauge of another set");
                if let Some(cell) = values.cells.get_mut(gauge.cell as usize) {
                    *cell = cell.wrapping_add(*value);
                }
                let name = scope.set.cells.get(gauge.cell as usize).map_or("", |stat| stat.name);
                if used::is_written_when_computed(name) {
                    values.used.add(gauge.cell as usize);
                }
            }
            for (counter, value) in &scope.counted {
                debug_assert_eq!(counter.set, scope.set.id, "a counter of another set");
                let before = before.map_or(0, |before| before.of(*counter));
                if let Some(cell) = values.cells.get_mut(counter.cell as usize) {
                    *cell = cell.wrapping_add(value.saturating_sub(before));
                    values.add_before_reset(counter.cell as usize, before.min(*value));
                }
                if *value > 0 {
                    values.used.add(counter.cell as usize);
                }
            }
        }
        drop(before_reset);
        out.into_values().collect()
    }
}

impl WorkerStats {
    /// The number given to [`Registry::worker`].
    pub fn id(&self) -> u32 {
        self.id
    }

    /// This worker's block for `prefix` in `set`, made now if it has none: hold it where the counting happens, and take
    /// it when something is to be counted, so that an idle scope costs nothing. The prefix is what stands between root
    /// and name: `cluster.<prefix>.upstream_rq_total`; empty where the set has one scope only.
    pub fn block(&self, set: &'static StatSet, prefix: &str) -> Rc<Block> {
        let mut blocks = self.blocks.borrow_mut();
        let of_set = blocks.entry(set.id).or_default();
        if let Some(block) = of_set.get(prefix).and_then(Weak::upgrade) {
            return block;
        }
        of_set.retain(|_, block| block.strong_count() > 0);
        let cells = Arc::new(Cells::new(set));
        let mut scopes = self.shared.lock();
        let key = Key { set: set.id, prefix: prefix.to_string() };
        let scope = scopes.entry(key).or_insert_with(|| Arc::new(Scope::new(set, prefix)));
        let mut list = scope.lock();
        list.removed = false;
        list.live.push(cells.clone());
        drop(list);
        drop(scopes);
        let block = Rc::new(Block::new(prefix, cells, self.shared.clone()));
        of_set.insert(prefix.to_string(), Rc::downgrade(&block));
        block
    }
}

impl ScopeValues {
    /// The value of a counter or gauge, by its cell.
    pub fn cell(&self, cell: usize) -> u64 {
        self.cells.get(cell).copied().unwrap_or(0)
    }

    /// Whether a counter or gauge was ever written, by its number among those that are [shown](StatSet::shown).
    pub fn is_used(&self, cell: usize) -> bool {
        let is_written_zero = || self.set.shown_at(cell).is_some_and(|stat| used::is_written_zero(stat.name));
        self.cell(cell) != 0 || self.used.has(cell) || is_written_zero()
    }

    /// What a counter has counted in all, however often it was reset.
    pub fn ever(&self, cell: usize) -> u64 {
        let before = self.before_reset.as_ref().and_then(|before| before.cells.get(cell));
        self.cell(cell).wrapping_add(before.copied().unwrap_or(0))
    }

    /// The same of one status of a family, of which `n` came since the reset.
    pub fn ever_of_code(&self, family: u16, status: u16, n: u64) -> u64 {
        let before = self.before_reset.as_ref().and_then(|before| before.codes.get(&(family, status)));
        n.wrapping_add(before.copied().unwrap_or(0))
    }

    fn add_before_reset(&mut self, cell: usize, n: u64) {
        if n == 0 {
            return;
        }
        let before = self.before_reset.get_or_insert_default();
        if before.cells.len() <= cell {
            before.cells.resize(cell + 1, 0);
        }
        if let Some(before) = before.cells.get_mut(cell) {
            *before = before.wrapping_add(n);
        }
    }

    /// What a histogram recorded, if anything.
    pub fn histogram(&self, index: usize) -> Option<&Distribution> {
        self.histograms.get(index).filter(|distribution| distribution.count() > 0)
    }
}

/// The list of scopes behind its lock, which is taken before a scope's own.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    scopes: Mutex<HashMap<Key, Arc<Scope>>>,
    /// What [`KnownScope::counted`] was at the last reset. Only readers take this lock, and whoever resets.
    before_reset: Mutex<HashMap<Key, BeforeReset>>,
}

#[derive(Debug)]
struct BeforeReset {
    set: &'static StatSet,
    counted: Vec<(Counter, u64)>,
}

impl BeforeReset {
    fn of(&self, counter: Counter) -> u64 {
        let known = self.counted.iter().find(|(known, _)| known.cell == counter.cell);
        known.map_or(0, |(_, value)| *value)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    set: u32,
    prefix: String,
}

#[derive(Debug)]
struct Scope {
    set: &'static StatSet,
    prefix: String,
    blocks: Mutex<Blocks>,
}

#[derive(Debug, Default)]
struct Blocks {
    live: Vec<Arc<Cells>>,
    /// Gauges that are one for all workers, by their cell.
    whole: Vec<(u16, std::sync::Weak<AtomicU64>)>,
    retired: Option<Box<Totals>>,
    baseline: Option<Baseline>,
    /// Gauges that some reader saw at more than zero.
    seen: Used,
    /// Not configured any more; goes with its last block.
    removed: bool,
}

/// What counters read when they were last reset; zero for gauges.
#[derive(Debug, Clone, Default)]
struct Baseline {
    cells: Vec<u64>,
    codes: HashMap<(u16, u16), u64>,
}

/// Sums over blocks.
#[derive(Debug, Clone)]
struct Totals {
    cells: Vec<u64>,
    histograms: Vec<Distribution>,
    codes: Vec<(u16, u16, u64)>,
}

impl Shared {
    fn before_reset(&self) -> MutexGuard<'_, HashMap<Key, BeforeReset>> {
        self.before_reset.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread that panicked with the lock held left whole scopes behind: every change is one insertion or removal.
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<Scope>>> {
        self.scopes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all(&self) -> Vec<Arc<Scope>> {
        self.lock().values().cloned().collect()
    }

    /// A block has ended: its counts go to the scope's totals, or with the scope if that was waiting for it.
    pub(crate) fn retire(&self, prefix: &str, cells: &Arc<Cells>) {
        let mut scopes = self.lock();
        let key = Key { set: cells.set.id, prefix: prefix.to_string() };
        let Some(scope) = scopes.get(&key).cloned() else { return };
        let mut blocks = scope.lock();
        blocks.live.retain(|other| !Arc::ptr_eq(other, cells));
        if blocks.removed && blocks.live.is_empty() {
            scopes.remove(&key);
            return;
        }
        drop(scopes);
        let retired = blocks.retired.get_or_insert_with(|| Box::new(Totals::new(cells.set)));
        retired.merge(cells, false);
    }

    /// A counter of the scope of `cells`, over all workers.
    pub(crate) fn total(&self, prefix: &str, cells: &Arc<Cells>, cell: usize) -> u64 {
        let Some(scope) = self.of(prefix, cells) else { return cells.value(cell) };
        let blocks = scope.lock();
        let live = blocks.live.iter().fold(0, |sum: u64, cells| sum.wrapping_add(cells.value(cell)));
        let at = |cells: &[u64]| cells.get(cell).copied().unwrap_or(0);
        let retired = blocks.retired.as_ref().map_or(0, |totals| at(&totals.cells));
        let baseline = blocks.baseline.as_ref().map_or(0, |baseline| at(&baseline.cells));
        live.wrapping_add(retired).wrapping_sub(baseline)
    }

    /// The one gauge of that cell of the scope of `cells`.
    pub(crate) fn whole_gauge(&self, prefix: &str, cells: &Arc<Cells>, cell: u16) -> Arc<AtomicU64> {
        let Some(scope) = self.of(prefix, cells) else { return Arc::default() };
        let mut blocks = scope.lock();
        let known = blocks.whole.iter().find(|(of, _)| *of == cell).and_then(|(_, gauge)| gauge.upgrade());
        known.unwrap_or_else(|| {
            let gauge = Arc::new(AtomicU64::new(0));
            blocks.whole.retain(|(_, gauge)| gauge.strong_count() > 0);
            blocks.whole.push((cell, Arc::downgrade(&gauge)));
            gauge
        })
    }

    fn of(&self, prefix: &str, cells: &Arc<Cells>) -> Option<Arc<Scope>> {
        self.lock().get(&Key { set: cells.set.id, prefix: prefix.to_string() }).cloned()
    }
}

impl Scope {
    fn new(set: &'static StatSet, prefix: &str) -> Self {
        Self { set, prefix: prefix.to_string(), blocks: Mutex::default() }
    }

    /// As for [`Shared::lock`]: a panic cannot leave half a list.
    fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Blocks {
    fn totals(&self, set: &'static StatSet) -> Totals {
        let mut totals = self.retired.as_deref().cloned().unwrap_or_else(|| Totals::new(set));
        self.live.iter().for_each(|cells| totals.merge(cells, true));
        for (cell, gauge) in &self.whole {
            totals.add(*cell as usize, gauge.upgrade().map_or(0, |gauge| gauge.load(Relaxed)));
        }
        totals
    }

    /// Which cells were ever written, as far as these sums tell, which are without a baseline.
    fn note_used(&mut self, set: &'static StatSet, totals: &Totals) -> Used {
        let written = totals.cells.iter().zip(set.cells).enumerate().filter(|(_, (value, _))| **value != 0);
        let written: Vec<(usize, bool)> = written.map(|(at, (_, stat))| (at, stat.kind.is_counter())).collect();
        written.iter().filter(|(_, is_counter)| !is_counter).for_each(|(at, _)| self.seen.add(*at));
        let mut used = self.seen.clone();
        written.iter().for_each(|(at, _)| used.add(*at));
        used
    }
}

impl Totals {
    fn new(set: &'static StatSet) -> Self {
        Self {
            cells: vec![0; set.cells.len()],
            histograms: vec![Distribution::default(); set.histograms.len()],
            codes: Vec::new(),
        }
    }

    /// A gauge counts what is there: a block that ended holds nothing any more.
    fn merge(&mut self, block: &Cells, gauges: bool) {
        let sums = block.set.sums;
        for (at, stat) in block.set.cells.iter().enumerate() {
            let value = block.value(at);
            match (stat.kind, self.cells.get_mut(at)) {
                (Kind::Counter | Kind::LazyCounter, _) => {
                    self.add(at, value);
                    self.add_all(&sums(Part::Counter(at as u16)), value);
                }
                (Kind::Gauge, Some(total)) if gauges => *total = total.wrapping_add(value),
                (Kind::Flag, Some(total)) if gauges => *total = (*total).max(value),
                (Kind::Gauge | Kind::Flag, _) => {}
            }
        }
        for at in 0..self.histograms.len() {
            let sum = sums(Part::Histogram(at as u16)).histogram.map(|sum| sum.index as usize);
            for into in [Some(at), sum].into_iter().flatten() {
                if let Some(total) = self.histograms.get_mut(into) {
                    block.merge_histogram(at, total);
                }
            }
        }
        for (family, status, n) in block.codes() {
            if block.set.shows_codes(family) {
                self.add_code(family, status, n);
            }
            let sums = sums(Part::Code(family, status));
            if let Some(family) = sums.family {
                self.add_code(family.index, status, n);
            }
            self.add_all(&sums, n);
        }
    }

    fn add(&mut self, cell: usize, n: u64) {
        if let Some(total) = self.cells.get_mut(cell) {
            *total = total.wrapping_add(n);
        }
    }

    fn add_all(&mut self, sums: &Sums, n: u64) {
        sums.counters.iter().flatten().for_each(|counter| self.add(counter.cell as usize, n));
    }

    fn add_code(&mut self, family: u16, status: u16, n: u64) {
        let place = self.codes.partition_point(|&(f, s, _)| (f, s) < (family, status));
        match self.codes.get_mut(place) {
            Some((f, s, total)) if (*f, *s) == (family, status) => *total = total.wrapping_add(n),
            _ => self.codes.insert(place, (family, status, n)),
        }
    }

    fn named(mut self, set: &'static StatSet, prefix: String, used: Used) -> ScopeValues {
        if self.histograms.iter().all(|distribution| distribution.count() == 0) {
            self.histograms = Vec::new();
        }
        let Self { cells, histograms, codes, .. } = self;
        ScopeValues { set, prefix, cells, histograms, codes, tags: None, used, before_reset: None }
    }
}

impl Baseline {
    fn subtract(&self, values: &mut Totals) {
        for (value, base) in values.cells.iter_mut().zip(&self.cells) {
            *value = value.wrapping_sub(*base);
        }
        for (family, status, n) in &mut values.codes {
            *n = n.wrapping_sub(self.codes.get(&(*family, *status)).copied().unwrap_or(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::sets::{cluster, count_upstream_response, http};

    fn value(registry: &Registry, prefix: &str, name: &str) -> Option<u64> {
        let scopes = registry.read(&[]);
        let scope = scopes.iter().find(|scope| scope.prefix == prefix)?;
        Some(scope.cell(scope.set.cells.iter().position(|stat| stat.name == name)?))
    }

    #[test]
    fn workers_are_added_up_and_a_flag_is_not() {
        let registry = Registry::new();
        let (one, two) = (registry.worker(1), registry.worker(2));
        let (a, b) = (one.block(&cluster::SET, "x"), two.block(&cluster::SET, "x"));
        a.add(cluster::UPSTREAM_RQ_TOTAL, 3);
        b.inc(cluster::UPSTREAM_RQ_TOTAL);
        a.gauge_inc(cluster::UPSTREAM_CX_ACTIVE);
        // Opened by one worker, closed by another: the sum counts.
        b.gauge_dec(cluster::UPSTREAM_CX_ACTIVE);
        a.gauge_set(cluster::CIRCUIT_BREAKERS_DEFAULT_CX_OPEN, 1);
        b.gauge_set(cluster::CIRCUIT_BREAKERS_DEFAULT_CX_OPEN, 1);
        assert_eq!(value(&registry, "x", "upstream_rq_total"), Some(4));
        assert_eq!(value(&registry, "x", "upstream_cx_active"), Some(0));
        assert_eq!(value(&registry, "x", "circuit_breakers.default.cx_open"), Some(1));
    }

    #[test]
    fn one_worker_has_one_block_for_a_scope() {
        let registry = Registry::new();
        let worker = registry.worker(1);
        let (a, b) = (worker.block(&http::SET, "x"), worker.block(&http::SET, "x"));
        assert!(Rc::ptr_eq(&a, &b));
        assert!(!Rc::ptr_eq(&a, &worker.block(&http::SET, "y")));
        assert!(!Rc::ptr_eq(&a, &worker.block(&cluster::SET, "x")));
    }

    #[test]
    fn counts_outlive_their_worker_and_gauges_do_not() {
        let registry = Registry::new();
        let worker = registry.worker(1);
        let block = worker.block(&cluster::SET, "x");
        block.add(cluster::UPSTREAM_RQ_TOTAL, 5);
        block.gauge_inc(cluster::UPSTREAM_RQ_ACTIVE);
        block.record(cluster::UPSTREAM_CX_LENGTH_MS, 7);
        count_upstream_response(&block, 404, false);
        drop(block);
        let again = worker.block(&cluster::SET, "x");
        again.inc(cluster::UPSTREAM_RQ_TOTAL);
        count_upstream_response(&again, 404, false);
        let scope = registry.read(&[]).pop().unwrap();
        assert_eq!(value(&registry, "x", "upstream_rq_total"), Some(6));
        assert_eq!(value(&registry, "x", "upstream_rq_active"), Some(0));
        assert_eq!(scope.codes, [(0, 404, 2), (2, 404, 2)]);
        let length = cluster::SET.histograms.iter().position(|h| h.name == "upstream_cx_length_ms").unwrap();
        assert_eq!(scope.histogram(length).map(Distribution::sum), Some(7));
    }

    #[test]
    fn a_clone_of_a_workers_access_gives_the_same_blocks() {
        let worker = Registry::new().worker(1);
        let (one, other) = (worker.block(&cluster::SET, "x"), worker.clone().block(&cluster::SET, "x"));
        assert!(Rc::ptr_eq(&one, &other));
    }

    #[test]
    fn a_removed_scope_is_freed_once_nobody_counts_in_it() {
        let registry = Registry::new();
        let worker = registry.worker(1);
        let (x, y) = (worker.block(&cluster::SET, "x"), worker.block(&cluster::SET, "y"));
        drop(x);
        assert_eq!(registry.scopes(), 2, "its totals are kept while the cluster lives");
        registry.remove(&cluster::SET, "x");
        registry.remove(&cluster::SET, "y");
        assert_eq!(registry.scopes(), 1, "the last connection of y still counts");
        drop(y);
        assert_eq!(registry.scopes(), 0);
    }

    #[test]
    fn a_reset_zeroes_counters_only() {
        let registry = Registry::new();
        let worker = registry.worker(1);
        let block = worker.block(&cluster::SET, "x");
        block.add(cluster::UPSTREAM_RQ_TOTAL, 5);
        block.gauge_inc(cluster::UPSTREAM_RQ_ACTIVE);
        count_upstream_response(&block, 200, true);
        registry.reset_counters(&[]);
        assert_eq!(value(&registry, "x", "upstream_rq_total"), Some(0));
        assert_eq!(value(&registry, "x", "upstream_rq_active"), Some(1));
        block.inc(cluster::UPSTREAM_RQ_TOTAL);
        count_upstream_response(&block, 200, true);
        assert_eq!(value(&registry, "x", "upstream_rq_total"), Some(1));
        assert_eq!(registry.read(&[])[0].codes, [(1, 200, 1), (2, 200, 1)]);
        drop(block);
        assert_eq!(value(&registry, "x", "upstream_rq_total"), Some(1), "the baseline outlives the block");
    }

    #[test]
    fn a_reset_zeroes_what_is_counted_elsewhere() {
        let registry = Registry::new();
        let known = |changes| {
            let mut known = KnownScope::new(&cluster::SET, "x");
            known.counted.push((cluster::MEMBERSHIP_CHANGE, changes));
            [known]
        };
        let read = |changes| registry.read(&known(changes))[0].counter(cluster::MEMBERSHIP_CHANGE);
        let block = registry.worker(1).block(&cluster::SET, "x");
        block.inc(cluster::MEMBERSHIP_CHANGE);
        assert_eq!(read(1), 2);
        registry.reset_counters(&known(1));
        assert_eq!(read(1), 0);
        block.inc(cluster::MEMBERSHIP_CHANGE);
        assert_eq!((read(1), read(2)), (1, 2));
        registry.retain(|_, _| false);
        assert_eq!(read(1), 2, "a new cluster of that name begins anew");
    }

    #[test]
    fn known_scopes_read_as_zero_and_carry_computed_gauges() {
        let registry = Registry::new();
        let mut known = KnownScope::new(&cluster::SET, "idle");
        known.computed.push((cluster::MEMBERSHIP_TOTAL, 3));
        let scopes = registry.read(&[known, KnownScope::new(&http::SET, "front")]);
        assert_eq!(scopes.iter().map(|scope| scope.prefix.as_str()).collect::<Vec<_>>(), ["idle", "front"]);
        assert_eq!(scopes[0].cell(cluster::MEMBERSHIP_TOTAL.cell as usize), 3);
        assert_eq!(scopes[1].cells.len(), 0, "an idle scope costs nothing to read");
        assert_eq!(registry.scopes(), 0);
    }

    #[test]
    fn a_counters_total_is_what_readers_see() {
        let registry = Registry::new();
        let (one, two) = (registry.worker(1), registry.worker(2));
        let (a, b) = (one.block(&cluster::SET, "x"), two.block(&cluster::SET, "x"));
        a.add(cluster::UPSTREAM_RQ_TOTAL, 3);
        b.inc(cluster::UPSTREAM_RQ_TOTAL);
        assert_eq!((a.total(cluster::UPSTREAM_RQ_TOTAL), b.total(cluster::UPSTREAM_RQ_TOTAL)), (4, 4));
        drop(a);
        assert_eq!(b.total(cluster::UPSTREAM_RQ_TOTAL), 4);
        registry.reset_counters(&[]);
        b.inc(cluster::UPSTREAM_RQ_TOTAL);
        assert_eq!(b.total(cluster::UPSTREAM_RQ_TOTAL), 1);
        assert_eq!(value(&registry, "x", "upstream_rq_total"), Some(1));
    }

    #[test]
    fn a_gauge_that_is_one_for_all_workers_is_not_added_up() {
        let registry = Registry::new();
        let (one, two) = (registry.worker(1), registry.worker(2));
        let (a, b) = (one.block(&cluster::SET, "x"), two.block(&cluster::SET, "x"));
        let [of_a, of_b] = [&a, &b].map(|block| block.whole_gauge(cluster::UPSTREAM_CX_ACTIVE));
        of_a.store(7, Relaxed);
        of_b.store(7, Relaxed);
        assert_eq!(value(&registry, "x", "upstream_cx_active"), Some(7));
        drop((a, of_a));
        assert_eq!(value(&registry, "x", "upstream_cx_active"), Some(7), "another one has it");
        drop(of_b);
        assert_eq!(value(&registry, "x", "upstream_cx_active"), Some(0));
        assert_eq!(b.whole_gauge(cluster::UPSTREAM_CX_ACTIVE).load(Relaxed), 0);
    }

    #[test]
    fn readers_and_a_writer_do_not_disturb_each_other() {
        let registry = Registry::new();
        let reader = registry.clone();
        let worker = registry.worker(1);
        let block = worker.block(&cluster::SET, "x");
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut last = 0;
                while last < 100_000 {
                    let now = value(&reader, "x", "upstream_rq_total").unwrap_or(0);
                    assert!(now >= last, "a counter never falls");
                    last = now;
                }
            });
            (0..100_000).for_each(|_| block.inc(cluster::UPSTREAM_RQ_TOTAL));
        });
    }
}
