//! A plugin as its configuration loads it, with the machine that a worker would have.

use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::fake::{FakeHost, FakeStream};
use postrider_filter_api::{ConfigError, Factory, Filter, Host, Place, Registry, ScopedConfigs};
use postrider_model::Value;
use postrider_telemetry::{Registry as Stats, WorkerStats};

use crate::Driver;

/// Where a route's configuration of a plugin stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteKind {
    /// The type of what a route says.
    pub kind: &'static str,
    /// The field in it that the plugin sees.
    pub field: &'static str,
}

/// A plugin with the machine that a worker would have.
pub struct Loaded {
    factory: Arc<dyn Factory>,
    route: RouteKind,
    stats: Stats,
    worker: WorkerStats,
    /// Keeps the worker's plugin, and so its machine, from stream to stream.
    _plain: Rc<dyn Filter>,
}

impl Loaded {
    /// Builds the filter of this type, as a configuration would, and makes it for a worker.
    ///
    /// # Errors
    /// What is wrong with the plugin or with its configuration.
    pub fn build(
        registry: &Registry,
        name: &str,
        kind: &str,
        value: &Value,
        route: RouteKind,
    ) -> Result<Loaded, Vec<String>> {
        let built = registry.build(name, kind, value);
        let factory = built.ok_or_else(|| vec![format!("there is no filter {kind}")])?.map_err(lines)?;
        let stats = Stats::new();
        let worker = stats.worker(0);
        let plain = factory.filter(&ScopedConfigs::default(), &place(&worker, &FakeHost::unwatched()));
        Ok(Loaded { factory, route, stats, worker, _plain: plain })
    }

    /// The filter of a route with this configuration, on a stream.
    ///
    /// # Errors
    /// What is wrong with the configuration.
    pub fn driver(&self, route_config: Option<&Value>, stream: FakeStream) -> Result<Driver, Vec<String>> {
        let mut configs = ScopedConfigs::default();
        if let Some(config) = route_config {
            let value = Value::Map(vec![(self.route.field.to_owned(), config.clone())]);
            configs.route = Some(self.factory.route_config(self.route.kind, &value).map_err(lines)?);
        }
        let filter = self.factory.filter(&configs, &place(&self.worker, &FakeHost::unwatched()));
        Ok(Driver::around(filter, self.stats.clone(), stream))
    }
}

fn place<'p>(worker: &'p WorkerStats, host: &'p Rc<dyn Host>) -> Place<'p> {
    Place { stats: worker, stat_prefix: "plugin", worker: 0, buffer_limit: 0, host }
}

fn lines(errors: ConfigError) -> Vec<String> {
    let line = |error: postrider_model::ValueError| match error.path.as_str() {
        // The file is what was given: the place in a configuration that nobody wrote says nothing.
        "" | "code" | "default_source_code" => error.message,
        path => format!("{path}: {}", error.message),
    };
    errors.into_iter().map(line).collect()
}
