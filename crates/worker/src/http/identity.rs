//! Who is talking to whom: forwarding headers, scheme, request id and the host's port, before a request is routed.
//!
//! Called by the pipeline for each request, and by whoever wants to know how a request would be routed.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::LazyLock;

use postrider_http::{FieldError, FieldLine, Fields, HeaderId, Reject, RequestHead, Scheme};
use postrider_model::{ClientCertificate, IdentityPolicy, InternalAddresses, SchemeRule};
use postrider_upstream::Random;

use super::attempts::OWN_FIELDS;
use super::{detection, edits};

/// What the upstream is told about a client that came over plain HTTP, and over TLS.
static FORWARDED_HTTP: LazyLock<Result<FieldLine, FieldError>> =
    LazyLock::new(|| FieldLine::new(HeaderId::XForwardedProto, b"http"));
static FORWARDED_HTTPS: LazyLock<Result<FieldLine, FieldError>> =
    LazyLock::new(|| FieldLine::new(HeaderId::XForwardedProto, b"https"));

/// No route is for a request without a scheme.
pub(super) const SCHEMELESS: Reject = Reject::new(404, "route_not_found");

/// The two ends of a client's connection, `None` on a Unix socket.
#[derive(Debug, Clone, Copy)]
pub struct Ends {
    pub local: Option<SocketAddr>,
    pub remote: Option<SocketAddr>,
    pub tls: bool,
}

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identified {
    /// The client as far as forwarding headers are trusted; `None` when they say nothing.
    pub client: Option<SocketAddr>,
    /// The request comes from inside.
    pub internal: bool,
}

/// Whether [`identify_usual`] may be asked: the policy wants nothing of most requests but a scheme and an id.
pub(crate) fn is_usual(identity: &IdentityPolicy) -> bool {
    let strips = identity.strip_any_host_port || identity.strip_matching_host_port || identity.strip_trailing_host_dot;
    !identity.use_remote_address
        && identity.internal.is_none()
        && identity.detection.is_empty()
        && identity.client_certificate == ClientCertificate::Remove
        && identity.client_certificate_by_request.is_none()
        && matches!(identity.scheme, SchemeRule::Told | SchemeRule::OfUpstream)
        && !identity.append_x_forwarded_port
        && !strips
        && identity.via.is_none()
        && identity.early.is_none()
        && identity.scheme_of_port.is_none()
}

/// What [`identify`] does to a request that nobody has forwarded and that claims nothing, by a usual policy. `false` for any
/// other request, which is still [`identify`]'s.
#[inline]
pub(super) fn identify_usual(head: &mut RequestHead, tls: bool, ids: bool, random: &Random) -> bool {
    let fields = &mut head.fields;
    if fields.has(HeaderId::XForwardedFor) || fields.has(HeaderId::XForwardedClientCert) || fields.speaks_from_inside()
    {
        return false;
    }
    if !take_scheme(head, tls) {
        return false;
    }
    if ids && head.fields.get(HeaderId::XRequestId).is_none_or(<[u8]>::is_empty) {
        let _ = head.fields.set(HeaderId::XRequestId, &edits::uuid(random));
    }
    true
}

/// The scheme is that which is told, or else that of the connection, which is told then. `false` where something is told
/// that is empty.
#[inline]
fn take_scheme(head: &mut RequestHead, tls: bool) -> bool {
    match head.fields.get(HeaderId::XForwardedProto) {
        Some(b"https") => head.set_scheme(Scheme::Https),
        Some(b"http") => head.set_scheme(Scheme::Http),
        Some(_) => return take_odd_scheme(head, tls),
        None => {
            let (line, scheme) = match tls {
                true => (&FORWARDED_HTTPS, Scheme::Https),
                false => (&FORWARDED_HTTP, Scheme::Http),
            };
            if let Ok(line) = &**line {
                let _ = head.fields.append_line_if_absent(line);
            }
            head.set_scheme(scheme);
        }
    }
    true
}

/// Schemes have no case (RFC 3986 3.1). What is none says nothing, so that the connection's holds; upstreams see what was told.
#[cold]
#[inline(never)]
fn take_odd_scheme(head: &mut RequestHead, tls: bool) -> bool {
    let told = head.fields.get(HeaderId::XForwardedProto).unwrap_or_default();
    let is_told = !told.is_empty();
    let secure = told.eq_ignore_ascii_case(b"https") || tls && !told.eq_ignore_ascii_case(b"http");
    head.set_scheme(if secure { Scheme::Https } else { Scheme::Http });
    is_told
}

