//! Which route a request takes and what the route does with it.

use postrider_tests::kit::{Config, Origin, Proxy, RawClient, Response, net, wait_until};
use postrider_tests::{envoy, get};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A request with a host and extra field lines.
fn ask(proxy: &Proxy, method: &str, host: &str, path: &str, fields: &str) -> Response {
    proxy.exchange(format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\n{fields}\r\n"))
}

/// A route that answers with its own name, so that no origin is needed.
fn named(name: &str, mut matcher: Value) -> Value {
    if !["prefix", "path", "safe_regex", "path_separated_prefix"].iter().any(|key| matcher.get(key).is_some()) {
        matcher["prefix"] = json!("/");
    }
    json!({"match": matcher, "direct_response": {"status": 200, "body": {"inline_string": name}}})
}

/// Starts on direct-response routes and checks `(fields, path, expected)`.
fn check_routes(routes: Value, table: &[(&str, &str, &str)]) {
    let proxy = Proxy::start(&Config::routes(routes));
    let mut client = proxy.client();
    for (fields, path, expected) in table {
        let response = client.exchange(format!("GET {path} HTTP/1.1\r\nhost: test\r\n{fields}\r\n"));
        let got = if response.status == 404 { "404" } else { response.text() };
        assert_eq!(got, *expected, "{path} with {fields:?}");
    }
}

#[test]
fn hosts_match_exactly_then_by_longest_suffix_then_prefix_then_any() {
    let vhost =
        |name: &str, domains: &[&str]| json!({"name": name, "domains": domains, "routes": [named(name, json!({}))]});
    let proxy = Proxy::start(&Config::new().http(json!({"route_config": {"virtual_hosts": [
        vhost("any", &["*"]),
        vhost("suffix", &["*.example.com"]),
        vhost("longer-suffix", &["*-api.example.com"]),
        vhost("prefix", &["www.*"]),
        vhost("longer-prefix", &["www.shop.*"]),
        vhost("exact", &["example.com", "www.example.com"]),
        vhost("port", &["example.com:8080", "[::1]:80"]),
    ]}})));
    for (host, expected) in [
        ("example.com", "exact"),
        ("EXAMPLE.com", "exact"),
        ("www.example.com", "exact"),
        ("example.com:8080", "port"),
        ("example.com:8081", "any"),
        ("[::1]:80", "port"),
        ("a.example.com", "suffix"),
        ("a.b.example.com", "suffix"),
        ("a-api.example.com", "longer-suffix"),
        (".example.com", "any"),
        ("www.other.test", "prefix"),
        ("www.shop.test", "longer-prefix"),
        ("elsewhere", "any"),
    ] {
        let got = ask(&proxy, "GET", host, "/", "");
        if host == ".example.com" && !envoy() {
            // An empty label is no host name: refusing it is as good.
            assert!(got.status == 400 || got.text() == expected, "{got:?}");
            continue;
        }
        assert_eq!(got.text(), expected, "{host}");
    }
}

#[test]
fn a_host_that_no_virtual_host_takes_is_404_without_body() {
    let proxy = Proxy::start(&Config::new().http(json!({"route_config": {"virtual_hosts": [
        {"name": "one", "domains": ["one.test"], "routes": [named("one", json!({"prefix": "/a"}))]},
    ]}})));
    for (host, path) in [("two.test", "/a"), ("one.test", "/b")] {
        let response = ask(&proxy, "GET", host, path, "");
        assert_eq!((response.status, response.text()), (404, ""));
    }
    assert_eq!(ask(&proxy, "GET", "one.test", "/abc", "").text(), "one");
    assert_eq!(proxy.stats().value("http.ingress_http.no_route"), 2);
}

#[test]
fn ports_can_be_ignored_or_stripped_for_matching() {
    let hosts = json!([{"name": "one", "domains": ["one.test"], "routes": [named("one", json!({}))]}]);
    for (overlay, with_port) in [
        (json!({}), 404),
        (json!({"strip_any_host_port": true}), 200),
        (json!({"route_config": {"ignore_port_in_host_matching": true}}), 200),
    ] {
        let config = Config::new()
            .http(json!({"route_config": {"virtual_hosts": hosts}}))
            .overlay_filter("http", overlay.clone());
        let proxy = Proxy::start(&config);
        assert_eq!(ask(&proxy, "GET", "one.test:81", "/", "").status, with_port, "{overlay}");
        assert_eq!(ask(&proxy, "GET", "one.test", "/", "").status, 200);
    }
}

#[test]
fn paths_match_by_prefix_whole_separated_prefix_and_regex() {
    check_routes(
        json!([
            named("whole", json!({"path": "/exact"})),
            named("separated", json!({"path_separated_prefix": "/api"})),
            named("regex", json!({"safe_regex": {"regex": "/r/[0-9]+(/.*)?"}})),
            named("folded", json!({"prefix": "/CaSe", "case_sensitive": false})),
            named("folded-whole", json!({"path": "/Whole", "case_sensitive": false})),
            named("prefix", json!({"prefix": "/pre"})),
        ]),
        &[
            ("", "/exact", "whole"),
            ("", "/exact?q=1", "whole"),
            ("", "/exact/", "404"),
            ("", "/exac", "404"),
            ("", "/api", "separated"),
            ("", "/api?x", "separated"),
            ("", "/api/x", "separated"),
            ("", "/apix", "404"),
            ("", "/r/12", "regex"),
            ("", "/r/12?x=y", "regex"),
            ("", "/r/12/more", "regex"),
            ("", "/r/12x", "404"),
            ("", "/x/r/12", "404"),
            ("", "/cAsE/x", "folded"),
            ("", "/wHOLE", "folded-whole"),
            ("", "/prefixed", "prefix"),
            ("", "/Pre", "404"),
        ],
    );
}

#[test]
fn the_first_matching_route_wins_even_over_a_longer_one() {
    check_routes(
        json!([
            named("header", json!({"prefix": "/a", "headers": [{"name": "x-v", "string_match": {"exact": "2"}}]})),
            named("short", json!({"prefix": "/a"})),
            named("long", json!({"prefix": "/a/b/c"})),
            named("exact", json!({"path": "/a/b"})),
            named("rest", json!({"prefix": "/"})),
        ]),
        &[
            ("x-v: 2\r\n", "/a/b/c", "header"),
            ("x-v: 1\r\n", "/a/b/c", "short"),
            ("", "/a/b", "short"),
            ("", "/b", "rest"),
        ],
    );
}

#[test]
fn header_matchers_mean_what_they_say() {
    let header = |name: &str, matcher: Value| {
        let mut matcher = matcher;
        matcher["name"] = json!("x-h");
        named(name, json!({"path": format!("/{name}"), "headers": [matcher]}))
    };
    // A matcher, and for field lines whether it takes them.
    type Case<'a> = (&'a str, Value, &'a [(&'a str, bool)]);
    let cases: &[Case] = &[
        (
            "exact",
            json!({"string_match": {"exact": "abc"}}),
            &[("x-h: abc\r\n", true), ("x-h: Abc\r\n", false), ("", false), ("X-H:  abc \r\n", true)],
        ),
        (
            "folded",
            json!({"string_match": {"exact": "ABC", "ignore_case": true}}),
            &[("x-h: aBc\r\n", true), ("x-h: ab\r\n", false)],
        ),
        ("prefix", json!({"string_match": {"prefix": "ab"}}), &[("x-h: abc\r\n", true), ("x-h: xab\r\n", false)]),
        ("suffix", json!({"string_match": {"suffix": "bc"}}), &[("x-h: abc\r\n", true), ("x-h: bcx\r\n", false)]),
        ("contains", json!({"string_match": {"contains": "b"}}), &[("x-h: abc\r\n", true), ("x-h: ac\r\n", false)]),
        (
            "regex",
            json!({"string_match": {"safe_regex": {"regex": "a.c"}}}),
            &[("x-h: abc\r\n", true), ("x-h: abcd\r\n", false), ("x-h: xabc\r\n", false)],
        ),
        (
            "range",
            json!({"range_match": {"start": -5, "end": 10}}),
            &[
                ("x-h: -5\r\n", true),
                ("x-h: 9\r\n", true),
                ("x-h: 10\r\n", false),
                ("x-h: x\r\n", false),
                ("x-h: 1x\r\n", false),
                ("", false),
            ],
        ),
        ("present", json!({"present_match": true}), &[("x-h: a\r\n", true), ("x-h:\r\n", true), ("", false)]),
        ("absent", json!({"present_match": false}), &[("x-h: a\r\n", false), ("", true)]),
        (
            "inverted",
            json!({"string_match": {"exact": "abc"}, "invert_match": true}),
            &[("x-h: abc\r\n", false), ("x-h: d\r\n", true), ("", false)],
        ),
        (
            "inverted-present",
            json!({"present_match": true, "invert_match": true}),
            &[("x-h: abc\r\n", false), ("", true)],
        ),
        (
            "inverted-range",
            json!({"range_match": {"start": 1, "end": 2}, "invert_match": true}),
            &[("x-h: 1\r\n", false), ("x-h: 2\r\n", true)],
        ),
        (
            "missing-is-empty",
            json!({"string_match": {"exact": ""}, "treat_missing_header_as_empty": true}),
            &[("", true), ("x-h:\r\n", true), ("x-h: a\r\n", false)],
        ),
        (
            "inverted-missing-is-empty",
            json!({"string_match": {"exact": "abc"}, "invert_match": true, "treat_missing_header_as_empty": true}),
            &[("", true), ("x-h: abc\r\n", false)],
        ),
        // Lines of one name are matched one by one, not joined.
        (
            "repeated",
            json!({"string_match": {"exact": "b"}}),
            &[("x-h: a\r\nx-h: b\r\n", true), ("x-h: a,b\r\n", false), ("x-h: a\r\nx-h: c\r\n", false)],
        ),
        (
            "repeated-inverted",
            json!({"string_match": {"exact": "b"}, "invert_match": true}),
            &[("x-h: a\r\nx-h: b\r\n", false), ("x-h: a\r\nx-h: c\r\n", true)],
        ),
        (
            "repeated-regex",
            json!({"string_match": {"safe_regex": {"regex": "[xy]"}}}),
            &[("x-h: a\r\nx-h: y\r\n", true), ("x-h: x\r\n", true), ("x-h: a\r\n", false)],
        ),
        (
            "repeated-range",
            json!({"range_match": {"start": 1, "end": 3}}),
            &[("x-h: 9\r\nx-h: 2\r\n", true), ("x-h: 2\r\nx-h: 9\r\n", true)],
        ),
    ];
    let routes: Vec<Value> = cases.iter().map(|(name, matcher, _)| header(name, matcher.clone())).collect();
    let paths: Vec<String> = cases.iter().map(|(name, ..)| format!("/{name}")).collect();
    let table: Vec<(&str, &str, &str)> = cases
        .iter()
        .zip(&paths)
        .flat_map(|((name, _, checks), path)| {
            checks.iter().map(move |(fields, hit)| (*fields, path.as_str(), if *hit { *name } else { "404" }))
        })
        .collect();
    check_routes(Value::Array(routes), &table);
}

