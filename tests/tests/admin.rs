//! The admin interface: what tools that read Envoy's rely on.

use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Config, Origin, Proxy, RawClient, Stats, TempDir, config, net, wait_until};
use postrider_tests::{envoy, get};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;

#[test]
fn ready_and_server_info_tell_the_state() {
    let origin = Origin::echo("a");
    let proxy = Proxy::start_with(&Config::proxy_to(origin.address), Launch { concurrency: 2, ..Launch::default() });
    let ready = proxy.admin_get("/ready");
    assert_eq!((ready.status, ready.text()), (200, "LIVE\n"));
    let info = proxy.admin_json("/server_info");
    assert_eq!(info["state"], "LIVE");
    assert_eq!(info["command_line_options"]["concurrency"], 2);
    assert_eq!(info["command_line_options"]["config_path"], proxy.config_path().to_str().unwrap());
    assert!(info["version"].as_str().is_some_and(|version| !version.is_empty()));
    assert!(info["uptime_current_epoch"].as_str().is_some_and(|uptime| uptime.ends_with('s')));
    assert_eq!(info["node"].get("locality"), None, "nobody said where it stands");
    let placed = json!({"node": {"id": "n", "cluster": "c", "locality": {"zone": "z"}}});
    let proxy = Proxy::start(&Config::proxy_to(origin.address).overlay(placed));
    let node = &proxy.admin_json("/server_info")["node"];
    assert_eq!(node["locality"], json!({"region": "", "zone": "z", "sub_zone": ""}));
}

#[test]
fn the_log_of_the_admin_knows_request_and_answer() {
    let folder = TempDir::new();
    let path = folder.path().join("admin.log");
    let format = "%REQ(:METHOD)% %REQ(:PATH)% %PROTOCOL% %RESPONSE_CODE% %RESPONSE_CODE_DETAILS% %BYTES_RECEIVED% %BYTES_SENT% \
                  %REQ(:AUTHORITY)% %REQ(X)% %RESP(CONTENT-TYPE)% %DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT%\n";
    let format = json!({"log_format": {"text_format_source": {"inline_string": format}}});
    let log = json!({"admin": {"access_log": [config::file_access_log(&path, format)]}});
    let proxy = Proxy::start(&Config::new().overlay(log));
    let head = "POST /stats?filter=server.live HTTP/1.1\r\nhost: a.com\r\nx: 1\r\nconnection: close\r\ncontent-length: 3\r\n\r\nabc";
    let answer = RawClient::connect(proxy.admin_address()).exchange(head);
    assert_eq!(answer.text(), "server.live: 1\n");
    let line = "POST /stats?filter=server.live HTTP/1.1 200 admin_filter_response 3 15 a.com 1 text/plain; charset=UTF-8 127.0.0.1";
    wait_until("the line of the log", || {
        std::fs::read_to_string(&path).unwrap_or_default().lines().any(|logged| logged == line)
    });
}

#[test]
fn unknown_paths_are_404_and_changes_need_post() {
    let origin = Origin::echo("a");
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    assert_eq!(proxy.admin_get("/nope").status, 404);
    for path in ["/quitquitquit", "/drain_listeners"] {
        assert_eq!(proxy.admin_get(path).status, 405, "{path}");
    }
    assert_eq!(proxy.admin_get("/ready").status, 200);
    assert_eq!(proxy.get("/").status, 200);
}

#[test]
fn the_pages_have_envoys_content_types() {
    let origin = Origin::echo("a");
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    for (path, kind) in [
        ("/ready", "text/plain"),
        ("/stats", "text/plain"),
        ("/stats/prometheus", "text/plain"),
        ("/stats?format=json", "application/json"),
        ("/clusters", "text/plain"),
        ("/clusters?format=json", "application/json"),
        ("/listeners", "text/plain"),
        ("/listeners?format=json", "application/json"),
        ("/server_info", "application/json"),
        ("/config_dump", "application/json"),
    ] {
        let page = proxy.admin_get(path);
        assert_eq!(page.status, 200, "{path}");
        assert!(page.header("content-type").starts_with(kind), "{path}: {page:?}");
    }
}

