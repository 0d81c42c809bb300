//! Notes configured values in the metadata of every request, for later filters, routes and logs.
//!
//! Configured as `envoy.extensions.filters.http.set_metadata.v3.Config`. A namespace that is there already is kept, or
//! merged with where the configuration allows it: maps key by key, lists one behind the other, everything else replaced.

use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{
    Action, ConfigError, Factory, Filter, Hooks, Place, RouteConfig, ScopedConfigs, State, Stream,
};
use postrider_model::{Packed, Reading, Value, ValueError};
use postrider_telemetry::Block;

use crate::read;

pub(crate) const KIND: &str = "envoy.extensions.filters.http.set_metadata.v3.Config";

/// Reads a gateway-level configuration.
pub(crate) fn build(_name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    Ok(Arc::new(SetMetadata(Arc::new(Reading::all(value, read)?))))
}

struct SetMetadata(Arc<Vec<Entry>>);

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
    entries.extend(at.each("metadata", entry));
    entries
}

fn entry(at: &mut Reading<'_>) -> Entry {
    let values = Noted::Values(values(at));
    // As in Envoy, where both are written the values count.
    let message = read::packed(at, "typed_value").filter(|_| values == Noted::Values(Vec::new()));
    Entry {
        namespace: at.text("metadata_namespace").unwrap_or_default().to_owned(),
        noted: message.map_or(values, Noted::Message),
        overwrites: at.flag("allow_overwrite"),
    }
}

fn values(at: &mut Reading<'_>) -> Vec<(String, Value)> {
    match at.value("value") {
        Some(Value::Map(entries)) => entries.clone(),
        _ => Vec::new(),
    }
}

impl Factory for SetMetadata {
    fn route_config(&self, _: &str, _: &Value) -> Result<RouteConfig, ConfigError> {
        let message = "set_metadata cannot be configured for a route".to_owned();
        Err(vec![ValueError { path: String::new(), message }])
    }

    fn filter(&self, _: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        Rc::new(Noter {
            entries: self.0.clone(),
            stats: place.stats.block(&stat::SET, &format!("{}.set_metadata", place.stat_prefix)),
        })
    }
}

postrider_telemetry::stat_set! {
    /// Namespaces that were there already; prefix: the connection manager's, then `set_metadata`.
    mod stat = "http";
    counters {
        OVERWRITE_DENIED = "overwrite_denied",
    }
}

/// The filter on one worker.
struct Noter {
    entries: Arc<Vec<Entry>>,
    stats: Rc<Block>,
}

impl Filter for Noter {
    fn hooks(&self) -> Hooks {
        Hooks { request_headers: !self.entries.is_empty(), ..Hooks::default() }
    }

    fn on_request_headers(&self, _: &mut State, stream: &mut Stream<'_>, _end: bool) -> Action {
        let metadata = &mut stream.info.metadata;
        for entry in self.entries.iter() {
            let values = match &entry.noted {
                Noted::Values(values) => values,
                Noted::Message(_) if !entry.overwrites && metadata.typed(&entry.namespace).is_some() => {
                    self.stats.inc(stat::OVERWRITE_DENIED);
                    continue;
                }
                Noted::Message(message) => {
                    metadata.set_typed(&entry.namespace, message.clone());
                    continue;
                }
            };
            match metadata.namespace(&entry.namespace) {
                None => metadata.merge(&entry.namespace, values),
                Some(_) if !entry.overwrites => self.stats.inc(stat::OVERWRITE_DENIED),
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
        Action::Done
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
