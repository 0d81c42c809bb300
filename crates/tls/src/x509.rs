//! The parts of an X.509 certificate (RFC 5280, 4.1) that are shown, compared or counted.
//!
//! Signatures and paths are webpki's business. What is read here describes a certificate, and says nothing about
//! whether it is good.

use std::time::SystemTime;

use crate::der::{self, Reader};
use crate::time;

/// Object identifiers, as the bytes of their DER content.
pub(crate) mod oid {
    /// 2.5.29.15
    pub(crate) const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
    /// 2.5.29.17
    pub(crate) const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
    /// 2.5.29.19
    pub(crate) const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
    /// 2.5.29.37
    pub(crate) const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
    /// 2.5.29.37.0
    pub(crate) const ANY_PURPOSE: &[u8] = &[0x55, 0x1d, 0x25, 0x00];
    /// 1.3.6.1.5.5.7.3.1
    pub(crate) const SERVER_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];
    /// 1.3.6.1.5.5.7.3.2
    pub(crate) const CLIENT_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 2];
    /// 1.3.6.1.5.5.7.1.24, TLS features (RFC 7633)
    pub(crate) const TLS_FEATURE: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 1, 24];
    /// 1.3.6.1.5.5.7.1.31, the proof for TLS-ALPN-01 (RFC 8737)
    pub(crate) const ACME_IDENTIFIER: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 1, 31];
    /// 2.5.4.3
    pub(crate) const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
    /// 2.5.4.10
    pub(crate) const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
    /// 1.2.840.113549.1.1.1
    pub(crate) const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
    /// 1.2.840.10045.2.1
    pub(crate) const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
    /// 1.3.101.112
    pub(crate) const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
    /// 1.2.840.10045.3.1.7
    pub(crate) const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
    /// 1.3.132.0.34
    pub(crate) const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
    /// 1.3.132.0.35
    pub(crate) const P521: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x23];
    /// 1.3.6.1.5.5.7.48.1.1
    pub(crate) const OCSP_BASIC: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 48, 1, 1];
}

#[derive(Debug, Clone)]
pub(crate) struct X509<'a> {
    /// Without leading zeros.
    pub serial: &'a [u8],
    /// The content of the name: a list of sets of attributes.
    pub issuer: &'a [u8],
    pub subject: &'a [u8],
    pub not_before: SystemTime,
    pub not_after: SystemTime,
    /// SubjectPublicKeyInfo, with its own tag and length.
    pub public_key: &'a [u8],
    extensions: &'a [u8],
}

impl<'a> X509<'a> {
    /// `None` for what is not a certificate.
    pub fn parse(der: &'a [u8]) -> Option<X509<'a>> {
        let mut certificate = Reader::new(der).inside(der::SEQUENCE)?;
        let mut signed = certificate.inside(der::SEQUENCE)?;
        signed.optional(der::context(0));
        let serial = der::unsigned(signed.expect(der::INTEGER)?);
        signed.expect(der::SEQUENCE)?;
        let issuer = signed.expect(der::SEQUENCE)?;
        let mut validity = signed.inside(der::SEQUENCE)?;
        let not_before = time::read(validity.element()?)?;
        let not_after = time::read(validity.element()?)?;
        let subject = signed.expect(der::SEQUENCE)?;
        let public_key = signed.element().filter(|it| it.tag == der::SEQUENCE)?.whole;
        let mut extensions: &[u8] = &[];
        while !signed.is_empty() {
            let part = signed.element()?;
            if part.tag == der::context(3) {
                extensions = Reader::new(part.content).expect(der::SEQUENCE)?;
            }
        }
        Some(X509 { serial, issuer, subject, not_before, not_after, public_key, extensions })
    }

    /// The value of an extension.
    pub fn extension(&self, wanted: &[u8]) -> Option<&'a [u8]> {
        let mut list = Reader::new(self.extensions);
        while let Some(mut extension) = list.inside(der::SEQUENCE) {
            if extension.expect(der::OID) == Some(wanted) {
                extension.optional(der::BOOLEAN);
                return extension.expect(der::OCTET_STRING);
            }
        }
        None
    }