/// A fixed mixture of traffic, each request on a connection of its own.
fn drive(proxy: &Proxy) {
    let address = proxy.address("http");
    let once = |request: &str| RawClient::once(address, request).unwrap().status;
    for _ in 0..5 {
        assert_eq!(once(&get("/ok")), 200);
    }
    assert_eq!(once("POST /ok HTTP/1.1\r\nhost: test\r\ncontent-length: 4\r\n\r\nbody"), 200);
    assert_eq!(once(&get("/missing")), 404);
    assert_eq!(once(&get("/dead")), 503);
    assert_eq!(once(&get("/empty")), 503);
    assert_eq!(once(&get("/late")), 504);
    assert_eq!(once(&get("/direct")), 200);
    assert_eq!(once(&get("/redirect")), 301);
    assert_eq!(once("bad\r\n\r\n"), 400);
    assert_eq!(once("GET /ok HTTP/1.1\r\n\r\n"), 400);
    // Three requests on one connection.
    let mut client = proxy.client();
    for _ in 0..3 {
        client.exchange(get("/ok"));
    }
}

struct Site {
    _origins: Vec<Origin>,
    config: Config,
}

fn site() -> Site {
    let ok = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let silent = Origin::silent();
    let config = Config::routes(json!([
        {"match": {"path": "/ok"}, "route": {"cluster": "ok"}},
        {"match": {"path": "/dead"}, "route": {"cluster": "dead"}},
        {"match": {"path": "/empty"}, "route": {"cluster": "empty"}},
        {"match": {"path": "/late"}, "route": {"cluster": "silent", "timeout": "0.1s"}},
        {"match": {"path": "/direct"}, "direct_response": {"status": 200}},
        {"match": {"path": "/redirect"}, "redirect": {"path_redirect": "/"}},
    ]))
    .cluster("ok", &[ok.address])
    .cluster("dead", &[net::refusing_address()])
    .cluster("silent", &[silent.address])
    .cluster_with("empty", &[], json!({"load_assignment": {"endpoints": []}}));
    Site { _origins: vec![ok, silent], config }
}

/// Counters and gauges that must equal Envoy's after [`drive`].
const COUNTED: &[(&str, u64)] = &[
    ("http.ingress_http.downstream_cx_total", 15),
    ("http.ingress_http.downstream_cx_http1_total", 15),
    ("http.ingress_http.downstream_cx_destroy", 15),
    ("http.ingress_http.downstream_cx_active", 0),
    ("http.ingress_http.downstream_rq_total", 17),
    ("http.ingress_http.downstream_rq_http1_total", 17),
    ("http.ingress_http.downstream_rq_active", 0),
    ("http.ingress_http.downstream_rq_completed", 17),
    ("http.ingress_http.downstream_rq_2xx", 10),
    ("http.ingress_http.downstream_rq_3xx", 1),
    ("http.ingress_http.downstream_rq_4xx", 3),
    ("http.ingress_http.downstream_rq_5xx", 3),
    ("http.ingress_http.downstream_cx_protocol_error", 1),
    ("http.ingress_http.no_route", 1),
    // A redirect counts as a direct response.
    ("http.ingress_http.rq_direct_response", 2),
    ("http.ingress_http.rq_redirect", 0),
    ("http.ingress_http.rq_total", 15),
    ("cluster.ok.upstream_rq_total", 9),
    ("cluster.ok.upstream_rq_completed", 9),
    ("cluster.ok.upstream_rq_2xx", 9),
    ("cluster.ok.upstream_rq_200", 9),
    ("cluster.ok.upstream_rq_active", 0),
    ("cluster.ok.upstream_cx_total", 1),
    ("cluster.ok.upstream_cx_http1_total", 1),
    ("cluster.ok.upstream_cx_active", 1),
    ("cluster.ok.membership_total", 1),
    ("cluster.ok.membership_healthy", 1),
    ("cluster.dead.upstream_cx_connect_fail", 1),
    ("cluster.dead.upstream_cx_total", 1),
    ("cluster.dead.upstream_rq_503", 1),
    ("cluster.dead.upstream_rq_5xx", 1),
    ("cluster.dead.upstream_rq_pending_failure_eject", 1),
    ("cluster.empty.upstream_cx_none_healthy", 1),
    ("cluster.empty.upstream_rq_503", 1),
    ("cluster.silent.upstream_rq_timeout", 1),
    ("cluster.silent.upstream_rq_504", 1),
    ("cluster.silent.upstream_cx_destroy_local_with_active_rq", 1),
    ("cluster_manager.active_clusters", 4),
    ("cluster_manager.cluster_added", 4),
    ("listener_manager.listener_added", 1),
    ("listener_manager.total_listeners_active", 1),
    ("server.live", 1),
    ("server.concurrency", 1),
];

