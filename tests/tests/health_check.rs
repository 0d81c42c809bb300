//! Health checks of the proxy itself, as Envoy answers them.

use postrider_tests::kit::config::extension;
use postrider_tests::kit::net::refusing_address;
use postrider_tests::kit::{Origin, Response};
use postrider_tests::site::{self, Plan};
use serde_json::{Value, json};

fn check(pass_through: bool, more: Value) -> Plan {
    let mut fields = json!({
        "pass_through_mode": pass_through,
        "headers": [{"name": ":path", "string_match": {"exact": "/check"}}],
    });
    for (key, value) in more.as_object().unwrap() {
        fields[key] = value.clone();
    }
    site::with([extension("envoy.filters.http.health_check", "filters.http.health_check.v3.HealthCheck", fields)])
        .whole(json!({"node": {"id": "me", "cluster": "edge"}}))
}

/// What answers tell those who check this proxy.
fn told(answer: &Response) -> (u16, &str, &str) {
    let immediate = answer.header("x-envoy-immediate-health-check-fail");
    (answer.status, answer.header("x-envoy-upstream-healthchecked-cluster"), immediate)
}

#[test]
fn checks_are_answered_by_the_proxy_as_an_operator_wants() {
    let site = check(false, json!({})).start();
    assert_eq!(told(&site.get("/check", "")), (200, "edge", ""));
    assert_eq!(told(&site.ask("POST", "/check", "content-length: 3\r\n\r\nabc")), (200, "edge", ""));
    assert_eq!(told(&site.get("/other", "")), (200, "", ""));
    assert_eq!(site.proxy.admin_post("/healthcheck/fail").status, 200);
    postrider_tests::kit::wait_until("the order to arrive", || {
        site.get("/other", "").headers.contains("x-envoy-immediate-health-check-fail")
    });
    let failed = site.get("/check", "");
    assert_eq!((told(&failed), failed.text()), ((503, "edge", "true"), ""));
    assert_eq!(told(&site.get("/other", "")), (200, "", "true"));
    assert_eq!(site.proxy.admin_post("/healthcheck/ok").status, 200);
    postrider_tests::kit::wait_until("the order to arrive", || site.get("/check", "").status == 200);
    assert_eq!(site.logged(1), "200 - health_check_ok");
    let seen = site.origin.requests();
    assert!(seen.iter().all(|request| request.target == "/other"), "{seen:?}");
}

#[test]
fn a_failing_proxy_says_why() {
    let site = check(false, json!({})).start();
    assert_eq!(site.proxy.admin_post("/healthcheck/fail").status, 200);
    let mut checks = 0;
    postrider_tests::kit::wait_until("the order to arrive", || {
        checks += 1;
        site.get("/check", "").status == 503
    });
    assert_eq!(site.logged(checks), "503 LH health_check_failed");
}

#[test]
fn the_hosts_of_clusters_decide() {
    for (cluster, percent, status, details) in [
        ("half", 50.0, 200, "200 - health_check_ok_cluster_healthy"),
        ("half", 50.9, 200, "200 - health_check_ok_cluster_healthy"),
        ("half", 51.0, 503, "503 LH health_check_failed_cluster_unhealthy"),
        ("empty", 1.0, 503, "503 LH health_check_failed_cluster_empty"),
        ("empty", 0.0, 200, "200 - health_check_ok_cluster_healthy"),
        ("none", 0.0, 503, "503 LH health_check_failed_no_cluster_found"),
    ] {
        let address = |health: &str| {
            let at = refusing_address();
            json!({
                "health_status": health,
                "endpoint": {"address": {"socket_address": {"address": at.ip().to_string(), "port_value": at.port()}}},
            })
        };
        let half =
            json!({"load_assignment": {"endpoints": [{"lb_endpoints": [address("HEALTHY"), address("UNHEALTHY")]}]}});
        let site = check(false, json!({"cluster_min_healthy_percentages": {cluster: {"value": percent}}}))
            .cluster("half", &[], half)
            .cluster("empty", &[], json!({"load_assignment": {"endpoints": []}}))
            .start();
        assert_eq!(site.get("/check", "").status, status, "{cluster} {percent}");
        assert_eq!(site.logged(1), details, "{cluster} {percent}");
    }
}

#[test]
fn what_the_service_said_is_remembered() {
    let sick = || Origin::fixed("HTTP/1.1 503 No\r\ncontent-length: 2\r\nx-envoy-degraded: \r\n\r\nno");
    let site = check(true, json!({"cache_time": "3600s"})).start_before(sick());
    let first = site.get("/check", "");
    assert_eq!((told(&first), first.text()), ((503, "edge", ""), "no"));
    let second = site.get("/check", "");
    assert_eq!((told(&second), second.text()), ((503, "edge", ""), ""));
    assert!(second.headers.contains("x-envoy-degraded"));
    assert_eq!(site.logged(2), "503 LH health_check_cached");
    assert_eq!(site.get("/other", "").text(), "no");
    assert_eq!(site.origin.requests().len(), 2);
    let site = check(true, json!({})).start_before(sick());
    for _ in 0..2 {
        assert_eq!(site.get("/check", "").text(), "no");
    }
    assert_eq!(site.origin.requests().len(), 2, "without a time nothing is remembered");
}
