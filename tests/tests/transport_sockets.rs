//! Transports by what the configuration says of endpoints: `transport_socket_matches`.

use postrider_tests::kit::config::{extension, file_access_log, overlay, socket_address};
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Config, Origin, Proxy, TempDir, wait_until};
use postrider_tests::tls::{Authority, upstream};
use postrider_tests::tls_origin::{Serving, TlsOrigin};
use serde_json::{Value, json};
use std::net::SocketAddr;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

fn raw() -> Value {
    extension("envoy.transport_sockets.raw_buffer", "transport_sockets.raw_buffer.v3.RawBuffer", json!({}))
}

/// Says by the PROXY protocol where connections come from, and then goes on in plain text.
fn introducing() -> Value {
    extension(
        "envoy.transport_sockets.upstream_proxy_protocol",
        "transport_sockets.proxy_protocol.v3.ProxyProtocolUpstreamTransport",
        json!({"config": {"version": "V1"}, "transport_socket": raw()}),
    )
}

fn trusting(authority: &Authority) -> Value {
    upstream(json!({"common_tls_context": {"validation_context": {"trusted_ca": {"inline_string": authority.pem()}}}}))
}

fn tls_origin(authority: &Authority) -> TlsOrigin {
    Serving::new(&authority.issue(&["origin.test"])).start()
}

/// What is said of an endpoint or a locality.
fn saying(labels: Value) -> Value {
    json!({"metadata": {"filter_metadata": {"envoy.transport_socket_match": labels}}})
}

fn host(address: SocketAddr, more: Value) -> Value {
    let mut host = json!({"endpoint": {"address": socket_address(&address.ip().to_string(), address.port())}});
    overlay(&mut host, more);
    host
}

/// A proxy whose cluster has these localities and fields.
fn proxy(localities: Value, fields: Value) -> Proxy {
    let mut cluster = json!({"load_assignment": {"cluster_name": "origin", "endpoints": localities}});
    overlay(&mut cluster, fields);
    let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]);
    Proxy::start_with(&Config::routes(routes).cluster_with("origin", &[], cluster), Launch::default())
}

