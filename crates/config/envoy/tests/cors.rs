//! Policies for pages of other sites in their older form, which stand in virtual hosts and routes themselves.

mod common;
mod gateway;
mod managers;

use common::{said, snapshot};
use gateway::bootstrap;
use managers::http;
use postrider_config_envoy::Outcome;
use postrider_model::{FilterOverride, Value};

const POLICY: &str = "envoy.extensions.filters.http.cors.v3.CorsPolicy";

/// A bootstrap whose virtual host has a policy, with `filters` and more of one route.
fn outcome(filters: &str, route: &str) -> Outcome {
    let routes = format!(
        r#"
route_config:
  virtual_hosts:
  - name: v
    domains: ["*"]
    cors: {{ allow_methods: GET, max_age: "1", filter_enabled: {{ default_value: {{ numerator: 7 }} }} }}
    routes: [{{ match: {{ prefix: / }}, {route} }}]
"#
    );
    let text = bootstrap("clusters: [{ name: c, connect_timeout: 1s, type: STATIC }]", &routes, filters);
    common::outcome(&text, &|_: &str| true)
}

const FILTER: &str =
    "- { name: mine, typed_config: { \"@type\": type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors } }";

fn overrides(route: &str) -> Vec<FilterOverride> {
    let outcome = outcome(FILTER, route);
    http(&snapshot(&outcome).listeners[0]).routes.virtual_hosts[0].routes[0].filter_overrides.clone()
}

/// The names of what the one override says.
fn fields(overrides: &[FilterOverride]) -> Vec<&str> {
    let [only] = overrides else { panic!("{overrides:?}") };
    let config = only.config.as_ref().unwrap();
    assert_eq!((only.name.as_str(), config.kind.as_str()), ("mine", POLICY));
    let Value::Map(fields) = &config.value else { panic!("{config:?}") };
    fields.iter().map(|(name, _)| name.as_str()).collect()
}

#[test]
fn a_route_has_what_its_virtual_host_says_and_shares_are_the_first_ones() {
    let of_host = overrides("route: { cluster: c }");
    assert_eq!(fields(&of_host), ["allow_methods", "max_age", "filter_enabled"]);
    assert_eq!(of_host[0].origin.0.rsplit('.').next(), Some("cors"));
    let of_both = overrides("route: { cluster: c, cors: { max_age: \"2\", expose_headers: x } }");
    assert_eq!(fields(&of_both), ["max_age", "expose_headers", "allow_methods"]);
    // Envoy's filter looks at no other routes.
    assert!(overrides("direct_response: { status: 200 }").is_empty());
}

#[test]
fn the_newer_form_takes_the_place_of_the_older_one() {
    let newer = format!(
        "typed_per_filter_config: {{ mine: {{ \"@type\": type.googleapis.com/{POLICY}, allow_headers: x-y }} }}"
    );
    let route = format!("route: {{ cluster: c, cors: {{ max_age: \"2\" }} }}, {newer}");
    assert_eq!(fields(&overrides(&route)), ["allow_headers"]);
    let weighted = format!(
        "route: {{ weighted_clusters: {{ clusters: [{{ name: c, weight: 1, {newer} }}, {{ name: c, weight: 1 }}] }} }}"
    );
    let outcome = outcome(FILTER, &weighted);
    let snapshot = snapshot(&outcome);
    let route = &http(&snapshot.listeners[0]).routes.virtual_hosts[0].routes[0];
    assert!(route.filter_overrides.is_empty());
    let postrider_model::Action::Forward(forward) = &route.action else { panic!() };
    let postrider_model::Target::Weighted(clusters) = &forward.target else { panic!() };
    assert_eq!(fields(&clusters[0].filter_overrides), ["allow_headers"]);
    assert_eq!(fields(&clusters[1].filter_overrides), ["allow_methods", "max_age", "filter_enabled"]);
}

#[test]
fn a_policy_that_nobody_looks_at_is_told() {
    let outcome = outcome("", "route: { cluster: c }");
    assert!(outcome.snapshot.is_some());
    assert!(said(&outcome).contains("`cors` has no effect"), "{}", said(&outcome));
}
