//! Bodies, and how far a message has come.

use std::ffi::{c_char, c_double, c_int};

use postrider_filter_api::Stream;
use postrider_http::HeaderId;

use super::text::{put, take};
use super::turn::with_stream;
use super::{NONE, NOT_HERE, OK, Side, Text};
use crate::script::Script;

/// The body of the answer to the last call.
const ANSWER: c_int = 2;

/// Bits of [`flow`].
/// The head has gone on.
const RELEASED: c_int = 1;
/// Nothing followed, or follows, the head.
const BODYLESS: c_int = 2;
/// All of the body is held.
const COMPLETE: c_int = 4;
/// The message has ended: no further piece and no trailers will come.
const ENDED: c_int = 8;
/// The message has trailers, and they are there.
const TRAILERS: c_int = 16;
/// The body has begun to pass without being held as a whole.
const STREAMED: c_int = 32;

/// What is held of the request's (0) or response's (1) body, or the body of a call's answer (2).
fn held<'a>(side: c_int, stream: &'a Stream<'_>, script: &'a Script) -> Option<&'a [u8]> {
    Some(match side {
        0 => stream.request_body.bytes(),
        1 => stream.response_body.bytes(),
        ANSWER => match script.answer() {
            Some(Ok(answer)) => &answer.body,
            _ => &[],
        },
        _ => return None,
    })
}

/// All that is held.
pub(super) unsafe extern "C" fn get(side: c_int, out: *mut Text) -> c_int {
    with_stream(|stream, _, script| {
        let Some(bytes) = held(side, stream, script) else { return NOT_HERE };
        // SAFETY: the SDK passes a place of its own.
        unsafe { put(out, bytes) };
        if bytes.is_empty() { NONE } else { OK }
    })
}

/// How many bytes are held. Objects of scripts are tables, so one may ask for what is no body at all: 0.
pub(super) unsafe extern "C" fn length(side: c_int) -> c_double {
    let mut length = 0;
    with_stream(|stream, _, script| {
        length = held(side, stream, script).unwrap_or_default().len();
        OK
    });
    length as c_double
}

/// Some of what is held; [`NONE`] where it is less than that. What is no number is refused, too.
pub(super) unsafe extern "C" fn part(side: c_int, index: c_double, length: c_double, out: *mut Text) -> c_int {
    with_stream(|stream, _, script| {
        let bytes = held(side, stream, script).unwrap_or_default();
        if !(index >= 0.0 && length >= 0.0 && index + length <= bytes.len() as c_double) {
            return NONE;
        }
        let (start, length) = (index as usize, length as usize);
        let Some(part) = bytes.get(start..start + length) else { return NONE };
        // SAFETY: the SDK passes a place of its own.
        unsafe { put(out, part) };
        OK
    })
}

/// Replaces what is held. While the head is held as well its `content-length` follows.
pub(super) unsafe extern "C" fn set(side: c_int, bytes: *const c_char, length: usize) -> c_int {
    with_stream(|stream, _, script| {
        // SAFETY: the SDK passes a Lua string with its length.
        let bytes = unsafe { take(bytes, length) };
        let (body, fields, side) = match side {
            0 => (&mut *stream.request_body, &mut stream.request.fields, Side::Request),
            1 => (&mut *stream.response_body, &mut stream.response.fields, Side::Response),
            _ => return NOT_HERE,
        };
        body.replace(bytes);
        if !script.is_released(side) {
            // Digits are a valid value.
            let _ = fields.set(HeaderId::ContentLength, postrider_http::Decimal::new(length as u64).as_bytes());
        }
        OK
    })
}

/// How far the request (0) or response (1) has come.
pub(super) unsafe extern "C" fn flow(side: c_int) -> c_int {
    with_stream(|stream, _, script| {
        let (side, trailers) = match side {
            0 => (Side::Request, &*stream.request_trailers),
            1 => (Side::Response, &*stream.response_trailers),
            _ => return NOT_HERE,
        };
        let progress = script.half(side).progress;
        let bit = |set: bool, bit: c_int| if set { bit } else { 0 };
        bit(progress.released, RELEASED)
            | bit(progress.bodyless, BODYLESS)
            | bit(progress.complete, COMPLETE)
            | bit(progress.ended, ENDED)
            | bit(!trailers.is_empty(), TRAILERS)
            | bit(progress.streamed, STREAMED)
    })
}
