//! Asks a service of the user's own whether a request may go on, over gRPC or over HTTP.
//!
//! Configured as `envoy.extensions.filters.http.ext_authz.v3.ExtAuthz`; virtual hosts, routes and weighted clusters turn
//! it off or say more by `ExtAuthzPerRoute`. What the service is told and what its answer does is as in Envoy 1.40.
//!
//! ```text
//! head ──> wanted? ──no──> on
//!            │ yes, and the body too: held until there is enough of it
//!            v
//!          asked: the request pauses ──> allowed: headers and query change, on
//!                                   ├──> denied: the service's answer, or 403
//!                                   └──> failed: on, or the configured answer
//! ```

mod config;
mod grpc;
mod http;
mod noted;
mod request;
mod verdict;

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{
    Action, BufferLimit, Call, CallHandle, CallTrace, ConfigError, Factory, Filter, Flags, GrpcCall, Hooks, LocalReply,
    Moment, Place, RouteConfig, ScopedConfigs, State, Stream,
};
use postrider_grpc::auth::{CHECK, NAMESPACE};
use postrider_http::{Fields, HeadLimits, HeaderId, Method, RequestHead};
use postrider_model::{Value, ValueError};
use postrider_telemetry::stats::sets::{cluster, count_upstream_response};
use postrider_telemetry::{Block, WorkerStats};

use config::{BodySettings, Config, Override, Service};
use noted::Shadowed;
use verdict::{Allowance, Decision, Denial, Verdict};

pub(crate) const KIND: &str = "envoy.extensions.filters.http.ext_authz.v3.ExtAuthz";
const ROUTE_KIND: &str = "envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute";

/// Reads a gateway-level configuration.
pub(crate) fn build(name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    Ok(Arc::new(ExtAuthz { name: name.into(), config: Arc::new(config::read(value)?) }))
}

struct ExtAuthz {
    /// In its chain.
    name: Arc<str>,
    config: Arc<Config>,
}

impl Factory for ExtAuthz {
    fn route_config(&self, kind: &str, value: &Value) -> Result<RouteConfig, ConfigError> {
        if kind != ROUTE_KIND {
            let message = format!("ext_authz is overridden by {ROUTE_KIND}, not by {kind}");
            return Err(vec![ValueError { path: String::new(), message }]);
        }
        Ok(RouteConfig::new(config::read_route(value)?, value))
    }

    fn filter(&self, configs: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        let most_specific = configs.most_specific::<Override>();
        // Extensions add up, and the most specific scope wins where several name the same.
        let mut context: Vec<(String, String)> = Vec::new();
        for (key, value) in configs.specific_first::<Override>().flat_map(|scope| &scope.context) {
            if !context.iter().any(|(known, _)| known == key) {
                context.push((key.clone(), value.clone()));
            }
        }
        let config = &self.config;
        let prefix = |scope: &str| match &config.stat_prefix {
            Some(own) => format!("{scope}.ext_authz.{}", own.strip_suffix('.').unwrap_or(own)),
            None => format!("{scope}.ext_authz"),
        };
        let body = most_specific.and_then(|scope| scope.body.clone()).unwrap_or_else(|| config.body.clone());
        let service = most_specific.and_then(|scope| scope.service.clone());
        Rc::new(Authorizer {
            disabled: most_specific.is_some_and(|scope| scope.disabled),
            raised_limit: body.as_ref().and_then(|body| raised_limit(body.max, place.buffer_limit)),
            service: service.unwrap_or_else(|| config.service.clone()),
            body,
            context,
            has_span: configs.specific_first::<Override>().find_map(|scope| scope.has_span).unwrap_or(config.has_span),
            stats: place.stats.block(&stat::SET, &prefix(place.stat_prefix)),
            clusters: Clusters { stats: place.stats.clone(), own: prefix(""), blocks: RefCell::default() },
            head_limits: place.head_limits,
            name: self.name.clone(),
            config: config.clone(),
        })
    }
}

