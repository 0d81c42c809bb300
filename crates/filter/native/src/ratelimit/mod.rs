//! Asks a service that counts for many proxies whether a request is one too many.
//!
//! Configured as `envoy.extensions.filters.http.ratelimit.v3.RateLimit`, with `RateLimitPerRoute` for virtual hosts,
//! routes and weighted clusters. What a request counts as is said by the rules of its route and virtual host, or by the
//! filter's own. Details are as in Envoy 1.40.
//!
//! ```text
//! head ──> descriptors ──none──> on
//!              │
//!              v
//!            asked: the request pauses ──> within the limit: on, with the service's headers
//!                                     ├──> too many: 429
//!                                     └──> no answer: on, or 500
//! ```

mod config;
mod message;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{
    Action, CallHandle, CallTrace, ConfigError, Factory, Filter, Flags, GrpcCall, HITS, Hooks, LocalReply, Place,
    RouteConfig, ScopedConfigs, State, Stream, StreamInfo,
};
use postrider_grpc::rate::{NAMESPACE, SHOULD_RATE_LIMIT};
use postrider_http::grpc::Code;
use postrider_http::{Fields, HeaderId};
use postrider_model::{Value, ValueError};
use postrider_telemetry::stats::sets::{cluster, count_upstream_response};
use postrider_telemetry::{Block, WorkerStats};

use crate::descriptors::{Descriptor, Keyed, of_rules, of_stream};
use crate::header_options;
use crate::share::drawn;
use config::{Config, Override, Requests};
use message::{Header, Told, Verdict};

pub(crate) const KIND: &str = "envoy.extensions.filters.http.ratelimit.v3.RateLimit";
const ROUTE_KIND: &str = "envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute";

/// Reads a gateway-level configuration.
pub(crate) fn build(_name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    Ok(Arc::new(RateLimit(Arc::new(config::read(value)?))))
}

struct RateLimit(Arc<Config>);

/// An override, shared with the filters that see it.
struct Scope(Arc<Override>);

impl Factory for RateLimit {
    fn route_config(&self, kind: &str, value: &Value) -> Result<RouteConfig, ConfigError> {
        if kind != ROUTE_KIND {
            let message = format!("ratelimit is overridden by {ROUTE_KIND}, not by {kind}");
            return Err(vec![ValueError { path: String::new(), message }]);
        }
        Ok(RouteConfig::new(Scope(Arc::new(config::read_route(value)?)), value))
    }

    fn filter(&self, configs: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        Rc::new(Limiter {
            config: self.0.clone(),
            route: configs.most_specific::<Scope>().map(|scope| scope.0.clone()),
            clusters: Clusters { stats: place.stats.clone(), blocks: RefCell::default() },
        })
    }
}

postrider_telemetry::stat_set! {
    /// Requests by outcome and by the cluster that they were for; prefix: its name, then `ratelimit`.
    mod stat = "cluster";
    lazy_counters {
        ERROR = "error",
        FAILURE_MODE_ALLOWED = "failure_mode_allowed",
        OK = "ok",
        OVER_LIMIT = "over_limit",
    }
}

/// The filter on one worker, as one route sees it.
struct Limiter {
    config: Arc<Config>,
    route: Option<Arc<Override>>,
    clusters: Clusters,
}

/// Counters of the clusters that requests were for, by their names: the filter's own, and the cluster's.
struct Clusters {
    stats: WorkerStats,
    blocks: RefCell<Vec<(String, Counters)>>,
}

type Counters = (Rc<Block>, Rc<Block>);

/// For how many hits the request counts, where a filter says so; 0 leaves it to the service.
fn hits(info: &StreamInfo) -> u32 {
    match info.filter_state.iter().find(|(name, _)| name == HITS) {
        Some((_, Value::Number(number))) => *number as u32,
        _ => 0,
    }
}

/// One stream's.
enum Progress {
    Asked {
        /// `Some(None)` when there was no answer.
        outcome: Rc<RefCell<Option<Option<Verdict>>>>,
        counters: Counters,
        _handle: CallHandle,
    },
    /// What the client's answer is to carry.
    Answered(Vec<Header>),
}

