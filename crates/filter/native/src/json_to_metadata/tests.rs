use super::*;
use crate::testing::{list, object, place, request, text};
use postrider_filter_api::testing::FakeStream;

fn keys<const N: usize>(keys: [&str; N]) -> (&'static str, Value) {
    ("selectors", list(keys.map(|key| object([("key", text(key))]))))
}

fn note<const N: usize>(key: &str, more: [(&str, Value); N]) -> Value {
    let Value::Map(mut entries) = object([("metadata_namespace", text("n")), ("key", text(key))]) else { panic!() };
    entries.extend(more.map(|(key, value)| (key.to_owned(), value)));
    Value::Map(entries)
}

fn config<const N: usize>(rules: [Value; N], more: Vec<(&str, Value)>) -> Value {
    let mut side = vec![("rules".to_owned(), list(rules))];
    side.extend(more.into_iter().map(|(key, value)| (key.to_owned(), value)));
    object([("request_rules", Value::Map(side))])
}

fn filter(config: &Value) -> Rc<dyn Filter> {
    build("x", config).unwrap_or_else(|errors| panic!("{errors:?}")).filter(&ScopedConfigs::default(), &place())
}

fn refused(value: &Value) -> String {
    let errors = build("x", value).err().expect("refused");
    errors.iter().map(|error| format!("{}: {}", error.path, error.message)).collect::<Vec<_>>().join("; ")
}

/// A request with this body, after the filter has seen it whole.
fn sent(filter: &dyn Filter, content_type: &str, body: &[u8]) -> FakeStream {
    let mut stream = request("/", &[("content-type", content_type)]);
    stream.info.metadata.set("n", "old", text("old"));
    let state = &mut State::default();
    if let Action::Buffer = stream.with(|stream| filter.on_request_headers(state, stream, false)) {
        let (first, rest) = body.split_at(body.len() / 2);
        stream.request_body.push(first);
        assert!(matches!(stream.with(|stream| filter.on_request_body(state, stream, false)), Action::Buffer));
        stream.request_body.push(rest);
        assert!(matches!(stream.with(|stream| filter.on_request_body(state, stream, true)), Action::Continue));
    }
    stream
}

fn noted(filter: &dyn Filter, body: &str) -> Option<Value> {
    sent(filter, "application/json", body.as_bytes()).info.metadata.get("n", "k").cloned()
}