postrider_telemetry::stat_set! {
    /// Requests by outcome; prefix: the connection manager's, then `ext_authz`.
    mod stat = "http";
    counters {
        DENIED = "denied",
        DISABLED = "disabled",
        ERROR = "error",
        FAILURE_MODE_ALLOWED = "failure_mode_allowed",
        FILTER_STATE_NAME_COLLISION = "filter_state_name_collision",
        IGNORED_DYNAMIC_METADATA = "ignored_dynamic_metadata",
        INVALID = "invalid",
        OK = "ok",
        OMITTED_RESPONSE_HEADERS = "omitted_response_headers",
        REQUEST_HEADER_LIMITS_REACHED = "request_header_limits_reached",
        RESPONSE_HEADER_LIMITS_REACHED = "response_header_limits_reached",
        SHADOW_DENIED = "shadow_denied",
        SHADOW_ERROR = "shadow_error",
    }
}

postrider_telemetry::stat_set! {
    /// The same by the cluster that the request was for; prefix: its name, then `ext_authz`.
    mod of_cluster = "cluster";
    lazy_counters {
        DENIED = "denied",
        ERROR = "error",
        FAILURE_MODE_ALLOWED = "failure_mode_allowed",
        INVALID = "invalid",
        OK = "ok",
    }
}

/// The filter on one worker, as one route sees it.
struct Authorizer {
    name: Arc<str>,
    config: Arc<Config>,
    disabled: bool,
    service: Arc<Service>,
    body: Option<BodySettings>,
    /// Of what is held of a request, where the service is shown more than the connection's limit.
    raised_limit: Option<u32>,
    context: Vec<(String, String)>,
    /// Calls have spans where requests do.
    has_span: bool,
    stats: Rc<Block>,
    clusters: Clusters,
    head_limits: Option<HeadLimits>,
}

/// Counters of the clusters that requests were for, by their names.
struct Clusters {
    stats: WorkerStats,
    own: String,
    blocks: RefCell<Vec<(String, Counters)>>,
}

/// The filter's own, and the cluster's.
type Counters = (Rc<Block>, Rc<Block>);

/// One stream's.
enum Progress {
    /// Enough of the body is not there yet.
    Holding,
    Asked {
        outcome: Rc<RefCell<Option<Verdict>>>,
        since: Moment,
        _handle: Option<CallHandle>,
    },
    /// What is left to do about the answer.
    Allowed(Box<Allowance>),
}

impl Filter for Authorizer {
    fn hooks(&self) -> Hooks {
        let body = self.body.is_some() && !self.disabled;
        Hooks {
            request_headers: !self.disabled,
            request_body: body,
            request_trailers: body,
            response_headers: !self.disabled,
            ..Hooks::default()
        }
    }

    fn on_request_headers(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        // Without a route there is nothing to protect: the answer will be 404.
        if stream.route.is_none() {
            return Action::Done;
        }
        let drawn = self.config.enabled.is_none_or(|parts| stream.host.random() % 1_000_000 < u64::from(parts));
        let marked = self.config.enabled_metadata.as_ref().is_none_or(|rule| rule.matches(&stream.info.metadata));
        if !(drawn && marked) {
            self.stats.inc(stat::DISABLED);
            if self.config.deny_at_disable && self.config.shadow_mode {
                let denial = Denial::default();
                let status = self.config.status_on_error;
                stream.info.flags.insert(Flags::UNAUTHORIZED_EXTERNAL_SERVICE);
                return self.shadow(stream, &Shadowed::Denied { status, denial: &denial });
            }
            if self.config.deny_at_disable {
                stream.info.flags.insert(Flags::UNAUTHORIZED_EXTERNAL_SERVICE);
                return self.answer(Denial::default(), self.config.status_on_error, "ext_authz_error");
            }
            return Action::Done;
        }
        let tunnel = stream.request.method() == Method::Connect || stream.request.fields.has(HeaderId::Upgrade);
        if self.body.is_some() && !end && !tunnel {
            *state = State::Any(Box::new(Progress::Holding));
            if let Some(limit) = self.raised_limit {
                // A route may have raised it further.
                let raised = match stream.info.buffer_limit {
                    BufferLimit::Request(own) => own.max(limit),
                    BufferLimit::OfConnection | BufferLimit::Both(_) => limit,
                };
                stream.info.buffer_limit = BufferLimit::Request(raised);
            }
            return Action::Buffer;
        }
        self.ask(state, stream, None)
    }

