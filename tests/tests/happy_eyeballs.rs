//! Endpoints with several addresses: the first that connects is used (RFC 8305).

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use postrider_tests::kit::config::{file_access_log, overlay, socket_address};
use postrider_tests::kit::net::{Blackhole, refusing_address};
use postrider_tests::kit::{Config, Origin, Proxy, TempDir, wait_until};
use serde_json::{Value, json};

fn cluster(addresses: &[SocketAddr], fields: Value) -> Value {
    let place = |address: &SocketAddr| socket_address(&address.ip().to_string(), address.port());
    let [first, additional @ ..] = addresses else { panic!("an address") };
    let additional: Vec<Value> = additional.iter().map(|address| json!({"address": place(address)})).collect();
    let mut cluster = json!({"load_assignment": {"cluster_name": "origin", "endpoints": [{"lb_endpoints": [
        {"endpoint": {"address": place(first), "additional_addresses": additional}},
    ]}]}});
    overlay(&mut cluster, fields);
    cluster
}

/// A proxy for a host of these addresses, and where it writes what it reached.
fn proxy(addresses: &[SocketAddr], fields: Value) -> (Proxy, TempDir) {
    let directory = TempDir::new();
    let format = "%RESPONSE_CODE% %UPSTREAM_REMOTE_ADDRESS% %UPSTREAM_TRANSPORT_FAILURE_REASON%\n";
    let format = json!({"log_format": {"text_format_source": {"inline_string": format}}});
    let log = file_access_log(&directory.path().join("log"), format);
    let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]);
    let config = Config::routes(routes)
        .cluster_with("origin", &[], cluster(addresses, fields))
        .overlay_filter("http", json!({"access_log": [log]}));
    (Proxy::start(&config), directory)
}

fn line(directory: &TempDir) -> String {
    let read = || std::fs::read_to_string(directory.path().join("log")).unwrap_or_default();
    wait_until("a line of the log", || read().ends_with('\n'));
    read().trim_end().to_owned()
}

#[test]
fn an_address_that_refuses_is_passed_over_at_once() {
    let origin = Origin::echo("there");
    let (proxy, log) = proxy(&[refusing_address(), origin.address, refusing_address()], json!({}));
    assert_eq!(proxy.get("/").status, 200);
    assert_eq!(line(&log), format!("200 {} -", origin.address));
    let stats = proxy.stats();
    assert_eq!(stats.value("cluster.origin.upstream_cx_total"), 2, "each attempt counts");
    assert_eq!(stats.value("cluster.origin.upstream_cx_connect_fail"), 0);
    assert_eq!(stats.value("cluster.origin.membership_total"), 1);
    assert_eq!(proxy.get("/").status, 200);
    assert_eq!(origin.connection_count(), 1, "the connection is kept like any other");
}

#[test]
fn an_address_that_hangs_is_overtaken_after_its_head_start() {
    let (hanging, origin) = (Blackhole::start(), Origin::echo("there"));
    let (proxy, log) = proxy(&[hanging.address, origin.address], json!({"connect_timeout": "10s"}));
    let began = Instant::now();
    assert_eq!(proxy.get("/").status, 200);
    assert!(began.elapsed() >= Duration::from_millis(290), "{:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(8), "the timeout was not waited for");
    assert_eq!(line(&log), format!("200 {} -", origin.address));
    proxy.wait_stat("cluster.origin.upstream_cx_active", 1);
}

#[test]
fn when_no_address_answers_the_last_failure_is_told_and_the_timeout_is_that_of_all() {
    let (refused, log) = proxy(&[refusing_address(), refusing_address()], json!({}));
    assert_eq!(refused.get("/").status, 503);
    assert!(line(&log).ends_with(" delayed_connect_error:_Connection_refused"), "{}", line(&log));
    assert_eq!(refused.stats().value("cluster.origin.upstream_cx_connect_fail"), 1);
    assert_eq!(refused.stats().value("cluster.origin.upstream_cx_total"), 2);
    let hanging = [Blackhole::start(), Blackhole::start()];
    let addresses = [hanging[0].address, hanging[1].address];
    let (silent, _log) = proxy(&addresses, json!({"connect_timeout": "0.7s"}));
    assert_eq!(silent.get("/").status, 503);
    assert_eq!(silent.stats().value("cluster.origin.upstream_cx_connect_timeout"), 1);
    silent.wait_stat("cluster.origin.upstream_cx_active", 0);
}

#[test]
fn families_take_turns_in_the_order_that_the_cluster_wants() {
    let origin = Origin::start_at(([0, 0, 0, 0, 0, 0, 0, 1], 0).into(), |connection| {
        while let Some(request) = connection.request() {
            connection.write(&postrider_tests::kit::origin::echo_answer("six", &request));
        }
    });
    let (two, fast) = (Blackhole::start(), Origin::echo("four"));
    // The second family comes after the first address, not after all of its family.
    let addresses = [refusing_address(), two.address, origin.address];
    let (turns, log) = proxy(&addresses, json!({}));
    assert_eq!(turns.get("/").status, 200);
    assert_eq!(line(&log), format!("200 {} -", origin.address));
    assert_eq!(turns.stats().value("cluster.origin.upstream_cx_total"), 2);
    // Here the other family is first.
    let order =
        json!({"upstream_connection_options": {"happy_eyeballs_config": {"first_address_family_version": "V6"}}});
    let (six, log) = proxy(&[fast.address, origin.address], order);
    assert_eq!(six.get("/").status, 200);
    assert_eq!(line(&log), format!("200 {} -", origin.address));
    assert_eq!(fast.connection_count(), 0);
}

#[test]
fn a_unix_domain_socket_is_tried_first_where_the_cluster_wants_it() {
    let (origin, directory) = (Origin::echo("there"), TempDir::new());
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).expect("a socket");
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a request");
            head.push(byte[0]);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\npath").expect("a client");
    });
    let mut fields = cluster(
        &[origin.address],
        json!({"upstream_connection_options": {"happy_eyeballs_config": {"first_address_family_version": "PIPE"}}}),
    );
    fields["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["additional_addresses"] =
        json!([{"address": {"pipe": {"path": path}}}]);
    let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]);
    let proxy = Proxy::start(&Config::routes(routes).cluster_with("origin", &[], fields));
    let answer = proxy.get("/");
    assert_eq!((answer.status, answer.text()), (200, "path"));
    assert_eq!(origin.connection_count(), 0);
    answering.join().expect("an answer");
}

#[test]
fn a_logical_name_has_all_of_its_addresses() {
    let origin = Origin::echo("there");
    let fields = json!({"type": "LOGICAL_DNS", "dns_lookup_family": "ALL", "load_assignment": {"endpoints": [
        {"lb_endpoints": [{"endpoint": {"address": socket_address("localhost", origin.address.port())}}]},
    ]}});
    let (proxy, _log) = proxy(&[origin.address], fields);
    assert_eq!(proxy.get("/").status, 200);
    assert_eq!(proxy.stats().value("cluster.origin.membership_total"), 1);
}
