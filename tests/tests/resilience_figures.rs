//! Figures of retries, ejections and breakers beside real Envoy's, on upstreams that fail by a script.
//!
//! Several clients ask at once. Both proxies start their rotation where they like and answers come in any order, so figures are
//! close, not equal; each is so large that a tenth of it is more than chance makes.

use postrider_tests::kit::proxy::{self, Launch};
use postrider_tests::kit::{Config, DEADLINE, Origin, Proxy, RawClient, Stats, wait_until};
use postrider_tests::{get, postrider_only};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Condvar, Mutex, OnceLock};
use std::time::Duration;

/// Both proxies may differ by so much of Envoy's figure.
const TOLERANCE: f64 = 0.1;

/// So many ask at once.
const CLIENTS: usize = 16;

/// Figures below this may differ by chance, and are not asked for, unless they are the same on both sides.
const SMALLEST: u64 = 150;

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

fn start(launch: Launch, origins: &[Origin], cluster: &Value, route: &Value) -> Proxy {
    let addresses: Vec<_> = origins.iter().map(|origin| origin.address).collect();
    let mut action = json!({"cluster": "flaky"});
    action.as_object_mut().unwrap().extend(route.as_object().unwrap().clone());
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": action}])).cluster_with(
        "flaky",
        &addresses,
        cluster.clone(),
    );
    Proxy::start_with(&config, launch)
}

/// Sends so many requests from all clients together; answers how many went well. `after` is told of each status.
fn load(proxy: &Proxy, requests: usize, after: impl Fn(u16) + Sync) -> u64 {
    let good = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = RawClient::connect(proxy.address("http"));
                for _ in 0..requests / CLIENTS {
                    let status = client.exchange(get("/")).status;
                    good.fetch_add(u64::from(status == 200), Relaxed);
                    after(status);
                }
            });
        }
    });
    good.into_inner()
}

/// The two proxies' figures of the same, one behind the other.
fn both(run: impl Fn(Launch) -> Figures) -> Option<[Figures; 2]> {
    if !postrider_only() {
        return None;
    }
    let envoy = Launch::envoy().expect("Envoy 1.40 is needed to compare with: `make test` installs it");
    let own = Launch { binary: Some(proxy::binary().to_owned()), ..Launch::default() };
    Some([run(envoy), run(own)])
}

/// Fails where a figure is further off than a tenth.
fn compare([theirs, ours]: [Figures; 2], names: &[&str]) {
    let counter = |figures: &Figures, name: &&str| figures.stats.value(&format!("cluster.flaky.{name}"));
    let mut rows = vec![("200".to_owned(), theirs.good, ours.good), ("others".to_owned(), theirs.bad, ours.bad)];
    rows.extend(names.iter().map(|name| ((*name).to_owned(), counter(&theirs, name), counter(&ours, name))));
    eprintln!("figure, Envoy, Postrider: {rows:?}");
    for (name, theirs, ours) in &rows {
        assert!(theirs == ours || *theirs >= SMALLEST, "{name} is too small to compare: {rows:?}");
        let apart = (*theirs as f64 - *ours as f64).abs();
        assert!(apart <= *theirs as f64 * TOLERANCE, "{name} is too far off: {rows:?}");
    }
}

#[test]
fn retries_succeed_and_give_up_as_often_as_envoys() {
    let route = json!({"retry_policy": {
        "retry_on": "5xx", "num_retries": 2, "retry_back_off": {"base_interval": "0.001s", "max_interval": "0.002s"},
    }});
    // Not the breakers' affair.
    let cluster = json!({"circuit_breakers": {"thresholds": [{"max_retries": 1000}]}});
    let requests = 8_000;
    let figures = both(|launch| {
        let origins = flaky(&[60, 50, 40, 30]);
        let proxy = start(launch, &origins, &cluster, &route);
        let good = load(&proxy, requests, |_| {});
        proxy.wait_stat("http.ingress_http.downstream_rq_completed", requests as u64);
        Figures { good, bad: requests as u64 - good, stats: proxy.stats() }
    });
    let names =
        ["upstream_rq_retry", "upstream_rq_retry_success", "upstream_rq_retry_limit_exceeded", "upstream_rq_total"];
    figures.into_iter().for_each(|figures| compare(figures, &names));
}

