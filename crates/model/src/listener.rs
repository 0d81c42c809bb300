//! Listeners and the choice of a filter chain for a new connection.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::{
    AccessLog, Address, DownstreamTls, FilterSlot, HttpConnection, MatchTree, Metadata, Origin, StatsMatch, TcpProxy,
};

/// An address to accept on and what to do with what arrives there.
#[derive(Debug, Clone, PartialEq)]
pub struct Listener {
    pub name: String,
    /// The first is the main one. Never empty.
    pub addresses: Vec<Address>,
    /// It accepts there. Otherwise it gets what other listeners hand over.
    pub binds: bool,
    /// Connections that were meant for the address of another listener are handed to it.
    pub hands_over: bool,
    /// Connections end after their next answer while the proxy says of itself that it is not healthy.
    pub drains_unhealthy: bool,
    /// `listener.<stat_prefix>.…` in statistics; `None` means the main address.
    pub stat_prefix: Option<String>,
    /// Which of its statistics, and of those of its chains, are told; `None` is as for all.
    pub told: Option<StatsMatch>,
    pub filter_chains: Vec<Arc<FilterChain>>,
    pub default_filter_chain: Option<Arc<FilterChain>>,
    /// Chooses among the chains by their places, whatever they match themselves; `None` at a leaf is no chain at all.
    pub chain_tree: Option<Arc<MatchTree<Option<usize>>>>,
    /// The most bytes buffered per connection and direction before the other side is no longer read.
    pub buffer_limit: u32,
    /// A connection whose buffer stays full for so long is closed; `None` is never.
    pub full_buffer_timeout: Option<Duration>,
    pub backlog: u32,
    /// All workers take new connections from one queue; otherwise each has its own, over which the system spreads them.
    pub one_queue: bool,
    /// The most connections that a worker accepts before it turns to what else there is to do; `None` is all that wait.
    pub accepts_at_once: Option<u32>,
    pub balance: ConnectionBalance,
    /// The most connections that this listener holds at once, over all workers; `None` is no limit.
    pub connection_limit: Option<u64>,
    /// Its connections are welcome under any pressure.
    pub bypasses_overload: bool,
    /// Its connections do not count for the bound of all listeners together.
    pub bypasses_bound: bool,
    /// What is looked at before a filter chain is chosen.
    pub inspection: Inspection,
    /// What is set on the sockets of each address, in their order.
    pub sockets: Vec<SocketOptions>,
    pub direction: Direction,
    /// What the configuration says about it for expressions and plugins; `None` is nothing.
    pub metadata: Option<Arc<Metadata>>,
    /// Written once for each connection, when it ends.
    pub access_log: Vec<AccessLog>,
    pub origin: Origin,
}

/// What a listener looks at on a new connection before it chooses a filter chain (Envoy's listener filters).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Inspection {
    /// Connections begin by saying where they come from, before anything else.
    pub proxy: Option<ProxyProtocol>,
    /// Connections were redirected to us, and the system knows where they were meant to go.
    pub original_destination: bool,
    /// The client's TLS greeting: server name and protocols.
    pub tls: bool,
    /// For plain connections: whether they speak HTTP/1 or HTTP/2.
    pub http: bool,
    pub ja3: bool,
    pub ja4: bool,
    /// How long to wait for enough bytes; `None` is no limit.
    pub timeout: Option<Duration>,
    /// What is not enough in time goes on with what is known.
    pub continue_on_timeout: bool,
    /// Filters of the registry that look as well, in their order.
    pub filters: Vec<NewcomerSlot>,
    /// What does not greet in TLS is closed.
    pub tls_only: bool,
    /// Connections to upstreams come from the client's own address.
    pub original_source: Option<OriginalSource>,
    /// What connections to certain ports are not asked for.
    pub exceptions: Vec<(InspectionPart, PortMatch)>,
}

impl Inspection {
    /// Whether a part of it is for connections to this port; `None` is an address without one.
    pub fn includes(&self, part: InspectionPart, port: Option<u16>) -> bool {
        !self.exceptions.iter().any(|(exempted, condition)| *exempted == part && condition.holds(port))
    }

    /// Nothing is looked at on the way to a chain.
    pub fn is_nothing(&self) -> bool {
        let Inspection { proxy, original_destination, tls, http, filters, original_source, .. } = self;
        let looks = *original_destination || *tls || *http;
        !looks && proxy.is_none() && original_source.is_none() && filters.is_empty()
    }
}

/// A part of what a listener looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InspectionPart {
    Proxy,
    OriginalDestination,
    OriginalSource,
    Tls,
    Http,
}

/// How connections to upstreams come from the client's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OriginalSource {
    /// From its port, too.
    pub port: bool,
    /// How the system's routes know such connections (`SO_MARK`).
    pub mark: Option<u32>,
}

/// A condition on the port that a connection was meant for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortMatch {
    Any,
    /// From the first to before the second.
    Range(i32, i32),
    All(Vec<PortMatch>),
    One(Vec<PortMatch>),
    Not(Box<PortMatch>),
}

