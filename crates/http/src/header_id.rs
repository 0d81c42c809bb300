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
        /// Names by id with the colon and space behind them, as they begin a line.
        const LINE_STARTS: &[&str] = &["", $(concat!($name, ": "),)*];
        const IDS: &[HeaderId] = &[HeaderId::Unknown, $(HeaderId::$variant,)*];
    };
}

header_ids! {
    // Admission or the writers ask about these: see `noted_bit`.
    Connection = "connection",
    ContentLength = "content-length",
    TransferEncoding = "transfer-encoding",
    Upgrade = "upgrade",
    KeepAlive = "keep-alive",
    ProxyConnection = "proxy-connection",
    Server = "server",
    Host = "host",
    Te = "te",
    Trailer = "trailer",
    Expect = "expect",
    Proxy = "proxy",
    ProxyAuthenticate = "proxy-authenticate",
    ProxyAuthorization = "proxy-authorization",
    Http2Settings = "http2-settings",
    // Everything else in no particular order.
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
    XEnvoyExternalAddress = "x-envoy-external-address",
    XEnvoyIsTimeoutRetry = "x-envoy-is-timeout-retry",
    XEnvoyOverloaded = "x-envoy-overloaded",
    XEnvoyPeerMetadata = "x-envoy-peer-metadata",
    XEnvoyRateLimited = "x-envoy-ratelimited",
    XEnvoyImmediateHealthCheckFail = "x-envoy-immediate-health-check-fail",
    XEnvoyUpstreamCanary = "x-envoy-upstream-canary",
    XEnvoyUpstreamServiceTime = "x-envoy-upstream-service-time",
    // What only proxies of ours say: see `Fields::speaks_from_inside`.
    XEnvoyDecoratorOperation = "x-envoy-decorator-operation",
    XEnvoyDownstreamServiceCluster = "x-envoy-downstream-service-cluster",
    XEnvoyDownstreamServiceNode = "x-envoy-downstream-service-node",
    XEnvoyOriginalHost = "x-envoy-original-host",
    XEnvoyOriginalPath = "x-envoy-original-path",
    XEnvoyInternal = "x-envoy-internal",
    XEnvoyExpectedRqTimeoutMs = "x-envoy-expected-rq-timeout-ms",
    XEnvoyForceTrace = "x-envoy-force-trace",
    XEnvoyIpTags = "x-envoy-ip-tags",
    XEnvoyOriginalUrl = "x-envoy-original-url",
    // Of these, how often and how long a request wants to be tried, and the like: see `Fields::asks_for_attempts`.
    XEnvoyUpstreamAltStatName = "x-envoy-upstream-alt-stat-name",
    XEnvoyUpstreamRqTimeoutAltResponse = "x-envoy-upstream-rq-timeout-alt-response",
    XEnvoyUpstreamStreamDurationMs = "x-envoy-upstream-stream-duration-ms",
    XEnvoyHedgeOnPerTryTimeout = "x-envoy-hedge-on-per-try-timeout",
    XEnvoyMaxRetries = "x-envoy-max-retries",
    XEnvoyRetryOn = "x-envoy-retry-on",
    XEnvoyRetryGrpcOn = "x-envoy-retry-grpc-on",
    XEnvoyRetriableHeaderNames = "x-envoy-retriable-header-names",
    XEnvoyRetriableStatusCodes = "x-envoy-retriable-status-codes",
    XEnvoyUpstreamRqPerTryTimeoutMs = "x-envoy-upstream-rq-per-try-timeout-ms",
    XEnvoyUpstreamRqTimeoutMs = "x-envoy-upstream-rq-timeout-ms",
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

    /// The id of the well-known name with this key, and its [`HeaderId::noted_bit`].
    #[inline(always)]
    pub(crate) fn from_key(key: Key) -> Option<(Self, IdSet)> {
        let slot = SHORT_SLOTS.get(short_slot_of(key, SHORT_MULTIPLIER))?;
        (slot.key == key).then_some((slot.id, slot.noted_bit))
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

    /// The name, a colon and a space.
    #[inline]
    pub(crate) fn line_start(self) -> &'static [u8] {
        LINE_STARTS.get(self as usize).copied().unwrap_or("").as_bytes()
    }

    /// The bit of this id in a set of ids that admission or the writers ask about, 0 for every other one. The ids
    /// come first in the table.
    #[inline(always)]
    pub(crate) const fn noted_bit(self) -> IdSet {
        if self as u8 <= Self::Http2Settings as u8 { 1 << self as u8 } else { 0 }
    }

    /// Whether this id is in `set`.
    #[inline(always)]
    pub(crate) fn is_in(self, set: IdSet) -> bool {
        (self as u32) < IdSet::BITS && set >> self as u32 & 1 != 0
    }

    /// Every well-known id, in table order.
    pub fn all() -> impl Iterator<Item = HeaderId> {
        IDS.iter().copied().skip(1)
    }
}

/// A set of ids with [`HeaderId::noted_bit`].
pub(crate) type IdSet = u32;

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

