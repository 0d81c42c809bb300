//! Which certificates of the other side are good (`CertificateValidationContext`).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_config_core::Severity;
use postrider_model::{Data, NameKind, NameMatch, Roots, StringMatch, Validation};

use super::parameters::Side;
use crate::lower::context::{Lowering, element_diagnostic, origin};
use crate::lower::{data, matchers, secrets};
use crate::reader::Reader;

const SPIFFE: &str = "envoy.extensions.transport_sockets.tls.v3.SPIFFECertValidatorConfig";

/// What has no meaning beside another validator.
const ONLY_BY_DEFAULT: [&str; 9] = [
    "trusted_ca",
    "system_root_certs",
    "verify_certificate_spki",
    "verify_certificate_hash",
    "crl",
    "only_verify_leaf_cert_crl",
    "max_verify_depth",
    "trust_chain_verification",
    "match_subject_alt_names",
];

/// The validation context of a `CommonTlsContext`; `None` when there is none, and after an error.
pub(super) fn of_context(cx: &mut Lowering<'_>, at: &Reader<'_>, side: Side) -> Option<Validation> {
    let mut name = None;
    let layers = match at.oneof("validation_context_type")? {
        "validation_context" => vec![at.message("validation_context")?],
        "validation_context_sds_secret_config" => {
            let config = at.message("validation_context_sds_secret_config")?;
            name = Some(config.str("name").to_owned());
            vec![secrets::find(cx, &config, "validation_context")?]
        }
        "combined_validation_context" => {
            let combined = at.message("combined_validation_context")?;
            for field in ["validation_context_certificate_provider", "validation_context_certificate_provider_instance"]
            {
                if combined.has(field) {
                    cx.refuse(&combined, field, "a CA of a certificate provider");
                }
            }
            let config = combined.message("validation_context_sds_secret_config")?;
            name = Some(config.str("name").to_owned());
            let secret = secrets::find(cx, &config, "validation_context");
            let default = combined.message("default_validation_context")?;
            let Some(secret) = secret else {
                // What is wrong with one part of two cannot be told.
                default.read_whole();
                return None;
            };
            vec![default, secret]
        }
        _ => return None, // A certificate provider, which is refused.
    };
    validation(cx, &Layers(&layers), side).map(|validation| Validation { name, ..validation })
}

/// Contexts laid over each other as `MergeFrom` does: the last counts, lists are appended, and what is true anywhere
/// is.
struct Layers<'l, 'm>(&'l [Reader<'m>]);

impl<'l, 'm> Layers<'l, 'm> {
    /// The one that says what `field` is.
    fn with(&self, field: &str) -> Option<&'l Reader<'m>> {
        let mut setting = self.0.iter().rev().filter(|layer| layer.has(field));
        let last = setting.next()?;
        setting.for_each(|layer| layer.ignore(field, "the secret that is laid over it says otherwise"));
        Some(last)
    }

    fn bool(&self, field: &str) -> bool {
        self.0.iter().fold(false, |any, layer| any | layer.bool(field))
    }

    fn ignore(&self, field: &str, why: &str) {
        self.0.iter().for_each(|layer| layer.ignore(field, why));
    }

    /// For what is missing in all of them.
    fn is_broken(&self, cx: &Lowering<'_>) -> bool {
        self.0.iter().any(|layer| cx.is_broken(layer.path()))
    }
}

fn validation(cx: &mut Lowering<'_>, layers: &Layers<'_, '_>, side: Side) -> Option<Validation> {
    let errors = cx.diagnostics.errors();
    layers.ignore("watched_directory", "the files are watched anyway");
    if let Some(at) = layers.with("require_signed_certificate_timestamp")
        && at.bool_wrapper("require_signed_certificate_timestamp") == Some(true)
    {
        cx.refuse_value(at, "require_signed_certificate_timestamp", "signed certificate timestamps");
    }
    if let Side::Client = side {
        layers.ignore("suppress_client_ca_list", "it is about servers");
    }
    let allow_expired = layers.bool("allow_expired_certificate");
    let mut validation = Validation {
        roots: Roots::None,
        names: Vec::new(),
        key_hashes: Vec::new(),
        certificate_hashes: Vec::new(),
        revocation_list: None,
        max_depth: None,
        name: None,
        revocation_of_leaf_only: false,
        allow_expired,
        accept_untrusted: false,
        hides_roots: layers.bool("suppress_client_ca_list"),
        origin: layers.0.first().map(origin).unwrap_or_default(),
    };
    if let Some(at) = layers.with("custom_validator_config") {
        validation.roots = custom(cx, at).unwrap_or(Roots::None);
        validation.names = spiffe_names(cx, layers);
        for layer in layers.0 {
            for field in ONLY_BY_DEFAULT {
                cx.no_effect(layer, field, "the SPIFFE validator does not look at it");
            }
        }
    } else {
        by_default(cx, layers, &mut validation);
    }
    (cx.diagnostics.errors() == errors).then_some(validation)
}

