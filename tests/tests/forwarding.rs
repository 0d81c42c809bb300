//! From a route to an origin: clusters, weights, load balancing, and what the
//! client is told when no origin can be reached.

use postrider_tests::kit::config::{extension, router};
use postrider_tests::kit::{Config, Gate, Origin, Proxy, RawClient, net, wait_until};
use postrider_tests::{ask, get};
use serde_json::json;
use std::collections::BTreeMap;

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
fn where_a_request_says_that_it_goes_is_settled_before_filters_change_it() {
    let [blue, red] = [Origin::echo("blue"), Origin::echo("red")];
    let value =
        json!({"header": {"key": "x-to", "value": "%REQ(x-then)%"}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"});
    let changes = extension(
        "changes",
        "filters.http.header_mutation.v3.HeaderMutation",
        json!({"mutations": {"request_mutations": [{"append": value}]}}),
    );
    let to = |cluster: &str| json!({"action": extension("to", "router.cluster_specifiers.matcher.v3.ClusterAction", json!({"cluster": cluster}))});
    let input = json!({"name": "input", "typed_config": {
        "@type": "type.googleapis.com/envoy.type.matcher.v3.HttpRequestHeaderMatchInput", "header_name": "x-to",
    }});
    let is_red = json!({"single_predicate": {"input": input, "value_match": {"exact": "red"}}});
    let matchers = json!([{"predicate": is_red, "on_match": to("red")}]);
    let chooser = extension(
        "chooser",
        "router.cluster_specifiers.matcher.v3.MatcherClusterSpecifier",
        json!({"cluster_matcher": {"matcher_list": {"matchers": matchers}, "on_no_match": to("blue")}}),
    );
    let config = Config::new()
        .http(json!({
            "http_filters": [changes, router()],
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
                {"match": {"path": "/header"}, "route": {"cluster_header": "x-to"}},
                {"match": {"path": "/drawn"}, "route": {"weighted_clusters": {"clusters": [
                    {"cluster_header": "x-to", "weight": 1},
                ]}}},
                {"match": {"path": "/asked"}, "route": {"inline_cluster_specifier_plugin": {"extension": chooser}}},
            ]}]},
        }))
        .cluster("blue", &[blue.address])
        .cluster("red", &[red.address]);
    let proxy = Proxy::start(&config);
    for path in ["/header", "/drawn", "/asked"] {
        for (first, then) in [("blue", "red"), ("red", "blue")] {
            let answer = ask(&proxy, "GET", "test", path, &format!("x-to: {first}\r\nx-then: {then}\r\n"));
            assert_eq!((answer.status, answer.header("x-origin")), (200, first), "{path}");
            assert!(answer.text().contains(&format!("x-to: {then}\r\n")), "{path}: the change goes on");
        }
        let late = ask(&proxy, "GET", "test", path, "x-then: red\r\n");
        let wanted = if path == "/asked" { (200, "blue") } else { (503, "") };
        assert_eq!((late.status, late.header("x-origin")), wanted, "{path}");
    }
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
    // Resets: a client that only closes its side may still want the answer.
    first.reset();
    second.reset();
    proxy.wait_stat("cluster.origin.upstream_rq_pending_active", 0);
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

#[test]
fn a_request_waits_for_a_connection_within_the_breaker() {
    let gate = Gate::default();
    let opened = gate.clone();
    let origin = Origin::start(move |connection| {
        while let Some(request) = connection.request() {
            if request.target == "/first" {
                opened.wait();
            }
            connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        }
    });
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}])).cluster_with(
        "origin",
        &[origin.address],
        json!({"circuit_breakers": {"thresholds": [{"max_connections": 1}]}}),
    );
    let proxy = Proxy::start(&config);
    let mut clients: Vec<RawClient> = (0..4).map(|_| proxy.client()).collect();
    clients[0].send(get("/first"));
    origin.wait_requests(1);
    for client in &mut clients[1..] {
        client.send(get("/next"));
    }
    proxy.wait_stat("cluster.origin.upstream_rq_pending_active", 3);
    assert_eq!(proxy.stats().value("cluster.origin.circuit_breakers.default.cx_open"), 1);
    gate.open();
    for client in &mut clients {
        assert_eq!(client.response("GET").unwrap().text(), "ok");
    }
    assert_eq!(origin.connection_count(), 1);
}
