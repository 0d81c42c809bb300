//! What a hook answers.

use std::any::Any;
use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::task::{Poll, Waker};

use postrider_http::{RequestHead, ResponseHead, grpc};

/// How a message goes on after a hook.
#[derive(Debug)]
pub enum Action {
    Continue,
    /// Continue, and this filter wants nothing more of this message: its body passes as if the filter were not there.
    Done,
    /// Nothing moves in this direction until [`Resumer::resume`]; then the filter's `on_…_resumed` is asked.
    Pause,
    /// Head and body stay in front of this filter while more of the body is read: each further piece comes with all
    /// that is held, up to the buffer limit. From a body hook with `end`, or from a trailers hook, the same as
    /// [`Action::Continue`]: nothing more will come.
    Buffer,
    /// This filter takes the message over, from the hook of its head or that hook's resumption: the head stays in front of
    /// the filter, each piece of the body and the trailers are shown to its hooks and go no further, and what goes on in
    /// their place is what its `on_…_flow` lets go on. No answer but this message's [`Action::Respond`] counts from those
    /// hooks meanwhile. Of a head with nothing behind it, the same as [`Action::Continue`].
    Take,
    /// From a body hook: so many bytes of what is held go on; once they did, the filter's `on_…_resumed` is asked about
    /// the rest. All of it or more: the same as [`Action::Continue`]. None, or from another hook: the same as
    /// [`Action::Pause`].
    Part(usize),
    /// Answer the client now. From a request hook: the request goes no further. From a response hook: this takes the
    /// response's place, as long as its head was not sent; later it cuts the response off.
    Respond(Box<LocalReply>),
    /// From the hook of a response's head: another answer takes this one's place, and is fetched by a request through the
    /// routes. Once per request, and only when all of the client's request was read; otherwise the same as
    /// [`Action::Continue`].
    Detour(Box<Detour>),
    /// The request begins anew, as its head is now: through routes and filters, as if it had just come. From the hooks of
    /// heads and their resumptions, for a request without a body, before its answer has begun. One that does so
    /// [too often](MAX_ANEW) is answered with 508. Logs say of this one that it was answered so, if anything is said.
    Anew(Option<Box<ResponseHead>>),
}

/// How often a request may begin anew.
pub const MAX_ANEW: u32 = 16;

/// The request whose answer takes the place of another.
pub struct Detour {
    /// It has no body, and goes through the filters of the route that it finds.
    pub head: RequestHead,
    /// The hooks that see it and its answer find this in [`StreamInfo::shared`](crate::StreamInfo::shared).
    pub note: Rc<dyn Any>,
}

impl fmt::Debug for Detour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Detour").field("head", &self.head).finish_non_exhaustive()
    }
}

/// What goes on of a message that a filter took over.
#[derive(Debug)]
pub enum Flow {
    /// Nothing now. The filter takes more of the message: it is asked again when some came, or when it is resumed.
    Want,
    /// Nothing, and nothing more is taken, until the filter is resumed.
    Wait,
    /// The head.
    Head,
    /// What the filter put in the body, which is empty when it is asked. The head goes first.
    Piece,
    /// As [`Flow::Piece`], and behind it the rest of the message as if the filter were not there: what comes of its body,
    /// its trailers, and its end.
    Release,
    /// As [`Flow::Piece`], and the message ends behind it. What still comes of the body goes nowhere; trailers are the
    /// filter's to empty, whether they are here already or are shown to it later.
    Finish,
    /// See [`Action::Respond`].
    Respond(Box<LocalReply>),
}

/// An answer made by the proxy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LocalReply {
    /// 200 to 599. To a gRPC request, the answer is 200 with the gRPC status that this stands for. 0 is no answer: the
    /// stream is cut off.
    pub status: u16,
    /// What a gRPC request is told in its place.
    pub grpc_status: Option<grpc::Code>,
    pub body: Cow<'static, [u8]>,
    /// Beside `content-length`, and `content-type` when there is a body and this has none.
    pub headers: Vec<(Cow<'static, str>, Cow<'static, [u8]>)>,
    pub treatment: Treatment,
    /// For `%RESPONSE_CODE_DETAILS%`; a token.
    pub details: Cow<'static, str>,
}

/// How an answer meets what is configured about answers that the proxy makes itself: the edits of the route, and the
/// connection manager's `local_reply_config`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Treatment {
    /// Its headers stand beside those that the route adds.
    #[default]
    Beside,
    /// They take the place of those of their names.
    InPlace,
    /// Neither holds for it, nor is it put as gRPC: it is what its filter is there for, such as the answer to a preflight.
    Own,
}

/// Ends a pause, at once or later, from the same worker.
#[derive(Debug, Clone, Default)]
pub struct Resumer(Rc<Paused>);

#[derive(Default)]
struct Paused {
    resumed: Cell<bool>,
    waker: Cell<Option<Waker>>,
}

impl fmt::Debug for Paused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paused").field("resumed", &self.resumed).finish_non_exhaustive()
    }
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
        self.0.waker.set(Some(waker.clone()));
        Poll::Pending
    }

    /// For the pipeline: the stream is over; clones that are still held resume nothing any more.
    #[inline]
    pub fn renew(&mut self) {
        if Rc::strong_count(&self.0) > 1 {
            *self = Resumer::default();
        } else {
            self.reset();
        }
    }

    /// For the pipeline: forgets a resume that nobody waited for.
    #[inline]
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

    #[test]
    fn a_clone_from_an_earlier_stream_resumes_nothing() {
        let mut resumer = Resumer::default();
        let old = resumer.clone();
        resumer.renew();
        old.resume();
        assert!(resumer.poll(Waker::noop()).is_pending());
    }
}
