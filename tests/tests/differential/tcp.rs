//! The TCP proxy: what a log tells of each connection, and what its bytes become.

use crate::commands;
use crate::seen::{self, Mask, Seen};
use postrider_tests::kit::config::{extension, file_access_log, overlay, tcp_filter};
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Config, Origin, Proxy, RawClient, TempDir, net, wait_until};
use serde_json::{Value, json};
use std::net::SocketAddr;

/// A listener, and what a client does there.
struct Way {
    name: &'static str,
    proxy: Value,
    /// The client's words, before it says that these were all.
    says: &'static [u8],
}

fn ways() -> Vec<Way> {
    let way = |name, proxy, says| Way { name, proxy, says };
    vec![
        way("echo", json!({"cluster": "a"}), b"some words"),
        way("quiet", json!({"cluster": "a"}), b""),
        way("down", json!({"cluster": "down"}), b""),
        way("down-again", json!({"cluster": "down", "max_connect_attempts": 3}), b""),
        way("empty", json!({"cluster": "empty"}), b""),
        way("nowhere", json!({"cluster": "nope"}), b""),
        way("full", json!({"cluster": "full"}), b""),
        way("idle", json!({"cluster": "silent", "idle_timeout": "0.1s"}), b"x"),
        way("lasting", json!({"cluster": "silent", "max_downstream_connection_duration": "0.1s"}), b"x"),
        way("weighted", json!({"weighted_clusters": {"clusters": [{"name": "a", "weight": 1}]}}), b"words"),
        way("reset", json!({"cluster": "reset"}), b"words"),
    ]
}

/// All commands: those that have a meaning for connections, and those that have none.
fn log_format() -> Value {
    let mut format = commands::all();
    let more = json!({
        "client": "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS%",
        "flags": "%RESPONSE_FLAGS%",
        "flags_long": "%RESPONSE_FLAGS_LONG%",
        "code": "%RESPONSE_CODE%",
        "details": "%RESPONSE_CODE_DETAILS%",
        "ended": "%CONNECTION_TERMINATION_DETAILS%",
        "type": "%ACCESS_LOG_TYPE%",
        "protocol": "%PROTOCOL%",
        "received": "%BYTES_RECEIVED%",
        "sent": "%BYTES_SENT%",
        "host": "%UPSTREAM_HOST%",
        "cluster": "%UPSTREAM_CLUSTER%",
        "upstream": "%UPSTREAM_REMOTE_ADDRESS%",
        "upstream_protocol": "%UPSTREAM_PROTOCOL%",
        "attempts": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
        "failure": "%UPSTREAM_TRANSPORT_FAILURE_REASON%",
        "own_failure": "%DOWNSTREAM_TRANSPORT_FAILURE_REASON%",
        "from": "%DOWNSTREAM_REMOTE_ADDRESS%",
        "listener": "%DOWNSTREAM_LOCAL_ADDRESS%",
        "name": "%REQUESTED_SERVER_NAME%",
        "chain": "%FILTER_CHAIN_NAME%",
        "route": "%ROUTE_NAME%",
        "method": "%REQ(:METHOD)%",
        "answer": "%RESP(x)%",
        "grpc": "%GRPC_STATUS%",
        "tls": "%DOWNSTREAM_TLS_VERSION%",
        "metadata": "%DYNAMIC_METADATA(none)%",
        "own_body": "%LOCAL_REPLY_BODY%",
    });
    overlay(&mut format, more);
    format
}