fn settle(proxy: &Proxy) -> Stats {
    proxy.wait_stat("http.ingress_http.downstream_cx_active", 0);
    proxy.wait_stat("cluster.silent.upstream_cx_active", 0);
    proxy.stats()
}

#[test]
fn counters_have_envoys_names_and_values() {
    let site = site();
    let proxy = Proxy::start(&site.config);
    drive(&proxy);
    let stats = settle(&proxy);
    let wrong: Vec<String> = COUNTED
        .iter()
        .filter(|(name, value)| stats.value(name) != *value)
        .map(|(name, value)| format!("{name} is {}, not {value}", stats.value(name)))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn counters_equal_those_of_envoy_in_the_same_run() {
    let Some(launch) = Launch::envoy() else {
        eprintln!("envoy is not on PATH: names and values are held by counters_have_envoys_names_and_values alone");
        return;
    };
    let (mine, theirs) = (site(), site());
    let ours = Proxy::start(&mine.config);
    let other = Proxy::start_with(&theirs.config, launch);
    drive(&ours);
    drive(&other);
    let (ours, theirs) = (settle(&ours), settle(&other));
    // Bytes and times differ by the proxies' own header lines.
    let counted = |stats: &Stats| -> BTreeMap<String, String> {
        COUNTED.iter().map(|(name, _)| ((*name).to_string(), stats.value(name).to_string())).collect()
    };
    assert_eq!(counted(&ours), counted(&theirs));
}

#[test]
fn stats_can_be_filtered_and_read_as_json() {
    let origin = Origin::echo("a");
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    proxy.get("/");
    let page = proxy.admin_get("/stats?filter=upstream_rq_total");
    assert_eq!(page.text(), "cluster.origin.upstream_rq_total: 1\n");
    let used = Stats::parse(proxy.admin_get("/stats?usedonly").text());
    assert_eq!(used.value("cluster.origin.upstream_rq_total"), 1);
    assert!(!used.0.contains_key("cluster.origin.upstream_cx_connect_fail"));
    let page = proxy.admin_json("/stats?format=json&filter=upstream_rq_total");
    assert_eq!(page["stats"], json!([{"name": "cluster.origin.upstream_rq_total", "value": 1}]));
}

#[test]
fn alerts_on_a_cluster_without_healthy_hosts_found_no_series() {
    let (origin, dead) = (Origin::echo("a"), SocketAddr::from(([127, 0, 0, 1], net::free_port())));
    let check = json!([{"timeout": "5s", "interval": "60s", "no_traffic_interval": "60s", "unhealthy_threshold": 1,
        "healthy_threshold": 1, "tcp_health_check": {}}]);
    let config = Config::proxy_to(origin.address).cluster_with("gone", &[dead], json!({"health_checks": check}));
    let proxy = Proxy::start(&config);
    proxy.wait_stat("cluster.gone.health_check.failure", 1);
    proxy.get("/");
    proxy.wait_stat("http.ingress_http.downstream_cx_active", 0);
    let page = proxy.admin_get("/stats/prometheus?usedonly&filter=membership_healthy|_active$|rq_retry");
    let lines: Vec<&str> = page.text().lines().filter(|line| !line.contains("admin")).collect();
    for expected in [
        "envoy_cluster_membership_healthy{envoy_cluster_name=\"gone\"} 0",
        "envoy_cluster_membership_healthy{envoy_cluster_name=\"origin\"} 1",
        "envoy_cluster_upstream_rq_active{envoy_cluster_name=\"origin\"} 0",
        "envoy_http_downstream_cx_active{envoy_http_conn_manager_prefix=\"ingress_http\"} 0",
        "envoy_http_downstream_rq_active{envoy_http_conn_manager_prefix=\"ingress_http\"} 0",
    ] {
        assert!(lines.contains(&expected), "{expected} is not in {lines:?}");
    }
    let active_of_gone = |line: &&&str| line.contains("gone") && line.contains("_active");
    assert!(!lines.iter().any(|line| active_of_gone(&line) || line.contains("retry")), "nothing came to be: {lines:?}");
    assert_eq!(proxy.admin_post("/reset_counters").status, 200);
    let used = Stats::parse(proxy.admin_get("/stats?usedonly").text());
    for reset in [
        "cluster.origin.upstream_rq_total",
        "cluster.origin.upstream_rq_200",
        "cluster.origin.membership_change",
        "cluster.origin.default.total_match_count",
        "http.ingress_http.downstream_rq_2xx",
    ] {
        assert_eq!(used.0.get(reset).map(String::as_str), Some("0"), "{reset}");
    }
    assert!(!used.0.contains_key("cluster.origin.upstream_rq_retry"));
}

#[test]
fn prometheus_text_has_envoys_names_and_labels() {
    let origin = Origin::echo("a");
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    for _ in 0..3 {
        proxy.get("/");
    }
    proxy.wait_stat("http.ingress_http.downstream_cx_active", 0);
    let page = proxy.admin_get("/stats/prometheus");
    let lines: Vec<&str> = page.text().lines().collect();
    for expected in [
        "# TYPE envoy_cluster_upstream_rq_total counter",
        r#"envoy_cluster_upstream_rq_total{envoy_cluster_name="origin"} 3"#,
        r#"envoy_cluster_upstream_rq_xx{envoy_response_code_class="2",envoy_cluster_name="origin"} 3"#,
        r#"envoy_cluster_upstream_rq{envoy_response_code="200",envoy_cluster_name="origin"} 3"#,
        r#"envoy_http_downstream_rq_xx{envoy_response_code_class="2",envoy_http_conn_manager_prefix="ingress_http"} 3"#,
        "# TYPE envoy_http_downstream_cx_active gauge",
        r#"envoy_http_downstream_cx_active{envoy_http_conn_manager_prefix="ingress_http"} 0"#,
        "envoy_server_live{} 1",
        "# TYPE envoy_http_downstream_rq_time histogram",
    ] {
        assert!(lines.contains(&expected), "{expected} is not in\n{}", page.text());
    }
    // Every sample follows its type, and no family comes twice.
    let mut families: Vec<&str> = Vec::new();
    for line in &lines {
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let family = kind.split(' ').next().unwrap();
            assert!(!families.contains(&family), "{family} twice");
            families.push(family);
        } else if !line.is_empty() && !line.starts_with('#') {
            let family = families.last().expect("a type first");
            assert!(line.starts_with(family), "{line} under {family}");
        }
    }
}

