//! Versions, cipher suites, groups and protocols.

use postrider_model::TlsVersion;
use postrider_tls::{ClientTls, Target};

use crate::support::*;

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|it| it.to_string()).collect()
}

#[test]
fn the_default_is_the_newest_with_a_hybrid_group() {
    let tls = server(&downstream(vec![Authority::root("root").leaf(&["a.example"]).model()]));
    let linked = link(&tls, &client(&upstream())).unwrap();
    let facts = linked.facts();
    assert_eq!((facts.version, facts.group), (Some("TLSv1.3"), Some("X25519MLKEM768")));
    assert_eq!((facts.alpn, facts.resumed), (None, false));
}

#[test]
fn versions_are_those_that_both_sides_have() {
    use TlsVersion::{Auto, Tls12, Tls13};
    let leaf = Authority::root("root").leaf(&["a.example"]).model();
    for (ours, theirs, want) in [
        ((Auto, Auto), (Auto, Auto), Some("TLSv1.3")),
        ((Tls12, Tls12), (Auto, Auto), Some("TLSv1.2")),
        ((Auto, Tls12), (Auto, Auto), Some("TLSv1.2")),
        ((Tls13, Auto), (Auto, Auto), Some("TLSv1.3")),
        ((Tls12, Tls13), (Tls12, Tls12), Some("TLSv1.2")),
        ((Tls13, Tls13), (Auto, Tls12), None),
        ((Tls12, Tls12), (Tls13, Auto), None),
    ] {
        let mut down = downstream(vec![leaf.clone()]);
        (down.common.min_version, down.common.max_version) = ours;
        let mut up = upstream();
        (up.common.min_version, up.common.max_version) = theirs;
        let linked = link(&server(&down), &client(&up)).ok();
        assert_eq!(linked.and_then(|it| it.facts().version), want, "{ours:?} {theirs:?}");
    }
}

#[test]
fn cipher_suites_of_tls_1_2_are_restricted_and_ordered() {
    let mut down = downstream(vec![Authority::root("root").leaf(&["a.example"]).model()]);
    down.common.max_version = TlsVersion::Tls12;
    down.common.cipher_suites =
        names(&["TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"]);
    let tls = server(&down);
    let linked = link(&tls, &client(&upstream())).unwrap();
    assert_eq!(linked.facts().cipher, Some("ECDHE-ECDSA-CHACHA20-POLY1305"));
    down.prefers_client_ciphers = true;
    let mut up = upstream();
    for (first, second, agreed) in [
        ("AES_128_GCM_SHA256", "CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ("CHACHA20_POLY1305_SHA256", "AES_128_GCM_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
    ] {
        up.common.cipher_suites = [first, second].map(|name| format!("TLS_ECDHE_ECDSA_WITH_{name}")).to_vec();
        let linked = link(&server(&down), &client(&up)).unwrap();
        assert_eq!(linked.facts().cipher, Some(agreed), "the client's first");
    }
    up.common.cipher_suites = names(&["TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"]);
    assert!(link(&tls, &client(&up)).is_err(), "no suite in common");
}

#[test]
fn suites_of_tls_1_3_stay_on_when_others_are_named() {
    let mut down = downstream(vec![Authority::root("root").leaf(&["a.example"]).model()]);
    down.common.cipher_suites = names(&["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"]);
    let linked = link(&server(&down), &client(&upstream())).unwrap();
    assert_eq!(linked.facts().cipher, Some("TLS_AES_256_GCM_SHA384"));
}

#[test]
fn groups_are_restricted() {
    let mut down = downstream(vec![Authority::root("root").leaf(&["a.example"]).model()]);
    down.common.groups = names(&["P-384", "P-256"]);
    let tls = server(&down);
    let linked = link(&tls, &client(&upstream())).unwrap();
    assert!(matches!(linked.facts().group, Some("P-256" | "P-384")), "{:?}", linked.facts());
    let mut up = upstream();
    up.common.groups = names(&["X25519"]);
    assert!(link(&tls, &client(&up)).is_err(), "no group in common");
}

#[test]
fn what_is_not_supported_is_named_with_what_is() {
    let mut down = downstream(vec![Authority::root("root").leaf(&["a.example"]).model()]);
    down.common.cipher_suites = names(&["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_RSA_WITH_AES_128_CBC_SHA"]);
    down.common.groups = names(&["P-521"]);
    (down.common.min_version, down.common.max_version) = (TlsVersion::Tls13, TlsVersion::Tls12);
    let errors = server_errors(&down);
    let paths: Vec<&str> = errors.iter().map(|it| it.path.as_str()).collect();
    assert_eq!(paths, ["common.cipher_suites[1]", "common.groups[0]", "common.min_version"]);
    assert!(errors[0].message.contains("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"), "{}", errors[0]);
    assert!(errors[1].message.contains("P-384"), "{}", errors[1]);
}

fn protocols(ours: &[&str], theirs: Option<&[&[u8]]>, own: &[&str]) -> Option<Option<Vec<u8>>> {
    let mut down = downstream(vec![Authority::root("root").leaf(&["a.example"]).model()]);
    down.common.alpn = names(ours);
    let mut up = upstream();
    up.common.alpn = names(own);
    let client: ClientTls = client(&up);
    let target = Target { alpn: theirs, ..Target::default() };
    link_to(&server(&down), &client, &target).ok().map(|it| it.facts().alpn.map(<[u8]>::to_vec))
}

#[test]
fn the_servers_order_of_protocols_decides() {
    let chosen = |name: &str| Some(Some(name.as_bytes().to_vec()));
    assert_eq!(protocols(&["h2", "http/1.1"], Some(&[b"http/1.1", b"h2"]), &[]), chosen("h2"));
    assert_eq!(protocols(&["h2", "http/1.1"], Some(&[b"http/1.1"]), &[]), chosen("http/1.1"));
    assert_eq!(protocols(&["h2"], None, &["http/1.1", "h2"]), chosen("h2"));
    assert_eq!(protocols(&["h2"], None, &[]), Some(None));
    assert_eq!(protocols(&[], Some(&[b"h2"]), &[]), Some(None));
}

#[test]
fn a_client_of_other_protocols_goes_on_without_one() {
    assert_eq!(protocols(&["h2"], Some(&[b"spdy/3"]), &[]), Some(None));
}
