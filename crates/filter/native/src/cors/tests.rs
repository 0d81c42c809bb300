use super::*;
use crate::testing::{lines, list, object, place, text};
use postrider_filter_api::testing::FakeStream;

fn exact(origin: &str) -> Value {
    object([("exact", text(origin))])
}

fn policy(entries: Vec<(&str, Value)>) -> Value {
    let mut all = vec![("allow_origin_string_match".to_owned(), list([exact("http://a.test")]))];
    all.extend(entries.into_iter().map(|(key, value)| (key.to_owned(), value)));
    Value::Map(all)
}

fn filter(route: Option<Value>, host: Option<Value>) -> Rc<dyn Filter> {
    let factory = build("cors", &object([])).ok().unwrap();
    let scope = |value: Option<Value>| value.map(|value| factory.route_config(POLICY_KIND, &value).ok().unwrap());
    let configs = ScopedConfigs { route: scope(route), virtual_host: scope(host), ..ScopedConfigs::default() };
    factory.filter(&configs, &place())
}

/// The headers of the preflight's answer, or those that the answer gets.
fn seen(filter: &dyn Filter, method: &str, fields: &[(&str, &str)]) -> (bool, Vec<String>) {
    let mut stream = FakeStream::new(method, "/", fields);
    let mut state = State::default();
    let action = stream.with(|stream| filter.on_request_headers(&mut state, stream, true));
    if let Action::Respond(reply) = action {
        assert_eq!((reply.status, &*reply.details), (200, "cors_response"));
        let line = |(name, value): &(std::borrow::Cow<'_, str>, std::borrow::Cow<'_, [u8]>)| {
            format!("{name}: {}", String::from_utf8_lossy(value))
        };
        return (true, reply.headers.iter().map(line).collect());
    }
    stream.with(|stream| filter.on_response_headers(&mut state, stream, true));
    (false, lines(&stream.response.fields))
}

const PREFLIGHT: [(&str, &str); 2] = [("origin", "http://a.test"), ("access-control-request-method", "PUT")];

#[test]
fn a_preflight_is_answered_and_a_request_goes_on() {
    let all = policy(vec![
        ("allow_methods", text("GET,PUT")),
        ("allow_headers", text("x-a")),
        ("expose_headers", text("x-b")),
        ("max_age", text("60")),
        ("allow_credentials", Value::Bool(true)),
    ]);
    let filter = filter(Some(all), None);
    let want = [
        "access-control-allow-origin: http://a.test",
        "access-control-allow-credentials: true",
        "access-control-allow-methods: GET,PUT",
        "access-control-allow-headers: x-a",
        "access-control-max-age: 60",
    ];
    assert_eq!(seen(&*filter, "OPTIONS", &PREFLIGHT), (true, want.map(str::to_owned).to_vec()));
    let want = [
        "access-control-allow-origin: http://a.test",
        "access-control-allow-credentials: true",
        "access-control-expose-headers: x-b",
    ];
    for (method, fields) in [("GET", &PREFLIGHT[..]), ("OPTIONS", &PREFLIGHT[..1]), ("PUT", &PREFLIGHT[..1])] {
        assert_eq!(seen(&*filter, method, fields), (false, want.map(str::to_owned).to_vec()));
    }
    for fields in [&[][..], &[("origin", "")], &[("origin", "http://b.test")]] {
        assert_eq!(seen(&*filter, "GET", fields), (false, Vec::new()));
    }
}

#[test]
fn what_a_policy_leaves_out_comes_from_the_next_one() {
    let host = policy(vec![("max_age", text("7")), ("allow_methods", text("GET"))]);
    let route = object([("allow_methods", text("PUT")), ("allow_credentials", Value::Bool(false))]);
    let (_, headers) = seen(&*filter(Some(route), Some(host)), "OPTIONS", &PREFLIGHT);
    let want = [
        "access-control-allow-origin: http://a.test",
        "access-control-allow-methods: PUT",
        "access-control-max-age: 7",
    ];
    assert_eq!(headers, want);
}

#[test]
fn nothing_is_asked_of_a_route_without_a_policy() {
    assert_eq!(filter(None, None).hooks(), Hooks::default());
}

#[test]
fn shares_decide_what_is_counted_and_what_is_done() {
    let share = |parts: i64| object([("default_value", object([("numerator", Value::Integer(parts))]))]);
    for (enabled, shadow, counted) in [(0, 0, 0), (0, 100, 1), (100, 0, 1)] {
        let config = policy(vec![("filter_enabled", share(enabled)), ("shadow_enabled", share(shadow))]);
        let policy = Reading::all(&config, Policy::read).ok();
        let gate = Gate { policy, stats: place().stats.block(&stat::SET, "x") };
        assert_eq!(seen(&gate, "OPTIONS", &PREFLIGHT).0, enabled > 0);
        assert_eq!(gate.stats.value(stat::ORIGIN_VALID), counted);
    }
}

#[test]
fn a_configuration_is_refused_with_all_its_errors() {
    let factory = build("cors", &object([])).ok().unwrap();
    let paths = |kind: &str, value: Value| {
        let errors = factory.route_config(kind, &value).err().unwrap_or_default();
        errors.into_iter().map(|error| error.path).collect::<Vec<_>>()
    };
    let wrong = object([
        ("allow_origin_string_match", list([object([])])),
        ("max_age", text("1\n2")),
        ("odd", Value::Bool(true)),
    ]);
    assert_eq!(paths(POLICY_KIND, wrong), ["allow_origin_string_match[0]", "max_age", "odd"]);
    assert_eq!(paths(KIND, object([])), [""]);
    assert!(build("cors", &object([("odd", Value::Bool(true))])).is_err());
}
