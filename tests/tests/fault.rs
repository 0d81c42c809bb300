//! Faults on purpose, as Envoy makes them.

use std::time::{Duration, Instant};

use postrider_tests::grpc::http2;
use postrider_tests::h2_frames::{self as raw, Frames};
use postrider_tests::kit::config::extension;
use postrider_tests::kit::{GrpcOrigin, Origin, RawClient, wait_until};
use postrider_tests::site::{self, OUTCOME, Plan, Site};
use serde_json::{Value, json};

const NAME: &str = "envoy.filters.http.fault";
const TYPE: &str = "filters.http.fault.v3.HTTPFault";

fn fault(fields: Value) -> Plan {
    site::with([extension(NAME, TYPE, fields)]).log(&format!("{OUTCOME} %DYNAMIC_METADATA(envoy.filters.http.fault)%"))
}

fn of_route(mut fields: Value) -> Value {
    fields["@type"] = json!(format!("type.googleapis.com/envoy.extensions.{TYPE}"));
    fields
}

fn always(mut fault: Value) -> Value {
    fault["percentage"] = json!({"numerator": 100});
    fault
}

fn stat(site: &Site, name: &str) -> u64 {
    site.stat(&format!("http.ingress_http.fault.{name}"))
}

#[test]
fn a_client_that_resets_while_its_body_waits_behind_a_held_head_is_noticed() {
    let site = fault(json!({"delay": always(json!({"fixed_delay": "60s"}))})).start();
    let stat = |name: &str| site.stat(&format!("http.ingress_http.{name}"));
    for (length, sent) in [(5000, 5000), (5000, 2000), (200_000, 3000), (200_000, 200_000), (40_000, 40_000)] {
        let before = stat("downstream_cx_rx_bytes_total");
        let mut client = RawClient::connect(site.proxy.address("http"));
        let head = format!("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: {length}\r\n\r\n");
        client.send(&head);
        wait_until("the head is held", || stat("fault.delays_injected") > 0 && stat("downstream_rq_active") == 1);
        client.send(vec![b'x'; sent]);
        // What comes behind that waits in the system.
        let all = before + (head.len() + sent.min(16 * 1024)) as u64;
        wait_until("the body is read", || stat("downstream_cx_rx_bytes_total") >= all);
        client.reset();
        wait_until("the request is given up", || stat("downstream_rq_active") == 0);
    }
}

#[test]
fn a_stream_whose_body_waits_behind_a_held_head_is_over_when_it_is_reset() {
    let site = fault(json!({"delay": always(json!({"fixed_delay": "60s"}))})).start();
    let stat = |name: &str| site.stat(&format!("http.ingress_http.{name}"));
    let mut client = Frames::connect(site.proxy.address("http"), &[]);
    client.send(raw::frame(raw::HEADERS, raw::END_HEADERS, 1, &raw::request("POST", "/", &[])));
    for _ in 0..3 {
        client.send(raw::frame(raw::DATA, 0, 1, &[b'x'; 16_000]));
    }
    wait_until("the head is held", || stat("downstream_rq_active") == 1);
    client.send(raw::reset(1, 8));
    wait_until("the request is given up", || stat("downstream_rq_active") == 0);
    assert_eq!(stat("downstream_cx_active"), 1);
}

