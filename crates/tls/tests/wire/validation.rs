//! Which certificates of the other side are good. Most rules are the same on both sides, so most tests ask a server.

use postrider_model::{
    Data, DownstreamTls, NameKind, NameMatch, Regex, Roots, StringKind, StringMatch, TlsVersion, UpstreamTls,
    Validation,
};
use postrider_tls::rustls::pki_types::CertificateDer;
use postrider_tls::{ClientTls, ConnectError, ServerTls, Target};
use rcgen::{
    CertificateParams, CertificateRevocationListParams, ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, RevokedCertParams,
    SanType,
};

use crate::support::*;

struct Both {
    root: Authority,
    clients: Authority,
}

impl Both {
    fn new() -> Both {
        Both { root: Authority::root("servers"), clients: Authority::root("clients") }
    }

    fn model(&self, change: impl FnOnce(&mut Validation)) -> DownstreamTls {
        let mut rules = validation(Roots::Pem(self.clients.pem()));
        change(&mut rules);
        let mut model = downstream(vec![self.root.leaf(&["a.example"]).model()]);
        model.common.validation = Some(rules);
        model.require_client_certificate = true;
        model
    }

    fn server(&self, change: impl FnOnce(&mut Validation)) -> ServerTls {
        server(&self.model(change))
    }
}

fn showing(issued: &Issued) -> ClientTls {
    client(&UpstreamTls { certificate: Some(issued.model()), ..upstream() })
}

fn issue(authority: &Authority, change: impl FnOnce(&mut CertificateParams)) -> Issued {
    authority.issue(&rcgen::PKCS_ECDSA_P256_SHA256, change)
}

/// The server's own words, without the alert that the client sees.
#[track_caller]
fn refused(tls: &ServerTls, client: &ClientTls, why: &str) {
    let failed = link(tls, client).expect_err("it was accepted");
    assert!(failed.server.as_deref().is_some_and(|it| it.contains(why)), "{}", failed.text());
}

#[test]
fn a_client_certificate_must_lead_to_a_root() {
    let both = Both::new();
    let tls = both.server(|_| {});
    let good = both.clients.leaf(&["c.example"]);
    let linked = link(&tls, &showing(&good)).unwrap();
    assert!(tls.peer_verified(linked.server.peer_certificates().unwrap()));
    refused(&tls, &showing(&Authority::root("strangers").leaf(&["c.example"])), "UnknownIssuer");
    refused(&tls, &showing(&Authority::root("clients").leaf(&["c.example"])), "BadSignature");
    refused(&tls, &client(&upstream()), "no certificates");
}

#[test]
fn a_client_may_go_without_where_it_is_optional() {
    let both = Both::new();
    let mut model = both.model(|_| {});
    model.require_client_certificate = false;
    let tls = server(&model);
    let linked = link(&tls, &client(&upstream())).unwrap();
    assert!(linked.server.peer_certificates().is_none());
    refused(&tls, &showing(&Authority::root("strangers").leaf(&["c.example"])), "UnknownIssuer");
}

/// A client that shows no certificate fits no pin and no name.
#[test]
fn pins_and_names_demand_a_certificate() {
    let both = Both::new();
    for change in [
        (|it: &mut Validation| it.certificate_hashes = vec![[1; 32]]) as fn(&mut Validation),
        |it| it.names = vec![name(NameKind::Dns, StringKind::Suffix(".example".into()))],
        |it| it.roots = Roots::TrustDomains(vec![("td".into(), Authority::root("td").pem())]),
    ] {
        let mut model = both.model(change);
        model.require_client_certificate = false;
        refused(&server(&model), &client(&upstream()), "no certificates");
    }
}

#[test]
fn without_rules_a_client_is_asked_for_nothing_unless_one_is_required() {
    let root = Authority::root("servers");
    let known = root.leaf(&["c.example"]);
    let mut model = downstream(vec![root.leaf(&["a.example"]).model()]);
    let linked = link(&server(&model), &showing(&known)).unwrap();
    assert!(linked.server.peer_certificates().is_none());
    model.require_client_certificate = true;
    let tls = server(&model);
    let linked = link(&tls, &showing(&known)).unwrap();
    assert!(!tls.peer_verified(linked.server.peer_certificates().unwrap()));
    refused(&tls, &client(&upstream()), "no certificates");
}

