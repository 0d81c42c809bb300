//! What a route does with a request: redirects, own answers, rewrites, header
//! edits.

use postrider_tests::kit::{Config, Origin, Proxy};
use postrider_tests::{ask, get};
use serde_json::{Value, json};

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
