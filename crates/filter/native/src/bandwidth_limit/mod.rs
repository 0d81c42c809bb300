//! Bodies that go no faster than so many KiB per second, all of a route together.
//!
//! Configured as `envoy.extensions.filters.http.bandwidth_limit.v3.BandwidthLimit`, for the whole gateway and for
//! virtual hosts, routes and weighted clusters; the most specific configuration counts alone, with a bucket of its own.
//! Both directions and all workers draw from it. Details are as in Envoy 1.40.

mod config;

use std::any::Any;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use postrider_filter_api::{
    Action, Bucket, ConfigError, Factory, Filter, Hooks, Moment, Place, RouteConfig, ScopedConfigs, State, Stream,
    StreamInfo, Withheld,
};
use postrider_model::{Value, ValueError};
use postrider_telemetry::Block;
use postrider_telemetry::stats::{Counter, Gauge, Histogram};

use crate::pace::{Pace, Step};
use config::Config;

pub(crate) const KIND: &str = "envoy.extensions.filters.http.bandwidth_limit.v3.BandwidthLimit";

/// Reads a gateway-level configuration.
pub(crate) fn build(_name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    let own = Arc::new(Scope::new(config::read(value, false)?));
    let waiting = Mutex::new(own.bucket.iter().map(Arc::downgrade).collect());
    Ok(Arc::new(BandwidthLimit { own, waiting }))
}

struct BandwidthLimit {
    own: Arc<Scope>,
    /// Buckets that begin to fill when the configuration comes into force: before any request.
    waiting: Mutex<Vec<Weak<Bucket>>>,
}

/// A configuration with its bucket; none without a limit.
struct Scope {
    config: Config,
    bucket: Option<Arc<Bucket>>,
}

struct Override(Arc<Scope>);

impl Scope {
    fn new(config: Config) -> Scope {
        let bucket = config.kib_per_second.map(|rate| Arc::new(Pace::bucket(rate, config.interval)));
        Scope { config, bucket }
    }
}

impl Factory for BandwidthLimit {
    fn route_config(&self, kind: &str, value: &Value) -> Result<RouteConfig, ConfigError> {
        if kind != KIND {
            let message = format!("bandwidth_limit is overridden by {KIND}, not by {kind}");
            return Err(vec![ValueError { path: String::new(), message }]);
        }
        let scope = Scope::new(config::read(value, true)?);
        self.waiting().extend(scope.bucket.iter().map(Arc::downgrade));
        Ok(RouteConfig::new(Override(Arc::new(scope)), value))
    }

    fn arrive(&self, place: &Place<'_>) -> Option<Rc<dyn Any>> {
        let now = place.host.now();
        self.waiting().drain(..).filter_map(|bucket| bucket.upgrade()).for_each(|bucket| bucket.begin(now));
        None
    }

    fn filter(&self, configs: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        Rc::new(self.limiter(configs, place, None))
    }

    fn shadow_filter(&self, configs: &ScopedConfigs, place: &Place<'_>, withheld: &Rc<Withheld>) -> Rc<dyn Filter> {
        Rc::new(self.limiter(configs, place, Some(withheld.clone())))
    }
}

impl BandwidthLimit {
    fn waiting(&self) -> MutexGuard<'_, Vec<Weak<Bucket>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn limiter(&self, configs: &ScopedConfigs, place: &Place<'_>, withheld: Option<Rc<Withheld>>) -> Limiter {
        let scope = configs.most_specific::<Override>().map_or(&self.own, |own| &own.0).clone();
        let prefix = format!("{}.http_bandwidth_limit", scope.config.stat_prefix);
        Limiter { stats: place.stats.block(&stat::SET, &prefix), scope, withheld }
    }
}

postrider_telemetry::stat_set! {
    /// Bodies and their bytes; prefix: the configuration's own, then `http_bandwidth_limit`.
    mod stat = "";
    counters {
        REQUEST_ALLOWED_TOTAL = "request_allowed_total_size",
        REQUEST_ENABLED = "request_enabled",
        REQUEST_ENFORCED = "request_enforced",
        REQUEST_INCOMING_TOTAL = "request_incoming_total_size",
        RESPONSE_ALLOWED_TOTAL = "response_allowed_total_size",
        RESPONSE_ENABLED = "response_enabled",
        RESPONSE_ENFORCED = "response_enforced",
        RESPONSE_INCOMING_TOTAL = "response_incoming_total_size",
    }
    gauges {
        REQUEST_ALLOWED = "request_allowed_size",
        REQUEST_INCOMING = "request_incoming_size",
        REQUEST_PENDING = "request_pending",
        RESPONSE_ALLOWED = "response_allowed_size",
        RESPONSE_INCOMING = "response_incoming_size",
        RESPONSE_PENDING = "response_pending",
    }
    histograms {
        REQUEST_DURATION = "request_transfer_duration" Milliseconds,
        RESPONSE_DURATION = "response_transfer_duration" Milliseconds,
    }
}