#[test]
fn clusters_show_endpoints_and_their_counts() {
    let origin = Origin::echo("a");
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    proxy.get("/");
    let page = proxy.admin_get("/clusters");
    let lines: Vec<&str> = page.text().lines().collect();
    let host = origin.address;
    for expected in [
        "origin::observability_name::origin".to_string(),
        "origin::default_priority::max_connections::1024".into(),
        "origin::default_priority::max_pending_requests::1024".into(),
        "origin::default_priority::max_requests::1024".into(),
        "origin::default_priority::max_retries::3".into(),
        "origin::added_via_api::false".into(),
        format!("origin::{host}::cx_total::1"),
        format!("origin::{host}::rq_total::1"),
        format!("origin::{host}::rq_success::1"),
        format!("origin::{host}::rq_error::0"),
        format!("origin::{host}::health_flags::healthy"),
        format!("origin::{host}::weight::1"),
        format!("origin::{host}::priority::0"),
    ] {
        assert!(lines.contains(&expected.as_str()), "{expected} is not in\n{}", page.text());
    }
    let page = proxy.admin_json("/clusters?format=json");
    let status = &page["cluster_statuses"][0];
    assert_eq!(status["name"], "origin");
    let host = &status["host_statuses"][0];
    assert_eq!(host["address"]["socket_address"]["port_value"], origin.address.port());
    assert_eq!(host["health_status"]["eds_health_status"], "HEALTHY");
    assert_eq!(host["weight"], 1);
    let stats = host["stats"].as_array().unwrap();
    // A value of zero is left out, a large number is text, as protobuf's JSON has it.
    let value = |name: &str| stats.iter().find(|s| s["name"] == name).map(|s| s["value"].clone());
    assert_eq!(value("rq_total"), Some(json!("1")));
    assert_eq!(value("rq_error"), Some(Value::Null));
}

