//! Hosts that answer badly are left out for a while: who finds it out, who is told, and when they come back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use postrider_tests::grpc::http2;
use postrider_tests::kit::config::{self, Config, extension};
use postrider_tests::kit::grpc::Step;
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{GrpcOrigin, Origin, Proxy, RawClient, TempDir, net, wait_until};
use postrider_tests::site::{self, Site};
use serde_json::{Value, json};

/// Answers with its name, and a status that may change.
struct Service {
    origin: Origin,
    status: Arc<AtomicU16>,
}

impl Service {
    fn start(name: &'static str, status: u16) -> Service {
        let state = Arc::new(AtomicU16::new(status));
        let seen = state.clone();
        let origin = Origin::start(move |connection| {
            while let Some(request) = connection.request() {
                let status = if request.target == "/hc" { 200 } else { seen.load(Ordering::SeqCst) };
                let length = name.len();
                let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n{name}");
                connection.write(answer.as_bytes());
            }
        });
        Service { origin, status: state }
    }

    fn address(&self) -> SocketAddr {
        self.origin.address
    }
}

fn detection(fields: Value) -> Value {
    let mut detection = json!({"interval": "0.05s", "base_ejection_time": "600s", "max_ejection_time": "600s",
        "max_ejection_percent": 50});
    config::overlay(&mut detection, fields);
    json!({"outlier_detection": detection})
}

fn config(endpoints: &[SocketAddr], cluster: Value) -> Config {
    Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]))
        .cluster_with("origin", endpoints, cluster)
}

fn stat(proxy: &Proxy, name: &str) -> u64 {
    proxy.stats().value(&format!("cluster.origin.outlier_detection.{name}"))
}

/// What `/clusters` says of a host.
fn told(proxy: &Proxy, address: SocketAddr, what: &str) -> String {
    let text = proxy.admin_get("/clusters").text().to_owned();
    let start = format!("origin::{address}::{what}::");
    text.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or_default().to_owned()
}

fn is_out(proxy: &Proxy, address: SocketAddr) -> bool {
    told(proxy, address, "health_flags") == "/failed_outlier_check"
}

/// Who answers a few requests.
fn answering(proxy: &Proxy) -> String {
    let mut names: Vec<String> = (0..8).map(|_| proxy.get("/").text().to_owned()).collect();
    names.sort();
    names.dedup();
    names.join(",")
}

#[test]
fn five_bad_answers_in_a_row_are_too_many() {
    let (a, b) = (Service::start("a", 500), Service::start("b", 200));
    let proxy = Proxy::start(&config(&[a.address(), b.address()], detection(json!({}))));
    let mut client = proxy.client();
    while a.origin.requests().len() < 4 {
        client.exchange("GET / HTTP/1.1\r\nhost: x\r\n\r\n");
    }
    a.status.store(200, Ordering::SeqCst);
    while a.origin.requests().len() < 5 {
        client.exchange("GET / HTTP/1.1\r\nhost: x\r\n\r\n");
    }
    a.status.store(503, Ordering::SeqCst);
    while a.origin.requests().len() < 9 {
        client.exchange("GET / HTTP/1.1\r\nhost: x\r\n\r\n");
    }
    assert_eq!(stat(&proxy, "ejections_detected_consecutive_5xx"), 0, "a good answer between them");
    while a.origin.requests().len() < 10 {
        client.exchange("GET / HTTP/1.1\r\nhost: x\r\n\r\n");
    }
    wait_until("an ejection", || is_out(&proxy, a.address()));
    wait_until("the other host alone", || answering(&proxy) == "b");
    for (name, value) in [
        ("ejections_active", 1),
        ("ejections_total", 1),
        ("ejections_consecutive_5xx", 1),
        ("ejections_detected_consecutive_5xx", 1),
        ("ejections_enforced_consecutive_5xx", 1),
        ("ejections_enforced_total", 1),
        ("ejections_detected_consecutive_gateway_failure", 1),
        ("ejections_enforced_consecutive_gateway_failure", 0),
        ("ejections_overflow", 0),
    ] {
        assert_eq!(stat(&proxy, name), value, "{name}");
    }
    assert_eq!(proxy.stats().value("cluster.origin.membership_healthy"), 1);
}

