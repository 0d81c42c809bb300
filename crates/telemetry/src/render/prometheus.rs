//! The Prometheus text format with Envoy's metric names and labels.
//!
//! Metrics in the order of their names: counters, then gauges, then histograms; the series of a metric in the order of their
//! full stat names.

use super::number::general;
use super::series::{At, Scope, Scopes, Series};
use super::tagged::tagged;
use super::tagger::Tagger;
use super::tags::Cut;
use super::{CHUNK_BYTES, Query, tags};
use crate::stats::{DEFAULT_BOUNDS, Kind, QUANTILES, ScopeValues, StatSet};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

/// The two forms in which Prometheus reads metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PrometheusForm {
    #[default]
    Text,
    /// Each metric is a `MetricFamily` behind its length.
    Protobuf,
}

/// Streams `values` as metrics named `envoy_…`.
pub fn prometheus(
    values: Vec<ScopeValues>,
    query: Query,
    tagger: Tagger,
    form: PrometheusForm,
) -> Box<dyn Iterator<Item = Vec<u8>> + Send> {
    if form == PrometheusForm::Protobuf || !tagger.is_plain() {
        return Box::new(tagged(values, query, tagger, form));
    }
    let scopes = Scopes::new(values);
    let (families, entries, labels) = plan(&scopes);
    let mut family_of = vec![0; scopes.scopes.len()];
    for (at, family) in families.iter().enumerate() {
        family.scopes.iter().for_each(|scope| family_of[*scope as usize] = at as u32);
    }
    let name = String::new();
    Box::new(Prometheus { scopes, query, labels, families, family_of, entries, next: 0, current: None, name })
}

struct Prometheus {
    scopes: Scopes,
    query: Query,
    /// By scope.
    labels: Vec<String>,
    families: Vec<Family>,
    /// By scope.
    family_of: Vec<u32>,
    /// Sorted; neighbours with one name are one metric.
    entries: Vec<Entry>,
    next: usize,
    current: Option<Current>,
    name: String,
}

/// The metric that is being written: a chunk may end within it, so that none grows with the number of scopes.
struct Current {
    metric: String,
    kind: Type,
    /// Whether its first line is written.
    typed: bool,
    series: std::vec::IntoIter<At>,
}

/// Scopes whose names differ in labels only, so that they share all metrics.
struct Family {
    /// The name without labels, with a closing dot.
    rest: String,
    forms: Arc<Forms>,
    /// Ascending by name.
    scopes: Vec<u32>,
}

/// The names of a set's stats without the labels that are in them.
struct Forms {
    set: &'static StatSet,
    cells: Vec<String>,
    codes: Vec<String>,
    histograms: Vec<String>,
    /// Those that have labels of their own besides a status.
    labelled: Labelled,
}

/// Numbers of cells and histograms, and what leaves their names.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Labelled {
    cells: BTreeMap<u16, Vec<Range<usize>>>,
    histograms: BTreeMap<u16, Vec<Range<usize>>>,
}

