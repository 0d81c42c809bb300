//! How a connection that speaks HTTP is served.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use crate::{
    AccessLog, Cidr, FilterSlot, HeaderEdits, HeaderMutation, LogCondition, LogFormat, LogMoments, MatchTree, Origin,
    RouteTable, StringMatch, Tracing,
};

/// The HTTP connection manager of one filter chain.
#[derive(Debug, Clone, PartialEq)]
pub struct HttpConnection {
    /// `http.<stat_prefix>.…` in statistics.
    pub stat_prefix: String,
    pub routes: Arc<RouteTable>,
    /// In the order in which a request passes them. The router is the end of the chain and not among them.
    pub filters: Vec<FilterSlot>,
    pub access_log: Vec<AccessLog>,
    /// When it is written besides at the end. Nothing here waits for a connection to the upstream.
    pub log_moments: LogMoments,
    pub timeouts: HttpTimeouts,
    pub limits: HttpLimits,
    pub path: PathPolicy,
    pub codec: Codec,
    pub http1: Http1Options,
    pub http2: Http2Options,
    pub identity: IdentityPolicy,
    /// Upgrade tokens that may become a tunnel, in lower case (`websocket`).
    pub upgrades: Vec<String>,
    /// In place of `filters`, for requests that may become such a tunnel.
    pub upgrade_filters: Vec<UpgradeFilters>,
    pub router: RouterOptions,
    /// How often a request's route was looked up, and how long that took, goes into histograms.
    pub measures_routes: bool,
    /// `None`: nothing is traced.
    pub tracing: Option<Arc<Tracing>>,
    pub origin: Origin,
}

/// The filters of requests for one kind of upgrade.
#[derive(Debug, Clone, PartialEq)]
pub struct UpgradeFilters {
    /// In lower case; `connect` is the method.
    pub token: String,
    pub filters: Vec<FilterSlot>,
}

/// `None` everywhere means: no limit.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HttpTimeouts {
    /// From the first byte of a request to its last.
    pub request: Option<Duration>,
    /// From the first byte of a request to the end of its head.
    pub request_headers: Option<Duration>,
    /// A stream on which nothing moves in either direction.
    pub stream_idle: Option<Duration>,
    /// A stream whose answer the client does not take.
    pub stream_flush: Option<Duration>,
    /// A connection without a request.
    pub connection_idle: Option<Duration>,
    pub max_connection_duration: Option<Duration>,
    /// Up to so many percent of it are added, for each connection others.
    pub max_connection_duration_jitter: f64,
    pub max_stream_duration: Option<Duration>,
    /// From the decision to close until the socket is closed under a client that does not close first.
    pub delayed_close: Duration,
    /// How long a connection that is too old waits for one more request, its last.
    pub drain: Duration,
    /// Up to so many percent of it are added, for each connection others.
    pub drain_jitter: f64,
    /// Over HTTP/1 it waits for that request however long it takes.
    pub drains_for_good: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct HttpLimits {
    /// Header lines of one request.
    pub max_headers: u32,
    /// Bytes of one request head.
    pub max_head_bytes: u32,
    /// Requests that one connection may carry; `None` is no limit.
    pub max_requests_per_connection: Option<u32>,
}

/// What happens to a request path before it is matched; the result is also what is forwarded.
#[derive(Debug, Clone, PartialEq)]
pub struct PathPolicy {
    /// Decode unreserved escapes and resolve dot segments (RFC 3986 section 6.2.2).
    pub normalize: bool,
    pub merge_slashes: bool,
    pub escaped_slashes: EscapedSlashes,
    /// Refuse what two servers might read differently: backslashes, broken and overlong escapes, escaped slashes
    /// beside a dot segment.
    pub strict: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EscapedSlashes {
    Keep,
    Reject,
    UnescapeAndRedirect,
    UnescapeAndForward,
}

/// What clients speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Codec {
    /// What TLS agreed on; else HTTP/2 for a connection that begins with its preface, and HTTP/1 for any other.
    #[default]
    Auto,
    Http1,
    Http2,
}

