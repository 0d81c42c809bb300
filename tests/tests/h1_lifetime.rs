//! How connections and streams end, early or late, and what a peer that stalls
//! may cost.

use postrider_tests::kit::config::{self, Config};
use postrider_tests::kit::{Gate, Origin, Proxy, RawClient, WireError, net, wait_until};
use postrider_tests::{envoy, get};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[test]
fn connection_close_of_the_client_is_honoured_and_not_forwarded() {
    let origin = Origin::echo("a");
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    for _ in 0..2 {
        let mut client = proxy.client();
        let response = client.exchange("GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
        assert_eq!(response.header("connection"), "close");
        assert!(client.closed());
    }
    assert!(!origin.requests()[0].headers.contains("connection"));
    assert_eq!(origin.connection_count(), 1);
}

#[test]
fn connection_close_of_the_origin_ends_only_its_own_connection() {
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok");
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = proxy.client();
    for _ in 0..3 {
        let response = client.exchange(get("/"));
        assert_eq!((response.text(), response.header("connection")), ("ok", ""));
    }
    assert_eq!(origin.connection_count(), 3);
}

#[test]
fn an_idle_upstream_connection_closed_by_the_origin_is_not_used_again() {
    let origin = Origin::start(|connection| {
        if connection.request().is_some() {
            connection.write(OK.as_bytes());
        }
    });
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = proxy.client();
    for turn in 1..=5 {
        assert_eq!(client.exchange(get("/")).status, 200, "turn {turn}");
        origin.wait_open_at_most(0);
        proxy.wait_stat("cluster.origin.upstream_cx_active", 0);
    }
    assert_eq!(origin.connection_count(), 5);
}

#[test]
fn max_requests_per_connection_is_kept_on_both_sides() {
    let origin = Origin::echo("a");
    let limit = json!({"common_http_protocol_options": {"max_requests_per_connection": 2}});
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]))
        .cluster_with("origin", &[origin.address], config::upstream_http_options(limit.clone()))
        .overlay_filter("http", limit);
    let proxy = Proxy::start(&config);
    for _ in 0..2 {
        let mut client = proxy.client();
        assert_eq!(client.exchange(get("/")).header("connection"), "");
        assert_eq!(client.exchange(get("/")).header("connection"), "close");
        assert!(client.closed());
    }
    assert_eq!(origin.connection_count(), 2);
    assert!(origin.requests().iter().all(|r| r.target == "/"));
}

#[test]
fn an_early_answer_reaches_a_client_that_is_still_sending() {
    let origin = Origin::start(|connection| {
        if let Some(request) = connection.request_head() {
            connection.write(b"HTTP/1.1 413 Too Much\r\ncontent-length: 3\r\n\r\nbig");
            connection.body(&request, &mut |_| {});
        }
    });
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = proxy.client();
    client.send("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 1000000\r\n\r\nstart");
    let response = client.response("POST").unwrap();
    assert_eq!((response.status, response.text()), (413, "big"));
    // The rest of the body is not a next request: whatever the client goes on
    // to send, no second answer may come.
    client.send(get("/smuggled").repeat(3));
    client.half_close();
    let rest = client.read_to_end();
    assert!(matches!(&rest, Ok(rest) if rest.is_empty()) || rest == Err(WireError::Reset), "{rest:?}");
    assert!(origin.requests().iter().all(|r| r.method == "POST"));
}

#[test]
fn an_early_answer_streams_while_the_request_body_is_still_coming() {
    let origin = Origin::start(|connection| {
        let Some(request) = connection.request_head() else { return };
        connection.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        let mut pieces = Vec::new();
        connection.body(&request, &mut |piece| pieces.extend_from_slice(piece));
        let chunk = format!("{:x}\r\n", pieces.len());
        connection.write(chunk.as_bytes());
        connection.write(&pieces);
        connection.write(b"\r\n0\r\n\r\n");
    });
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = proxy.client();
    client.send("POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n");
    let head = client.response_head("POST").unwrap();
    assert_eq!(head.status, 200);
    client.send("3\r\ntwo\r\n0\r\n\r\n");
    let mut body = Vec::new();
    client.body(&head, &mut |piece| body.extend_from_slice(piece)).unwrap();
    assert_eq!(body, b"onetwo");
}

#[test]
fn a_half_closed_client_still_gets_its_answer() {
    let gate = Gate::default();
    let opened = gate.clone();
    let origin = Origin::start(move |connection| {
        while connection.request().is_some() {
            opened.wait();
            connection.write(OK.as_bytes());
        }
    });
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = proxy.client();
    client.send(get("/")).half_close();
    if envoy() {
        // Envoy takes a half-close of an HTTP client for a whole one.
        assert!(client.closed());
        return gate.open();
    }
    origin.wait_requests(1);
    gate.open();
    assert_eq!(client.response("GET").unwrap().text(), "ok");
    assert!(client.closed());
}

#[test]
fn a_client_that_leaves_takes_its_upstream_request_with_it() {
    let origin = Origin::silent();
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = proxy.client();
    client.send(get("/"));
    origin.wait_connections(1);
    client.reset();
    origin.wait_open_at_most(0);
    proxy.wait_stat("http.ingress_http.downstream_cx_active", 0);
    proxy.wait_stat("http.ingress_http.downstream_rq_active", 0);
}