/// One stat of a family.
#[derive(Debug, Clone, Copy)]
struct Entry {
    kind: Type,
    family: u32,
    stat: Stat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Type {
    Counter,
    Gauge,
    Histogram,
}

#[derive(Debug, Clone, Copy)]
enum Stat {
    Cell(u16),
    Codes(u16),
    Histogram(u16),
}

fn plan(scopes: &Scopes) -> (Vec<Family>, Vec<Entry>, Vec<String>) {
    let mut forms: HashMap<(u32, Labelled), Arc<Forms>> = HashMap::new();
    let mut families: BTreeMap<(String, u32), Vec<u32>> = BTreeMap::new();
    let mut labels = Vec::new();
    for (at, scope) in scopes.scopes.iter().enumerate() {
        let set = scope.values.set;
        let cuts = tags::scope(&scope.name);
        let own = scope.values.tags.as_deref();
        labels.push(labels_of(&scope.name, &cuts, scope));
        let gone = cuts.iter().map(|cut| cut.gone.clone()).chain(own.map(|own| tags::tail(&scope.name, own)));
        families.entry((tags::remove(&scope.name, gone.collect()), set.id)).or_default().push(at as u32);
    }
    let named = families.into_iter().filter_map(|((rest, _), of_family)| {
        // What is a label within the name of one is so in that of each: only what left their names differs.
        let first = scopes.scopes.get(*of_family.first()? as usize)?;
        let set = first.values.set;
        let labelled = Labelled::new(&first.name, set);
        let forms = forms.entry((set.id, labelled)).or_insert_with_key(|(_, it)| Arc::new(Forms::new(set, it.clone())));
        Some(Family { rest, forms: forms.clone(), scopes: of_family })
    });
    let families: Vec<Family> = named.collect();
    let mut entries = Vec::new();
    for (at, family) in families.iter().enumerate() {
        let set = family.forms.set;
        let mut add = |kind, stat| entries.push(Entry { kind, family: at as u32, stat });
        for (cell, stat) in set.shown().enumerate() {
            let kind = if stat.kind.is_counter() { Type::Counter } else { Type::Gauge };
            add(kind, Stat::Cell(cell as u16));
        }
        let shown = (0..set.codes.len() as u16).filter(|family| set.shows_codes(*family));
        shown.for_each(|family| add(Type::Counter, Stat::Codes(family)));
        (0..set.histograms.len()).for_each(|at| add(Type::Histogram, Stat::Histogram(at as u16)));
    }
    entries.sort_by(|a, b| order(&families, a, b));
    (families, entries, labels)
}

/// By kind, then by the name without labels.
fn order(families: &[Family], a: &Entry, b: &Entry) -> Ordering {
    let name = |entry: &Entry| {
        let family = &families[entry.family as usize];
        (family.rest.as_bytes(), family.forms.stem(entry.stat).as_bytes())
    };
    let ((rest_a, stem_a), (rest_b, stem_b)) = (name(a), name(b));
    let names = || rest_a.iter().chain(stem_a).cmp(rest_b.iter().chain(stem_b));
    a.kind.cmp(&b.kind).then_with(|| if rest_a == rest_b { stem_a.cmp(stem_b) } else { names() })
}

impl Forms {
    fn new(set: &'static StatSet, labelled: Labelled) -> Self {
        let without = |(at, stem): (usize, &str), gone: &BTreeMap<u16, Vec<Range<usize>>>| {
            let status = tags::status(stem).map(|cut| cut.gone);
            tags::remove(stem, gone.get(&(at as u16)).cloned().unwrap_or_else(|| status.into_iter().collect()))
        };
        let cells = set.shown().map(|stat| set.given.plain(stat.name)).enumerate();
        let histograms = set.histograms.iter().map(|stat| set.given.plain(stat.name)).enumerate();
        Self {
            set,
            cells: cells.map(|named| without(named, &labelled.cells)).collect(),
            codes: set.codes.iter().map(|stem| stem.strip_suffix('_').unwrap_or(stem).to_owned()).collect(),
            histograms: histograms.map(|named| without(named, &labelled.histograms)).collect(),
            labelled,
        }
    }

    fn stem(&self, stat: Stat) -> &str {
        match stat {
            Stat::Cell(at) => &self.cells[at as usize],
            Stat::Codes(at) => &self.codes[at as usize],
            Stat::Histogram(at) => &self.histograms[at as usize],
        }
    }
}

impl Labelled {
    /// Those of a set in a scope with this name.
    fn new(scope: &str, set: &'static StatSet) -> Self {
        // An extension's own labels are all that there are.
        if !set.given.labels.is_empty() {
            return Self::default();
        }
        let mut name = String::new();
        let mut of_stem = |(at, stem): (usize, &str)| {
            // A label is one of several parts.
            if !stem.contains('.') {
                return None;
            }
            name.clear();
            name.extend([scope, stem]);
            let within = |cut: &Cut| cut.value.end > scope.len();
            let cuts: Vec<Cut> = tags::cuts(&name).into_iter().filter(within).collect();
            if cuts.is_empty() || (cuts.len() == 1 && tags::status(stem).is_some()) {
                return None;
            }
            let part = |cut: Cut| cut.gone.start.saturating_sub(scope.len())..cut.gone.end - scope.len();
            Some((at as u16, cuts.into_iter().map(part).collect()))
        };
        let histograms = set.histograms.iter().map(|stat| stat.name).enumerate();
        Self {
            cells: set.shown().map(|stat| stat.name).enumerate().filter_map(&mut of_stem).collect(),
            histograms: histograms.filter_map(&mut of_stem).collect(),
        }
    }

