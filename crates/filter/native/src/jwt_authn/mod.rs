//! Lets requests pass that carry tokens of somebody who is known (JSON Web Tokens, RFC 7519).
//!
//! Configured as `envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication`; virtual hosts, routes and weighted clusters
//! choose a requirement or none by `PerRouteConfig`. Answers, statistics and notes are those of Envoy 1.40.
//!
//! ```text
//! head ──> its requirement ──none──> on
//!                │ tokens are found, parsed, checked against claims and keys
//!                ├──> good: headers and metadata say who it is
//!                ├──> bad: 401 or 403
//!                └──> keys are elsewhere: the request pauses while one call gets them for all who wait
//! ```

mod background;
mod check;
mod config;
mod extract;
mod json;
mod keys;
mod status;
mod store;
mod token;

use std::any::Any;
use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{
    Action, ConfigError, Factory, Filter, Hooks, LocalReply, Place, RouteConfig, ScopedConfigs, State, Stream,
    WatchedFile,
};
use postrider_http::{HeaderId, Method, RequestHead};
use postrider_model::{Value, ValueError};
use postrider_telemetry::Block;

use crate::per_worker::FilterNumber;
use crate::request_parts::quotable_uri;
use background::{Background, Shared};
use check::{Answers, Check, NeedsKeys};
use config::{Config, Override, Requirement, Source};
use status::Status;
use store::{Slot, Store};

pub(crate) const KIND: &str = "envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication";
const ROUTE_KIND: &str = "envoy.extensions.filters.http.jwt_authn.v3.PerRouteConfig";

/// Where tokens are noted, whatever the filter is called in its chain.
const NAMESPACE: &str = "envoy.filters.http.jwt_authn";

/// Reads a gateway-level configuration.
pub(crate) fn build(_name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    let config = Arc::new(config::read(value)?);
    let shared = Arc::new(Shared::new(config.providers.len()));
    Ok(Arc::new(JwtAuthn { number: FilterNumber::next(), config, shared }))
}

struct JwtAuthn {
    number: FilterNumber,
    config: Arc<Config>,
    shared: Arc<Shared>,
}

impl JwtAuthn {
    fn stats(&self, place: &Place<'_>) -> Rc<Block> {
        let prefix = match self.config.stat_prefix.trim_end_matches('.') {
            "" => format!("{}.jwt_authn", place.stat_prefix),
            own => format!("{}.jwt_authn.{own}", place.stat_prefix),
        };
        place.stats.block(&stat::SET, &prefix)
    }
}

impl Factory for JwtAuthn {
    fn route_config(&self, kind: &str, value: &Value) -> Result<RouteConfig, ConfigError> {
        if kind != ROUTE_KIND {
            let message = format!("jwt_authn is overridden by {ROUTE_KIND}, not by {kind}");
            return Err(vec![ValueError { path: String::new(), message }]);
        }
        Ok(RouteConfig::new(config::read_route(value)?, value))
    }

    fn filter(&self, configs: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        let chosen = match configs.most_specific::<Override>() {
            None => Chosen::ByRequest,
            Some(Override::Disabled) => Chosen::One(Requirement::Nothing),
            Some(Override::Named(name)) => match self.config.named.iter().find(|(known, _)| known == name) {
                Some((_, requirement)) => Chosen::One(requirement.clone()),
                None => Chosen::Unknown(name.clone()),
            },
        };
        Rc::new(Gate {
            chosen,
            store: Store::of(self.number, &self.config, &self.shared),
            stats: self.stats(place),
            config: self.config.clone(),
        })
    }

    fn arrive(&self, place: &Place<'_>) -> Option<Rc<dyn Any>> {
        if place.worker != 0 {
            return None;
        }
        let store = Store::of(self.number, &self.config, &self.shared);
        let background = Background::begin(store, self.config.clone(), self.stats(place), place.host.clone())?;
        Some(background)
    }

    fn files(&self) -> &[WatchedFile] {
        &self.config.files
    }
}

postrider_telemetry::stat_set! {
    /// Requests by outcome, and what it took; prefix: the connection manager's, then `jwt_authn`.
    mod stat = "http";
    counters {
        ALLOWED = "allowed",
        CORS_PREFLIGHT_BYPASSED = "cors_preflight_bypassed",
        DENIED = "denied",
        JWKS_FETCH_FAILED = "jwks_fetch_failed",
        JWKS_FETCH_SUCCESS = "jwks_fetch_success",
        JWT_CACHE_HIT = "jwt_cache_hit",
        JWT_CACHE_MISS = "jwt_cache_miss",
    }
}

/// The filter on one worker, as one route sees it.
struct Gate {
    config: Arc<Config>,
    chosen: Chosen,
    store: Rc<Store>,
    stats: Rc<Block>,
}

/// What requests of a route need.
enum Chosen {
    /// What the rules say, or the filter state.
    ByRequest,
    One(Requirement),
    /// The route names what is not there.
    Unknown(String),
}

/// One stream's, while it waits for keys.
struct Waiting {
    asked: Vec<(usize, Slot)>,
    answers: Answers,
}

impl Filter for Gate {
    fn hooks(&self) -> Hooks {
        Hooks { request_headers: true, ..Hooks::default() }
    }

    fn on_request_headers(&self, state: &mut State, stream: &mut Stream<'_>, _end: bool) -> Action {
        for name in &self.config.own_headers {
            stream.request.fields.remove_header(name);
        }
        if self.config.bypass_cors_preflight && is_preflight(stream.request) {
            self.stats.inc(stat::CORS_PREFLIGHT_BYPASSED);
            return self.admit();
        }
        self.check(state, stream, Waiting { asked: Vec::new(), answers: Answers::new() })
    }

