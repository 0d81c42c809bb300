//! A module's filter on one worker, with the configuration that some routes share.

use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::plugin::OnError;
use postrider_filter_api::{Action, Host, LocalReply, Place, Stream};
use postrider_filter_plugin::{Account, Circuit, Metrics, stat};
use postrider_telemetry::log::{Component, Level};

use crate::config::{Config, RouteSettings};

pub(crate) struct OnWorker {
    pub(crate) config: Arc<Config>,
    /// The most specific one.
    pub(crate) route: Option<Arc<RouteSettings>>,
    pub(crate) worker: u32,
    /// 0 when there is none.
    pub(crate) buffer_limit: usize,
    /// Answers of the module's own are given whole here.
    pub(crate) is_upstream: bool,
    pub(crate) account: Account,
    pub(crate) circuit: Circuit,
    pub(crate) metrics: Rc<Metrics>,
    pub(crate) host: Rc<dyn Host>,
}

impl OnWorker {
    pub(crate) fn new(config: &Arc<Config>, route: Option<Arc<RouteSettings>>, place: &Place<'_>) -> OnWorker {
        let metrics = config.reach.serve(place.host, || {
            let metrics = Metrics::new(place.stats, config.given.namespace.clone(), "module");
            // Those without labels are shown from the start.
            for defined in config.definitions.all().iter().filter(|defined| defined.labels.is_empty()) {
                let _ = metrics.define(defined.sort, &defined.name);
            }
            metrics
        });
        OnWorker {
            config: config.clone(),
            route,
            worker: place.worker,
            buffer_limit: place.buffer_limit,
            is_upstream: false,
            account: Account::new(place.stats, &config.facts.name),
            circuit: Circuit::new(config.facts.policy.circuit),
            metrics,
            host: place.host.clone(),
        }
    }

    /// The module could not make its part of a stream.
    pub(crate) fn failed(&self, stream: &Stream<'_>) -> Action {
        let counts = self.account.of(stream.route);
        counts.inc(stat::route::ERRORS);
        if self.circuit.fault(stream.host.now()) {
            counts.inc(stat::route::CIRCUIT_OPENED);
            self.account.set_circuit_open(true);
            let name = &self.config.facts.name;
            let line = format_args!("{name}: failed too often and is passed by for a while");
            postrider_telemetry::log::write(Component::Filter, Level::Warning, line);
        }
        self.by_policy()
    }

    /// Whether the plugin is to be passed by for now.
    pub(crate) fn is_bypassed(&self, stream: &Stream<'_>) -> bool {
        let bypassed = !self.circuit.is_closed() && self.circuit.is_open(stream.host.now());
        if bypassed {
            self.account.of(stream.route).inc(stat::route::BYPASSED);
        }
        bypassed
    }

    /// The module made its part of a stream.
    pub(crate) fn succeeded(&self) {
        if !self.circuit.is_closed() && self.circuit.succeed() {
            self.account.set_circuit_open(false);
        }
    }

    pub(crate) fn by_policy(&self) -> Action {
        match self.config.facts.policy.on_error {
            OnError::Continue => Action::Done,
            OnError::Respond(status) => Action::Respond(Box::new(LocalReply {
                status,
                details: self.config.failure.into(),
                ..LocalReply::default()
            })),
        }
    }
}
