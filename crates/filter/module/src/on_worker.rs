//! A module's filter on one worker, with the configuration that some routes share.

use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::plugin::OnError;
use postrider_filter_api::{Action, Host, LocalReply, Place, Stream};
use postrider_filter_plugin::{Account, Metrics, stat};

use crate::config::{Config, RouteSettings};

pub(crate) struct OnWorker {
    pub(crate) config: Arc<Config>,
    /// The most specific one.
    pub(crate) route: Option<Arc<RouteSettings>>,
    pub(crate) worker: u32,
    /// 0 when there is none.
    pub(crate) buffer_limit: usize,
    pub(crate) account: Account,
    pub(crate) metrics: Metrics,
    pub(crate) host: Rc<dyn Host>,
}

impl OnWorker {
    pub(crate) fn new(config: &Arc<Config>, route: Option<Arc<RouteSettings>>, place: &Place<'_>) -> OnWorker {
        config.serve(place.host);
        let metrics = Metrics::new(place.stats, config.namespace.clone(), "module");
        // Those without labels are shown from the start.
        for defined in config.all_defined().iter().filter(|defined| defined.labels.is_empty()) {
            let _ = metrics.define(defined.sort, &defined.name);
        }
        OnWorker {
            config: config.clone(),
            route,
            worker: place.worker,
            buffer_limit: place.buffer_limit,
            account: Account::new(place.stats, &config.facts.name),
            metrics,
            host: place.host.clone(),
        }
    }

    /// The module could not make its part of a stream.
    pub(crate) fn failed(&self, stream: &Stream<'_>) -> Action {
        self.account.of(stream.route).inc(stat::route::ERRORS);
        match self.config.facts.policy.on_error {
            OnError::Continue => Action::Done,
            OnError::Respond(status) => Action::Respond(Box::new(LocalReply {
                status,
                details: "plugin_failed".into(),
                ..LocalReply::default()
            })),
        }
    }
}
