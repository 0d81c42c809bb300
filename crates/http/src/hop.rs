//! Hop-by-hop fields: read what they say to us, then take them out (RFC 9110 7.6.1).
//!
//! `Connection` may name fields of its own hop. It may never name away framing, `Host` or what tells an
//! upstream where the request came from: that would let a client choose what the next hop sees.

use crate::chars::list_members;
use crate::{FieldRef, Fields, HeaderId, Reject, Version, reason};

/// What `Connection` (and its HTTP/1.0 kin) said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConnectionOptions {
    pub close: bool,
    pub keep_alive: bool,
    /// `upgrade` was named and an `Upgrade` field other than `h2c` is there.
    pub upgrade: bool,
}

/// Takes the hop-by-hop fields out of a request. `Upgrade` stays when an upgrade is asked for, `TE` stays
/// as exactly `trailers` when it was among its members, because trailers are forwarded.
pub(crate) fn strip_request(fields: &mut Fields, version: Version) -> Result<ConnectionOptions, Reject> {
    let mut options = read_connection(fields, Forwarding::Refuse)?;
    options.upgrade &= fields.has(HeaderId::Upgrade);
    if fields.has(HeaderId::Upgrade) {
        // RFC 9113 3.1: the h2c upgrade is gone from HTTP; it must not reach an upstream that still knows it.
        let h2c = fields.get_all(HeaderId::Upgrade).flat_map(list_members).any(|p| p.eq_ignore_ascii_case(b"h2c"));
        // RFC 9110 7.8: an Upgrade in HTTP/1.0 is ignored.
        options.upgrade &= !h2c && version == Version::Http11;
        if !options.upgrade {
            fields.remove(HeaderId::Upgrade);
        }
    }
    fields.remove(HeaderId::Http2Settings);
    if fields.has(HeaderId::Te) {
        let trailers =
            fields.get_all(HeaderId::Te).flat_map(list_members).any(|te| te.eq_ignore_ascii_case(b"trailers"));
        let kept = trailers && fields.set(HeaderId::Te, b"trailers").is_ok();
        if !kept {
            fields.remove(HeaderId::Te);
        }
    }
    remove_always_stripped(fields);
    Ok(options)
}

/// Takes the hop-by-hop fields out of a response; `Upgrade` stays in a 101.
pub(crate) fn strip_response(fields: &mut Fields, switching: bool) -> Result<ConnectionOptions, Reject> {
    let options = read_connection(fields, Forwarding::Remove).map_err(Reject::upstream)?;
    if !switching {
        fields.remove(HeaderId::Upgrade);
    }
    fields.remove(HeaderId::Te);
    remove_always_stripped(fields);
    Ok(options)
}

/// Fields that trailers must not carry (RFC 9110 6.5.1): framing, routing, request modifiers,
/// authentication, response control, content format, hop-by-hop.
pub(crate) fn is_forbidden_trailer(field: FieldRef<'_>) -> bool {
    use HeaderId::*;
    match field.id {
        Unknown => is_lookalike(field.name),
        Host | Connection | ContentLength | TransferEncoding | Te | Trailer | Upgrade | Expect | KeepAlive
        | ProxyConnection | Proxy | ProxyAuthenticate | ProxyAuthorization | Http2Settings | Authorization
        | WwwAuthenticate | Cookie | SetCookie | ContentType | ContentEncoding | ContentRange | Range | IfMatch
        | IfNoneMatch | IfModifiedSince | IfUnmodifiedSince | IfRange | CacheControl | Age | Date | Expires
        | Location | RetryAfter | Vary | Forwarded | XForwardedFor | XForwardedProto | XForwardedHost
        | XForwardedPort | XForwardedClientCert | XRealIp => true,
        _ => false,
    }
}

/// Whether a name with underscores would be a framing, hop-by-hop, host or forwarding name if they were
/// dashes: CGI-like upstreams cannot tell the two apart.
#[inline]
pub(crate) fn is_lookalike(name: &[u8]) -> bool {
    name.contains(&b'_') && is_lookalike_slow(name)
}

