//! HTTP/2 with upstreams: what they are asked, what comes back, and how connections are shared.

use http::HeaderMap;
use postrider_tests::h2_client::{Answer, H2Client, request};
use postrider_tests::h2_origin::H2Origin;
use postrider_tests::kit::config::{extension, file_access_log, router, upstream_http_options};
use postrider_tests::kit::{Config, Origin, Proxy, TempDir, wait_until};
use postrider_tests::tls::upstream;
use serde_json::{Value, json};

fn http2() -> Value {
    upstream_http_options(
        json!({"explicit_http_config": {"http_protocol_options": null, "http2_protocol_options": {}}}),
    )
}

fn config(origin: &H2Origin, options: Value) -> Config {
    let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]);
    Config::routes(routes).cluster_with("origin", &[origin.address], options)
}

fn proxy(origin: &H2Origin) -> Proxy {
    Proxy::start(&config(origin, http2()))
}

#[test]
fn a_client_of_http_1_reaches_an_upstream_of_http_2() {
    let origin = H2Origin::start(100);
    let proxy = proxy(&origin);
    let get = proxy.exchange("GET /a?b HTTP/1.1\r\nhost: site.test\r\nconnection: keep-alive\r\n\r\n");
    assert_eq!((get.status, get.text()), (200, "GET /a site.test te=- body=0 x-sum=-"));
    let sized = "POST /b HTTP/1.1\r\nhost: site.test\r\ncontent-length: 5\r\n\r\nhello";
    assert_eq!(proxy.exchange(sized).text(), "POST /b site.test te=- body=5 x-sum=-");
    let chunked = "POST /c HTTP/1.1\r\nhost: site.test\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    assert_eq!(proxy.exchange(chunked).text(), "POST /c site.test te=- body=3 x-sum=-");
}

#[test]
fn trailers_pass_both_ways_between_clients_and_upstreams_of_http_2() {
    let origin = H2Origin::start(100);
    let proxy = proxy(&origin);
    let mut client = H2Client::connect(proxy.address("http"));
    let asked = request("POST", "/t").header("content-type", "application/grpc").body(()).unwrap();
    let mut exchange = client.start(asked, false);
    client.send_all(&mut exchange.body, b"message", false).unwrap();
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "7".parse().unwrap());
    exchange.body.send_trailers(trailers).unwrap();
    let answer = client.answer(exchange).unwrap();
    assert_eq!(answer.text(), "POST /t test te=trailers body=7 x-sum=7");
    assert_eq!(answer.trailers["x-checked"], "yes");
}

/// Sends a body with trailers; with its length unless that is not to be said.
fn post_with_trailers(client: &mut H2Client, path: &str, says_length: bool) -> Answer {
    let mut asked = request("POST", path);
    if says_length {
        asked = asked.header("content-length", "7");
    }
    let mut exchange = client.start(asked.body(()).unwrap(), false);
    client.send_all(&mut exchange.body, b"message", false).unwrap();
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "7".parse().unwrap());
    // An upstream of HTTP/1 may have answered already: to it the body was whole.
    let _ = exchange.body.send_trailers(trailers);
    client.answer(exchange).unwrap()
}

