//! Headers and trailers.

use std::ffi::{c_int, c_void};

use super::{bytes, change, of_state, told};
use crate::abi::{GoString, status};
use crate::bells::Side;
use crate::heads::Edit;
use crate::mirror::Mirror;
use crate::request::{Part, Post, Request, Shared};

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterHttpGetHeader(
    state: *mut c_void,
    name: *const c_void,
    name_len: c_int,
    value: *mut u64,
    value_len: *mut c_int,
) -> c_int {
    // SAFETY: Go code passes a state of its own, a text with its length, and places for the answer.
    unsafe {
        told(of_state(state).and_then(|(request, mut shared, side)| {
            // What is not there leaves the places as they are.
            if let Some(found) = fields(request, &mut shared, side, Part::Headers)?.get(bytes(name, name_len)) {
                *value = found.start() as u64;
                *value_len = c_int::try_from(found.len()).unwrap_or(c_int::MAX);
            }
            Ok(status::OK)
        }))
    }
}

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterHttpCopyHeaders(
    state: *mut c_void,
    strings: *mut c_void,
    room: *mut c_void,
) -> c_int {
    // SAFETY: Go code has room for what it was told of.
    unsafe { copy(state, Part::Headers, strings, room) }
}

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterHttpCopyTrailers(
    state: *mut c_void,
    strings: *mut c_void,
    room: *mut c_void,
) -> c_int {
    // SAFETY: Go code has room for what it was told of.
    unsafe { copy(state, Part::Trailers, strings, room) }
}

/// # Safety
/// `state` is one of Go code's, which has room for the fields that it was told of.
unsafe fn copy(state: *mut c_void, part: Part, strings: *mut c_void, room: *mut c_void) -> c_int {
    // SAFETY: as promised.
    unsafe {
        told(of_state(state).and_then(|(request, mut shared, side)| {
            fields(request, &mut shared, side, part)?.copy_out(strings.cast::<GoString>(), room.cast());
            Ok(status::OK)
        }))
    }
}

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterHttpSetHeaderHelper(
    state: *mut c_void,
    name: *const c_void,
    name_len: c_int,
    value: *const c_void,
    value_len: c_int,
    action: c_int,
) -> c_int {
    // SAFETY: Go code passes a state of its own, and texts with their lengths.
    unsafe { edit(state, Part::Headers, change(name, name_len, value, value_len, action)) }
}

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterHttpRemoveHeader(
    state: *mut c_void,
    name: *const c_void,
    name_len: c_int,
) -> c_int {
    // SAFETY: Go code passes a state of its own, and a text with its length.
    unsafe { edit(state, Part::Headers, Edit::Remove(bytes(name, name_len).to_ascii_lowercase())) }
}

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterHttpSetTrailer(
    state: *mut c_void,
    name: *const c_void,
    name_len: c_int,
    value: *const c_void,
    value_len: c_int,
    action: c_int,
) -> c_int {
    // SAFETY: Go code passes a state of its own, and texts with their lengths.
    unsafe { edit(state, Part::Trailers, change(name, name_len, value, value_len, action)) }
}

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterHttpRemoveTrailer(
    state: *mut c_void,
    name: *const c_void,
    name_len: c_int,
) -> c_int {
    // SAFETY: Go code passes a state of its own, and a text with its length.
    unsafe { edit(state, Part::Trailers, Edit::Remove(bytes(name, name_len).to_ascii_lowercase())) }
}

/// # Safety
/// `state` is one of Go code's.
unsafe fn edit(state: *mut c_void, part: Part, edit: Edit) -> c_int {
    // SAFETY: as promised.
    told(unsafe { of_state(state) }.and_then(|(request, mut shared, side)| {
        if request.is_logging() && request.pool.is_here() {
            // What is logged changes nothing any more.
            return fields(request, &mut shared, side, part).map(|_| status::OK);
        }
        check_open(&mut shared, side, part)?;
        make(request, &mut shared, side, part, edit);
        Ok(status::OK)
    }))
}

/// Changes the message where it is at hand, and the copy of it that Go's threads read.
fn make(request: &Request, shared: &mut Shared, side: Side, part: Part, edit: Edit) {
    let at_hand = request.pool.is_here();
    let course = shared.course(side);
    let mirror = match part {
        Part::Headers => &course.headers,
        Part::Trailers => &course.trailers,
    };
    if mirror.is_built() || !at_hand {
        let mirror = shared.mirror(side, part);
        match &edit {
            Edit::Set(name, value) => mirror.set(name, value),
            Edit::Add(name, value) => mirror.add(name, value),
            Edit::Remove(name) => mirror.remove(name),
        }
    }
    request.carry_out(shared, Post::Edit(side, part, edit));
}

/// What Go code may read of a message: as it was when it is logged, on the thread that logs it, else what it has in hand.
fn fields<'s>(request: &Request, shared: &'s mut Shared, side: Side, part: Part) -> Result<&'s mut Mirror, c_int> {
    if request.pool.is_here() && shared.noted.as_ref().is_some_and(|noted| noted.shown) {
        let noted = shared.noted.as_mut().and_then(|noted| noted.fields(side, part));
        return noted.ok_or(status::INVALID_PHASE);
    }
    check_open(shared, side, part)?;
    Ok(shared.mirror(side, part))
}

fn check_open(shared: &mut Shared, side: Side, part: Part) -> Result<(), c_int> {
    let course = shared.course(side);
    let open = match part {
        Part::Headers => course.headers_open,
        Part::Trailers => course.trailers_open,
    };
    if open { Ok(()) } else { Err(status::INVALID_PHASE) }
}