impl PortMatch {
    /// An address without a port is in every range, as in Envoy.
    pub fn holds(&self, port: Option<u16>) -> bool {
        match self {
            PortMatch::Any => true,
            PortMatch::Range(start, end) => port.is_none_or(|port| (*start..*end).contains(&i32::from(port))),
            PortMatch::All(all) => all.iter().all(|each| each.holds(port)),
            PortMatch::One(any) => any.iter().any(|each| each.holds(port)),
            PortMatch::Not(inner) => !inner.holds(port),
        }
    }
}

/// A filter that looks at new connections.
#[derive(Debug, Clone, PartialEq)]
pub struct NewcomerSlot {
    pub slot: FilterSlot,
    /// Before the client's greeting is looked at, not behind that.
    pub is_first: bool,
    /// Connections for which it does not look.
    pub except: Option<PortMatch>,
}

/// Whom the PROXY protocol is taken from (Envoy's `proxy_protocol` listener filter).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProxyProtocol {
    /// The versions that are read.
    pub v1: bool,
    pub v2: bool,
    /// A connection that begins otherwise is served as it is. Not safe where others than the proxy in front can connect.
    pub optional: bool,
    /// `proxy_proto.<stat_prefix>.…` in statistics; may be empty.
    pub stat_prefix: String,
    /// TLVs that are noted of a connection; each type at most once.
    pub noted: Vec<TlvNote>,
    /// They are noted in the filter state, not in the metadata.
    pub noted_in_state: bool,
    /// TLVs that are kept for headers of upstreams.
    pub kept: TlvChoice,
}

/// Where the value of a TLV is noted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlvNote {
    pub kind: u8,
    /// Of the metadata; the filter state has none.
    pub namespace: String,
    pub key: String,
    /// As base64; otherwise as text, with `!` for each byte that is none.
    pub base64: bool,
}

/// Some of the TLVs of a header.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TlvChoice {
    #[default]
    None,
    All,
    /// Those of these types.
    Kinds(Vec<u8>),
}

impl TlvChoice {
    pub fn includes(&self, kind: u8) -> bool {
        match self {
            TlvChoice::None => false,
            TlvChoice::All => true,
            TlvChoice::Kinds(kinds) => kinds.contains(&kind),
        }
    }
}

/// Which way traffic flows, seen from the workload that the proxy stands beside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direction {
    #[default]
    Unspecified,
    Inbound,
    Outbound,
}

/// How accepted connections spread over the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ConnectionBalance {
    /// The kernel chooses among the workers' sockets.
    #[default]
    Kernel,
    /// Each goes to the worker that holds the fewest.
    Exact,
}

/// Options set on a listening socket before it is bound.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SocketOptions {
    /// An IPv6 socket that takes IPv4 as well; its clients have IPv4 addresses.
    pub ipv4_compat: bool,
    /// Clients may reach it over several paths at once (RFC 8684).
    pub multipath: bool,
    pub freebind: bool,
    pub transparent: bool,
    /// Length of the fast-open queue.
    pub tcp_fast_open: Option<u32>,
    pub keepalive: Option<TcpKeepalive>,
    /// What the system calls by numbers, in the order of the document.
    pub numbered: Vec<NumberedOption>,
}

/// An option of a socket as the system knows it (`setsockopt`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumberedOption {
    pub level: i32,
    pub name: i32,
    /// As it stands in memory: an int has four bytes.
    pub value: Vec<u8>,
    pub when: OptionMoment,
    /// Left out on IP sockets of the other version.
    pub ip_version: Option<IpVersion>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IpVersion {
    V4,
    V6,
}

/// When an option is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OptionMoment {
    #[default]
    BeforeBind,
    AfterBind,
    WhenListening,
}

/// TCP keep-alive probes; an absent value is the system's.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TcpKeepalive {
    pub probes: Option<u32>,
    pub time: Option<Duration>,
    pub interval: Option<Duration>,
}

/// What a listener does with the connections that match.
#[derive(Debug, Clone, PartialEq)]
pub struct FilterChain {
    pub name: String,
    pub matches: ChainMatch,
    /// `None` for plain connections.
    pub tls: Option<Arc<DownstreamTls>>,
    /// A connection has to fit all of them, in this order.
    pub limits: Vec<ChainLimit>,
    /// Filters that may turn a connection away or look at its bytes, in the order in which they are asked.
    pub guards: Vec<FilterSlot>,
    pub handler: ConnectionHandler,
    /// What the configuration says about it, for who asks.
    pub metadata: Option<Arc<Metadata>>,
    pub origin: Origin,
}

/// The terminal network filter of a chain.
#[derive(Debug, Clone, PartialEq)]
pub enum ConnectionHandler {
    Http(Arc<HttpConnection>),
    Tcp(Arc<TcpProxy>),
    /// What comes goes back.
    Echo,
    /// Everybody is told this, and the connection ends.
    Say(Arc<[u8]>),
    /// The filters of its bytes: the last of [`FilterChain::guards`] is one that answers by itself.
    Filters,
}

