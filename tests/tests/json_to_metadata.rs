//! The filter that notes values of JSON bodies, as Envoy does.

use postrider_tests::kit::Origin;
use postrider_tests::kit::config::extension;
use postrider_tests::site::{self, Site};
use serde_json::{Value, json};

const NAME: &str = "envoy.filters.http.json_to_metadata";
const TYPE: &str = "filters.http.json_to_metadata.v3.JsonToMetadata";

fn note(key: &str, more: Value) -> Value {
    let mut note = json!({"metadata_namespace": "n", "key": key});
    for (key, value) in more.as_object().unwrap() {
        note[key] = value.clone();
    }
    note
}

/// A rule with something to say in every case.
fn rule(keys: &[&str], key: &str, more: Value) -> Value {
    json!({
        "selectors": keys.iter().map(|key| json!({"key": key})).collect::<Vec<_>>(),
        "on_present": note(key, more),
        "on_missing": note(key, json!({"value": "missing"})),
        "on_error": note(key, json!({"value": "error"})),
    })
}

fn send(site: &Site, path: &str, content_type: &str, body: &str) -> u16 {
    let head = format!("POST {path} HTTP/1.1\r\nhost: test\r\ncontent-type: {content_type}\r\n");
    site.proxy.exchange(format!("{head}content-length: {}\r\n\r\n{body}", body.len())).status
}

/// What the log's line says of the namespace.
fn noted(site: &Site, line: usize) -> Value {
    serde_json::from_str(&site.logged(line)).unwrap_or(Value::Null)
}

