//! The filters around gRPC: statistics, gRPC-Web, and the bridges from and to HTTP/1.1.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_tests::envoy;
use postrider_tests::h2_client::{Answer, H2Client, request};
use postrider_tests::h2_origin::H2Origin;
use postrider_tests::kit::config::{extension, file_access_log, router, upstream_http_options};
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Config, Origin, Proxy, Response, TempDir, wait_until};
use serde_json::{Value, json};
use std::net::SocketAddr;

/// A message of gRPC.
fn frame(message: &[u8]) -> Vec<u8> {
    framed(0, message)
}

fn framed(flags: u8, message: &[u8]) -> Vec<u8> {
    [&[flags], &(message.len() as u32).to_be_bytes()[..], message].concat()
}

fn filter(name: &str, kind: &str, fields: Value) -> Value {
    extension(&format!("envoy.filters.http.{name}"), &format!("filters.http.{name}.v3.{kind}"), fields)
}

fn site(filters: Value, origin: SocketAddr, http2: bool) -> Config {
    let mut filters = filters;
    filters.as_array_mut().unwrap().push(router());
    let routes = json!([
        {"match": {"path": "/own/403"}, "direct_response": {"status": 403, "body": {"inline_string": "no, \"not\" you"}}},
        {"match": {"path": "/own/404"}, "direct_response": {"status": 404}},
        {"match": {"path": "/a.b.C/Off"}, "route": {"cluster": "origin"}, "typed_per_filter_config": {}},
        {"match": {"prefix": "/empty.E"}, "route": {"cluster": "empty"}},
        {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]);
    let options = match http2 {
        true => upstream_http_options(
            json!({"explicit_http_config": {"http_protocol_options": null, "http2_protocol_options": {}}}),
        ),
        false => json!({}),
    };
    Config::new()
        .http(json!({
            "http_filters": filters,
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]},
        }))
        .cluster_with("origin", &[origin], options)
        .cluster_with("empty", &[], json!({"load_assignment": {"endpoints": []}}))
}

fn post(proxy: &Proxy, path: &str, fields: &str, body: &[u8]) -> Response {
    let head = format!("POST {path} HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n{fields}\r\n", body.len());
    proxy.exchange([head.as_bytes(), body].concat())
}

fn call(client: &mut H2Client, path: &str, kind: &str, body: &[u8]) -> Answer {
    client.exchange(request("POST", path).header("content-type", kind).body(()).unwrap(), body)
}

const GRPC: &str = "application/grpc";

// --- grpc_web

fn web(origin: &H2Origin) -> Proxy {
    Proxy::start(&site(json!([filter("grpc_web", "GrpcWeb", json!({}))]), origin.address, true))
}

/// What a browser finds behind the messages of an answer.
const TRAILERS: &[u8] = b"grpc-status:0\r\ngrpc-message:fine\r\n";

#[test]
fn grpc_web_carries_messages_and_trailers_in_the_body() {
    let origin = H2Origin::start(100);
    let proxy = web(&origin);
    let asked = [frame(b"one"), frame(b""), frame(&[7; 70_000])].concat();
    let wanted = [asked.clone(), framed(0x80, TRAILERS)].concat();
    for kind in ["application/grpc-web", "application/grpc-web+proto"] {
        let answer = post(&proxy, "/echo.E/Call", &format!("content-type: {kind}\r\n"), &asked);
        assert_eq!((answer.status, answer.header("content-type")), (200, "application/grpc-web+proto"));
        assert!(answer.header("x-seen").starts_with("application/grpc trailers identity "), "{answer:?}");
        assert!(answer.body == wanted, "{} bytes", answer.body.len());
        assert!(!answer.trailers.contains("grpc-status"));
    }
    let mut client = H2Client::connect(proxy.address("http"));
    let answer = call(&mut client, "/echo.E/Call", "application/grpc-web", &asked);
    assert!(answer.body == wanted && answer.trailers.is_empty());
    // Other requests are none of its business.
    let answer = call(&mut client, "/echo.E/Call", GRPC, &frame(b"x"));
    assert_eq!((answer.body, answer.trailers["grpc-status"].as_bytes()), (frame(b"x"), &b"0"[..]));
    assert_eq!(answer.headers["content-type"], GRPC);
}