/// HTTP/2 with clients, or with upstreams.
#[derive(Debug, Clone, PartialEq)]
pub struct Http2Options {
    pub max_concurrent_streams: u32,
    /// Bytes that the peer may send ahead of being read, per stream and in all.
    pub initial_stream_window: u32,
    pub initial_connection_window: u32,
    /// Bytes of fields that the peer may have us remember.
    pub header_table_size: u32,
    /// Extended CONNECT (RFC 8441) is welcome, respectively made use of.
    pub allow_connect: bool,
    pub keepalive: Option<Http2Keepalive>,
    /// A malformed answer ends its stream alone, and not the connection to the upstream.
    pub spares_connections: bool,
}

/// PINGs that a peer must answer (RFC 9113 section 6.7).
#[derive(Debug, Clone, PartialEq)]
pub struct Http2Keepalive {
    /// Between two of them; `None` sends none by the clock.
    pub interval: Option<Duration>,
    /// An answer that takes longer ends the connection.
    pub timeout: Duration,
    /// Up to so many percent of the interval are added at random.
    pub jitter_percent: f64,
    /// A connection to an upstream that carried nothing for so long is asked together with its next stream.
    pub idle_interval: Option<Duration>,
}

impl Default for Http2Options {
    /// 100 streams, and windows that fill a fast connection without letting one peer hold much memory. Envoy's own
    /// defaults are 1,024 streams and 16 and 24 MiB.
    fn default() -> Self {
        Http2Options {
            max_concurrent_streams: 100,
            initial_stream_window: 64 * 1024,
            initial_connection_window: 1024 * 1024,
            header_table_size: 4096,
            allow_connect: false,
            keepalive: None,
            spares_connections: false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Http1Options {
    pub accept_http_10: bool,
    pub default_host_for_http_10: Option<String>,
    pub enable_trailers: bool,
    /// Any token is a method, be it registered or not.
    pub allow_custom_methods: bool,
    /// Targets that are whole URLs are no paths: 404.
    pub refuses_absolute_targets: bool,
    /// A request that is refused although it is well-formed leaves its connection open.
    pub spares_connections: bool,
    /// Upgrades that are taken for not asked for.
    pub ignored_upgrades: Vec<StringMatch>,
    /// What to do with names such as `x_forwarded_for`.
    pub underscores: Underscores,
    /// How names are written.
    pub names: NameForm,
}

/// How the names of fields are written over HTTP/1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NameForm {
    #[default]
    LowerCase,
    /// Each word begins with a capital.
    ProperCase,
    /// What is received here goes on with the names that it came with.
    AsReceived {
        /// What is added on the way is in proper case.
        others_proper: bool,
        /// The reason phrase of an answer goes on, too.
        reason: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Underscores {
    /// Refuse names that differ from a framing, hop-by-hop or forwarding field only by `_`; pass the others.
    #[default]
    RejectLookalikes,
    Allow,
    RejectAny,
    DropAny,
}

/// What the proxy believes and says about who is talking to whom.
#[derive(Debug, Clone, PartialEq)]
pub struct IdentityPolicy {
    pub server_name: String,
    pub server_header: ServerHeader,
    pub use_remote_address: bool,
    pub xff_num_trusted_hops: u32,
    /// Who is inside; `None`: nobody.
    pub internal: Option<Box<InternalAddresses>>,
    pub skip_xff_append: bool,
    /// A connection's scheme by the port that it was meant for, as far as a PROXY protocol or the system says it.
    pub scheme_of_port: Option<Box<SchemeOfPort>>,
    /// Upstreams that a PROXY protocol tells of connections hear nothing of the client's.
    pub hides_ends: bool,
    /// Who finds out where a request comes from, one after the other; without any, `x-forwarded-for` tells.
    pub detection: Vec<ClientDetection>,
    pub generate_request_id: bool,
    pub preserve_external_request_id: bool,
    /// Ids say why a request is traced, so that one from outside says nothing of it.
    pub packs_trace_reason: bool,
    pub always_set_request_id_in_response: bool,
    /// Answers to requests that are refused under pressure say so (`x-envoy-local-overloaded`).
    pub marks_overload: bool,
    pub via: Option<String>,
    pub strip_any_host_port: bool,
    pub strip_matching_host_port: bool,
    pub strip_trailing_host_dot: bool,
    pub proxy_100_continue: bool,
    pub append_x_forwarded_port: bool,
    pub scheme: SchemeRule,
    pub client_certificate: ClientCertificate,
    /// What counts instead for the requests that it finds something for.
    pub client_certificate_by_request: Option<Box<MatchTree<ClientCertificate>>>,
    pub local_replies: Option<Box<LocalReplies>>,
    /// Clients are told what went wrong with a request.
    pub proxy_status: Option<Box<ProxyStatus>>,
    /// What is done to a request before anything else; `None` for most.
    pub early: Option<Box<EarlyEdits>>,
}

/// The scheme that a request is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SchemeRule {
    /// That of `x-forwarded-proto`, or else of the connection.
    #[default]
    Told,
    Http,
    Https,
    /// In the end that of the connection to the upstream.
    OfUpstream,
}

/// Ports that stand for a scheme.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SchemeOfPort {
    pub https: Vec<u16>,
    pub http: Vec<u16>,
}

/// How the address of a client is found in its request.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientDetection {
    /// In `x-forwarded-for`.
    Forwarded {
        trusted: TrustedProxies,
        /// The peer's own address is added to the list.
        appends: bool,
    },
    /// In a header of its own.
    Header {
        name: String,
        /// A client with an internal address is one from inside.
        may_be_inside: bool,
        /// What a request without an address there is answered.
        otherwise: Option<u16>,
    },
}

/// The proxies before this one whose word counts.
#[derive(Debug, Clone, PartialEq)]
pub enum TrustedProxies {
    /// So many.
    Hops(u32),
    /// Those with addresses in one of these networks; the peer must have one, too.
    Networks(Vec<Cidr>),
}

/// Clients that are inside: they may say how their requests are tried, and `x-envoy-internal` tells so.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct InternalAddresses {
    /// Private addresses and loopback (RFC 1918, RFC 4193) where none is named.
    pub ranges: Vec<Cidr>,
    /// Whoever comes through a Unix socket.
    pub unix_sockets: bool,
}

