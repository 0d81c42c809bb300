//! A plugin as its configuration loads it, with the machine that a worker would have.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use postrider_filter_api::fake::{FakeHost, FakeStream};
use postrider_filter_api::{ClusterHealth, ConfigError, Factory, Filter, Host, Place, Registry, ScopedConfigs};
use postrider_model::Value;
use postrider_telemetry::{Registry as Stats, WorkerStats};

use crate::message::system_clock;
use crate::observe::{Event, Watch};
use crate::{Driver, mailbox};

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
    /// Of calls and timers that are the machine's own rather than a stream's.
    pub(crate) host: Rc<FakeHost>,
    /// How long a message may wait for what other threads do.
    pub(crate) patience: Duration,
    /// What was seen of the plugin before its first stream.
    pub(crate) beginning: RefCell<Vec<Event>>,
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
        let watch = Watch::start();
        let built = registry.build(name, kind, value);
        let factory = built.ok_or_else(|| vec![format!("there is no filter {kind}")])?;
        // What it says while it is tried out, the worker's machine says again.
        let said = watch.take();
        let factory = factory.map_err(|errors| with_log(lines(errors), said))?;
        let stats = Stats::new();
        let worker = stats.worker(0);
        // Every cluster that is asked for has a host.
        let health = ClusterHealth { all: 1, available: 1, degraded: 0 };
        let host = Rc::new(FakeHost { clock: system_clock, health, remote: mailbox::here(), ..FakeHost::default() });
        let plain = factory.filter(&ScopedConfigs::default(), &place(&worker, &(host.clone() as Rc<dyn Host>)));
        let (patience, beginning) = (Duration::ZERO, RefCell::new(watch.take()));
        Ok(Loaded { factory, route, stats, worker, host, patience, beginning, _plain: plain })
    }

    /// The same, of a plugin that has threads of its own: a message that waits may wait so long for them.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Loaded {
        Loaded { patience, ..self }
    }

    /// As manifests name what runs it; `None` when it is no plugin.
    pub fn runtime(&self) -> Option<&'static str> {
        self.factory.plugin().map(|facts| facts.runtime)
    }

    /// The filter of a route with this configuration, on a stream.
    ///
    /// # Errors
    /// What is wrong with the configuration.
    pub fn driver(&self, route_config: Option<&Value>, mut stream: FakeStream) -> Result<Driver, Vec<String>> {
        stream.host.remote = self.host.remote.clone();
        let mut configs = ScopedConfigs::default();
        if let Some(config) = route_config {
            let value = Value::Map(vec![(self.route.field.to_owned(), config.clone())]);
            configs.route = Some(self.factory.route_config(self.route.kind, &value).map_err(lines)?);
        }
        let filter = self.factory.filter(&configs, &place(&self.worker, &(self.host.clone() as Rc<dyn Host>)));
        Ok(Driver::around(filter, self.stats.clone(), stream))
    }
}

fn place<'p>(worker: &'p WorkerStats, host: &'p Rc<dyn Host>) -> Place<'p> {
    Place { stats: worker, stat_prefix: "plugin", worker: 0, buffer_limit: 0, head_limits: None, host }
}

/// What a plugin logged before it was refused says more than the refusal.
fn with_log(mut errors: Vec<String>, events: Vec<Event>) -> Vec<String> {
    errors.extend(events.into_iter().filter_map(|event| match event {
        Event::Log { level, text } => Some(format!("it logged ({}): {text}", level.name())),
        Event::Ran { .. } | Event::Fault { .. } => None,
    }));
    errors
}

fn lines(errors: ConfigError) -> Vec<String> {
    let line = |error: postrider_model::ValueError| match error.path.as_str() {
        // The file is what was given: the place in a configuration that nobody wrote says nothing.
        "" | "code" | "code.filename" | "default_source_code" => error.message,
        path => format!("{path}: {}", error.message),
    };
    errors.into_iter().map(line).collect()
}