#[test]
fn grpc_web_speaks_base64_where_that_is_asked_for() {
    let origin = H2Origin::start(100);
    let proxy = web(&origin);
    let asked = [frame(b"one"), frame(b"four")].concat();
    let text = "content-type: application/grpc-web-text\r\naccept: application/grpc-web-text\r\n";
    let wanted = [frame(b"one"), frame(b"four"), framed(0x80, TRAILERS)].map(|frame| STANDARD.encode(frame)).concat();
    let answer = post(&proxy, "/echo.E/Call", text, STANDARD.encode(&asked).as_bytes());
    assert_eq!(answer.header("content-type"), "application/grpc-web-text+proto");
    assert_eq!(answer.text(), wanted);
    // It may come in any cut. Envoy takes padding only where a piece that it reads ends.
    let padded = [STANDARD.encode(frame(b"one")), STANDARD.encode(frame(b"four"))].concat();
    let padded = if envoy() { STANDARD.encode(&asked) } else { padded };
    let mut client = proxy.client();
    client.send(format!("POST /echo.E/Call HTTP/1.1\r\nhost: test\r\n{text}transfer-encoding: chunked\r\n\r\n"));
    for byte in padded.bytes() {
        client.send(format!("1\r\n{}\r\n", char::from(byte)));
    }
    client.send("0\r\n\r\n");
    assert_eq!(client.response("POST").unwrap().text(), wanted);
    // Each direction for itself.
    let binary = post(&proxy, "/echo.E/Call", "content-type: application/grpc-web-text+proto\r\n", padded.as_bytes());
    assert_eq!(binary.header("content-type"), "application/grpc-web+proto");
    assert_eq!(binary.body, [asked, framed(0x80, TRAILERS)].concat());
}

#[test]
fn grpc_web_refuses_what_is_no_base64() {
    let origin = H2Origin::start(100);
    let proxy = web(&origin);
    for body in ["AAAAAAA", "!!!!", "AAAA=AAA"] {
        let answer = post(&proxy, "/echo.E/Call", "content-type: application/grpc-web-text\r\n", body.as_bytes());
        assert_eq!((answer.status, answer.header("grpc-status")), (400, "13"), "{body}: {answer:?}");
        assert_eq!(answer.header("grpc-message"), "Bad gRPC-web request, invalid base64 data.", "{answer:?}");
        assert_eq!((answer.header("content-type"), answer.text()), ("application/grpc-web+proto", ""));
    }
}

#[test]
fn grpc_web_passes_trailers_only_in_the_head() {
    let origin = H2Origin::start(100);
    let proxy = web(&origin);
    let answer = post(&proxy, "/trailers-only", "content-type: application/grpc-web\r\n", &frame(b"x"));
    assert_eq!((answer.status, answer.header("grpc-status"), answer.text()), (200, "12", ""));
    assert_eq!(answer.header("content-type"), "application/grpc-web+proto");
}

#[test]
fn grpc_web_clients_understand_what_the_proxy_says_itself() {
    let origin = H2Origin::start(100);
    let proxy = web(&origin);
    let kind = "content-type: application/grpc-web\r\n";
    let said = |path: &str| {
        let answer = post(&proxy, path, kind, &frame(b"x"));
        (
            answer.status,
            answer.header("grpc-status").to_owned(),
            answer.headers.value("grpc-message").unwrap_or("-").to_owned(),
            answer.header("content-type").to_owned(),
            answer.body.len(),
        )
    };
    let kind = "application/grpc-web+proto".to_owned();
    assert_eq!(said("/own/403"), (403, "7".into(), "no, \"not\" you".into(), kind.clone(), 0));
    assert_eq!(said("/own/404"), (404, String::new(), "-".into(), kind.clone(), 0));
    assert_eq!(said("/empty.E/Call"), (503, "14".into(), "no healthy upstream".into(), kind, 0));
}

