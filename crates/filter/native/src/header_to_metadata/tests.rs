use super::*;
use crate::testing::{list, object, request, request_headers, response_headers, text};

fn note<const N: usize>(key: &str, more: [(&str, Value); N]) -> Value {
    let Value::Map(mut entries) = object([("metadata_namespace", text("n")), ("key", text(key))]) else { panic!() };
    entries.extend(more.map(|(key, value)| (key.to_owned(), value)));
    Value::Map(entries)
}

fn noter<const N: usize>(side: &str, rules: [Value; N]) -> Noter {
    let config = object([(side, list(rules))]);
    let rules = Reading::all(&config, Rules::read).unwrap_or_else(|errors| panic!("{errors:?}"));
    Noter { rules: Arc::new(rules), stats: None }
}

fn refused(rule: Value) -> String {
    let config = object([("request_rules", list([rule]))]);
    let errors = build("x", &config).err().expect("refused");
    errors.iter().map(|error| error.message.clone()).collect::<Vec<_>>().join("; ")
}

#[test]
fn headers_and_cookies_are_noted_and_removed() {
    let rewrite = object([("pattern", object([("regex", text("^/(\\w+)/.*"))])), ("substitution", text("\\1"))]);
    let noter = noter(
        "request_rules",
        [
            object([
                ("header", text("X-Version")),
                ("on_header_present", note("v", [])),
                ("remove", Value::Bool(true)),
            ]),
            object([("header", text("x-none")), ("on_header_missing", note("d", [("value", text("default"))]))]),
            object([("cookie", text("id")), ("on_header_present", note("c", []))]),
            object([("header", text(":path")), ("on_header_present", note("p", [("regex_value_rewrite", rewrite)]))]),
            object([("header", text("x-n")), ("on_header_present", note("num", [("type", text("NUMBER"))]))]),
            object([("header", text("x-b")), ("on_header_present", note("b", [("encode", text("BASE64"))]))]),
            object([("header", text("x-bad")), ("on_header_present", note("bad", [("type", text("NUMBER"))]))]),
            object([("header", text("x-f")), ("on_header_present", note("f", [("value", text("fixed"))]))]),
        ],
    );
    let mut stream = request(
        "/shop/cart",
        &[
            ("x-version", "1"),
            ("x-version", "2"),
            ("cookie", "a=1; id=\"7\""),
            ("x-n", "1.5"),
            ("x-b", "aGk="),
            ("x-bad", "many"),
            ("x-f", "any"),
        ],
    );
    assert!(matches!(request_headers(&mut stream, &noter), Action::Done));
    let got = |key| stream.info.metadata.get("n", key).cloned();
    assert_eq!(got("v"), Some(text("1,2")));
    assert_eq!((got("d"), got("c"), got("p")), (Some(text("default")), Some(text("7")), Some(text("shop"))));
    assert_eq!((got("num"), got("b"), got("bad")), (Some(Value::Number(1.5)), Some(text("hi")), None));
    assert_eq!(got("f"), Some(text("fixed")));
    assert!(stream.request.fields.get_name(b"x-version").is_none() && stream.request.fields.get_name(b"x-n").is_some());
}

#[test]
fn a_value_that_is_empty_or_too_long_is_not_noted() {
    let noter = noter("request_rules", [object([("header", text("x")), ("on_header_present", note("k", []))])]);
    for value in ["", &"x".repeat(MAX_VALUE)] {
        let mut stream = request("/", &[("x", value)]);
        request_headers(&mut stream, &noter);
        assert!(stream.info.metadata.is_empty());
    }
}

#[test]
fn answers_are_noted_too() {
    let rules = [
        object([("header", text(":status")), ("on_header_present", note("s", [("type", text("NUMBER"))]))]),
        object([("header", text("x-no")), ("on_header_missing", note("m", [("value", text("none"))]))]),
    ];
    let noter = noter("response_rules", rules);
    let mut stream = request("/", &[]);
    stream.response.reply(201);
    response_headers(&mut stream, &noter);
    assert_eq!(stream.info.metadata.get("n", "s"), Some(&Value::Number(201.0)));
    assert_eq!(stream.info.metadata.get("n", "m"), Some(&text("none")));
}

#[test]
fn rules_that_make_no_sense_are_refused() {
    let header = ("header", text("x"));
    assert!(refused(object([("on_header_present", note("k", []))])).contains("exactly one of header and cookie"));
    assert!(refused(object([header.clone()])).contains("on_header_present or on_header_missing"));
    assert!(refused(object([header.clone(), ("on_header_missing", note("k", []))])).contains("needs a value"));
    let cookie = object([("cookie", text("c")), ("on_header_present", note("k", [])), ("remove", Value::Bool(true))]);
    assert!(refused(cookie).contains("cannot be removed"));
    let typed = note("k", [("type", text("ANOTHER"))]);
    assert!(refused(object([header, ("on_header_present", typed)])).contains("STRING, NUMBER or PROTOBUF_VALUE"));
}

#[test]
fn serialised_values_are_noted_as_what_they_are() {
    let kind = ("type", text("PROTOBUF_VALUE"));
    let rule = object([("header", text("x-v")), ("on_header_present", note("v", [kind, ("encode", text("BASE64"))]))]);
    let noter = noter("request_rules", [rule]);
    let got = |value: &str| {
        let mut stream = request("/", &[("x-v", value)]);
        request_headers(&mut stream, &noter);
        stream.info.metadata.get("n", "v").cloned()
    };
    let list = list([Value::Bool(true), Value::Null, text("x")]);
    let value = got("KiYKDgoBYRIJEQAAAAAAAPA/ChQKAWwSDzINCgIgAQoCCAAKAxoBeA==");
    assert!(matches!(&value, Some(Value::Map(entries)) if entries.len() == 2), "{value:?}");
    let Some(Value::Map(entries)) = value else { panic!() };
    assert!(entries.contains(&("a".into(), Value::Integer(1))) && entries.contains(&("l".into(), list)));
    assert_eq!((got("GgVoZWxsbw=="), got("//8=")), (Some(text("hello")), None));
}

