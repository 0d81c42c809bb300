//! An absent field means the safe value; an explicit one means exactly what it
//! means in Envoy. Each safe default has one line of YAML that brings Envoy's
//! own back, and these are those lines.

use postrider_tests::kit::{Config, Origin, Proxy};
use postrider_tests::{ask, envoy, get};
use serde_json::{Value, json};

/// What the origin saw for each path, or the status when it saw nothing.
fn forwarded(hcm: Value, paths: &[&str]) -> Vec<String> {
    let origin = Origin::echo("a");
    let proxy = Proxy::start(&Config::proxy_to(origin.address).overlay_filter("http", hcm));
    paths
        .iter()
        .map(|path| {
            let response = proxy.get(path);
            match (response.status, response.text().split(' ').nth(1)) {
                (200, Some(target)) => target.to_string(),
                (307, _) => format!("307 {}", response.header("location")),
                (status, _) => status.to_string(),
            }
        })
        .collect()
}

#[test]
fn paths_are_left_alone_when_told_so() {
    let off = json!({
        "normalize_path": false,
        "merge_slashes": false,
        "path_with_escaped_slashes_action": "KEEP_UNCHANGED",
    });
    let paths =
        ["/x/../y", "//a///b", "/%61", "/x%2f..%2fy", "/x/..%5cy", "/x\\y", "/x%zz", "/x%2", "/x%c0%ae", "/plain"];
    assert_eq!(forwarded(off, &paths), paths);
}

#[test]
fn normalisation_and_merging_are_separate_switches() {
    let only_merge = json!({"normalize_path": false, "merge_slashes": true});
    assert_eq!(forwarded(only_merge, &["/x/../y", "//a///b"]), ["/x/../y", "/a/b"]);
    let only_normalise = json!({"normalize_path": true, "merge_slashes": false});
    assert_eq!(forwarded(only_normalise, &["/x/../y", "/a//b", "/%61"]), ["/y", "/a//b", "/a"]);
    let both = json!({"normalize_path": true, "merge_slashes": true});
    assert_eq!(forwarded(both, &["/x/../y", "//a///b", "/a/%2e%2e/b"]), ["/y", "/a/b", "/b"]);
}

#[test]
fn escaped_slashes_follow_their_action() {
    let action = |action: &str| json!({"normalize_path": true, "merge_slashes": true, "path_with_escaped_slashes_action": action});
    let paths = ["/a%2fb", "/a%5Cb", "/a/b"];
    assert_eq!(forwarded(action("KEEP_UNCHANGED"), &["/a%2fb", "/a/b"]), ["/a%2fb", "/a/b"]);
    assert_eq!(forwarded(action("REJECT_REQUEST"), &paths), ["400", "400", "/a/b"]);
    assert_eq!(forwarded(action("UNESCAPE_AND_FORWARD"), &["/a%2Fb", "/x%2f..%2fy"]), ["/a/b", "/y"]);
    assert_eq!(forwarded(action("UNESCAPE_AND_REDIRECT"), &["/a%2fb?q=%2f", "/a/b"]), ["307 /a/b?q=%2f", "/a/b"]);
}