impl InternalAddresses {
    /// `None` is a Unix socket.
    pub fn contains(&self, address: Option<IpAddr>) -> bool {
        match address {
            None => self.unix_sockets,
            Some(address) if self.ranges.is_empty() => is_private(address),
            Some(address) => self.ranges.iter().any(|range| range.contains(address)),
        }
    }
}

/// As Envoy knows them: of loopback the usual address alone, of RFC 4193 the half that is in use.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_private() || v4 == Ipv4Addr::LOCALHOST,
        IpAddr::V6(v6) => v6.is_loopback() || v6.octets().first() == Some(&0xfd),
    }
}

/// What is done to the head of a request before anybody looks at it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EarlyEdits {
    /// One after the other.
    pub headers: Vec<HeaderMutation>,
    /// Upstreams hear which proxy asks: by its cluster and id, and as user agent where the client names none.
    pub names_proxy: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServerHeader {
    #[default]
    Overwrite,
    AppendIfAbsent,
    PassThrough,
}

/// What becomes of `x-forwarded-client-cert`, by which upstreams are told of the client's certificate. What a client sends
/// without having shown a certificate goes no further, but for the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientCertificate {
    #[default]
    Remove,
    Forward,
    Append(ForwardedParts),
    Replace(ForwardedParts),
    AlwaysForward,
}

