//! The request that Go code speaks to a host for, and its answer: there for the time of a call into Go, on its thread.

use std::ffi::{c_int, c_void};

use super::{bytes, change, told};
use crate::abi::{GoString, status};
use crate::bridge;
use crate::heads::Edit;
use crate::request::Splice;

/// How it says where bytes go.
const SET: c_int = 0;
const PREPEND: c_int = 2;

/// The texts that are known by numbers.
const TABLE: c_int = 1;
const CLUSTER: c_int = 2;

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoHttpTcpBridgeCopyHeaders(
    state: *mut c_void,
    strings: *mut GoString,
    room: *mut u8,
) -> c_int {
    told(bridge::in_call(state, |told| {
        // SAFETY: Go code has room for what it was told of.
        unsafe { told.readable()?.copy_out(strings, room) };
        Ok(status::OK)
    }))
}

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoHttpTcpBridgeSetRespHeader(
    state: *mut c_void,
    name: *const c_void,
    name_len: c_int,
    value: *const c_void,
    value_len: c_int,
    action: c_int,
) -> c_int {
    // SAFETY: Go code passes texts with their lengths.
    let edit = unsafe { change(name, name_len, value, value_len, action) };
    told(bridge::in_call(state, |told| told.edit(edit)))
}

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoHttpTcpBridgeRemoveRespHeader(
    state: *mut c_void,
    name: *const c_void,
    name_len: c_int,
) -> c_int {
    // SAFETY: Go code passes a text with its length.
    let edit = Edit::Remove(unsafe { bytes(name, name_len) }.to_ascii_lowercase());
    told(bridge::in_call(state, |told| told.edit(edit)))
}

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoHttpTcpBridgeGetBuffer(state: *mut c_void, _: u64, to: *mut u8) -> c_int {
    told(bridge::in_call(state, |told| {
        if !told.data.is_empty() {
            // SAFETY: Go code has room for as many bytes as there are: it was told, and counts what it adds and takes away.
            unsafe { to.copy_from_nonoverlapping(told.data.as_ptr(), told.data.len()) };
        }
        Ok(status::OK)
    }))
}

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) extern "C" fn envoyGoHttpTcpBridgeDrainBuffer(state: *mut c_void, _: u64, len: u64) -> c_int {
    splice_bytes(state, Splice::Drain(usize::try_from(len).unwrap_or(usize::MAX)))
}

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoHttpTcpBridgeSetBufferHelper(
    state: *mut c_void,
    _: u64,
    data: *const c_void,
    len: c_int,
    action: c_int,
) -> c_int {
    // SAFETY: Go code passes bytes with their length.
    let data = unsafe { bytes(data, len) }.to_vec();
    let splice = match action {
        SET => Splice::Set(data),
        PREPEND => Splice::Prepend(data),
        _ => Splice::Append(data),
    };
    splice_bytes(state, splice)
}

fn splice_bytes(state: *mut c_void, splice: Splice) -> c_int {
    told(bridge::in_call(state, |told| {
        splice.make(&mut told.data);
        Ok(status::OK)
    }))
}

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoHttpTcpBridgeGetStringValue(
    request: *mut c_void,
    id: c_int,
    start: *mut u64,
    len: *mut c_int,
) -> c_int {
    told(bridge::of_request(request, |told| {
        let text = match id {
            TABLE => &told.table,
            CLUSTER => &told.cluster,
            _ => return Err(status::INVALID_PHASE),
        };
        if !text.is_empty() {
            // SAFETY: Go code passes places for both, and copies the text, which stays as it is, before it goes on.
            unsafe { (*start, *len) = (text.as_ptr() as u64, c_int::try_from(text.len()).unwrap_or(c_int::MAX)) };
        }
        Ok(status::OK)
    }))
}

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) extern "C" fn envoyGoHttpTcpBridgeSetSelfHalfCloseForUpstreamConn(
    request: *mut c_void,
    enabled: c_int,
) -> c_int {
    told(bridge::of_request(request, |told| {
        told.half_closes = enabled == 1;
        Ok(status::OK)
    }))
}
