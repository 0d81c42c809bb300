//! What is done when the process is short of something, as Envoy's overload manager does it.

use std::path::{Path, PathBuf};

use postrider_tests::h2_client::H2Client;
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Config, Origin, Proxy, RawClient, TempDir, wait_until};
use postrider_tests::postrider_only;
use postrider_tests::site::{self, Plan, Site};
use serde_json::{Value, json};

const INJECTED: &str = "envoy.resource_monitors.injected_resource";

/// A pressure that the test sets.
struct Pressure {
    path: PathBuf,
    folder: TempDir,
}

impl Pressure {
    fn of(share: &str) -> Pressure {
        let folder = TempDir::new();
        let pressure = Pressure { path: folder.path().join("pressure"), folder };
        pressure.set(share);
        pressure
    }

    /// In one step, as a watcher wants it.
    fn set(&self, share: &str) {
        let next = self.folder.path().join("next");
        std::fs::write(&next, share).unwrap();
        std::fs::rename(next, &self.path).unwrap();
    }
}

fn injected(path: &Path) -> Value {
    monitor(INJECTED, "injected_resource.v3.InjectedResourceConfig", json!({"filename": path}))
}

fn monitor(name: &str, kind: &str, mut fields: Value) -> Value {
    fields["@type"] = json!(format!("type.googleapis.com/envoy.extensions.resource_monitors.{kind}"));
    json!({"name": name, "typed_config": fields})
}

fn from(share: f64) -> Value {
    json!([{"name": INJECTED, "threshold": {"value": share}}])
}

fn action(name: &str, triggers: Value) -> Value {
    json!({"name": format!("envoy.overload_actions.{name}"), "triggers": triggers})
}

fn manager(fields: Value) -> Plan {
    let mut manager = json!({"refresh_interval": "0.02s"});
    for (key, value) in fields.as_object().unwrap() {
        manager[key] = value.clone();
    }
    site::with([]).whole(json!({"overload_manager": manager}))
}

fn state(site: &Site, what: &str) -> u64 {
    site.stat(&format!("overload.{what}"))
}

fn until(site: &Site, what: &str, value: u64) {
    wait_until(what, || state(site, what) == value);
}

#[test]
fn requests_are_refused_while_the_pressure_is_high() {
    let pressure = Pressure::of("0.99");
    let site = manager(json!({
        "resource_monitors": [injected(&pressure.path)],
        "actions": [
            action("stop_accepting_requests", from(0.9)),
            action("disable_http_keepalive", from(0.5)),
            action("shrink_heap", json!([{
                "name": INJECTED, "scaled": {"scaling_threshold": 0.5, "saturation_threshold": 0.9},
            }])),
        ],
        "loadshed_points": [{
            "name": "envoy.load_shed_points.http_connection_manager_decode_headers", "triggers": from(0.99),
        }],
    }))
    .manager(json!({"stat_prefix": "edge", "append_local_overload": true}))
    .start();
    until(&site, "envoy.overload_actions.stop_accepting_requests.active", 1);
    let refused = site.get("/", "");
    assert_eq!((refused.status, refused.text()), (503, "envoy overloaded"));
    assert_eq!(refused.header("x-envoy-local-overloaded"), "true");
    assert_eq!(refused.header("connection"), "close");
    assert_eq!(site.logged(1), "503 - overload");
    assert_eq!(site.origin.requests().len(), 0);
    assert_eq!(site.stat("http.edge.downstream_rq_overload_close"), 1);
    assert_eq!(state(&site, "envoy.load_shed_points.http_connection_manager_decode_headers.shed_load_count"), 1);
    pressure.set("0.6");
    until(&site, "envoy.overload_actions.stop_accepting_requests.active", 0);
    let closing = site.get("/", "");
    assert_eq!((closing.status, closing.header("connection")), (200, "close"));
    assert_eq!(site.stat("http.edge.downstream_cx_overload_disable_keepalive"), 2);
    assert_eq!(state(&site, "envoy.overload_actions.shrink_heap.scale_percent"), 25);
    assert_eq!(state(&site, &format!("{INJECTED}.pressure")), 60);
    pressure.set("0.1");
    until(&site, "envoy.overload_actions.disable_http_keepalive.active", 0);
    let kept = site.get("/", "");
    assert_eq!(kept.status, 200);
    assert!(!kept.headers.contains("connection"));
}