#[test]
fn expired_and_not_yet_valid() {
    let both = Both::new();
    let ended = issue(&both.clients, |params| params.not_after = rcgen::date_time_ymd(2021, 1, 1));
    let early = issue(&both.clients, |params| params.not_before = rcgen::date_time_ymd(2990, 1, 1));
    let strict = both.server(|_| {});
    refused(&strict, &showing(&ended), "Expired");
    refused(&strict, &showing(&early), "NotValidYet");
    let patient = both.server(|it| it.allow_expired = true);
    link(&patient, &showing(&ended)).unwrap();
    link(&patient, &showing(&early)).unwrap();
    let strangers = Authority::root("strangers");
    let stranger = issue(&strangers, |params| params.not_after = rcgen::date_time_ymd(2021, 1, 1));
    refused(&patient, &showing(&stranger), "UnknownIssuer");
}

#[test]
fn an_expired_leaf_below_an_intermediate_is_allowed_where_expired_ones_are() {
    let both = Both::new();
    let ended = issue(&both.clients.below("middle"), |params| params.not_after = rcgen::date_time_ymd(2021, 1, 1));
    refused(&both.server(|_| {}), &showing(&ended), "Expired");
    link(&both.server(|it| it.allow_expired = true), &showing(&ended)).unwrap();
}

#[test]
fn the_purpose_of_a_certificate_counts() {
    let both = Both::new();
    let for_servers = issue(&both.clients, |it| it.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
    refused(&both.server(|_| {}), &showing(&for_servers), "InvalidPurpose");
    let for_clients = issue(&both.clients, |it| it.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]);
    link(&both.server(|_| {}), &showing(&for_clients)).unwrap();
}

#[test]
fn depth_counts_what_is_between_leaf_and_root() {
    let both = Both::new();
    let direct = both.clients.leaf(&["c.example"]);
    let one = both.clients.below("one").leaf(&["c.example"]);
    let two = both.clients.below("one").below("two").leaf(&["c.example"]);
    for (depth, want) in [
        (None, [true, true, true]),
        (Some(0), [true, false, false]),
        (Some(1), [true, true, false]),
        (Some(9), [true; 3]),
    ] {
        let tls = both.server(|it| it.max_depth = depth);
        assert_eq!([&direct, &one, &two].map(|it| link(&tls, &showing(it)).is_ok()), want, "{depth:?}");
    }
}

#[test]
fn an_intermediate_among_the_roots_is_enough() {
    let both = Both::new();
    let middle = both.clients.below("middle");
    let tls = both.server(|it| it.roots = Roots::Pem(middle.pem()));
    link(&tls, &showing(&middle.leaf(&["c.example"]))).unwrap();
    refused(&tls, &showing(&both.clients.leaf(&["c.example"])), "UnknownIssuer");
}

#[test]
fn a_self_signed_certificate_is_good_where_it_is_a_root_itself() {
    let both = Both::new();
    let make = |change: &dyn Fn(&mut CertificateParams)| {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["c.example".to_owned()]).unwrap();
        change(&mut params);
        let chain = vec![params.self_signed(&key).unwrap().der().clone()];
        Issued { chain, key }
    };
    let plain = make(&|_| {});
    let marked = make(&|it| it.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained));
    let ended = make(&|it| it.not_after = rcgen::date_time_ymd(2021, 1, 1));
    let other_use = make(&|it| it.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
    let trusting = |issued: &Issued, expired| {
        let root = inline(pem("CERTIFICATE", &issued.chain[0]));
        both.server(|it| (it.roots, it.allow_expired) = (Roots::Pem(root), expired))
    };
    link(&trusting(&plain, false), &showing(&plain)).unwrap();
    link(&trusting(&marked, false), &showing(&marked)).unwrap();
    refused(&trusting(&plain, false), &showing(&marked), "CaUsedAsEndEntity");
    refused(&trusting(&ended, false), &showing(&ended), "Expired");
    link(&trusting(&ended, true), &showing(&ended)).unwrap();
    refused(&trusting(&other_use, false), &showing(&other_use), "InvalidPurpose");
}