#[test]
fn a_host_comes_back_when_its_time_is_over() {
    let (a, b) = (Service::start("a", 500), Service::start("b", 200));
    let cluster = detection(json!({"base_ejection_time": "0.3s", "consecutive_5xx": 2}));
    let proxy = Proxy::start(&config(&[a.address(), b.address()], cluster));
    let mut client = proxy.client();
    while a.origin.requests().len() < 2 {
        client.exchange("GET / HTTP/1.1\r\nhost: x\r\n\r\n");
    }
    a.status.store(200, Ordering::SeqCst);
    proxy.wait_stat("cluster.origin.outlier_detection.ejections_active", 1);
    proxy.wait_stat("cluster.origin.outlier_detection.ejections_active", 0);
    wait_until("both", || answering(&proxy) == "a,b");
    assert_eq!(told(&proxy, a.address(), "health_flags"), "healthy");
}

#[test]
fn a_host_that_cannot_be_reached_is_an_outlier() {
    let b = Service::start("b", 200);
    for split in [false, true] {
        let dead = net::refusing_address();
        let cluster = detection(json!({"consecutive_5xx": 3, "consecutive_local_origin_failure": 3,
            "split_external_local_origin_errors": split}));
        let proxy = Proxy::start(&config(&[dead, b.address()], cluster));
        let mut client = proxy.client();
        wait_until("an ejection", || {
            client.exchange("GET / HTTP/1.1\r\nhost: x\r\n\r\n");
            is_out(&proxy, dead)
        });
        wait_until("the other host alone", || answering(&proxy) == "b");
        let (origin, all) = if split { (1, 0) } else { (0, 1) };
        assert_eq!(stat(&proxy, "ejections_enforced_consecutive_local_origin_failure"), origin);
        assert_eq!(stat(&proxy, "ejections_enforced_consecutive_5xx"), all);
    }
}

#[test]
fn hosts_that_cannot_be_reached_are_left_out_only_where_that_is_enforced() {
    let b = Service::start("b", 200);
    let consecutive = json!({"consecutive_local_origin_failure": 3});
    let percentage = json!({"interval": "1s", "consecutive_local_origin_failure": 0, "failure_percentage_minimum_hosts": 2,
        "failure_percentage_request_volume": 5, "failure_percentage_threshold": 90});
    for (rules, stat_name, enforcing) in [
        (&consecutive, "consecutive_local_origin_failure", "enforcing_consecutive_local_origin_failure"),
        (&percentage, "local_origin_failure_percentage", "enforcing_failure_percentage_local_origin"),
    ] {
        for share in [100, 0] {
            let mut rules = rules.clone();
            config::overlay(&mut rules, json!({"split_external_local_origin_errors": true, enforcing: share}));
            let dead = net::refusing_address();
            let proxy = Proxy::start(&config(&[dead, b.address()], detection(rules)));
            let mut client = proxy.client();
            let enforced = u64::from(share == 100);
            let detected = format!("ejections_detected_{stat_name}");
            wait_until(&detected, || {
                client.exchange("GET / HTTP/1.1\r\nhost: x\r\n\r\n");
                stat(&proxy, &detected) >= 1
            });
            wait_until("what is enforced", || is_out(&proxy, dead) == (share == 100));
            assert_eq!(stat(&proxy, &format!("ejections_enforced_{stat_name}")), enforced, "{enforcing}");
            assert_eq!(stat(&proxy, "ejections_enforced_total"), enforced, "{enforcing}");
        }
    }
}

#[test]
fn one_host_may_be_left_out_whatever_their_share() {
    for (always, ejections) in [(true, 1), (false, 0)] {
        let services = ["a", "b", "c"].map(|name| Service::start(name, 500));
        let addresses: Vec<SocketAddr> = services.iter().map(Service::address).collect();
        let rules = json!({"consecutive_5xx": 2, "max_ejection_percent": 0, "always_eject_one_host": always});
        let proxy = Proxy::start(&config(&addresses, detection(rules)));
        let mut client = proxy.client();
        wait_until("more than may be left out", || {
            client.exchange("GET / HTTP/1.1\r\nhost: x\r\n\r\n");
            stat(&proxy, "ejections_overflow") >= 2
        });
        assert_eq!(stat(&proxy, "ejections_enforced_total"), ejections);
        assert_eq!(addresses.iter().filter(|address| is_out(&proxy, **address)).count() as u64, ejections);
    }
}

