//! Texts that scripts have translated, and files that they load.

use std::ffi::{OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::text::{put, take};
use super::turn::with;
use super::{INVALID, NONE, NOT_HERE, OK, Text};

/// Reads with padding or without, as Envoy does.
const FORGIVING: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
const PLAIN: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, FORGIVING);
const URL: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, FORGIVING.with_encode_padding(false));

/// Files of one script that are watched.
const MAX_REQUIRED: usize = 1000;

/// With `url`, in the alphabet for URLs and without padding.
pub(super) unsafe extern "C" fn base64_encode(
    bytes: *const c_char,
    length: usize,
    url: c_int,
    out: *mut Text,
) -> c_int {
    with(|turn| {
        // SAFETY: the SDK passes a Lua string with its length.
        let bytes = unsafe { take(bytes, length) };
        let engine = if url == 0 { &PLAIN } else { &URL };
        turn.scratch.bytes.clear();
        let mut text = String::from_utf8(std::mem::take(&mut turn.scratch.bytes)).unwrap_or_default();
        engine.encode_string(bytes, &mut text);
        turn.scratch.bytes = text.into_bytes();
        // SAFETY: the SDK passes a place of its own.
        unsafe { put(out, &turn.scratch.bytes) };
        OK
    })
}

/// From either alphabet, padded or not; other characters are passed over. Nothing for what cannot be bytes.
pub(super) unsafe extern "C" fn base64_decode(text: *const c_char, length: usize, out: *mut Text) -> c_int {
    with(|turn| {
        // SAFETY: as in `base64_encode`.
        let text = unsafe { take(text, length) };
        let bytes = &mut turn.scratch.bytes;
        bytes.clear();
        if PLAIN.decode_vec(text, bytes).is_err() {
            let plain = |byte: &u8| match byte {
                b'-' => Some(b'+'),
                b'_' => Some(b'/'),
                b'+' | b'/' => Some(*byte),
                other => other.is_ascii_alphanumeric().then_some(*other),
            };
            let kept: Vec<u8> = text.iter().filter_map(plain).collect();
            bytes.clear();
            if PLAIN.decode_vec(&kept, bytes).is_err() {
                return NONE;
            }
        }
        // SAFETY: as in `base64_encode`.
        unsafe { put(out, &turn.scratch.bytes) };
        OK
    })
}

/// From the plain alphabet only, white space passed over.
pub(super) unsafe extern "C" fn base64_decode_strict(bytes: *const c_char, length: usize, out: *mut Text) -> c_int {
    with(|turn| {
        // SAFETY: as in `base64_encode`.
        let bytes = unsafe { take(bytes, length) };
        let room = &mut turn.scratch.bytes;
        room.clear();
        let done = if bytes.iter().any(u8::is_ascii_whitespace) {
            let dense: Vec<u8> = bytes.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
            PLAIN.decode_vec(dense, room).is_ok()
        } else {
            PLAIN.decode_vec(bytes, room).is_ok()
        };
        // SAFETY: as in `base64_encode`.
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
