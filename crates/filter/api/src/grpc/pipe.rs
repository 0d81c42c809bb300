//! What lies between a filter and the task that talks to its service: one bounded queue each way.
//!
//! ```text
//! filter ── send ──────> outgoing ──> task ──> service
//!        <── receive ── incoming <── task <── service      the task stops reading while this is full
//! ```

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use postrider_http::{Fields, ResponseHead};

use super::GrpcStatus;

/// Bytes that may wait in one direction. A message that finds the queue below this is taken whole.
const MAX_WAITING: usize = 256 * 1024;

pub struct GrpcPipe {
    outgoing: Queue,
    incoming: Queue,
    /// The filter sends nothing more.
    finished: Cell<bool>,
    /// The filter has gone, and the service has so much time to go as well.
    left: Cell<Option<Duration>>,
    ended: RefCell<Option<GrpcStatus>>,
    /// The filter wants to see these.
    keeps_metadata: Cell<bool>,
    initial: RefCell<Option<Option<ResponseHead>>>,
    trailing: RefCell<Option<Fields>>,
    /// Of the task.
    waker: RefCell<Option<Waker>>,
    /// Of the filter.
    wake: Box<dyn Fn()>,
}

#[derive(Default)]
struct Queue {
    messages: RefCell<VecDeque<Vec<u8>>>,
    bytes: Cell<usize>,
}

impl Queue {
    fn is_full(&self) -> bool {
        self.bytes.get() >= MAX_WAITING
    }

    fn push(&self, message: Vec<u8>) {
        // An empty message takes room as well.
        self.bytes.set(self.bytes.get() + message.len().max(1));
        self.messages.borrow_mut().push_back(message);
    }

    fn clear(&self) {
        self.messages.borrow_mut().clear();
        self.bytes.set(0);
    }

    fn pop(&self) -> Option<Vec<u8>> {
        let message = self.messages.borrow_mut().pop_front()?;
        self.bytes.set(self.bytes.get().saturating_sub(message.len().max(1)));
        Some(message)
    }
}

impl GrpcPipe {
    /// `wake` is called as [`super::GrpcOpen::wake`] says.
    pub fn new(wake: Box<dyn Fn()>) -> GrpcPipe {
        GrpcPipe {
            outgoing: Queue::default(),
            incoming: Queue::default(),
            finished: Cell::new(false),
            left: Cell::new(None),
            ended: RefCell::default(),
            keeps_metadata: Cell::new(false),
            initial: RefCell::default(),
            trailing: RefCell::default(),
            waker: RefCell::default(),
            wake,
        }
    }

    pub(super) fn send(&self, message: Vec<u8>) -> bool {
        if !self.has_room() {
            return false;
        }
        self.outgoing.push(message);
        self.wake_task();
        true
    }

    pub(super) fn has_room(&self) -> bool {
        !self.outgoing.is_full() && !self.finished.get() && self.ended.borrow().is_none()
    }

    pub(super) fn unsent(&self) -> usize {
        self.outgoing.messages.borrow().len()
    }

    pub(super) fn finish(&self) {
        self.finished.set(true);
        self.wake_task();
    }

    pub(super) fn leave(&self, patience: Duration) {
        self.left.set(Some(patience));
        self.incoming.clear();
        self.finish();
    }

    pub(super) fn receive(&self) -> Option<Vec<u8>> {
        let was_full = self.incoming.is_full();
        let message = self.incoming.pop()?;
        if was_full && !self.incoming.is_full() {
            self.wake_task();
        }
        Some(message)
    }

    pub(super) fn status(&self) -> Option<GrpcStatus> {
        if self.incoming.bytes.get() > 0 {
            return None;
        }
        self.ended.borrow().clone()
    }

    /// Nobody listens any more once the filter has left.
    fn wake_filter(&self) {
        if self.left.get().is_none() {
            (self.wake)();
        }
    }

