//! Heads.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int};

use super::super::text::take;
use super::super::turn::with_stream;
use super::super::{OK, fields};
use super::{FFI_BAD_ARGUMENT, FFI_NOT_FOUND, FFI_OK, Pairs, Str, code, keep, nothing, size};

pub(super) unsafe fn map_size(source: c_int) -> c_int {
    // SAFETY: no pointers.
    unsafe { fields::len(source) }.max(0)
}

pub(super) unsafe fn map(source: c_int, out: *mut Pairs) -> c_int {
    // SAFETY: the script passes its own place.
    let Some(out) = (unsafe { out.as_mut() }) else { return FFI_BAD_ARGUMENT };
    out.size = 0;
    let mut cursor = 0;
    while out.size < out.capacity {
        let (mut name, mut value) = (nothing(), nothing());
        // SAFETY: both are places of ours.
        cursor = unsafe { fields::next(source, cursor, &mut name, &mut value) };
        if cursor < 0 {
            break;
        }
        // A status is told in room that the next call uses again.
        // SAFETY: as `next` has just left it.
        let value = keep(unsafe { take(value.start, value.length) });
        // SAFETY: the script gives room for `capacity` pairs.
        unsafe {
            let pair = &mut *out.data.add(size(out.size));
            pair.key = Str::from_text(&name);
            pair.value = value;
        }
        out.size += 1;
    }
    FFI_OK
}

pub(super) unsafe fn value(source: c_int, name: *const c_char, length: c_int, out: *mut Str) -> c_int {
    // SAFETY: the script passes a string with its length.
    unsafe { found(out, |text| fields::get(source, name, size(length), text)) }
}

pub(super) unsafe fn value_size(source: c_int, name: *const c_char, length: c_int) -> c_int {
    // SAFETY: as in `value`.
    unsafe { fields::count(source, name, size(length)) }.max(0)
}

pub(super) unsafe fn value_index(
    source: c_int,
    name: *const c_char,
    length: c_int,
    out: *mut Str,
    index: c_int,
) -> c_int {
    // SAFETY: as in `value`.
    unsafe { found(out, |text| fields::at(source, name, size(length), index, text)) }
}

pub(super) unsafe fn set_map(source: c_int, pairs: *mut Pairs) -> c_int {
    // SAFETY: the script passes its own place, with `size` pairs.
    let Some(pairs) = (unsafe { pairs.as_ref() }) else { return FFI_BAD_ARGUMENT };
    if pairs.size <= 0 {
        return FFI_BAD_ARGUMENT;
    }
    // SAFETY: no pointers.
    let cleared = unsafe { fields::clear(source) };
    if cleared != OK {
        return code(cleared);
    }
    let mut answer = FFI_OK;
    for at in 0..size(pairs.size) {
        // SAFETY: as above; each part is a string with its length.
        let done = unsafe {
            let pair = &*pairs.data.add(at);
            let ((name, length), (value, value_length)) = (pair.key.parts(), pair.value.parts());
            match take(name, length).starts_with(b":") {
                true => fields::set(source, name, length, value, value_length),
                false => fields::add(source, name, length, value, value_length),
            }
        };
        if done != OK {
            answer = code(done);
        }
    }
    answer
}

pub(super) unsafe fn set_value(
    source: c_int,
    name: *const c_char,
    length: c_int,
    value: *const c_char,
    value_length: c_int,
) -> c_int {
    if length <= 0 || value_length <= 0 {
        return FFI_BAD_ARGUMENT;
    }
    // SAFETY: as in `value`.
    code(unsafe { fields::set(source, name, size(length), value, size(value_length)) })
}

pub(super) unsafe fn remove(source: c_int, name: *const c_char, length: c_int) -> c_int {
    if length <= 0 {
        return FFI_BAD_ARGUMENT;
    }
    // SAFETY: as in `value`.
    code(unsafe { fields::remove(source, name, size(length)) })
}

/// Sorted by name; of several with one name the first.
pub(super) unsafe fn query_parameters(out: *mut Pairs) -> c_int {
    // SAFETY: the script passes its own place.
    let Some(out) = (unsafe { out.as_mut() }) else { return FFI_BAD_ARGUMENT };
    out.size = 0;
    code(with_stream(|stream, _, _| {
        let mut found: BTreeMap<&[u8], &[u8]> = BTreeMap::new();
        let query = stream.request.query().unwrap_or_default();
        for part in query.split(|byte| *byte == b'&').filter(|_| !query.is_empty()) {
            let mut halves = part.splitn(2, |byte| *byte == b'=');
            let name = halves.next().unwrap_or_default();
            found.entry(name).or_insert(halves.next().unwrap_or_default());
        }
        for (name, value) in found.into_iter().take(size(out.capacity)) {
            // SAFETY: the script gives room for `capacity` pairs.
            let pair = unsafe { &mut *out.data.add(size(out.size)) };
            pair.key = Str::of(name);
            pair.value = Str::of(value);
            out.size += 1;
        }
        OK
    }))
}

/// # Safety
/// `out` is null or a place for a [`Str`].
unsafe fn found(out: *mut Str, look: impl FnOnce(&mut super::Text) -> c_int) -> c_int {
    let mut text = nothing();
    let done = look(&mut text);
    // SAFETY: by the contract above.
    let Some(out) = (unsafe { out.as_mut() }) else { return FFI_BAD_ARGUMENT };
    if done != OK {
        return FFI_NOT_FOUND;
    }
    *out = Str::from_text(&text);
    FFI_OK
}