#[test]
fn connections_that_ended_without_keep_alive_were_not_counted_as_drained() {
    let pressure = Pressure::of("0.6");
    let site = manager(json!({
        "resource_monitors": [injected(&pressure.path)],
        "actions": [action("disable_http_keepalive", from(0.5))],
    }))
    .manager(json!({"stat_prefix": "edge"}))
    .start();
    until(&site, "envoy.overload_actions.disable_http_keepalive.active", 1);
    let counted = || {
        ["drain_close", "overload_disable_keepalive"].map(|name| site.stat(&format!("http.edge.downstream_cx_{name}")))
    };
    assert_eq!(site.get("/", "").header("connection"), "close");
    assert_eq!(counted(), [1, 1]);
    let mut client = H2Client::connect(site.proxy.address("http"));
    assert_eq!(client.get("/").status, 200);
    assert_eq!(counted(), [2, 2]);
}

#[test]
fn a_pressure_that_makes_no_sense_is_a_failed_update() {
    let pressure = Pressure::of("0.4");
    let site = manager(json!({"resource_monitors": [injected(&pressure.path)]})).start();
    until(&site, &format!("{INJECTED}.pressure"), 40);
    pressure.set("1.5");
    wait_until("a failed update", || state(&site, &format!("{INJECTED}.failed_updates")) > 0);
    assert_eq!(state(&site, &format!("{INJECTED}.pressure")), 40);
}

#[test]
fn connections_are_turned_away_or_wait() {
    let pressure = Pressure::of("0.8");
    let site = manager(json!({
        "resource_monitors": [injected(&pressure.path)],
        "actions": [
            action("reject_incoming_connections", from(0.7)),
            action("stop_accepting_connections", from(0.9)),
        ],
    }))
    .start();
    until(&site, "envoy.overload_actions.reject_incoming_connections.active", 1);
    assert!(site.proxy.client().closed());
    let address = site.proxy.address("http").to_string().replace(':', "_");
    assert_eq!(site.stat(&format!("listener.{address}.downstream_cx_overload_reject")), 1);
    pressure.set("0.95");
    until(&site, "envoy.overload_actions.stop_accepting_connections.active", 1);
    // It is in the system's queue until the pressure is gone.
    let mut client = site.proxy.client();
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(site.stat(&format!("listener.{address}.downstream_cx_total")), 0);
    pressure.set("0");
    assert_eq!(client.response("GET").unwrap().status, 200);
    assert_eq!(site.stat(&format!("listener.{address}.downstream_cx_overload_reject")), 1);
}

#[test]
fn all_listeners_together_hold_no_more_connections_than_they_may() {
    let bound = "envoy.resource_monitors.global_downstream_max_connections";
    let kind = "downstream_connections.v3.DownstreamConnectionsConfig";
    let site = manager(json!({
        "resource_monitors": [monitor(bound, kind, json!({"max_active_downstream_connections": 2}))],
    }))
    .start_with(Origin::echo("a"), Launch { concurrency: 2, ..Launch::default() });
    let address = site.proxy.address("http").to_string().replace(':', "_");
    let mut held: Vec<_> = (0..2).map(|_| site.proxy.client()).collect();
    for client in &mut held {
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        assert_eq!(client.response("GET").unwrap().status, 200);
    }
    assert!(site.proxy.client().closed());
    assert_eq!(site.stat(&format!("listener.{address}.downstream_global_cx_overflow")), 1);
    assert_eq!(state(&site, &format!("{bound}.failed_updates")), 1);
    until(&site, &format!("{bound}.pressure"), 100);
    drop(held);
    until(&site, &format!("{bound}.pressure"), 0);
    assert_eq!(site.get("/", "").status, 200);
}

