//! Outlier detection without a clock and without connections, with Envoy's decisions.
//!
//! Every worker counts what becomes of its requests in a host's [`Monitor`], which all workers share. One of them decides
//! with the [`Detector`], and tells the others:
//!
//! ```text
//! answers, resets ──> Monitor ──too many in a row──> Detector ──> ejected, until its time is over
//!                        └──────every interval──────────┘
//! ```

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use postrider_model::{Address, Endpoint, OutlierDetection};

use crate::Random;

/// Why a host is an outlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    Consecutive5xx,
    GatewayFailure,
    LocalOriginFailure,
    SuccessRate,
    LocalOriginSuccessRate,
    FailurePercentage,
    LocalOriginFailurePercentage,
    /// It said so itself, and gets less traffic, but is not left out.
    Degradation,
}

/// What became of a request to a host, or of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// An answer with this status.
    Answer(u16),
    /// There is a connection; what is said on it is reported apart.
    Connected,
    /// There is one, and nobody understands what is said on it.
    ConnectedFinally,
    /// No connection, or one that broke.
    Failed,
    /// Nothing came in time.
    TimedOut,
    /// An answer said that the host is degraded; what it counts as is reported apart.
    SaidDegraded,
}

/// The monitors of a cluster, for all workers.
#[derive(Debug, Default)]
pub struct Monitors {
    known: Mutex<HashMap<Address, Weak<Monitor>>>,
}

impl Monitors {
    /// That of a host, the same for every worker.
    pub fn of(&self, endpoint: &Endpoint) -> Arc<Monitor> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(monitor) = known.get(&endpoint.address).and_then(Weak::upgrade) {
            return monitor;
        }
        known.retain(|_, monitor| monitor.strong_count() > 0);
        let monitor = Arc::new(Monitor::default());
        known.insert(endpoint.address.clone(), Arc::downgrade(&monitor));
        monitor
    }
}

/// What is known about one host.
#[derive(Debug, Default)]
pub struct Monitor {
    /// It is left out.
    ejected: AtomicBool,
    /// It said that it is degraded.
    degraded: AtomicBool,
    failures: AtomicU32,
    gateway_failures: AtomicU32,
    local_failures: AtomicU32,
    answers: Rate,
    local: Rate,
}

/// Requests since the last interval began.
#[derive(Debug, Default)]
struct Rate {
    all: AtomicU64,
    good: AtomicU64,
}

impl Rate {
    fn count(&self, good: bool) {
        self.all.fetch_add(1, Relaxed);
        if good {
            self.good.fetch_add(1, Relaxed);
        }
    }

    fn take(&self) -> (u64, u64) {
        (self.good.swap(0, Relaxed), self.all.swap(0, Relaxed))
    }
}

impl Monitor {
    pub fn is_ejected(&self) -> bool {
        self.ejected.load(Relaxed)
    }

    pub fn is_degraded(&self) -> bool {
        self.degraded.load(Relaxed)
    }

    /// Counts; answers what has become too much with that.
    pub fn count(&self, rules: &OutlierDetection, outcome: Outcome) -> [Option<Cause>; 2] {
        if outcome == Outcome::SaidDegraded {
            let news = rules.detects_degraded && !self.is_degraded();
            return [news.then_some(Cause::Degradation), None];
        }
        if !rules.splits_origins {
            return match outcome {
                Outcome::Answer(status) => self.answer(rules, status),
                Outcome::Connected | Outcome::SaidDegraded => [None; 2],
                Outcome::ConnectedFinally => self.answer(rules, 200),
                Outcome::Failed => self.answer(rules, 503),
                Outcome::TimedOut => self.answer(rules, 504),
            };
        }
        match outcome {
            Outcome::Answer(status) => self.answer(rules, status),
            Outcome::SaidDegraded => [None; 2],
            Outcome::Connected | Outcome::ConnectedFinally => {
                self.local.count(true);
                self.local_failures.store(0, Relaxed);
                [None; 2]
            }
            Outcome::Failed | Outcome::TimedOut => {
                self.local.count(false);
                let reached = next(&self.local_failures) == rules.consecutive_local_origin_failure;
                [reached.then_some(Cause::LocalOriginFailure), None]
            }
        }
    }

