//! `CommonTlsContext` but its certificates: versions, cipher suites, groups, ALPN, the key log, and who is trusted.

use postrider_config_core::{Severity, nearest};
use postrider_model::{KeyLog, TlsCommon, TlsVersion};

use super::validation;
use crate::known::VERSION;
use crate::lower::chain_match;
use crate::lower::context::{Lowering, element_diagnostic};
use crate::reader::{Element, Reader};

/// The suites of TLS 1.2 that are supported: BoringSSL's names and IANA's.
const SUITES: [(&str, &str); 6] = [
    ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
    ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
    ("ECDHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
    ("ECDHE-RSA-AES256-GCM-SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
    ("ECDHE-RSA-CHACHA20-POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
];

/// What else BoringSSL knows: without forward secrecy, or in CBC mode.
const WEAK_SUITES: [&str; 16] = [
    "AES128-GCM-SHA256",
    "AES128-SHA",
    "AES128-SHA256",
    "AES256-GCM-SHA384",
    "AES256-SHA",
    "AES256-SHA256",
    "DES-CBC3-SHA",
    "ECDHE-ECDSA-AES128-SHA",
    "ECDHE-ECDSA-AES128-SHA256",
    "ECDHE-ECDSA-AES256-SHA",
    "ECDHE-ECDSA-AES256-SHA384",
    "ECDHE-RSA-AES128-SHA",
    "ECDHE-RSA-AES128-SHA256",
    "ECDHE-RSA-AES256-SHA",
    "ECDHE-RSA-AES256-SHA384",
    "ECDHE-PSK-CHACHA20-POLY1305",
];

/// Of TLS 1.3. They cannot be chosen, here or in Envoy.
const SUITES_13: [&str; 3] = ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];

/// The names of groups, and their other names in BoringSSL.
const GROUPS: [(&str, &str); 4] =
    [("X25519MLKEM768", ""), ("X25519", "x25519"), ("P-256", "prime256v1"), ("P-384", "secp384r1")];

/// Groups that BoringSSL has and we lack.
const OTHER_GROUPS: [&str; 5] = ["P-521", "secp521r1", "MLKEM1024", "X25519Kyber768Draft00", "P-224"];

/// HTTP/2 in ALPN.
const H2: &str = "h2";

/// Extensions and control planes that take the place of what is configured here.
const REPLACEMENTS: [(&str, &str); 7] = [
    ("custom_handshaker", "another TLS implementation"),
    ("custom_tls_certificate_selector", "choosing certificates by an extension"),
    ("tls_certificate_provider_instance", "certificates of a certificate provider"),
    ("tls_certificate_certificate_provider", "certificates of a certificate provider"),
    ("tls_certificate_certificate_provider_instance", "certificates of a certificate provider"),
    ("validation_context_certificate_provider", "a CA of a certificate provider"),
    ("validation_context_certificate_provider_instance", "a CA of a certificate provider"),
];

/// On which side of a connection a context stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// `http1_only`: HTTP/1 and nothing else is spoken over it.
    Server {
        http1_only: bool,
    },
    Client,
}

pub(super) fn common(cx: &mut Lowering<'_>, at: Option<&Reader<'_>>, side: Side) -> TlsCommon {
    let Some(at) = at else { return TlsCommon::default() };
    for (field, what) in REPLACEMENTS {
        if at.has(field) {
            cx.refuse(at, field, what);
        }
    }
    let mut common = TlsCommon::default();
    if let Some(params) = at.message("tls_params") {
        parameters(cx, &params, &mut common);
    }
    common.alpn = alpn(cx, at, side);
    common.key_log = at.message("key_log").map(|log| KeyLog {
        path: log.str("path").into(),
        local: chain_match::ranges(cx, &log, "local_address_range"),
        remote: chain_match::ranges(cx, &log, "remote_address_range"),
    });
    common.validation = validation::of_context(cx, at, side);
    common
}

fn parameters(cx: &mut Lowering<'_>, at: &Reader<'_>, common: &mut TlsCommon) {
    common.min_version = version(cx, at, "tls_minimum_protocol_version");
    common.max_version = version(cx, at, "tls_maximum_protocol_version");
    if common.min_version == TlsVersion::Tls13 && common.max_version == TlsVersion::Tls12 {
        let text = "the highest version is below the lowest, so no handshake would succeed";
        cx.error(at, "tls_maximum_protocol_version", "conflict", text);
    }
    common.cipher_suites = listed(cx, at, "cipher_suites", suite);
    if common.min_version == TlsVersion::Tls13 {
        cx.no_effect(at, "cipher_suites", "the suites of TLS 1.3 cannot be chosen, and nothing lower is allowed");
        common.cipher_suites.clear();
    }
    common.groups = listed(cx, at, "ecdh_curves", group);
    if at.has("signature_algorithms") {
        cx.refuse(at, "signature_algorithms", "choosing signature algorithms");
    }
    if at.has("compliance_policies") {
        cx.refuse(at, "compliance_policies", "compliance policies (FIPS, CNSA)");
    }
}

fn version(cx: &mut Lowering<'_>, at: &Reader<'_>, field: &str) -> TlsVersion {
    match at.enum_name(field).as_str() {
        "TLSv1_2" => TlsVersion::Tls12,
        "TLSv1_3" => TlsVersion::Tls13,
        old @ ("TLSv1_0" | "TLSv1_1") => {
            let text = format!(
                "TLS {} is not supported: TLS begins at 1.2 here, as RFC 8996 asks for",
                old.replace("TLSv1_", "1.")
            );
            let mut diagnostic =
                at.diagnostic_at(field, Severity::Error, "unsupported-value", text).expected("`TLSv1_2` or `TLSv1_3`");
            if let Some(span) = at.as_message().field(field).and_then(|field| field.value_span) {
                diagnostic = diagnostic.fix(span, "TLSv1_2", "write `TLSv1_2`");
            }
            cx.push(diagnostic);
            TlsVersion::Auto
        }
        _ => TlsVersion::Auto,
    }
}

/// The names of a list whose elements may be lists themselves, without repetitions: `A:B`, and `[A|B]` for names of
/// equal preference.
fn listed(
    cx: &mut Lowering<'_>,
    at: &Reader<'_>,
    field: &str,
    name: fn(&mut Lowering<'_>, &Reader<'_>, &Element<&str>, &str) -> Option<&'static str>,
) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for element in at.strings(field) {
        for part in element.value.split([':', '|', '[', ']']).map(str::trim).filter(|part| !part.is_empty()) {
            if let Some(name) = name(cx, at, &element, part)
                && !all.iter().any(|known| known == name)
            {
                all.push(name.to_owned());
            }
        }
    }
    all
}

