//! What is known about a stream besides its messages.

use std::any::Any;
use std::borrow::Cow;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use postrider_model::{Endpoint, Metadata, MetadataKey, Packed, Tlv, Value};

use crate::{BufferLimit, Hello, Lasting, Meters, Moment, RouteFacts, Surroundings, TlsSession, UpstreamObjects};

/// Facts about one stream, for filters, formats and logs.
#[derive(Debug, Clone)]
pub struct StreamInfo {
    pub start: SystemTime,
    pub started: Moment,
    /// The last byte of the request was received.
    pub request_received: Option<Moment>,
    /// The first byte of the request was sent to the upstream.
    pub request_send_began: Option<Moment>,
    /// The last byte of the request was sent to the upstream.
    pub request_sent: Option<Moment>,
    /// The first byte of the response was received from the upstream.
    pub response_began: Option<Moment>,
    /// The first byte of its body was; known where filters look at bodies.
    pub response_body_began: Option<Moment>,
    /// What came last of the response so far, and of one that is complete its last byte, was received then.
    pub response_received: Option<Moment>,
    /// The first byte of the response was sent to the client.
    pub response_send_began: Option<Moment>,
    /// The stream is over.
    pub ended: Option<Moment>,
    pub connection_id: u64,
    pub stream_id: u64,
    /// A connection that ended before anybody served it: it has no identifier.
    pub turned_away: bool,
    /// The address that the client connected to; `None` on a Unix socket. So for the others.
    pub downstream_local: Option<SocketAddr>,
    /// What the client and we agreed on; `None` for a plain connection.
    pub tls: Option<Rc<TlsSession>>,
    /// How TLS began that is not ended here, or that nobody agreed on.
    pub hello: Option<Rc<Hello>>,
    /// The connection's other end as a PROXY protocol says it; the peer itself without one.
    pub downstream_connection_remote: Option<SocketAddr>,
    /// The peer itself.
    pub downstream_direct_remote: Option<SocketAddr>,
    /// The client as far as forwarding headers are trusted.
    pub downstream_remote: Option<SocketAddr>,
    pub upstream_local: Option<SocketAddr>,
    /// As `host:port`, or a socket's path.
    pub upstream_remote: Option<Rc<str>>,
    pub upstream_cluster: Option<Rc<str>>,
    pub upstream_connection_id: u64,
    /// When the connection to the upstream was made, which may have been for an earlier request.
    pub upstream_connect: ConnectTimes,
    /// How long it took to get a connection to the upstream, or to learn that there is none; `None` before.
    pub upstream_wait: Option<Duration>,
    /// What is spoken with the upstream.
    pub upstream_protocol: &'static str,
    /// What the upstream and we agreed on; `None` for a plain connection.
    pub upstream_tls: Option<Rc<TlsSession>>,
    pub upstream_attempts: u32,
    pub upstream_failure: Option<Rc<str>>,
    /// How the connections of this one ended; as usual, of a request.
    pub closed: Closed,
    /// Bytes on its connections; `None` where nobody asked for them.
    pub meters: Option<Box<Meters>>,
    /// Why the client and we did not agree on TLS.
    pub downstream_failure: Option<Rc<str>>,
    /// When a log asks.
    pub logged: Logged,
    /// How often its route was looked up.
    pub route_lookups: u32,
    /// How long that took; `None` where nobody asked.
    pub route_lookup_time: Option<Duration>,
    /// Of the virtual host that has no route for it.
    pub routeless_host: Option<Arc<Metadata>>,
    pub route_name: Option<Rc<str>>,
    pub virtual_host: Option<Rc<str>>,
    /// The virtual cluster that the request counts in, once its cluster is known.
    pub virtual_cluster: Option<Rc<str>>,
    pub filter_chain: Option<Rc<str>>,
    /// Of the listener that the client came to; `None` for what no client asked for. It stays when a stream begins anew.
    pub surroundings: Option<Rc<dyn Surroundings>>,
    pub bytes_received: u64,
    pub bytes_sent: u64,
    pub request_head_bytes: u64,
    pub response_head_bytes: u64,
    /// Bytes of the body of the proxy's own answer, as it was made: its head says nothing of them yet.
    pub reply_bytes: u64,
    /// 0 until there is an answer.
    pub status: u16,
    /// A token such as `via_upstream`; empty means none.
    pub details: Cow<'static, str>,
    /// A plugin answered and gave no details: empty ones are shown as what they are, and not as if there were none.
    pub blank_details: bool,
    /// A token; empty means none.
    pub termination_details: Cow<'static, str>,
    pub flags: Flags,
    /// What filters noted for each other and for logs, by their namespaces.
    pub metadata: Metadata,
    /// Named objects that filters made, as their serialised strings or structures.
    pub filter_state: Vec<(String, Value)>,
    /// Those among them upon which connections to upstreams depend; `None` when there is none.
    pub upstream_objects: Option<Box<UpstreamObjects>>,
    /// What was noted of the connection before its requests; `None` when there is nothing.
    pub connection: Option<Rc<Noted>>,
    /// What filters of one kind leave here for each other, each kind by a type of its own.
    pub shared: Vec<Rc<dyn Any>>,
    /// A filter wants this host of the cluster and no other.
    pub upstream_override: Option<UpstreamOverride>,
    /// A filter changed what the route depends on: it is looked up again before it is next used.
    pub route_is_stale: bool,
    /// A filter knows this request for a health check.
    pub is_health_check: bool,
    /// A filter wants the client's connection closed after this stream.
    pub drain_connection: bool,
    /// The body of the answer that a filter gives comes in pieces from that filter: it sees the head of this answer like
    /// any other's, and takes it over. Nothing is added to its headers.
    pub streams_reply: bool,
    pub buffer_limit: BufferLimit,
}

