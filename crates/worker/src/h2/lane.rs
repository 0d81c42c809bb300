//! Tasks that serve one stream after the other. Making a task for each would cost more than what most requests need of it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Poll, Waker};

use super::server::{Job, answer};
use crate::worker::Worker;

/// Idle tasks that a worker keeps: the streams of a few busy connections.
const KEPT: usize = 64;

/// The idle ones of a worker.
#[derive(Default)]
pub(crate) struct Lanes(RefCell<Vec<Rc<Lane>>>);

/// Where an idle task looks for its next stream.
#[derive(Default)]
struct Lane {
    job: Cell<Option<Job>>,
    waker: Cell<Option<Waker>>,
}

/// Serves a stream on an idle task, or on a new one.
pub(super) fn start(worker: &Rc<Worker>, job: Job) {
    let idle = worker.lanes.0.borrow_mut().pop();
    let Some(lane) = idle else {
        tokio::task::spawn_local(run(worker.clone(), job));
        return;
    };
    lane.job.set(Some(job));
    if let Some(waker) = lane.waker.take() {
        waker.wake();
    }
}

async fn run(worker: Rc<Worker>, first: Job) {
    let lane = Rc::new(Lane { job: Cell::new(Some(first)), waker: Cell::default() });
    loop {
        let job = std::future::poll_fn(|cx| match lane.job.take() {
            Some(job) => Poll::Ready(job),
            None => {
                lane.waker.set(Some(cx.waker().clone()));
                Poll::Pending
            }
        })
        .await;
        answer(job).await;
        let mut idle = worker.lanes.0.borrow_mut();
        if idle.len() >= KEPT {
            return;
        }
        idle.push(lane.clone());
    }
}