    fn on_request_resumed(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        let State::Any(memory) = std::mem::take(state) else { return Action::Done };
        let Ok(waiting) = memory.downcast::<Waiting>() else { return Action::Done };
        let Waiting { asked, mut answers } = *waiting;
        let known = answers.len();
        let mut open = Vec::new();
        for (provider, slot) in asked {
            let answer = slot.take();
            match answer {
                Some(answer) => answers.push((provider, answer)),
                None => open.push((provider, slot)),
            }
        }
        let waiting = Waiting { asked: open, answers };
        if waiting.answers.len() == known {
            *state = State::Any(Box::new(waiting));
            return Action::Pause;
        }
        self.check(state, stream, waiting)
    }
}

impl Gate {
    fn check(&self, state: &mut State, stream: &mut Stream<'_>, waiting: Waiting) -> Action {
        let config = self.config.clone();
        let requirement = match &self.chosen {
            Chosen::One(requirement) => requirement,
            Chosen::Unknown(name) => return self.unknown(name),
            Chosen::ByRequest => match requirement(&config, stream) {
                Some(requirement) => requirement,
                None => return self.admit(),
            },
        };
        let now = stream.host.now();
        // A check that has to wait begins anew, with the request as it was.
        let before = (!self.store.is_complete(&config, now)).then(|| stream.request.clone());
        let answers = &waiting.answers;
        let check = Check { config: &config, store: &self.store, stats: &self.stats, answers, now };
        match check.requirement(requirement, stream) {
            Ok(Status::Ok) => self.admit(),
            Ok(status) => self.deny(status, stream.request),
            Err(NeedsKeys(needed)) => {
                if let Some(before) = before {
                    *stream.request = before;
                }
                self.wait(state, stream, &needed, waiting)
            }
        }
    }

    /// Asks for all keys that are needed and not asked for yet; the first answer may be enough.
    #[cold]
    fn wait(&self, state: &mut State, stream: &mut Stream<'_>, needed: &[usize], mut waiting: Waiting) -> Action {
        waiting.asked.retain(|(provider, _)| needed.contains(provider));
        for provider in needed {
            let source = self.config.providers.get(*provider).map(|provider| &provider.source);
            let Some(Source::Remote(remote)) = source else { continue };
            if waiting.asked.iter().any(|(asked, _)| asked == provider) {
                continue;
            }
            let slot = Slot::default();
            self.store.wait(*provider, remote, &self.stats, stream.host, (&slot, stream.resumer.clone()));
            waiting.asked.push((*provider, slot));
        }
        if waiting.asked.is_empty() {
            return self.deny(Status::Fetch, stream.request);
        }
        *state = State::Any(Box::new(waiting));
        Action::Pause
    }

    fn admit(&self) -> Action {
        self.stats.inc(stat::ALLOWED);
        Action::Done
    }

    #[cold]
    fn deny(&self, status: Status, request: &RequestHead) -> Action {
        self.stats.inc(stat::DENIED);
        let mut reply = LocalReply {
            status: if status == Status::Audience { 403 } else { 401 },
            details: details(status.text()),
            ..LocalReply::default()
        };
        if !self.config.strip_failure_response {
            let error: &[u8] = if status == Status::Missing { b"\"" } else { b"\", error=\"invalid_token\"" };
            let challenge = [b"Bearer realm=\"", quotable_uri(request).as_slice(), error].concat();
            reply.body = Cow::Borrowed(status.text().as_bytes());
            reply.headers = vec![(Cow::Borrowed("www-authenticate"), Cow::Owned(challenge))];
        }
        Action::Respond(Box::new(reply))
    }

    #[cold]
    fn unknown(&self, name: &str) -> Action {
        self.stats.inc(stat::DENIED);
        let mut names: Vec<&str> = self.config.named.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        let message = format!("Wrong requirement_name: {name}. It should be one of [{}]", names.join(","));
        let body = match self.config.strip_failure_response {
            true => String::new(),
            false => format!("Failed JWT authentication: {message}"),
        };
        Action::Respond(Box::new(LocalReply {
            status: 403,
            body: body.into_bytes().into(),
            details: details(&message),
            ..LocalReply::default()
        }))
    }
}

/// What the first rule that matches says, or else the filter state.
fn requirement<'c>(config: &'c Config, stream: &Stream<'_>) -> Option<&'c Requirement> {
    let rule = config.rules.iter().find(|(rule, _)| rule.matches(stream.request));
    if let Some((_, requirement)) = rule {
        return Some(requirement);
    }
    let by_state = config.by_state.as_ref()?;
    let (_, value) = stream.info.filter_state.iter().find(|(name, _)| *name == by_state.name)?;
    let Value::String(value) = value else { return None };
    by_state.requirements.iter().find(|(known, _)| known == value).map(|(_, requirement)| requirement)
}

/// A browser asks whether it may send a request: it never shows who its user is.
fn is_preflight(request: &RequestHead) -> bool {
    let has = |name: &[u8]| request.fields.get_name(name).is_some_and(|value| !value.is_empty());
    request.method() == Method::Options
        && request.fields.get(HeaderId::Origin).is_some_and(|origin| !origin.is_empty())
        && has(b"access-control-request-method")
}

/// One token for logs.
fn details(message: &str) -> Cow<'static, str> {
    let token: String = message.chars().map(|c| if c.is_ascii_whitespace() { '_' } else { c }).collect();
    Cow::Owned(format!("jwt_authn_access_denied{{{token}}}"))
}

#[cfg(test)]
mod tests;