/// How a client's connection, and one to an upstream that serves nobody else, ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Closed {
    pub downstream: CloseType,
    pub upstream: CloseType,
    /// Why we ended the client's, as a token; empty where we did not, or had no reason of our own.
    pub downstream_reason: Cow<'static, str>,
    pub upstream_reason: Cow<'static, str>,
}

/// How a connection ended, as far as its socket shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CloseType {
    #[default]
    Normal,
    LocalReset,
    RemoteReset,
}

impl CloseType {
    /// Envoy's name.
    pub fn name(self) -> &'static str {
        match self {
            CloseType::Normal => "Normal",
            CloseType::LocalReset => "LocalReset",
            CloseType::RemoteReset => "RemoteReset",
        }
    }
}

/// When a connection to an upstream was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConnectTimes {
    pub began: Option<Moment>,
    /// The transport's connection was there.
    pub connected: Option<Moment>,
    /// TLS was agreed on; `None` for a plain connection.
    pub secured: Option<Moment>,
}

/// What the PROXY protocol and guards left behind about a connection.
#[derive(Debug, Clone, Default)]
pub struct Noted {
    pub metadata: Metadata,
    /// Values of the metadata as the bytes that they are, by namespace and key.
    pub bytes: Vec<(String, String, Vec<u8>)>,
    /// Begins the filter state of each of its requests.
    pub state: Vec<(String, Value)>,
    /// Those among it upon which connections to upstreams depend.
    pub objects: Option<Box<UpstreamObjects>>,
    /// What its PROXY header has for upstreams; `None` without a header.
    pub tlvs: Option<Vec<Tlv>>,
    /// The address of the socket at our end, where the connection was meant to go elsewhere.
    pub direct_local: Option<SocketAddr>,
    /// When the connection began; noted where a plugin may ask for it.
    pub began: Option<Moment>,
    /// What its requests added to the filter state for those behind them.
    pub lasting: Lasting,
}

impl Noted {
    /// What a request of the connection begins with.
    pub fn begin(self: &Rc<Noted>, info: &mut StreamInfo) {
        info.filter_state.clone_from(&self.state);
        info.upstream_objects.clone_from(&self.objects);
        self.lasting.begin(info);
        info.connection = Some(self.clone());
    }
}

