//! Go code that sees the bytes of connections (`envoy.extensions.filters.network.golang.v3alpha`), and opens connections of
//! its own.
//!
//! ```text
//! client ── hooks ──> session ── entry points ──> library (Go) <── entry points ── upstream <── hears ── dial
//!                        ^                             │ host functions, from any thread         ^
//!                        └────────── jobs ── line <────┴──────────────── jobs ───────────────────┘
//! ```
//!
//! Go code knows a connection by a number ([`line`]). What it wants of one is done by that one's worker, when the hook that
//! runs has returned.
//!
//! As in Envoy, what it was shown of what a client sent is gone: it passes on what it wants to pass on.

mod entries;
pub(crate) mod line;
mod session;
mod upstream;

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use postrider_filter_api::plugin::{CircuitRule, DEFAULT_CIRCUIT, Ends, Facts, Policy};
use postrider_filter_api::{ConfigError, Connection, NetworkFactory, NetworkFilter, NetworkSession, Place};
use postrider_filter_plugin::Account;
use postrider_filter_plugin::read::keep;
use postrider_model::{Value, ValueError};

use crate::config::{any, required};
use crate::parsed::address;
use crate::plugin_names;
use crate::trial::{self, Kind};
use entries::Library;
use session::Session;
pub(crate) use upstream::connect;

pub(crate) const KIND: &str = "envoy.extensions.filters.network.golang.v3alpha.Config";

/// Reads `Config`, and has the library read its part.
pub(crate) fn build(_: &str, value: &Value) -> Result<Arc<dyn NetworkFactory>, ConfigError> {
    let mut errors = Vec::new();
    let mut fields = value.fields().map_err(|error| vec![error])?;
    // Whoever reads the chain looks at it.
    let _ = keep(fields.bool("is_terminal_filter"), &mut errors);
    let [_, path, plugin] =
        ["library_id", "library_path", "plugin_name"].map(|key| required(&mut fields, key, &mut errors));
    let any = keep(any::encode(fields.value("plugin_config"), "plugin_config"), &mut errors).unwrap_or_default();
    let shown = fields.value("plugin_config").cloned();
    errors.extend(fields.finish().err().into_iter().flatten());
    if !errors.is_empty() {
        return Err(errors);
    }
    let refused = |path: &str, message: String| vec![ValueError { path: path.to_owned(), message }];
    let library = entries::load(Path::new(&path)).map_err(|message| refused("library_path", message))?;
    if !library.object.mentions(&plugin) {
        // Go code looks for the name when a connection comes, and ends the process when there is none.
        return Err(refused("plugin_name", plugin_names::unknown(&path, &plugin)));
    }
    trial::of(Kind::Connections, library.object, &plugin, &any).map_err(|why| refused("plugin_config", why))?;
    let id = read(library, &any);
    if id == 0 {
        return Err(refused("plugin_config", format!("the Go code of {path} refuses this configuration")));
    }
    let facts = Facts {
        name: plugin,
        version: String::new(),
        runtime: "envoy-golang",
        source: library.object.path.display().to_string(),
        digest: library.object.digest.clone(),
        policy: boundless(),
        config: shown.unwrap_or(Value::Map(Vec::new())),
        schema: None,
    };
    Ok(Arc::new(Factory(Arc::new(Config { library, id, facts }))))
}

/// Has Go code read a configuration: a number for it, 0 when it is refused.
fn read(library: &Library, any: &[u8]) -> u64 {
    // Go code gives the name back when it opens a connection: libraries are told apart by their paths.
    let name = library.name();
    // SAFETY: the bytes outlive the call, in which Go code copies them.
    unsafe { (library.entries.new_config)(address(name.as_bytes()), name.len() as u64, address(any), any.len() as u64) }
}

/// Whether the library at this path takes a configuration: for a process that does nothing else.
///
/// # Errors
/// It cannot be loaded, or has no such filters.
pub(crate) fn accepts(path: &Path, any: &[u8]) -> Result<bool, String> {
    Ok(read(entries::load(path)?, any) != 0)
}

/// Nothing bounds what Go code takes, and the SDK recovers no panic of such filters.
fn boundless() -> Policy {
    let circuit = CircuitRule { faults: 0, cpu_kills: 0, ..DEFAULT_CIRCUIT };
    Policy { cpu: Duration::MAX, memory: usize::MAX, circuit, ends: Some(Ends::Process), ..Policy::default() }
}

/// A filter's configuration, which Go code has read; it keeps it for good.
struct Config {
    library: &'static Library,
    id: u64,
    facts: Facts,
}

struct Factory(Arc<Config>);

impl NetworkFactory for Factory {
    fn network_filter(&self, place: &Place<'_>) -> Rc<dyn NetworkFilter> {
        upstream::serve(place);
        let account = Account::new(place.stats, &self.0.facts.name);
        Rc::new(Filter(Rc::new(Watching { config: self.0.clone(), account })))
    }

    fn plugin(&self) -> Option<&Facts> {
        Some(&self.0.facts)
    }
}

/// Such a filter on one worker.
struct Watching {
    config: Arc<Config>,
    account: Account,
}

struct Filter(Rc<Watching>);

impl NetworkFilter for Filter {
    fn begin(&self, connection: &mut Connection<'_>) -> Option<Box<dyn NetworkSession>> {
        Some(Box::new(Session::new(&self.0, connection)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_told_at_once() {
        let text = |text: &str| Value::String(text.to_owned());
        let value = Value::Map(vec![
            ("is_terminal_filter".into(), text("x")),
            ("library_path".into(), text("")),
            ("plugin_config".into(), Value::Map(vec![("@type".into(), text("x/a.B"))])),
            ("other".into(), text("x")),
        ]);
        let errors = build("", &value).err().unwrap();
        let paths: Vec<&str> = errors.iter().map(|error| error.path.as_str()).collect();
        let wanted = ["is_terminal_filter", "library_id", "library_path", "plugin_name", "plugin_config", "other"];
        assert_eq!(paths, wanted);
    }
}