fn revocation_list(authority: &Authority, serials: &[u64], until: i32) -> String {
    let list = CertificateRevocationListParams {
        this_update: rcgen::date_time_ymd(2020, 1, 1),
        next_update: rcgen::date_time_ymd(until, 1, 1),
        crl_number: 1.into(),
        issuing_distribution_point: None,
        revoked_certs: serials
            .iter()
            .map(|&serial| RevokedCertParams {
                serial_number: serial.into(),
                revocation_time: rcgen::date_time_ymd(2020, 1, 1),
                reason_code: None,
                invalidity_date: None,
            })
            .collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    pem("X509 CRL", list.signed_by(&authority.issuer).unwrap().der())
}

#[test]
fn a_revoked_certificate_is_refused() {
    let both = Both::new();
    let numbered = |serial: u64| issue(&both.clients, |it| it.serial_number = Some(serial.into()));
    let list = revocation_list(&both.clients, &[7], 2990);
    let tls = both.server(|it| it.revocation_list = Some(inline(list.clone())));
    refused(&tls, &showing(&numbered(7)), "Revoked");
    link(&tls, &showing(&numbered(8))).unwrap();
    let beside = format!("{}{list}", pem("CERTIFICATE", &both.clients.der));
    let tls = both.server(|it| it.roots = Roots::Pem(inline(beside)));
    refused(&tls, &showing(&numbered(7)), "Revoked");
}

#[test]
fn a_list_that_has_ended_or_is_missing_refuses() {
    let both = Both::new();
    let good = both.clients.leaf(&["c.example"]);
    let ended = revocation_list(&both.clients, &[], 2021);
    let tls = both.server(|it| it.revocation_list = Some(inline(ended.clone())));
    refused(&tls, &showing(&good), "ExpiredRevocationList");
    let tls = both.server(|it| (it.revocation_list, it.allow_expired) = (Some(inline(ended)), true));
    link(&tls, &showing(&good)).unwrap();
    let foreign = revocation_list(&Authority::root("others"), &[], 2990);
    let tls = both.server(|it| it.revocation_list = Some(inline(foreign)));
    refused(&tls, &showing(&good), "UnknownRevocationStatus");
}

#[test]
fn the_list_of_the_leafs_issuer_is_enough_where_only_leaves_are_looked_up() {
    let both = Both::new();
    let middle = both.clients.below("middle");
    let good = middle.leaf(&["c.example"]);
    let bad = issue(&middle, |it| it.serial_number = Some(7.into()));
    let list = revocation_list(&middle, &[7], 2990);
    let whole = both.server(|it| it.revocation_list = Some(inline(list.clone())));
    refused(&whole, &showing(&good), "UnknownRevocationStatus");
    let leaf = both.server(|it| (it.revocation_list, it.revocation_of_leaf_only) = (Some(inline(list.clone())), true));
    link(&leaf, &showing(&good)).unwrap();
    refused(&leaf, &showing(&bad), "Revoked");
}

fn name(kind: NameKind, value: StringKind) -> NameMatch {
    NameMatch { kind, value: StringMatch { kind: value, ignore_case: false } }
}

#[test]
fn one_name_must_fit() {
    let both = Both::new();
    let shown = issue(&both.clients, |it| {
        it.subject_alt_names = vec![
            SanType::DnsName("*.c.example".try_into().unwrap()),
            SanType::URI("spiffe://td/ns/a".try_into().unwrap()),
            SanType::Rfc822Name("me@c.example".try_into().unwrap()),
            SanType::IpAddress("192.0.2.7".parse().unwrap()),
            SanType::OtherName((vec![1, 3, 6, 1, 4, 1, 311], "me@realm".into())),
        ];
    });
    let exact = |text: &str| StringKind::Exact(text.to_owned());
    for (rules, want) in [
        (vec![name(NameKind::Dns, exact("x.c.example"))], true),
        (vec![name(NameKind::Dns, exact("x.y.c.example"))], false),
        (vec![name(NameKind::Dns, exact("spiffe://td/ns/a"))], false),
        (vec![name(NameKind::Uri, StringKind::Prefix("spiffe://td/".into()))], true),
        (vec![name(NameKind::Uri, StringKind::Regex(Regex::new("spiffe://td/ns/.").unwrap()))], true),
        (vec![name(NameKind::Email, StringKind::Suffix("@c.example".into()))], true),
        (vec![name(NameKind::Ip, exact("192.0.2.7"))], true),
        (vec![name(NameKind::Ip, exact("192.0.2.8"))], false),
        (vec![name(NameKind::Other("1.3.6.1.4.1.311".into()), StringKind::Suffix("@realm".into()))], true),
        (vec![name(NameKind::Other("1.3.6.1.4.1.312".into()), StringKind::Suffix("@realm".into()))], false),
        (vec![name(NameKind::Ip, exact("192.0.2.8")), name(NameKind::Uri, exact("spiffe://td/ns/a"))], true),
    ] {
        let tls = both.server(|it| it.names = rules.clone());
        let linked = link(&tls, &showing(&shown));
        assert_eq!(linked.is_ok(), want, "{rules:?}");
    }
    let tls = both.server(|it| it.names = vec![name(NameKind::Dns, exact("leaf"))]);
    refused(&tls, &showing(&both.clients.leaf(&[])), "NotValidForName");
}

fn hash(bytes: &[u8]) -> [u8; 32] {
    aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes).as_ref().try_into().unwrap()
}