impl Filter for Limiter {
    fn hooks(&self) -> Hooks {
        Hooks { request_headers: true, response_headers: true, ..Hooks::default() }
    }

    fn on_request_headers(&self, state: &mut State, stream: &mut Stream<'_>, _end: bool) -> Action {
        let config = &self.config;
        if !drawn(config.enabled, stream) || !self.counts(stream) {
            return Action::Done;
        }
        // What goes nowhere counts nowhere. A header may name anything.
        let name = stream.cluster().filter(|name| stream.host.has_cluster(name));
        let Some(counters) = name.map(|name| self.clusters.of(&name, config.stat_prefix.as_deref())) else {
            return Action::Done;
        };
        let descriptors = self.descriptors(stream);
        if descriptors.is_empty() {
            return Action::Done;
        }
        let domain = self.route.as_ref().and_then(|route| route.domain.as_ref()).unwrap_or(&config.domain);
        let outcome = Rc::new(RefCell::new(None));
        let (slot, resumer) = (outcome.clone(), stream.resumer.clone());
        let told = Told::new(&descriptors, config.quota_headers);
        let call = GrpcCall {
            cluster: config.service.cluster.clone(),
            head: config.service.head(SHOULD_RATE_LIMIT, config.timeout, stream),
            message: message::ask(domain, &descriptors, hits(stream.info)),
            timeout: config.timeout,
            max_answer: config.service.max_answer,
            trace: stream.info.span().map(|parent| CallTrace { parent, is_told: None, has_span: true }),
            retries: config.service.retries.clone(),
            done: Box::new(move |answer| {
                *slot.borrow_mut() = Some(answer.ok().and_then(|answer| message::verdict(&answer, &told)));
                resumer.resume();
            }),
        };
        match stream.host.grpc(call) {
            Ok(handle) => {
                *state = State::Any(Box::new(Progress::Asked { outcome, counters, _handle: handle }));
                Action::Pause
            }
            Err(_) => self.failed(stream, &counters),
        }
    }

    fn on_request_resumed(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        let Some(Progress::Asked { outcome, counters, .. }) = progress(state) else { return Action::Done };
        let Some(answer) = outcome.take() else { return Action::Pause };
        let counters = counters.clone();
        match answer {
            Some(verdict) => self.decide(state, stream, verdict, &counters),
            None => {
                *state = State::Empty;
                self.failed(stream, &counters)
            }
        }
    }

    fn on_response_headers(&self, state: &mut State, stream: &mut Stream<'_>, _end: bool) -> Action {
        if let Some(Progress::Answered(headers)) = progress(state) {
            append(&mut stream.response.fields, headers);
        }
        Action::Done
    }
}

fn progress(state: &mut State) -> Option<&mut Progress> {
    match state {
        State::Any(progress) => progress.downcast_mut(),
        _ => None,
    }
}

impl Limiter {
    fn counts(&self, stream: &Stream<'_>) -> bool {
        let internal = || stream.request.fields.get(HeaderId::XEnvoyInternal) == Some(b"true");
        match self.config.requests {
            Requests::Both => true,
            Requests::Internal => internal(),
            Requests::External => !internal(),
        }
    }

    /// What the request counts as: by the rules of its scope, else by the filter's, else by those of its route.
    fn descriptors(&self, stream: &Stream<'_>) -> Vec<Descriptor> {
        let own = self.route.as_ref().map(|route| &route.rules).filter(|rules| !rules.is_empty());
        if let Some(rules) = own.or(Some(&self.config.rules).filter(|rules| !rules.is_empty())) {
            return of_rules(rules, stream);
        }
        let of_host = self.route.as_ref().map(|route| route.virtual_host).unwrap_or_default();
        of_stream(self.config.stage, of_host, Keyed::Counted, stream)
    }

