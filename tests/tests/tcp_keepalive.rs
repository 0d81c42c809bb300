//! Probes of quiet TCP connections, as the system's table of connections tells of them. As in Envoy.

use postrider_tests::get;
use postrider_tests::kit::{Config, Gate, Origin, Proxy, wait_until};
use serde_json::{Value, json};
use std::net::SocketAddr;

/// Ticks of the table's clock in a second (`USER_HZ`, proc(5)).
const TICKS: u64 = 100;
/// The timer that a connection runs is that of its probes.
const PROBING: u64 = 2;

/// An address of IPv4 as the table writes it.
fn place(address: SocketAddr) -> String {
    let SocketAddr::V4(four) = address else { panic!("{address} is no address of IPv4") };
    format!("{:08X}:{:04X}", u32::from_le_bytes(four.ip().octets()), four.port())
}

/// Seconds until each connection between these addresses is probed; any where there is none.
fn probed(local: Option<SocketAddr>, remote: SocketAddr) -> Vec<u64> {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the table of connections");
    let about = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, from, to, _, _, timer, ..] = fields.as_slice() else { return None };
        let meant = *to == place(remote) && local.is_none_or(|local| *from == place(local));
        let (kind, left) = timer.split_once(':').filter(|_| meant)?;
        let [kind, left] = [kind, left].map(|number| u64::from_str_radix(number, 16).expect("a number"));
        (kind == PROBING).then_some(left / TICKS)
    };
    table.lines().filter_map(about).collect()
}

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
        let near = |left: &[u64], all: u64| matches!(left, [left] if (all - 100..=all).contains(left));
        if wanted {
            // Another timer runs until everything that was sent is confirmed.
            wait_until("probes", || near(&sides().0, 5_000) && near(&sides().1, 9_000));
        } else {
            assert_eq!(sides(), (vec![], vec![]));
        }
        answered.open();
        assert_eq!(client.response("GET").unwrap().status, 200);
    }
}
