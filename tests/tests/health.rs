//! Active health checks: what is asked, what an answer means, and where traffic goes then.

use postrider_tests::get;
use postrider_tests::h2_origin::H2Origin;
use postrider_tests::kit::config::{self, Config};
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Origin, Proxy, RawClient, TempDir, net, wait_until};
use postrider_tests::tls::{Authority, upstream};
use postrider_tests::tls_origin::Serving;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// An origin that answers checks with a status that may change, and everything else with its name.
struct Service {
    origin: Origin,
    status: Arc<AtomicU16>,
}

impl Service {
    fn start(name: &str, status: u16) -> Service {
        let state = Arc::new(AtomicU16::new(status));
        let (name, seen) = (name.to_owned(), state.clone());
        let origin = Origin::start(move |connection| {
            while let Some(request) = connection.request() {
                let status = if request.target.starts_with("/hc") { seen.load(Ordering::SeqCst) } else { 200 };
                let body = if request.target.starts_with("/hc") { "all is well" } else { &name };
                let answer = format!(
                    "HTTP/1.1 {status} X\r\nx-envoy-upstream-healthchecked-cluster: {name}\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                );
                connection.write(answer.as_bytes());
            }
        });
        Service { origin, status: state }
    }

    fn set(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }
}

/// A check every few milliseconds, overlaid with `fields`.
fn check(fields: Value) -> Value {
    let mut check = json!({
        "timeout": "1s",
        "interval": "0.03s",
        "no_traffic_interval": "0.03s",
        "unhealthy_threshold": 2,
        "healthy_threshold": 2,
    });
    config::overlay(&mut check, fields);
    json!({"health_checks": [check]})
}

fn http(fields: Value) -> Value {
    let mut http = json!({"path": "/hc"});
    config::overlay(&mut http, fields);
    check(json!({"http_health_check": http}))
}

fn config(endpoints: &[SocketAddr], cluster: Value) -> Config {
    Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]))
        .cluster_with("origin", endpoints, cluster)
}

fn stat(proxy: &Proxy, name: &str) -> u64 {
    proxy.stats().value(&format!("cluster.origin.{name}"))
}

fn flags(proxy: &Proxy, address: SocketAddr) -> String {
    let text = proxy.admin_get("/clusters").text().to_owned();
    let start = format!("origin::{address}::health_flags::");
    text.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or_default().to_owned()
}

/// Who answers a few requests.
fn answering(proxy: &Proxy) -> String {
    let mut names: Vec<String> = (0..8).map(|_| proxy.get("/").text().to_owned()).collect();
    names.sort();
    names.dedup();
    names.join(",")
}

#[test]
fn traffic_goes_to_hosts_that_pass_their_checks() {
    let (a, b) = (Service::start("a", 200), Service::start("b", 500));
    let proxy = Proxy::start(&config(&[a.origin.address, b.origin.address], http(json!({}))));
    // The proxy is not ready before every host was checked once.
    assert!(stat(&proxy, "health_check.attempt") >= 2);
    assert_eq!(answering(&proxy), "a");
    assert_eq!(flags(&proxy, a.origin.address), "healthy");
    assert_eq!(flags(&proxy, b.origin.address), "/failed_active_hc");
    for (name, value) in [("membership_total", 2), ("membership_healthy", 1), ("health_check.healthy", 1)] {
        assert_eq!(stat(&proxy, name), value, "{name}");
    }
    b.set(200);
    proxy.wait_stat("cluster.origin.membership_healthy", 2);
    assert_eq!(answering(&proxy), "a,b");
    a.set(503);
    proxy.wait_stat("cluster.origin.membership_healthy", 1);
    wait_until("the other host alone", || answering(&proxy) == "b");
    assert!(stat(&proxy, "health_check.failure") >= 1 && stat(&proxy, "health_check.network_failure") == 0);
}

#[test]
fn every_worker_knows_what_one_finds_out() {
    let (a, b) = (Service::start("a", 200), Service::start("b", 500));
    let endpoints = [a.origin.address, b.origin.address];
    let launch = Launch { concurrency: 2, ..Launch::default() };
    let proxy = Proxy::start_with(&config(&endpoints, http(json!({}))), launch);
    assert_eq!(answering(&proxy), "a");
    a.set(500);
    b.set(200);
    wait_until("the other host alone", || answering(&proxy) == "b");
}

