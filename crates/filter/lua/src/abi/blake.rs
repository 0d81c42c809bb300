//! BLAKE2 (RFC 7693), its parallel and its extended forms, and BLAKE3. They work outside streams, too.

use std::ffi::{c_char, c_int};

use super::sponge::MAX_ANSWER;
use super::text::{put, take};
use super::turn::with;
use super::{INVALID, OK, Text};

/// `size` bytes of BLAKE2b (kind 0), BLAKE2s (1), BLAKE2bp (2) or BLAKE2sp (3); [`INVALID`] for lengths that they do not have.
/// A salt may be as long as the fields for it and for what is called personalization, one after the other.
pub(super) unsafe extern "C" fn blake2(
    kind: c_int,
    size: usize,
    key: *const c_char,
    key_length: usize,
    salt: *const c_char,
    salt_length: usize,
    bytes: *const c_char,
    length: usize,
    out: *mut Text,
) -> c_int {
    with(|turn| {
        // SAFETY: the SDK passes Lua strings with their lengths.
        let (key, salt, bytes) = unsafe { (take(key, key_length), take(salt, salt_length), take(bytes, length)) };
        let room = &mut turn.scratch.bytes;
        let known = match kind {
            0 => b::hash(size, key, salt, bytes, room),
            1 => s::hash(size, key, salt, bytes, room),
            2 if salt.is_empty() => b::hash_in_parallel(size, key, bytes, room),
            3 if salt.is_empty() => s::hash_in_parallel(size, key, bytes, room),
            _ => None,
        };
        // SAFETY: the SDK passes a place of its own.
        unsafe { put(out, room) };
        if known.is_some() { OK } else { INVALID }
    })
}

/// `size` bytes from a position of the `total` that BLAKE2Xb (kind 0) or BLAKE2Xs (1) has; the largest total of a kind is none.
pub(super) unsafe extern "C" fn blake2x(
    kind: c_int,
    total: u64,
    position: u64,
    size: usize,
    key: *const c_char,
    key_length: usize,
    salt: *const c_char,
    salt_length: usize,
    bytes: *const c_char,
    length: usize,
    out: *mut Text,
) -> c_int {
    with(|turn| {
        // SAFETY: as in `blake2`.
        let (key, salt, bytes) = unsafe { (take(key, key_length), take(salt, salt_length), take(bytes, length)) };
        let room = &mut turn.scratch.bytes;
        let known = match kind {
            _ if size > MAX_ANSWER => None,
            0 => b::extend(total, position, size, key, salt, bytes, room),
            1 => s::extend(total, position, size, key, salt, bytes, room),
            _ => None,
        };
        // SAFETY: as in `blake2`.
        unsafe { put(out, room) };
        if known.is_some() { OK } else { INVALID }
    })
}

/// `size` bytes of BLAKE3 from a position: with a key if there is one, or with `derives` of a key for that context.
pub(super) unsafe extern "C" fn blake3(
    derives: c_int,
    key: *const c_char,
    key_length: usize,
    position: u64,
    size: usize,
    bytes: *const c_char,
    length: usize,
    out: *mut Text,
) -> c_int {
    with(|turn| {
        // SAFETY: as in `blake2`.
        let (key, bytes) = unsafe { (take(key, key_length), take(bytes, length)) };
        let Some(mut hasher) = blake3_hasher(derives != 0, key).filter(|_| size <= MAX_ANSWER) else { return INVALID };
        let room = &mut turn.scratch.bytes;
        room.clear();
        room.resize(size, 0);
        let mut answer = hasher.update(bytes).finalize_xof();
        answer.set_position(position);
        answer.fill(room);
        // SAFETY: as in `blake2`.
        unsafe { put(out, room) };
        OK
    })
}

/// `None` for a context that is no text, and for a key that is too long. A shorter one is filled up with zeros.
fn blake3_hasher(derives: bool, key: &[u8]) -> Option<blake3::Hasher> {
    if derives {
        return std::str::from_utf8(key).ok().map(blake3::Hasher::new_derive_key);
    }
    if key.is_empty() {
        return Some(blake3::Hasher::new());
    }
    let mut whole = [0; blake3::KEY_LEN];
    whole.get_mut(..key.len())?.copy_from_slice(key);
    Some(blake3::Hasher::new_keyed(&whole))
}

/// What both families of BLAKE2 do: their crates have the same shape, but no trait that says so. Each function writes to `out`, and
/// answers `None` for lengths out of range.
macro_rules! family {
    ($family:ident: $library:ident, $parallel:ident, endless: $endless:expr) => {
        mod $family {
            use $library::{KEYBYTES, OUTBYTES, PERSONALBYTES, Params, SALTBYTES, $parallel};

            pub(super) fn hash(size: usize, key: &[u8], salt: &[u8], bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
                out.clear();
                out.extend_from_slice(params(size, key, salt)?.hash(bytes).as_bytes());
                Some(())
            }

            pub(super) fn hash_in_parallel(size: usize, key: &[u8], bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
                out.clear();
                params(size, key, &[])?;
                out.extend_from_slice($parallel::Params::new().hash_length(size).key(key).hash(bytes).as_bytes());
                Some(())
            }

            /// The nodes of a tree without a root (BLAKE2X, section 2): the hash of the message, once more for each block.
            pub(super) fn extend(
                total: u64,
                mut position: u64,
                size: usize,
                key: &[u8],
                salt: &[u8],
                bytes: &[u8],
                out: &mut Vec<u8>,
            ) -> Option<()> {
                const BLOCK: u64 = OUTBYTES as u64;
                out.clear();
                if total > $endless {
                    return None;
                }
                let stop = position.checked_add(size as u64)?;
                let end = if total == $endless { u64::MAX } else { total };
                let message = params(OUTBYTES, key, salt)?.node_offset(total << 32).hash(bytes);
                let mut node = params(OUTBYTES, &[], salt)?;
                node.fanout(0).max_depth(0).max_leaf_length(OUTBYTES as u32).inner_hash_length(OUTBYTES);
                while position < stop.min(end) {
                    let (index, within) = (position / BLOCK, position % BLOCK);
                    let has = BLOCK.min(end - index * BLOCK);
                    let block = node
                        .hash_length(has as usize)
                        .node_offset((total << 32) | (index & u64::from(u32::MAX)))
                        .hash(message.as_bytes());
                    let takes = (has - within).min(stop - position);
                    out.extend(block.as_bytes().iter().skip(within as usize).take(takes as usize));
                    position += takes;
                }
                Some(())
            }

            fn params(size: usize, key: &[u8], salt: &[u8]) -> Option<Params> {
                let (salt, personal) = salt.split_at_checked(SALTBYTES).unwrap_or((salt, &[]));
                if !(1..=OUTBYTES).contains(&size) || key.len() > KEYBYTES || personal.len() > PERSONALBYTES {
                    return None;
                }
                let mut params = Params::new();
                params.hash_length(size).key(key).salt(salt).personal(personal);
                Some(params)
            }
        }
    };
}

family!(b: blake2b_simd, blake2bp, endless: u32::MAX as u64);
family!(s: blake2s_simd, blake2sp, endless: u16::MAX as u64);