/// What of a stream or connection a log is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Logged {
    /// It is over.
    #[default]
    End,
    /// It began.
    Start,
    /// It has reached its upstream; of a request, its tunnel is open.
    Connected,
    /// It goes on.
    Periodic,
    /// A connection as its listener saw it, whoever served it: what was spoken, which may be empty.
    OfListener(&'static str),
    /// One try of a request, which has got a connection to its upstream.
    TryReady,
    /// One try of a request, which goes on.
    TryPeriodic,
    /// One try of a request, which is over.
    TryEnd,
}

impl Logged {
    /// Of a try, and of nothing that its client sees.
    pub fn is_try(self) -> bool {
        matches!(self, Logged::TryReady | Logged::TryPeriodic | Logged::TryEnd)
    }

    /// No further record comes of it.
    pub fn is_over(self) -> bool {
        matches!(self, Logged::End | Logged::OfListener(_) | Logged::TryEnd)
    }
}

/// What plugins flagged, in their order.
struct CustomFlags(RefCell<String>);

/// A host that a filter chose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamOverride {
    pub address: SocketAddr,
    /// No other host will do; otherwise the load balancer picks one.
    pub strict: bool,
    /// What is answered where it is strict and the cluster has no such host; 503 where the host is there and may not be used.
    pub missing_status: u16,
}

impl UpstreamOverride {
    pub fn new(address: SocketAddr, strict: bool) -> UpstreamOverride {
        UpstreamOverride { address, strict, missing_status: 503 }
    }

    /// Of `ip:port`, or of an address without a port: no host has that one. `None` for what is no address.
    pub fn read(host: &str, strict: bool) -> Option<UpstreamOverride> {
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        let without_port = || bare.parse().ok().map(|ip| SocketAddr::new(ip, 0));
        let address = host.parse().ok().or_else(without_port)?;
        Some(UpstreamOverride::new(address, strict))
    }
}

/// What [`StreamInfo::details`] are while nothing went otherwise than an upstream answered.
pub const VIA_UPSTREAM: &str = "via_upstream";

impl StreamInfo {
    /// Metadata of the request, or of its connection where the request has none of that name.
    pub fn metadata_of_either(&self, namespace: &str) -> Option<&Value> {
        let of_connection = || self.connection.as_ref()?.metadata.namespace(namespace);
        self.metadata.namespace(namespace).or_else(of_connection)
    }

    /// The message of a namespace in the metadata of the request, or of its connection where the request has none.
    pub fn typed_of_either(&self, namespace: &str) -> Option<&Packed> {
        let of_connection = || self.connection.as_ref()?.metadata.typed(namespace);
        self.metadata.typed(namespace).or_else(of_connection)
    }

    /// The value at a place in the metadata of the request, or of its connection where the request has none.
    pub fn metadata_at(&self, place: &MetadataKey) -> Option<&Value> {
        let of_connection = || self.connection.as_ref()?.metadata.find(place);
        self.metadata.find(place).or_else(of_connection)
    }

    /// The host that it was sent to, as its cluster has it by now.
    pub fn upstream_host(&self) -> Option<Arc<Endpoint>> {
        let (cluster, address) = (self.upstream_cluster.as_deref()?, self.upstream_remote.as_deref()?);
        self.surroundings.as_ref()?.endpoint(cluster, address)
    }

    /// Whether the answer is one of the proxy's own.
    pub fn is_local_reply(&self) -> bool {
        self.details != VIA_UPSTREAM
    }

    /// Of the route's virtual host, or of the one that has no route for the request.
    pub fn virtual_host_metadata<'a>(&'a self, route: Option<&'a RouteFacts>) -> Option<&'a Metadata> {
        route.map(|route| &route.virtual_host_metadata).or(self.routeless_host.as_ref()).map(|metadata| &**metadata)
    }

    /// The address of the client's socket at our end, wherever the connection was meant to go.
    pub fn downstream_direct_local(&self) -> Option<SocketAddr> {
        let kept = self.connection.as_ref().and_then(|noted| noted.direct_local);
        kept.or(self.downstream_local)
    }