#[test]
fn too_slow_an_answer_is_a_bad_one() {
    let (slow, b) = (Origin::silent(), Service::start("b", 200));
    let route = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin", "timeout": "0.3s"}}]);
    let cluster = detection(json!({"enforcing_consecutive_gateway_failure": 100, "consecutive_5xx": 0,
        "consecutive_gateway_failure": 2}));
    let config = Config::routes(route).cluster_with("origin", &[slow.address, b.address()], cluster);
    let proxy = Proxy::start(&config);
    let mut client = proxy.client();
    wait_until("an ejection", || {
        client.exchange("GET / HTTP/1.1\r\nhost: x\r\n\r\n");
        is_out(&proxy, slow.address)
    });
    assert_eq!(stat(&proxy, "ejections_enforced_consecutive_gateway_failure"), 1);
}

#[test]
fn what_success_rates_are_compared_with_is_shown_for_clusters_with_detection() {
    let services: Vec<Service> = [("a", 200), ("b", 200), ("c", 500)].map(|(name, it)| Service::start(name, it)).into();
    let mut addresses: Vec<SocketAddr> = services.iter().map(Service::address).collect();
    addresses.push(net::refusing_address());
    let rules = json!({"consecutive_5xx": 0, "consecutive_gateway_failure": 0, "consecutive_local_origin_failure": 0,
        "success_rate_request_volume": 5, "interval": "1s", "success_rate_minimum_hosts": 3, "success_rate_stdev_factor": 500,
        "enforcing_success_rate": 0, "enforcing_local_origin_success_rate": 0, "failure_percentage_minimum_hosts": 100,
        "split_external_local_origin_errors": true});
    let proxy = Proxy::start(&config(&addresses, detection(rules)).cluster("plain", &[services[0].address()]));
    let shown = |what: &str| {
        let text = proxy.admin_get("/clusters").text().to_owned();
        let start = format!("{what}::outlier::");
        text.lines().filter_map(|line| line.strip_prefix(&start)).map(str::to_owned).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        shown("origin"),
        "success_rate_average::-1 success_rate_ejection_threshold::-1 local_origin_success_rate_average::-1 \
         local_origin_success_rate_ejection_threshold::-1"
    );
    assert_eq!(shown("plain"), "");
    // 100, 100 and 0 per cent of answers; of the connections, three times 100 and 0.
    let expected = "success_rate_average::66.6667 success_rate_ejection_threshold::43.0964 \
                    local_origin_success_rate_average::75 local_origin_success_rate_ejection_threshold::53.3494";
    wait_until("an interval with enough requests", || {
        (0..60).for_each(|_| drop(proxy.get("/")));
        shown("origin") == expected
    });
    // JSON protobuf leaves out a zero within a message, and the message where there is none.
    let percent = |message: &Value| match message {
        Value::Null => -1.0,
        message => message["value"].as_f64().unwrap_or(0.0),
    };
    let rounded = |message: &Value| (percent(message) * 10_000.0).round() / 10_000.0;
    wait_until("the same as JSON", || {
        (0..60).for_each(|_| drop(proxy.get("/")));
        let json: Value = serde_json::from_str(proxy.admin_get("/clusters?format=json").text()).expect("JSON");
        let clusters = json["cluster_statuses"].as_array().expect("clusters");
        let found = |name: &str| clusters.iter().find(|cluster| cluster["name"] == name).expect("the cluster");
        let (origin, plain) = (found("origin"), found("plain"));
        assert_eq!(percent(&plain["success_rate_ejection_threshold"]), -1.0);
        let hosts = origin["host_statuses"].as_array().expect("hosts");
        let rates = |which: &str| hosts.iter().map(|host| percent(&host[which])).collect::<Vec<_>>();
        rounded(&origin["success_rate_ejection_threshold"]) == 43.0964
            && rounded(&origin["local_origin_success_rate_ejection_threshold"]) == 53.3494
            && rates("success_rate") == [100.0, 100.0, 0.0, -1.0]
            && rates("local_origin_success_rate") == [100.0, 100.0, 100.0, 0.0]
    });
}

