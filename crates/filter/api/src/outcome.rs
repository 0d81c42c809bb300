//! What a hook answers.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Poll, Waker};

/// How the stream goes on after a hook.
#[derive(Debug)]
pub enum Action {
    Continue,
    /// Nothing moves on this stream in this direction until [`Resumer::resume`]; then it goes on behind this filter.
    Pause,
    /// Answer the client now; the request goes no further.
    Respond(Box<LocalReply>),
}

/// An answer made by the proxy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LocalReply {
    /// 200 to 599.
    pub status: u16,
    pub body: Cow<'static, [u8]>,
    /// Beside `content-length`, and `content-type` when there is a body and this has none.
    pub headers: Vec<(Cow<'static, str>, Cow<'static, [u8]>)>,
    /// For `%RESPONSE_CODE_DETAILS%`; a token.
    pub details: Cow<'static, str>,
}

/// Ends a pause, at once or later, from the same worker.
#[derive(Debug, Clone, Default)]
pub struct Resumer(Rc<Paused>);

#[derive(Debug, Default)]
struct Paused {
    resumed: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Resumer {
    pub fn resume(&self) {
        self.0.resumed.set(true);
        if let Some(waker) = self.0.waker.take() {
            waker.wake();
        }
    }

    /// For the pipeline: whether the pause is over; if so it is forgotten.
    pub fn poll(&self, waker: &Waker) -> Poll<()> {
        if self.0.resumed.replace(false) {
            return Poll::Ready(());
        }
        *self.0.waker.borrow_mut() = Some(waker.clone());
        Poll::Pending
    }

    /// For the pipeline: forgets a resume that nobody waited for.
    pub fn reset(&self) {
        self.0.resumed.set(false);
        self.0.waker.take();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_ends_once_whether_resumed_before_or_after_the_wait() {
        let resumer = Resumer::default();
        resumer.clone().resume();
        assert!(resumer.poll(Waker::noop()).is_ready());
        assert!(resumer.poll(Waker::noop()).is_pending());
        resumer.resume();
        assert!(resumer.poll(Waker::noop()).is_ready());
    }
}
