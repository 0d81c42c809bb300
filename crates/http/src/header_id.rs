//! Well-known header names as small numbers, so that a lookup is an array access.
//!
//! Called by [`crate::Fields`] once per received field, and by whoever resolves a configured name once
//! at start-up. Never allocates, never sees an upper-case name: callers lower-case first.

macro_rules! header_ids {
    ($($variant:ident = $name:literal,)*) => {
        /// The id of a well-known header name; [`HeaderId::Unknown`] stands for every other name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum HeaderId {
            /// Any name that is not in the table.
            Unknown = 0,
            $(#[doc = concat!("`", $name, "`")] $variant,)*
        }

        /// Names by id, lower case; index 0 is the empty name of [`HeaderId::Unknown`].
        const NAMES: &[&str] = &["", $($name,)*];
        const IDS: &[HeaderId] = &[HeaderId::Unknown, $(HeaderId::$variant,)*];
    };
}

header_ids! {
    // The writers look at these themselves: see `is_written_specially`.
    Connection = "connection",
    ContentLength = "content-length",
    TransferEncoding = "transfer-encoding",
    Upgrade = "upgrade",
    KeepAlive = "keep-alive",
    ProxyConnection = "proxy-connection",
    Server = "server",
    // Everything else in no particular order.
    Host = "host",
    Te = "te",
    Trailer = "trailer",
    Expect = "expect",
    Proxy = "proxy",
    ProxyAuthenticate = "proxy-authenticate",
    ProxyAuthorization = "proxy-authorization",
    Http2Settings = "http2-settings",
    Date = "date",
    Via = "via",
    ContentType = "content-type",
    ContentEncoding = "content-encoding",
    ContentRange = "content-range",
    ContentDisposition = "content-disposition",
    Accept = "accept",
    AcceptEncoding = "accept-encoding",
    AcceptLanguage = "accept-language",
    AcceptRanges = "accept-ranges",
    Authorization = "authorization",
    WwwAuthenticate = "www-authenticate",
    Cookie = "cookie",
    SetCookie = "set-cookie",
    UserAgent = "user-agent",
    Location = "location",
    Origin = "origin",
    Referer = "referer",
    CacheControl = "cache-control",
    Pragma = "pragma",
    Age = "age",
    Etag = "etag",
    Expires = "expires",
    LastModified = "last-modified",
    IfMatch = "if-match",
    IfNoneMatch = "if-none-match",
    IfModifiedSince = "if-modified-since",
    IfUnmodifiedSince = "if-unmodified-since",
    IfRange = "if-range",
    Range = "range",
    Vary = "vary",
    Allow = "allow",
    RetryAfter = "retry-after",
    Forwarded = "forwarded",
    XForwardedFor = "x-forwarded-for",
    XForwardedProto = "x-forwarded-proto",
    XForwardedHost = "x-forwarded-host",
    XForwardedPort = "x-forwarded-port",
    XForwardedClientCert = "x-forwarded-client-cert",
    XRealIp = "x-real-ip",
    XRequestId = "x-request-id",
    Traceparent = "traceparent",
    Tracestate = "tracestate",
    StrictTransportSecurity = "strict-transport-security",
    AccessControlAllowOrigin = "access-control-allow-origin",
    AccessControlRequestMethod = "access-control-request-method",
    AccessControlRequestHeaders = "access-control-request-headers",
    SecWebsocketKey = "sec-websocket-key",
    SecWebsocketVersion = "sec-websocket-version",
    SecWebsocketAccept = "sec-websocket-accept",
    GrpcTimeout = "grpc-timeout",
    GrpcStatus = "grpc-status",
    GrpcMessage = "grpc-message",
    XEnvoyAttemptCount = "x-envoy-attempt-count",
    XEnvoyDecoratorOperation = "x-envoy-decorator-operation",
    XEnvoyDownstreamServiceCluster = "x-envoy-downstream-service-cluster",
    XEnvoyDownstreamServiceNode = "x-envoy-downstream-service-node",
    XEnvoyExpectedRqTimeoutMs = "x-envoy-expected-rq-timeout-ms",
    XEnvoyExternalAddress = "x-envoy-external-address",
    XEnvoyForceTrace = "x-envoy-force-trace",
    XEnvoyHedgeOnPerTryTimeout = "x-envoy-hedge-on-per-try-timeout",
    XEnvoyInternal = "x-envoy-internal",
    XEnvoyIpTags = "x-envoy-ip-tags",
    XEnvoyIsTimeoutRetry = "x-envoy-is-timeout-retry",
    XEnvoyMaxRetries = "x-envoy-max-retries",
    XEnvoyOriginalPath = "x-envoy-original-path",
    XEnvoyOriginalHost = "x-envoy-original-host",
    XEnvoyOverloaded = "x-envoy-overloaded",
    XEnvoyPeerMetadata = "x-envoy-peer-metadata",
    XEnvoyRateLimited = "x-envoy-ratelimited",
    XEnvoyRetryOn = "x-envoy-retry-on",
    XEnvoyRetryGrpcOn = "x-envoy-retry-grpc-on",
    XEnvoyRetriableHeaderNames = "x-envoy-retriable-header-names",
    XEnvoyRetriableStatusCodes = "x-envoy-retriable-status-codes",
    XEnvoyImmediateHealthCheckFail = "x-envoy-immediate-health-check-fail",
    XEnvoyUpstreamAltStatName = "x-envoy-upstream-alt-stat-name",
    XEnvoyUpstreamCanary = "x-envoy-upstream-canary",
    XEnvoyUpstreamRqPerTryTimeoutMs = "x-envoy-upstream-rq-per-try-timeout-ms",
    XEnvoyUpstreamRqTimeoutMs = "x-envoy-upstream-rq-timeout-ms",
    XEnvoyUpstreamServiceTime = "x-envoy-upstream-service-time",
    XEnvoyUpstreamStreamDurationMs = "x-envoy-upstream-stream-duration-ms",
}