#[test]
fn grpc_web_counts_calls_by_cluster_and_method() {
    let origin = H2Origin::start(100);
    let proxy = web(&origin);
    for path in ["/echo.E/Call", "/grpc/5", "/echo.E/Call"] {
        post(&proxy, path, "content-type: application/grpc-web\r\n", &frame(b"x"));
    }
    let stats = proxy.stats();
    for (name, wanted) in [
        ("echo.E.Call.0", 2),
        ("echo.E.Call.success", 2),
        ("echo.E.Call.total", 2),
        ("grpc.5.5", 1),
        ("grpc.5.failure", 1),
        ("grpc.5.total", 1),
    ] {
        assert_eq!(stats.value(&format!("cluster.origin.grpc-web.{name}")), wanted, "{name}");
    }
}

// --- grpc_stats

fn counted(fields: Value) -> (H2Origin, Proxy) {
    let origin = H2Origin::start(100);
    let filters = json!([filter("grpc_stats", "FilterConfig", fields)]);
    let proxy = Proxy::start(&site(filters, origin.address, true));
    (origin, proxy)
}

fn some_calls(proxy: &Proxy) {
    let mut client = H2Client::connect(proxy.address("http"));
    let two = [frame(b"one"), frame(&[0; 20_000])].concat();
    assert_eq!(call(&mut client, "/echo.E/Call", GRPC, &two).body, two);
    call(&mut client, "/echo.E/Call?a=b", GRPC, &two);
    call(&mut client, "/grpc/5", GRPC, b"");
    call(&mut client, "/trailers-only", GRPC, b"");
    call(&mut client, "/empty.E/Call", GRPC, b"");
    // These are not counted: not gRPC, and no cluster.
    call(&mut client, "/echo.E/Call", "text/plain", &two);
    call(&mut client, "/own/403", GRPC, b"");
}

fn check(proxy: &Proxy, wanted: &[(&str, u64)]) {
    let stats = proxy.stats();
    for (name, wanted) in wanted {
        assert_eq!(stats.value(&format!("cluster.{name}")), *wanted, "{name}");
    }
}

#[test]
fn grpc_stats_counts_a_cluster_as_a_whole() {
    let (_origin, proxy) = counted(json!({}));
    some_calls(&proxy);
    check(
        &proxy,
        &[
            ("origin.grpc.0", 2),
            ("origin.grpc.5", 1),
            ("origin.grpc.success", 2),
            ("origin.grpc.failure", 1),
            ("origin.grpc.total", 3),
            ("origin.grpc.request_message_count", 4),
            ("origin.grpc.response_message_count", 5),
            ("empty.grpc.14", 1),
            ("empty.grpc.failure", 1),
            ("empty.grpc.total", 1),
        ],
    );
}

#[test]
fn grpc_stats_counts_each_method() {
    let (_origin, proxy) = counted(json!({"stats_for_all_methods": true, "enable_upstream_stats": true}));
    some_calls(&proxy);
    check(
        &proxy,
        &[
            ("origin.grpc.echo.E.Call.0", 2),
            ("origin.grpc.echo.E.Call.success", 2),
            ("origin.grpc.echo.E.Call.total", 2),
            ("origin.grpc.echo.E.Call.request_message_count", 4),
            ("origin.grpc.echo.E.Call.response_message_count", 4),
            ("origin.grpc.grpc.5.5", 1),
            ("origin.grpc.grpc.5.failure", 1),
            ("origin.grpc.grpc.5.response_message_count", 1),
            ("empty.grpc.empty.E.Call.14", 1),
        ],
    );
    let stats = proxy.admin_get("/stats").text().to_owned();
    assert!(stats.contains("cluster.origin.grpc.echo.E.Call.upstream_rq_time"), "{stats}");
    assert!(!stats.contains("cluster.origin.grpc.total"));
}

