//! Envoy's runtime: values by keys, in layers, that stand in place of what the configuration writes, and that change while
//! requests are served.

use postrider_tests::kit::config::{extension, file_access_log, router};
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Config, Origin, Proxy, TempDir, wait_until};
use postrider_tests::load::Load;
use postrider_tests::{ask, envoy, get, postrider_only};
use serde_json::{Value, json};
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

/// A route that takes requests by a share which the runtime may change, and one behind it that takes the rest.
fn drawn(path: &str, key: &str) -> [Value; 2] {
    let share = json!({"default_value": {"numerator": 0}, "runtime_key": key});
    [
        json!({"match": {"path": path, "runtime_fraction": share}, "direct_response": {"status": 201}}),
        json!({"match": {"path": path}, "direct_response": {"status": 204}}),
    ]
}

fn with_layers(routes: impl IntoIterator<Item = Value>, layers: Value) -> Config {
    let routes: Vec<Value> = routes.into_iter().collect();
    Config::routes(Value::from(routes)).overlay(json!({"layered_runtime": {"layers": layers}}))
}

#[test]
fn values_stand_in_place_of_defaults() {
    let values = [
        ("whole", json!(100), 201),
        ("many", json!(150), 201),
        ("text", json!(" 100"), 201),
        ("share", json!({"numerator": 1_000_000, "denominator": "MILLION"}), 201),
        ("zero", json!(0), 204),
        ("truth", json!(true), 204),
        ("quoted", json!("true"), 204),
        ("mapping in a text", json!("{numerator: 100}"), 204),
        ("negative", json!(-5), 204),
    ];
    let routes = values.iter().enumerate().flat_map(|(at, _)| drawn(&format!("/{at}"), &format!("t.{at}")));
    let fixed: serde_json::Map<_, _> =
        values.iter().enumerate().map(|(at, (_, value, _))| (at.to_string(), value.clone())).collect();
    let proxy = Proxy::start(&with_layers(routes, json!([{"name": "fixed", "static_layer": {"t": fixed}}])));
    for (at, (name, _, status)) in values.iter().enumerate() {
        assert_eq!(proxy.get(&format!("/{at}")).status, *status, "{name}");
    }
}

#[test]
fn the_admin_changes_values_and_takes_them_back() {
    let routes = drawn("/", "some.share").into_iter().chain(drawn("/other", "other"));
    let proxy = Proxy::start(&with_layers(
        routes,
        json!([{"name": "fixed", "static_layer": {"other": 0}}, {"name": "changed", "admin_layer": {}}]),
    ));
    let status = || [proxy.get("/").status, proxy.get("/other").status];
    assert_eq!(status(), [204, 204]);
    let answer = proxy.admin_post("/runtime_modify?some.share=100&other=%7Bnumerator:%20100%7D");
    assert_eq!((answer.status, answer.text()), (200, "OK\n"));
    assert_eq!(status(), [201, 201]);
    let shown = proxy.admin_json("/runtime");
    assert_eq!(shown["layers"], json!(["fixed", "changed"]));
    let other = json!({"final_value": "{numerator: 100}", "layer_values": ["0", "{numerator: 100}"]});
    assert_eq!(shown["entries"]["other"], other);
    assert_eq!(shown["entries"]["some.share"], json!({"final_value": "100", "layer_values": ["", "100"]}));
    let stats = proxy.stats();
    assert_eq!(
        ["admin_overrides_active", "num_keys", "num_layers", "load_error"]
            .map(|name| stats.value(&format!("runtime.{name}"))),
        [1, 2, 2, 0]
    );
    assert_eq!(proxy.admin_post("/runtime_modify?some.share=&other=").status, 200);
    assert_eq!(status(), [204, 204]);
    assert_eq!(proxy.stats().value("runtime.admin_overrides_active"), 0);
}

#[test]
fn without_an_admin_layer_nothing_is_changed() {
    let proxy = Proxy::start(&with_layers(drawn("/", "a"), json!([{"name": "fixed", "static_layer": {}}])));
    let answer = proxy.admin_post("/runtime_modify?a=100");
    assert_eq!((answer.status, answer.text()), (503, "No admin layer specified"));
    assert_eq!(proxy.get("/").status, 204);
}

