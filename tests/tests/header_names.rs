//! How the names of fields are written over HTTP/1 (`header_key_format`).

use postrider_tests::kit::config::upstream_http_options;
use postrider_tests::kit::{Config, Headers, Origin, Proxy};
use serde_json::{Value, json};

const ANSWER: &str = "HTTP/1.1 200 Fine by me\r\nX-oRiGin: 1\r\nETag: a\r\nContent-Length: 0\r\n\r\n";

fn proper() -> Value {
    json!({"proper_case_words": {}})
}

fn as_received(fields: Value) -> Value {
    let mut config = json!({"@type": "type.googleapis.com/envoy.extensions.http.header_formatters.preserve_case.v3.PreserveCaseFormatterConfig"});
    postrider_tests::kit::config::overlay(&mut config, fields);
    json!({"stateful_formatter": {"name": "preserve_case", "typed_config": config}})
}

/// Between a client's and an origin's HTTP/1, with these formats.
fn between(client: Option<Value>, upstream: Option<Value>) -> (Proxy, Origin) {
    let origin = Origin::fixed(ANSWER);
    let options = |format: Value| json!({"header_key_format": format});
    let cluster = upstream.map_or(json!({}), |format| {
        upstream_http_options(json!({"explicit_http_config": {"http_protocol_options": options(format)}}))
    });
    let manager = client.map_or(json!({}), |format| json!({"http_protocol_options": options(format)}));
    let config = Config::routes(json!([
        {"match": {"prefix": "/here"}, "direct_response": {"status": 200, "body": {"inline_string": "x"}}},
        {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]))
    .overlay_filter("http", manager)
    .cluster_with("origin", &[origin.address], cluster);
    (Proxy::start(&config), origin)
}

fn names(headers: &Headers) -> Vec<&str> {
    headers.0.iter().map(|(name, _)| name.as_str()).collect()
}

const REQUEST: &str = "GET / HTTP/1.1\r\nHoSt: test\r\nX-aBC-d_ef: 1\r\nx-1a-2: a-b\r\nX-ABC-D_EF: again\r\n\r\n";

#[test]
fn proper_case_begins_words_with_capitals_on_both_sides() {
    let (proxy, origin) = between(Some(proper()), Some(proper()));
    let answer = proxy.exchange(REQUEST);
    let told = names(&answer.headers);
    for name in ["X-Origin", "Etag", "Content-Length", "Date", "Server", "X-Envoy-Upstream-Service-Time"] {
        assert!(told.contains(&name), "{name} in {told:?}");
    }
    assert_eq!(answer.reason, "OK");
    let request = origin.requests().remove(0);
    let seen = names(&request.headers);
    for name in ["Host", "X-Abc-D_Ef", "X-1a-2", "X-Forwarded-Proto"] {
        assert!(seen.contains(&name), "{name} in {seen:?}");
    }
    assert_eq!(request.header("x-1a-2"), "a-b");
    let own = proxy.get("/here");
    assert!(names(&own.headers).contains(&"Content-Type"), "{own:?}");
}

#[test]
fn names_go_on_as_they_came_from_the_side_that_says_so() {
    let (proxy, origin) =
        between(Some(as_received(json!({}))), Some(as_received(json!({"forward_reason_phrase": true}))));
    for _ in 0..2 {
        let answer = proxy.exchange(REQUEST);
        let told = names(&answer.headers);
        for name in ["X-oRiGin", "ETag", "Content-Length", "date", "server"] {
            assert!(told.contains(&name), "{name} in {told:?}");
        }
        assert_eq!(answer.reason, "Fine by me");
    }
    for request in origin.requests() {
        let seen = names(&request.headers);
        for name in ["HoSt", "X-aBC-d_ef", "x-1a-2", "x-forwarded-proto"] {
            assert!(seen.contains(&name), "{name} in {seen:?}");
        }
        assert!(!seen.contains(&"X-ABC-D_EF"), "the first line of a name says how it is written: {seen:?}");
    }
    assert!(names(&proxy.get("/here").headers).contains(&"content-type"));
}

#[test]
fn received_names_beat_the_form_of_the_other_side() {
    let (proxy, origin) =
        between(Some(proper()), Some(as_received(json!({"formatter_type_on_envoy_headers": "PROPER_CASE"}))));
    let answer = proxy.exchange(REQUEST);
    let told = names(&answer.headers);
    for name in ["X-oRiGin", "ETag", "Date", "Server"] {
        assert!(told.contains(&name), "{name} in {told:?}");
    }
    assert_eq!(answer.reason, "OK");
    let seen = origin.requests().remove(0);
    assert!(names(&seen.headers).contains(&"host"), "{seen:?}");
}

#[test]
fn without_a_word_names_are_in_lower_case() {
    let (proxy, origin) = between(None, None);
    let answer = proxy.exchange(REQUEST);
    let is_lower = |headers: &Headers| names(headers).iter().all(|name| *name == name.to_ascii_lowercase());
    assert!(is_lower(&answer.headers) && is_lower(&origin.requests()[0].headers));
    assert_eq!(answer.reason, "OK");
}
