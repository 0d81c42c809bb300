//! Lets requests pass by rules: who may do what.
//!
//! Configured as `envoy.extensions.filters.http.rbac.v3.RBAC`; virtual hosts, routes and weighted clusters bring rules of
//! their own, or none, by `RBACPerRoute`, and the most specific ones count alone. Decisions, answers, statistics and what
//! is noted in the metadata are as in Envoy 1.40.

mod config;
mod connections;
mod rules;

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{
    Action, ConfigError, Factory, Filter, Hooks, LocalReply, Place, RouteConfig, ScopedConfigs, State, Stream,
};
use postrider_model::{Metadata, Value, ValueError};
use postrider_telemetry::stats::Counter;
use postrider_telemetry::{Block, StatSet};

pub(crate) use connections::{KIND as CONNECTIONS_KIND, build as build_connections};

use config::Config;
use rules::{Rules, Ruling, Subject};

pub(crate) const KIND: &str = "envoy.extensions.filters.http.rbac.v3.RBAC";
const ROUTE_KIND: &str = "envoy.extensions.filters.http.rbac.v3.RBACPerRoute";

/// Where results are noted, whatever the filter is called in its chain.
const NAMESPACE: &str = "envoy.filters.http.rbac";

/// Where logs look for a hint.
const COMMON: &str = "envoy.common";

/// Reads a gateway-level configuration.
pub(crate) fn build(_name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    Ok(Arc::new(Rbac(Arc::new(config::read(value)?))))
}

struct Rbac(Arc<Config>);

impl Factory for Rbac {
    fn route_config(&self, kind: &str, value: &Value) -> Result<RouteConfig, ConfigError> {
        if kind != ROUTE_KIND {
            let message = format!("rbac is overridden by {ROUTE_KIND}, not by {kind}");
            return Err(vec![ValueError { path: String::new(), message }]);
        }
        Ok(RouteConfig::new(Arc::new(config::read_route(value)?), value))
    }

    fn filter(&self, configs: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        let config = configs.most_specific::<Arc<Config>>().unwrap_or(&self.0);
        let prefix = format!("{}.rbac", place.stat_prefix);
        let side = |kind, rules: &Option<Arc<Rules>>, own: &str, note: &str| {
            // Whoever's the rules are, the statistics are the filter's own; so are the notes, unless the rules name theirs.
            let note = if note.is_empty() { own } else { note };
            Side::new(kind, rules.as_ref(), place, &joined(&prefix, own), note, config.count_policies)
        };
        let own = &self.0;
        Rc::new(Guard {
            enforced: side(&ENFORCED, &config.enforced, &own.enforced_prefix, &config.enforced_prefix),
            shadow: side(&SHADOW, &config.shadow, &own.shadow_prefix, &config.shadow_prefix),
        })
    }
}

fn joined(prefix: &str, more: &str) -> String {
    match more.trim_end_matches('.') {
        "" => prefix.to_owned(),
        more => format!("{prefix}.{more}"),
    }
}

postrider_telemetry::stat_set! {
    /// Requests by outcome; prefix: the connection manager's, then `rbac`, then what the configuration says.
    mod enforced = "http";
    counters { ALLOWED = "allowed", DENIED = "denied" }
}

postrider_telemetry::stat_set! {
    /// The same for rules that turn nobody away.
    mod shadow = "http";
    counters { ALLOWED = "shadow_allowed", DENIED = "shadow_denied" }
}

postrider_telemetry::stat_set! {
    /// Requests by the policy that matched; prefix: that of the rules, then `policy` and its name.
    mod of_policy = "http";
    lazy_counters {
        ALLOWED = "allowed",
        DENIED = "denied",
        SHADOW_ALLOWED = "shadow_allowed",
        SHADOW_DENIED = "shadow_denied",
    }
}

/// What results are called, and where they are counted: for all requests, and for those of a policy.
struct Kind {
    name: &'static str,
    set: &'static StatSet,
    allowed: [Counter; 2],
    denied: [Counter; 2],
}

static ENFORCED: Kind = Kind {
    name: "enforced",
    set: &enforced::SET,
    allowed: [enforced::ALLOWED, of_policy::ALLOWED],
    denied: [enforced::DENIED, of_policy::DENIED],
};

