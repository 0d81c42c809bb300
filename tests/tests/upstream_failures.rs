//! What becomes of requests, and of what is on its way, when a connection fails.

use postrider_tests::get;
use postrider_tests::kit::config::upstream_http_options;
use postrider_tests::kit::{Config, Proxy, RawClient, net};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn over_http2(fields: Value) -> Value {
    let mut options = upstream_http_options(
        json!({"explicit_http_config": {"http_protocol_options": null, "http2_protocol_options": {}}}),
    );
    postrider_tests::kit::config::overlay(&mut options, fields);
    options
}

#[test]
fn requests_that_wait_for_the_same_connection_fail_with_it() {
    const REQUESTS: usize = 8;
    let hole = net::Blackhole::start();
    let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "hole", "timeout": "30s"}}]);
    let options = over_http2(json!({"connect_timeout": "0.5s"}));
    let proxy = Proxy::start(&Config::routes(routes).cluster_with("hole", &[hole.address], options));
    let started = Instant::now();
    let mut clients: Vec<RawClient> = (0..REQUESTS).map(|_| proxy.client()).collect();
    for client in &mut clients {
        client.send(get("/"));
    }
    for client in &mut clients {
        let response = client.response("GET").unwrap();
        let text = "upstream connect error or disconnect/reset before headers. reset reason: connection timeout";
        assert_eq!((response.status, response.text()), (503, text));
    }
    // One after the other would take four seconds.
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    let stat = |name: &str| proxy.stats().value(&format!("cluster.hole.{name}"));
    assert_eq!((stat("upstream_cx_total"), stat("upstream_cx_connect_timeout")), (1, 1));
    assert_eq!((stat("upstream_rq_pending_failure_eject"), stat("upstream_rq_pending_active")), (REQUESTS as u64, 0));
}
