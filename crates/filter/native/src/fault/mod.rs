//! Faults on purpose: delays, aborts and slow answers, to see how clients and services take them.
//!
//! Configured as `envoy.extensions.filters.http.fault.v3.HTTPFault`, for the whole gateway and for virtual hosts, routes
//! and weighted clusters; the most specific configuration counts alone. Details are as in Envoy 1.40.
//!
//! ```text
//! head ──> not meant: on
//!      └──> delayed: the request pauses ──> aborted: answered here
//!                                       └──> on; its answer goes no faster than its limit
//! ```

mod config;
mod overrides;
mod request;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use postrider_filter_api::{
    Action, CallHandle, ConfigError, Factory, Filter, Flags, Hooks, LocalReply, Place, RouteConfig, ScopedConfigs,
    State, Stream, StreamInfo, Withheld,
};
use postrider_http::HeaderId;
use postrider_model::{Value, ValueError};
use postrider_telemetry::{Block, WorkerStats};

use crate::pace::Pace;
use crate::share::drawn;
use config::{Abort, Config};

pub(crate) const KIND: &str = "envoy.extensions.filters.http.fault.v3.HTTPFault";

/// How often a slow answer goes on.
const INTERVAL: Duration = Duration::from_millis(50);

/// Counters of more clusters that requests say they come from are not kept: a client writes what it likes.
const MAX_CLUSTERS: usize = 100;

/// Reads a gateway-level configuration.
pub(crate) fn build(name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    let config = Arc::new(config::read(value)?);
    Ok(Arc::new(Fault { name: name.to_owned(), config, active: Arc::default() }))
}

struct Fault {
    name: String,
    config: Arc<Config>,
    /// Streams with a fault, of all workers.
    active: Arc<AtomicU64>,
}

/// The configuration of a more specific scope.
struct Scope(Arc<Config>);

impl Factory for Fault {
    fn route_config(&self, kind: &str, value: &Value) -> Result<RouteConfig, ConfigError> {
        if kind != KIND {
            let message = format!("fault is overridden by {KIND}, not by {kind}");
            return Err(vec![ValueError { path: String::new(), message }]);
        }
        Ok(RouteConfig::new(Scope(Arc::new(config::read(value)?)), value))
    }

    fn filter(&self, configs: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        Rc::new(self.injector(configs, place, None))
    }

    fn shadow_filter(&self, configs: &ScopedConfigs, place: &Place<'_>, withheld: &Rc<Withheld>) -> Rc<dyn Filter> {
        Rc::new(self.injector(configs, place, Some(withheld.clone())))
    }
}

impl Fault {
    fn injector(&self, configs: &ScopedConfigs, place: &Place<'_>, withheld: Option<Rc<Withheld>>) -> Injector {
        let prefix = format!("{}.fault", place.stat_prefix);
        Injector {
            name: self.name.clone(),
            config: configs.most_specific::<Scope>().map_or(&self.config, |scope| &scope.0).clone(),
            active: self.active.clone(),
            counters: place.stats.block(&stat::SET, &prefix),
            clusters: Clusters { stats: place.stats.clone(), prefix, blocks: RefCell::default() },
            withheld,
        }
    }
}

postrider_telemetry::stat_set! {
    /// Faults; prefix: the connection manager's, then `fault`.
    mod stat = "http";
    counters {
        ABORTS = "aborts_injected",
        DELAYS = "delays_injected",
        OVERFLOW = "faults_overflow",
        RATE_LIMITS = "response_rl_injected",
    }
    gauges { ACTIVE = "active_faults" }
}

postrider_telemetry::stat_set! {
    /// Faults by the cluster that requests say they come from; prefix: as above, then its name.
    mod cluster_stat = "http";
    lazy_counters { ABORTS = "aborts_injected", DELAYS = "delays_injected" }
}

/// The filter on one worker, as one route sees it.
struct Injector {
    name: String,
    config: Arc<Config>,
    active: Arc<AtomicU64>,
    counters: Rc<Block>,
    clusters: Clusters,
    /// In the shadow, where nothing waits.
    withheld: Option<Rc<Withheld>>,
}