/// Go's servers say the length of what they wrote before the first flush, and send trailers all the same.
#[test]
fn trailers_behind_a_body_of_known_length_arrive_whoever_looks_at_it() {
    let origin = H2Origin::start(100);
    let route = |more: Value| {
        let mut route = json!({"cluster": "origin"});
        route.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        route
    };
    let buffer = extension("buffer", "filters.http.buffer.v3.Buffer", json!({"max_request_bytes": 1000}));
    let script = "function envoy_on_request(h) h:trailers() end function envoy_on_response(h) h:trailers() end";
    let lua = json!({"default_source_code": {"inline_string": script}});
    let lua = extension("envoy.filters.http.lua", "filters.http.lua.v3.Lua", lua);
    let upside = json!({"http_filters": [
        extension("upside", "filters.http.buffer.v3.Buffer", json!({"max_request_bytes": 1000})),
        extension("codec", "filters.http.upstream_codec.v3.UpstreamCodec", json!({})),
    ], "explicit_http_config": {"http_protocol_options": null, "http2_protocol_options": {}}});
    for (what, filters, action, options) in [
        ("nobody", vec![], json!({}), http2()),
        ("a filter that holds it", vec![buffer], json!({}), http2()),
        ("a script", vec![lua], json!({}), http2()),
        ("retries", vec![], json!({"retry_policy": {"retry_on": "5xx"}}), http2()),
        ("a mirror", vec![], json!({"request_mirror_policies": [{"cluster": "origin"}]}), http2()),
        ("a filter of the upstream's", vec![], json!({}), upstream_http_options(upside)),
    ] {
        let mut all = filters;
        all.push(router());
        let routes = json!([{"match": {"prefix": "/"}, "route": route(action)}]);
        let config = Config::routes(routes)
            .cluster_with("origin", &[origin.address], options)
            .overlay_filter("http", json!({"http_filters": all}));
        let proxy = Proxy::start(&config);
        let mut client = H2Client::connect(proxy.address("http"));
        for says_length in [true, false] {
            let answer = post_with_trailers(&mut client, "/length", says_length);
            assert_eq!(answer.text(), "POST /length test te=- body=7 x-sum=7", "{what}, {says_length}");
            // One that might change the body leaves no length.
            let length = answer.header("content-length");
            assert!(length == "37" || what == "a script" && length.is_empty(), "{what}: {length}");
            assert_eq!(answer.trailers["x-checked"], "yes", "{what}");
        }
        let empty = client.get("/length/empty");
        assert_eq!((empty.text(), empty.trailers["x-checked"].to_str().unwrap()), ("", "yes"), "{what}");
        // HTTP/1 has no place for them, and none to wait for them.
        let plain = proxy.exchange("GET /length HTTP/1.1\r\nhost: test\r\n\r\n");
        assert_eq!(plain.text(), "GET /length test te=- body=0 x-sum=-");
        assert!(plain.header("content-length") == "36" || what == "a script", "{what}");
    }
}

#[test]
fn trailers_of_a_client_of_http_2_reach_an_upstream_of_http_1_only_where_that_is_wanted() {
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfine");
    for (wanted, action) in
        [(false, json!({})), (false, json!({"retry_policy": {"retry_on": "5xx"}})), (true, json!({}))]
    {
        let mut route = json!({"cluster": "origin"});
        route.as_object_mut().unwrap().extend(action.as_object().unwrap().clone());
        let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": route}]))
            .cluster("origin", &[origin.address])
            .overlay_filter("http", json!({"http_protocol_options": {"enable_trailers": wanted}}));
        let proxy = Proxy::start(&config);
        let mut client = H2Client::connect(proxy.address("http"));
        let before = origin.requests().len();
        assert_eq!(post_with_trailers(&mut client, "/", false).text(), "fine");
        assert_eq!(post_with_trailers(&mut client, "/", true).text(), "fine");
        let requests = origin.requests();
        let seen: Vec<_> =
            requests[before..].iter().map(|seen| (seen.body.as_slice(), seen.trailers.value("x-sum"))).collect();
        assert_eq!(seen, [(&b"message"[..], wanted.then_some("7")), (b"message", None)]);
    }
}

#[test]
fn an_answer_of_trailers_only_ends_with_its_head() {
    let origin = H2Origin::start(100);
    let proxy = proxy(&origin);
    let mut client = H2Client::connect(proxy.address("http"));
    let exchange = client.start(request("POST", "/trailers-only").body(()).unwrap(), true);
    let head = client.head(exchange).unwrap();
    assert_eq!(head.headers()["grpc-status"], "12");
    assert!(head.body().is_end_stream(), "gRPC clients tell the two forms apart by it");
}

