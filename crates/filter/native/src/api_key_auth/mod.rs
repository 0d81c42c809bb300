//! Lets clients pass that show a key.
//!
//! Configured as `envoy.extensions.filters.http.api_key_auth.v3.ApiKeyAuth`; virtual hosts, routes and weighted clusters
//! say more by `ApiKeyAuthPerRoute`. Answers are those of Envoy 1.40. The filter knows the digests of keys only, and never
//! tells by its timing how much of a key was right.

mod config;

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{
    Action, ConfigError, Factory, Filter, Hooks, LocalReply, Place, RouteConfig, ScopedConfigs, State, Stream,
};
use postrider_http::RequestHead;
use postrider_model::{Value, ValueError};
use postrider_telemetry::Block;

use crate::request_parts::{cookie, parameter, remove_cookie, without_parameters};
use config::{Config, Forwarding, Keys, Override, Source};

pub(crate) const KIND: &str = "envoy.extensions.filters.http.api_key_auth.v3.ApiKeyAuth";
const ROUTE_KIND: &str = "envoy.extensions.filters.http.api_key_auth.v3.ApiKeyAuthPerRoute";

/// Reads a gateway-level configuration.
pub(crate) fn build(_name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    Ok(Arc::new(ApiKeyAuth(config::read(value)?)))
}

struct ApiKeyAuth(Config);

impl Factory for ApiKeyAuth {
    fn route_config(&self, kind: &str, value: &Value) -> Result<RouteConfig, ConfigError> {
        if kind != ROUTE_KIND {
            let message = format!("api_key_auth is overridden by {ROUTE_KIND}, not by {kind}");
            return Err(vec![ValueError { path: String::new(), message }]);
        }
        Ok(RouteConfig::new(config::read_route(value)?, value))
    }

    fn filter(&self, configs: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        let own = configs.most_specific::<Override>();
        let pick = |own: Option<&Config>| match own {
            Some(own) => Config {
                keys: own.keys.clone().or_else(|| self.0.keys.clone()),
                sources: own.sources.clone().or_else(|| self.0.sources.clone()),
                // Who says something says all about it: what is not written is nothing.
                forwarding: own.forwarding.clone(),
            },
            None => self.0.clone(),
        };
        Rc::new(Gate {
            config: pick(own.map(|own| &own.config)),
            clients: own.map(|own| own.clients.clone()).unwrap_or_default(),
            stats: place.stats.block(&stat::SET, &format!("{}.api_key_auth", place.stat_prefix)),
        })
    }
}

postrider_telemetry::stat_set! {
    /// Requests by outcome; prefix: the connection manager's, then `api_key_auth`.
    mod stat = "http";
    counters { ALLOWED = "allowed", FORBIDDEN = "forbidden", UNAUTHORIZED = "unauthorized" }
}

/// The filter on one worker, as one route sees it.
struct Gate {
    config: Config,
    /// Who may take this route; empty is everybody who has a key.
    clients: Vec<String>,
    stats: Rc<Block>,
}

/// Why a request is turned away, for logs.
enum Denial {
    Unauthorized(&'static str),
    Forbidden,
}

impl Filter for Gate {
    fn hooks(&self) -> Hooks {
        Hooks { request_headers: true, ..Hooks::default() }
    }

    fn on_request_headers(&self, _: &mut State, stream: &mut Stream<'_>, _end: bool) -> Action {
        match self.client(stream.request) {
            Ok((client, sources)) => {
                forward(&self.config.forwarding, client, sources, stream.request);
                self.stats.inc(stat::ALLOWED);
                Action::Done
            }
            Err(denial) => self.deny(&denial),
        }
    }
}

impl Gate {
    /// Whose key the request shows, and where keys stand.
    fn client(&self, request: &RequestHead) -> Result<(&str, &[Source]), Denial> {
        let sources = self.config.sources.as_ref().ok_or(Denial::Unauthorized("missing_key_sources"))?;
        let keys: &Keys = self.config.keys.as_ref().ok_or(Denial::Unauthorized("missing_credentials"))?;
        let shown = sources.iter().find_map(|source| shown(source, request).filter(|key| !key.is_empty()));
        let shown = shown.ok_or(Denial::Unauthorized("missing_api_key"))?;
        let client = keys.client(&shown).ok_or(Denial::Unauthorized("unknown_api_key"))?;
        if !self.clients.is_empty() && !self.clients.iter().any(|known| known == client) {
            return Err(Denial::Forbidden);
        }
        Ok((client, sources))
    }

    #[cold]
    fn deny(&self, denial: &Denial) -> Action {
        let (counter, status, body, details) = match denial {
            Denial::Unauthorized(details) => (stat::UNAUTHORIZED, 401, "Client authentication failed.", *details),
            Denial::Forbidden => (stat::FORBIDDEN, 403, "Client is forbidden.", "client_not_allowed"),
        };
        self.stats.inc(counter);
        Action::Respond(Box::new(LocalReply {
            status,
            body: Cow::Borrowed(body.as_bytes()),
            details: Cow::Borrowed(details),
            ..LocalReply::default()
        }))
    }
}

/// The first key at this place; may be empty.
fn shown<'r>(source: &Source, request: &'r RequestHead) -> Option<Cow<'r, [u8]>> {
    match source {
        Source::Header(name) => {
            let bare = |value: &'r [u8]| value.strip_prefix(b"Bearer ").unwrap_or(value);
            let mut lines = request.fields.get_all_name(name.as_bytes());
            let first = bare(lines.next()?);
            // Several lines of `authorization` are one value with commas in it, as in Envoy, and that is nobody's key.
            let more = if name.as_bytes() == b"authorization" { lines.next() } else { None };
            Some(match more {
                None => Cow::Borrowed(first),
                Some(second) => Cow::Owned([first, second].join(&b',')),
            })
        }
        Source::Query(name) => parameter(request, name).map(|key| Cow::Owned(key.into_bytes())),
        Source::Cookie(name) => cookie(request, name).map(|key| Cow::Owned(key.into_bytes())),
    }
}

fn forward(rules: &Forwarding, client: &str, sources: &[Source], request: &mut RequestHead) {
    if let Some(name) = &rules.header {
        // What a client wrote there itself is overwritten; that the value can be one was checked with the configuration.
        let _ = request.fields.set_header(name, client.as_bytes());
    }
    for source in sources.iter().filter(|_| rules.hide) {
        match source {
            Source::Header(name) if rules.header.as_ref().is_some_and(|own| own.as_bytes() == name.as_bytes()) => {}
            Source::Header(name) => {
                request.fields.remove_header(name);
            }
            Source::Query(name) => {
                let path = without_parameters(request.path(), &[name]);
                // A part of what was a path is one.
                let _ = request.set_path(&path);
            }
            Source::Cookie(name) => remove_cookie(request, name),
        }
    }
}

#[cfg(test)]
mod tests;
