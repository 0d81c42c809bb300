use super::*;
use crate::testing::{list, object, place, request, request_headers, text};

fn entry<const N: usize>(key: &str, format: &str, more: [(&str, Value); N]) -> Value {
    let source = object([("text_format_source", object([("inline_string", text(format))]))]);
    let entry = object([("object_key", text(key)), ("factory_key", text("envoy.string")), ("format_string", source)]);
    let Value::Map(mut entries) = entry else { panic!() };
    for (key, value) in more {
        entries.retain(|(known, _)| known != key);
        entries.push((key.to_owned(), value));
    }
    Value::Map(entries)
}

fn config<const N: usize>(entries: [Value; N]) -> Value {
    object([("on_request_headers", list(entries))])
}

/// The state that a request with `x-a: A` leaves.
fn state(config: &Value, route: Option<&Value>) -> Vec<(String, Value)> {
    let factory = build("x", config).unwrap_or_else(|errors| panic!("{errors:?}"));
    let route = route.map(|value| factory.route_config(KIND, value).ok().unwrap());
    let filter = factory.filter(&ScopedConfigs { route, ..ScopedConfigs::default() }, &place());
    let mut stream = request("/", &[("x-a", "A")]);
    assert!(matches!(request_headers(&mut stream, &*filter), Action::Done));
    stream.info.filter_state
}

fn refused(entry: Value) -> String {
    let errors = build("x", &config([entry])).err().expect("refused");
    errors.iter().map(|error| format!("{}: {}", error.path, error.message)).collect::<Vec<_>>().join("; ")
}

#[test]
fn objects_are_made_from_formats_and_replaced() {
    let skip = || ("skip_if_empty", Value::Bool(true));
    let empty = object([("text_format", text("%REQ(x-none)%")), ("omit_empty_values", Value::Bool(true))]);
    let bool = |key: &str, value: &str| entry(key, value, [("factory_key", text("envoy.bool"))]);
    let made = state(
        &config([
            entry("a", "<%REQ(x-a)%>", [("read_only", Value::Bool(true))]),
            entry("a", "", [("format_string", empty.clone()), skip()]),
            entry("b", "1", []),
            entry("b", "", [("format_string", empty)]),
            entry("c", "%REQ(x-none)%", [skip()]),
            bool("t", "Yes"),
            bool("f", "0"),
            bool("n", "2"),
        ]),
        None,
    );
    let want =
        [("a", text("<A>")), ("b", text("")), ("c", text("-")), ("t", Value::Bool(true)), ("f", Value::Bool(false))];
    assert_eq!(made, want.map(|(key, value)| (key.to_owned(), value)));
}

#[test]
fn every_scope_applies_the_most_specific_last() {
    let made = state(&config([entry("a", "1", []), entry("b", "1", [])]), Some(&config([entry("a", "2", [])])));
    assert_eq!(made, [("a".to_owned(), text("2")), ("b".to_owned(), text("1"))]);
}

#[test]
fn the_route_is_looked_up_again_where_the_gateway_says_so() {
    let clears = || object([("clear_route_cache", Value::Bool(true))]);
    let mut stream = request("/", &[]);
    let plain = build("x", &config([])).ok().unwrap();
    assert!(!plain.filter(&ScopedConfigs::default(), &place()).hooks().request_headers);
    let refused = plain.route_config(KIND, &clears()).err().unwrap();
    assert!(refused[0].message.contains("has no effect here"));
    let filter = build("x", &clears()).ok().unwrap().filter(&ScopedConfigs::default(), &place());
    assert!(filter.hooks().request_headers);
    request_headers(&mut stream, &*filter);
    assert!(stream.info.route_is_stale);
}

#[test]
fn objects_that_cannot_be_made_or_would_do_nothing_are_refused() {
    assert!(refused(entry("a", "x", [("factory_key", text(""))])).contains("\"a\" makes no objects here"));
    assert!(refused(entry("", "x", [])).contains("the name of the object is required"));
    assert!(refused(entry("envoy.upstream.dynamic_host", "x", [])).contains("not supported by Postrider"));
    assert!(refused(entry("a", "x", [("factory_key", text("envoy.ai"))])).contains("makes no objects here"));
    // Of a string, whoever asks for the name would take nothing.
    let other = refused(entry("envoy.network.upstream_server_name", "x", []));
    assert!(other.contains("takes what the factory of that name makes only"), "{other}");
    assert!(refused(entry("a", "x", [("format_string", Value::Null)])).contains("the value of the object is required"));
    assert!(refused(entry("a", "%NO%", [])).contains("format_string"));
}

#[test]
fn objects_that_are_what_their_name_says_act() {
    let own = |key: &str| entry(key, "%REQ(x-a)%.test", [("factory_key", Value::Null)]);
    let shared =
        entry("h", "1", [("factory_key", text("envoy.hashable_string")), ("shared_with_upstream", text("ONCE"))]);
    let config = config([own("envoy.network.upstream_server_name"), shared]);
    let filter = build("x", &config).ok().unwrap().filter(&ScopedConfigs::default(), &place());
    let mut stream = request("/", &[("x-a", "A")]);
    request_headers(&mut stream, &*filter);
    let wishes = stream.info.upstream_objects.unwrap().wishes;
    assert_eq!(wishes.server_name.as_deref(), Some("A.test"));
    assert_eq!(wishes.shared, [("h".to_owned(), "1".to_owned())]);
}

#[test]
fn objects_of_connections_are_made_in_order() {
    let object = |key: &str, more: (&str, Value)| entry(key, "t", [more]);
    let own = object("envoy.tcp_proxy.cluster", ("factory_key", text("envoy.tcp_proxy.cluster")));
    let first = list([own, object("a", ("skip_if_empty", Value::Bool(true)))]);
    let then = list([object("a", ("factory_key", text("envoy.bool")))]);
    let both = crate::testing::object([("on_new_connection", first), ("on_downstream_tls_handshake", then)]);
    let guard = build_connections(&both).ok().unwrap().guard(&place());
    let mut info = request("/", &[]).info;
    let write =
        |_: &postrider_filter_api::StreamInfo, _: &postrider_model::LogFormat, out: &mut Vec<u8>| out.push(b't');
    let visit = &mut postrider_filter_api::Visit { info: &mut info, server_name: None, write: &write };
    guard.on_connection(visit);
    let want = [("envoy.tcp_proxy.cluster", text("t")), ("a", Value::Bool(true))];
    assert_eq!(info.filter_state, want.map(|(key, value)| (key.to_owned(), value)));

    let later = crate::testing::object([("on_downstream_data", list([entry("a", "", [])]))]);
    assert!(build_connections(&later).err().unwrap()[0].message.contains("not supported"));
}