#[test]
fn pseudo_headers_can_be_matched() {
    let proxy = Proxy::start(&Config::routes(json!([
        named("delete", json!({"headers": [{"name": ":method", "string_match": {"exact": "DELETE"}}]})),
        named("host", json!({"headers": [{"name": ":authority", "string_match": {"prefix": "one"}}]})),
        named("path", json!({"headers": [{"name": ":path", "string_match": {"contains": "q=1"}}]})),
        named(
            "all",
            json!({"headers": [
                {"name": "a", "present_match": true}, {"name": "b", "present_match": true},
            ]})
        ),
    ])));
    assert_eq!(ask(&proxy, "DELETE", "test", "/", "").text(), "delete");
    assert_eq!(ask(&proxy, "GET", "one.test", "/", "").text(), "host");
    assert_eq!(ask(&proxy, "GET", "test", "/?q=1", "").text(), "path");
    assert_eq!(ask(&proxy, "GET", "test", "/", "a: 1\r\nb: 1\r\n").text(), "all");
    assert_eq!(ask(&proxy, "GET", "test", "/", "a: 1\r\n").status, 404);
}

#[test]
fn query_parameters_are_matched() {
    let query = |name: &str, parameter: Value| {
        named(name, json!({"path": format!("/{name}"), "query_parameters": [parameter]}))
    };
    check_routes(
        json!([
            query("exact", json!({"name": "k", "string_match": {"exact": "v"}})),
            query("present", json!({"name": "k", "present_match": true})),
            query("regex", json!({"name": "k", "string_match": {"safe_regex": {"regex": "[0-9]+"}}})),
            query("prefix", json!({"name": "k", "string_match": {"prefix": "v"}})),
            named(
                "two",
                json!({"path": "/two", "query_parameters": [
                    {"name": "a", "present_match": true}, {"name": "b", "string_match": {"exact": "2"}},
                ]})
            ),
        ]),
        &[
            ("", "/exact?k=v", "exact"),
            ("", "/exact?a=b&k=v", "exact"),
            ("", "/exact?k=V", "404"),
            ("", "/exact?k=v&k=x", "exact"),
            ("", "/exact?k=x&k=v", "404"),
            ("", "/exact", "404"),
            ("", "/exact?kk=v", "404"),
            ("", "/present?k", "present"),
            ("", "/present?k=", "present"),
            ("", "/present?k=1", "present"),
            ("", "/present?x=k", "404"),
            ("", "/regex?k=12", "regex"),
            ("", "/regex?k=12a", "404"),
            ("", "/prefix?k=vv", "prefix"),
            ("", "/two?a&b=2", "two"),
            ("", "/two?b=2", "404"),
        ],
    );
}

