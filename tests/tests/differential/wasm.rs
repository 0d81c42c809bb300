//! WebAssembly beside requests: the same module in both as a filter of connections, as an access logger and as a service. It logs
//! all that it is told of (`tests/modules/wasm/c/witness.c`), and its lines are compared in their order.

use std::net::SocketAddr;

use postrider_tests::kit::config::{extension, http_filter, tcp_filter};
use postrider_tests::kit::proxy::{Launch, binary};
use postrider_tests::kit::{Config, Origin, Proxy, RawClient, net, wait_until};
use postrider_tests::wasm::module;
use serde_json::{Value, json};

use crate::seen::{self, Mask, Seen};

/// The module as a plugin, with a machine of its own.
fn plugin(name: &str, configuration: &str) -> Value {
    let text = json!({"@type": "type.googleapis.com/google.protobuf.StringValue", "value": configuration});
    json!({
        "name": name, "root_id": name, "configuration": text,
        "vm_config": {
            "vm_id": name, "runtime": "envoy.wasm.runtime.v8",
            "code": {"local": {"filename": module("c", "witness")}},
        },
    })
}

fn filter() -> Value {
    extension("envoy.filters.network.wasm", "filters.network.wasm.v3.Wasm", json!({"config": plugin("bytes", "")}))
}

fn logger() -> Value {
    let config = json!({"config": plugin("log", "")});
    extension("envoy.access_loggers.wasm", "access_loggers.wasm.v3.WasmAccessLog", config)
}

fn service() -> Value {
    let kind = "type.googleapis.com/envoy.extensions.wasm.v3.WasmService";
    let config = json!({"@type": kind, "singleton": true, "config": plugin("service", "service")});
    json!({"name": "envoy.bootstrap.wasm", "typed_config": config})
}

/// What the module logged behind the first `skip` lines.
fn said(proxy: &Proxy, skip: usize) -> Vec<String> {
    let lines = proxy.stderr();
    let all = lines.lines().filter_map(|line| Some(line.split_once("witness: ")?.1.trim_end().to_owned()));
    all.skip(skip).collect()
}

/// What became of it, and of what the module counted, in the order in which it was logged.
fn note(seen: &mut Seen, proxy: &Proxy, skip: usize, masks: &[(SocketAddr, &str)], last: &str) {
    wait_until(&format!("`{last}`"), || said(proxy, skip).iter().any(|line| line.starts_with(last)));
    let mask = Mask(masks.iter().map(|(address, name)| (address.to_string(), (*name).to_owned())).collect());
    for (index, line) in said(proxy, skip).iter().enumerate() {
        seen.push(format!("{index}: {}", mask.apply(line)));
    }
    let stats = proxy.stats();
    for counter in ["calls", "bytes", "records", "waits"] {
        let name = format!("wasmcustom.witness.{counter}");
        seen.push(format!("counted {name}: {}", stats.value(&name)));
    }
}

/// A connection: words, each of which is answered before the next but for those that are held, and how it ends.
struct Talk {
    name: &'static str,
    words: &'static [&'static str],
    ends: End,
}

#[derive(Clone, Copy, PartialEq)]
enum End {
    Client,
    Proxy,
    Reset,
}

const TALKS: [Talk; 6] = [
    Talk { name: "words", words: &["some words", "more"], ends: End::Client },
    Talk { name: "quiet", words: &[], ends: End::Client },
    Talk { name: "held", words: &["one.", " two"], ends: End::Client },
    Talk { name: "changed", words: &["drop this"], ends: End::Client },
    Talk { name: "closed", words: &["a", "close"], ends: End::Proxy },
    Talk { name: "reset", words: &["a"], ends: End::Reset },
];

fn text(client: &mut RawClient, count: usize) -> String {
    client.read_exact(count).map_or_else(|error| format!("{error:?}"), |bytes| bytes.escape_ascii().to_string())
}

fn talk(talk: &Talk, launch: Launch) -> Seen {
    let origin = Origin::tcp_echo("hi");
    let filters = json!([filter(), tcp_filter(json!({"stat_prefix": "t", "cluster": "a"}))]);
    let config =
        Config::new().listener("tcp", json!({"filter_chains": [{"filters": filters}]})).cluster("a", &[origin.address]);
    let proxy = Proxy::start_with(&config, launch);
    let mut client = RawClient::connect(proxy.address("tcp"));
    let mut seen = Seen::new();
    seen.push(format!("greeting: {:?}", text(&mut client, 3)));
    for word in talk.words {
        client.send(word);
        if word.ends_with('.') || *word == "close" {
            // Nothing comes before there is more.
            let received = format!("received {}", word.len());
            wait_until("the word to be held", || said(&proxy, 0).iter().any(|line| line.starts_with(&received)));
            continue;
        }
        // What the module puts around it, and the held words before it.
        let mut length = if word.starts_with("drop") { 7 } else { word.len() + 1 };
        if talk.name == "held" {
            length = "<ONE. TWO".len();
        }
        seen.push(format!("echo: {:?}", text(&mut client, length + 1)));
    }
    match talk.ends {
        End::Client => _ = client.half_close(),
        End::Proxy => {}
        End::Reset => {
            client.reset();
            note(&mut seen, &proxy, 0, &[], "deleted");
            return seen;
        }
    }
    if let Ok(rest) = client.read_to_end() {
        seen.push(format!("rest: {}", rest.escape_ascii()));
    }
    drop(client);
    note(&mut seen, &proxy, 0, &[], "deleted");
    seen
}

