//! `envoy.filters.http.wasm` (`envoy.extensions.filters.http.wasm.v3.Wasm`): a plugin with the configurations that routes
//! may see.

use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use postrider_filter_api::plugin::{Facts, Sight};
use postrider_filter_api::{
    Action, ConfigError, Factory, Filter, Hooks, Place, RouteConfig, ScopedConfigs, State, Stream, WatchedFile,
};
use postrider_filter_plugin::{Edition, Missing, Override, Schema, Takes, json};
use postrider_model::{Value, ValueError};

use super::envoy::Read;
use crate::asked::hooks_of;
use crate::hooks::Hosted;
use crate::program::Plugin;
use crate::seat::Seat;
use crate::vm::Vm;

pub(super) const KIND: &str = "envoy.extensions.filters.http.wasm.v3.Wasm";

/// Builds the filter of requests.
pub(super) fn build(name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    let Read { facts, plugin, files, edition } = Read::of(name, value)?;
    Ok(match plugin {
        Some(plugin) => Arc::new(Wasm { plugin, schema: None, files, edition }),
        None => Arc::new(Missing::new((*facts).clone(), None, Takes::Texts)),
    })
}

pub(super) struct Wasm {
    pub(super) plugin: Arc<Plugin>,
    pub(super) schema: Option<Schema>,
    pub(super) files: Vec<WatchedFile>,
    pub(super) edition: Option<Edition>,
}

/// What a route says otherwise.
struct Own {
    /// The plugin with that configuration.
    plugin: Option<Arc<Plugin>>,
    disabled: bool,
}

/// Starts a machine and configures the plugin in it, as each worker will.
///
/// # Errors
/// In the machine's words.
pub(super) fn try_out(plugin: &Arc<Plugin>) -> Result<(), String> {
    let vm = Vm::start(&plugin.program, None).map_err(|fault| fault.to_string())?;
    vm.add_root(plugin).map(|_| ()).map_err(|fault| fault.to_string())
}

/// A number that tells plugins apart.
pub(super) fn next_id() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}

impl Wasm {
    /// The same plugin with another configuration.
    fn configured(&self, config: &Value) -> Arc<Plugin> {
        let plugin = &self.plugin;
        Arc::new(Plugin {
            id: next_id(),
            program: plugin.program.clone(),
            facts: plugin.facts.clone(),
            root_id: plugin.root_id.clone(),
            configuration: bytes_of(config),
            failure: plugin.failure,
            stops_heads_alone: plugin.stops_heads_alone,
            phases: plugin.phases.clone(),
        })
    }

    /// The filter beside the client, or on the upstream side.
    fn at(&self, configs: &ScopedConfigs, place: &Place<'_>, is_upstream: bool) -> Rc<dyn Filter> {
        let own = configs.most_specific::<Own>();
        if own.is_some_and(|own| own.disabled) {
            return Rc::new(Absent);
        }
        let plugin = own.and_then(|own| own.plugin.as_ref()).unwrap_or(&self.plugin);
        let seat = Seat::of(plugin, place);
        let hooks = hooks_of(&seat, seat.made().as_deref());
        let limit = match place.buffer_limit {
            0 => usize::MAX,
            limit => limit,
        };
        Rc::new(Hosted { seat, hooks, limit, is_upstream })
    }
}

/// A configuration of a manifest as its module gets it: a text as it is, an object as JSON.
pub(super) fn bytes_of(config: &Value) -> Vec<u8> {
    match config {
        Value::String(text) => text.clone().into_bytes(),
        object => json::to_json_text(object).into_bytes(),
    }
}

impl Factory for Wasm {
    fn route_config(&self, kind: &str, value: &Value) -> Result<RouteConfig, ConfigError> {
        let own = Override::read(kind, value, self.schema.as_ref(), Takes::Texts)?;
        let plugin = own.config.as_ref().map(|config| self.configured(config));
        if let Some(plugin) = &plugin {
            let refused = |message| vec![ValueError { path: "config".to_owned(), message }];
            try_out(plugin).map_err(refused)?;
        }
        Ok(RouteConfig::new(Own { plugin, disabled: own.disabled }, value))
    }

    fn filter(&self, configs: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        self.at(configs, place, false)
    }

    fn upstream_filter(&self, configs: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        self.at(configs, place, true)
    }

    /// The machine is made now: it may tick without any request.
    fn arrive(&self, place: &Place<'_>) -> Option<Rc<dyn Any>> {
        Some(Seat::of(&self.plugin, place))
    }

    fn files(&self) -> &[WatchedFile] {
        &self.files
    }

    fn is_current(&self) -> bool {
        self.plugin.program.is_current() && self.edition.as_ref().is_none_or(Edition::is_current)
    }

    /// Modules say by a foreign function what outlives a request.
    fn uses_connection(&self) -> bool {
        self.plugin.program.analysis.calls_foreign
    }

    fn sight(&self, configs: &ScopedConfigs) -> Option<Sight> {
        Some(Override::sight(configs))
    }

    fn note(&self) -> Option<&'static str> {
        self.plugin.program.note().or(self.plugin.failure.note())
    }

    fn plugin(&self) -> Option<&Facts> {
        Some(&self.plugin.facts)
    }
}

/// The plugin where it is switched off.
struct Absent;

impl Filter for Absent {
    fn hooks(&self) -> Hooks {
        Hooks::default()
    }

    fn on_request_headers(&self, _: &mut State, _: &mut Stream<'_>, _: bool) -> Action {
        Action::Done
    }
}
