//! Connections: those of clients that Go code filters, and those that it opens.
//!
//! Go code passes the number of one. What it wants is done by the connection's worker, in the order in which it wanted it.

use std::ffi::{c_int, c_void};

use postrider_filter_api::Ending;

use super::{bytes, told};
use crate::abi::{GoString, status};
use crate::network;
use crate::network::line::{self, Line};

/// Has something done to the connection of that number.
fn with(number: *mut c_void, act: impl FnOnce(&Line) -> c_int) -> c_int {
    told(line::find(number as u64).map(|line| act(&line)).ok_or(status::GONE))
}

/// # Safety
/// Go code passes bytes with their length.
unsafe fn write(number: *mut c_void, data: *const c_void, len: c_int, end: c_int) -> c_int {
    with(number, |line| {
        // SAFETY: as promised.
        line.send(unsafe { bytes(data, len) }.to_vec(), end != 0);
        status::OK
    })
}

fn close(number: *mut c_void, kind: c_int) -> c_int {
    let ending = match kind {
        // Flushed, with or without a delay for the peer to close first.
        0 | 2 => Ending::Flushed,
        3 => Ending::Dropped,
        4 => Ending::Reset,
        _ => Ending::AtOnce,
    };
    with(number, |line| {
        line.end(ending);
        status::OK
    })
}

/// # Safety
/// Go code passes a place for a text, which it copies while it still refers to the connection.
unsafe fn info(number: *mut c_void, kind: c_int, out: *mut GoString) -> c_int {
    with(number, |line| {
        let text = match kind {
            0 => line.local(),
            1 => line.remote(),
            _ => return status::NOT_FOUND,
        };
        // SAFETY: as promised; the text stays as it is for as long as the connection is known.
        unsafe { *out = GoString::of(text) };
        status::OK
    })
}

// SAFETY: the name is the SDK's, and nothing else has it. So below.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterDownstreamWrite(
    number: *mut c_void,
    data: *const c_void,
    len: c_int,
    end: c_int,
) -> c_int {
    // SAFETY: Go code passes bytes with their length.
    unsafe { write(number, data, len, end) }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(super) extern "C" fn envoyGoFilterDownstreamClose(number: *mut c_void, kind: c_int) -> c_int {
    close(number, kind)
}

/// Go's collector found that nothing refers to the filter of this connection any more.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub(super) extern "C" fn envoyGoFilterDownstreamFinalize(number: *mut c_void, _reason: c_int) {
    line::forget(number as u64);
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterDownstreamInfo(
    number: *mut c_void,
    kind: c_int,
    out: *mut GoString,
) -> c_int {
    // SAFETY: Go code passes a place for a text.
    unsafe { info(number, kind, out) }
}

/// Opens a connection; its number, or 0 when there will be none.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterUpstreamConnect(
    library: *const GoString,
    address: *const GoString,
    own: u64,
) -> *mut c_void {
    // SAFETY: Go code passes texts of its own, for the time of the call.
    let (library, address) = unsafe { ((*library).bytes(), (*address).bytes()) };
    let number = network::connect(library, String::from_utf8_lossy(address).into_owned(), own);
    std::ptr::without_provenance_mut(usize::try_from(number).unwrap_or_default())
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(super) extern "C" fn envoyGoFilterUpstreamConnEnableHalfClose(number: *mut c_void, enabled: c_int) -> c_int {
    with(number, |line| {
        line.half_close(enabled != 0);
        status::OK
    })
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterUpstreamWrite(
    number: *mut c_void,
    data: *const c_void,
    len: c_int,
    end: c_int,
) -> c_int {
    // SAFETY: Go code passes bytes with their length.
    unsafe { write(number, data, len, end) }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(super) extern "C" fn envoyGoFilterUpstreamClose(number: *mut c_void, kind: c_int) -> c_int {
    close(number, kind)
}

/// As for a client's connection; one that is still open ends.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub(super) extern "C" fn envoyGoFilterUpstreamFinalize(number: *mut c_void, _reason: c_int) {
    if let Some(line) = line::forget(number as u64) {
        line.end(Ending::AtOnce);
    }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterUpstreamInfo(
    number: *mut c_void,
    kind: c_int,
    out: *mut GoString,
) -> c_int {
    // SAFETY: Go code passes a place for a text.
    unsafe { info(number, kind, out) }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterSetFilterState(
    number: *mut c_void,
    name: *const GoString,
    value: *const GoString,
    _kind: c_int,
    _life_span: c_int,
    _sharing: c_int,
) -> c_int {
    // SAFETY: Go code passes texts of its own, for the time of the call.
    let (name, value) = unsafe { ((*name).bytes(), (*value).bytes()) };
    let [name, value] = [name, value].map(String::from_utf8_lossy);
    with(number, |line| line.set_state(&name, &value))
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterGetFilterState(
    number: *mut c_void,
    name: *const GoString,
    out: *mut GoString,
) -> c_int {
    // SAFETY: Go code passes a text of its own, for the time of the call, and a place for one, where its goroutine waits when
    // it is told to.
    with(number, |line| unsafe { line.state_of(&String::from_utf8_lossy((*name).bytes()), out) })
}