#[test]
fn large_bodies_pass_with_their_windows() {
    let origin = H2Origin::start(100);
    let proxy = proxy(&origin);
    let mut client = H2Client::connect(proxy.address("http"));
    let body = vec![b'x'; 3 << 20];
    let answer = client.exchange(request("PUT", "/large").body(()).unwrap(), &body);
    assert_eq!(answer.text(), format!("PUT /large test te=- body={} x-sum=-", body.len()));
}

#[test]
fn many_requests_share_a_connection_and_a_second_opens_when_its_streams_run_out() {
    let origin = H2Origin::start(2);
    let proxy = proxy(&origin);
    let mut client = H2Client::connect(proxy.address("http"));
    assert_eq!(client.get("/one").status, 200);
    assert_eq!(client.get("/two").status, 200);
    assert_eq!(origin.connections(), 1);
    let mut waiting: Vec<_> = (0..3).map(|_| client.start(request("GET", "/never").body(()).unwrap(), true)).collect();
    wait_until("the third stream has a connection of its own", || origin.connections() == 2);
    assert_eq!(client.get("/three").status, 200, "there is room beside it");
    waiting.iter_mut().for_each(|exchange| exchange.body.send_reset(h2::Reason::CANCEL));
    wait_until("the upstream's streams are given up", || proxy.stats().value("cluster.origin.upstream_rq_active") == 0);
}

#[test]
fn the_upstream_is_spoken_to_as_the_client_speaks() {
    let same = upstream_http_options(json!({
        "explicit_http_config": null,
        "use_downstream_protocol_config": {"http_protocol_options": {}, "http2_protocol_options": {}},
    }));
    let origin = H2Origin::start(100);
    let modern = Proxy::start(&config(&origin, same.clone()));
    assert_eq!(H2Client::connect(modern.address("http")).get("/h2").status, 200);
    let old = Origin::echo("a");
    let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]);
    let proxy = Proxy::start(&Config::routes(routes).cluster_with("origin", &[old.address], same));
    assert_eq!(proxy.get("/h1").status, 200);
}

#[test]
fn an_upstream_that_speaks_http_1_only_is_a_503() {
    let old = Origin::echo("a");
    let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]);
    let proxy = Proxy::start(&Config::routes(routes).cluster_with("origin", &[old.address], http2()));
    assert!(matches!(proxy.get("/").status, 502 | 503));
}

#[test]
fn logs_tell_what_was_spoken_on_both_sides() {
    let folder = TempDir::new();
    let log = folder.path().join("access.log");
    let format = json!({"log_format": {"text_format_source": {"inline_string": "%PROTOCOL% %UPSTREAM_PROTOCOL%\n"}}});
    let origin = H2Origin::start(100);
    let config =
        config(&origin, http2()).overlay_filter("http", json!({"access_log": [file_access_log(&log, format)]}));
    let proxy = Proxy::start(&config);
    assert_eq!(proxy.get("/").status, 200);
    assert_eq!(H2Client::connect(proxy.address("http")).get("/").status, 200);
    let lines = || std::fs::read_to_string(&log).unwrap_or_default();
    wait_until("both are logged", || lines().lines().count() == 2);
    assert_eq!(lines(), "HTTP/1.1 HTTP/2\nHTTP/2 HTTP/2\n");
}

#[test]
fn a_stream_that_is_reset_on_a_kept_connection_is_not_asked_for_again() {
    let folder = TempDir::new();
    let log = folder.path().join("access.log");
    let line = "%RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %UPSTREAM_REQUEST_ATTEMPT_COUNT%\n";
    let format = json!({"log_format": {"text_format_source": {"inline_string": line}}});
    let origin = H2Origin::start(100);
    let config =
        config(&origin, http2()).overlay_filter("http", json!({"access_log": [file_access_log(&log, format)]}));
    let proxy = Proxy::start(&config);
    assert_eq!(proxy.get("/").status, 200);
    // Both say that the upstream had the request, and nobody asked for another try.
    assert!(proxy.get("/reset").text().ends_with("reset reason: remote reset"));
    assert!(proxy.get("/refused-once").text().ends_with("reset reason: remote refused stream reset"));
    let lines = || std::fs::read_to_string(&log).unwrap_or_default();
    wait_until("all are logged", || lines().lines().count() == 3);
    let expected = "200 - via_upstream 1\n\
        503 UR upstream_reset_before_response_started{remote_reset} 1\n\
        503 UR upstream_reset_before_response_started{remote_refused_stream_reset} 1\n";
    assert_eq!(lines(), expected);
    assert_eq!(origin.connections(), 1);
    let stats = proxy.stats();
    let counted = ["upstream_rq_total", "upstream_rq_rx_reset", "upstream_rq_retry"];
    assert_eq!(counted.map(|name| stats.value(&format!("cluster.origin.{name}"))), [3, 1, 0]);
}

