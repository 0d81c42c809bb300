//! Configurations: Envoy's Go filter, and plugin manifests whose runtime is Go.

pub(crate) mod any;
mod envoy;
mod manifest;
mod routes;

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use postrider_filter_api::plugin::{Facts, Policy};
use postrider_filter_api::{
    ConfigError, Factory, Filter, Place, Registry, RouteConfig, Sampling, ScopedConfigs, WatchedFile,
};
use postrider_filter_plugin::read::keep;
use postrider_filter_plugin::{Account, Circuit, register_runtimes};
use postrider_model::{Fields, Value, ValueError};

use crate::apart::{self, Child, Limits};
use crate::bridge;
use crate::filter::{GoFilter, Plugin, Recipe, stat};
use crate::library;
use crate::metrics::Metrics;
use crate::network;
use crate::parsed::{self, Home, Parsed, Refused};
use crate::plugin_names;
use crate::pool::Pool;
use crate::specifier;
use routes::{MergePolicy, Override, Overrides};

/// Makes Go filters and what chooses clusters known by the types of their configurations, and the runtime by its name in
/// manifests.
pub fn register(registry: &mut Registry) {
    registry.register(envoy::KIND, envoy::build);
    registry.register_network(network::KIND, network::build);
    registry.register_chooser(specifier::KIND, specifier::build);
    registry.register_bridge(bridge::KIND, bridge::build);
    register_runtimes(registry, &[manifest::RUNTIME], manifest::build);
}

/// The workers of this process: the first number that is said stays.
static WORKERS: AtomicU32 = AtomicU32::new(0);

/// How many workers there will be at most. Go code is told once, with the first configuration of each library; so whoever
/// starts workers says it before any configuration is read.
pub fn settle_workers(workers: usize) {
    let workers = u32::try_from(workers).unwrap_or(u32::MAX).max(1);
    // Only the first counts.
    let _ = WORKERS.compare_exchange(0, workers, Ordering::AcqRel, Ordering::Acquire);
}

fn workers() -> u32 {
    WORKERS.load(Ordering::Acquire).max(1)
}

/// A text that must be there; empty where it is not, with an error that says so.
pub(crate) fn required(fields: &mut Fields<'_>, key: &str, errors: &mut ConfigError) -> String {
    let Some(text) = keep(fields.string(key), errors) else { return String::new() };
    let text = text.unwrap_or_default().to_owned();
    if text.is_empty() {
        errors.push(fields.error(key, format!("there is no `{key}`")));
    }
    text
}

/// Nothing bounds what Go code takes.
fn unbounded(policy: Policy) -> Policy {
    Policy { cpu: Duration::MAX, memory: usize::MAX, ..policy }
}

/// A plugin with its own configuration, which Go code has parsed.
struct GoFactory {
    /// Distinct for each configuration that was read.
    id: u64,
    home: Home,
    recipe: Arc<Recipe>,
    base: Arc<Parsed>,
    metrics: Arc<Metrics>,
    merge: MergePolicy,
    overrides: Overrides,
    files: Vec<WatchedFile>,
}

/// What a factory is made from.
struct Wanted<'w> {
    path: &'w str,
    /// In a process of its own, which may take so much.
    apart: Option<Limits>,
    plugin: &'w str,
    /// A serialised `Any`; empty when there is none.
    config: Vec<u8>,
    merge: MergePolicy,
    overrides: Overrides,
    files: Vec<WatchedFile>,
}

/// A library that runs somewhere.
struct Loaded<'l> {
    path: &'l Path,
    digest: &'l str,
}

/// Why a configuration was not parsed.
fn in_words(plugin: &str, why: Refused) -> String {
    why.map_or_else(
        || format!("the Go plugin `{plugin}` refuses this configuration; what it says is in the log"),
        |why| format!("the Go plugin `{plugin}` did not parse this configuration: {why}"),
    )
}

