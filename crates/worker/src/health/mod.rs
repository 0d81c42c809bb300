//! Active health checks: one task per host and check, on one worker for all of them. What it finds out is told to every worker.
//!
//! ```text
//! supervise ──> watch (per host and check): check ──> settle ──> publish ──> wait ──> check …
//! ```
//!
//! The checking worker is the first one; others know only what they are told. Checks have connections of their own,
//! beside the pools.

mod counts;
mod events;
mod exchange;
mod grpc;
mod probe;
mod talk;
mod thrift;

use std::cell::RefCell;
use std::collections::HashMap;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use postrider_model::{Endpoint, HealthCheck};
use postrider_telemetry::stats::sets::cluster_health as stat;
use postrider_upstream::Health;
use postrider_upstream::health::{Checked, Outcome, Transition, draw, interval};
use tokio::sync::Notify;

use crate::cluster::{Cluster, Host};
use crate::message::{KnownHealth, Message};
use crate::worker::Worker;
use counts::Counts;
pub use counts::named_check_prefix;
use events::Event;
use probe::Probe;

/// A configuration does not wait longer than this for the first checks of its clusters: hosts that did not answer by then
/// count as failed.
const FIRST_ROUND: Duration = Duration::from_secs(15);

/// The task of one check of a host.
pub(crate) struct Check {
    host: Rc<Host>,
    /// What each check of the host says.
    said: Rc<Said>,
    /// Rung when the host says in an answer that it fails.
    resigned: Rc<Notify>,
    pub(crate) task: tokio::task::AbortHandle,
}

/// What each of a host's checks found out last.
type Said = RefCell<Vec<Health>>;

/// Starts checks of hosts that have none, and ends those of hosts that went.
pub(crate) fn supervise(cluster: &Rc<Cluster>, worker: &Rc<Worker>) {
    let hosts = cluster.hosts.all();
    let mut checks = cluster.checks.borrow_mut();
    for gone in checks.extract_if(.., |check| check.host.is_retired()) {
        gone.task.abort();
    }
    for host in hosts.iter().filter(|host| cluster.hosts.is_checked(&host.endpoint)) {
        if !checks.iter().any(|check| Rc::ptr_eq(&check.host, host)) {
            let count = cluster.plan.model.health.checks.len();
            let said = Rc::new(RefCell::new(vec![Health::UNCHECKED; count]));
            for index in 0..count {
                let resigned = Rc::new(Notify::new());
                let of_host = OfHost { host: host.clone(), index, said: said.clone(), resigned: resigned.clone() };
                let watch = watch(worker.clone(), Rc::downgrade(cluster), of_host);
                let task = tokio::task::spawn_local(watch).abort_handle();
                checks.push(Check { host: host.clone(), said: said.clone(), resigned, task });
            }
        }
    }
    drop(checks);
    cluster.count_members(worker);
    let checked = hosts.iter().filter(|host| cluster.hosts.is_checked(&host.endpoint));
    let passing: Vec<Health> = checked.map(|host| host.health.get()).filter(|health| !health.failed).collect();
    let stats = cluster.health_stats(worker);
    stats.gauge_set(stat::HEALTHY, passing.len() as u64);
    stats.gauge_set(stat::DEGRADED, passing.iter().filter(|health| health.degraded).count() as u64);
}

/// An answer said that its host fails. Told on any worker; checks are with the first one.
#[cold]
pub(crate) fn resigns(cluster: &Cluster, endpoint: &Arc<Endpoint>, worker: &Worker) {
    let Some(checker) = worker.peers.get().and_then(|peers| peers.first()) else { return };
    let message = Message::Resigned { cluster: cluster.plan.name.clone(), endpoint: endpoint.clone() };
    // A worker that is too busy to hear of it hears of the next such answer.
    let _ = checker.try_send(message);
}

/// The same where the checks are.
pub(crate) fn take_resignation(cluster: &Cluster, endpoint: &Endpoint) {
    let checks = cluster.checks.borrow();
    let of_host = checks.iter().filter(|check| !check.host.is_retired() && *check.host.endpoint == *endpoint);
    of_host.for_each(|check| check.resigned.notify_one());
}

/// Counts the hosts that pass the check `index`, where it has a name of its own.
fn tally(cluster: &Cluster, index: usize, counts: &Counts) {
    let checks = cluster.checks.borrow();
    let mut seen: Vec<&Rc<Said>> = Vec::new();
    for check in checks.iter().filter(|check| !check.host.is_retired()) {
        if !seen.iter().any(|said| Rc::ptr_eq(said, &check.said)) {
            seen.push(&check.said);
        }
    }
    let passing = seen.iter().filter_map(|said| said.borrow().get(index).copied()).filter(|health| !health.failed);
    let (healthy, degraded) =
        passing.fold((0, 0), |(healthy, degraded), one| (healthy + 1, degraded + u64::from(one.degraded)));
    counts.set_passing(healthy, degraded);
}