#[test]
fn requests_that_wait_for_a_connection_do_not_hang_when_it_cannot_be_made() {
    let silent = Origin::silent();
    let mut options = http2();
    options["transport_socket"] = upstream(json!({}));
    options["connect_timeout"] = json!("0.2s");
    let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin", "timeout": "0s"}}]);
    let proxy = Proxy::start(&Config::routes(routes).cluster_with("origin", &[silent.address], options));
    let mut client = H2Client::connect(proxy.address("http"));
    let waiting: Vec<_> = (0..3).map(|_| client.start(request("GET", "/").body(()).unwrap(), true)).collect();
    for exchange in waiting {
        assert_eq!(client.answer(exchange).unwrap().status, 503);
    }
}

#[test]
fn streams_that_were_given_up_leave_room_for_others() {
    let origin = H2Origin::start(2);
    let proxy = proxy(&origin);
    let mut client = H2Client::connect(proxy.address("http"));
    for _ in 0..5 {
        let mut exchange = client.start(request("GET", "/never").body(()).unwrap(), true);
        proxy.wait_stat("cluster.origin.upstream_rq_active", 1);
        exchange.body.send_reset(h2::Reason::CANCEL);
        proxy.wait_stat("cluster.origin.upstream_rq_active", 0);
    }
    assert_eq!(client.get("/").status, 200);
    assert_eq!(origin.connections(), 1);
}

/// Speaks HTTP/2 until the head of a request came, and then says `answer` as it is.
fn raw_origin(answer: &'static [u8]) -> Origin {
    Origin::start(move |connection| {
        const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0";
        if connection.read_exact(24).is_none() || !connection.write(SETTINGS) {
            return;
        }
        while let Some(head) = connection.read_exact(9) {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let _ = connection.read_exact(length as usize);
            if head[3] == 1 {
                connection.write(answer);
            }
        }
    })
}

/// All of them were a connection that ended, but for the first: that was a reset.
#[test]
fn what_upstreams_do_to_a_stream_is_told_by_its_name() {
    let cases: [(&[u8], &str); 5] = [
        // RST_STREAM with PROTOCOL_ERROR.
        (b"\0\0\x04\x03\0\0\0\0\x01\0\0\0\x01", "502 UPE upstream_reset_before_response_started{protocol_error}\n"),
        // GOAWAY: the last stream that was looked at is none.
        (
            b"\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\0",
            "503 UR upstream_reset_before_response_started{remote_refused_stream_reset}\n",
        ),
        // A frame of the stream 0 that belongs to a stream.
        (b"\0\0\x01\x01\x04\0\0\0\0\x88", "502 UPE upstream_reset_before_response_started{protocol_error}\n"),
        // The head of an answer, and RST_STREAM with INTERNAL_ERROR.
        (
            b"\0\0\x01\x01\x04\0\0\0\x01\x88\0\0\x04\x03\0\0\0\0\x01\0\0\0\x02",
            "200 UR upstream_reset_after_response_started{remote_reset}\n",
        ),
        // The same with PROTOCOL_ERROR.
        (
            b"\0\0\x01\x01\x04\0\0\0\x01\x88\0\0\x04\x03\0\0\0\0\x01\0\0\0\x01",
            "200 UPE upstream_reset_after_response_started{protocol_error}\n",
        ),
    ];
    for (answer, expected) in cases {
        let folder = TempDir::new();
        let log = folder.path().join("access.log");
        let line = "%RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS%\n";
        let format = json!({"log_format": {"text_format_source": {"inline_string": line}}});
        let origin = raw_origin(answer);
        let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]);
        let config = Config::routes(routes)
            .cluster_with("origin", &[origin.address], http2())
            .overlay_filter("http", json!({"access_log": [file_access_log(&log, format)]}));
        let proxy = Proxy::start(&config);
        let mut client = proxy.client();
        client.send("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
        let _ = client.response("GET");
        let said = || std::fs::read_to_string(&log).unwrap_or_default();
        wait_until("it is logged", || said().ends_with('\n'));
        assert_eq!(said(), expected);
    }
}