    fn has(&self, series: Series) -> bool {
        match series {
            Series::Cell(at) => self.cells.contains_key(&at),
            Series::Histogram(at) => self.histograms.contains_key(&at),
            Series::Code(_) => false,
        }
    }
}

impl Iterator for Prometheus {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(CHUNK_BYTES + CHUNK_BYTES / 4);
        while out.len() < CHUNK_BYTES {
            let Some(at) = self.current.as_mut().and_then(|current| current.series.next()) else {
                let Some(next) = self.next_metric() else { break };
                self.current = Some(next);
                continue;
            };
            self.series_at(at, &mut out);
        }
        (!out.is_empty()).then_some(out)
    }
}

impl Prometheus {
    fn next_metric(&mut self) -> Option<Current> {
        let (start, first, metric) = loop {
            let start = self.next;
            let first = *self.entries.get(start)?;
            let family = &self.families[first.family as usize];
            let name = [family.rest.as_str(), family.forms.stem(first.stat)].concat();
            match metric_name(&name, family.forms.set) {
                Some(metric) => break (start, first, metric),
                None => self.next += 1,
            }
        };
        let same = |entry: &&Entry| order(&self.families, &first, entry) == Ordering::Equal;
        self.next += self.entries[start..].iter().take_while(same).count();
        let entries = &self.entries[start..self.next];
        let mut series: Vec<At> = entries.iter().flat_map(|entry| self.series(*entry)).collect();
        // The scopes of a family are in order.
        if entries.len() > 1 || matches!(first.stat, Stat::Codes(_)) {
            series.sort_by(|a, b| self.scopes.order(*a, *b));
        }
        Some(Current { metric, kind: first.kind, typed: false, series: series.into_iter() })
    }

    fn series_at(&mut self, at: At, out: &mut Vec<u8>) {
        let Some(mut current) = self.current.take() else { return };
        if self.query.filter.is_some() || (self.query.bounds.is_some() && current.kind == Type::Histogram) {
            self.scopes.name(at, &mut self.name);
        }
        if self.query.filter.as_ref().is_none_or(|filter| filter(&self.name)) {
            if !current.typed {
                type_line(&current.metric, current.kind, &self.query, out);
                current.typed = true;
            }
            let labels = self.labels(at);
            line(&current.metric, &labels, &self.scopes, at, &self.query, &self.name, out);
        }
        self.current = Some(current);
    }

    /// The series that one stat has now, in all scopes of its family.
    fn series(&self, entry: Entry) -> Vec<At> {
        let family = &self.families[entry.family as usize];
        let shown = match entry.kind {
            Type::Histogram => self.query.kinds.histograms(),
            kind => self.query.kinds.cells(kind == Type::Counter),
        };
        let scopes = family.scopes.iter().filter(|_| shown);
        let mut out = Vec::new();
        for &at in scopes {
            let values = &self.scopes.scopes[at as usize].values;
            match entry.stat {
                Stat::Cell(cell) => {
                    let stat = family.forms.set.shown_at(cell as usize);
                    let lazy = stat.is_some_and(|stat| stat.kind == Kind::LazyCounter);
                    if values.is_used(cell as usize) || !(lazy || self.query.used_only) {
                        out.push((at, Series::Cell(cell)));
                    }
                }
                Stat::Codes(wanted) => {
                    for (position, &(of, _, _)) in values.codes.iter().enumerate() {
                        if of == wanted {
                            out.push((at, Series::Code(position as u16)));
                        }
                    }
                }
                Stat::Histogram(index) => {
                    let lazy = family.forms.set.histograms[index as usize].lazy;
                    if values.histogram(index as usize).is_some() || !(lazy || self.query.used_only) {
                        out.push((at, Series::Histogram(index)));
                    }
                }
            }
        }
        out
    }

    /// Those of the scope, after that for a status; or those that the whole name tells.
    fn labels(&self, at: At) -> Cow<'_, str> {
        let of_scope = &self.labels[at.0 as usize];
        let scope = &self.scopes.scopes[at.0 as usize];
        let set = scope.values.set;
        let family = self.family_of.get(at.0 as usize).and_then(|family| self.families.get(*family as usize));
        if family.is_some_and(|family| family.forms.labelled.has(at.1)) {
            let mut name = String::new();
            self.scopes.name(at, &mut name);
            return Cow::Owned(labels_of(&name, &tags::cuts(&name), scope));
        }
        let (stem, code) = scope.stem(at.1);
        let own = match (at.1, code) {
            (_, Some(code)) => stem.strip_suffix('_').map(|_| tags::pair("envoy.response_code", &code.to_string())),
            (_, None) => {
                let stem = set.given.plain(stem);
                tags::status(stem).map(|cut| tags::pair(cut.tag, &stem[cut.value]))
            }
        };
        match own {
            None => Cow::Borrowed(of_scope),
            Some(own) if of_scope.is_empty() => Cow::Owned(own),
            Some(own) => Cow::Owned(own + "," + of_scope),
        }
    }
}

