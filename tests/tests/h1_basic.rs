//! HTTP/1.1 as clients and origins meet it every day: connection reuse,
//! framing, versions, early ends. Hostile input has a suite of its own.

use postrider_tests::kit::config::{self, Config};
use postrider_tests::kit::{Framing, Gate, Origin, Proxy, RawClient, WireError, net, origin};
use postrider_tests::{envoy, get};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[test]
fn one_connection_serves_many_requests_over_one_upstream_connection() {
    let origin = Origin::echo("a");
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = proxy.client();
    for turn in 0..50 {
        let response = client.exchange(get(&format!("/turn/{turn}")));
        assert_eq!(response.status, 200);
        assert!(response.text().starts_with(&format!("GET /turn/{turn} HTTP/1.1\r\n")));
        assert!(!response.headers.contains("connection"));
    }
    assert_eq!(origin.connection_count(), 1);
    assert_eq!(origin.malformed(), Vec::<String>::new());
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let origin = Origin::echo("a");
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = proxy.client();
    let mut batch = String::new();
    for turn in 0..30 {
        if turn % 3 == 0 {
            batch += &format!("POST /{turn} HTTP/1.1\r\nhost: test\r\ncontent-length: 5\r\n\r\nGET /");
        } else {
            batch += &get(&format!("/{turn}"));
        }
    }
    client.send(&batch);
    for turn in 0..30 {
        let response = client.response("GET").unwrap();
        let method = if turn % 3 == 0 { "POST" } else { "GET" };
        let line = format!("{method} /{turn} HTTP/1.1\r\n");
        assert!(response.text().starts_with(&line), "{} is not {line}", response.text());
    }
    assert_eq!(client.leftover(), b"");
    assert_eq!(origin.requests().len(), 30);
}

#[test]
fn a_request_cut_at_every_byte_is_read_the_same() {
    let origin = Origin::echo("a");
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = proxy.client();
    let request = b"POST /cut HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    for cut in 1..request.len() {
        client.send(&request[..cut]);
        client.send(&request[cut..]);
        assert_eq!(client.response("POST").unwrap().status, 200, "cut at {cut}");
    }
    let requests = origin.requests();
    assert_eq!(requests.len(), request.len() - 1);
    for (index, seen) in requests.iter().enumerate() {
        assert_eq!(seen.body, b"abc", "cut at {}", index + 1);
        assert_eq!(seen.headers, requests[0].headers, "cut at {}", index + 1);
    }
}

#[test]
fn an_answer_cut_at_every_byte_is_read_the_same() {
    let answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    let origin = Origin::start(|connection| {
        while let Some(request) = connection.request() {
            let cut: usize = request.target[1..].parse().unwrap();
            connection.write(&answer[..cut]);
            connection.write(&answer[cut..]);
        }
    });
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = proxy.client();
    for cut in 0..answer.len() {
        let response = client.exchange(get(&format!("/{cut}")));
        assert_eq!((response.status, response.text()), (200, "abc"), "cut at {cut}");
        assert_eq!(response.header("x-a"), "b", "cut at {cut}");
    }
    assert_eq!(origin.connection_count(), 1);
}

#[test]
fn head_204_and_304_answers_have_no_body_and_keep_the_connection() {
    let origin = Origin::start(|connection| {
        while let Some(request) = connection.request() {
            let answer: &[u8] = match request.target.as_str() {
                "/head" => b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n",
                "/head-chunked" => b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
                "/204" => b"HTTP/1.1 204 No Content\r\n\r\n",
                "/304" => b"HTTP/1.1 304 Not Modified\r\ncontent-length: 77\r\netag: \"x\"\r\n\r\n",
                _ => b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlast",
            };
            connection.write(answer);
        }
    });
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = proxy.client();
    let head = client.exchange("HEAD /head HTTP/1.1\r\nhost: test\r\n\r\n");
    assert_eq!((head.status, head.header("content-length")), (200, "1000"));
    let head = client.exchange("HEAD /head-chunked HTTP/1.1\r\nhost: test\r\n\r\n");
    assert_eq!((head.status, head.framing), (200, Framing::None));
    let empty = client.exchange(get("/204"));
    assert_eq!((empty.status, empty.header("content-length")), (204, ""));
    let unchanged = client.exchange(get("/304"));
    assert_eq!((unchanged.status, unchanged.header("etag")), (304, "\"x\""));
    assert_eq!(client.exchange(get("/")).text(), "last");
    assert_eq!(origin.connection_count(), 1);
}

