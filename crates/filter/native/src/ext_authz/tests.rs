use postrider_filter_api::testing::FakeStream;
use postrider_filter_api::{Action, GrpcStatus, State};
use postrider_grpc::Message;
use postrider_grpc::auth::check_response::HttpResponse;
use postrider_grpc::auth::{CheckRequest, CheckResponse, DeniedHttpResponse};
use postrider_grpc::core::{HeaderValue, HeaderValueOption, HttpStatus};
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
    let policy = object([("retry_on", text("never"))]);
    let both = object([("path_prefix", text("/a")), ("path_override", text("b")), ("retry_policy", policy)]);
    let paths: Vec<String> = refused(&object([("http_service", both)])).into_iter().map(|(path, _)| path).collect();
    let at = |key: &str| format!("http_service.{key}");
    assert_eq!(paths, [at("retry_policy.retry_on"), at("server_uri"), at("path_override"), at("path_override")]);
    let any = || object([("patterns", list([object([("exact", text("x-a"))])]))]);
    let uri = object([("uri", text("authz")), ("cluster", text("authz")), ("timeout", text("1s"))]);
    let http = object([("server_uri", uri), ("authorization_request", object([("allowed_headers", any())]))]);
    let twice = refused(&object([("http_service", http), ("allowed_headers", any())]));
    assert_eq!(twice.len(), 1, "{twice:?}");
    assert_eq!(twice[0].0, "allowed_headers");
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

/// What stands in the filter state under a name.
fn noted(stream: &FakeStream, name: &str) -> Option<Value> {
    stream.info.filter_state.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
}

#[test]
fn in_its_shadow_a_decision_is_noted_and_nobody_is_refused() {
    let denied = CheckResponse {
        status: Some(postrider_grpc::core::Status { code: 7, ..Default::default() }),
        http_response: Some(HttpResponse::DeniedResponse(DeniedHttpResponse {
            status: Some(HttpStatus { code: 429 }),
            headers: vec![HeaderValueOption {
                header: Some(HeaderValue { key: "x-why".into(), value: "so".into(), ..Default::default() }),
                ..Default::default()
            }],
            ..Default::default()
        })),
        ..Default::default()
    };
    let header = object([("key", text("x-why")), ("value", text("so"))]);
    let decided =
        |result: &str, status: i64| vec![("check_result", text(result)), ("status_code", Value::Integer(status))];
    let with_header = [decided("DENIED", 429), vec![("response_headers", list([header]))]].concat();
    for (answer, wanted) in [
        (Ok(CheckResponse::default().encode_to_vec()), decided("OK", 200)),
        (Ok(denied.encode_to_vec()), with_header),
        (Err(GrpcStatus::new(Code::Unavailable, "")), decided("ERROR", 403)),
    ] {
        let filter = filter(&grpc(vec![("shadow_mode", Value::Bool(true))]), &ScopedConfigs::default());
        let (mut stream, mut state) = (request("/", &[]), State::default());
        stream.with(|stream| filter.on_request_headers(&mut state, stream, true));
        stream.host.answer_grpc(answer);
        assert!(matches!(stream.with(|stream| filter.on_request_resumed(&mut state, stream)), Action::Done));
        let wanted = wanted.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        assert_eq!(noted(&stream, "authz.shadow"), Some(Value::Map(wanted)));
        assert_eq!(stream.info.flags, Flags::default());
    }
}

#[test]
fn how_long_a_call_took_is_noted_where_it_was_made() {
    let config = grpc(vec![("emit_filter_state_stats", Value::Bool(true))]);
    let filter = filter(&config, &ScopedConfigs::default());
    let (mut stream, mut state) = (request("/", &[]), State::default());
    stream.with(|stream| filter.on_request_headers(&mut state, stream, true));
    assert_eq!(noted(&stream, "authz"), None);
    stream.host.answer_grpc(Ok(Vec::new()));
    stream.with(|stream| filter.on_request_resumed(&mut state, stream));
    assert_eq!(noted(&stream, "authz"), Some(object([("latency_us", Value::Integer(0))])));
}

#[test]
fn more_headers_than_an_answer_may_have_are_an_error_where_that_is_asked_for() {
    let mut fields = Fields::default();
    for number in 0..99 {
        fields.append_name(format!("x-{number}").as_bytes(), b"1").unwrap();
    }
    assert!(!is_beyond_limits(&fields));
    fields.append_name(b"x-more", b"1").unwrap();
    assert!(is_beyond_limits(&fields));
    let mut large = Fields::default();
    for _ in 0..3 {
        large.append_name(b"x", &[b'a'; 30_000]).unwrap();
    }
    assert!(is_beyond_limits(&large));
}
