//! Signatures that scripts have checked: RSA (PKCS #1 v1.5) and ECDSA, with keys as DER (SubjectPublicKeyInfo).

use std::ffi::{c_char, c_int};
use std::ptr;

use aws_lc_sys as lc;

use super::text::take;
use super::turn::with;
use super::{INVALID, NONE, NOT_HERE, OK};

/// A key, freed when it is dropped.
struct Key(*mut lc::EVP_PKEY);

impl Key {
    fn parse(der: &[u8]) -> Option<Key> {
        let mut reader = lc::CBS { data: der.as_ptr(), len: der.len() };
        // SAFETY: the reader's bytes outlive the call; the answer is null or a key of ours.
        let key = unsafe { lc::EVP_parse_public_key(&mut reader) };
        // Nothing may follow the key.
        Some(Key(key)).filter(|key| !key.0.is_null() && reader.len == 0)
    }

    fn verifies(&self, hash: *const lc::EVP_MD, signature: &[u8], data: &[u8]) -> bool {
        // SAFETY: a new context is ours until it is freed below; null is checked.
        let context = unsafe { lc::EVP_MD_CTX_new() };
        if context.is_null() {
            return false;
        }
        // SAFETY: context and key live, `hash` is a static of the library, and the texts outlive the calls.
        unsafe {
            let good = lc::EVP_DigestVerifyInit(context, ptr::null_mut(), hash, ptr::null_mut(), self.0) == 1
                && lc::EVP_DigestVerify(context, signature.as_ptr(), signature.len(), data.as_ptr(), data.len()) == 1;
            lc::EVP_MD_CTX_free(context);
            lc::ERR_clear_error();
            good
        }
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        // SAFETY: ours; null is fine.
        unsafe { lc::EVP_PKEY_free(self.0) }
    }
}

fn hash(name: &[u8]) -> Option<*const lc::EVP_MD> {
    // SAFETY: these answer with statics of the library.
    Some(unsafe {
        match name.to_ascii_lowercase().as_slice() {
            b"sha1" => lc::EVP_sha1(),
            b"sha224" => lc::EVP_sha224(),
            b"sha256" => lc::EVP_sha256(),
            b"sha384" => lc::EVP_sha384(),
            b"sha512" => lc::EVP_sha512(),
            _ => return None,
        }
    })
}

/// Whether this is a key at all.
pub(super) unsafe extern "C" fn key_check(der: *const c_char, length: usize) -> c_int {
    with(|_| {
        // SAFETY: the SDK passes a Lua string with its length.
        if Key::parse(unsafe { take(der, length) }).is_some() { OK } else { INVALID }
    })
}

/// Whether the signature is this key's for the data: [`NONE`] if not, [`INVALID`] for an unknown hash, [`NOT_HERE`] for
/// what is no key.
pub(super) unsafe extern "C" fn verify(
    name: *const c_char,
    name_length: usize,
    key: *const c_char,
    key_length: usize,
    signature: *const c_char,
    signature_length: usize,
    data: *const c_char,
    length: usize,
) -> c_int {
    with(|_| {
        // SAFETY: the SDK passes Lua strings with their lengths.
        let (name, key) = unsafe { (take(name, name_length), take(key, key_length)) };
        // SAFETY: as above.
        let (signature, data) = unsafe { (take(signature, signature_length), take(data, length)) };
        let Some(hash) = hash(name) else { return INVALID };
        let Some(key) = Key::parse(key) else { return NOT_HERE };
        if key.verifies(hash, signature, data) { OK } else { NONE }
    })
}
