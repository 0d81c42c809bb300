//! Tells a module what happened outside the course of its messages: its own events, and how its calls ended.

use postrider_filter_api::{Answer, CallFailure, Heard, Stream};
use postrider_http::{Decimal, ResponseHead};

use crate::abi::{Buffer, Header, Own, StreamRef, outcome};
use crate::entry::{Entries, StreamEntries};
use crate::instance::{Event, Instance};

/// What a stream that ended early ended with: as in Envoy, which tells nothing else.
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
        Event::Came { id, heard, is_answered } => {
            came(&entries.of_streams(), handle, own, id, heard, is_answered);
        }
        // It becomes what came, or nothing.
        Event::Stirred { .. } => {}
        Event::Congested(much) => {
            let told = if much { entries.above_watermark } else { entries.below_watermark };
            if let Some(told) = told {
                // SAFETY: as above.
                unsafe { told(handle, own) };
            }
        }
        Event::Reset { id } => reset(&entries.of_streams(), handle, own, id),
    }
}

pub(crate) fn reset(entries: &StreamEntries, handle: StreamRef, own: Own, id: u64) {
    if let Some(reset) = entries.reset {
        // SAFETY: the function of a loaded module, as the interface says.
        unsafe { reset(handle, own, id, LOCAL_RESET) };
    }
}

/// Tells what came of a call in pieces.
pub(crate) fn came(entries: &StreamEntries, handle: StreamRef, own: Own, id: u64, heard: Heard, is_answered: bool) {
    match heard {
        Heard::Head(head, end) => {
            let Some(on_headers) = entries.headers else { return };
            with_head(&head, |headers| {
                // SAFETY: the function of a loaded module, as the interface says. So for the others.
                unsafe { on_headers(handle, own, id, headers.as_ptr(), headers.len(), end) };
            });
        }
        Heard::Body(bytes, end) => {
            let Some(on_data) = entries.data else { return };
            let piece = [Buffer::of(&bytes)];
            let piece = if bytes.is_empty() { &[] } else { &piece[..] };
            // SAFETY: as above.
            unsafe { on_data(handle, own, id, piece.as_ptr(), piece.len(), end) };
        }
        Heard::Trailers(trailers) => {
            let Some(on_trailers) = entries.trailers else { return };
            let trailers: Vec<Header> = trailers.iter().map(|field| Header::of(field.name, field.value)).collect();
            // SAFETY: as above.
            unsafe { on_trailers(handle, own, id, trailers.as_ptr(), trailers.len()) };
        }
        Heard::Ended(Err(_)) if is_answered => reset(entries, handle, own, id),
        Heard::Ended(outcome) => {
            if let Err(failure) = outcome {
                with_answer(&Err(failure), |_, headers, body| {
                    if let Some(on_headers) = entries.headers {
                        // SAFETY: as above.
                        unsafe { on_headers(handle, own, id, headers.as_ptr(), headers.len(), false) };
                    }
                    if let Some(on_data) = entries.data {
                        // SAFETY: as above.
                        unsafe { on_data(handle, own, id, body.as_ptr(), body.len(), true) };
                    }
                });
            }
            if let Some(completed) = entries.completed {
                // SAFETY: as above.
                unsafe { completed(handle, own, id) };
            }
        }
    }
}

/// Calls `act` with a call's outcome as modules take it.
pub(crate) fn with_answer(
    answer: &Result<Answer, CallFailure>,
    act: impl FnOnce(std::ffi::c_int, &[Header], &[Buffer]),
) {
    match answer {
        Ok(answer) => {
            let body = [Buffer::of(&answer.body)];
            let body = if answer.body.is_empty() { &[] } else { &body[..] };
            with_head(&answer.head, |headers| act(outcome::SUCCESS, headers, body));
        }
        Err(failure) => {
            // As in Envoy, the answer that a client would get.
            let body = failure.text().as_bytes();
            let (status, length) = (Decimal::new(u64::from(failure.status())), Decimal::new(body.len() as u64));
            let headers = [
                Header::of(b":status", status.as_bytes()),
                Header::of(b"content-length", length.as_bytes()),
                Header::of(b"content-type", b"text/plain"),
            ];
            act(outcome::SUCCESS, &headers, &[Buffer::of(body)]);
        }
    }
}

/// Calls `act` with a head as modules take it.
fn with_head(head: &ResponseHead, act: impl FnOnce(&[Header])) {
    let status = Decimal::new(u64::from(head.status()));
    let status = Header::of(b":status", status.as_bytes());
    let fields = head.fields.iter().map(|field| Header::of(field.name, field.value));
    act(&[status].into_iter().chain(fields).collect::<Vec<Header>>());
}
