//! Hashes for the modules that plugins require. They work outside streams, too.

use std::ffi::{c_char, c_int};

use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512, Sha512_224, Sha512_256};

use super::sponge::Sponge;
use super::text::{put, take};
use super::turn::with;
use super::{INVALID, OK, Text};

/// The bytes of a hash: kinds 0 md5, 1 sha1, 2 sha224, 3 sha256, 4 sha384, 5 sha512, 6 sha512/224, 7 sha512/256, 8 sha3-224,
/// 9 sha3-256, 10 sha3-384, 11 sha3-512.
pub(super) unsafe extern "C" fn digest(kind: c_int, bytes: *const c_char, length: usize, out: *mut Text) -> c_int {
    with(|turn| {
        // SAFETY: the SDK passes a Lua string with its length.
        let known = hash(kind, &[unsafe { take(bytes, length) }], &mut turn.scratch.bytes);
        // SAFETY: the SDK passes a place of its own.
        unsafe { put(out, &turn.scratch.bytes) };
        if known { OK } else { INVALID }
    })
}

/// A keyed hash (RFC 2104) of the same kinds.
pub(super) unsafe extern "C" fn hmac(
    kind: c_int,
    key: *const c_char,
    key_length: usize,
    bytes: *const c_char,
    length: usize,
    out: *mut Text,
) -> c_int {
    with(|turn| {
        // SAFETY: as in `digest`.
        let (key, bytes) = unsafe { (take(key, key_length), take(bytes, length)) };
        let width = block(kind);
        let mut block = Vec::with_capacity(width);
        match key.len() > width {
            true => {
                hash(kind, &[key], &mut block);
            }
            false => block.extend_from_slice(key),
        }
        block.resize(width, 0);
        let inner: Vec<u8> = block.iter().map(|byte| byte ^ 0x36).collect();
        let outer: Vec<u8> = block.iter().map(|byte| byte ^ 0x5c).collect();
        let mut first = Vec::new();
        hash(kind, &[&inner, bytes], &mut first);
        let known = hash(kind, &[&outer, &first], &mut turn.scratch.bytes);
        // SAFETY: as in `digest`.
        unsafe { put(out, &turn.scratch.bytes) };
        if known { OK } else { INVALID }
    })
}

/// Bytes that a hash takes in at a time: its keys are as long (FIPS 180-4, section 1; FIPS 202, table 3).
fn block(kind: c_int) -> usize {
    match kind {
        ..4 => 64,
        4..8 => 128,
        8 => 144,
        9 => 136,
        10 => 104,
        _ => 72,
    }
}

/// Writes the hash of all parts to `out`; `false` when there is no such kind.
fn hash(kind: c_int, parts: &[&[u8]], out: &mut Vec<u8>) -> bool {
    fn of<D: Digest>(parts: &[&[u8]], out: &mut Vec<u8>) -> bool {
        let mut hash = D::new();
        for part in parts {
            hash.update(part);
        }
        out.extend_from_slice(&hash.finalize());
        true
    }
    out.clear();
    match kind {
        0 => of::<Md5>(parts, out),
        1 => of::<Sha1>(parts, out),
        2 => of::<Sha224>(parts, out),
        3 => of::<Sha256>(parts, out),
        4 => of::<Sha384>(parts, out),
        5 => of::<Sha512>(parts, out),
        6 => of::<Sha512_224>(parts, out),
        7 => of::<Sha512_256>(parts, out),
        8 => Sponge::Sha3_224.hash(parts, 0, out),
        9 => Sponge::Sha3_256.hash(parts, 0, out),
        10 => Sponge::Sha3_384.hash(parts, 0, out),
        11 => Sponge::Sha3_512.hash(parts, 0, out),
        _ => false,
    }
}