#[test]
fn bodies_keep_their_framing_and_bytes() {
    let origin = Origin::echo("a");
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = proxy.client();
    client.exchange("POST /l HTTP/1.1\r\nhost: test\r\ncontent-length: 5\r\n\r\nhello");
    client.exchange("POST /z HTTP/1.1\r\nhost: test\r\ncontent-length: 0\r\n\r\n");
    client.exchange(
        "PUT /c HTTP/1.1\r\nhost: test\r\nTransfer-Encoding: chunked\r\n\r\n\
         5\r\nhello\r\n1;ext=\"v\"\r\n!\r\n00\r\n\r\n",
    );
    client.exchange("POST /n HTTP/1.1\r\nhost: test\r\n\r\n");
    client.exchange(get("/g"));
    let seen: Vec<_> = origin
        .requests()
        .into_iter()
        .map(|r| (r.method, r.target, r.framing, String::from_utf8(r.body).unwrap()))
        .collect();
    let row = |method: &str, target: &str, framing, body: &str| {
        (method.to_string(), target.to_string(), framing, body.to_string())
    };
    assert_eq!(seen[0], row("POST", "/l", Framing::Length(5), "hello"));
    assert_eq!(seen[1], row("POST", "/z", Framing::Length(0), ""));
    assert_eq!(seen[2], row("PUT", "/c", Framing::Chunked, "hello!"));
    // A request without framing fields has no body: whether that is said with
    // `content-length: 0` is the proxy's choice.
    assert_eq!((seen[3].1.as_str(), seen[3].3.as_str()), ("/n", ""));
    assert_eq!((seen[4].1.as_str(), seen[4].2), ("/g", Framing::None));
    assert_eq!(origin.connection_count(), 1);
}

#[test]
fn trailers_pass_when_enabled_and_are_dropped_when_not() {
    let script = |connection: &mut origin::OriginConnection| {
        while connection.request().is_some() {
            connection.write(
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n\
                  2\r\nok\r\n0\r\nx-sum: 42\r\n\r\n",
            );
        }
    };
    let request = "POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n\
                   2\r\nhi\r\n0\r\nx-check: 7\r\n\r\n";
    for enabled in [false, true] {
        let origin = Origin::start(script);
        let options = json!({"enable_trailers": enabled});
        let upstream =
            config::upstream_http_options(json!({"explicit_http_config": {"http_protocol_options": options}}));
        let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]))
            .cluster_with("origin", &[origin.address], upstream)
            .overlay_filter("http", json!({"http_protocol_options": options}));
        let proxy = Proxy::start(&config);
        let mut client = proxy.client();
        for _ in 0..2 {
            let response = client.exchange(request);
            assert_eq!(response.text(), "ok");
            assert_eq!(response.trailers.value("x-sum"), enabled.then_some("42"));
        }
        let seen = origin.requests();
        assert_eq!(seen[1].body, b"hi");
        assert_eq!(seen[1].trailers.value("x-check"), enabled.then_some("7"));
    }
}

#[test]
fn expect_100_continue_is_answered_and_consumed_by_the_proxy() {
    let origin = Origin::echo("a");
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = proxy.client();
    for _ in 0..2 {
        client.send("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 4\r\nexpect: 100-continue\r\n\r\n");
        assert_eq!(client.any_response("POST").unwrap().status, 100);
        client.send("body");
        assert_eq!(client.any_response("POST").unwrap().status, 200);
    }
    assert_eq!(origin.requests()[0].body, b"body");
    assert!(!origin.requests()[0].headers.contains("expect"));
}