/// What can be seen of each way, in order.
fn play(launch: Launch, down: SocketAddr) -> Vec<Seen> {
    let (echo, silent) = (Origin::tcp_echo("hi"), Origin::start(|connection| _ = connection.read_to_end()));
    let reset = Origin::start(|connection| {
        connection.read_exact(5);
        connection.reset();
    });
    let folder = TempDir::new();
    let log = folder.path().join("log");
    let kind = "formatter.req_without_query.v3.ReqWithoutQuery";
    let formatters = [extension("envoy.formatter.req_without_query", kind, json!({}))];
    let logger = file_access_log(&log, json!({"log_format": {"json_format": log_format(), "formatters": formatters}}));
    let closed = json!({"circuit_breakers": {"thresholds": [{"max_connections": 0, "max_pending_requests": 0}]}});
    let mut config = Config::new()
        .cluster("a", &[echo.address])
        .cluster("silent", &[silent.address])
        .cluster("reset", &[reset.address])
        .cluster("down", &[down])
        .cluster("empty", &[])
        .cluster_with("full", &[echo.address], closed);
    for way in ways() {
        let mut proxy = way.proxy;
        proxy["stat_prefix"] = json!(way.name);
        proxy["access_log"] = json!([logger]);
        config =
            config.listener(way.name, json!({"filter_chains": [{"name": "chain", "filters": [tcp_filter(proxy)]}]}));
    }
    let proxy = Proxy::start_with(&config, launch.with_arguments(&["--file-flush-interval-msec", "1"]));
    let mut all = Vec::new();
    for way in ways() {
        let before = proxy.stats();
        let mut client = RawClient::connect(proxy.address(way.name));
        let name = client.local_addr().to_string();
        let _ = client.try_send(way.says);
        if !matches!(way.name, "idle" | "lasting" | "reset") {
            client.half_close();
        }
        let mut seen = Seen::new();
        // How a connection ends, and with how many bytes before a reset, is a matter of luck.
        if let Ok(bytes) = client.read_to_end() {
            seen.push(format!("answer: {}", bytes.escape_ascii()));
        }
        drop(client);
        let mut line = None;
        wait_until(&format!("the line of {}", way.name), || {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            // The last one may be half written.
            let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
            line = whole.lines().find(|line| line.contains(&format!("\"{name}\""))).map(str::to_owned);
            line.is_some()
        });
        let masks = [
            (echo.address, "<a>"),
            (silent.address, "<silent>"),
            (reset.address, "<reset>"),
            (down, "<down>"),
            (proxy.address(way.name), "<listener>"),
        ];
        let mut masks: Vec<(String, String)> =
            masks.iter().map(|(address, name)| (address.to_string(), (*name).to_owned())).collect();
        masks.push((name, "<client>".to_owned()));
        let line: Value = serde_json::from_str(&line.unwrap_or_default()).expect("a line of JSON");
        seen::note_log(&mut seen, &Mask(masks), &line);
        let after = proxy.stats();
        let own = format!("tcp.{}.", way.name);
        for (name, value) in after.0.iter().filter(|(name, _)| name.starts_with(&own)) {
            let moved =
                value.parse::<i64>().unwrap_or_default() - i64::try_from(before.value(name)).unwrap_or_default();
            if moved != 0
                && !name.ends_with("_active")
                && !name.ends_with("_buffered")
                && !name.contains("flow_control")
            {
                seen.push(format!("counted {name}: {moved}"));
            }
        }
        all.push(seen);
    }
    all
}

#[test]
fn connections_are_proxied_and_logged_as_in_envoy() {
    let down = net::refusing_address();
    let theirs = play(Launch::envoy().expect("Envoy 1.40 to compare with"), down);
    let ours =
        play(Launch { binary: Some(postrider_tests::kit::proxy::binary().to_owned()), ..Launch::default() }, down);
    let mut report = String::new();
    for ((way, theirs), ours) in ways().iter().zip(&theirs).zip(&ours) {
        let mut difference = seen::compare(theirs, ours);
        if way.name == "down-again" {
            // On docs/envoy-differences.md.
            for side in [&mut difference.envoy, &mut difference.postrider] {
                side.retain(|line| !line.contains("ATTEMPTED"));
            }
        }
        if !difference.is_empty() {
            report += &format!("\n{}:\n{difference}", way.name);
        }
    }
    assert!(report.is_empty(), "{report}");
}
