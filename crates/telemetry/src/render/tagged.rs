//! What Prometheus reads where a configuration has tags of its own, and all of it as protocol buffers: each series is named
//! by itself.

use super::prometheus::{PrometheusForm, Type, line, metric_name, type_line};
use super::series::{At, Scopes, Series};
use super::tagger::{self, Tagged, Tagger};
use super::{CHUNK_BYTES, Query, protobuf, tags};
use crate::stats::ScopeValues;
use std::collections::BTreeMap;

/// As [`super::prometheus`] does it, in the order of the names without tags.
pub(super) fn tagged(values: Vec<ScopeValues>, query: Query, tagger: Tagger, form: PrometheusForm) -> Custom {
    let scopes = Scopes::new(values);
    let mut metrics: BTreeMap<(Type, String), Metric> = BTreeMap::new();
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
                Series::Cell(cell) => match scope.values.set.shown_at(cell as usize) {
                    Some(stat) if !stat.kind.is_counter() => Type::Gauge,
                    _ => Type::Counter,
                },
            };
            let plain = tag(&tagger, &scopes, at, &name).name;
            if let Some(metric) = metric_name(&plain, scope.values.set) {
                metrics.entry((kind, plain)).or_insert_with(|| (metric, Vec::new())).1.push(at);
            }
        }
    }
    Custom { scopes, query, tagger, form, metrics: metrics.into_iter(), current: Default::default(), name }
}

/// A metric's name, and its series.
type Metric = (String, Vec<At>);

/// Streams metrics whose tags are made when they are written.
pub(super) struct Custom {
    scopes: Scopes,
    query: Query,
    tagger: Tagger,
    form: PrometheusForm,
    metrics: std::collections::btree_map::IntoIter<(Type, String), Metric>,
    /// The metric that is being written, under its name there, with what is left of it.
    current: (String, std::vec::IntoIter<At>),
    name: String,
}

impl Iterator for Custom {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(CHUNK_BYTES + CHUNK_BYTES / 4);
        while out.len() < CHUNK_BYTES {
            let going_on = match self.form {
                PrometheusForm::Text => self.text(&mut out),
                PrometheusForm::Protobuf => self.family(&mut out),
            };
            if !going_on {
                break;
            }
        }
        (!out.is_empty()).then_some(out)
    }
}

impl Custom {
    /// The next line or the lines of the next series; `false` at the end.
    fn text(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(at) = self.current.1.next() else {
            let Some(((kind, _), (metric, series))) = self.metrics.next() else { return false };
            self.current = (metric, self.sorted(series).into_iter());
            type_line(&self.current.0, kind, &self.query, out);
            return true;
        };
        self.scopes.name(at, &mut self.name);
        let tagged = tag(&self.tagger, &self.scopes, at, &self.name);
        let labels = tags::labels(tagged.tags.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        line(&self.current.0, &labels, &self.scopes, at, &self.query, &self.name, out);
        true
    }

    /// The next metric, whole: its length stands before it. `false` at the end.
    fn family(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(((kind, _), (metric, series))) = self.metrics.next() else { return false };
        let mut family = Vec::new();
        protobuf::begin(&metric, kind, &self.query, &mut family);
        for at in self.sorted(series) {
            self.scopes.name(at, &mut self.name);
            let tagged = tag(&self.tagger, &self.scopes, at, &self.name);
            protobuf::metric(kind, &tagged, &self.scopes, at, &self.query, &self.name, &mut family);
        }
        protobuf::delimited(&family, out);
        true
    }

    fn sorted(&self, mut series: Vec<At>) -> Vec<At> {
        series.sort_by(|a, b| self.scopes.order(*a, *b));
        series
    }
}

fn tag(tagger: &Tagger, scopes: &Scopes, at: At, name: &str) -> Tagged {
    let scope = &scopes.scopes[at.0 as usize];
    tagger::given(name, scope.values.set)
        .unwrap_or_else(|| tagger.tag(name, (&scope.name, scope.values.tags.as_deref())))
}
