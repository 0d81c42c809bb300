use postrider_filter_api::RouteRateLimits;
use postrider_grpc::Message;
use postrider_grpc::rate::RateLimitRequest;
use postrider_model::{RateLimit as Rule, RateLimitAction};

use super::*;
use crate::testing::{list, object, place, request, text};

fn config(more: Vec<(&str, Value)>) -> Value {
    let grpc = object([("envoy_grpc", object([("cluster_name", text("rls"))]))]);
    let service = object([("grpc_service", grpc), ("transport_api_version", text("V3"))]);
    let mut entries = vec![("domain".to_owned(), text("d")), ("rate_limit_service".to_owned(), service)];
    entries.extend(more.into_iter().map(|(key, value)| (key.to_owned(), value)));
    Value::Map(entries)
}

fn rule(value: &str, stage: u32) -> Rule {
    let actions = vec![RateLimitAction::Generic { key: "k".into(), value: value.into() }];
    Rule { stage, actions, limit: None, hits: None, is_keyed: false, quota_headers: None }
}

fn own_rule(value: &str) -> Value {
    let generic = object([("generic_key", object([("descriptor_value", text(value))]))]);
    object([("actions", list([generic]))])
}

/// The values that the service is asked about, with the domain.
fn asked(gateway: &Value, route: Option<&Value>, limits: RouteRateLimits) -> Vec<String> {
    let factory = build("limit", gateway).ok().unwrap();
    let scope = route.map(|route| factory.route_config(ROUTE_KIND, route).ok().unwrap());
    let configs = ScopedConfigs { route: scope, ..ScopedConfigs::default() };
    let filter = factory.filter(&configs, &place());
    let mut stream = request("/", &[]);
    let facts = stream.route.as_mut().unwrap();
    facts.rate_limits = limits;
    facts.target = postrider_filter_api::RouteTarget::Cluster("c".into());
    let mut state = State::default();
    let action = stream.with(|stream| filter.on_request_headers(&mut state, stream, true));
    let calls = stream.host.grpc_calls.borrow();
    assert_eq!(matches!(action, Action::Pause), !calls.is_empty(), "{action:?}");
    let Some(call) = calls.front() else { return Vec::new() };
    let message = RateLimitRequest::decode(call.message.as_slice()).unwrap();
    let values = message.descriptors.into_iter().map(|descriptor| descriptor.entries[0].value.clone());
    std::iter::once(message.domain).chain(values).collect()
}

#[test]
fn rules_come_from_the_override_the_filter_the_route_or_the_virtual_host() {
    let limits = |route: &[&str], host: &[&str], include| RouteRateLimits {
        route: route.iter().map(|value| rule(value, 0)).collect(),
        virtual_host: host.iter().map(|value| rule(value, 0)).collect(),
        include_virtual_host: include,
    };
    let plain = config(Vec::new());
    let vh = |option: &str| object([("vh_rate_limits", text(option))]);
    assert_eq!(asked(&plain, None, limits(&["r"], &["h"], false)), ["d", "r"]);
    assert_eq!(asked(&plain, None, limits(&[], &["h"], false)), ["d", "h"]);
    assert_eq!(asked(&plain, None, limits(&["r"], &["h"], true)), ["d", "r", "h"]);
    assert_eq!(asked(&plain, Some(&vh("INCLUDE")), limits(&["r"], &["h"], false)), ["d", "r", "h"]);
    assert_eq!(asked(&plain, Some(&vh("IGNORE")), limits(&[], &["h"], false)), [""; 0]);
    assert_eq!(asked(&plain, None, limits(&[], &[], false)), [""; 0]);
    let own = config(vec![("rate_limits", list([own_rule("f")]))]);
    assert_eq!(asked(&own, None, limits(&["r"], &["h"], true)), ["d", "f"]);
    let route = object([("rate_limits", list([own_rule("o")])), ("domain", text("other"))]);
    assert_eq!(asked(&own, Some(&route), limits(&["r"], &[], false)), ["other", "o"]);
}

#[test]
fn an_object_says_for_how_many_hits_a_request_counts() {
    for (value, want) in [(None, 0), (Some(Value::Number(7.0)), 7), (Some(text("7")), 0)] {
        let filter = build("limit", &config(Vec::new())).ok().unwrap().filter(&ScopedConfigs::default(), &place());
        let mut stream = request("/", &[]);
        let facts = stream.route.as_mut().unwrap();
        facts.rate_limits.route.push(rule("r", 0));
        facts.target = postrider_filter_api::RouteTarget::Cluster("c".into());
        if let Some(value) = value {
            stream.info.set_state(HITS, value);
        }
        let mut state = State::default();
        stream.with(|stream| filter.on_request_headers(&mut state, stream, true));
        let calls = stream.host.grpc_calls.borrow();
        let message = RateLimitRequest::decode(calls.front().unwrap().message.as_slice()).unwrap();
        assert_eq!(message.hits_addend, want);
    }
}

#[test]
fn only_rules_of_the_filters_stage_count() {
    let limits = || RouteRateLimits { route: vec![rule("zero", 0), rule("one", 1)], ..RouteRateLimits::default() };
    assert_eq!(asked(&config(Vec::new()), None, limits()), ["d", "zero"]);
    assert_eq!(asked(&config(vec![("stage", Value::Integer(1))]), None, limits()), ["d", "one"]);
}

#[test]
fn a_configuration_is_refused_with_all_its_errors() {
    let paths = |value: &Value| {
        let errors = build("limit", value).err().unwrap_or_default();
        errors.into_iter().map(|error| error.path).collect::<Vec<_>>()
    };
    assert_eq!(paths(&object([])), ["domain", "rate_limit_service"]);
    let wrong = config(vec![
        ("request_type", text("some")),
        ("response_headers_to_add", list([object([])])),
        ("rate_limits", list([object([("apply_on_stream_done", Value::Bool(true)), ("actions", list([]))])])),
        ("odd", Value::Bool(true)),
    ]);
    let want = ["response_headers_to_add[0].header", "request_type", "rate_limits[0].apply_on_stream_done", "odd"];
    assert_eq!(paths(&wrong), want);
    let factory = build("limit", &config(Vec::new())).ok().unwrap();
    assert!(factory.route_config(KIND, &object([])).is_err());
    assert!(factory.route_config(ROUTE_KIND, &object([("override_option", text("OVERRIDE_POLICY"))])).is_err());
}