#[test]
fn a_host_that_has_just_become_healthy_begins_with_little() {
    let (a, b) = (Service::start("a", 200), Service::start("b", 500));
    const WINDOW: Duration = Duration::from_secs(3);
    let mut cluster = http(json!({}));
    cluster["round_robin_lb_config"] = json!({"slow_start_config": {"slow_start_window": "3s"}});
    let proxy = Proxy::start(&config(&[a.origin.address, b.origin.address], cluster));
    let begun = |since: Instant| wait_until("the whole weight", || since.elapsed() > WINDOW);
    begun(Instant::now());
    b.set(200);
    proxy.wait_stat("cluster.origin.membership_healthy", 2);
    let healthy = Instant::now();
    let mut client = proxy.client();
    let mut of_newcomer = || (0..100).filter(|_| client.exchange(get("/")).text() == "b").count();
    // It begins with a tenth of its weight; a third would mean that the requests themselves took half of the window.
    let (first, then) = (of_newcomer(), {
        begun(healthy);
        of_newcomer()
    });
    assert!((1..33).contains(&first), "{first} of 100");
    // Its next turn was still reckoned by the weight that it had at the last one.
    assert!((42..=52).contains(&then), "{then} of 100");
}

#[test]
fn a_check_asks_as_it_is_told() {
    let service = Service::start("a", 200);
    let fields = json!({
        "host": "health.test",
        "path": "/hc?deep",
        "method": "POST",
        "send": {"text": "6869"},
        "request_headers_to_add": [
            {"header": {"key": "x-check", "value": "yes"}},
            {"header": {"key": "x-host", "value": "%UPSTREAM_HOST%"}},
            {"header": {"key": "x-ends", "value": "%DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%"}},
            {"header": {"key": "x-upstream", "value": "[%UPSTREAM_LOCAL_ADDRESS%%UPSTREAM_REMOTE_ADDRESS%%REQ(:path)%]"}},
            {"header": {"key": "x-protocol", "value": "%PROTOCOL%"}},
            {"header": {"key": "x-time", "value": "%START_TIME(%s.%9f)%"}},
        ],
        "request_headers_to_remove": ["user-agent"],
    });
    let _proxy = Proxy::start(&config(&[service.origin.address], http(fields)));
    service.origin.wait_requests(2);
    let requests = service.origin.requests();
    let request = &requests[1];
    assert_eq!((request.method.as_str(), request.target.as_str()), ("POST", "/hc?deep"));
    assert_eq!(
        (request.header("host"), request.header("x-check"), request.header("user-agent")),
        ("health.test", "yes", "")
    );
    assert_eq!(request.header("x-host"), service.origin.address.to_string());
    // There is no client, and what the check stands for is neither a connection nor a request.
    assert_eq!((request.header("x-ends"), request.header("x-protocol")), ("127.0.0.1:0 127.0.0.1", "HTTP/1.1"));
    assert_eq!(request.header("x-upstream"), "[]");
    assert_ne!(request.header("x-time"), requests[0].header("x-time"), "each check has a time of its own");
    assert_eq!(request.body, b"hi");
    assert_eq!(service.origin.malformed(), Vec::<String>::new());
}

#[test]
fn a_check_has_the_clusters_name_and_an_agent_of_its_own_and_keeps_its_connection() {
    let service = Service::start("a", 200);
    let _proxy = Proxy::start(&config(&[service.origin.address], http(json!({}))));
    service.origin.wait_requests(4);
    let request = service.origin.requests().remove(0);
    assert_eq!((request.header("host"), request.header("user-agent")), ("origin", "Envoy/HC"));
    assert_eq!(service.origin.connection_count(), 1);
    let fresh = Service::start("a", 200);
    let mut cluster = http(json!({}));
    cluster["health_checks"][0]["reuse_connection"] = json!(false);
    let _proxy = Proxy::start(&config(&[fresh.origin.address], cluster));
    fresh.origin.wait_connections(3);
}

