//! Requests that pages of other sites make a browser send, as Envoy refuses them.

use postrider_tests::kit::config::extension;
use postrider_tests::site::{self, Plan};
use serde_json::{Value, json};

const NAME: &str = "envoy.filters.http.csrf";
const TYPE: &str = "filters.http.csrf.v3.CsrfPolicy";

fn csrf(fields: Value) -> Plan {
    site::with([extension(NAME, TYPE, fields)])
}

fn policy(enabled: u32, shadow: u32) -> Value {
    let share = |numerator: u32| json!({"default_value": {"numerator": numerator}});
    json!({
        "filter_enabled": share(enabled), "shadow_enabled": share(shadow),
        "additional_origins": [{"exact": "friend.test"}, {"suffix": ".mine.test"}],
    })
}

fn of_route(mut fields: Value) -> Value {
    fields["@type"] = json!(format!("type.googleapis.com/envoy.extensions.{TYPE}"));
    fields
}

#[test]
fn a_change_must_come_from_the_same_host_or_a_friend() {
    let site = csrf(policy(100, 0)).start();
    let (mut valid, mut invalid, mut missing) = (0, 0, 0);
    for (fields, outcome) in [
        ("origin: http://test", 'v'),
        ("origin: https://test", 'v'),
        ("origin: test", 'v'),
        ("origin: http://TEST", 'i'),
        ("origin: http://test/", 'v'),
        ("origin: http://test:80", 'i'),
        ("origin: null", 'm'),
        ("origin: null\r\nreferer: http://test/", 'm'),
        ("origin: \r\nreferer: http://test/", 'v'),
        ("referer: http://test/page?a=http://evil.test", 'v'),
        ("referer: http://evil.test/http://test", 'i'),
        ("referer: /page", 'i'),
        ("origin: http://friend.test", 'v'),
        ("origin: friend.test", 'v'),
        ("origin: http://a.mine.test", 'v'),
        ("origin: http://test.evil.test", 'i'),
        ("origin: http://evil.test\r\nreferer: http://test/", 'i'),
        ("origin: http://evil.test@test", 'v'),
        ("origin: http://test#f", 'i'),
        ("origin: http://", 'i'),
        ("origin: app://test", 'v'),
        ("x: y", 'm'),
    ] {
        let answer = site.ask("POST", "/", &format!("{fields}\r\ncontent-length: 0\r\n"));
        let counters = [&mut valid, &mut invalid, &mut missing];
        *counters[['v', 'i', 'm'].iter().position(|known| *known == outcome).unwrap()] += 1;
        let want = if outcome == 'v' { 200 } else { 403 };
        assert_eq!(answer.status, want, "{fields}");
        let stats = site.proxy.stats();
        let of = |name: &str| stats.value(&format!("http.ingress_http.csrf.{name}"));
        let seen = (of("request_valid"), of("request_invalid"), of("missing_source_origin"));
        assert_eq!(seen, (valid, invalid, missing), "{fields}");
    }
    let refused = site.ask("DELETE", "/", "");
    assert_eq!((refused.status, refused.text()), (403, "Invalid origin"));
    assert_eq!(refused.header("content-type"), "text/plain");
    assert_eq!(site.logged(23), "403 - csrf_origin_mismatch");
}

#[test]
fn only_methods_that_change_something_are_looked_at() {
    let site = csrf(policy(100, 0)).start();
    for (method, status) in
        [("GET", 200), ("HEAD", 200), ("OPTIONS", 200), ("POST", 403), ("PUT", 403), ("DELETE", 403), ("PATCH", 403)]
    {
        assert_eq!(site.ask(method, "/", "origin: http://evil\r\ncontent-length: 0\r\n").status, status, "{method}");
    }
}

#[test]
fn the_most_specific_policy_counts_alone_and_a_shadow_only_counts() {
    let site = csrf(policy(100, 0))
        .routes(json!([
            site::route("/shadow", NAME, of_route(policy(0, 100))),
            site::route("/off", NAME, of_route(policy(0, 0))),
            site::route("/alone", NAME, of_route(json!({"filter_enabled": {"default_value": {"numerator": 100}}}))),
            site::rest(),
        ]))
        .start();
    for (path, origin, status, invalid) in [
        ("/shadow", "http://evil", 200, 1),
        ("/off", "http://evil", 200, 1),
        ("/alone", "http://friend.test", 403, 2),
        ("/", "http://friend.test", 200, 2),
    ] {
        let answer = site.ask("POST", path, &format!("origin: {origin}\r\ncontent-length: 0\r\n"));
        assert_eq!(answer.status, status, "{path}");
        assert_eq!(site.stat("http.ingress_http.csrf.request_invalid"), invalid, "{path}");
    }
}
