//! Who is talking to whom: forwarding headers, scheme, request id and the host's port, before a request is routed.
//!
//! Called by the pipeline for each request, and by whoever wants to know how a request would be routed.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::LazyLock;

use postrider_filter_api::TlsSession;
use postrider_http::{FieldError, FieldLine, Fields, HeaderId, Reject, RequestHead, Scheme};
use postrider_model::{ClientCertificate, IdentityPolicy, SchemeRule};
use postrider_upstream::Random;

use super::attempts::OWN_FIELDS;
use super::{client_certificate, detection, edits};

/// What the upstream is told about a client that came over plain HTTP, and over TLS.
static FORWARDED_HTTP: LazyLock<Result<FieldLine, FieldError>> =
    LazyLock::new(|| FieldLine::new(HeaderId::XForwardedProto, b"http"));
static FORWARDED_HTTPS: LazyLock<Result<FieldLine, FieldError>> =
    LazyLock::new(|| FieldLine::new(HeaderId::XForwardedProto, b"https"));

/// The two ends of a client's connection, `None` on a Unix socket.
#[derive(Debug, Clone, Copy)]
pub struct Ends<'a> {
    pub local: Option<SocketAddr>,
    pub remote: Option<SocketAddr>,
    pub tls: bool,
    /// What was agreed on; `None` where nobody is really connected.
    pub session: Option<&'a TlsSession>,
}

/// Treats an admitted head as `identity` says and answers who the client is as far as forwarding headers are trusted;
/// `None` when they say nothing. `scratch` is overwritten.
///
/// # Errors
/// A request must say who its client is, and does not.
pub fn identify(
    head: &mut RequestHead,
    identity: &IdentityPolicy,
    peer: &Ends<'_>,
    random: &Random,
    scratch: &mut Vec<u8>,
) -> Result<Option<SocketAddr>, Reject> {
    let fields = &mut head.fields;
    if fields.has(HeaderId::XForwardedFor) && fields.get_all(HeaderId::XForwardedFor).nth(1).is_some() {
        edits::join_forwarded(fields, scratch);
    }
    let client;
    let mut detected = None;
    if identity.use_remote_address {
        client = edits::trusted_client(fields, peer.remote, identity.xff_num_trusted_hops);
        if !identity.skip_xff_append {
            detection::append_peer(fields, peer.remote, scratch);
        }
        if identity.xff_num_trusted_hops == 0 {
            fields.remove(HeaderId::XForwardedProto);
        }
    } else if !identity.detection.is_empty() {
        let found = detection::detect(&identity.detection, fields, peer.remote, scratch)
            .map_err(|status| Reject::new(status, "rejecting_because_detection_failed"))?;
        client = found.address.map(|client| (client, 0).into());
        detected = Some(found);
    } else {
        client = edits::forwarded_client(fields, identity.xff_num_trusted_hops).map(|client| (client, 0).into());
    }
    let inside = match &detected {
        None => is_internal_request(fields, identity.use_remote_address, peer.remote),
        Some(found) => found.may_be_inside && found.address.is_some_and(is_internal),
    };
    if inside {
        let _ = fields.set(HeaderId::XEnvoyInternal, b"true");
    } else {
        if identity.use_remote_address {
            fields.remove(HeaderId::XEnvoyInternal);
        }
        // Only who is inside may say how a request is tried.
        if fields.asks_for_attempts() {
            OWN_FIELDS.into_iter().for_each(|id| _ = fields.remove(id));
        }
    }
    if fields.has(HeaderId::XForwardedClientCert) || identity.client_certificate != ClientCertificate::Remove {
        client_certificate::forward(fields, &identity.client_certificate, peer.session, scratch);
    }
    match fields.get(HeaderId::XForwardedProto) {
        Some(b"https") => head.set_scheme(Scheme::Https),
        Some(_) => head.set_scheme(Scheme::Http),
        None => {
            let (line, scheme) = match peer.tls {
                true => (&FORWARDED_HTTPS, Scheme::Https),
                false => (&FORWARDED_HTTP, Scheme::Http),
            };
            if let Ok(line) = &**line {
                let _ = fields.append_line_if_absent(line);
            }
            head.set_scheme(scheme);
        }
    }
    if let SchemeRule::Http | SchemeRule::Https = identity.scheme {
        overwrite_scheme(head, identity.scheme);
    }
    let fields = &mut head.fields;
    if identity.append_x_forwarded_port
        && !fields.has(HeaderId::XForwardedPort)
        && let Some(local) = peer.local
    {
        scratch.clear();
        let _ = write!(scratch, "{}", local.port());
        let _ = fields.append(HeaderId::XForwardedPort, scratch);
    }
    if identity.generate_request_id {
        // An id from outside is kept where the operator says so, or where the caller is not the edge.
        let outside = identity.use_remote_address && peer.remote.is_some_and(|a| !is_internal(a.ip()));
        if !fields.has(HeaderId::XRequestId) || (outside && !identity.preserve_external_request_id) {
            let id = edits::uuid(random);
            let _ = fields.set(HeaderId::XRequestId, &id);
        } else if outside && identity.packs_trace_reason {
            edits::untrace(fields, scratch);
        }
    }
    if let Some(via) = &identity.via {
        scratch.clear();
        scratch.extend_from_slice(b"1.1 ");
        scratch.extend_from_slice(via.as_bytes());
        let _ = fields.append(HeaderId::Via, scratch);
    }
    if identity.strip_any_host_port || identity.strip_matching_host_port || identity.strip_trailing_host_dot {
        edits::strip_host(head, identity, peer.local.map(|local| local.port()), scratch);
    }
    Ok(client)
}

#[cold]
fn overwrite_scheme(head: &mut RequestHead, rule: SchemeRule) {
    let scheme = if rule == SchemeRule::Https { Scheme::Https } else { Scheme::Http };
    let _ = head.fields.set(HeaderId::XForwardedProto, scheme.as_str().as_bytes());
    head.set_scheme(scheme);
}

/// Whether the request comes from inside: at the edge, from an internal peer; behind a trusted peer, from the one internal
/// address that it names.
fn is_internal_request(fields: &Fields, use_remote_address: bool, remote: Option<SocketAddr>) -> bool {
    if use_remote_address {
        return remote.is_some_and(|remote| is_internal(remote.ip()));
    }
    if !fields.has(HeaderId::XForwardedFor) {
        return false;
    }
    let mut all = fields.get_all(HeaderId::XForwardedFor);
    let (Some(only), None) = (all.next(), all.next()) else { return false };
    std::str::from_utf8(only).ok().and_then(|text| text.trim().parse().ok()).is_some_and(is_internal)
}

/// RFC 1918, RFC 4193, loopback: what Envoy treats as inside by default.
fn is_internal(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_private() || v4.is_loopback(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local(),
    }
}
