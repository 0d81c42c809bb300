//! `stats_matcher`: which statistics the admin tells. The same expectations hold for Envoy.

use postrider_tests::kit::config::Config;
use postrider_tests::kit::{Origin, Proxy, wait_until};
use serde_json::{Value, json};

/// The names in `/stats` and the metrics in `/stats/prometheus` under a matcher, after one request, when `awaited` is among them.
fn told(matcher: Value, awaited: &str) -> (Vec<String>, String) {
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let config = Config::proxy_to(origin.address).overlay(json!({"stats_config": {"stats_matcher": matcher}}));
    let proxy = Proxy::start(&config);
    assert_eq!(proxy.get("/").status, 200);
    // A request is counted when it is over, which its client may see first.
    let mut text = String::new();
    wait_until("the request's counts", || {
        text = proxy.admin_get("/stats").text().to_owned();
        text.contains(awaited)
    });
    let names = text.lines().filter_map(|line| Some(line.split_once(": ")?.0.to_owned())).collect();
    (names, proxy.admin_get("/stats/prometheus").text().to_owned())
}

#[test]
fn an_inclusion_list_leaves_only_what_it_names() {
    let patterns =
        json!([{"prefix": "http.ingress_http.downstream_rq_"}, {"safe_regex": {"regex": "cluster\\..*_rq_time"}}]);
    let (names, prometheus) = told(json!({"inclusion_list": {"patterns": patterns}}), "upstream_rq_time");
    let listed = |name: &String| name.starts_with("http.ingress_http.downstream_rq_") || name.ends_with("_rq_time");
    assert!(names.iter().all(listed), "{names:?}");
    assert!(names.iter().any(|name| name == "http.ingress_http.downstream_rq_total"), "{names:?}");
    assert!(names.iter().any(|name| name.starts_with("cluster.") && name.ends_with("upstream_rq_time")), "{names:?}");
    assert!(prometheus.contains("envoy_cluster_upstream_rq_time_bucket"), "{prometheus}");
    assert!(!prometheus.contains("envoy_server_"), "{prometheus}");
}

#[test]
fn an_exclusion_list_takes_out_what_it_names() {
    let (names, prometheus) = told(json!({"exclusion_list": {"patterns": [{"prefix": "cluster."}]}}), "server.uptime");
    assert!(!names.iter().any(|name| name.starts_with("cluster.")), "{names:?}");
    assert!(names.iter().any(|name| name == "server.uptime"), "{names:?}");
    assert!(!prometheus.contains("envoy_cluster_upstream"), "{prometheus}");
}

#[test]
fn everything_can_be_left_out() {
    let (names, prometheus) = told(json!({"reject_all": true}), "");
    assert!(names.is_empty() && prometheus.trim().is_empty(), "{names:?}\n{prometheus}");
    let (names, _) = told(json!({"reject_all": false}), "server.uptime");
    assert!(names.iter().any(|name| name == "server.uptime"), "{names:?}");
}
