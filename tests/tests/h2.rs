//! HTTP/2 with clients that keep to the rules: what reaches the origin, what comes back, and how streams and
//! connections end.

use h2::Reason;
use http::{HeaderMap, HeaderValue};
use postrider_tests::h2_client::{H2Client, get, request};
use postrider_tests::h2_frames::{
    self as raw, ACK, DATA, END_HEADERS, END_STREAM, Frame, Frames, GOAWAY, HEADERS, Next, PING, RST_STREAM, SETTINGS,
};
use postrider_tests::kit::config::{self, file_access_log, router};
use postrider_tests::kit::proxy::{Launch, accepted};
use postrider_tests::kit::{Config, Framing, Gate, Origin, OriginConnection, Proxy, TempDir, wait_until};
use postrider_tests::{envoy, postrider_only};
use serde_json::{Value, json};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

fn echoed() -> (Origin, Proxy) {
    let origin = Origin::echo("a");
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    (origin, proxy)
}

fn client(proxy: &Proxy) -> H2Client {
    H2Client::connect(proxy.address("http"))
}

fn frames(proxy: &Proxy) -> Frames {
    Frames::connect(proxy.address("http"), &[])
}

/// An origin that runs `script` for each request's head, connection after connection.
fn scripted(script: impl Fn(&mut OriginConnection, postrider_tests::kit::Request) + Send + Sync + 'static) -> Origin {
    Origin::start(move |connection| {
        while let Some(request) = connection.request_head() {
            script(connection, request);
        }
    })
}

/// An origin that answers once the gate is open.
fn gated() -> (Gate, Origin) {
    let gate = Gate::default();
    let opened = gate.clone();
    let origin = scripted(move |connection, _| {
        opened.wait();
        connection.write(OK);
    });
    (gate, origin)
}

fn direct(body: &str) -> Value {
    json!([{"match": {"prefix": "/"}, "direct_response": {"status": 200, "body": {"inline_string": body}}}])
}

#[test]
fn a_get_reaches_the_origin_as_the_message_that_it_means() {
    let (origin, proxy) = echoed();
    let mut client = client(&proxy);
    let answer = client.get("/path?q=1");
    assert_eq!((answer.status, answer.header("x-origin")), (200, "a"));
    assert!(answer.text().starts_with("GET /path?q=1 HTTP/1.1\r\n"), "{answer:?}");
    let seen = &origin.requests()[0];
    assert_eq!((seen.header("host"), seen.header("x-forwarded-proto")), ("test", "http"));
    assert_eq!(seen.framing, Framing::None);
    assert!(!seen.headers.contains("transfer-encoding"));
    assert!(origin.malformed().is_empty());
    proxy.wait_stat("http.ingress_http.downstream_cx_http2_total", 1);
    proxy.wait_stat("http.ingress_http.downstream_rq_http2_total", 1);
}

#[test]
fn a_post_keeps_its_length_or_goes_in_chunks() {
    let (origin, proxy) = echoed();
    let mut client = client(&proxy);
    let sized = request("POST", "/sized").header("content-length", "4").body(()).unwrap();
    assert!(client.exchange(sized, b"body").text().ends_with("\r\n\r\nbody"));
    let open = request("POST", "/open").body(()).unwrap();
    assert!(client.exchange(open, b"body").text().ends_with("\r\n\r\nbody"));
    let empty = request("POST", "/empty").body(()).unwrap();
    assert_eq!(client.exchange(empty, b"").status, 200);
    let seen = origin.requests();
    assert_eq!((seen[0].framing, seen[1].framing), (Framing::Length(4), Framing::Chunked));
    assert_eq!((seen[0].body.as_slice(), seen[1].body.as_slice()), (&b"body"[..], &b"body"[..]));
    assert!(seen[2].body.is_empty());
    assert!(origin.malformed().is_empty());
}

#[test]
fn a_head_request_gets_a_length_and_no_body() {
    let (_origin, proxy) = echoed();
    let mut client = client(&proxy);
    let answer = client.exchange(request("HEAD", "/").body(()).unwrap(), b"");
    assert_eq!((answer.status, answer.body.len()), (200, 0));
    assert!(answer.header("content-length").parse::<u32>().unwrap() > 10, "{answer:?}");
    assert_eq!(client.get("/next").status, 200);
}

#[test]
fn answers_without_a_body_end_with_their_head() {
    let origin = scripted(|connection, request| {
        let status = request.target.trim_start_matches('/');
        connection.write(format!("HTTP/1.1 {status} X\r\netag: \"e\"\r\n\r\n").as_bytes());
    });
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut frames = frames(&proxy);
    for (stream, status) in [(1, 204), (3, 304)] {
        frames.send(raw::get(stream, &format!("/{status}")));
        let head = frames.await_frame("a head", |frame| frame.kind == HEADERS);
        assert_eq!((head.status(), head.ends_stream()), (Some(status), true), "{head:?}");
    }
}

