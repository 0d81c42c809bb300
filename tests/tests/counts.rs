//! What statistics say of connections, flow control, resets and hosts. The same expectations hold for Envoy.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use postrider_tests::h2_frames;
use postrider_tests::h2_origin::H2Origin;
use postrider_tests::kit::config::{self, Config};
use postrider_tests::kit::{Origin, Proxy, RawClient, net, wait_until};
use postrider_tests::{envoy, get};
use serde_json::{Value, json};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// More than sockets and buffers on the way hold.
const LARGE: usize = 24 << 20;

fn http(name: &str) -> String {
    format!("http.ingress_http.{name}")
}

fn cluster(name: &str) -> String {
    format!("cluster.origin.{name}")
}

/// Waits until each of these has its value.
fn await_all(proxy: &Proxy, wanted: &[(String, u64)]) {
    for (name, value) in wanted {
        proxy.wait_stat(name, *value);
    }
}

/// Dashboards read from it how long an upstream takes.
#[test]
fn an_upstreams_time_is_told_of_its_answers_alone() {
    let origin = Origin::start(|connection| {
        while connection.request().is_some_and(|request| request.target != "/never") {
            connection.write(OK.as_bytes());
        }
    });
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let told = || proxy.admin_get("/stats").text().contains("cluster.origin.upstream_rq_time:");
    assert_eq!(proxy.get("/never").status, 503);
    proxy.wait_stat(&cluster("upstream_rq_503"), 1);
    assert!(!told(), "an answer of the proxy's own");
    assert_eq!(proxy.get("/").status, 200);
    wait_until("the time of an answer", told);
}

#[test]
fn it_is_counted_who_ended_a_connection_and_whether_in_the_middle_of_a_request() {
    let origin = Origin::start(|connection| {
        while let Some(request) = connection.request() {
            if request.target != "/never" {
                connection.write(OK.as_bytes());
            }
        }
    });
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut kept = proxy.client();
    assert_eq!(kept.exchange(get("/")).status, 200);
    drop(kept);
    proxy.wait_stat(&http("downstream_cx_destroy_remote"), 1);
    let mut told = proxy.client();
    let answer = told.exchange("GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
    assert!(answer.status == 200 && told.closed());
    proxy.wait_stat(&http("downstream_cx_destroy_local"), 1);
    let stats = proxy.stats();
    assert_eq!(stats.value(&http("downstream_cx_destroy_active_rq")), 0);
    // In the middle of a request, and of a head.
    let mut waiting = proxy.client();
    waiting.send(get("/never"));
    origin.wait_requests(3);
    waiting.reset();
    proxy.wait_stat(&http("downstream_cx_destroy_remote_active_rq"), 1);
    let mut writing = proxy.client();
    writing.send("GET / HTTP/1.1\r\nho");
    proxy.wait_stat(&http("downstream_cx_rx_bytes_buffered"), 18);
    drop(writing);
    await_all(
        &proxy,
        &[
            (http("downstream_cx_destroy_remote_active_rq"), 2),
            (http("downstream_cx_destroy_active_rq"), 2),
            (http("downstream_cx_destroy_remote"), 3),
            (http("downstream_cx_destroy"), 4),
            (http("downstream_rq_rx_reset"), 2),
            (http("downstream_cx_destroy_local_active_rq"), 0),
        ],
    );
}

#[test]
fn an_answer_before_the_request_is_whole_is_counted() {
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "direct_response": {"status": 200}}]));
    let proxy = Proxy::start(&config);
    let mut client = proxy.client();
    client.send("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 10\r\n\r\nab");
    assert_eq!(client.response("POST").expect("an answer").status, 200);
    proxy.wait_stat(&http("downstream_rq_response_before_rq_complete"), 1);
    proxy.wait_stat(&http("downstream_rq_rx_reset"), 1);
    assert_eq!(proxy.get("/").status, 200);
    assert_eq!(proxy.stats().value(&http("downstream_rq_response_before_rq_complete")), 1);
}