#[test]
fn a_request_is_aborted() {
    let site = fault(json!({"abort": always(json!({"http_status": 503})), "filter_metadata": {"k": "v"}}))
        .routes(json!([
            site::route(
                "/body",
                NAME,
                of_route(json!({"abort": always(json!({"http_status": 418, "response_body": "teapot"}))}))
            ),
            site::route("/grpc", NAME, of_route(json!({"abort": always(json!({"grpc_status": 7}))}))),
            site::route("/never", NAME, of_route(json!({"abort": {"http_status": 503}}))),
            site::rest(),
        ]))
        .start();
    let answer = site.get("/", "");
    assert_eq!((answer.status, answer.text()), (503, "fault filter abort"));
    assert_eq!(answer.header("content-type"), "text/plain");
    assert_eq!(site.logged(1), "503 FI fault_filter_abort {\"k\":\"v\"}");
    let teapot = site.get("/body", "");
    assert_eq!((teapot.status, teapot.text()), (418, "teapot"));
    let plain = site.get("/grpc", "");
    assert_eq!((plain.status, plain.text()), (200, "fault filter abort"));
    let call = site.ask("POST", "/grpc", "content-type: application/grpc\r\ncontent-length: 0\r\n");
    assert_eq!(
        (call.status, call.header("grpc-status"), call.header("grpc-message")),
        (200, "7", "fault filter abort")
    );
    let call = site.ask("POST", "/", "content-type: application/grpc\r\ncontent-length: 0\r\n");
    assert_eq!((call.status, call.header("grpc-status")), (200, "14"));
    assert_eq!(site.get("/never", "").status, 200);
    assert_eq!(site.logged(6), "200 - via_upstream -");
    assert_eq!(
        (stat(&site, "aborts_injected"), stat(&site, "delays_injected"), stat(&site, "active_faults")),
        (5, 0, 0)
    );
}

#[test]
fn a_request_is_delayed_and_then_goes_on_or_is_aborted() {
    let delay = always(json!({"fixed_delay": "0.2s"}));
    let both = of_route(json!({"delay": delay, "abort": always(json!({"http_status": 500}))}));
    let site = fault(json!({"delay": delay})).routes(json!([site::route("/both", NAME, both), site::rest()])).start();
    let began = Instant::now();
    assert_eq!(site.ask("POST", "/", "content-length: 0\r\n").status, 200);
    assert!(began.elapsed() >= Duration::from_millis(200));
    assert_eq!(site.logged(1), "200 DI via_upstream {}");
    assert_eq!(site.get("/both", "").status, 500);
    assert_eq!(site.logged(2), "500 DI,FI fault_filter_abort {}");
    assert_eq!(
        (stat(&site, "aborts_injected"), stat(&site, "delays_injected"), stat(&site, "active_faults")),
        (1, 2, 0)
    );
}

#[test]
fn requests_say_what_they_want_where_they_may() {
    let site = fault(json!({
        "delay": always(json!({"header_delay": {}})),
        "abort": always(json!({"header_abort": {}})),
    }))
    .start();
    for (fields, outcome) in [
        ("x: y\r\n", "200 - via_upstream -"),
        ("x-envoy-fault-delay-request: 30\r\n", "200 DI via_upstream {}"),
        ("x-envoy-fault-delay-request: x\r\n", "200 - via_upstream -"),
        ("x-envoy-fault-delay-request: 0\r\n", "200 - via_upstream -"),
        ("x-envoy-fault-delay-request: 3\r\nx-envoy-fault-delay-request-percentage: 0\r\n", "200 - via_upstream -"),
        ("x-envoy-fault-delay-request: 3\r\nx-envoy-fault-delay-request-percentage: 200\r\n", "200 DI via_upstream {}"),
        ("x-envoy-fault-abort-request: 418\r\n", "418 FI fault_filter_abort {}"),
        ("x-envoy-fault-abort-request: 600\r\n", "200 - via_upstream -"),
        ("x-envoy-fault-abort-request: 199\r\n", "200 - via_upstream -"),
        ("x-envoy-fault-abort-request: 418\r\nx-envoy-fault-abort-request-percentage: 0\r\n", "200 - via_upstream -"),
        ("x-envoy-fault-abort-grpc-request: 5\r\n", "200 FI fault_filter_abort {}"),
        ("x-envoy-fault-abort-request: 400\r\nx-envoy-fault-abort-grpc-request: 5\r\n", "400 FI fault_filter_abort {}"),
    ]
    .iter()
    .enumerate()
    .map(|(at, (fields, outcome))| ((at, *fields), *outcome))
    {
        site.get("/", fields.1);
        assert_eq!(site.logged(fields.0 + 1), outcome, "{}", fields.1);
    }
}

