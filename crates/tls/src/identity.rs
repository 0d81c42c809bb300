//! A certificate of ours with its key: read, compared with each other, and described.

use std::sync::Arc;

use postrider_model::{Certificate, OcspPolicy};
use rustls::InconsistentKeys;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::sign::CertifiedKey;

use crate::facts::{CertificateFacts, KeyKind};
use crate::material::{Material, Source};
use crate::ocsp::{self, OcspValidity};
use crate::x509::{X509, oid};

/// RSA keys with fewer bits are refused, as Envoy refuses them.
const MIN_RSA_BITS: u32 = 2048;

#[derive(Debug)]
pub(crate) struct Identity {
    /// Without a stapled response.
    pub plain: Arc<CertifiedKey>,
    /// With one, if there is one.
    pub stapled: Option<(Arc<CertifiedKey>, OcspValidity)>,
    pub must_staple: bool,
    /// Host names that it is for, lower case; those with a wildcard keep their `*.`.
    pub hosts: Vec<String>,
    pub facts: CertificateFacts,
}

impl Identity {
    /// `None` when something was refused. `path` is that of the certificate: `certificates[0]`. Without a policy, as on
    /// a client, nothing is stapled.
    pub fn build(
        model: &Certificate,
        path: &str,
        ocsp_policy: Option<OcspPolicy>,
        provider: &CryptoProvider,
        material: &mut Material<'_>,
    ) -> Option<Identity> {
        let chain_path = format!("{path}.chain");
        let key_path = format!("{path}.key");
        let password_path = format!("{path}.password");
        // All of them are read before any is judged, so that every file that is missing is reported.
        let chain_source = material.load(&model.chain, &chain_path);
        let key_source = material.load(&model.key, &key_path);
        let password = model.password.as_ref().map(|data| material.load(data, &password_path));
        let staple = model.ocsp_staple.as_ref().map(|data| material.load(data, &format!("{path}.ocsp_staple")));
        let chain = chain_source
            .as_ref()
            .and_then(|source| material.certificates(source, &chain_path))
            .map(|bundle| bundle.certificates);
        let key = key_source.as_ref().and_then(|source| {
            let password = match &password {
                Some(read) => Some((read.as_ref()?, password_path.as_str())),
                None => None,
            };
            material.private_key(source, &key_path, password)
        });
        let (chain_source, chain) = (chain_source?, chain?);
        let (facts, must_staple, hosts, serial) = described(&chain, &chain_source, &chain_path, material)?;
        let (key_source, key) = (key_source?, key?);
        let Ok(signing) = provider.key_provider.load_private_key(key) else {
            let message = "a kind of key that cannot be used: RSA, ECDSA (P-256, P-384, P-521) and Ed25519 can";
            material.refuse(&key_path, format!("{} has {message}", key_source.origin));
            return None;
        };
        let plain = CertifiedKey::new(chain, signing);
        match keys_match(&plain) {
            Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
            Err(rustls::Error::InconsistentKeys(_)) => {
                let message = format!("the key in {} does not fit the certificate", key_source.origin);
                material.refuse(&key_path, message);
                return None;
            }
            Err(why) => {
                material.refuse(&chain_path, format!("the certificate cannot be used: {why}"));
                return None;
            }
        }
        let mut identity = Identity { plain: Arc::new(plain), stapled: None, must_staple, hosts, facts };
        if let Some(policy) = ocsp_policy {
            identity.staple(staple, &serial, path, policy, material)?;
        }
        Some(identity)
    }

    /// `staple` is `None` when none is configured, and `Some(None)` when it could not be read.
    fn staple(
        &mut self,
        staple: Option<Option<Source>>,
        serial: &[u8],
        path: &str,
        policy: OcspPolicy,
        material: &mut Material<'_>,
    ) -> Option<()> {
        let Some(source) = staple else {
            let why = match (self.must_staple, policy) {
                (true, _) => "the certificate demands an OCSP response, and there is none",
                (false, OcspPolicy::Must) => "the OCSP policy demands a response for every certificate",
                (false, _) => return Some(()),
            };
            material.refuse(path, why);
            return None;
        };
        let source = source?;
        match ocsp::read(&source.bytes, serial) {
            Ok(validity) => {
                let mut stapled = CertifiedKey::clone(&self.plain);
                stapled.ocsp = Some(source.bytes);
                self.stapled = Some((Arc::new(stapled), validity));
                self.facts.ocsp = Some(validity);
                Some(())
            }
            Err(why) => {
                material.refuse(&format!("{path}.ocsp_staple"), why);
                None
            }
        }
    }
}

/// Whether the key is the certificate's.
fn keys_match(pair: &CertifiedKey) -> Result<(), rustls::Error> {
    // A proof for TLS-ALPN-01 has a critical extension that is for the authority alone, and webpki reads no certificate
    // with a critical extension that it does not know.
    let proof = pair.cert.first().and_then(|leaf| X509::parse(leaf));
    let proof = proof.filter(|leaf| leaf.extension(oid::ACME_IDENTIFIER).is_some());
    match (proof, pair.key.public_key()) {
        (Some(leaf), Some(key)) if leaf.public_key == key.as_ref() => Ok(()),
        (Some(_), Some(_)) => Err(InconsistentKeys::KeyMismatch.into()),
        _ => pair.keys_match(),
    }
}

type Described = (CertificateFacts, bool, Vec<String>, Vec<u8>);

/// The leaf's facts, whether it must be stapled, its host names and its serial number.
fn described(
    chain: &[CertificateDer<'static>],
    source: &Source,
    path: &str,
    material: &mut Material<'_>,
) -> Option<Described> {
    let leaf = chain.first()?;
    let (Some(facts), Some(parsed)) = (CertificateFacts::of(leaf, &source.origin), X509::parse(leaf)) else {
        material.refuse(path, format!("the first certificate in {} is not an X.509 certificate", source.origin));
        return None;
    };
    if let KeyKind::Rsa(bits) = facts.key
        && bits < MIN_RSA_BITS
    {
        material.refuse(path, format!("the certificate has an RSA key of {bits} bits; {MIN_RSA_BITS} are the least"));
        return None;
    }
    // RFC 6125, 6.4.4: the common name counts only where there is no alternative name at all.
    let mut hosts: Vec<String> = facts.names.dns.iter().map(|name| name.to_ascii_lowercase()).collect();
    if parsed.extension(crate::x509::oid::SUBJECT_ALT_NAME).is_none() {
        hosts.extend(parsed.common_name().map(str::to_ascii_lowercase));
    }
    Some((facts, parsed.must_staple(), hosts, parsed.serial.to_vec()))
}