    /// Puts a value into the filter state, in the place of one of that name.
    pub fn set_state(&mut self, name: &str, value: Value) {
        if self.upstream_objects.is_some() {
            self.forget_object(name);
        }
        match self.filter_state.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None => self.filter_state.push((name.to_owned(), value)),
        }
    }

    /// Adds a flag of a plugin's own, which says something about this stream.
    pub fn add_custom_flag(&mut self, flag: &str) {
        if let Some(known) = self.shared.iter().find_map(|shared| shared.downcast_ref::<CustomFlags>()) {
            let mut known = known.0.borrow_mut();
            known.push(',');
            known.push_str(flag);
            return;
        }
        self.shared.push(Rc::new(CustomFlags(RefCell::new(flag.to_owned()))));
    }

    /// Calls `act` with the flags of plugins, with commas between them; `None` when there are none.
    pub fn custom_flags<T>(&self, act: impl FnOnce(&str) -> T) -> Option<T> {
        let known = self.shared.iter().find_map(|shared| shared.downcast_ref::<CustomFlags>())?;
        Some(act(&known.0.borrow()))
    }

    /// The stream is over, and was logged: what filters left for each other, or with its connection, goes now or when that ends, not
    /// when another one begins.
    pub fn release(&mut self) {
        if !self.shared.is_empty() {
            self.shared.clear();
        }
        if self.connection.is_some() {
            self.connection = None;
        }
    }

    /// The name that the client asked for in TLS, whether that ends here or is passed on.
    pub fn requested_server_name(&self) -> Option<&str> {
        match &self.tls {
            Some(session) => session.server_name.as_deref(),
            None => self.hello.as_ref()?.server_name.as_deref(),
        }
    }

    /// Forgets one stream, which was [released](Self::release), and begins another, in place.
    pub fn restart(&mut self, started: Moment, start: SystemTime) {
        self.start = start;
        self.started = started;
        self.request_received = None;
        self.forget_upstream_times();
        self.response_send_began = None;
        self.ended = None;
        self.upstream_local = None;
        self.upstream_remote = None;
        self.upstream_cluster = None;
        self.upstream_connection_id = 0;
        if self.upstream_tls.is_some() {
            self.upstream_tls = None;
        }
        self.upstream_attempts = 0;
        self.upstream_failure = None;
        self.route_lookups = 0;
        self.route_lookup_time = None;
        self.routeless_host = None;
        self.route_name = None;
        self.virtual_host = None;
        if self.virtual_cluster.is_some() {
            self.virtual_cluster = None;
        }
        self.filter_chain = None;
        self.bytes_received = 0;
        self.bytes_sent = 0;
        self.request_head_bytes = 0;
        self.response_head_bytes = 0;
        self.reply_bytes = 0;
        self.status = 0;
        self.details = Cow::Borrowed("");
        self.blank_details = false;
        self.termination_details = Cow::Borrowed("");
        self.flags = Flags::default();
        if !self.metadata.is_empty() {
            self.metadata.clear();
        }
        if !self.filter_state.is_empty() {
            self.filter_state.clear();
        }
        if self.upstream_objects.is_some() {
            self.upstream_objects = None;
        }
        self.upstream_override = None;
        self.route_is_stale = false;
        self.is_health_check = false;
        self.drain_connection = false;
        self.streams_reply = false;
        self.buffer_limit = BufferLimit::OfConnection;
    }

    /// Forgets when things happened between the upstream and us, for another try.
    pub fn forget_upstream_times(&mut self) {
        self.request_send_began = None;
        self.request_sent = None;
        self.response_began = None;
        self.response_body_began = None;
        self.response_received = None;
        self.upstream_connect = ConnectTimes::default();
        self.upstream_wait = None;
    }

    /// How long the upstream had the request: from its first byte until the last one of the whole answer.
    pub fn upstream_latency(&self) -> Option<Duration> {
        Some(self.response_received?.saturating_duration_since(self.request_send_began?))
    }

    /// A stream that begins now.
    pub fn new(started: Moment, start: SystemTime) -> StreamInfo {
        StreamInfo {
            start,
            started,
            request_received: None,
            request_send_began: None,
            request_sent: None,
            response_began: None,
            response_body_began: None,
            response_received: None,
            response_send_began: None,
            ended: None,
            connection_id: 0,
            turned_away: false,
            stream_id: 0,
            downstream_local: None,
            tls: None,
            hello: None,
            downstream_connection_remote: None,
            downstream_direct_remote: None,
            downstream_remote: None,
            upstream_local: None,
            upstream_remote: None,
            upstream_cluster: None,
            upstream_connection_id: 0,
            upstream_connect: ConnectTimes::default(),
            upstream_wait: None,
            upstream_protocol: "HTTP/1.1",
            upstream_tls: None,
            upstream_attempts: 0,
            upstream_failure: None,
            closed: Closed::default(),
            meters: None,
            downstream_failure: None,
            logged: Logged::End,
            route_lookups: 0,
            route_lookup_time: None,
            routeless_host: None,
            route_name: None,
            virtual_host: None,
            virtual_cluster: None,
            filter_chain: None,
            surroundings: None,
            bytes_received: 0,
            bytes_sent: 0,
            request_head_bytes: 0,
            response_head_bytes: 0,
            reply_bytes: 0,
            status: 0,
            details: Cow::Borrowed(""),
            blank_details: false,
            termination_details: Cow::Borrowed(""),
            flags: Flags::default(),
            metadata: Metadata::default(),
            filter_state: Vec::new(),
            upstream_objects: None,
            connection: None,
            shared: Vec::new(),
            upstream_override: None,
            route_is_stale: false,
            is_health_check: false,
            drain_connection: false,
            streams_reply: false,
            buffer_limit: BufferLimit::OfConnection,
        }
    }
}

