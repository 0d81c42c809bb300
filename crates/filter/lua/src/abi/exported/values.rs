//! Configurations and metadata.

use std::ffi::c_int;

use postrider_filter_plugin::json;
use postrider_model::Value;

use super::super::OK;
use super::super::turn::with;
use super::super::values;
use super::{FFI_BAD_ARGUMENT, FFI_NOT_FOUND, FFI_OK, Str, code, keep};

/// The base configuration alone, `{}` without one.
pub(super) unsafe fn configuration(out: *mut Str) -> c_int {
    let mut answer = FFI_NOT_FOUND;
    with(|turn| {
        // SAFETY: the script passes its own place.
        answer = unsafe { put_json(out, &turn.plugin.facts.config) };
        OK
    });
    answer
}

/// The route's whole entry, `{"name": …, "config": …}`.
pub(super) unsafe fn route_configuration(out: *mut Str) -> c_int {
    let mut answer = FFI_NOT_FOUND;
    with(|turn| {
        if turn.view.route_config_id != 0.0 {
            let mut entry = vec![("name".to_owned(), Value::String(turn.plugin.facts.name.clone()))];
            entry.extend(turn.view.route_config.clone().map(|config| ("config".to_owned(), config)));
            // SAFETY: as above.
            answer = unsafe { put_json(out, &Value::Map(entry)) };
        }
        OK
    });
    answer
}

/// # Safety
/// `out` is null or a place for a [`Str`].
unsafe fn put_json(out: *mut Str, value: &Value) -> c_int {
    // SAFETY: by the contract above.
    let Some(out) = (unsafe { out.as_mut() }) else { return FFI_BAD_ARGUMENT };
    *out = keep(json::to_json_text(value).as_bytes());
    FFI_OK
}

pub(super) unsafe fn route_config_hash() -> u64 {
    // SAFETY: no pointers.
    unsafe { values::route_config_id() as u64 }
}

pub(super) unsafe fn metadata(filter: *const Str, key: *const Str, out: *mut Str) -> c_int {
    // SAFETY: by the caller's contract.
    unsafe { plain(values::ROUTE, filter, key, out) }
}

pub(super) unsafe fn dynamic_metadata(filter: *const Str, key: *const Str, out: *mut Str) -> c_int {
    // SAFETY: by the caller's contract.
    unsafe { plain(values::DYNAMIC, filter, key, out) }
}

/// A text, or a number cut to a whole one, as text.
unsafe fn plain(which: c_int, filter: *const Str, key: *const Str, out: *mut Str) -> c_int {
    // SAFETY: the script passes its own places, with strings and their lengths.
    let (Some(filter), Some(key), Some(out)) = (unsafe { (filter.as_ref(), key.as_ref(), out.as_mut()) }) else {
        return FFI_BAD_ARGUMENT;
    };
    let ((filter, filter_length), (key, key_length)) = (filter.parts(), key.parts());
    if key_length == 0 {
        return FFI_NOT_FOUND;
    }
    // SAFETY: as above.
    match unsafe { values::text(which, filter, filter_length, key, key_length) } {
        Some(text) => {
            *out = keep(text.as_bytes());
            FFI_OK
        }
        None => FFI_NOT_FOUND,
    }
}

pub(super) unsafe fn set_dynamic_metadata(filter: *const Str, key: *const Str, value: *const Str) -> c_int {
    // SAFETY: as in `plain`.
    let (Some(filter), Some(key), Some(value)) = (unsafe { (filter.as_ref(), key.as_ref(), value.as_ref()) }) else {
        return FFI_BAD_ARGUMENT;
    };
    let ((filter, filter_length), (key, key_length), (value, length)) = (filter.parts(), key.parts(), value.parts());
    let set = values::set;
    // SAFETY: as in `plain`.
    code(unsafe { set(values::DYNAMIC, filter, filter_length, key, key_length, values::STRING, 0.0, value, length) })
}
