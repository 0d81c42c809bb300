//! Logs, bodies, statistics and what is known about the stream.

use std::ffi::{CStr, c_char, c_double, c_int};
use std::ptr;

use super::super::text::take;
use super::super::turn::with_stream;
use super::super::{NOT_HERE, OK, body, facts, metrics};
use super::{FFI_BAD_ARGUMENT, FFI_NOT_FOUND, FFI_OK, Str, code, keep, nothing};

pub(super) unsafe fn log(level: c_int, text: *const c_char) -> c_int {
    let text = match text.is_null() {
        true => c"nil",
        // SAFETY: the script passes a string with a zero byte behind it.
        false => unsafe { CStr::from_ptr(text) },
    };
    // SAFETY: the text stays for the call.
    code(unsafe { facts::log(level, text.as_ptr(), text.to_bytes().len()) })
}

pub(super) unsafe fn file_log(text: *const c_char, length: usize) -> c_int {
    // SAFETY: the script passes a string with its length.
    code(unsafe { facts::file_log(text, length) })
}

/// The number under which scripts find the stream's table (`sdk/rider/filesystem.lua`).
pub(super) unsafe fn shared_table() -> c_int {
    let mut stream = 0;
    let done = with_stream(|_, _, script| {
        stream = script.stream;
        OK
    });
    if done == OK { stream } else { code(done) }
}

pub(super) unsafe fn body(source: c_int, out: *mut Str) -> c_int {
    let mut text = nothing();
    // SAFETY: the first place is ours, the second the script's.
    unsafe {
        let done = if (0..=1).contains(&source) { body::get(source, &mut text) } else { NOT_HERE };
        match out.as_mut() {
            None => FFI_BAD_ARGUMENT,
            Some(_) if done != OK => FFI_NOT_FOUND,
            Some(out) => {
                *out = Str::from_text(&text);
                FFI_OK
            }
        }
    }
}

pub(super) unsafe fn define_metric(kind: c_int, name: *const Str) -> c_int {
    // SAFETY: the script passes its own place.
    let Some((name, length)) = (unsafe { name.as_ref() }).map(Str::parts) else { return FFI_BAD_ARGUMENT };
    if !(0..=2).contains(&kind) {
        return FFI_BAD_ARGUMENT;
    }
    // SAFETY: a string with its length.
    match unsafe { metrics::define(kind, name, length) } {
        id if id > 0 => id,
        _ => FFI_BAD_ARGUMENT,
    }
}

pub(super) unsafe fn increment_metric(id: c_int, offset: c_int) -> c_int {
    // SAFETY: no pointers.
    code(unsafe { metrics::add(id, c_double::from(offset)) })
}

pub(super) unsafe fn record_metric(id: c_int, value: c_int) -> c_int {
    // SAFETY: no pointers.
    code(unsafe { metrics::record(id, c_double::from(value)) })
}

/// As the published files declare it: what does not fit is the largest number there is.
pub(super) unsafe fn metric(id: c_int) -> c_int {
    // SAFETY: no pointers.
    unsafe { metrics::value(id) as c_int }
}

pub(super) unsafe fn upstream_host() -> *const c_char {
    known(9)
}

pub(super) unsafe fn upstream_cluster() -> *const c_char {
    known(8)
}

pub(super) unsafe fn downstream_local_address() -> *const c_char {
    known(4)
}

pub(super) unsafe fn downstream_remote_address() -> *const c_char {
    known(6)
}

/// A fact as text; null when it is not known.
fn known(what: c_int) -> *const c_char {
    let mut text = nothing();
    // SAFETY: the place is ours; the text stays until it is copied here.
    unsafe {
        match facts::info(what, &mut text) {
            OK => keep(take(text.start, text.length)).start,
            _ => ptr::null(),
        }
    }
}

pub(super) unsafe fn start_time() -> i64 {
    // SAFETY: no pointers.
    unsafe { facts::start_time() as i64 }
}

pub(super) unsafe fn now() -> i64 {
    // SAFETY: no pointers.
    unsafe { facts::now() as i64 }
}

pub(super) unsafe fn clear_route_cache() {
    // SAFETY: no pointers.
    unsafe { facts::clear_route_cache() };
}
