//! `stats_tags`: tags of one's own. The same expectations hold for Envoy.

use postrider_tests::kit::config::Config;
use postrider_tests::kit::{Origin, Proxy, wait_until};
use serde_json::{Value, json};

/// The lines of `/stats/prometheus` under these settings, after one request.
fn lines(settings: Value) -> Vec<String> {
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let proxy = Proxy::start(&Config::proxy_to(origin.address).overlay(json!({"stats_config": settings})));
    assert_eq!(proxy.get("/").status, 200);
    wait_until("the request's counts", || proxy.admin_get("/stats").text().contains("upstream_rq_200: 1"));
    proxy.admin_get("/stats/prometheus").text().lines().map(str::to_owned).collect()
}

fn line(lines: &[String], start: &str) -> String {
    let found = lines.iter().find(|line| line.starts_with(start));
    found.unwrap_or_else(|| panic!("no {start} in {lines:#?}")).clone()
}

#[test]
fn tags_are_added_to_those_that_there_are() {
    let lines = lines(json!({"stats_tags": [
        {"tag_name": "fleet", "fixed_value": "blue\"x"},
        {"tag_name": "my.code-x", "regex": "_rq(_(\\d+))$"},
        {"tag_name": "envoy.cluster_name", "regex": "^cluster\\.((never)\\.)"},
        {"tag_name": "way", "regex": "^http\\..*\\.(downstream_)cx_total$"},
        {"tag_name": "none", "regex": "no such (thing)"},
    ]}));
    let status = line(&lines, "envoy_cluster_upstream_rq{");
    let want =
        r#"envoy_cluster_upstream_rq{envoy_response_code="200",fleet="blue\"x",my_code_x="200",envoy_cluster_name=""#;
    assert!(status.starts_with(want), "{status}");
    let want =
        r#"envoy_http_cx_total{fleet="blue\"x",envoy_http_conn_manager_prefix="ingress_http",way="downstream_"} "#;
    line(&lines, want);
    assert_eq!(line(&lines, "envoy_server_live"), r#"envoy_server_live{fleet="blue\"x"} 1"#);
    let histogram = line(&lines, "envoy_cluster_upstream_cx_connect_ms_bucket");
    assert!(histogram.contains(r#"{fleet="blue\"x",envoy_cluster_name=""#), "{histogram}");
    assert!(lines.iter().any(|line| line == "# TYPE envoy_http_cx_total counter"));
}

#[test]
fn the_default_tags_can_be_left_out_and_asked_for_by_name() {
    let lines = lines(json!({"use_all_default_tags": false, "stats_tags": [{"tag_name": "envoy.response_code"}]}));
    line(&lines, "envoy_http_ingress_http_downstream_cx_total{} ");
    let status = lines.iter().find(|line| line.contains("_upstream_rq{envoy_response_code=")).expect("a status");
    assert!(status.starts_with("envoy_cluster_") && !status.contains("envoy_cluster_name"), "{status}");
    assert!(lines.iter().any(|line| line.starts_with("envoy_http_ingress_http_downstream_rq_2xx{} ")), "{lines:#?}");
}
