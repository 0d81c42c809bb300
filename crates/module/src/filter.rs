//! What a module implements.

use crate::background::Background;
use crate::calls::{Answer, CallId, Failure};
use crate::setup::{Refusal, Setup};
use crate::stream::Stream;

/// A filter. A value is one configuration of it, made when the proxy reads its own; workers share it.
///
/// Every hook but the two that make things has a default, which lets the message go on.
pub trait HttpFilter: Sized + Send + Sync + 'static {
    /// What one stream has.
    type State: 'static;

    /// Makes a configuration. Statistics are defined here and at no other time.
    ///
    /// # Errors
    /// Why it is refused: the log has it, and the proxy refuses its own configuration.
    fn new(setup: &mut Setup<'_>) -> Result<Self, Refusal>;

    /// A stream begins. `None` when nothing can be done for it: the proxy does what its failure policy says.
    fn begin(&self) -> Option<Self::State>;

    /// The hooks that the filter wants. Postrider calls no others, and leaves messages that nobody looks at alone; Envoy calls
    /// all, and those left out do nothing.
    fn hooks(&self) -> Hooks {
        Hooks::ALL
    }

    /// The request's head. With `end`, there is nothing behind it.
    fn on_request_headers(&self, state: &mut Self::State, stream: &mut Stream<'_>, end: bool) -> Head {
        let _ = (state, stream, end);
        Head::Continue
    }

    /// A piece of the request's body: [`Stream::received_request_body`]. With `end`, it is the last one, and may be empty.
    fn on_request_body(&self, state: &mut Self::State, stream: &mut Stream<'_>, end: bool) -> Piece {
        let _ = (state, stream, end);
        Piece::Continue
    }

    /// The request's trailers, where it has some.
    fn on_request_trailers(&self, state: &mut Self::State, stream: &mut Stream<'_>) -> Trailers {
        let _ = (state, stream);
        Trailers::Continue
    }

    /// The response's head.
    fn on_response_headers(&self, state: &mut Self::State, stream: &mut Stream<'_>, end: bool) -> Head {
        let _ = (state, stream, end);
        Head::Continue
    }

    /// A piece of the response's body: [`Stream::received_response_body`].
    fn on_response_body(&self, state: &mut Self::State, stream: &mut Stream<'_>, end: bool) -> Piece {
        let _ = (state, stream, end);
        Piece::Continue
    }

    /// The response's trailers.
    fn on_response_trailers(&self, state: &mut Self::State, stream: &mut Stream<'_>) -> Trailers {
        let _ = (state, stream);
        Trailers::Continue
    }

    /// The proxy answers in the upstream's place, with this status and for this reason. So it is told of the filter's own
    /// [`Stream::reply`], too.
    fn on_local_reply(&self, state: &mut Self::State, stream: &mut Stream<'_>, status: u16, details: &str) {
        let _ = (state, stream, status, details);
    }

    /// The stream is over. What is known of it is there, the messages are not. A stream that ends before its request was seen
    /// may end without.
    fn on_complete(&self, state: &mut Self::State, stream: &mut Stream<'_>) {
        let _ = (state, stream);
    }

    /// A [`Scheduler`](crate::Scheduler) of the stream committed an event.
    fn on_scheduled(&self, state: &mut Self::State, stream: &mut Stream<'_>, event: u64) {
        let _ = (state, stream, event);
    }

    /// A call by [`Stream::call`] is over.
    fn on_call_done(
        &self,
        state: &mut Self::State,
        stream: &mut Stream<'_>,
        call: CallId,
        answer: Result<Answer<'_>, Failure>,
    ) {
        let _ = (state, stream, call, answer);
    }

    /// The head of the answer to a call by [`Stream::open_call`].
    fn on_call_headers(
        &self,
        state: &mut Self::State,
        stream: &mut Stream<'_>,
        call: CallId,
        head: Answer<'_>,
        end: bool,
    ) {
        let _ = (state, stream, call, head, end);
    }

    /// A piece of the body of the answer to such a call.
    fn on_call_body(&self, state: &mut Self::State, stream: &mut Stream<'_>, call: CallId, piece: &[&[u8]], end: bool) {
        let _ = (state, stream, call, piece, end);
    }

    /// What stands behind that body: the fields of it.
    fn on_call_trailers(&self, state: &mut Self::State, stream: &mut Stream<'_>, call: CallId, trailers: Answer<'_>) {
        let _ = (state, stream, call, trailers);
    }

    /// Such a call is over: with its answer complete, or without.
    fn on_call_end(&self, state: &mut Self::State, stream: &mut Stream<'_>, call: CallId, end: Result<(), Failure>) {
        let _ = (state, stream, call, end);
    }

    /// Much of an answer in pieces waits for its client (`true`), or no longer does.
    fn on_congested(&self, state: &mut Self::State, stream: &mut Stream<'_>, much: bool) {
        let _ = (state, stream, much);
    }

    /// A [`BackgroundScheduler`](crate::BackgroundScheduler) of the configuration committed an event.
    fn on_background_event(&self, background: &Background<'_>, event: u64) {
        let _ = (background, event);
    }

    /// A call by [`Background::call`] is over.
    fn on_background_call_done(&self, background: &Background<'_>, call: CallId, answer: Result<Answer<'_>, Failure>) {
        let _ = (background, call, answer);
    }

    /// The head of the answer to a call by [`Background::open_call`]. `end`: nothing follows.
    fn on_background_call_headers(&self, background: &Background<'_>, call: CallId, head: Answer<'_>, end: bool) {
        let _ = (background, call, head, end);
    }

    /// A piece of the body of the answer to such a call.
    fn on_background_call_body(&self, background: &Background<'_>, call: CallId, piece: &[&[u8]], end: bool) {
        let _ = (background, call, piece, end);
    }

    /// What stands behind that body: the fields of it.
    fn on_background_call_trailers(&self, background: &Background<'_>, call: CallId, trailers: Answer<'_>) {
        let _ = (background, call, trailers);
    }

    /// Such a call is over: with its answer complete, or without.
    fn on_background_call_end(&self, background: &Background<'_>, call: CallId, end: Result<(), Failure>) {
        let _ = (background, call, end);
    }
}