#[test]
fn grpc_stats_may_replace_dots_for_labels() {
    let (_origin, proxy) = counted(json!({"stats_for_all_methods": true, "replace_dots_in_grpc_service_name": true}));
    some_calls(&proxy);
    check(&proxy, &[("origin.grpc.echo_E.Call.total", 2)]);
    let text = proxy.admin_get("/stats/prometheus").text().to_owned();
    let line = text
        .lines()
        .find(|line| line.starts_with("envoy_cluster_grpc_total{") && line.contains("echo_E"))
        .unwrap_or_default();
    for label in
        ["envoy_grpc_bridge_method=\"Call\"", "envoy_grpc_bridge_service=\"echo_E\"", "envoy_cluster_name=\"origin\""]
    {
        assert!(line.contains(label), "{label} in {line:?} of {text}");
    }
}

#[test]
fn grpc_stats_counts_listed_methods_on_their_own() {
    let list = json!({"services": [{"name": "echo.E", "method_names": ["Call"]}]});
    let (_origin, proxy) = counted(json!({"individual_method_stats_allowlist": list}));
    some_calls(&proxy);
    check(
        &proxy,
        &[
            ("origin.grpc.echo.E.Call.total", 2),
            ("origin.grpc.total", 1),
            ("origin.grpc.5", 1),
            ("empty.grpc.total", 1),
        ],
    );
}

#[test]
fn grpc_stats_tells_the_counts_to_the_log() {
    let origin = H2Origin::start(100);
    let directory = TempDir::new();
    let log = directory.path().join("log");
    let line = "%FILTER_STATE(envoy.filters.http.grpc_stats:TYPED)%\n";
    let format = json!({"log_format": {"text_format_source": {"inline_string": line}}});
    let config =
        site(json!([filter("grpc_stats", "FilterConfig", json!({"emit_filter_state": true}))]), origin.address, true)
            .overlay_filter("http", json!({"access_log": [file_access_log(&log, format)]}));
    let proxy = Proxy::start_with(&config, Launch::default().with_arguments(&["--file-flush-interval-msec", "20"]));
    let mut client = H2Client::connect(proxy.address("http"));
    call(&mut client, "/echo.E/Call", GRPC, &[frame(b"a"), frame(b"b")].concat());
    call(&mut client, "/echo.E/Call", GRPC, &frame(b"a"));
    let mut text = String::new();
    wait_until("two lines", || {
        text = std::fs::read_to_string(&log).unwrap_or_default();
        text.lines().count() == 2
    });
    let counts = |n: u32| format!("{{\"requestMessageCount\":\"{n}\",\"responseMessageCount\":\"{n}\"}}\n");
    assert_eq!(text, [counts(2), counts(1)].concat());
}

// --- grpc_http1_bridge

fn bridge(origin: &H2Origin, fields: Value) -> Proxy {
    Proxy::start(&site(json!([filter("grpc_http1_bridge", "Config", fields)]), origin.address, true))
}

#[test]
fn the_bridge_tells_the_status_to_a_client_of_http_1() {
    let origin = H2Origin::start(100);
    let proxy = bridge(&origin, json!({}));
    let kind = "content-type: application/grpc\r\n";
    let answer = post(&proxy, "/echo.E/Call?a=b", kind, &frame(b"one"));
    assert_eq!((answer.status, answer.header("grpc-status"), answer.header("grpc-message")), (200, "0", "fine"));
    assert_eq!((answer.body.clone(), answer.header("content-length")), (frame(b"one"), "8"));
    assert_eq!(answer.header("x-path"), "/echo.E/Call?a=b");
    let answer = post(&proxy, "/grpc/5", kind, &frame(b"one"));
    assert_eq!((answer.status, answer.header("grpc-status"), answer.body.clone()), (503, "5", frame(b"abc")));
    let answer = post(&proxy, "/trailers-only", kind, &frame(b"one"));
    assert_eq!((answer.status, answer.header("grpc-status")), (200, "12"));
    // Clients of HTTP/2 need no bridge, and other requests none either.
    let mut client = H2Client::connect(proxy.address("http"));
    let answer = call(&mut client, "/grpc/5", GRPC, &frame(b"one"));
    assert_eq!((answer.status, answer.trailers["grpc-status"].as_bytes()), (200, &b"5"[..]));
    assert_eq!(post(&proxy, "/grpc/5", "content-type: text/plain\r\n", b"x").status, 200);
}