#[test]
fn a_host_that_succeeds_less_often_than_the_others_is_an_outlier() {
    let services: Vec<Service> = ["a", "b", "c", "d", "e"].map(|name| Service::start(name, 200)).into();
    services[4].status.store(500, Ordering::SeqCst);
    let addresses: Vec<SocketAddr> = services.iter().map(Service::address).collect();
    let directory = TempDir::new();
    let path = directory.path().join("ejections");
    let cluster = detection(json!({"consecutive_5xx": 0, "success_rate_request_volume": 5, "interval": "1s",
        "success_rate_minimum_hosts": 5}));
    let config = config(&addresses, cluster)
        .overlay(json!({"cluster_manager": {"outlier_detection": {"event_log_path": path}}}));
    let launch = Launch::default().with_arguments(&["--file-flush-interval-msec", "20"]);
    let proxy = Proxy::start_with(&config, launch);
    let mut client = proxy.client();
    let mut rates = Vec::new();
    wait_until("an ejection", || {
        for _ in 0..50 {
            client.exchange("GET / HTTP/1.1\r\nhost: x\r\n\r\n");
        }
        rates.push(told(&proxy, addresses[0], "success_rate"));
        is_out(&proxy, addresses[4])
    });
    assert_eq!(stat(&proxy, "ejections_enforced_success_rate"), 1);
    assert_eq!(told(&proxy, addresses[0], "success_rate"), "100", "{rates:?}");
    let read = || std::fs::read_to_string(&path).unwrap_or_default();
    wait_until("an event", || read().ends_with('\n'));
    let event: Value = serde_json::from_str(read().lines().next().expect("a line")).expect("JSON");
    let expected = json!({
        "type": "SUCCESS_RATE",
        "timestamp": event["timestamp"],
        "cluster_name": "origin",
        "upstream_url": addresses[4].to_string(),
        "action": "EJECT",
        "num_ejections": 1,
        "enforced": true,
        "eject_success_rate_event": {
            "host_success_rate": 0,
            "cluster_average_success_rate": 80,
            "cluster_success_rate_ejection_threshold": 4,
        },
    });
    assert_eq!(event, expected);
}

#[test]
fn events_are_logged_as_envoy_does() {
    let (a, b) = (Service::start("a", 500), Service::start("b", 200));
    let directory = TempDir::new();
    let path = directory.path().join("ejections");
    let cluster = detection(json!({"base_ejection_time": "0.1s", "consecutive_5xx": 2}));
    let config = config(&[a.address(), b.address()], cluster)
        .overlay(json!({"cluster_manager": {"outlier_detection": {"event_log_path": path}}}));
    let launch = Launch::default().with_arguments(&["--file-flush-interval-msec", "20"]);
    let proxy = Proxy::start_with(&config, launch);
    let mut client = proxy.client();
    while a.origin.requests().len() < 2 {
        client.exchange("GET / HTTP/1.1\r\nhost: x\r\n\r\n");
    }
    let read = || std::fs::read_to_string(&path).unwrap_or_default();
    wait_until("both events", || read().matches('\n').count() >= 2);
    let text = read();
    let lines: Vec<&str> = text.lines().collect();
    let url = a.address();
    let start = "{\"type\":\"CONSECUTIVE_5XX\",";
    assert!(lines[0].starts_with(start) && lines[1].starts_with(start), "{text}");
    let tail = format!(
        "\"cluster_name\":\"origin\",\"upstream_url\":\"{url}\",\"action\":\"EJECT\",\"num_ejections\":1,\"enforced\":true,\"eject_consecutive_event\":{{}}}}"
    );
    assert!(lines[0].replace(' ', "").ends_with(&tail), "{text}");
    let event: Value = serde_json::from_str(lines[1]).expect("JSON");
    assert_eq!(
        (&event["action"], &event["num_ejections"], &event["enforced"]),
        (&json!("UNEJECT"), &json!(1), &json!(false))
    );
    assert_eq!(event["secs_since_last_action"], json!("0"));
}