#[test]
fn folders_give_values_and_are_read_again_when_they_are_swapped() {
    let folder = TempDir::new();
    let root = folder.path();
    for (version, share) in [("v1", "0\n"), ("v2", "# all of them\n 100 \n")] {
        std::fs::create_dir_all(root.join(version).join("base/some")).unwrap();
        std::fs::write(root.join(version).join("base/some/share"), share).unwrap();
    }
    std::fs::create_dir_all(root.join("v2/over/mine")).unwrap();
    std::fs::write(root.join("v2/over/mine/other"), "numerator: 100\n").unwrap();
    let current = root.join("current");
    symlink("v1", &current).unwrap();
    let layers = json!([
        {"name": "base", "disk_layer": {"symlink_root": current, "subdirectory": "base"}},
        {"name": "over", "disk_layer": {"symlink_root": current, "subdirectory": "over", "append_service_cluster": true}},
    ]);
    let routes = drawn("/", "some.share").into_iter().chain(drawn("/other", "other"));
    let config = with_layers(routes, layers).overlay(json!({"node": {"id": "one", "cluster": "mine"}}));
    let proxy = Proxy::start(&config);
    let status = || [proxy.get("/").status, proxy.get("/other").status];
    assert_eq!(status(), [204, 204]);
    // A layer whose folder is not there is none.
    assert_eq!(proxy.admin_json("/runtime")["layers"], json!(["base"]));
    let counted = ["load_success", "override_dir_exists", "override_dir_not_exists"];
    assert_eq!(counted.map(|name| proxy.stats().value(&format!("runtime.{name}"))), [2, 0, 2], "twice, as in Envoy");
    symlink("v2", root.join("next")).unwrap();
    std::fs::rename(root.join("next"), &current).unwrap();
    wait_until("the new values are in force", || status() == [201, 201]);
    // Workers have them a moment before they are shown.
    wait_until("both layers are shown", || proxy.admin_json("/runtime")["layers"] == json!(["base", "over"]));
    let shown = proxy.admin_json("/runtime");
    assert_eq!(shown["entries"]["some.share"], json!({"final_value": " 100", "layer_values": [" 100", ""]}));
    proxy.wait_stat("runtime.override_dir_exists", 1);
}

#[test]
fn values_change_under_load_and_no_request_is_lost() {
    let origin = Origin::echo("a");
    let share = json!({"default_value": {"numerator": 0}, "runtime_key": "marked"});
    let config = Config::routes(json!([
        {"match": {"prefix": "/", "runtime_fraction": share}, "route": {"cluster": "origin"},
         "response_headers_to_add": [{"header": {"key": "x-mark", "value": "yes"}}]},
        {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]))
    .cluster("origin", &[origin.address])
    .overlay(json!({"layered_runtime": {"layers": [{"name": "admin", "admin_layer": {}}]}}));
    let proxy = Proxy::start(&config);
    let mut kept = proxy.client();
    let load = Load::start(proxy.address("http"), 8, "GET", get("/"));
    for turn in 0..15 {
        let (value, mark) = if turn % 2 == 0 { (100, "yes") } else { (0, "") };
        assert_eq!(proxy.admin_post(&format!("/runtime_modify?marked={value}")).status, 200);
        // Connections stay, and the next request on them has the new value.
        wait_until("the value holds", || kept.exchange(get("/")).header("x-mark") == mark);
        load.wait_progress(50);
    }
    let failures = load.finish();
    assert!(failures.is_empty(), "{} failures, first {:?}", failures.len(), failures.first());
}

#[test]
fn a_key_that_a_filter_reads_ended_the_connections_of_its_listener() {
    let fault = extension(
        "envoy.filters.http.fault",
        "filters.http.fault.v3.HTTPFault",
        json!({"abort": {"http_status": 503, "percentage": {"numerator": 100}}, "abort_percent_runtime": "faults"}),
    );
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "direct_response": {"status": 204}}]))
        .overlay_filter("http", json!({"http_filters": [fault, router()]}))
        .overlay(json!({"layered_runtime": {"layers": [{"name": "admin", "admin_layer": {}}]}}));
    let proxy = Proxy::start(&config);
    let mut kept = proxy.client();
    assert_eq!(kept.exchange(get("/")).status, 503);
    for (share, status) in [(0, 204), (100, 503), (0, 204)] {
        assert_eq!(proxy.admin_post(&format!("/runtime_modify?faults={share}")).status, 200);
        wait_until("the share holds on the kept connection", || kept.exchange(get("/")).status == status);
    }
}

