//! Connections that are made before a request needs them. The same holds of Envoy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use postrider_tests::h2_origin::H2Origin;
use postrider_tests::kit::config::{self, Config};
use postrider_tests::kit::{Origin, Proxy, RawClient};
use serde_json::{Value, json};

fn config(origins: &[&Origin], cluster: Value) -> Config {
    let addresses: Vec<_> = origins.iter().map(|origin| origin.address).collect();
    Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]))
        .cluster_with("origin", &addresses, cluster)
}

/// Answers once it is told to.
fn patient() -> (Origin, Arc<AtomicBool>) {
    let told = Arc::new(AtomicBool::new(false));
    let tell = told.clone();
    let origin = Origin::start(move |connection| {
        while connection.request().is_some() {
            while !told.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            if !connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n") {
                return;
            }
        }
    });
    (origin, tell)
}

fn quick() -> Origin {
    Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
}

/// A request on a connection of its own that is not answered yet.
fn begin(proxy: &Proxy) -> RawClient {
    let mut client = proxy.client();
    client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n");
    client
}

fn connections(proxy: &Proxy) -> u64 {
    proxy.stats().value("cluster.origin.upstream_cx_total")
}

#[test]
fn each_request_makes_room_for_those_to_come() {
    for (ratio, after) in [(1.0, [1, 2, 3, 4]), (1.5, [2, 3, 5, 6]), (2.0, [2, 4, 6, 8]), (3.0, [3, 6, 9, 12])] {
        let (origin, answer) = patient();
        let policy = json!({"preconnect_policy": {"per_upstream_preconnect_ratio": ratio}});
        let proxy = Proxy::start(&config(&[&origin], policy));
        let mut clients = Vec::new();
        for (index, expected) in after.into_iter().enumerate() {
            clients.push(begin(&proxy));
            origin.wait_requests(index + 1);
            origin.wait_connections(expected);
            assert_eq!(connections(&proxy), expected as u64, "{ratio}");
        }
        answer.store(true, Ordering::SeqCst);
        for client in &mut clients {
            assert_eq!(client.response("GET").expect("an answer").status, 200);
        }
        // Now there is room enough: nothing more is made.
        for _ in 0..3 {
            assert_eq!(proxy.get("/").status, 200);
        }
        assert_eq!(connections(&proxy), after[3] as u64, "{ratio}");
    }
}

#[test]
fn a_connection_that_waits_is_taken_and_replaced() {
    let origin = quick();
    let policy = json!({"preconnect_policy": {"per_upstream_preconnect_ratio": 2}});
    let fields = json!({"common_http_protocol_options": {"max_requests_per_connection": 1}});
    let mut cluster = config::upstream_http_options(fields);
    config::overlay(&mut cluster, policy);
    let proxy = Proxy::start(&config(&[&origin], cluster));
    for request in 1..=5 {
        assert_eq!(proxy.get("/").status, 200);
        // Each request uses one up; the one beside it is there before the next comes.
        proxy.wait_stat("cluster.origin.upstream_cx_total", request + 1);
        origin.wait_connections(request as usize + 1);
    }
    proxy.wait_stat("cluster.origin.upstream_cx_active", 1);
}

#[test]
fn circuit_breakers_hold_for_connections_beforehand() {
    let (origin, answer) = patient();
    let cluster = json!({
        "preconnect_policy": {"per_upstream_preconnect_ratio": 3},
        "circuit_breakers": {"thresholds": [{"max_connections": 2}]},
    });
    let proxy = Proxy::start(&config(&[&origin], cluster));
    let mut client = begin(&proxy);
    origin.wait_requests(1);
    origin.wait_connections(2);
    proxy.wait_stat("cluster.origin.upstream_cx_overflow", 1);
    assert_eq!(connections(&proxy), 2);
    answer.store(true, Ordering::SeqCst);
    assert_eq!(client.response("GET").expect("an answer").status, 200);
}

