//! Limits of a cluster: on its connections, on the hosts that have some, on each host, and what is told of them.

use std::net::SocketAddr;
use std::sync::Arc;

use postrider_tests::kit::config::Config;
use postrider_tests::kit::{Origin, Proxy, net, wait_until};
use serde_json::{Value, json};

fn config(endpoints: &[SocketAddr], breakers: Value) -> Config {
    Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin", "timeout": "0s"}}])).cluster_with(
        "origin",
        endpoints,
        json!({"circuit_breakers": breakers}),
    )
}

fn stat(proxy: &Proxy, name: &str) -> u64 {
    proxy.stats().value(&format!("cluster.origin.{name}"))
}

/// Answers when the gate is open.
fn gated(gate: &Arc<net::Gate>) -> Origin {
    let gate = gate.clone();
    Origin::start(move |connection| {
        while connection.request().is_some() {
            gate.wait();
            connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        }
    })
}

const GET: &str = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";

#[test]
fn what_is_left_of_each_limit_is_told_where_that_is_asked_for() {
    let gate = Arc::new(net::Gate::default());
    let origin = gated(&gate);
    let limits = json!({"track_remaining": true, "max_connections": 10, "max_requests": 20, "max_pending_requests": 30,
        "max_retries": 4, "max_connection_pools": 5});
    let high = json!({"priority": "HIGH", "max_requests": 7, "track_remaining": true});
    let proxy = Proxy::start(&config(&[origin.address], json!({"thresholds": [limits, high]})));
    let left = |name: &str| stat(&proxy, &format!("circuit_breakers.default.remaining_{name}"));
    assert_eq!((left("cx"), left("rq"), left("pending"), left("retries"), left("cx_pools")), (10, 20, 30, 4, 5));
    let mut client = proxy.client();
    client.send(GET);
    origin.wait_requests(1);
    assert_eq!((left("cx"), left("rq"), left("pending"), left("cx_pools")), (9, 19, 30, 4));
    gate.open();
    assert_eq!(client.response("GET").expect("an answer").status, 200);
    wait_until("the request's end", || left("rq") == 20);
    assert_eq!(stat(&proxy, "circuit_breakers.high.remaining_cx_pools"), u64::MAX, "so much is no limit");
}

#[test]
fn pools_are_counted_where_nothing_limits_them() {
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let proxy = Proxy::start(&config(&[origin.address], json!({"thresholds": [{"track_remaining": true}]})));
    let left = || stat(&proxy, "circuit_breakers.default.remaining_cx_pools");
    assert_eq!(left(), u64::MAX);
    assert_eq!(proxy.get("/").status, 200);
    assert_eq!(left(), u64::MAX - 1);
}

#[test]
fn requests_that_wait_on_count_whenever_one_of_them_gets_a_connection() {
    let gate = Arc::new(net::Gate::default());
    let origin = gated(&gate);
    let proxy = Proxy::start(&config(&[origin.address], json!({"thresholds": [{"max_connections": 1}]})));
    let mut clients = [proxy.client(), proxy.client(), proxy.client(), proxy.client()];
    for (waiting, client) in clients.iter_mut().enumerate() {
        client.send(GET);
        origin.wait_requests(1);
        proxy.wait_stat("cluster.origin.upstream_rq_pending_active", waiting as u64);
    }
    assert_eq!(stat(&proxy, "upstream_cx_overflow"), 3, "each that cannot have a connection of its own");
    gate.open();
    for client in &mut clients {
        assert_eq!(client.response("GET").expect("an answer").status, 200);
    }
    assert_eq!(stat(&proxy, "upstream_cx_overflow"), 5, "the two behind the next one, and the one behind that");
}

#[test]
fn what_is_left_is_told_of_no_other_priority() {
    let origin = Origin::echo("a");
    let high = json!({"priority": "HIGH", "track_remaining": true});
    let proxy = Proxy::start(&config(&[origin.address], json!({"thresholds": [{"max_requests": 7}, high]})));
    let stats = proxy.admin_get("/stats").text().to_owned();
    assert!(stats.contains("high.remaining") && !stats.contains("default.remaining"), "only where it is asked for");
}