    fn decide(&self, state: &mut State, stream: &mut Stream<'_>, verdict: Verdict, counters: &Counters) -> Action {
        let config = &self.config;
        let namespace = config.namespace.as_deref().unwrap_or(NAMESPACE);
        for (key, value) in verdict.metadata {
            stream.info.metadata.set(namespace, &key, value);
        }
        let (own, whole) = counters;
        let mut headers = verdict.response_headers;
        if verdict.limited {
            own.inc(stat::OVER_LIMIT);
            count_upstream_response(whole, config.status, true);
            if config.mark_limited {
                headers.push(("x-envoy-ratelimited".to_owned(), b"true".to_vec()));
            }
        } else {
            own.inc(stat::OK);
        }
        if let Some((limit, remaining, reset)) = verdict.quota {
            headers.push(("x-ratelimit-limit".to_owned(), limit.into_bytes()));
            headers.push(("x-ratelimit-remaining".to_owned(), remaining.to_string().into_bytes()));
            headers.push(("x-ratelimit-reset".to_owned(), reset.to_string().into_bytes()));
        }
        if verdict.limited && drawn(config.enforced, stream) {
            *state = State::Empty;
            if let Some(seconds) = verdict.retry_after.filter(|_| config.retry_after && config.status == 429)
                && !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("retry-after"))
            {
                headers.push(("retry-after".to_owned(), seconds.to_string().into_bytes()));
            }
            stream.info.flags.insert(Flags::RATE_LIMITED);
            return self.refuse(stream, headers, verdict.body);
        }
        append(&mut stream.request.fields, &verdict.request_headers);
        *state = match headers.is_empty() {
            true => State::Empty,
            false => State::Any(Box::new(Progress::Answered(headers))),
        };
        Action::Done
    }

    /// The answer to a request too many.
    fn refuse(&self, stream: &Stream<'_>, headers: Vec<Header>, body: Vec<u8>) -> Action {
        let mut fields = Fields::new();
        append(&mut fields, &headers);
        let own = &self.config.response_headers;
        header_options::apply(own, &header_options::values(own, stream), &mut fields);
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned().into();
        Action::Respond(Box::new(LocalReply {
            status: self.config.status,
            body: body.into(),
            headers: fields.iter().map(|field| (text(field.name), field.value.to_vec().into())).collect(),
            details: "request_rate_limited".into(),
            grpc_status: self.config.exhausted.then_some(Code::ResourceExhausted),
            ..LocalReply::default()
        }))
    }

    /// There is no answer.
    fn failed(&self, stream: &mut Stream<'_>, counters: &Counters) -> Action {
        let (own, _) = counters;
        own.inc(stat::ERROR);
        let denies = match self.config.deny_share {
            Some(share) => drawn(Some(share), stream),
            None => self.config.deny_on_failure,
        };
        if !denies {
            own.inc(stat::FAILURE_MODE_ALLOWED);
            return Action::Done;
        }
        stream.info.flags.insert(Flags::RATE_LIMIT_SERVICE_ERROR);
        Action::Respond(Box::new(LocalReply {
            status: self.config.status_on_error,
            details: "rate_limiter_error".into(),
            ..LocalReply::default()
        }))
    }
}

impl Clusters {
    fn of(&self, name: &str, own: Option<&str>) -> Counters {
        let mut blocks = self.blocks.borrow_mut();
        if let Some((_, found)) = blocks.iter().find(|(known, _)| known == name) {
            return found.clone();
        }
        // As the cluster's other statistics write it.
        let scope = name.replace(':', "_");
        let prefix = match own {
            Some(own) => format!("{scope}.ratelimit.{own}"),
            None => format!("{scope}.ratelimit"),
        };
        let made = (self.stats.block(&stat::SET, &prefix), self.stats.block(&cluster::SET, &scope));
        blocks.push((name.to_owned(), made.clone()));
        made
    }
}

/// Adds what the service wants added. What frames the message stays as it is, and what cannot be a header is left out.
fn append(fields: &mut Fields, headers: &[Header]) {
    const OWN: [&str; 5] = ["content-length", "transfer-encoding", "connection", "host", "upgrade"];
    for (name, value) in headers {
        if !name.starts_with(':') && !OWN.iter().any(|own| name.eq_ignore_ascii_case(own)) {
            let _ = fields.append_name(name.as_bytes(), value);
        }
    }
}

#[cfg(test)]
mod tests;