fn key_hash(der: &CertificateDer<'_>) -> [u8; 32] {
    let leaf = webpki::EndEntityCert::try_from(der).unwrap();
    hash(&leaf.subject_public_key_info())
}

#[test]
fn either_kind_of_pin_is_enough() {
    let both = Both::new();
    let (known, other) = (both.clients.leaf(&["c.example"]), both.clients.leaf(&["c.example"]));
    let (certificate, key) = (hash(&known.chain[0]), key_hash(&known.chain[0]));
    for (certificates, keys) in [
        (vec![certificate], vec![]),
        (vec![], vec![key]),
        (vec![[9; 32]], vec![key]),
        (vec![[9; 32], certificate], vec![[9; 32]]),
    ] {
        let tls = both.server(|it| (it.certificate_hashes, it.key_hashes) = (certificates.clone(), keys.clone()));
        link(&tls, &showing(&known)).unwrap();
        refused(&tls, &showing(&other), "ApplicationVerificationFailure");
    }
}

#[test]
fn a_pin_is_no_substitute_for_a_root_that_is_asked_for() {
    let both = Both::new();
    let stranger = Authority::root("strangers").leaf(&["c.example"]);
    let pins = vec![hash(&stranger.chain[0])];
    refused(&both.server(|it| it.certificate_hashes = pins.clone()), &showing(&stranger), "UnknownIssuer");
    let alone = both.server(|it| (it.certificate_hashes, it.roots) = (pins, Roots::None));
    link(&alone, &showing(&stranger)).unwrap();
}

/// The attack: a certificate that is public, shown by somebody who does not have its key.
#[test]
fn a_pinned_certificate_without_its_key_is_refused() {
    let both = Both::new();
    let known = both.clients.leaf(&["c.example"]);
    let thief = rcgen::KeyPair::generate().unwrap();
    let mut config = postrider_tls::rustls::ClientConfig::clone(client(&upstream()).config());
    let key = postrider_tls::rustls::pki_types::PrivatePkcs8KeyDer::from(thief.serialize_der());
    let signing = postrider_tls::rustls::crypto::aws_lc_rs::sign::any_supported_type(&key.into()).unwrap();
    let stolen = postrider_tls::rustls::sign::CertifiedKey::new(known.chain.clone(), signing);
    config.client_auth_cert_resolver = std::sync::Arc::new(postrider_tls::rustls::sign::SingleCertAndKey::from(stolen));
    for (untrusted, at) in
        [(false, TlsVersion::Tls12), (true, TlsVersion::Tls12), (false, TlsVersion::Tls13), (true, TlsVersion::Tls13)]
    {
        let mut model = both.model(|it| it.accept_untrusted = untrusted);
        (model.common.min_version, model.common.max_version) = (at, at);
        let name = postrider_tls::rustls::pki_types::ServerName::try_from("a.example").unwrap();
        let connection =
            postrider_tls::rustls::ClientConnection::new(std::sync::Arc::new(config.clone()), name).unwrap();
        let failed = link_connection(&server(&model), connection).expect_err("it was accepted");
        assert!(failed.server.as_deref().is_some_and(|it| it.contains("BadSignature")), "{}", failed.text());
    }
}