#[test]
fn listeners_are_shown_with_their_bound_address() {
    let proxy = Proxy::start(&Config::proxy_to(net::refusing_address()).tcp("second", json!({"cluster": "origin"})));
    let page = proxy.admin_get("/listeners");
    let expected = format!("http::{}\nsecond::{}\n", proxy.address("http"), proxy.address("second"));
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(page.text()), sorted(&expected));
}

#[test]
fn the_config_dump_shows_what_is_loaded() {
    let origin = Origin::echo("a");
    let config = Config::proxy_to(origin.address).overlay(json!({"node": {"id": "n1", "cluster": "c1"}}));
    let proxy = Proxy::start(&config);
    let dump = proxy.admin_json("/config_dump");
    let sections = dump["configs"].as_array().unwrap();
    let section = |name: &str| {
        let kind = format!("type.googleapis.com/envoy.admin.v3.{name}");
        sections.iter().find(|s| s["@type"] == *kind).unwrap_or_else(|| panic!("no {name}"))
    };
    let bootstrap = &section("BootstrapConfigDump")["bootstrap"];
    assert_eq!(bootstrap["node"]["id"], "n1");
    assert_eq!(bootstrap["static_resources"]["clusters"][0]["name"], "origin");
    let cluster = &section("ClustersConfigDump")["static_clusters"][0]["cluster"];
    assert_eq!(cluster["name"], "origin");
    assert_eq!(cluster["connect_timeout"], "5s");
    let listener = &section("ListenersConfigDump")["static_listeners"][0]["listener"];
    assert_eq!(listener["name"], "http");
    let filter = &listener["filter_chains"][0]["filters"][0]["typed_config"];
    assert_eq!(filter["stat_prefix"], "ingress_http");
    let routes = &section("RoutesConfigDump")["static_route_configs"][0]["route_config"];
    assert_eq!(routes["virtual_hosts"][0]["domains"], json!(["*"]));
}

#[test]
fn quitquitquit_ends_the_process_with_code_0() {
    let origin = Origin::echo("a");
    let mut proxy = Proxy::start(&Config::proxy_to(origin.address));
    let answer = proxy.admin_post("/quitquitquit");
    assert_eq!((answer.status, answer.text()), (200, "OK\n"));
    assert_eq!(proxy.wait_exit().code(), Some(0));
}

