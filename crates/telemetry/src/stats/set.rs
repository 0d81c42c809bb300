//! What may be counted: static tables of names, one per kind of scope, and the typed indices into them.
//!
//! A table is written once with [`stat_set!`](crate::stat_set), as a module whose constants are the indices. An index is
//! a compile-time constant, so counting is one add to a known cell; names are only touched when somebody reads.

/// A counter's place in its set. Only grows, except that an operator may reset it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counter {
    pub(crate) cell: u16,
    pub(crate) set: u32,
}

/// A gauge's place in its set. Goes up and down; the blocks of several workers are added, or for a flag the largest wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gauge {
    pub(crate) cell: u16,
    pub(crate) set: u32,
}

/// A histogram's place in its set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Histogram {
    pub(crate) index: u16,
    pub(crate) set: u32,
}

/// A family of counters by HTTP status (`upstream_rq_200`, `upstream_rq_404`, …), of which only the seen ones exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Codes {
    pub(crate) index: u16,
    pub(crate) set: u32,
}

/// What a histogram's values are. Decides nothing about storage; the Prometheus buckets are Envoy's for every unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unit {
    Milliseconds,
    Microseconds,
    Bytes,
    Unspecified,
}

/// How a counter or gauge is stored, shown and added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Shown from the start, as zero.
    Counter,
    /// Shown once it is not zero, as Envoy creates it on first use.
    LazyCounter,
    Gauge,
    /// A gauge of which several workers hold an opinion: the largest is shown, not the sum (`cx_open`).
    Flag,
}

impl Kind {
    /// Whether it only grows.
    pub fn is_counter(self) -> bool {
        matches!(self, Self::Counter | Self::LazyCounter)
    }
}

/// One counter or gauge; its cell is its position in [`StatSet::cells`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    pub name: &'static str,
    pub kind: Kind,
}

/// One histogram; its position in [`StatSet::histograms`] is its index.
#[derive(Debug)]
pub struct HistogramStat {
    pub name: &'static str,
    pub unit: Unit,
    /// Hidden until a value was recorded.
    pub lazy: bool,
}

/// The names that one kind of scope counts: `cluster`, `http`, `listener`, … Made by [`stat_set!`](crate::stat_set).
#[derive(Debug)]
pub struct StatSet {
    /// First part of each name (`cluster`), before the scope's own prefix.
    pub root: &'static str,
    /// Counters first, then gauges; the position is the cell.
    pub cells: &'static [Stat],
    pub histograms: &'static [HistogramStat],
    /// Name stems of the families by status, to which three digits are appended: `upstream_rq_`. One without a name is not
    /// shown: it is for what it is part of.
    pub codes: &'static [&'static str],
    /// Names that are shown and never change. Their numbers go on behind those of `cells`, and nothing is stored for them.
    pub unchanging: &'static [Unchanging],
    /// What else a part counts for, when counts are read. So one count can stand for many.
    pub sums: fn(Part) -> Sums,
    /// What an extension said of a statistic of its own; a set of those has one.
    pub given: Given,
    /// Tells sets apart in debug assertions and as a map key.
    pub id: u32,
}

/// What an extension said of a statistic that it named itself.
#[derive(Debug, Clone, Copy)]
pub struct Given {
    /// Prometheus reads it under its own name, without the root.
    pub bare: bool,
    /// Its only labels. They are part of its name, too.
    pub labels: &'static [(&'static str, &'static str)],
    /// So many bytes at the end of the name stand for them.
    pub tail: usize,
}

impl Given {
    pub const NOTHING: Given = Given { bare: false, labels: &[], tail: 0 };

    /// A name without the labels that an extension put at its end.
    pub(crate) fn plain<'n>(&self, name: &'n str) -> &'n str {
        name.get(..name.len().saturating_sub(self.tail)).unwrap_or(name)
    }
}

/// A counter or gauge that is shown as zero and never anything else.
#[derive(Debug, Clone, Copy)]
pub struct Unchanging {
    pub stat: Stat,
    /// Why its zero is true, or what is not there that would count.
    pub reason: &'static str,
}

/// What was counted, by its index in its set: see [`StatSet::sums`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Counter(u16),
    Histogram(u16),
    /// A status in a family.
    Code(u16, u16),
}

