//! What is shown of certificates: of ours, for the admin, and of the other side's, for log lines and headers.

use std::net::IpAddr;
use std::time::SystemTime;

use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_model::CertificatePart;
use rustls::pki_types::CertificateDer;

use crate::der::{self, Reader};
use crate::names::{self, AltName};
use crate::ocsp::OcspValidity;
use crate::x509::{X509, oid};
use crate::{distinguished, x509};

/// A certificate that the configuration names: the first of a chain, or a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFacts {
    /// The file it came from, or `<inline>`.
    pub path: String,
    /// RFC 2253, as OpenSSL writes it: `CN=a,O=b`.
    pub subject: String,
    pub issuer: String,
    /// Lower-case hexadecimal, whole bytes.
    pub serial: String,
    pub names: Names,
    pub not_before: SystemTime,
    /// May be past: a certificate that has ended is still shown to clients.
    pub not_after: SystemTime,
    /// Of the DER, lower-case hexadecimal.
    pub sha256: String,
    pub key: KeyKind,
    /// Of the OCSP response that is stapled to it.
    pub ocsp: Option<OcspValidity>,
}

/// Subject alternative names by kind, each in the certificate's order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    pub dns: Vec<String>,
    pub uri: Vec<String>,
    pub email: Vec<String>,
    pub ip: Vec<IpAddr>,
}

/// What kind of public key a certificate has, and how many bits it is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    Rsa(u32),
    /// P-256, P-384 or P-521, by its bits.
    Ecdsa(u32),
    Ed25519,
    Other,
}

impl CertificateFacts {
    /// `None` for what is not a certificate.
    pub(crate) fn of(der: &[u8], path: &str) -> Option<CertificateFacts> {
        let certificate = X509::parse(der)?;
        Some(CertificateFacts {
            path: path.to_owned(),
            subject: distinguished::text(certificate.subject),
            issuer: distinguished::text(certificate.issuer),
            serial: serial_text(certificate.serial),
            names: Names::of(&certificate),
            not_before: certificate.not_before,
            not_after: certificate.not_after,
            sha256: hex(&sha256(der)),
            key: KeyKind::of(&certificate),
            ocsp: None,
        })
    }
}

impl Names {
    fn of(certificate: &X509<'_>) -> Names {
        let mut sorted = Names::default();
        for name in names::of(certificate) {
            match name {
                AltName::Dns(text) => sorted.dns.push(text.to_owned()),
                AltName::Uri(text) => sorted.uri.push(text.to_owned()),
                AltName::Email(text) => sorted.email.push(text.to_owned()),
                AltName::Ip(address) => sorted.ip.push(address),
                AltName::Other(..) => {}
            }
        }
        sorted
    }
}

impl KeyKind {
    pub(crate) fn of(certificate: &X509<'_>) -> KeyKind {
        KeyKind::read(certificate.public_key).unwrap_or(KeyKind::Other)
    }

    /// SubjectPublicKeyInfo: the algorithm with its parameters (a curve's identifier), and the key as a BIT STRING.
    fn read(public_key: &[u8]) -> Option<KeyKind> {
        let mut info = Reader::new(public_key).inside(der::SEQUENCE)?;
        let mut algorithm = info.inside(der::SEQUENCE)?;
        Some(match algorithm.expect(der::OID)? {
            x509::oid::RSA => {
                // The first byte counts unused bits; RSAPublicKey is a SEQUENCE of modulus and exponent.
                let (_, key) = info.expect(der::BIT_STRING)?.split_first()?;
                let modulus = der::unsigned(Reader::new(key).inside(der::SEQUENCE)?.expect(der::INTEGER)?);
                let spare = modulus.first()?.leading_zeros();
                KeyKind::Rsa((u32::try_from(modulus.len()).ok()?.checked_mul(8)?).saturating_sub(spare))
            }
            oid::EC => match algorithm.expect(der::OID)? {
                oid::P256 => KeyKind::Ecdsa(256),
                oid::P384 => KeyKind::Ecdsa(384),
                oid::P521 => KeyKind::Ecdsa(521),
                _ => KeyKind::Other,
            },
            oid::ED25519 => KeyKind::Ed25519,
            _ => KeyKind::Other,
        })
    }
}

/// The certificates that the other side showed, leaf first. Each question is answered when it is asked.
#[derive(Debug, Clone)]
pub struct PeerFacts<'a> {
    chain: &'a [CertificateDer<'a>],
    leaf: X509<'a>,
    leaf_der: &'a [u8],
}

