//! The Prometheus text format where a configuration has tags of its own: each series is named by itself.

use super::prometheus::{Type, line, metric_name, type_line};
use super::series::{At, Scopes, Series};
use super::tagger::{Tagged, Tagger};
use super::{CHUNK_BYTES, Query, tags};
use crate::stats::ScopeValues;
use std::collections::BTreeMap;

/// As [`super::prometheus`] does it, in the order of the names without tags.
pub(super) fn tagged(values: Vec<ScopeValues>, query: Query, tagger: Tagger) -> Custom {
    let scopes = Scopes::new(values);
    let mut metrics: BTreeMap<(Type, String), Vec<At>> = BTreeMap::new();
    let mut name = String::new();
    for (at, scope) in scopes.scopes.iter().enumerate() {
        for series in scope.cells(&query).into_iter().chain(scope.histograms(&query)) {
            let at = (at as u32, series);
            scopes.name(at, &mut name);
            if query.filter.as_ref().is_some_and(|filter| !filter(&name)) {
                continue;
            }
            let kind = match series {
                Series::Histogram(_) => Type::Histogram,
                Series::Code(_) => Type::Counter,
                Series::Cell(cell) => match scope.values.set.cells.get(cell as usize) {
                    Some(stat) if !stat.kind.is_counter() => Type::Gauge,
                    _ => Type::Counter,
                },
            };
            let plain = tag(&tagger, &scopes, at, &name).name;
            metrics.entry((kind, plain)).or_default().push(at);
        }
    }
    Custom { scopes, query, tagger, metrics: metrics.into_iter(), current: Default::default(), name }
}

/// Streams metrics whose tags are made when they are written.
pub(super) struct Custom {
    scopes: Scopes,
    query: Query,
    tagger: Tagger,
    metrics: std::collections::btree_map::IntoIter<(Type, String), Vec<At>>,
    /// The metric that is being written, under its name there, with what is left of it.
    current: (String, std::vec::IntoIter<At>),
    name: String,
}

impl Iterator for Custom {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(CHUNK_BYTES + CHUNK_BYTES / 4);
        while out.len() < CHUNK_BYTES {
            let Some(at) = self.current.1.next() else {
                let Some(((kind, plain), mut series)) = self.metrics.next() else { break };
                series.sort_by(|a, b| self.scopes.order(*a, *b));
                self.current = (metric_name(&plain, ""), series.into_iter());
                type_line(&self.current.0, kind, &mut out);
                continue;
            };
            self.scopes.name(at, &mut self.name);
            let tagged = tag(&self.tagger, &self.scopes, at, &self.name);
            let labels = tags::labels(tagged.tags.iter().map(|(name, value)| (name.as_str(), value.as_str())));
            line(&self.current.0, &labels, &self.scopes, at, &self.query, &self.name, &mut out);
        }
        (!out.is_empty()).then_some(out)
    }
}

fn tag(tagger: &Tagger, scopes: &Scopes, at: At, name: &str) -> Tagged {
    let scope = &scopes.scopes[at.0 as usize];
    let (stem, code) = scope.stem(at.1);
    tagger.tag(name, &scope.name, stem, code)
}
