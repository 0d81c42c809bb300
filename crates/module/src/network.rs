//! What a module implements that sees the bytes of connections, and how their guard knows it.

use std::cell::RefCell;
use std::ffi::c_int;
use std::marker::PhantomData;

use crate::abi::{self, Buffer, StreamRef};
use crate::calls::{Answer, CallId, Failure};
use crate::connection::Connection;
use crate::guard::{Kind, OwnedAnswer};
use crate::setup::{NetworkSetup, Refusal};

/// A filter of connections. A value is one configuration of it, made when the proxy reads its own; workers share it.
///
/// Every hook but the two that make things has a default, which lets bytes pass.
pub trait NetworkFilter: Sized + Send + Sync + 'static {
    /// What one connection has.
    type State: 'static;

    /// Makes a configuration. Statistics are defined here and at no other time.
    ///
    /// # Errors
    /// Why it is refused: the log has it, and the proxy refuses its own configuration.
    fn new(setup: &mut NetworkSetup<'_>) -> Result<Self, Refusal>;

    /// A connection begins. `None` ends it.
    fn begin(&self) -> Option<Self::State>;

    /// It is there. While this says [`Passage::Stop`], the filters behind do not know of it.
    fn on_connection(&self, state: &mut Self::State, connection: &mut Connection<'_>) -> Passage {
        let _ = (state, connection);
        Passage::Continue
    }

    /// Bytes came from the client: [`Connection::received`]. With `end`, nothing follows.
    fn on_received(&self, state: &mut Self::State, connection: &mut Connection<'_>, end: bool) -> Passage {
        let _ = (state, connection, end);
        Passage::Continue
    }

    /// Bytes go to the client: [`Connection::sent`].
    fn on_sent(&self, state: &mut Self::State, connection: &mut Connection<'_>, end: bool) -> Passage {
        let _ = (state, connection, end);
        Passage::Continue
    }

    /// The client or the proxy ended it, or it stands.
    fn on_event(&self, state: &mut Self::State, connection: &mut Connection<'_>, event: ConnectionEvent) {
        let _ = (state, connection, event);
    }

    /// A [`ConnectionScheduler`](crate::ConnectionScheduler) of the connection committed an event.
    fn on_scheduled(&self, state: &mut Self::State, connection: &mut Connection<'_>, event: u64) {
        let _ = (state, connection, event);
    }

    /// A call by [`Connection::call`] is over.
    fn on_call_done(
        &self,
        state: &mut Self::State,
        connection: &mut Connection<'_>,
        call: CallId,
        answer: Result<Answer<'_>, Failure>,
    ) {
        let _ = (state, connection, call, answer);
    }

    /// More waits for the client than the buffer limit (`true`), or half of that again.
    fn on_congested(&self, state: &mut Self::State, connection: &mut Connection<'_>, much: bool) {
        let _ = (state, connection, much);
    }
}

/// Whether bytes go on behind a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Passage {
    /// They do.
    Continue = 0,
    /// They come again with more of them, or go on when the connection is resumed.
    Stop = 1,
}

/// What became of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionEvent {
    /// The client ended it.
    ClosedByClient,
    /// The proxy did.
    ClosedByProxy,
    /// It stands.
    Connected,
}

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Ending {
    /// When the client took what was sent to it.
    Flushed = 0,
    /// Behind what the client takes of that at once.
    AtOnce = 1,
    /// Without the rest of that.
    Dropped = 3,
    /// The same by a reset.
    Reset = 4,
}

/// What a hook wants done when it has returned.
pub(crate) enum Later {
    Send(Vec<u8>, bool),
    SendBehind(Vec<u8>, bool),
    Keep(bool),
    ReceiveBehind(Vec<u8>, bool),
    Resume,
    Close(Ending, String),
}

/// What came while a hook ran.
pub(crate) enum Event {
    Of(ConnectionEvent),
    Done(CallId, Result<OwnedAnswer, Failure>),
}

/// Filters of the type `F`.
pub(crate) struct Network<F>(PhantomData<F>);

impl<F: NetworkFilter> Kind for Network<F> {
    type Filter = F;
    type State = F::State;
    type Later = Later;
    type Event = Event;
    type Lent<'l> = Connection<'l>;

    fn lend(handle: StreamRef, later: &RefCell<Vec<Later>>) -> Connection<'_> {
        Connection::new(handle, later)
    }

    fn is_end(later: &Later) -> bool {
        matches!(later, Later::Close(..))
    }

    fn perform(later: Later, connection: StreamRef) {
        // SAFETY: the handle is that of a connection in a hook; everything else is there during the call.
        unsafe {
            match later {
                Later::Send(data, end) => abi::connection_write(connection, Buffer::of(&data), end),
                Later::SendBehind(data, end) => abi::inject_write_data(connection, Buffer::of(&data), end),
                Later::Keep(keeps) => abi::disable_close(connection, keeps),
                Later::ReceiveBehind(data, end) => abi::inject_read_data(connection, Buffer::of(&data), end),
                Later::Resume => abi::continue_reading(connection),
                Later::Close(ending, details) => {
                    abi::close_with_details(connection, ending as c_int, Buffer::of(details.as_bytes()));
                }
            }
        }
    }

    fn after_panic() -> Later {
        Later::Close(Ending::AtOnce, "module_panicked".to_owned())
    }

    fn tell(event: Event, filter: &F, state: &mut F::State, connection: &mut Connection<'_>) {
        match event {
            Event::Of(event) => filter.on_event(state, connection, event),
            Event::Done(call, Ok(answer)) => {
                answer.lend(|answer| filter.on_call_done(state, connection, call, Ok(answer)));
            }
            Event::Done(call, Err(failure)) => filter.on_call_done(state, connection, call, Err(failure)),
        }
    }
}
