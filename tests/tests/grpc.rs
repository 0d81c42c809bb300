//! gRPC: what clients are told in its own terms, how long calls may take, and what logs say about them.

use postrider_tests::get;
use postrider_tests::h2_client::{H2Client, request};
use postrider_tests::h2_origin::H2Origin;
use postrider_tests::kit::config::{file_access_log, upstream_http_options};
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Config, Gate, Origin, Proxy, Response, TempDir, net, wait_until};
use serde_json::{Value, json};

const GRPC: &str = "content-type: application/grpc\r\n";

fn post(proxy: &Proxy, path: &str, fields: &str) -> Response {
    proxy.exchange(format!("POST {path} HTTP/1.1\r\nhost: test\r\ncontent-length: 0\r\n{fields}\r\n"))
}

fn direct(path: &str, status: u16, body: &str) -> Value {
    let mut answer = json!({"status": status});
    if !body.is_empty() {
        answer["body"] = json!({"inline_string": body});
    }
    json!({"match": {"path": path}, "direct_response": answer})
}

/// What becomes of each HTTP status; seen on Envoy 1.40.
const STATUSES: &[(u16, &str)] = &[
    (200, "2"),
    (204, "2"),
    (400, "13"),
    (401, "16"),
    (403, "7"),
    (404, "12"),
    (418, "2"),
    (429, "14"),
    (500, "2"),
    (501, "2"),
    (502, "14"),
    (503, "14"),
    (504, "14"),
];

#[test]
fn local_replies_to_grpc_requests_are_statuses_of_grpc() {
    let routes: Vec<Value> = STATUSES.iter().map(|(status, _)| direct(&format!("/{status}"), *status, "no")).collect();
    let proxy = Proxy::start(&Config::routes(json!(routes)));
    let mut client = H2Client::connect(proxy.address("http"));
    for (status, wanted) in STATUSES {
        let path = format!("/{status}");
        let said = post(&proxy, &path, GRPC);
        assert_eq!((said.status, said.header("grpc-status")), (200, *wanted), "{status}");
        assert_eq!(said.header("content-type"), "application/grpc");
        assert_eq!((said.header("content-length"), said.text()), ("0", ""), "{status}");
        let head = client
            .start(request("POST", &path).header("content-type", "application/grpc+proto").body(()).unwrap(), true);
        let head = client.head(head).unwrap();
        assert_eq!((head.status().as_u16(), &head.headers()["grpc-status"]), (200, &wanted.parse().unwrap()));
        assert!(head.body().is_end_stream(), "trailers and nothing else");
        assert!(!head.headers().contains_key("content-length"), "{head:?}");
        // Nothing else is gRPC.
        for kind in ["application/grpc-web", "application/grpc; a=b", "text/plain"] {
            let plain = post(&proxy, &path, &format!("content-type: {kind}\r\n"));
            assert_eq!((plain.status, plain.headers.contains("grpc-status")), (*status, false), "{kind}");
        }
    }
}

#[test]
fn the_body_of_a_local_reply_becomes_the_message() {
    let proxy = Proxy::start(&Config::routes(json!([direct("/", 403, "100 % ~ é\n.")])));
    assert_eq!(post(&proxy, "/", GRPC).header("grpc-message"), "100 %25 %7E %C3%A9%0A.");
    let head = proxy.exchange(format!("HEAD / HTTP/1.1\r\nhost: test\r\n{GRPC}\r\n"));
    assert_eq!((head.header("grpc-status"), head.headers.contains("grpc-message")), ("7", false));
    assert_eq!(post(&proxy, "/elsewhere", GRPC).header("grpc-status"), "12", "no route");
    assert!(!post(&proxy, "/elsewhere", GRPC).headers.contains("grpc-message"));
}

#[test]
fn the_message_has_the_format_of_local_replies() {
    let text = "{\"why\": \"%LOCAL_REPLY_BODY%\", \"code\": %RESPONSE_CODE%, \"grpc\": \"%GRPC_STATUS%\"}\n";
    let format = json!({"text_format_source": {"inline_string": text}, "content_type": "application/json"});
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "empty"}}]))
        .cluster_with("empty", &[], json!({"load_assignment": {"endpoints": []}}))
        .overlay_filter("http", json!({"local_reply_config": {"body_format": format}}));
    let proxy = Proxy::start(&config);
    let said = post(&proxy, "/", GRPC);
    assert_eq!((said.status, said.header("grpc-status")), (200, "14"));
    let message: Value = serde_json::from_str(said.header("grpc-message")).unwrap();
    assert_eq!(message, json!({"why": "no healthy upstream", "code": 503, "grpc": "Unavailable"}));
    assert_eq!(post(&proxy, "/", "").status, 503);
}