impl GoFactory {
    /// Loads the library and has Go code read the configuration. `at` says where a failure belongs: the path, the plugin's name,
    /// and the configuration.
    fn load(
        wanted: Wanted<'_>,
        recipe: impl FnOnce(&Loaded<'_>) -> Recipe,
        at: [&str; 3],
    ) -> Result<Arc<dyn Factory>, ConfigError> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let refused = |path: &str, message: String| vec![ValueError { path: path.to_owned(), message }];
        let [path_at, name_at, config_at] = at;
        let path = Path::new(wanted.path);
        let mut files = wanted.files;
        if wanted.apart.is_some() {
            // Another file is another process, while code in this one cannot be replaced.
            files.push(WatchedFile::of(path, std::fs::File::open(path)));
        }
        let home = match wanted.apart {
            None => library::load(path).map(Home::Here),
            Some(limits) => Child::of(path, workers(), limits).map(Home::Apart),
        };
        let home = home.map_err(|message| refused(path_at, message))?;
        let is_there = match &home {
            Home::Here(library) => library.object.mentions(wanted.plugin),
            Home::Apart(child) => plugin_names::stands_in(child.path(), wanted.plugin),
        };
        if !is_there {
            // The SDK would let all requests pass, be it one that is to turn some away.
            return Err(refused(name_at, plugin_names::unknown(wanted.path, wanted.plugin)));
        }
        let plugin = parsed::name(wanted.plugin);
        let metrics = Arc::new(Metrics::default());
        let base = Parsed::of_filter(&home, plugin, &wanted.config, &metrics, workers())
            .map_err(|why| refused(config_at, in_words(plugin, why)))?;
        let loaded = match &home {
            Home::Here(library) => Loaded { path: &library.object.path, digest: &library.object.digest },
            Home::Apart(child) => Loaded { path: child.path(), digest: &child.digest },
        };
        let recipe = Arc::new(recipe(&loaded));
        Ok(Arc::new(GoFactory {
            id: LAST.fetch_add(1, Ordering::Relaxed),
            home,
            recipe,
            base,
            metrics,
            merge: wanted.merge,
            overrides: wanted.overrides,
            files,
        }))
    }

    /// This worker's plugin.
    fn plugin(&self, place: &Place<'_>) -> Rc<Plugin> {
        thread_local! {
            static PLUGINS: RefCell<HashMap<(u64, String), Weak<Plugin>>> = RefCell::default();
        }
        let key = (self.id, place.stat_prefix.to_owned());
        PLUGINS.with_borrow_mut(|plugins| {
            if let Some(known) = plugins.get(&key).and_then(Weak::upgrade) {
                return known;
            }
            plugins.retain(|_, plugin| plugin.strong_count() > 0);
            let pool = Pool::here(place.worker, || place.host.remote());
            let remote = place.host.remote();
            self.metrics.serve(place.stats, &remote);
            let facts = &self.recipe.facts;
            let plugin = Rc::new(Plugin {
                recipe: self.recipe.clone(),
                pool,
                account: Account::new(place.stats, &facts.name),
                circuit: Circuit::new(facts.policy.circuit),
                stats: place.stats.block(&stat::SET, &format!("{}.golang", place.stat_prefix)),
                sampling: Sampling::default(),
                limit: if place.buffer_limit == 0 { usize::MAX } else { place.buffer_limit },
                host: place.host.clone(),
            });
            if let Home::Apart(child) = &self.home {
                apart::watch(child, &plugin, &remote);
            }
            plugins.insert(key, Rc::downgrade(&plugin));
            plugin
        })
    }
}

impl Factory for GoFactory {
    fn route_config(&self, kind: &str, value: &Value) -> Result<RouteConfig, ConfigError> {
        let read = self.overrides.read(kind, value, &self.home, self.base.plugin, workers())?;
        Ok(RouteConfig::new(read, value))
    }

    fn filter(&self, configs: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        let scopes: Vec<&Override> = configs.specific_first().collect();
        let served = place.worker < workers();
        if !served {
            // Go code would index its tables out of bounds.
            postrider_telemetry::error!(
                Filter,
                "worker {} is one more than Go plugins were told of: they are passed by on it",
                place.worker
            );
        }
        let config = if served { self.merge.merged(&self.base, &scopes) } else { None };
        Rc::new(GoFilter { plugin: self.plugin(place), config })
    }

    fn files(&self) -> &[WatchedFile] {
        &self.files
    }

    fn uses_connection(&self) -> bool {
        true
    }

    fn plugin(&self) -> Option<&Facts> {
        Some(&self.recipe.facts)
    }
}