/// All that a part is part of: see [`StatSet::sums`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Sums {
    pub counters: [Option<Counter>; 4],
    /// Has the same values, too.
    pub histogram: Option<Histogram>,
    /// Has the same status, too.
    pub family: Option<Codes>,
}

impl Sums {
    /// One counter that several add up to.
    pub fn of_one(part: Part, counters: &[Counter], sum: Counter) -> Sums {
        let is_part = counters.iter().any(|counter| part == Part::Counter(counter.cell));
        Sums { counters: [is_part.then_some(sum), None, None, None], ..Sums::default() }
    }
}

/// Begins a prefix that brings its own root: the same things are counted in another place.
pub const OWN_ROOT: char = '\0';

impl StatSet {
    /// Counters and gauges as they are shown: those that are stored, and those that never change.
    pub fn shown(&self) -> impl Iterator<Item = Stat> + Clone {
        self.cells.iter().copied().chain(self.unchanging.iter().map(|zero| zero.stat))
    }

    /// Whether that family of counters by status is shown.
    pub(crate) fn shows_codes(&self, family: u16) -> bool {
        self.codes.get(family as usize).is_some_and(|stem| !stem.is_empty())
    }

    /// The one of that number.
    pub fn shown_at(&self, at: usize) -> Option<Stat> {
        let unchanging = || self.unchanging.get(at.checked_sub(self.cells.len())?).map(|zero| zero.stat);
        self.cells.get(at).copied().or_else(unchanging)
    }

    /// The name of a scope with its closing dot: `cluster.web.`, or `server.` when the set knows only one scope.
    pub fn scope_name(&self, prefix: &str) -> String {
        if let Some(rooted) = prefix.strip_prefix(OWN_ROOT) {
            return format!("{rooted}.");
        }
        match (self.root, prefix) {
            ("", "") => String::new(),
            (one, "") | ("", one) => format!("{one}."),
            (root, prefix) => format!("{root}.{prefix}."),
        }
    }
}

impl PartialEq for StatSet {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for StatSet {}

/// For [`stat_set!`](crate::stat_set) only.
#[doc(hidden)]
pub mod construct {
    use super::{Codes, Counter, Gauge, Histogram, Part, Sums, Unchanging};

    pub const fn counter(cell: usize, set: u32) -> Counter {
        Counter { cell: cell as u16, set }
    }

    pub const fn gauge(cell: usize, set: u32) -> Gauge {
        Gauge { cell: cell as u16, set }
    }

    pub const fn histogram(index: usize, set: u32) -> Histogram {
        Histogram { index: index as u16, set }
    }

    pub const fn codes(index: usize, set: u32) -> Codes {
        Codes { index: index as u16, set }
    }

