//! TLS contexts: `DownstreamTlsContext` and `UpstreamTlsContext`.

mod certificates;
mod parameters;
mod tickets;
mod validation;

use std::time::Duration;

use postrider_config_core::{Diagnostic, Severity};
use postrider_model::{DownstreamTls, OcspPolicy, Roots, TlsCommon, TlsVersion, UpstreamTls, Validation};

use self::parameters::Side;
use super::context::{Lowering, origin, timeout, written};
use super::upstream::RequestNames;
use crate::reader::Reader;

/// `transport_socket_connect_timeout` where it is absent. Envoy waits for ever, so a client that never ends its
/// handshake holds a connection.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(15);

/// `max_session_keys` where it is absent.
const MAX_SESSIONS: u32 = 1;

/// `chain` holds the context `at`; `http1_only` says that the chain speaks HTTP/1 and nothing else behind it.
pub(super) fn downstream(
    cx: &mut Lowering<'_>,
    chain: &Reader<'_>,
    at: &Reader<'_>,
    http1_only: bool,
) -> Option<DownstreamTls> {
    let context = at.message("common_tls_context");
    let common = parameters::common(cx, context.as_ref(), Side::Server { http1_only });
    let certificates = certificates::of_server(cx, at, context.as_ref());
    let ocsp = ocsp(cx, at, certificates.as_deref().unwrap_or_default());
    let require_client_certificate = client_certificate(cx, at, &common, context.as_ref());
    preferences(cx, at, &common);
    let tickets = tickets::tickets(cx, at);
    let stateful_resumption = !at.bool("disable_stateful_session_resumption");
    let session_timeout = session_timeout(at);
    let handshake_timeout = handshake_timeout(cx, chain);
    Some(DownstreamTls {
        common,
        certificates: certificates?,
        require_client_certificate,
        prefers_client_ciphers: at.bool("prefer_client_ciphers"),
        tickets: tickets?,
        stateful_resumption,
        session_timeout,
        ocsp,
        // Without a certificate for a name, Envoy answers with the first.
        refuse_unknown_names: false,
        handshake_timeout,
        origin: origin(at),
    })
}

fn handshake_timeout(cx: &mut Lowering<'_>, chain: &Reader<'_>) -> Option<Duration> {
    const FIELD: &str = "transport_socket_connect_timeout";
    if chain.duration(FIELD).is_none() {
        cx.differs(
            chain,
            "handshake-timeout",
            "a client that has not ended its TLS handshake after 15 s is disconnected",
            "transport_socket_connect_timeout: 0s",
        );
    }
    timeout(chain, FIELD, Some(HANDSHAKE_TIMEOUT))
}

