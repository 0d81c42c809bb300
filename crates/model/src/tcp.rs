//! How a connection is carried without being read.

use std::sync::Arc;
use std::time::Duration;

use crate::{AccessLog, BackOff, Format, HashSource, HeaderEdits, Labels, LogFormat, MetadataKey, Origin};

#[derive(Debug, Clone, PartialEq)]
pub struct TcpProxy {
    /// `tcp.<stat_prefix>.…` in statistics.
    pub stat_prefix: String,
    /// Never empty; weights are positive. One entry means all connections.
    pub clusters: Vec<TcpCluster>,
    /// Weights decide alone: what was noted of a connection does not.
    pub weighted: bool,
    /// A connection on which nothing moves in either direction; `None` is no limit.
    pub idle_timeout: Option<Duration>,
    pub max_connection_duration: Option<Duration>,
    /// Up to so many percent of it longer, by chance.
    pub max_connection_duration_jitter: f64,
    /// The endpoint is not asked before the client said something; so many bytes of that are held meanwhile.
    pub awaits_data: Option<u32>,
    /// While the proxy drains, a connection ends when something moves on it.
    pub ends_while_draining: bool,
    /// Tries in all, at least 1; each picks an endpoint anew.
    pub max_connect_attempts: u32,
    /// The wait before each but the first; `None` is none.
    pub back_off: Option<BackOff>,
    /// The endpoint is a proxy that is asked for a tunnel.
    pub tunneling: Option<Tunneling>,
    /// What decides on the host, where the cluster chooses by a hash.
    pub hash: Option<HashSource>,
    pub access_log: Vec<AccessLog>,
    /// When it is written besides at the end.
    pub log_moments: LogMoments,
    /// TLVs for the header of the PROXY protocol with which the connection to the upstream begins.
    pub tlvs: Option<Box<AddedTlvs>>,
    pub origin: Origin,
}

/// TLVs that a TCP proxy knows of a connection, besides what the client's own header said.
#[derive(Debug, Clone, PartialEq)]
pub struct AddedTlvs {
    pub entries: Vec<TlvEntry>,
    pub merge: TlvMerge,
}

#[derive(Debug, Clone, PartialEq)]
pub struct TlvEntry {
    pub kind: u8,
    pub value: TlvValue,
}

#[derive(Debug, Clone, PartialEq)]
pub enum TlvValue {
    Fixed(Vec<u8>),
    /// Written anew for each connection.
    Format(LogFormat),
}

/// What becomes of them where the connection began with a header itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlvMerge {
    /// Nothing.
    #[default]
    OnlyAlone,
    /// They go in front, in the place of the header's own of the same types.
    Replace,
    /// They follow the header's own.
    Append,
}

/// Lines about a connection, or a request, before it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogMoments {
    pub start: bool,
    /// When there is a connection to the upstream; of a request, when its tunnel is open.
    pub connected: bool,
    /// Again and again, so far apart.
    pub every: Option<Duration>,
}

/// A connection goes through the tunnel that a CONNECT opens (RFC 9110 section 9.3.6), or a POST in its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Tunneling {
    /// `host:port` that the proxy is asked for; with a POST, what its `host` says.
    pub hostname: Format,
    pub headers: HeaderEdits,
    /// A POST to this path asks for it, whose body and that of its answer carry the bytes.
    pub post_path: Option<String>,
    /// The answer's head is kept in the filter state, and so are its trailers.
    pub keeps_headers: bool,
    pub keeps_trailers: bool,
    /// Each request for a tunnel has an id.
    pub request_id: Option<TunnelId>,
}

/// Where the id of a tunnel is said.
#[derive(Debug, Clone, PartialEq)]
pub struct TunnelId {
    /// A field of the request; lower case.
    pub header: String,
    /// In the metadata of the connection.
    pub noted_at: MetadataKey,
}

#[derive(Debug, Clone, PartialEq)]
pub struct TcpCluster {
    pub cluster: String,
    pub weight: u32,
    /// The labels that a host is to have, where the cluster knows hosts by them.
    pub labels: Option<Arc<Labels>>,
}
