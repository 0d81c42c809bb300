//! A request of a filter's own that is tried again, by the same rules as a client's.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use postrider_filter_api::{Answer, Call, CallFailure};
use postrider_http::RequestHead;
use postrider_model::{Priority, RetryPolicy};
use postrider_telemetry::stats::sets::{self, cluster as stat};

use super::tried::Tried;
use super::{Course, Payload, count_outcome, exchange, turned_away};
use crate::cluster::Cluster;
use crate::http::{Attempts, Reset, Verdict};
use crate::plan::AttemptsPlan;
use crate::worker::Worker;

/// Sends `call` to `cluster`, as often as `policy` says. The call's timeout holds for all of it.
pub(super) async fn run(worker: Rc<Worker>, cluster: Rc<Cluster>, call: Call, policy: Arc<RetryPolicy>) {
    let Call { head, body, timeout, done, .. } = call;
    let stats = cluster.stats(&worker).clone();
    let known = Known { tried: Tried::new(&cluster, &worker), took: Cell::default() };
    if let Some(answer) = turned_away(&worker, &cluster, None) {
        let outcome = Ok(answer);
        count_outcome(&stats, &outcome, (None, None));
        return done(outcome);
    }
    let outcome = {
        let tries = pin!(tries(&worker, &cluster, &head, &body, (timeout, &policy), &known));
        match timeout {
            Some(limit) => match tokio::time::timeout(limit, tries).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    stats.inc(stat::UPSTREAM_RQ_TIMEOUT);
                    known.tried.late();
                    Err(CallFailure::Timeout)
                }
            },
            None => tries.await,
        }
    };
    let took = known.took.get().filter(|_| outcome.is_ok());
    count_outcome(&stats, &outcome, (known.tried.answer(), took));
    done(outcome);
}

/// What is known of the last try.
struct Known<'a> {
    tried: Tried<'a>,
    took: Cell<Option<u64>>,
}

async fn tries(
    worker: &Rc<Worker>,
    cluster: &Rc<Cluster>,
    head: &RequestHead,
    body: &[u8],
    (timeout, policy): (Option<Duration>, &RetryPolicy),
    known: &Known<'_>,
) -> Result<Answer, CallFailure> {
    let stats = cluster.stats(worker).clone();
    // What the request itself says about tries is for whoever gets it.
    let plan = AttemptsPlan::of_call(policy);
    let mut attempts = Attempts::new(Some(plan), &RequestHead::new(), u64::MAX);
    attempts.settle_timeouts(timeout);
    loop {
        let (outcome, lost) = {
            let course = Course::new(&known.tried, None);
            let exchange = pin!(exchange(worker, cluster, head, Payload::Whole(body), &course));
            let outcome = match attempts.per_try {
                Some(limit) => tokio::time::timeout(limit, exchange).await.unwrap_or_else(|_| {
                    stats.inc(stat::UPSTREAM_RQ_PER_TRY_TIMEOUT);
                    course.lost.set(Some(Reset::Timeout));
                    known.tried.late();
                    Err(CallFailure::Timeout)
                }),
                None => exchange.await,
            };
            course.settled.set(true);
            known.took.set(course.took.get());
            (outcome, course.lost.get())
        };
        let wanted = match &outcome {
            Ok(answer) => attempts.wants_after(&answer.head),
            Err(_) => lost.is_some_and(|lost| {
                attempts.started |= lost != Reset::ConnectFailure;
                attempts.wants_after_reset(lost)
            }),
        };
        let verdict = attempts.judge(wanted, cluster, worker, Priority::Default);
        if verdict != Verdict::Again {
            return outcome;
        }
        if let Ok(answer) = &outcome {
            sets::count_retried_response(&stats, answer.head.status());
        }
        drop(outcome);
        let wait = attempts.back_off(&worker.random);
        tokio::time::sleep(wait.lasts).await;
        wait.count(&stats);
    }
}