/// What is said of a client's certificate beside its fingerprint, and the URIs of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ForwardedParts {
    pub certificate: bool,
    pub chain: bool,
    pub subject: bool,
    pub uri: bool,
    pub dns: bool,
    pub issuer: bool,
    /// A JSON list of objects, where the form is not given by what is there already.
    pub json: bool,
}

/// The field `proxy-status` of answers (RFC 9209): what went wrong, and with what.
#[derive(Debug, Clone, PartialEq)]
pub struct ProxyStatus {
    /// What the proxy is called; `None` is the id of its node.
    pub name: Option<String>,
    pub details: bool,
    /// Beside the details why the connection ended, and the flags of the response.
    pub termination_details: bool,
    pub flags: bool,
    /// The answer has the status that belongs to the kind of error.
    pub recommended_status: bool,
}

/// What becomes of answers that the proxy makes itself.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LocalReplies {
    /// The first whose condition holds changes the answer.
    pub mappers: Vec<ReplyMapper>,
    /// How their bodies are made, unless the mapper says it.
    pub body: Option<BodyFormat>,
}

/// Changes the answers for which a condition holds.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplyMapper {
    pub condition: LogCondition,
    pub status: Option<u16>,
    pub body: Option<Vec<u8>>,
    pub format: Option<BodyFormat>,
    pub headers: HeaderEdits,
}

/// How a body is made.
#[derive(Debug, Clone, PartialEq)]
pub struct BodyFormat {
    /// A JSON object ends with a line break, as in a log.
    pub format: LogFormat,
    pub content_type: String,
}

/// How answers count in the statistics of their cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AnswerCounts {
    /// Each by its status, in all and by whom it is for.
    #[default]
    ByStatus,
    /// The same, but in all those to gRPC requests only add to the completed ones.
    ByStatusButGrpc,
    Nothing,
}

/// Options of the end of the filter chain.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RouterOptions {
    /// Leave out `x-envoy-*` headers of our own in requests and responses.
    pub suppress_x_headers: bool,
    pub answer_counts: AnswerCounts,
    /// Fields about tries and timeouts of which a request must not have a malformed one. Lower case.
    pub strict_fields: Vec<String>,
    /// The time that a proxy in front gives a request is the request's timeout.
    pub respects_expected_timeout: bool,
    /// What requests and answers pass at each try, on the way to clusters that say nothing themselves.
    pub upstream_filters: Vec<FilterSlot>,
    /// Has a record of every try.
    pub upstream_log: Vec<AccessLog>,
    /// When it is written besides at the end of a try. It knows no start.
    pub upstream_log_moments: LogMoments,
    /// Where requests are traced, each try has a span of its own, too.
    pub spawns_span: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_ranges_private_addresses_are_inside() {
        let inside = InternalAddresses::default();
        for (address, want) in [
            ("10.0.0.1", true),
            ("172.31.255.1", true),
            ("172.32.0.1", false),
            ("192.168.0.1", true),
            ("127.0.0.1", true),
            ("127.0.0.2", false),
            ("::1", true),
            ("fd12::1", true),
            ("fc00::1", false),
            ("1.2.3.4", false),
        ] {
            assert_eq!(inside.contains(address.parse().ok()), want, "{address}");
        }
        assert!(!inside.contains(None));
        assert!(InternalAddresses { unix_sockets: true, ..inside }.contains(None));
    }

    #[test]
    fn ranges_stand_in_place_of_private_addresses() {
        let ranges = Cidr::new("1.2.0.0".parse().unwrap(), 16).into_iter().collect();
        let inside = InternalAddresses { ranges, unix_sockets: false };
        assert!(inside.contains("1.2.3.4".parse().ok()));
        assert!(!inside.contains("10.0.0.1".parse().ok()) && !inside.contains("1.3.0.1".parse().ok()));
    }
}