#[test]
fn an_answer_in_chunks_or_until_the_close_arrives_whole() {
    let origin = Origin::start(|connection| {
        while let Some(request) = connection.request() {
            if request.target == "/chunks" {
                connection
                    .write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n");
            } else {
                connection.write(b"HTTP/1.1 200 OK\r\n\r\nall of it");
                return;
            }
        }
    });
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = client(&proxy);
    for (path, body) in [("/chunks", "onetwo"), ("/close", "all of it"), ("/chunks", "onetwo")] {
        let answer = client.get(path);
        assert_eq!(answer.text(), body);
        for name in ["transfer-encoding", "connection", "content-length", "keep-alive"] {
            assert_eq!(answer.header(name), "", "{name}");
        }
    }
}

#[test]
fn trailers_pass_both_ways() {
    let origin = Origin::start(|connection| {
        while connection.request().is_some() {
            connection.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-sum: 7\r\n\r\n");
        }
    });
    let options = json!({"explicit_http_config": {"http_protocol_options": {"enable_trailers": true}}});
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]))
        .cluster_with("origin", &[origin.address], config::upstream_http_options(options))
        .overlay_filter("http", json!({"http_protocol_options": {"enable_trailers": true}}));
    let proxy = Proxy::start(&config);
    let mut client = client(&proxy);
    let mut exchange = client.start(request("POST", "/").header("te", "trailers").body(()).unwrap(), false);
    client.send_all(&mut exchange.body, b"body", false).unwrap();
    let trailers = HeaderMap::from_iter([("x-check".parse().unwrap(), HeaderValue::from_static("9"))]);
    exchange.body.send_trailers(trailers).unwrap();
    let answer = client.answer(exchange).unwrap();
    assert_eq!(answer.text(), "ok");
    assert_eq!(answer.trailers["x-sum"], "7");
    let seen = &origin.requests()[0];
    assert_eq!((seen.body.as_slice(), seen.trailers.value("x-check")), (&b"body"[..], Some("9")));
}

#[test]
fn twenty_megabytes_pass_both_ways_in_bounded_memory() {
    const SIZE: usize = 20 << 20;
    let received = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&received);
    let origin = scripted(move |connection, request| {
        connection.body(&request, &mut |piece| {
            counted.fetch_add(piece.len() as u64, Ordering::Relaxed);
        });
        let length = if request.method == "GET" { SIZE } else { 2 };
        connection.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n").as_bytes());
        connection.write(&vec![b'd'; length]);
    });
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = client(&proxy);
    client.get("/warm").body.clear();
    let before = proxy.resident_kib();
    let upload = request("PUT", "/up").body(()).unwrap();
    assert_eq!(client.exchange(upload, &vec![b'u'; SIZE]).text(), "dd");
    assert_eq!(received.load(Ordering::Relaxed), SIZE as u64);
    let download = client.get("/down");
    assert_eq!((download.status, download.body.len()), (200, SIZE));
    let growth = proxy.resident_kib().saturating_sub(before);
    assert!(growth < 4096, "grew by {growth} KiB over {before}");
}

#[test]
fn a_client_that_does_not_read_stops_the_origin() {
    if !postrider_only() {
        return;
    }
    let origin = scripted(|connection, _| {
        connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 104857600\r\n\r\n");
        let block = vec![b'd'; 1 << 20];
        while connection.write(&block) {}
    });
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = client(&proxy);
    let mut stuck = Vec::new();
    let mut get_stuck = |count: usize| {
        stuck.extend((0..10).map(|_| client.start(get("/"), true)));
        origin.wait_requests(count);
        let mut last = (0, 0);
        wait_until("back-pressure", || {
            let bytes = proxy.stats().value("cluster.origin.upstream_cx_rx_bytes_total");
            last = if bytes == last.0 { (bytes, last.1 + 1) } else { (bytes, 0) };
            last.1 > 20
        });
        proxy.resident_kib()
    };
    // The first ones also pay for what all share.
    let before = get_stuck(10);
    let growth = get_stuck(20).saturating_sub(before);
    assert!(growth < 10 * 256, "{growth} KiB for 10 streams that nobody reads");
    // The connection is not stuck with them, once they are given up.
    for exchange in stuck {
        let mut body = exchange.body;
        body.send_reset(Reason::CANCEL);
    }
    origin.wait_open_at_most(0);
    proxy.wait_stat("http.ingress_http.downstream_rq_active", 0);
}

