//! Requests of filters' own that travel in pieces, and what lies between a filter and the task that carries one.
//!
//! ```text
//! filter ── send ──────> outgoing ──> task ──> cluster     the filter hears when much waits no longer
//!        <── receive ── incoming <── task <── cluster     the task stops reading while this is full
//! ```

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use postrider_http::{Fields, RequestHead, ResponseHead};

use crate::{CallFailure, CallHandle};

/// Bytes of an answer that may wait for the filter, and of a request until the filter is told that much waits.
const MUCH: usize = 256 * 1024;

/// Bytes of a request that may wait for the cluster. A filter that does not care for what is said of much meets this.
const MAX_WAITING: usize = 64 << 20;

/// A request of a filter's own whose body and answer travel in pieces.
pub struct CallOpen {
    pub cluster: Rc<str>,
    /// With method, path and authority.
    pub head: RequestHead,
    /// The beginning of the body.
    pub body: Vec<u8>,
    /// That is all of the request.
    pub ended: bool,
    /// From the end of the request to the end of the answer; `None` is no limit.
    pub timeout: Option<Duration>,
    /// Called on this worker, never from within a function of [`CallStream`]: when something came, and when there is room
    /// to send again.
    pub wake: Box<dyn Fn()>,
}

/// What came of an answer. The last one is `Ended`.
#[derive(Debug)]
pub enum Heard {
    /// With whether nothing is behind it.
    Head(Box<ResponseHead>, bool),
    /// With whether it is the last of the answer.
    Body(Vec<u8>, bool),
    Trailers(Box<Fields>),
    /// The answer is complete, or there is no more of it.
    Ended(Result<(), CallFailure>),
}

/// A request under way. Dropping it abandons the request.
pub struct CallStream {
    pipe: Rc<CallPipe>,
    _handle: CallHandle,
}

impl CallStream {
    /// For the worker: `handle` ends the task at the other end of the pipe.
    pub fn new(pipe: Rc<CallPipe>, handle: CallHandle) -> CallStream {
        CallStream { pipe, _handle: handle }
    }

    /// Puts more of the body in the queue. `false` when it was not taken, because far too much waits. What comes after the
    /// end of the request or of the answer is nobody's.
    pub fn send(&self, data: &[u8]) -> bool {
        self.pipe.send(data)
    }

    /// Much waits to be sent: it is told when that is over.
    pub fn sends_much(&self) -> bool {
        self.pipe.is_congested.get()
    }

    /// Nothing of the request follows behind these.
    pub fn finish(&self, trailers: Fields) {
        self.pipe.finish(trailers);
    }

    /// The next thing that came. While a filter leaves much of it, no more is read.
    pub fn receive(&self) -> Option<Heard> {
        self.pipe.receive()
    }
}

impl fmt::Debug for CallStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallStream")
    }
}

/// Some of a request's body.
#[derive(Debug)]
pub struct Outgoing {
    pub bytes: Vec<u8>,
    /// There is no more of it; these stand behind it.
    pub end: Option<Fields>,
}

/// Both queues of one request.
pub struct CallPipe {
    outgoing: RefCell<Vec<u8>>,
    /// The end of the request, until it is taken.
    end: RefCell<Option<Fields>>,
    finished: Cell<bool>,
    /// Much waits in `outgoing`.
    is_congested: Cell<bool>,
    incoming: RefCell<VecDeque<Heard>>,
    incoming_bytes: Cell<usize>,
    ended: Cell<bool>,
    /// Of the task.
    waker: RefCell<Option<Waker>>,
    /// Of the filter.
    wake: Box<dyn Fn()>,
}

impl CallPipe {
    /// With the beginning of a body.
    pub fn new(body: Vec<u8>, ended: bool, wake: Box<dyn Fn()>) -> CallPipe {
        CallPipe {
            is_congested: Cell::new(body.len() >= MUCH),
            outgoing: RefCell::new(body),
            end: RefCell::new(ended.then(Fields::new)),
            finished: Cell::new(ended),
            incoming: RefCell::default(),
            incoming_bytes: Cell::new(0),
            ended: Cell::new(false),
            waker: RefCell::default(),
            wake,
        }
    }

    fn send(&self, data: &[u8]) -> bool {
        if self.finished.get() || self.ended.get() {
            return true;
        }
        let mut outgoing = self.outgoing.borrow_mut();
        if outgoing.len().saturating_add(data.len()) > MAX_WAITING {
            return false;
        }
        outgoing.extend_from_slice(data);
        self.is_congested.set(outgoing.len() >= MUCH);
        drop(outgoing);
        self.wake_task();
        true
    }

    fn finish(&self, trailers: Fields) {
        if !self.finished.replace(true) {
            *self.end.borrow_mut() = Some(trailers);
            self.wake_task();
        }
    }