#[test]
fn refusals_of_paths_and_names_are_counted() {
    let answers = json!([{"match": {"prefix": "/"}, "direct_response": {"status": 200}}]);
    let manager = |action: &str| {
        json!({
            "normalize_path": true,
            "path_with_escaped_slashes_action": "REJECT_REQUEST",
            "common_http_protocol_options": {"headers_with_underscores_action": action},
        })
    };
    let dropping = Config::routes(answers.clone()).overlay_filter("http", manager("DROP_HEADER"));
    let proxy = Proxy::start(&dropping);
    assert_eq!(proxy.get("/a%2fb").status, 400);
    proxy.wait_stat(&http("downstream_rq_failed_path_normalization"), 1);
    assert_eq!(proxy.exchange("GET / HTTP/1.1\r\nhost: test\r\na_b: c\r\nd_e: f\r\n\r\n").status, 200);
    proxy.wait_stat("http1.dropped_headers_with_underscores", 2);
    let rejecting = Proxy::start(&Config::routes(answers).overlay_filter("http", manager("REJECT_REQUEST")));
    assert_eq!(rejecting.exchange("GET / HTTP/1.1\r\nhost: test\r\na_b: c\r\n\r\n").status, 400);
    rejecting.wait_stat("http1.requests_rejected_with_underscores_in_headers", 1);
}

/// Whatever is refused because it cannot be understood, and not what is understood and refused.
#[test]
fn heads_and_bodies_that_break_the_protocol_are_counted_as_its_errors() {
    let origin = Origin::start(|connection| while connection.request().is_some() {});
    let manager = json!({"common_http_protocol_options": {"max_headers_count": 50}, "normalize_path": true});
    let proxy = Proxy::start(&Config::proxy_to(origin.address).overlay_filter("http", manager));
    let many: String = (0..60).map(|number| format!("x-{number}: y\r\n")).collect();
    let cases = [
        ("GET / HTTP/1.0\r\nhost: a\r\n\r\n".to_owned(), 426, 1),
        ("rubbish\r\n\r\n".to_owned(), 400, 1),
        (format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "y".repeat(70_000)), 431, 1),
        (format!("GET / HTTP/1.1\r\nhost: a\r\n{many}\r\n"), 431, 1),
        ("GET / HTTP/1.1\r\nhost: a b\r\n\r\n".to_owned(), 400, 1),
        ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip\r\n\r\n".to_owned(), 501, 1),
        ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nno\r\n".to_owned(), 400, 1),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400, 0),
        ("GET /%00 HTTP/1.1\r\nhost: a\r\n\r\n".to_owned(), 400, 0),
    ];
    let mut errors = 0;
    for (number, (request, status, counts)) in cases.iter().enumerate() {
        let shown = &request[..request.len().min(80)];
        assert_eq!(proxy.exchange(request).status, *status, "{shown:?}");
        errors += counts;
        proxy.wait_stat(&http("downstream_rq_completed"), number as u64 + 1);
        assert_eq!(proxy.stats().value(&http("downstream_cx_protocol_error")), errors, "{shown:?}");
    }
    assert_eq!(proxy.stats().value(&http("downstream_rq_too_large")), 0);
}

/// Reads nothing until the whole of a large answer waits, and then all of it.
fn read_slowly(proxy: &Proxy, address: SocketAddr, buffered: &str) {
    let mut client = RawClient::connect(address);
    client.send(get("/large"));
    proxy.wait_stat(&cluster("upstream_flow_control_paused_reading_total"), 1);
    wait_until("some of it waits", || proxy.stats().value(buffered) > 0);
    let mut left = LARGE;
    let mut room = vec![0; 1 << 20];
    let mut stream = client.stream();
    while left > 0 {
        match stream.read(&mut room).expect("more of the answer") {
            0 => panic!("{left} bytes are missing"),
            count => left = left.saturating_sub(count),
        }
    }
    drop(client);
    wait_until("reading goes on as often as it paused", || {
        let stats = proxy.stats();
        let count = |name: &str| stats.value(&cluster(&format!("upstream_flow_control_{name}_reading_total")));
        // Envoy may end without the last one, and with a gauge that nobody sets any more.
        envoy() || count("resumed") == count("paused") && stats.value(buffered) == 0
    });
}