    fn answer(&self, rules: &OutlierDetection, status: u16) -> [Option<Cause>; 2] {
        let good = !(500..600).contains(&status);
        self.answers.count(good);
        if good {
            // A plain read first: well-behaved hosts write nothing here.
            for counter in [&self.failures, &self.gateway_failures] {
                if counter.load(Relaxed) != 0 {
                    counter.store(0, Relaxed);
                }
            }
            return [None; 2];
        }
        let gateway = if matches!(status, 502..=504) {
            next(&self.gateway_failures) == rules.consecutive_gateway_failure
        } else {
            self.gateway_failures.store(0, Relaxed);
            false
        };
        let all = next(&self.failures) == rules.consecutive_5xx;
        [gateway.then_some(Cause::GatewayFailure), all.then_some(Cause::Consecutive5xx)]
    }

    /// The count behind a cause begins anew.
    pub fn forget(&self, cause: Cause) {
        match cause {
            Cause::Consecutive5xx => self.failures.store(0, Relaxed),
            Cause::GatewayFailure => self.gateway_failures.store(0, Relaxed),
            Cause::LocalOriginFailure => self.local_failures.store(0, Relaxed),
            _ => {}
        }
    }
}

fn next(counter: &AtomicU32) -> u32 {
    counter.fetch_add(1, Relaxed).wrapping_add(1)
}

/// Something happened that is counted, logged or told.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    Detected(Cause),
    /// Too many hosts are left out already.
    Overflow,
    Ejected(Ejection),
    Returned {
        endpoint: Arc<Endpoint>,
        ejections: u32,
        /// Since it was ejected.
        since: Option<Duration>,
    },
    /// It counts as degraded, or, with `false`, does no more.
    Degraded(Arc<Endpoint>, bool),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Ejection {
    pub endpoint: Arc<Endpoint>,
    pub cause: Cause,
    /// Otherwise it was only found out.
    pub enforced: bool,
    pub ejections: u32,
    /// Since it came back the last time.
    pub since: Option<Duration>,
    /// For rates: of the host, the mean of all, and below which a host is an outlier.
    pub rates: [f64; 3],
}

/// What the success rates of a cluster's hosts were compared with in an interval, in percent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    pub mean: f64,
    /// Below it a host is an outlier. It may be less than nothing.
    pub least: f64,
}

/// Who decides.
#[derive(Debug)]
pub struct Detector {
    rules: OutlierDetection,
    hosts: Vec<Watched>,
    /// Of answers, and of reaching hosts: where there were enough hosts with enough requests.
    comparisons: [Option<Comparison>; 2],
}

#[derive(Debug)]
struct Watched {
    endpoint: Arc<Endpoint>,
    monitor: Arc<Monitor>,
    ejections: u32,
    /// How many times the base time an ejection takes.
    back_off: u32,
    jitter: Duration,
    ejected: Option<Instant>,
    returned: Option<Instant>,
    /// When it said that it is degraded, how many times the base time that holds, and when it was over.
    degraded: Option<Instant>,
    degraded_for: u32,
    recovered: Option<Instant>,
    /// Of answers, and of reaching it: in percent, where there were enough requests.
    rates: [Option<f64>; 2],
}

impl Detector {
    pub fn new(rules: OutlierDetection) -> Detector {
        Detector { rules, hosts: Vec::new(), comparisons: [None; 2] }
    }

    /// Other rules from now on; who is left out stays so, for as long as these say.
    pub fn set_rules(&mut self, rules: &OutlierDetection) {
        self.rules.clone_from(rules);
    }