/// What one direction counts into.
struct Stats {
    incoming: Gauge,
    incoming_total: Counter,
    allowed: Gauge,
    allowed_total: Counter,
    enforced: Counter,
    pending: Gauge,
    duration: Histogram,
}

const REQUEST: Stats = Stats {
    incoming: stat::REQUEST_INCOMING,
    incoming_total: stat::REQUEST_INCOMING_TOTAL,
    allowed: stat::REQUEST_ALLOWED,
    allowed_total: stat::REQUEST_ALLOWED_TOTAL,
    enforced: stat::REQUEST_ENFORCED,
    pending: stat::REQUEST_PENDING,
    duration: stat::REQUEST_DURATION,
};

const RESPONSE: Stats = Stats {
    incoming: stat::RESPONSE_INCOMING,
    incoming_total: stat::RESPONSE_INCOMING_TOTAL,
    allowed: stat::RESPONSE_ALLOWED,
    allowed_total: stat::RESPONSE_ALLOWED_TOTAL,
    enforced: stat::RESPONSE_ENFORCED,
    pending: stat::RESPONSE_PENDING,
    duration: stat::RESPONSE_DURATION,
};

/// The filter on one worker, as one route sees it.
struct Limiter {
    scope: Arc<Scope>,
    stats: Rc<Block>,
    /// In the shadow, where everything goes on at once.
    withheld: Option<Rc<Withheld>>,
}

/// One stream's.
#[derive(Default)]
struct Progress {
    request: Option<Way>,
    response: Option<Way>,
}

/// One direction of a stream.
struct Way {
    pace: Pace,
    /// The first piece of the body came.
    began: Option<Moment>,
    /// All of it went on, after so long.
    took: Option<Duration>,
    /// What of that is this filter's.
    delay: Duration,
    /// The last piece is in hand.
    last: bool,
    /// In the shadow: that it would have been slower was told.
    told: bool,
}

impl Filter for Limiter {
    fn hooks(&self) -> Hooks {
        let Config { request, response, .. } = self.scope.config;
        let on = self.scope.bucket.is_some();
        Hooks {
            request_headers: on && request,
            request_body: on && request,
            request_trailers: on && request,
            response_headers: on && response,
            response_body: on && response,
            response_trailers: on && response,
            complete: on && (request || response),
            keeps_bodies: self.scope.config.trailers.is_none(),
            declares_length: false,
        }
    }

    fn on_request_headers(&self, state: &mut State, _: &mut Stream<'_>, _end: bool) -> Action {
        self.stats.inc(stat::REQUEST_ENABLED);
        self.begin(state, |progress| &mut progress.request)
    }

    fn on_request_body(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        let held = stream.request_body.bytes().len();
        let Some(way) = progress(state).and_then(|progress| progress.request.as_mut()) else { return Action::Done };
        way.last = end;
        self.came(way, &REQUEST, held, stream);
        self.go(way, &REQUEST, held, stream)
    }

    fn on_request_resumed(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        let held = stream.request_body.bytes().len();
        match progress(state).and_then(|progress| progress.request.as_mut()) {
            Some(way) => self.go(way, &REQUEST, held, stream),
            None => Action::Done,
        }
    }

    fn on_request_trailers(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        if let Some(way) = progress(state).and_then(|progress| progress.request.as_mut()) {
            self.end(way, &REQUEST, stream.host.now());
        }
        Action::Done
    }

    fn on_response_headers(&self, state: &mut State, _: &mut Stream<'_>, _end: bool) -> Action {
        self.stats.inc(stat::RESPONSE_ENABLED);
        self.begin(state, |progress| &mut progress.response)
    }

    fn on_response_body(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        let held = stream.response_body.bytes().len();
        let Some(progress) = progress(state) else { return Action::Done };
        let Some(way) = &mut progress.response else { return Action::Done };
        way.last = end;
        self.came(way, &RESPONSE, held, stream);
        let action = self.go(way, &RESPONSE, held, stream);
        self.tell(progress, stream);
        action
    }

