//! Which certificate a client is shown, and with what OCSP response.

use postrider_model::{Certificate, OcspPolicy, TlsVersion};
use postrider_tls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use postrider_tls::rustls::crypto::aws_lc_rs;
use postrider_tls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use postrider_tls::rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme};
use rcgen::{CustomExtension, DnType, SanType};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::*;

fn sni(name: Option<&str>) -> postrider_tls::ClientTls {
    let mut model = upstream();
    model.sni = name.map(str::to_owned);
    client(&model)
}

fn rsa() -> rcgen::KeyPair {
    rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048).unwrap()
}

#[test]
fn the_server_name_chooses_exact_then_wildcard_then_the_first() {
    let root = Authority::root("root");
    let leaves = [
        root.leaf(&["first.example"]),
        root.leaf(&["*.example"]),
        root.leaf(&["a.example", "Upper.Example"]),
        root.leaf(&["*.deep.example"]),
    ];
    let tls = server(&downstream(leaves.iter().map(Issued::model).collect()));
    for (name, want) in [
        (Some("a.example"), 2),
        (Some("upper.example"), 2),
        (Some("b.example"), 1),
        (Some("b.deep.example"), 3),
        (Some("x.b.example"), 0),
        (Some("example"), 0),
        (Some("other.test"), 0),
        (None, 0),
    ] {
        let linked = link(&tls, &sni(name)).unwrap();
        assert_eq!(linked.leaf(), &leaves[want].chain[0], "{name:?}");
    }
}

#[test]
fn the_certificate_that_is_shown_can_be_asked_for() {
    use postrider_tls::rustls::server::Acceptor;
    let root = Authority::root("root");
    let leaves = [root.leaf(&["first.example"]), root.leaf(&["a.example"])];
    let mut model = downstream(leaves.iter().map(Issued::model).collect());
    model.refuse_unknown_names = true;
    let tls = server(&model);
    for (name, want) in [("a.example", Some(1usize)), ("first.example", Some(0)), ("b.example", None)] {
        let mut connection = sni(Some(name)).connection(&postrider_tls::Target::default()).unwrap();
        let (mut bytes, mut acceptor) = (Vec::new(), Acceptor::default());
        connection.write_tls(&mut bytes).unwrap();
        acceptor.read_tls(&mut bytes.as_slice()).unwrap();
        let accepted = acceptor.accept().unwrap_or_else(|_| panic!("refused")).unwrap();
        let shown = tls.certificate_for(&accepted.client_hello()).map(|it| it.sha256.clone());
        let want = want.map(|it| postrider_tls::peer_facts(&leaves[it].chain).unwrap().sha256());
        assert_eq!(shown, want, "{name}");
    }
}

#[test]
fn a_common_name_counts_only_without_alternative_names() {
    let root = Authority::root("root");
    let named = |cn: &str, hosts: &[&str]| {
        root.issue(&rcgen::PKCS_ECDSA_P256_SHA256, |params| {
            params.distinguished_name.push(DnType::CommonName, cn);
            params.subject_alt_names = hosts.iter().map(|it| SanType::DnsName((*it).try_into().unwrap())).collect();
        })
    };
    let leaves = [root.leaf(&["first.example"]), named("cn.example", &[]), named("hidden.example", &["b.example"])];
    let tls = server(&downstream(leaves.iter().map(Issued::model).collect()));
    for (name, want) in [("cn.example", 1), ("hidden.example", 0), ("b.example", 2)] {
        assert_eq!(link(&tls, &sni(Some(name))).unwrap().leaf(), &leaves[want].chain[0], "{name}");
    }
}

#[test]
fn an_unknown_name_can_be_refused() {
    let mut model = downstream(vec![Authority::root("root").leaf(&["a.example"]).model()]);
    model.refuse_unknown_names = true;
    let tls = server(&model);
    assert!(link(&tls, &sni(Some("a.example"))).is_ok());
    assert!(link(&tls, &sni(None)).is_ok(), "only a name can be unknown");
    let failed = link(&tls, &sni(Some("b.example"))).unwrap_err();
    assert!(failed.server.is_some(), "{}", failed.text());
}

/// Accepts all, but knows only these signature schemes.
#[derive(Debug)]
struct Knows {
    schemes: Vec<SignatureScheme>,
    staple: Arc<Mutex<Vec<u8>>>,
}

