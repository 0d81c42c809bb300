//! What requests from inside say about how they are counted and answered, and how long a try may take.

use postrider_tests::ask;
use postrider_tests::kit::config::{file_access_log, upstream_http_options};
use postrider_tests::kit::{Config, Gate, Origin, Proxy, TempDir, net, wait_until};
use serde_json::{Value, json};

/// An origin that answers `/slow` and the rest of `/drip` never.
fn origin() -> Origin {
    let gate = Gate::default();
    Origin::start(move |connection| {
        while let Some(request) = connection.request() {
            match request.target.as_str() {
                "/slow" => gate.wait(),
                "/drip" => {
                    connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\no");
                    gate.wait();
                }
                _ => {}
            }
            connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        }
    })
}

fn trusting(origin: &Origin, route: Value, cluster: Value) -> Config {
    let mut forward = json!({"cluster": "origin"});
    postrider_tests::kit::config::overlay(&mut forward, route);
    Config::routes(json!([{"match": {"prefix": "/"}, "route": forward}]))
        .cluster_with("origin", &[origin.address], cluster)
        .overlay_filter(
            "http",
            json!({
                "use_remote_address": true,
                "internal_address_config": {"cidr_ranges": [{"address_prefix": "127.0.0.0", "prefix_len": 8}]},
            }),
        )
}

#[test]
fn a_request_from_inside_is_counted_by_its_own_name_too() {
    let origin = origin();
    let proxy = Proxy::start(&trusting(&origin, json!({}), json!({})));
    let answer = ask(&proxy, "GET", "test", "/", "x-envoy-upstream-alt-stat-name: checkout\r\n");
    assert_eq!(answer.status, 200);
    for name in ["upstream_rq_200", "upstream_rq_2xx", "upstream_rq_completed", "internal.upstream_rq_200"] {
        proxy.wait_stat(&format!("cluster.origin.checkout.{name}"), 1);
    }
    proxy.wait_stat("cluster.origin.upstream_rq_200", 1);
    assert_eq!(origin.requests()[0].headers.value("x-envoy-upstream-alt-stat-name"), None);
}

/// It was counted only where there was a host to ask.
#[test]
fn a_request_from_inside_is_counted_by_its_own_name_where_there_is_no_host() {
    let origin = origin();
    let nobody = json!({"load_assignment": {"cluster_name": "origin", "endpoints": []}});
    let proxy = Proxy::start(&trusting(&origin, json!({}), nobody));
    let answer = ask(&proxy, "GET", "test", "/", "x-envoy-upstream-alt-stat-name: checkout\r\n");
    assert_eq!((answer.status, answer.text()), (503, "no healthy upstream"));
    for name in ["upstream_rq_503", "upstream_rq_5xx", "upstream_rq_completed", "internal.upstream_rq_503"] {
        proxy.wait_stat(&format!("cluster.origin.checkout.{name}"), 1);
    }
}

#[test]
fn who_is_not_inside_has_no_say() {
    let origin = origin();
    let config = Config::proxy_to(origin.address).overlay_filter("http", json!({"use_remote_address": true}));
    let proxy = Proxy::start(&config.overlay_filter(
        "http",
        json!({"internal_address_config": {"cidr_ranges": [{"address_prefix": "192.0.2.1", "prefix_len": 32}]}}),
    ));
    let fields = "x-envoy-upstream-alt-stat-name: checkout\r\nx-envoy-upstream-stream-duration-ms: 1\r\n";
    assert_eq!(ask(&proxy, "GET", "test", "/", fields).status, 200);
    proxy.wait_stat("cluster.origin.upstream_rq_200", 1);
    assert!(!proxy.admin_get("/stats?filter=checkout").text().contains("checkout"));
}

#[test]
fn a_request_may_want_no_content_instead_of_a_timeout() {
    let origin = origin();
    let proxy = Proxy::start(&trusting(&origin, json!({"timeout": "0.1s"}), json!({})));
    let late = ask(&proxy, "GET", "test", "/slow", "x-envoy-upstream-rq-timeout-alt-response: 1\r\n");
    assert_eq!((late.status, late.text()), (204, ""));
    assert_eq!(ask(&proxy, "GET", "test", "/slow", "").status, 504);
    let per_try =
        json!({"timeout": "60s", "retry_policy": {"retry_on": "5xx", "num_retries": 0, "per_try_timeout": "0.1s"}});
    let proxy = Proxy::start(&trusting(&origin, per_try, json!({})));
    let late = ask(&proxy, "GET", "test", "/slow", "x-envoy-upstream-rq-timeout-alt-response: 1\r\n");
    assert_eq!(late.status, 204);
}