#[test]
fn what_goes_wrong_upstream_is_told_in_grpc_and_counted_in_http() {
    let silent = Origin::silent();
    let to = |cluster: &str| json!({"match": {"prefix": format!("/{cluster}")}, "route": {"cluster": cluster, "timeout": "0.1s"}});
    let config = Config::routes(json!([to("empty"), to("refused"), to("silent"), to("full")]))
        .cluster_with("empty", &[], json!({"load_assignment": {"endpoints": []}}))
        .cluster("refused", &[net::refusing_address()])
        .cluster("silent", &[silent.address])
        .cluster_with(
            "full",
            &[silent.address],
            json!({"circuit_breakers": {"thresholds": [{"max_requests": 0, "max_pending_requests": 0}]}}),
        );
    let directory = TempDir::new();
    let log = directory.path().join("log");
    let line = "%REQ(:PATH)% %RESPONSE_CODE% %RESPONSE_CODE_DETAILS:24% %RESPONSE_FLAGS% %GRPC_STATUS% \
                %GRPC_STATUS(SNAKE_STRING)% %GRPC_STATUS(NUMBER)% %GRPC_STATUS_NUMBER% %BYTES_SENT%\n";
    let line = line.replace("DETAILS:24", "DETAILS");
    let format = json!({"log_format": {"text_format_source": {"inline_string": line}}});
    let config = config.overlay_filter("http", json!({"access_log": [file_access_log(&log, format)]}));
    let proxy = Proxy::start_with(&config, Launch::default().with_arguments(&["--file-flush-interval-msec", "20"]));
    let reset = "upstream connect error or disconnect/reset before headers. reset reason: ";
    for (path, message) in [
        ("/empty", "no healthy upstream".to_owned()),
        ("/refused", format!("{reset}remote connection failure")),
        ("/silent", "upstream request timeout".to_owned()),
        ("/full", format!("{reset}overflow")),
    ] {
        let said = post(&proxy, path, GRPC);
        assert_eq!((said.status, said.header("grpc-status"), said.header("grpc-message")), (200, "14", &*message));
    }
    let mut text = String::new();
    wait_until("four lines", || {
        text = std::fs::read_to_string(&log).unwrap_or_default();
        text.lines().count() == 4
    });
    let status = "Unavailable UNAVAILABLE 14 14 0";
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], format!("/empty 200 no_healthy_upstream UH {status}"));
    assert!(lines[1].starts_with("/refused 200 upstream_reset_before_response_started{remote_connection_failure"));
    assert!(lines[1].ends_with(&format!(" UF {status}")), "{}", lines[1]);
    assert_eq!(lines[2], format!("/silent 200 response_timeout UT {status}"));
    assert_eq!(lines[3], format!("/full 200 upstream_reset_before_response_started{{overflow}} UO {status}"));
    let stats = proxy.stats();
    for cluster in ["empty", "refused", "full"] {
        assert_eq!(stats.value(&format!("cluster.{cluster}.upstream_rq_503")), 1, "{cluster}");
    }
    assert_eq!(stats.value("cluster.silent.upstream_rq_504"), 1);
    assert_eq!(stats.value("http.ingress_http.downstream_rq_2xx"), 4);
    assert_eq!(stats.value("http.ingress_http.downstream_rq_5xx"), 0);
}