    fn on_request_body(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        let (Some(settings), Some(Progress::Holding)) = (&self.body, progress(state)) else { return Action::Done };
        let held = stream.request_body.bytes().len();
        if held > settings.max && !settings.partial {
            return Action::Respond(Box::new(LocalReply {
                status: 413,
                body: Cow::Borrowed(b"Payload Too Large"),
                details: Cow::Borrowed("request_payload_too_large"),
                ..LocalReply::default()
            }));
        }
        if !end && held < settings.max.saturating_add(usize::from(!settings.partial)) {
            return Action::Buffer;
        }
        self.ask(state, stream, Some(settings))
    }

    fn on_request_trailers(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        match progress(state) {
            Some(Progress::Holding) => self.ask(state, stream, self.body.as_ref()),
            _ => Action::Continue,
        }
    }

    fn on_request_resumed(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        let Some(Progress::Asked { outcome, since, .. }) = progress(state) else { return Action::Done };
        match outcome.take() {
            Some(verdict) => {
                let since = *since;
                self.decide(state, stream, verdict, since)
            }
            None => Action::Pause,
        }
    }

    fn on_response_headers(&self, state: &mut State, stream: &mut Stream<'_>, _end: bool) -> Action {
        if let Some(Progress::Allowed(allowance)) = progress(state) {
            let fields = &mut stream.response.fields;
            allowance.apply_to_response(fields);
            if self.config.enforce_response_limits && is_beyond_limits(fields) {
                self.stats.inc(stat::RESPONSE_HEADER_LIMITS_REACHED);
                stream.info.flags.insert(Flags::UNAUTHORIZED_EXTERNAL_SERVICE);
                return self.answer(Denial::default(), 500, "ext_authz_invalid");
            }
        }
        Action::Done
    }
}

/// So many headers an answer may have, its status among them, once the service has added its own.
const MAX_RESPONSE_HEADERS: usize = 100;

/// Bytes of their names and values.
const MAX_RESPONSE_HEADER_BYTES: usize = 80 << 10;

fn is_beyond_limits(fields: &Fields) -> bool {
    let status = ":status200".len();
    let bytes: usize = fields.iter().map(|field| field.name.len() + field.value.len()).sum();
    fields.iter().count() + 1 > MAX_RESPONSE_HEADERS || bytes + status > MAX_RESPONSE_HEADER_BYTES
}

/// With what the service added, the request has more than a client's may have. Its target is counted as HTTP/2 would have it.
fn exceeds(request: &RequestHead, limits: HeadLimits) -> bool {
    let scheme = request.scheme().map_or("", |scheme| scheme.as_str());
    let target: [(&[u8], &[u8]); 3] =
        [(b":path", request.path()), (b":method", request.method_bytes()), (b":scheme", scheme.as_bytes())];
    let target = target.into_iter().filter(|(_, value)| !value.is_empty());
    let all = request.fields.iter().map(|field| (field.name, field.value)).chain(target);
    let (lines, bytes) =
        all.fold((0, 0), |(lines, bytes), (name, value)| (lines + 1, bytes + name.len() + value.len()));
    lines > limits.max_fields || bytes > limits.max_bytes
}

/// What may be held where up to `max` bytes are shown and the connection's limit, 0 for none, is smaller: a last piece
/// may go beyond `max`.
fn raised_limit(max: usize, limit: usize) -> Option<u32> {
    const LAST_PIECE: usize = 1 << 20;
    (limit != 0 && max > limit).then(|| u32::try_from(max.saturating_add(LAST_PIECE)).unwrap_or(u32::MAX))
}

fn progress(state: &mut State) -> Option<&mut Progress> {
    match state {
        State::Any(progress) => progress.downcast_mut(),
        _ => None,
    }
}

