//! Requests that a virtual host counts together: virtual clusters, and routes with one `stat_prefix`.

use postrider_tests::kit::net::refusing_address;
use postrider_tests::kit::{Origin, wait_until};
use postrider_tests::site;
use serde_json::{Value, json};

const LINE: &str = "%VIRTUAL_CLUSTER_NAME% %RESPONSE_CODE%";

fn clusters() -> Value {
    json!([
        {"name": "users", "headers": [
            {"name": ":path", "string_match": {"prefix": "/users"}},
            {"name": ":method", "string_match": {"exact": "GET"}},
        ]},
        {"name": "sizes", "headers": [{"name": ":path", "string_match": {"safe_regex": {"regex": "^/[a-z]+/[0-9]+$"}}}]},
    ])
}

/// Answers 503 below `/bad`, and 200 else.
fn origin() -> Origin {
    Origin::start(|connection| {
        while let Some(request) = connection.request() {
            let status = if request.target.contains("/bad") { "503 Service Unavailable" } else { "200 OK" };
            connection.write(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").as_bytes());
        }
    })
}

#[test]
fn the_first_virtual_cluster_that_takes_a_request_counts_it() {
    let site = site::with([])
        .log(LINE)
        .host(json!({"virtual_clusters": clusters()}))
        .routes(json!([
            {"match": {"prefix": "/none"}, "route": {"cluster": "empty"}},
            {"match": {"prefix": "/here"}, "direct_response": {"status": 200}},
            {"match": {"prefix": "/"}, "route": {"cluster": "origin"},
             "request_headers_to_add": [{"header": {"key": "x-cluster", "value": "%VIRTUAL_CLUSTER_NAME%"}}]},
        ]))
        .cluster("empty", &[], json!({}))
        .start_before(origin());
    for (line, path, method, cluster, status) in [
        (1, "/users/1", "GET", "users", 200),
        (2, "/users/1", "POST", "sizes", 200),
        (3, "/bad", "GET", "-", 503),
        (4, "/none", "GET", "-", 503),
        (5, "/here", "GET", "-", 200),
    ] {
        assert_eq!(site.ask(method, path, "content-length: 0\r\n").status, status, "{path}");
        assert_eq!(site.logged(line), format!("{cluster} {status}"), "{path}");
    }
    assert_eq!(site.origin.requests()[0].header("x-cluster"), "users");
    let counted = |cluster: &str, name: &str| site.stat(&format!("vhost.all.vcluster.{cluster}.upstream_rq_{name}"));
    wait_until("the counters", || counted("other", "503") == 2);
    for (cluster, name, count) in [
        ("users", "total", 1),
        ("users", "200", 1),
        ("users", "2xx", 1),
        ("users", "completed", 1),
        ("sizes", "total", 1),
        ("sizes", "completed", 1),
        ("other", "total", 1),
        ("other", "5xx", 2),
        ("other", "completed", 2),
        ("other", "timeout", 0),
    ] {
        assert_eq!(counted(cluster, name), count, "{cluster} {name}");
    }
    let text = site.proxy.admin_get("/stats/prometheus");
    let line = r#"envoy_vhost_vcluster_upstream_rq_total{envoy_virtual_cluster="users",envoy_virtual_host="all"} 1"#;
    assert!(text.text().contains(line), "{}", text.text());
}

#[test]
fn routes_with_one_prefix_count_together() {
    let site = site::with([])
        .routes(json!([
            {"match": {"prefix": "/a"}, "route": {"cluster": "origin"}, "stat_prefix": "shop"},
            {"match": {"prefix": "/b"}, "route": {"cluster": "origin"}, "stat_prefix": "shop"},
            {"match": {"prefix": "/bad"}, "route": {"cluster": "origin"}},
            {"match": {"prefix": "/"}, "route": {"cluster": "origin", "retry_policy": {"retry_on": "5xx", "num_retries": 2,
             "retry_back_off": {"base_interval": "0.001s"}}}, "stat_prefix": "tried"},
        ]))
        .start_before(origin());
    for (path, status) in [("/a", 200), ("/b", 200), ("/b", 200), ("/x/bad", 503), ("/x", 200)] {
        assert_eq!(site.get(path, "").status, status, "{path}");
    }
    let counted = |prefix: &str, name: &str| site.stat(&format!("vhost.all.route.{prefix}.upstream_rq_{name}"));
    wait_until("the counters", || counted("tried", "200") == 1);
    for (prefix, name, count) in [
        ("shop", "total", 3),
        ("shop", "200", 3),
        ("shop", "retry", 0),
        ("tried", "total", 4),
        ("tried", "503", 1),
        ("tried", "completed", 2),
        ("tried", "retry", 2),
        ("tried", "retry_limit_exceeded", 1),
        ("tried", "retry_success", 0),
    ] {
        assert_eq!(counted(prefix, name), count, "{prefix} {name}");
    }
    let text = site.proxy.admin_get("/stats/prometheus");
    let line = r#"envoy_vhost_route_upstream_rq_total{envoy_virtual_host="all",envoy_route="shop"} 3"#;
    assert!(text.text().contains(line), "{}", text.text());
}

#[test]
fn what_no_upstream_answers_counts_as_well() {
    let site = site::with([])
        .host(json!({"virtual_clusters": clusters()}))
        .routes(json!([
            {"match": {"prefix": "/users/slow"}, "route": {"cluster": "origin", "timeout": "0.05s"}},
            {"match": {"prefix": "/"}, "route": {"cluster": "dead"}},
        ]))
        .cluster("dead", &[refusing_address()], json!({}))
        .start_before(Origin::silent());
    assert_eq!(site.get("/users/slow", "").status, 504);
    assert_eq!(site.get("/users", "").status, 503);
    let counted = |name: &str| site.stat(&format!("vhost.all.vcluster.users.upstream_rq_{name}"));
    wait_until("the counters", || counted("completed") == 2);
    let counts = ["total", "timeout", "504", "503", "5xx"].map(counted);
    assert_eq!(counts, [1, 1, 1, 1, 2]);
}