    /// Those that are known already keep their history.
    pub fn set_hosts(&mut self, hosts: impl Iterator<Item = (Arc<Endpoint>, Arc<Monitor>)>) {
        let mut old = std::mem::take(&mut self.hosts);
        for (endpoint, monitor) in hosts {
            let known = old.iter().position(|watched| Arc::ptr_eq(&watched.monitor, &monitor));
            self.hosts.push(match known {
                Some(at) => Watched { endpoint, ..old.swap_remove(at) },
                None => Watched {
                    endpoint,
                    monitor,
                    ejections: 0,
                    back_off: 0,
                    jitter: Duration::ZERO,
                    ejected: None,
                    returned: None,
                    degraded: None,
                    degraded_for: 0,
                    recovered: None,
                    rates: [None; 2],
                },
            });
        }
    }

    /// Hosts that are left out.
    pub fn active(&self) -> usize {
        self.hosts.iter().filter(|host| host.monitor.is_ejected()).count()
    }

    /// Success rates of the last interval, in percent: of its answers, and of reaching it.
    pub fn rates(&self, address: &Address) -> [Option<f64>; 2] {
        self.hosts.iter().find(|host| host.endpoint.address == *address).map_or([None; 2], |host| host.rates)
    }

    /// What those of all hosts were compared with in the last interval.
    pub fn comparisons(&self) -> [Option<Comparison>; 2] {
        self.comparisons
    }

    /// A worker saw too many failures in a row.
    pub fn report(&mut self, endpoint: &Endpoint, cause: Cause, now: Instant, random: &Random) -> Vec<Event> {
        let mut events = Vec::new();
        let Some(at) = self.hosts.iter().position(|host| host.endpoint.address == endpoint.address) else {
            return events;
        };
        if cause == Cause::Degradation {
            let (base, most) = (self.rules.base_ejection_time, self.rules.max_ejection_time);
            if let Some(host) = self.hosts.get_mut(at).filter(|host| !host.monitor.is_degraded()) {
                host.monitor.degraded.store(true, Relaxed);
                host.degraded = Some(now);
                if base.saturating_mul(host.degraded_for) < most + base {
                    host.degraded_for += 1;
                }
                events.extend([Event::Detected(cause), Event::Degraded(host.endpoint.clone(), true)]);
            }
            return events;
        }
        if self.hosts.get(at).is_some_and(|host| !host.monitor.is_ejected()) {
            self.found(at, cause, [0.0; 3], now, random, &mut events);
            if let Some(host) = self.hosts.get(at) {
                host.monitor.forget(cause);
            }
        }
        events
    }

    /// An active check was passed.
    pub fn passed_check(&mut self, endpoint: &Endpoint, now: Instant) -> Option<Event> {
        if !self.rules.returns_on_passed_check {
            return None;
        }
        let host = self.hosts.iter_mut().find(|host| host.endpoint.address == endpoint.address)?;
        host.monitor.is_ejected().then(|| host.take_back(now))
    }

    /// An interval is over.
    pub fn tick(&mut self, now: Instant, random: &Random) -> Vec<Event> {
        let mut events = Vec::new();
        let (base, most) = (self.rules.base_ejection_time, self.rules.max_ejection_time);
        for host in &mut self.hosts {
            let lasts = base.saturating_mul(host.back_off).min(most) + host.jitter;
            let over = host.ejected.is_some_and(|ejected| now.saturating_duration_since(ejected) >= lasts);
            if host.monitor.is_ejected() && over {
                events.push(host.take_back(now));
            }
            let lasts = base.saturating_mul(host.degraded_for).min(most);
            if host.degraded.is_some_and(|degraded| now.saturating_duration_since(degraded) >= lasts) {
                host.degraded = None;
                host.recovered = Some(now);
                host.monitor.degraded.store(false, Relaxed);
                events.push(Event::Degraded(host.endpoint.clone(), false));
            }
        }
        self.comparisons = [false, true].map(|local| self.judge_rates(local, now, random, &mut events));
        for host in self.hosts.iter_mut().filter(|host| !host.monitor.is_degraded()) {
            let back = host.recovered.map(|recovered| now.saturating_duration_since(recovered));
            if back.is_some_and(|back| back >= self.rules.interval) {
                host.degraded_for = host.degraded_for.saturating_sub(1);
            }
        }
        for host in self.hosts.iter_mut().filter(|host| !host.monitor.is_ejected()) {
            let back = host.returned.map(|returned| now.saturating_duration_since(returned));
            if back.is_some_and(|back| back >= self.rules.interval) {
                host.back_off = host.back_off.saturating_sub(1);
            }
        }
        events
    }

