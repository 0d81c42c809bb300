//! Self-signed certificates in place of those that are not there yet, so that a configuration runs from the first start.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_model::{Certificate, Data, FilterChain, Snapshot};
use rcgen::{CertificateParams, CustomExtension, KeyPair};

/// Those that were made, by their names: a reload must not look like a change.
static MADE: LazyLock<Mutex<HashMap<Vec<String>, Vec<u8>>>> = LazyLock::new(Mutex::default);

/// Replaces the certificates that are still to be got, wherever TLS contexts name their files, by self-signed ones.
/// Nothing is written. Answers the names of those.
pub fn stand_in(snapshot: &mut Arc<Snapshot>) -> Vec<Vec<String>> {
    let Some(acme) = snapshot.acme.clone() else { return Vec::new() };
    let files =
        acme.certificates.iter().filter_map(|names| Some((acme.certificate_file(names.first()?), names.clone())));
    let names = acme.certificates.iter().flatten();
    let challenges = names.map(|name| (acme.challenge_file(name), vec![name.clone()]));
    let missing: Vec<_> = files.chain(challenges).filter(|(file, _)| !file.exists()).collect();
    if missing.is_empty() {
        return Vec::new();
    }
    let of = |data: &Data| match data {
        Data::File(path) => missing.iter().find(|(file, _)| file == path).map(|(_, names)| names),
        Data::Inline(_) => None,
    };
    let mut stood_in = Vec::new();
    let mut replace = |certificate: &mut Certificate| {
        let (Some(names), Some(_)) = (of(&certificate.chain), of(&certificate.key)) else { return };
        // Without one, the file that is missing is the error that the operator reads.
        let Some(pem) = made(names) else { return };
        certificate.chain = Data::Inline(pem.clone());
        certificate.key = Data::Inline(pem);
        stood_in.push(names.clone());
    };
    for listener in &mut Arc::make_mut(snapshot).listeners {
        let named = |chain: &Arc<FilterChain>| {
            chain.tls.iter().flat_map(|tls| &tls.certificates).any(|it| of(&it.chain).is_some())
        };
        if !listener.filter_chains.iter().chain(&listener.default_filter_chain).any(named) {
            continue;
        }
        let listener = Arc::make_mut(listener);
        for chain in listener.filter_chains.iter_mut().chain(&mut listener.default_filter_chain) {
            if let Some(tls) = &mut Arc::make_mut(chain).tls {
                Arc::make_mut(tls).certificates.iter_mut().for_each(&mut replace);
            }
        }
    }
    stood_in
}

fn made(names: &[String]) -> Option<Vec<u8>> {
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pem) = made.get(names) {
        return Some(pem.clone());
    }
    let pem = self_signed(names).ok()?;
    made.insert(names.to_vec(), pem.clone());
    Some(pem)
}

/// A certificate that nobody trusts, with its key, in PEM.
pub(crate) fn self_signed(names: &[String]) -> Result<Vec<u8>, rcgen::Error> {
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(names)?.self_signed(&key)?;
    let mut text = pem("PRIVATE KEY", &key.serialize_der());
    text.push_str(&pem("CERTIFICATE", certificate.der()));
    Ok(text.into_bytes())
}

/// What an authority must be shown for a name (RFC 8737 section 3), with its key, in PEM. `digest` is that of the
/// challenge.
pub(crate) fn proof(name: &str, digest: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new([name.to_owned()])?;
    params.custom_extensions.push(CustomExtension::new_acme_identifier(digest));
    let certificate = params.self_signed(&key)?;
    Ok((pem("PRIVATE KEY", &key.serialize_der()) + &pem("CERTIFICATE", certificate.der())).into_bytes())
}

/// RFC 7468.
pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    const LINE: usize = 64;
    let mut text = format!("-----BEGIN {label}-----\n");
    let encoded = STANDARD.encode(der);
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, behind) = rest.split_at_checked(LINE).unwrap_or((rest, ""));
        text.push_str(line);
        text.push('\n');
        rest = behind;
    }
    text.push_str(&format!("-----END {label}-----\n"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_tls::rustls::pki_types::pem::PemObject;

    #[test]
    fn a_certificate_that_nobody_signed_has_the_names_and_its_key() {
        let names = ["a.test".to_owned(), "b.test".to_owned()];
        let pem = self_signed(&names).unwrap();
        let facts = postrider_tls::first_certificate(&pem).unwrap();
        assert_eq!(facts.names.dns, names);
        let text = String::from_utf8(pem).unwrap();
        assert!(text.starts_with("-----BEGIN PRIVATE KEY-----\n") && text.ends_with("-----END CERTIFICATE-----\n"));
        assert!(text.lines().all(|line| line.len() <= 64));
        assert_eq!(made(&names), made(&names), "a reload sees no change");
    }

    #[test]
    fn a_proof_is_shown_like_any_certificate_and_has_its_extension() {
        let pem = proof("a.test", &[7; 32]).unwrap();
        assert_eq!(postrider_tls::first_certificate(&pem).unwrap().names.dns, ["a.test"]);
        let der = postrider_tls::rustls::pki_types::CertificateDer::from_pem_slice(&pem).unwrap();
        // 1.3.6.1.5.5.7.1.31, critical, an OCTET STRING in one.
        let extension = [&[6, 8, 0x2b, 6, 1, 5, 5, 7, 1, 31, 1, 1, 0xff, 4, 34, 4, 32][..], &[7; 32]].concat();
        assert!(der.windows(extension.len()).any(|it| it == extension));
    }

    #[test]
    fn a_configuration_without_an_authority_stays_as_it_is() {
        let mut snapshot = Arc::new(Snapshot::default());
        let before = snapshot.clone();
        assert!(stand_in(&mut snapshot).is_empty());
        assert!(Arc::ptr_eq(&before, &snapshot));
    }
}
