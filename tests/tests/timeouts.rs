//! Every wait has an end, and each end has its own answer.

use postrider_tests::get;
use postrider_tests::h2_frames::{self as frames, Frames, Next, RST_STREAM};
use postrider_tests::kit::{Config, Gate, Origin, Proxy, RawClient, WireError, config, net};
use serde_json::json;
use std::time::{Duration, Instant};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

fn proxy_with(origin: &Origin, hcm: serde_json::Value) -> Proxy {
    Proxy::start(&Config::proxy_to(origin.address).overlay_filter("http", hcm))
}

#[test]
fn a_head_that_does_not_end_is_408() {
    let origin = Origin::echo("a");
    let proxy = proxy_with(&origin, json!({"request_headers_timeout": "0.2s"}));
    let mut client = proxy.client();
    // The clock starts anew with each request on the connection.
    for _ in 0..2 {
        assert_eq!(client.exchange(get("/")).status, 200);
    }
    client.send("GET / HTTP/1.1\r\nhost: te");
    let response = client.response("GET").unwrap();
    assert_eq!(response.status, 408);
    assert!(client.closed());
    assert_eq!(origin.requests().len(), 2);
}

#[test]
fn a_trickled_head_does_not_extend_its_time() {
    let origin = Origin::echo("a");
    let proxy = proxy_with(&origin, json!({"request_headers_timeout": "0.3s"}));
    let mut client = proxy.client();
    client.set_timeout(Duration::from_millis(40));
    let started = Instant::now();
    client.send("GET / HTTP/1.1\r\nhost: test\r\nx: ");
    let response = loop {
        client.send("a");
        match client.response("GET") {
            Err(WireError::Timeout(_)) if started.elapsed() < Duration::from_secs(5) => {}
            other => break other,
        }
    };
    assert_eq!(response.unwrap().status, 408);
}

#[test]
fn a_request_that_does_not_end_in_time_is_408() {
    let origin = Origin::echo("a");
    let proxy = proxy_with(&origin, json!({"request_timeout": "0.2s"}));
    let mut client = proxy.client();
    client.send("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 10\r\n\r\nhalf");
    let response = client.response("POST").unwrap();
    assert_eq!((response.status, response.text()), (408, "request timeout"));
    assert!(client.closed());
    assert!(origin.requests().is_empty());
}

#[test]
fn a_stream_without_progress_is_408_before_the_answer_began() {
    let origin = Origin::silent();
    let proxy = proxy_with(&origin, json!({"stream_idle_timeout": "0.2s"}));
    let mut client = proxy.client();
    client.send("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 10\r\n\r\nhalf");
    let response = client.response("POST").unwrap();
    assert_eq!((response.status, response.text()), (408, "stream timeout"));
    origin.wait_open_at_most(0);
    assert_eq!(proxy.stats().value("http.ingress_http.downstream_rq_idle_timeout"), 1);
}

#[test]
fn a_stream_that_stalls_within_the_answer_is_cut() {
    let origin = Origin::start(|connection| {
        if connection.request().is_some() {
            connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf");
            connection.read_to_end();
        }
    });
    let proxy = proxy_with(&origin, json!({"stream_idle_timeout": "0.2s"}));
    let mut client = proxy.client();
    client.send(get("/"));
    let head = client.response_head("GET").unwrap();
    assert_eq!(head.status, 200);
    let mut body = Vec::new();
    let end = client.body(&head, &mut |piece| body.extend_from_slice(piece));
    assert_eq!(body, b"half");
    assert!(matches!(end, Err(WireError::Eof(_) | WireError::Reset)), "{end:?}");
}

#[test]
fn a_route_can_have_its_own_idle_timeout() {
    let origin = Origin::silent();
    let config = Config::routes(json!([
        {"match": {"prefix": "/own"}, "route": {"cluster": "origin", "idle_timeout": "0.1s", "timeout": "0s"}},
        {"match": {"prefix": "/"}, "route": {"cluster": "origin", "timeout": "0.4s"}},
    ]))
    .cluster("origin", &[origin.address]);
    let proxy = Proxy::start(&config);
    let own = proxy.get("/own");
    // Nothing was missing from the request, so it is the origin that is late.
    assert_eq!((own.status, own.text()), (504, "stream timeout"));
    let other = proxy.get("/");
    assert_eq!((other.status, other.text()), (504, "upstream request timeout"));
}

#[test]
fn a_route_timeout_starts_when_the_request_has_ended() {
    let gate = Gate::default();
    let opened = gate.clone();
    let origin = Origin::start(move |connection| {
        while connection.request().is_some() {
            opened.open();
            connection.write(OK);
        }
    });
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin", "timeout": "1s"}}]))
        .cluster("origin", &[origin.address]);
    let proxy = Proxy::start(&config);
    let mut client = proxy.client();
    client.set_timeout(Duration::from_millis(1500));
    client.send("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 4\r\n\r\nbo");
    assert!(matches!(client.response("POST"), Err(WireError::Timeout(_))));
    client.set_timeout(Duration::from_secs(10));
    client.send("dy");
    assert_eq!(client.response("POST").unwrap().text(), "ok");
    gate.wait();
}