#[test]
fn weighted_clusters_share_by_weight() {
    let (blue, green, none) = (Origin::echo("blue"), Origin::echo("green"), Origin::echo("none"));
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"weighted_clusters": {"clusters": [
        {"name": "blue", "weight": 75}, {"name": "none", "weight": 0}, {"name": "green", "weight": 25,
         "request_headers_to_add": [{"header": {"key": "x-arm", "value": "green"}}],
         "response_headers_to_add": [{"header": {"key": "x-arm", "value": "green"}}]},
    ]}}}]))
    .cluster("blue", &[blue.address])
    .cluster("green", &[green.address])
    .cluster("none", &[none.address]);
    let proxy = Proxy::start(&config);
    let mut client = proxy.client();
    let mut count = BTreeMap::new();
    for _ in 0..800 {
        let response = client.exchange(get("/"));
        let name = response.header("x-origin").to_string();
        assert_eq!(response.header("x-arm") == "green", name == "green");
        assert_eq!(response.text().contains("x-arm: green"), name == "green");
        *count.entry(name).or_insert(0) += 1;
    }
    // 600 expected; six standard deviations are 74.
    assert!((526..=674).contains(&count["blue"]), "{count:?}");
    assert_eq!(count["blue"] + count["green"], 800);
}

#[test]
fn round_robin_visits_every_endpoint_in_turn() {
    let origins: Vec<Origin> = (0..3).map(|n| Origin::echo(&n.to_string())).collect();
    let addresses: Vec<_> = origins.iter().map(|origin| origin.address).collect();
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "three"}}])).cluster_with(
        "three",
        &addresses,
        json!({"lb_policy": "ROUND_ROBIN"}),
    );
    let proxy = Proxy::start(&config);
    let mut client = proxy.client();
    let visits: Vec<String> = (0..9).map(|_| client.exchange(get("/")).header("x-origin").to_string()).collect();
    for window in visits.windows(3) {
        let mut distinct = window.to_vec();
        distinct.sort();
        assert_eq!(distinct, ["0", "1", "2"], "{visits:?}");
    }
}