fn large_origin() -> Origin {
    Origin::start(|connection| {
        while connection.request().is_some() {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {LARGE}\r\n\r\n");
            if !connection.write(head.as_bytes()) || !connection.write(&vec![b'x'; LARGE]) {
                return;
            }
        }
    })
}

#[test]
fn an_upstream_is_not_read_while_its_client_does_not_take() {
    let origin = large_origin();
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    read_slowly(&proxy, proxy.address("http"), &http("downstream_cx_tx_bytes_buffered"));
}

#[test]
fn the_same_holds_for_connections_that_are_carried() {
    let origin = large_origin();
    let config = Config::new().tcp("tcp", json!({"cluster": "origin"})).cluster("origin", &[origin.address]);
    let proxy = Proxy::start(&config);
    read_slowly(&proxy, proxy.address("tcp"), "tcp.ingress_tcp.downstream_cx_tx_bytes_buffered");
}

#[test]
fn a_client_is_not_read_while_its_upstream_does_not_take() {
    let (go_on, wait) = std::sync::mpsc::sync_channel::<()>(1);
    let wait = std::sync::Mutex::new(wait);
    let origin = Origin::start(move |connection| {
        let Some(request) = connection.request_head() else { return };
        let _ = wait.lock().unwrap().recv();
        if connection.body(&request, &mut |_| {}) {
            connection.write(OK.as_bytes());
        }
    });
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let address = proxy.address("http");
    let sender = std::thread::spawn(move || {
        let mut client = RawClient::connect(address);
        client.send(format!("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: {LARGE}\r\n\r\n"));
        client.send(vec![b'x'; LARGE]);
        client.response("POST").expect("an answer").status
    });
    let paused = http("downstream_flow_control_paused_reading_total");
    wait_until("the client is not read", || proxy.stats().value(&paused) > 0);
    for name in ["upstream_flow_control_backed_up_total", "upstream_cx_tx_bytes_buffered"] {
        wait_until(name, || proxy.stats().value(&cluster(name)) > 0);
    }
    go_on.send(()).unwrap();
    assert_eq!(sender.join().unwrap(), 200);
    wait_until("all of it is gone", || {
        let stats = proxy.stats();
        stats.value(&paused) == stats.value(&http("downstream_flow_control_resumed_reading_total"))
            && stats.value(&cluster("upstream_flow_control_backed_up_total"))
                == stats.value(&cluster("upstream_flow_control_drained_total"))
            && stats.value(&cluster("upstream_cx_tx_bytes_buffered")) == 0
    });
}