#[test]
fn only_requests_that_are_meant_have_a_fault() {
    let abort = always(json!({"http_status": 503}));
    let only = |key: &str, value: Value| of_route(json!({"abort": abort, key: value}));
    let site = fault(json!({}))
        .routes(json!([
            site::route("/header", NAME, only("headers", json!([{"name": "x-chaos", "string_match": {"exact": "1"}}]))),
            site::route("/node", NAME, only("downstream_nodes", json!(["n1", "n2"]))),
            site::route("/cluster", NAME, only("upstream_cluster", json!("origin"))),
            site::route("/other", NAME, only("upstream_cluster", json!("other"))),
            site::rest(),
        ]))
        .start();
    for (path, fields, status) in [
        ("/", "", 200),
        ("/header", "x-chaos: 1\r\n", 503),
        ("/header", "x-chaos: 2\r\n", 200),
        ("/header", "", 200),
        ("/node", "x-envoy-downstream-service-node: n2\r\n", 503),
        ("/node", "x-envoy-downstream-service-node: n3\r\n", 200),
        ("/node", "", 200),
        ("/cluster", "", 503),
        ("/other", "", 200),
    ] {
        assert_eq!(site.get(path, fields).status, status, "{path} {fields}");
    }
}

#[test]
fn faults_are_counted_by_the_cluster_that_requests_come_from() {
    let abort = always(json!({"http_status": 503}));
    let off = of_route(json!({"abort": abort, "disable_downstream_cluster_stats": true}));
    let site = fault(json!({"abort": abort, "delay": always(json!({"fixed_delay": "0.001s"}))}))
        .routes(json!([site::route("/off", NAME, off), site::rest()]))
        .start();
    site.get("/", "x-envoy-downstream-service-cluster: shop\r\n");
    site.get("/off", "x-envoy-downstream-service-cluster: shop\r\n");
    assert_eq!((stat(&site, "shop.aborts_injected"), stat(&site, "shop.delays_injected")), (1, 1));
    assert_eq!(stat(&site, "aborts_injected"), 2);
}

