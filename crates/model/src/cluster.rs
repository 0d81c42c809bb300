//! Where requests and connections go.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::{
    Address, AnswerMatch, Balancing, DnsResolver, EndpointCheck, FilterSlot, HealthRules, Http2Options, LABELS,
    LabelledTransport, Metadata, MetadataKey, MetadataMatch, Mirror, NameForm, NumberedOption, Origin,
    OutlierDetection, RetryPolicy, StatsMatch, TcpKeepalive, TlvChoice, UpstreamTls, Value,
};

#[derive(Debug, Clone, PartialEq)]
pub struct Cluster {
    pub name: String,
    /// What it tells logs; `None` is nothing.
    pub metadata: Option<Arc<Metadata>>,
    /// `cluster.<stat_name>.…` in statistics; `None` means the name.
    pub stat_name: Option<String>,
    /// Which of its statistics are told; `None` is as for all.
    pub told: Option<StatsMatch>,
    pub discovery: Discovery,
    pub connect_timeout: Duration,
    pub balancing: Balancing,
    pub health: HealthRules,
    /// Hosts that answer badly are left out for a while.
    pub outliers: Option<Box<OutlierDetection>>,
    pub thresholds: Thresholds,
    /// For requests of high priority.
    pub high_thresholds: Thresholds,
    /// Connections are made before they are needed.
    pub preconnect: Option<Box<Preconnect>>,
    /// What is measured of tries besides the usual.
    pub measures: Measures,
    /// Bytes buffered per connection and direction.
    pub buffer_limit: u32,
    /// A connection whose buffer stays full for so long is closed; `None` is never.
    pub full_buffer_timeout: Option<Duration>,
    pub upstream: UpstreamOptions,
    /// `None` for plain connections.
    pub tls: Option<Arc<UpstreamTls>>,
    /// Connections begin by saying where they come from, before TLS.
    pub proxy_header: Option<Box<ProxyHeader>>,
    /// For some endpoints in place of the two before.
    pub transports: Vec<LabelledTransport>,
    pub origin: Origin,
}

impl Cluster {
    /// Whether one that runs as `other` says can become this one while it goes on: they differ at most in numbers that are
    /// looked at with each request, or where hosts change.
    pub fn continues(&self, other: &Cluster) -> bool {
        if self.name != other.name || !self.thresholds.continue_as(&other.thresholds) {
            return false;
        }
        let mut same = self.clone();
        same.thresholds = other.thresholds;
        same.high_thresholds = other.high_thresholds;
        same.health.panic_threshold = other.health.panic_threshold;
        same.balancing.maintained = other.balancing.maintained;
        same.balancing.retried = other.balancing.retried;
        if let (Some(ours), Some(theirs)) = (&mut same.outliers, &other.outliers)
            && ours.continues(theirs)
        {
            ours.clone_from(theirs);
        }
        self.high_thresholds.continue_as(&other.high_thresholds) && same == *other
    }
}

/// What clusters measure only where somebody wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Measures {
    /// How much of the timeouts of a request and of a try was used.
    pub timeout_budgets: bool,
    /// Sizes of heads and bodies, both ways.
    pub sizes: bool,
    /// Endpoints are told apart.
    pub endpoints: bool,
}

impl Measures {
    /// Something is measured of each try.
    pub fn is_of_tries(self) -> bool {
        self.timeout_budgets || self.sizes
    }
}

/// For how many requests there is to be room, for each that is there; 1 is no more than is needed.
#[derive(Debug, Clone, PartialEq)]
pub struct Preconnect {
    /// At the host of the request.
    pub of_host: f64,
    /// At all hosts together: those that are likely to be next get a connection.
    pub of_all: f64,
    /// What the metadata of hosts is to be like that get some; `None` is all of them.
    pub hosts: Option<MetadataMatch>,
}

/// How a connection says where it comes from (the PROXY protocol).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyHeader {
    pub version: ProxyVersion,
    /// Said besides in version 2; not more than a header holds.
    pub tlvs: Vec<Tlv>,
    /// Which of those that are known of the client's connection follow, unless `tlvs` has some of the same type.
    pub passed: TlvChoice,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyVersion {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

/// A type and its value in a header of the PROXY protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tlv {
    pub kind: u8,
    pub value: Vec<u8>,
}