/// Ready when every host was checked once, or too much time has passed.
pub(crate) async fn first_round(clusters: HashMap<Arc<str>, Rc<Cluster>>) -> KnownHealth {
    let every_host = async {
        for cluster in clusters.values() {
            loop {
                let changed = cluster.health_changed.notified();
                if !cluster.hosts.all().iter().any(|host| host.health.get().unchecked) {
                    break;
                }
                changed.await;
            }
        }
    };
    // Who was not checked by then fails.
    let _ = tokio::time::timeout(FIRST_ROUND, every_host).await;
    let health = |cluster: &Rc<Cluster>| {
        cluster.hosts.all().iter().map(|host| (host.endpoint.clone(), host.health.get())).collect()
    };
    clusters.iter().map(|(name, cluster)| (name.clone(), health(cluster))).collect()
}

/// Tells every worker, this one too.
pub(crate) async fn publish(worker: &Worker, cluster: &Arc<str>, endpoint: &Arc<Endpoint>, health: Health) {
    for peer in worker.peers.get().into_iter().flatten() {
        let message = Message::Health { cluster: cluster.clone(), endpoint: endpoint.clone(), health };
        // A worker that is gone needs to know nothing.
        let _ = peer.send(message).await;
    }
}

/// One check of one host.
struct OfHost {
    host: Rc<Host>,
    index: usize,
    said: Rc<Said>,
    resigned: Rc<Notify>,
}

/// Checks a host for as long as it belongs to its cluster.
async fn watch(worker: Rc<Worker>, cluster: Weak<Cluster>, of_host: OfHost) {
    let Some((plan, of_cluster)) = cluster.upgrade().map(|cluster| (cluster.plan.clone(), cluster)) else { return };
    let Some(check) = plan.model.health.checks.get(of_host.index) else { return };
    let counts = Counts::of(&of_cluster, check, &worker);
    let mut state = Checked::default();
    let of = (of_host.index, check);
    let mut probe = Probe::new(&plan, of, &of_host.host.endpoint);
    drop(of_cluster);
    tokio::time::sleep(draw(check.intervals.initial_jitter, &worker.random)).await;
    loop {
        let wait = {
            let Some(cluster) = cluster.upgrade() else { return };
            counts.begun();
            let outcome = match tokio::time::timeout(check.timeout, probe.run(&cluster, &worker, &counts)).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    probe.close();
                    Outcome::TimedOut
                }
            };
            if !check.reuse_connection {
                probe.close();
            }
            let ended = Ended { check, outcome, status: probe.status() };
            let transition = of_host.settle(&cluster, &worker, &counts, &mut state, ended).await;
            pause(check, outcome, transition, plan.traffic.load(Relaxed), &worker)
        };
        let mut next = pin!(tokio::time::sleep(wait));
        loop {
            tokio::select! {
                () = &mut next => break,
                () = of_host.resigned.notified() => {
                    let Some(cluster) = cluster.upgrade() else { return };
                    let ended = Ended { check, outcome: Outcome::Resigned, status: 0 };
                    of_host.settle(&cluster, &worker, &counts, &mut state, ended).await;
                }
            }
        }
    }
}

/// How a check ended, or what the host said meanwhile.
struct Ended<'c> {
    check: &'c HealthCheck,
    outcome: Outcome,
    /// Of an answer over HTTP.
    status: u16,
}

impl OfHost {
    /// Takes the end of a check, and tells whoever is to know.
    async fn settle(
        &self,
        cluster: &Rc<Cluster>,
        worker: &Rc<Worker>,
        counts: &Counts,
        state: &mut Checked,
        Ended { check, outcome, status }: Ended<'_>,
    ) -> Transition {
        counts.ended(outcome);
        let (first, before) = (state.is_first(), state.health);
        let transition = state.settle(outcome, check);
        let (name, endpoint) = (&cluster.plan.name, &self.host.endpoint);
        Event { check, outcome, transition, first, before, status }.log(worker, name, endpoint);
        if !state.health.failed && matches!(outcome, Outcome::Healthy { .. }) && self.host.ejected.get() {
            crate::outlier::passed_check(cluster, worker, endpoint);
        }
        if state.health != before
            && let Some(health) = heard(&self.said, self.index, state.health)
        {
            publish(worker, name, endpoint, health).await;
        }
        if state.health != before || first {
            tally(cluster, self.index, counts);
        }
        transition
    }
}

fn pause(check: &HealthCheck, outcome: Outcome, transition: Transition, traffic: bool, worker: &Worker) -> Duration {
    interval(&check.intervals, outcome, transition, traffic, &worker.random)
}

/// What all checks of a host say together, if that is news now that the check `index` says `health`.
fn heard(said: &Said, index: usize, health: Health) -> Option<Health> {
    let mut said = said.borrow_mut();
    let before = Health::of_all(said.iter().copied());
    if let Some(own) = said.get_mut(index) {
        *own = health;
    }
    let now = Health::of_all(said.iter().copied());
    (now != before).then_some(now)
}
