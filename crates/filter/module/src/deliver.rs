//! Tells a module what happened outside the course of its messages: its own events, and how its calls ended.

use postrider_filter_api::{Answer, CallFailure, Stream};
use postrider_http::Decimal;

use crate::abi::{Buffer, Header, Own, StreamRef, outcome};
use crate::entry::Entries;
use crate::instance::{Event, Instance};

/// What a stream that ended early ended with.
const CONNECTION_TERMINATION: std::ffi::c_int = 1;
const LOCAL_RESET: std::ffi::c_int = 2;

/// With the messages at hand.
#[inline]
pub(crate) fn with_messages(instance: &Instance, stream: &mut Stream<'_>) {
    while let Some(event) = instance.next_event() {
        instance.enter(stream, |handle, own| tell(&instance.config().entries, event, handle, own));
    }
}

/// Where no message waits: fields and bodies are not to be had.
#[cold]
pub(crate) fn without_messages(instance: &Instance) {
    while let Some(event) = instance.next_event() {
        instance.enter_without(None, |handle, own| tell(&instance.config().entries, event, handle, own));
    }
}

fn tell(entries: &Entries, event: Event, handle: StreamRef, own: Own) {
    match event {
        Event::Scheduled(id) => {
            if let Some(scheduled) = entries.scheduled {
                // SAFETY: the function of a loaded module, as the interface says. So for the others.
                unsafe { scheduled(handle, own, id) };
            }
        }
        Event::Call { id, outcome } => {
            let Some(done) = entries.callout_done else { return };
            with_answer(&outcome, |result, headers, body| {
                // SAFETY: as above.
                unsafe { done(handle, own, id, result, headers.as_ptr(), headers.len(), body.as_ptr(), body.len()) };
            });
        }
        Event::Opened { id, outcome: Ok(answer) } => {
            let (empty, trailers) = (answer.body.is_empty(), !answer.trailers.is_empty());
            let outcome = Ok(answer);
            with_answer(&outcome, |_, headers, body| {
                if let Some(on_headers) = entries.stream_headers {
                    // SAFETY: as above.
                    unsafe { on_headers(handle, own, id, headers.as_ptr(), headers.len(), empty && !trailers) };
                }
                if let Some(on_data) = entries.stream_data.filter(|_| !empty) {
                    // SAFETY: as above.
                    unsafe { on_data(handle, own, id, body.as_ptr(), body.len(), !trailers) };
                }
            });
            if let (Ok(answer), Some(on_trailers), true) = (&outcome, entries.stream_trailers, trailers) {
                let trailers: Vec<Header> =
                    answer.trailers.iter().map(|field| Header::of(field.name, field.value)).collect();
                // SAFETY: as above.
                unsafe { on_trailers(handle, own, id, trailers.as_ptr(), trailers.len()) };
            }
            if let Some(completed) = entries.stream_completed {
                // SAFETY: as above.
                unsafe { completed(handle, own, id) };
            }
        }
        Event::Opened { id, outcome: Err(_) } => reset(entries, handle, own, id, CONNECTION_TERMINATION),
        Event::Congested(much) => {
            let told = if much { entries.above_watermark } else { entries.below_watermark };
            if let Some(told) = told {
                // SAFETY: as above.
                unsafe { told(handle, own) };
            }
        }
        Event::Reset { id } => reset(entries, handle, own, id, LOCAL_RESET),
    }
}

fn reset(entries: &Entries, handle: StreamRef, own: Own, id: u64, reason: std::ffi::c_int) {
    if let Some(reset) = entries.stream_reset {
        // SAFETY: the function of a loaded module, as the interface says.
        unsafe { reset(handle, own, id, reason) };
    }
}

/// What a module finds where there is no answer: as in Envoy, the one that a client would get.
fn instead(failure: CallFailure) -> (&'static [u8], &'static [u8]) {
    match failure {
        CallFailure::Timeout => (b"504", b"upstream request timeout"),
        CallFailure::Upstream => (b"503", b"upstream connect error or disconnect/reset before headers"),
    }
}

/// Calls `act` with a call's outcome as modules take it.
pub(crate) fn with_answer(
    answer: &Result<Answer, CallFailure>,
    act: impl FnOnce(std::ffi::c_int, &[Header], &[Buffer]),
) {
    match answer {
        Ok(answer) => {
            let status = Decimal::new(u64::from(answer.head.status()));
            let status = Header::of(b":status", status.as_bytes());
            let fields = answer.head.fields.iter().map(|field| Header::of(field.name, field.value));
            let headers: Vec<Header> = [status].into_iter().chain(fields).collect();
            let body = [Buffer::of(&answer.body)];
            let body = if answer.body.is_empty() { &[] } else { &body[..] };
            act(outcome::SUCCESS, &headers, body);
        }
        Err(failure) => {
            let (status, body) = instead(*failure);
            let length = Decimal::new(body.len() as u64);
            let headers = [
                Header::of(b":status", status),
                Header::of(b"content-length", length.as_bytes()),
                Header::of(b"content-type", b"text/plain"),
            ];
            act(outcome::SUCCESS, &headers, &[Buffer::of(body)]);
        }
    }
}