impl Authorizer {
    fn ask(&self, state: &mut State, stream: &mut Stream<'_>, body: Option<&BodySettings>) -> Action {
        let outcome = Rc::new(RefCell::new(None));
        let since = stream.host.now();
        let (slot, resumer) = (outcome.clone(), stream.resumer.clone());
        let hear = move |verdict: Verdict| {
            *slot.borrow_mut() = Some(verdict);
            resumer.resume();
        };
        let has_span = self.has_span;
        let trace = stream.info.span().map(|parent| CallTrace { parent, is_told: None, has_span });
        let asked = match &*self.service {
            Service::Grpc { service, timeout } => {
                let call = GrpcCall {
                    cluster: service.cluster.clone(),
                    head: service.head(CHECK, *timeout, stream),
                    message: grpc::ask(&self.config, &self.context, body, stream),
                    timeout: *timeout,
                    max_answer: service.max_answer,
                    trace,
                    retries: service.retries.clone(),
                    done: Box::new(move |answer| hear(answer.map(|bytes| grpc::verdict(&bytes)).unwrap_or_default())),
                };
                stream.host.grpc(call)
            }
            Service::Http(service) => {
                let (head, body) = http::ask(&self.config, service, body, stream);
                let whole = self.service.clone();
                let call = Call {
                    cluster: (*service.cluster).into(),
                    head,
                    body,
                    timeout: service.timeout,
                    trace,
                    retries: service.retries.clone(),
                    done: Box::new(move |answer| {
                        hear(match (&*whole, answer) {
                            (Service::Http(service), Ok(answer)) => http::verdict(service, &answer),
                            _ => Verdict::default(),
                        });
                    }),
                };
                stream.host.call(call)
            }
        };
        match asked {
            Ok(handle) => {
                *state = State::Any(Box::new(Progress::Asked { outcome, since, _handle: Some(handle) }));
                Action::Pause
            }
            Err(_) => self.decide(state, stream, Verdict::default(), since),
        }
    }

    fn decide(&self, state: &mut State, stream: &mut Stream<'_>, verdict: Verdict, since: Moment) -> Action {
        // A header may name anything: only what exists has statistics.
        let cluster = stream.cluster().filter(|name| stream.host.has_cluster(name));
        let cluster = cluster.map(|name| self.clusters.of(&name));
        self.note(stream, verdict.metadata, matches!(verdict.decision, Decision::Allowed(_)), since);
        if self.config.note_latency {
            let took = stream.host.now().saturating_duration_since(since).as_micros();
            let took = Value::Integer(i64::try_from(took).unwrap_or(i64::MAX));
            let object = Value::Map(vec![("latency_us".to_owned(), took)]);
            // Whoever left something else there has it.
            match stream.info.filter_state.iter().any(|(name, known)| **name == *self.name && !noted::is_timing(known))
            {
                true => self.stats.inc(stat::FILTER_STATE_NAME_COLLISION),
                false => noted::note(&mut stream.info.filter_state, &self.name, object),
            }
        }
        *state = State::Empty;
        match verdict.decision {
            Decision::Allowed(mut allowance) => {
                let invalid = self.config.validate_mutations && allowance.validate().is_err();
                let restricted = self.config.rules.as_ref().map_or(Ok(()), |rules| allowance.restrict(rules));
                if invalid || restricted.is_err() {
                    return self.invalid(stream, cluster);
                }
                let applied = allowance.apply(stream.request);
                if allowance.edits_request() && self.head_limits.is_some_and(|limits| exceeds(stream.request, limits)) {
                    self.stats.inc(stat::REQUEST_HEADER_LIMITS_REACHED);
                    return self.invalid(stream, cluster);
                }
                self.stats.inc(stat::OK);
                count(&cluster, of_cluster::OK);
                if let Err(header) = applied {
                    stream.info.flags.insert(Flags::DOWNSTREAM_PROTOCOL_ERROR);
                    return Action::Respond(Box::new(header.reply()));
                }
                if self.config.clear_route_cache && allowance.touches(&self.config.clearing_headers) {
                    stream.info.route_is_stale = true;
                }
                if self.config.shadow_mode {
                    self.shadow(stream, &Shadowed::Allowed);
                }
                if !allowance.response.is_empty() {
                    *state = State::Any(Box::new(Progress::Allowed(allowance)));
                }
                Action::Done
            }
            Decision::Denied(denial) => {
                self.stats.inc(stat::DENIED);
                count(&cluster, of_cluster::DENIED);
                if let (Some((_, whole)), true) = (&cluster, self.config.charge_cluster_response_stats) {
                    count_upstream_response(whole, denial.status.unwrap_or(403), true);
                }
                if self.config.shadow_mode {
                    let status = denial.status_or(403);
                    return self.shadow(stream, &Shadowed::Denied { status, denial: &denial });
                }
                if self.config.validate_mutations && denial.validate().is_err() {
                    return self.invalid(stream, cluster);
                }
                stream.info.flags.insert(Flags::UNAUTHORIZED_EXTERNAL_SERVICE);
                self.answer(denial, 403, "ext_authz_denied")
            }
            Decision::Failed(mut denial) => {
                self.stats.inc(stat::ERROR);
                count(&cluster, of_cluster::ERROR);
                if self.config.shadow_mode {
                    let status = denial.status_or(self.config.status_on_error);
                    return self.shadow(stream, &Shadowed::Failed { status });
                }
                if self.config.failure_mode_allow {
                    self.stats.inc(stat::FAILURE_MODE_ALLOWED);
                    count(&cluster, of_cluster::FAILURE_MODE_ALLOWED);
                    if self.config.failure_mode_allow_header {
                        let _ = stream.request.fields.append_name(b"x-envoy-auth-failure-mode-allowed", b"true");
                    }
                    return Action::Done;
                }
                if self.config.validate_mutations && denial.validate().is_err() {
                    denial = Denial::default();
                }
                stream.info.flags.insert(Flags::UNAUTHORIZED_EXTERNAL_SERVICE);
                self.answer(denial, self.config.status_on_error, "ext_authz_error")
            }
        }
    }