/// A limit of a chain's connections, over all workers.
#[derive(Debug, Clone, PartialEq)]
pub enum ChainLimit {
    Held(ConnectionLimit),
    Rate(ConnectionRate),
}

/// How often a connection may come: each takes a token, and without one it is closed.
#[derive(Debug, Clone, PartialEq)]
pub struct ConnectionRate {
    /// `local_rate_limit.<stat_prefix>.…` in statistics.
    pub stat_prefix: String,
    pub max_tokens: u32,
    pub tokens_per_fill: u32,
    pub fill_interval: Duration,
    /// Chains with the same key and tokens draw from one bucket; each has its own where it is empty.
    pub share_key: String,
    /// Where it only tells: the name of its filter.
    pub shadow: Option<String>,
    /// Otherwise its counters are there alone.
    pub enabled: bool,
}

/// The most connections that a chain holds, over all workers.
#[derive(Debug, Clone, PartialEq)]
pub struct ConnectionLimit {
    /// `connection_limit.<stat_prefix>.…` in statistics.
    pub stat_prefix: String,
    pub most: u64,
    /// One that is too many is closed after this.
    pub delay: Option<Duration>,
    /// Where it only tells: the name of its filter.
    pub shadow: Option<String>,
}

/// Which connections a chain takes. Criteria are tried in the order of the fields; within one criterion the most
/// specific value wins, and a chain without the criterion is the least specific. An empty list matches everything.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ChainMatch {
    pub destination_port: Option<u16>,
    pub destination_prefixes: Vec<Cidr>,
    /// What a TLS client asks for, lower case: a name, or `*.` and a domain for all names below it.
    pub server_names: Vec<String>,
    pub transport: TransportMatch,
    /// One of these is among what the client offers.
    pub application_protocols: Vec<String>,
    /// The address of the peer itself, before any PROXY protocol.
    pub direct_source_prefixes: Vec<Cidr>,
    pub source_kind: SourceKind,
    pub source_prefixes: Vec<Cidr>,
    pub source_ports: Vec<u16>,
}

/// What a connection begins with, where a listener looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TransportMatch {
    #[default]
    Any,
    Raw,
    Tls,
    /// Of HTTP/3, which no connection over TCP is.
    Quic,
}

/// Where a connection comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SourceKind {
    #[default]
    Any,
    /// From this very host: loopback, or source and destination are the same address.
    SameIpOrLoopback,
    External,
}

/// An address range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cidr {
    address: IpAddr,
    length: u8,
}

impl Cidr {
    /// `None` when `length` is more than the address has bits. Host bits are cleared.
    pub fn new(address: IpAddr, length: u8) -> Option<Cidr> {
        let address = match address {
            IpAddr::V4(v4) if length <= 32 => IpAddr::V4((u32::from(v4) & mask32(length)).into()),
            IpAddr::V6(v6) if length <= 128 => IpAddr::V6((u128::from(v6) & mask128(length)).into()),
            _ => return None,
        };
        Some(Cidr { address, length })
    }

    pub fn address(&self) -> IpAddr {
        self.address
    }

    pub fn length(&self) -> u8 {
        self.length
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(v4)) => u32::from(v4) & mask32(self.length) == u32::from(own),
            (IpAddr::V6(own), IpAddr::V6(v6)) => u128::from(v6) & mask128(self.length) == u128::from(own),
            _ => false,
        }
    }
}

impl std::fmt::Display for Cidr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

fn mask32(length: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0)
}

fn mask128(length: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_in_ranges_up_to_their_end() {
        let range = PortMatch::Range(80, 82);
        assert!(range.holds(Some(80)) && range.holds(Some(81)) && !range.holds(Some(82)) && range.holds(None));
        let not = PortMatch::Not(Box::new(range.clone()));
        assert!(not.holds(Some(82)) && !not.holds(Some(80)));
        assert!(PortMatch::All(vec![PortMatch::Any, range.clone()]).holds(Some(80)));
        assert!(PortMatch::One(vec![not, range]).holds(Some(80)));
    }

    #[test]
    fn a_range_contains_its_addresses_and_no_other_family() {
        let range = Cidr::new("10.1.2.3".parse().unwrap(), 8).unwrap();
        assert_eq!(range.to_string(), "10.0.0.0/8");
        assert!(range.contains("10.255.0.1".parse().unwrap()));
        assert!(!range.contains("11.0.0.1".parse().unwrap()));
        assert!(!range.contains("::1".parse().unwrap()));
        let all = Cidr::new("0.0.0.0".parse().unwrap(), 0).unwrap();
        assert!(all.contains("255.255.255.255".parse().unwrap()));
        assert!(Cidr::new("::".parse().unwrap(), 0).unwrap().contains("ff::1".parse().unwrap()));
        assert_eq!(Cidr::new("1.2.3.4".parse().unwrap(), 33), None);
    }
}