/// Requests before and behind what a detector does at the end of its interval.
fn ejected(percentages: &[u64], detection: Value, ejections: u64, names: &[&str]) {
    // Envoy tells workers of the second ejection up to a second late, unless told not to.
    let mut cluster = json!({"common_lb_config": {"update_merge_window": "0s"}, "outlier_detection": {
        "interval": "2s", "base_ejection_time": "3600s", "max_ejection_time": "7200s", "max_ejection_percent": 50,
        "enforcing_consecutive_5xx": 0, "enforcing_consecutive_gateway_failure": 0, "enforcing_success_rate": 0,
        "enforcing_failure_percentage": 0,
    }});
    postrider_tests::kit::config::overlay(&mut cluster, json!({"outlier_detection": detection}));
    let (before, behind) = (1_600, 4_000);
    let figures = both(|launch| {
        let origins = flaky(percentages);
        let proxy = start(launch, &origins, &cluster, &json!({}));
        load(&proxy, before, |_| {});
        proxy.wait_stat("cluster.flaky.outlier_detection.ejections_active", ejections);
        let first = proxy.stats().value("cluster.flaky.upstream_rq_5xx");
        let good = load(&proxy, behind, |_| {});
        proxy.wait_stat("http.ingress_http.downstream_rq_completed", (before + behind) as u64);
        assert!(first > 0);
        Figures { good, bad: behind as u64 - good, stats: proxy.stats() }
    });
    figures.into_iter().for_each(|figures| compare(figures, names));
}

#[test]
fn hosts_that_fail_more_often_than_others_are_ejected_as_by_envoy() {
    ejected(
        &[95, 20, 20, 20, 20, 20, 20, 20],
        // One of eight may go: on a slow machine there are further intervals, in which chance makes others outliers, too.
        json!({"enforcing_success_rate": 100, "success_rate_minimum_hosts": 5, "success_rate_request_volume": 50,
            "max_ejection_percent": 13}),
        1,
        &["outlier_detection.ejections_enforced_success_rate", "outlier_detection.ejections_active"],
    );
}

#[test]
fn hosts_that_fail_too_often_are_ejected_as_by_envoy() {
    ejected(
        &[95, 80, 20, 20, 20, 20, 20, 20],
        json!({"enforcing_failure_percentage": 100, "failure_percentage_threshold": 60,
            "failure_percentage_minimum_hosts": 5, "failure_percentage_request_volume": 50}),
        2,
        &["outlier_detection.ejections_enforced_failure_percentage", "outlier_detection.ejections_active"],
    );
}

#[test]
fn hosts_that_fail_in_a_row_are_ejected_as_by_envoy() {
    let cluster = json!({"common_lb_config": {"update_merge_window": "0s"}, "outlier_detection": {
        "consecutive_5xx": 3, "interval": "3600s", "base_ejection_time": "3600s", "max_ejection_time": "7200s",
        "max_ejection_percent": 50, "enforcing_consecutive_5xx": 100, "enforcing_success_rate": 0,
        "enforcing_consecutive_gateway_failure": 0,
    }});
    let requests = 4_000;
    let figures = both(|launch| {
        // Those of twenty in a hundred fail three times in a row before the end, too; half of all may go.
        let origins = flaky(&[90, 80, 20, 20]);
        let proxy = start(launch, &origins, &cluster, &json!({}));
        // What follows from a bad answer is settled on Envoy's main thread, which the admin's answer comes from, too.
        let settled = |status| drop((status != 200).then(|| proxy.admin_get("/ready")));
        let good = load(&proxy, requests, settled);
        proxy.wait_stat("http.ingress_http.downstream_rq_completed", requests as u64);
        Figures { good, bad: requests as u64 - good, stats: proxy.stats() }
    });
    let names = ["outlier_detection.ejections_active", "upstream_rq_5xx", "upstream_rq_total"];
    figures.into_iter().for_each(|figures| compare(figures, &names));
}

/// Holds what reaches the upstream until as many as are expected are there and the others were turned away.
#[derive(Default)]
struct Gate {
    state: Mutex<Round>,
    changed: Condvar,
}

#[derive(Default)]
struct Round {
    held: usize,
    refused: usize,
    open: bool,
}

impl Gate {
    /// A request waits here.
    fn pass(&self, expected: (usize, usize)) {
        let mut round = self.state.lock().unwrap();
        round.held += 1;
        self.open_for(&mut round, expected);
        // Where a proxy lets fewer through than expected, the round ends by time, and the figures tell.
        let patience = Duration::from_secs(2);
        let (mut round, _) = self.changed.wait_timeout_while(round, patience, |round| !round.open).unwrap();
        round.open = true;
        self.changed.notify_all();
    }