#[test]
fn statuses_bodies_and_service_names_decide() {
    for (fields, status, healthy) in [
        (json!({"expected_statuses": [{"start": 200, "end": 300}]}), 299, 1),
        (json!({"expected_statuses": [{"start": 200, "end": 300}]}), 300, 0),
        (json!({}), 204, 0),
        (json!({"receive": [{"text": "616c6c"}, {"text": "77656c6c"}]}), 200, 1),
        (json!({"receive": [{"text": "77656c6c"}, {"text": "616c6c"}]}), 200, 0),
        (json!({"service_name_matcher": {"exact": "a"}}), 200, 1),
        (json!({"service_name_matcher": {"exact": "b"}}), 200, 0),
    ] {
        let service = Service::start("a", status);
        let proxy = Proxy::start(&config(&[service.origin.address], http(fields.clone())));
        assert_eq!(stat(&proxy, "health_check.healthy"), healthy, "{fields} {status}");
    }
}

#[test]
fn a_retriable_status_needs_the_threshold_and_another_does_not() {
    let service = Service::start("a", 200);
    let mut cluster = http(json!({"retriable_statuses": [{"start": 503, "end": 504}]}));
    cluster["health_checks"][0]["unhealthy_threshold"] = json!(3);
    let directory = TempDir::new();
    let path = directory.path().join("events");
    cluster["health_checks"][0]["event_log_path"] = json!(path);
    cluster["health_checks"][0]["always_log_health_check_failures"] = json!(true);
    let metadata = json!({"filter_metadata": {"envoy.lb": {"stage": "test"}}});
    let endpoint = json!({
        "endpoint": {"address": config::socket_address("127.0.0.1", service.origin.address.port())},
        "metadata": metadata,
    });
    let assignment = json!({
        "cluster_name": "origin",
        "endpoints": [{"locality": {"region": "north", "zone": "n1"}, "lb_endpoints": [endpoint]}],
    });
    config::overlay(&mut cluster, json!({"load_assignment": assignment}));
    let launch = Launch::default().with_arguments(&["--file-flush-interval-msec", "20"]);
    let _proxy = Proxy::start_with(&config(&[], cluster), launch);
    service.set(503);
    let mut events = Vec::new();
    wait_until("an ejection and what follows it", || {
        events = logged(&path);
        events.iter().rev().skip(1).any(|event| event.get("eject_unhealthy_event").is_some())
    });
    let failure = "health_check_failure_event";
    assert_eq!(kinds(&events)[..5], ["add_healthy_event", failure, failure, "eject_unhealthy_event", failure]);
    let ejected = &events[3];
    assert_eq!(ejected["health_checker_type"], "HTTP");
    assert_eq!(ejected["cluster_name"], "origin");
    assert_eq!(ejected["host"]["socket_address"]["port_value"], service.origin.address.port());
    assert_eq!(ejected["eject_unhealthy_event"], json!({"failure_type": "ACTIVE", "http_status_code": 503}));
    assert_eq!(events[0]["add_healthy_event"], json!({"first_check": true}));
    assert_eq!(ejected["locality"], json!({"region": "north", "zone": "n1", "sub_zone": ""}));
    assert_eq!(ejected["metadata"]["filter_metadata"], metadata["filter_metadata"]);
}

/// What a log of events says by now.
fn logged(path: &std::path::Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    let kind = |event: &'_ Value| event.as_object()?.keys().position(|key| key.ends_with("_event"));
    let name = |event| Some(event).and_then(kind).and_then(|at| event.as_object()?.keys().nth(at)).map(String::as_str);
    events.iter().filter_map(name).collect()
}

#[test]
fn a_host_that_fails_its_first_check_is_in_the_log_and_a_success_is_there_once() {
    let service = Service::start("a", 500);
    let directory = TempDir::new();
    let path = directory.path().join("events");
    let other = directory.path().join("other");
    let sink = json!({
        "name": "envoy.health_check.event_sink.file",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.health_check.event_sinks.file.v3.HealthCheckEventFileSink",
            "event_log_path": other,
        },
    });
    let mut cluster = http(json!({}));
    config::overlay(
        &mut cluster["health_checks"][0],
        json!({"event_log_path": path, "event_logger": [sink], "always_log_health_check_success": true}),
    );
    let launch = Launch::default().with_arguments(&["--file-flush-interval-msec", "20"]);
    let _proxy = Proxy::start_with(&config(&[service.origin.address], cluster), launch);
    let success = "successful_health_check_event";
    wait_until("the first failure", || !logged(&path).is_empty());
    service.set(200);
    wait_until("several checks", || kinds(&logged(&path)).iter().filter(|kind| **kind == success).count() >= 3);
    let events = logged(&path);
    assert_eq!(
        kinds(&events)[..5],
        ["health_check_failure_event", success, "add_healthy_event", success, success],
        "{events:?}"
    );
    let failure = json!({"failure_type": "ACTIVE", "first_check": true, "http_status_code": 500});
    assert_eq!(events[0]["health_check_failure_event"], failure);
    // Every log has every event.
    wait_until("the other log", || kinds(&logged(&other)).len() >= 5);
    assert_eq!(kinds(&logged(&other))[..5], kinds(&events)[..5]);
}

