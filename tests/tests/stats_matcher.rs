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

/// What there is of a cluster and a listener with matchers of their own, beside a matcher of all.
fn told_of(cluster: Value, listener: Value, all: Value) -> Vec<String> {
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "one"}}]))
        .cluster_with("one", &[origin.address], json!({"stats_matcher": cluster, "alt_stat_name": "alt:one"}))
        .cluster("two", &[origin.address])
        .http_named("other", json!({"stat_prefix": "other", "route_config": {}}))
        .overlay_listener("http", json!({"stats_matcher": listener, "stat_prefix": "mine"}))
        .overlay(json!({"stats_config": {"stats_matcher": all}}));
    let proxy = Proxy::start(&config);
    assert_eq!(proxy.get("/").status, 200);
    let page = proxy.admin_get("/stats").text().to_owned();
    page.lines().filter_map(|line| Some(line.split_once(": ")?.0.to_owned())).collect()
}

/// Those that begin so.
fn below<'a>(names: &'a [String], begin: &str) -> Vec<&'a str> {
    names.iter().map(String::as_str).filter(|name| name.starts_with(begin)).collect()
}

#[test]
fn a_cluster_and_a_listener_leave_out_what_they_want() {
    let pattern = |text: &str| json!({"patterns": [{"contains": text}]});
    let names = told_of(
        json!({"exclusion_list": pattern("upstream_rq")}),
        json!({"inclusion_list": pattern("downstream_cx_total")}),
        json!({"reject_all": false}),
    );
    let of_one = below(&names, "cluster.alt_one.");
    assert!(of_one.contains(&"cluster.alt_one.upstream_cx_total"), "{of_one:?}");
    assert!(!of_one.iter().any(|name| name.contains("upstream_rq")), "{of_one:?}");
    assert!(below(&names, "cluster.two.upstream_rq").len() > 5, "the other's stay");
    let of_listener = ["listener.mine.downstream_cx_total", "listener.mine.worker_0.downstream_cx_total"];
    assert_eq!(below(&names, "listener.mine."), of_listener);
    assert_eq!(below(&names, "http.ingress_http."), ["http.ingress_http.downstream_cx_total"]);
    assert!(below(&names, "http.other.").len() > 5);
}

#[test]
fn a_matcher_may_stand_in_metadata() {
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let matcher = json!({"@type": "type.googleapis.com/envoy.config.metrics.v3.StatsMatcher", "reject_all": true});
    let metadata = json!({"metadata": {"typed_filter_metadata": {"envoy.stats_matcher": matcher}}});
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "one"}}]))
        .cluster_with("one", &[origin.address], metadata.clone())
        .overlay_listener("http", metadata);
    let proxy = Proxy::start(&config);
    assert_eq!(proxy.get("/").status, 200);
    let page = proxy.admin_get("/stats").text().to_owned();
    assert!(page.contains("\nhttp.admin.") && page.contains("\nserver.live: 1\n"), "{page}");
    for hidden in ["cluster.one.", "http.ingress_http.", "listener.127.0.0.1"] {
        assert!(!page.contains(&format!("\n{hidden}")), "{hidden}: {page}");
    }
}

#[test]
fn a_clusters_matcher_tells_what_that_of_all_leaves_out() {
    let everything = json!({"reject_all": false});
    let names = told_of(everything.clone(), everything, json!({"reject_all": true}));
    assert!(names.iter().any(|name| name == "cluster.alt_one.upstream_cx_total"), "{names:?}");
    assert!(names.iter().any(|name| name == "http.ingress_http.downstream_cx_total"), "{names:?}");
    let begins = ["cluster.alt_one.", "listener.mine.", "http.ingress_http."];
    let others = names.iter().filter(|name| !begins.iter().any(|begin| name.starts_with(begin)));
    assert_eq!(others.collect::<Vec<_>>(), Vec::<&String>::new());
}
