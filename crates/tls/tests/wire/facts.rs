//! What is shown of certificates, against what OpenSSL shows of the same one.

use postrider_model::Certificate;
use postrider_tls::peer_facts;
use postrider_tls::rustls::pki_types::CertificateDer;
use postrider_tls::rustls::pki_types::pem::PemObject;
use std::time::{Duration, UNIX_EPOCH};

use crate::fixtures;
use crate::support::*;

fn fixture() -> Vec<CertificateDer<'static>> {
    vec![CertificateDer::from_pem_slice(fixtures::CERTIFICATE.as_bytes()).unwrap()]
}

#[test]
fn facts_of_a_peer_are_as_openssl_shows_them() {
    let chain = fixture();
    let facts = peer_facts(&chain).unwrap();
    assert_eq!(facts.subject(), fixtures::SUBJECT);
    assert_eq!(facts.issuer(), fixtures::SUBJECT);
    assert_eq!(facts.serial(), "f10203");
    assert_eq!((facts.sha256().as_str(), facts.sha1().as_str()), (fixtures::SHA256, fixtures::SHA1));
    let names = facts.names();
    assert_eq!(names.dns, ["a.example", "*.b.example"]);
    assert_eq!(
        (&names.uri[..], &names.email[..]),
        (&["spiffe://td/w".to_owned()][..], &["x@y.example".to_owned()][..])
    );
    assert_eq!(names.ip.iter().map(ToString::to_string).collect::<Vec<_>>(), ["192.0.2.1", "2001:db8::1"]);
    assert_eq!(facts.not_before(), UNIX_EPOCH + Duration::from_secs(1_795_313_738));
    assert_eq!(facts.not_after() - Duration::from_secs(36500 * 86_400), facts.not_before());
}

#[test]
fn pem_is_escaped_for_headers_and_decodes_to_what_was_sent() {
    let mut chain = fixture();
    chain.push(Authority::root("root").der);
    let facts = peer_facts(&chain).unwrap();
    let decode = |text: &str| {
        let (mut out, mut rest) = (String::new(), text);
        while let Some((head, tail)) = rest.split_once('%') {
            out.push_str(head);
            out.push(char::from(u8::from_str_radix(&tail[..2], 16).unwrap()));
            rest = &tail[2..];
        }
        out + rest
    };
    let leaf = facts.pem_url_encoded();
    assert!(leaf.bytes().all(|it| it.is_ascii_alphanumeric() || matches!(it, b'%' | b'-')), "{leaf}");
    assert_eq!(decode(&leaf), fixtures::CERTIFICATE);
    let all = decode(&facts.chain_pem_url_encoded());
    let read: Vec<_> = CertificateDer::pem_slice_iter(all.as_bytes()).map(Result::unwrap).collect();
    assert_eq!(read, chain);
    assert_eq!((facts.chain_sha256().len(), facts.chain_sha1().len(), facts.chain_serials().len()), (2, 2, 2));
    assert_eq!(facts.chain_sha256()[0], fixtures::SHA256);
}

#[test]
fn there_are_no_facts_without_a_certificate() {
    assert!(peer_facts(&[]).is_none());
    assert!(peer_facts(&[CertificateDer::from(vec![1, 2, 3])]).is_none());
}

#[test]
fn our_own_certificates_are_described() {
    let model = Certificate {
        chain: inline(fixtures::CERTIFICATE),
        key: inline(fixtures::KEY),
        password: None,
        ocsp_staple: None,
        name: None,
        origin: origin(),
    };
    let tls = server(&downstream(vec![model]));
    let facts = &tls.certificates()[0];
    assert_eq!((facts.path.as_str(), facts.serial.as_str()), ("<inline>", "f10203"));
    assert_eq!((facts.subject.as_str(), facts.sha256.as_str()), (fixtures::SUBJECT, fixtures::SHA256));
    assert_eq!(facts.ocsp, None);
}