#[test]
fn resets_of_streams_are_counted_by_whose_they_are() {
    let origin = H2Origin::start(100);
    let protocol = json!({"http_protocol_options": null, "http2_protocol_options": {}});
    let fields = config::upstream_http_options(json!({"explicit_http_config": protocol}));
    let routes = json!([
        {"match": {"path": "/never"}, "route": {"cluster": "origin", "timeout": "0.2s"}},
        {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]);
    let proxy = Proxy::start(&Config::routes(routes).cluster_with("origin", &[origin.address], fields));
    assert_eq!(proxy.get("/").status, 200);
    assert_eq!(proxy.get("/reset").status, 503);
    proxy.wait_stat(&cluster("upstream_rq_rx_reset"), 1);
    assert_eq!(proxy.get("/never").status, 504);
    proxy.wait_stat(&cluster("upstream_rq_tx_reset"), 1);
    // What the upstream cannot make sense of was reset by us, in Envoy's view.
    assert_eq!(proxy.get("/reset-protocol").status, 502);
    proxy.wait_stat(&cluster("upstream_rq_tx_reset"), 2);
    assert_eq!(proxy.stats().value(&cluster("upstream_rq_rx_reset")), 1);
}

/// Whether a peer of HTTP/2 that sent `bytes` has begun a request with them.
fn asks(bytes: &[u8]) -> bool {
    let mut rest = bytes.get(h2_frames::PREFACE.len()..).unwrap_or_default();
    while let [a, b, c, kind, _, _, _, _, _, behind @ ..] = rest {
        if *kind == h2_frames::HEADERS {
            return true;
        }
        rest = behind.get(u32::from_be_bytes([0, *a, *b, *c]) as usize..).unwrap_or_default();
    }
    false
}

#[test]
fn requests_that_a_connection_of_http2_ends_with_were_not_counted() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let origin = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&h2_frames::settings(&[])).unwrap();
        let (mut seen, mut room) = (Vec::new(), [0; 4096]);
        while !asks(&seen) {
            let count = stream.read(&mut room).unwrap();
            seen.extend_from_slice(&room[..count]);
        }
    });
    let protocol = json!({"http_protocol_options": null, "http2_protocol_options": {}});
    let fields = config::upstream_http_options(json!({"explicit_http_config": protocol}));
    let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]);
    let proxy = Proxy::start(&Config::routes(routes).cluster_with("origin", &[address], fields));
    assert_eq!(proxy.get("/").status, 503);
    origin.join().unwrap();
    proxy.wait_stat(&cluster("upstream_cx_destroy_remote_with_active_rq"), 1);
    let counted = ["upstream_cx_destroy_with_active_rq", "upstream_rq_pending_failure_eject"];
    assert_eq!(counted.map(|name| proxy.stats().value(&cluster(name))), [1, 1]);
}

