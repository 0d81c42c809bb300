//! Filters that note something in the metadata of a request, as Envoy's do.

use postrider_tests::kit::config::extension;
use postrider_tests::site;
use serde_json::{Value, json};

const HEADERS: &str = "envoy.filters.http.header_to_metadata";
const HEADERS_TYPE: &str = "filters.http.header_to_metadata.v3.Config";

fn note(key: &str, more: Value) -> Value {
    let mut note = json!({"metadata_namespace": "n", "key": key});
    for (key, value) in more.as_object().unwrap() {
        note[key] = value.clone();
    }
    note
}

#[test]
fn headers_and_cookies_are_noted() {
    let own = json!({
        "@type": format!("type.googleapis.com/envoy.extensions.{HEADERS_TYPE}"),
        "request_rules": [{"header": "x-v", "on_header_present": note("v", json!({"value": "own"}))}],
    });
    let site = site::with([extension(
        HEADERS,
        HEADERS_TYPE,
        json!({
            "request_rules": [
                {
                    "header": "x-v", "on_header_present": note("v", json!({})), "remove": true,
                    "on_header_missing": note("v", json!({"value": "none"})),
                },
                {"cookie": "id", "on_header_present": note("id", json!({"type": "NUMBER"}))},
                {"header": ":path", "on_header_present": note("p", json!({
                    "regex_value_rewrite": {"pattern": {"regex": "^/(\\w+)/.*"}, "substitution": "<\\1>"},
                }))},
                {"header": "x-b", "on_header_present": note("b", json!({"encode": "BASE64"}))},
                {"header": "x-own", "on_header_present": {"key": "k"}},
            ],
            "response_rules": [{"header": ":status", "on_header_present": note("s", json!({}))}],
        }),
    )])
    .routes(json!([site::route("/own", HEADERS, own), site::rest()]))
    .log(&format!("%DYNAMIC_METADATA(n)% %DYNAMIC_METADATA({HEADERS}:k)%"))
    .start();
    let sorted = |line: usize| {
        let logged = site.logged(line);
        let (noted, more) = logged.rsplit_once(' ').unwrap();
        (serde_json::from_str::<Value>(noted).unwrap_or(Value::Null), more.to_owned())
    };
    site.get("/shop/cart", "x-v: 1\r\nx-v: 2\r\ncookie: a=b; id=7\r\nx-b: aGk=\r\nx-own: yes\r\n");
    assert_eq!(sorted(1), (json!({"v": "1,2", "id": 7, "p": "<shop>", "b": "hi", "s": "200"}), "yes".to_owned()));
    assert!(!site.origin.requests()[0].headers.contains("x-v"));
    site.get("/x", "cookie: id=seven\r\nx-b: !\r\n");
    assert_eq!(sorted(2), (json!({"v": "none", "p": "/x", "s": "200"}), "-".to_owned()));
    site.get("/own", "x-v: 3\r\n");
    assert_eq!(sorted(3), (json!({"v": "own"}), "-".to_owned()));
    assert!(site.origin.requests()[2].headers.contains("x-v"));
}

#[test]
fn configured_values_are_noted_kept_or_merged() {
    let entry = |value: Value, overwrites: bool| json!({"metadata_namespace": "n", "value": value, "allow_overwrite": overwrites});
    let site = site::with([extension(
        "set",
        "filters.http.set_metadata.v3.Config",
        json!({"metadata": [
            entry(json!({"a": 1, "l": ["x"], "m": {"k": "old"}}), false),
            entry(json!({"a": 2}), false),
            entry(json!({"a": "3", "l": ["y"], "m": {"n": true}}), true),
        ]}),
    )])
    .manager(json!({"stat_prefix": "edge"}))
    .log("%DYNAMIC_METADATA(n)%")
    .start();
    site.get("/", "");
    let noted: Value = serde_json::from_str(&site.logged(1)).unwrap();
    assert_eq!(noted, json!({"a": "3", "l": ["x", "y"], "m": {"k": "old", "n": true}}));
    assert_eq!(site.stat("http.edge.set_metadata.overwrite_denied"), 1);
}

#[test]
fn the_most_specific_scope_has_metadata_of_its_own() {
    const NAME: &str = "envoy.filters.http.set_metadata";
    const TYPE: &str = "filters.http.set_metadata.v3.Config";
    let noted = |who: &str, overwrites: bool| {
        json!({"@type": format!("type.googleapis.com/envoy.extensions.{TYPE}"), "metadata": [
            {"metadata_namespace": who, "value": {"a": 1}},
            {"metadata_namespace": "n", "value": {"a": who}, "allow_overwrite": overwrites},
        ]})
    };
    let gateway = json!({"metadata": [{"metadata_namespace": "n", "value": {"a": "gateway", "k": 1}}]});
    let site = site::with([extension(NAME, TYPE, gateway)])
        .host(json!({"typed_per_filter_config": {NAME: noted("host", true)}}))
        .routes(json!([
            site::route("/own", NAME, noted("route", true)),
            site::route("/denied", NAME, noted("route", false)),
            site::rest(),
        ]))
        .log("%DYNAMIC_METADATA(n:a)% %DYNAMIC_METADATA(n:k)% %DYNAMIC_METADATA(host:a)% %DYNAMIC_METADATA(route:a)%")
        .start();
    for (line, (path, want)) in
        [("/own", "route 1 - 1"), ("/denied", "gateway 1 - 1"), ("/", "host 1 1 -")].into_iter().enumerate()
    {
        site.get(path, "");
        assert_eq!(site.logged(line + 1), want, "{path}");
    }
    assert_eq!(site.stat("set_metadata.overwrite_denied"), 1);
}

#[test]
fn numbers_of_metadata_are_logged_in_their_shorter_form() {
    let rule = json!({"header": "x-n", "on_header_present": note("v", json!({"type": "NUMBER"}))});
    let site = site::with([extension(HEADERS, HEADERS_TYPE, json!({"request_rules": [rule]}))])
        .log("%DYNAMIC_METADATA(n:v)% %DYNAMIC_METADATA(n)%")
        .start();
    let numbers = [
        ("7", "7"),
        ("10000", "10000"),
        ("100000", "1e+05"),
        ("-100000", "-1e+05"),
        ("123456", "123456"),
        ("1700000000", "1.7e+09"),
        ("1700000123", "1700000123"),
        ("0.001", "0.001"),
        ("0.0001", "1e-04"),
        ("0.000123", "0.000123"),
        ("1e15", "1e+15"),
        ("1e100", "1e+100"),
        ("5e-324", "5e-324"),
        ("9007199254740993", "9007199254740992"),
        ("12345678901234567890", "12345678901234567168"),
    ];
    for (number, _) in numbers {
        site.get("/", &format!("x-n: {number}\r\n"));
    }
    for (line, (number, want)) in numbers.into_iter().enumerate() {
        assert_eq!(site.logged(line + 1), format!("{want} {{\"v\":{want}}}"), "{number}");
    }
}
