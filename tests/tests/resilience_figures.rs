//! Figures of retries, ejections and breakers beside real Envoy's, on upstreams that fail by a script.
//!
//! Both start their rotation where they like, so figures are close, not equal.

use postrider_tests::kit::proxy::{self, Launch};
use postrider_tests::kit::{Config, Origin, Proxy, RawClient, Stats};
use postrider_tests::{get, postrider_only};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Both proxies may differ by so much of Envoy's figure, or by what chance does to a small one.
const TOLERANCE: f64 = 0.1;

/// Hosts of which each answers its n-th request with 503 in so many of a hundred cases.
fn flaky(percentages: &[u64]) -> Vec<Origin> {
    let host = |(host, percentage): (u64, &u64)| {
        let (percentage, count) = (*percentage, AtomicU64::new(0));
        Origin::start(move |connection| {
            while connection.request().is_some() {
                let n = count.fetch_add(1, Relaxed);
                // The same for both proxies, however often the others were asked.
                let status = if scattered(n << 8 | host) % 100 < percentage { "503 Unwell" } else { "200 OK" };
                if !connection.write(format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nok").as_bytes()) {
                    return;
                }
            }
        })
    };
    (0..).zip(percentages).map(host).collect()
}

/// A number as good as random (SplitMix64's last step).
fn scattered(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// What one proxy did: the answers by status, and its counters.
struct Figures {
    good: u64,
    bad: u64,
    stats: Stats,
}

fn run(launch: Launch, percentages: &[u64], cluster: &Value, route: &Value, requests: usize) -> Figures {
    let origins = flaky(percentages);
    let addresses: Vec<_> = origins.iter().map(|origin| origin.address).collect();
    let mut action = json!({"cluster": "flaky"});
    action.as_object_mut().unwrap().extend(route.as_object().unwrap().clone());
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": action}])).cluster_with(
        "flaky",
        &addresses,
        cluster.clone(),
    );
    let proxy = Proxy::start_with(&config, launch);
    let mut client = RawClient::connect(proxy.address("http"));
    let (mut good, mut bad) = (0, 0);
    for _ in 0..requests {
        match client.exchange(get("/")).status {
            200 => good += 1,
            // What follows from a bad answer is settled on Envoy's main thread, which the admin's answer comes from, too.
            _ => {
                bad += 1;
                proxy.admin_get("/ready");
            }
        }
    }
    proxy.wait_stat("http.ingress_http.downstream_rq_completed", requests as u64);
    Figures { good, bad, stats: proxy.stats() }
}

/// Lets both do the same, and compares.
fn compare(percentages: &[u64], cluster: Value, route: Value, requests: usize, names: &[&str]) {
    if !postrider_only() {
        return;
    }
    let envoy = Launch::envoy().expect("Envoy 1.40 is needed to compare with: `make test` installs it");
    let own = Launch { binary: Some(proxy::binary().to_owned()), ..Launch::default() };
    let theirs = run(envoy, percentages, &cluster, &route, requests);
    let ours = run(own, percentages, &cluster, &route, requests);
    let counter = |figures: &Figures, name: &&str| figures.stats.value(&format!("cluster.flaky.{name}"));
    let mut rows = vec![("200".to_owned(), theirs.good, ours.good), ("others".to_owned(), theirs.bad, ours.bad)];
    rows.extend(names.iter().map(|name| ((*name).to_owned(), counter(&theirs, name), counter(&ours, name))));
    let is_far = |theirs: u64, ours: u64| {
        let (theirs, ours) = (theirs as f64, ours as f64);
        // Two standard deviations of a count.
        (theirs - ours).abs() > (theirs * TOLERANCE).max(2.0 * theirs.sqrt())
    };
    eprintln!("figure, Envoy, Postrider: {rows:?}");
    assert!(!rows.iter().any(|(_, theirs, ours)| is_far(*theirs, *ours)), "figure, Envoy, Postrider: {rows:?}");
    // Otherwise it would say nothing.
    assert!(rows.iter().skip(2).any(|(_, theirs, _)| *theirs > 20), "{rows:?}");
}

#[test]
fn retries_succeed_and_give_up_as_often_as_envoys() {
    compare(
        &[50, 30, 20, 10],
        json!({}),
        json!({"retry_policy": {"retry_on": "5xx", "num_retries": 2, "retry_back_off": {"base_interval": "0.001s", "max_interval": "0.002s"}}}),
        2000,
        &["upstream_rq_retry", "upstream_rq_retry_success", "upstream_rq_retry_limit_exceeded", "upstream_rq_total"],
    );
}

#[test]
fn hosts_are_ejected_as_often_as_by_envoy() {
    compare(
        &[90, 60, 5, 5, 5, 5],
        // Envoy tells workers of the second ejection up to a second late, unless told not to.
        json!({"common_lb_config": {"update_merge_window": "0s"}, "outlier_detection": {
            "consecutive_5xx": 3, "interval": "3600s", "base_ejection_time": "3600s", "max_ejection_percent": 50,
            "enforcing_consecutive_5xx": 100, "enforcing_success_rate": 0, "enforcing_consecutive_gateway_failure": 0}}),
        json!({}),
        600,
        &[
            "outlier_detection.ejections_enforced_total",
            "outlier_detection.ejections_active",
            "outlier_detection.ejections_detected_consecutive_5xx",
            "upstream_rq_5xx",
            "upstream_rq_total",
        ],
    );
}

#[test]
fn a_breaker_for_retries_refuses_as_many_as_envoys() {
    // No retry is ever allowed, so that none depends on time.
    compare(
        &[40, 40],
        json!({"circuit_breakers": {"thresholds": [{"max_retries": 0}]}}),
        json!({"retry_policy": {"retry_on": "5xx", "num_retries": 2}}),
        400,
        &["upstream_rq_retry", "upstream_rq_retry_overflow", "upstream_rq_503"],
    );
}
