//! `/certs`: the certificates of every TLS context and when they end, in Envoy's form.

use crate::control::Control;
use crate::request::Request;
use crate::response::Reply;
use crate::status::{CertificateStatus, TlsContextStatus, TlsPlace};
use postrider_telemetry::time::{self, TimePattern};
use serde_json::{Value, json};
use std::time::SystemTime;

pub(super) const PARAMETERS: &[(&str, &str)] = &[("places", "Also show where each is used, and whose it is")];

pub(super) fn certificates(control: &dyn Control, request: &Request) -> Reply {
    let places = request.parameter("places").is_some_and(|value| value != "0");
    Reply::json(&certificates_json(&control.certificates(), SystemTime::now(), places))
}

/// Envoy's `admin.v3.Certificates`. With `places`, each context names its `listener` and `filter_chain` or its `cluster`,
/// and each certificate its `subject`, which Envoy does not have.
pub fn certificates_json(contexts: &[TlsContextStatus], now: SystemTime, places: bool) -> Value {
    let all = contexts.iter().map(|context| {
        let list = |certificates: &[CertificateStatus]| -> Vec<Value> {
            certificates.iter().map(|certificate| object(certificate, now, places)).collect()
        };
        let mut out = json!({ "ca_cert": list(&context.roots), "cert_chain": list(&context.certificates) });
        if places {
            match &context.place {
                TlsPlace::Listener { listener, chain } => {
                    out["listener"] = json!(listener);
                    out["filter_chain"] = json!(chain);
                }
                TlsPlace::Cluster(cluster) => out["cluster"] = json!(cluster),
            }
        }
        out
    });
    json!({ "certificates": all.collect::<Vec<_>>() })
}

fn object(certificate: &CertificateStatus, now: SystemTime, places: bool) -> Value {
    let names: Vec<Value> = certificate.names.iter().map(|(kind, name)| json!({ (*kind): name })).collect();
    let mut out = json!({
        "path": certificate.path,
        "serial_number": certificate.serial,
        "subject_alt_names": names,
        // A 64-bit number, which JSON protobuf writes as a string.
        "days_until_expiration": certificate.days_left(now).to_string(),
        "valid_from": timestamp(certificate.not_before),
        "expiration_time": timestamp(certificate.not_after),
    });
    if let Some((from, until)) = certificate.ocsp {
        out["ocsp_details"] = json!({ "valid_from": timestamp(from) });
        if let Some(until) = until {
            out["ocsp_details"]["expiration"] = json!(timestamp(until));
        }
    }
    if places {
        out["subject"] = json!(certificate.subject);
    }
    out
}

pub(super) fn timestamp(at: SystemTime) -> String {
    let mut out = Vec::new();
    time::write(&TimePattern::parse("%Y-%m-%dT%H:%M:%SZ"), at, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}