/// What Envoy's own validator looks at.
fn by_default(cx: &mut Lowering<'_>, layers: &Layers<'_, '_>, validation: &mut Validation) {
    if let Some(at) = layers.with("ca_certificate_provider_instance") {
        cx.refuse(at, "ca_certificate_provider_instance", "a CA of a certificate provider");
    }
    if let Some(at) = layers.with("trusted_ca") {
        layers.ignore("system_root_certs", "`trusted_ca` takes its place");
        validation.roots = data::named(cx, at, "trusted_ca").map_or(Roots::None, Roots::Pem);
    } else if layers.with("system_root_certs").is_some() {
        validation.roots = Roots::System;
    } else if layers.with("ca_certificate_provider_instance").is_none() {
        without_roots(cx, layers);
    }
    validation.names = names(cx, layers);
    for at in layers.0 {
        validation.key_hashes.extend(key_hashes(cx, at));
        validation.certificate_hashes.extend(certificate_hashes(cx, at));
    }
    validation.revocation_list = layers.with("crl").and_then(|at| data::named(cx, at, "crl"));
    validation.revocation_of_leaf_only = layers.bool("only_verify_leaf_cert_crl");
    if let Some(at) = layers.with("max_verify_depth") {
        validation.max_depth = depth(cx, at);
    }
    validation.accept_untrusted = layers
        .with("trust_chain_verification")
        .is_some_and(|at| at.enum_name("trust_chain_verification") == "ACCEPT_UNTRUSTED");
}

/// What means nothing when certificates are not traced back to a CA.
fn without_roots(cx: &mut Lowering<'_>, layers: &Layers<'_, '_>) {
    if layers.is_broken(cx) {
        return;
    }
    for (field, text) in [
        (
            "match_typed_subject_alt_names",
            "a certificate's name says nothing without a CA: anybody can issue one with it",
        ),
        ("match_subject_alt_names", "a certificate's name says nothing without a CA: anybody can issue one with it"),
        ("crl", "certificates are revoked by their CA, and there is none"),
        ("allow_expired_certificate", "without a CA no certificate expires"),
    ] {
        let Some(at) = layers.0.iter().find(|layer| layer.has(field)) else { continue };
        let diagnostic = at
            .diagnostic_at(field, Severity::Error, "missing-ca", text)
            .at(at.key_span_of(field))
            .expected("`trusted_ca: { filename: … }` beside it");
        cx.push(diagnostic);
    }
}