#[test]
fn interim_answers_of_the_origin_do_not_confuse_the_pairing() {
    let origin = Origin::start(|connection| {
        while connection.request().is_some() {
            connection.write(b"HTTP/1.1 100 Continue\r\n\r\n");
            connection.write(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n");
            connection.write(OK.as_bytes());
        }
    });
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = proxy.client();
    for _ in 0..3 {
        assert_eq!(client.exchange(get("/")).text(), "ok");
    }
    assert_eq!(client.leftover(), b"");
}

#[test]
fn absolute_form_becomes_origin_form_and_its_authority_is_the_host() {
    let origin = Origin::echo("a");
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = proxy.client();
    client.exchange("GET http://real.test:81/p?q=1 HTTP/1.1\r\nhost: other.test\r\n\r\n");
    client.exchange("GET http://bare.test HTTP/1.1\r\nhost: bare.test\r\n\r\n");
    client.exchange("OPTIONS * HTTP/1.1\r\nhost: test\r\n\r\n");
    let seen = origin.requests();
    assert_eq!((seen[0].target.as_str(), seen[0].header("host")), ("/p?q=1", "real.test:81"));
    assert_eq!((seen[1].target.as_str(), seen[1].header("host")), ("/", "bare.test"));
    // `*` matches no prefix route: nothing reaches the origin.
    assert_eq!(seen.len(), 2);
}

#[test]
fn http_10_is_refused_unless_accepted() {
    let origin = Origin::echo("a");
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = proxy.client();
    let response = client.exchange("GET / HTTP/1.0\r\nhost: test\r\n\r\n");
    assert_eq!(response.status, 426);
    assert!(client.closed());
    assert_eq!(origin.connection_count(), 0);
}

#[test]
fn http_10_clients_are_served_when_accepted() {
    let origin = Origin::start(|connection| {
        while let Some(request) = connection.request() {
            match request.target.as_str() {
                "/chunked" => connection
                    .write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"),
                _ => connection.write(OK.as_bytes()),
            };
        }
    });
    let config = Config::proxy_to(origin.address).overlay_filter(
        "http",
        json!({"http_protocol_options": {"accept_http_10": true, "default_host_for_http_10": "old.test"}}),
    );
    let proxy = Proxy::start(&config);

    let mut client = proxy.client();
    client.send("GET / HTTP/1.0\r\n\r\n");
    let plain = client.response("GET").unwrap();
    assert_eq!((plain.status, plain.text(), plain.header("connection")), (200, "ok", "close"));
    assert!(client.closed());
    assert_eq!(origin.requests()[0].header("host"), "old.test");
    assert_eq!(origin.requests()[0].version, "HTTP/1.1");

    // A 1.0 client cannot read chunks: the body ends with the connection.
    let mut client = proxy.client();
    client.send("GET /chunked HTTP/1.0\r\nhost: test\r\n\r\n");
    let response = client.response("GET").unwrap();
    assert_eq!((response.framing, response.text()), (Framing::UntilClose, "abcde"));

    let mut client = proxy.client();
    for _ in 0..3 {
        let kept = client.exchange("GET / HTTP/1.0\r\nhost: test\r\nconnection: keep-alive\r\n\r\n");
        assert_eq!(kept.header("connection"), "keep-alive");
        assert_eq!(kept.text(), "ok");
    }
}

#[test]
fn answers_of_http_10_origins_end_with_their_connection() {
    let origin = Origin::fixed("HTTP/1.0 200 OK\r\nx-old: yes\r\n\r\nuntil the end");
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = proxy.client();
    for _ in 0..3 {
        let response = client.exchange(get("/"));
        assert_eq!((response.version.as_str(), response.framing), ("HTTP/1.1", Framing::Chunked));
        assert_eq!(response.text(), "until the end");
    }
    assert_eq!(origin.connection_count(), 3);
}

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
