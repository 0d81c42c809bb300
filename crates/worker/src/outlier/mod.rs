//! Hosts that answer badly: every worker counts in what all share, the first one decides, and tells all of them.
//!
//! ```text
//! any worker:   answer, reset ──> Monitor ──too many──> message ──┐
//! first worker:                              interval ──> Detector ──> statistics, log, message to every worker
//! ```

mod events;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use postrider_http::ResponseHead;
use postrider_http::grpc::Status;
use postrider_model::{AnswerMatch, Endpoint, HeaderMatch};
use postrider_telemetry::Block;
use postrider_telemetry::stats::Counter;
use postrider_telemetry::stats::sets::cluster_outlier as stat;
use postrider_upstream::outlier::{Cause, Comparison, Detector, Ejection, Event, Outcome};

use crate::cluster::{Cluster, Host};
use crate::message::Message;
use crate::worker::Worker;

/// Who decides about the hosts of a cluster: on the worker that does.
pub(crate) struct Watch {
    detector: Detector,
    task: tokio::task::AbortHandle,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What became of a request to a host, or of a connection.
#[cold]
#[inline(never)]
pub(crate) fn report(cluster: &Cluster, host: &Host, outcome: Outcome, worker: &Worker) {
    let now = cluster.now.borrow();
    let (Some(monitor), Some(rules)) = (&host.monitor, &now.outliers) else { return };
    for cause in monitor.count(rules, outcome).into_iter().flatten() {
        let message = Message::Outlier { cluster: cluster.plan.name.clone(), endpoint: host.endpoint.clone(), cause };
        let decides = worker.peers.get().and_then(|peers| peers.first());
        if decides.is_some_and(|decides| decides.try_send(message).is_err()) {
            // Nobody heard of it: it is found out again.
            monitor.forget(cause);
        }
    }
}

/// An answer counts for its host by its status, or by that of gRPC if its head has one.
#[cold]
#[inline(never)]
pub(crate) fn report_answer(cluster: &Cluster, host: &Host, head: &ResponseHead, worker: &Worker) {
    if host.monitor.is_none() {
        return;
    }
    let status = Status::of(&head.fields).map_or(head.status(), Status::to_http);
    let judged = match cluster.plan.model.upstream.errors.as_deref() {
        None => status,
        Some(errors) => judged(errors, head, status),
    };
    report(cluster, host, Outcome::Answer(judged), worker);
    // A failure is that alone, as in Envoy.
    if judged < 500 && head.fields.get_name(b"x-envoy-degraded").is_some() {
        report(cluster, host, Outcome::SaidDegraded, worker);
    }
}

/// What an answer counts as, where the cluster says which ones are bad.
fn judged(errors: &AnswerMatch, head: &ResponseHead, status: u16) -> u16 {
    let code = status.to_string();
    let holds = |header: &HeaderMatch| match header.name.as_str() {
        ":status" => header.matches(&[&code]),
        name => {
            let lines = head.fields.get_all_name(name.as_bytes());
            header.matches(&lines.collect::<Vec<_>>())
        }
    };
    match (errors.matches(&holds), status) {
        (true, 500..600) => status,
        (true, _) => 500,
        (false, _) => 200,
    }
}

/// Begins to watch a cluster, or takes over its new hosts; on the worker that decides.
pub(crate) fn supervise(cluster: &Rc<Cluster>, worker: &Rc<Worker>) {
    let now = cluster.now.borrow();
    let Some(rules) = now.outliers.as_deref().filter(|_| worker.id == 0) else { return };
    let mut watch = cluster.outliers.borrow_mut();
    let watch = watch.get_or_insert_with(|| {
        let task = tokio::task::spawn_local(tick(worker.clone(), Rc::downgrade(cluster)));
        Box::new(Watch { detector: Detector::new(rules.clone()), task: task.abort_handle() })
    });
    watch.detector.set_rules(rules);
    let hosts = cluster.hosts.all();
    let watched = hosts.iter().filter_map(|host| Some((host.endpoint.clone(), host.monitor.clone()?)));
    watch.detector.set_hosts(watched);
    cluster.outlier_stats(worker).gauge_set(stat::ACTIVE, watch.detector.active() as u64);
    cluster.count_members(worker);
}

async fn tick(worker: Rc<Worker>, cluster: std::rc::Weak<Cluster>) {
    let interval = |cluster: Rc<Cluster>| Some(cluster.now.borrow().outliers.as_ref()?.interval);
    while let Some(interval) = cluster.upgrade().and_then(interval) {
        tokio::time::sleep(interval).await;
        let Some(cluster) = cluster.upgrade() else { return };
        let events = match &mut *cluster.outliers.borrow_mut() {
            Some(watch) => watch.detector.tick(Instant::now(), &worker.random),
            None => return,
        };
        settle(&cluster, &worker, events);
    }
}

/// Some worker saw too many failures of a host in a row.
pub(crate) fn judge(cluster: &Cluster, worker: &Worker, endpoint: &Endpoint, cause: Cause) {
    let events = match &mut *cluster.outliers.borrow_mut() {
        Some(watch) => watch.detector.report(endpoint, cause, Instant::now(), &worker.random),
        None => return,
    };
    settle(cluster, worker, events);
}

/// A host passed an active check.
pub(crate) fn passed_check(cluster: &Cluster, worker: &Worker, endpoint: &Endpoint) {
    let event = match &mut *cluster.outliers.borrow_mut() {
        Some(watch) => watch.detector.passed_check(endpoint, Instant::now()),
        None => return,
    };
    settle(cluster, worker, event.into_iter().collect());
}

/// Success rates of the last interval, where somebody knows them: of answers, and of reaching the host.
pub(crate) fn rates(cluster: &Cluster, endpoint: &Endpoint) -> [Option<f64>; 2] {
    cluster.outliers.borrow().as_ref().map_or([None; 2], |watch| watch.detector.rates(&endpoint.address))
}

/// What they were compared with.
pub(crate) fn comparisons(cluster: &Cluster) -> [Option<Comparison>; 2] {
    cluster.outliers.borrow().as_ref().map_or([None; 2], |watch| watch.detector.comparisons())
}

/// Counts and logs what happened, and tells every worker who is out and who is back.
fn settle(cluster: &Cluster, worker: &Worker, events: Vec<Event>) {
    if events.is_empty() {
        return;
    }
    let stats = cluster.outlier_stats(worker);
    for event in &events {
        count(stats, event);
        events::log(cluster, worker, event);
        match event {
            Event::Ejected(Ejection { enforced: true, endpoint, .. })
            | Event::Returned { endpoint, .. }
            | Event::Degraded(endpoint, _) => {
                publish(cluster, worker, endpoint);
            }
            Event::Ejected(_) | Event::Detected(_) | Event::Overflow => {}
        }
    }
    if let Some(watch) = &*cluster.outliers.borrow() {
        stats.gauge_set(stat::ACTIVE, watch.detector.active() as u64);
    }
}

fn publish(cluster: &Cluster, worker: &Worker, endpoint: &Arc<Endpoint>) {
    for peer in worker.peers.get().into_iter().flatten() {
        let message = Message::Ejection { cluster: cluster.plan.name.clone(), endpoint: endpoint.clone() };
        let peer = peer.clone();
        // A full mailbox is waited for. What is told is where to look, so the order does not matter.
        tokio::task::spawn_local(async move { peer.send(message).await.is_ok() });
    }
}

fn count(stats: &Block, event: &Event) {
    match event {
        Event::Detected(cause) => {
            stats.inc(detected(*cause));
            match cause {
                Cause::Consecutive5xx => stats.inc(stat::EJECTIONS_CONSECUTIVE_5XX),
                Cause::SuccessRate | Cause::LocalOriginSuccessRate => stats.inc(stat::EJECTIONS_SUCCESS_RATE),
                _ => {}
            }
        }
        Event::Overflow => stats.inc(stat::OVERFLOW),
        Event::Ejected(ejection) => {
            if matches!(ejection.cause, Cause::Consecutive5xx | Cause::SuccessRate) {
                stats.inc(stat::EJECTIONS_TOTAL);
            }
            if ejection.enforced {
                stats.inc(stat::ENFORCED_TOTAL);
                stats.inc(enforced(ejection.cause));
            }
        }
        Event::Returned { .. } | Event::Degraded(..) => {}
    }
}

fn detected(cause: Cause) -> Counter {
    match cause {
        Cause::Consecutive5xx => stat::DETECTED_CONSECUTIVE_5XX,
        Cause::GatewayFailure => stat::DETECTED_GATEWAY_FAILURE,
        Cause::LocalOriginFailure => stat::DETECTED_LOCAL_ORIGIN_FAILURE,
        Cause::SuccessRate => stat::DETECTED_SUCCESS_RATE,
        Cause::LocalOriginSuccessRate => stat::DETECTED_LOCAL_SUCCESS_RATE,
        Cause::FailurePercentage => stat::DETECTED_FAILURE_PERCENTAGE,
        Cause::LocalOriginFailurePercentage => stat::DETECTED_LOCAL_FAILURE_PERCENTAGE,
        Cause::Degradation => stat::DETECTED_DEGRADATION,
    }
}

/// One that is degraded is never left out for that.
fn enforced(cause: Cause) -> Counter {
    match cause {
        Cause::Consecutive5xx => stat::ENFORCED_CONSECUTIVE_5XX,
        Cause::GatewayFailure => stat::ENFORCED_GATEWAY_FAILURE,
        Cause::LocalOriginFailure => stat::ENFORCED_LOCAL_ORIGIN_FAILURE,
        Cause::SuccessRate => stat::ENFORCED_SUCCESS_RATE,
        Cause::LocalOriginSuccessRate => stat::ENFORCED_LOCAL_SUCCESS_RATE,
        Cause::FailurePercentage => stat::ENFORCED_FAILURE_PERCENTAGE,
        Cause::LocalOriginFailurePercentage => stat::ENFORCED_LOCAL_FAILURE_PERCENTAGE,
        Cause::Degradation => stat::DETECTED_DEGRADATION,
    }
}
