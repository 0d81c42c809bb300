//! What TLS configuration means. What is refused is in `tests/lower/tls-*.yaml`.

mod common;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use common::said;
use postrider_config_envoy::Outcome;
use postrider_model::{
    ChainMatch, Cidr, Data, DownstreamTls, Inspection, NameKind, NameMatch, OcspPolicy, Origin, Roots, SessionTickets,
    Snapshot, TlsVersion, TransportMatch, UpstreamTls, Validation,
};

const TCP: &str = r#"
      - name: tcp
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
          stat_prefix: t
          cluster: c"#;
const HTTP: &str = r#"
      - name: http
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: x
          route_config: {}
          http_filters:
          - name: router
            typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }"#;

/// A certificate in a context.
const CERTIFICATE: &str =
    "tls_certificates: [{ certificate_chain: { filename: a.pem }, private_key: { filename: a.key } }]";

/// What stands above and around the parts below.
const CHAIN: &str = "static_resources.listeners[0].filter_chains[0].transport_socket.typed_config";
const CLUSTER: &str = "static_resources.clusters[0].transport_socket.typed_config";

fn outcome(text: &str) -> Outcome {
    common::outcome(text, &|_: &str| false)
}

#[track_caller]
fn snapshot(text: &str) -> Arc<Snapshot> {
    common::snapshot(&outcome(text))
}

/// A bootstrap with a chain of `filter` behind a `DownstreamTlsContext` with these fields.
fn server(filter: &str, context: &str) -> String {
    format!(
        r#"
static_resources:
  listeners:
  - name: l
    address: {{ socket_address: {{ address: 127.0.0.1, port_value: 1 }} }}
    filter_chains:
    - filters:{filter}
      transport_socket:
        name: envoy.transport_sockets.tls
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
          {}
  clusters: [{{ name: c }}]
"#,
        context.trim().replace('\n', "\n          ")
    )
}

/// A bootstrap with a cluster behind an `UpstreamTlsContext` with these fields.
fn client(context: &str) -> String {
    format!(
        r#"
static_resources:
  clusters:
  - name: c
    transport_socket:
      name: envoy.transport_sockets.tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        {}
"#,
        context.trim().replace('\n', "\n        ")
    )
}

fn downstream(snapshot: &Snapshot) -> &DownstreamTls {
    snapshot.listeners[0].filter_chains[0].tls.as_ref().expect("the chain speaks TLS")
}

fn upstream(snapshot: &Snapshot) -> &UpstreamTls {
    snapshot.clusters[0].tls.as_ref().expect("the cluster speaks TLS")
}

fn file(path: &str) -> Data {
    Data::File(path.into())
}

fn names(all: &[NameMatch]) -> Vec<String> {
    all.iter().map(|name| format!("{:?} {:?}", name.kind, name.value.kind)).collect()
}

#[test]
fn a_server_with_nothing_but_a_certificate_has_the_defaults() {
    let outcome = outcome(&server(TCP, &format!("common_tls_context: {{ {CERTIFICATE} }}")));
    assert_eq!(said(&outcome), "");
    let snapshot = outcome.snapshot.clone().unwrap();
    let tls = downstream(&snapshot);
    assert_eq!(tls.origin, Origin(CHAIN.into()));
    assert_eq!((tls.common.min_version, tls.common.max_version), (TlsVersion::Auto, TlsVersion::Auto));
    assert!(tls.common.cipher_suites.is_empty() && tls.common.groups.is_empty() && tls.common.alpn.is_empty());
    assert!(tls.common.validation.is_none() && tls.common.key_log.is_none());
    let certificate = &tls.certificates[0];
    assert_eq!((&certificate.chain, &certificate.key), (&file("a.pem"), &file("a.key")));
    assert_eq!((&certificate.password, &certificate.ocsp_staple), (&None, &None));
    assert_eq!(certificate.origin, Origin(format!("{CHAIN}.common_tls_context.tls_certificates[0]")));
    assert_eq!(
        outcome.locate(&certificate.origin.0).map(|span| outcome.sources.location(span).unwrap().1.line),
        Some(17)
    );
    assert!(!tls.require_client_certificate && tls.stateful_resumption && !tls.refuse_unknown_names);
    assert_eq!((&tls.tickets, tls.session_timeout, tls.ocsp), (&SessionTickets::Rotating, None, OcspPolicy::Lenient));
    assert_eq!(tls.handshake_timeout, Some(Duration::from_secs(15)));
    let differences: Vec<&str> = outcome.differences.iter().map(|difference| difference.id).collect();
    assert!(differences.contains(&"handshake-timeout"), "{differences:?}");
    assert_eq!(snapshot.listeners[0].inspection, Inspection::default());
}