#[test]
fn untrusted_certificates_are_accepted_and_shown_as_such() {
    let both = Both::new();
    let mut model = both.model(|it| it.accept_untrusted = true);
    let verified = |model: &DownstreamTls, issued: &Issued| {
        let tls = server(model);
        let linked = link(&tls, &showing(issued)).unwrap();
        tls.peer_verified(linked.server.peer_certificates().unwrap())
    };
    let ended = issue(&both.clients, |params| params.not_after = rcgen::date_time_ymd(2021, 1, 1));
    assert!(verified(&model, &both.clients.leaf(&["c.example"])));
    assert!(!verified(&model, &Authority::root("strangers").leaf(&["c.example"])));
    assert!(!verified(&model, &ended));
    refused(&server(&model), &client(&upstream()), "no certificates");
    model.require_client_certificate = false;
    link(&server(&model), &client(&upstream())).unwrap();
}

fn svid(authority: &Authority, uris: &[&str]) -> Issued {
    issue(authority, |it| {
        it.subject_alt_names = uris.iter().map(|uri| SanType::URI((*uri).try_into().unwrap())).collect();
    })
}

#[test]
fn each_trust_domain_has_its_own_roots() {
    let both = Both::new();
    let (one, two) = (Authority::root("one"), Authority::root("two"));
    let domains = vec![("one.test".to_owned(), one.pem()), ("two.test".to_owned(), two.pem())];
    let tls = both.server(|it| it.roots = Roots::TrustDomains(domains.clone()));
    link(&tls, &showing(&svid(&one, &["spiffe://one.test/a"]))).unwrap();
    link(&tls, &showing(&svid(&two, &["spiffe://two.test/a"]))).unwrap();
    for wrong in [
        // The authority of one domain speaks for another.
        svid(&one, &["spiffe://two.test/a"]),
        svid(&one, &["spiffe://three.test/a"]),
        svid(&one, &["spiffe://one.test/a", "spiffe://two.test/a"]),
        svid(&one, &["https://one.test/a"]),
        svid(&one, &["spiffe://one.test"]),
        svid(&one, &[]),
    ] {
        assert!(link(&tls, &showing(&wrong)).is_err());
    }
    let authority = issue(&one, |it| {
        it.subject_alt_names = vec![SanType::URI("spiffe://one.test/a".try_into().unwrap())];
        it.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign, rcgen::KeyUsagePurpose::DigitalSignature];
    });
    assert!(link(&tls, &showing(&authority)).is_err(), "a leaf that may sign others");
    let named = both.server(|it| {
        it.roots = Roots::TrustDomains(domains.clone());
        it.names = vec![name(NameKind::Uri, StringKind::Exact("spiffe://one.test/a".into()))];
    });
    link(&named, &showing(&svid(&one, &["spiffe://one.test/a"]))).unwrap();
    refused(&named, &showing(&svid(&one, &["spiffe://one.test/b"])), "NotValidForName");
}

#[test]
fn a_validation_without_any_rule_asks_clients_for_nothing_unless_it_shows_what_comes() {
    let both = Both::new();
    let known = both.clients.leaf(&["c.example"]);
    for untrusted in [false, true] {
        let mut model = both.model(|it| (it.roots, it.accept_untrusted) = (Roots::None, untrusted));
        model.require_client_certificate = false;
        let tls = server(&model);
        let linked = link(&tls, &showing(&known)).unwrap();
        let chain = linked.server.peer_certificates();
        assert_eq!(chain.is_some(), untrusted);
        assert!(!tls.peer_verified(chain.unwrap_or_default()));
    }
}

/// A map of trust bundles with these certificates, as SPIRE writes it.
fn bundles(domains: &[(&str, &[&Authority])]) -> Data {
    use base64::Engine;
    let key = |authority: &&Authority| {
        let der = base64::engine::general_purpose::STANDARD.encode(&authority.der);
        serde_json::json!({"kty": "EC", "use": "x509-svid", "crv": "P-256", "x5c": [der]})
    };
    let bundle = |authorities: &[&Authority]| {
        let mut keys: Vec<_> = authorities.iter().map(key).collect();
        keys.push(serde_json::json!({"kty": "EC", "use": "jwt-svid", "kid": "a"}));
        serde_json::json!({"spiffe_sequence": 1, "keys": keys})
    };
    let all: serde_json::Map<_, _> =
        domains.iter().map(|(domain, authorities)| ((*domain).to_owned(), bundle(authorities))).collect();
    inline(serde_json::json!({"trust_domains": all}).to_string())
}