/// Counters by the clusters that requests say they come from.
struct Clusters {
    stats: WorkerStats,
    prefix: String,
    blocks: RefCell<Vec<(Vec<u8>, Rc<Block>)>>,
}

/// One stream's.
#[derive(Default)]
struct Progress {
    delay: Option<CallHandle>,
    pace: Option<Pace>,
    /// The stream counts as one with a fault.
    active: bool,
}

impl Filter for Injector {
    fn hooks(&self) -> Hooks {
        let config = &self.config;
        let any = config.delay.is_some() || config.abort.is_some() || config.rate.is_some();
        Hooks {
            request_headers: any,
            response_headers: config.rate.is_some(),
            response_body: config.rate.is_some(),
            complete: any,
            keeps_bodies: true,
            ..Hooks::default()
        }
    }

    fn on_request_headers(&self, state: &mut State, stream: &mut Stream<'_>, _end: bool) -> Action {
        if !request::is_meant(&self.config, stream) {
            return Action::Done;
        }
        self.slow_down(state, stream);
        if let Some(delay) = self.delay(stream)
            && self.begin(state)
        {
            self.note(stream, |counters| counters.inc(stat::DELAYS), |cluster| cluster.inc(cluster_stat::DELAYS));
            if let Some(withheld) = &self.withheld {
                withheld.would_wait(delay);
                return self.abort(state, stream);
            }
            stream.info.flags.insert(Flags::DELAY_INJECTED);
            let wait = stream.resume_after(delay);
            if let Some(progress) = state.get_or_insert_with(Progress::default) {
                progress.delay = Some(wait);
            }
            return Action::Pause;
        }
        self.abort(state, stream)
    }

    fn on_request_resumed(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        if let Some(progress) = progress(state) {
            progress.delay = None;
        }
        let action = self.abort(state, stream);
        // What waits for its upstream has no fault any more. Its answer may have one, drawn or not, as Envoy counts.
        if matches!(action, Action::Continue) && self.config.rate.is_none() {
            self.end(state);
        }
        action
    }

    fn on_response_headers(&self, state: &mut State, _: &mut Stream<'_>, _end: bool) -> Action {
        match progress(state) {
            Some(Progress { pace: Some(_), .. }) => Action::Continue,
            _ => Action::Done,
        }
    }

    fn on_response_body(&self, state: &mut State, stream: &mut Stream<'_>, _end: bool) -> Action {
        let held = stream.response_body.bytes().len();
        match (progress(state).and_then(|progress| progress.pace.as_mut()), &self.withheld) {
            (Some(pace), Some(withheld)) if pace.draw(held, stream.host.now()) < held => {
                withheld.would_pace();
                Action::Done
            }
            (Some(_), Some(_)) => Action::Continue,
            (Some(pace), None) => pace.step(held, stream).action(held),
            (None, _) => Action::Done,
        }
    }

    fn on_response_resumed(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        self.on_response_body(state, stream, false)
    }

    fn on_complete(&self, state: &mut State, _: &StreamInfo) {
        self.end(state);
    }
}

fn progress(state: &mut State) -> Option<&mut Progress> {
    match state {
        State::Any(progress) => progress.downcast_mut(),
        _ => None,
    }
}

impl Injector {
    /// Whether the stream may have a fault: it has one already, or there are not too many. Counts it.
    fn begin(&self, state: &mut State) -> bool {
        if progress(state).is_some_and(|progress| progress.active) {
            return true;
        }
        let max = self.config.max_active;
        let more = |active: u64| (active < max).then_some(active + 1);
        if self.active.fetch_update(Relaxed, Relaxed, more).is_err() {
            self.counters.inc(stat::OVERFLOW);
            return false;
        }
        self.counters.gauge_inc(stat::ACTIVE);
        if let Some(progress) = state.get_or_insert_with(Progress::default) {
            progress.active = true;
        }
        true
    }

