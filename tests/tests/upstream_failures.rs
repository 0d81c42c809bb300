//! What becomes of requests, and of what is on its way, when a connection fails.

use postrider_tests::get;
use postrider_tests::kit::config::{self, upstream_http_options};
use postrider_tests::kit::{Config, Gate, Origin, Proxy, RawClient, net, wait_until};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn over_http2(fields: Value) -> Value {
    let mut options = upstream_http_options(
        json!({"explicit_http_config": {"http_protocol_options": null, "http2_protocol_options": {}}}),
    );
    postrider_tests::kit::config::overlay(&mut options, fields);
    options
}

#[test]
fn requests_that_wait_for_the_same_connection_fail_with_it() {
    const REQUESTS: usize = 8;
    let hole = net::Blackhole::start();
    let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "hole", "timeout": "30s"}}]);
    let options = over_http2(json!({"connect_timeout": "1s"}));
    let proxy = Proxy::start(&Config::routes(routes).cluster_with("hole", &[hole.address], options));
    let started = Instant::now();
    let mut clients: Vec<RawClient> = (0..REQUESTS).map(|_| proxy.client()).collect();
    for client in &mut clients {
        client.send(get("/"));
    }
    for client in &mut clients {
        let response = client.response("GET").unwrap();
        let text = "upstream connect error or disconnect/reset before headers. reset reason: connection timeout";
        assert_eq!((response.status, response.text()), (503, text));
    }
    // One after the other would take eight seconds.
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    let stat = |name: &str| proxy.stats().value(&format!("cluster.hole.{name}"));
    assert_eq!((stat("upstream_cx_total"), stat("upstream_cx_connect_timeout")), (1, 1));
    assert_eq!((stat("upstream_rq_pending_failure_eject"), stat("upstream_rq_pending_active")), (REQUESTS as u64, 0));
}

/// Starts a request with half of its body, whose first try is answered at once with a long wait for the next one.
fn half_a_request(proxy: &Proxy) -> RawClient {
    let mut client = proxy.client();
    client.send("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 10\r\n\r\nhalf");
    proxy.wait_stat("cluster.origin.upstream_rq_total", 1);
    proxy.wait_stat("cluster.origin.upstream_rq_active", 0);
    client
}

#[test]
fn a_client_that_leaves_between_two_tries_is_noticed() {
    let origin = Origin::start(|connection| {
        connection.request_head();
        connection.write(b"HTTP/1.1 503 Busy\r\nretry-after: 60\r\ncontent-length: 0\r\n\r\n");
        connection.read_to_end();
    });
    let wait = json!({"reset_headers": [{"name": "retry-after"}]});
    let policy = json!({"retry_on": "5xx", "rate_limited_retry_back_off": wait});
    let routes =
        json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin", "timeout": "0s", "retry_policy": policy}}]);
    for leave in [RawClient::reset, |client: RawClient| drop(client)] {
        let proxy = Proxy::start(&Config::routes(routes.clone()).cluster("origin", &[origin.address]));
        leave(half_a_request(&proxy));
        proxy.wait_stat("http.ingress_http.downstream_rq_rx_reset", 1);
        proxy.wait_stat("http.ingress_http.downstream_rq_active", 0);
        assert_eq!(proxy.stats().value("cluster.origin.upstream_rq_total"), 1);
    }
}

#[test]
fn a_stream_that_lasted_too_long_is_not_the_upstreams_fault() {
    let silent = Origin::silent();
    let route = |prefix: &str, fields: Value| {
        let mut route = json!({"cluster": "silent", "timeout": "0s"});
        postrider_tests::kit::config::overlay(&mut route, fields);
        json!({"match": {"prefix": prefix}, "route": route})
    };
    let routes = json!([
        route("/duration", json!({"max_stream_duration": {"max_stream_duration": "0.05s"}})),
        route("/idle", json!({"idle_timeout": "0.05s"})),
        route("/late", json!({"timeout": "0.05s"})),
    ]);
    let proxy = Proxy::start(&Config::routes(routes).cluster("silent", &[silent.address]));
    let count = || proxy.stats().value("cluster.silent.upstream_rq_504");
    for (path, counted) in [("/duration", 0), ("/idle", 0), ("/late", 1)] {
        assert_eq!(proxy.get(path).status, 504, "{path}");
        assert_eq!(
            (count(), proxy.stats().value("cluster.silent.upstream_rq_completed")),
            (counted, counted),
            "{path}"
        );
    }
}

