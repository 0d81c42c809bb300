//! Envoy's `/stats?format=json`.

use super::series::At;
use super::text::{Walk, shown};
use super::{CHUNK_BYTES, HistogramText, Query};
use crate::json;
use crate::stats::{Distribution, QUANTILES, ScopeValues};
use std::io::Write;

/// Streams `values` as one JSON object `{"stats":[…]}`, histograms last. Quantiles of an interval without values are `null`.
pub fn json(values: Vec<ScopeValues>, query: Query) -> impl Iterator<Item = Vec<u8>> + Send {
    Json { walk: Walk::new(values, query), name: String::new(), state: State::Start }
}

struct Json {
    walk: Walk,
    name: String,
    state: State,
}

#[derive(Debug, PartialEq)]
enum State {
    Start,
    /// Inside `stats`, before the first entry or after it.
    First,
    Cells,
    /// Inside the list of histograms, after its first entry.
    Histograms,
    End,
}

impl Iterator for Json {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        if self.state == State::End {
            return None;
        }
        let mut out = Vec::new();
        if self.state == State::Start {
            out.extend_from_slice(b"{\"stats\":[");
            self.state = State::First;
        }
        while out.len() < CHUNK_BYTES {
            let Some(group) = self.walk.next_group() else {
                if self.state == State::Histograms {
                    out.extend_from_slice(self.end_of_histograms());
                }
                out.extend_from_slice(b"]}");
                self.state = State::End;
                break;
            };
            for at in group.series {
                if !self.walk.shows(at, &mut self.name) {
                    continue;
                }
                if self.state != State::First {
                    out.push(b',');
                }
                if !group.histograms {
                    out.extend_from_slice(b"{\"name\":");
                    json::write_string(self.name.as_bytes(), &mut out);
                    // Writing to a Vec cannot fail, here and below.
                    let _ = write!(out, ",\"value\":{}}}", self.walk.scopes.value(at));
                    self.state = State::Cells;
                    continue;
                }
                if self.state != State::Histograms {
                    self.begin_histograms(&mut out);
                    self.state = State::Histograms;
                }
                out.extend_from_slice(b"{\"name\":");
                json::write_string(self.name.as_bytes(), &mut out);
                self.write_histogram(at, &mut out);
            }
        }
        Some(out)
    }
}

impl Json {
    fn begin_histograms(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"histograms\":");
        let (quantiles, list) = match self.walk.query.histograms {
            HistogramText::Summary => ("supported_quantiles", "computed_quantiles"),
            HistogramText::Detailed => ("supported_percentiles", "details"),
            HistogramText::Cumulative | HistogramText::Disjoint => return out.push(b'['),
        };
        let _ = write!(out, "{{\"{quantiles}\":[");
        for (at, (_, label)) in QUANTILES.iter().enumerate() {
            let _ = write!(out, "{}{label}", if at == 0 { "" } else { "," });
        }
        let _ = write!(out, "],\"{list}\":[");
    }

    fn end_of_histograms(&self) -> &'static [u8] {
        match self.walk.query.histograms {
            HistogramText::Summary | HistogramText::Detailed => b"]}}",
            HistogramText::Cumulative | HistogramText::Disjoint => b"]}",
        }
    }

    /// What follows the name of a histogram.
    fn write_histogram(&self, at: At, out: &mut Vec<u8>) {
        let recorded = self.walk.scopes.histogram(at);
        let new = self.walk.scopes.within(self.walk.query.interval.as_deref(), at);
        let query = &self.walk.query;
        match query.histograms {
            HistogramText::Summary => write_quantiles("values", recorded, new, out),
            HistogramText::Detailed => {
                write_details(recorded, new, out);
                write_quantiles("percentiles", recorded, new, out);
            }
            style => query.with_bounds(&self.name, |bounds| write_buckets(recorded, new, (style, bounds), out)),
        }
        out.push(b'}');
    }
}

fn write_quantiles(name: &str, recorded: Option<&Distribution>, new: Option<&Distribution>, out: &mut Vec<u8>) {
    let _ = write!(out, ",\"{name}\":[");
    for (at, (quantile, _)) in QUANTILES.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let _ = write!(out, "{comma}{{\"cumulative\":");
        write_quantile(recorded, *quantile, out);
        out.extend_from_slice(b",\"interval\":");
        write_quantile(new, *quantile, out);
        out.push(b'}');
    }
    out.push(b']');
}

fn write_quantile(recorded: Option<&Distribution>, quantile: f64, out: &mut Vec<u8>) {
    let _ = match recorded.filter(|recorded| recorded.count() > 0) {
        Some(recorded) => write!(out, "{}", recorded.quantile(quantile)),
        None => write!(out, "null"),
    };
}

fn write_buckets(
    recorded: Option<&Distribution>,
    new: Option<&Distribution>,
    (style, bounds): (HistogramText, &[f64]),
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(b",\"buckets\":[");
    let mut before = [0, 0];
    for (at, bound) in bounds.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let upto = [new, recorded].map(|all| all.map_or(0, |all| all.at_most(*bound)));
        let [new, all] = shown(style, upto, &mut before);
        let _ = write!(out, "{comma}{{\"upper_bound\":{bound},\"interval\":{new},\"cumulative\":{all}}}");
    }
    out.push(b']');
}

fn write_details(recorded: Option<&Distribution>, new: Option<&Distribution>, out: &mut Vec<u8>) {
    for (name, all) in [("totals", recorded), ("intervals", new)] {
        let _ = write!(out, ",\"{name}\":[");
        for (at, (low, width, count)) in all.iter().flat_map(|all| all.buckets()).enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let _ = write!(out, "{comma}{{\"lower_bound\":{low},\"width\":{width},\"count\":{count}}}");
        }
        out.push(b']');
    }
}