impl ServerCertVerifier for Knows {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        ocsp: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        *self.staple.lock().unwrap() = ocsp.to_vec();
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}

fn knows(schemes: &[SignatureScheme], name: &str) -> (ClientConnection, Arc<Mutex<Vec<u8>>>) {
    let staple = Arc::new(Mutex::new(Vec::new()));
    let verifier = Knows { schemes: schemes.to_vec(), staple: staple.clone() };
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    (ClientConnection::new(Arc::new(config), name).unwrap(), staple)
}

#[test]
fn ecdsa_is_preferred_where_the_client_can_verify_it() {
    let root = Authority::root("root");
    let hosts = |params: &mut rcgen::CertificateParams| {
        params.subject_alt_names = vec![SanType::DnsName("a.example".try_into().unwrap())];
    };
    let leaves = [
        root.issue_with(rsa(), hosts),
        root.issue(&rcgen::PKCS_ECDSA_P384_SHA384, hosts),
        root.issue(&rcgen::PKCS_ECDSA_P256_SHA256, hosts),
    ];
    for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
        let mut model = downstream(leaves.iter().map(Issued::model).collect());
        (model.common.min_version, model.common.max_version) = (version, version);
        let tls = server(&model);
        use SignatureScheme::{ECDSA_NISTP256_SHA256, RSA_PKCS1_SHA256, RSA_PSS_SHA256};
        for (schemes, name, want) in [
            (&[ECDSA_NISTP256_SHA256, RSA_PSS_SHA256][..], "a.example", 2),
            (&[RSA_PSS_SHA256, RSA_PKCS1_SHA256], "a.example", 0),
            (&[ECDSA_NISTP256_SHA256], "unknown.example", 2),
        ] {
            let linked = link_connection(&tls, knows(schemes, name).0).unwrap_or_else(|it| panic!("{}", it.text()));
            assert_eq!(linked.leaf(), &leaves[want].chain[0], "{version:?} {schemes:?} {name}");
        }
    }
}

#[test]
fn an_old_client_without_suites_for_ecdsa_gets_rsa() {
    let root = Authority::root("root");
    let hosts = |params: &mut rcgen::CertificateParams| {
        params.subject_alt_names = vec![SanType::DnsName("a.example".try_into().unwrap())];
    };
    let leaves = [root.issue(&rcgen::PKCS_ECDSA_P256_SHA256, hosts), root.issue_with(rsa(), hosts)];
    let tls = server(&downstream(leaves.iter().map(Issued::model).collect()));
    let mut model = upstream();
    model.common.max_version = TlsVersion::Tls12;
    model.common.cipher_suites = vec!["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256".to_owned()];
    let linked = link(&tls, &client(&model)).unwrap();
    assert_eq!(linked.leaf(), &leaves[1].chain[0]);
    assert_eq!(linked.facts().cipher, Some("ECDHE-RSA-AES128-GCM-SHA256"));
}

fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match content.len() {
        short @ 0..=127 => out.push(short as u8),
        long => out.extend([0x82, (long >> 8) as u8, long as u8]),
    }
    out.extend(content);
    out
}

fn time(at: SystemTime) -> Vec<u8> {
    let at = time::at(at);
    der(0x18, at.as_bytes())
}

/// Just enough of a calendar to write a time.
mod time {
    use super::*;

    pub fn at(at: SystemTime) -> String {
        let seconds = at.duration_since(UNIX_EPOCH).unwrap().as_secs();
        let (days, rest) = (seconds / 86_400, seconds % 86_400);
        let (mut year, mut left) = (1970, days);
        let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        let length = |year: u64| if leap(year) { 366 } else { 365 };
        while left >= length(year) {
            left -= length(year);
            year += 1;
        }
        let mut month = 1;
        for days in [31, length(year) - 337, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
            if left < days {
                break;
            }
            left -= days;
            month += 1;
        }
        format!("{year}{month:02}{:02}{:02}{:02}{:02}Z", left + 1, rest / 3600, rest / 60 % 60, rest % 60)
    }
}