#[test]
fn idle_connections_end_sooner_under_pressure() {
    let pressure = Pressure::of("0");
    let mut sooner = action("reduce_timeouts", from(0.9));
    sooner["typed_config"] = json!({
        "@type": "type.googleapis.com/envoy.config.overload.v3.ScaleTimersOverloadActionConfig",
        "timer_scale_factors": [{"timer": "HTTP_DOWNSTREAM_CONNECTION_IDLE", "min_timeout": "0.05s"}],
    });
    let site = manager(json!({"resource_monitors": [injected(&pressure.path)], "actions": [sooner]}))
        .manager(json!({"stat_prefix": "edge", "common_http_protocol_options": {"idle_timeout": "600s"}}))
        .start();
    let mut client = site.proxy.client();
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(client.response("GET").unwrap().status, 200);
    pressure.set("0.95");
    assert!(client.closed());
    assert_eq!(site.stat("http.edge.downstream_cx_idle_timeout"), 1);
}

/// Holds what requests send until it is whole.
fn buffer() -> Value {
    json!({
        "name": "envoy.filters.http.buffer",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer",
            "max_request_bytes": 1_000_000,
        },
    })
}

/// A request of which so many bytes are there, and not all.
fn part_of_a_request(site: &Site, length: usize) -> postrider_tests::kit::RawClient {
    let mut client = site.proxy.client();
    client.send(format!("POST /{length} HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n", length + 1));
    client.send("a".repeat(length));
    client
}

