//! Filters of requests, as the guard of their streams knows them.

use std::cell::RefCell;
use std::ffi::c_int;
use std::marker::PhantomData;

use crate::abi::{self, Buffer, Header, StreamRef};
use crate::calls::{CallId, Failure};
use crate::filter::HttpFilter;
use crate::guard::{Kind, OwnedAnswer};
use crate::reply::{Reply, fields};
use crate::stream::Stream;

/// Envoy's number for a stream that its own side ends.
const LOCAL_RESET: c_int = 0;

/// What a hook wants done when it has returned: a proxy may call other hooks at once when it is asked for one of these.
pub(crate) enum Later {
    Reply(Reply),
    BeginReply(Reply, bool),
    ReplyPiece(Vec<u8>, bool),
    EndReply(Vec<(String, Vec<u8>)>),
    ContinueRequest,
    ContinueResponse,
    Reset(String),
    Recreate,
}

/// What came while a hook ran.
pub(crate) enum Event {
    Done(CallId, Result<OwnedAnswer, Failure>),
    Headers(CallId, OwnedAnswer, bool),
    Body(CallId, Vec<u8>, bool),
    Trailers(CallId, OwnedAnswer),
    End(CallId, Result<(), Failure>),
}

/// Filters of the type `F`.
pub(crate) struct Http<F>(PhantomData<F>);

impl<F: HttpFilter> Kind for Http<F> {
    type Filter = F;
    type State = F::State;
    type Later = Later;
    type Event = Event;
    type Lent<'l> = Stream<'l>;

    fn lend(stream: StreamRef, later: &RefCell<Vec<Later>>) -> Stream<'_> {
        Stream::new(stream, later)
    }

    fn is_end(later: &Later) -> bool {
        later.is_reply()
    }

    fn perform(later: Later, stream: StreamRef) {
        later.perform(stream);
    }

    fn after_panic() -> Later {
        Later::Reply(Reply::new(500).details("module_panicked"))
    }

    fn tell(event: Event, filter: &F, state: &mut F::State, stream: &mut Stream<'_>) {
        event.tell(filter, state, stream);
    }
}

impl Later {
    fn is_reply(&self) -> bool {
        matches!(self, Later::Reply(_) | Later::BeginReply(..) | Later::Reset(_) | Later::Recreate)
    }

    fn perform(self, stream: StreamRef) {
        match self {
            Later::Reply(reply) => {
                let (fields, body, details) = (reply.fields(), Buffer::of(&reply.body), reply.details.as_bytes());
                let (status, details) = (u32::from(reply.status), Buffer::of(details));
                // SAFETY: the handle is that of a stream in a hook; everything else is there during the call. So below.
                unsafe { abi::send_response(stream, status, fields.as_ptr(), fields.len(), body, details) };
            }
            Later::BeginReply(reply, end) => {
                let status = reply.status.to_string();
                let status = Header::of(b":status", status.as_bytes());
                let fields: Vec<Header> = [status].into_iter().chain(reply.fields()).collect();
                let has_body = !reply.body.is_empty();
                // SAFETY: as above.
                unsafe { abi::send_response_headers(stream, fields.as_ptr(), fields.len(), end && !has_body) };
                if has_body {
                    // SAFETY: as above.
                    unsafe { abi::send_response_data(stream, Buffer::of(&reply.body), end) };
                }
            }
            // SAFETY: as above.
            Later::ReplyPiece(data, end) => unsafe { abi::send_response_data(stream, Buffer::of(&data), end) },
            Later::EndReply(trailers) => {
                let fields = fields(&trailers);
                // SAFETY: as above.
                unsafe { abi::send_response_trailers(stream, fields.as_ptr(), fields.len()) };
            }
            // SAFETY: as above.
            Later::ContinueRequest => unsafe { abi::continue_decoding(stream) },
            // SAFETY: as above.
            Later::ContinueResponse => unsafe { abi::continue_encoding(stream) },
            // SAFETY: as above.
            Later::Reset(details) => unsafe {
                abi::reset_stream(stream, LOCAL_RESET, Buffer::of(details.as_bytes()));
            },
            Later::Recreate => {
                // SAFETY: as above.
                if !unsafe { abi::recreate_stream(stream, std::ptr::null(), 0) } {
                    Later::Reply(Reply::new(500).details("stream_not_recreated")).perform(stream);
                }
            }
        }
    }
}

impl Event {
    fn tell<F: HttpFilter>(self, filter: &F, state: &mut F::State, stream: &mut Stream<'_>) {
        match self {
            Event::Done(call, Ok(answer)) => {
                answer.lend(|answer| filter.on_call_done(state, stream, call, Ok(answer)));
            }
            Event::Done(call, Err(failure)) => filter.on_call_done(state, stream, call, Err(failure)),
            Event::Headers(call, head, end) => {
                head.lend(|head| filter.on_call_headers(state, stream, call, head, end));
            }
            Event::Body(call, data, end) => filter.on_call_body(state, stream, call, &[&data], end),
            Event::Trailers(call, trailers) => {
                trailers.lend(|trailers| filter.on_call_trailers(state, stream, call, trailers));
            }
            Event::End(call, end) => filter.on_call_end(state, stream, call, end),
        }
    }
}
