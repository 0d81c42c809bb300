//! Texts that scripts have translated, and files that they load.

use std::ffi::{OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::text::{put, take};
use super::turn::with;
use super::{INVALID, NOT_HERE, OK, Text};

/// Pads what it writes, and reads with padding or without, as Envoy does.
const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Files of one script that are watched.
const MAX_REQUIRED: usize = 1000;

/// Base64: to it (1) or from it (0).
pub(super) unsafe extern "C" fn base64(encode: c_int, bytes: *const c_char, length: usize, out: *mut Text) -> c_int {
    with(|turn| {
        // SAFETY: the SDK passes a Lua string with its length.
        let bytes = unsafe { take(bytes, length) };
        let room = &mut turn.scratch.bytes;
        room.clear();
        let done = if encode != 0 {
            room.resize(bytes.len().div_ceil(3).saturating_mul(4), 0);
            ENGINE.encode_slice(bytes, room).is_ok()
        } else if bytes.iter().any(u8::is_ascii_whitespace) {
            let dense: Vec<u8> = bytes.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
            ENGINE.decode_vec(dense, room).is_ok()
        } else {
            ENGINE.decode_vec(bytes, room).is_ok()
        };
        // SAFETY: the SDK passes a place of its own.
        unsafe { put(out, room) };
        if done { OK } else { INVALID }
    })
}

/// `require` loads this file. Counts only while a configuration is tried out.
pub(super) unsafe extern "C" fn required(path: *const c_char, length: usize) -> c_int {
    with(|turn| {
        if turn.stream.is_some() {
            return NOT_HERE;
        }
        // SAFETY: the SDK passes a Lua string with its length.
        let path = PathBuf::from(OsStr::from_bytes(unsafe { take(path, length) }));
        let required = &mut turn.scratch.required;
        if required.len() < MAX_REQUIRED && !required.contains(&path) {
            required.push(path);
        }
        OK
    })
}