#[test]
fn a_reset_behind_what_nobody_reads_is_noticed() {
    if envoy() {
        return;
    }
    let origin = Origin::silent();
    let route = json!({"cluster": "origin", "timeout": "0s"});
    let config =
        Config::routes(json!([{"match": {"prefix": "/"}, "route": route}])).cluster("origin", &[origin.address]);
    let proxy = Proxy::start(&config);
    let stat = |name: &str| proxy.stats().value(&format!("http.ingress_http.{name}"));
    // Its next request waits.
    let mut client = proxy.client();
    client.send([get("/"), get("/next")].concat());
    origin.wait_connections(1);
    client.reset();
    origin.wait_open_at_most(0);
    // It said that nothing more comes.
    let mut client = proxy.client();
    client.send(get("/")).half_close();
    origin.wait_connections(2);
    client.reset();
    origin.wait_open_at_most(0);
    wait_until("both are over", || stat("downstream_cx_active") == 0 && stat("downstream_rq_active") == 0);
}

#[test]
fn an_answer_cut_short_by_the_origin_is_cut_short_for_the_client() {
    for reset in [false, true] {
        let origin = Origin::start(move |connection| {
            if connection.request().is_some() {
                connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\npartial");
                if reset {
                    connection.reset();
                }
            }
        });
        let proxy = Proxy::start(&Config::proxy_to(origin.address));
        let mut client = proxy.client();
        client.send(get("/"));
        match client.response("GET") {
            Err(WireError::Eof(_) | WireError::Reset) => {}
            // The origin's RST may overtake its own bytes.
            Ok(response) if reset => assert_eq!(response.status, 503),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_hundred_megabytes_stream_through_in_bounded_memory_both_ways() {
    const SIZE: u64 = 100 << 20;
    let received = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&received);
    let origin = Origin::start(move |connection| {
        while let Some(request) = connection.request_head() {
            connection.body(&request, &mut |piece| {
                counted.fetch_add(piece.len() as u64, Ordering::Relaxed);
            });
            if request.method == "GET" {
                connection.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {SIZE}\r\n\r\n").as_bytes());
                let block = vec![b'd'; 1 << 20];
                for _ in 0..SIZE >> 20 {
                    connection.write(&block);
                }
            } else {
                connection.write(OK.as_bytes());
            }
        }
    });
    let config = Config::routes(json!([
        {"match": {"prefix": "/"}, "route": {"cluster": "origin", "timeout": "0s"}},
    ]))
    .cluster("origin", &[origin.address]);
    let proxy = Proxy::start(&config);
    let mut client = proxy.client();
    client.exchange("PUT /warm HTTP/1.1\r\nhost: test\r\ncontent-length: 1\r\n\r\nx");
    let before = proxy.resident_kib();
    let mut peak = before;

    client.send(format!("PUT /up HTTP/1.1\r\nhost: test\r\ncontent-length: {SIZE}\r\n\r\n"));
    let block = vec![b'u'; 1 << 20];
    for step in 0..SIZE >> 20 {
        client.try_send(&block).unwrap();
        if step % 10 == 0 {
            peak = peak.max(proxy.resident_kib());
        }
    }
    assert_eq!(client.response("PUT").unwrap().text(), "ok");
    assert_eq!(received.load(Ordering::Relaxed), SIZE + 1);

    client.send(get("/down"));
    let head = client.response_head("GET").unwrap();
    let (mut total, mut pieces) = (0, 0);
    client
        .body(&head, &mut |piece| {
            total += piece.len() as u64;
            pieces += 1;
            if pieces % 200 == 0 {
                peak = peak.max(proxy.resident_kib());
            }
        })
        .unwrap();
    assert_eq!(total, SIZE);
    let growth = peak.saturating_sub(before);
    assert!(growth < 8 * 1024, "grew by {growth} KiB over {before}");
}

#[test]
fn a_client_that_never_reads_costs_bounded_memory() {
    const CLIENTS: u64 = 20;
    let origin = Origin::start(|connection| {
        if connection.request().is_some() {
            connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 104857600\r\n\r\n");
            let block = vec![b'd'; 1 << 20];
            for _ in 0..100 {
                if !connection.write(&block) {
                    return;
                }
            }
        }
    });
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let address = proxy.address("http");
    let before = proxy.resident_kib();
    let clients: Vec<RawClient> = (0..CLIENTS)
        .map(|_| {
            let mut client = RawClient::from_stream(net::connect_with_small_buffer(address, 4096));
            client.send(get("/"));
            client
        })
        .collect();
    origin.wait_requests(CLIENTS as usize);
    // Stuck is when the bytes from upstream stop growing.
    let mut last = (0, 0);
    postrider_tests::kit::wait_until("back-pressure", || {
        let bytes = proxy.stats().value("cluster.origin.upstream_cx_rx_bytes_total");
        last = if bytes == last.0 { (bytes, last.1 + 1) } else { (bytes, 0) };
        bytes > 0 && last.1 > 100
    });
    let each = proxy.resident_kib().saturating_sub(before) / CLIENTS;
    let limit = if envoy() { 3000 } else { 256 };
    assert!(each <= limit, "{each} KiB for each stuck client");
    drop(clients);
}

#[test]
fn an_origin_that_resets_an_upload_gives_503_and_harms_nobody_else() {
    let origin = Origin::start(|connection| {
        while let Some(request) = connection.request_head() {
            if request.target == "/reset" {
                connection.read_exact(1000);
                return connection.reset();
            }
            connection.write(OK.as_bytes());
        }
    });
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    for _ in 0..5 {
        let mut client = proxy.client();
        client.send("POST /reset HTTP/1.1\r\nhost: test\r\ncontent-length: 50000000\r\n\r\n");
        client.send("x".repeat(2000));
        assert_eq!(client.response("POST").unwrap().status, 503);
    }
    assert_eq!(proxy.get("/").text(), "ok");
    proxy.wait_stat("http.ingress_http.downstream_rq_active", 0);
    proxy.wait_stat("cluster.origin.upstream_rq_active", 0);
}