#[test]
fn it_is_counted_how_connections_to_hosts_end() {
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok");
    let source = json!({"upstream_bind_config": {"source_address": {"address": "192.0.2.1", "port_value": 0}}});
    let config = Config::routes(json!([
        {"match": {"prefix": "/unbound"}, "route": {"cluster": "unbound"}},
        {"match": {"prefix": "/down"}, "route": {"cluster": "down"}},
        {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]));
    let config = config.cluster("origin", &[origin.address]).cluster("down", &[net::refusing_address()]).cluster_with(
        "unbound",
        &[origin.address],
        source,
    );
    let proxy = Proxy::start(&config);
    assert_eq!(proxy.get("/").status, 200);
    proxy.wait_stat(&cluster("upstream_cx_close_notify"), 1);
    assert_eq!(proxy.get("/unbound").status, 503);
    assert_eq!(proxy.get("/down").status, 503);
    let all =
        |name: &str, values: [(&str, u64); 4]| values.map(|(stat, value)| (format!("cluster.{name}.{stat}"), value));
    let ended = |remote, local| [("upstream_cx_destroy_remote", remote), ("upstream_cx_destroy_local", local)];
    let [[r1, l1], [r2, l2]] = [ended(1, 0), ended(0, 1)];
    await_all(&proxy, &all("down", [("bind_errors", 0), ("upstream_cx_http1_total", 1), r1, l1]));
    await_all(&proxy, &all("unbound", [("bind_errors", 1), ("upstream_cx_http1_total", 1), r2, l2]));
}

#[test]
fn lookups_and_changes_of_hosts_are_counted() {
    let origin = Origin::fixed(OK);
    let named = |kind: &str| {
        let endpoint = json!({"address": config::socket_address("localhost", origin.address.port())});
        json!({
            "type": kind,
            "dns_lookup_family": "V4_ONLY",
            "load_assignment": {"endpoints": [{"lb_endpoints": [{"endpoint": endpoint}]}]},
        })
    };
    let config = Config::proxy_to(origin.address).cluster_with("strict", &[], named("STRICT_DNS")).cluster_with(
        "logical",
        &[],
        named("LOGICAL_DNS"),
    );
    let proxy = Proxy::start(&config);
    for name in ["strict", "logical"] {
        for stat in ["update_attempt", "update_success", "membership_change"] {
            proxy.wait_stat(&format!("cluster.{name}.{stat}"), 1);
        }
    }
    await_all(
        &proxy,
        &[
            (cluster("membership_change"), 1),
            (cluster("update_attempt"), 0),
            ("cluster.strict.max_host_weight".to_owned(), 1),
            ("cluster.strict.update_failure".to_owned(), 0),
        ],
    );
}

/// It was 0 where the file has the addresses, as they are not news when they were looked up.
#[test]
fn the_heaviest_host_is_told_where_names_are_addresses_or_have_none() {
    let origin = Origin::fixed(OK);
    let strict = |host: &str, policy: &str| {
        let endpoint = json!({"address": config::socket_address(host, origin.address.port())});
        let host = json!({"endpoint": endpoint, "load_balancing_weight": 3});
        json!({"type": "STRICT_DNS", "lb_policy": policy, "load_assignment": {"endpoints": [{"lb_endpoints": [host]}]}})
    };
    let config = Config::proxy_to(origin.address)
        .cluster_with("maglev", &[], strict("127.0.0.1", "MAGLEV"))
        .cluster_with("ring", &[], strict("127.0.0.1", "RING_HASH"))
        .cluster_with("turns", &[], strict("127.0.0.1", "ROUND_ROBIN"))
        .cluster_with("gone", &[], strict("nowhere.invalid", "MAGLEV"));
    let proxy = Proxy::start(&config);
    for (name, heaviest) in [("maglev", 3), ("ring", 3), ("turns", 3), ("gone", 1)] {
        proxy.wait_stat(&format!("cluster.{name}.max_host_weight"), heaviest);
    }
    // They were the whole table, which a host by itself does not need.
    for stat in ["min_entries_per_host", "max_entries_per_host"] {
        proxy.wait_stat(&format!("cluster.maglev.maglev_lb.{stat}"), 1);
    }
}

#[test]
fn answers_of_canaries_and_by_zone_are_counted_apart() {
    let plain = Origin::fixed(OK);
    let canary = Origin::fixed("HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\nok");
    let says = Origin::fixed("HTTP/1.1 202 Accepted\r\nx-envoy-upstream-canary: true\r\ncontent-length: 2\r\n\r\nok");
    let host = |address: SocketAddr, metadata: Value| {
        let address = config::socket_address("127.0.0.1", address.port());
        json!({"endpoint": {"address": address}, "metadata": metadata})
    };
    let labels = json!({"filter_metadata": {"envoy.lb": {"canary": true}}});
    let of = |zone: &str, host: Value| json!({"load_assignment": {"endpoints": [{"locality": {"zone": zone}, "lb_endpoints": [host]}]}});
    let config = Config::routes(json!([
        {"match": {"prefix": "/canary"}, "route": {"cluster": "canary"}},
        {"match": {"prefix": "/says"}, "route": {"cluster": "says"}},
        {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]));
    let config = config
        .overlay(json!({"node": {"id": "n", "cluster": "c", "locality": {"zone": "here"}}}))
        .cluster_with("origin", &[], of("there", host(plain.address, json!({}))))
        .cluster_with("canary", &[], of("here", host(canary.address, labels)))
        .cluster("says", &[says.address]);
    let proxy = Proxy::start(&config);
    for path in ["/", "/canary", "/says"] {
        assert!((200..203).contains(&proxy.get(path).status), "{path}");
    }
    let one = |name: &str| (format!("cluster.{name}"), 1);
    await_all(
        &proxy,
        &[
            one("origin.zone.here.there.upstream_rq_200"),
            one("origin.zone.here.there.upstream_rq_2xx"),
            one("canary.zone.here.here.upstream_rq_completed"),
            one("canary.canary.upstream_rq_201"),
            one("canary.canary.upstream_rq_completed"),
            one("says.canary.upstream_rq_202"),
        ],
    );
    assert!(!proxy.stats().0.keys().any(|name| name.starts_with("cluster.origin.canary.")));
    let clusters = proxy.admin_get("/clusters").text().to_owned();
    let says_so = |address: SocketAddr, is| clusters.contains(&format!("::{address}::canary::{is}\n"));
    assert!(says_so(canary.address, true) && says_so(plain.address, false), "{clusters}");
}

/// Requests of two kinds for answers of three, and what the cluster counts of them that is not zero.
fn counted_by(router: Value) -> Vec<String> {
    let origin = Origin::start(|connection| {
        while let Some(request) = connection.request() {
            connection.write(match request.target.as_str() {
                "/500" => b"HTTP/1.1 500 Failed\r\ncontent-length: 0\r\n\r\n".as_slice(),
                _ => OK.as_bytes(),
            });
        }
    });
    let config = Config::routes(json!([
        {"match": {"prefix": "/again"}, "route": {"cluster": "origin", "prefix_rewrite": "/500", "retry_policy": {"retry_on": "5xx"}}},
        {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]))
    .cluster("origin", &[origin.address])
    .overlay_filter("http", json!({"http_filters": [config::extension("envoy.filters.http.router", "filters.http.router.v3.Router", router)]}));
    let proxy = Proxy::start(&config);
    for target in ["/", "/500", "/again"] {
        for kind in ["text/plain", "application/grpc"] {
            let request =
                format!("POST {target} HTTP/1.1\r\nhost: test\r\ncontent-type: {kind}\r\ncontent-length: 0\r\n\r\n");
            proxy.exchange(&request);
        }
    }
    proxy.wait_stat(&http("downstream_rq_completed"), 6);
    let stats = proxy.admin_get("/stats?filter=^cluster.origin.*upstream_rq_([0-9]|completed)");
    let told =
        |line: &str| line.strip_prefix("cluster.origin.").filter(|line| !line.ends_with(": 0")).map(str::to_owned);
    let mut lines: Vec<String> = stats.text().lines().filter_map(told).collect();
    let hosts = proxy.admin_get("/clusters");
    lines.extend(
        hosts
            .text()
            .lines()
            .filter(|line| line.contains("::rq_error::"))
            .filter_map(|line| line.rsplit_once("::rq_").map(|(_, told)| told.to_owned())),
    );
    lines
}

#[test]
fn without_dynamic_statistics_answers_count_nowhere() {
    // Answers that were tried again count all the same.
    let expected =
        ["retry.upstream_rq_500: 2", "retry.upstream_rq_5xx: 2", "retry.upstream_rq_completed: 2", "error::3"];
    assert_eq!(counted_by(json!({"dynamic_stats": false})), expected);
}

#[test]
fn statuses_of_grpc_requests_are_left_out_of_all_that_a_cluster_counts() {
    let expected = [
        "external.upstream_rq_200: 2",
        "external.upstream_rq_2xx: 2",
        "external.upstream_rq_500: 4",
        "external.upstream_rq_5xx: 4",
        "external.upstream_rq_completed: 6",
        "retry.upstream_rq_500: 1",
        "retry.upstream_rq_5xx: 1",
        "retry.upstream_rq_completed: 2",
        "upstream_rq_200: 1",
        "upstream_rq_2xx: 1",
        "upstream_rq_500: 2",
        "upstream_rq_5xx: 2",
        "upstream_rq_completed: 6",
        "error::7",
    ];
    assert_eq!(counted_by(json!({"suppress_grpc_request_failure_code_stats": true})), expected);
}

#[test]
fn the_process_counts_its_connections_and_its_start() {
    let proxy = Proxy::start(&Config::routes(json!([{"match": {"prefix": "/"}, "direct_response": {"status": 200}}])));
    let mut client = proxy.client();
    assert_eq!(client.exchange(get("/")).status, 200);
    wait_until("a connection", || proxy.stats().value("server.total_connections") >= 1);
    let stats = proxy.stats();
    assert!(stats.value("server.memory_heap_size") > 0);
    let start = stats.0.get("server.initialization_time_ms").cloned().unwrap_or_default();
    assert!(start.starts_with("P0("), "{start}");
}