#[test]
fn a_tunnel_that_its_upstream_resets_still_delivers_what_it_had_said() {
    const BYTES: usize = 20_000;
    let reset = Gate::default();
    let open = reset.clone();
    let origin = Origin::start(move |connection| {
        connection.request_head();
        connection.write(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: test\r\n\r\n");
        connection.write(&[b'x'; BYTES]);
        open.wait();
        connection.reset();
    });
    let config =
        Config::proxy_to(origin.address).overlay_filter("http", json!({"upgrade_configs": [{"upgrade_type": "test"}]}));
    let proxy = Proxy::start(&config);
    // Most of it does not fit into the client, and waits in front of it.
    let mut client = RawClient::from_stream(net::connect_with_small_buffer(proxy.address("http"), 2304));
    client.send("GET / HTTP/1.1\r\nhost: test\r\nconnection: upgrade\r\nupgrade: test\r\n\r\n");
    assert_eq!(client.response_head("GET").unwrap().status, 101);
    wait_until("the data to be on its way", || {
        proxy.stats().value("cluster.origin.upstream_cx_rx_bytes_total") > BYTES as u64
    });
    reset.open();
    proxy.wait_stat("cluster.origin.upstream_cx_active", 0);
    // Behind this it closes, and there is something that nobody has read.
    let _ = client.try_send(&[b'y'; 5000]);
    assert_eq!(client.read_exact(BYTES).unwrap().len(), BYTES);
}

/// It was a connection that ended, 503 and `UC`; Envoy counts an error of the protocol.
#[test]
fn half_a_head_of_an_answer_is_502() {
    let origin = Origin::start(|connection| {
        if connection.request().is_some() {
            connection.write(b"HTTP/1.1 200 OK\r\nx-ha");
        }
    });
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let answer = proxy.exchange(get("/"));
    let text = "upstream connect error or disconnect/reset before headers. reset reason: protocol error";
    assert_eq!((answer.status, answer.text()), (502, text));
    assert_eq!(proxy.stats().value("cluster.origin.upstream_cx_protocol_error"), 1);
    assert_eq!(proxy.stats().value("cluster.origin.upstream_rq_502"), 1);
}

#[test]
fn half_a_body_of_an_answer_counts_as_an_error_of_the_protocol() {
    let origin = Origin::start(|connection| {
        if connection.request().is_some() {
            connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf");
        }
    });
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = proxy.client();
    client.send(get("/"));
    assert!(client.response("GET").is_err());
    proxy.wait_stat("cluster.origin.upstream_cx_protocol_error", 1);
}

/// They were told of a 503, as of a service that does not answer.
#[test]
fn filters_are_shown_a_502_where_their_service_speaks_no_http() {
    let script = "function envoy_on_request(h)
        local call = {[':method'] = 'GET', [':path'] = '/', [':authority'] = 'service'}
        local headers, body = h:httpCall('service', call, '', 1000)
        h:respond({[':status'] = '200'}, headers[':status'] .. ' ' .. body)
    end";
    let lua =
        config::extension("lua", "filters.http.lua.v3.Lua", json!({"default_source_code": {"inline_string": script}}));
    let protocol_error = "502 upstream connect error or disconnect/reset before headers. reset reason: protocol error";
    let cases: [(&[u8], &str, u64, &str); 6] = [
        (b"no HTTP\r\n\r\n", protocol_error, 1, "502"),
        (b"HTTP/1.1 200 OK\r\ncontent-le", protocol_error, 1, "502"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n", protocol_error, 1, "502"),
        (b"", "503 upstream failure", 0, "503"),
        // The answer began, and counts as that.
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf", "503 upstream failure", 1, "200"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nx\r\n", "503 upstream failure", 1, "200"),
    ];
    for (answer, expected, errors, counted) in cases {
        let service = Origin::start(move |connection| {
            connection.request_head();
            connection.write(answer);
        });
        let routes = json!([{"match": {"prefix": "/"}, "direct_response": {"status": 204}}]);
        let config = Config::routes(routes)
            .cluster("service", &[service.address])
            .overlay_filter("http", json!({"http_filters": [lua, config::router()]}));
        let proxy = Proxy::start(&config);
        assert_eq!(proxy.get("/").text(), expected);
        let stats = proxy.stats();
        let stat = |name: &str| stats.value(&format!("cluster.service.{name}"));
        assert_eq!(stat("upstream_cx_protocol_error"), errors);
        assert_eq!((stat(&format!("upstream_rq_{counted}")), stat("upstream_rq_completed")), (1, 1), "{expected}");
    }
}