#[test]
fn least_request_and_random_reach_every_endpoint() {
    for policy in ["LEAST_REQUEST", "RANDOM"] {
        let origins: Vec<Origin> = (0..3).map(|n| Origin::echo(&n.to_string())).collect();
        let addresses: Vec<_> = origins.iter().map(|origin| origin.address).collect();
        let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "three"}}])).cluster_with(
            "three",
            &addresses,
            json!({"lb_policy": policy}),
        );
        let proxy = Proxy::start(&config);
        let mut client = proxy.client();
        for _ in 0..200 {
            assert_eq!(client.exchange(get("/")).status, 200);
        }
        for origin in &origins {
            assert!(origin.requests().len() >= 20, "{policy}");
        }
    }
}

#[test]
fn a_name_resolves_to_the_endpoint() {
    for kind in ["STRICT_DNS", "LOGICAL_DNS"] {
        let origin = Origin::echo("dns");
        let endpoint = json!({"endpoint": {"address": {"socket_address": {
            "address": "localhost", "port_value": origin.address.port(),
        }}}});
        let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "named"}}])).cluster_with(
            "named",
            &[],
            json!({
                "type": kind,
                "dns_lookup_family": "V4_ONLY",
                "load_assignment": {"endpoints": [{"lb_endpoints": [endpoint]}]},
            }),
        );
        let proxy = Proxy::start(&config);
        assert_eq!(proxy.get("/").header("x-origin"), "dns", "{kind}");
    }
}

