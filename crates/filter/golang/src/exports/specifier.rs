//! The request that Go code chooses a cluster for. Headers are what they are: it cannot change them.

use std::ffi::c_int;

use postrider_telemetry::error;

use crate::abi::GoString;
use crate::specifier::Asked;

/// How many fields the request has, and how many bytes their names and values have together.
// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoClusterSpecifierGetNumHeadersAndByteSize(
    request: u64,
    count: *mut u64,
    bytes: *mut u64,
) {
    let mut told = (0, 0);
    Asked::of(request, |asked| {
        asked.each(&mut |name, value| {
            told.0 += 1;
            told.1 += (name.len() + value.len()) as u64;
        });
    });
    // SAFETY: Go code passes places for both numbers.
    unsafe { (*count, *bytes) = told };
}

/// The first value of a field; whether there is one.
// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoClusterSpecifierGetHeader(
    request: u64,
    name: *const GoString,
    value: *mut GoString,
) -> c_int {
    let found = Asked::of(request, |asked| {
        // SAFETY: Go code passes a text of its own, for the time of the call.
        let wanted = unsafe { (*name).bytes() };
        let mut found = None;
        asked.each(&mut |name, value| {
            if found.is_none() && name.eq_ignore_ascii_case(wanted) {
                found = Some(GoString { start: value.as_ptr(), len: value.len().cast_signed() });
            }
        });
        found
    });
    let Some(found) = found.flatten() else { return 0 };
    // SAFETY: Go code passes a place for the text. What it refers to is part of the request, which outlives the call into
    // Go.
    unsafe { *value = found };
    1
}

/// All names and values, one behind the other.
// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoClusterSpecifierGetAllHeaders(
    request: u64,
    texts: *mut GoString,
    buffer: *mut u8,
) {
    let (mut texts, mut buffer) = (texts, buffer);
    let mut put = |text: &[u8]| {
        // SAFETY: Go code passes as many texts and bytes as it was told that there are, and the request has not changed.
        unsafe {
            (*texts).len = text.len().cast_signed();
            if !text.is_empty() {
                (*texts).start = buffer;
                buffer.copy_from_nonoverlapping(text.as_ptr(), text.len());
                buffer = buffer.add(text.len());
            }
            texts = texts.add(1);
        }
    };
    Asked::of(request, |asked| {
        asked.each(&mut |name, value| {
            put(name);
            put(value);
        });
    });
}

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoClusterSpecifierLogError(request: u64, message: *const GoString) {
    // SAFETY: Go code passes a text of its own, for the time of the call.
    let message = String::from_utf8_lossy(unsafe { (*message).bytes() });
    if Asked::of(request, |asked| asked.log(&message)).is_none() {
        error!(Filter, "{message}");
    }
}