    /// Remembers what the service wants remembered, with how long it took to say so.
    fn note(&self, stream: &mut Stream<'_>, mut entries: Vec<(String, Value)>, allowed: bool, since: Moment) {
        if entries.is_empty() {
            return;
        }
        if !self.config.take_metadata {
            return self.stats.inc(stat::IGNORED_DYNAMIC_METADATA);
        }
        if allowed {
            let took = stream.host.now().millis_since(since);
            entries.push(("ext_authz_duration".to_owned(), Value::Integer(i64::try_from(took).unwrap_or(i64::MAX))));
        }
        for (key, value) in entries {
            stream.info.metadata.set(NAMESPACE, &key, value);
        }
    }

    #[cold]
    fn invalid(&self, stream: &mut Stream<'_>, cluster: Option<Counters>) -> Action {
        self.stats.inc(stat::INVALID);
        count(&cluster, of_cluster::INVALID);
        if self.config.shadow_mode {
            return self.shadow(stream, &Shadowed::Failed { status: 500 });
        }
        stream.info.flags.insert(Flags::UNAUTHORIZED_EXTERNAL_SERVICE);
        self.answer(Denial::default(), 500, "ext_authz_invalid")
    }

    /// Notes what was decided, and lets the request go on.
    fn shadow(&self, stream: &mut Stream<'_>, decision: &Shadowed<'_>) -> Action {
        match decision {
            Shadowed::Allowed => {}
            Shadowed::Denied { .. } => self.stats.inc(stat::SHADOW_DENIED),
            Shadowed::Failed { .. } => self.stats.inc(stat::SHADOW_ERROR),
        }
        noted::note(&mut stream.info.filter_state, &format!("{}.shadow", self.name), decision.to_value());
        Action::Done
    }

    fn answer(&self, denial: Denial, status: u16, details: &'static str) -> Action {
        Action::Respond(Box::new(denial.reply(status, self.config.max_denied_body, details)))
    }
}

impl Clusters {
    fn of(&self, name: &str) -> Counters {
        let mut blocks = self.blocks.borrow_mut();
        if let Some((_, found)) = blocks.iter().find(|(known, _)| known == name) {
            return found.clone();
        }
        // As the cluster's other statistics write it.
        let scope = name.replace(':', "_");
        let own = self.stats.block(&of_cluster::SET, &format!("{scope}{}", self.own));
        let made = (own, self.stats.block(&cluster::SET, &scope));
        blocks.push((name.to_owned(), made.clone()));
        made
    }
}

fn count(counters: &Option<Counters>, counter: postrider_telemetry::stats::Counter) {
    if let Some((own, _)) = counters {
        own.inc(counter);
    }
}

#[cfg(test)]
mod tests;
