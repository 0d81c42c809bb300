//! Connections to upstreams that serve one client's connection only. The same holds of Envoy.

use postrider_tests::get;
use postrider_tests::h2_client::H2Client;
use postrider_tests::h2_origin::H2Origin;
use postrider_tests::kit::config::{self, Config};
use postrider_tests::kit::{Origin, Proxy};
use serde_json::{Value, json};

fn own_pools() -> Value {
    json!({"connection_pool_per_downstream_connection": true})
}

fn config(address: std::net::SocketAddr, cluster: Value) -> Config {
    Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}])).cluster_with(
        "origin",
        &[address],
        cluster,
    )
}

#[test]
fn a_client_never_gets_another_ones_connection() {
    for (cluster, shared) in [(own_pools(), false), (json!({}), true)] {
        let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        let proxy = Proxy::start(&config(origin.address, cluster));
        let (mut one, mut other) = (proxy.client(), proxy.client());
        for _ in 0..3 {
            assert_eq!(one.exchange(get("/one")).status, 200);
            assert_eq!(other.exchange(get("/other")).status, 200);
        }
        let expected = if shared { 1 } else { 2 };
        assert_eq!(origin.connection_count(), expected);
        assert_eq!(proxy.stats().value("cluster.origin.upstream_cx_total"), expected as u64);
        let paths = |index: usize| String::from_utf8(origin.bytes(index)).expect("text");
        if !shared {
            assert!(paths(0).contains("/one") && !paths(0).contains("/other"));
            assert!(paths(1).contains("/other") && !paths(1).contains("/one"));
        }
    }
}

#[test]
fn so_it_is_with_connections_of_many_streams() {
    let origin = H2Origin::start(100);
    let fields = json!({"explicit_http_config": {"http_protocol_options": null, "http2_protocol_options": {}}});
    let mut cluster = config::upstream_http_options(fields);
    config::overlay(&mut cluster, own_pools());
    let proxy = Proxy::start(&config(origin.address, cluster));
    let (mut one, mut other) = (H2Client::connect(proxy.address("http")), proxy.client());
    for _ in 0..3 {
        assert_eq!(one.get("/one").status, 200);
        assert_eq!(other.exchange(get("/other")).status, 200);
    }
    assert_eq!(origin.connections(), 2);
}

#[test]
fn a_client_that_left_makes_room_for_the_next() {
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let mut cluster = own_pools();
    config::overlay(&mut cluster, json!({"circuit_breakers": {"thresholds": [{"max_connections": 1}]}}));
    let proxy = Proxy::start(&config(origin.address, cluster));
    for _ in 0..3 {
        assert_eq!(proxy.get("/").status, 200);
    }
    assert_eq!(origin.connection_count(), 3);
}