/// The upstream was in time; what is left is the client's to take.
#[test]
fn an_answer_that_its_client_takes_slowly_was_cut_at_the_routes_timeout() {
    const LENGTH: usize = 400_000;
    let origin = Origin::start(|connection| {
        while let Some(request) = connection.request() {
            if request.target == "/never" {
                continue;
            }
            connection.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {LENGTH}\r\n\r\n").as_bytes());
            connection.write(&[b'x'; LENGTH]);
        }
    });
    let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin", "timeout": "0.3s"}}]);
    // SOL_SOCKET and SO_SNDBUF: the kernel takes little of the answer.
    let small = json!({"level": 1, "name": 7, "int_value": 8192, "state": "STATE_LISTENING"});
    let config = Config::routes(routes)
        .cluster("origin", &[origin.address])
        .overlay_listener("http", json!({"socket_options": [small]}));
    let proxy = Proxy::start(&config);
    let mut slow = RawClient::from_stream(net::connect_with_small_buffer(proxy.address("http"), 4096));
    slow.send(get("/"));
    origin.wait_requests(1);
    // A later request was too late, so the first one's time is over, too.
    assert_eq!(proxy.get("/never").status, 504);
    assert_eq!(slow.response("GET").unwrap().body.len(), LENGTH);
}

/// A client whose windows stay closed, which asks for these paths one after the other on streams 1, 3, 5 and so on.
fn unread(proxy: &Proxy, paths: &[&str]) -> Frames {
    // SETTINGS_INITIAL_WINDOW_SIZE.
    let mut client = Frames::connect(proxy.address("http"), &[(4, 0)]);
    for (id, path) in (1..).step_by(2).zip(paths) {
        client.send(frames::get(id, path));
    }
    client
}

/// The streams that are given up, in order.
fn given_up(client: &mut Frames, count: usize) -> Vec<u32> {
    (0..count).map(|_| client.await_frame("a reset", |frame| frame.kind == RST_STREAM).stream).collect()
}

fn flushing(origin: &Origin, hcm: serde_json::Value) -> Proxy {
    let route = |path: &str, mut fields: serde_json::Value| {
        config::overlay(&mut fields, json!({"cluster": "origin", "timeout": "0s"}));
        json!({"match": {"prefix": path}, "route": fields})
    };
    let routes = json!([
        route("/own", json!({"flush_timeout": "0.5s"})),
        route("/never", json!({"flush_timeout": "0s", "idle_timeout": "0.2s"})),
        route("/idle", json!({"idle_timeout": "0.2s"})),
        {"match": {"prefix": "/direct"}, "direct_response": {"status": 200, "body": {"inline_string": "direct"}}},
        route("/", json!({})),
    ]);
    Proxy::start(&Config::routes(routes).cluster("origin", &[origin.address]).overlay_filter("http", hcm))
}

#[test]
fn an_answer_that_its_client_leaves_lying_ends_by_the_flush_timeout() {
    let origin = Origin::echo("a");
    let proxy = flushing(&origin, json!({"stream_flush_timeout": "1s", "stream_idle_timeout": "0s"}));
    let mut client = unread(&proxy, &["/never", "/idle", "/", "/own"]);
    // The time of a route counts, and none is without end. The time in which something must move is another.
    let mut order = given_up(&mut client, 3);
    order[1..].sort_unstable();
    assert_eq!(order, [7, 3, 5]);
    client.send(frames::window_update(1, 1 << 16));
    let end = client.await_frame("the end", |frame| frame.ends_stream());
    assert_eq!(end.stream, 1);
}

#[test]
fn a_flush_timeout_counts_from_the_end_of_an_answer_that_came_late() {
    let gate = Gate::default();
    let opened = gate.clone();
    let origin = Origin::start(move |connection| {
        while connection.request().is_some() {
            opened.wait();
            connection.write(OK);
        }
    });
    let proxy = flushing(&origin, json!({"stream_idle_timeout": "300s"}));
    let mut client = unread(&proxy, &["/own"]);
    origin.wait_requests(1);
    // Longer than the time: until here it is the origin that is waited for.
    let waited = Instant::now() + Duration::from_millis(700);
    while let Next::Frame(frame) = client.next_within(waited.saturating_duration_since(Instant::now())) {
        assert_ne!(frame.kind, RST_STREAM, "{frame:?}");
    }
    gate.open();
    assert_eq!(given_up(&mut client, 1), [1]);
}

#[test]
fn an_answer_of_the_proxys_own_has_the_same_time() {
    let origin = Origin::echo("a");
    let proxy = flushing(&origin, json!({"stream_flush_timeout": "2.5s"}));
    let mut client = unread(&proxy, &["/direct", "/direct"]);
    // Longer than the time in which a connection that is to close must take what was said.
    let waited = Instant::now() + Duration::from_millis(1500);
    while let Next::Frame(frame) = client.next_within(waited.saturating_duration_since(Instant::now())) {
        assert_ne!(frame.kind, RST_STREAM, "{frame:?}");
    }
    client.send(frames::window_update(1, 1 << 16));
    assert_eq!(client.await_frame("the end", |frame| frame.ends_stream()).stream, 1);
    assert_eq!(given_up(&mut client, 1), [3]);
}