    fn on_response_resumed(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        let held = stream.response_body.bytes().len();
        let Some(progress) = progress(state) else { return Action::Done };
        let Some(way) = &mut progress.response else { return Action::Done };
        let action = self.go(way, &RESPONSE, held, stream);
        self.tell(progress, stream);
        action
    }

    fn on_response_trailers(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        let Some(progress) = progress(state) else { return Action::Done };
        if let Some(way) = &mut progress.response {
            way.last = true;
            self.end(way, &RESPONSE, stream.host.now());
        }
        self.tell(progress, stream);
        Action::Done
    }

    fn on_complete(&self, state: &mut State, _: &StreamInfo) {
        let Some(progress) = progress(state) else { return };
        for (way, stats) in [(&progress.request, &REQUEST), (&progress.response, &RESPONSE)] {
            // What was cut off is pending no more.
            if way.as_ref().is_some_and(|way| way.began.is_some() && way.took.is_none()) {
                self.stats.gauge_dec(stats.pending);
            }
        }
    }
}

fn progress(state: &mut State) -> Option<&mut Progress> {
    match state {
        State::Any(progress) => progress.downcast_mut(),
        _ => None,
    }
}

impl Limiter {
    fn begin(&self, state: &mut State, way: fn(&mut Progress) -> &mut Option<Way>) -> Action {
        let Some(bucket) = &self.scope.bucket else { return Action::Done };
        let pace = Pace::new(bucket.clone(), self.scope.config.interval);
        if let Some(progress) = state.get_or_insert_with(Progress::default) {
            let delay = Duration::ZERO;
            *way(progress) = Some(Way { pace, began: None, took: None, delay, last: false, told: false });
        }
        Action::Continue
    }

    /// A piece of the body came.
    fn came(&self, way: &mut Way, stats: &Stats, bytes: usize, stream: &Stream<'_>) {
        if way.began.is_none() {
            way.began = Some(stream.host.now());
            self.stats.gauge_inc(stats.pending);
        }
        self.stats.gauge_set(stats.incoming, bytes as u64);
        self.stats.add(stats.incoming_total, bytes as u64);
    }

    /// What of the piece in hand may go on now.
    fn go(&self, way: &mut Way, stats: &Stats, held: usize, stream: &Stream<'_>) -> Action {
        if let Some(withheld) = &self.withheld {
            self.pass(way, stats, held, (stream.host.now(), withheld));
            return Action::Continue;
        }
        let step = way.pace.step(held, stream);
        let Step::Go(allowed) = step else { return step.action(held) };
        self.stats.gauge_set(stats.allowed, allowed as u64);
        self.stats.add(stats.allowed_total, allowed as u64);
        if allowed < held {
            self.stats.inc(stats.enforced);
            way.delay += self.scope.config.interval;
        } else if way.last {
            self.end(way, stats, stream.host.now());
        }
        step.action(held)
    }

    /// All of it goes on, and what would not have gone on yet is told.
    fn pass(&self, way: &mut Way, stats: &Stats, held: usize, (now, withheld): (Moment, &Withheld)) {
        self.stats.gauge_set(stats.allowed, held as u64);
        self.stats.add(stats.allowed_total, held as u64);
        if way.pace.draw(held, now) < held {
            self.stats.inc(stats.enforced);
            if !std::mem::replace(&mut way.told, true) {
                withheld.would_pace();
            }
        }
        if way.last {
            self.end(way, stats, now);
        }
    }

    /// All of the body went on.
    fn end(&self, way: &mut Way, stats: &Stats, now: Moment) {
        let (Some(began), None) = (way.began, way.took) else { return };
        let took = now.saturating_duration_since(began);
        way.took = Some(took);
        self.stats.gauge_dec(stats.pending);
        self.stats.record(stats.duration, u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
    }

    /// Says in trailers what took how long, once all of the answer went on.
    fn tell(&self, progress: &Progress, stream: &mut Stream<'_>) {
        let (Some(names), Some(response)) = (&self.scope.config.trailers, &progress.response) else { return };
        let Some(took) = response.took.filter(|_| response.last) else { return };
        let request = progress.request.as_ref();
        let zero = Duration::ZERO;
        let times = [
            request.and_then(|way| way.took).unwrap_or(zero),
            took,
            request.map_or(zero, |way| way.delay),
            response.delay,
        ];
        for (name, time) in names.iter().zip(times.map(|time| time.as_millis())).filter(|(_, time)| *time > 0) {
            let _ = stream.response_trailers.set_header(name, time.to_string().as_bytes());
        }
    }
}

#[cfg(test)]
mod tests;