/// A response that says a certificate is good; nobody here looks at its signature.
fn ocsp(serial: &[u8], from: SystemTime, until: Option<SystemTime>) -> Vec<u8> {
    let id = [der(0x30, &der(6, &[0x2b, 14, 3, 2, 26])), der(4, &[1; 20]), der(4, &[2; 20]), der(2, serial)].concat();
    let mut single = [der(0x30, &id), der(0x80, &[]), time(from)].concat();
    if let Some(until) = until {
        single.extend(der(0xa0, &time(until)));
    }
    let data = [der(0xa2, &der(4, &[3; 20])), time(from), der(0x30, &der(0x30, &single))].concat();
    let basic = der(0x30, &[der(0x30, &data), der(0x30, &[]), der(3, &[0, 1])].concat());
    let bytes = [der(6, &[0x2b, 6, 1, 5, 5, 7, 48, 1, 1]), der(4, &basic)].concat();
    der(0x30, &[der(0x0a, &[0]), der(0xa0, &der(0x30, &bytes))].concat())
}

const SERIAL: &[u8] = &[0x11, 0x22];

fn stapled(must: bool, staple: Option<Vec<u8>>) -> Certificate {
    let leaf = Authority::root("root").issue(&rcgen::PKCS_ECDSA_P256_SHA256, |params| {
        params.serial_number = Some(SERIAL.to_vec().into());
        if must {
            let value = vec![0x30, 0x03, 0x02, 0x01, 0x05];
            params.custom_extensions.push(CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 24], value));
        }
    });
    Certificate { ocsp_staple: staple.map(inline), ..leaf.model() }
}

#[test]
fn ocsp_policies_staple_leave_out_or_refuse() {
    let now = SystemTime::now();
    let hour = Duration::from_secs(3600);
    let good = || Some(ocsp(SERIAL, now - hour, Some(now + hour)));
    let ended = || Some(ocsp(SERIAL, now - 2 * hour, Some(now - hour)));
    let endless = || Some(ocsp(SERIAL, now - hour, None));
    use OcspPolicy::{Lenient, Must, Strict};
    for (policy, must, staple, want) in [
        (Lenient, false, good(), Some(true)),
        (Lenient, false, ended(), Some(false)),
        (Lenient, false, endless(), Some(false)),
        (Lenient, false, None, Some(false)),
        (Lenient, true, good(), Some(true)),
        (Lenient, true, ended(), None),
        (Strict, false, good(), Some(true)),
        (Strict, false, ended(), None),
        (Strict, false, None, Some(false)),
        (Must, false, good(), Some(true)),
        (Must, false, ended(), None),
    ] {
        let mut model = downstream(vec![stapled(must, staple.clone())]);
        model.ocsp = policy;
        let tls = server(&model);
        let (connection, seen) = knows(&aws_lc_rs_schemes(), "a.example");
        let linked = link_connection(&tls, connection).ok();
        let got = linked.map(|_| Some(seen.lock().unwrap().clone()) == staple && staple.is_some());
        assert_eq!(got, want, "{policy:?} must: {must} {staple:02x?}");
    }
}

fn aws_lc_rs_schemes() -> Vec<SignatureScheme> {
    aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
}

#[test]
fn an_ocsp_response_that_cannot_be_used_is_an_error() {
    let now = SystemTime::now();
    let good = ocsp(SERIAL, now, Some(now + Duration::from_secs(60)));
    for (must, policy, staple, path, message) in [
        (false, OcspPolicy::Must, None, "certificates[0]", "policy demands"),
        (true, OcspPolicy::Lenient, None, "certificates[0]", "certificate demands"),
        (false, OcspPolicy::Lenient, Some(b"no".to_vec()), "certificates[0].ocsp_staple", "not an OCSP response"),
        (false, OcspPolicy::Lenient, Some(ocsp(&[9], now, None)), "certificates[0].ocsp_staple", "another certificate"),
        (
            false,
            OcspPolicy::Lenient,
            Some(vec![0x30, 3, 0x0a, 1, 6]),
            "certificates[0].ocsp_staple",
            "reports an error",
        ),
    ] {
        let mut model = downstream(vec![stapled(must, staple)]);
        model.ocsp = policy;
        let errors = server_errors(&model);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].path == path && errors[0].message.contains(message), "{errors:?}");
    }
    for end in 0..good.len() {
        let model = downstream(vec![stapled(false, Some(good[..end].to_vec()))]);
        assert_eq!(server_errors(&model).len(), 1, "cut at {end}");
    }
}
