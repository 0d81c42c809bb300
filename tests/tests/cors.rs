//! Cross-origin requests, as Envoy answers them.

use postrider_tests::kit::Origin;
use postrider_tests::kit::config::extension;
use postrider_tests::site::{self, Plan};
use serde_json::{Value, json};

const NAME: &str = "envoy.filters.http.cors";

fn cors() -> Plan {
    site::with([extension(NAME, "filters.http.cors.v3.Cors", json!({}))])
}

fn policy(fields: Value) -> Value {
    let mut policy = fields;
    policy["@type"] = json!("type.googleapis.com/envoy.extensions.filters.http.cors.v3.CorsPolicy");
    policy
}

fn on_host(fields: Value) -> Value {
    json!({"typed_per_filter_config": {NAME: policy(fields)}})
}

fn origins(exact: &[&str]) -> Value {
    exact.iter().map(|origin| json!({"exact": origin})).collect()
}

const PREFLIGHT: &str = "origin: http://a.test\r\naccess-control-request-method: PUT\r\n";

/// The lines about cross-origin requests.
fn allowed(response: &postrider_tests::kit::Response) -> Vec<String> {
    let about = |name: &str| name.starts_with("access-control-");
    let line = |(name, value): &(String, Vec<u8>)| format!("{name}: {}", String::from_utf8_lossy(value));
    response.headers.0.iter().filter(|(name, _)| about(name)).map(line).collect()
}

