//! Files and inline bytes of a configuration, and the PEM in them. Errors are collected; nothing stops at the first.

use postrider_model::Data;
use rustls::pki_types::pem::{self, PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};

use crate::{ReadFile, TlsError};

/// What helps with a key whose encryption is too old.
const CONVERT: &str = "`openssl pkcs8 -topk8` converts it";

/// Where something is read for, and what went wrong so far.
pub(crate) struct Material<'a> {
    read: ReadFile<'a>,
    errors: Vec<TlsError>,
}

/// Bytes, with where they came from.
pub(crate) struct Source {
    pub bytes: Vec<u8>,
    /// The file, or `<inline>`.
    pub origin: String,
}

/// Certificates and revocation lists of one PEM.
pub(crate) struct Bundle {
    pub certificates: Vec<CertificateDer<'static>>,
    pub revocation_lists: Vec<CertificateRevocationListDer<'static>>,
}

impl<'a> Material<'a> {
    pub fn new(read: ReadFile<'a>) -> Material<'a> {
        Material { read, errors: Vec::new() }
    }

    pub fn refuse(&mut self, path: &str, message: impl Into<String>) {
        self.errors.push(TlsError { path: path.to_owned(), message: message.into() });
    }

    /// `value` if nothing was refused. A part that is missing was refused when it was read.
    pub fn finish<T>(self, value: Option<T>) -> Result<T, Vec<TlsError>> {
        match value {
            Some(value) if self.errors.is_empty() => Ok(value),
            _ => Err(self.errors),
        }
    }

    pub fn load(&mut self, data: &Data, path: &str) -> Option<Source> {
        match data {
            Data::Inline(bytes) => Some(Source { bytes: bytes.clone(), origin: "<inline>".to_owned() }),
            Data::File(file) => match (self.read)(file) {
                Ok(bytes) => Some(Source { bytes, origin: file.display().to_string() }),
                Err(error) => {
                    self.refuse(path, format!("{} cannot be read: {error}", file.display()));
                    None
                }
            },
        }
    }

    /// The certificates of a PEM, at least one, and the revocation lists that stand beside them.
    pub fn certificates(&mut self, source: &Source, path: &str) -> Option<Bundle> {
        let bundle = self.bundle(source, path)?;
        if bundle.certificates.is_empty() {
            self.refuse(path, format!("{} has no certificate in PEM form", source.origin));
            return None;
        }
        Some(bundle)
    }

    /// The revocation lists of a PEM, at least one.
    pub fn revocation_lists(
        &mut self,
        source: &Source,
        path: &str,
    ) -> Option<Vec<CertificateRevocationListDer<'static>>> {
        let bundle = self.bundle(source, path)?;
        if bundle.revocation_lists.is_empty() {
            self.refuse(path, format!("{} has no certificate revocation list in PEM form", source.origin));
            return None;
        }
        Some(bundle.revocation_lists)
    }

    fn bundle(&mut self, source: &Source, path: &str) -> Option<Bundle> {
        let mut bundle = Bundle { certificates: Vec::new(), revocation_lists: Vec::new() };
        for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(&source.bytes) {
            match section {
                Ok((SectionKind::Certificate, der)) => bundle.certificates.push(der.into()),
                Ok((SectionKind::Crl, der)) => bundle.revocation_lists.push(der.into()),
                Ok(_) => {}
                Err(error) => {
                    self.refuse(path, format!("{} is not good PEM: {}", source.origin, shown(&error)));
                    return None;
                }
            }
        }
        Some(bundle)
    }

