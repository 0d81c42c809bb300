//! The filter that traces requests: what stands in files, and what whoever asks the admin is told.

use crate::commands;
use crate::origins::Upstream;
use crate::seen::{self, Mask, Seen};
use postrider_tests::kit::config::{extension, http_filter, router};
use postrider_tests::kit::message::parse_chunk_size;
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Config, Proxy, RawClient, TempDir, wait_until};
use serde_json::{Value, json};
use std::path::Path;

/// A listener with a filter that traces into files.
struct Way {
    name: &'static str,
    format: &'static str,
    matches: Value,
    /// Laid over `output_config`.
    output: Value,
    /// Laid over the filter's configuration.
    more: Value,
}

fn headers(part: &str, name: &str, mut condition: Value) -> Value {
    condition["name"] = json!(name);
    json!({format!("http_{part}_match"): {"headers": [condition]}})
}

fn body(part: &str, pattern: Value, limit: u32) -> Value {
    json!({format!("http_{part}_generic_body_match"): {"patterns": [pattern], "bytes_limit": limit}})
}

fn ways() -> Vec<Way> {
    let way = |name, matches, output| Way { name, format: "JSON_BODY_AS_STRING", matches, output, more: json!({}) };
    let any = || json!({"any_match": true});
    let failed = || headers("response_headers", ":status", json!({"range_match": {"start": 400, "end": 600}}));
    let marked = || headers("request_headers", "x-tap", json!({"string_match": {"exact": "1"}}));
    vec![
        way("all", any(), json!({})),
        Way { format: "JSON_BODY_AS_BYTES", ..way("bytes", any(), json!({})) },
        Way { format: "PROTO_TEXT", ..way("text", any(), json!({})) },
        way("short", any(), json!({"max_buffered_rx_bytes": 3, "max_buffered_tx_bytes": 2})),
        way("none", json!({"not_match": any()}), json!({})),
        way("failed", failed(), json!({})),
        way("marked", marked(), json!({})),
        way("both", json!({"and_match": {"rules": [marked(), failed()]}}), json!({})),
        way("either", json!({"or_match": {"rules": [marked(), failed()]}}), json!({})),
        way("neither", json!({"not_match": {"or_match": {"rules": [marked(), failed()]}}}), json!({})),
        way("said", body("request", json!({"string_match": "words"}), 0), json!({})),
        way("said-early", body("request", json!({"string_match": "words"}), 4), json!({})),
        way("answered", body("response", json!({"binary_match": "ZnJvbSBh"}), 0), json!({})),
        way("ended", headers("response_trailers", "x-end", json!({"present_match": true})), json!({})),
        way("pieces", any(), json!({"streaming": true})),
        way("short-pieces", any(), json!({"streaming": true, "max_buffered_rx_bytes": 3, "max_buffered_tx_bytes": 2})),
        way("marked-pieces", marked(), json!({"streaming": true})),
        Way {
            more: json!({
                "record_headers_received_time": true, "record_downstream_connection": true,
                "record_upstream_connection": true,
            }),
            ..way("recorded", any(), json!({}))
        },
    ]
}

fn tap(common: Value, more: &Value) -> Value {
    let mut config = more.clone();
    config["common_config"] = common;
    extension("envoy.filters.http.tap", "filters.http.tap.v3.Tap", config)
}

const REQUESTS: &[(&str, &str, &str)] = &[
    ("GET", "/", ""),
    ("GET", "/marked", "x-tap: 1\r\n"),
    ("GET", "/?answer=404", ""),
    ("GET", "/?answer=503", "x-tap: 1\r\n"),
    ("GET", "/?answer=204", ""),
    ("GET", "/?answer=trailers", ""),
    ("HEAD", "/", ""),
    ("GET", "/own", ""),
    ("GET", "/down", ""),
];

/// Each with a client of its own.
fn ask(address: std::net::SocketAddr) {
    for (method, path, fields) in REQUESTS {
        let mut client = RawClient::connect(address);
        client.send(format!("{method} {path} HTTP/1.1\r\nhost: test\r\n{fields}\r\n"));
        client.any_response(method).expect("an answer");
    }
    for (fields, words) in [("", "some words"), ("x-tap: 1\r\n", "others")] {
        let length = words.len();
        let request = format!("POST /posted HTTP/1.1\r\nhost: test\r\n{fields}content-length: {length}\r\n\r\n{words}");
        RawClient::connect(address).exchange(request);
    }
    RawClient::connect(address).exchange(
        "POST /chunks HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n5\r\nwords\r\n0\r\nx-sum: 1\r\n\r\n",
    );
}

