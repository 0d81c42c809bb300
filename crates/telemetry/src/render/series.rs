//! The series of a list of scopes, in the order in which Envoy prints them.

use super::{Kinds, Query};
use crate::intervals::Interval;
use crate::stats::{Distribution, Kind, ScopeValues};
use std::cmp::Ordering;
use std::fmt::Write;

/// All scopes with their names, ascending.
pub(super) struct Scopes {
    pub(super) scopes: Vec<Scope>,
}

pub(super) struct Scope {
    /// With its closing dot.
    pub(super) name: String,
    pub(super) values: ScopeValues,
}

/// One line of a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Series {
    Cell(u16),
    /// Position in [`ScopeValues::codes`].
    Code(u16),
    Histogram(u16),
}

/// A series of a scope.
pub(super) type At = (u32, Series);

impl Scopes {
    pub(super) fn new(values: Vec<ScopeValues>) -> Self {
        let named = |values: ScopeValues| Scope { name: values.set.scope_name(&values.prefix), values };
        let mut scopes: Vec<Scope> = values.into_iter().map(named).collect();
        scopes.sort_by(|a, b| a.name.cmp(&b.name));
        Self { scopes }
    }

    /// The scopes from `start` that must be sorted together, because the name of the first is the start of the others'
    /// (`listener.a.` and `listener.a.http.b.`): where they end. Names of other scopes sort as the scopes do.
    pub(super) fn group_end(&self, start: usize) -> usize {
        let Some(first) = self.scopes.get(start) else { return start };
        let nested = self.scopes[start..].iter().take_while(|scope| scope.name.starts_with(&first.name)).count();
        start + nested
    }

    /// The counters and gauges, or else the histograms, of a group, ascending by name.
    pub(super) fn sorted(&self, group: std::ops::Range<usize>, histograms: bool, query: &Query) -> Vec<At> {
        let mut out = Vec::new();
        for (at, scope) in self.scopes.iter().enumerate().take(group.end).skip(group.start) {
            let series = if histograms { scope.histograms(query) } else { scope.cells(query) };
            out.extend(series.into_iter().map(|series| (at as u32, series)));
        }
        out.sort_by(|a, b| self.order(*a, *b));
        out
    }

    /// By full name.
    pub(super) fn order(&self, (a, of_a): At, (b, of_b): At) -> Ordering {
        let (left, right) = (&self.scopes[a as usize], &self.scopes[b as usize]);
        let (stem_a, code_a) = left.stem(of_a);
        let (stem_b, code_b) = right.stem(of_b);
        // Codes have three digits: comparing them as numbers is comparing them as text.
        let (digits_a, digits_b) = (digits(code_a), digits(code_b));
        let name_a = stem_a.bytes().chain(digits_a.into_iter().flatten());
        let name_b = stem_b.bytes().chain(digits_b.into_iter().flatten());
        if a == b {
            return name_a.cmp(name_b);
        }
        left.name.bytes().chain(name_a).cmp(right.name.bytes().chain(name_b))
    }

    /// Puts the full name into `out`.
    pub(super) fn name(&self, (scope, series): At, out: &mut String) {
        let scope = &self.scopes[scope as usize];
        let (stem, code) = scope.stem(series);
        out.clear();
        out.push_str(&scope.name);
        out.push_str(stem);
        if let Some(code) = code {
            // Writing to a String cannot fail.
            let _ = write!(out, "{code}");
        }
    }

    pub(super) fn value(&self, (scope, series): At) -> u64 {
        let values = &self.scopes[scope as usize].values;
        match series {
            Series::Cell(cell) => values.cell(cell as usize),
            Series::Code(at) => values.codes.get(at as usize).map_or(0, |&(_, _, n)| n),
            Series::Histogram(at) => values.histogram(at as usize).map_or(0, Distribution::count),
        }
    }

    pub(super) fn histogram(&self, (scope, series): At) -> Option<&Distribution> {
        match series {
            Series::Histogram(at) => self.scopes[scope as usize].values.histogram(at as usize),
            _ => None,
        }
    }

    /// What it got within an interval.
    pub(super) fn within<'i>(&self, interval: Option<&'i Interval>, (scope, series): At) -> Option<&'i Distribution> {
        match series {
            Series::Histogram(at) => interval?.of(&self.scopes[scope as usize].values, at as usize),
            _ => None,
        }
    }
}

impl Scope {
    /// What [`Kinds`], laziness and `usedonly` leave of the counters and gauges.
    pub(super) fn cells(&self, query: &Query) -> Vec<Series> {
        let mut out = Vec::new();
        for (cell, stat) in self.values.set.shown().enumerate() {
            let hidden = !self.values.is_used(cell) && (query.used_only || stat.kind == Kind::LazyCounter);
            if !hidden && query.kinds.cells(stat.kind.is_counter()) {
                out.push(Series::Cell(cell as u16));
            }
        }
        if query.kinds.cells(true) {
            // Each was counted, be it before a reset.
            out.extend((0..self.values.codes.len()).map(|at| Series::Code(at as u16)));
        }
        out
    }

    pub(super) fn histograms(&self, query: &Query) -> Vec<Series> {
        if !query.kinds.histograms() || query.kinds == Kinds::TextReadouts {
            return Vec::new();
        }
        let shown = |at: usize, lazy: bool| self.values.histogram(at).is_some() || !(lazy || query.used_only);
        let all = self.values.set.histograms.iter().enumerate();
        all.filter(|(at, stat)| shown(*at, stat.lazy)).map(|(at, _)| Series::Histogram(at as u16)).collect()
    }

    /// The name within the scope: the fixed part, and the code that is appended to it.
    pub(super) fn stem(&self, series: Series) -> (&'static str, Option<u16>) {
        let set = self.values.set;
        match series {
            Series::Cell(cell) => (set.shown_at(cell as usize).map_or("", |stat| stat.name), None),
            Series::Histogram(at) => (set.histograms.get(at as usize).map_or("", |stat| stat.name), None),
            Series::Code(at) => match self.values.codes.get(at as usize) {
                Some(&(family, code, _)) => (set.codes.get(family as usize).copied().unwrap_or(""), Some(code)),
                None => ("", None),
            },
        }
    }
}

fn digits(code: Option<u16>) -> Option<[u8; 3]> {
    code.map(|code| [100, 10, 1].map(|unit| b'0' + (code / unit % 10) as u8))
}
