//! Statistics that plugins name themselves.
//!
//! Counters and histograms are each worker's to count, and are added up when somebody reads them, a plugin too. A gauge is one
//! for all workers: two that set it to 7 make 7.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use postrider_telemetry::stats::{Given, HistogramStat, Kind, Stat, StatSet, Unit, construct};
use postrider_telemetry::{Block, WorkerStats, warning};

/// Most statistics that plugins of this process may name: each costs a little memory for good.
const MAX_NAMED: usize = 10_000;

/// Most of these that may stand behind one prefix, so that no plugin takes them all, however often it is reloaded.
const MAX_BEHIND_PREFIX: usize = MAX_NAMED / 2;

/// Most statistics of one [`Allowance`]: a plugin that puts what clients send into names is to leave others theirs.
pub const MAX_ALLOWED: usize = 1_000;

/// The statistics that one plugin may name on all workers together, as long as its configuration is in force.
#[derive(Debug, Default)]
pub struct Allowance {
    names: Mutex<HashSet<(Sort, String)>>,
    is_told: AtomicBool,
}

/// The statistics that one plugin named on one worker.
pub struct Metrics {
    stats: WorkerStats,
    /// Stands before the names: `rider.<plugin>`.
    prefix: String,
    /// Tells runtimes apart.
    runtime: &'static str,
    /// Prometheus reads them under their own names.
    bare: bool,
    allowance: Option<Arc<Allowance>>,
    named: RefCell<Vec<Named>>,
    by_name: RefCell<HashMap<String, Vec<(Sort, usize)>>>,
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
        let (named, by_name) = (RefCell::default(), RefCell::default());
        Metrics { stats: stats.clone(), prefix, runtime, bare: false, allowance: None, named, by_name }
    }

    /// No more than this allows, which the other workers use as well.
    #[must_use]
    pub fn within(mut self, allowance: &Arc<Allowance>) -> Metrics {
        self.allowance = Some(allowance.clone());
        self
    }

    /// Prometheus reads them under their own names, as in Envoy; not those of a part of the configuration.
    #[must_use]
    pub fn under_own_names(mut self) -> Metrics {
        self.bare = !self.prefix.contains('.');
        self
    }

    /// A number for it, from 1, the same for the same name. `None` when there are too many.
    pub fn define(&self, sort: Sort, name: &str) -> Option<usize> {
        self.define_with(sort, name, &[])
    }

    /// The same of one with labels. In its name they stand behind it, each with its value.
    pub fn define_with(&self, sort: Sort, name: &str, labels: &[(&str, &str)]) -> Option<usize> {
        let mut key = name.to_owned();
        labels.iter().for_each(|(label, value)| key.extend([".", label, ".", value]));
        let known = |of_name: &Vec<(Sort, usize)>| of_name.iter().find(|(known, _)| *known == sort).map(|(_, id)| *id);
        if let Some(known) = self.by_name.borrow().get(&key).and_then(known) {
            return Some(known);
        }
        if self.allowance.as_ref().is_some_and(|allowance| !allowance.takes(sort, &key, &self.prefix)) {
            return None;
        }
        let set = set_of(sort, self.runtime, (&self.prefix, self.bare), &key, labels)?;
        let scope = self.prefix.split_once('.').map_or("", |(_, scope)| scope);
        let block = self.stats.block(set, scope);
        let gauge = (sort == Sort::Gauge).then(|| block.whole_gauge(construct::gauge(0, set.id)));
        let mut named = self.named.borrow_mut();
        named.push(Named { sort, block, gauge });
        self.by_name.borrow_mut().entry(key).or_default().push((sort, named.len()));
        Some(named.len())
    }

    /// Whether there is one of this name already that counts in another way.
    pub fn is_of_other_sort(&self, sort: Sort, name: &str) -> bool {
        self.by_name.borrow().get(name).is_some_and(|known| known.iter().all(|(known, _)| *known != sort))
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

impl Allowance {
    /// Whether a statistic of this name is within it. The first one that is not is told.
    fn takes(&self, sort: Sort, name: &str, prefix: &str) -> bool {
        // A panic with the lock held leaves a whole set behind.
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (sort, name.to_owned());
        if names.contains(&key) {
            return true;
        }
        if names.len() < MAX_ALLOWED {
            return names.insert(key);
        }
        if !self.is_told.swap(true, Relaxed) {
            warning!(
                Filter,
                "`{prefix}` has named {MAX_ALLOWED} statistics, the most that one plugin may: `{name}` and all further ones are refused"
            );
        }
        false
    }
}

/// The sets of the process, which are never given back.
#[derive(Default)]
struct Sets {
    /// By kind, runtime, root and name.
    all: HashMap<(Sort, &'static str, bool, String, String), &'static StatSet>,
    /// How many were made for a runtime and prefix.
    made_for: HashMap<(&'static str, String), usize>,
    /// Whether it was told that there can be no more: of all, and of a runtime and prefix.
    is_full_told: bool,
    told: HashSet<(&'static str, String)>,
}

impl Sets {
    /// Whether one more may be made, which is told the first time that it may not.
    fn takes(&mut self, runtime: &'static str, prefix: &str, name: &str) -> bool {
        if self.all.len() >= MAX_NAMED {
            if !std::mem::replace(&mut self.is_full_told, true) {
                warning!(
                    Filter,
                    "plugins have named {MAX_NAMED} statistics, the most that there can be: `{name}` of `{prefix}` and all further ones are refused until a new start"
                );
            }
            return false;
        }
        let made = self.made_for.entry((runtime, prefix.to_owned())).or_default();
        if *made >= MAX_BEHIND_PREFIX {
            if self.told.insert((runtime, prefix.to_owned())) {
                warning!(
                    Filter,
                    "`{prefix}` has named {MAX_BEHIND_PREFIX} statistics since the start, half of those that there can be: `{name}` and all further ones are refused until a new start"
                );
            }
            return false;
        }
        *made += 1;
        true
    }
}

/// The set of one statistic, made once for the process. Its labels are at the end of its name, too.
fn set_of(
    sort: Sort,
    runtime: &'static str,
    (prefix, bare): (&str, bool),
    name: &str,
    labels: &[(&str, &str)],
) -> Option<&'static StatSet> {
    static SETS: Mutex<Option<Sets>> = Mutex::new(None);
    // A panic with the lock held leaves a whole map behind.
    let mut sets = SETS.lock().unwrap_or_else(PoisonError::into_inner);
    let sets = sets.get_or_insert_default();
    let root = prefix.split('.').next().unwrap_or_default();
    let key = (sort, runtime, bare, root.to_owned(), name.to_owned());
    if let Some(known) = sets.all.get(&key) {
        return Some(known);
    }
    if !sets.takes(runtime, prefix, name) {
        return None;
    }
    let unique = format!("{runtime}::{bare}::{sort:?}::{root}::{name}");
    let leak = |text: &str| -> &'static str { text.to_owned().leak() };
    let name = leak(name);
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
        given: Given {
            bare,
            labels: labels.iter().map(|(label, value)| (leak(label), leak(value))).collect::<Vec<_>>().leak(),
            tail: labels.iter().map(|(label, value)| label.len() + value.len() + 2).sum(),
        },
        id: construct::set_id(&unique),
    }));
    sets.all.insert(key, set);
    Some(set)
}