#[test]
fn a_body_that_is_not_the_right_one_fails_at_once_whatever_its_status() {
    let service = Service::start("a", 200);
    let fields = json!({"receive": [{"text": "77656c6c"}], "retriable_statuses": [{"start": 500, "end": 501}]});
    let mut cluster = http(fields);
    cluster["health_checks"][0]["unhealthy_threshold"] = json!(1000);
    let proxy = Proxy::start(&config(&[service.origin.address], cluster));
    let failed = || stat(&proxy, "health_check.failure");
    service.set(500);
    wait_until("failures that are to be tried again", || failed() >= 3);
    assert_eq!(flags(&proxy, service.origin.address), "healthy");
    let other = Origin::start(|connection| {
        let mut well = true;
        while connection.request().is_some() {
            let (status, body) = if std::mem::take(&mut well) { (200, "well") } else { (500, "ill!") };
            connection.write(format!("HTTP/1.1 {status} X\r\ncontent-length: 4\r\n\r\n{body}").as_bytes());
        }
    });
    let fields = json!({"receive": [{"text": "77656c6c"}], "retriable_statuses": [{"start": 500, "end": 501}]});
    let mut cluster = http(fields);
    cluster["health_checks"][0]["unhealthy_threshold"] = json!(1000);
    let proxy = Proxy::start(&config(&[other.address], cluster));
    wait_until("failed", || flags(&proxy, other.address) == "/failed_active_hc");
}

#[test]
fn a_host_whose_failing_check_says_so_is_left_out_of_those_that_have_to_be_well() {
    let leaving = Origin::start(|connection| {
        let mut well = true;
        while connection.request().is_some() {
            let status = if std::mem::take(&mut well) { 200 } else { 503 };
            let head = format!("HTTP/1.1 {status} X\r\nx-envoy-immediate-health-check-fail: yes\r\n");
            connection.write(format!("{head}content-length: 0\r\n\r\n").as_bytes());
        }
    });
    let proxy = Proxy::start(&config(&[leaving.address], http(json!({}))));
    let wanted = "/failed_active_hc/excluded_via_immediate_hc_fail";
    wait_until(wanted, || flags(&proxy, leaving.address) == wanted);
    proxy.wait_stat("cluster.origin.membership_excluded", 1);
    assert_eq!(stat(&proxy, "health_check.passive_failure"), 0);
}

#[test]
fn a_host_that_changes_at_once_is_checked_again_without_the_interval_of_an_edge() {
    let service = Service::start("a", 200);
    let mut cluster = http(json!({}));
    let fields = json!({
        "healthy_edge_interval": "600s",
        "unhealthy_edge_interval": "600s",
        "healthy_threshold": 1,
        "unhealthy_threshold": 1,
    });
    config::overlay(&mut cluster["health_checks"][0], fields);
    let proxy = Proxy::start(&config(&[service.origin.address], cluster));
    // From now on the cluster has had traffic.
    assert_eq!(proxy.get("/").status, 200);
    for (status, wanted) in [(503, "/failed_active_hc"), (200, "healthy"), (503, "/failed_active_hc")] {
        service.set(status);
        wait_until(wanted, || flags(&proxy, service.origin.address) == wanted);
    }
}

#[test]
fn a_host_that_cannot_be_reached_fails_and_others_take_its_traffic() {
    let service = Service::start("a", 200);
    let dead = net::refusing_address();
    let proxy = Proxy::start(&config(&[dead, service.origin.address], http(json!({}))));
    assert_eq!(answering(&proxy), "a");
    assert_eq!(flags(&proxy, dead), "/failed_active_hc");
    assert!(stat(&proxy, "health_check.network_failure") >= 1);
}