#[test]
fn redirects_rewrite_what_they_name_and_keep_the_rest() {
    let redirects: &[(&str, Value, u16, &str)] = &[
        ("/host", json!({"host_redirect": "new.test"}), 301, "http://new.test/host/x?q=1"),
        ("/path", json!({"path_redirect": "/there"}), 301, "http://test/there?q=1"),
        ("/pathq", json!({"path_redirect": "/there?z=2"}), 301, "http://test/there?z=2"),
        ("/prefix", json!({"prefix_rewrite": "/p"}), 301, "http://test/p/x?q=1"),
        ("/https", json!({"https_redirect": true}), 301, "https://test/https/x?q=1"),
        ("/scheme", json!({"scheme_redirect": "https"}), 301, "https://test/scheme/x?q=1"),
        ("/port", json!({"port_redirect": 8443}), 301, "http://test:8443/port/x?q=1"),
        ("/strip", json!({"strip_query": true, "path_redirect": "/s"}), 301, "http://test/s"),
        ("/302", json!({"host_redirect": "h", "response_code": "FOUND"}), 302, "http://h/302/x?q=1"),
        ("/303", json!({"host_redirect": "h", "response_code": "SEE_OTHER"}), 303, "http://h/303/x?q=1"),
        ("/307", json!({"host_redirect": "h", "response_code": "TEMPORARY_REDIRECT"}), 307, "http://h/307/x?q=1"),
        ("/308", json!({"host_redirect": "h", "response_code": "PERMANENT_REDIRECT"}), 308, "http://h/308/x?q=1"),
        (
            "/all",
            json!({"scheme_redirect": "https", "host_redirect": "h", "port_redirect": 1, "prefix_rewrite": "/z"}),
            301,
            "https://h:1/z/x?q=1",
        ),
        (
            "/regex",
            json!({"regex_rewrite": {"pattern": {"regex": "^/regex/(.*)$"}, "substitution": "/\\1/end"}}),
            301,
            "http://test/x/end?q=1",
        ),
    ];
    let routes: Vec<Value> = redirects
        .iter()
        .map(|(prefix, redirect, ..)| json!({"match": {"path_separated_prefix": prefix}, "redirect": redirect}))
        .collect();
    let proxy = Proxy::start(&Config::routes(Value::Array(routes)));
    for (prefix, _, status, location) in redirects {
        let response = ask(&proxy, "GET", "test", &format!("{prefix}/x?q=1"), "");
        assert_eq!(response.status, *status, "{prefix}");
        assert_eq!(response.header("location"), *location, "{prefix}");
        assert_eq!(response.text(), "", "{prefix}");
    }
}

#[test]
fn a_redirect_to_another_scheme_drops_the_old_default_port() {
    let proxy = Proxy::start(&Config::routes(json!([
        {"match": {"prefix": "/"}, "redirect": {"https_redirect": true}},
    ])));
    assert_eq!(ask(&proxy, "GET", "test:80", "/a", "").header("location"), "https://test/a");
    assert_eq!(ask(&proxy, "GET", "test:8080", "/a", "").header("location"), "https://test:8080/a");
}

#[test]
fn direct_responses_carry_status_body_and_headers() {
    let proxy = Proxy::start(&Config::routes(json!([
        {"match": {"path": "/text"}, "direct_response": {"status": 418, "body": {"inline_string": "teapot"}},
         "response_headers_to_add": [{"header": {"key": "x-a", "value": "b"}}]},
        {"match": {"path": "/bytes"}, "direct_response": {"status": 200, "body": {"inline_bytes": "aGk="}}},
        {"match": {"path": "/empty"}, "direct_response": {"status": 204}},
    ])));
    let text = proxy.get("/text");
    assert_eq!((text.status, text.text(), text.header("x-a")), (418, "teapot", "b"));
    assert_eq!(text.header("content-type"), "text/plain");
    assert_eq!(proxy.get("/bytes").text(), "hi");
    assert_eq!(proxy.get("/empty").status, 204);
    let mut client = proxy.client();
    let head = client.exchange("HEAD /text HTTP/1.1\r\nhost: test\r\n\r\n");
    assert_eq!((head.status, head.header("content-length")), (418, "6"));
    assert_eq!(client.exchange(get("/text")).text(), "teapot");
}

