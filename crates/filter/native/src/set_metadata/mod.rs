//! Notes configured values in the metadata of every request, for later filters, routes and logs.
//!
//! Configured as `envoy.extensions.filters.http.set_metadata.v3.Config`, for the whole gateway and for route tables,
//! virtual hosts, routes and weighted clusters: the gateway's entries come first, those of the most specific scope
//! follow. A namespace that is there already is kept, or merged with where the configuration allows it: maps key by
//! key, lists one behind the other, everything else replaced.

use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{
    Action, ConfigError, Factory, Filter, Hooks, Place, RouteConfig, ScopedConfigs, State, Stream,
};
use postrider_model::{Metadata, Packed, Reading, Value, ValueError};
use postrider_telemetry::Block;
use postrider_telemetry::stats::Counter;

use crate::read;

pub(crate) const KIND: &str = "envoy.extensions.filters.http.set_metadata.v3.Config";

/// Reads a gateway-level configuration.
pub(crate) fn build(_name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    Ok(Arc::new(SetMetadata(Arc::new(Reading::all(value, read)?))))
}

struct SetMetadata(Arc<Vec<Entry>>);

/// The entries of a more specific scope.
struct Scope(Arc<Vec<Entry>>);

/// What is noted in one namespace.
#[derive(Debug, PartialEq)]
struct Entry {
    namespace: String,
    noted: Noted,
    /// Into a namespace that is there already, too.
    overwrites: bool,
}

#[derive(Debug, PartialEq)]
enum Noted {
    Values(Vec<(String, Value)>),
    /// A message, which has nothing to do with values of the same namespace.
    Message(Packed),
}

fn read(at: &mut Reading<'_>) -> Vec<Entry> {
    let mut entries = Vec::new();
    // The old form, of one namespace.
    let namespace = at.text("metadata_namespace").map(str::to_owned);
    if at.has("value") {
        let noted = Noted::Values(values(at));
        entries.extend(namespace.map(|namespace| Entry { namespace, noted, overwrites: true }));
    }
    entries.extend(at.each("metadata", entry).into_iter().flatten());
    entries
}

/// `None` for one that notes nothing: a namespace is made by a `value`, even an empty one.
fn entry(at: &mut Reading<'_>) -> Option<Entry> {
    let has_values = at.has("value");
    let values = Noted::Values(values(at));
    // As in Envoy, where both are written the values count.
    let message = read::packed(at, "typed_value").filter(|_| values == Noted::Values(Vec::new()));
    let namespace = at.text("metadata_namespace").unwrap_or_default().to_owned();
    let overwrites = at.flag("allow_overwrite");
    let noted = message.map(Noted::Message).or(has_values.then_some(values))?;
    Some(Entry { namespace, noted, overwrites })
}

fn values(at: &mut Reading<'_>) -> Vec<(String, Value)> {
    match at.value("value") {
        Some(Value::Map(entries)) => entries.clone(),
        _ => Vec::new(),
    }
}

impl Factory for SetMetadata {
    fn route_config(&self, kind: &str, value: &Value) -> Result<RouteConfig, ConfigError> {
        if kind != KIND {
            let message = format!("set_metadata is overridden by {KIND}, not by {kind}");
            return Err(vec![ValueError { path: String::new(), message }]);
        }
        Ok(RouteConfig::new(Scope(Arc::new(Reading::all(value, read)?)), value))
    }

    fn filter(&self, configs: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        let stats = place.stats.block(&stat::SET, &format!("{}.set_metadata", place.stat_prefix));
        let own = configs.most_specific::<Scope>().map(|scope| List {
            entries: scope.0.clone(),
            stats: place.stats.block(&scope_stat::SET, ""),
            denied: scope_stat::OVERWRITE_DENIED,
        });
        let gateway = List { entries: self.0.clone(), stats, denied: stat::OVERWRITE_DENIED };
        Rc::new(Noter { lists: [gateway].into_iter().chain(own).collect() })
    }
}

postrider_telemetry::stat_set! {
    /// Namespaces that were there already; prefix: the connection manager's, then `set_metadata`.
    mod stat = "http";
    counters {
        OVERWRITE_DENIED = "overwrite_denied",
    }
}

postrider_telemetry::stat_set! {
    /// The same of a route's entries, which know no connection manager.
    mod scope_stat = "set_metadata";
    counters {
        OVERWRITE_DENIED = "overwrite_denied",
    }
}

/// The filter on one worker, as one route sees it.
struct Noter {
    lists: Vec<List>,
}

/// The entries of one scope.
struct List {
    entries: Arc<Vec<Entry>>,
    stats: Rc<Block>,
    denied: Counter,
}

impl Filter for Noter {
    fn hooks(&self) -> Hooks {
        Hooks { request_headers: self.lists.iter().any(|list| !list.entries.is_empty()), ..Hooks::default() }
    }

    fn on_request_headers(&self, _: &mut State, stream: &mut Stream<'_>, _end: bool) -> Action {
        self.lists.iter().for_each(|list| list.note(&mut stream.info.metadata));
        Action::Done
    }
}

impl List {
    fn note(&self, metadata: &mut Metadata) {
        for entry in self.entries.iter() {
            let values = match &entry.noted {
                Noted::Values(values) => values,
                Noted::Message(_) if !entry.overwrites && metadata.typed(&entry.namespace).is_some() => {
                    self.stats.inc(self.denied);
                    continue;
                }
                Noted::Message(message) => {
                    metadata.set_typed(&entry.namespace, message.clone());
                    continue;
                }
            };
            match metadata.namespace(&entry.namespace) {
                None => metadata.merge(&entry.namespace, values),
                Some(_) if !entry.overwrites => self.stats.inc(self.denied),
                Some(known) => {
                    let mut known = match known {
                        Value::Map(entries) => entries.clone(),
                        _ => Vec::new(),
                    };
                    merge(&mut known, values);
                    metadata.merge(&entry.namespace, &known);
                }
            }
        }
    }
}

/// Lays `with` over `over`: maps key by key, lists one behind the other, everything else replaced.
fn merge(over: &mut Vec<(String, Value)>, with: &[(String, Value)]) {
    for (key, value) in with {
        match (over.iter_mut().find(|(known, _)| known == key).map(|(_, known)| known), value) {
            (None, value) => over.push((key.clone(), value.clone())),
            (Some(Value::Map(known)), Value::Map(more)) => merge(known, more),
            (Some(Value::List(known)), Value::List(more)) => known.extend(more.iter().cloned()),
            (Some(known), value) => *known = value.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
