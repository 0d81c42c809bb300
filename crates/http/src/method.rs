//! Request methods, protocol versions and URI schemes as small values.

/// A request method (RFC 9110 9.3, RFC 5789); any other token is [`Method::Other`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Method {
    /// GET
    #[default]
    Get,
    /// HEAD: the response never has a body.
    Head,
    /// POST
    Post,
    /// PUT
    Put,
    /// DELETE
    Delete,
    /// CONNECT: a 2xx turns the connection into a tunnel.
    Connect,
    /// OPTIONS: the one method that may have the target `*`.
    Options,
    /// TRACE
    Trace,
    /// PATCH
    Patch,
    /// Another method; its bytes are in the head.
    Other,
}

impl Method {
    /// The method with these bytes; methods are case-sensitive (RFC 9110 9.1).
    #[inline]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        // By far the most usual one, in one comparison.
        if bytes == b"GET" {
            return Self::Get;
        }
        match bytes {
            b"HEAD" => Self::Head,
            b"POST" => Self::Post,
            b"PUT" => Self::Put,
            b"DELETE" => Self::Delete,
            b"CONNECT" => Self::Connect,
            b"OPTIONS" => Self::Options,
            b"TRACE" => Self::Trace,
            b"PATCH" => Self::Patch,
            _ => Self::Other,
        }
    }

    /// Whether a request without a body says so (RFC 9110 8.6); of methods that are not known here, all do.
    #[inline]
    pub(crate) fn expects_body(self) -> bool {
        !matches!(self, Self::Get | Self::Head | Self::Delete | Self::Connect | Self::Trace)
    }

    /// Whether repeating the request is harmless by definition (RFC 9110 9.2.2).
    pub fn is_idempotent(self) -> bool {
        !matches!(self, Self::Post | Self::Patch | Self::Connect | Self::Other)
    }
}

/// Methods outside [`Method`] that are taken without `allow_custom_methods`: the registered ones that
/// proxies meet in practice (WebDAV, CalDAV, UPnP, PURGE, QUERY).
pub(crate) fn is_registered(method: &[u8]) -> bool {
    const REGISTERED: &[&str] = &[
        "ACL",
        "BIND",
        "CHECKOUT",
        "COPY",
        "LINK",
        "LOCK",
        "M-SEARCH",
        "MERGE",
        "MKACTIVITY",
        "MKCALENDAR",
        "MKCOL",
        "MOVE",
        "NOTIFY",
        "PROPFIND",
        "PROPPATCH",
        "PURGE",
        "QUERY",
        "REBIND",
        "REPORT",
        "SEARCH",
        "SOURCE",
        "SUBSCRIBE",
        "UNBIND",
        "UNLINK",
        "UNLOCK",
        "UNSUBSCRIBE",
    ];
    REGISTERED.iter().any(|known| known.as_bytes() == method)
}

/// A protocol version that this crate reads. HTTP/1.x with x > 1 is refused, like every other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    #[default]
    Http11,
    /// HTTP/2
    Http2,
}

impl Version {
    /// `HTTP/1.0`, `HTTP/1.1` or `HTTP/2`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
        }
    }
}

/// The scheme of a target URI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// `http`
    Http,
    /// `https`
    Https,
}

impl Scheme {
    /// `http` or `https`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}
