//! The older form of policies for pages of other sites: `cors` in virtual hosts and routes themselves.
//!
//! As in Envoy, it counts where nothing on the way to a request's cluster speaks of the `cors` filter in the newer form, its
//! `typed_per_filter_config`; then the route's policy comes first, and the virtual host's has what that leaves out.

use postrider_model::{Action, FilterConfig, FilterOverride, FilterSlot, Origin, Target, Value};

use super::context::Lowering;
use super::tables::TableRules;
use super::value;
use crate::reader::Reader;

const FILTER: &str = "envoy.extensions.filters.http.cors.v3.Cors";
const POLICY: &str = "envoy.extensions.filters.http.cors.v3.CorsPolicy";

const FIELD: &str = "cors";

/// Of these the first policy's hold alone, also where it says nothing.
const SHARES: [&str; 2] = ["filter_enabled", "shadow_enabled"];

/// The names of the filters that policies are for.
pub(super) fn filters(chain: &[FilterSlot]) -> Vec<String> {
    chain.iter().filter(|slot| slot.kind == FILTER).map(|slot| slot.name.clone()).collect()
}

/// What a virtual host says, for its routes.
pub(super) struct OfHost {
    policy: Option<Policy>,
    /// Filters that the table or the virtual host speaks of in the newer form.
    newer: Vec<String>,
}

#[derive(Clone)]
struct Policy {
    fields: Vec<(String, Value)>,
    origin: Origin,
}

/// `overrides` are those of the table, and of the virtual host itself.
pub(super) fn of_host(
    cx: &mut Lowering<'_>,
    at: &Reader<'_>,
    rules: &TableRules<'_>,
    overrides: [&[FilterOverride]; 2],
) -> OfHost {
    let is_newer = |name: &&String| overrides.into_iter().any(|overrides| speaks_of(overrides, name));
    let newer = rules.cors_filters.iter().filter(is_newer).cloned().collect();
    OfHost { policy: policy(cx, at, rules), newer }
}

/// Adds what the older form says to the overrides of a route, or to those of its weighted clusters.
pub(super) fn of_route(
    cx: &mut Lowering<'_>,
    at: &Reader<'_>,
    rules: &TableRules<'_>,
    host: &OfHost,
    action: Option<&mut Action>,
    overrides: &mut Vec<FilterOverride>,
) {
    // Envoy's filter does nothing on routes of other kinds.
    let Some(route) = at.message("route") else { return };
    let own = policy(cx, &route, rules);
    let (Some(policy), Some(Action::Forward(forward))) = (merged(own, host.policy.clone()), action) else { return };
    for name in rules.cors_filters {
        if host.newer.contains(name) || speaks_of(overrides, name) {
            continue;
        }
        match &mut forward.target {
            Target::Weighted(clusters) if clusters.iter().any(|one| speaks_of(&one.filter_overrides, name)) => {
                let silent = clusters.iter_mut().filter(|one| !speaks_of(&one.filter_overrides, name));
                silent.for_each(|one| add(&mut one.filter_overrides, name, &policy));
            }
            _ => add(overrides, name, &policy),
        }
    }
}

fn policy(cx: &mut Lowering<'_>, at: &Reader<'_>, rules: &TableRules<'_>) -> Option<Policy> {
    let policy = at.message(FIELD)?;
    policy.read_whole();
    if rules.cors_filters.is_empty() {
        let text = "`cors` has no effect: there is no filter `envoy.filters.http.cors` in the chain";
        cx.warn(at, FIELD, "no-effect", text);
    }
    let Value::Map(fields) = value::value(policy.as_message()) else { return None };
    Some(Policy { fields, origin: Origin(policy.path().to_owned()) })
}

fn merged(own: Option<Policy>, of_host: Option<Policy>) -> Option<Policy> {
    let (mut own, of_host) = match (own, of_host) {
        (Some(own), Some(of_host)) => (own, of_host),
        (own, of_host) => return own.or(of_host),
    };
    for (name, value) in of_host.fields {
        if !SHARES.contains(&name.as_str()) && !own.fields.iter().any(|(known, _)| *known == name) {
            own.fields.push((name, value));
        }
    }
    Some(own)
}

/// Whether there is a configuration for the filter of that name; one that is only switched is not spoken of.
fn speaks_of(overrides: &[FilterOverride], name: &str) -> bool {
    overrides.iter().any(|one| one.name == name && one.config.is_some())
}

fn add(overrides: &mut Vec<FilterOverride>, name: &str, policy: &Policy) {
    let config = FilterConfig { kind: POLICY.to_owned(), value: Value::Map(policy.fields.clone()) };
    match overrides.iter_mut().find(|one| one.name == name) {
        Some(switched) => (switched.config, switched.origin) = (Some(config), policy.origin.clone()),
        None => overrides.push(FilterOverride {
            name: name.to_owned(),
            config: Some(config),
            disabled: false,
            optional: false,
            origin: policy.origin.clone(),
        }),
    }
}