#[test]
fn a_check_that_takes_too_long_fails() {
    let origin = Origin::silent();
    let mut cluster = http(json!({}));
    cluster["health_checks"][0]["timeout"] = json!("0.1s");
    let proxy = Proxy::start(&config(&[origin.address], cluster));
    assert_eq!(flags(&proxy, origin.address), "/failed_active_hc/active_hc_timeout");
}

#[test]
fn when_too_few_hosts_pass_all_are_used_unless_told_otherwise() {
    let (a, b) = (Service::start("a", 500), Service::start("b", 500));
    let endpoints = [a.origin.address, b.origin.address];
    let proxy = Proxy::start(&config(&endpoints, http(json!({}))));
    assert_eq!(answering(&proxy), "a,b");
    // They were counted up to a second later.
    let before = stat(&proxy, "lb_healthy_panic");
    (0..3).for_each(|_| assert_eq!(proxy.get("/").status, 200));
    assert_eq!((before >= 8, stat(&proxy, "lb_healthy_panic")), (true, before + 3));
    let mut strict = http(json!({}));
    config::overlay(&mut strict, json!({"common_lb_config": {"healthy_panic_threshold": {"value": 0}}}));
    let proxy = Proxy::start(&config(&endpoints, strict));
    let response = proxy.get("/");
    assert_eq!((response.status, response.text()), (503, "no healthy upstream"));
}

#[test]
fn the_next_priority_takes_what_the_first_cannot() {
    let (a, b) = (Service::start("a", 200), Service::start("b", 200));
    let endpoint = |service: &Service| {
        let address = service.origin.address;
        json!({"endpoint": {"address": config::socket_address("127.0.0.1", address.port())}})
    };
    let mut cluster = http(json!({}));
    config::overlay(
        &mut cluster,
        json!({"load_assignment": {"endpoints": [
            {"priority": 0, "lb_endpoints": [endpoint(&a)]},
            {"priority": 1, "lb_endpoints": [endpoint(&b)]},
        ]}}),
    );
    let proxy = Proxy::start(&config(&[], cluster));
    assert_eq!(answering(&proxy), "a");
    a.set(500);
    wait_until("the other priority", || answering(&proxy) == "b");
}

#[test]
fn an_endpoint_has_a_port_for_checks_or_none_at_all() {
    let (serving, checked) = (Service::start("a", 500), Service::start("hc", 200));
    let endpoint = |check: Value| {
        let mut endpoint = json!({"address": config::socket_address("127.0.0.1", serving.origin.address.port())});
        config::overlay(&mut endpoint, json!({"health_check_config": check}));
        json!({"load_assignment": {"endpoints": [{"lb_endpoints": [{"endpoint": endpoint}]}]}})
    };
    let mut cluster = http(json!({}));
    config::overlay(
        &mut cluster,
        endpoint(json!({"port_value": checked.origin.address.port(), "hostname": "own.test"})),
    );
    let proxy = Proxy::start(&config(&[], cluster));
    assert_eq!(stat(&proxy, "health_check.healthy"), 1);
    assert_eq!(checked.origin.requests()[0].header("host"), "own.test");
    assert_eq!(answering(&proxy), "a");
    // An address of its own has its own port, unless a port is said beside it.
    let (served, asked) = (serving.origin.address.port(), checked.origin.address.port());
    for (at, port, healthy) in [(asked, None, 1), (served, None, 0), (served, Some(asked), 1), (asked, Some(served), 0)]
    {
        let mut cluster = http(json!({}));
        let own = json!({"address": config::socket_address("127.0.0.1", at), "port_value": port.unwrap_or(0)});
        config::overlay(&mut cluster, endpoint(own));
        let proxy = Proxy::start(&config(&[], cluster));
        assert_eq!(stat(&proxy, "health_check.healthy"), healthy, "{at} {port:?}");
    }
    let mut cluster = http(json!({}));
    config::overlay(&mut cluster, endpoint(json!({"disable_active_health_check": true})));
    let proxy = Proxy::start(&config(&[], cluster));
    assert_eq!(flags(&proxy, serving.origin.address), "healthy");
    assert_eq!(stat(&proxy, "health_check.attempt"), 0);
}

