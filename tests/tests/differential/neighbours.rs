//! WebAssembly modules that look at one stream, or one connection, from another: what the host shows of what waits, what may be
//! changed of it, and what goes on then. The module (`tests/modules/wasm/c/neighbour.c`) does the same with all that waits, and
//! its lines are compared in their order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use postrider_tests::kit::config::{extension, http_filter, router, tcp_filter};
use postrider_tests::kit::message::Headers;
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Config, Origin, Proxy, RawClient, wait_until};
use postrider_tests::wasm::module;
use serde_json::{Value, json};

use crate::seen::Seen;
use crate::wasm::differ;

fn plugin() -> Value {
    json!({"config": {
        "name": "looks", "root_id": "looks",
        "vm_config": {
            "vm_id": "looks", "runtime": "envoy.wasm.runtime.v8",
            "code": {"local": {"filename": module("c", "neighbour")}},
        },
    }})
}

fn said(proxy: &Proxy) -> Vec<String> {
    let lines = proxy.stderr();
    lines.lines().filter_map(|line| Some(line.split_once("neighbour: ")?.1.trim_end().to_owned())).collect()
}

fn wait_said(proxy: &Proxy, beginning: &str) {
    wait_until(&format!("`{beginning}`"), || said(proxy).iter().any(|line| line.starts_with(beginning)));
}

fn note(seen: &mut Seen, proxy: &Proxy) {
    seen.extend(said(proxy).iter().enumerate().map(|(index, line)| format!("{index}: {line}")));
}

/// The fields that the module changes.
fn fields(headers: &Headers) -> String {
    ["x-own", "x-added", "x-gone"].map(|name| format!("{name}={}", headers.values(name).join("|"))).join(" ")
}

/// A request that waits somewhere, and another one that has it looked at: in its own callback, or in the timer's.
fn streams(launch: Launch, place: &str, visit: &str) -> Seen {
    const ANSWER: &str =
        "HTTP/1.1 200 OK\r\nx-own: answer\r\nx-gone: 1\r\ntransfer-encoding: chunked\r\n\r\n6\r\nanswer\r\n0\r\n\r\n";
    let origin = Origin::fixed(ANSWER);
    let filters = json!([extension("envoy.filters.http.wasm", "filters.http.wasm.v3.Wasm", plugin()), router(),]);
    let manager = http_filter(json!({
        "http_filters": filters,
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
            {"match": {"prefix": "/"}, "route": {"cluster": "a"}}]}]},
    }));
    let config = Config::new()
        .listener("http", json!({"filter_chains": [{"filters": [manager]}]}))
        .cluster("a", &[origin.address]);
    let proxy = Proxy::start_with(&config, launch);
    let mut first = RawClient::connect(proxy.address("http"));
    first.send(format!(
        "POST /first HTTP/1.1\r\nhost: test\r\nx-wait: {place}\r\nx-own: first\r\nx-gone: 1\r\n\
         transfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"
    ));
    wait_said(&proxy, "held");
    let second =
        format!("GET /second HTTP/1.1\r\nhost: test\r\nx-own: second\r\nx-visit: {visit}\r\nconnection: close\r\n\r\n");
    let second = RawClient::once(proxy.address("http"), &second).expect("an answer to the one that looks");
    let answer = first.response("POST").expect("an answer to the one that waited");
    wait_said(&proxy, if visit == "tick" { "bytes let go" } else { "own" });
    let mut seen = vec![
        format!("second: {} {} {:?}", second.status, fields(&second.headers), second.text()),
        format!("first: {} {} {:?}", answer.status, fields(&answer.headers), answer.text()),
    ];
    for request in origin.requests() {
        let body = String::from_utf8_lossy(&request.body).into_owned();
        seen.push(format!("origin: {} {} {body:?}", request.target, fields(&request.headers)));
    }
    note(&mut seen, &proxy);
    seen
}

fn proxied(launch: Launch, origin: &Origin) -> Proxy {
    let filter = extension("envoy.filters.network.wasm", "filters.network.wasm.v3.Wasm", plugin());
    let filters = json!([filter, tcp_filter(json!({"stat_prefix": "t", "cluster": "a"}))]);
    let config =
        Config::new().listener("tcp", json!({"filter_chains": [{"filters": filters}]})).cluster("a", &[origin.address]);
    Proxy::start_with(&config, launch)
}

/// A connection whose bytes wait, and another one that has them looked at.
fn connections(launch: Launch, visit: &str) -> Seen {
    let origin = Origin::tcp_echo("");
    let proxy = proxied(launch, &origin);
    let (mut first, mut second) = (RawClient::connect(proxy.address("tcp")), RawClient::connect(proxy.address("tcp")));
    first.send("one.");
    wait_said(&proxy, "held");
    second.send(visit);
    let back = second.read_exact(visit.len()).expect("what the one that looks said");
    let mut seen = vec![format!("second: {}", back.escape_ascii())];
    let back = first.read_exact("<one.>".len()).expect("what waited");
    seen.push(format!("first: {}", back.escape_ascii()));
    wait_said(&proxy, if visit == "tick" { "continue" } else { "back" });
    note(&mut seen, &proxy);
    seen
}

/// Bytes that wait while others come from the upstream, and when the client is gone.
fn meanwhile(launch: Launch) -> Seen {
    let go_on = Arc::new(AtomicBool::new(false));
    let told = go_on.clone();
    let origin = Origin::start(move |connection| {
        if connection.read_exact(5).is_some() {
            connection.write(b"later");
            wait_until("the word to be held", || told.load(Ordering::SeqCst));
            connection.write(b"more");
            connection.read_to_end();
        }
    });
    let proxy = proxied(launch, &origin);
    let mut client = RawClient::connect(proxy.address("tcp"));
    client.send("later");
    let mut seen = vec![format!("{:?}", client.read_exact(5))];
    client.send("one.");
    wait_said(&proxy, "held");
    go_on.store(true, Ordering::SeqCst);
    seen.push(format!("{:?}", client.read_exact(4)));
    client.reset();
    wait_said(&proxy, "at the end");
    note(&mut seen, &proxy);
    seen
}

#[test]
fn a_stream_that_waits_is_seen_and_changed_from_another_as_in_envoy() {
    let mut report = String::new();
    for place in ["head", "body", "answer", "answer body"] {
        for visit in ["stream", "tick"] {
            differ(&mut report, &format!("{place}, from a {visit}"), |launch| streams(launch, place, visit));
        }
    }
    assert!(report.is_empty(), "{report}");
}

#[test]
fn bytes_that_wait_are_seen_and_changed_from_another_connection_as_in_envoy() {
    let mut report = String::new();
    for visit in ["visit", "tick"] {
        differ(&mut report, &format!("from a {visit}"), |launch| connections(launch, visit));
    }
    differ(&mut report, "meanwhile", meanwhile);
    assert!(report.is_empty(), "{report}");
}