impl HeaderId {
    /// How many ids there are, [`HeaderId::Unknown`] included: the size of a table indexed by id.
    pub const COUNT: usize = NAMES.len();

    /// The id of `name`, which must already be lower case; [`HeaderId::Unknown`] when not well known.
    #[inline]
    pub fn from_lower(name: &[u8]) -> Self {
        let (Some(&first), Some(&last), Some(&middle)) = (name.first(), name.last(), name.get(name.len() / 2)) else {
            return Self::Unknown;
        };
        let mut slot = slot_of(name.len(), first, middle, last);
        loop {
            let Some(&index) = SLOTS.get(slot) else { return Self::Unknown };
            let (Some(&known), Some(&id)) = (NAMES.get(index as usize), IDS.get(index as usize)) else {
                return Self::Unknown;
            };
            if index == 0 || known.as_bytes() == name {
                return id;
            }
            slot = (slot + 1) & (SLOT_COUNT - 1);
        }
    }

    /// The id of `name` in any case; for configuration time.
    pub fn from_any_case(name: &[u8]) -> Self {
        Self::from_lower(&name.to_ascii_lowercase())
    }

    /// The lower-case name, or `""` for [`HeaderId::Unknown`].
    #[inline]
    pub fn name(self) -> &'static str {
        NAMES.get(self as usize).copied().unwrap_or("")
    }

    /// Whether the writers decide about fields with this id one by one. The ids come first in the table, so
    /// that this is one comparison per field.
    #[inline]
    pub(crate) fn is_written_specially(self) -> bool {
        (self as u8).wrapping_sub(1) < Self::Server as u8
    }

    /// Every well-known id, in table order.
    pub fn all() -> impl Iterator<Item = HeaderId> {
        IDS.iter().copied().skip(1)
    }
}