#[test]
fn tcp_checks_connect_or_say_and_hear_what_they_are_told() {
    let good = Origin::start(|connection| {
        while connection.read_exact(4).is_some_and(|said| said == b"PING") {
            connection.write(b"+PO");
            connection.write(b"NG\r\n");
        }
    });
    let other = Origin::tcp_echo("");
    let said = json!({"send": {"text": "50494e47"}, "receive": [{"text": "504f4e47"}]});
    let cluster = check(json!({"tcp_health_check": said}));
    let mut slow = cluster.clone();
    slow["health_checks"][0]["timeout"] = json!("0.5s");
    let proxy = Proxy::start(&config(&[good.address, other.address], slow));
    assert_eq!(flags(&proxy, good.address), "healthy");
    assert!(flags(&proxy, other.address).starts_with("/failed_active_hc"));
    wait_until("checks on one connection", || good.all_bytes().len() >= 12 && good.connection_count() == 1);
    let dead = net::refusing_address();
    let proxy = Proxy::start(&config(&[other.address, dead], check(json!({"tcp_health_check": {}}))));
    assert_eq!((flags(&proxy, other.address).as_str(), flags(&proxy, dead).as_str()), ("healthy", "/failed_active_hc"));
}

#[test]
fn grpc_checks_ask_for_a_service() {
    for (service, healthy) in [("", 1), ("up", 1), ("down", 0), ("twice", 0), ("early", 0), ("unending", 0)] {
        let origin = H2Origin::start(100);
        let options = config::upstream_http_options(
            json!({"explicit_http_config": {"http_protocol_options": null, "http2_protocol_options": {}}}),
        );
        let mut cluster = check(json!({"grpc_health_check": {"service_name": service}}));
        config::overlay(&mut cluster, options);
        let proxy = Proxy::start(&config(&[origin.address], cluster));
        assert_eq!(stat(&proxy, "health_check.healthy"), healthy, "{service}");
        wait_until("another check", || stat(&proxy, "health_check.attempt") >= 3);
        assert_eq!(stat(&proxy, "health_check.network_failure"), 0, "{service}");
        assert_eq!(origin.connections(), 1, "{service}");
        let asked = origin.checks().remove(0);
        let field = |name: &str| asked.get(name).map(|value| value.to_str().expect("a text"));
        assert_eq!(
            (field("grpc-timeout"), field("te"), field("content-length")),
            (Some("1000m"), Some("trailers"), None)
        );
    }
}

#[test]
fn a_check_over_http2_and_tls_asks_for_https() {
    let authority = Authority::new("authority");
    let origin = Serving::new(&authority.issue(&["origin.test"])).offering(&["h2"]).start();
    let tls = upstream(json!({
        "sni": "origin.test",
        "common_tls_context": {"validation_context": {"trusted_ca": {"inline_string": authority.pem()}}},
    }));
    let mut cluster = http(json!({"codec_client_type": "HTTP2", "method": "POST"}));
    config::overlay(&mut cluster, json!({"transport_socket": tls}));
    let _proxy = Proxy::start(&config(&[origin.address], cluster));
    // `:method: POST` and `:scheme: https` by their numbers in HPACK's table (RFC 7541, appendix A).
    wait_until("https", || origin.received().windows(2).any(|pair| pair == [0x83, 0x87]));
}

#[test]
fn http_checks_speak_http2_where_they_are_told() {
    let origin = H2Origin::start(100);
    let proxy = Proxy::start(&config(&[origin.address], http(json!({"codec_client_type": "HTTP2"}))));
    assert_eq!(stat(&proxy, "health_check.healthy"), 1);
}

/// Two checks of one host, each with a status that may change.
struct Halves {
    origin: Origin,
    statuses: [Arc<AtomicU16>; 2],
}