/// What stands in a trace, a line for each value.
fn note(seen: &mut Seen, mask: &Mask, place: &str, value: &Value) {
    match value {
        Value::Object(fields) => match (&fields.get("key"), fields.get("value")) {
            (Some(key), Some(value)) => note_field(seen, mask, place, key, value),
            _ => fields.iter().for_each(|(name, value)| note(seen, mask, &format!("{place}.{name}"), value)),
        },
        Value::Array(items) => items.iter().for_each(|item| note(seen, mask, place, item)),
        _ if place.ends_with("received_time") || place.ends_with("trace_id") || place.ends_with("port_value") => {
            seen.push(format!("{place}: {}", commands::form(value)));
        }
        other => seen.push(format!("{place}: {}", mask.apply(&other.to_string()))),
    }
}

/// A filter sees of an answer what came to it; what the proxy adds to it is not there yet.
fn note_field(seen: &mut Seen, mask: &Mask, place: &str, key: &Value, value: &Value) {
    let added = ["x-envoy-", "server", "date", "x-request-id"];
    let key = key.as_str().unwrap_or_default();
    if place.contains("response") && matches!(key, "content-length" | "transfer-encoding") {
        return;
    }
    if !added.iter().any(|added| key.starts_with(added)) {
        seen.push(format!("{place} {key}: {}", mask.apply(&value.to_string())));
    }
}

/// The traces of a folder, without the order in which they came.
fn read(folder: &Path, way: &Way, mask: &Mask) -> Vec<Seen> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("a trace");
        let end = path.extension().unwrap_or_default().to_string_lossy().into_owned();
        let mut seen = vec![format!("a file .{end}")];
        if way.format == "PROTO_TEXT" {
            // Words with any white space between them, a line for each field and each body.
            let words = text.split_whitespace().collect::<Vec<&str>>().join(" ");
            let added = ["x-envoy-", "server", "date", "x-request-id", "content-length", "transfer-encoding"];
            let added = added.map(|name| format!("key: \"{name}"));
            for part in words.split('}').map(str::trim).filter(|part| !part.is_empty()) {
                let part = part.rsplit('{').next().unwrap_or_default().trim();
                if !added.iter().any(|added| part.starts_with(added)) {
                    seen.push(mask.apply(part));
                }
            }
        } else {
            let mut traces = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
            while let Some(Ok(trace)) = traces.next() {
                note(&mut seen, mask, "", &trace);
            }
        }
        seen.sort();
        all.push(seen);
    }
    all.sort();
    all
}

fn manager(name: &str, filter: &Value) -> Value {
    http_filter(json!({
        "stat_prefix": name, "http_filters": [filter, router()],
        "normalize_path": false, "http_protocol_options": {"enable_trailers": true},
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
            {"match": {"prefix": "/own"}, "direct_response": {"status": 200, "body": {"inline_string": "own"}}},
            {"match": {"prefix": "/down"}, "route": {"cluster": "empty"}},
            {"match": {"prefix": "/"}, "route": {"cluster": "a"}},
        ]}]},
    }))
}

fn listener(name: &str, filter: &Value) -> Value {
    json!({"filter_chains": [{"filters": [manager(name, filter)]}]})
}

/// What files hold, by way.
fn files(launch: Launch) -> Vec<Vec<Seen>> {
    let origin = Upstream::start("a");
    let folder = TempDir::new();
    let mut config = Config::new().cluster_with(
        "a",
        &[origin.origin.address],
        postrider_tests::kit::config::upstream_http_options(
            json!({"explicit_http_config": {"http_protocol_options": {"enable_trailers": true}}}),
        ),
    );
    config = config.cluster("empty", &[]);
    for way in ways() {
        let own = folder.path().join(way.name);
        std::fs::create_dir(&own).expect("a folder");
        let sink =
            json!({"format": way.format, "file_per_tap": {"path_prefix": own.join("tap").to_str().expect("a path")}});
        let mut output = way.output.clone();
        output["sinks"] = json!([sink]);
        let filter = tap(json!({"static_config": {"match": way.matches, "output_config": output}}), &way.more);
        config = config.listener(way.name, listener(way.name, &filter));
    }
    let mut proxy = Proxy::start_with(&config, launch);
    let masks: Vec<(String, String)> = vec![(origin.origin.address.to_string(), "<a>".to_owned())];
    for way in ways() {
        ask(proxy.address(way.name));
    }
    let counted: Vec<String> =
        ways().iter().map(|way| proxy.stats().value(&format!("http.{}.tap.rq_tapped", way.name)).to_string()).collect();
    // Whoever ends in order has written what it had.
    proxy.signal("TERM");
    proxy.wait_exit();
    let mut all = Vec::new();
    for (way, counted) in ways().iter().zip(counted) {
        let mut traces = read(&folder.path().join(way.name), way, &Mask(masks.clone()));
        traces.push(vec![format!("counted rq_tapped: {counted}")]);
        all.push(traces);
    }
    all
}