    fn judge_rates(
        &mut self,
        local: bool,
        now: Instant,
        random: &Random,
        events: &mut Vec<Event>,
    ) -> Option<Comparison> {
        let (success, failure) = (self.rules.success_rate, self.rules.failure_percentage);
        let counted: Vec<(u64, u64)> = self.hosts.iter().map(|host| host.monitor.rate(local).take()).collect();
        self.hosts.iter_mut().for_each(|host| host.set_rate(local, None));
        let count = u32::try_from(self.hosts.len()).unwrap_or(u32::MAX);
        if count < success.min_hosts && count < failure.min_hosts {
            return None;
        }
        let mut comparison = None;
        let (mut compared, mut judged) = (Vec::new(), Vec::new());
        for (at, (host, (good, all))) in self.hosts.iter_mut().zip(counted).enumerate() {
            if host.monitor.is_ejected() || all == 0 {
                continue;
            }
            let rate = 100.0 * good as f64 / all as f64;
            if all >= u64::from(success.request_volume.min(failure.request_volume)) {
                host.set_rate(local, Some(rate));
            }
            if all >= u64::from(success.request_volume) {
                compared.push((at, rate));
            }
            if all >= u64::from(failure.request_volume) {
                judged.push((at, rate));
            }
        }
        if !compared.is_empty() && compared.len() >= success.min_hosts as usize {
            let size = compared.len() as f64;
            let mean = compared.iter().map(|(_, rate)| rate).sum::<f64>() / size;
            let variance = compared.iter().map(|(_, rate)| (rate - mean).powi(2)).sum::<f64>() / size;
            let least = mean - f64::from(success.stdev_factor) / 1000.0 * variance.sqrt();
            comparison = Some(Comparison { mean, least });
            let cause = if local { Cause::LocalOriginSuccessRate } else { Cause::SuccessRate };
            for (at, rate) in compared.into_iter().filter(|(_, rate)| *rate < least) {
                self.found(at, cause, [rate, mean, least], now, random, events);
            }
        }
        if !judged.is_empty() && judged.len() >= failure.min_hosts as usize {
            let cause = if local { Cause::LocalOriginFailurePercentage } else { Cause::FailurePercentage };
            for (at, rate) in judged.into_iter().filter(|(_, rate)| 100.0 - rate >= f64::from(failure.threshold)) {
                self.found(at, cause, [rate, 0.0, 0.0], now, random, events);
            }
        }
        comparison
    }