fn all_succeed(proxy: &Proxy, requests: usize) {
    let mut client = proxy.client();
    for _ in 0..requests {
        let answer = client.exchange("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

/// How many endpoints have the transport of this name.
fn counted(proxy: &Proxy, name: &str) -> u64 {
    proxy.stats().value(&format!("cluster.origin.{name}.total_match_count"))
}

#[test]
fn hosts_of_one_cluster_are_spoken_to_in_tls_and_in_plain_text() {
    let authority = Authority::new("authority");
    let (secret, plain) = (tls_origin(&authority), Origin::fixed(OK));
    let hosts = json!([host(secret.address, saying(json!({"tlsMode": "istio"}))), host(plain.address, json!({}))]);
    let proxy = proxy(
        json!([{"lb_endpoints": hosts}]),
        json!({"transport_socket_matches": [
            {"name": "tlsMode-istio", "match": {"tlsMode": "istio"}, "transport_socket": trusting(&authority)},
            {"name": "tlsMode-disabled", "match": {}, "transport_socket": raw()},
        ]}),
    );
    all_succeed(&proxy, 10);
    assert_eq!((secret.hellos().len(), plain.connection_count()), (1, 1), "each host has a pool of its own");
    assert_eq!(plain.requests().len(), 5);
    let names = ["tlsMode-istio", "tlsMode-disabled", "default"];
    assert_eq!(names.map(|name| counted(&proxy, name)), [1, 1, 0]);
    assert_eq!(proxy.stats().value("cluster.origin.ssl.handshake"), 1);
}

#[test]
fn the_first_that_fits_counts_and_the_clusters_own_is_for_all_others() {
    let authority = Authority::new("authority");
    let (first, other) = (Origin::fixed(OK), tls_origin(&authority));
    let labels = json!({"a": "yes", "n": 1, "nested": {"list": [true]}});
    let partly = json!({"a": "yes", "n": 2});
    let hosts = json!([host(first.address, saying(labels.clone())), host(other.address, saying(partly))]);
    let strange = trusting(&Authority::new("stranger"));
    let proxy = proxy(
        json!([{"lb_endpoints": hosts}]),
        json!({"transport_socket": trusting(&authority), "transport_socket_matches": [
            {"name": "more", "match": {"a": "yes", "n": 1, "b": "no"}, "transport_socket": strange},
            {"name": "first", "match": labels, "transport_socket": raw()},
            {"name": "second", "match": {"a": "yes", "n": 1}, "transport_socket": strange},
        ]}),
    );
    all_succeed(&proxy, 4);
    assert_eq!(first.requests().len(), 2);
    let names = ["more", "first", "second", "default"];
    assert_eq!(names.map(|name| counted(&proxy, name)), [0, 1, 0, 1]);
}

#[test]
fn what_is_said_of_an_endpoint_comes_before_what_is_said_of_its_locality() {
    let authority = Authority::new("authority");
    let (secret, plain) = (tls_origin(&authority), Origin::fixed(OK));
    let mut locality = json!({"locality": {"zone": "a"}, "lb_endpoints": [
        host(secret.address, json!({})), host(plain.address, saying(json!({"plain": true}))),
    ]});
    overlay(&mut locality, saying(json!({"tls": true})));
    let proxy = proxy(
        json!([locality]),
        json!({"transport_socket_matches": [
            {"name": "tls", "match": {"tls": true}, "transport_socket": trusting(&authority)},
            {"name": "plain", "match": {"plain": true}, "transport_socket": raw()},
        ]}),
    );
    all_succeed(&proxy, 4);
    assert_eq!((plain.requests().len(), secret.hellos().len()), (2, 1));
    assert_eq!(["tls", "plain", "default"].map(|name| counted(&proxy, name)), [1, 1, 0]);
}

#[test]
fn only_the_hosts_that_want_it_are_told_of_clients() {
    let (told, untold) = (Origin::fixed(OK), Origin::fixed(OK));
    let hosts = json!([host(told.address, saying(json!({"told": true}))), host(untold.address, json!({}))]);
    let matches = json!([{"name": "told", "match": {"told": true}, "transport_socket": introducing()}]);
    let proxy = proxy(json!([{"lb_endpoints": hosts}]), json!({"transport_socket_matches": matches}));
    // The header is no request, so the answers of the one that is told do not matter here.
    for _ in 0..2 {
        let mut client = proxy.client();
        for _ in 0..2 {
            client.send("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
            let _ = client.any_response("GET");
        }
    }
    wait_until("both were asked", || told.connection_count() > 0 && untold.connection_count() > 0);
    assert!(told.bytes(0).starts_with(b"PROXY TCP4 127.0.0.1 127.0.0.1 "), "{:?}", told.bytes(0));
    assert_eq!(untold.connection_count(), 1, "clients share the connections of hosts that are not told of them");
    assert!(untold.bytes(0).starts_with(b"GET / "));
}

#[test]
fn checks_have_the_transport_that_they_ask_for() {
    let authority = Authority::new("authority");
    let (secret, health) = (tls_origin(&authority), Origin::fixed(OK));
    let port = json!({"endpoint": {"health_check_config": {"port_value": health.address.port()}}});
    let mut labelled = host(secret.address, saying(json!({"tls": true})));
    overlay(&mut labelled, port);
    let check = json!({
        "timeout": "1s", "interval": "60s", "unhealthy_threshold": 1, "healthy_threshold": 1,
        "http_health_check": {"path": "/health"},
        "transport_socket_match_criteria": {"in": "clear"},
    });
    let proxy = proxy(
        json!([{"lb_endpoints": [labelled]}]),
        json!({"health_checks": [check], "transport_socket_matches": [
            {"name": "tls", "match": {"tls": true}, "transport_socket": trusting(&authority)},
            {"name": "checks", "match": {"in": "clear"}, "transport_socket": raw()},
        ]}),
    );
    proxy.wait_stat("cluster.origin.health_check.success", 1);
    all_succeed(&proxy, 2);
    assert_eq!(health.requests()[0].target, "/health");
    assert_eq!(["tls", "checks", "default"].map(|name| counted(&proxy, name)), [1, 1, 0]);
}

#[test]
fn the_scheme_is_that_of_the_hosts_transport() {
    let authority = Authority::new("authority");
    let (secret, plain) = (tls_origin(&authority), Origin::fixed(OK));
    let hosts = json!([host(secret.address, saying(json!({"tls": true}))), host(plain.address, json!({}))]);
    let directory = TempDir::new();
    let log = directory.path().join("log");
    let line = json!({"log_format": {"text_format_source": {"inline_string": "%UPSTREAM_HOST% %REQ(:SCHEME)%\n"}}});
    let cluster = json!({
        "load_assignment": {"cluster_name": "origin", "endpoints": [{"lb_endpoints": hosts}]},
        "transport_socket_matches": [
            {"name": "tls", "match": {"tls": true}, "transport_socket": trusting(&authority)},
        ],
    });
    let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]);
    let config = Config::routes(routes).cluster_with("origin", &[], cluster).overlay_filter(
        "http",
        json!({
            "scheme_header_transformation": {"match_upstream": true},
            "access_log": [file_access_log(&log, line)],
        }),
    );
    let launch = Launch::default().with_arguments(&["--file-flush-interval-msec", "20"]);
    let proxy = Proxy::start_with(&config, launch);
    all_succeed(&proxy, 2);
    let lines = || std::fs::read_to_string(&log).unwrap_or_default();
    wait_until("both are logged", || lines().lines().count() == 2);
    for (address, scheme) in [(secret.address, "https"), (plain.address, "http")] {
        assert!(lines().contains(&format!("{address} {scheme}\n")), "{}", lines());
    }
}
