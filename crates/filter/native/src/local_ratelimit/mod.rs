//! Limits that the proxy keeps by itself, in token buckets.
//!
//! Configured as `envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit`, for the whole gateway and for
//! virtual hosts, routes and weighted clusters; the most specific configuration counts alone, with buckets of its own.
//! The buckets are those of all workers: see [`Bucket`]. Details are as in Envoy 1.40.

mod config;
mod limiter;

use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use postrider_filter_api::{
    Action, Bucket, ConfigError, Factory, Filter, Flags, Hooks, LocalReply, Moment, Place, RouteConfig, ScopedConfigs,
    State, Stream,
};
use postrider_http::Fields;
use postrider_http::grpc::Code;
use postrider_model::{Value, ValueError};
use postrider_telemetry::Block;

use crate::descriptors::{Descriptor, Keyed, of_rules, of_stream};
use crate::header_options;
use crate::share::drawn;
use config::Config;
use limiter::{Limiter, Verdict};

pub(crate) const KIND: &str = "envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit";

/// Reads a gateway-level configuration.
pub(crate) fn build(_name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    Ok(Arc::new(LocalRateLimit(Arc::new(Scope::new(config::read(value, false)?)))))
}

struct LocalRateLimit(Arc<Scope>);

/// A configuration with its buckets, which all workers share.
struct Scope {
    config: Config,
    /// Made for the first request, unless they are those of a configuration before.
    limiter: OnceLock<Arc<Limiter>>,
}

struct Override(Arc<Scope>);

impl Scope {
    fn new(config: Config) -> Scope {
        Scope { limiter: OnceLock::new(), config }
    }

    fn limiter(&self) -> &Arc<Limiter> {
        self.limiter.get_or_init(|| Arc::new(Limiter::new(&self.config.limits)))
    }

    /// Goes on with the buckets of another one that has the same: whoever used them up waits until they fill.
    fn inherit(&self, before: &Scope) {
        if self.config.limits == before.config.limits {
            // It has none yet.
            let _ = self.limiter.set(before.limiter().clone());
        }
    }
}

impl Factory for LocalRateLimit {
    fn route_config(&self, kind: &str, value: &Value) -> Result<RouteConfig, ConfigError> {
        if kind != KIND {
            let message = format!("local_ratelimit is overridden by {KIND}, not by {kind}");
            return Err(vec![ValueError { path: String::new(), message }]);
        }
        Ok(RouteConfig::new(Override(Arc::new(Scope::new(config::read(value, true)?))), value))
    }

    /// Its buckets.
    fn memory(&self) -> Option<&(dyn Any + Send + Sync)> {
        Some(&*self.0)
    }

    fn inherit(&self, memory: &(dyn Any + Send + Sync)) {
        if let Some(before) = memory.downcast_ref() {
            self.0.inherit(before);
        }
    }

    fn inherit_override(&self, config: &RouteConfig, before: &RouteConfig) {
        let scope = |config: &RouteConfig| Some(config.value.downcast_ref::<Override>()?.0.clone());
        if let (Some(own), Some(before)) = (scope(config), scope(before)) {
            own.inherit(&before);
        }
    }

    /// A limit for each connection goes with it.
    fn uses_connection(&self) -> bool {
        true
    }

    fn filter(&self, configs: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        let scope = configs.most_specific::<Override>().map_or(&self.0, |own| &own.0).clone();
        let prefix = format!("{}.http_local_rate_limit", scope.config.stat_prefix);
        Rc::new(Gate { stats: place.stats.block(&stat::SET, &prefix), scope })
    }
}

postrider_telemetry::stat_set! {
    /// Requests by outcome; prefix: the configuration's own, then `http_local_rate_limit`.
    mod stat = "";
    counters {
        ENABLED = "enabled",
        ENFORCED = "enforced", OK = "ok", RATE_LIMITED = "rate_limited",
        SHADOW = "shadow_mode",
    }
}

/// The filter on one worker, as one route sees it.
struct Gate {
    scope: Arc<Scope>,
    stats: Rc<Block>,
}

/// The buckets of one connection, which go with it: for each configuration that its requests met, by the buckets that this one has
/// for all.
#[derive(Default)]
struct OfConnection(RefCell<Vec<(Arc<Limiter>, Limiter)>>);

/// What the answer will tell about the limit.
struct Told(Arc<Bucket>);

impl Filter for Gate {
    fn hooks(&self) -> Hooks {
        let on = self.scope.config.enabled > 0;
        Hooks { request_headers: on, response_headers: on && self.scope.config.may_tell(), ..Hooks::default() }
    }