/// Routes with limits to an origin that never answers; path, `grpc-timeout` of the request, what the upstream hears
/// (`-` is nothing) as `grpc-timeout` and as `x-envoy-expected-rq-timeout-ms`, and the status of gRPC in the end.
#[test]
fn a_call_may_take_as_long_as_it_asks_and_its_route_allows() {
    let silent = Origin::start(|connection| {
        connection.request();
        connection.read_to_end();
    });
    let to = |path: &str, limits: Value| {
        let mut route = json!({"cluster": "silent", "timeout": "0.03s"});
        for (key, value) in limits.as_object().unwrap() {
            route[key] = value.clone();
        }
        json!({"match": {"path": path}, "route": route})
    };
    let limit = |fields: Value| json!({"max_stream_duration": fields});
    let config = Config::routes(json!([
        to("/plain", json!({})),
        to("/duration", limit(json!({"max_stream_duration": "0.04s"}))),
        to("/capped", limit(json!({"max_stream_duration": "0.05s", "grpc_timeout_header_max": "0.06s"}))),
        to("/as-asked", limit(json!({"max_stream_duration": "0.05s", "grpc_timeout_header_max": "0s"}))),
        to("/offset", limit(json!({"grpc_timeout_header_max": "2s", "grpc_timeout_header_offset": "0.01s"}))),
        to("/old", json!({"max_grpc_timeout": "0.05s", "grpc_timeout_offset": "0.02s"})),
        to("/old-endless", json!({"max_grpc_timeout": "0s"})),
    ]))
    .cluster("silent", &[silent.address]);
    let proxy = Proxy::start(&config);
    let cases = [
        ("/plain", "20m", "20m", "30", "14"),
        ("/duration", "", "40m", "-", "4"),
        ("/duration", "1m", "40m", "-", "4"),
        ("/capped", "1S", "60m", "-", "4"),
        ("/capped", "20000u", "20m", "-", "4"),
        ("/capped", "1x", "50m", "-", "4"),
        ("/capped", "", "50m", "-", "4"),
        ("/as-asked", "70m", "70m", "-", "4"),
        ("/offset", "50m", "40m", "-", "4"),
        ("/offset", "5m", "0m", "-", "4"),
        ("/old", "", "50m", "50", "14"),
        ("/old", "60m", "40m", "40", "14"),
        ("/old", "20m", "20m", "20", "14"),
        ("/old", "1H", "50m", "50", "14"),
        ("/old-endless", "40m", "40m", "40", "14"),
    ];
    for (path, asked, told, expected, status) in cases {
        silent.forget();
        let asked = if asked.is_empty() { String::new() } else { format!("grpc-timeout: {asked}\r\n") };
        let said = post(&proxy, path, &format!("{GRPC}{asked}"));
        let message = if status == "4" { "downstream duration timeout" } else { "upstream request timeout" };
        assert_eq!((said.header("grpc-status"), said.header("grpc-message")), (status, message), "{path} {asked}");
        silent.wait_requests(1);
        let heard = &silent.requests()[0].headers;
        assert_eq!(heard.value("grpc-timeout").unwrap_or("-"), told, "{path} {asked}");
        assert_eq!(heard.value("x-envoy-expected-rq-timeout-ms").unwrap_or("-"), expected, "{path} {asked}");
    }
    // Others keep their own header, but the limit holds for them, too.
    silent.forget();
    assert_eq!(post(&proxy, "/capped", "grpc-timeout: 20m\r\n").status, 504);
    silent.wait_requests(1);
    assert_eq!(silent.requests()[0].headers.value("grpc-timeout"), Some("20m"));
    assert_eq!(proxy.stats().value("http.ingress_http.downstream_rq_max_duration_reached"), 10);
}

#[test]
fn a_route_may_turn_off_the_connections_limit() {
    let gate = Gate::default();
    let opened = gate.clone();
    let origin = Origin::start(move |connection| {
        while connection.request().is_some() {
            opened.wait();
            connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        }
    });
    let config = Config::routes(json!([
        {"match": {"path": "/on"}, "route": {"cluster": "origin"}},
        {"match": {"path": "/off"}, "route": {"cluster": "origin", "max_stream_duration": {"max_stream_duration": "0s"}}},
    ]))
    .cluster("origin", &[origin.address])
    .overlay_filter("http", json!({"common_http_protocol_options": {"max_stream_duration": "0.05s"}}));
    let proxy = Proxy::start(&config);
    let mut client = proxy.client();
    client.send("GET /off HTTP/1.1\r\nhost: test\r\n\r\n");
    origin.wait_requests(1);
    // By now the first request is older than the limit.
    assert_eq!(proxy.exchange(get("/on")).status, 504);
    gate.open();
    assert_eq!(client.response("GET").unwrap().status, 200);
}

