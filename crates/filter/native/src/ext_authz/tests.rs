use postrider_filter_api::testing::FakeStream;
use postrider_filter_api::{Action, GrpcStatus, State};
use postrider_grpc::Message;
use postrider_grpc::auth::CheckRequest;
use postrider_http::grpc::Code;

use super::*;
use crate::testing::{list, object, place, request, text};

fn grpc(more: Vec<(&str, Value)>) -> Value {
    let service = object([("envoy_grpc", object([("cluster_name", text("authz"))]))]);
    let mut entries = vec![("grpc_service".to_owned(), service), ("transport_api_version".to_owned(), text("V3"))];
    entries.extend(more.into_iter().map(|(key, value)| (key.to_owned(), value)));
    Value::Map(entries)
}

fn filter(config: &Value, routes: &ScopedConfigs) -> Rc<dyn Filter> {
    build("authz", config).ok().unwrap().filter(routes, &place())
}

fn refused(config: &Value) -> Vec<(String, String)> {
    let errors = build("authz", config).err().unwrap_or_default();
    errors.into_iter().map(|error| (error.path, error.message)).collect()
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    for key in [
        "typed_metadata_context_namespaces",
        "route_typed_metadata_context_namespaces",
        "filter_metadata",
        "emit_filter_state_stats",
        "enforce_response_header_limits",
        "shadow_mode",
        "clear_route_cache_headers",
    ] {
        let found = refused(&grpc(vec![(key, Value::Bool(true))]));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].0 == key && found[0].1.contains("not supported"), "{found:?}");
    }
}

#[test]
fn a_configuration_is_refused_with_all_its_errors() {
    let google = object([("google_grpc", object([]))]);
    let found = refused(&object([
        ("grpc_service", google),
        ("with_request_body", object([])),
        ("allowed_headers", object([("patterns", list([object([])]))])),
        ("status_on_error", object([("code", text("Nonsense"))])),
        ("odd", Value::Bool(true)),
    ]));
    let paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
    let want = [
        "grpc_service.google_grpc",
        "with_request_body.max_request_bytes",
        "status_on_error.code",
        "allowed_headers.patterns[0]",
        "odd",
    ];
    assert_eq!(paths, want);
    assert!(refused(&object([]))[0].1.contains("grpc_service or http_service"));
    let both = object([("path_prefix", text("/a")), ("path_override", text("b")), ("retry_policy", object([]))]);
    let paths: Vec<String> = refused(&object([("http_service", both)])).into_iter().map(|(path, _)| path).collect();
    let at = |key: &str| format!("http_service.{key}");
    assert_eq!(paths, [at("retry_policy"), at("server_uri"), at("path_override"), at("path_override")]);
}

#[test]
fn an_override_says_one_thing_or_the_other() {
    let factory = build("authz", &grpc(Vec::new())).ok().unwrap();
    assert!(factory.route_config(KIND, &object([])).is_err());
    assert!(factory.route_config(ROUTE_KIND, &object([])).is_err());
    assert!(factory.route_config(ROUTE_KIND, &object([("disabled", Value::Bool(true))])).is_ok());
    let body = object([("max_request_bytes", Value::Integer(1))]);
    let both = object([("disable_request_body_buffering", Value::Bool(true)), ("with_request_body", body)]);
    assert!(factory.route_config(ROUTE_KIND, &object([("check_settings", both)])).is_err());
}

#[test]
fn extensions_of_all_scopes_add_up_and_the_most_specific_wins() {
    let config = grpc(Vec::new());
    let factory = build("authz", &config).ok().unwrap();
    let scope = |entries: Value| {
        let settings = object([("check_settings", object([("context_extensions", entries)]))]);
        factory.route_config(ROUTE_KIND, &settings).ok()
    };
    let configs = ScopedConfigs {
        virtual_host: scope(object([("a", text("host")), ("b", text("host"))])),
        route: scope(object([("a", text("route"))])),
        ..ScopedConfigs::default()
    };
    let filter = filter(&config, &configs);
    let mut stream = request("/", &[]);
    let mut state = State::default();
    let action = stream.with(|stream| filter.on_request_headers(&mut state, stream, true));
    assert!(matches!(action, Action::Pause), "{action:?}");
    let asked = CheckRequest::decode(stream.host.grpc_calls.borrow()[0].message.as_slice()).unwrap();
    let context = asked.attributes.unwrap().context_extensions;
    let pairs: Vec<(String, String)> = context.into_iter().collect();
    assert_eq!(pairs, [("a".to_owned(), "route".to_owned()), ("b".to_owned(), "host".to_owned())]);
}

fn asked(config: &Value, end: impl FnOnce(&FakeStream)) -> Action {
    let filter = filter(config, &ScopedConfigs::default());
    let mut stream = request("/", &[]);
    let mut state = State::default();
    stream.with(|stream| filter.on_request_headers(&mut state, stream, true));
    end(&stream);
    stream.with(|stream| filter.on_request_resumed(&mut state, stream))
}

#[test]
fn an_answer_that_is_no_message_is_none() {
    let nonsense = |stream: &FakeStream| assert!(stream.host.answer_grpc(Ok(vec![0xff; 3])));
    let Action::Respond(reply) = asked(&grpc(Vec::new()), nonsense) else { panic!("let through") };
    assert_eq!((reply.status, &*reply.details), (403, "ext_authz_error"));
    let failing = |stream: &FakeStream| {
        stream.host.answer_grpc(Err(GrpcStatus::new(Code::Unavailable, "")));
    };
    assert!(matches!(asked(&grpc(vec![("failure_mode_allow", Value::Bool(true))]), failing), Action::Done));
}

#[test]
fn a_resume_that_brings_nothing_lets_nobody_through() {
    assert!(matches!(asked(&grpc(Vec::new()), |_| {}), Action::Pause));
}

#[test]
fn a_cluster_that_is_gone_is_a_failure() {
    let filter = filter(&grpc(Vec::new()), &ScopedConfigs::default());
    let mut stream = request("/", &[]);
    stream.host.clusters.push("other".into());
    let action = stream.with(|stream| filter.on_request_headers(&mut State::default(), stream, true));
    assert!(matches!(action, Action::Respond(reply) if &*reply.details == "ext_authz_error"));
}