#[test]
fn rewrites_change_path_and_host_for_the_origin_only() {
    let origin = Origin::echo("a");
    let route = |prefix: &str, action: Value| {
        let mut action = action;
        action["cluster"] = json!("origin");
        json!({"match": {"prefix": prefix}, "route": action})
    };
    let config = Config::routes(json!([
        route("/pre/", json!({"prefix_rewrite": "/"})),
        route("/longer", json!({"prefix_rewrite": "/now/much/longer"})),
        route("/regex/", json!({"regex_rewrite": {"pattern": {"regex": "^/regex/([^/]+)/(.*)"}, "substitution": "/\\2/of/\\1"}})),
        route("/host", json!({"host_rewrite_literal": "inner.test"})),
        {"match": {"path": "/whole"}, "route": {"cluster": "origin", "prefix_rewrite": "/part"}},
        route("/", json!({})),
    ]))
    .cluster("origin", &[origin.address]);
    let proxy = Proxy::start(&config);
    for (path, target, host) in [
        ("/pre/a?b=c", "/a?b=c", "test"),
        ("/longer/x", "/now/much/longer/x", "test"),
        ("/regex/one/two?q", "/two/of/one?q", "test"),
        ("/host/x", "/host/x", "inner.test"),
        ("/whole?z", "/part?z", "test"),
        ("/plain?/../x", "/plain?/../x", "test"),
    ] {
        let response = proxy.get(path);
        let lines: Vec<&str> = response.text().lines().collect();
        assert_eq!(lines[0], format!("GET {target} HTTP/1.1"), "{path}");
        assert!(lines.contains(&format!("host: {host}").as_str()), "{path}: {lines:?}");
        let original = format!("x-envoy-original-path: {path}");
        assert_eq!(lines.contains(&original.as_str()), !path.starts_with(target), "{path}: {lines:?}");
    }
}

#[test]
fn header_edits_apply_from_route_to_listener_and_expand_commands() {
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx-drop: 1\r\nx-keep: origin\r\n\r\n");
    let add =
        |key: &str, value: &str, action: &str| json!({"header": {"key": key, "value": value}, "append_action": action});
    let config = Config::new()
        .http(json!({"route_config": {
            "request_headers_to_add": [add("x-order", "config", "APPEND_IF_EXISTS_OR_ADD")],
            "response_headers_to_add": [add("x-order", "config", "APPEND_IF_EXISTS_OR_ADD")],
            "request_headers_to_remove": ["x-secret"],
            "virtual_hosts": [{"name": "all", "domains": ["*"],
                "request_headers_to_add": [add("x-order", "vhost", "APPEND_IF_EXISTS_OR_ADD")],
                "response_headers_to_add": [add("x-order", "vhost", "APPEND_IF_EXISTS_OR_ADD")],
                "response_headers_to_remove": ["x-drop"],
                "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "origin"}, "name": "the-route",
                    "request_headers_to_add": [
                        add("x-order", "route", "APPEND_IF_EXISTS_OR_ADD"),
                        add("x-over", "new", "OVERWRITE_IF_EXISTS_OR_ADD"),
                        add("x-if-there", "new", "OVERWRITE_IF_EXISTS"),
                        add("x-if-absent", "new", "ADD_IF_ABSENT"),
                        add("x-client", "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%", "OVERWRITE_IF_EXISTS_OR_ADD"),
                        add("x-from", "%REQ(X-SOURCE)%-%REQ(absent?x-source)%", "OVERWRITE_IF_EXISTS_OR_ADD"),
                        add("x-cut", "%REQ(x-source):3%", "OVERWRITE_IF_EXISTS_OR_ADD"),
                        add("x-percent", "100%%", "OVERWRITE_IF_EXISTS_OR_ADD"),
                        add("x-proto", "%PROTOCOL%", "OVERWRITE_IF_EXISTS_OR_ADD"),
                        add("x-route", "%ROUTE_NAME%", "OVERWRITE_IF_EXISTS_OR_ADD"),
                        add("x-empty", "%REQ(absent)%", "OVERWRITE_IF_EXISTS_OR_ADD"),
                    ],
                    "response_headers_to_add": [
                        add("x-order", "route", "APPEND_IF_EXISTS_OR_ADD"),
                        add("x-host", "%UPSTREAM_HOST%", "OVERWRITE_IF_EXISTS_OR_ADD"),
                        add("x-code", "%RESPONSE_CODE%", "OVERWRITE_IF_EXISTS_OR_ADD"),
                        add("x-keep", "proxy", "APPEND_IF_EXISTS_OR_ADD"),
                    ],
                }],
            }],
        }}))
        .cluster("origin", &[origin.address]);
    let proxy = Proxy::start(&config);
    let fields = "x-secret: s\r\nx-over: old\r\nx-if-there: old\r\nx-if-absent: old\r\nx-source: source\r\n";
    let response = ask(&proxy, "GET", "test", "/", fields);
    let seen = &origin.requests()[0].headers;
    assert_eq!(seen.values("x-order"), ["route", "vhost", "config"]);
    assert_eq!(seen.values("x-secret"), Vec::<&str>::new());
    assert_eq!(seen.values("x-over"), ["new"]);
    assert_eq!(seen.values("x-if-there"), ["new"]);
    assert_eq!(seen.values("x-if-absent"), ["old"]);
    assert_eq!(seen.values("x-client"), ["127.0.0.1"]);
    assert_eq!(seen.values("x-from"), ["source-source"]);
    assert_eq!(seen.values("x-cut"), ["sou"]);
    assert_eq!(seen.values("x-percent"), ["100%"]);
    assert_eq!(seen.values("x-proto"), ["HTTP/1.1"]);
    assert_eq!(seen.values("x-route"), ["the-route"]);
    assert_eq!(seen.values("x-empty"), Vec::<&str>::new());
    assert_eq!(response.headers.values("x-order"), ["route", "vhost", "config"]);
    assert_eq!(response.headers.values("x-drop"), Vec::<&str>::new());
    assert_eq!(response.header("x-host"), origin.address.to_string());
    assert_eq!(response.header("x-code"), "200");
    assert_eq!(response.headers.values("x-keep"), ["origin", "proxy"]);
}

