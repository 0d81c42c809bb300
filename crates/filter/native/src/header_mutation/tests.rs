//! The rows were observed on Envoy 1.40.

use postrider_http::ResponseHead;

use super::*;
use crate::testing::{lines, list, object, request, request_headers, response_headers, text};

fn add(key: &str, value: &str, more: &[(&str, Value)]) -> Value {
    let mut option = vec![("header".to_owned(), object([("key", text(key)), ("value", text(value))]))];
    option.extend(more.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
    object([("append", Value::Map(option))])
}

fn remove(key: &str) -> Value {
    object([("remove", text(key))])
}

fn remove_on_match(kind: &str, value: &str) -> Value {
    object([("remove_on_match", object([("key_matcher", object([(kind, text(value))]))]))])
}

fn config(key: &str, mutations: Vec<Value>) -> Value {
    object([("mutations", object([(key, Value::List(mutations))]))])
}

fn filter(value: &Value) -> Rc<dyn Filter> {
    build("mutations", value).ok().unwrap().filter(&ScopedConfigs::default(), &crate::testing::place())
}

fn errors(value: &Value) -> Vec<(String, String)> {
    build("mutations", value).err().unwrap().into_iter().map(|error| (error.path, error.message)).collect()
}

fn action(name: &str) -> [(&'static str, Value); 1] {
    [("append_action", text(name))]
}

#[test]
fn request_fields_are_changed_in_order() {
    let filter = filter(&config(
        "request_mutations",
        vec![
            add("X-A", "a-%REQ(:path)%", &[]),
            add("x-a", "b", &[]),
            add("x-o", "o", &action("OVERWRITE_IF_EXISTS")),
            add("x-p", "p", &action("ADD_IF_ABSENT")),
            add("x-empty", "%REQ(nothing)%", &[]),
            add("x-empty2", "%REQ(nothing)%", &[("keep_empty_value", Value::Bool(true))]),
            add("x-lit", "", &[]),
            remove("X-Gone"),
            remove_on_match("prefix", "x-rm-"),
        ],
    ));
    let mut stream = request("/p?q=1", &[]);
    assert!(matches!(request_headers(&mut stream, &*filter), Action::Continue));
    assert_eq!(lines(&stream.request.fields), ["x-a: a-/p?q=1", "x-a: b", "x-p: p", "x-empty2: "]);

    let received =
        [("x-a", "0"), ("x-o", "0"), ("x-p", "0"), ("x-gone", "1"), ("x-rm-1", "1"), ("X-RM-2", "1"), ("x-gone", "2")];
    let mut stream = request("/", &received);
    request_headers(&mut stream, &*filter);
    assert_eq!(lines(&stream.request.fields), ["x-a: 0", "x-o: o", "x-p: 0", "x-a: a-/", "x-a: b", "x-empty2: "]);
}

#[test]
fn each_action_meets_a_present_and_an_absent_field() {
    for (name, present, absent) in [
        ("APPEND_IF_EXISTS_OR_ADD", &["x: 1", "x: 2", "x: n"][..], &["x: n"][..]),
        ("ADD_IF_ABSENT", &["x: 1", "x: 2"], &["x: n"]),
        ("OVERWRITE_IF_EXISTS_OR_ADD", &["x: n"], &["x: n"]),
        ("OVERWRITE_IF_EXISTS", &["x: n"], &[]),
    ] {
        let filter = filter(&config("request_mutations", vec![add("x", "n", &action(name))]));
        for (received, want) in [(&[("x", "1"), ("x", "2")][..], present), (&[], absent)] {
            let mut stream = request("/", received);
            request_headers(&mut stream, &*filter);
            assert_eq!(lines(&stream.request.fields), want, "{name}");
        }
    }
    for (old, want) in [(true, &["x: 1", "x: n"][..]), (false, &["x: n"])] {
        let filter = filter(&config("request_mutations", vec![add("x", "n", &[("append", Value::Bool(old))])]));
        let mut stream = request("/", &[("x", "1")]);
        request_headers(&mut stream, &*filter);
        assert_eq!(lines(&stream.request.fields), want);
    }
}

#[test]
fn responses_and_trailers_have_lists_of_their_own() {
    let lists = ["request_trailers_mutations", "response_mutations", "response_trailers_mutations"];
    let mutations = |key: &str| list([add("x", &format!("{key} %RESPONSE_CODE%"), &[]), remove("old")]);
    let filter = filter(&object([("mutations", object(lists.map(|key| (key, mutations(key)))))]));
    let hooks = filter.hooks();
    assert!(!hooks.request_headers && hooks.request_trailers && hooks.response_headers && hooks.response_trailers);

    let mut stream = request("/", &[]);
    stream.info.status = 201;
    stream.response = ResponseHead::new();
    stream.response.fields.append_name(b"old", b"1").unwrap();
    response_headers(&mut stream, &*filter);
    assert_eq!(lines(&stream.response.fields), ["x: response_mutations 201"]);
    stream.request_trailers.append_name(b"old", b"1").unwrap();
    stream.response_trailers.append_name(b"old", b"1").unwrap();
    stream.with(|stream| filter.on_request_trailers(&mut State::default(), stream));
    stream.with(|stream| filter.on_response_trailers(&mut State::default(), stream));
    assert_eq!(lines(&stream.request_trailers), ["x: request_trailers_mutations 201"]);
    assert_eq!(lines(&stream.response_trailers), ["x: response_trailers_mutations 201"]);
    assert!(lines(&stream.request.fields).is_empty());
}

#[test]
fn scopes_apply_from_the_gateway_and_then_as_configured() {
    let set = |value: &str| vec![add("x", value, &action("OVERWRITE_IF_EXISTS_OR_ADD")), add("seen", value, &[])];
    for (wins, want) in [(false, ["gateway", "route", "host", "table"]), (true, ["gateway", "table", "host", "route"])]
    {
        let mut gateway = config("request_mutations", set("gateway"));
        if let Value::Map(entries) = &mut gateway {
            entries.push(("most_specific_header_mutations_wins".into(), Value::Bool(wins)));
        }
        let factory = build("mutations", &gateway).ok().unwrap();
        let scope = |value: &str| factory.route_config(ROUTE_KIND, &config("request_mutations", set(value))).ok();
        let configs = ScopedConfigs {
            table: scope("table"),
            virtual_host: scope("host"),
            route: scope("route"),
            weighted_cluster: None,
        };
        let mut stream = request("/", &[]);
        request_headers(&mut stream, &*factory.filter(&configs, &crate::testing::place()));
        let mut expected = vec![format!("x: {}", want[3])];
        expected.extend(want.iter().map(|scope| format!("seen: {scope}")));
        assert_eq!(lines(&stream.request.fields), expected);
    }
}

#[test]
fn fields_that_frame_or_route_the_message_are_out_of_reach() {
    for name in ["host", "Host", ":path", ":method", "content-length", "Transfer-Encoding", "connection", "upgrade"] {
        for mutation in [add(name, "x", &[]), remove(name)] {
            let found = errors(&config("request_mutations", vec![mutation]));
            assert!(found[0].1.contains("written by the proxy"), "{name}: {found:?}");
        }
    }
    let filter = filter(&config("request_mutations", vec![remove_on_match("contains", "")]));
    let mut stream = request("/", &[("x", "1"), ("content-length", "3")]);
    request_headers(&mut stream, &*filter);
    assert_eq!(stream.request.authority(), b"x");
    assert_eq!(lines(&stream.request.fields), ["content-length: 3"]);
}

#[test]
fn names_are_matched_in_every_way_a_string_can_be() {
    for (kind, value, gone) in
        [("exact", "x-ab", true), ("suffix", "ab", true), ("contains", "-a", true), ("exact", "x", false)]
    {
        let filter = filter(&config("request_mutations", vec![remove_on_match(kind, value)]));
        let mut stream = request("/", &[("X-Ab", "1")]);
        request_headers(&mut stream, &*filter);
        assert_eq!(lines(&stream.request.fields).is_empty(), gone, "{kind} {value}");
    }
    let regex = object([("safe_regex", object([("google_re2", object([])), ("regex", text("x-[ab]+"))]))]);
    let mutation = object([("remove_on_match", object([("key_matcher", regex)]))]);
    let filter = filter(&config("request_mutations", vec![mutation]));
    let mut stream = request("/", &[("x-ab", "1"), ("x-abc", "2")]);
    request_headers(&mut stream, &*filter);
    assert_eq!(lines(&stream.request.fields), ["x-abc: 2"]);
}

#[test]
fn a_configuration_is_refused_with_all_its_errors_and_their_places() {
    let at = |index: usize, rest: &str| format!("mutations.request_mutations[{index}].{rest}");
    let found = errors(&config(
        "request_mutations",
        vec![
            add("a b", "x", &[]),
            add("x", "%BAD%", &[]),
            add("x", "a\nb", &[]),
            add("x", "y", &[("append", Value::Bool(true)), ("append_action", text("ADD_IF_ABSENT"))]),
            add("x", "y", &action("SOMETIMES")),
            remove_on_match("custom", "x"),
            remove_on_match("exact", "fine"),
            object([("append", object([]))]),
        ],
    ));
    let paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(
        paths,
        [
            &*at(0, "append.header.key"),
            &at(1, "append.header.value"),
            &at(2, "append.header.value"),
            &at(3, "append.append"),
            &at(4, "append.append_action"),
            &at(5, "remove_on_match.key_matcher.custom"),
            &at(7, "append.header"),
        ]
    );
    let none = errors(&config("request_mutations", vec![object([])]));
    assert_eq!(none[0].0, "mutations.request_mutations[0]");
    let both = object([("remove", text("x")), ("append", object([("header", object([("key", text("x"))]))]))]);
    assert!(errors(&config("request_mutations", vec![both]))[0].1.contains("exactly one"));
    assert!(build("mutations", &object([])).is_ok());
    let factory = build("mutations", &object([])).ok().unwrap();
    assert!(factory.route_config(KIND, &object([])).is_err());
    assert!(factory.route_config(ROUTE_KIND, &object([("odd", text("x"))])).is_err());
}

fn parameter(key: &str, value: &str, action: &str) -> Value {
    let record = object([("key", text(key)), ("value", text(value))]);
    object([("append", object([("record", record), ("action", text(action))]))])
}

/// What becomes of a path.
fn changed(mutations: Vec<Value>, path: &str, fields: &[(&str, &str)]) -> String {
    let filter = filter(&config("query_parameter_mutations", mutations));
    assert!(filter.hooks().request_headers);
    let mut stream = request(path, fields);
    request_headers(&mut stream, &*filter);
    assert!(!stream.info.route_is_stale);
    String::from_utf8(stream.request.path().to_vec()).unwrap()
}

#[test]
fn parameters_of_the_query_are_added_overwritten_and_removed() {
    let edits = || {
        vec![
            parameter("a", "n", "OVERWRITE_IF_EXISTS_OR_ADD"),
            remove("z"),
            parameter("b", "n", "ADD_IF_ABSENT"),
            parameter("c", "m", "OVERWRITE_IF_EXISTS"),
            parameter("d", "%REQ(x-v)%", "APPEND_IF_EXISTS_OR_ADD"),
        ]
    };
    for (path, want) in [
        ("/p?b=2&a=1&z=9&b=3&c&a=4", "/p?a=n&b=2&b=3&c=m&d=v"),
        ("/p", "/p?a=n&b=n&d=v"),
        ("/p?", "/p?a=n&b=n&d=v"),
        ("/p?z=1&d=0", "/p?a=n&b=n&d=0&d=v"),
        ("/p?A=1&%61=2&k=&", "/p?A=1&a=n&b=n&d=v&k="),
        ("/p?&&=v", "/p?=&=&=v&a=n&b=n&d=v"),
    ] {
        assert_eq!(changed(edits(), path, &[("x-v", "v")]), want, "{path}");
    }
    assert_eq!(changed(vec![remove("a")], "/p?a=1", &[]), "/p");
    assert_eq!(changed(vec![remove("a")], "/p?", &[]), "/p");
}

#[test]
fn a_parameter_cannot_end_the_query_or_the_request_line() {
    let add = |key: &str, value: &str| vec![parameter(key, value, "APPEND_IF_EXISTS_OR_ADD")];
    let value = [("x-v", "a b&c=d/e?%41~_-.*+,;:@!$'()\"<>#")];
    assert_eq!(
        changed(add("a", "%REQ(x-v)%"), "/p", &value),
        "/p?a=a%20b%26c%3Dd%2Fe%3F%2541%7E_-.*%2B%2C%3B%3A%40%21%24%27%28%29%22%3C%3E%23"
    );
    assert_eq!(changed(add("a", "\u{e9}\r\n"), "/p", &[]), "/p?a=%C3%A9%0D%0A");
    assert_eq!(changed(add("k y&[]%5B", "v"), "/p", &[]), "/p?k%20y%26[]%5B=v");
    assert_eq!(changed(add("a", "%REQ(x-none)%"), "/p", &[]), "/p?a=");
    // What the client sent stays as it was written.
    assert_eq!(changed(vec![remove("none")], "/p?x=%41%20%26%3d%0d%0a+%zz", &[]), "/p?x=%41%20%26%3d%0d%0a+%zz");
    assert_eq!(changed(add("a", "1"), "*", &[]), "*");
}

#[test]
fn each_scope_changes_fields_and_then_the_query() {
    let all = |who: &str| {
        let query = vec![parameter("q", who, "APPEND_IF_EXISTS_OR_ADD")];
        let seen = vec![add("seen", "%REQ(:path)%", &[])];
        object([(
            "mutations",
            object([("request_mutations", Value::List(seen)), ("query_parameter_mutations", Value::List(query))]),
        )])
    };
    let factory = build("mutations", &all("gateway")).ok().unwrap();
    let configs = ScopedConfigs {
        table: None,
        virtual_host: None,
        route: factory.route_config(ROUTE_KIND, &all("route")).ok(),
        weighted_cluster: None,
    };
    let mut stream = request("/p", &[]);
    request_headers(&mut stream, &*factory.filter(&configs, &crate::testing::place()));
    assert_eq!(lines(&stream.request.fields), ["seen: /p", "seen: /p?q=gateway"]);
    assert_eq!(stream.request.path(), b"/p?q=gateway&q=route");
}

#[test]
fn mutations_of_the_query_that_make_no_sense_are_refused() {
    let record = |value: Value| object([("append", object([("record", value)]))]);
    let both = object([("remove", text("a")), ("append", object([("record", object([("key", text("a"))]))]))]);
    let refused = vec![
        object([]),
        remove(""),
        both,
        object([("append", object([]))]),
        record(object([("value", text("v"))])),
        record(object([("key", text("a"))])),
        record(object([("key", text("a")), ("value", Value::Integer(5))])),
        record(object([("key", text("a")), ("value", text("%BAD%"))])),
        parameter("a", "v", "SOMETIMES"),
    ];
    let found = errors(&config("query_parameter_mutations", refused));
    let paths: Vec<&str> =
        found.iter().map(|(path, _)| path.strip_prefix("mutations.query_parameter_mutations").unwrap()).collect();
    assert_eq!(
        paths,
        [
            "[0]",
            "[1]",
            "[2]",
            "[3].append.record",
            "[4].append.record.key",
            "[5].append.record.value",
            "[6].append.record.value",
            "[7].append.record.value",
            "[8].append.action",
        ]
    );
}
