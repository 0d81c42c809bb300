//! Connections of HTTP/2 that end because what came on them is no HTTP.

use std::cell::{Cell, RefCell};
use std::task::{Context, Poll, Waker};

/// Whether what comes on a connection can be trusted. Its streams find out, and its task ends it.
#[derive(Default)]
pub(crate) struct Soundness {
    /// A malformed answer ends its stream alone.
    spares: bool,
    lost: Cell<bool>,
    task: RefCell<Option<Waker>>,
}

impl Soundness {
    /// `spares`: malformed answers leave the connection as it is.
    pub(super) fn new(spares: bool) -> Soundness {
        Soundness { spares, ..Soundness::default() }
    }

    pub(super) fn spares(&self) -> bool {
        self.spares
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.get()
    }

    /// The connection is to end; `true` for who says so first.
    pub(super) fn lose(&self) -> bool {
        let is_first = !self.lost.replace(true);
        if let Some(task) = self.task.take() {
            task.wake();
        }
        is_first
    }

    /// Ready when the connection is to end.
    pub(crate) fn poll_lost(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.lost.get() {
            return Poll::Ready(());
        }
        let mut task = self.task.borrow_mut();
        if !task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            *task = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}