#[test]
fn an_origin_that_does_not_read_stops_the_client() {
    if !postrider_only() {
        return;
    }
    let gate = Gate::default();
    let opened = gate.clone();
    let origin = scripted(move |connection, request| {
        if request.target == "/slow" {
            opened.wait();
        }
        connection.body(&request, &mut |_| {});
        connection.write(OK);
    });
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = client(&proxy);
    client.exchange(request("PUT", "/warm").body(()).unwrap(), &[b'u'; 200_000]);
    let before = proxy.resident_kib();
    let mut exchange = client.start(request("PUT", "/slow").body(()).unwrap(), false);
    origin.wait_requests(2);
    // As much as the windows let through: the kernel's buffers take some, too.
    let block = vec![b'u'; 1 << 20];
    let mut sent = 0;
    loop {
        exchange.body.reserve_capacity(block.len());
        let more = std::future::poll_fn(|cx| exchange.body.poll_capacity(cx));
        let room = client.wait(async { tokio::time::timeout(Duration::from_millis(200), more).await });
        let Ok(Some(Ok(room))) = room else { break };
        exchange.body.send_data(block[..room].to_vec().into(), false).unwrap();
        sent += room;
        assert!(sent < 32 << 20, "nothing holds the client back");
    }
    let growth = proxy.resident_kib().saturating_sub(before);
    assert!(growth < 4096, "{growth} KiB for one upload that nobody reads");
    gate.open();
    client.send_all(&mut exchange.body, b"end", true).unwrap();
    assert_eq!(client.answer(exchange).unwrap().text(), "ok");
}

#[test]
fn a_hundred_streams_at_once_get_each_its_own_answer() {
    let gate = Gate::default();
    let opened = gate.clone();
    let origin = scripted(move |connection, request| {
        opened.wait();
        let body = request.target;
        connection.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).as_bytes());
    });
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = client(&proxy);
    let streams: Vec<_> = (0..100).map(|number| client.start(get(&format!("/{number}")), true)).collect();
    origin.wait_requests(100);
    proxy.wait_stat("http.ingress_http.downstream_rq_active", 100);
    gate.open();
    for (number, exchange) in streams.into_iter().enumerate() {
        assert_eq!(client.answer(exchange).unwrap().text(), format!("/{number}"));
    }
    proxy.wait_stat("http.ingress_http.downstream_cx_total", 1);
}

#[test]
fn one_stream_that_waits_holds_up_no_other() {
    let gate = Gate::default();
    let opened = gate.clone();
    let origin = scripted(move |connection, request| {
        if request.target == "/slow" {
            opened.wait();
        }
        connection.write(OK);
    });
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = client(&proxy);
    let slow = client.start(get("/slow"), true);
    origin.wait_requests(1);
    for _ in 0..50 {
        assert_eq!(client.get("/fast").text(), "ok");
    }
    gate.open();
    assert_eq!(client.answer(slow).unwrap().text(), "ok");
    assert_eq!(origin.connection_count(), 2, "the others share a connection");
}

#[test]
fn no_more_streams_are_taken_than_the_settings_say() {
    let (gate, origin) = gated();
    let options = json!({"http2_protocol_options": {"max_concurrent_streams": 3}});
    let proxy = Proxy::start(&Config::proxy_to(origin.address).overlay_filter("http", options));
    let mut frames = frames(&proxy);
    let settings = frames.await_frame("SETTINGS", |frame| frame.kind == SETTINGS && frame.flags & ACK == 0);
    assert!(settings.payload.chunks(6).any(|pair| pair == [0, 3, 0, 0, 0, 3]), "{settings:?}");
    for stream in [1, 3, 5, 7] {
        frames.send(raw::get(stream, "/"));
    }
    let refused = frames.await_frame("a refusal", |frame| frame.kind == RST_STREAM);
    assert_eq!((refused.stream, refused.code()), (7, u32::from(Reason::REFUSED_STREAM)));
    origin.wait_requests(3);
    gate.open();
    for _ in 0..3 {
        frames.await_frame("an answer", Frame::ends_stream);
    }
    // There is room again.
    frames.send(raw::get(9, "/"));
    assert_eq!(frames.await_status(9), 200);
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
    let mut client = client(&proxy);
    let mut exchange = client.start(request("POST", "/").body(()).unwrap(), false);
    client.send_all(&mut exchange.body, b"start", false).unwrap();
    let answer = client.answer(exchange).unwrap();
    assert_eq!((answer.status, answer.text()), (413, "big"));
    // The connection goes on.
    let mut next = client.start(request("POST", "/").body(()).unwrap(), false);
    client.send_all(&mut next.body, b"start", false).unwrap();
    assert_eq!(client.answer(next).unwrap().status, 413);
}