#[test]
fn a_value_that_breaks_the_configuration_is_refused_and_the_last_good_one_stays() {
    if !postrider_only() {
        // Envoy goes on to the next route.
        return;
    }
    let origin = Origin::echo("a");
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"weighted_clusters": {
        "runtime_key_prefix": "weights", "clusters": [{"name": "origin", "weight": 1}],
    }}}]))
    .cluster("origin", &[origin.address])
    .overlay(json!({"layered_runtime": {"layers": [{"name": "admin", "admin_layer": {}}]}}));
    let proxy = Proxy::start(&config);
    let refused = proxy.admin_post("/runtime_modify?weights.origin=0");
    assert_eq!(refused.status, 503);
    assert!(refused.text().starts_with("the values are not in force: "), "{}", refused.text());
    assert_eq!((proxy.get("/").status, proxy.admin_json("/runtime")["entries"].clone()), (200, json!({})));
}

#[test]
fn weights_are_changed_by_their_prefix() {
    let (blue, green) = (Origin::echo("blue"), Origin::echo("green"));
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"weighted_clusters": {
        "runtime_key_prefix": "weights",
        "clusters": [{"name": "blue", "weight": 100}, {"name": "green", "weight": 0}],
    }}}]))
    .cluster("blue", &[blue.address])
    .cluster("green", &[green.address])
    .overlay(json!({"layered_runtime": {"layers": [{"name": "admin", "admin_layer": {}}]}}));
    let proxy = Proxy::start(&config);
    (0..5).for_each(|_| assert_eq!(proxy.get("/").status, 200));
    proxy.wait_stat("cluster.blue.upstream_rq_200", 5);
    assert_eq!(proxy.admin_post("/runtime_modify?weights.blue=0&weights.green=7").status, 200);
    (0..5).for_each(|_| assert_eq!(proxy.get("/").status, 200));
    proxy.wait_stat("cluster.green.upstream_rq_200", 5);
}

#[test]
fn faults_are_changed_for_all_and_for_downstream_clusters() {
    let fault = extension(
        "envoy.filters.http.fault",
        "filters.http.fault.v3.HTTPFault",
        json!({"abort": {"http_status": 501, "percentage": {"numerator": 100}}}),
    );
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "direct_response": {"status": 200}}]))
        .overlay_filter("http", json!({"http_filters": [fault, postrider_tests::kit::config::router()]}))
        .overlay(json!({"layered_runtime": {"layers": [
            {"name": "fixed", "static_layer": {"fault": {"http": {"abort": {"abort_percent": 0}}}}},
            {"name": "admin", "admin_layer": {}},
        ]}}));
    let proxy = Proxy::start(&config);
    let modify = |values: &str| assert_eq!(proxy.admin_post(&format!("/runtime_modify?{values}")).status, 200);
    let of_all = || proxy.get("/").status;
    let of_cluster = || ask(&proxy, "GET", "test", "/", "x-envoy-downstream-service-cluster: x\r\n").status;
    // Who says where he comes from has nothing of the values of all.
    assert_eq!((of_all(), of_cluster()), (200, 501));
    modify("fault.http.x.abort.abort_percent=0");
    assert_eq!((of_all(), of_cluster()), (200, 200));
    modify("fault.http.abort.abort_percent=100&fault.http.abort.http_status=505");
    assert_eq!((of_all(), of_cluster()), (505, 200));
    modify("fault.http.x.abort.abort_percent=100&fault.http.x.abort.http_status=507");
    assert_eq!((of_all(), of_cluster()), (505, 507));
    modify("fault.http.max_active_faults=0");
    assert_eq!((of_all(), of_cluster()), (200, 200));
}

#[test]
fn limits_of_clusters_have_keys_of_their_own() {
    let origin = Origin::echo("a");
    let layers = json!([
        {"name": "fixed", "static_layer": {"circuit_breakers": {"origin": {"default": {"max_requests": 0}}}}},
        {"name": "admin", "admin_layer": {}},
    ]);
    let config = Config::proxy_to(origin.address).overlay(json!({"layered_runtime": {"layers": layers}}));
    let proxy = Proxy::start(&config);
    assert_eq!(proxy.get("/").status, 503);
    assert_eq!(proxy.admin_post("/runtime_modify?circuit_breakers.origin.default.max_requests=5").status, 200);
    assert_eq!(proxy.get("/").status, 200);
}