/// Envoy counts the root, too.
fn depth(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<u32> {
    match at.u32_wrapper("max_verify_depth")?.checked_sub(1) {
        Some(between) => Some(between),
        None => {
            let text = "with a depth of 0 not even a certificate that a CA signed itself is good";
            let diagnostic = at.diagnostic_at("max_verify_depth", Severity::Error, "unsupported-value", text);
            cx.push(diagnostic.expected("1 for certificates that a CA signed itself, or more"));
            None
        }
    }
}

fn key_hashes(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Vec<[u8; 32]> {
    const FIELD: &str = "verify_certificate_spki";
    let mut all = Vec::new();
    for element in at.strings(FIELD) {
        match STANDARD.decode(element.value).map(<[u8; 32]>::try_from) {
            Ok(Ok(hash)) => all.push(hash),
            _ => {
                let text = format!("`{}` is no SHA-256 in base64", element.value);
                let diagnostic = element_diagnostic(at, FIELD, &element, "invalid-hash", text)
                    .expected("the base64 of 32 bytes: 44 characters, the last of them `=`");
                cx.push(diagnostic);
            }
        }
    }
    all
}

fn certificate_hashes(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Vec<[u8; 32]> {
    const FIELD: &str = "verify_certificate_hash";
    let mut all = Vec::new();
    for element in at.strings(FIELD) {
        match hex(element.value) {
            Some(hash) => all.push(hash),
            None => {
                let text = format!("`{}` is no SHA-256 in hexadecimal", element.value);
                let diagnostic = element_diagnostic(at, FIELD, &element, "invalid-hash", text)
                    .expected("64 hexadecimal digits, with or without a colon between every two");
                cx.push(diagnostic);
            }
        }
    }
    all
}

/// 32 bytes in hexadecimal: all digits in a row, or a colon between all bytes.
fn hex(text: &str) -> Option<[u8; 32]> {
    let bytes = if text.contains(':') {
        text.split(':').map(|byte| digits(byte.as_bytes())).collect::<Option<Vec<u8>>>()
    } else {
        text.as_bytes().chunks(2).map(digits).collect()
    };
    bytes?.try_into().ok()
}

fn digits(pair: &[u8]) -> Option<u8> {
    let [high, low] = pair else { return None };
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

fn names(cx: &mut Lowering<'_>, layers: &Layers<'_, '_>) -> Vec<NameMatch> {
    let typed = layers.0.iter().any(|layer| layer.has("match_typed_subject_alt_names"));
    let mut all = Vec::new();
    for at in layers.0 {
        for matcher in at.list("match_typed_subject_alt_names") {
            all.extend(typed_name(cx, &matcher));
        }
        if typed {
            cx.no_effect(at, "match_subject_alt_names", "`match_typed_subject_alt_names` takes its place");
            continue;
        }
        for matcher in at.list("match_subject_alt_names") {
            let Some(value) = condition(cx, &matcher) else { continue };
            let kinds = [NameKind::Dns, NameKind::Uri, NameKind::Email, NameKind::Ip];
            all.extend(kinds.map(|kind| NameMatch { kind, value: value.clone() }));
        }
    }
    all
}

fn typed_name(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<NameMatch> {
    let kind = match at.enum_name("san_type").as_str() {
        "EMAIL" => NameKind::Email,
        "DNS" => NameKind::Dns,
        "URI" => NameKind::Uri,
        "IP_ADDRESS" => NameKind::Ip,
        "OTHER_NAME" => NameKind::Other(identifier(cx, at)?),
        _ => return None, // The schema wants one of them.
    };
    if !matches!(kind, NameKind::Other(_)) {
        at.ignore("oid", "it belongs to the kind OTHER_NAME");
    }
    let value = condition(cx, &at.message("matcher")?)?;
    Some(NameMatch { kind, value })
}

/// `oid` of a name of a kind of its own: numbers with dots between them.
fn identifier(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<String> {
    let text = at.str("oid");
    let mut numbers = text.split('.');
    let is_number = |part: &str| part.parse::<u128>().is_ok_and(|number| number.to_string() == part);
    let first = numbers.next().is_some_and(|first| matches!(first, "0" | "1" | "2"));
    if first && numbers.clone().next().is_some() && numbers.all(is_number) {
        return Some(text.to_owned());
    }
    let said =
        if text.is_empty() { "which name of a kind of its own is meant".to_owned() } else { format!("`{text}`") };
    let diagnostic = at
        .diagnostic_at("oid", Severity::Error, "invalid-value", format!("{said}: an object identifier is wanted"))
        .expected("numbers with dots between them, such as `1.3.6.1.4.1.311.20.2.3`");
    cx.push(diagnostic);
    at.whole("matcher");
    None
}

fn condition(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<StringMatch> {
    if at.has("custom") {
        // There is no request yet whose plugins could be asked.
        cx.refuse(at, "custom", "a plugin that judges names of certificates");
        return None;
    }
    matchers::string(cx, at)
}

/// The roots of another validator.
fn custom(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<Roots> {
    let extension = at.message("custom_validator_config")?;
    extension.str("name");
    let Some(any) = extension.any("typed_config") else {
        cx.missing(&extension, "the validator has no `typed_config`", "a `typed_config` with its `@type`");
        return None;
    };
    let config = any.reader.as_ref()?;
    if any.type_name != SPIFFE {
        cx.refuse_extension(&extension, "typed_config", &any);
        return None;
    }
    if config.has("trust_bundles") {
        config.ignore("trust_domains", "`trust_bundles` takes their place");
        return data::named(cx, config, "trust_bundles").map(Roots::TrustBundles);
    }
    let mut all: Vec<(String, Data)> = Vec::new();
    for domain in config.list("trust_domains") {
        let name = domain.str("name");
        if domain.has("workload_trust_domain") {
            cx.refuse(&domain, "workload_trust_domain", "trust domains by the workload of the connection");
        }
        if name.starts_with("spiffe://") {
            let text = "a trust domain has no scheme";
            let diagnostic = domain.diagnostic_at("name", Severity::Error, "invalid-value", text);
            cx.push(diagnostic.expected(format!("`{}`", name.trim_start_matches("spiffe://"))));
        }
        if all.iter().any(|(known, _)| known == name) {
            cx.error(&domain, "name", "duplicate-name", format!("the trust domain `{name}` is there already"));
            domain.read_whole();
            continue;
        }
        if !domain.has("trust_bundle") {
            let text = format!("the trust domain `{name}` has no certificates");
            cx.missing(&domain, text, "`trust_bundle: { filename: … }`");
        }
        if let Some(bundle) = data::named(cx, &domain, "trust_bundle") {
            all.push((name.to_owned(), bundle));
        }
    }
    Some(Roots::TrustDomains(all))
}

/// The SPIFFE validator looks at URIs only.
fn spiffe_names(cx: &mut Lowering<'_>, layers: &Layers<'_, '_>) -> Vec<NameMatch> {
    let mut all = Vec::new();
    for at in layers.0.iter().flat_map(|layer| layer.list("match_typed_subject_alt_names")) {
        match at.enum_name("san_type").as_str() {
            "URI" => all.extend(typed_name(cx, &at)),
            _ => {
                at.ignore("oid", "it belongs to the kind OTHER_NAME");
                cx.no_effect(&at, "matcher", "the SPIFFE validator looks at URIs only");
            }
        }
    }
    all
}