#[test]
fn a_map_of_trust_bundles_gives_each_trust_domain_its_roots() {
    let both = Both::new();
    let (one, two, three) = (Authority::root("one"), Authority::root("two"), Authority::root("three"));
    let map = bundles(&[("one.test", &[&one, &three]), ("two.test", &[&two])]);
    let tls = both.server(|it| it.roots = Roots::TrustBundles(map));
    assert_eq!(tls.roots().len(), 3);
    for good in [(&one, "spiffe://one.test/a"), (&three, "spiffe://one.test/a"), (&two, "spiffe://two.test/a")] {
        link(&tls, &showing(&svid(good.0, &[good.1]))).unwrap();
    }
    for wrong in [(&one, "spiffe://two.test/a"), (&two, "spiffe://one.test/a"), (&two, "spiffe://other.test/a")] {
        assert!(link(&tls, &showing(&svid(wrong.0, &[wrong.1]))).is_err());
    }
    for (text, message) in [
        ("{", "is no JSON"),
        ("{}", "no `trust_domains`"),
        (r#"{"trust_domains": {}}"#, "no `trust_domains`"),
        (r#"{"trust_domains": {"a": {}}}"#, "the trust domain `a` has no list of `keys`"),
        (r#"{"trust_domains": {"a": {"keys": [{"use": "jwt-svid"}]}}}"#, "no key for `x509-svid`"),
        (r#"{"trust_domains": {"a": {"keys": [{"use": "x509-svid"}]}}}"#, "0 certificates in `keys[0].x5c`"),
        (r#"{"trust_domains": {"a": {"keys": [{"use": "x509-svid", "x5c": ["*"]}]}}}"#, "no base64 in `keys[0].x5c`"),
        (r#"{"trust_domains": {"a": {"keys": [{"use": "x509-svid", "x5c": ["AAAA"]}]}}}"#, "root certificate 1"),
    ] {
        let errors = server_errors(&both.model(|it| it.roots = Roots::TrustBundles(inline(text))));
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].message.contains(message), "{text}: {errors:?}");
    }
}

/// Where the system has no roots, that is said; where it has, ours is not among them.
#[test]
fn the_roots_of_the_system_trust_no_stranger() {
    let both = Both::new();
    match ServerTls::build(&both.model(|it| it.roots = Roots::System), &mut no_files) {
        Ok(tls) => refused(&tls, &showing(&both.clients.leaf(&["c.example"])), "UnknownIssuer"),
        Err(errors) => assert_eq!(errors[0].path, "common.validation.roots"),
    }
}

#[test]
fn the_subjects_of_the_roots_are_told_to_clients() {
    let both = Both::new();
    let tls = both.server(|_| {});
    let facts = tls.roots();
    assert_eq!(facts.len(), 1);
    assert_eq!((facts[0].subject.as_str(), facts[0].path.as_str()), ("CN=clients", "<inline>"));
}

#[test]
fn roots_that_cannot_be_read_are_errors() {
    let both = Both::new();
    let junk = || inline(pem("CERTIFICATE", b"junk"));
    for (change, path, message) in [
        (
            &(|it: &mut Validation| it.roots = Roots::Pem(inline(""))) as &dyn Fn(&mut Validation),
            "roots",
            "no certificate",
        ),
        (&|it| it.roots = Roots::Pem(junk()), "roots", "root certificate 1"),
        (&|it| it.roots = Roots::TrustDomains(vec![("td".into(), inline("x"))]), "roots[0]", "no certificate"),
        (&|it| it.revocation_list = Some(both.clients.pem()), "revocation_list", "no certificate revocation list"),
        (&|it| it.revocation_list = Some(inline(pem("X509 CRL", b"junk"))), "revocation_list", "cannot be read"),
        (&|it| it.revocation_list = Some(Data::File("/none".into())), "revocation_list", "/none"),
    ] {
        let errors = server_errors(&both.model(|it| change(it)));
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].path == format!("common.validation.{path}"), "{errors:?}");
        assert!(errors[0].message.contains(message), "{errors:?}");
    }
}

fn asking(roots: &Authority, change: impl FnOnce(&mut UpstreamTls)) -> ClientTls {
    let mut model = upstream();
    model.common.validation = Some(validation(Roots::Pem(roots.pem())));
    change(&mut model);
    client(&model)
}

#[test]
fn a_client_accepts_anything_without_rules_and_only_its_roots_with_them() {
    let both = Both::new();
    let tls = server(&downstream(vec![both.root.leaf(&["other.example"]).model()]));
    link(&tls, &client(&upstream())).unwrap();
    link(&tls, &asking(&both.root, |_| {})).expect("the chain is verified, the name is not");
    let failed = link(&tls, &asking(&both.clients, |_| {})).unwrap_err();
    assert!(failed.client.as_deref().is_some_and(|it| it.contains("UnknownIssuer")), "{}", failed.text());
}

#[test]
fn a_client_can_verify_the_name_that_it_asks_for() {
    let both = Both::new();
    let tls = server(&downstream(vec![both.root.leaf(&["a.example", "*.b.example"]).model()]));
    for (sni, want) in [("a.example", true), ("x.b.example", true), ("b.example", false), ("c.example", false)] {
        let asking = asking(&both.root, |it| (it.sni, it.verify_sni) = (Some(sni.to_owned()), true));
        assert_eq!(link(&tls, &asking).is_ok(), want, "{sni}");
    }
    let replaced = asking(&both.root, |it| {
        it.verify_sni = true;
        let rules = it.common.validation.as_mut().unwrap();
        rules.names = vec![name(NameKind::Dns, StringKind::Exact("nobody.example".into()))];
    });
    link(&tls, &replaced).expect("the asked name takes the place of the other rules");
}

#[test]
fn an_address_is_verified_and_not_sent() {
    let both = Both::new();
    let leaf = both.root.issue(&rcgen::PKCS_ECDSA_P256_SHA256, |it| {
        it.subject_alt_names = vec![SanType::IpAddress("192.0.2.7".parse().unwrap())];
    });
    let tls = server(&downstream(vec![leaf.model()]));
    let client = asking(&both.root, |it| (it.sni, it.request_sni, it.verify_sni) = (None, true, true));
    let at = |host| Target { request_host: Some(host), ..Target::default() };
    let linked = link_to(&tls, &client, &at("192.0.2.7:8443")).unwrap();
    assert_eq!(linked.server.server_name(), None);
    assert!(client.peer_verified(linked.client.peer_certificates().unwrap(), &at("192.0.2.7:8443")));
    assert!(link_to(&tls, &client, &at("192.0.2.8")).is_err());
}

#[test]
fn without_a_name_to_verify_nothing_is_connected() {
    let both = Both::new();
    let client = asking(&both.root, |it| (it.sni, it.verify_sni) = (None, true));
    assert_eq!(client.connection(&Target::default()).unwrap_err(), ConnectError::NoName);
}

#[test]
fn clients_apply_the_same_rules_as_servers() {
    let both = Both::new();
    let leaf = both.root.leaf(&["a.example"]);
    let tls = server(&downstream(vec![leaf.model()]));
    let with =
        |change: &dyn Fn(&mut Validation)| asking(&both.root, |it| change(it.common.validation.as_mut().unwrap()));
    assert!(link(&tls, &with(&|it| it.key_hashes = vec![key_hash(&leaf.chain[0])])).is_ok());
    assert!(link(&tls, &with(&|it| it.key_hashes = vec![[0; 32]])).is_err());
    assert!(
        link(&tls, &with(&|it| it.names = vec![name(NameKind::Dns, StringKind::Exact("a.example".into()))])).is_ok()
    );
    assert!(
        link(&tls, &with(&|it| it.names = vec![name(NameKind::Dns, StringKind::Exact("b.example".into()))])).is_err()
    );
    let untrusted = asking(&both.clients, |it| it.common.validation.as_mut().unwrap().accept_untrusted = true);
    let linked = link(&tls, &untrusted).unwrap();
    assert!(!untrusted.peer_verified(linked.client.peer_certificates().unwrap(), &Target::default()));
    let for_clients = both.root.issue(&rcgen::PKCS_ECDSA_P256_SHA256, |it| {
        it.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    let wrong = server(&downstream(vec![for_clients.model()]));
    assert!(link(&wrong, &asking(&both.root, |_| {})).is_err());
}