/// What went wrong with a stream, as access logs name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(u32);

macro_rules! flags {
    ($($name:ident = $bit:literal, $short:literal, $long:literal;)*) => {
        impl Flags {
            $(#[doc = $long] pub const $name: Flags = Flags(1 << $bit);)*
            const NAMES: &'static [(Flags, &'static str, &'static str)] = &[$((Flags::$name, $short, $long)),*];
        }
    };
}

// In the order in which Envoy prints them: as they were set, which is here the usual order of events.
flags! {
    UPSTREAM_RETRY_LIMIT_EXCEEDED = 15, "URX", "UpstreamRetryLimitExceeded";
    FAILED_LOCAL_HEALTH_CHECK = 0, "LH", "FailedLocalHealthCheck";
    NO_HEALTHY_UPSTREAM = 1, "UH", "NoHealthyUpstream";
    UPSTREAM_OVERFLOW = 7, "UO", "UpstreamOverflow";
    UPSTREAM_REQUEST_TIMEOUT = 2, "UT", "UpstreamRequestTimeout";
    LOCAL_RESET = 3, "LR", "LocalReset";
    UPSTREAM_REMOTE_RESET = 4, "UR", "UpstreamRemoteReset";
    UPSTREAM_CONNECTION_FAILURE = 5, "UF", "UpstreamConnectionFailure";
    UPSTREAM_CONNECTION_TERMINATION = 6, "UC", "UpstreamConnectionTermination";
    NO_ROUTE_FOUND = 8, "NR", "NoRouteFound";
    DELAY_INJECTED = 9, "DI", "DelayInjected";
    FAULT_INJECTED = 10, "FI", "FaultInjected";
    RATE_LIMITED = 11, "RL", "RateLimited";
    UNAUTHORIZED_EXTERNAL_SERVICE = 12, "UAEX", "UnauthorizedExternalService";
    RATE_LIMIT_SERVICE_ERROR = 13, "RLSE", "RateLimitServiceError";
    DOWNSTREAM_CONNECTION_TERMINATION = 14, "DC", "DownstreamConnectionTermination";
    STREAM_IDLE_TIMEOUT = 16, "SI", "StreamIdleTimeout";
    INVALID_ENVOY_REQUEST_HEADERS = 17, "IH", "InvalidEnvoyRequestHeaders";
    DOWNSTREAM_PROTOCOL_ERROR = 18, "DPE", "DownstreamProtocolError";
    UPSTREAM_MAX_STREAM_DURATION_REACHED = 19, "UMSDR", "UpstreamMaxStreamDurationReached";
    RESPONSE_FROM_CACHE_FILTER = 20, "RFCF", "ResponseFromCacheFilter";
    NO_FILTER_CONFIG_FOUND = 21, "NFCF", "NoFilterConfigFound";
    DURATION_TIMEOUT = 22, "DT", "DurationTimeout";
    UPSTREAM_PROTOCOL_ERROR = 23, "UPE", "UpstreamProtocolError";
    NO_CLUSTER_FOUND = 24, "NC", "NoClusterFound";
    OVERLOAD_MANAGER = 25, "OM", "OverloadManagerTerminated";
    DNS_RESOLUTION_FAILED = 26, "DF", "DnsResolutionFailed";
    DROP_OVERLOAD = 27, "DO", "DropOverload";
    DOWNSTREAM_REMOTE_RESET = 28, "DR", "DownstreamRemoteReset";
    UNCONDITIONAL_DROP_OVERLOAD = 29, "UDO", "UnconditionalDropOverload";
}

impl Flags {
    pub fn insert(&mut self, other: Flags) {
        self.0 |= other.0;
    }

    pub fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The bits that Envoy gives these flags.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// The flags that are set, each with its short and long name. A request is given up before its last try is judged; of
    /// a connection without requests the last try fails first.
    pub fn names(self, of_request: bool) -> impl Iterator<Item = (&'static str, &'static str)> {
        let (first, rest) = Flags::NAMES.split_at(1);
        let order = if of_request { [first, rest] } else { [rest, first] };
        let set = move |(flag, ..): &&(Flags, _, _)| self.contains(*flag);
        order.into_iter().flatten().filter(set).map(|(_, short, long)| (*short, *long))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_name_themselves_in_order() {
        let mut flags = Flags::UPSTREAM_OVERFLOW;
        flags.insert(Flags::NO_HEALTHY_UPSTREAM);
        let short: Vec<_> = flags.names(true).map(|(short, _)| short).collect();
        assert_eq!(short, ["UH", "UO"]);
    }

    #[test]
    fn a_host_that_is_chosen_without_a_port_is_an_address_that_no_host_has() {
        let read = |host| UpstreamOverride::read(host, true).map(|chosen| chosen.address.to_string());
        let ports = ["127.0.0.1:81", "127.0.0.1", "[::1]", "[::1]:80"].map(|host| read(host).unwrap());
        assert_eq!(ports, ["127.0.0.1:81", "127.0.0.1:0", "[::1]:0", "[::1]:80"]);
        assert_eq!(["example.org:80", "", "[127.0.0.1"].map(read), [const { None }; 3]);
    }

    #[test]
    fn flags_of_plugins_stand_in_their_order_and_end_with_the_stream() {
        let mut info = StreamInfo::new(Moment::default(), SystemTime::UNIX_EPOCH);
        assert_eq!(info.custom_flags(str::to_owned), None);
        for flag in ["SLOW", "ODD", "SLOW"] {
            info.add_custom_flag(flag);
        }
        assert_eq!(info.custom_flags(str::to_owned).as_deref(), Some("SLOW,ODD,SLOW"));
        info.release();
        assert_eq!(info.custom_flags(str::to_owned), None);
    }

    #[test]
    fn giving_up_comes_first_for_requests_and_last_for_connections() {
        let mut flags = Flags::UPSTREAM_CONNECTION_FAILURE;
        flags.insert(Flags::UPSTREAM_RETRY_LIMIT_EXCEEDED);
        let short = |of_request| flags.names(of_request).map(|(short, _)| short).collect::<Vec<_>>();
        assert_eq!(short(true), ["URX", "UF"]);
        assert_eq!(short(false), ["UF", "URX"]);
    }
}