#[test]
fn hosts_that_are_next_get_a_connection() {
    let origins = [quick(), quick(), quick()];
    let all: Vec<&Origin> = origins.iter().collect();
    let policy = json!({"preconnect_policy": {"predictive_preconnect_ratio": 1.5}});
    let proxy = Proxy::start(&config(&all, policy));
    assert_eq!(proxy.get("/").status, 200);
    // One request and one connection more; each to another host.
    proxy.wait_stat("cluster.origin.upstream_cx_total", 3);
    for origin in &origins {
        origin.wait_connections(1);
    }
    for _ in 0..2 {
        assert_eq!(proxy.get("/").status, 200);
    }
    // They were used: every host had one request.
    for origin in &origins {
        origin.wait_requests(1);
        assert_eq!(origin.requests().len(), 1);
    }
}

#[test]
fn hosts_that_are_not_well_or_not_meant_get_none() {
    let metadata = |tier: &str| json!({"metadata": {"filter_metadata": {"x": {"tier": tier}}}});
    let condition = json!({"filter": "x", "path": [{"key": "tier"}], "value": {"string_match": {"exact": "gold"}}});
    for (host, policy, expected, skipped) in [
        (metadata("gold"), json!({"preconnect_enabled_metadata": condition}), 2, 0),
        (metadata("tin"), json!({"preconnect_enabled_metadata": condition}), 1, 1),
        (json!({}), json!({"preconnect_enabled_metadata": condition}), 1, 1),
        (json!({"health_status": "DEGRADED"}), json!({}), 1, 0),
        (json!({}), json!({}), 2, 0),
    ] {
        let (origin, answer) = patient();
        let mut endpoint = json!({"endpoint": {"address": config::socket_address("127.0.0.1", origin.address.port())}});
        config::overlay(&mut endpoint, host.clone());
        let mut rules = json!({"per_upstream_preconnect_ratio": 2});
        config::overlay(&mut rules, policy);
        let cluster = json!({
            "preconnect_policy": rules,
            "load_assignment": {"cluster_name": "origin", "endpoints": [{"lb_endpoints": [endpoint]}]},
        });
        let proxy = Proxy::start(&config(&[], cluster));
        let mut client = begin(&proxy);
        origin.wait_requests(1);
        origin.wait_connections(expected);
        assert_eq!(connections(&proxy), expected as u64, "{host}");
        assert_eq!(proxy.stats().value("cluster.origin.upstream_cx_preconnect_skipped"), skipped, "{host}");
        answer.store(true, Ordering::SeqCst);
        assert_eq!(client.response("GET").expect("an answer").status, 200);
    }
}

#[test]
fn one_connection_of_http2_has_room_for_many() {
    for (streams, expected) in [(100, 1), (1, 2)] {
        let origin = H2Origin::start(100);
        let fields = json!({"explicit_http_config": {
            "http_protocol_options": null,
            "http2_protocol_options": {"max_concurrent_streams": streams},
        }});
        let mut cluster = config::upstream_http_options(fields);
        config::overlay(&mut cluster, json!({"preconnect_policy": {"per_upstream_preconnect_ratio": 2}}));
        let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]));
        let proxy = Proxy::start(&config.cluster_with("origin", &[origin.address], cluster));
        assert_eq!(proxy.get("/").status, 200);
        proxy.wait_stat("cluster.origin.upstream_cx_http2_total", expected);
        assert_eq!(proxy.get("/").status, 200);
        assert_eq!(connections(&proxy), expected);
    }
}

#[test]
fn a_host_that_refuses_connections_is_not_asked_for_ever() {
    let (origin, answer) = patient();
    let address = origin.address;
    let policy = json!({"preconnect_policy": {"per_upstream_preconnect_ratio": 3}, "connect_timeout": "1s"});
    let proxy = Proxy::start(&config(&[&origin], policy));
    let mut client = begin(&proxy);
    origin.wait_requests(1);
    origin.wait_connections(3);
    answer.store(true, Ordering::SeqCst);
    assert_eq!(client.response("GET").expect("an answer").status, 200);
    drop(origin);
    proxy.wait_stat("cluster.origin.upstream_cx_active", 0);
    let before = connections(&proxy);
    let refused = proxy.get("/");
    assert_eq!((refused.status, address.ip().is_loopback()), (503, true));
    // The request's own, and at most two beside it.
    let made = connections(&proxy) - before;
    assert!((1..=3).contains(&made), "{made}");
    proxy.wait_stat("cluster.origin.upstream_cx_active", 0);
}