/// A route's own configuration of a filter: `typed_per_filter_config`. Streams find the most specific one of their route by
/// [`Stream::route_config`].
pub trait RouteConfig: Sized + Send + Sync + 'static {
    /// Makes one, of the filter's name and its bytes.
    ///
    /// # Errors
    /// Why it is refused.
    fn new(name: &str, config: &[u8]) -> Result<Self, Refusal>;
}

/// What a hook on a head answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Head {
    /// It goes on.
    Continue = 0,
    /// It waits. Pieces of the body are shown, and the first that continues takes it along.
    Stop = 1,
    /// A head with nothing behind it goes on, and a body may follow.
    ContinueWithoutEnd = 2,
    /// Nothing moves until the message is continued; a body that becomes too large is answered with 413.
    StopAllAndBuffer = 3,
    /// Nothing moves until the message is continued; no more is read when there is much.
    StopAllAndWatermark = 4,
}

/// What a hook on a piece of a body answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Piece {
    /// It goes on, behind what was kept before.
    Continue = 0,
    /// It is kept. Too much is answered with 413, or 500 for a response.
    StopAndBuffer = 1,
    /// It is kept; when that is much, no more is read until the message is continued.
    StopAndWatermark = 2,
    /// It is dropped: the filter has what it wants of it.
    StopNoBuffer = 3,
}

/// What a hook on trailers answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Trailers {
    /// They go on.
    Continue = 0,
    /// They wait until the message is continued.
    Stop = 1,
}

/// Which hooks on messages a filter wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hooks {
    /// [`HttpFilter::on_request_headers`]
    pub request_headers: bool,
    /// [`HttpFilter::on_request_body`]
    pub request_body: bool,
    /// [`HttpFilter::on_request_trailers`]
    pub request_trailers: bool,
    /// [`HttpFilter::on_response_headers`]
    pub response_headers: bool,
    /// [`HttpFilter::on_response_body`]
    pub response_body: bool,
    /// [`HttpFilter::on_response_trailers`]
    pub response_trailers: bool,
}

impl Hooks {
    /// Every one.
    pub const ALL: Hooks = Hooks {
        request_headers: true,
        request_body: true,
        request_trailers: true,
        response_headers: true,
        response_body: true,
        response_trailers: true,
    };

    /// None: `Hooks { request_headers: true, ..Hooks::NONE }`.
    pub const NONE: Hooks = Hooks {
        request_headers: false,
        request_body: false,
        request_trailers: false,
        response_headers: false,
        response_body: false,
        response_trailers: false,
    };

    /// As the proxy reads it: one bit each, in the order of the fields.
    pub(crate) fn bits(self) -> u32 {
        let all = [
            self.request_headers,
            self.request_body,
            self.request_trailers,
            self.response_headers,
            self.response_body,
            self.response_trailers,
        ];
        all.iter().enumerate().fold(0, |bits, (at, wanted)| bits | u32::from(*wanted) << at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_are_bits_in_the_order_of_their_messages() {
        assert_eq!(Hooks::NONE.bits(), 0);
        assert_eq!(Hooks::ALL.bits(), 0b11_1111);
        assert_eq!(Hooks { request_body: true, ..Hooks::NONE }.bits(), 0b10);
        assert_eq!(Hooks { response_trailers: true, ..Hooks::NONE }.bits(), 0b10_0000);
    }
}
