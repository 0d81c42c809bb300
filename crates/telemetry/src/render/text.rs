//! Envoy's `/stats` text: counters and gauges by name, then histograms by name.

use super::number::general;
use super::series::{At, Scopes};
use super::{CHUNK_BYTES, HistogramText, Query};
use crate::stats::{Distribution, QUANTILES, ScopeValues};
use std::io::Write;

/// Streams `values` as lines `name: value`.
pub fn text(values: Vec<ScopeValues>, query: Query) -> impl Iterator<Item = Vec<u8>> + Send {
    Text { walk: Walk::new(values, query), name: String::new() }
}

struct Text {
    walk: Walk,
    name: String,
}

/// Goes through the groups of scopes twice: cells, then histograms.
pub(super) struct Walk {
    pub(super) scopes: Scopes,
    pub(super) query: Query,
    next: usize,
    histograms: bool,
}

/// The sorted series of one group of scopes.
pub(super) struct Group {
    pub(super) series: Vec<At>,
    pub(super) histograms: bool,
}

impl Walk {
    pub(super) fn new(values: Vec<ScopeValues>, query: Query) -> Self {
        Self { scopes: Scopes::new(values), query, next: 0, histograms: false }
    }

    pub(super) fn next_group(&mut self) -> Option<Group> {
        if self.next == self.scopes.scopes.len() {
            if self.histograms || self.next == 0 {
                return None;
            }
            (self.histograms, self.next) = (true, 0);
        }
        let end = self.scopes.group_end(self.next);
        let series = self.scopes.sorted(self.next..end, self.histograms, &self.query);
        self.next = end;
        Some(Group { series, histograms: self.histograms })
    }

    /// Puts the name into `name` and says whether the filter lets it pass.
    pub(super) fn shows(&self, at: At, name: &mut String) -> bool {
        self.scopes.name(at, name);
        self.query.filter.as_ref().is_none_or(|filter| filter(name))
    }
}

impl Iterator for Text {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        while out.len() < CHUNK_BYTES {
            let Some(group) = self.walk.next_group() else { break };
            for at in group.series {
                if !self.walk.shows(at, &mut self.name) {
                    continue;
                }
                out.extend_from_slice(self.name.as_bytes());
                out.extend_from_slice(b": ");
                if group.histograms {
                    let (query, recorded) = (&self.walk.query, self.walk.scopes.histogram(at));
                    let new = self.walk.scopes.within(query.interval.as_deref(), at);
                    match (recorded, query.histograms) {
                        (None, _) => out.extend_from_slice(b"No recorded values"),
                        (Some(recorded), HistogramText::Summary) => write_quantiles(recorded, new, &mut out),
                        (Some(recorded), HistogramText::Detailed) => {
                            // The name has a line of its own.
                            out.pop();
                            write_details(recorded, new, &mut out);
                        }
                        (Some(recorded), style) => query.with_bounds(&self.name, |bounds| {
                            write_buckets(recorded, new, (style, bounds), &mut out);
                        }),
                    }
                } else {
                    // Writing to a Vec cannot fail, here and below.
                    let _ = write!(out, "{}", self.walk.scopes.value(at));
                }
                out.push(b'\n');
            }
        }
        (!out.is_empty()).then_some(out)
    }
}

fn write_quantiles(recorded: &Distribution, new: Option<&Distribution>, out: &mut Vec<u8>) {
    for (at, (quantile, label)) in QUANTILES.iter().enumerate() {
        let space = if at == 0 { "" } else { " " };
        let total = recorded.quantile(*quantile);
        let _ = match new.filter(|new| new.count() > 0) {
            Some(new) => write!(out, "{space}P{label}({},{total})", new.quantile(*quantile)),
            None => write!(out, "{space}P{label}(nan,{total})"),
        };
    }
}

fn write_details(recorded: &Distribution, new: Option<&Distribution>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\n  totals=");
    write_all(recorded, out);
    out.extend_from_slice(b"\n  intervals=");
    new.into_iter().for_each(|new| write_all(new, out));
    out.extend_from_slice(b"\n  summary=");
    write_quantiles(recorded, new, out);
}

fn write_all(recorded: &Distribution, out: &mut Vec<u8>) {
    for (at, (low, width, count)) in recorded.buckets().enumerate() {
        let comma = if at == 0 { "" } else { ", " };
        let _ = write!(out, "{comma}{low},{width}:{count}");
    }
}

fn write_buckets(
    recorded: &Distribution,
    new: Option<&Distribution>,
    (style, bounds): (HistogramText, &[f64]),
    out: &mut Vec<u8>,
) {
    let mut before = [0, 0];
    for (at, bound) in bounds.iter().enumerate() {
        let space = if at == 0 { "" } else { " " };
        let upto = [new.map_or(0, |new| new.at_most(*bound)), recorded.at_most(*bound)];
        let [new, all] = shown(style, upto, &mut before);
        // Six digits are what Envoy gives a bound here.
        let _ = write!(out, "{space}B{}({new},{all})", general(*bound, 6));
    }
}

/// The counts of a bucket, up to whose bound there are so many.
pub(super) fn shown(style: HistogramText, upto: [u64; 2], before: &mut [u64; 2]) -> [u64; 2] {
    let [new, all] = std::mem::replace(before, upto);
    match style {
        HistogramText::Disjoint => [upto[0] - new, upto[1] - all],
        _ => upto,
    }
}