#[test]
fn logs_take_so_many_of_the_parts_that_are_written() {
    let folder = TempDir::new();
    let path = folder.path().join("log");
    let log = json!([{
        "name": "log",
        "filter": {"runtime_filter": {"runtime_key": "log.share", "percent_sampled": {"numerator": 0, "denominator": "MILLION"}}},
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog", "path": path,
            "log_format": {"text_format_source": {"inline_string": "%REQ(:PATH)%\n"}},
        },
    }]);
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "direct_response": {"status": 200}}]))
        .overlay_filter("http", json!({"access_log": log}))
        .overlay(json!({"layered_runtime": {"layers": [{"name": "admin", "admin_layer": {}}]}}));
    let proxy = Proxy::start(&config);
    assert_eq!(proxy.get("/none").status, 200);
    assert_eq!(proxy.admin_post("/runtime_modify?log.share=1000000").status, 200);
    assert_eq!(proxy.get("/all").status, 200);
    wait_until("a line is there", || std::fs::read_to_string(&path).is_ok_and(|text| !text.is_empty()));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "/all\n");
}

#[test]
fn values_outlive_a_reload() {
    if envoy() {
        return;
    }
    let layers = json!([{"name": "admin", "admin_layer": {}}]);
    let mut proxy = Proxy::start(&with_layers(drawn("/", "a"), layers.clone()));
    assert_eq!(proxy.admin_post("/runtime_modify?a=100").status, 200);
    let more =
        drawn("/", "a").into_iter().chain([json!({"match": {"path": "/new"}, "direct_response": {"status": 200}})]);
    proxy.reload(with_layers(more, layers).to_yaml());
    wait_until("the new configuration serves", || proxy.get("/new").status == 200);
    assert_eq!(proxy.get("/").status, 201);
}

#[test]
fn a_cluster_is_taken_out_for_maintenance() {
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let folder = TempDir::new();
    let log = folder.path().join("log");
    let line = "%RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %UPSTREAM_CLUSTER% %UPSTREAM_HOST%\n";
    let format = json!({"log_format": {"text_format_source": {"inline_string": line}}});
    let to = |prefix: &str, cluster: &str| json!({"match": {"prefix": prefix}, "route": {"cluster": cluster}});
    let keys = json!({"upstream.maintenance_mode.shop": 100, "upstream.maintenance_mode.other": 0});
    let layers = json!([{"name": "fixed", "static_layer": keys}, {"name": "changed", "admin_layer": {}}]);
    let config = with_layers([to("/other", "other"), to("/", "shop")], layers)
        .cluster("shop", &[origin.address])
        .cluster("other", &[origin.address])
        .overlay_filter("http", json!({"access_log": [file_access_log(&log, format)]}));
    let proxy = Proxy::start_with(&config, Launch::default().with_arguments(&["--file-flush-interval-msec", "20"]));
    let refused = proxy.get("/");
    assert_eq!((refused.status, refused.text()), (503, "maintenance mode"));
    assert_eq!(refused.header("x-envoy-overloaded"), "true");
    assert_eq!(proxy.get("/other").status, 200);
    assert_eq!(origin.requests().len(), 1);
    let lines = || std::fs::read_to_string(&log).unwrap_or_default();
    wait_until("both are logged", || lines().lines().count() == 2);
    assert!(lines().starts_with("503 UO maintenance_mode shop -\n"), "{}", lines());
    let stats = proxy.stats();
    let counted = ["upstream_rq_maintenance_mode", "upstream_rq_503", "upstream_rq_total"];
    assert_eq!(counted.map(|name| stats.value(&format!("cluster.shop.{name}"))), [1, 1, 0]);
    assert_eq!(stats.value("cluster.other.upstream_rq_maintenance_mode"), 0);
    assert_eq!(proxy.admin_post("/runtime_modify?upstream.maintenance_mode.shop=0").status, 200);
    assert_eq!(proxy.get("/").status, 200);
}