    /// A host is an outlier: leaves it out if that may be.
    fn found(
        &mut self,
        at: usize,
        cause: Cause,
        rates: [f64; 3],
        now: Instant,
        random: &Random,
        events: &mut Vec<Event>,
    ) {
        events.push(Event::Detected(cause));
        let (active, all) = (self.active(), self.hosts.len());
        let percent = 100.0 * (active + 1) as f64 / all as f64;
        let first = self.rules.always_ejects_one && active == 0;
        let Some(host) = self.hosts.get_mut(at) else { return };
        if percent > f64::from(self.rules.max_ejection_percent.min(100)) && !first {
            events.push(Event::Overflow);
            return;
        }
        // One that another rule has found out a moment ago is out already.
        let has_consequences = random.below(100) < enforced(&self.rules, cause) as usize && !host.monitor.is_ejected();
        if has_consequences {
            host.monitor.ejected.store(true, Relaxed);
            host.ejections += 1;
            host.ejected = Some(now);
            host.jitter = crate::health::draw(self.rules.max_jitter + Duration::from_millis(1), random);
            let (base, most) = (self.rules.base_ejection_time, self.rules.max_ejection_time);
            if base.saturating_mul(host.back_off) < most + base {
                host.back_off += 1;
            }
        }
        events.push(Event::Ejected(Ejection {
            endpoint: host.endpoint.clone(),
            cause,
            enforced: has_consequences,
            ejections: host.ejections,
            since: host.returned.map(|returned| now.saturating_duration_since(returned)),
            rates,
        }));
    }
}

/// In how many of a hundred cases a cause has consequences.
fn enforced(rules: &OutlierDetection, cause: Cause) -> u32 {
    let enforcing = &rules.enforcing;
    match cause {
        Cause::Consecutive5xx => enforcing.consecutive_5xx,
        Cause::GatewayFailure => enforcing.consecutive_gateway_failure,
        Cause::LocalOriginFailure => enforcing.consecutive_local_origin_failure,
        Cause::SuccessRate => enforcing.success_rate,
        Cause::LocalOriginSuccessRate => enforcing.local_origin_success_rate,
        Cause::FailurePercentage => enforcing.failure_percentage,
        Cause::LocalOriginFailurePercentage => enforcing.local_origin_failure_percentage,
        Cause::Degradation => 0,
    }
}

impl Watched {
    fn take_back(&mut self, now: Instant) -> Event {
        self.monitor.ejected.store(false, Relaxed);
        // Otherwise very few new failures would be too many.
        for cause in [Cause::Consecutive5xx, Cause::GatewayFailure, Cause::LocalOriginFailure] {
            self.monitor.forget(cause);
        }
        self.returned = Some(now);
        Event::Returned {
            endpoint: self.endpoint.clone(),
            ejections: self.ejections,
            since: self.ejected.map(|ejected| now.saturating_duration_since(ejected)),
        }
    }

    fn set_rate(&mut self, local: bool, rate: Option<f64>) {
        let [answers, of_reaching] = &mut self.rates;
        *(if local { of_reaching } else { answers }) = rate;
    }
}

