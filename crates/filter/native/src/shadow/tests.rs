use super::*;
use crate::testing::{lines, object, place, text};
use postrider_filter_api::Flags;
use postrider_filter_api::testing::FakeStream;

const FAULT: &str = "envoy.extensions.filters.http.fault.v3.HTTPFault";
const CSRF: &str = "envoy.extensions.filters.http.csrf.v3.CsrfPolicy";

fn any(kind: &str, config: Value) -> Value {
    let Value::Map(mut entries) = config else { unreachable!() };
    entries.insert(0, ("@type".into(), text(&format!("type.googleapis.com/{kind}"))));
    Value::Map(entries)
}

fn abort(status: i64) -> Value {
    let percentage = object([("numerator", Value::Integer(100))]);
    object([("abort", object([("http_status", Value::Integer(status)), ("percentage", percentage)]))])
}

fn registry() -> Registry {
    let mut registry = Registry::default();
    crate::register(&mut registry);
    registry
}

fn shadow(kind: &str, config: Value) -> Result<Arc<dyn Factory>, ConfigError> {
    registry().build("chaos", KIND, &object([("filter", any(kind, config))])).unwrap()
}

fn ask(filter: &dyn Filter, stream: &mut FakeStream) -> Action {
    let mut state = State::default();
    let action = stream.with(|stream| filter.on_request_headers(&mut state, stream, true));
    stream.with(|stream| filter.on_response_headers(&mut state, stream, true));
    filter.on_complete(&mut state, &stream.info);
    action
}

#[test]
fn what_would_be_refused_is_noted_and_goes_on() {
    let factory = shadow(FAULT, abort(503)).ok().unwrap();
    let filter = factory.filter(&ScopedConfigs::default(), &place());
    let mut stream = FakeStream::new("GET", "/", &[]);
    assert!(matches!(ask(&*filter, &mut stream), Action::Done));
    assert_eq!(stream.info.metadata.get("chaos", "shadow_status"), Some(&Value::Integer(503)));
    assert_eq!(stream.info.metadata.get("chaos", "shadow_details"), Some(&text("fault_filter_abort")));
    assert!(!stream.info.flags.contains(Flags::FAULT_INJECTED));
    assert_eq!(lines(&stream.request.fields), [""; 0]);
}

#[test]
fn what_would_be_refused_is_counted_by_its_class() {
    let inner = registry().build("chaos", FAULT, &abort(418)).unwrap().ok().unwrap();
    let onlooker = Onlooker {
        inner: inner.filter(&ScopedConfigs::default(), &place()),
        name: "chaos".into(),
        stats: place().stats.block(&stat::SET, "x"),
        buffer_limit: 1,
    };
    ask(&onlooker, &mut FakeStream::new("GET", "/", &[]));
    let counters = [stat::WOULD_DENY, stat::WOULD_DENY_4XX, stat::WOULD_DENY_5XX];
    assert_eq!(counters.map(|counter| onlooker.stats.value(counter)), [1, 1, 0]);
}

#[test]
fn routes_configure_the_filter_and_may_enforce_it() {
    let factory = shadow(FAULT, abort(503)).ok().unwrap();
    let with = |kind: &str, value: Value| {
        let route = Some(factory.route_config(kind, &value).ok().unwrap());
        let filter = factory.filter(&ScopedConfigs { route, ..ScopedConfigs::default() }, &place());
        let mut stream = FakeStream::new("GET", "/", &[]);
        match ask(&*filter, &mut stream) {
            Action::Respond(reply) => (true, reply.status),
            _ => match stream.info.metadata.get("chaos", "shadow_status") {
                Some(Value::Integer(status)) => (false, *status as u16),
                _ => (false, 0),
            },
        }
    };
    assert_eq!(with(FAULT, abort(404)), (false, 404));
    assert_eq!(with(ROUTE_KIND, object([("filter", any(FAULT, abort(404)))])), (false, 404));
    let enforced = ("enforced", Value::Bool(true));
    assert_eq!(with(ROUTE_KIND, object([enforced.clone()])), (true, 503));
    assert_eq!(with(ROUTE_KIND, object([enforced, ("filter", any(FAULT, abort(404)))])), (true, 404));
}

#[test]
fn a_body_that_would_be_too_large_goes_on() {
    let config = object([("max_request_bytes", Value::Integer(10))]);
    let factory = shadow("envoy.extensions.filters.http.buffer.v3.Buffer", config).ok().unwrap();
    let filter = factory.filter(&ScopedConfigs::default(), &place());
    let (mut stream, mut state) = (FakeStream::new("POST", "/", &[]), State::default());
    assert!(matches!(stream.with(|stream| filter.on_request_headers(&mut state, stream, false)), Action::Buffer));
    assert_eq!(stream.info.request_buffer_limit, Some(10 + (1 << 20)));
    stream.request_body.replace(&[0; 10]);
    assert!(matches!(stream.with(|stream| filter.on_request_body(&mut state, stream, false)), Action::Buffer));
    stream.request_body.replace(&[0; 11]);
    assert!(matches!(stream.with(|stream| filter.on_request_body(&mut state, stream, false)), Action::Done));
    assert_eq!(stream.info.metadata.get("chaos", "shadow_status"), Some(&Value::Integer(413)));
}

#[test]
fn errors_have_their_places_in_the_whole() {
    let paths = |errors: Result<Arc<dyn Factory>, ConfigError>| {
        errors.err().unwrap_or_default().into_iter().map(|error| error.path).collect::<Vec<_>>()
    };
    assert_eq!(paths(shadow(CSRF, object([("odd", Value::Bool(true))]))), ["filter.filter_enabled", "filter.odd"]);
    assert_eq!(paths(shadow("acme.Filter", object([]))), ["filter"]);
    assert_eq!(paths(registry().build("s", KIND, &object([])).unwrap()), ["filter"]);
    assert!(registry().knows(KIND));
    assert_eq!(registry().check("s", KIND, &object([])).len(), 1);
}
