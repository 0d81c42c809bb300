//! Cross-origin requests: which pages of other sites may read answers (<https://fetch.spec.whatwg.org/#http-cors-protocol>).
//!
//! Configured as `envoy.extensions.filters.http.cors.v3.Cors`, which is empty: the policies stand in route tables,
//! virtual hosts, routes and weighted clusters as `CorsPolicy`. What a policy leaves out is taken from the next less
//! specific one. Details are as in Envoy 1.40.
//!
//! ```text
//! request ──> no origin, or one that is not allowed ──> on, as if the filter were not there
//!         ├──> preflight (OPTIONS that names a method) ──> 200 with what is allowed
//!         └──> on; its answer says that the page may read it
//! ```

use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{
    Action, ConfigError, Factory, Filter, Hooks, LocalReply, Place, RouteConfig, ScopedConfigs, State, Stream,
    Treatment,
};
use postrider_http::{HeaderId, Method};
use postrider_model::{Reading, StringMatch, Value, ValueError, string_match};
use postrider_telemetry::Block;

use crate::origin::origin;
use crate::read::field_value;
use crate::share::drawn;

pub(crate) const KIND: &str = "envoy.extensions.filters.http.cors.v3.Cors";
const POLICY_KIND: &str = "envoy.extensions.filters.http.cors.v3.CorsPolicy";

/// Reads a gateway-level configuration: there is nothing in it.
pub(crate) fn build(_name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    Reading::all(value, |_| ())?;
    Ok(Arc::new(Cors))
}

struct Cors;

impl Factory for Cors {
    fn route_config(&self, kind: &str, value: &Value) -> Result<RouteConfig, ConfigError> {
        if kind != POLICY_KIND {
            let message = format!("cors is configured by {POLICY_KIND}, not by {kind}");
            return Err(vec![ValueError { path: String::new(), message }]);
        }
        Ok(RouteConfig::new(Reading::all(value, Policy::read)?, value))
    }

    fn filter(&self, configs: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        Rc::new(Gate {
            policy: Policy::merged(configs.specific_first()),
            stats: place.stats.block(&stat::SET, &format!("{}.cors", place.stat_prefix)),
        })
    }
}

/// What one scope says, or what all scopes of a route say together.
#[derive(Debug, Clone, Default, PartialEq)]
struct Policy {
    origins: Vec<StringMatch>,
    methods: Option<String>,
    headers: Option<String>,
    exposed: Option<String>,
    max_age: Option<String>,
    credentials: Option<bool>,
    private_network: Option<bool>,
    forward_others: Option<bool>,
    /// In parts per million; all where nothing is written.
    enabled: Option<u32>,
    shadow: u32,
}

impl Policy {
    fn read(at: &mut Reading<'_>) -> Policy {
        Policy {
            origins: at.each("allow_origin_string_match", string_match).into_iter().flatten().collect(),
            methods: field_value(at, "allow_methods"),
            headers: field_value(at, "allow_headers"),
            exposed: field_value(at, "expose_headers"),
            max_age: field_value(at, "max_age"),
            credentials: at.bool("allow_credentials"),
            private_network: at.bool("allow_private_network_access"),
            forward_others: at.bool("forward_not_matching_preflights"),
            enabled: at.parts_per_million("filter_enabled"),
            shadow: at.parts_per_million("shadow_enabled").unwrap_or(0),
        }
    }

    /// Each value from the first policy that has it; `None` without any policy. Shares are the first policy's alone.
    fn merged<'p>(mut policies: impl Iterator<Item = &'p Policy>) -> Option<Policy> {
        let mut policy = policies.next()?.clone();
        for other in policies {
            if policy.origins.is_empty() {
                policy.origins.clone_from(&other.origins);
            }
            for (own, other) in [
                (&mut policy.methods, &other.methods),
                (&mut policy.headers, &other.headers),
                (&mut policy.exposed, &other.exposed),
                (&mut policy.max_age, &other.max_age),
            ] {
                if own.is_none() {
                    own.clone_from(other);
                }
            }
            policy.credentials = policy.credentials.or(other.credentials);
            policy.private_network = policy.private_network.or(other.private_network);
            policy.forward_others = policy.forward_others.or(other.forward_others);
        }
        Some(policy)
    }

    fn allows(&self, origin: &[u8]) -> bool {
        let origin = std::str::from_utf8(origin).unwrap_or_default();
        self.origins.iter().any(|allowed| allowed.matches("*") || allowed.matches(origin))
    }
}