/// Treats an admitted head as `identity` says and answers who the client is; what is said of a client's certificate is left to
/// [`tell_certificate`](super::tell_certificate). `scratch` is overwritten.
///
/// # Errors
/// A request must say who its client is, and does not; or it says that its scheme is nothing, for which there is no route.
pub fn identify(
    head: &mut RequestHead,
    identity: &IdentityPolicy,
    peer: &Ends,
    random: &Random,
    scratch: &mut Vec<u8>,
) -> Result<Identified, Reject> {
    let fields = &mut head.fields;
    if fields.has(HeaderId::XForwardedFor) && fields.get_all(HeaderId::XForwardedFor).nth(1).is_some() {
        edits::join_forwarded(fields, scratch);
    }
    let (client, internal);
    let inside = identity.internal.as_deref();
    if identity.use_remote_address {
        client = edits::trusted_client(fields, peer.remote, identity.xff_num_trusted_hops);
        internal = inside.is_some_and(|inside| is_inside_edge(inside, fields, client));
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
        let address = found.address.filter(|_| found.may_be_inside);
        internal = address.is_some_and(|address| inside.is_some_and(|inside| inside.contains(Some(address))));
    } else {
        client = edits::forwarded_client(fields, identity.xff_num_trusted_hops).map(|client| (client, 0).into());
        internal = inside.is_some_and(|inside| is_inside_behind(inside, fields, identity, client));
    }
    let edge = identity.use_remote_address && !internal;
    if internal {
        trust(fields);
    } else if fields.speaks_from_inside() {
        distrust(fields, edge);
    }
    if edge && let Some(client) = client {
        scratch.clear();
        let _ = write!(scratch, "{}", client.ip());
        let _ = fields.set(HeaderId::XEnvoyExternalAddress, scratch);
    }
    let has_scheme = take_scheme(head, peer.tls);
    if let SchemeRule::Http | SchemeRule::Https = identity.scheme {
        overwrite_scheme(head, identity.scheme);
    } else if !has_scheme {
        return Err(SCHEMELESS);
    }
    let fields = &mut head.fields;
    // What a client at the edge says of its port counts as little as what it says of its scheme.
    let untrusted = identity.use_remote_address && identity.xff_num_trusted_hops == 0;
    if identity.append_x_forwarded_port
        && (untrusted || !fields.has(HeaderId::XForwardedPort))
        && let Some(local) = peer.local
    {
        scratch.clear();
        let _ = write!(scratch, "{}", local.port());
        let _ = fields.set(HeaderId::XForwardedPort, scratch);
    }
    if identity.generate_request_id {
        // An id from outside is kept where the operator says so, or where the caller is not the edge.
        if fields.get(HeaderId::XRequestId).is_none_or(<[u8]>::is_empty)
            || (edge && !identity.preserve_external_request_id)
        {
            let id = edits::uuid(random);
            let _ = fields.set(HeaderId::XRequestId, &id);
        } else if edge && identity.packs_trace_reason {
            edits::untrace(fields, scratch);
        }
    }
    if let Some(via) = &identity.via {
        edits::append_via(fields, via);
    }
    if identity.strip_any_host_port || identity.strip_matching_host_port || identity.strip_trailing_host_dot {
        edits::strip_host(head, identity, peer.local.map(|local| local.port()), scratch);
    }
    Ok(Identified { client, internal })
}

#[cold]
fn overwrite_scheme(head: &mut RequestHead, rule: SchemeRule) {
    let scheme = if rule == SchemeRule::Https { Scheme::Https } else { Scheme::Http };
    let _ = head.fields.set(HeaderId::XForwardedProto, scheme.as_str().as_bytes());
    head.set_scheme(scheme);
}

/// At the edge: nobody else has spoken for the client, and its address is inside.
#[cold]
fn is_inside_edge(inside: &InternalAddresses, fields: &Fields, client: Option<SocketAddr>) -> bool {
    !fields.has(HeaderId::XForwardedFor) && inside.contains(client.map(|client| client.ip()))
}

/// Behind a peer that is trusted: the one address that it names is inside.
#[cold]
fn is_inside_behind(
    inside: &InternalAddresses,
    fields: &Fields,
    identity: &IdentityPolicy,
    client: Option<SocketAddr>,
) -> bool {
    let alone = fields.get(HeaderId::XForwardedFor).is_some_and(|list| !list.contains(&b','));
    let client = client.filter(|_| alone && identity.xff_num_trusted_hops == 0);
    client.is_some_and(|client| inside.contains(Some(client.ip())))
}

/// What only those inside may say; the first at the edge alone, behind which a proxy of ours may have said it.
const FROM_INSIDE: [HeaderId; 10] = [
    HeaderId::XEnvoyDecoratorOperation,
    HeaderId::XEnvoyDownstreamServiceCluster,
    HeaderId::XEnvoyDownstreamServiceNode,
    HeaderId::XEnvoyOriginalHost,
    HeaderId::XEnvoyOriginalPath,
    HeaderId::XEnvoyInternal,
    HeaderId::XEnvoyExpectedRqTimeoutMs,
    HeaderId::XEnvoyForceTrace,
    HeaderId::XEnvoyIpTags,
    HeaderId::XEnvoyOriginalUrl,
];

/// So many of them.
const AT_THE_EDGE: usize = 5;

/// Tells upstreams that the request is from inside.
#[cold]
fn trust(fields: &mut Fields) {
    let _ = fields.set(HeaderId::XEnvoyInternal, b"true");
}

/// Takes out what a client that is not inside may not say.
#[cold]
fn distrust(fields: &mut Fields, edge: bool) {
    let trusted = if edge { 0 } else { AT_THE_EDGE };
    FROM_INSIDE.into_iter().skip(trusted).chain(OWN_FIELDS).for_each(|id| _ = fields.remove(id));
}