    /// The identifiers of its extensions, each as the bytes of its DER content.
    pub fn extensions(&self) -> impl Iterator<Item = &'a [u8]> {
        let mut list = Reader::new(self.extensions);
        std::iter::from_fn(move || list.inside(der::SEQUENCE)?.expect(der::OID))
    }

    /// Whether it asks for an OCSP response at every handshake (RFC 7633: TLS feature 5, `status_request`).
    pub fn must_staple(&self) -> bool {
        let Some(mut features) =
            self.extension(oid::TLS_FEATURE).and_then(|value| Reader::new(value).inside(der::SEQUENCE))
        else {
            return false;
        };
        std::iter::from_fn(|| features.expect(der::INTEGER)).any(|feature| feature == [5])
    }

    /// Whether it may sign other certificates, by its basic constraints or its key usage (`keyCertSign`, `cRLSign`).
    pub fn may_sign_certificates(&self) -> bool {
        let authority = self
            .extension(oid::BASIC_CONSTRAINTS)
            .and_then(|value| Reader::new(value).inside(der::SEQUENCE)?.optional(der::BOOLEAN))
            .is_some_and(|value| value != [0]);
        // The first byte of a BIT STRING counts the unused bits; keyCertSign is bit 5, cRLSign bit 6.
        let usage = self
            .extension(oid::KEY_USAGE)
            .and_then(|value| Reader::new(value).expect(der::BIT_STRING))
            .and_then(|bits| bits.get(1))
            .is_some_and(|bits| bits & 0b0000_0110 != 0);
        authority || usage
    }

    /// Whether it may be used for `purpose`: one that names no purpose may be used for any.
    pub fn fits_purpose(&self, purpose: &[u8]) -> bool {
        let Some(value) = self.extension(oid::EXTENDED_KEY_USAGE) else { return true };
        let Some(mut purposes) = Reader::new(value).inside(der::SEQUENCE) else { return false };
        std::iter::from_fn(|| purposes.expect(der::OID)).any(|it| it == purpose || it == oid::ANY_PURPOSE)
    }

    /// The subject's common name, the first of several; text that is not UTF-8 counts as none.
    pub fn common_name(&self) -> Option<&'a str> {
        let mut sets = Reader::new(self.subject);
        while let Some(mut attributes) = sets.inside(der::SET) {
            while let Some(mut attribute) = attributes.inside(der::SEQUENCE) {
                if attribute.expect(der::OID) == Some(oid::COMMON_NAME) {
                    return attribute.element().and_then(|it| std::str::from_utf8(it.content).ok());
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, CustomExtension, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose};

    fn certificate(change: impl FnOnce(&mut CertificateParams)) -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        params.serial_number = Some(vec![0x8f, 0x01].into());
        change(&mut params);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn the_parts_of_a_certificate() {
        let der = certificate(|_| {});
        let parsed = X509::parse(&der).unwrap();
        assert_eq!(parsed.serial, [0x8f, 0x01]);
        assert_eq!(parsed.issuer, parsed.subject);
        assert!(parsed.not_before < parsed.not_after);
        assert_eq!(parsed.common_name(), Some("rcgen self signed cert"));
        assert!(!parsed.must_staple() && !parsed.may_sign_certificates() && parsed.fits_purpose(oid::SERVER_AUTH));
    }

    #[test]
    fn what_extensions_say() {
        let stapled = certificate(|params| {
            let value = vec![0x30, 0x03, 0x02, 0x01, 0x05];
            params.custom_extensions.push(CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 24], value));
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        });
        let stapled = X509::parse(&stapled).unwrap();
        assert!(stapled.must_staple());
        assert!(stapled.fits_purpose(oid::CLIENT_AUTH) && !stapled.fits_purpose(oid::SERVER_AUTH));
        let authority = certificate(|params| params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained));
        assert!(X509::parse(&authority).unwrap().may_sign_certificates());
        let signer = certificate(|params| params.key_usages = vec![KeyUsagePurpose::KeyCertSign]);
        assert!(X509::parse(&signer).unwrap().may_sign_certificates());
    }

    #[test]
    fn a_certificate_that_is_cut_is_none() {
        let der = certificate(|_| {});
        for end in 0..der.len() {
            assert!(X509::parse(&der[..end]).is_none(), "{end}");
        }
    }
}