#[cfg(test)]
mod tests {
    use postrider_telemetry::Registry;
    use postrider_telemetry::render::{PrometheusForm, Query, TagRule, TagValue, Tagger, prometheus};

    use super::*;

    #[test]
    fn prometheus_reads_own_names_with_their_labels() {
        let registry = Registry::new();
        let worker = registry.worker(0);
        let bare = Metrics::new(&worker, "custom".to_owned(), "test").under_own_names();
        let below = Metrics::new(&worker, "listener.a.custom".to_owned(), "test").under_own_names();
        for metrics in [&bare, &below] {
            let ids = [
                metrics.define_with(Sort::Counter, "seen", &[("kind", "a"), ("way", "b.c")]),
                metrics.define_with(Sort::Counter, "seen", &[("kind", "d"), ("way", "e")]),
                metrics.define(Sort::Counter, "own.word"),
                metrics.define(Sort::Counter, "2many"),
            ];
            for id in ids {
                metrics.with(id.unwrap(), |named| named.add(3)).unwrap();
            }
        }
        let told = |rules: Vec<TagRule>| {
            let tagger = Tagger { rules, ..Tagger::default() };
            let chunks = prometheus(registry.read(&[]), Query::default(), tagger, PrometheusForm::Text);
            String::from_utf8(chunks.flatten().collect()).unwrap()
        };
        let of_both = told(Vec::new());
        for line in [
            r#"seen{kind="a",way="b.c"} 3"#,
            r#"seen{kind="d",way="e"} 3"#,
            "own_word{} 3",
            r#"envoy_listener_custom_own_word{envoy_listener_address="a"} 3"#,
        ] {
            assert!(of_both.lines().any(|told| told == line), "{line} is not in\n{of_both}");
        }
        assert_eq!(of_both.matches("# TYPE seen counter").count(), 1, "{of_both}");
        // A name cannot begin with a digit there.
        assert!(!of_both.lines().any(|line| line.starts_with('2')), "{of_both}");
        let fleet = TagRule { name: "fleet".to_owned(), value: TagValue::Fixed("blue".to_owned()), rooted: false };
        let tagged = told(vec![fleet]);
        assert!(tagged.contains(r#"own_word{fleet="blue"} 3"#), "{tagged}");
        assert!(tagged.contains(r#"seen{kind="a",way="b.c"} 3"#), "{tagged}");
    }

    #[test]
    fn one_plugin_does_not_take_all_names_of_statistics() {
        let registry = Registry::new();
        let workers = [registry.worker(0), registry.worker(1)];
        let allowance = Arc::default();
        let greedy =
            workers.each_ref().map(|worker| Metrics::new(worker, "greedy.g".to_owned(), "t").within(&allowance));
        let [first, second] = &greedy;
        for n in 0..MAX_ALLOWED {
            assert!(first.define(Sort::Counter, &format!("n{n}")).is_some(), "{n}");
        }
        assert_eq!(first.define(Sort::Counter, "more"), None);
        // What one worker named the other may, too, and no more.
        assert_eq!((second.define(Sort::Counter, "n0"), second.define(Sort::Counter, "more")), (Some(1), None));
        assert!(allowance.is_told.load(Relaxed));
        // Another configuration of it begins anew, and other plugins have their own.
        let next = Metrics::new(&workers[0], "greedy.g".to_owned(), "t").within(&Arc::default());
        assert!(next.define(Sort::Counter, "more").is_some());
        let poor = Metrics::new(&workers[0], "greedy.poor".to_owned(), "t").within(&Arc::default());
        assert!(poor.define(Sort::Counter, "mine").is_some());
    }

    #[test]
    fn what_is_made_for_one_prefix_has_an_end() {
        let mut sets = Sets::default();
        assert!((0..MAX_BEHIND_PREFIX).all(|_| sets.takes("t", "greedy", "n")));
        assert!(!sets.takes("t", "greedy", "n") && sets.takes("t", "poor", "mine"));
    }

    #[test]
    fn a_name_knows_its_sort() {
        let worker = Registry::new().worker(0);
        let metrics = Metrics::new(&worker, "sorts.p".to_owned(), "t");
        metrics.define(Sort::Counter, "c").unwrap();
        assert!(metrics.is_of_other_sort(Sort::Gauge, "c") && !metrics.is_of_other_sort(Sort::Counter, "c"));
        assert!(!metrics.is_of_other_sort(Sort::Gauge, "d"));
    }

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