#[test]
fn the_bridge_makes_calls_of_bare_protobuf() {
    let origin = H2Origin::start(100);
    let proxy = bridge(&origin, json!({"upgrade_protobuf_to_grpc": true, "ignore_query_parameters": true}));
    let kind = "content-type: application/x-protobuf\r\n";
    for body in [&b"one"[..], &[7; 50_000]] {
        let answer = post(&proxy, "/echo.E/Call?a=b", kind, body);
        assert_eq!((answer.status, answer.header("grpc-status")), (200, "0"));
        assert!(answer.body == body, "{}", answer.body.len());
        assert_eq!(answer.header("content-type"), GRPC);
        assert_eq!(answer.header("x-path"), "/echo.E/Call");
        assert!(answer.header("x-seen").starts_with("application/grpc "));
    }
    let answer = post(&proxy, "/echo.E/Call?a=b", "content-type: application/grpc\r\n", &frame(b"one"));
    assert_eq!((answer.body.clone(), answer.header("x-path")), (frame(b"one"), "/echo.E/Call"));
}

// --- grpc_http1_reverse_bridge

fn reverse(origin: &Origin, fields: Value) -> Proxy {
    let mut config = json!({"content_type": "application/x-protobuf"});
    for (key, value) in fields.as_object().unwrap() {
        config[key] = value.clone();
    }
    let config = site(json!([filter("grpc_http1_reverse_bridge", "FilterConfig", config)]), origin.address, false);
    Proxy::start(&config)
}

/// The message without the name that Envoy puts in front of it.
fn unbranded(message: &str) -> &str {
    message.strip_prefix("envoy ").unwrap_or(message)
}

/// An answer of an upstream that knows no gRPC.
fn answer(status: u16, kind: &str, more: &str, body: &str) -> String {
    format!("HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\n{more}content-length: {}\r\n\r\n{body}", body.len())
}

const PROTOBUF: &str = "application/x-protobuf";

#[test]
fn the_reverse_bridge_hides_grpc_from_an_upstream_of_http_1() {
    let origin = Origin::fixed(answer(200, PROTOBUF, "", "reply"));
    let proxy = reverse(&origin, json!({"withhold_grpc_frames": true}));
    let mut client = H2Client::connect(proxy.address("http"));
    let said = call(&mut client, "/a.b.C/D", "application/grpc+proto", &frame(b"hello"));
    assert_eq!((said.status, said.header("content-type")), (200, "application/grpc+proto"));
    assert_eq!((said.body, said.trailers["grpc-status"].as_bytes()), (frame(b"reply"), &b"0"[..]));
    let heard = &origin.requests()[0];
    assert_eq!(heard.headers.value("content-type"), Some(PROTOBUF));
    assert_eq!(heard.headers.value("accept"), Some(PROTOBUF));
    assert_eq!(heard.body, b"hello");
    // Frames of others stay.
    origin.forget();
    let said = call(&mut client, "/a.b.C/D", "text/plain", &frame(b"hello"));
    assert_eq!((said.body, said.trailers.len()), (b"reply".to_vec(), 0));
    assert_eq!(origin.requests()[0].body, frame(b"hello"));
}

#[test]
fn the_reverse_bridge_may_leave_the_frames() {
    let body = String::from_utf8(frame(b"reply")).unwrap();
    let origin = Origin::fixed(answer(200, PROTOBUF, "", &body));
    let proxy = reverse(&origin, json!({}));
    let mut client = H2Client::connect(proxy.address("http"));
    let said = call(&mut client, "/a.b.C/D", GRPC, &frame(b"hello"));
    assert_eq!((said.body, said.trailers["grpc-status"].as_bytes()), (frame(b"reply"), &b"0"[..]));
    assert_eq!(origin.requests()[0].body, frame(b"hello"));
}