    fn on_request_headers(&self, state: &mut State, stream: &mut Stream<'_>, _end: bool) -> Action {
        let config = &self.scope.config;
        if !drawn(Some(config.enabled), stream) {
            return Action::Done;
        }
        self.stats.inc(stat::ENABLED);
        let verdict = self.judge(&self.descriptors(stream), stream);
        if verdict.quota_headers.unwrap_or(config.quota_headers)
            && let Some(bucket) = &verdict.bucket
        {
            *state = State::Any(Box::new(Told(bucket.clone())));
        }
        if verdict.allowed {
            self.stats.inc(stat::OK);
            return Action::Done;
        }
        self.stats.inc(stat::RATE_LIMITED);
        if verdict.shadow {
            self.stats.inc(stat::SHADOW);
            return Action::Done;
        }
        if !drawn(Some(config.enforced), stream) {
            let values = header_options::values(&config.request_headers, stream);
            header_options::apply(&config.request_headers, &values, &mut stream.request.fields);
            return Action::Done;
        }
        self.stats.inc(stat::ENFORCED);
        stream.info.flags.insert(Flags::RATE_LIMITED);
        self.refuse(stream, verdict.bucket.as_deref())
    }

    fn on_response_headers(&self, state: &mut State, stream: &mut Stream<'_>, _end: bool) -> Action {
        let State::Any(told) = state else { return Action::Done };
        let Some(Told(bucket)) = told.downcast_ref() else { return Action::Done };
        let now = stream.host.now();
        let fields = &mut stream.response.fields;
        for (name, number) in [
            (&b"x-ratelimit-limit"[..], bucket.max() as u64),
            (b"x-ratelimit-remaining", bucket.tokens(now).max(0.0) as u64),
            (b"x-ratelimit-reset", until(bucket, 1.0, now)),
        ] {
            let _ = fields.append_name(name, number.to_string().as_bytes());
        }
        Action::Done
    }
}

impl Gate {
    fn judge(&self, descriptors: &[Descriptor], stream: &Stream<'_>) -> Verdict {
        let now = stream.host.now();
        let limits = &self.scope.config.limits;
        if !self.scope.config.per_connection {
            let proxies = if self.scope.config.shared { stream.host.proxies().max(1) } else { 1 };
            return self.scope.limiter().judge(limits, descriptors, proxies, now);
        }
        match &stream.info.connection {
            Some(connection) => connection.lasting.left::<OfConnection>().judge(&self.scope, descriptors, now),
            // There is none on the way to an upstream.
            None => self.scope.limiter().judge(limits, descriptors, 1, now),
        }
    }

    /// What the request counts as: by the filter's own rules, else by those of its route.
    fn descriptors(&self, stream: &Stream<'_>) -> Vec<Descriptor> {
        let config = &self.scope.config;
        if !config.rules.is_empty() {
            return of_rules(&config.rules, stream);
        }
        match config.limits.rules.is_empty() {
            true => Vec::new(),
            false => of_stream(config.stage, config.virtual_host, Keyed::Skipped, stream),
        }
    }

    fn refuse(&self, stream: &Stream<'_>, bucket: Option<&Bucket>) -> Action {
        let config = &self.scope.config;
        let mut fields = Fields::new();
        let own = &config.response_headers;
        header_options::apply(own, &header_options::values(own, stream), &mut fields);
        if let Some(bucket) = bucket.filter(|_| config.retry_after && config.status == 429)
            && fields.get_name(b"retry-after").is_none()
        {
            let seconds = until(bucket, 1.0, stream.host.now()).max(1);
            let _ = fields.append_name(b"retry-after", seconds.to_string().as_bytes());
        }
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned().into();
        Action::Respond(Box::new(LocalReply {
            status: config.status,
            body: b"local_rate_limited".into(),
            headers: fields.iter().map(|field| (text(field.name), field.value.to_vec().into())).collect(),
            details: "local_rate_limited".into(),
            grpc_status: config.exhausted.then_some(Code::ResourceExhausted),
            ..LocalReply::default()
        }))
    }
}

impl OfConnection {
    fn judge(&self, scope: &Scope, descriptors: &[Descriptor], now: Moment) -> Verdict {
        let mut all = self.0.borrow_mut();
        let of_all = scope.limiter();
        let at = all.iter().position(|(known, _)| Arc::ptr_eq(known, of_all)).unwrap_or_else(|| {
            // Those of configurations that nobody else has any more.
            all.retain(|(known, _)| Arc::strong_count(known) > 1);
            all.push((of_all.clone(), Limiter::new(&scope.config.limits)));
            all.len() - 1
        });
        let limiter = all.get(at).map_or(&**of_all, |(_, limiter)| limiter);
        limiter.judge(&scope.config.limits, descriptors, 1, now)
    }
}

/// Seconds until the bucket holds so many tokens.
fn until(bucket: &Bucket, tokens: f64, now: Moment) -> u64 {
    ((tokens - bucket.tokens(now)).max(0.0) / bucket.rate()).ceil() as u64
}

#[cfg(test)]
mod tests;