static SHADOW: Kind = Kind {
    name: "shadow",
    set: &shadow::SET,
    allowed: [shadow::ALLOWED, of_policy::SHADOW_ALLOWED],
    denied: [shadow::DENIED, of_policy::SHADOW_DENIED],
};

/// The filter on one worker, as one route sees it.
struct Guard {
    enforced: Option<Side>,
    shadow: Option<Side>,
}

/// Rules with where their results go.
struct Side {
    kind: &'static Kind,
    rules: Arc<Rules>,
    stats: Rc<Block>,
    /// In the order of the policies; empty when they are not counted.
    policies: Vec<Rc<Block>>,
    policy_key: String,
    result_key: String,
}

impl Filter for Guard {
    fn hooks(&self) -> Hooks {
        Hooks { request_headers: self.enforced.is_some() || self.shadow.is_some(), ..Hooks::default() }
    }

    fn on_request_headers(&self, _: &mut State, stream: &mut Stream<'_>, _end: bool) -> Action {
        if let Some(shadow) = &self.shadow {
            shadow.on_request(stream);
        }
        let Some(enforced) = &self.enforced else { return Action::Done };
        let ruling = enforced.on_request(stream);
        enforced.hint(ruling, &mut stream.info.metadata);
        if ruling.allowed { Action::Done } else { denial(ruling.policy.map(|(_, name)| name)) }
    }
}

impl Side {
    /// `None` without rules; then nothing is counted, but shown. What is noted begins with `note`.
    fn new(
        kind: &'static Kind,
        rules: Option<&Arc<Rules>>,
        place: &Place<'_>,
        prefix: &str,
        note: &str,
        count_policies: bool,
    ) -> Option<Side> {
        let stats = place.stats.block(kind.set, prefix);
        let rules = rules?.clone();
        let block = |name: &str| place.stats.block(&of_policy::SET, &format!("{prefix}.policy.{name}"));
        let names = if count_policies { rules.names() } else { Vec::new() };
        Some(Side {
            kind,
            stats,
            policies: names.into_iter().map(block).collect(),
            policy_key: format!("{note}{}_effective_policy_id", kind.name),
            result_key: format!("{note}{}_engine_result", kind.name),
            rules,
        })
    }

    fn on_request(&self, stream: &mut Stream<'_>) -> Ruling<'_> {
        let ruling = self.judge(Subject::of(stream));
        self.note(ruling, NAMESPACE, &mut stream.info.metadata);
        ruling
    }

    /// Judges and counts.
    fn judge(&self, subject: Subject<'_>) -> Ruling<'_> {
        let ruling = self.rules.judge(subject);
        let [counter, of_policy] = if ruling.allowed { self.kind.allowed } else { self.kind.denied };
        self.stats.inc(counter);
        if let Some(policy) = ruling.policy.and_then(|(index, _)| self.policies.get(index)) {
            policy.inc(of_policy);
        }
        ruling
    }

    fn note(&self, ruling: Ruling<'_>, namespace: &str, metadata: &mut Metadata) {
        if let Some((_, name)) = ruling.policy {
            metadata.set(namespace, &self.policy_key, Value::String(name.to_owned()));
        }
        let result = if ruling.allowed { "allowed" } else { "denied" };
        metadata.set(namespace, &self.result_key, Value::String(result.to_owned()));
    }

    /// Rules that only log leave a hint.
    fn hint(&self, ruling: Ruling<'_>, metadata: &mut Metadata) {
        if let Some(hint) = ruling.hint {
            metadata.set(COMMON, "access_log_hint", Value::Bool(hint));
        }
    }
}

#[cold]
fn denial(policy: Option<&str>) -> Action {
    Action::Respond(Box::new(LocalReply {
        status: 403,
        body: Cow::Borrowed(b"RBAC: access denied"),
        details: details(policy),
        ..LocalReply::default()
    }))
}

/// What logs tell of a denial, as one token.
fn details(policy: Option<&str>) -> Cow<'static, str> {
    let name: String =
        policy.unwrap_or("none").chars().map(|c| if c.is_ascii_whitespace() { '_' } else { c }).collect();
    Cow::Owned(format!("rbac_access_denied_matched_policy[{name}]"))
}

#[cfg(test)]
mod tests;