#[test]
fn a_host_may_have_a_limit_of_its_own() {
    let gate = Arc::new(net::Gate::default());
    let origin = gated(&gate);
    let breakers = json!({"per_host_thresholds": [{"max_connections": 1}]});
    let proxy = Proxy::start(&config(&[origin.address], breakers));
    let (mut first, mut second) = (proxy.client(), proxy.client());
    first.send(GET);
    origin.wait_requests(1);
    second.send(GET);
    proxy.wait_stat("cluster.origin.upstream_rq_pending_active", 1);
    assert_eq!((origin.connection_count(), stat(&proxy, "upstream_cx_overflow")), (1, 1));
    gate.open();
    for client in [&mut first, &mut second] {
        assert_eq!(client.response("GET").expect("an answer").status, 200);
    }
    assert_eq!(origin.connection_count(), 1);
}

#[test]
fn only_so_many_hosts_have_connections() {
    let (a, b) = (
        Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
        Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
    );
    let breakers = json!({"thresholds": [{"max_connection_pools": 1}]});
    let proxy = Proxy::start(&config(&[a.address, b.address], breakers));
    let mut client = proxy.client();
    let answers: Vec<(u16, String)> = (0..4)
        .map(|_| {
            let response = client.exchange(GET);
            (response.status, response.text().to_owned())
        })
        .collect();
    let refused = (503, "no healthy upstream".to_owned());
    let served = (200, String::new());
    assert_eq!(answers, [served.clone(), refused.clone(), served, refused]);
    assert_eq!(stat(&proxy, "upstream_cx_pool_overflow"), 2);
    assert_eq!(stat(&proxy, "circuit_breakers.default.cx_pool_open"), 1);
    assert_eq!(a.connection_count() + b.connection_count(), 1);
}

#[test]
fn waiting_requests_have_a_limit_and_the_client_is_told_that_it_is_overload() {
    let gate = Arc::new(net::Gate::default());
    let origin = gated(&gate);
    let breakers = json!({"thresholds": [{"max_connections": 1, "max_pending_requests": 1}]});
    let proxy = Proxy::start(&config(&[origin.address], breakers));
    let (mut first, mut second) = (proxy.client(), proxy.client());
    first.send(GET);
    origin.wait_requests(1);
    second.send(GET);
    proxy.wait_stat("cluster.origin.upstream_rq_pending_active", 1);
    let third = proxy.get("/");
    assert_eq!((third.status, third.header("x-envoy-overloaded")), (503, "true"));
    assert_eq!(stat(&proxy, "upstream_rq_pending_overflow"), 1);
    assert_eq!(stat(&proxy, "circuit_breakers.default.cx_open"), 1);
    assert_eq!(stat(&proxy, "circuit_breakers.default.rq_pending_open"), 1);
    gate.open();
    for client in [&mut first, &mut second] {
        assert_eq!(client.response("GET").expect("an answer").status, 200);
    }
}

/// All of them were, as if somebody had to be turned away, before anybody came.
#[test]
fn a_limit_of_none_is_shown_as_reached_once_something_exceeds_it() {
    const ALL: [&str; 5] = ["cx_open", "cx_pool_open", "rq_pending_open", "rq_open", "rq_retry_open"];
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let none = |priority: &str, limits: &[&str]| {
        let mut none = json!({ "priority": priority });
        limits.iter().for_each(|limit| none[*limit] = json!(0));
        none
    };
    let all = ["max_connections", "max_pending_requests", "max_requests", "max_retries", "max_connection_pools"];
    let nothing = json!({"thresholds": [none("DEFAULT", &all), none("HIGH", &all)]});
    let proxy = Proxy::start(&config(&[origin.address], nothing));
    let shown = |proxy: &Proxy| {
        let of_priority = |priority: &str| ALL.map(|name| stat(proxy, &format!("circuit_breakers.{priority}.{name}")));
        [of_priority("default"), of_priority("high")]
    };
    assert_eq!(shown(&proxy), [[0; 5]; 2]);
    assert_eq!(proxy.get("/").status, 503);
    assert_eq!(shown(&proxy), [[0; 5]; 2], "nothing was taken");
    // A host without a connection gets one whatever the limit says.
    let proxy = Proxy::start(&config(&[origin.address], json!({"thresholds": [none("DEFAULT", &all[..1])]})));
    assert_eq!((proxy.get("/").status, shown(&proxy)), (200, [[1, 0, 0, 0, 0], [0; 5]]));
}