#[test]
fn logs_may_be_about_some_statuses_of_grpc_only() {
    let origin = H2Origin::start(100);
    let directory = TempDir::new();
    let path = |name: &str| directory.path().join(name);
    let log = |name: &str, filter: Value| {
        let format = json!({"log_format": {"text_format_source": {"inline_string": "%REQ(:PATH)% %GRPC_STATUS%\n"}}});
        let mut log = file_access_log(&path(name), format);
        if !filter.is_null() {
            log["filter"] = json!({"grpc_status_filter": filter});
        }
        log
    };
    let logs = json!([
        log("all", Value::Null),
        log("some", json!({"statuses": ["UNIMPLEMENTED", "CANCELED"]})),
        log("others", json!({"statuses": ["UNIMPLEMENTED"], "exclude": true})),
    ]);
    let http2 = upstream_http_options(
        json!({"explicit_http_config": {"http_protocol_options": null, "http2_protocol_options": {}}}),
    );
    let config = Config::routes(json!([
        direct("/401", 401, ""),
        {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]))
    .cluster_with("origin", &[origin.address], http2)
    .overlay_filter("http", json!({"access_log": logs}));
    let proxy = Proxy::start_with(&config, Launch::default().with_arguments(&["--file-flush-interval-msec", "20"]));
    let mut client = H2Client::connect(proxy.address("http"));
    let mut call = |path: &str| {
        let head = request("POST", path).header("content-type", "application/grpc").body(()).unwrap();
        client.exchange(head, b"")
    };
    assert_eq!(call("/trailers-only").header("grpc-status"), "12");
    assert_eq!(call("/grpc/5").trailers["grpc-status"], "5");
    assert_eq!(call("/grpc/1").trailers["grpc-status"], "1");
    assert_eq!(call("/grpc/77").trailers["grpc-status"], "77");
    assert_eq!(call("/401").header("grpc-status"), "16");
    // Not gRPC: there is no status to name, but one that 404 stands for.
    assert_eq!(client.get("/401").status, 401);
    let lines = |name: &str, count: usize| {
        let mut lines: Vec<String> = Vec::new();
        wait_until(name, || {
            lines = std::fs::read_to_string(path(name)).unwrap_or_default().lines().map(str::to_owned).collect();
            lines.len() >= count
        });
        lines
    };
    assert_eq!(
        lines("all", 6),
        [
            "/trailers-only Unimplemented",
            "/grpc/5 NotFound",
            "/grpc/1 Canceled",
            "/grpc/77 77",
            "/401 Unauthenticated",
            "/401 -"
        ]
    );
    assert_eq!(lines("some", 2), ["/trailers-only Unimplemented", "/grpc/1 Canceled"]);
    assert_eq!(
        lines("others", 5),
        ["/grpc/5 NotFound", "/grpc/1 Canceled", "/grpc/77 77", "/401 Unauthenticated", "/401 -"]
    );
    // A host is judged by what its calls came to: 12, 77 are as good as 5xx.
    let clusters = proxy.admin_get("/clusters");
    let count = |name: &str| {
        let line = clusters.text().lines().find(|line| line.contains(&format!("::{name}::"))).unwrap_or_default();
        line.rsplit("::").next().unwrap_or_default().to_owned()
    };
    assert_eq!((count("rq_success"), count("rq_error")), ("2".to_owned(), "2".to_owned()), "{}", clusters.text());
}

/// `x-envoy-upstream-rq-timeout-ms` and a limit of tries were left out of what the upstream of a call heard.
#[test]
fn the_upstream_of_a_call_hears_limits_of_the_request_and_of_its_tries() {
    let origin = Origin::start(|connection| {
        while let Some(request) = connection.request() {
            let is_first = request.header("x-envoy-attempt-count") == "1";
            let status = if is_first && request.target == "/tries" { "503 Busy" } else { "200 OK" };
            connection.write(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").as_bytes());
        }
    });
    let back_off = json!({"base_interval": "0.001s", "max_interval": "0.002s"});
    let policy = json!({"retry_on": "5xx", "per_try_timeout": "6s", "retry_back_off": back_off});
    let ranges = json!({"cidr_ranges": [{"address_prefix": "127.0.0.0", "prefix_len": 8}]});
    let routes = json!([
        {"match": {"path": "/tries"}, "route": {"cluster": "origin", "max_grpc_timeout": "30s", "retry_policy": policy}},
        {"match": {"prefix": "/"}, "route": {"cluster": "origin", "max_grpc_timeout": "30s"}},
    ]);
    let host = json!({"name": "all", "domains": ["*"], "include_request_attempt_count": true, "routes": routes});
    let config = Config::new()
        .http(json!({"route_config": {"virtual_hosts": [host]}}))
        .overlay_filter("http", json!({"use_remote_address": true, "internal_address_config": ranges}))
        .cluster("origin", &[origin.address]);
    let proxy = Proxy::start(&config);
    let hears = |path: &str, fields: &str| {
        let answer = post(&proxy, path, &format!("{GRPC}grpc-timeout: 20S\r\n{fields}"));
        assert_eq!(answer.status, 200, "{path} {fields}");
        let heard = origin.requests().pop().unwrap().headers;
        ["grpc-timeout", "x-envoy-expected-rq-timeout-ms"].map(|name| heard.value(name).unwrap_or("-").to_owned())
    };
    assert_eq!(hears("/", ""), ["20000m", "20000"]);
    assert_eq!(hears("/", "x-envoy-upstream-rq-timeout-ms: 7000\r\n"), ["7000m", "7000"]);
    assert_eq!(hears("/", "x-envoy-upstream-rq-per-try-timeout-ms: 500\r\n"), ["500m", "500"]);
    assert_eq!(hears("/tries", ""), ["6000m", "6000"]);
    assert_eq!(origin.requests().len(), 5);
}
