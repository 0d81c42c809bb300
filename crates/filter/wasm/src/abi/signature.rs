//! Signatures that modules have made and checked: RSA (PKCS #1 v1.5) and ECDSA, with keys as DER and with any hash that Envoy
//! takes, as one library does them for both proxies.

use std::ptr;

use aws_lc_sys as lc;

/// A key, freed when it is dropped.
pub(super) struct Key(*mut lc::EVP_PKEY);

impl Key {
    /// Reads a `SubjectPublicKeyInfo`.
    pub(super) fn public(der: &[u8]) -> Option<Key> {
        let mut reader = lc::CBS { data: der.as_ptr(), len: der.len() };
        // SAFETY: the reader's bytes outlive the call; the answer is null or a key of ours.
        Key::made(unsafe { lc::EVP_parse_public_key(&mut reader) })
    }

    /// Reads PKCS #8, and with `older` the forms of its own that a kind of key had before there was that.
    pub(super) fn private(der: &[u8], older: bool) -> Option<Key> {
        let mut reader = lc::CBS { data: der.as_ptr(), len: der.len() };
        // SAFETY: as above.
        if let Some(key) = Key::made(unsafe { lc::EVP_parse_private_key(&mut reader) }) {
            return Some(key);
        }
        if !older {
            return None;
        }
        let mut next = der.as_ptr();
        let length = der.len().try_into().ok()?;
        // SAFETY: it reads `length` bytes at most, which outlive the call, and moves `next` alone; the answer is as above.
        Key::made(unsafe { lc::d2i_AutoPrivateKey(ptr::null_mut(), &mut next, length) })
    }

    fn made(key: *mut lc::EVP_PKEY) -> Option<Key> {
        // What it complained of is of no use to whoever asks next.
        // SAFETY: it empties a queue of this thread.
        unsafe { lc::ERR_clear_error() };
        (!key.is_null()).then_some(Key(key))
    }

    pub(super) fn verifies(&self, hash: Hash, signature: &[u8], text: &[u8]) -> bool {
        let Some(context) = Context::new() else { return false };
        // SAFETY: context and key live, the hash is a static of the library, and the texts outlive the calls.
        unsafe {
            let good = lc::EVP_DigestVerifyInit(context.0, ptr::null_mut(), hash.0, ptr::null_mut(), self.0) == 1
                && lc::EVP_DigestVerify(context.0, signature.as_ptr(), signature.len(), text.as_ptr(), text.len()) == 1;
            lc::ERR_clear_error();
            good
        }
    }

    /// `None` where the key cannot sign, or is too short for the hash.
    pub(super) fn sign(&self, hash: Hash, text: &[u8]) -> Option<Vec<u8>> {
        let context = Context::new()?;
        let mut length = 0;
        let mut signature = Vec::new();
        // SAFETY: as above; the second call writes `length` bytes at most, which is how many there are.
        let is_made = unsafe {
            let made = lc::EVP_DigestSignInit(context.0, ptr::null_mut(), hash.0, ptr::null_mut(), self.0) == 1
                && lc::EVP_DigestSign(context.0, ptr::null_mut(), &mut length, text.as_ptr(), text.len()) == 1
                && {
                    signature.resize(length, 0);
                    lc::EVP_DigestSign(context.0, signature.as_mut_ptr(), &mut length, text.as_ptr(), text.len()) == 1
                };
            lc::ERR_clear_error();
            made
        };
        // One of an elliptic curve may be shorter than the longest.
        signature.truncate(length);
        is_made.then_some(signature)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        // SAFETY: ours.
        unsafe { lc::EVP_PKEY_free(self.0) }
    }
}

/// What a digest is worked out in, freed when it is dropped.
struct Context(*mut lc::EVP_MD_CTX);

impl Context {
    fn new() -> Option<Context> {
        // SAFETY: a new context is ours; null is checked.
        let context = unsafe { lc::EVP_MD_CTX_new() };
        (!context.is_null()).then_some(Context(context))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: ours.
        unsafe { lc::EVP_MD_CTX_free(self.0) }
    }
}

/// A hash: a static of the library.
#[derive(Clone, Copy)]
pub(super) struct Hash(*const lc::EVP_MD);

impl Hash {
    /// By its name, in whatever case.
    pub(super) fn named(name: &str) -> Option<Hash> {
        // SAFETY: these answer with statics of the library.
        Some(Hash(unsafe {
            match &*name.to_ascii_lowercase() {
                "sha1" => lc::EVP_sha1(),
                "sha224" => lc::EVP_sha224(),
                "sha256" => lc::EVP_sha256(),
                "sha384" => lc::EVP_sha384(),
                "sha512" => lc::EVP_sha512(),
                _ => return None,
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};

    use super::*;

    #[test]
    fn every_hash_goes_with_every_key() {
        let rsa = aws_lc_rs::rsa::KeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048).unwrap();
        let curve = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap();
        let keys = [
            (
                AsDer::<Pkcs8V1Der<'_>>::as_der(&rsa).unwrap().as_ref().to_vec(),
                AsDer::<PublicKeyX509Der<'_>>::as_der(rsa.public_key()).unwrap().as_ref().to_vec(),
            ),
            (
                curve.to_pkcs8v1().unwrap().as_ref().to_vec(),
                AsDer::<PublicKeyX509Der<'_>>::as_der(curve.public_key()).unwrap().as_ref().to_vec(),
            ),
        ];
        for (private, public) in &keys {
            let (private, public) = (Key::private(private, false).unwrap(), Key::public(public).unwrap());
            for name in ["sha1", "sha224", "sha256", "SHA384", "Sha512"] {
                let hash = Hash::named(name).unwrap();
                let made = private.sign(hash, b"text").unwrap();
                assert!(public.verifies(hash, &made, b"text"), "{name}");
                assert!(!public.verifies(hash, &made, b"other"), "{name}");
            }
            assert!(public.sign(Hash::named("sha256").unwrap(), b"text").is_none(), "it is public");
        }
        assert!(Hash::named("md5").is_none());
        assert!(Key::public(b"").is_none() && Key::private(b"no key", true).is_none());
    }
}