#[test]
fn every_field_of_a_server_has_its_meaning() {
    let context = r#"
require_client_certificate: true
require_sni: false
full_scan_certs_on_sni_mismatch: true
prefer_client_ciphers: false
disable_stateless_session_resumption: true
disable_stateful_session_resumption: true
session_timeout: 3600.5s
ocsp_staple_policy: MUST_STAPLE
common_tls_context:
  tls_params:
    tls_minimum_protocol_version: TLSv1_2
    tls_maximum_protocol_version: TLSv1_3
    cipher_suites:
    - "[ECDHE-ECDSA-AES128-GCM-SHA256|ECDHE-ECDSA-CHACHA20-POLY1305]"
    - ECDHE-RSA-AES256-GCM-SHA384:ECDHE-RSA-CHACHA20-POLY1305
    - TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
    - ECDHE-RSA-AES256-GCM-SHA384
    - ECDHE-ECDSA-AES256-GCM-SHA384
    ecdh_curves: [X25519MLKEM768, "X25519:prime256v1", P-384]
  tls_certificates:
  - certificate_chain: { filename: a.pem }
    private_key: { inline_string: "-----BEGIN" }
    password: { inline_bytes: cGFzcw== }
    ocsp_staple: { filename: a.ocsp }
  - certificate_chain: { inline_bytes: QQ== }
    private_key: { environment_variable: PATH }
    ocsp_staple: { inline_bytes: QQ== }
  alpn_protocols: ["h2,http/1.1", other]
  key_log: { path: /tmp/keys, local_address_range: [{ address_prefix: 10.0.0.0, prefix_len: 8 }] }
  validation_context:
    trusted_ca: { filename: ca.pem }
    watched_directory: { path: . }
    verify_certificate_spki: [NvqYIYSbgK2vCJpQhObf77vv+bQWtc5ek5RIOwPiC9A=]
    verify_certificate_hash:
    - df6ff72fe9116521268f6f2dd4966f51df479883fe7037b39f75916ac3049d1a
    - DF:6F:F7:2F:E9:11:65:21:26:8F:6F:2D:D4:96:6F:51:DF:47:98:83:FE:70:37:B3:9F:75:91:6A:C3:04:9D:1A
    match_typed_subject_alt_names:
    - { san_type: DNS, matcher: { exact: a.example, ignore_case: true } }
    - { san_type: URI, matcher: { prefix: "spiffe://a/" } }
    - { san_type: EMAIL, matcher: { suffix: "@a.example" } }
    - { san_type: IP_ADDRESS, oid: 1.2, matcher: { safe_regex: { regex: "10\\..*" } } }
    crl: { filename: crl.pem }
    allow_expired_certificate: true
    trust_chain_verification: ACCEPT_UNTRUSTED
    only_verify_leaf_cert_crl: true
    max_verify_depth: 1
"#;
    let outcome = outcome(&server(TCP, context));
    assert_eq!(said(&outcome), "");
    assert_eq!(outcome.report().counts.unsupported, 0);
    let snapshot = outcome.snapshot.clone().unwrap();
    let tls = downstream(&snapshot);
    assert!(tls.require_client_certificate && !tls.stateful_resumption && !tls.refuse_unknown_names);
    assert_eq!((&tls.tickets, tls.ocsp), (&SessionTickets::Off, OcspPolicy::Must));
    assert_eq!(tls.session_timeout, Some(Duration::from_secs(3600)));
    let common = &tls.common;
    assert_eq!((common.min_version, common.max_version), (TlsVersion::Tls12, TlsVersion::Tls13));
    assert_eq!(
        common.cipher_suites,
        [
            "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
            "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        ]
    );
    assert_eq!(common.groups, ["X25519MLKEM768", "X25519", "P-256", "P-384"]);
    assert_eq!(common.alpn, ["h2", "http/1.1", "other"], "a chain of TCP passes any protocol on");
    let log = common.key_log.as_ref().unwrap();
    assert_eq!((&log.path, &log.remote), (&PathBuf::from("/tmp/keys"), &Vec::new()));
    assert_eq!(log.local, [Cidr::new("10.0.0.0".parse().unwrap(), 8).unwrap()]);
    let [first, second] = &tls.certificates[..] else { panic!("{:?}", tls.certificates) };
    assert_eq!(first.key, Data::Inline(b"-----BEGIN".to_vec()));
    assert_eq!((&first.password, &first.ocsp_staple), (&Some(Data::Inline(b"pass".to_vec())), &Some(file("a.ocsp"))));
    assert_eq!(second.key, Data::Inline(std::env::var("PATH").unwrap().into_bytes()));
    let validation = common.validation.as_ref().unwrap();
    assert_eq!((&validation.roots, &validation.revocation_list), (&Roots::Pem(file("ca.pem")), &Some(file("crl.pem"))));
    assert_eq!((validation.key_hashes[0][0], validation.key_hashes[0][31]), (0x36, 0xd0));
    assert_eq!(validation.certificate_hashes.len(), 2);
    assert_eq!(validation.certificate_hashes[0], validation.certificate_hashes[1]);
    assert!(validation.names[0].value.ignore_case);
    assert_eq!(
        names(&validation.names)[..3],
        [r#"Dns Exact("a.example")"#, r#"Uri Prefix("spiffe://a/")"#, r#"Email Suffix("@a.example")"#]
    );
    assert!(matches!(&validation.names[3], NameMatch { kind: NameKind::Ip, value } if value.matches("10.0.0.1")));
    assert!(validation.allow_expired && validation.accept_untrusted && validation.revocation_of_leaf_only);
    assert_eq!(validation.max_depth, Some(0), "the root counts in Envoy");
}

#[test]
fn a_handshake_timeout_can_be_set_and_switched_off() {
    let text = server(TCP, &format!("common_tls_context: {{ {CERTIFICATE} }}"));
    for (value, expected) in [("3s", Some(Duration::from_secs(3))), ("0s", None)] {
        let text =
            text.replace("    - filters", &format!("    - transport_socket_connect_timeout: {value}\n      filters"));
        let outcome = outcome(&text);
        assert!(outcome.differences.iter().all(|difference| difference.id != "handshake-timeout"));
        assert_eq!(downstream(outcome.snapshot.as_ref().unwrap()).handshake_timeout, expected);
    }
}

#[test]
fn http_2_is_not_offered_before_a_chain_that_speaks_http_1_only() {
    let context = format!("common_tls_context: {{ {CERTIFICATE}, alpn_protocols: [h2, http/1.1] }}");
    let both = outcome(&server(HTTP, &context));
    assert_eq!(downstream(both.snapshot.as_ref().unwrap()).common.alpn, ["h2", "http/1.1"]);
    let only = HTTP.replace("stat_prefix:", "codec_type: HTTP1\n          stat_prefix:");
    assert_ne!(only, HTTP);
    let outcome = outcome(&server(&only, &context));
    assert!(said(&outcome).contains("warning[no-effect]: `h2` is not offered to clients"), "{}", said(&outcome));
    assert_eq!(downstream(outcome.snapshot.as_ref().unwrap()).common.alpn, ["http/1.1"]);
}

#[test]
fn what_has_nothing_to_say_is_told() {
    let context = format!(
        r#"
prefer_client_ciphers: true
common_tls_context:
  {CERTIFICATE}
  tls_params: {{ tls_minimum_protocol_version: TLSv1_3, cipher_suites: [ECDHE-RSA-AES128-GCM-SHA256] }}
  validation_context:
    trusted_ca: {{ filename: ca.pem }}
    match_subject_alt_names: [{{ exact: a }}]
    system_root_certs: {{}}
"#
    );
    let outcome = outcome(&server(TCP, &context));
    let said = said(&outcome);
    let snapshot = outcome.snapshot.as_ref().unwrap_or_else(|| panic!("{said}"));
    let tls = downstream(snapshot);
    assert!(tls.common.cipher_suites.is_empty());
    assert!(said.contains("`cipher_suites` has no effect: the suites of TLS 1.3 cannot be chosen"), "{said}");
    assert!(said.contains("warning[optional-client-certificate]"), "{said}");
    assert!(said.ends_with("\n3 warnings\n"), "{said}");
    // The deprecated matchers look at every kind of name.
    let Some(Validation { names: found, roots: Roots::Pem(_), .. }) = &tls.common.validation else { panic!() };
    assert_eq!(names(found), ["Dns", "Uri", "Email", "Ip"].map(|kind| format!(r#"{kind} Exact("a")"#)));
}

#[test]
fn a_required_client_certificate_that_anybody_can_make_is_warned_about() {
    let context =
        format!("require_client_certificate: true\ncommon_tls_context: {{ {CERTIFICATE}, validation_context: {{}} }}");
    let outcome = outcome(&server(TCP, &context));
    assert!(said(&outcome).contains("warning[unverified-client]"), "{}", said(&outcome));
    let snapshot = outcome.snapshot.unwrap();
    assert_eq!(downstream(&snapshot).common.validation.as_ref().unwrap().roots, Roots::None);
}

#[test]
fn a_name_that_is_verified_must_be_asked_for() {
    let ca = "common_tls_context: { validation_context: { trusted_ca: { filename: ca.pem } } }";
    let said = said(&outcome(&client(&format!("auto_sni_san_validation: true\n{ca}"))));
    assert!(said.starts_with("envoy.yaml:9:34: error[conflict]: no name is asked for"), "{said}");
}

/// Envoy says so, too, when it builds the context.
#[test]
fn must_staple_wants_a_staple_for_every_certificate() {
    let context = format!("ocsp_staple_policy: MUST_STAPLE\ncommon_tls_context: {{ {CERTIFICATE} }}");
    let said = said(&outcome(&server(TCP, &context)));
    let text = format!(
        "envoy.yaml:17:31: error[missing-staple]: every certificate needs an `ocsp_staple` then, and \
         {CHAIN}.common_tls_context.tls_certificates[0] has none"
    );
    assert!(said.starts_with(&text), "{said}");
}

#[test]
fn a_client_has_envoys_defaults() {
    let outcome = outcome(&client("sni: backend.example"));
    let snapshot = common::snapshot(&outcome);
    let tls = upstream(&snapshot);
    assert_eq!(tls.origin, Origin(CLUSTER.into()));
    assert_eq!((tls.sni.as_deref(), tls.max_sessions), (Some("backend.example"), 1));
    assert!(tls.certificate.is_none() && tls.common.validation.is_none());
    assert!(!tls.endpoint_sni && !tls.request_sni && !tls.verify_sni);
    assert_eq!(
        said(&outcome),
        "envoy.yaml:8:9: warning[unverified-upstream]: the upstream's certificate is not verified: whoever answers is trusted
  |
8 |         \"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
  |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  = path: static_resources.clusters[0].transport_socket.typed_config.common_tls_context
  = help: add `validation_context: { trusted_ca: { filename: … } }` to `common_tls_context`

1 warning
"
    );
}

#[test]
fn tls_1_3_with_upstreams_is_told_as_a_difference() {
    let ids = |context: &str| {
        let outcome = outcome(&client(context));
        assert!(outcome.snapshot.is_some(), "{}", said(&outcome));
        let of_tls = |id: &str| id == "upstream-tls-1.3";
        outcome
            .differences
            .iter()
            .filter(|difference| of_tls(difference.id))
            .map(|difference| difference.restore)
            .collect::<Vec<_>>()
    };
    let line = "tls_maximum_protocol_version: TLSv1_2";
    assert_eq!(ids(""), [format!("common_tls_context: {{ tls_params: {{ {line} }} }}")]);
    assert_eq!(ids("common_tls_context: {}"), [format!("tls_params: {{ {line} }}")]);
    assert_eq!(ids("common_tls_context: { tls_params: {} }"), [line]);
    assert!(ids(&format!("common_tls_context: {{ tls_params: {{ {line} }} }}")).is_empty());
    assert!(ids("common_tls_context: { tls_params: { tls_minimum_protocol_version: TLSv1_3 } }").is_empty());
}

#[test]
fn every_field_of_a_client_has_its_meaning() {
    let context = format!(
        r#"
auto_host_sni: true
auto_sni_san_validation: true
max_session_keys: 0
allow_renegotiation: false
common_tls_context:
  {CERTIFICATE}
  alpn_protocols: [h2]
  validation_context: {{ system_root_certs: {{}}, suppress_client_ca_list: true }}
"#
    );
    let outcome = outcome(&client(&context));
    assert_eq!(said(&outcome), "");
    let snapshot = outcome.snapshot.unwrap();
    let tls = upstream(&snapshot);
    assert!(tls.endpoint_sni && tls.verify_sni && !tls.request_sni);
    assert_eq!((tls.max_sessions, &tls.sni), (0, &None));
    assert_eq!(tls.certificate.as_ref().unwrap().key, file("a.key"));
    assert_eq!(tls.common.alpn, ["h2"]);
    assert_eq!(tls.common.validation.as_ref().unwrap().roots, Roots::System);
}

#[test]
fn names_from_requests_are_asked_for_and_verified() {
    let options = |options: &str, trust: &str| {
        let text = client(&format!("common_tls_context: {{ {trust} }}"));
        let options = format!(
            r#"    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{ http_protocol_options: {{}} }}
        upstream_http_protocol_options: {{ {options} }}
"#
        );
        let outcome = outcome(&format!("{text}{options}"));
        let said = said(&outcome);
        let snapshot = outcome.snapshot.unwrap_or_else(|| panic!("{said}"));
        let tls = upstream(&snapshot);
        (tls.request_sni, tls.verify_sni, said)
    };
    let ca = "validation_context: { trusted_ca: { filename: ca.pem } }";
    let (sni, verify, said) = options("auto_sni: true, auto_san_validation: true", ca);
    assert_eq!((sni, verify, said.as_str()), (true, true, ""));
    let (sni, verify, said) = options("auto_sni: true", ca);
    assert!(sni && !verify && said.contains("warning[unverified-name]"), "{said}");
    let (sni, verify, said) = options("auto_sni: true, auto_san_validation: true", "");
    assert!(
        sni && !verify && said.contains("`auto_san_validation` has no effect: the cluster has no `trusted_ca`"),
        "{said}"
    );
}

#[test]
fn names_from_requests_have_no_meaning_without_tls() {
    let text = "static_resources: { clusters: [{ name: c, upstream_http_protocol_options: { auto_sni: true } }] }";
    let outcome = outcome(text);
    let snapshot = common::snapshot(&outcome);
    assert!(snapshot.clusters[0].tls.is_none());
    assert!(outcome.report().text(&outcome.sources).contains("connections to this cluster are not encrypted"));
}

#[test]
fn an_address_as_server_name_is_kept_for_the_certificate() {
    let snapshot = snapshot(&client("sni: 10.0.0.1"));
    assert_eq!(upstream(&snapshot).sni.as_deref(), Some("10.0.0.1"));
}

#[test]
fn spiffe_trust_domains_have_roots_of_their_own() {
    let context = r#"
common_tls_context:
  validation_context:
    allow_expired_certificate: true
    match_typed_subject_alt_names: [{ san_type: URI, matcher: { exact: "spiffe://a.example/x" } }]
    custom_validator_config:
      name: envoy.tls.cert_validator.spiffe
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.SPIFFECertValidatorConfig
        trust_domains:
        - { name: a.example, trust_bundle: { filename: a.pem } }
        - { name: b.example, trust_bundle: { inline_string: B } }
"#;
    let outcome = outcome(&client(context));
    assert_eq!(said(&outcome), "");
    let snapshot = outcome.snapshot.unwrap();
    let validation = upstream(&snapshot).common.validation.as_ref().unwrap();
    let domains = vec![("a.example".to_owned(), file("a.pem")), ("b.example".to_owned(), Data::Inline(b"B".to_vec()))];
    assert_eq!(validation.roots, Roots::TrustDomains(domains));
    assert!(validation.allow_expired);
    assert_eq!(names(&validation.names), [r#"Uri Exact("spiffe://a.example/x")"#]);
}

#[test]
fn trust_bundles_take_the_place_of_trust_domains() {
    let context = r#"
common_tls_context:
  validation_context:
    custom_validator_config:
      name: envoy.tls.cert_validator.spiffe
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.SPIFFECertValidatorConfig
        trust_domains: [{ name: unseen.example }]
        trust_bundles: { filename: bundles.json }
"#;
    let outcome = outcome(&client(context));
    assert_eq!(said(&outcome), "");
    let snapshot = outcome.snapshot.unwrap();
    let validation = upstream(&snapshot).common.validation.as_ref().unwrap();
    assert_eq!(validation.roots, Roots::TrustBundles(file("bundles.json")));
}

#[test]
fn names_of_a_kind_of_their_own_want_an_identifier() {
    let context = |oid: &str| {
        format!(
            "common_tls_context: {{ {CERTIFICATE}, validation_context: {{ trusted_ca: {{ filename: ca.pem }}, \
             suppress_client_ca_list: true, \
             match_typed_subject_alt_names: [{{ san_type: OTHER_NAME, {oid} matcher: {{ exact: a }} }}] }} }}\n\
             require_client_certificate: true"
        )
    };
    let outcome_of = |oid: &str| outcome(&server(TCP, &context(oid)));
    let good = outcome_of("oid: 1.3.6.1,");
    let snapshot = good.snapshot.as_ref().unwrap_or_else(|| panic!("{}", said(&good)));
    let validation = downstream(snapshot).common.validation.as_ref().unwrap();
    assert_eq!(names(&validation.names), [r#"Other("1.3.6.1") Exact("a")"#]);
    assert!(validation.hides_roots);
    for bad in ["", "oid: '1',", "oid: 3.1,", "oid: 1.x,", "oid: 1.01,", "oid: '1.2.',"] {
        let said = said(&outcome_of(bad));
        assert!(said.contains("error[invalid-value]") && said.contains("an object identifier is wanted"), "{said}");
    }
}

/// From the package's folder, where tests run.
const SECRETS: &str =
    "sds_config: { path_config_source: { path: tests/tls/secrets.yaml, watched_directory: { path: tests } } }";

#[test]
fn secrets_come_from_files() {
    let context = format!(
        r#"
require_client_certificate: true
session_ticket_keys_sds_secret_config: {{ name: tickets, {SECRETS} }}
common_tls_context:
  tls_certificate_sds_secret_configs: [{{ name: server, {SECRETS} }}]
  combined_validation_context:
    default_validation_context:
      trusted_ca: {{ filename: other.pem }}
      match_typed_subject_alt_names: [{{ san_type: DNS, matcher: {{ exact: a.example }} }}]
      only_verify_leaf_cert_crl: true
      max_verify_depth: 2
    validation_context_sds_secret_config: {{ name: ca, {SECRETS} }}
"#
    );
    let outcome = outcome(&server(TCP, &context));
    assert_eq!(said(&outcome), "");
    assert_eq!(outcome.files(), [PathBuf::from("tests/tls/secrets.yaml")]);
    let snapshot = outcome.snapshot.clone().unwrap();
    let tls = downstream(&snapshot);
    assert_eq!(tls.tickets, SessionTickets::Keys(vec![file("tls/new.key"), file("tls/old.key")]));
    let certificate = &tls.certificates[0];
    assert_eq!(certificate.chain, file("tls/server.pem"));
    // Its place is the one in that file.
    assert_eq!(certificate.origin, Origin("tests/tls/secrets.yaml: resources[0].tls_certificate".into()));
    let place = outcome.locate(&certificate.origin.0).and_then(|span| outcome.sources.location(span)).unwrap();
    assert_eq!((place.0.name(), place.1.line), ("tests/tls/secrets.yaml", 5));
    // The secret is laid over the default as protocol buffers merge.
    let validation = tls.common.validation.as_ref().unwrap();
    assert_eq!(validation.roots, Roots::Pem(file("tls/ca.pem")));
    assert_eq!(names(&validation.names), [r#"Dns Exact("a.example")"#, r#"Uri Prefix("spiffe://a.example/")"#]);
    assert!(validation.allow_expired && validation.revocation_of_leaf_only);
    assert_eq!(validation.max_depth, Some(2));
    let report = outcome.report();
    assert_eq!(report.counts.unsupported, 0);
    let text = report.text(&outcome.sources);
    assert!(text.contains("resources[3].generic_secret: nothing asks for the secret `unused`"), "{text}");
    assert!(text.contains("trusted_ca: the secret that is laid over it says otherwise"), "{text}");
}

#[test]
fn secrets_come_from_the_bootstrap() {
    let context = r#"
require_client_certificate: true
common_tls_context:
  tls_certificate_sds_secret_configs: [{ name: s }]
  validation_context_sds_secret_config: { name: s }
"#;
    let text = server(TCP, context).replace(
        "static_resources:",
        r#"static_resources:
  secrets:
  - name: s
    tls_certificate: { certificate_chain: { filename: s.pem }, private_key: { filename: s.key } }
  - name: s
    validation_context: { trusted_ca: { filename: s-ca.pem } }
  - name: unused
    generic_secret: { secret: { inline_string: x } }"#,
    );
    let outcome = outcome(&text);
    assert_eq!(said(&outcome), "");
    let snapshot = outcome.snapshot.clone().unwrap();
    let tls = downstream(&snapshot);
    assert_eq!(tls.certificates[0].origin, Origin("static_resources.secrets[0].tls_certificate".into()));
    assert_eq!(tls.common.validation.as_ref().unwrap().roots, Roots::Pem(file("s-ca.pem")));
    assert_eq!(outcome.report().counts.unsupported, 0);
    // Keys are never shown.
    let dump = serde_json::to_string(&outcome.dump().sections("now", Default::default())).unwrap();
    assert!(dump.contains("s.pem") && !dump.contains("s.key"), "{dump}");
}

#[test]
fn who_uses_a_key_can_refuse_it_where_it_is_named() {
    let context =
        format!("common_tls_context: {{ tls_certificate_sds_secret_configs: [{{ name: server, {SECRETS} }}] }}");
    let mut outcome = outcome(&server(TCP, &context));
    let origin = downstream(outcome.snapshot.as_ref().unwrap()).certificates[0].origin.clone();
    outcome.refuse(&origin, "invalid-certificate", "the key does not fit");
    assert!(outcome.snapshot.is_none());
    assert!(said(&outcome).starts_with("tests/tls/secrets.yaml:5:"), "{}", said(&outcome));
}

/// A listener with a chain that has this match, and these fields.
fn matching(criteria: &str, listener: &str) -> (ChainMatch, Inspection) {
    let text = format!(
        r#"
static_resources:
  listeners:
  - address: {{ socket_address: {{ address: 127.0.0.1, port_value: 1 }} }}
    {listener}
    filter_chains:
    - filter_chain_match: {{ {criteria} }}
      filters:{TCP}
  clusters: [{{ name: c }}]
"#
    );
    let snapshot = snapshot(&text);
    let listener = &snapshot.listeners[0];
    (listener.filter_chains[0].matches.clone(), listener.inspection.clone())
}

#[test]
fn a_chain_is_chosen_by_what_tls_says() {
    let (criteria, _) = matching(
        "server_names: [A.Example, \"*.b.example\"], transport_protocol: tls, application_protocols: [h2, istio]",
        "",
    );
    assert_eq!(criteria.server_names, ["a.example", "*.b.example"]);
    assert_eq!(criteria.transport, TransportMatch::Tls);
    assert_eq!(criteria.application_protocols, ["h2", "istio"]);
    let (criteria, inspection) = matching("transport_protocol: raw_buffer", "");
    assert_eq!((criteria.transport, inspection), (TransportMatch::Raw, Inspection::default()));
    let (criteria, inspection) = matching("transport_protocol: quic, application_protocols: [h3]", "");
    assert_eq!((criteria.transport, inspection), (TransportMatch::Quic, Inspection::default()));
}

#[test]
fn chains_that_only_tls_tells_apart_are_no_duplicates() {
    let text = server(TCP, &format!("common_tls_context: {{ {CERTIFICATE} }}")).replace(
        "    filter_chains:",
        &format!("    filter_chains:\n    - filter_chain_match: {{ server_names: [a] }}\n      filters:{TCP}"),
    );
    assert!(snapshot(&text).listeners[0].inspection.tls);
    let twice = text.replace("    - filters", "    - filter_chain_match: { server_names: [b, A] }\n      filters");
    assert!(said(&outcome(&twice)).contains("error[duplicate-match]"));
}

#[test]
fn the_greeting_is_looked_at_where_a_chain_needs_it() {
    let seconds = |n| Some(Duration::from_secs(n));
    for criteria in ["server_names: [a.example]", "application_protocols: [x]", "transport_protocol: tls"] {
        let (_, inspection) = matching(criteria, "");
        assert_eq!(inspection, Inspection { tls: true, timeout: seconds(15), ..Inspection::default() }, "{criteria}");
    }
    let (_, inspection) = matching("application_protocols: [x], transport_protocol: raw_buffer", "");
    assert_eq!(inspection, Inspection::default());
    let filters = r#"listener_filters:
    - name: envoy.filters.listener.tls_inspector
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector
        enable_ja3_fingerprinting: true
        enable_ja4_fingerprinting: true
        initial_read_buffer_size: 512
        max_client_hello_size: 8192
    - name: envoy.filters.listener.http_inspector
      typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.listener.http_inspector.v3.HttpInspector }
    listener_filters_timeout: 0s
    continue_on_listener_filters_timeout: true"#;
    let (_, inspection) = matching("", filters);
    let all = Inspection {
        original_destination: false,
        proxy: None,
        tls: true,
        http: true,
        ja3: true,
        ja4: true,
        timeout: None,
        continue_on_timeout: true,
        ..Inspection::default()
    };
    assert_eq!(inspection, all);
}

/// Each block of the page that is a whole configuration.
#[test]
fn the_examples_of_the_page_are_accepted_without_a_word() {
    let page = include_str!("../../../../docs/tls.md");
    let blocks: Vec<&str> = page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let whole = blocks.iter().filter(|block| block.contains("listeners:"));
    for block in whole.clone() {
        let outcome = outcome(block);
        assert_eq!(said(&outcome), "");
        assert!(outcome.snapshot.is_some());
    }
    assert_eq!(whole.count(), 2);
}