postrider_telemetry::stat_set! {
    /// Cross-origin requests by whether their origin is allowed; prefix: the connection manager's, then `cors`.
    mod stat = "http";
    counters { ORIGIN_INVALID = "origin_invalid", ORIGIN_VALID = "origin_valid" }
}

/// The filter on one worker, as one route sees it.
struct Gate {
    policy: Option<Policy>,
    stats: Rc<Block>,
}

const ALLOW_CREDENTIALS: &[u8] = b"access-control-allow-credentials";

impl Filter for Gate {
    fn hooks(&self) -> Hooks {
        let any = self.policy.is_some();
        Hooks { request_headers: any, response_headers: any, ..Hooks::default() }
    }

    fn on_request_headers(&self, state: &mut State, stream: &mut Stream<'_>, _end: bool) -> Action {
        let Some(policy) = &self.policy else { return Action::Done };
        let Some(origin) = origin(&stream.request.fields).filter(|origin| !origin.is_empty()) else {
            return Action::Done;
        };
        let origin = origin.into_owned();
        let enabled = drawn(policy.enabled, stream);
        if !enabled && !drawn(Some(policy.shadow), stream) {
            return Action::Done;
        }
        let allowed = policy.allows(&origin);
        self.stats.inc(if allowed { stat::ORIGIN_VALID } else { stat::ORIGIN_INVALID });
        if !enabled {
            return Action::Done;
        }
        let asked = stream.request.fields.get(HeaderId::AccessControlRequestMethod);
        let preflight = stream.request.method() == Method::Options && asked.is_some_and(|method| !method.is_empty());
        let action = match (preflight, allowed) {
            (true, true) => policy.answer(stream, Some(&origin)),
            // A browser that finds its origin missing looks at nothing else.
            (true, false) if policy.forward_others == Some(false) => policy.answer(stream, None),
            _ => Action::Done,
        };
        if allowed {
            *state = State::Any(Box::new(Origin(origin)));
        }
        action
    }

    fn on_response_headers(&self, state: &mut State, stream: &mut Stream<'_>, _end: bool) -> Action {
        let State::Any(origin) = state else { return Action::Done };
        let (Some(Origin(origin)), Some(policy)) = (origin.downcast_ref(), &self.policy) else { return Action::Done };
        let fields = &mut stream.response.fields;
        // The origin was received in a request, and the texts were checked: what fails is a head that is full.
        let _ = fields.set(HeaderId::AccessControlAllowOrigin, origin);
        if policy.credentials == Some(true) {
            let _ = fields.set_name(ALLOW_CREDENTIALS, b"true");
        }
        if let Some(exposed) = &policy.exposed {
            let _ = fields.set_name(b"access-control-expose-headers", exposed.as_bytes());
        }
        Action::Done
    }
}

/// The origin that a request came from, once it is allowed.
struct Origin(Vec<u8>);

impl Policy {
    /// The answer to a preflight from `origin`, if that is allowed.
    fn answer(&self, stream: &Stream<'_>, origin: Option<&[u8]>) -> Action {
        let mut headers: Vec<(&str, &[u8])> =
            origin.map(|origin| ("access-control-allow-origin", origin)).into_iter().collect();
        if self.credentials == Some(true) {
            headers.push(("access-control-allow-credentials", b"true"));
        }
        let wanted = stream.request.fields.get_name(b"access-control-request-private-network");
        if self.private_network == Some(true) && wanted == Some(b"true") {
            headers.push(("access-control-allow-private-network", b"true"));
        }
        // What everything is allowed of is told as what was asked for: to a request with credentials a browser takes `*` by
        // the letter.
        let asked = |name: &[u8]| stream.request.fields.get_name(name).unwrap_or_default();
        for (name, value, everything) in [
            ("access-control-allow-methods", &self.methods, &b"access-control-request-method"[..]),
            ("access-control-allow-headers", &self.headers, b"access-control-request-headers"),
        ] {
            let Some(value) = value else { continue };
            headers.push((name, if value == "*" { asked(everything) } else { value.as_bytes() }));
        }
        headers.extend(self.max_age.as_ref().map(|value| ("access-control-max-age", value.as_bytes())));
        plain(headers.into_iter().map(|(name, value)| (name.into(), value.to_vec().into())).collect())
    }
}

type Headers = Vec<(std::borrow::Cow<'static, str>, std::borrow::Cow<'static, [u8]>)>;

fn plain(headers: Headers) -> Action {
    Action::Respond(Box::new(LocalReply {
        status: 200,
        headers,
        details: "cors_response".into(),
        treatment: Treatment::Own,
        ..LocalReply::default()
    }))
}

#[cfg(test)]
mod tests;