#[test]
fn the_most_specific_header_edit_can_be_made_the_last() {
    let origin = Origin::echo("a");
    let add = |value: &str| json!([{"header": {"key": "x-who", "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}]);
    for (most_specific, winner) in [(false, "config"), (true, "route")] {
        let config = Config::new()
            .http(json!({"route_config": {
                "most_specific_header_mutations_wins": most_specific,
                "request_headers_to_add": add("config"),
                "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
                    {"match": {"prefix": "/"}, "route": {"cluster": "origin"}, "request_headers_to_add": add("route")},
                ]}],
            }}))
            .cluster("origin", &[origin.address]);
        let proxy = Proxy::start(&config);
        assert!(proxy.get("/").text().contains(&format!("x-who: {winner}\r\n")));
    }
}

#[test]
fn a_route_timeout_is_504_with_its_body_and_frees_the_origin() {
    let origin = Origin::silent();
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin", "timeout": "0.1s"}}]))
        .cluster("origin", &[origin.address]);
    let proxy = Proxy::start(&config);
    let mut client = proxy.client();
    let response = client.exchange(get("/"));
    assert_eq!((response.status, response.text()), (504, "upstream request timeout"));
    assert_eq!(client.exchange(get("/")).status, 504);
    origin.wait_open_at_most(0);
    assert_eq!(proxy.stats().value("cluster.origin.upstream_rq_timeout"), 2);
}

#[test]
fn a_missing_cluster_is_503_or_what_the_route_says() {
    let config = Config::new().http(json!({"route_config": {"validate_clusters": false, "virtual_hosts": [
        {"name": "all", "domains": ["*"], "routes": [
            {"match": {"prefix": "/404"}, "route": {"cluster": "nowhere", "cluster_not_found_response_code": "NOT_FOUND"}},
            {"match": {"prefix": "/header"}, "route": {"cluster_header": "x-cluster"}},
            {"match": {"prefix": "/"}, "route": {"cluster": "nowhere"}},
        ]},
    ]}}));
    let proxy = Proxy::start(&config);
    let response = proxy.get("/");
    assert_eq!((response.status, response.text()), (503, ""));
    assert_eq!(proxy.get("/404").status, 404);
    assert_eq!(ask(&proxy, "GET", "test", "/header", "x-cluster: none\r\n").status, 503);
}

#[test]
fn a_cluster_without_endpoints_is_503_no_healthy_upstream() {
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "empty"}}])).cluster_with(
        "empty",
        &[],
        json!({"load_assignment": {"endpoints": []}}),
    );
    let proxy = Proxy::start(&config);
    let response = proxy.get("/");
    assert_eq!((response.status, response.text()), (503, "no healthy upstream"));
    assert_eq!(proxy.stats().value("cluster.empty.upstream_cx_none_healthy"), 1);
}