    /// The first private key of a PEM, decrypted if it must be.
    pub fn private_key(
        &mut self,
        source: &Source,
        path: &str,
        password: Option<(&Source, &str)>,
    ) -> Option<PrivateKeyDer<'static>> {
        if contains(&source.bytes, b"-----BEGIN ENCRYPTED PRIVATE KEY-----") {
            return self.encrypted_key(source, path, password);
        }
        // RFC 1421, as OpenSSL wrote keys before PKCS#8: one round of MD5 is all that stretches the password.
        if contains(&source.bytes, b"Proc-Type: 4,ENCRYPTED") {
            self.refuse(path, format!("the key in {} is encrypted in the old form; {CONVERT}", source.origin));
            return None;
        }
        match PrivateKeyDer::from_pem_slice(&source.bytes) {
            Ok(key) => Some(key),
            Err(pem::Error::NoItemsFound) => {
                self.refuse(path, format!("{} has no private key in PEM form", source.origin));
                None
            }
            Err(error) => {
                self.refuse(path, format!("{} is not good PEM: {}", source.origin, shown(&error)));
                None
            }
        }
    }

    fn encrypted_key(
        &mut self,
        source: &Source,
        path: &str,
        password: Option<(&Source, &str)>,
    ) -> Option<PrivateKeyDer<'static>> {
        let Some((password, password_path)) = password else {
            self.refuse(path, format!("the key in {} is encrypted, and there is no password", source.origin));
            return None;
        };
        match decrypt(&source.bytes, &password.bytes) {
            Ok(key) => Some(key),
            Err(Undecrypted::Password) => {
                let message = format!("the password does not open the key in {}", source.origin);
                self.refuse(password_path, message);
                None
            }
            Err(Undecrypted::Unsupported(why)) => {
                self.refuse(path, format!("the key in {} cannot be decrypted ({why}); {CONVERT}", source.origin));
                None
            }
        }
    }
}

enum Undecrypted {
    Password,
    Unsupported(String),
}

/// PKCS#8 with PBES2 (RFC 8018). A file with a password often ends with a line end that is not part of it.
fn decrypt(pem: &[u8], password: &[u8]) -> Result<PrivateKeyDer<'static>, Undecrypted> {
    let unsupported = |why: &dyn std::fmt::Display| Undecrypted::Unsupported(why.to_string());
    let text = std::str::from_utf8(section(pem)).map_err(|why| unsupported(&why))?;
    let (_, document) = pkcs8::der::SecretDocument::from_pem(text).map_err(|why| unsupported(&why))?;
    let encrypted =
        pkcs8::EncryptedPrivateKeyInfoRef::try_from(document.as_bytes()).map_err(|why| unsupported(&why))?;
    let line = password.strip_suffix(b"\n").map(|it| it.strip_suffix(b"\r").unwrap_or(it));
    for candidate in std::iter::once(password).chain(line) {
        match encrypted.decrypt(candidate) {
            Ok(key) => {
                let key = rustls::pki_types::PrivatePkcs8KeyDer::from(key.as_bytes().to_vec());
                return Ok(PrivateKeyDer::Pkcs8(key));
            }
            // A wrong password shows as bad padding, or as bytes that are no key.
            Err(pkcs8::Error::EncryptedPrivateKey(pkcs8::pkcs5::Error::DecryptFailed) | pkcs8::Error::Asn1(_)) => {}
            Err(why) => return Err(unsupported(&why)),
        }
    }
    Err(Undecrypted::Password)
}

/// Only the encrypted key of a PEM that may have other things around it.
fn section(pem: &[u8]) -> &[u8] {
    const BEGIN: &[u8] = b"-----BEGIN ENCRYPTED PRIVATE KEY-----";
    const END: &[u8] = b"-----END ENCRYPTED PRIVATE KEY-----";
    let start = find(pem, BEGIN).unwrap_or(0);
    let end = find(pem, END).map_or(pem.len(), |it| it + END.len());
    pem.get(start..end).unwrap_or(pem)
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|it| it == part)
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    find(bytes, part).is_some()
}

/// The library prints markers as lists of numbers.
fn shown(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { end_marker } => {
            format!("a section `{}` does not end", String::from_utf8_lossy(end_marker))
        }
        pem::Error::IllegalSectionStart { line } => {
            format!("a section begins with `{}`", String::from_utf8_lossy(line))
        }
        other => other.to_string(),
    }
}
