use super::*;
use crate::testing::{lines, object, place, text};
use postrider_filter_api::testing::FakeStream;
use std::time::SystemTime;

fn config(entries: Vec<(&str, Value)>) -> Value {
    let mut all = vec![("stat_prefix".to_owned(), text("p"))];
    all.extend(entries.into_iter().map(|(key, value)| (key.to_owned(), value)));
    Value::Map(all)
}

fn limited(entries: Vec<(&str, Value)>) -> Rc<dyn Filter> {
    let mut all = vec![("limit_kbps", Value::Integer(1))];
    all.extend(entries);
    build("limit", &config(all)).ok().unwrap().filter(&ScopedConfigs::default(), &place())
}

#[test]
fn both_directions_draw_from_one_bucket() {
    let filter = limited(vec![
        ("enable_mode", text("REQUEST_AND_RESPONSE")),
        ("enable_response_trailers", Value::Bool(true)),
        ("response_trailer_prefix", text("x")),
    ]);
    let mut stream = FakeStream::new("POST", "/", &[]);
    let mut state = State::default();
    stream.request_body.replace(&[0; 40]);
    stream.response_body.replace(&[0; 40]);
    assert!(matches!(stream.with(|stream| filter.on_request_headers(&mut state, stream, false)), Action::Continue));
    assert!(matches!(stream.with(|stream| filter.on_request_body(&mut state, stream, true)), Action::Continue));
    assert!(matches!(stream.with(|stream| filter.on_response_headers(&mut state, stream, false)), Action::Continue));
    // The first interval has 51 bytes.
    assert!(matches!(stream.with(|stream| filter.on_response_body(&mut state, stream, true)), Action::Part(11)));
    assert_eq!(lines(&stream.response_trailers), [""; 0]);
    stream.host.clock = || (Moment::from_nanos(50_000_000), SystemTime::UNIX_EPOCH);
    stream.response_body.replace(&[0; 29]);
    assert!(matches!(stream.with(|stream| filter.on_response_resumed(&mut state, stream)), Action::Continue));
    let want = ["x-bandwidth-response-delay-ms: 50", "x-bandwidth-response-filter-delay-ms: 50"];
    assert_eq!(lines(&stream.response_trailers), want);
}

#[test]
fn a_bucket_fills_from_the_load_on_and_not_from_the_first_body() {
    let limit = |kib| config(vec![("limit_kbps", Value::Integer(kib)), ("enable_mode", text("REQUEST"))]);
    let factory = build("limit", &limit(1)).ok().unwrap();
    let route = factory.route_config(KIND, &limit(2)).ok();
    assert!(factory.arrive(&place()).is_none());
    for (route, second) in [(None, 1024), (route, 2048)] {
        let filter = factory.filter(&ScopedConfigs { route, ..ScopedConfigs::default() }, &place());
        let mut stream = FakeStream::new("POST", "/", &[]);
        stream.host.clock = || (Moment::from_nanos(5_000_000_000), SystemTime::UNIX_EPOCH);
        let mut state = State::default();
        stream.request_body.replace(&[0; 5000]);
        stream.with(|stream| filter.on_request_headers(&mut state, stream, false));
        let action = stream.with(|stream| filter.on_request_body(&mut state, stream, true));
        assert!(matches!(action, Action::Part(bytes) if bytes == second), "{action:?}");
    }
}

#[test]
fn directions_that_are_not_limited_are_not_looked_at() {
    let hooks = |entries| limited(entries).hooks();
    assert_eq!(Hooks { keeps_bodies: true, ..Hooks::default() }, hooks(vec![]));
    let request = hooks(vec![("enable_mode", text("REQUEST"))]);
    assert!(request.request_body && !request.response_headers);
    let response = hooks(vec![("enable_mode", text("RESPONSE"))]);
    assert!(response.response_body && !response.request_headers);
    let off = object([("default_value", Value::Bool(false))]);
    assert!(!hooks(vec![("enable_mode", text("REQUEST")), ("runtime_enabled", off)]).request_body);
    let unlimited = build("limit", &config(vec![("enable_mode", text("REQUEST"))])).ok().unwrap();
    assert!(!unlimited.filter(&ScopedConfigs::default(), &place()).hooks().request_body);
}

#[test]
fn a_configuration_is_refused_with_all_its_errors() {
    let paths = |value: &Value| {
        let errors = build("limit", value).err().unwrap_or_default();
        errors.into_iter().map(|error| error.path).collect::<Vec<_>>()
    };
    let wrong = object([("limit_kbps", Value::Integer(0)), ("fill_interval", text("2s")), ("odd", Value::Bool(true))]);
    assert_eq!(paths(&wrong), ["stat_prefix", "limit_kbps", "fill_interval", "odd"]);
    assert_eq!(paths(&config(vec![("response_trailer_prefix", text("a b"))])), ["response_trailer_prefix"]);
    let factory = build("limit", &config(vec![])).ok().unwrap();
    assert_eq!(factory.route_config(KIND, &config(vec![])).err().unwrap()[0].path, "limit_kbps");
}
