//! The body of a copied request, on its way from the stream that reads it to the task that sends the copy.
//!
//! The reader never waits: a copy whose upstream takes the body too slowly is given up.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The taking end.
#[derive(Default)]
pub(crate) struct Feed {
    bytes: RefCell<Vec<u8>>,
    state: Cell<State>,
    waker: Cell<Option<Waker>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Open,
    Ended,
    /// The rest will not come.
    Broken,
}

/// Some of the body.
pub(crate) struct Fed {
    pub(crate) bytes: Vec<u8>,
    /// There is no more.
    pub(crate) ended: bool,
}

impl Feed {
    /// What came since the last time; `None` when the body breaks off.
    pub(crate) fn poll_take(&self, cx: &mut Context<'_>) -> Poll<Option<Fed>> {
        let state = self.state.get();
        if state == State::Broken {
            return Poll::Ready(None);
        }
        let bytes = self.bytes.take();
        let ended = state == State::Ended;
        if bytes.is_empty() && !ended {
            self.waker.set(Some(cx.waker().clone()));
            return Poll::Pending;
        }
        Poll::Ready(Some(Fed { bytes, ended }))
    }

    fn set(&self, state: State) {
        self.state.set(state);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// The bringing end. A body that is not ended when this is dropped breaks off.
pub(crate) struct Feeder {
    feed: Rc<Feed>,
    /// Bytes that may wait.
    limit: usize,
}

impl Feeder {
    pub(crate) fn new(limit: usize) -> (Feeder, Rc<Feed>) {
        let feed = Rc::new(Feed::default());
        (Feeder { feed: feed.clone(), limit }, feed)
    }

    /// Brings a piece; `false` when too much waits now and the copy is given up.
    pub(crate) fn push(&self, piece: &[u8]) -> bool {
        if self.feed.state.get() != State::Open {
            return true;
        }
        let mut bytes = self.feed.bytes.borrow_mut();
        let fits = bytes.len() + piece.len() <= self.limit;
        if fits {
            bytes.extend_from_slice(piece);
            self.feed.set(State::Open);
        } else {
            *bytes = Vec::new();
            self.feed.set(State::Broken);
        }
        fits
    }

    pub(crate) fn end(&self) {
        if self.feed.state.get() == State::Open {
            self.feed.set(State::Ended);
        }
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        if self.feed.state.get() == State::Open {
            self.feed.set(State::Broken);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(feed: &Feed) -> Poll<Option<(Vec<u8>, bool)>> {
        feed.poll_take(&mut Context::from_waker(Waker::noop())).map(|fed| fed.map(|fed| (fed.bytes, fed.ended)))
    }

    #[test]
    fn pieces_gather_until_they_are_taken() {
        let (feeder, feed) = Feeder::new(8);
        assert_eq!(take(&feed), Poll::Pending);
        assert!(feeder.push(b"ab") && feeder.push(b"cd"));
        assert_eq!(take(&feed), Poll::Ready(Some((b"abcd".to_vec(), false))));
        feeder.end();
        assert_eq!(take(&feed), Poll::Ready(Some((Vec::new(), true))));
    }

    #[test]
    fn too_much_at_once_gives_the_copy_up() {
        let (feeder, feed) = Feeder::new(3);
        assert!(feeder.push(b"abc") && !feeder.push(b"d"));
        feeder.end();
        assert_eq!(take(&feed), Poll::Ready(None));
    }

    #[test]
    fn a_body_that_ends_early_breaks_off() {
        let (feeder, feed) = Feeder::new(3);
        feeder.push(b"a");
        drop(feeder);
        assert_eq!(take(&feed), Poll::Ready(None));
    }
}