#[test]
fn a_passed_check_brings_a_host_back_unless_it_may_not() {
    let checks = json!([{"timeout": "1s", "interval": "0.05s", "no_traffic_interval": "0.05s", "unhealthy_threshold": 1,
        "healthy_threshold": 1, "http_health_check": {"path": "/hc"}}]);
    let (a, b) = (Service::start("a", 500), Service::start("b", 200));
    for returns in [true, false] {
        let mut cluster =
            detection(json!({"consecutive_5xx": 2, "successful_active_health_check_uneject_host": returns}));
        cluster["health_checks"] = checks.clone();
        let proxy = Proxy::start(&config(&[a.address(), b.address()], cluster));
        let mut client = proxy.client();
        for _ in 0..4 {
            client.exchange("GET / HTTP/1.1\r\nhost: x\r\n\r\n");
        }
        wait_until("an ejection", || stat(&proxy, "ejections_enforced_total") >= 1);
        if returns {
            proxy.wait_stat("cluster.origin.outlier_detection.ejections_active", 0);
        } else {
            let before = proxy.stats().value("cluster.origin.health_check.success");
            wait_until("two more checks of each", || {
                proxy.stats().value("cluster.origin.health_check.success") >= before + 4
            });
            assert_eq!(stat(&proxy, "ejections_active"), 1);
        }
    }
}

#[test]
fn failures_of_all_workers_count_together_and_all_are_told() {
    let (a, b) = (Service::start("a", 500), Service::start("b", 200));
    let launch = Launch { concurrency: 2, ..Launch::default() };
    let proxy = Proxy::start_with(&config(&[a.address(), b.address()], detection(json!({}))), launch);
    let mut requests = 0;
    while a.origin.requests().len() < 5 {
        requests += 1;
        assert!(requests < 100);
        proxy.get("/");
    }
    wait_until("an ejection", || is_out(&proxy, a.address()));
    wait_until("the other host alone", || answering(&proxy) == "b" && answering(&proxy) == "b");
    assert_eq!(stat(&proxy, "ejections_enforced_total"), 1);
}

#[test]
fn connections_that_fail_count_too() {
    let (dead, origin) = (net::refusing_address(), Origin::tcp_echo("hello"));
    let tcp = json!({"stat_prefix": "t", "cluster": "origin", "max_connect_attempts": 3});
    let cluster = detection(json!({"consecutive_5xx": 2}));
    let config = Config::new().tcp("tcp", tcp).cluster_with("origin", &[dead, origin.address], cluster);
    let proxy = Proxy::start(&config);
    wait_until("an ejection", || {
        let _ = RawClient::connect(proxy.address("tcp")).read_exact(5);
        is_out(&proxy, dead)
    });
    assert_eq!(stat(&proxy, "ejections_enforced_consecutive_5xx"), 1);
}

#[test]
fn the_cluster_says_itself_which_answers_are_bad() {
    // `a` answers well by its status, and its answers are named bad; those of `b` are no failures, whatever their status.
    let (a, b) = (Service::start("a", 218), Service::start("b", 503));
    let header = |name: &str, value: &str| json!({"headers": [{"name": name, "string_match": {"exact": value}}]});
    let matcher = json!({"or_match": {"rules": [
        {"http_response_headers_match": header(":status", "218")},
        {"and_match": {"rules": [
            {"http_response_headers_match": header(":status", "503")},
            {"http_response_headers_match": header("x-bad", "yes")},
        ]}},
    ]}});
    let mut cluster = config::upstream_http_options(json!({"outlier_detection": {"error_matcher": matcher}}));
    config::overlay(&mut cluster, detection(json!({"consecutive_5xx": 3})));
    let proxy = Proxy::start(&config(&[a.address(), b.address()], cluster));
    let mut client = proxy.client();
    while a.origin.requests().len() < 3 {
        client.exchange("GET / HTTP/1.1\r\nhost: x\r\n\r\n");
    }
    wait_until("an ejection", || is_out(&proxy, a.address()));
    wait_until("the other host alone", || answering(&proxy) == "b");
    assert!(b.origin.requests().len() >= 8 && !is_out(&proxy, b.address()));
    let counted = ["ejections_enforced_consecutive_5xx", "ejections_detected_consecutive_gateway_failure"];
    assert_eq!(counted.map(|name| stat(&proxy, name)), [1, 0]);
}

