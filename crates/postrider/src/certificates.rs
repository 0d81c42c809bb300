//! The certificates of a plan: for the admin, for statistics, and for whoever should renew one.

use std::time::{Duration, SystemTime};

use postrider_admin::{CertificateStatus, TlsContextStatus, TlsPlace};
use postrider_model::Origin;
use postrider_telemetry::time::{self, TimePattern};
use postrider_worker::{KnownCertificate, Plan, TlsContext};

/// A certificate that ends sooner is warned about.
const SOON: Duration = Duration::from_secs(14 * 86_400);

/// For the admin.
pub fn statuses(plan: &Plan) -> Vec<TlsContextStatus> {
    let list = |all: &[KnownCertificate<'_>]| all.iter().map(status).collect();
    plan.tls_contexts()
        .map(|context| TlsContextStatus {
            place: match context.place {
                postrider_worker::TlsPlace::Chain { listener, chain } => {
                    TlsPlace::Listener { listener: listener.to_owned(), chain: chain.to_owned() }
                }
                postrider_worker::TlsPlace::Cluster(name) => TlsPlace::Cluster(name.to_owned()),
            },
            roots: list(&context.roots),
            certificates: list(&context.own),
        })
        .collect()
}

fn status(known: &KnownCertificate<'_>) -> CertificateStatus {
    let facts = known.facts;
    let dns = facts.names.dns.iter().map(|name| ("dns", name.clone()));
    let uri = facts.names.uri.iter().map(|name| ("uri", name.clone()));
    let ip = facts.names.ip.iter().map(|name| ("ip_address", name.to_string()));
    CertificateStatus {
        path: facts.path.clone(),
        subject: facts.subject.clone(),
        serial: facts.serial.clone(),
        names: dns.chain(uri).chain(ip).collect(),
        not_before: facts.not_before,
        not_after: facts.not_after,
        ocsp: facts.ocsp.map(|ocsp| (ocsp.this_update, ocsp.next_update)),
    }
}

/// What has ended or ends within two weeks, each once. Roots count as one that ends with the last of them: an old root in
/// a bundle is nobody's trouble.
pub fn ending(plan: &Plan, now: SystemTime) -> Vec<(Origin, String)> {
    let mut found: Vec<(Origin, String)> = Vec::new();
    for TlsContext { own, roots, .. } in plan.tls_contexts() {
        let last_root = roots.iter().max_by_key(|root| root.facts.not_after);
        for known in own.iter().chain(last_root) {
            let facts = known.facts;
            let left = facts.not_after.duration_since(now);
            if left.as_ref().is_ok_and(|left| *left > SOON) {
                continue;
            }
            let day = day(facts.not_after);
            let when = match left.map(|left| left.as_secs() / 86_400) {
                Err(_) => format!("has ended, on {day}"),
                Ok(0) => "ends within a day".to_owned(),
                Ok(1) => format!("ends tomorrow, on {day}"),
                Ok(days) => format!("ends in {days} days, on {day}"),
            };
            let what =
                if last_root.is_some_and(|root| std::ptr::eq(root, known)) { "last root" } else { "certificate" };
            let message = format!("the {what} `{}` ({}) {when}", name(known), facts.path);
            if !found.iter().any(|(origin, text)| origin.0 == known.origin.0 && *text == message) {
                found.push((known.origin.clone(), message));
            }
        }
    }
    found
}

/// How people call it.
fn name<'k>(known: &KnownCertificate<'k>) -> &'k str {
    let names = &known.facts.names;
    names.dns.first().or(names.uri.first()).unwrap_or(&known.facts.subject)
}

/// `2026-12-24`
fn day(at: SystemTime) -> String {
    written("%Y-%m-%d", at)
}

/// `2026-12-24T10:11:12Z`, as the admin writes when a certificate ends.
pub fn moment(at: SystemTime) -> String {
    written("%Y-%m-%dT%H:%M:%SZ", at)
}

fn written(pattern: &str, at: SystemTime) -> String {
    let mut out = Vec::new();
    time::write(&TimePattern::parse(pattern), at, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// Whole days until the first certificate of any kind ends; 0 when one has.
pub fn days_until_first_ends(plan: &Plan, now: SystemTime) -> Option<u64> {
    let ends = plan.tls_contexts().flat_map(|context| context.own.into_iter().chain(context.roots));
    let first = ends.map(|known| known.facts.not_after).min()?;
    Some(first.duration_since(now).map_or(0, |left| left.as_secs() / 86_400))
}

/// Seconds until the first OCSP response ends; 0 when one has, and when there is none.
pub fn seconds_until_first_response_ends(plan: &Plan, now: SystemTime) -> u64 {
    let all = plan.tls_contexts().flat_map(|context| context.own);
    let first = all.filter_map(|known| known.facts.ocsp?.next_update).min();
    first.and_then(|first| first.duration_since(now).ok()).map_or(0, |left| left.as_secs())
}

/// What Envoy calls certificates that have no name: it takes a digest of an empty text with it.
const UNNAMED: [&str; 2] = ["unnamed_cert_e3b0c442", "unnamed_ca_cert_e3b0c442"];

/// By the names that statistics have, the seconds since the epoch at which each ends. Of several with one name, the first
/// that ends.
pub fn expirations(context: &TlsContext<'_>) -> Vec<(String, u64)> {
    let mut found: Vec<(String, u64)> = Vec::new();
    for (all, unnamed) in [&context.own, &context.roots].into_iter().zip(UNNAMED) {
        for known in all {
            let name = known.name.unwrap_or(unnamed);
            let end = known.facts.not_after.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |it| it.as_secs());
            match found.iter_mut().find(|(other, _)| other == name) {
                Some((_, other)) => *other = end.min(*other),
                None => found.push((name.to_owned(), end)),
            }
        }
    }
    found
}