fn both<T: Send>(play: impl Fn(Launch) -> T + Sync) -> (T, T) {
    let envoy = Launch::envoy().expect("Envoy 1.40 to compare with");
    let postrider = Launch { binary: Some(postrider_tests::kit::proxy::binary().to_owned()), ..Launch::default() };
    std::thread::scope(|scope| {
        let theirs = scope.spawn(|| play(envoy));
        let ours = play(postrider);
        (theirs.join().expect("Envoy"), ours)
    })
}

#[test]
fn traces_in_files_are_as_in_envoy() {
    let (theirs, ours) = both(files);
    let mut report = String::new();
    for ((way, theirs), ours) in ways().iter().zip(theirs).zip(ours) {
        let flat = |traces: Vec<Seen>| traces.into_iter().map(|trace| trace.join("\n      ")).collect::<Seen>();
        let (theirs, ours) = (flat(theirs), flat(ours));
        let difference = seen::compare(&theirs, &ours);
        for trace in &difference.envoy {
            report += &format!("\n{}: Envoy\n      {trace}", way.name);
        }
        for trace in &difference.postrider {
            report += &format!("\n{}: Postrider\n      {trace}", way.name);
        }
    }
    assert!(report.is_empty(), "{report}");
}

/// What the admin's stream tells of requests, of a buffer too.
fn asked(launch: Launch) -> Seen {
    let origin = Upstream::start("a");
    let filter = tap(json!({"admin_config": {"config_id": "it"}}), &json!({}));
    let config = Config::new()
        .cluster("a", &[origin.origin.address])
        .cluster("empty", &[])
        .listener("http", listener("asked", &filter));
    let proxy = Proxy::start_with(&config, launch);
    let masks = || Mask(vec![(origin.origin.address.to_string(), "<a>".to_owned())]);
    let order = |tap: &Value| {
        let order = json!({"config_id": "it", "tap_config": tap}).to_string();
        format!("POST /tap HTTP/1.1\r\nhost: admin\r\ncontent-length: {}\r\n\r\n{order}", order.len())
    };
    let marked = headers("request_headers", "x-tap", json!({"string_match": {"exact": "1"}}));
    let mut seen = Seen::new();
    for (name, output) in [
        ("streaming", json!({"sinks": [{"format": "JSON_BODY_AS_STRING", "streaming_admin": {}}]})),
        (
            "bytes",
            json!({"sinks": [{"format": "JSON_BODY_AS_BYTES", "streaming_admin": {}}], "max_buffered_rx_bytes": 2}),
        ),
        ("segments", json!({"sinks": [{"format": "JSON_BODY_AS_STRING", "streaming_admin": {}}], "streaming": true})),
    ] {
        let order = order(&json!({"match": marked, "output_config": output}));
        // The one before is over as soon as the proxy sees that nobody reads.
        let mut open = None;
        wait_until("a tap", || {
            let mut client = RawClient::connect(proxy.admin_address());
            client.send(&order);
            let is_open = client.response_head("POST").expect("an answer").status == 200;
            open = is_open.then_some(client);
            is_open
        });
        let mut client = open.expect("a tap");
        ask(proxy.address("http"));
        // Requests that match: two without a body and one with.
        let mut text = String::new();
        let mut found: Vec<Value> = Vec::new();
        let answers = |found: &[Value]| {
            let whole = |it: &Value| it.get("http_buffered_trace").is_some();
            let end = |it: &Value| it["http_streamed_trace_segment"].get("response_body_chunk").is_some();
            found.iter().filter(|it| whole(it) || end(it)).count()
        };
        while answers(&found) < 3 {
            text += &chunk(&mut client);
            let mut traces = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
            found.clear();
            while let Some(Ok(trace)) = traces.next() {
                found.push(trace);
            }
        }
        for trace in &found {
            note(&mut seen, &masks(), name, trace);
        }
    }
    seen
}

/// The next piece of a body in chunks.
fn chunk(client: &mut RawClient) -> String {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        line.extend(client.read_exact(1).expect("a chunk"));
    }
    let size = usize::try_from(parse_chunk_size(&line[..line.len() - 2]).expect("a size")).expect("a short one");
    let piece = client.read_exact(size + 2).expect("its bytes");
    String::from_utf8_lossy(&piece[..size]).into_owned()
}

#[test]
fn traces_for_who_asks_are_as_in_envoy() {
    let (theirs, ours) = both(asked);
    let difference = seen::compare(&theirs, &ours);
    assert!(difference.is_empty(), "{difference}");
}