/// How the endpoints of a cluster are known.
#[derive(Debug, Clone, PartialEq)]
pub enum Discovery {
    Static(Vec<Endpoint>),
    /// Every address of every name is an endpoint.
    StrictDns(DnsDiscovery),
    /// New connections go to the first address of one name; established ones stay.
    LogicalDns(DnsDiscovery),
    /// Nobody lists them: each is where a connection or a request was meant to go.
    Original(OriginalDestination),
}

/// How destinations are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OriginalDestination {
    /// A request header, lower case, that names another one than its connection's.
    pub header: Option<String>,
    /// Where filters may note one, which comes before that.
    pub noted_at: Option<MetadataKey>,
    /// In place of the destination's own.
    pub port: Option<u16>,
    /// A host without connections that nobody needs for so long is forgotten.
    pub forget_after: Duration,
}

#[derive(Debug, Clone, PartialEq)]
pub struct DnsDiscovery {
    pub names: Vec<DnsName>,
    pub resolver: Arc<DnsResolver>,
    pub family: DnsFamily,
    pub refresh: Duration,
    /// Refresh when the answer's TTL ends instead.
    pub respect_ttl: bool,
    /// But not sooner than this.
    pub shortest_ttl: Duration,
    /// Up to so much longer, at random.
    pub jitter: Duration,
    /// After a failure: at most, doubled with each further one up to the second, at random.
    pub failure_refresh: (Duration, Duration),
    /// Wait for the first answer before the cluster takes traffic.
    pub wait_for_first: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct DnsName {
    pub host: String,
    pub port: u16,
    /// What its endpoints are called, where that is not the name itself.
    pub hostname: Option<String>,
    pub weight: u32,
    /// 0 is used first.
    pub priority: u32,
    /// Of each of its endpoints.
    pub health: EndpointHealth,
    pub leaving: Option<Leaving>,
    /// For each of its endpoints.
    pub check: Option<Box<EndpointCheck>>,
    pub place: Option<Arc<Locality>>,
    /// By what it is known where hosts are chosen by a hash, in place of its address.
    pub hash_key: Option<String>,
    /// What else the configuration says about it; `None` is nothing.
    pub metadata: Option<Arc<Metadata>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DnsFamily {
    /// IPv6 if there is any, else IPv4.
    #[default]
    Auto,
    V4Only,
    V6Only,
    V4Preferred,
    All,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Endpoint {
    pub address: Address,
    /// Other addresses of the same endpoint, the better ones first.
    pub additional: Vec<Address>,
    /// The name it was known by before resolution; may be empty.
    pub hostname: String,
    /// Positive.
    pub weight: u32,
    /// 0 is used first.
    pub priority: u32,
    /// As the configuration says it, before any check of our own.
    pub health: EndpointHealth,
    /// Why it is unhealthy, where the configuration says that.
    pub leaving: Option<Leaving>,
    /// `None` when it says nothing.
    pub check: Option<Box<EndpointCheck>>,
    /// `None` when nothing is said about where it stands.
    pub place: Option<Arc<Locality>>,
    /// By what it is known where hosts are chosen by a hash, in place of its address.
    pub hash_key: Option<String>,
    /// What else the configuration says about it; `None` is nothing.
    pub metadata: Option<Arc<Metadata>>,
}

impl Endpoint {
    /// Its label `canary` says that it is one.
    pub fn is_canary(&self) -> bool {
        is_canary(self.metadata.as_deref())
    }

    /// It is about to go, on purpose.
    pub fn drains(&self) -> bool {
        self.leaving == Some(Leaving::Draining)
    }
}

/// Whether what is said about an endpoint makes it a canary.
pub fn is_canary(about: Option<&Metadata>) -> bool {
    about.and_then(|about| about.get(LABELS, "canary")) == Some(&Value::Bool(true))
}

/// Where endpoints stand.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Locality {
    pub region: String,
    pub zone: String,
    pub sub_zone: String,
    /// Among the localities of the same priority; 0 gets no traffic.
    pub weight: u32,
    /// What else the configuration says about it; `None` is nothing.
    pub metadata: Option<Arc<Metadata>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum EndpointHealth {
    #[default]
    Healthy,
    Degraded,
    /// Also draining and timed out: gets no traffic.
    Unhealthy,
}

/// What takes an endpoint out of service besides its health.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Leaving {
    Draining,
    TimedOut,
}

/// Limits per cluster and priority, over all workers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    pub max_connections: u32,
    pub max_pending_requests: u32,
    pub max_requests: u32,
    pub max_retries: u32,
    /// Takes the place of `max_retries`.
    pub retry_budget: Option<RetryBudget>,
    /// Hosts that may have connections, counted for each worker; `None` is no limit.
    pub max_connection_pools: Option<u32>,
    /// Of one host.
    pub max_connections_per_host: Option<u32>,
    /// How much of each limit is left is a statistic.
    pub track_remaining: bool,
}

/// Retries that may be under way, as a share of all requests that are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryBudget {
    pub percent: f64,
    /// However few requests there are.
    pub at_least: u32,
    /// Counts requests that began within this time, in place of those under way.
    pub interval: Option<Duration>,
}