    /// Everything may change unless a list says what does not.
    pub const fn unchanging(given: &[&'static [Unchanging]]) -> &'static [Unchanging] {
        match given {
            [list, ..] => list,
            [] => &[],
        }
    }

    /// Nothing is part of anything unless a function says of what.
    pub const fn sums(given: &[fn(Part) -> Sums]) -> fn(Part) -> Sums {
        match given {
            [sums, ..] => *sums,
            [] => none,
        }
    }

    fn none(_part: Part) -> Sums {
        Sums::default()
    }

    /// FNV-1a of the defining module's path and name: distinct for each set of the program.
    #[allow(clippy::indexing_slicing, reason = "the index is below the length, and this runs in the compiler")]
    pub const fn set_id(path: &str) -> u32 {
        let bytes = path.as_bytes();
        let mut hash = 0x811c_9dc5_u32;
        let mut at = 0;
        while at < bytes.len() {
            hash = (hash ^ bytes[at] as u32).wrapping_mul(0x0100_0193);
            at += 1;
        }
        hash
    }
}

/// Declares a set of statistics as a module: `SET`, and one typed index per name.
///
/// ```
/// postrider_telemetry::stat_set! {
///     /// What a rate limiter counts.
///     pub mod limiter = "http_local_rate_limiter";
///     counters { ENABLED = "enabled", OK = "ok" }
///     gauges { WAITING = "waiting" }
///     histograms { DELAY = "delay" Milliseconds }
/// }
/// let registry = postrider_telemetry::Registry::new();
/// let block = registry.worker(0).block(&limiter::SET, "front");
/// block.inc(limiter::OK);
/// ```
#[macro_export]
macro_rules! stat_set {
    (
        $(#[$doc:meta])*
        $vis:vis mod $module:ident = $root:literal;
        $(counters { $($c:ident = $cn:literal),* $(,)? })?
        $(lazy_counters { $($l:ident = $ln:literal),* $(,)? })?
        $(gauges { $($g:ident = $gn:literal),* $(,)? })?
        $(flags { $($f:ident = $fn:literal),* $(,)? })?
        $(histograms { $($h:ident = $hn:literal $hu:ident),* $(,)? })?
        $(lazy_histograms { $($z:ident = $zn:literal $zu:ident),* $(,)? })?
        $(codes { $($d:ident = $dn:literal),* $(,)? })?
        $(unchanging = $unchanging:path;)?
        $(sums = $sums:path;)?
    ) => {
        $(#[$doc])*
        $vis mod $module {
            use $crate::stats::construct;

            const ID: u32 = construct::set_id(concat!(module_path!(), "::", stringify!($module)));

            #[allow(non_camel_case_types, clippy::upper_case_acronyms, dead_code, reason = "variants are counted, not named")]
            enum Cell { $($($c,)*)? $($($l,)*)? $($($g,)*)? $($($f,)*)? }
            #[allow(non_camel_case_types, clippy::upper_case_acronyms, dead_code, reason = "variants are counted, not named")]
            enum Place { $($($h,)*)? $($($z,)*)? }
            #[allow(non_camel_case_types, clippy::upper_case_acronyms, dead_code, reason = "variants are counted, not named")]
            enum Family { $($($d,)*)? }

            $($(pub const $c: $crate::stats::Counter = construct::counter(Cell::$c as usize, ID);)*)?
            $($(pub const $l: $crate::stats::Counter = construct::counter(Cell::$l as usize, ID);)*)?
            $($(pub const $g: $crate::stats::Gauge = construct::gauge(Cell::$g as usize, ID);)*)?
            $($(pub const $f: $crate::stats::Gauge = construct::gauge(Cell::$f as usize, ID);)*)?
            $($(pub const $h: $crate::stats::Histogram = construct::histogram(Place::$h as usize, ID);)*)?
            $($(pub const $z: $crate::stats::Histogram = construct::histogram(Place::$z as usize, ID);)*)?
            $($(pub const $d: $crate::stats::Codes = construct::codes(Family::$d as usize, ID);)*)?

            /// The table that these indices point into.
            pub static SET: $crate::stats::StatSet = $crate::stats::StatSet {
                root: $root,
                cells: &[
                    $($($crate::stats::Stat { name: $cn, kind: $crate::stats::Kind::Counter },)*)?
                    $($($crate::stats::Stat { name: $ln, kind: $crate::stats::Kind::LazyCounter },)*)?
                    $($($crate::stats::Stat { name: $gn, kind: $crate::stats::Kind::Gauge },)*)?
                    $($($crate::stats::Stat { name: $fn, kind: $crate::stats::Kind::Flag },)*)?
                ],
                histograms: &[
                    $($($crate::stats::HistogramStat {
                        name: $hn, unit: $crate::stats::Unit::$hu, lazy: false },)*)?
                    $($($crate::stats::HistogramStat {
                        name: $zn, unit: $crate::stats::Unit::$zu, lazy: true },)*)?
                ],
                codes: &[$($($dn,)*)?],
                unchanging: construct::unchanging(&[$($unchanging)?]),
                sums: construct::sums(&[$($sums)?]),
                given: $crate::stats::Given::NOTHING,
                id: ID,
            };
        }
    };
}

#[cfg(test)]
mod tests {
    use super::OWN_ROOT;
    use crate::stats::sets::http;

    #[test]
    fn a_prefix_may_bring_its_own_root() {
        assert_eq!(http::SET.scope_name("front.limiter"), "http.front.limiter.");
        assert_eq!(http::SET.scope_name(&format!("{OWN_ROOT}cluster.a.limiter")), "cluster.a.limiter.");
    }
}