#[test]
fn rules_with_a_name_of_their_own_are_counted() {
    let registry = postrider_telemetry::Registry::new();
    let rules = list([object([
        ("header", text("x-a")),
        ("on_header_present", note("a", [])),
        ("on_header_missing", note("a", [("value", text("none"))])),
    ])]);
    let config = object([("request_rules", rules), ("stat_prefix", text("mine"))]);
    let rules = Reading::all(&config, Rules::read).unwrap();
    assert_eq!(rules.stat_prefix.as_deref(), Some("mine"));
    let stats = registry.worker(0).block(&stat::SET, "mine");
    let noter = Noter { rules: Arc::new(rules), stats: Some(stats.clone()) };
    for fields in [&[("x-a", "1")][..], &[], &[("x-a", "")]] {
        request_headers(&mut request("/", fields), &noter);
    }
    let counted = |counter: Counter| stats.value(counter);
    let wanted = [stat::REQUEST_RULES_PROCESSED, stat::REQUEST_METADATA_ADDED, stat::REQUEST_HEADER_NOT_FOUND];
    assert_eq!(wanted.map(counted), [3, 2, 1]);
}

/// What is noted of `x-v` by a rule with these fields.
fn noted<const N: usize>(more: [(&str, Value); N], value: &[u8]) -> Option<Value> {
    let noter = noter("request_rules", [object([("header", text("x-v")), ("on_header_present", note("v", more))])]);
    let mut stream = request("/", &[]);
    stream.request.fields.append_name(b"x-v", value).unwrap();
    request_headers(&mut stream, &noter);
    stream.info.metadata.get("n", "v").cloned()
}

#[test]
fn base64_is_decoded_with_any_padding() {
    for (value, want) in [
        ("YWI=", Some("ab")),
        ("YWI", Some("ab")),
        ("YWI==", Some("ab")),
        ("YWJj=", Some("abc")),
        ("====", None),
        ("Y=WI", None),
    ] {
        assert_eq!(noted([("encode", text("BASE64"))], value.as_bytes()), want.map(text), "{value}");
    }
}

#[test]
fn values_that_are_no_utf_8_stay_different() {
    assert_eq!(noted([], b"\xff\xfe"), Some(text("\u{ff}\u{fe}")));
    assert_eq!(noted([("encode", text("BASE64"))], b"/+8="), Some(text("\u{ff}\u{ef}")));
    assert_eq!(noted([], "caf\u{e9}".as_bytes()), Some(text("caf\u{e9}")));
}

#[test]
fn a_cookie_of_an_answer_is_read_from_its_own_field() {
    let rule = object([
        ("cookie", text("sess")),
        ("on_header_present", note("c", [])),
        ("on_header_missing", note("c", [("value", text("none"))])),
    ]);
    let noter = noter("response_rules", [rule]);
    for (name, want) in [(&b"cookie"[..], "seen"), (b"set-cookie", "none")] {
        let mut stream = request("/", &[]);
        stream.response.fields.append_name(name, b"a=1; sess=seen").unwrap();
        response_headers(&mut stream, &noter);
        assert_eq!(stream.info.metadata.get("n", "c"), Some(&text(want)));
    }
}

#[test]
fn a_rewrite_that_leaves_nothing_is_counted() {
    let rewrite = object([("pattern", object([("regex", text("^.*$"))])), ("substitution", text(""))]);
    let rule = object([("header", text("x-a")), ("on_header_present", note("a", [("regex_value_rewrite", rewrite)]))]);
    let config = object([("request_rules", list([rule])), ("stat_prefix", text("mine."))]);
    let rules = Reading::all(&config, Rules::read).unwrap();
    assert_eq!(rules.stat_prefix.as_deref(), Some("mine"), "the dot is the prefix's own");
    let stats = postrider_telemetry::Registry::new().worker(0).block(&stat::SET, "mine");
    let noter = Noter { rules: Arc::new(rules), stats: Some(stats.clone()) };
    for value in ["1", ""] {
        request_headers(&mut request("/", &[("x-a", value)]), &noter);
    }
    assert_eq!(stats.value(stat::REGEX_SUBSTITUTION_FAILED), 1);
}

#[test]
fn a_rewrite_in_place_of_a_missing_header_counts_for_nothing() {
    let rewrite = object([("pattern", object([("regex", text("x"))])), ("substitution", text("y"))]);
    let missing = |more: Vec<(&str, Value)>| {
        let Value::Map(mut entries) = note("k", [("regex_value_rewrite", rewrite.clone())]) else { panic!() };
        entries.extend(more.into_iter().map(|(key, value)| (key.to_owned(), value)));
        object([("header", text("x-a")), ("on_header_missing", Value::Map(entries))])
    };
    let noter = noter("request_rules", [missing(vec![("value", text("x"))])]);
    let mut stream = request("/", &[]);
    request_headers(&mut stream, &noter);
    assert_eq!(stream.info.metadata.get("n", "k"), Some(&text("x")));
    assert!(refused(missing(vec![])).contains("needs a value"));
}
