//! Parts of bodies.

use std::ffi::{c_int, c_void};

use super::{bytes, of_state, told};
use crate::abi::status;
use crate::request::{Post, Splice};

/// How the SDK says where bytes go; otherwise behind what is there.
const SET: c_int = 0;
const PREPEND: c_int = 2;

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterHttpGetBuffer(state: *mut c_void, buffer: u64, to: *mut c_void) -> c_int {
    // SAFETY: Go code passes a state of its own, and has room for as many bytes as the buffer has: it was told, and
    // counts what it adds and takes away.
    unsafe {
        told(of_state(state).and_then(|(_, mut shared, side)| {
            let buffer = shared.course(side).buffer(buffer).ok_or(status::INVALID_PHASE)?;
            if !buffer.is_empty() {
                to.cast::<u8>().copy_from_nonoverlapping(buffer.as_ptr(), buffer.len());
            }
            Ok(status::OK)
        }))
    }
}

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterHttpDrainBuffer(state: *mut c_void, buffer: u64, len: u64) -> c_int {
    let splice = Splice::Drain(usize::try_from(len).unwrap_or(usize::MAX));
    // SAFETY: Go code passes a state of its own.
    unsafe { change(state, buffer, splice) }
}

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterHttpSetBufferHelper(
    state: *mut c_void,
    buffer: u64,
    data: *const c_void,
    len: c_int,
    action: c_int,
) -> c_int {
    // SAFETY: Go code passes a state of its own, and bytes with their length.
    unsafe {
        let data = bytes(data, len).to_vec();
        let splice = match action {
            SET => Splice::Set(data),
            PREPEND => Splice::Prepend(data),
            _ => Splice::Append(data),
        };
        change(state, buffer, splice)
    }
}

/// Changes a part of a body here, and in the proxy where that is another process.
///
/// # Safety
/// `state` is one of Go code's.
unsafe fn change(state: *mut c_void, buffer: u64, splice: Splice) -> c_int {
    // SAFETY: as promised.
    told(unsafe { of_state(state) }.and_then(|(request, mut shared, side)| {
        let bytes = shared.course(side).buffer(buffer).ok_or(status::INVALID_PHASE)?;
        if request.pool.outlet().is_some() {
            splice.clone().make(bytes);
            request.post(&mut shared, Post::Body(side, buffer, splice));
        } else {
            splice.make(bytes);
        }
        Ok(status::OK)
    }))
}
