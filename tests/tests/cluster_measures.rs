//! What clusters measure only where they are told to (`track_cluster_stats`). The same expectations hold for Envoy.

use postrider_tests::kit::{Config, Origin, Proxy};
use serde_json::{Value, json};

const OK: &str = "HTTP/1.1 200 OK\r\nx-b: good\r\ncontent-length: 12\r\n\r\nhello, world";

fn proxy(origin: &Origin, cluster: Value) -> Proxy {
    let config = Config::routes(json!([
        {"match": {"prefix": "/endless"}, "route": {"cluster": "origin", "timeout": "0s"}},
        {"match": {"prefix": "/late"}, "route": {"cluster": "origin", "timeout": "0.2s"}},
        {"match": {"prefix": "/"}, "route": {"cluster": "origin", "timeout": "60s"}},
    ]));
    Proxy::start(&config.cluster_with("origin", &[origin.address], cluster))
}

/// How many values a histogram has, in all and up to `bound`.
fn counted(proxy: &Proxy, histogram: &str, bound: &str) -> Option<(String, String)> {
    let text = proxy.admin_get("/stats/prometheus").text().to_owned();
    let value = |start: &str| {
        let line = text.lines().find(|line| line.starts_with(start))?;
        Some(line.rsplit_once(' ')?.1.to_owned())
    };
    let name = format!("envoy_cluster_{histogram}");
    let labels = "envoy_cluster_name=\"origin\"";
    Some((value(&format!("{name}_count{{{labels}}}"))?, value(&format!("{name}_bucket{{{labels},le=\"{bound}\"}}"))?))
}

fn await_count(proxy: &Proxy, histogram: &str, bound: &str, all: u32, below: u32) {
    let wanted = Some((all.to_string(), below.to_string()));
    postrider_tests::kit::wait_until(&format!("{histogram} up to {bound}: {below} of {all}"), || {
        counted(proxy, histogram, bound) == wanted
    });
}

#[test]
fn sizes_of_requests_and_answers_are_recorded_by_try() {
    let origin = Origin::fixed(OK);
    let proxy = proxy(&origin, json!({"track_cluster_stats": {"request_response_sizes": true}}));
    let request = "POST /a HTTP/1.1\r\nhost: test\r\ncontent-length: 7\r\n\r\n1234567";
    assert_eq!(proxy.exchange(request).status, 200);
    for (histogram, too_low, bound) in [
        ("upstream_rq_body_size", "5", "10"),
        ("upstream_rs_body_size", "10", "25"),
        // `:status`, `x-b` and `content-length`.
        ("upstream_rs_headers_count", "1", "5"),
        ("upstream_rs_headers_size", "25", "50"),
        ("upstream_rq_headers_count", "5", "25"),
        ("upstream_rq_headers_size", "100", "500"),
    ] {
        await_count(&proxy, histogram, bound, 1, 1);
        await_count(&proxy, histogram, too_low, 1, 0);
    }
    assert_eq!(counted(&proxy, "upstream_rq_timeout_budget_percent_used", "0.5"), None);
}

#[test]
fn budgets_are_how_much_of_the_timeouts_was_used() {
    for fields in [json!({"track_cluster_stats": {"timeout_budgets": true}}), json!({"track_timeout_budgets": true})] {
        let origin = Origin::start(|connection| {
            while let Some(request) = connection.request() {
                if request.target.starts_with("/late") {
                    connection.read_to_end();
                    return;
                }
                connection.write(OK.as_bytes());
            }
        });
        let proxy = proxy(&origin, fields);
        assert_eq!(proxy.get("/a").status, 200);
        assert_eq!(proxy.get("/endless").status, 200);
        await_count(&proxy, "upstream_rq_timeout_budget_percent_used", "50", 2, 2);
        assert_eq!(proxy.get("/late").status, 504);
        await_count(&proxy, "upstream_rq_timeout_budget_percent_used", "50", 3, 2);
        // A try without a limit of its own uses nothing of it; one that the request's limit ends is not counted.
        await_count(&proxy, "upstream_rq_timeout_budget_per_try_percent_used", "0.5", 2, 2);
    }
}

#[test]
fn endpoints_are_told_apart() {
    let origin = Origin::start(|connection| {
        while let Some(request) = connection.request() {
            match request.target.as_str() {
                "/late" => {
                    connection.read_to_end();
                    return;
                }
                "/bad" => connection.write(b"HTTP/1.1 500 Bad\r\ncontent-length: 0\r\n\r\n"),
                _ => connection.write(OK.as_bytes()),
            };
        }
    });
    let proxy = proxy(&origin, json!({"track_cluster_stats": {"per_endpoint_stats": true}}));
    for (path, status) in [("/a", 200), ("/bad", 500), ("/late", 504)] {
        assert_eq!(proxy.get(path).status, status, "{path}");
    }
    let address = origin.address.to_string();
    let scope = format!("cluster.origin.endpoint.{}", address.replace(':', "_"));
    proxy.wait_stat(&format!("{scope}.cx_active"), 0);
    for (name, value) in [
        ("cx_connect_fail", 0),
        ("cx_total", 1),
        ("healthy", 1),
        ("rq_active", 0),
        ("rq_error", 2),
        ("rq_pending_active", 0),
        ("rq_success", 1),
        ("rq_timeout", 1),
        ("rq_total", 3),
    ] {
        assert_eq!(proxy.stats().value(&format!("{scope}.{name}")), value, "{name}");
    }
    let text = proxy.admin_get("/stats/prometheus").text().to_owned();
    let labels = format!("envoy_cluster_name=\"origin\",envoy_endpoint_address=\"{address}\"");
    for line in [
        "# TYPE envoy_cluster_endpoint_rq_total counter".to_owned(),
        format!("envoy_cluster_endpoint_rq_total{{{labels}}} 3"),
        "# TYPE envoy_cluster_endpoint_healthy gauge".to_owned(),
        format!("envoy_cluster_endpoint_healthy{{{labels}}} 1"),
    ] {
        assert!(text.lines().any(|known| known == line), "{line} is not in\n{text}");
    }
    let clusters = proxy.admin_get("/clusters").text().to_owned();
    assert!(clusters.contains(&format!("origin::{address}::rq_timeout::1\n")), "{clusters}");
}

#[test]
fn nobody_pays_for_what_nobody_wants() {
    let origin = Origin::fixed(OK);
    let proxy = proxy(&origin, json!({}));
    assert_eq!(proxy.get("/a").status, 200);
    let text = proxy.admin_get("/stats").text().to_owned();
    assert!(!text.contains("timeout_budget") && !text.contains("headers_size"));
}
