//! Probes of quiet TCP connections, as the system's table of connections tells of them. As in Envoy.

use postrider_tests::get;
use postrider_tests::kit::{Config, Gate, Origin, Proxy, wait_until};
use postrider_tests::probes::probed;
use serde_json::{Value, json};

fn probes(seconds: u32) -> Value {
    json!({"tcp_keepalive": {"keepalive_probes": 3, "keepalive_time": seconds, "keepalive_interval": 20}})
}

#[test]
fn quiet_connections_of_clients_and_upstreams_are_probed_where_they_are_to() {
    for wanted in [true, false] {
        let (asked, answered) = (Gate::default(), Gate::default());
        let (asks, waits) = (asked.clone(), answered.clone());
        let origin = Origin::start(move |connection| {
            while connection.request().is_some() {
                asks.open();
                waits.wait();
                connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
            }
        });
        let cluster = if wanted { json!({"upstream_connection_options": probes(9_000)}) } else { json!({}) };
        let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]);
        let config = Config::routes(routes).cluster_with("origin", &[origin.address], cluster);
        let listener = if wanted { probes(5_000) } else { json!({}) };
        let proxy = Proxy::start(&config.overlay_listener("http", listener));
        let mut client = proxy.client();
        client.send(get("/"));
        asked.wait();
        let sides = || {
            let own = proxy.address("http");
            (probed(Some(own), client.local_addr()), probed(None, origin.address))
        };
        let near = |left: &[Option<u64>], all: u64| matches!(left, [Some(left)] if (all - 100..=all).contains(left));
        if wanted {
            // Another timer runs until everything that was sent is confirmed.
            wait_until("probes", || near(&sides().0, 5_000) && near(&sides().1, 9_000));
        } else {
            assert_eq!(sides(), (vec![None], vec![None]));
        }
        answered.open();
        assert_eq!(client.response("GET").unwrap().status, 200);
    }
}
