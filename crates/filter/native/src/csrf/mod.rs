//! Refuses requests that pages of other sites make a browser send (cross-site request forgery).
//!
//! Configured as `envoy.extensions.filters.http.csrf.v3.CsrfPolicy`, for the whole gateway and for virtual hosts,
//! routes and weighted clusters; the most specific policy counts alone. A request that changes something must come from
//! a page of the host that it is for, or of one of the additional origins. Details are as in Envoy 1.40.

use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{
    Action, ConfigError, Factory, Filter, Hooks, LocalReply, Place, RouteConfig, ScopedConfigs, State, Stream,
};
use postrider_http::{HeaderId, Method, RequestHead};
use postrider_model::{Reading, StringMatch, Value, ValueError, string_match};
use postrider_telemetry::Block;

use crate::origin::origin;
use crate::share::drawn;

pub(crate) const KIND: &str = "envoy.extensions.filters.http.csrf.v3.CsrfPolicy";

/// Reads a gateway-level configuration.
pub(crate) fn build(_name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    Ok(Arc::new(Csrf(Arc::new(Reading::all(value, Policy::read)?))))
}

struct Csrf(Arc<Policy>);

/// The policy of a more specific scope.
struct Scope(Arc<Policy>);

impl Factory for Csrf {
    fn route_config(&self, kind: &str, value: &Value) -> Result<RouteConfig, ConfigError> {
        if kind != KIND {
            let message = format!("csrf is overridden by {KIND}, not by {kind}");
            return Err(vec![ValueError { path: String::new(), message }]);
        }
        Ok(RouteConfig::new(Scope(Arc::new(Reading::all(value, Policy::read)?)), value))
    }

    fn filter(&self, configs: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        Rc::new(Gate {
            policy: configs.most_specific::<Scope>().map_or(&self.0, |scope| &scope.0).clone(),
            stats: place.stats.block(&stat::SET, &format!("{}.csrf", place.stat_prefix)),
        })
    }
}

#[derive(Debug)]
struct Policy {
    /// In parts per million.
    enabled: u32,
    /// Requests that are only counted.
    shadow: u32,
    additional: Vec<StringMatch>,
}

impl Policy {
    fn read(at: &mut Reading<'_>) -> Policy {
        if !at.has("filter_enabled") {
            at.error("filter_enabled", "the share of requests that are looked at is required");
        }
        Policy {
            enabled: at.parts_per_million("filter_enabled").unwrap_or(0),
            shadow: at.parts_per_million("shadow_enabled").unwrap_or(0),
            additional: at.each("additional_origins", string_match).into_iter().flatten().collect(),
        }
    }
}

postrider_telemetry::stat_set! {
    /// Requests that change something, by where they come from; prefix: the connection manager's, then `csrf`.
    mod stat = "http";
    counters {
        MISSING = "missing_source_origin",
        INVALID = "request_invalid",
        VALID = "request_valid",
    }
}

/// The filter on one worker, as one route sees it.
struct Gate {
    policy: Arc<Policy>,
    stats: Rc<Block>,
}

impl Filter for Gate {
    fn hooks(&self) -> Hooks {
        Hooks { request_headers: self.policy.enabled > 0 || self.policy.shadow > 0, ..Hooks::default() }
    }

    fn on_request_headers(&self, _: &mut State, stream: &mut Stream<'_>, _end: bool) -> Action {
        if !matches!(stream.request.method(), Method::Post | Method::Put | Method::Delete | Method::Patch) {
            return Action::Done;
        }
        let enabled = drawn(Some(self.policy.enabled), stream);
        if !enabled && !drawn(Some(self.policy.shadow), stream) {
            return Action::Done;
        }
        let verdict = self.judge(stream.request);
        self.stats.inc(verdict);
        if verdict == stat::VALID || !enabled {
            return Action::Done;
        }
        Action::Respond(Box::new(LocalReply {
            status: 403,
            body: b"Invalid origin".into(),
            details: "csrf_origin_mismatch".into(),
            ..LocalReply::default()
        }))
    }
}

impl Gate {
    /// The counter that the request belongs to.
    fn judge(&self, request: &RequestHead) -> postrider_telemetry::stats::Counter {
        let origin = origin(&request.fields);
        // A page without an origin of its own sends `null`.
        if origin.as_deref() == Some(b"null") {
            return stat::MISSING;
        }
        let from = |url| Some(host_and_port(url)).filter(|from: &&[u8]| !from.is_empty());
        let source = origin.as_deref().and_then(from);
        let Some(source) = source.or_else(|| from(request.fields.get(HeaderId::Referer)?)) else {
            return stat::MISSING;
        };
        if source == host_and_port(request.authority()) {
            return stat::VALID;
        }
        let text = std::str::from_utf8(source);
        let additional = text.is_ok_and(|source| self.policy.additional.iter().any(|origin| origin.matches(source)));
        if additional { stat::VALID } else { stat::INVALID }
    }
}

/// The authority of a URL; what is no URL counts as it is.
fn host_and_port(url: &[u8]) -> &[u8] {
    let scheme = url.windows(3).position(|part| part == b"://");
    let Some((scheme, rest)) = scheme.and_then(|at| Some((url.get(..at)?, url.get(at + 3..)?))) else { return url };
    let of_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    if !scheme.first().is_some_and(u8::is_ascii_alphabetic) || !scheme.iter().all(of_scheme) {
        return url;
    }
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    let authority = rest.get(..end).unwrap_or_default();
    let mut parts = authority.splitn(2, |byte| *byte == b'@');
    let (first, second) = (parts.next().unwrap_or_default(), parts.next());
    // What stands before the host may not end the authority to other readers of the URL.
    let of_user = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.!~*'()%;:&=+$,".contains(byte);
    let host = match second {
        Some(_) if !first.iter().all(of_user) => return url,
        Some(host) => host,
        None => first,
    };
    let odd = |byte: &u8| matches!(byte, b'#' | b'@' | b'\\');
    if host.is_empty() || host.iter().any(odd) { url } else { host }
}

#[cfg(test)]
mod tests;
