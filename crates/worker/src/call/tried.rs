//! What becomes of a request of a filter's own, or a copy, counts for the host that it went to, as what becomes of a client's does.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use postrider_http::ResponseHead;
use postrider_upstream::outlier::Outcome;

use crate::cluster::{Cluster, Host};
use crate::outlier;
use crate::worker::Worker;

/// The host that a try is at.
pub(super) struct Tried<'a> {
    cluster: &'a Cluster,
    worker: &'a Worker,
    /// `None` before there is a connection, and once the try is over.
    host: RefCell<Option<Rc<Host>>>,
    answered: Cell<bool>,
}

impl<'a> Tried<'a> {
    pub(super) fn new(cluster: &'a Cluster, worker: &'a Worker) -> Tried<'a> {
        Tried { cluster, worker, host: RefCell::default(), answered: Cell::default() }
    }

    /// There is no connection to `host`.
    pub(super) fn unreached(&self, host: &Host) {
        host.totals.errors.set(host.totals.errors.get() + 1);
        self.report(host, Outcome::Failed);
        self.end();
    }

    /// The request goes to `host`.
    pub(super) fn begin(&self, host: &Rc<Host>) {
        self.report(host, Outcome::Connected);
        self.answered.set(false);
        self.host.replace(Some(host.clone()));
    }

    /// The head of an answer came.
    pub(super) fn answered(&self, head: &ResponseHead) {
        self.answered.set(true);
        if let Some(host) = self.host.borrow().as_deref() {
            outlier::report_answer(self.cluster, host, head, self.worker);
        }
    }

    pub(super) fn is_answered(&self) -> bool {
        self.answered.get()
    }

    /// Counts the request as one that went well, or not.
    pub(super) fn count(&self, good: bool) {
        if let Some(host) = self.host.borrow().as_deref() {
            let total = if good { &host.totals.successes } else { &host.totals.errors };
            total.set(total.get() + 1);
        }
    }

    /// The connection or the stream broke, or nobody understands what is said on it.
    pub(super) fn broke(&self) {
        if let Some(host) = self.host.borrow().as_deref() {
            self.report(host, Outcome::Failed);
        }
    }

    /// The try is over, because it took too long.
    pub(super) fn late(&self) {
        if let Some(host) = self.host.borrow().as_deref() {
            host.totals.timeouts.set(host.totals.timeouts.get() + 1);
            if !self.answered.get() {
                host.totals.errors.set(host.totals.errors.get() + 1);
                self.report(host, Outcome::TimedOut);
            }
        }
        self.end();
    }

    /// The try is over, and what became of it is counted.
    pub(super) fn end(&self) {
        drop(self.host.take());
    }

    fn report(&self, host: &Host, outcome: Outcome) {
        if host.monitor.is_some() {
            outlier::report(self.cluster, host, outcome, self.worker);
        }
    }
}