#[test]
fn a_client_that_goes_on_sending_after_its_answer_is_told_to_stop() {
    let (origin, proxy) = (Origin::echo("a"), Proxy::start(&Config::routes(direct("no"))));
    let mut frames = frames(&proxy);
    frames.send(raw::frame(HEADERS, END_HEADERS, 1, &raw::request("POST", "/", &[])));
    assert_eq!(frames.await_status(1), 200);
    frames.await_frame("the end", Frame::ends_stream);
    // RFC 9113 section 8.1: RST_STREAM with NO_ERROR.
    let stop = frames.await_frame("a word to stop", |frame| frame.kind == RST_STREAM);
    assert_eq!((stop.stream, stop.code()), (1, u32::from(Reason::NO_ERROR)));
    drop(origin);
}

#[test]
fn an_early_answer_streams_while_the_request_body_is_still_coming() {
    let origin = scripted(|connection, request| {
        connection.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        let mut pieces = Vec::new();
        connection.body(&request, &mut |piece| pieces.extend_from_slice(piece));
        connection.write(format!("{:x}\r\n", pieces.len()).as_bytes());
        connection.write(&pieces);
        connection.write(b"\r\n0\r\n\r\n");
    });
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut frames = frames(&proxy);
    frames.send(raw::frame(HEADERS, END_HEADERS, 1, &raw::request("POST", "/", &[])));
    frames.send(raw::frame(DATA, 0, 1, b"one"));
    assert_eq!(frames.await_status(1), 200);
    frames.send(raw::frame(DATA, END_STREAM, 1, b"two"));
    let data = frames.await_frame("the echo", |frame| frame.kind == DATA);
    assert_eq!(data.payload, b"onetwo");
}

#[test]
fn a_reset_by_the_client_takes_its_upstream_request_with_it() {
    let origin = Origin::silent();
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = client(&proxy);
    let exchange = client.start(get("/"), true);
    origin.wait_connections(1);
    let mut body = exchange.body;
    body.send_reset(Reason::CANCEL);
    origin.wait_open_at_most(0);
    proxy.wait_stat("http.ingress_http.downstream_rq_active", 0);
    proxy.wait_stat("http.ingress_http.downstream_cx_active", 1);
    proxy.wait_stat("http.ingress_http.downstream_rq_rx_reset", 1);
}

#[test]
fn a_client_that_leaves_takes_all_of_its_requests_with_it() {
    let origin = Origin::silent();
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut frames = frames(&proxy);
    for stream in 0..10 {
        frames.send(raw::get(2 * stream + 1, "/"));
    }
    origin.wait_connections(10);
    drop(frames);
    origin.wait_open_at_most(0);
    proxy.wait_stat("http.ingress_http.downstream_cx_active", 0);
    proxy.wait_stat("http.ingress_http.downstream_rq_active", 0);
    proxy.wait_stat("http.ingress_http.downstream_cx_http2_active", 0);
}

#[test]
fn an_answer_cut_short_by_the_origin_is_a_reset_stream_and_no_more() {
    let origin = Origin::start(|connection| {
        if let Some(request) = connection.request() {
            match request.target.as_str() {
                "/length" => connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\npartial"),
                "/chunks" => connection.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n7\r\npartial\r\n"),
                _ => connection.write(OK),
            };
        }
    });
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = client(&proxy);
    for path in ["/length", "/chunks"] {
        let error = client.try_exchange(get(path), b"").unwrap_err();
        assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR), "{path}: {error}");
        assert_eq!(client.get("/whole").text(), "ok");
    }
}

#[test]
fn expect_100_continue_is_answered_before_the_body_comes() {
    let (origin, proxy) = echoed();
    let mut frames = frames(&proxy);
    let head = raw::request("POST", "/", &[("expect", "100-continue"), ("content-length", "4")]);
    frames.send(raw::frame(HEADERS, END_HEADERS, 1, &head));
    let interim = frames.await_frame("an interim answer", |frame| frame.kind == HEADERS);
    assert_eq!((interim.status(), interim.ends_stream()), (Some(100), false));
    frames.send(raw::frame(DATA, END_STREAM, 1, b"body"));
    assert_eq!(frames.await_status(1), 200);
    let seen = &origin.requests()[0];
    assert_eq!((seen.body.as_slice(), seen.headers.contains("expect")), (&b"body"[..], false));
}