    fn receive(&self) -> Option<Heard> {
        let was_full = self.is_full();
        let heard = self.incoming.borrow_mut().pop_front()?;
        self.incoming_bytes.set(self.incoming_bytes.get().saturating_sub(weight(&heard)));
        if was_full && !self.is_full() {
            self.wake_task();
        }
        Some(heard)
    }

    fn is_full(&self) -> bool {
        self.incoming_bytes.get() >= MUCH
    }

    fn wake_task(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// For the task: what is to be sent. Once it said the end, it is not asked again.
    pub fn poll_outgoing(&self, cx: &Context<'_>) -> Poll<Outgoing> {
        let bytes = self.outgoing.take();
        let end = self.end.take();
        if bytes.is_empty() && end.is_none() {
            self.remember(cx);
            return Poll::Pending;
        }
        if self.is_congested.replace(false) {
            (self.wake)();
        }
        Poll::Ready(Outgoing { bytes, end })
    }

    /// For the task: ready when the filter has said the end of the request.
    pub fn poll_finished(&self, cx: &Context<'_>) -> Poll<()> {
        if self.finished.get() {
            return Poll::Ready(());
        }
        self.remember(cx);
        Poll::Pending
    }

    /// For the task: ready while the filter takes more of the answer.
    pub fn poll_wanted(&self, cx: &Context<'_>) -> Poll<()> {
        if !self.is_full() {
            return Poll::Ready(());
        }
        self.remember(cx);
        Poll::Pending
    }

    /// For the task: something came.
    pub fn deliver(&self, heard: Heard) {
        if matches!(heard, Heard::Ended(_)) {
            self.ended.set(true);
            self.is_congested.set(false);
        }
        self.incoming_bytes.set(self.incoming_bytes.get() + weight(&heard));
        self.incoming.borrow_mut().push_back(heard);
        (self.wake)();
    }

    fn remember(&self, cx: &Context<'_>) {
        *self.waker.borrow_mut() = Some(cx.waker().clone());
    }
}

/// How much room it takes: the smallest of pieces takes some, too.
fn weight(heard: &Heard) -> usize {
    match heard {
        Heard::Body(bytes, _) => bytes.len().max(64),
        Heard::Head(..) | Heard::Trailers(_) | Heard::Ended(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(body: &[u8], ended: bool) -> (CallStream, Rc<CallPipe>, Rc<Cell<usize>>) {
        let woken = Rc::new(Cell::new(0));
        let count = woken.clone();
        let pipe = Rc::new(CallPipe::new(body.to_vec(), ended, Box::new(move || count.set(count.get() + 1))));
        (CallStream::new(pipe.clone(), CallHandle::new(|| {})), pipe, woken)
    }

    fn taken(pipe: &CallPipe) -> Option<(Vec<u8>, bool)> {
        match pipe.poll_outgoing(&Context::from_waker(Waker::noop())) {
            Poll::Ready(Outgoing { bytes, end }) => Some((bytes, end.is_some())),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_body_gathers_until_it_is_taken() {
        let (stream, pipe, woken) = opened(b"a", false);
        assert!(stream.send(b"b"));
        assert_eq!(taken(&pipe), Some((b"ab".to_vec(), false)));
        assert_eq!(taken(&pipe), None);
        stream.finish(Fields::new());
        assert_eq!(taken(&pipe), Some((Vec::new(), true)));
        assert!(stream.send(b"late"), "nobody's");
        assert_eq!((taken(&pipe), woken.get()), (None, 0));
    }

    #[test]
    fn the_filter_hears_when_much_waits_no_longer() {
        let (stream, pipe, woken) = opened(b"", false);
        assert!(stream.send(&vec![0; MUCH - 1]) && !stream.sends_much());
        assert!(stream.send(b"1") && stream.sends_much());
        assert!(!stream.send(&vec![0; MAX_WAITING]), "far too much");
        assert_eq!(taken(&pipe).map(|(bytes, _)| bytes.len()), Some(MUCH));
        assert_eq!((stream.sends_much(), woken.get()), (false, 1));
    }

    #[test]
    fn an_answer_is_not_read_while_it_waits() {
        let (stream, pipe, woken) = opened(b"", true);
        let cx = Context::from_waker(Waker::noop());
        assert!(pipe.poll_wanted(&cx).is_ready());
        pipe.deliver(Heard::Body(vec![0; MUCH], false));
        assert!(pipe.poll_wanted(&cx).is_pending());
        pipe.deliver(Heard::Ended(Ok(())));
        assert!(matches!(stream.receive(), Some(Heard::Body(..))));
        assert!(pipe.poll_wanted(&cx).is_ready());
        assert!(matches!(stream.receive(), Some(Heard::Ended(Ok(())))));
        assert!(stream.receive().is_none());
        assert_eq!(woken.get(), 2);
    }
}
