//! Envoy's `/stats?format=json`.

use super::text::Walk;
use super::{CHUNK_BYTES, Query};
use crate::json;
use crate::stats::{Distribution, QUANTILES, ScopeValues};
use std::io::Write;

/// Streams `values` as one JSON object `{"stats":[…]}`, histograms last as quantiles. An interval is `null`: none is kept.
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
    /// Inside `computed_quantiles`, after its first entry.
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
                out.extend_from_slice(if self.state == State::Histograms { b"]}}]}" } else { b"]}" });
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
                    begin_histograms(&mut out);
                    self.state = State::Histograms;
                }
                out.extend_from_slice(b"{\"name\":");
                json::write_string(self.name.as_bytes(), &mut out);
                write_quantiles(self.walk.scopes.histogram(at), &mut out);
            }
        }
        Some(out)
    }
}

fn begin_histograms(out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"histograms\":{\"supported_quantiles\":[");
    for (at, (_, label)) in QUANTILES.iter().enumerate() {
        let _ = write!(out, "{}{label}", if at == 0 { "" } else { "," });
    }
    out.extend_from_slice(b"],\"computed_quantiles\":[");
}

fn write_quantiles(recorded: Option<&Distribution>, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"values\":[");
    for (at, (quantile, _)) in QUANTILES.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        let _ = match recorded {
            Some(recorded) => write!(out, "{{\"cumulative\":{},\"interval\":null}}", recorded.quantile(*quantile)),
            None => write!(out, "{{\"cumulative\":null,\"interval\":null}}"),
        };
    }
    out.extend_from_slice(b"]}");
}
