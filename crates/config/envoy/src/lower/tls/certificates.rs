//! Certificates and their keys: in place, of `static_resources.secrets`, or in a file of secrets.

use postrider_model::Certificate;

use crate::lower::context::{Lowering, origin};
use crate::lower::{data, secrets};
use crate::reader::Reader;

const INLINE: &str = "tls_certificates";
const SECRETS: &str = "tls_certificate_sds_secret_configs";

/// Never empty; `None` after an error. `at` is the server's context.
pub(super) fn of_server(
    cx: &mut Lowering<'_>,
    at: &Reader<'_>,
    context: Option<&Reader<'_>>,
) -> Option<Vec<Certificate>> {
    let Some(context) = context.filter(|context| context.has(INLINE) || context.has(SECRETS)) else {
        let place = context.unwrap_or(at);
        let expected = "`tls_certificates` or `tls_certificate_sds_secret_configs` in `common_tls_context`";
        cx.missing(place, "a server needs a certificate", expected);
        return None;
    };
    if context.has(INLINE) && context.has(SECRETS) {
        let text = "a server has its certificates in one place: here, or in `tls_certificates`";
        cx.error(context, SECRETS, "conflict", text);
    }
    all(cx, context)
}

/// Inner `None` shows none; outer `None` after an error.
pub(super) fn of_client(cx: &mut Lowering<'_>, context: Option<&Reader<'_>>) -> Option<Option<Certificate>> {
    let Some(context) = context else { return Some(None) };
    let mut all = all(cx, context)?;
    if context.list(INLINE).len() + context.list(SECRETS).len() > 1 {
        let field = if context.has(SECRETS) { SECRETS } else { INLINE };
        cx.error(context, field, "conflict", "a client has one certificate at most");
        return None;
    }
    Some(all.pop())
}

fn all(cx: &mut Lowering<'_>, context: &Reader<'_>) -> Option<Vec<Certificate>> {
    let mut all = Vec::new();
    for place in context.list(INLINE) {
        all.push(certificate(cx, &place, None));
    }
    for config in context.list(SECRETS) {
        let place = secrets::find(cx, &config, "tls_certificate");
        all.push(place.and_then(|place| certificate(cx, &place, Some(config.str("name")))));
    }
    all.into_iter().collect()
}

fn certificate(cx: &mut Lowering<'_>, at: &Reader<'_>, name: Option<&str>) -> Option<Certificate> {
    at.ignore("watched_directory", "the files are watched anyway");
    let mut sound = true;
    for (field, what) in [
        ("pkcs12", "certificates in PKCS #12 files"),
        ("private_key_provider", "keys that an extension holds"),
        ("signed_certificate_timestamp", "signed certificate timestamps"),
        ("tls_params", "TLS parameters of one certificate"),
    ] {
        if at.has(field) {
            cx.refuse(at, field, what);
            sound = false;
        }
    }
    for (field, what) in [("certificate_chain", "certificate chain"), ("private_key", "private key")] {
        if sound && !at.has(field) {
            cx.missing(at, format!("the certificate has no {what}"), &format!("`{field}: {{ filename: … }}`"));
        }
    }
    let chain = data::named(cx, at, "certificate_chain");
    let key = data::named(cx, at, "private_key");
    let password = data::named(cx, at, "password");
    if let Some(staple) = at.message("ocsp_staple").filter(|staple| staple.oneof("specifier") == Some("inline_string"))
    {
        let text = "an OCSP response is binary: it comes from a `filename` or as `inline_bytes`";
        cx.error(&staple, "inline_string", "invalid-value", text);
    }
    let ocsp_staple = data::named(cx, at, "ocsp_staple");
    Some(Certificate {
        chain: chain?,
        key: key?,
        password,
        ocsp_staple,
        name: name.map(str::to_owned),
        origin: origin(at),
    })
}