/// Slots of the lookup table: a power of two, sparse enough that nearly every name sits in its own slot.
const SLOT_COUNT: usize = 1024;

/// Open-addressed table from hash to index into `NAMES`, built at compile time.
static SLOTS: [u8; SLOT_COUNT] = build_slots();

#[inline]
const fn slot_of(len: usize, first: u8, middle: u8, last: u8) -> usize {
    let mixed = (len as u32).wrapping_mul(0x3803)
        ^ (first as u32).wrapping_mul(0xc2cf)
        ^ (middle as u32).wrapping_mul(0x75a9)
        ^ (last as u32).wrapping_mul(0xf3c7);
    ((mixed >> 5) as usize) & (SLOT_COUNT - 1)
}

const fn build_slots() -> [u8; SLOT_COUNT] {
    // The id is stored in one byte, and `first` tables are sized by it.
    assert!(NAMES.len() < 128);
    let mut slots = [0u8; SLOT_COUNT];
    let mut index = 1;
    while index < NAMES.len() {
        let name = NAMES[index].as_bytes();
        let mut slot = slot_of(name.len(), name[0], name[name.len() / 2], name[name.len() - 1]);
        while slots[slot] != 0 {
            slot = (slot + 1) & (SLOT_COUNT - 1);
        }
        slots[slot] = index as u8;
        index += 1;
    }
    slots
}

/// A header name resolved once (at configuration time): its id, or its bytes when it has none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HeaderName {
    id: HeaderId,
    bytes: Box<[u8]>,
}

impl HeaderName {
    /// Lower-cases and checks `name`.
    ///
    /// # Errors
    /// [`crate::FieldError::Name`] when it is not an RFC 9110 5.6.2 token.
    pub fn new(name: &[u8]) -> Result<Self, crate::FieldError> {
        let bytes = name.to_ascii_lowercase().into_boxed_slice();
        if !crate::chars::is_token(&bytes) {
            return Err(crate::FieldError::Name);
        }
        Ok(Self { id: HeaderId::from_lower(&bytes), bytes })
    }

    /// The id, [`HeaderId::Unknown`] when the name is not well known.
    pub fn id(&self) -> HeaderId {
        self.id
    }

    /// The lower-case name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The lower-case name as text: a token is ASCII.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes).unwrap_or("")
    }
}

impl From<HeaderId> for HeaderName {
    fn from(id: HeaderId) -> Self {
        Self { id, bytes: id.name().as_bytes().into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_finds_its_own_id() {
        for id in HeaderId::all() {
            assert_eq!(HeaderId::from_lower(id.name().as_bytes()), id, "{}", id.name());
            assert_eq!(id.name(), id.name().to_ascii_lowercase());
        }
        for unknown in ["", "x", "hosts", "hos", "content-lengt", "content-lengthx", "x-forwarded-fox"] {
            assert_eq!(HeaderId::from_lower(unknown.as_bytes()), HeaderId::Unknown, "{unknown}");
        }
        assert_eq!(HeaderId::from_any_case(b"Content-LENGTH"), HeaderId::ContentLength);
    }

    #[test]
    fn names_sit_close_to_their_slot() {
        let mut displaced = 0;
        for id in HeaderId::all() {
            let n = id.name().as_bytes();
            let home = slot_of(n.len(), n[0], n[n.len() / 2], n[n.len() - 1]);
            if SLOTS[home] as usize != id as usize {
                displaced += 1;
            }
        }
        assert!(displaced <= 4, "{displaced} names need a second probe: change the multipliers");
    }

    #[test]
    fn header_name_is_a_token() {
        assert_eq!(HeaderName::new(b"X-Thing").unwrap().as_str(), "x-thing");
        for bad in [&b""[..], b"a b", b"a:", b"\xe9", b"a\0"] {
            assert!(HeaderName::new(bad).is_err());
        }
    }
}