    fn wake_task(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// For the task: the next message to send; `None` when there will be no more.
    pub fn poll_outgoing(&self, cx: &Context<'_>) -> Poll<Option<Vec<u8>>> {
        let was_full = self.outgoing.is_full();
        if let Some(message) = self.outgoing.pop() {
            if was_full && !self.outgoing.is_full() {
                self.wake_filter();
            }
            return Poll::Ready(Some(message));
        }
        if self.finished.get() {
            return Poll::Ready(None);
        }
        self.remember(cx);
        Poll::Pending
    }

    /// For the task: ready when the filter has left, with how long the service may take to end its side.
    pub fn poll_left(&self, cx: &Context<'_>) -> Poll<Duration> {
        match self.left.get() {
            Some(patience) => Poll::Ready(patience),
            None => {
                self.remember(cx);
                Poll::Pending
            }
        }
    }

    /// For the task: ready while the filter takes more messages.
    pub fn poll_wanted(&self, cx: &Context<'_>) -> Poll<()> {
        if !self.incoming.is_full() {
            return Poll::Ready(());
        }
        self.remember(cx);
        Poll::Pending
    }

    /// For the task: a message came.
    pub fn deliver(&self, message: Vec<u8>) {
        if self.left.get().is_none() {
            self.incoming.push(message);
            self.wake_filter();
        }
    }

    pub(super) fn keep_metadata(&self) {
        self.keeps_metadata.set(true);
    }

    pub(super) fn take_initial(&self) -> Option<Option<ResponseHead>> {
        self.initial.take()
    }

    pub(super) fn take_trailing(&self) -> Option<Fields> {
        self.trailing.take()
    }

    /// For the task: the service began to answer. With nothing behind its head, that is metadata of the end.
    pub fn hear_initial(&self, head: &ResponseHead, end: bool) {
        if self.keeps_metadata.get() {
            *self.initial.borrow_mut() = Some((!end).then(|| head.clone()));
            self.wake_filter();
        }
    }

    /// For the task: what stands behind the answers, before [`GrpcPipe::end`].
    pub fn hear_trailing(&self, fields: &Fields) {
        if self.keeps_metadata.get() {
            *self.trailing.borrow_mut() = Some(fields.clone());
        }
    }

    /// For the task: the conversation is over.
    pub fn end(&self, status: GrpcStatus) {
        *self.ended.borrow_mut() = Some(status);
        self.wake_filter();
    }

    fn remember(&self, cx: &Context<'_>) {
        *self.waker.borrow_mut() = Some(cx.waker().clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    fn pipe() -> (GrpcPipe, Rc<Cell<usize>>) {
        let woken = Rc::new(Cell::new(0));
        let count = woken.clone();
        (GrpcPipe::new(Box::new(move || count.set(count.get() + 1))), woken)
    }

    #[test]
    fn a_full_queue_takes_nothing_until_some_of_it_left() {
        let (pipe, woken) = pipe();
        let cx = Context::from_waker(Waker::noop());
        assert!(pipe.send(vec![0; MAX_WAITING]));
        assert!(!pipe.has_room() && !pipe.send(vec![1]), "full");
        assert_eq!(pipe.poll_outgoing(&cx).map(|message| message.map(|m| m.len())), Poll::Ready(Some(MAX_WAITING)));
        assert_eq!(woken.get(), 1, "the filter hears of the room");
        assert!(pipe.send(Vec::new()));
        pipe.finish();
        assert!(!pipe.send(vec![1]), "it said that nothing follows");
        assert_eq!(pipe.poll_outgoing(&cx), Poll::Ready(Some(Vec::new())));
        assert_eq!(pipe.poll_outgoing(&cx), Poll::Ready(None));
    }

    #[test]
    fn a_filter_that_leaves_hears_nothing_more_but_what_it_said_is_sent() {
        let (pipe, woken) = pipe();
        let cx = Context::from_waker(Waker::noop());
        assert!(pipe.poll_left(&cx).is_pending());
        assert!(pipe.send(b"last".to_vec()));
        pipe.deliver(vec![0; MAX_WAITING]);
        pipe.leave(Duration::from_secs(1));
        assert_eq!(pipe.poll_left(&cx), Poll::Ready(Duration::from_secs(1)));
        assert!(pipe.poll_wanted(&cx).is_ready(), "the service is read, so that it can end");
        pipe.deliver(b"late".to_vec());
        assert_eq!(pipe.poll_outgoing(&cx), Poll::Ready(Some(b"last".to_vec())));
        assert_eq!(pipe.poll_outgoing(&cx), Poll::Ready(None));
        pipe.end(GrpcStatus::default());
        assert_eq!((woken.get(), pipe.receive()), (1, None));
    }

    #[test]
    fn the_service_is_not_read_while_its_messages_wait() {
        let (pipe, woken) = pipe();
        let cx = Context::from_waker(Waker::noop());
        assert!(pipe.poll_wanted(&cx).is_ready());
        pipe.deliver(vec![0; MAX_WAITING]);
        assert!(pipe.poll_wanted(&cx).is_pending());
        pipe.end(GrpcStatus::default());
        assert_eq!(woken.get(), 2);
        assert_eq!(pipe.status(), None, "a message is still to be received");
        assert!(pipe.receive().is_some());
        assert!(pipe.poll_wanted(&cx).is_ready());
        assert_eq!(pipe.status(), Some(GrpcStatus::default()));
        assert!(!pipe.send(vec![1]), "nobody is there any more");
    }
}