fn suite(cx: &mut Lowering<'_>, at: &Reader<'_>, element: &Element<&str>, name: &str) -> Option<&'static str> {
    if let Some((_, iana)) = SUITES.iter().find(|(own, iana)| name == *own || name == *iana) {
        return Some(iana);
    }
    let supported = SUITES.map(|(own, _)| own);
    let diagnostic = if SUITES_13.contains(&name) {
        let text = format!("`{name}` belongs to TLS 1.3, whose suites are always on");
        element_diagnostic(at, "cipher_suites", element, "invalid-value", text).help("leave it out")
    } else if WEAK_SUITES.contains(&name) {
        let text =
            format!("the cipher suite `{name}`, which is weak: known to Envoy, not supported by Postrider {VERSION}");
        element_diagnostic(at, "cipher_suites", element, "unsupported-value", text)
            .note("only suites with forward secrecy (ECDHE) and authenticated encryption (GCM, Poly1305) are supported")
    } else {
        let text = format!("there is no cipher suite `{name}`");
        element_diagnostic(at, "cipher_suites", element, "invalid-value", text)
            .suggest(nearest(name, supported.iter().copied()))
    };
    cx.push(diagnostic.expected(format!("one of: {}", supported.join(", "))));
    None
}

fn group(cx: &mut Lowering<'_>, at: &Reader<'_>, element: &Element<&str>, name: &str) -> Option<&'static str> {
    if let Some((own, _)) = GROUPS.iter().find(|(own, other)| name == *own || name == *other) {
        return Some(own);
    }
    let supported = GROUPS.map(|(own, _)| own);
    let diagnostic = if OTHER_GROUPS.contains(&name) {
        let text = format!("the group `{name}`: known to Envoy, not supported by Postrider {VERSION}");
        element_diagnostic(at, "ecdh_curves", element, "unsupported-value", text)
    } else {
        let text = format!("there is no group `{name}`");
        element_diagnostic(at, "ecdh_curves", element, "invalid-value", text)
            .suggest(nearest(name, supported.iter().copied()))
    };
    cx.push(diagnostic.expected(format!("one of: {}", supported.join(", "))));
    None
}

/// Elements may hold several protocols with commas between.
fn alpn(cx: &mut Lowering<'_>, at: &Reader<'_>, side: Side) -> Vec<String> {
    const FIELD: &str = "alpn_protocols";
    let mut all = Vec::new();
    let mut left_out = None;
    for element in at.strings(FIELD) {
        for protocol in element.value.split(',') {
            if protocol.is_empty() || protocol.len() > 255 {
                let text =
                    format!("`{}` is no list of protocols: each has 1 to 255 bytes (RFC 7301, 3.1)", element.value);
                cx.element_error(at, FIELD, &element, "invalid-value", text);
            } else if protocol == H2 && side == (Side::Server { http1_only: true }) {
                left_out = Some(element);
            } else {
                all.push(protocol.to_owned());
            }
        }
    }
    // A client that is offered HTTP/2 takes it.
    if let Some(element) = left_out {
        let diagnostic = if all.is_empty() {
            let text = "a client that takes `h2` is not understood: this chain speaks HTTP/1 only";
            element_diagnostic(at, FIELD, &element, "conflict", text).expected("`http/1.1`")
        } else {
            let text = "`h2` is not offered to clients: this chain speaks HTTP/1 only";
            let mut diagnostic = element_diagnostic(at, FIELD, &element, "no-effect", text);
            diagnostic.severity = Severity::Warning;
            at.approximate(FIELD, "`h2` is not offered: the chain speaks HTTP/1 only");
            diagnostic
        };
        cx.push(diagnostic);
    }
    all
}
