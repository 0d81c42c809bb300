//! Scans of texts for `sdk/json.lua`: loops that Lua would have to run byte by byte.

use std::ffi::{c_char, c_double, c_int};

use super::text::take;

/// How many blanks stand at the beginning.
pub(super) unsafe extern "C" fn blanks(text: *const c_char, length: usize) -> c_int {
    // SAFETY: the SDK passes a place in a Lua string, with what is left of it.
    until(unsafe { take(text, length) }, |byte| !matches!(byte, b' ' | b'\n' | b'\r' | b'\t'))
}

/// How many bytes stand before the first that ends a plain part of a JSON string.
pub(super) unsafe extern "C" fn plain(text: *const c_char, length: usize) -> c_int {
    // SAFETY: as in `blanks`.
    until(unsafe { take(text, length) }, |byte| matches!(byte, b'"' | b'\\' | 0..=0x1f))
}

/// How many bytes stand before the first that is escaped when it is written.
pub(super) unsafe extern "C" fn unescaped(text: *const c_char, length: usize) -> c_int {
    // SAFETY: as in `blanks`.
    until(unsafe { take(text, length) }, |byte| matches!(byte, b'"' | b'\\' | b'/' | 0..=0x1f | 0x7f))
}

/// How many bytes the number at the beginning has, which goes to `out`; 0 when there is none.
pub(super) unsafe extern "C" fn number(text: *const c_char, length: usize, out: *mut c_double) -> c_int {
    // SAFETY: as in `blanks`.
    let text = unsafe { take(text, length) };
    let end = text.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'));
    let text = text.get(..end.unwrap_or(text.len())).unwrap_or_default();
    let value = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    // SAFETY: the SDK passes a place of its own.
    match (value, unsafe { out.as_mut() }) {
        (Some(value), Some(out)) => {
            *out = value;
            c_int::try_from(text.len()).unwrap_or(0)
        }
        _ => 0,
    }
}

fn until(text: &[u8], stops: impl Fn(u8) -> bool) -> c_int {
    let found = text.iter().position(|byte| stops(*byte)).unwrap_or(text.len());
    c_int::try_from(found).unwrap_or(c_int::MAX)
}