#[allow(
    clippy::indexing_slicing,
    reason = "slots are masked to the table, names are not empty, and this runs in the compiler"
)]
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

/// A short name and the colon that ends it, in two little-endian words; zero behind the colon. With the colon two
/// names never share a key, whatever bytes they hold.
pub(crate) type Key = [u64; 2];

/// Longest name that a [`Key`] holds.
pub(crate) const KEY_BYTES: usize = 15;

/// Slots of the table by key; every short name has one to itself, see [`short_multiplier`].
const SHORT_SLOT_COUNT: usize = 1024;

const SHORT_MULTIPLIER: u64 = short_multiplier();

/// Table by hash of a key.
static SHORT_SLOTS: [ShortSlot; SHORT_SLOT_COUNT] = build_short_slots();

/// A well-known short name; an empty slot has a key that no name has: it holds no colon.
/// Aligned so that no slot spans two cache lines, and a shift finds it.
#[derive(Clone, Copy)]
#[repr(align(32))]
struct ShortSlot {
    key: Key,
    noted_bit: IdSet,
    id: HeaderId,
}

/// The key of `name`, whose length is at most [`KEY_BYTES`].
#[allow(clippy::indexing_slicing, reason = "at most 15 bytes fill two words, and this runs in the compiler")]
const fn key_of(name: &[u8]) -> Key {
    let mut key = [0u64; 2];
    key[name.len() / 8] |= (b':' as u64) << (name.len() % 8 * 8);
    let mut at = 0;
    while at < name.len() {
        key[at / 8] |= (name[at] as u64) << (at % 8 * 8);
        at += 1;
    }
    key
}

#[inline(always)]
const fn short_slot_of(key: Key, multiplier: u64) -> usize {
    // The last word is turned, so that it does not cancel the first.
    let mixed = (key[0] ^ key[1].rotate_left(29)).wrapping_mul(multiplier);
    (mixed >> (u64::BITS - SHORT_SLOT_COUNT.trailing_zeros())) as usize
}

/// A multiplier that gives every short name its own slot, found when this is compiled.
#[allow(clippy::indexing_slicing, reason = "slots come from the top 10 bits of a word, and this runs in the compiler")]
const fn short_multiplier() -> u64 {
    let mut multiplier = 0x9e37_79b9_7f4a_7c15u64;
    'next: loop {
        multiplier = multiplier.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814e) | 1;
        let mut taken = [0u64; SHORT_SLOT_COUNT / 64];
        let mut index = 1;
        while index < NAMES.len() {
            let name = NAMES[index].as_bytes();
            if name.len() <= KEY_BYTES {
                let slot = short_slot_of(key_of(name), multiplier);
                if taken[slot / 64] >> (slot % 64) & 1 != 0 {
                    continue 'next;
                }
                taken[slot / 64] |= 1 << (slot % 64);
            }
            index += 1;
        }
        return multiplier;
    }
}

#[allow(clippy::indexing_slicing, reason = "slots come from the top 10 bits of a word, and this runs in the compiler")]
const fn build_short_slots() -> [ShortSlot; SHORT_SLOT_COUNT] {
    let mut slots = [ShortSlot { key: [0; 2], noted_bit: 0, id: HeaderId::Unknown }; SHORT_SLOT_COUNT];
    let mut index = 1;
    while index < NAMES.len() {
        let name = NAMES[index].as_bytes();
        if name.len() <= KEY_BYTES {
            let key = key_of(name);
            let id = IDS[index];
            slots[short_slot_of(key, SHORT_MULTIPLIER)] = ShortSlot { key, noted_bit: id.noted_bit(), id };
        }
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
    fn keys_find_what_names_find() {
        let from_key = |name: &[u8]| HeaderId::from_key(key_of(name)).map_or(HeaderId::Unknown, |(id, _)| id);
        let unknown = ["x", "hosts", "hos", "content-lengt", "content-lengthx", "x-forwarded-fox", "", "server-timing"];
        for name in HeaderId::all().map(HeaderId::name).chain(unknown).filter(|name| name.len() <= KEY_BYTES) {
            let id = HeaderId::from_lower(name.as_bytes());
            assert_eq!(from_key(name.as_bytes()), id, "{name}");
            // Any one byte changed, and any one more.
            for at in 0..=name.len().min(KEY_BYTES - 1) {
                for change in 0..=255u8 {
                    let mut other = name.as_bytes().to_vec();
                    match other.get_mut(at) {
                        Some(byte) => *byte = change,
                        None => other.push(change),
                    }
                    let id = HeaderId::from_lower(&other);
                    assert_eq!(from_key(&other), id, "{other:x?}");
                }
            }
        }
    }

    #[test]
    fn header_name_is_a_token() {
        assert_eq!(HeaderName::new(b"X-Thing").unwrap().as_str(), "x-thing");
        for bad in [&b""[..], b"a b", b"a:", b"\xe9", b"a\0"] {
            assert!(HeaderName::new(bad).is_err());
        }
    }
}
