//! Hashes of SHA-3 and its functions with answers of any length (FIPS 202), by the library that TLS has.

use std::ffi::{c_char, c_int};
use std::ptr;

use aws_lc_sys as lc;

use super::text::{put, take};
use super::turn::with;
use super::{INVALID, OK, Text};

/// Longest answer of one call of a function that has any length: none takes long.
pub(super) const MAX_ANSWER: usize = 1 << 16;

/// One of them.
#[derive(Clone, Copy)]
pub(super) enum Sponge {
    Sha3_224,
    Sha3_256,
    Sha3_384,
    Sha3_512,
    Shake128,
    Shake256,
}

/// `size` bytes of SHAKE128 (kind 0) or SHAKE256 (kind 1); [`INVALID`] for more than there may be.
pub(super) unsafe extern "C" fn shake(
    kind: c_int,
    size: usize,
    bytes: *const c_char,
    length: usize,
    out: *mut Text,
) -> c_int {
    with(|turn| {
        let sponge = if kind == 0 { Sponge::Shake128 } else { Sponge::Shake256 };
        // SAFETY: the SDK passes a Lua string with its length.
        let parts = [unsafe { take(bytes, length) }];
        let known = size <= MAX_ANSWER && sponge.hash(&parts, size, &mut turn.scratch.bytes);
        // SAFETY: the SDK passes a place of its own.
        unsafe { put(out, &turn.scratch.bytes) };
        if known { OK } else { INVALID }
    })
}

impl Sponge {
    /// Writes `size` bytes to `out`, or as many as the hash has; false when there is no memory for it.
    pub(super) fn hash(self, parts: &[&[u8]], size: usize, out: &mut Vec<u8>) -> bool {
        let (function, fixed) = self.function();
        out.clear();
        out.resize(fixed.unwrap_or(size), 0);
        // SAFETY: a new context is ours until it is freed below; null is checked.
        let context = unsafe { lc::EVP_MD_CTX_new() };
        if context.is_null() {
            return false;
        }
        // SAFETY: the context lives, `function` is a static of the library, the parts outlive the calls, and `out` has as many
        // bytes as are asked for: the hash's own size, or the given one.
        unsafe {
            let good = lc::EVP_DigestInit_ex(context, function, ptr::null_mut()) == 1
                && parts.iter().all(|part| lc::EVP_DigestUpdate(context, part.as_ptr().cast(), part.len()) == 1)
                && match fixed {
                    Some(_) => lc::EVP_DigestFinal_ex(context, out.as_mut_ptr(), ptr::null_mut()) == 1,
                    None => out.is_empty() || lc::EVP_DigestFinalXOF(context, out.as_mut_ptr(), out.len()) == 1,
                };
            lc::EVP_MD_CTX_free(context);
            good
        }
    }

    /// The library's name for it, and how long its answer is where that is fixed.
    fn function(self) -> (*const lc::EVP_MD, Option<usize>) {
        // SAFETY: these answer with statics of the library.
        unsafe {
            match self {
                Sponge::Sha3_224 => (lc::EVP_sha3_224(), Some(28)),
                Sponge::Sha3_256 => (lc::EVP_sha3_256(), Some(32)),
                Sponge::Sha3_384 => (lc::EVP_sha3_384(), Some(48)),
                Sponge::Sha3_512 => (lc::EVP_sha3_512(), Some(64)),
                Sponge::Shake128 => (lc::EVP_shake128(), None),
                Sponge::Shake256 => (lc::EVP_shake256(), None),
            }
        }
    }
}