#[test]
fn no_more_streams_than_allowed_have_a_fault_at_once() {
    let site = fault(json!({"delay": always(json!({"fixed_delay": "60s"})), "max_active_faults": 1})).start();
    let mut held = site.proxy.client();
    held.send("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    site.proxy.wait_stat("http.ingress_http.fault.active_faults", 1);
    assert_eq!(site.get("/", "").status, 200);
    assert_eq!(stat(&site, "faults_overflow"), 1);
    // Closing only the sending side would leave a client that still reads.
    held.reset();
    site.proxy.wait_stat("http.ingress_http.fault.active_faults", 0);
}

#[test]
fn a_request_that_waits_for_its_upstream_after_its_delay_is_no_active_fault() {
    let delay = always(json!({"fixed_delay": "0.05s"}));
    let site = fault(json!({"delay": delay, "max_active_faults": 1})).start_before(Origin::silent());
    let mut waiting = Vec::new();
    for asked in 1..=2 {
        let mut client = site.proxy.client();
        client.send("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
        site.origin.wait_connections(asked);
        site.proxy.wait_stat("http.ingress_http.fault.active_faults", 0);
        waiting.push(client);
    }
    assert_eq!((stat(&site, "delays_injected"), stat(&site, "faults_overflow")), (2, 0));
}

#[test]
fn an_answer_goes_no_faster_than_its_limit() {
    let body = "a".repeat(4096);
    let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let site = fault(json!({"response_rate_limit": always(json!({"fixed_limit": {"limit_kbps": 8}}))}))
        .routes(json!([
            site::route("/asked", NAME, of_route(json!({"response_rate_limit": always(json!({"header_limit": {}}))}))),
            site::rest(),
        ]))
        .start_before(Origin::fixed(text));
    let began = Instant::now();
    let answer = site.get("/", "");
    let took = began.elapsed();
    assert_eq!((answer.status, answer.text() == body), (200, true));
    assert_eq!(answer.header("content-length"), "4096");
    assert!(took >= Duration::from_millis(400) && took < Duration::from_secs(5), "{took:?}");
    assert_eq!(stat(&site, "response_rl_injected"), 1);
    for (fields, limited) in
        [("", 1), ("x-envoy-fault-throughput-response: 16\r\n", 2), ("x-envoy-fault-throughput-response: 0\r\n", 2)]
    {
        assert_eq!(site.get("/asked", fields).text(), body, "{fields}");
        assert_eq!(stat(&site, "response_rl_injected"), limited, "{fields}");
    }
}

#[test]
fn trailers_of_a_slow_answer_come_last() {
    let service = GrpcOrigin::fixed(vec![7; 600]);
    let site = fault(json!({}))
        .routes(json!([{
            "match": {"prefix": "/"}, "route": {"cluster": "calls"},
            "typed_per_filter_config": {NAME: of_route(json!({"response_rate_limit": always(json!({"fixed_limit": {"limit_kbps": 1}}))}))},
        }]))
        .manager(json!({"http_protocol_options": {"enable_trailers": true}}))
        .cluster("calls", &[service.address], http2())
        .start();
    let began = Instant::now();
    let answer = site.ask(
        "POST",
        "/s/m",
        "content-type: application/grpc\r\nte: trailers\r\ncontent-length: 5\r\n\r\n\0\0\0\0\0",
    );
    assert_eq!((answer.status, answer.body.len()), (200, 605));
    assert_eq!(answer.trailers.value("grpc-status"), Some("0"));
    assert!(began.elapsed() >= Duration::from_millis(500));
}

#[test]
fn the_runtime_says_what_a_fault_is_under_keys_of_its_own() {
    let keys = json!({"mine": {"all": 100, "status": 418, "grpc": 7, "millis": 1, "none": 0}});
    let whole = json!({"layered_runtime": {"layers": [{"name": "static", "static_layer": keys}]}});
    let cases = json!({
        "/abort": {
            "abort": {"http_status": 503},
            "abort_percent_runtime": "mine.all", "abort_http_status_runtime": "mine.status",
        },
        "/grpc": {
            "abort": {"grpc_status": 5},
            "abort_percent_runtime": "mine.all", "abort_grpc_status_runtime": "mine.grpc",
        },
        "/delay": {
            "delay": {"fixed_delay": "3600s"},
            "delay_percent_runtime": "mine.all", "delay_duration_runtime": "mine.millis",
        },
        "/slow": {
            "response_rate_limit": {"fixed_limit": {"limit_kbps": 1000}},
            "response_rate_limit_percent_runtime": "mine.all",
        },
        "/most": {"abort": always(json!({"http_status": 503})), "max_active_faults_runtime": "mine.none"},
    });
    let routes = cases.as_object().unwrap().iter();
    let routes: Value = routes.map(|(path, fields)| site::route(path, NAME, of_route(fields.clone()))).collect();
    let site = fault(json!({})).routes(routes).whole(whole).start();
    assert_eq!(site.get("/abort", "").status, 418);
    let call = site.ask("POST", "/grpc", "content-type: application/grpc\r\ncontent-length: 0\r\n");
    assert_eq!((call.status, call.header("grpc-status")), (200, "7"));
    assert_eq!(["/delay", "/slow", "/most"].map(|path| site.get(path, "").status), [200; 3]);
    let counted = ["aborts_injected", "delays_injected", "response_rl_injected", "faults_overflow"];
    assert_eq!(counted.map(|name| stat(&site, name)), [2, 1, 1, 1]);
}