#[test]
fn a_preflight_is_answered_by_the_proxy() {
    let site = cors()
        .host(on_host(json!({
            "allow_origin_string_match": origins(&["http://a.test"]),
            "allow_methods": "GET,PUT", "allow_headers": "x-a", "expose_headers": "x-b", "max_age": "60",
            "allow_credentials": true, "allow_private_network_access": true,
        })))
        .start();
    let answer = site.ask("OPTIONS", "/", &format!("{PREFLIGHT}access-control-request-private-network: true\r\n"));
    assert_eq!((answer.status, answer.text()), (200, ""));
    assert_eq!(answer.headers.values("content-length"), ["0"]);
    let want = [
        "access-control-allow-origin: http://a.test",
        "access-control-allow-credentials: true",
        "access-control-allow-private-network: true",
        "access-control-allow-methods: GET,PUT",
        "access-control-allow-headers: x-a",
        "access-control-max-age: 60",
        "access-control-expose-headers: x-b",
    ];
    assert_eq!(sorted(allowed(&answer)), sorted(want.map(str::to_owned).to_vec()));
    assert_eq!(site.logged(1), "200 - cors_response");
    assert!(site.origin.requests().is_empty());
    let plain = site.ask("OPTIONS", "/", PREFLIGHT);
    assert!(!plain.headers.contains("access-control-allow-private-network"));
    assert_eq!(site.stat("http.ingress_http.cors.origin_valid"), 2);
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

#[test]
fn an_answer_tells_that_the_page_may_read_it() {
    let origin = Origin::fixed(
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\naccess-control-allow-origin: *\r\naccess-control-expose-headers: x-old\r\n\r\nok",
    );
    let site = cors()
        .host(on_host(json!({
            "allow_origin_string_match": origins(&["http://a.test"]), "expose_headers": "x-b", "max_age": "60",
        })))
        .start_before(origin);
    for (method, fields) in
        [("GET", "origin: http://a.test\r\n"), ("OPTIONS", "origin: http://a.test\r\n"), ("PUT", PREFLIGHT)]
    {
        let answer = site.ask(method, "/", fields);
        assert_eq!((answer.status, answer.text()), (200, "ok"), "{method}");
        let want = ["access-control-allow-origin: http://a.test", "access-control-expose-headers: x-b"];
        assert_eq!(sorted(allowed(&answer)), want, "{method}");
    }
    let untouched = ["access-control-allow-origin: *", "access-control-expose-headers: x-old"];
    for fields in ["", "origin: \r\n", "origin: http://b.test\r\n", "origin: HTTP://A.test\r\n"] {
        assert_eq!(sorted(allowed(&site.get("/", fields))), untouched, "{fields}");
    }
    assert_eq!(site.stat("http.ingress_http.cors.origin_valid"), 3);
    assert_eq!(site.stat("http.ingress_http.cors.origin_invalid"), 2);
}

#[test]
fn a_preflight_of_another_origin_goes_on_unless_told_otherwise() {
    let only = json!({"allow_origin_string_match": origins(&["http://b.test"])});
    let mut kept = only.clone();
    kept["forward_not_matching_preflights"] = json!(false);
    let site =
        cors().routes(json!([site::route("/kept", NAME, policy(kept)), site::route("/", NAME, policy(only))])).start();
    assert_eq!(site.ask("OPTIONS", "/", PREFLIGHT).header("x-origin"), "a");
    let answer = site.ask("OPTIONS", "/kept", PREFLIGHT);
    assert_eq!((answer.status, answer.text(), allowed(&answer)), (200, "", Vec::new()));
    assert_eq!(site.logged(2), "200 - cors_response");
    assert_eq!(site.ask("GET", "/kept", PREFLIGHT).header("x-origin"), "a");
    assert_eq!(site.origin.requests().len(), 2);
}

#[test]
fn what_a_route_leaves_out_its_host_says() {
    let site = cors()
        .host(on_host(json!({
            "allow_origin_string_match": origins(&["http://a.test"]), "allow_methods": "GET", "max_age": "7",
            "allow_credentials": true,
        })))
        .routes(json!([
            site::route("/own", NAME, policy(json!({"allow_methods": "PUT", "allow_credentials": false}))),
            site::rest(),
        ]))
        .start();
    let want = [
        "access-control-allow-methods: PUT",
        "access-control-allow-origin: http://a.test",
        "access-control-max-age: 7",
    ];
    assert_eq!(sorted(allowed(&site.ask("OPTIONS", "/own", PREFLIGHT))), want);
    assert_eq!(site.ask("OPTIONS", "/", PREFLIGHT).header("access-control-allow-methods"), "GET");
}

#[test]
fn origins_match_by_all_kinds_and_a_star_is_every_one() {
    let matchers = json!([{"suffix": ".a.test"}, {"safe_regex": {"regex": "https://[a-z]+\\.b\\.test"}}]);
    let site = cors()
        .routes(json!([
            site::route("/any", NAME, policy(json!({"allow_origin_string_match": origins(&["*"])}))),
            site::route("/", NAME, policy(json!({"allow_origin_string_match": matchers}))),
        ]))
        .start();
    for (path, origin, expected) in [
        ("/any", "http://whoever", true),
        ("/any", "null", true),
        ("/", "http://x.a.test", true),
        ("/", "https://x.b.test", true),
        ("/", "https://x.b.test.evil", false),
        ("/", "https://1.b.test", false),
    ] {
        let answer = site.get(path, &format!("origin: {origin}\r\n"));
        assert_eq!(answer.headers.values("access-control-allow-origin") == [origin], expected, "{path} {origin}");
    }
}

#[test]
fn a_share_of_nothing_turns_it_off_and_a_shadow_counts() {
    let none = json!({"default_value": {"numerator": 0}});
    let all = json!({"default_value": {"numerator": 100}});
    let off = json!({"allow_origin_string_match": origins(&["*"]), "filter_enabled": none});
    let mut shadow = off.clone();
    shadow["shadow_enabled"] = all;
    let site = cors()
        .routes(json!([
            site::route("/off", NAME, policy(off)),
            site::route("/shadow", NAME, policy(shadow)),
            site::rest(),
        ]))
        .start();
    for (path, counted) in [("/off", 0), ("/", 0), ("/shadow", 1)] {
        let answer = site.ask("OPTIONS", path, PREFLIGHT);
        assert_eq!((answer.header("x-origin"), allowed(&answer)), ("a", Vec::new()), "{path}");
        assert_eq!(site.stat("http.ingress_http.cors.origin_valid"), counted, "{path}");
    }
}

/// To a request with credentials a browser takes `*` by the letter.
#[test]
fn a_star_for_methods_and_headers_is_what_was_asked_for() {
    let site = cors()
        .host(on_host(json!({
            "allow_origin_string_match": origins(&["http://a.test"]), "allow_methods": "*", "allow_headers": "*",
            "allow_credentials": true,
        })))
        .start();
    let answer =
        site.ask("OPTIONS", "/", &format!("{PREFLIGHT}access-control-request-headers: x-a, authorization\r\n"));
    assert_eq!(answer.header("access-control-allow-methods"), "PUT");
    assert_eq!(answer.header("access-control-allow-headers"), "x-a, authorization");
    let answer = site.ask("OPTIONS", "/", PREFLIGHT);
    assert_eq!(answer.headers.values("access-control-allow-headers"), [""]);
}

/// It is the filter's own answer, and stands for no other one.
#[test]
fn a_preflight_is_not_mapped_edited_or_put_as_grpc() {
    let mapper = json!({
        "filter": {"status_code_filter": {"comparison": {"op": "EQ", "value": {"default_value": 200, "runtime_key": "x"}}}},
        "status_code": 418, "body": {"inline_string": "mapped"},
    });
    let mut host = on_host(json!({"allow_origin_string_match": origins(&["http://a.test"])}));
    host["response_headers_to_add"] = json!([{"header": {"key": "x-route", "value": "r"}}]);
    let site = cors().host(host).manager(json!({"local_reply_config": {"mappers": [mapper]}})).start();
    for kind in ["", "content-type: application/grpc\r\n"] {
        let answer = site.ask("OPTIONS", "/", &format!("{PREFLIGHT}{kind}"));
        assert_eq!(
            (answer.status, answer.text(), answer.header("access-control-allow-origin")),
            (200, "", "http://a.test")
        );
        for name in ["x-route", "grpc-status", "content-type"] {
            assert!(!answer.headers.contains(name), "{kind}: {answer:?}");
        }
    }
}

#[test]
fn a_second_origin_did_not_count() {
    let site = cors().host(on_host(json!({"allow_origin_string_match": origins(&["http://a.test"])}))).start();
    let answer = site.ask("OPTIONS", "/", &format!("{PREFLIGHT}origin: http://evil.test\r\n"));
    assert!(allowed(&answer).is_empty(), "{answer:?}");
}