/// `None` when there is no certificate, or none that can be read. `chain` is as rustls gives it, the leaf first.
pub fn peer_facts<'a>(chain: &'a [CertificateDer<'a>]) -> Option<PeerFacts<'a>> {
    let leaf_der: &[u8] = chain.first()?.as_ref();
    Some(PeerFacts { chain, leaf: X509::parse(leaf_der)?, leaf_der })
}

impl PeerFacts<'_> {
    /// RFC 2253, as OpenSSL writes it.
    pub fn subject(&self) -> String {
        distinguished::text(self.leaf.subject)
    }

    pub fn issuer(&self) -> String {
        distinguished::text(self.leaf.issuer)
    }

    /// Lower-case hexadecimal, whole bytes.
    pub fn serial(&self) -> String {
        serial_text(self.leaf.serial)
    }

    pub fn names(&self) -> Names {
        Names::of(&self.leaf)
    }

    pub fn not_before(&self) -> SystemTime {
        self.leaf.not_before
    }

    pub fn not_after(&self) -> SystemTime {
        self.leaf.not_after
    }

    /// Of the leaf's DER, lower-case hexadecimal.
    pub fn sha256(&self) -> String {
        hex(&sha256(self.leaf_der))
    }

    /// Of the leaf's DER, lower-case hexadecimal. For whoever compares with old tools.
    pub fn sha1(&self) -> String {
        sha1(self.leaf_der)
    }

    /// The leaf as PEM, with everything escaped that would end a header's or a query's value.
    pub fn pem_url_encoded(&self) -> String {
        pem_url_encoded(self.leaf_der)
    }

    /// All certificates that were sent, leaf first, as [`PeerFacts::pem_url_encoded`].
    pub fn chain_pem_url_encoded(&self) -> String {
        self.chain.iter().map(|it| pem_url_encoded(it)).collect()
    }

    /// The fingerprint of each certificate that was sent, leaf first.
    pub fn chain_sha256(&self) -> Vec<String> {
        self.chain.iter().map(|it| hex(&sha256(it))).collect()
    }

    pub fn chain_sha1(&self) -> Vec<String> {
        self.chain.iter().map(|it| sha1(it)).collect()
    }

    /// The serial number of each certificate that was sent and can be read, leaf first.
    pub fn chain_serials(&self) -> Vec<String> {
        self.chain.iter().filter_map(|it| X509::parse(it)).map(|it| serial_text(it.serial)).collect()
    }

    /// Every value of `part`, in the certificate's order; an empty text is none. `roots` are those that it may be traced
    /// back to: the signer's certificate is often not sent.
    pub fn values(&self, part: CertificatePart, roots: &[CertificateFacts]) -> Vec<String> {
        let one = |text: String| if text.is_empty() { Vec::new() } else { vec![text] };
        match part {
            CertificatePart::Subject => one(self.subject()),
            CertificatePart::Issuer => one(self.issuer()),
            CertificatePart::CommonNames => distinguished::values(self.leaf.subject, oid::COMMON_NAME),
            CertificatePart::Organizations => distinguished::values(self.leaf.subject, oid::ORGANIZATION),
            CertificatePart::Serial => one(self.serial()),
            CertificatePart::Sha1 => one(self.sha1()),
            CertificatePart::Sha256 => one(self.sha256()),
            CertificatePart::Pem => one(pem(self.leaf_der)),
            CertificatePart::PemUrlEncoded => one(self.pem_url_encoded()),
            CertificatePart::DnsNames => self.names().dns,
            CertificatePart::UriNames => self.names().uri,
            CertificatePart::EmailNames => self.names().email,
            CertificatePart::IpNames => self.names().ip.iter().map(IpAddr::to_string).collect(),
            CertificatePart::OtherNames => names::others(&self.leaf).into_iter().map(|(_, value)| value).collect(),
            CertificatePart::OtherNameKinds => names::others(&self.leaf).into_iter().map(|(kind, _)| kind).collect(),
            CertificatePart::Extensions => self.leaf.extensions().map(distinguished::dotted).collect(),
            CertificatePart::ChainPem => self.chain.iter().map(|it| pem(it)).collect(),
            CertificatePart::ChainPemUrlEncoded => one(self.chain_pem_url_encoded()),
            CertificatePart::ChainSha1 => self.chain_sha1(),
            CertificatePart::ChainSha256 => self.chain_sha256(),
            CertificatePart::ChainSerials => self.chain_serials(),
            CertificatePart::IssuerSha256 => self.signer(roots).map(|(sha256, _)| sha256).into_iter().collect(),
            CertificatePart::IssuerSerial => self.signer(roots).map(|(_, serial)| serial).into_iter().collect(),
        }
    }

    /// Fingerprint and serial number of the certificate whose subject is the leaf's issuer.
    fn signer(&self, roots: &[CertificateFacts]) -> Option<(String, String)> {
        let sent = self.chain.iter().skip(1).find_map(|der| {
            let certificate = X509::parse(der).filter(|it| it.subject == self.leaf.issuer)?;
            Some((hex(&sha256(der)), serial_text(certificate.serial)))
        });
        sent.or_else(|| {
            let issuer = self.issuer();
            let root = roots.iter().find(|root| root.subject == issuer)?;
            Some((root.sha256.clone(), root.serial.clone()))
        })
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    out
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha1(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, bytes).as_ref())
}

fn serial_text(serial: &[u8]) -> String {
    match serial {
        [0] => "0".to_owned(),
        bytes => hex(bytes),
    }
}

/// RFC 7468, lines of 64 characters.
fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut out = String::with_capacity(text.len() + text.len() / 64 + 64);
    out.push_str("-----BEGIN CERTIFICATE-----\n");
    for (index, symbol) in text.chars().enumerate() {
        if index > 0 && index % 64 == 0 {
            out.push('\n');
        }
        out.push(symbol);
    }
    out.push_str("\n-----END CERTIFICATE-----\n");
    out
}

/// RFC 7468, lines of 64 characters, with what must not stand in a header's value as `%XX`.
fn pem_url_encoded(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut out = String::with_capacity(text.len() + text.len() / 8 + 80);
    out.push_str("-----BEGIN%20CERTIFICATE-----%0A");
    for (index, symbol) in text.chars().enumerate() {
        if index > 0 && index % 64 == 0 {
            out.push_str("%0A");
        }
        match symbol {
            '+' => out.push_str("%2B"),
            '/' => out.push_str("%2F"),
            '=' => out.push_str("%3D"),
            other => out.push(other),
        }
    }
    out.push_str("%0A-----END%20CERTIFICATE-----%0A");
    out
}
