//! Answers health checks of this proxy itself, or lets the service behind it answer and remembers what it said.
//!
//! Configured as `envoy.extensions.filters.http.health_check.v3.HealthCheck`. Details are as in Envoy 1.40.
//!
//! ```text
//! a check ──> pass-through, nothing remembered ──> the service behind, whose answer is remembered
//!         └──> answered here: as an operator wants, as remembered, or by how many hosts of clusters are healthy
//! ```

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use postrider_filter_api::{
    Action, ConfigError, Factory, Filter, Flags, Hooks, LocalReply, Moment, Place, RouteConfig, ScopedConfigs, State,
    Stream,
};
use postrider_http::HeaderId;
use postrider_model::{HeaderMatch, Reading, Value, ValueError, header_match};
use postrider_telemetry::Block;

use crate::request_parts::matches_headers;

pub(crate) const KIND: &str = "envoy.extensions.filters.http.health_check.v3.HealthCheck";

/// Reads a gateway-level configuration.
pub(crate) fn build(_name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    Ok(Arc::new(HealthCheck(Arc::new(Reading::all(value, Config::read)?))))
}

struct HealthCheck(Arc<Config>);

#[derive(Debug)]
struct Config {
    pass_through: bool,
    /// What the service behind said last, in pass-through mode.
    cache: Option<Cache>,
    /// Clusters, and the share of hosts in whole percents that must be available.
    clusters: Vec<(String, u64)>,
    headers: Vec<HeaderMatch>,
}

impl Config {
    fn read(at: &mut Reading<'_>) -> Config {
        let pass_through = at.bool("pass_through_mode");
        if pass_through.is_none() {
            at.error("pass_through_mode", "whether the service behind answers is required");
        }
        let pass_through = pass_through.unwrap_or_default();
        // Whole milliseconds count.
        let time = at.duration("cache_time").filter(|time| time.as_millis() > 0);
        if time.is_some() && !pass_through {
            at.error("cache_time", "there is nothing to remember: `pass_through_mode` is false");
        }
        let mut clusters = Vec::new();
        if let Some(Value::Map(entries)) = at.value("cluster_min_healthy_percentages") {
            for (name, percent) in entries {
                let share = Reading::all(percent, |percent| match percent.value("value") {
                    Some(Value::Number(number)) => *number,
                    Some(Value::Integer(number)) => *number as f64,
                    _ => 0.0,
                });
                match share {
                    Ok(share) if (0.0..=100.0).contains(&share) => clusters.push((name.clone(), share as u64)),
                    _ => at.error("cluster_min_healthy_percentages", format!("the share of \"{name}\" is 0 to 100")),
                }
            }
        }
        if pass_through {
            // The service behind answers.
            clusters.clear();
        }
        Config {
            pass_through,
            cache: time.map(|time| Cache { time, until: AtomicU64::new(0), answer: AtomicU64::new(0) }),
            clusters,
            headers: at.each("headers", header_match).into_iter().flatten().collect(),
        }
    }
}

/// An answer of the service behind, for all workers.
#[derive(Debug)]
struct Cache {
    time: Duration,
    /// In nanoseconds of the clock.
    until: AtomicU64,
    /// Status, and above it whether the service said that it is degraded.
    answer: AtomicU64,
}

const DEGRADED: u64 = 1 << 16;

impl Cache {
    fn store(&self, status: u16, degraded: bool, now: Moment) {
        self.answer.store(u64::from(status) | if degraded { DEGRADED } else { 0 }, Relaxed);
        self.until.store(nanos(now + self.time), Relaxed);
    }

    /// The status and whether it is degraded, as long as it holds.
    fn answer(&self, now: Moment) -> Option<(u16, bool)> {
        let answer = self.answer.load(Relaxed);
        let status = u16::try_from(answer & 0xffff).ok()?;
        (nanos(now) < self.until.load(Relaxed)).then_some((status, answer & DEGRADED != 0))
    }
}

fn nanos(moment: Moment) -> u64 {
    u64::try_from(moment.saturating_duration_since(Moment::default()).as_nanos()).unwrap_or(u64::MAX)
}

impl Factory for HealthCheck {
    fn route_config(&self, kind: &str, _: &Value) -> Result<RouteConfig, ConfigError> {
        let message = format!("health_check is the same on every route: {kind} cannot override it");
        Err(vec![ValueError { path: String::new(), message }])
    }

    fn filter(&self, _: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        let stats = place.stats.block(&stat::SET, &format!("{}.health_check", place.stat_prefix));
        Rc::new(Checker { config: self.0.clone(), stats })
    }
}

postrider_telemetry::stat_set! {
    /// Checks that are answered here; prefix: the connection manager's, then `health_check`.
    mod stat = "http";
    counters {
        REQUEST_TOTAL = "request_total",
        OK = "ok",
        FAILED = "failed",
        CACHED_RESPONSE = "cached_response",
        DEGRADED = "degraded",
        FAILED_CLUSTER_NOT_FOUND = "failed_cluster_not_found",
        FAILED_CLUSTER_EMPTY = "failed_cluster_empty",
        FAILED_CLUSTER_UNHEALTHY = "failed_cluster_unhealthy",
    }
}