#[test]
fn failures_to_reach_the_origin_name_their_reason() {
    let refused = net::refusing_address();
    let dropping = Origin::start(|connection| {
        connection.request();
    });
    let resetting = Origin::start(|connection| {
        connection.request();
        connection.reset();
    });
    let rubbish = Origin::fixed("rubbish\r\n\r\n");
    let config = Config::routes(json!([
        {"match": {"prefix": "/refused"}, "route": {"cluster": "refused"}},
        {"match": {"prefix": "/dropped"}, "route": {"cluster": "dropping"}},
        {"match": {"prefix": "/reset"}, "route": {"cluster": "resetting"}},
        {"match": {"prefix": "/rubbish"}, "route": {"cluster": "rubbish"}},
    ]))
    .cluster("refused", &[refused])
    .cluster("dropping", &[dropping.address])
    .cluster("resetting", &[resetting.address])
    .cluster("rubbish", &[rubbish.address]);
    let proxy = Proxy::start(&config);
    let start = "upstream connect error or disconnect/reset before headers. reset reason: ";
    for (path, status, reason) in [
        ("/refused", 503, "remote connection failure"),
        ("/dropped", 503, "connection termination"),
        ("/reset", 503, "connection termination"),
        ("/rubbish", 502, "protocol error"),
    ] {
        let response = proxy.get(path);
        assert_eq!(response.status, status, "{path}");
        let text = response.text();
        assert!(text.starts_with(start), "{path}: {text}");
        // Envoy may go on with the transport's own words.
        assert!(text[start.len()..].starts_with(reason), "{path}: {text}");
        assert_eq!(response.header("content-type"), "text/plain");
    }
    assert_eq!(proxy.stats().value("cluster.refused.upstream_cx_connect_fail"), 1);
}

#[test]
fn beyond_the_circuit_breaker_requests_are_shed_at_once() {
    let origin = Origin::silent();
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin", "timeout": "0s"}}]))
        .cluster_with(
            "origin",
            &[origin.address],
            json!({"circuit_breakers": {"thresholds": [
                {"max_connections": 1, "max_pending_requests": 1, "max_requests": 1},
            ]}}),
        );
    let proxy = Proxy::start(&config);
    let mut first = proxy.client();
    first.send(get("/first"));
    origin.wait_connections(1);
    proxy.wait_stat("cluster.origin.upstream_rq_active", 1);
    let mut second = proxy.client();
    second.send(get("/second"));
    proxy.wait_stat("cluster.origin.upstream_rq_pending_active", 1);
    let response = proxy.get("/third");
    assert_eq!(response.status, 503);
    assert_eq!(response.text(), "upstream connect error or disconnect/reset before headers. reset reason: overflow");
    assert_eq!(response.header("x-envoy-overloaded"), "true");
    assert_eq!(proxy.stats().value("cluster.origin.upstream_rq_pending_overflow"), 1);
    assert_eq!(origin.connection_count(), 1);
    drop((first, second));
    proxy.wait_stat("cluster.origin.upstream_rq_pending_active", 0);
}

#[test]
fn ten_thousand_routes_still_mean_first_match_wins() {
    let mut routes: Vec<Value> =
        (0..10_000).map(|n| named(&format!("r{n}"), json!({"prefix": format!("/service-{n}/")}))).collect();
    routes.insert(5_000, named("early", json!({"path": "/service-9999/early"})));
    routes.push(named("late", json!({"path": "/service-1/late"})));
    routes.push(named("rest", json!({"prefix": "/"})));
    let proxy = Proxy::start(&Config::routes(Value::Array(routes)));
    let mut client = proxy.client();
    for (path, expected) in [
        ("/service-0/x", "r0"),
        ("/service-9999/x", "r9999"),
        ("/service-9999/early", "early"),
        ("/service-1/late", "r1"),
        ("/service-10000/x", "rest"),
        ("/service-1", "rest"),
    ] {
        assert_eq!(client.exchange(get(path)).text(), expected, "{path}");
    }
}

#[test]
fn an_origin_that_comes_back_is_used_again() {
    let address = net::refusing_address();
    let proxy = Proxy::start(&Config::proxy_to(address));
    assert_eq!(proxy.get("/").status, 503);
    let origin = Origin::start_at(address, |connection| {
        while connection.request().is_some() {
            connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        }
    });
    assert_eq!(proxy.get("/").status, 200);
    origin.kill();
    origin.wait_open_at_most(0);
    wait_until("refused again", || RawClient::once(proxy.address("http"), get("/")).is_ok_and(|r| r.status == 503));
}