/// Whole seconds; 0 is the default, as in BoringSSL.
fn session_timeout(at: &Reader<'_>) -> Option<Duration> {
    let seconds = at.duration("session_timeout")?.as_secs();
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

fn ocsp(cx: &mut Lowering<'_>, at: &Reader<'_>, certificates: &[postrider_model::Certificate]) -> OcspPolicy {
    match at.enum_name("ocsp_staple_policy").as_str() {
        "STRICT_STAPLING" => OcspPolicy::Strict,
        "MUST_STAPLE" => {
            for bare in certificates.iter().filter(|certificate| certificate.ocsp_staple.is_none()) {
                let text = format!("every certificate needs an `ocsp_staple` then, and {} has none", bare.origin.0);
                cx.error(at, "ocsp_staple_policy", "missing-staple", text);
            }
            OcspPolicy::Must
        }
        _ => OcspPolicy::Lenient,
    }
}

/// Whether clients must show a certificate, checked against how one is judged.
fn client_certificate(
    cx: &mut Lowering<'_>,
    at: &Reader<'_>,
    common: &TlsCommon,
    context: Option<&Reader<'_>>,
) -> bool {
    const FIELD: &str = "require_client_certificate";
    let required = at.bool_wrapper(FIELD).unwrap_or(false);
    let lacks_context = context.is_none_or(|context| context.oneof("validation_context_type").is_none());
    match &common.validation {
        None if required && lacks_context && !cx.is_broken(at.path()) => {
            let text = "a client certificate is required, but nothing says which ones are good";
            let diagnostic = at
                .diagnostic_at(FIELD, Severity::Error, "missing-ca", text)
                .expected("a `validation_context` with a `trusted_ca` in `common_tls_context`");
            cx.push(diagnostic);
        }
        Some(validation) => {
            if required && accepts_anybody(validation) {
                let text =
                    "any client certificate is accepted, also one that its holder made: there is no `trusted_ca`";
                cx.warn(at, FIELD, "unverified-client", text);
            }
            if !written(at, FIELD) {
                let text = "client certificates are verified but not required: clients without one are served, too";
                let diagnostic = at
                    .diagnostic_at(FIELD, Severity::Warning, "optional-client-certificate", text)
                    .help("say so with `require_client_certificate: false`, or ask for one with `true`");
                cx.push(diagnostic);
            }
        }
        None => {}
    }
    required
}

fn preferences(cx: &mut Lowering<'_>, at: &Reader<'_>, common: &TlsCommon) {
    if at.bool_wrapper("require_sni") == Some(true) {
        // Envoy has the field and does nothing with it. Ours would be another rule: a client without any name is
        // served.
        cx.refuse_value(at, "require_sni", "refusing clients that ask for no name or for one without a certificate");
    }
    if at.bool_wrapper("full_scan_certs_on_sni_mismatch") == Some(true) {
        let how = "a client that asks for an unknown name gets the first certificate";
        at.approximate("full_scan_certs_on_sni_mismatch", how);
    }
    if common.min_version == TlsVersion::Tls13 || common.cipher_suites.len() == 1 {
        at.ignore("prefer_client_ciphers", "there is nothing to prefer: TLS 1.3 only, or one cipher suite");
    }
}

pub(super) fn upstream(cx: &mut Lowering<'_>, at: &Reader<'_>, names: &RequestNames<'_>) -> Option<UpstreamTls> {
    at.ignore("enforce_rsa_key_usage", "Envoy ignores it, too: the key usage is always enforced");
    if at.bool("allow_renegotiation") {
        cx.refuse_value(at, "allow_renegotiation", "TLS renegotiation (insecure in TLS 1.2, and gone in 1.3)");
    }
    let context = at.message("common_tls_context");
    let common = parameters::common(cx, context.as_ref(), Side::Client);
    let certificate = certificates::of_client(cx, context.as_ref());
    let sni = server_name(cx, at);
    if common.max_version == TlsVersion::Auto && common.min_version != TlsVersion::Tls13 {
        let (place, restore) = match &context {
            Some(context) => match context.message("tls_params") {
                Some(params) => (params, "tls_maximum_protocol_version: TLSv1_2"),
                None => (context.clone(), "tls_params: { tls_maximum_protocol_version: TLSv1_2 }"),
            },
            None => (at.clone(), "common_tls_context: { tls_params: { tls_maximum_protocol_version: TLSv1_2 } }"),
        };
        cx.differs(&place, "upstream-tls-1.3", "TLS 1.3 is offered to upstreams, too", restore);
    }
    let endpoint_sni = at.bool("auto_host_sni");
    let asks = sni.as_ref().is_ok_and(Option::is_some) || sni.is_err() || endpoint_sni || names.sni;
    let verify_sni = verify_sni(cx, at, names, &common, context.as_ref(), asks);
    unverified(cx, at, &common, verify_sni, context.as_ref());
    let max_sessions = at.u32_wrapper("max_session_keys").unwrap_or(MAX_SESSIONS);
    Some(UpstreamTls {
        common,
        certificate: certificate?,
        sni: sni.ok()?,
        endpoint_sni,
        request_sni: names.sni,
        sni_header: names.header.clone(),
        verify_sni,
        max_sessions,
        origin: origin(at),
    })
}

/// `sni`; `Err` after an error.
fn server_name(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Result<Option<String>, ()> {
    let name = at.str("sni");
    if name.is_empty() {
        return Ok(None);
    }
    if name.parse::<std::net::IpAddr>().is_ok() {
        at.approximate("sni", "an IP address is no server name (RFC 6066, 3): none is sent");
        return Ok(Some(name.to_owned()));
    }
    let good_label = |label: &str| {
        let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        !label.is_empty() && label.len() <= 63 && label.bytes().all(good)
    };
    if name.split('.').all(good_label) {
        return Ok(Some(name.to_owned()));
    }
    let diagnostic = at
        .diagnostic_at("sni", Severity::Error, "invalid-server-name", format!("`{name}` is no server name"))
        .expected("a host name without a port and without a dot at its end, such as `backend.example`");
    cx.push(diagnostic);
    Err(())
}

/// Whether the server's certificate must be good for the name that was asked for; `asks`: a name may be asked for.
fn verify_sni(
    cx: &mut Lowering<'_>,
    at: &Reader<'_>,
    names: &RequestNames<'_>,
    common: &TlsCommon,
    context: Option<&Reader<'_>>,
    asks: bool,
) -> bool {
    let traced = common.validation.as_ref().is_some_and(|validation| validation.roots != Roots::None);
    // After an error in it nothing is known about the CA.
    let known =
        common.validation.is_some() || context.is_none_or(|context| context.oneof("validation_context_type").is_none());
    let mut own = at.bool("auto_sni_san_validation");
    if own && !traced && known {
        let text = "a certificate's name says nothing without a CA: anybody can issue one with that name";
        let diagnostic = at
            .diagnostic_at("auto_sni_san_validation", Severity::Error, "missing-ca", text)
            .expected("a `validation_context` with a `trusted_ca` in `common_tls_context`");
        cx.push(diagnostic);
        own = false;
    }
    if own && !asks {
        let text = "no name is asked for, so there is none that the certificate could be good for";
        let diagnostic = at
            .diagnostic_at("auto_sni_san_validation", Severity::Error, "conflict", text)
            .expected("`sni` or `auto_host_sni: true` beside it, or `auto_sni: true` in the cluster's HTTP options");
        cx.push(diagnostic);
    }
    let Some(http) = names.at.as_ref().filter(|_| names.verify) else { return own };
    if !names.sni {
        let text = "the certificate is checked for the host of the request, but another name is asked for";
        let diagnostic = http
            .diagnostic_at("auto_san_validation", Severity::Error, "unsupported-value", text)
            .expected("`auto_sni: true` beside it");
        cx.push(diagnostic);
        return own;
    }
    if !traced && known {
        cx.no_effect(http, "auto_san_validation", "the cluster has no `trusted_ca`, so no certificate is verified");
        return own;
    }
    true
}

/// Warns about clusters whose servers prove nothing, as Envoy accepts them.
fn unverified(
    cx: &mut Lowering<'_>,
    at: &Reader<'_>,
    common: &TlsCommon,
    verify_sni: bool,
    context: Option<&Reader<'_>>,
) {
    const FIELD: &str = "common_tls_context";
    match &common.validation {
        // After an error in the context.
        None if context.is_some_and(|context| context.oneof("validation_context_type").is_some()) => {}
        Some(validation) if validation.accept_untrusted => {}
        validation if validation.as_ref().is_none_or(accepts_anybody) => {
            let text = "the upstream's certificate is not verified: whoever answers is trusted";
            let diagnostic = Diagnostic::warning("unverified-upstream", text)
                .at(at.key_span_of(FIELD))
                .path(at.path_of(FIELD))
                .help("add `validation_context: { trusted_ca: { filename: … } }` to `common_tls_context`");
            cx.push(diagnostic);
        }
        Some(Validation { roots: Roots::Pem(_) | Roots::System, names, key_hashes, certificate_hashes, .. })
            if names.is_empty() && key_hashes.is_empty() && certificate_hashes.is_empty() && !verify_sni =>
        {
            let text = "the name in the upstream's certificate is not verified: any certificate of the CA is good";
            let diagnostic = Diagnostic::warning("unverified-name", text)
                .at(at.key_span_of(FIELD))
                .path(at.path_of(FIELD))
                .help("add `auto_sni_san_validation: true` beside the `sni`, or `match_typed_subject_alt_names`");
            cx.push(diagnostic);
        }
        _ => {}
    }
}

fn accepts_anybody(validation: &Validation) -> bool {
    validation.roots == Roots::None
        && validation.key_hashes.is_empty()
        && validation.certificate_hashes.is_empty()
        && !validation.accept_untrusted
}