/// The filter on one worker.
struct Checker {
    config: Arc<Config>,
    stats: Rc<Block>,
}

/// The stream's state: a check that goes on, or is answered once all of it is here.
const PASSED: u64 = 1;
const ANSWERED: u64 = 2;

impl Filter for Checker {
    fn hooks(&self) -> Hooks {
        Hooks {
            request_headers: true,
            request_body: true,
            request_trailers: true,
            response_headers: true,
            ..Hooks::default()
        }
    }

    fn on_request_headers(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        if !matches_headers(&self.config.headers, stream.request) {
            return Action::Done;
        }
        stream.info.is_health_check = true;
        let remembered = || self.config.cache.as_ref().is_some_and(|cache| cache.answer(stream.host.now()).is_some());
        let answers = !self.config.pass_through || stream.host.fails_health() || remembered();
        *state = State::Number(if answers { ANSWERED } else { PASSED });
        match (answers, end) {
            (true, true) => self.answer(stream),
            (true, false) => Action::Buffer,
            (false, _) => Action::Done,
        }
    }

    fn on_request_body(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        match (state, end) {
            (State::Number(ANSWERED), true) => self.answer(stream),
            (State::Number(ANSWERED), false) => {
                // Nobody will read it.
                stream.request_body.replace(b"");
                Action::Buffer
            }
            _ => Action::Done,
        }
    }

    fn on_request_trailers(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        match state {
            State::Number(ANSWERED) => self.answer(stream),
            _ => Action::Done,
        }
    }

    fn on_response_headers(&self, state: &mut State, stream: &mut Stream<'_>, _end: bool) -> Action {
        let failing = stream.host.fails_health();
        let fields = &mut stream.response.fields;
        match state {
            State::Number(kind) => {
                if let Some(cache) = self.config.cache.as_ref().filter(|_| *kind == PASSED) {
                    let degraded = fields.get_name(b"x-envoy-degraded").is_some();
                    cache.store(stream.response.status(), degraded, stream.host.now());
                }
                let node = stream.host.node();
                let fields = &mut stream.response.fields;
                let _ = fields.set_name(b"x-envoy-upstream-healthchecked-cluster", node.cluster.as_bytes());
                if failing {
                    let _ = fields.set(HeaderId::XEnvoyImmediateHealthCheckFail, b"true");
                }
            }
            _ if failing => {
                let _ = fields.set(HeaderId::XEnvoyImmediateHealthCheckFail, b"true");
            }
            _ => {}
        }
        Action::Done
    }
}

impl Checker {
    fn answer(&self, stream: &mut Stream<'_>) -> Action {
        let (status, details, degraded) = self.verdict(stream);
        self.stats.inc(stat::REQUEST_TOTAL);
        if (200..300).contains(&status) {
            self.stats.inc(stat::OK);
        } else {
            self.stats.inc(stat::FAILED);
            stream.info.flags.insert(Flags::FAILED_LOCAL_HEALTH_CHECK);
        }
        if degraded {
            self.stats.inc(stat::DEGRADED);
        }
        let headers = if degraded { vec![("x-envoy-degraded".into(), b"".into())] } else { Vec::new() };
        Action::Respond(Box::new(LocalReply { status, headers, details: details.into(), ..LocalReply::default() }))
    }

    /// The status, why it is that, and whether the service behind is degraded.
    fn verdict(&self, stream: &Stream<'_>) -> (u16, &'static str, bool) {
        if stream.host.fails_health() {
            return (503, "health_check_failed", false);
        }
        if let Some(cache) = &self.config.cache {
            // What was remembered a moment ago may just have been forgotten: then the service answered well.
            let (status, degraded) = cache.answer(stream.host.now()).unwrap_or((200, false));
            self.stats.inc(stat::CACHED_RESPONSE);
            return (status, "health_check_cached", degraded);
        }
        if self.config.clusters.is_empty() {
            return (200, "health_check_ok", false);
        }
        for (name, percent) in &self.config.clusters {
            let Some(health) = stream.host.cluster_health(name) else {
                self.stats.inc(stat::FAILED_CLUSTER_NOT_FOUND);
                return (503, "health_check_failed_no_cluster_found", false);
            };
            if health.all == 0 {
                if *percent == 0 {
                    continue;
                }
                self.stats.inc(stat::FAILED_CLUSTER_EMPTY);
                return (503, "health_check_failed_cluster_empty", false);
            }
            if (health.available as u64) * 100 < (health.all as u64) * percent {
                self.stats.inc(stat::FAILED_CLUSTER_UNHEALTHY);
                return (503, "health_check_failed_cluster_unhealthy", false);
            }
        }
        (200, "health_check_ok_cluster_healthy", false)
    }
}

#[cfg(test)]
mod tests;