    fn refuse(&self, expected: (usize, usize)) {
        let mut round = self.state.lock().unwrap();
        round.refused += 1;
        self.open_for(&mut round, expected);
    }

    fn open_for(&self, round: &mut Round, (held, refused): (usize, usize)) {
        if round.held >= held && round.refused >= refused {
            round.open = true;
            self.changed.notify_all();
        }
    }
}

/// All clients ask at once, so many times. One of them says `begin` before each round; `refused` hears of each answer that is not
/// 200.
fn in_rounds(proxy: &Proxy, rounds: usize, begin: impl Fn() + Sync, refused: impl Fn() + Sync) -> Figures {
    let (good, bad, barrier) = (AtomicU64::new(0), AtomicU64::new(0), Barrier::new(CLIENTS));
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = RawClient::connect(proxy.address("http"));
                for _ in 0..rounds {
                    if barrier.wait().is_leader() {
                        begin();
                    }
                    barrier.wait();
                    match client.exchange(get("/")).status {
                        200 => good.fetch_add(1, Relaxed),
                        _ => {
                            refused();
                            bad.fetch_add(1, Relaxed)
                        }
                    };
                }
            });
        }
    });
    proxy.wait_stat("http.ingress_http.downstream_rq_completed", (CLIENTS * rounds) as u64);
    Figures { good: good.into_inner(), bad: bad.into_inner(), stats: proxy.stats() }
}

/// Rounds in which all clients ask at once, and `held` of them are at the upstream while `refused` of them are turned away.
fn rounds(launch: Launch, thresholds: &Value, expected: (usize, usize), rounds: usize) -> Figures {
    let gate = Arc::new(Gate::default());
    let inside = gate.clone();
    let origin = Origin::start(move |connection| {
        while connection.request().is_some() {
            inside.pass(expected);
            if !connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok") {
                return;
            }
        }
    });
    let cluster = json!({"circuit_breakers": {"thresholds": [thresholds]}});
    let proxy = start(launch, std::slice::from_ref(&origin), &cluster, &json!({"timeout": "30s"}));
    in_rounds(&proxy, rounds, || *gate.state.lock().unwrap() = Round::default(), || gate.refuse(expected))
}

#[test]
fn breakers_refuse_as_many_requests_as_envoys() {
    for (thresholds, expected) in [
        (json!({"max_requests": 6}), (6, 10)),
        (json!({"max_connections": 5, "max_pending_requests": 3}), (5, 8)),
        (json!({"max_connections": 4, "max_pending_requests": 1000}), (4, 0)),
    ] {
        let figures = both(|launch| rounds(launch, &thresholds, expected, 40));
        figures.into_iter().for_each(|figures| compare(figures, &["upstream_rq_503"]));
    }
}

#[test]
fn a_breaker_for_retries_refuses_as_many_as_envoys() {
    // No retry is ever allowed, so that none depends on time.
    let cluster = json!({"circuit_breakers": {"thresholds": [{"max_retries": 0}]}});
    let route = json!({"retry_policy": {"retry_on": "5xx", "num_retries": 2}});
    let requests = 2_000;
    let figures = both(|launch| {
        let origins = flaky(&[40, 40]);
        let proxy = start(launch, &origins, &cluster, &route);
        let good = load(&proxy, requests, |_| {});
        proxy.wait_stat("http.ingress_http.downstream_rq_completed", requests as u64);
        Figures { good, bad: requests as u64 - good, stats: proxy.stats() }
    });
    let names = ["upstream_rq_retry", "upstream_rq_retry_overflow", "upstream_rq_503"];
    figures.into_iter().for_each(|figures| compare(figures, &names));
}