/// Answers requests with a head of one field, which is no `:status`; `leaves_first`: all but the first of a connection.
fn malformed_origin(leaves_first: bool) -> Origin {
    Origin::start(move |connection| {
        const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0";
        if connection.read_exact(24).is_none() || !connection.write(SETTINGS) {
            return;
        }
        let mut left = leaves_first;
        while let Some(head) = connection.read_exact(9) {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let _ = connection.read_exact(length as usize);
            if head[3] == 1 && !std::mem::take(&mut left) {
                connection.write(&[b"\0\0\x05\x01\x05", &head[5..], b"\0\x01a\x01b"].concat());
            }
        }
    })
}

const MALFORMED: &str = "upstream connect error or disconnect/reset before headers. reset reason: protocol error";

/// The connection stayed in its pool, although its upstream does not speak HTTP/2.
#[test]
fn an_answer_without_a_status_ends_its_connection() {
    for spares in [false, true] {
        let origin = malformed_origin(false);
        let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]);
        let http2 = json!({"override_stream_error_on_invalid_http_message": spares});
        let options = upstream_http_options(
            json!({"explicit_http_config": {"http_protocol_options": null, "http2_protocol_options": http2}}),
        );
        let config = Config::routes(routes).cluster_with("origin", &[origin.address], options);
        let proxy = Proxy::start(&config);
        for _ in 0..2 {
            let answer = proxy.get("/");
            assert_eq!((answer.status, answer.text()), (502, MALFORMED));
        }
        proxy.wait_stat("cluster.origin.upstream_cx_active", spares.into());
        let connections = if spares { 1 } else { 2 };
        assert_eq!(origin.connection_count(), connections);
        let stats = proxy.stats();
        let stat = |name: &str| stats.value(&format!("cluster.origin.{name}"));
        let ended = if spares { 0 } else { 2 };
        assert_eq!((stat("upstream_cx_protocol_error"), stat("upstream_cx_destroy_local")), (ended, ended));
        assert_eq!((stat("upstream_cx_destroy"), stat("upstream_cx_destroy_with_active_rq")), (ended, 0));
        assert_eq!((stat("upstream_rq_tx_reset"), stat("upstream_rq_502")), (2, 2));
    }
}

/// The other requests went on, on a connection whose upstream does not speak HTTP/2.
#[test]
fn requests_beside_a_malformed_answer_end_with_it() {
    let origin = malformed_origin(true);
    let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]);
    let proxy = Proxy::start(&Config::routes(routes).cluster_with("origin", &[origin.address], http2()));
    let mut first = proxy.client();
    first.send("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    proxy.wait_stat("cluster.origin.upstream_rq_active", 1);
    assert_eq!(proxy.get("/").status, 502);
    let first = first.response("GET").unwrap();
    assert_eq!((first.status, first.text()), (502, MALFORMED));
    proxy.wait_stat("cluster.origin.upstream_cx_active", 0);
    let stats = proxy.stats();
    let stat = |name: &str| stats.value(&format!("cluster.origin.{name}"));
    assert_eq!((stat("upstream_cx_protocol_error"), stat("upstream_rq_tx_reset")), (1, 2));
    assert_eq!((stat("upstream_cx_total"), stat("upstream_rq_502")), (1, 2));
}
