//! Certificates and keys that can and cannot be used, and what is said of those that cannot.

use std::collections::HashMap;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use postrider_model::{Certificate, Data, Roots, SessionTickets};
use postrider_tls::{ClientTls, KeyKind, ServerTls};

use crate::fixtures;
use crate::support::*;

fn openssl(key: &str, password: Option<&str>) -> Certificate {
    Certificate {
        chain: inline(fixtures::CERTIFICATE),
        key: inline(key),
        password: password.map(inline),
        ocsp_staple: None,
        name: None,
        origin: origin(),
    }
}

#[test]
fn keys_in_every_form_that_openssl_writes() {
    for (key, password) in [
        (fixtures::KEY, None),
        (fixtures::KEY, Some("not needed")),
        (fixtures::ENCRYPTED_KEY, Some("secret")),
        (fixtures::ENCRYPTED_KEY, Some("secret\n")),
        (fixtures::ENCRYPTED_KEY, Some("secret\r\n")),
        (fixtures::SCRYPT_KEY, Some("secret")),
        (fixtures::DES3_KEY, Some("secret")),
    ] {
        let tls = server(&downstream(vec![openssl(key, password)]));
        link(&tls, &client(&upstream())).unwrap();
    }
}

#[test]
fn each_kind_of_key_that_is_supported() {
    let root = Authority::root("root");
    let rsa = |size| rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, size).unwrap();
    let of = |algorithm| rcgen::KeyPair::generate_for(algorithm).unwrap();
    for (key, want) in [
        (of(&rcgen::PKCS_ECDSA_P256_SHA256), KeyKind::Ecdsa(256)),
        (of(&rcgen::PKCS_ECDSA_P384_SHA384), KeyKind::Ecdsa(384)),
        (of(&rcgen::PKCS_ECDSA_P521_SHA512), KeyKind::Ecdsa(521)),
        (of(&rcgen::PKCS_ED25519), KeyKind::Ed25519),
        (rsa(rcgen::RsaKeySize::_2048), KeyKind::Rsa(2048)),
        (rsa(rcgen::RsaKeySize::_3072), KeyKind::Rsa(3072)),
    ] {
        let tls = server(&downstream(vec![root.issue_with(key, |_| {}).model()]));
        assert_eq!(tls.certificates()[0].key, want);
        link(&tls, &client(&upstream())).unwrap();
    }
}

#[test]
fn what_is_wrong_with_a_key_or_certificate_is_said() {
    let other = Authority::root("root").leaf(&["a.example"]).model();
    let with = |change: &dyn Fn(&mut Certificate)| {
        let mut model = openssl(fixtures::KEY, None);
        change(&mut model);
        model
    };
    let cut = fixtures::CERTIFICATE.replace("-----END CERTIFICATE-----", "");
    for (model, path, message) in [
        (openssl(fixtures::ENCRYPTED_KEY, None), "certificates[0].key", "encrypted, and there is no password"),
        (openssl(fixtures::ENCRYPTED_KEY, Some("wrong")), "certificates[0].password", "does not open the key"),
        (openssl(fixtures::OLD_ENCRYPTED_KEY, Some("secret")), "certificates[0].key", "openssl pkcs8 -topk8"),
        (openssl(fixtures::PBES1_KEY, Some("secret")), "certificates[0].key", "openssl pkcs8 -topk8"),
        (openssl("", None), "certificates[0].key", "no private key"),
        (openssl(fixtures::CERTIFICATE, None), "certificates[0].key", "no private key"),
        (with(&|it| it.key = other.key.clone()), "certificates[0].key", "does not fit the certificate"),
        (with(&|it| it.chain = inline(fixtures::KEY)), "certificates[0].chain", "no certificate"),
        (with(&|it| it.chain = inline(cut.clone())), "certificates[0].chain", "not good PEM"),
        (with(&|it| it.chain = inline(pem("CERTIFICATE", b"x"))), "certificates[0].chain", "not an X.509 certificate"),
        (with(&|it| it.key = inline(pem("PRIVATE KEY", b"x"))), "certificates[0].key", "a kind of key"),
        (with(&|it| it.key = Data::File("/none/key".into())), "certificates[0].key", "/none/key cannot be read"),
    ] {
        let errors = server_errors(&downstream(vec![model]));
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].path == path && errors[0].message.contains(message), "{errors:?}");
    }
}

/// `openssl req -x509 -newkey rsa:1024`: rcgen makes no key as small.
#[test]
fn a_small_rsa_key_is_refused() {
    let mut model = openssl(fixtures::KEY, None);
    model.chain = inline(fixtures::SMALL_RSA_CERTIFICATE);
    let errors = server_errors(&downstream(vec![model]));
    assert!(errors[0].message.contains("RSA key of 1024 bits"), "{errors:?}");
}

#[test]
fn every_error_is_reported_at_once() {
    let mut model = downstream(vec![openssl(fixtures::KEY, None), openssl(fixtures::ENCRYPTED_KEY, None)]);
    model.certificates[0].chain = Data::File("/none/chain".into());
    model.certificates[0].key = Data::File("/none/key".into());
    model.certificates[0].password = Some(Data::File("/none/password".into()));
    model.common.validation = Some(validation(Roots::Pem(Data::File("/none/roots".into()))));
    model.common.groups = vec!["P-1".to_owned()];
    model.tickets = SessionTickets::Keys(vec![inline([0; 80]), inline([0; 48])]);
    let paths: Vec<String> = server_errors(&model).into_iter().map(|it| it.path).collect();
    assert_eq!(
        paths,
        [
            "common.groups[0]",
            "certificates[0].chain",
            "certificates[0].key",
            "certificates[0].password",
            "certificates[1].key",
            "common.validation.roots",
            "tickets.keys[1]",
        ]
    );
}

#[test]
fn files_are_read_through_the_caller() {
    let leaf = Authority::root("root").leaf(&["a.example"]).model();
    let (Data::Inline(chain), Data::Inline(key)) = (&leaf.chain, &leaf.key) else { panic!() };
    let files: HashMap<PathBuf, Vec<u8>> =
        HashMap::from([("/tls/chain".into(), chain.clone()), ("/tls/key".into(), key.clone())]);
    let mut seen = Vec::new();
    let mut read = |path: &Path| {
        seen.push(path.to_owned());
        files.get(path).cloned().ok_or_else(|| Error::from(ErrorKind::NotFound))
    };
    let model = Certificate { chain: Data::File("/tls/chain".into()), key: Data::File("/tls/key".into()), ..leaf };
    let tls = ServerTls::build(&downstream(vec![model]), &mut read).unwrap();
    assert_eq!(tls.certificates()[0].path, "/tls/chain");
    assert_eq!(seen, [PathBuf::from("/tls/chain"), "/tls/key".into()]);
}

#[test]
fn a_client_reports_its_errors_in_its_own_terms() {
    let mut model = upstream();
    model.certificate = Some(openssl("", None));
    model.sni = Some("not a host".to_owned());
    let errors = ClientTls::build(&model, &mut no_files).expect_err("built");
    let paths: Vec<&str> = errors.iter().map(|it| it.path.as_str()).collect();
    assert_eq!(paths, ["certificate.key", "sni"]);
}

#[test]
fn a_certificate_that_has_ended_is_shown_all_the_same() {
    let ended = Authority::root("root").issue(&rcgen::PKCS_ECDSA_P256_SHA256, |params| {
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    });
    let tls = server(&downstream(vec![ended.model()]));
    assert!(tls.certificates()[0].not_after < std::time::SystemTime::now());
    link(&tls, &client(&upstream())).unwrap();
}