/// Rounds in which all clients ask at once and all of them are answered with 503 by the upstream, one when it is known what became
/// of the one before. What is tried again comes back at once, or when it is known of all whether they are; the upstream
/// holds it until the others were turned away.
fn budgeted(launch: Launch, budget: &Value, back_at_once: bool, rounds: usize) -> Figures {
    let places = Arc::new(Places::default());
    let inside = places.clone();
    let origin = Origin::start(move |connection| {
        while let Some(request) = connection.request() {
            let again = request.header("x-envoy-attempt-count") != "1";
            let written = match (again, back_at_once) {
                (false, true) => {
                    inside.wait_for_turn();
                    connection.write(b"HTTP/1.1 503 Unwell\r\ncontent-length: 2\r\n\r\nno")
                }
                (false, false) => inside.answer_and_wait_for_decision(|| {
                    connection.write(b"HTTP/1.1 503 Unwell\r\nretry-after: 3\r\ncontent-length: 2\r\n\r\nno")
                }),
                (true, _) => {
                    inside.wait_for_others();
                    connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                }
            };
            if !written {
                return;
            }
        }
    });
    let cluster = json!({"circuit_breakers": {"thresholds": [{"retry_budget": budget}]}});
    let policy = json!({
        "retry_on": "5xx", "num_retries": 1, "retry_back_off": {"base_interval": "0.001s", "max_interval": "0.001s"},
        "rate_limited_retry_back_off": {"reset_headers": [{"name": "retry-after", "format": "SECONDS"}]},
    });
    let route =
        json!({"match": {"prefix": "/"}, "route": {"cluster": "flaky", "timeout": "30s", "retry_policy": policy}});
    let hosts = json!({"route_config": {"virtual_hosts": [
        {"name": "all", "domains": ["*"], "include_request_attempt_count": true, "routes": [route]},
    ]}});
    let config = Config::new().http(hosts).cluster_with("flaky", &[origin.address], cluster);
    let proxy = Proxy::start_with(&config, launch);
    places.admin.set(proxy.admin_address()).expect("set once");
    let begin = || *places.state.lock().unwrap() = Taken::default();
    in_rounds(&proxy, rounds, begin, || places.note(|taken| taken.refused += 1))
}

/// Where the requests of a round are.
#[derive(Default)]
struct Places {
    state: Mutex<Taken>,
    changed: Condvar,
    admin: OnceLock<SocketAddr>,
}

#[derive(Default)]
struct Taken {
    /// First tries that came, and that were answered.
    came: usize,
    answered: usize,
    /// Requests that are tried again, and that are not.
    again: usize,
    refused: usize,
}

impl Places {
    fn note(&self, change: impl Fn(&mut Taken)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }

    /// Until the requests before this one have come back or were turned away.
    fn wait_for_turn(&self) {
        let own = self.come();
        self.wait(|taken| {
            let settled = taken.again + taken.refused;
            taken.came == CLIENTS && taken.answered == own && settled == own
        });
        self.note(|taken| taken.answered += 1);
    }

    /// The same by the proxy's gauge: what waits to be tried again is not active.
    fn answer_and_wait_for_decision(&self, answer: impl FnOnce() -> bool) -> bool {
        let own = self.come();
        self.wait(|taken| taken.came == CLIENTS && taken.answered == own);
        let written = answer();
        let active = (CLIENTS - own - 1) as u64;
        let admin = *self.admin.get().expect("requests come when the proxy runs");
        wait_until("a decision on a retry", || Stats::fetch(admin).value("cluster.flaky.upstream_rq_active") == active);
        self.note(|taken| taken.answered += 1);
        written
    }

    /// Until it is known of all whether they are tried again.
    fn wait_for_others(&self) {
        self.note(|taken| taken.again += 1);
        self.wait(|taken| taken.again + taken.refused == CLIENTS);
    }

    /// A first try is here, after so many others.
    fn come(&self) -> usize {
        let mut taken = self.state.lock().unwrap();
        taken.came += 1;
        self.changed.notify_all();
        taken.came - 1
    }

    fn wait(&self, is_due: impl Fn(&Taken) -> bool) {
        let taken = self.state.lock().unwrap();
        let waited = self.changed.wait_timeout_while(taken, DEADLINE, |taken| !is_due(taken)).unwrap();
        assert!(!waited.1.timed_out(), "the round does not go on");
    }
}

#[test]
fn a_budget_for_retries_allows_as_many_as_envoys() {
    let budget = |percent: f64| json!({"budget_percent": {"value": percent}, "min_retry_concurrency": 1});
    for (budget, back_at_once, rounds) in [
        (budget(25.0), true, 20),
        (budget(25.0), false, 1),
        (budget(50.0), true, 20),
        (budget(50.0), false, 1),
        (json!({"budget_percent": {"value": 20.0}}), false, 1),
    ] {
        let figures = both(|launch| budgeted(launch, &budget, back_at_once, rounds));
        let names =
            ["upstream_rq_retry", "upstream_rq_retry_success", "upstream_rq_retry_overflow", "upstream_rq_total"];
        figures.into_iter().for_each(|figures| compare(figures, &names));
    }
}