/// Requests and connections that are logged, one after the other.
fn records(launch: Launch, down: SocketAddr) -> Seen {
    let origin = Origin::echo("a");
    let logs = json!([logger()]);
    let routes = json!([
        {"name": "named", "match": {"prefix": "/named"}, "route": {"cluster": "a"}},
        {"match": {"prefix": "/direct"}, "direct_response": {"status": 299, "body": {"inline_string": "d"}}},
        {"match": {"prefix": "/down"}, "route": {"cluster": "down"}},
        {"match": {"path": "/"}, "route": {"cluster": "a"}},
    ]);
    let filtered = |status: u16| {
        let mut logger = logger();
        logger["filter"] = json!({"status_code_filter": {"comparison": {"op": "EQ", "value": {
            "default_value": status, "runtime_key": "no.such.key"}}}});
        logger
    };
    let http = |name: &str, logs: &Value| {
        http_filter(json!({
            "stat_prefix": name, "access_log": logs, "generate_request_id": false,
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]},
        }))
    };
    let tcp = tcp_filter(json!({"stat_prefix": "t", "cluster": "a", "access_log": logs}));
    let chain = |filter: Value| json!({"filter_chains": [{"filters": [filter]}]});
    let mut of_listener = chain(tcp_filter(json!({"stat_prefix": "l", "cluster": "a"})));
    of_listener["access_log"] = logs.clone();
    let config = Config::new()
        .listener("http", chain(http("h", &logs)))
        .listener("some", chain(http("s", &json!([filtered(299)]))))
        .listener("tcp", chain(tcp))
        .listener("logged", of_listener)
        .cluster("a", &[origin.address])
        .cluster("down", &[down]);
    let proxy = Proxy::start_with(&config, launch);
    let mut seen = Seen::new();
    let mut records = 0;
    let mut wait = |what: &str| {
        records += 1;
        wait_until(what, || said(&proxy, 0).iter().filter(|line| line.starts_with("record")).count() == records);
    };
    for path in ["/", "/named?q", "/direct", "/down", "/nothing"] {
        let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\nx-a: 1\r\nconnection: close\r\n\r\n");
        RawClient::once(proxy.address("http"), &request).expect("an answer");
        wait(path);
    }
    for path in ["/", "/direct"] {
        let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
        RawClient::once(proxy.address("some"), &request).expect("an answer");
    }
    wait("the one that is meant");
    for listener in ["tcp", "logged"] {
        let mut client = RawClient::connect(proxy.address(listener));
        client.send("GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
        let _ = client.read_to_end();
        drop(client);
        wait(listener);
    }
    // A line is there before its record is counted.
    for counter in ["calls", "records"] {
        proxy.wait_stat(&format!("wasmcustom.witness.{counter}"), records as u64);
    }
    note(&mut seen, &proxy, 0, &[(origin.address, "<a>"), (down, "<down>")], "record");
    seen
}

/// A service that ticks once and calls a cluster.
fn serves(launch: Launch) -> Seen {
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\nx-origin: a\r\ncontent-length: 6\r\n\r\nanswer");
    let config = Config::proxy_to(origin.address)
        .cluster("a", &[origin.address])
        .overlay(json!({"bootstrap_extensions": [service()]}));
    let proxy = Proxy::start_with(&config, launch);
    let mut seen = Seen::new();
    note(&mut seen, &proxy, 0, &[], "answered");
    let asked = origin.requests();
    seen.push(format!("asked: {}", asked.len()));
    for request in asked {
        seen::note_request(&mut seen, &Mask(Vec::new()), "origin", &request);
    }
    // Envoy tells whoever is called that it trusts itself, and how long it waits: see the page of differences.
    seen.retain(|line| !line.starts_with("origin field x-envoy-"));
    seen
}

/// The same done with both.
pub(crate) fn differ(report: &mut String, what: &str, play: impl Fn(Launch) -> Seen) {
    let theirs = play(Launch::envoy().expect("Envoy 1.40 to compare with"));
    let ours = play(Launch { binary: Some(binary().to_owned()), ..Launch::default() });
    let difference = seen::compare(&theirs, &ours);
    if !difference.is_empty() {
        *report += &format!("\n{what}:\n{difference}");
    }
}

#[test]
fn modules_see_connections_as_in_envoy() {
    let mut report = String::new();
    for one in &TALKS {
        differ(&mut report, one.name, |launch| talk(one, launch));
    }
    assert!(report.is_empty(), "{report}");
}

#[test]
fn modules_log_as_in_envoy() {
    let down = net::refusing_address();
    let mut report = String::new();
    differ(&mut report, "records", |launch| records(launch, down));
    assert!(report.is_empty(), "{report}");
}

#[test]
fn modules_serve_by_themselves_as_in_envoy() {
    let mut report = String::new();
    differ(&mut report, "service", serves);
    assert!(report.is_empty(), "{report}");
}