#[test]
fn without_a_flush_timeout_an_answer_has_the_idle_timeout_of_all_routes() {
    let origin = Origin::echo("a");
    let proxy = flushing(&origin, json!({"stream_idle_timeout": "1s"}));
    let mut client = unread(&proxy, &["/", "/own", "/idle"]);
    let mut order = given_up(&mut client, 3);
    order[1..].sort_unstable();
    assert_eq!(order, [3, 1, 5]);
    proxy.wait_stat("http2.tx_flush_timeout", 3);
    assert_eq!(proxy.stats().value("http.ingress_http.downstream_rq_idle_timeout"), 0);
}

#[test]
fn an_idle_client_connection_is_closed() {
    let origin = Origin::echo("a");
    let proxy = proxy_with(&origin, json!({"common_http_protocol_options": {"idle_timeout": "0.5s"}}));
    let mut fresh = proxy.client();
    assert!(fresh.closed());
    let mut used = proxy.client();
    assert_eq!(used.exchange(get("/")).status, 200);
    assert!(used.closed());
    assert_eq!(proxy.stats().value("http.ingress_http.downstream_cx_idle_timeout"), 2);
}

#[test]
fn a_client_connection_has_a_longest_life() {
    let origin = Origin::echo("a");
    let proxy = proxy_with(
        &origin,
        json!({
            "common_http_protocol_options": {"max_connection_duration": "0.2s"}, "drain_timeout": "0.1s",
        }),
    );
    let mut client = proxy.client();
    assert_eq!(client.exchange(get("/")).status, 200);
    assert!(client.closed());
    assert_eq!(proxy.stats().value("http.ingress_http.downstream_cx_max_duration_reached"), 1);
}

#[test]
fn an_idle_upstream_connection_is_closed() {
    let origin = Origin::echo("a");
    let options = config::upstream_http_options(json!({"common_http_protocol_options": {"idle_timeout": "0.1s"}}));
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}])).cluster_with(
        "origin",
        &[origin.address],
        options,
    );
    let proxy = Proxy::start(&config);
    let mut client = proxy.client();
    for turn in 1..=2 {
        assert_eq!(client.exchange(get("/")).status, 200);
        origin.wait_open_at_most(0);
        proxy.wait_stat("cluster.origin.upstream_cx_idle_timeout", turn);
    }
    assert_eq!(origin.connection_count(), 2);
}

#[test]
fn an_origin_that_does_not_accept_is_503_after_the_connect_timeout() {
    let hole = net::Blackhole::start();
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "hole"}}])).cluster_with(
        "hole",
        &[hole.address],
        json!({"connect_timeout": "0.2s"}),
    );
    let proxy = Proxy::start(&config);
    let started = Instant::now();
    let response = proxy.get("/");
    assert!(started.elapsed() < Duration::from_secs(3));
    assert_eq!(response.status, 503);
    assert!(
        response
            .text()
            .starts_with("upstream connect error or disconnect/reset before headers. reset reason: connection timeout"),
        "{}",
        response.text()
    );
    assert_eq!(proxy.stats().value("cluster.hole.upstream_cx_connect_timeout"), 1);
}

#[test]
fn a_refused_connection_is_flushed_then_closed_after_the_delay() {
    let origin = Origin::echo("a");
    let proxy = proxy_with(&origin, json!({"delayed_close_timeout": "0.2s"}));
    let mut client = proxy.client();
    client.send("GET / HTTP/1.1\r\nnot a field\r\n\r\n");
    assert_eq!(client.response("GET").unwrap().status, 400);
    // This end stays open: the proxy must not wait for it for ever.
    assert!(client.closed());
    proxy.wait_stat("http.ingress_http.downstream_cx_active", 0);
}

#[test]
fn a_timeout_of_zero_means_never() {
    let gate = Gate::default();
    let opened = gate.clone();
    let origin = Origin::start(move |connection| {
        while connection.request().is_some() {
            opened.wait();
            connection.write(OK);
        }
    });
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin", "timeout": "0s"}}]))
        .cluster("origin", &[origin.address])
        .overlay_filter(
            "http",
            json!({
                "stream_idle_timeout": "0s", "request_timeout": "0s", "request_headers_timeout": "0s",
            }),
        );
    let proxy = Proxy::start(&config);
    let mut client: RawClient = proxy.client();
    client.set_timeout(Duration::from_millis(300));
    client.send(get("/"));
    assert!(matches!(client.response("GET"), Err(WireError::Timeout(_))));
    gate.open();
    client.set_timeout(Duration::from_secs(10));
    assert_eq!(client.response("GET").unwrap().text(), "ok");
}