impl Halves {
    fn start() -> Halves {
        let statuses: [Arc<AtomicU16>; 2] = [Arc::new(AtomicU16::new(200)), Arc::new(AtomicU16::new(200))];
        let seen = statuses.clone();
        let origin = Origin::start(move |connection| {
            while let Some(request) = connection.request() {
                let status = match request.target.as_str() {
                    "/one" => seen[0].load(Ordering::SeqCst),
                    "/two" => seen[1].load(Ordering::SeqCst),
                    _ => 200,
                };
                connection.write(format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n").as_bytes());
            }
        });
        Halves { origin, statuses }
    }
}

fn named(name: &str) -> Value {
    let path = format!("/{name}");
    check(json!({"name": name, "http_health_check": {"path": path}}))["health_checks"][0].clone()
}

#[test]
fn a_host_with_several_checks_has_to_pass_all_of_them() {
    let halves = Halves::start();
    let cluster = json!({
        "health_checks": [named("one"), named("two")],
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
    });
    let proxy = Proxy::start(&config(&[halves.origin.address], cluster));
    let own = |name: &str, what: &str| stat(&proxy, &format!("health_check.name.{name}.{what}"));
    wait_until("healthy", || proxy.get("/").status == 200);
    for (one, two, status) in [(500, 200, 503), (500, 500, 503), (200, 500, 503), (200, 200, 200)] {
        halves.statuses[0].store(one, Ordering::SeqCst);
        halves.statuses[1].store(two, Ordering::SeqCst);
        let healthy = |status: u16| u64::from(status == 200);
        wait_until(&format!("{one} and {two}"), || {
            (own("one", "healthy"), own("two", "healthy")) == (healthy(one), healthy(two))
        });
        wait_until(&format!("{status} for {one} and {two}"), || proxy.get("/").status == status);
        assert_eq!(stat(&proxy, "health_check.healthy"), healthy(status));
        assert_eq!(flags(&proxy, halves.origin.address).contains("failed_active_hc"), status != 200);
    }
    assert!(own("one", "attempt") > 3 && own("two", "attempt") > 3);
    assert!(own("one", "failure") > 0 && own("two", "success") > 0);
}

#[test]
fn a_changed_check_is_taken_over_by_a_reload() {
    let service = Service::start("a", 500);
    let mut proxy = Proxy::start(&config(&[service.origin.address], http(json!({}))));
    assert_eq!(stat(&proxy, "health_check.healthy"), 0);
    if postrider_tests::envoy() {
        return;
    }
    let tolerant = http(json!({"expected_statuses": [{"start": 500, "end": 501}]}));
    let entry = proxy.reload(config(&[service.origin.address], tolerant).to_yaml());
    assert!(postrider_tests::kit::proxy::accepted(&entry), "{entry}");
    assert_eq!(stat(&proxy, "health_check.healthy"), 1);
    let none = config(&[service.origin.address], json!({}));
    proxy.reload(none.to_yaml());
    service.origin.forget();
    assert_eq!(proxy.get("/").status, 200);
    assert_eq!(flags(&proxy, service.origin.address), "healthy");
}

#[test]
fn connections_of_the_tcp_proxy_end_with_the_health_of_their_host_where_that_is_wanted() {
    for closes in [true, false] {
        let service = Service::start("a", 200);
        let tunnel = Origin::tcp_echo("hi");
        let own = json!({"health_check_config": {"port_value": service.origin.address.port()}});
        let mut endpoint = json!({"address": config::socket_address("127.0.0.1", tunnel.address.port())});
        config::overlay(&mut endpoint, own);
        let mut cluster = http(json!({}));
        config::overlay(
            &mut cluster,
            json!({
                "close_connections_on_host_health_failure": closes,
                "load_assignment": {"cluster_name": "origin", "endpoints": [{"lb_endpoints": [{"endpoint": endpoint}]}]},
            }),
        );
        let config = Config::new().tcp("tcp", json!({"cluster": "origin"})).cluster_with("origin", &[], cluster);
        let proxy = Proxy::start(&config);
        let mut client = RawClient::connect(proxy.address("tcp"));
        assert_eq!(client.read_exact(2).unwrap(), b"hi");
        service.set(500);
        proxy.wait_stat("cluster.origin.membership_healthy", 0);
        if closes {
            assert!(client.closed());
            proxy.wait_stat("cluster.origin.upstream_cx_active", 0);
        } else {
            client.send("still");
            assert_eq!(client.read_exact(5).unwrap(), b"still");
        }
    }
}

#[test]
fn connections_of_a_check_offer_what_it_says_by_alpn() {
    let authority = Authority::new("authority");
    let origin = Serving::new(&authority.issue(&["origin.test"])).offering(&["http/1.1", "checks"]).start();
    let tls = upstream(json!({
        "sni": "origin.test",
        "common_tls_context": {
            "alpn_protocols": ["http/1.1"],
            "validation_context": {"trusted_ca": {"inline_string": authority.pem()}},
        },
    }));
    // A check that takes too long would come on a second connection.
    let options = json!({"timeout": "20s", "tls_options": {"alpn_protocols": ["checks"]}});
    let mut cluster = http(json!({}));
    config::overlay(&mut cluster["health_checks"][0], options);
    config::overlay(&mut cluster, json!({"transport_socket": tls}));
    let proxy = Proxy::start(&config(&[origin.address], cluster));
    assert_eq!(proxy.get("/").status, 200);
    let mut protocols: Vec<String> = origin.hellos().into_iter().map(|hello| hello.protocol).collect();
    protocols.sort();
    assert_eq!(protocols, ["checks", "http/1.1"]);
}

/// Only answers to clients counted.
#[test]
fn a_host_that_says_so_to_a_filter_or_a_mirror_fails_at_once() {
    let lua = json!({"default_source_code": {"inline_string":
        "function envoy_on_request(h) h:httpCall('service', {[':method'] = 'GET', [':path'] = '/', [':authority'] = 'a'}, '', 1000) end"}});
    let lua = config::extension("lua", "filters.http.lua.v3.Lua", lua);
    let plain = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    for filter in [Some(lua), None] {
        let resigning = Origin::start(|connection| {
            while let Some(request) = connection.request() {
                let field = if request.target == "/hc" { "" } else { "x-envoy-immediate-health-check-fail: yes\r\n" };
                connection.write(format!("HTTP/1.1 200 OK\r\n{field}content-length: 0\r\n\r\n").as_bytes());
            }
        });
        let rare =
            check(json!({"interval": "600s", "no_traffic_interval": "600s", "http_health_check": {"path": "/hc"}}));
        let mirrors = if filter.is_some() { json!([]) } else { json!([{"cluster": "service"}]) };
        let filters: Vec<Value> = filter.into_iter().chain([config::router()]).collect();
        let routes =
            json!([{"match": {"prefix": "/"}, "route": {"cluster": "plain", "request_mirror_policies": mirrors}}]);
        let config = Config::routes(routes)
            .cluster("plain", &[plain.address])
            .cluster_with("service", &[resigning.address], rare)
            .overlay_filter("http", json!({"http_filters": filters}));
        let proxy = Proxy::start(&config);
        proxy.wait_stat("cluster.service.membership_healthy", 1);
        assert_eq!(proxy.get("/").status, 200);
        proxy.wait_stat("cluster.service.membership_healthy", 0);
        proxy.wait_stat("cluster.service.health_check.passive_failure", 1);
    }
}

#[test]
fn a_host_that_says_so_in_an_answer_fails_at_once() {
    let a = Service::start("a", 200);
    let resigning = Origin::start(|connection| {
        while let Some(request) = connection.request() {
            let field = if request.target == "/bye" { "x-envoy-immediate-health-check-fail: yes\r\n" } else { "" };
            connection.write(format!("HTTP/1.1 200 OK\r\n{field}content-length: 1\r\n\r\nb").as_bytes());
        }
    });
    // Checks that are far apart: nothing but the answer can have failed it, and nothing brings it back.
    let rare = check(json!({"interval": "600s", "no_traffic_interval": "600s", "http_health_check": {"path": "/hc"}}));
    let proxy = Proxy::start(&config(&[a.origin.address, resigning.address], rare));
    assert_eq!(answering(&proxy), "a,b");
    let before = stat(&proxy, "health_check.failure");
    wait_until("an answer of the one", || {
        let answer = proxy.get("/bye");
        assert_eq!(answer.status, 200);
        answer.header("x-envoy-immediate-health-check-fail") == "yes"
    });
    proxy.wait_stat("cluster.origin.membership_healthy", 1);
    assert_eq!(flags(&proxy, resigning.address), "/failed_active_hc/excluded_via_immediate_hc_fail");
    wait_until("nobody asks it any more", || answering(&proxy) == "a");
    for (name, value) in [("health_check.passive_failure", 1), ("membership_excluded", 1), ("health_check.healthy", 1)]
    {
        assert_eq!(stat(&proxy, name), value, "{name}");
    }
    assert_eq!(stat(&proxy, "health_check.failure"), before + 1);
}
