//! Active health checks: one task per host, on one worker for all of them. What it finds out is told to every worker.
//!
//! ```text
//! supervise ──> watch (per host): check ──> settle ──> publish ──> wait ──> check …
//! ```
//!
//! The checking worker is the first one; others know only what they are told. Checks have connections of their own,
//! beside the pools.

mod events;
mod exchange;
mod grpc;
mod probe;

use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use postrider_model::{Endpoint, HealthCheck};
use postrider_telemetry::Block;
use postrider_telemetry::stats::sets::{cluster, cluster_health as stat};
use postrider_upstream::Health;
use postrider_upstream::health::{Checked, Outcome, Transition, draw, interval};

use crate::cluster::{Cluster, Host};
use crate::message::{KnownHealth, Message};
use crate::worker::Worker;
use events::Event;
use probe::Probe;

/// A configuration does not wait longer than this for the first checks of its clusters: hosts that did not answer by then
/// count as failed.
const FIRST_ROUND: Duration = Duration::from_secs(15);

/// The task that checks a host.
pub(crate) struct Check {
    host: Rc<Host>,
    pub(crate) task: tokio::task::AbortHandle,
}

/// Starts checks of hosts that have none, and ends those of hosts that went.
pub(crate) fn supervise(cluster: &Rc<Cluster>, worker: &Rc<Worker>) {
    let hosts = cluster.hosts.all();
    let mut checks = cluster.checks.borrow_mut();
    for gone in checks.extract_if(.., |check| check.host.is_retired()) {
        gone.task.abort();
    }
    for host in hosts.iter().filter(|host| cluster.hosts.is_checked(&host.endpoint)) {
        if !checks.iter().any(|check| Rc::ptr_eq(&check.host, host)) {
            let task = tokio::task::spawn_local(watch(worker.clone(), Rc::downgrade(cluster), host.clone()));
            checks.push(Check { host: host.clone(), task: task.abort_handle() });
        }
    }
    drop(checks);
    let stats = cluster.stats(worker);
    let members = cluster.hosts.members();
    stats.gauge_set(cluster::MEMBERSHIP_TOTAL, members.all as u64);
    stats.gauge_set(cluster::MEMBERSHIP_HEALTHY, members.healthy as u64);
    stats.gauge_set(cluster::MEMBERSHIP_DEGRADED, members.degraded as u64);
    stats.gauge_set(cluster::MEMBERSHIP_EXCLUDED, members.excluded as u64);
    let checked = hosts.iter().filter(|host| cluster.hosts.is_checked(&host.endpoint));
    let passing: Vec<Health> = checked.map(|host| host.health.get()).filter(|health| !health.failed).collect();
    let stats = cluster.health_stats(worker);
    stats.gauge_set(stat::HEALTHY, passing.len() as u64);
    stats.gauge_set(stat::DEGRADED, passing.iter().filter(|health| health.degraded).count() as u64);
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

/// Checks a host for as long as it belongs to its cluster.
async fn watch(worker: Rc<Worker>, cluster: Weak<Cluster>, host: Rc<Host>) {
    let Some(plan) = cluster.upgrade().map(|cluster| cluster.plan.clone()) else { return };
    let Some(check) = &plan.model.health.check else { return };
    let mut state = Checked::default();
    let mut probe = Probe::new(&plan, check, &host.endpoint, worker.clock.wall_now());
    tokio::time::sleep(draw(check.intervals.initial_jitter, &worker.random)).await;
    loop {
        let wait = {
            let Some(cluster) = cluster.upgrade() else { return };
            let stats = cluster.health_stats(&worker).clone();
            stats.inc(stat::ATTEMPT);
            let outcome = match tokio::time::timeout(check.timeout, probe.run(&cluster, &worker, &stats)).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    probe.close();
                    Outcome::TimedOut
                }
            };
            if !check.reuse_connection {
                probe.close();
            }
            count(&stats, outcome);
            let (first, before) = (state.is_first(), state.health);
            let transition = state.settle(outcome, check);
            let event = Event { check, outcome, transition, first, before, status: probe.status() };
            event.log(&worker, &plan.name, &host.endpoint);
            if state.health != before {
                publish(&worker, &plan.name, &host.endpoint, state.health).await;
            }
            pause(check, outcome, transition, plan.traffic.load(Relaxed), &worker)
        };
        tokio::time::sleep(wait).await;
    }
}

fn pause(check: &HealthCheck, outcome: Outcome, transition: Transition, traffic: bool, worker: &Worker) -> Duration {
    interval(&check.intervals, outcome, transition, traffic, &worker.random)
}

fn count(stats: &Block, outcome: Outcome) {
    match outcome {
        Outcome::Healthy { .. } => stats.inc(stat::SUCCESS),
        Outcome::Refused { .. } => stats.inc(stat::FAILURE),
        Outcome::Unreachable | Outcome::TimedOut => {
            stats.inc(stat::FAILURE);
            stats.inc(stat::NETWORK_FAILURE);
        }
    }
}