#[test]
fn values_of_requests_are_noted_by_rules() {
    let own = json!({
        "@type": format!("type.googleapis.com/envoy.extensions.{TYPE}"),
        "request_rules": {
            "rules": [rule(&["a"], "own", json!({}))],
            "allow_content_types": ["text/own"],
            "allow_content_types_regex": {"regex": "any/.*"},
            "allow_empty_content_type": true,
        },
    });
    let site = site::with([extension(
        NAME,
        TYPE,
        json!({"request_rules": {"rules": [
            rule(&["a"], "a", json!({})),
            rule(&["a"], "text", json!({"type": "STRING"})),
            rule(&["a"], "number", json!({"type": "NUMBER"})),
            rule(&["deep", "b"], "deep", json!({})),
            rule(&["deep", "c"], "fixed", json!({"value": {"is": ["fixed"]}})),
            {"selectors": [{"key": "a"}], "on_missing": note("only", json!({"value": "missing"}))},
        ]}}),
    )])
    .manager(json!({"stat_prefix": "edge"}))
    .routes(json!([site::route("/own", NAME, own), site::rest()]))
    .log("%DYNAMIC_METADATA(n)%")
    .start();
    let all = |what: &str| json!({"a": what, "text": what, "number": what, "deep": what, "fixed": what});
    let table = [
        (
            "application/json",
            r#"{"a": "7", "deep": {"b": true}}"#,
            json!({
                "a": "7", "text": "7", "number": 7, "deep": true, "fixed": {"is": ["fixed"]},
            }),
        ),
        (
            "application/json",
            r#"{"a": 1.5, "deep": {}}"#,
            json!({
                "a": 1.5, "text": "1.500000", "number": 1.5, "deep": "missing", "fixed": {"is": ["fixed"]},
            }),
        ),
        (
            "application/json",
            r#"{"a": ""}"#,
            json!({
                "a": "", "number": "missing", "deep": "missing", "fixed": "missing",
            }),
        ),
        ("application/json", r#"{"a": null, "deep": [1]}"#, all("missing")),
        ("application/json", "[]", all("missing")),
        (
            "application/json",
            "1",
            json!({
                "a": "missing", "text": "missing", "number": "missing", "deep": "missing", "fixed": "missing",
                "only": "missing",
            }),
        ),
        ("application/json", "{", all("error")),
        ("application/json", r#"{"a": 18446744073709551615}"#, all("error")),
        ("application/json; charset=utf-8", r#"{"a": 1}"#, all("error")),
    ];
    for (line, (content_type, body, want)) in table.iter().enumerate() {
        assert_eq!(send(&site, "/", content_type, body), 200);
        assert_eq!(&noted(&site, line + 1), want, "{content_type} {body}");
    }
    let lines = table.len();
    let own = [("text/own", "1"), ("any/thing", "1"), ("", "1"), ("application/json", "error"), ("Text/Own", "error")];
    for (line, (content_type, want)) in own.iter().enumerate() {
        send(&site, "/own", content_type, r#"{"a": "1"}"#);
        assert_eq!(noted(&site, lines + line + 1), json!({"own": want}), "{content_type}");
    }
    // What the upstream gets is what was sent.
    assert_eq!(site.origin.requests()[0].body, r#"{"a": "7", "deep": {"b": true}}"#.as_bytes());
    let stat = |name: &str| site.stat(&format!("json_to_metadata.rq.{name}"));
    assert_eq!(stat("success"), 9);
    assert_eq!((stat("invalid_json_body"), stat("mismatched_content_type"), stat("no_body")), (2, 3, 0));
}

#[test]
fn what_a_body_says_leads_to_a_route() {
    let found = json!({"filter": "n", "path": [{"key": "a"}], "value": {"string_match": {"exact": "gpt"}}});
    let routes = json!([
        {"match": {"prefix": "/", "dynamic_metadata": [found]}, "direct_response": {"status": 201}},
        site::rest(),
    ]);
    let site = site::with([extension(NAME, TYPE, json!({"request_rules": {"rules": [rule(&["a"], "a", json!({}))]}}))])
        .routes(routes)
        .start();
    for (body, want) in [(r#"{"a": "gpt"}"#, 201), (r#"{"a": "other"}"#, 200), ("{}", 200)] {
        assert_eq!(send(&site, "/", "application/json", body), want, "{body}");
    }
}

#[test]
fn a_message_without_a_body_or_with_trailers_is_told_apart() {
    let site = site::with([extension(NAME, TYPE, json!({"request_rules": {"rules": [rule(&["a"], "a", json!({}))]}}))])
        .log("%DYNAMIC_METADATA(n)%")
        .start();
    let ask = |more: &str| {
        let head = "POST / HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n";
        assert_eq!(site.proxy.exchange(format!("{head}{more}")).status, 200);
    };
    ask("\r\n");
    ask("transfer-encoding: chunked\r\n\r\n0\r\n\r\n");
    ask("transfer-encoding: chunked\r\n\r\n3\r\n{\"a\r\n4\r\n\":1}\r\n0\r\n\r\n");
    ask("transfer-encoding: chunked\r\n\r\n3\r\n{\"a\r\n4\r\n\":2}\r\n0\r\nx-t: 1\r\n\r\n");
    for (line, want) in [json!("missing"), json!("missing"), json!(1), json!(2)].into_iter().enumerate() {
        assert_eq!(noted(&site, line + 1), json!({"a": want}));
    }
    assert_eq!(site.stat("json_to_metadata.rq.no_body"), 2);
    assert_eq!(site.stat("json_to_metadata.rq.success"), 2);
}

#[test]
fn values_of_answers_are_noted_too() {
    let origin = Origin::start(|connection| {
        while let Some(request) = connection.request() {
            connection.write(match &*request.target {
                "/text" => b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 4\r\n\r\ntext".as_slice(),
                "/none" => b"HTTP/1.1 204 No Content\r\ncontent-type: application/json\r\n\r\n",
                _ => b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\n{\"r\": \"v\"}",
            });
        }
    });
    let site =
        site::with([extension(NAME, TYPE, json!({"response_rules": {"rules": [rule(&["r"], "r", json!({}))]}}))])
            .log("%DYNAMIC_METADATA(n)%")
            .start_before(origin);
    for (line, (path, want)) in [("/", "v"), ("/text", "error"), ("/none", "missing")].into_iter().enumerate() {
        site.get(path, "");
        assert_eq!(noted(&site, line + 1), json!({"r": want}), "{path}");
    }
    let stat = |name: &str| site.stat(&format!("json_to_metadata.resp.{name}"));
    assert_eq!((stat("success"), stat("mismatched_content_type"), stat("no_body")), (1, 1, 1));
}