/// What a name tells, what its scope brings, and what an extension said.
fn labels_of(name: &str, cuts: &[Cut], scope: &Scope) -> String {
    let found = cuts.iter().map(|cut| (cut.tag, &name[cut.value.clone()]));
    let own = scope.values.tags.iter().flat_map(|own| &own.tags).map(|(tag, value)| (*tag, value.as_str()));
    tags::labels(found.chain(own).chain(scope.values.set.given.labels.iter().copied()))
}

/// Envoy writes all digits that a bound really has.
const BOUND_DIGITS: usize = 32;

/// The texts of the bounds that most histograms have.
static USUAL_BOUNDS: LazyLock<[String; DEFAULT_BOUNDS.len()]> =
    LazyLock::new(|| DEFAULT_BOUNDS.map(|bound| general(bound, BOUND_DIGITS)));

/// The line or the lines of one series.
pub(super) fn line(metric: &str, labels: &str, scopes: &Scopes, at: At, query: &Query, name: &str, out: &mut Vec<u8>) {
    let Series::Histogram(_) = at.1 else {
        // Writing to a Vec cannot fail, here and below.
        let _ = writeln!(out, "{metric}{{{labels}}} {}", scopes.value(at));
        return;
    };
    let recorded = match query.summaries {
        true => scopes.within(query.interval.as_deref(), at).filter(|recorded| recorded.count() > 0),
        false => scopes.histogram(at),
    };
    let comma = if labels.is_empty() { "" } else { "," };
    let (count, sum) = recorded.map_or((0, 0), |recorded| (recorded.count(), recorded.sum()));
    if query.summaries {
        for (quantile, _) in QUANTILES {
            // Nothing is told where there is no value, as Prometheus spells that.
            let value = recorded.map_or(f64::NAN, |recorded| recorded.quantile(quantile));
            let _ = writeln!(out, "{metric}{{{labels}{comma}quantile=\"{quantile}\"}} {value}");
        }
        let _ = writeln!(out, "{metric}_sum{{{labels}}} {sum}");
        let _ = writeln!(out, "{metric}_count{{{labels}}} {count}");
        return;
    }
    let mut bucket = |bound: f64, text: &str| {
        let n = recorded.map_or(0, |recorded| recorded.at_most(bound));
        let _ = writeln!(out, "{metric}_bucket{{{labels}{comma}le=\"{text}\"}} {n}");
    };
    match query.own_bounds(name) {
        Some(own) => own.iter().for_each(|bound| bucket(*bound, &general(*bound, BOUND_DIGITS))),
        None => DEFAULT_BOUNDS.iter().zip(&*USUAL_BOUNDS).for_each(|(bound, text)| bucket(*bound, text)),
    }
    let _ = writeln!(out, "{metric}_bucket{{{labels}{comma}le=\"+Inf\"}} {count}");
    let _ = writeln!(out, "{metric}_sum{{{labels}}} {sum}");
    let _ = writeln!(out, "{metric}_count{{{labels}}} {count}");
}

/// What a metric's first line says.
pub(super) fn type_line(metric: &str, kind: Type, query: &Query, out: &mut Vec<u8>) {
    let kind = match kind {
        Type::Histogram if query.summaries => "summary",
        Type::Counter => "counter",
        Type::Gauge => "gauge",
        Type::Histogram => "histogram",
    };
    let _ = writeln!(out, "# TYPE {metric} {kind}");
}

/// What a statistic of that set is called, whose name without labels this is: Prometheus allows letters, digits and underscores.
/// `None` for the own name of an extension's that is none there, as it begins with a digit.
pub(super) fn metric_name(name: &str, set: &StatSet) -> Option<String> {
    let allowed = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    if !set.given.bare {
        return Some("envoy_".chars().chain(name.chars().map(allowed)).collect());
    }
    let own = name.split_once('.').map_or(name, |(_, own)| own);
    let is_name = own.chars().next().is_some_and(|first| !first.is_ascii_digit());
    is_name.then(|| own.chars().map(allowed).collect())
}
