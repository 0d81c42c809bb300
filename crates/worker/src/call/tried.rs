//! What becomes of a request of a filter's own, or a copy, counts for the host that it went to, as what becomes of a client's does.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use postrider_http::{HeaderId, ResponseHead};
use postrider_upstream::outlier::Outcome;

use crate::cluster::{Cluster, Host};
use crate::worker::Worker;
use crate::{health, outlier};

/// The host that a try is at.
pub(super) struct Tried<'a> {
    cluster: &'a Cluster,
    worker: &'a Worker,
    /// `None` before there is a connection, and once the try is over.
    host: RefCell<Option<Rc<Host>>>,
    /// The status of its answer, of which the rest may be missing; 0 for none.
    answered: Cell<u16>,
}

impl<'a> Tried<'a> {
    pub(super) fn new(cluster: &'a Cluster, worker: &'a Worker) -> Tried<'a> {
        Tried { cluster, worker, host: RefCell::default(), answered: Cell::default() }
    }

    /// Another try begins: what the last one was answered is no answer to this.
    pub(super) fn forget(&self) {
        self.answered.set(0);
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
        self.forget();
        self.host.replace(Some(host.clone()));
    }

    /// The head of an answer came.
    pub(super) fn answered(&self, head: &ResponseHead) {
        self.answered.set(head.status());
        if let Some(host) = self.host.borrow().as_deref() {
            outlier::report_answer(self.cluster, host, head, self.worker);
            if self.cluster.is_checked && head.fields.has(HeaderId::XEnvoyImmediateHealthCheckFail) {
                health::resigns(self.cluster, &host.endpoint, self.worker);
            }
        }
    }

    /// The status of the answer, where one began.
    pub(super) fn answer(&self) -> Option<u16> {
        Some(self.answered.get()).filter(|status| *status != 0)
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
            if self.answer().is_none() {
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