#[test]
fn retries_are_switched_off_by_upstream_use_retry() {
    let origin = Origin::start(|connection| {
        while let Some(request) = connection.request() {
            let status = if request.headers.value("x-envoy-attempt-count") == Some("1") { 503 } else { 200 };
            connection.write(format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n").as_bytes());
        }
    });
    let retry = json!({"retry_on": "5xx", "num_retries": 2, "retry_back_off": {"base_interval": "0.001s"}});
    let route = json!({"match": {"prefix": "/"}, "route": {"cluster": "origin", "retry_policy": retry}});
    let config = Config::routes(json!([route]))
        .cluster("origin", &[origin.address])
        .overlay(json!({"layered_runtime": {"layers": [{"name": "admin", "admin_layer": {}}]}}))
        .overlay_filter(
            "http",
            json!({"route_config": {"virtual_hosts": [{
                "name": "all", "domains": ["*"], "include_request_attempt_count": true, "routes": [route],
            }]}}),
        );
    let proxy = Proxy::start(&config);
    for (change, status) in [("", 200), ("upstream.use_retry=0", 503), ("upstream.use_retry=100", 200)] {
        if !change.is_empty() {
            assert_eq!(proxy.admin_post(&format!("/runtime_modify?{change}")).status, 200);
        }
        assert_eq!(proxy.get("/").status, status, "{change}");
    }
    let stats = proxy.stats();
    let counted = ["upstream_rq_retry", "upstream_rq_retry_success", "upstream_rq_retry_overflow", "upstream_rq_total"];
    assert_eq!(counted.map(|name| stats.value(&format!("cluster.origin.{name}"))), [2, 2, 0, 5]);
}

#[test]
fn calls_of_filters_are_not_tried_again_where_upstream_use_retry_is_off() {
    let service = Origin::fixed("HTTP/1.1 503 X\r\ncontent-length: 0\r\n\r\n");
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let retry = json!({"retry_on": "5xx", "num_retries": 1, "retry_back_off": {"base_interval": "0.001s", "max_interval": "1s"}});
    let http = json!({"server_uri": {"uri": "authz", "cluster": "authz", "timeout": "10s"}, "retry_policy": retry});
    let authz =
        extension("envoy.filters.http.ext_authz", "filters.http.ext_authz.v3.ExtAuthz", json!({"http_service": http}));
    for (keys, asked) in [(json!({}), 2), (json!({"upstream.use_retry": 0}), 1)] {
        let layers = json!([{"name": "fixed", "static_layer": keys}]);
        let config = with_layers([json!({"match": {"prefix": "/"}, "route": {"cluster": "origin"}})], layers)
            .cluster("origin", &[origin.address])
            .cluster("authz", &[service.address])
            .overlay_filter("http", json!({"http_filters": [authz, router()]}));
        let before = service.requests().len();
        assert_eq!(Proxy::start(&config).get("/").status, 403);
        assert_eq!(service.requests().len() - before, asked);
    }
}

/// Answers with a status that may change, over connections that stay.
fn changing(status: &Arc<AtomicU16>) -> Origin {
    let status = status.clone();
    Origin::start(move |connection| {
        while connection.request().is_some() {
            let status = status.load(Ordering::SeqCst);
            connection.write(format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n").as_bytes());
        }
    })
}

/// Of the hosts, how `/clusters` says that they are, in order.
fn health_flags(proxy: &Proxy) -> Vec<String> {
    let text = proxy.admin_get("/clusters").text().to_owned();
    let flags = text.lines().filter_map(|line| Some(line.split_once("::health_flags::")?.1.to_owned()));
    let mut flags: Vec<String> = flags.collect();
    flags.sort();
    flags
}

#[test]
fn another_limit_made_hosts_that_were_left_out_come_back() {
    let status = Arc::new(AtomicU16::new(503));
    let (a, b) = (changing(&status), changing(&status));
    let outliers =
        json!({"consecutive_5xx": 1, "interval": "60s", "base_ejection_time": "60s", "max_ejection_percent": 50});
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]))
        .cluster_with("origin", &[a.address, b.address], json!({"outlier_detection": outliers}))
        .overlay(json!({"layered_runtime": {"layers": [{"name": "admin", "admin_layer": {}}]}}));
    let proxy = Proxy::start(&config);
    assert_eq!(proxy.get("/").status, 503);
    let one_is_out = ["/failed_outlier_check", "healthy"];
    wait_until("a host is left out", || health_flags(&proxy) == one_is_out);
    status.store(200, Ordering::SeqCst);
    let connections = || a.connection_count() + b.connection_count();
    while connections() < 2 {
        assert_eq!(proxy.get("/").status, 200);
    }
    for change in [
        "circuit_breakers.origin.default.max_requests=500",
        "circuit_breakers.origin.high.max_retries=500",
        "upstream.healthy_panic_threshold=40",
        "upstream.maintenance_mode.origin=0",
        "upstream.use_retry=0",
        "outlier_detection.max_ejection_percent=60",
        "outlier_detection.interval_ms=50",
        // Nobody waits: the connection is there.
        "circuit_breakers.origin.default.max_pending_requests=0",
        "circuit_breakers.origin.default.max_pending_requests=",
    ] {
        assert_eq!(proxy.admin_post(&format!("/runtime_modify?{change}")).status, 200);
        assert_eq!(health_flags(&proxy), one_is_out, "{change}");
        assert_eq!((proxy.get("/").status, connections()), (200, 2), "{change}");
    }
    assert_eq!(proxy.stats().value("cluster.origin.outlier_detection.ejections_active"), 1);
    assert_eq!(proxy.admin_post("/runtime_modify?circuit_breakers.origin.default.max_requests=0").status, 200);
    assert_eq!((proxy.get("/").status, connections()), (503, 2));
    assert_eq!(proxy.admin_post("/runtime_modify?circuit_breakers.origin.default.max_requests=1").status, 200);
    assert_eq!((proxy.get("/").status, connections()), (200, 2));
    assert_eq!(health_flags(&proxy), one_is_out);
}