#[test]
fn a_try_lasts_no_longer_than_its_cluster_lets_it() {
    let folder = TempDir::new();
    let log = folder.path().join("log");
    let origin = origin();
    let options = upstream_http_options(json!({
        "common_http_protocol_options": {"max_stream_duration": "0.2s"},
        "explicit_http_config": {"http_protocol_options": {}},
    }));
    let line = json!({"log_format": {"text_format_source": {
        "inline_string": "%RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS%\n",
    }}});
    let config = trusting(&origin, json!({"timeout": "60s"}), options)
        .overlay_filter("http", json!({"access_log": [file_access_log(&log, line)]}));
    let proxy = Proxy::start(&config);
    let late = ask(&proxy, "GET", "test", "/slow", "");
    assert_eq!((late.status, late.text()), (504, "upstream max stream duration reached"));
    // An answer that began is cut off.
    let mut client = proxy.client();
    client.send(postrider_tests::get("/drip"));
    assert!(client.response("GET").is_err());
    let name = "cluster.origin.upstream_rq_max_duration_reached";
    proxy.wait_stat(name, 2);
    let read = || std::fs::read_to_string(&log).unwrap_or_default();
    wait_until("both are logged", || read().lines().count() == 2);
    let lines = "504 UMSDR upstream_max_stream_duration_reached\n200 UMSDR upstream_max_stream_duration_reached\n";
    assert_eq!(read(), lines);
    // A request from inside may say something else.
    let late = ask(&proxy, "GET", "test", "/slow", "x-envoy-upstream-stream-duration-ms: 1\r\n");
    assert_eq!(late.status, 504);
    proxy.wait_stat(name, 3);
}

#[test]
fn a_request_may_say_how_long_its_try_may_last() {
    let origin = origin();
    let proxy = Proxy::start(&trusting(&origin, json!({"timeout": "60s"}), json!({})));
    let late = ask(&proxy, "GET", "test", "/slow", "x-envoy-upstream-stream-duration-ms: 100\r\n");
    assert_eq!((late.status, late.text()), (504, "upstream max stream duration reached"));
    // What is no number says nothing.
    assert_eq!(ask(&proxy, "GET", "test", "/", "x-envoy-upstream-stream-duration-ms: junk\r\n").status, 200);
}

#[test]
fn connections_come_from_the_port_that_is_configured() {
    let port = net::free_port();
    let origin = Origin::echo("a");
    let bind = json!({"upstream_bind_config": {"source_address": {"address": "127.0.0.1", "port_value": port}}});
    let folder = TempDir::new();
    let log = folder.path().join("log");
    let line = json!({"log_format": {"text_format_source": {"inline_string": "%UPSTREAM_LOCAL_ADDRESS%\n"}}});
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]))
        .cluster_with("origin", &[origin.address], bind)
        .overlay_filter("http", json!({"access_log": [file_access_log(&log, line)]}));
    let proxy = Proxy::start(&config);
    assert_eq!(proxy.get("/").status, 200);
    let read = || std::fs::read_to_string(&log).unwrap_or_default();
    wait_until("it is logged", || !read().is_empty());
    assert_eq!(read(), format!("127.0.0.1:{port}\n"));
}

#[test]
fn the_admin_answers_the_paths_that_are_allowed() {
    let origin = Origin::echo("a");
    let config = Config::proxy_to(origin.address).overlay(json!({"admin": {"allow_paths": [
        {"exact": "/ready"}, {"prefix": "/stats"}, {"prefix": "/listeners"}, {"prefix": "/config_dump"},
        {"prefix": "/server_info"}, {"prefix": "/history"},
    ]}}));
    let proxy = Proxy::start(&config);
    assert_eq!(proxy.admin_get("/ready").status, 200);
    assert_eq!(proxy.admin_get("/stats?usedonly").status, 200);
    for path in ["/ready?x", "/", "/help", "/runtime", "/nope"] {
        let refused = proxy.admin_get(path);
        assert_eq!((refused.status, refused.text()), (403, &*format!("request to path {path} not allowed")));
    }
    assert_eq!(proxy.admin_post("/quitquitquit").status, 403);
    assert_eq!(proxy.get("/").status, 200);
}