#[test]
fn streams_that_hold_much_memory_are_reset_and_light_ones_stay() {
    if !postrider_only() {
        // Envoy keeps accounts of HTTP/2 alone.
        return;
    }
    // An eighth of the way: the classes from 1 MiB on.
    let pressure = Pressure::of("0.56");
    let ramp = json!([{"name": INJECTED, "scaled": {"scaling_threshold": 0.5, "saturation_threshold": 0.9}}]);
    let overload = json!({
        "refresh_interval": "0.02s",
        "buffer_factory_config": {"minimum_account_to_track_power_of_two": 14},
        "resource_monitors": [injected(&pressure.path)],
        "actions": [action("reset_high_memory_stream", ramp)],
    });
    let site = site::with([buffer()])
        .whole(json!({"overload_manager": overload}))
        .manager(json!({"stat_prefix": "edge"}))
        .log("%REQ(:PATH)% %RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS%")
        .start();
    // Accounts are kept of what begins from now on.
    until(&site, "envoy.overload_actions.reset_high_memory_stream.scale_percent", 15);
    let mut heavy = part_of_a_request(&site, 300_000);
    let mut light = part_of_a_request(&site, 5_000);
    wait_until("all of it", || site.stat("http.edge.downstream_cx_rx_bytes_total") > 305_000);
    assert_eq!(site.stat("envoy.overload_actions.reset_high_memory_stream.count"), 0);
    pressure.set("0.99");
    assert!(heavy.closed());
    assert_eq!(site.logged(1), HEAVY);
    assert_eq!(site.stat("envoy.overload_actions.reset_high_memory_stream.count"), 1);
    assert_eq!(site.stat("http.edge.downstream_rq_rx_reset"), 1);
    light.send("b");
    assert_eq!(light.response("POST").unwrap().status, 200);
    // A connection that has carried one goes on as any other.
    light.send("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    assert_eq!(light.response("GET").unwrap().status, 200);
}

const HEAVY: &str = "/300000 0 OM -";

#[test]
fn each_load_shed_point_turns_away_what_comes_to_it() {
    // Answers, and whether the connection stays, as seen of real Envoy.
    for (point, status, stays, line, counter) in [
        ("http1_server_abort_dispatch", 500, false, "500 DPE overload", "downstream_rq_overload_close"),
        ("http_downstream_filter_check", 503, true, "503 - overload", "rq_overload_local_reply"),
        (
            "connection_pool_new_connection",
            503,
            true,
            "503 UO upstream_reset_before_response_started{overflow}",
            "rq_total",
        ),
        ("http2_server_go_away_on_dispatch", 200, false, "200 - via_upstream", "rq_total"),
    ] {
        let pressure = Pressure::of("1");
        let point = format!("envoy.load_shed_points.{point}");
        let site = manager(json!({
            "resource_monitors": [injected(&pressure.path)],
            "loadshed_points": [{"name": point, "triggers": from(0.9)}],
        }))
        .manager(json!({"stat_prefix": "edge"}))
        .start();
        until(&site, &format!("{point}.scale_percent"), 100);
        let mut client = site.proxy.client();
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        let answer = client.response("GET").unwrap();
        assert_eq!((answer.status, answer.header("connection") != "close"), (status, stays), "{point}");
        assert_eq!(site.logged(1), line);
        assert_eq!(site.stat(&format!("http.edge.{counter}")), 1, "{point}");
        assert_eq!(state(&site, &format!("{point}.shed_load_count")), 1);
    }
}

#[test]
fn a_new_connection_ends_at_its_first_word_and_an_old_one_goes_on() {
    let pressure = Pressure::of("0");
    let point = "envoy.load_shed_points.hcm_ondata_creating_codec";
    let site = manager(json!({
        "resource_monitors": [injected(&pressure.path)],
        "loadshed_points": [{"name": point, "triggers": from(0.9)}],
    }))
    .manager(json!({"stat_prefix": "edge"}))
    .start();
    let request = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    let mut old = site.proxy.client();
    assert_eq!(old.exchange(request).status, 200);
    pressure.set("1");
    until(&site, &format!("{point}.scale_percent"), 100);
    assert_eq!(old.exchange(request).status, 200);
    let mut new = site.proxy.client();
    new.send(request);
    assert!(new.closed());
    assert_eq!(site.stat("http.edge.downstream_rq_overload_close"), 1);
}

/// Only connections were accepted whatever the pressure; their requests were refused.
#[test]
fn a_listener_that_bypasses_the_manager_serves_under_any_pressure() {
    let pressure = Pressure::of("1");
    let actions = [
        "stop_accepting_requests",
        "disable_http_keepalive",
        "stop_accepting_connections",
        "reject_incoming_connections",
    ];
    let points = [
        "tcp_listener_accept",
        "hcm_ondata_creating_codec",
        "http_connection_manager_decode_headers",
        "http1_server_abort_dispatch",
        "http2_server_go_away_on_dispatch",
        "http_downstream_filter_check",
    ];
    let point = |name| json!({"name": format!("envoy.load_shed_points.{name}"), "triggers": from(0.5)});
    let bound = "envoy.resource_monitors.global_downstream_max_connections";
    let most = json!({"max_active_downstream_connections": 1});
    let site = manager(json!({
        "resource_monitors": [
            injected(&pressure.path),
            monitor(bound, "downstream_connections.v3.DownstreamConnectionsConfig", most),
        ],
        "actions": actions.map(|name| action(name, from(0.5))),
        "loadshed_points": points.map(point),
    }))
    .listener(json!({"bypass_overload_manager": true}))
    .start();
    actions.iter().for_each(|name| until(&site, &format!("envoy.overload_actions.{name}.active"), 1));
    points.iter().for_each(|name| until(&site, &format!("envoy.load_shed_points.{name}.scale_percent"), 100));
    let mut clients = [site.proxy.client(), site.proxy.client()];
    for client in &mut clients {
        for _ in 0..2 {
            let answer = client.exchange("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
            assert_eq!((answer.status, answer.header("connection")), (200, ""));
        }
    }
    let mut client = H2Client::connect(site.proxy.address("http"));
    assert_eq!([client.get("/").status, client.get("/").status], [200, 200]);
}

#[test]
fn a_listener_may_be_left_out_of_the_bound_of_all_together() {
    let bound = "envoy.resource_monitors.global_downstream_max_connections";
    let most = json!({"max_active_downstream_connections": 1});
    let monitor = monitor(bound, "downstream_connections.v3.DownstreamConnectionsConfig", most);
    let answer = json!({"status": 200, "body": {"inline_string": "ok"}});
    let routes = json!([{"match": {"prefix": "/"}, "direct_response": answer}]);
    let host = json!({"route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]}});
    let config = Config::new()
        .http_named("free", host.clone())
        .http_named("bounded", host)
        .overlay_listener("free", json!({"ignore_global_conn_limit": true}))
        .overlay(json!({"overload_manager": {"resource_monitors": [monitor]}}));
    let proxy = Proxy::start(&config);
    let serves = |listener: &str| {
        let mut client = RawClient::connect(proxy.address(listener));
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        client.response("GET").is_ok_and(|answer| answer.status == 200).then_some(client)
    };
    let free = [serves("free"), serves("free")];
    let bounded = serves("bounded");
    assert!(free.iter().chain([&bounded]).all(Option::is_some));
    assert!(serves("bounded").is_none());
    assert!(serves("free").is_some());
}