#[cold]
fn is_lookalike_slow(name: &[u8]) -> bool {
    let mut dashed = [0u8; 32];
    let Some(dashed) = dashed.get_mut(..name.len()) else { return false };
    for (to, from) in dashed.iter_mut().zip(name) {
        *to = if *from == b'_' { b'-' } else { *from };
    }
    use HeaderId::*;
    matches!(
        HeaderId::from_lower(dashed),
        Host | Connection
            | ContentLength
            | TransferEncoding
            | Te
            | Trailer
            | Upgrade
            | Expect
            | KeepAlive
            | ProxyConnection
            | ProxyAuthorization
            | Http2Settings
            | Forwarded
            | XForwardedFor
            | XForwardedProto
            | XForwardedHost
            | XForwardedPort
            | XForwardedClientCert
            | XRealIp
            | XRequestId
            | XEnvoyExternalAddress
            | XEnvoyInternal
            | XEnvoyOriginalPath
            | XEnvoyOriginalHost
    )
}

/// What to do when `Connection` names a forwarding field: in a request that hides where it came from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Forwarding {
    Refuse,
    Remove,
}

/// Reads `Connection` and removes the fields that it names.
#[inline]
fn read_connection(fields: &mut Fields, forwarding: Forwarding) -> Result<ConnectionOptions, Reject> {
    let options = ConnectionOptions::default();
    if !fields.has(HeaderId::Connection) {
        return Ok(options);
    }
    // Nearly always it is one word.
    if !fields.is_repeated(HeaderId::Connection) {
        let word = fields.get(HeaderId::Connection).unwrap_or_default();
        if word == b"keep-alive" || word == b"Keep-Alive" {
            return Ok(ConnectionOptions { keep_alive: true, ..options });
        }
        if word == b"close" || word == b"Close" {
            return Ok(ConnectionOptions { close: true, ..options });
        }
    }
    read_unusual_connection(fields, forwarding)
}

fn read_unusual_connection(fields: &mut Fields, forwarding: Forwarding) -> Result<ConnectionOptions, Reject> {
    let mut options = ConnectionOptions::default();
    let mut names_fields = false;
    for option in fields.get_all(HeaderId::Connection).flat_map(list_members) {
        if option.eq_ignore_ascii_case(b"close") {
            options.close = true;
        } else if option.eq_ignore_ascii_case(b"keep-alive") {
            options.keep_alive = true;
        } else if option.eq_ignore_ascii_case(b"upgrade") {
            options.upgrade = true;
        } else {
            names_fields = true;
        }
    }
    if names_fields {
        remove_named_fields(fields, forwarding)?;
    }
    Ok(options)
}

#[cold]
fn remove_named_fields(fields: &mut Fields, forwarding: Forwarding) -> Result<(), Reject> {
    use HeaderId::*;
    let named: Vec<Vec<u8>> =
        fields.get_all(Connection).flat_map(list_members).map(<[u8]>::to_ascii_lowercase).collect();
    for name in named {
        match HeaderId::from_lower(&name) {
            // Framing and Host are never the sender's to remove; the others are handled by name.
            Host | ContentLength | TransferEncoding | Connection | Upgrade | Te | KeepAlive | ProxyConnection => {}
            XForwardedFor | XForwardedProto | XForwardedHost | XForwardedPort | XForwardedClientCert | Forwarded
            | XRealIp
                if forwarding == Forwarding::Refuse =>
            {
                return Err(reason::CONNECTION_HEADER);
            }
            _ if name.first() == Some(&b':') => return Err(reason::CONNECTION_HEADER),
            _ => {
                fields.remove_name(&name);
            }
        }
    }
    Ok(())
}

#[inline]
fn remove_always_stripped(fields: &mut Fields) {
    for id in [HeaderId::Connection, HeaderId::KeepAlive, HeaderId::ProxyConnection, HeaderId::TransferEncoding] {
        fields.remove(id);
    }
}
