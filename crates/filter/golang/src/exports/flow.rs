//! How a message goes on.

use std::borrow::Cow;
use std::ffi::{CStr, c_char, c_int, c_longlong, c_void};

use postrider_filter_api::LocalReply;
use postrider_http::grpc::Code;

use super::{bytes, of_state, text, told};
use crate::abi::{GoString, Phase, Verdict, status};
use crate::request::Post;

/// Statuses that an answer may have; others become 500.
const STATUSES: std::ops::RangeInclusive<u16> = 200..=599;

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterHttpContinue(state: *mut c_void, verdict: c_int) -> c_int {
    // SAFETY: Go code passes a state of its own.
    told(unsafe { of_state(state) }.map(|(request, mut shared, side)| {
        let verdict = Verdict::of(u64::try_from(verdict).unwrap_or(u64::MAX));
        request.post(&mut shared, Post::Continue(side, verdict));
        status::OK
    }))
}

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterHttpSendLocalReply(
    state: *mut c_void,
    code: c_int,
    body: *const c_void,
    body_len: c_int,
    headers: *const c_void,
    header_count: c_int,
    grpc_status: c_longlong,
    details: *const c_void,
    details_len: c_int,
) -> c_int {
    // SAFETY: Go code passes a state of its own, and texts with their lengths; of the headers so many strings, of a kind
    // that depends on its SDK.
    unsafe {
        told(of_state(state).map(|(request, mut shared, side)| {
            let passes_strings = shared.library.is_some_and(|library| library.object.passes_strings);
            let status = u16::try_from(code).ok().filter(|code| STATUSES.contains(code));
            let reply = LocalReply {
                status: status.unwrap_or(500),
                grpc_status: u32::try_from(grpc_status).ok().and_then(Code::from_number),
                body: Cow::Owned(bytes(body, body_len).to_vec()),
                headers: pairs(headers, header_count, passes_strings),
                details: Cow::Owned(text(details, details_len).replace(char::is_whitespace, "_")),
                ..LocalReply::default()
            };
            request.post(&mut shared, Post::Reply(side, Box::new(reply)));
            status::OK
        }))
    }
}

/// Names and values by turns. Empty values are left out.
///
/// # Safety
/// There are so many strings: Go's with their lengths, or C's.
unsafe fn pairs(strings: *const c_void, count: c_int, are_gos: bool) -> Vec<(Cow<'static, str>, Cow<'static, [u8]>)> {
    let count = usize::try_from(count).unwrap_or_default();
    if strings.is_null() {
        return Vec::new();
    }
    let one = |index: usize| -> Vec<u8> {
        // SAFETY: as promised; the index is below the count.
        unsafe {
            if are_gos {
                let string = *strings.cast::<GoString>().add(index);
                bytes(string.start.cast(), c_int::try_from(string.len).unwrap_or_default()).to_vec()
            } else {
                let string = *strings.cast::<*const c_char>().add(index);
                if string.is_null() { Vec::new() } else { CStr::from_ptr(string).to_bytes().to_vec() }
            }
        }
    };
    let pair = |index: usize| -> (Cow<'static, str>, Cow<'static, [u8]>) {
        let name = String::from_utf8_lossy(&one(index)).to_ascii_lowercase();
        (Cow::Owned(name), Cow::Owned(one(index + 1)))
    };
    (0..count / 2).map(|index| pair(index * 2)).filter(|(_, value)| !value.is_empty()).collect()
}

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterHttpSendPanicReply(
    state: *mut c_void,
    details: *const c_void,
    details_len: c_int,
) -> c_int {
    // SAFETY: Go code passes a state of its own, and a text with its length.
    unsafe {
        told(of_state(state).map(|(request, mut shared, side)| {
            request.post(&mut shared, Post::Panic(side, text(details, details_len)));
            status::OK
        }))
    }
}

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterHttpAddData(
    state: *mut c_void,
    data: *const c_void,
    len: c_int,
    _streaming: bool,
) -> c_int {
    // SAFETY: Go code passes a state of its own, and bytes with their length.
    unsafe {
        told(of_state(state).and_then(|(request, mut shared, side)| {
            if request.phase(side) == Phase::ProcessingData {
                return Err(status::INVALID_PHASE);
            }
            request.post(&mut shared, Post::AddData(side, bytes(data, len).to_vec()));
            Ok(if request.pool.is_here() { status::OK } else { status::YIELD })
        }))
    }
}

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterHttpInjectData(
    state: *mut c_void,
    data: *const c_void,
    len: c_int,
) -> c_int {
    // SAFETY: Go code passes a state of its own, and bytes with their length.
    unsafe {
        told(of_state(state).and_then(|(request, mut shared, side)| {
            if request.phase(side) != Phase::ProcessingData {
                return Err(status::INVALID_PHASE);
            }
            if request.pool.is_here() {
                return Err(status::INVALID_SCENE);
            }
            request.post(&mut shared, Post::Inject(side, bytes(data, len).to_vec()));
            Ok(status::OK)
        }))
    }
}