#[test]
fn other_rules_for_outliers_hold_from_the_next_failure_on() {
    let status = Arc::new(AtomicU16::new(503));
    let (a, b) = (changing(&status), changing(&status));
    let outliers = json!({"consecutive_5xx": 9, "interval": "0.05s", "base_ejection_time": "60s", "max_ejection_time": "60s",
        "max_ejection_percent": 50});
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]))
        .cluster_with("origin", &[a.address, b.address], json!({"outlier_detection": outliers}))
        .overlay(json!({"layered_runtime": {"layers": [{"name": "admin", "admin_layer": {}}]}}));
    let proxy = Proxy::start(&config);
    assert_eq!(proxy.get("/").status, 503);
    let modify = |change: &str| assert_eq!(proxy.admin_post(&format!("/runtime_modify?{change}")).status, 200);
    // The failure before counts: the second of the host that had it, or the second of the other one.
    modify("outlier_detection.consecutive_5xx=2");
    (0..3).for_each(|_| assert_eq!(proxy.get("/").status, 503));
    wait_until("a host is left out", || health_flags(&proxy) == ["/failed_outlier_check", "healthy"]);
    assert_eq!(proxy.stats().value("cluster.origin.outlier_detection.ejections_active"), 1);
    status.store(200, Ordering::SeqCst);
    modify("outlier_detection.base_ejection_time_ms=1&outlier_detection.max_ejection_time_ms=1");
    wait_until("it is back", || health_flags(&proxy) == ["healthy", "healthy"]);
    assert_eq!(proxy.get("/").status, 200);
}

#[test]
fn another_limit_began_health_checks_anew() {
    let origin = Origin::echo("a");
    let check = json!({"timeout": "5s", "interval": "60s", "no_traffic_interval": "60s", "unhealthy_threshold": 1,
        "healthy_threshold": 1, "tcp_health_check": {}});
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]))
        .cluster_with("origin", &[origin.address], json!({"health_checks": [check]}))
        .overlay(json!({"layered_runtime": {"layers": [{"name": "admin", "admin_layer": {}}]}}));
    let proxy = Proxy::start(&config);
    let attempts = || proxy.stats().value("cluster.origin.health_check.attempt");
    wait_until("a check", || attempts() == 1 && health_flags(&proxy) == ["healthy"]);
    for change in ["circuit_breakers.origin.default.max_connections=7", "upstream.healthy_panic_threshold=40"] {
        assert_eq!(proxy.admin_post(&format!("/runtime_modify?{change}")).status, 200);
        assert_eq!((proxy.get("/").status, attempts()), (200, 1), "{change}");
    }
}