#[test]
fn values_are_noted_in_their_types() {
    let number = |number| Some(Value::Number(number));
    let string = |value: &str| Some(text(value));
    let missing = string("missing");
    let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(document::MAX_TEXT + 1));
    let table: [(&str, [Option<Value>; 3]); 14] = [
        (r#"{"a":"s"}"#, [string("s"), string("s"), missing.clone()]),
        (r#"{"a":""}"#, [string(""), None, missing.clone()]),
        (r#"{"a":" 7 "}"#, [string(" 7 "), string(" 7 "), number(7.0)]),
        (r#"{"a":true}"#, [Some(Value::Bool(true)), string("1"), number(1.0)]),
        (r#"{"a":-5}"#, [number(-5.0), string("-5"), number(-5.0)]),
        (r#"{"a":1.0}"#, [number(1.0), string("1.000000"), number(1.0)]),
        (r#"{"a":1e20}"#, [number(1e20), string("100000000000000000000.000000"), number(1e20)]),
        (r#"{"a":null}"#, [missing.clone(), missing.clone(), missing.clone()]),
        (r#"{"a":[1]}"#, [missing.clone(), missing.clone(), missing.clone()]),
        (r#"{"a":{}}"#, [missing.clone(), missing.clone(), missing.clone()]),
        (&long, [missing.clone(), missing.clone(), missing.clone()]),
        (r#"{"a":1,"a":2}"#, [number(2.0), string("2"), number(2.0)]),
        ("[1]", [missing.clone(), missing.clone(), missing.clone()]),
        ("7", [missing.clone(), missing.clone(), missing.clone()]),
    ];
    for (at, kind) in ["PROTOBUF_VALUE", "STRING", "NUMBER"].into_iter().enumerate() {
        let rule = object([
            keys(["a"]),
            ("on_present", note("k", [("type", text(kind))])),
            ("on_missing", note("k", [("value", text("missing"))])),
        ]);
        let filter = filter(&config([rule], vec![]));
        for (body, want) in &table {
            assert_eq!(noted(&*filter, body), want[at], "{body} as {kind}");
        }
    }
}

#[test]
fn paths_lead_through_maps_only() {
    let rule = |present: Value| {
        object([keys(["a", "b"]), ("on_present", present), ("on_missing", note("k", [("value", text("missing"))]))])
    };
    let found = filter(&config([rule(note("k", []))], vec![]));
    assert_eq!(noted(&*found, r#"{"a":{"b":true}}"#), Some(Value::Bool(true)));
    for body in [r#"{}"#, r#"{"a":{}}"#, r#"{"a":1}"#, r#"{"a":[{"b":1}]}"#] {
        assert_eq!(noted(&*found, body), Some(text("missing")), "{body}");
    }
    // A fixed value asks for the way, not for the last key.
    let fixed = filter(&config([rule(note("k", [("value", text("fixed"))]))], vec![]));
    assert_eq!(noted(&*fixed, r#"{"a":{}}"#), Some(text("fixed")));
    assert_eq!(noted(&*fixed, r#"{"a":1}"#), Some(text("missing")));
    // A rule that wants no value misses none.
    let only_missing = object([keys(["a"]), ("on_missing", note("k", [("value", text("missing"))]))]);
    let only_missing = filter(&config([only_missing], vec![]));
    assert_eq!(noted(&*only_missing, "{}"), None);
    assert_eq!(noted(&*only_missing, ""), Some(text("missing")));
}

#[test]
fn what_is_no_json_is_an_error() {
    let rule = object([
        keys(["a"]),
        ("on_present", note("k", [])),
        ("on_missing", note("k", [("value", text("missing"))])),
        ("on_error", note("k", [("value", text("error"))])),
    ]);
    let more = vec![
        ("allow_content_types", list([text("Application/Own"), text("application/json")])),
        ("allow_content_types_regex", object([("regex", text("foo/.*"))])),
    ];
    let filter = filter(&config([rule], more));
    for body in [
        "{",
        "{} x",
        "  ",
        "{'a':1}",
        r#"{"a":1,}"#,
        r#"{"a":NaN}"#,
        r#"{"a":1e400}"#,
        r#"{"a":[18446744073709551615]}"#,
    ] {
        assert_eq!(noted(&*filter, body), Some(text("error")), "{body}");
    }
    assert_eq!(noted(&*filter, "\u{feff}{}"), Some(text("missing")));
    for (content_type, want) in [
        ("Application/Own", Value::Integer(1)),
        ("application/own", text("error")),
        ("foo/any thing", Value::Integer(1)),
        ("xfoo/any", text("error")),
        ("application/json; charset=utf-8", text("error")),
        ("", text("error")),
    ] {
        let stream = sent(&*filter, content_type, br#"{"a":"1"}"#);
        let want = if want == Value::Integer(1) { text("1") } else { want };
        assert_eq!(stream.info.metadata.get("n", "k"), Some(&want), "{content_type}");
    }
}

#[test]
fn what_is_there_stays_where_a_rule_says_so() {
    let rule = |key: &str, preserves: bool| {
        object([
            keys([key]),
            ("on_present", note("old", [("preserve_existing_metadata_value", Value::Bool(preserves))])),
        ])
    };
    let value = |filter: &dyn Filter| {
        let stream = sent(filter, "application/json", br#"{"a":"1","b":"2"}"#);
        stream.info.metadata.get("n", "old").cloned()
    };
    assert_eq!(value(&*filter(&config([rule("a", true), rule("b", true)], vec![]))), Some(text("old")));
    assert_eq!(value(&*filter(&config([rule("a", false), rule("b", true)], vec![]))), Some(text("1")));
    assert_eq!(value(&*filter(&config([rule("a", false), rule("b", false)], vec![]))), Some(text("2")));
}

#[test]
fn what_is_noted_of_a_request_may_change_its_route() {
    let preserves = ("preserve_existing_metadata_value", Value::Bool(true));
    let rule = object([
        keys(["a"]),
        ("on_present", note("k", [])),
        ("on_missing", note("old", [("value", text("missing")), preserves])),
        ("on_error", note("k", [("value", text("error"))])),
    ]);
    let filter = filter(&config([rule], vec![]));
    let stale = |content_type: &str, body: &str| sent(&*filter, content_type, body.as_bytes()).info.route_is_stale;
    assert!(stale("application/json", r#"{"a":"1"}"#));
    assert!(stale("application/json", "{"));
    assert!(stale("text/plain", "any"));
    assert!(!stale("application/json", "{}"), "nothing was noted");
}

#[test]
fn rules_that_make_no_sense_are_refused() {
    let present = || ("on_present", note("k", []));
    let one = |rule: Value| refused(&config([rule], vec![]));
    assert!(refused(&config([], vec![])).contains("at least one of rules"));
    assert!(one(object([present()])).contains("at least one of selectors"));
    assert!(one(object([("selectors", list([object([])])), present()])).contains("selectors[0]: a key is wanted"));
    assert!(one(object([keys(["a"])])).contains("on_present or on_missing is wanted"));
    for name in ["on_missing", "on_error"] {
        assert!(one(object([keys(["a"]), present(), (name, note("k", []))])).contains("a value is wanted"));
    }
    let nameless = object([keys(["a"]), ("on_present", object([("metadata_namespace", text("n"))]))]);
    assert!(one(nameless).contains("on_present.key: the key under which it is noted"));
    let factory = build("x", &object([])).ok().unwrap();
    assert!(factory.route_config(KIND, &object([])).is_err());
    assert!(factory.route_config("other", &config([object([keys(["a"]), present()])], vec![])).is_err());
}
