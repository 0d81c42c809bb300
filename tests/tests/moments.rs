//! `%COMMON_DURATION%` and what else is timed between client, proxy and upstream. The same expectations hold for Envoy.

use postrider_tests::get;
use postrider_tests::h2_origin::H2Origin;
use postrider_tests::kit::config::{self, Config};
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Origin, Proxy, RawClient, TempDir, net, wait_until};
use postrider_tests::tls::{Authority, upstream};
use postrider_tests::tls_origin::Serving;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The JSON lines of requests and of their tries.
struct Timed {
    proxy: Proxy,
    paths: [PathBuf; 2],
    _directory: TempDir,
}

impl Timed {
    fn start(cluster: impl FnOnce(Config) -> Config) -> Timed {
        let directory = TempDir::new();
        let paths = ["requests", "tries"].map(|name| directory.path().join(name));
        let [requests, tries] = paths
            .each_ref()
            .map(|path| config::file_access_log(path, json!({"log_format": {"json_format": all_moments()}})));
        let router = json!({"upstream_log": [tries]});
        let router = config::extension("envoy.filters.http.router", "filters.http.router.v3.Router", router);
        let config = Config::routes(json!([
            {"match": {"prefix": "/direct"}, "direct_response": {"status": 200}},
            {"match": {"prefix": "/dead"}, "route": {"cluster": "dead"}},
            {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
        ]))
        .cluster("dead", &[net::refusing_address()])
        .overlay_filter("http", json!({"access_log": [requests], "http_filters": [router]}));
        let launch = Launch::default().with_arguments(&["--file-flush-interval-msec", "20"]);
        Timed { proxy: Proxy::start_with(&cluster(config), launch), paths, _directory: directory }
    }

    fn lines(&self, which: usize, count: usize) -> Vec<Value> {
        lines(&self.paths[which], count)
    }
}

fn lines(path: &Path, count: usize) -> Vec<Value> {
    let mut text = String::new();
    wait_until("the lines", || {
        text = std::fs::read_to_string(path).unwrap_or_default();
        text.ends_with('\n') && text.lines().count() >= count
    });
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Every moment since the stream began, and those of the connection until the end.
fn all_moments() -> Value {
    let mut fields = serde_json::Map::new();
    for moment in MOMENTS {
        fields.insert(moment.to_owned(), json!(format!("%COMMON_DURATION(DS_RX_BEG:{moment}:ns)%")));
    }
    for moment in ["US_CX_BEG", "US_CX_END", "US_HS_END"] {
        fields.insert(format!("since {moment}"), json!(format!("%COMMON_DURATION({moment}:DS_TX_END:ns)%")));
    }
    fields.insert("wait".to_owned(), json!("%UPSTREAM_CONNECTION_POOL_READY_DURATION%"));
    fields.insert("latency".to_owned(), json!("%CEL(response.backend_latency > duration('0s'))%"));
    fields.insert("waited".to_owned(), json!("%CEL(upstream.cx_pool_ready_duration >= duration('0s'))%"));
    Value::Object(fields)
}

const MOMENTS: [&str; 11] = [
    "DS_RX_BEG",
    "DS_RX_END",
    "US_CX_BEG",
    "US_CX_END",
    "US_HS_END",
    "US_TX_BEG",
    "US_TX_END",
    "US_RX_BEG",
    "US_RX_END",
    "DS_TX_BEG",
    "DS_TX_END",
];

/// The moments that `line` has since its beginning.
fn there(line: &Value) -> Vec<&'static str> {
    MOMENTS.into_iter().filter(|moment| !line[*moment].is_null()).collect()
}

/// These moments of `line` are in order.
fn assert_order(line: &Value, moments: &[&str]) {
    assert!(moments.is_sorted_by_key(|moment| line[*moment].as_u64().unwrap()), "{line:#}");
}

const OF_UPSTREAM: [&str; 4] = ["US_TX_BEG", "US_TX_END", "US_RX_BEG", "US_RX_END"];

/// What a request on a connection of its own has, and then one that comes to a pooled connection.
fn assert_pooled(timed: &Timed, is_secured: bool) {
    for count in 1..=2 {
        assert_eq!(timed.proxy.exchange(get("/a")).status, 200);
        timed.lines(0, count);
    }
    let secured = if is_secured { &["US_HS_END"][..] } else { &[] };
    let connect = [&["US_CX_BEG", "US_CX_END"], secured].concat();
    let [lines, tries] = [timed.lines(0, 2), timed.lines(1, 2)];
    for (line, attempt) in lines.iter().zip(&tries) {
        let is_first = line == &lines[0];
        let connect = if is_first { connect.as_slice() } else { &[] };
        let around = |before: &[&'static str], after: &[&'static str]| [before, connect, &OF_UPSTREAM, after].concat();
        assert_eq!(there(line), around(&["DS_RX_BEG", "DS_RX_END"], &["DS_TX_BEG", "DS_TX_END"]), "{line:#}");
        assert_eq!(there(attempt), around(&["DS_RX_BEG"], &[]), "{attempt:#}");
        for line in [line, attempt] {
            assert_order(line, &around(&["DS_RX_BEG"], &[]));
            assert_eq!((&line["latency"], &line["waited"]), (&json!("true"), &json!("true")), "{line:#}");
            assert!(line["wait"].is_u64(), "{line:#}");
        }
        assert_order(line, &["US_RX_BEG", "DS_TX_BEG", "DS_TX_END"]);
        assert_order(line, &["US_RX_END", "DS_TX_END"]);
        // The pooled connection has the times at which it was made.
        assert_eq!(line["since US_HS_END"].is_u64(), is_secured, "{line:#}");
        let age = |which: usize| lines[which]["since US_CX_BEG"].as_u64().unwrap();
        assert!(is_first || age(1) > lines[1]["DS_TX_END"].as_u64().unwrap(), "{lines:#?}");
    }
}

#[test]
fn a_plain_upstream() {
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    assert_pooled(&Timed::start(|config| config.cluster("origin", &[origin.address])), false);
}

#[test]
fn an_upstream_with_tls() {
    let authority = Authority::new("authority");
    let origin = Serving::new(&authority.issue(&["origin.test"])).start();
    let trusted = json!({"validation_context": {"trusted_ca": {"inline_string": authority.pem()}}});
    let context = upstream(json!({"common_tls_context": trusted}));
    let timed =
        Timed::start(|config| config.cluster_with("origin", &[origin.address], json!({"transport_socket": context})));
    assert_pooled(&timed, true);
}

#[test]
fn an_upstream_of_http2() {
    let origin = H2Origin::start(10);
    let http2 = config::upstream_http_options(
        json!({"explicit_http_config": {"http_protocol_options": null, "http2_protocol_options": {}}}),
    );
    assert_pooled(&Timed::start(|config| config.cluster_with("origin", &[origin.address], http2)), false);
}

#[test]
fn without_an_upstream_there_are_the_clients_only() {
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let timed = Timed::start(|config| config.cluster("origin", &[origin.address]));
    let expected = ["DS_RX_BEG", "DS_RX_END", "DS_TX_BEG", "DS_TX_END"];
    assert_eq!(timed.proxy.exchange(get("/direct")).status, 200);
    let line = timed.lines(0, 1).remove(0);
    assert_eq!((there(&line), &line["wait"]), (expected.to_vec(), &Value::Null), "{line:#}");
    assert_eq!(timed.proxy.exchange(get("/dead")).status, 503);
    let line = timed.lines(0, 2).remove(1);
    assert_eq!(there(&line), expected, "{line:#}");
    // It waited for a connection that did not come.
    assert!(line["wait"].is_u64() && line["latency"].is_null() && line["waited"] == json!("true"), "{line:#}");
    let attempt = timed.lines(1, 1).remove(0);
    assert_eq!((there(&attempt), attempt["wait"].is_u64()), (vec!["DS_RX_BEG"], true), "{attempt:#}");
}

#[test]
fn of_a_connection_there_is_its_upstreams() {
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok");
    let directory = TempDir::new();
    let path = directory.path().join("log");
    let log = config::file_access_log(&path, json!({"log_format": {"json_format": all_moments()}}));
    let config = Config::default()
        .tcp("tcp", json!({"cluster": "origin", "access_log": [log]}))
        .cluster("origin", &[origin.address]);
    let proxy = Proxy::start_with(&config, Launch::default().with_arguments(&["--file-flush-interval-msec", "20"]));
    RawClient::once(proxy.address("tcp"), get("/")).unwrap();
    let line = lines(&path, 1).remove(0);
    assert_eq!(there(&line), ["DS_RX_BEG", "US_CX_BEG", "US_CX_END"], "{line:#}");
    assert_order(&line, &["DS_RX_BEG", "US_CX_BEG", "US_CX_END"]);
    assert!(line["wait"].is_u64() && line["waited"] == json!("true") && line["latency"].is_null(), "{line:#}");
}