#[test]
fn drained_listeners_accept_no_more() {
    let origin = Origin::echo("a");
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let address = proxy.address("http");
    let mut open = proxy.client();
    assert_eq!(open.exchange(get("/")).status, 200);
    let answer = proxy.admin_post("/drain_listeners");
    assert_eq!((answer.status, answer.text()), (200, "OK\n"));
    wait_until("new connections are refused", || std::net::TcpStream::connect(address).is_err());
    // The process and its admin live on.
    assert_eq!(proxy.admin_get("/server_info").status, 200);
    if !envoy() {
        // What was open is served to its end, and told to close.
        let last = open.exchange(get("/"));
        assert_eq!((last.status, last.header("connection")), (200, "close"));
    }
}

#[test]
fn a_slow_admin_client_costs_traffic_nothing() {
    let origin = Origin::echo("a");
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut slow = RawClient::from_stream(net::connect_with_small_buffer(proxy.admin_address(), 2048));
    for _ in 0..20 {
        slow.send("GET /stats HTTP/1.1\r\nhost: admin\r\n\r\n");
    }
    let mut client = proxy.client();
    for _ in 0..50 {
        assert_eq!(client.exchange(get("/")).status, 200);
    }
    assert_eq!(proxy.admin_get("/ready").status, 200);
}

/// A listener `in` for inbound traffic beside `http`.
fn with_inbound(origin: &Origin) -> Config {
    let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]);
    let hosts = json!([{"name": "all", "domains": ["*"], "routes": routes}]);
    Config::proxy_to(origin.address)
        .http_named("in", json!({"route_config": {"virtual_hosts": hosts}}))
        .overlay_listener("in", json!({"traffic_direction": "INBOUND"}))
}

#[test]
fn a_drain_without_an_exit_stopped_the_listeners_and_one_of_inbound_ones_drained_all() {
    let origin = Origin::echo("a");
    let config = with_inbound(&origin);
    for path in ["/drain_listeners?skip_exit&inboundonly", "/drain_listeners?graceful&skip_exit&inboundonly"] {
        let launch = Launch::default().with_arguments(&["--drain-strategy", "immediate", "--drain-time-s", "1"]);
        let proxy = Proxy::start_with(&config, launch);
        let mut inbound = RawClient::connect(proxy.address("in"));
        let mut outbound = proxy.client();
        assert_eq!(proxy.admin_post(path).status, 200, "{path}");
        wait_until("the client is told", || inbound.exchange(get("/")).header("connection") == "close");
        for _ in 0..20 {
            assert_eq!(outbound.exchange(get("/")).header("connection"), "", "{path}");
        }
        let mut next = RawClient::connect(proxy.address("in"));
        assert_eq!(next.exchange(get("/")).header("connection"), "close", "{path}");
    }
}

#[test]
fn a_drain_of_inbound_listeners_stopped_the_others_in_the_end() {
    let origin = Origin::echo("a");
    let config = with_inbound(&origin);
    let launch = Launch::default().with_arguments(&["--drain-strategy", "immediate", "--drain-time-s", "1"]);
    let proxy = Proxy::start_with(&config, launch);
    assert_eq!(proxy.admin_post("/drain_listeners?graceful&inboundonly").status, 200);
    let address = proxy.address("in");
    wait_until("inbound connections are refused", || std::net::TcpStream::connect(address).is_err());
    assert_eq!(proxy.get("/").status, 200);
}

#[test]
fn a_graceful_drain_tells_kept_connections_to_close() {
    let origin = Origin::echo("a");
    let launch = Launch::default().with_arguments(&["--drain-strategy", "immediate", "--drain-time-s", "3"]);
    let proxy = Proxy::start_with(&Config::proxy_to(origin.address), launch);
    let mut open = proxy.client();
    assert_eq!(open.exchange(get("/")).header("connection"), "");
    assert_eq!(proxy.admin_post("/drain_listeners?graceful").status, 200);
    // Workers hear of it a moment after the operator.
    wait_until("the client is told", || {
        let last = open.exchange(get("/"));
        assert_eq!(last.status, 200);
        last.header("connection") == "close"
    });
    assert!(open.closed());
}