    /// The stream has no fault any more.
    fn end(&self, state: &mut State) {
        if progress(state).is_some_and(|progress| std::mem::take(&mut progress.active)) {
            self.active.fetch_sub(1, Relaxed);
            self.counters.gauge_dec(stat::ACTIVE);
        }
    }

    fn slow_down(&self, state: &mut State, stream: &mut Stream<'_>) {
        let Some(rate) = &self.config.rate else { return };
        let share = request::share(rate, self.config.overrides.rate_share, request::RATE_SHARE, stream.request);
        if !drawn(Some(share), stream) {
            return;
        }
        let Some(rate) = request::rate(&rate.what, stream.request) else { return };
        if !self.begin(state) {
            return;
        }
        self.counters.inc(stat::RATE_LIMITS);
        if let Some(progress) = state.get_or_insert_with(Progress::default) {
            progress.pace = Some(Pace::new(Arc::new(Pace::bucket(rate, INTERVAL)), INTERVAL));
        }
    }

    fn delay(&self, stream: &Stream<'_>) -> Option<Duration> {
        let delay = self.config.delay.as_ref()?;
        let overrides = &self.config.overrides;
        let of_request = overrides.of(stream.request);
        let instead = of_request.and_then(|values| values.delay_share);
        if !drawn(Some(request::share(delay, instead, request::DELAY_SHARE, stream.request)), stream) {
            return None;
        }
        let asked = request::delay(&delay.what, stream.request)?;
        let of_runtime = of_request.and_then(|values| values.delay).or(overrides.all.delay);
        Some(of_runtime.unwrap_or(asked)).filter(|delay| !delay.is_zero())
    }

    fn abort(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        let Some(abort) = &self.config.abort else { return Action::Continue };
        let values = self.config.overrides.of(stream.request);
        let instead = values.and_then(|values| values.abort_share);
        if !drawn(Some(request::share(abort, instead, request::ABORT_SHARE, stream.request)), stream) {
            return Action::Continue;
        }
        let Some(abort) = request::abort(&abort.what, stream.request) else { return Action::Continue };
        let abort = request::instead(abort, values);
        if !self.begin(state) {
            return Action::Continue;
        }
        self.note(stream, |counters| counters.inc(stat::ABORTS), |cluster| cluster.inc(cluster_stat::ABORTS));
        stream.info.flags.insert(Flags::FAULT_INJECTED);
        let (status, grpc_status) = match abort {
            Abort::Http(status) => (status, None),
            Abort::Grpc(code) => (200, Some(code)),
        };
        Action::Respond(Box::new(LocalReply {
            status,
            grpc_status,
            body: self.config.body.clone().unwrap_or_else(|| "fault filter abort".to_owned()).into_bytes().into(),
            headers: Vec::new(),
            details: "fault_filter_abort".into(),
            ..LocalReply::default()
        }))
    }

    /// Counts a fault, also for the cluster that the request says it comes from, and leaves the metadata.
    fn note(&self, stream: &mut Stream<'_>, all: impl FnOnce(&Block), of_cluster: impl FnOnce(&Block)) {
        all(&self.counters);
        let from = stream.request.fields.get(HeaderId::XEnvoyDownstreamServiceCluster);
        if let Some(from) = from.filter(|from| self.config.by_downstream && !from.is_empty())
            && let Some(block) = self.clusters.of(from)
        {
            of_cluster(&block);
        }
        stream.info.metadata.merge(&self.name, &self.config.metadata);
    }
}

impl Clusters {
    fn of(&self, name: &[u8]) -> Option<Rc<Block>> {
        let mut blocks = self.blocks.borrow_mut();
        if let Some((_, block)) = blocks.iter().find(|(known, _)| known == name) {
            return Some(block.clone());
        }
        if blocks.len() >= MAX_CLUSTERS {
            return None;
        }
        let prefix = format!("{}.{}", self.prefix, String::from_utf8_lossy(name));
        let block = self.stats.block(&cluster_stat::SET, &prefix);
        blocks.push((name.to_vec(), block.clone()));
        Some(block)
    }
}

#[cfg(test)]
mod tests;