#[test]
fn early_hints_of_the_origin_reach_the_client_with_their_fields() {
    let origin = scripted(|connection, _| {
        connection.write(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n");
        connection.write(OK);
    });
    let config = Config::proxy_to(origin.address).overlay_filter("http", json!({"proxy_100_continue": true}));
    let proxy = Proxy::start(&config);
    let mut frames = frames(&proxy);
    frames.send(raw::get(1, "/"));
    let interim = frames.await_frame("an interim answer", |frame| frame.kind == HEADERS);
    assert_eq!((interim.status(), interim.ends_stream()), (Some(103), false));
    // RFC 7541 appendix A: a literal whose name is the 45th of the static table, `link`.
    assert!(interim.payload.contains(&0x6d), "the link is in it: {interim:?}");
    assert_eq!(frames.await_status(1), 200);
}

#[test]
fn cookies_in_pieces_reach_the_origin_as_one_line() {
    let (origin, proxy) = echoed();
    let pieces = request("GET", "/").header("cookie", "a=1").header("x", "y").header("cookie", "b=2; c=3");
    assert_eq!(client(&proxy).exchange(pieces.body(()).unwrap(), b"").status, 200);
    assert_eq!(origin.requests()[0].headers.values("cookie"), ["a=1; b=2; c=3"]);
}

/// Names and values.
type Fields = &'static [(&'static str, &'static str)];

#[test]
fn a_host_field_stands_for_the_authority_but_never_against_it() {
    let (origin, proxy) = echoed();
    let cases: [(Fields, Option<&str>); 5] = [
        (&[(":authority", "a.test"), ("host", "a.test")], Some("a.test")),
        (&[("host", "b.test")], Some("b.test")),
        (&[(":authority", "a.test"), ("host", "b.test")], None),
        (&[(":authority", "user@a.test")], None),
        (&[], None),
    ];
    for (fields, host) in cases {
        origin.forget();
        let own: Fields = &[(":method", "GET"), (":scheme", "http"), (":path", "/")];
        let authority = fields.iter().filter(|(name, _)| name.starts_with(':')).copied();
        let others = fields.iter().filter(|(name, _)| !name.starts_with(':')).copied();
        let all: Vec<_> = own.iter().copied().chain(authority).chain(others).collect();
        let mut frames = frames(&proxy);
        frames.send(raw::frame(HEADERS, END_HEADERS | END_STREAM, 1, &raw::block(&all)));
        match host {
            Some(host) => {
                assert_eq!(frames.await_status(1), 200, "{fields:?}");
                assert_eq!(origin.requests()[0].headers.values("host"), [host]);
            }
            // Envoy goes by the authority, whatever is in it.
            None if envoy() => {}
            None => {
                assert!(frames.refuses(1), "{fields:?}");
                assert!(origin.requests().is_empty(), "{fields:?}");
            }
        }
    }
}

#[test]
fn what_belongs_to_a_connection_of_http_1_is_refused() {
    let (origin, proxy) = echoed();
    let bad = [
        ("connection", "close"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "websocket"),
        ("keep-alive", "1"),
        ("proxy-connection", "close"),
        ("te", "gzip"),
        ("X-Upper", "1"),
        ("x-break", "a\r\nsmuggled: 1"),
        ("x-nul", "a\0b"),
        ("content-length", "5"),
        ("content-length", "+0"),
    ];
    for field in bad {
        let mut frames = frames(&proxy);
        frames.send(raw::frame(HEADERS, END_HEADERS | END_STREAM, 1, &raw::request("GET", "/", &[field])));
        assert!(frames.refuses(1), "{field:?}");
    }
    assert!(origin.requests().is_empty(), "{:?}", origin.requests());
    assert_eq!(client(&proxy).get("/").status, 200);
}

#[test]
fn a_body_that_is_not_as_long_as_promised_never_counts_as_whole() {
    let (origin, proxy) = echoed();
    for body in [&b"abc"[..], b"abcdef"] {
        let mut frames = frames(&proxy);
        let head = raw::request("POST", "/", &[("content-length", "5")]);
        frames.send(raw::frame(HEADERS, END_HEADERS, 1, &head)).send(raw::frame(DATA, END_STREAM, 1, body));
        assert!(frames.refuses(1), "{body:?}");
    }
    assert!(origin.requests().is_empty(), "{:?}", origin.requests());
}

#[test]
fn a_claimed_scheme_is_not_believed_on_a_plain_connection() {
    let (origin, proxy) = echoed();
    let mut frames = frames(&proxy);
    let head = [(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", "test")];
    frames.send(raw::frame(HEADERS, END_HEADERS | END_STREAM, 1, &raw::block(&head)));
    assert_eq!(frames.await_status(1), 200);
    assert_eq!(origin.requests()[0].header("x-forwarded-proto"), "http");
}

#[test]
fn connect_is_refused_where_nothing_allows_it() {
    let (origin, proxy) = echoed();
    let plain = raw::block(&[(":method", "CONNECT"), (":authority", "inside.test:443")]);
    let extended = [raw::block(&[(":protocol", "websocket")]), raw::request("CONNECT", "/chat", &[])].concat();
    for head in [plain, extended] {
        let mut frames = frames(&proxy);
        frames.send(raw::frame(HEADERS, END_HEADERS, 1, &head));
        assert!(frames.refuses(1));
    }
    assert_eq!(origin.connection_count(), 0);
}

#[test]
fn too_many_or_too_large_fields_are_431_and_only_that() {
    if !postrider_only() {
        return;
    }
    let origin = Origin::echo("a");
    let limits = json!({
        "max_request_headers_kb": 8, "common_http_protocol_options": {"max_headers_count": 20},
    });
    let proxy = Proxy::start(&Config::proxy_to(origin.address).overlay_filter("http", limits));
    let mut client = client(&proxy);
    let mut many = request("GET", "/many");
    for number in 0..30 {
        many = many.header(format!("x-{number}"), "1");
    }
    assert_eq!(client.exchange(many.body(()).unwrap(), b"").status, 431);
    let large = request("GET", "/large").header("x-large", "v".repeat(9000)).body(()).unwrap();
    assert_eq!(client.exchange(large, b"").status, 431);
    assert!(origin.requests().is_empty());
    assert_eq!(client.get("/").status, 200);
}

#[test]
fn a_head_in_many_frames_is_read_as_one() {
    let (origin, proxy) = echoed();
    let mut frames = frames(&proxy);
    let long = "v".repeat(20_000);
    let block = raw::request("GET", "/", &[("x-long", &long)]);
    let pieces: Vec<&[u8]> = block.chunks(5000).collect();
    frames.send(raw::frame(HEADERS, END_STREAM, 1, pieces[0]));
    for (index, piece) in pieces.iter().enumerate().skip(1) {
        let flags = if index + 1 == pieces.len() { END_HEADERS } else { 0 };
        frames.send(raw::frame(raw::CONTINUATION, flags, 1, piece));
    }
    assert_eq!(frames.await_status(1), 200);
    assert_eq!(origin.requests()[0].header("x-long"), long);
}

#[test]
fn a_greeting_cut_anywhere_still_works() {
    let proxy = Proxy::start(&Config::routes(direct("hello")));
    let greeting = [raw::PREFACE, &raw::settings(&[]), &raw::get(1, "/")].concat();
    let address = proxy.address("http");
    // Envoy takes a part of the preface for HTTP/1.
    let first = if envoy() { raw::PREFACE.len() } else { 1 };
    for cut in first..greeting.len() {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.write_all(&greeting[..cut]).unwrap();
        // What is there is read before the rest comes: a request on another connection takes its turn.
        if cut % 4 == 0 {
            assert_eq!(proxy.get("/").text(), "hello");
        }
        let mut frames = Frames::joined(stream);
        frames.send(&greeting[cut..]);
        assert_eq!(frames.await_status(1), 200, "cut at {cut}");
    }
}

#[test]
fn a_port_of_http_1_and_2_serves_both_and_each_may_be_had_alone() {
    let served = |codec: &str| {
        let config = Config::routes(direct("hello")).overlay_filter("http", json!({"codec_type": codec}));
        let proxy = Proxy::start(&config);
        let mut old = proxy.client();
        old.send("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
        let old = old.response("GET").is_ok_and(|response| response.status == 200);
        let mut new = frames(&proxy);
        new.send(raw::get(1, "/"));
        let new = loop {
            match new.next_frame() {
                Next::Frame(frame) if frame.kind == HEADERS => break frame.status() == Some(200),
                Next::Frame(frame) if frame.kind != GOAWAY => {}
                _ => break false,
            }
        };
        (old, new)
    };
    assert_eq!(served("AUTO"), (true, true));
    assert_eq!(served("HTTP1"), (true, false));
    assert_eq!(served("HTTP2"), (false, true));
}

#[test]
fn pings_and_settings_are_answered() {
    let proxy = Proxy::start(&Config::routes(direct("hello")));
    let mut frames = frames(&proxy);
    frames.await_frame("an ACK", |frame| frame.kind == SETTINGS && frame.flags & ACK != 0);
    frames.send(raw::frame(PING, 0, 0, b"12345678"));
    let pong = frames.await_frame("an answer", |frame| frame.kind == PING);
    assert_eq!((pong.flags, pong.payload.as_slice()), (ACK, &b"12345678"[..]));
    // Frames of kinds that nobody knows are passed over (RFC 9113 section 4.1).
    frames.send(raw::frame(0xbe, 7, 0, b"what?")).send(raw::get(1, "/"));
    assert_eq!(frames.await_status(1), 200);
}

#[test]
fn an_idle_connection_is_told_goodbye_and_closed() {
    let origin = Origin::echo("a");
    let idle = json!({"common_http_protocol_options": {"idle_timeout": "0.3s"}});
    let proxy = Proxy::start(&Config::proxy_to(origin.address).overlay_filter("http", idle));
    let mut frames = frames(&proxy);
    frames.send(raw::get(1, "/"));
    assert_eq!(frames.await_status(1), 200);
    let rest = frames.until_closed();
    let goodbye = rest.iter().rfind(|frame| frame.kind == GOAWAY).expect("a GOAWAY");
    assert_eq!(goodbye.code(), u32::from(Reason::NO_ERROR));
    proxy.wait_stat("http.ingress_http.downstream_cx_idle_timeout", 1);
    proxy.wait_stat("http.ingress_http.downstream_cx_active", 0);
}

#[test]
fn a_connection_that_says_nothing_is_closed_when_it_is_idle() {
    if !postrider_only() {
        return;
    }
    let idle = json!({"common_http_protocol_options": {"idle_timeout": "0.3s"}});
    let proxy = Proxy::start(&Config::routes(direct("hello")).overlay_filter("http", idle));
    let mut silent = frames(&proxy);
    silent.until_closed();
    let mut half = TcpStream::connect(proxy.address("http")).unwrap();
    half.write_all(&raw::PREFACE[..20]).unwrap();
    Frames::joined(half).until_closed();
    let mut stuck = frames(&proxy);
    stuck.send(&raw::get(1, "/")[..20]);
    stuck.until_closed();
    proxy.wait_stat("http.ingress_http.downstream_cx_active", 0);
}

#[test]
fn a_busy_connection_is_not_idle() {
    let (gate, origin) = gated();
    let idle = json!({"common_http_protocol_options": {"idle_timeout": "0.5s"}});
    let proxy = Proxy::start(&Config::proxy_to(origin.address).overlay_filter("http", idle));
    let mut busy = client(&proxy);
    let exchange = busy.start(get("/"), true);
    origin.wait_requests(1);
    // Another connection that is idle ends meanwhile.
    frames(&proxy).until_closed();
    frames(&proxy).until_closed();
    gate.open();
    assert_eq!(busy.answer(exchange).unwrap().text(), "ok");
}

#[test]
fn timeouts_answer_the_stream_and_leave_the_connection() {
    let origin = scripted(|connection, request| {
        if request.target == "/fast" {
            connection.write(OK);
        } else {
            connection.read_to_end();
        }
    });
    let config = Config::routes(json!([
        {"match": {"path": "/late"}, "route": {"cluster": "origin", "timeout": "0.2s"}},
        {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]))
    .cluster("origin", &[origin.address])
    .overlay_filter("http", json!({"request_timeout": "0.2s"}));
    let proxy = Proxy::start(&config);
    let mut client = client(&proxy);
    assert_eq!(client.get("/late").status, 504);
    let unfinished = client.start(request("POST", "/half").body(()).unwrap(), false);
    assert_eq!(client.answer(unfinished).unwrap().status, 408);
    assert_eq!(client.get("/fast").text(), "ok");
}

#[test]
fn a_reload_says_goodbye_and_lets_streams_finish() {
    if !postrider_only() {
        return;
    }
    let (gate, origin) = gated();
    let config = Config::proxy_to(origin.address);
    let mut proxy = Proxy::start(&config);
    let mut frames = frames(&proxy);
    frames.send(raw::get(1, "/"));
    origin.wait_requests(1);
    let changed = config.overlay_filter("http", json!({"server_name": "other"}));
    assert!(accepted(&proxy.reload(changed.to_yaml())));
    let goodbye = frames.await_frame("a GOAWAY", |frame| frame.kind == GOAWAY);
    assert_eq!(goodbye.code(), u32::from(Reason::NO_ERROR));
    gate.open();
    assert_eq!(frames.await_status(1), 200);
    frames.until_closed();
    assert_eq!(client(&proxy).get("/").header("server"), "other");
}

#[test]
fn a_reload_of_routes_serves_open_connections_anew() {
    if !postrider_only() {
        return;
    }
    let config = Config::routes(direct("old"));
    let mut proxy = Proxy::start(&config);
    let mut client = client(&proxy);
    assert_eq!(client.get("/").text(), "old");
    assert!(accepted(&proxy.reload(Config::routes(direct("new")).to_yaml())));
    wait_until("the new routes", || client.get("/").text() == "new");
    proxy.wait_stat("http.ingress_http.downstream_cx_total", 1);
}

#[test]
fn reloads_under_load_lose_no_request() {
    if !postrider_only() {
        return;
    }
    let origin = Origin::echo("a");
    // Each of them ends all connections: what they are served by is another one.
    let named = |turn: u32| {
        let name = json!({"server_name": format!("turn-{turn}")});
        Config::proxy_to(origin.address).overlay_filter("http", name)
    };
    let mut proxy = Proxy::start_with(&named(0), Launch { concurrency: 2, ..Launch::default() });
    let address = proxy.address("http");
    let (stop, served) = (AtomicBool::new(false), AtomicU64::new(0));
    let failures: Vec<String> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..3).map(|_| scope.spawn(|| ask_on(address, &stop, &served))).collect();
        for turn in 1..=8 {
            assert!(accepted(&proxy.reload(named(turn).to_yaml())));
            let goal = served.load(Ordering::SeqCst) + 100;
            wait_until("the load goes on", || served.load(Ordering::SeqCst) >= goal);
        }
        stop.store(true, Ordering::SeqCst);
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    assert!(failures.is_empty(), "{} failures, first {:?}", failures.len(), failures.first());
}

/// Sends requests until told to stop, on a new connection when the old one is over. Answers what went wrong: a request
/// that was refused before it was begun, as GOAWAY says, is not among that.
fn ask_on(address: SocketAddr, stop: &AtomicBool, served: &AtomicU64) -> Vec<String> {
    let mut failures = Vec::new();
    let mut client = H2Client::connect(address);
    while !stop.load(Ordering::SeqCst) {
        match client.try_exchange(get("/"), b"") {
            Ok(answer) if answer.status == 200 => {
                served.fetch_add(1, Ordering::SeqCst);
            }
            Ok(answer) => failures.push(format!("{answer:?}")),
            Err(error) => {
                let told = error.is_go_away() && error.reason() == Some(Reason::NO_ERROR);
                if !told && error.reason() != Some(Reason::REFUSED_STREAM) {
                    failures.push(error.to_string());
                }
                client = H2Client::connect(address);
            }
        }
    }
    failures
}

#[test]
fn a_shutdown_says_goodbye_and_lets_streams_finish() {
    if !postrider_only() {
        return;
    }
    let (gate, origin) = gated();
    let mut proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut idle = frames(&proxy);
    idle.await_frame("an ACK", |frame| frame.kind == SETTINGS && frame.flags & ACK != 0);
    let mut busy = frames(&proxy);
    busy.send(raw::get(1, "/"));
    origin.wait_requests(1);
    proxy.signal("TERM");
    assert!(idle.until_closed().iter().any(|frame| frame.kind == GOAWAY));
    busy.await_frame("a GOAWAY", |frame| frame.kind == GOAWAY);
    gate.open();
    assert_eq!(busy.await_status(1), 200);
    busy.until_closed();
    assert_eq!(proxy.wait_exit().code(), Some(0));
}

#[test]
fn max_requests_per_connection_ends_the_connection_behind_the_last() {
    let limit = json!({"common_http_protocol_options": {"max_requests_per_connection": 2}});
    let proxy = Proxy::start(&Config::routes(direct("hello")).overlay_filter("http", limit));
    let mut frames = frames(&proxy);
    frames.send(raw::get(1, "/"));
    assert_eq!(frames.await_status(1), 200);
    frames.send(raw::get(3, "/"));
    assert_eq!(frames.await_status(3), 200);
    assert!(frames.until_closed().iter().any(|frame| frame.kind == GOAWAY));
}

#[test]
fn a_lua_filter_sees_and_changes_messages_of_http_2() {
    let origin = Origin::echo("a");
    let code = r#"
function envoy_on_request(handle)
  local body = handle:body()
  local length = body and body:length() or 0
  handle:headers():replace("x-seen", handle:headers():get(":authority") .. " " .. length)
  if handle:headers():get(":path") == "/no" then
    handle:respond({[":status"] = "403"}, "not here")
  end
end
function envoy_on_response(handle)
  handle:headers():add("x-done", "yes")
end
"#;
    let lua = config::extension(
        "envoy.filters.http.lua",
        "filters.http.lua.v3.Lua",
        json!({"default_source_code": {"inline_string": code}}),
    );
    let config = Config::proxy_to(origin.address).overlay_filter("http", json!({"http_filters": [lua, router()]}));
    let proxy = Proxy::start(&config);
    let mut client = client(&proxy);
    let answer = client.exchange(request("POST", "/").body(()).unwrap(), b"12345");
    assert_eq!((answer.status, answer.header("x-done")), (200, "yes"));
    assert!(answer.text().ends_with("12345"));
    assert_eq!(origin.requests()[0].header("x-seen"), "test 5");
    let refused = client.get("/no");
    assert_eq!((refused.status, refused.text()), (403, "not here"));
}

#[test]
fn the_access_log_tells_http_2_and_every_stream() {
    let origin = Origin::echo("a");
    let directory = TempDir::new();
    let path = directory.path().join("log");
    let format = "%PROTOCOL% %REQ(:METHOD)% %RESPONSE_CODE% %BYTES_RECEIVED% %RESPONSE_FLAGS%\n";
    let log = file_access_log(&path, json!({"log_format": {"text_format_source": {"inline_string": format}}}));
    let config = Config::proxy_to(origin.address).overlay_filter("http", json!({"access_log": [log]}));
    let proxy = Proxy::start_with(&config, Launch::default().with_arguments(&["--file-flush-interval-msec", "20"]));
    let mut client = client(&proxy);
    client.get("/");
    client.exchange(request("POST", "/").body(()).unwrap(), b"body");
    wait_until("two lines", || {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        text == "HTTP/2 GET 200 0 -\nHTTP/2 POST 200 4 -\n"
    });
}
