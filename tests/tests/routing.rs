//! Which route a request takes.

use postrider_tests::kit::{Config, Origin, Proxy};
use postrider_tests::{ask, envoy, get, named_route as named};
use serde_json::{Value, json};

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
fn a_port_may_be_stripped_where_it_is_that_of_the_listener() {
    let origin = Origin::echo("a");
    let proxy = Proxy::start(
        &Config::proxy_to(origin.address).overlay_filter("http", json!({"strip_matching_host_port": true})),
    );
    let port = proxy.address("http").port();
    for (asked, told) in [
        (format!("one.test:{port}"), "one.test".to_owned()),
        (format!("one.test:{}", port - 1), format!("one.test:{}", port - 1)),
        ("one.test".to_owned(), "one.test".to_owned()),
        (format!("[::1]:{port}"), "[::1]".to_owned()),
        ("[::1]".to_owned(), "[::1]".to_owned()),
    ] {
        origin.forget();
        assert_eq!(ask(&proxy, "GET", &asked, "/", "").status, 200);
        assert_eq!(origin.requests()[0].header("host"), told, "{asked}");
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