#[test]
fn a_host_that_says_it_is_degraded_gets_less_for_a_while() {
    let says = Arc::new(AtomicU16::new(1));
    let said = says.clone();
    let a = Origin::start(move |connection| {
        while connection.request().is_some() {
            let degraded = if said.load(Ordering::SeqCst) == 1 { "x-envoy-degraded: \r\n" } else { "" };
            connection.write(format!("HTTP/1.1 200 OK\r\n{degraded}content-length: 1\r\n\r\na").as_bytes());
        }
    });
    let b = Service::start("b", 200);
    let directory = TempDir::new();
    let log = directory.path().join("events");
    let mut fields = detection(json!({"detect_degraded_hosts": true, "base_ejection_time": "0.3s"}));
    config::overlay(&mut fields, json!({"common_lb_config": {"update_merge_window": "0s"}}));
    let config = config(&[a.address, b.address()], fields)
        .overlay(json!({"cluster_manager": {"outlier_detection": {"event_log_path": log}}}));
    let proxy = Proxy::start_with(&config, Launch::default().with_arguments(&["--file-flush-interval-msec", "20"]));
    let mut client = proxy.client();
    while a.requests().is_empty() {
        client.exchange("GET / HTTP/1.1\r\nhost: x\r\n\r\n");
    }
    says.store(0, Ordering::SeqCst);
    proxy.wait_stat("cluster.origin.outlier_detection.ejections_detected_degradation", 1);
    let events = || std::fs::read_to_string(&log).unwrap_or_default();
    wait_until("it is well again", || {
        told(&proxy, a.address, "health_flags") == "healthy" && events().lines().count() == 2
    });
    let began = format!(
        "\"cluster_name\":\"origin\",\"upstream_url\":\"{}\",\"action\":\"EJECT\",\"num_ejections\":0,\"enforced\":true,\
         \"eject_consecutive_event\":{{}}}}",
        a.address
    );
    let events = events();
    let lines: Vec<&str> = events.lines().collect();
    assert!(lines[0].starts_with("{\"type\":\"DEGRADED\"") && lines[0].ends_with(&began), "{}", lines[0]);
    assert!(lines[1].contains("\"action\":\"UNEJECT\",\"num_ejections\":0,\"enforced\":false}"), "{}", lines[1]);
    assert_eq!(stat(&proxy, "ejections_enforced_total"), 0);
    assert_eq!(answering(&proxy), "a,b");
}

#[test]
fn degraded_hosts_are_shown_and_serve_when_no_other_does() {
    let degraded = || Origin::fixed("HTTP/1.1 200 OK\r\nx-envoy-degraded: \r\ncontent-length: 1\r\n\r\na");
    let (a, b) = (degraded(), Service::start("b", 200));
    let mut fields = detection(json!({"detect_degraded_hosts": true}));
    config::overlay(&mut fields, json!({"common_lb_config": {"update_merge_window": "0s"}}));
    let proxy = Proxy::start(&config(&[a.address, b.address()], fields.clone()));
    let mut client = proxy.client();
    while a.requests().is_empty() {
        client.exchange("GET / HTTP/1.1\r\nhost: x\r\n\r\n");
    }
    wait_until("it is degraded", || told(&proxy, a.address, "health_flags") == "/degraded_outlier_detection");
    assert_eq!(proxy.stats().value("cluster.origin.membership_degraded"), 1);
    assert_eq!(proxy.stats().value("cluster.origin.membership_healthy"), 1);
    let alone = degraded();
    let proxy = Proxy::start(&config(&[alone.address], fields));
    assert_eq!(proxy.get("/").status, 200);
    wait_until("it is degraded", || told(&proxy, alone.address, "health_flags") == "/degraded_outlier_detection");
    assert_eq!(answering(&proxy), "a");
}