impl Thresholds {
    /// There are the same limits, whatever they are: where there is one more or less, nothing was counted for it before.
    fn continue_as(&self, other: &Thresholds) -> bool {
        let budget = |thresholds: &Thresholds| thresholds.retry_budget.map(|budget| budget.interval);
        budget(self) == budget(other)
            && self.max_connection_pools.is_some() == other.max_connection_pools.is_some()
            && self.max_connections_per_host == other.max_connections_per_host
            && self.track_remaining == other.track_remaining
    }
}

impl Default for Thresholds {
    /// Envoy's, where a circuit breaker is not configured (`CircuitBreakers.Thresholds`).
    fn default() -> Self {
        Thresholds {
            max_connections: 1024,
            max_pending_requests: 1024,
            max_requests: 1024,
            max_retries: 3,
            retry_budget: None,
            max_connection_pools: None,
            max_connections_per_host: None,
            track_remaining: false,
        }
    }
}

/// What is spoken with the hosts of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UpstreamProtocol {
    #[default]
    Http1,
    Http2,
    /// What TLS agrees on.
    Auto,
    /// What the client of the request speaks.
    SameAsClient,
}

/// Options of the connections to a cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct UpstreamOptions {
    /// A pooled connection without a request; `None` is no limit.
    pub idle_timeout: Option<Duration>,
    pub max_requests_per_connection: Option<u32>,
    /// A connection serves requests of one client's connection only.
    pub pool_per_client: bool,
    pub max_connection_duration: Option<Duration>,
    /// How long a try may take once it has its connection.
    pub max_stream_duration: Option<Duration>,
    pub max_response_headers: u32,
    pub max_response_head_bytes: u32,
    pub enable_trailers: bool,
    /// How names are written.
    pub names: NameForm,
    /// Over HTTP/1, requests name what they ask for by a whole URL, as proxies are asked.
    pub absolute_targets: bool,
    pub protocol: UpstreamProtocol,
    pub http2: Http2Options,
    pub keepalive: Option<TcpKeepalive>,
    /// Local addresses to connect from: the one of the host's family, or else the first. None leaves it to the system.
    pub sources: Vec<SourceAddress>,
    /// Options of the sockets that connect, none of them for listening ones.
    pub socket_options: Vec<NumberedOption>,
    /// Set Host to the endpoint's name on each request.
    pub auto_host_sni: bool,
    /// Of endpoints that have several.
    pub address_order: AddressOrder,
    /// What requests and answers pass at each try, in place of what the router says; `None` where it has the word.
    pub filters: Option<Vec<FilterSlot>>,
    /// Code that speaks to hosts in place of HTTP, each request on a connection of its own.
    pub bridge: Option<Box<FilterSlot>>,
    /// Which answers count as bad where hosts are left out for that; `None` is those with a status of 5xx.
    pub errors: Option<Box<AnswerMatch>>,
    /// How requests are tried again, in place of what their routes say.
    pub retry: Option<Box<RetryPolicy>>,
    /// Copies of requests, in place of those of their routes; none leaves them the word.
    pub mirrors: Vec<Mirror>,
}

/// A local address to connect from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceAddress {
    /// An unspecified one stands for whatever the system takes.
    pub ip: IpAddr,
    /// 0 leaves it to the system. With any other, one connection at a time goes to one address of a host.
    pub port: u16,
    /// In the place of those of all sockets, none of them for listening ones.
    pub options: Option<Vec<NumberedOption>>,
}

/// What kind of address it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressFamily {
    V4,
    V6,
    /// A Unix domain socket.
    Path,
}

/// In which order the addresses of an endpoint are tried: a run of one family, then one of each other, and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressOrder {
    /// The family that is first; `None` is that of the first address.
    pub first: Option<AddressFamily>,
    /// Positive.
    pub run: u32,
}