#[test]
fn the_reverse_bridge_tells_errors_in_grpc() {
    for (reply, status, code, message, body) in [
        (answer(503, PROTOBUF, "", "bad"), 200, "14", "-", frame(b"bad")),
        (
            answer(200, "text/html", "", "<p>"),
            200,
            "2",
            "reverse bridge: upstream responded with unsupported content-type text/html, status code 200",
            vec![],
        ),
        (
            answer(404, "text/html", "", "<p>"),
            200,
            "2",
            "reverse bridge: upstream responded with unsupported content-type text/html, status code 404",
            vec![],
        ),
    ] {
        let origin = Origin::fixed(reply.clone());
        let proxy = reverse(&origin, json!({"withhold_grpc_frames": true}));
        let mut client = H2Client::connect(proxy.address("http"));
        let said = call(&mut client, "/a.b.C/D", GRPC, &frame(b"hello"));
        let field =
            |name: &str| said.headers.get(name).or(said.trailers.get(name)).map_or("-", |v| v.to_str().unwrap());
        assert_eq!(
            (said.status, field("grpc-status"), unbranded(field("grpc-message")), said.body.clone()),
            (status, code, message, body)
        );
    }
    let origin = Origin::fixed(answer(200, PROTOBUF, "", "reply"));
    let proxy = reverse(&origin, json!({"withhold_grpc_frames": true}));
    let mut client = H2Client::connect(proxy.address("http"));
    let said = call(&mut client, "/a.b.C/D", GRPC, b"abc");
    // Envoy's bridge sees its own answer and finds its content type wrong.
    let wrong = "reverse bridge: upstream responded with unsupported content-type application/grpc, status code 200";
    assert_eq!(
        (said.status, said.header("grpc-status"), unbranded(said.header("grpc-message"))),
        (200, "2", if envoy() { wrong } else { "invalid request body" })
    );
}

#[test]
fn the_reverse_bridge_may_be_told_the_size() {
    for (field, code, body) in [
        ("x-size: 5\r\n", "0", frame(b"reply")),
        ("", "13", vec![]),
        ("x-size: a\r\n", "13", vec![]),
        ("x-size: 4\r\n", "13", vec![]),
    ] {
        let origin = Origin::fixed(answer(200, PROTOBUF, field, "reply"));
        let proxy = reverse(&origin, json!({"withhold_grpc_frames": true, "response_size_header": "x-size"}));
        let mut client = H2Client::connect(proxy.address("http"));
        let said = client
            .try_exchange(request("POST", "/a.b.C/D").header("content-type", GRPC).body(()).unwrap(), &frame(b"hello"));
        let Ok(said) = said else {
            assert_eq!(field, "x-size: 4\r\n", "the answer was under way when the lie came out");
            continue;
        };
        let value =
            |name: &str| said.headers.get(name).or(said.trailers.get(name)).map_or("-", |v| v.to_str().unwrap());
        assert_eq!((value("grpc-status"), said.body.clone()), (code, body), "{field} {said:?}");
    }
}

#[test]
fn a_route_may_do_without_the_reverse_bridge() {
    let origin = Origin::fixed(answer(200, PROTOBUF, "", "reply"));
    let mut config = site(
        json!([filter("grpc_http1_reverse_bridge", "FilterConfig", json!({"content_type": PROTOBUF}))]),
        origin.address,
        false,
    );
    let kind = "type.googleapis.com/envoy.extensions.filters.http.grpc_http1_reverse_bridge.v3.FilterConfigPerRoute";
    let off = json!({"envoy.filters.http.grpc_http1_reverse_bridge": {"@type": kind, "disabled": true}});
    let routes = json!([
        {"match": {"path": "/a.b.C/Off"}, "route": {"cluster": "origin"}, "typed_per_filter_config": off},
        {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]);
    config = config.overlay_filter(
        "http",
        json!({"route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]}}),
    );
    let proxy = Proxy::start(&config);
    let mut client = H2Client::connect(proxy.address("http"));
    call(&mut client, "/a.b.C/Off", GRPC, &frame(b"hello"));
    call(&mut client, "/a.b.C/On", GRPC, &frame(b"hello"));
    let seen: Vec<_> =
        origin.requests().iter().map(|heard| heard.headers.value("content-type").unwrap().to_owned()).collect();
    assert_eq!(seen, [GRPC, PROTOBUF]);
}