#[test]
fn an_answer_that_failed_made_its_host_degraded_as_well() {
    let origin = Origin::fixed("HTTP/1.1 503 Service Unavailable\r\nx-envoy-degraded: \r\ncontent-length: 1\r\n\r\na");
    let fields = detection(json!({"detect_degraded_hosts": true, "consecutive_5xx": 2}));
    let proxy = Proxy::start(&config(&[origin.address], fields));
    assert_eq!((proxy.get("/").status, proxy.get("/").status), (503, 503));
    // What the first answer said is known by then.
    proxy.wait_stat("cluster.origin.outlier_detection.ejections_detected_consecutive_5xx", 1);
    assert_eq!(proxy.stats().value("cluster.origin.outlier_detection.ejections_detected_degradation"), 0);
}

/// In the ways of the proxy's own requests: asks a host at `called`, twice.
fn asks_of_its_own(called: SocketAddr, cluster: &Value) -> Vec<(&'static str, Site)> {
    let lua = extension(
        "envoy.filters.http.lua",
        "filters.http.lua.v3.Lua",
        json!({"default_source_code": {"inline_string": r#"
            function envoy_on_request(h)
              h:httpCall("called", {[":method"]="GET", [":path"]="/", [":authority"]="a"}, nil, 300)
            end"#}}),
    );
    let authz = |mut service: Value| {
        config::overlay(&mut service, json!({"failure_mode_allow": true}));
        extension("envoy.filters.http.ext_authz", "filters.http.ext_authz.v3.ExtAuthz", service)
    };
    let over_http = authz(json!({"http_service": {
        "server_uri": {"uri": "http://a", "cluster": "called", "timeout": "0.3s"},
    }}));
    let retried = authz(json!({"http_service": {
        "server_uri": {"uri": "http://a", "cluster": "called", "timeout": "0.3s"},
        "retry_policy": {"retry_on": "reset", "num_retries": 1},
    }}));
    let over_grpc = authz(json!({"grpc_service": {"envoy_grpc": {"cluster_name": "called"}, "timeout": "0.3s"}}));
    let limited = extension(
        "envoy.filters.http.ratelimit",
        "filters.http.ratelimit.v3.RateLimit",
        json!({"domain": "d", "timeout": "0.3s", "rate_limit_service": {
            "grpc_service": {"envoy_grpc": {"cluster_name": "called"}}, "transport_api_version": "V3",
        }}),
    );
    let mirrored = json!({"cluster": "origin", "timeout": "0.3s", "request_mirror_policies": [{"cluster": "called"}]});
    let limiting =
        json!({"cluster": "origin", "rate_limits": [{"actions": [{"generic_key": {"descriptor_value": "x"}}]}]});
    let plain = json!({"cluster": "origin"});
    let mut of_h2 = cluster.clone();
    config::overlay(&mut of_h2, http2());
    [
        ("httpCall", Some(lua), &plain, cluster),
        ("ext_authz over HTTP", Some(over_http), &plain, cluster),
        ("ext_authz over HTTP, with retries", Some(retried), &plain, cluster),
        ("ext_authz over gRPC", Some(over_grpc), &plain, &of_h2),
        ("ratelimit", Some(limited), &limiting, &of_h2),
        ("mirror", None, &mirrored, cluster),
    ]
    .map(|(way, filter, route, cluster)| {
        let site = site::with(filter)
            .routes(json!([{"match": {"prefix": "/"}, "route": route}]))
            .cluster("called", &[called], cluster.clone())
            .start();
        for _ in 0..2 {
            assert_eq!(site.get("/", "").status, 200, "{way}");
        }
        (way, site)
    })
    .into()
}

/// What `/clusters` says of the host that was called.
fn told_of_called(site: &Site, what: &str) -> String {
    let text = site.proxy.admin_get("/clusters").text().to_owned();
    let mut lines = text.lines().filter(|line| line.starts_with("called::127.0.0.1:"));
    lines
        .find_map(|line| line.rsplit_once(&format!("::{what}::")))
        .map_or_else(String::new, |(_, told)| told.to_owned())
}

#[test]
fn a_host_that_fails_what_filters_ask_or_what_is_mirrored_is_an_outlier() {
    let cluster = detection(json!({"consecutive_5xx": 2, "max_ejection_percent": 100}));
    let bad = Service::start("bad", 503);
    let mute = Origin::silent();
    let closing = Origin::start(|connection| drop(connection.request()));
    for (fault, called) in [
        ("no connection", net::refusing_address()),
        ("too late", mute.address),
        ("a bad answer", bad.address()),
        ("closed", closing.address),
    ] {
        for (way, site) in asks_of_its_own(called, &cluster) {
            let what = format!("{way}: {fault}");
            wait_until(&what, || site.stat("cluster.called.outlier_detection.ejections_enforced_total") == 1);
            wait_until(&what, || told_of_called(&site, "health_flags") == "/failed_outlier_check");
            // The one that was tried again is out before the second request.
            let errors = told_of_called(&site, "rq_error").parse::<u32>().unwrap();
            assert!(errors >= 2, "{what}: {errors} errors");
            if !way.ends_with("retries") {
                assert_eq!(errors, 2, "{what}");
                let late = if fault == "too late" { "2" } else { "0" };
                assert_eq!(told_of_called(&site, "rq_timeout"), late, "{what}");
            }
        }
    }
}

#[test]
fn good_answers_to_what_filters_ask_speak_for_their_host() {
    let service = Service::start("a", 503);
    let cluster = detection(json!({"consecutive_5xx": 3, "max_ejection_percent": 100}));
    for (way, site) in asks_of_its_own(service.address(), &cluster) {
        if way.contains("gRPC") || way == "ratelimit" || way.ends_with("retries") {
            continue;
        }
        let asked = |number: u64| site.proxy.wait_stat("cluster.called.upstream_rq_completed", number);
        asked(2);
        for (number, status) in [(3, 200), (4, 503), (5, 503)] {
            service.status.store(status, Ordering::SeqCst);
            site.get("/", "");
            asked(number);
        }
        assert_eq!(site.stat("cluster.called.outlier_detection.ejections_detected_consecutive_5xx"), 0, "{way}");
        assert_eq!((told_of_called(&site, "rq_error"), told_of_called(&site, "rq_success")), ("4".into(), "1".into()));
    }
}

#[test]
fn what_is_no_answer_to_a_call_counts_as_502() {
    let garbled = Origin::fixed("garbage\r\n\r\n");
    let cluster = detection(json!({"consecutive_5xx": 2, "max_ejection_percent": 100}));
    for (way, site) in asks_of_its_own(garbled.address, &cluster) {
        // Of a try that is followed by another, and of what is no HTTP/2, it is not counted.
        if ["httpCall", "ext_authz over HTTP", "mirror"].contains(&way) {
            site.proxy.wait_stat("cluster.called.upstream_rq_502", 2);
            assert_eq!(site.stat("cluster.called.internal.upstream_rq_502"), 2, "{way}");
        }
        site.proxy.wait_stat("cluster.called.outlier_detection.ejections_enforced_total", 1);
    }
}

#[test]
fn a_call_that_its_service_refuses_counts_by_its_status() {
    let cluster = detection(json!({"consecutive_5xx": 2, "max_ejection_percent": 100}));
    for (code, ejections, errors, successes) in [(14, 1, "2", "0"), (5, 0, "0", "2")] {
        let service = GrpcOrigin::start(move |_| vec![Step::End(code, "")]);
        for (way, site) in asks_of_its_own(service.address, &cluster) {
            if way == "ratelimit" || way.ends_with("gRPC") {
                site.proxy.wait_stat("cluster.called.outlier_detection.ejections_enforced_total", ejections);
                let told = (told_of_called(&site, "rq_error"), told_of_called(&site, "rq_success"));
                assert_eq!(told, (errors.into(), successes.into()), "{way}: {code}");
            }
        }
    }
}