impl Monitor {
    fn rate(&self, local: bool) -> &Rate {
        if local { &self.local } else { &self.answers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::endpoint;

    struct World {
        rules: OutlierDetection,
        detector: Detector,
        monitors: Vec<(Arc<Endpoint>, Arc<Monitor>)>,
        now: Instant,
        random: Random,
    }

    impl World {
        fn new(hosts: u16, rules: OutlierDetection) -> World {
            let all = Monitors::default();
            let monitors: Vec<_> = (1..=hosts).map(endpoint).map(|e| (all.of(&e), e)).collect();
            let monitors: Vec<_> = monitors.into_iter().map(|(monitor, e)| (Arc::new(e), monitor)).collect();
            let mut detector = Detector::new(rules.clone());
            detector.set_hosts(monitors.iter().cloned());
            World { rules, detector, monitors, now: Instant::now(), random: Random::new(3) }
        }

        fn count(&mut self, host: usize, outcome: Outcome, times: usize) -> Vec<Event> {
            let (endpoint, monitor) = self.monitors[host].clone();
            let mut events = Vec::new();
            for _ in 0..times {
                for cause in monitor.count(&self.rules, outcome).into_iter().flatten() {
                    events.extend(self.detector.report(&endpoint, cause, self.now, &self.random));
                }
            }
            events
        }

        fn tick(&mut self, seconds: u64) -> Vec<Event> {
            self.now += Duration::from_secs(seconds);
            self.detector.tick(self.now, &self.random)
        }

        fn out(&self) -> Vec<bool> {
            self.monitors.iter().map(|(_, monitor)| monitor.is_ejected()).collect()
        }
    }

    fn rules() -> OutlierDetection {
        OutlierDetection { max_ejection_percent: 50, ..OutlierDetection::default() }
    }

    #[test]
    fn five_failures_in_a_row_are_too_many_and_each_time_it_takes_longer() {
        let mut world = World::new(2, rules());
        world.count(0, Outcome::Answer(500), 4);
        world.count(0, Outcome::Answer(200), 1);
        assert_eq!(world.count(0, Outcome::Answer(500), 4), []);
        let events = world.count(0, Outcome::Answer(500), 1);
        assert_eq!(events.first(), Some(&Event::Detected(Cause::Consecutive5xx)));
        assert!(matches!(&events[1], Event::Ejected(Ejection { enforced: true, ejections: 1, since: None, .. })));
        assert_eq!(world.out(), [true, false]);
        assert_eq!(world.tick(29), []);
        assert!(matches!(world.tick(1).as_slice(), [Event::Returned { ejections: 1, .. }]));
        world.count(0, Outcome::Failed, 5);
        world.tick(59);
        assert_eq!(world.out(), [true, false]);
        world.tick(1);
        assert_eq!(world.out(), [false, false]);
    }

    #[test]
    fn hosts_that_went_together_come_back_apart() {
        let rules = OutlierDetection {
            max_jitter: Duration::from_secs(1_000),
            max_ejection_percent: 100,
            ..OutlierDetection::default()
        };
        let mut world = World::new(8, rules);
        (0..8).for_each(|host| drop(world.count(host, Outcome::Answer(500), 5)));
        assert_eq!(world.tick(29), [], "none sooner than without");
        let mut at_once = Vec::new();
        for _ in 0..1_002 {
            let back = world.tick(1).iter().filter(|event| matches!(event, Event::Returned { .. })).count();
            at_once.extend((back > 0).then_some(back));
        }
        assert!(at_once.iter().sum::<usize>() == 8 && at_once.len() >= 5, "{at_once:?}");
    }

    #[test]
    fn not_too_many_at_once_unless_one_always_may() {
        let mut world = World::new(3, OutlierDetection::default());
        assert!(world.count(0, Outcome::Answer(500), 5).contains(&Event::Overflow));
        assert_eq!(world.out(), [false; 3]);
        let mut world = World::new(3, OutlierDetection { always_ejects_one: true, ..OutlierDetection::default() });
        world.count(0, Outcome::Answer(500), 5);
        assert!(world.count(1, Outcome::Answer(500), 5).contains(&Event::Overflow));
        assert_eq!(world.out(), [true, false, false]);
    }

    #[test]
    fn gateway_failures_are_found_out_but_not_enforced_by_default() {
        let mut world = World::new(2, OutlierDetection { consecutive_5xx: 0, ..rules() });
        let events = world.count(0, Outcome::TimedOut, 5);
        assert!(matches!(&events[1], Event::Ejected(Ejection { enforced: false, cause: Cause::GatewayFailure, .. })));
        assert_eq!(world.out(), [false, false]);
        assert_eq!(world.count(0, Outcome::Answer(500), 20), []);
    }

    #[test]
    fn failures_to_reach_a_host_may_count_apart() {
        let mut world = World::new(2, OutlierDetection { splits_origins: true, ..rules() });
        world.count(0, Outcome::Failed, 4);
        world.count(0, Outcome::Answer(500), 4);
        assert_eq!(world.out(), [false, false]);
        let events = world.count(0, Outcome::TimedOut, 1);
        assert_eq!(events.first(), Some(&Event::Detected(Cause::LocalOriginFailure)));
        assert_eq!(world.out(), [true, false]);
    }

    #[test]
    fn a_host_that_succeeds_less_often_than_the_others_is_an_outlier() {
        let mut world = World::new(5, OutlierDetection { consecutive_5xx: 0, ..rules() });
        for host in 0..5 {
            world.count(host, Outcome::Answer(200), 100);
        }
        world.count(4, Outcome::Answer(500), 100);
        let events = world.tick(10);
        // The mean is 90, the deviation 20.
        let Event::Ejected(ejection) = &events[1] else { panic!("{events:?}") };
        assert_eq!((ejection.cause, ejection.rates), (Cause::SuccessRate, [50.0, 90.0, 52.0]));
        assert_eq!(world.out(), [false, false, false, false, true]);
        assert_eq!(world.detector.rates(&world.monitors[4].0.address), [Some(50.0), None]);
        assert_eq!(world.detector.comparisons(), [Some(Comparison { mean: 90.0, least: 52.0 }), None]);
        world.tick(10);
        assert_eq!(world.detector.rates(&world.monitors[0].0.address), [None, None]);
        assert_eq!(world.detector.comparisons(), [None, None], "nobody asked in the last interval");
    }

    #[test]
    fn a_host_that_fails_nearly_always_is_an_outlier_however_the_others_do() {
        let mut enforcing = rules().enforcing;
        (enforcing.failure_percentage, enforcing.success_rate) = (100, 0);
        let mut world = World::new(5, OutlierDetection { consecutive_5xx: 0, enforcing, ..rules() });
        for host in 0..5 {
            world.count(host, Outcome::Answer(503), if host < 2 { 50 } else { 0 });
            world.count(host, Outcome::Answer(200), if host < 2 { 5 } else { 55 });
        }
        world.tick(10);
        assert_eq!(world.out(), [true, true, false, false, false]);
    }

    #[test]
    fn a_passed_check_brings_a_host_back() {
        let mut world = World::new(2, rules());
        world.count(0, Outcome::Answer(500), 5);
        let endpoint = world.monitors[0].0.clone();
        assert!(world.detector.passed_check(&endpoint, world.now).is_some());
        assert!(world.detector.passed_check(&endpoint, world.now).is_none());
        assert_eq!(world.out(), [false, false]);
    }

    #[test]
    fn a_host_that_says_so_is_degraded_for_longer_each_time_it_happens_soon() {
        let seconds = Duration::from_secs;
        let mut world = World::new(
            2,
            OutlierDetection {
                detects_degraded: true,
                interval: seconds(10),
                base_ejection_time: seconds(10),
                max_ejection_time: seconds(25),
                ..OutlierDetection::default()
            },
        );
        let endpoint = world.monitors[0].0.clone();
        let began = [Event::Detected(Cause::Degradation), Event::Degraded(endpoint.clone(), true)];
        let over = [Event::Degraded(endpoint, false)];
        assert_eq!(world.count(0, Outcome::SaidDegraded, 3), began, "once");
        assert!(world.monitors[0].1.is_degraded() && world.out() == [false, false]);
        assert_eq!(world.tick(9), []);
        assert_eq!(world.tick(1), over);
        assert_eq!(world.count(0, Outcome::SaidDegraded, 1), began);
        assert_eq!(world.tick(19), [], "twice as long");
        assert_eq!(world.tick(1), over);
        assert_eq!(world.count(0, Outcome::SaidDegraded, 1), began);
        assert_eq!(world.tick(24), []);
        assert_eq!(world.tick(1), over, "not longer than that");
        assert_eq!((world.tick(10), world.tick(10), world.tick(10)), (vec![], vec![], vec![]));
        assert_eq!(world.count(0, Outcome::SaidDegraded, 1), began);
        assert_eq!(world.tick(10), over, "it was well for long");
        world.rules.detects_degraded = false;
        assert_eq!(world.count(0, Outcome::SaidDegraded, 1), []);
    }
}