#[test]
fn routes_see_the_path_that_is_forwarded() {
    let origin = Origin::echo("a");
    let guarded = json!([
        {"match": {"prefix": "/admin"}, "direct_response": {"status": 403}},
        {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]);
    // Whatever an operator wrote first must already hold the guard.
    let mut config = Config::routes(guarded).cluster("origin", &[origin.address]);
    if envoy() {
        config = config.overlay_filter("http", json!({"normalize_path": true, "merge_slashes": true}));
    }
    let proxy = Proxy::start(&config);
    for path in ["/admin", "/x/../admin", "//admin", "/%61dmin", "/./admin", "/x/%2e%2e/admin", "/x/..//admin/x"] {
        assert_eq!(proxy.get(path).status, 403, "{path}");
    }
    assert_eq!(origin.connection_count(), 0);
}

#[test]
fn underscores_follow_their_action() {
    let action = |action: &str| json!({"common_http_protocol_options": {"headers_with_underscores_action": action}});
    for (action, expected) in [
        (action("ALLOW"), Some((true, true))),
        (action("REJECT_REQUEST"), None),
        (action("DROP_HEADER"), Some((false, false))),
    ] {
        let origin = Origin::echo("a");
        let proxy = Proxy::start(&Config::proxy_to(origin.address).overlay_filter("http", action.clone()));
        let response = ask(&proxy, "GET", "test", "/", "my_field: 1\r\nx_forwarded_for: 1.2.3.4\r\n");
        match expected {
            None => assert_eq!(response.status, 400, "{action}"),
            Some(seen) => {
                let headers = &origin.requests()[0].headers;
                let got = (headers.contains("my_field"), headers.contains("x_forwarded_for"));
                assert_eq!(got, seen, "{action}");
            }
        }
    }
}

#[test]
fn limits_on_heads_can_be_moved() {
    let origin = Origin::echo("a");
    let fields = |count: usize, size: usize| -> String {
        (0..count).map(|n| format!("x-{n}: {}\r\n", "v".repeat(size))).collect()
    };
    for (hcm, count, size, status) in [
        (json!({"max_request_headers_kb": 8}), 1, 9_000, 431),
        (json!({"max_request_headers_kb": 96}), 1, 80_000, 200),
        (json!({"common_http_protocol_options": {"max_headers_count": 10}}), 11, 1, 431),
        (json!({"common_http_protocol_options": {"max_headers_count": 300}}), 250, 1, 200),
    ] {
        let proxy = Proxy::start(&Config::proxy_to(origin.address).overlay_filter("http", hcm.clone()));
        assert_eq!(ask(&proxy, "GET", "test", "/", &fields(count, size)).status, status, "{hcm}");
    }
}

#[test]
fn connections_are_spread_exactly_when_asked() {
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "direct_response": {"status": 200}}]))
        .overlay_listener(
            "http",
            json!({
                "address": {"socket_address": {"port_value": postrider_tests::kit::net::free_port()}},
                "connection_balance_config": {"exact_balance": {}},
            }),
        );
    let launch = postrider_tests::kit::proxy::Launch { concurrency: 2, ..Default::default() };
    let proxy = Proxy::start_with(&config, launch);
    let address = proxy.address("http");
    let mut clients: Vec<_> = (0..20).map(|_| proxy.client()).collect();
    for client in &mut clients {
        assert_eq!(client.exchange(get("/")).status, 200);
    }
    let name = format!("listener.{}", address.to_string().replace(':', "_"));
    let stats = proxy.stats();
    for worker in 0..2 {
        assert_eq!(stats.value(&format!("{name}.worker_{worker}.downstream_cx_active")), 10, "worker {worker}");
    }
    assert_eq!(stats.value(&format!("{name}.downstream_cx_active")), 20);
}

#[test]
fn a_listener_accepts_no_more_connections_than_its_limit() {
    let port = postrider_tests::kit::net::free_port();
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "direct_response": {"status": 200}}]))
        .overlay_listener("http", json!({"address": {"socket_address": {"port_value": port}}}))
        .overlay(json!({"layered_runtime": {"layers": [{
            "name": "static", "static_layer": {"envoy.resource_limits.listener.http.connection_limit": 2},
        }]}}));
    let proxy = Proxy::start(&config);
    let mut first = proxy.client();
    let mut second = proxy.client();
    assert_eq!(first.exchange(get("/")).status, 200);
    assert_eq!(second.exchange(get("/")).status, 200);
    assert!(proxy.client().closed());
    let name = format!("listener.127.0.0.1_{port}.downstream_cx_overflow");
    assert_eq!(proxy.stats().value(&name), 1);
    drop(first);
    postrider_tests::kit::wait_until("a place is free", || {
        let mut client = proxy.client();
        client.send(get("/"));
        client.response("GET").is_ok()
    });
}

#[test]
fn answers_carry_date_and_server() {
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\nserver: origin/1\r\ncontent-length: 0\r\n\r\n");
    for (hcm, expected) in [
        (json!({}), None),
        (json!({"server_name": "gate"}), Some("gate")),
        (json!({"server_header_transformation": "PASS_THROUGH"}), Some("origin/1")),
        (json!({"server_name": "gate", "server_header_transformation": "APPEND_IF_ABSENT"}), Some("origin/1")),
    ] {
        let proxy = Proxy::start(&Config::proxy_to(origin.address).overlay_filter("http", hcm.clone()));
        let response = proxy.get("/");
        match expected {
            Some(server) => assert_eq!(response.headers.values("server"), [server], "{hcm}"),
            // The proxy's own name, once.
            None => assert!(response.headers.values("server").len() == 1 && response.header("server") != "origin/1"),
        }
        let date = response.header("date");
        assert_eq!(date.len(), "Sun, 06 Nov 1994 08:49:37 GMT".len(), "{date}");
        assert!(date.ends_with(" GMT"), "{date}");
    }
}
