//! Active health checks of a cluster, and what the health of its hosts means for its traffic.

use std::sync::Arc;
use std::time::Duration;

use crate::{AccessLogSink, HeaderEdits, HeaderMatch, Metadata, ProxyHeader};

/// How the health of hosts counts.
#[derive(Debug, Clone, PartialEq)]
pub struct HealthRules {
    /// Below this share of usable hosts, in percent, traffic goes to all hosts whatever their health.
    pub panic_threshold: f64,
    /// Hosts that were not checked yet do not count for that share.
    pub ignores_unchecked: bool,
    /// Hosts that discovery dropped go at once, though they pass their checks.
    pub drops_removed: bool,
    /// Connections of the TCP proxy to a host that fails its checks end.
    pub closes_connections: bool,
    /// A host is well when it passes all of them. More than one have names, each its own.
    pub checks: Vec<HealthCheck>,
}

impl Default for HealthRules {
    /// Envoy's (`CommonLbConfig.healthy_panic_threshold`).
    fn default() -> Self {
        HealthRules {
            panic_threshold: 50.0,
            ignores_unchecked: false,
            drops_removed: false,
            closes_connections: false,
            checks: Vec::new(),
        }
    }
}

/// Envoy's `HealthCheck`.
#[derive(Debug, Clone, PartialEq)]
pub struct HealthCheck {
    /// By which it is known in statistics; may be empty.
    pub name: String,
    pub kind: CheckKind,
    pub timeout: Duration,
    pub intervals: CheckIntervals,
    /// Failures of the network after which a host is unhealthy.
    pub unhealthy_threshold: u32,
    /// Successes after which it is healthy again.
    pub healthy_threshold: u32,
    pub reuse_connection: bool,
    /// What its connections offer by ALPN; empty is what the cluster's do.
    pub alpn: Vec<String>,
    /// By this its connections have their transport, in place of what is said about the host.
    pub transport_by: Option<Arc<Metadata>>,
    /// What checks over HTTP and gRPC call themselves.
    pub user_agent: String,
    /// Where what happens to hosts is told.
    pub event_logs: Vec<AccessLogSink>,
    pub logs_every_failure: bool,
    pub logs_every_success: bool,
}

/// How long after one check the next one begins.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CheckIntervals {
    pub healthy: Duration,
    pub unhealthy: Duration,
    /// Right after a host became healthy, and unhealthy.
    pub healthy_edge: Duration,
    pub unhealthy_edge: Duration,
    /// While the cluster has had no traffic: for hosts that fail, and that pass.
    pub idle: Duration,
    pub idle_healthy: Duration,
    /// Up to so much is added at random, and so many percent.
    pub jitter: Duration,
    pub jitter_percent: u32,
    /// The first check comes up to so much later.
    pub initial_jitter: Duration,
}

#[derive(Debug, Clone, PartialEq)]
pub enum CheckKind {
    Http(Box<HttpCheck>),
    Tcp(TcpCheck),
    Grpc(GrpcCheck),
    Redis(RedisCheck),
    Thrift(ThriftCheck),
    Udp(UdpCheck),
}

#[derive(Debug, Clone, PartialEq)]
pub struct HttpCheck {
    /// Empty means the cluster's name.
    pub host: String,
    pub path: String,
    pub method: String,
    pub body: Vec<u8>,
    pub headers: HeaderEdits,
    pub expected: Vec<StatusRange>,
    /// Statuses that fail, but not at once.
    pub retriable: Vec<StatusRange>,
    /// Parts of the answer's body, in this order; empty is any.
    pub receive: Vec<Vec<u8>>,
    /// Bytes of the answer's body that are looked at; 0 is all.
    pub look_at: u64,
    /// Holds for the answer of the service that is meant.
    pub service: Option<HeaderMatch>,
    pub http2: bool,
}

/// From the first status to before the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusRange {
    pub start: u16,
    pub end: u16,
}

impl StatusRange {
    pub fn contains(&self, status: u16) -> bool {
        (self.start..self.end).contains(&status)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpCheck {
    /// Said first on each connection.
    pub proxy_header: Option<ProxyHeader>,
    pub send: Vec<u8>,
    /// Parts of what comes back, in this order; empty is satisfied with a connection.
    pub receive: Vec<Vec<u8>>,
}

/// `PING`, or `EXISTS` for a key that a healthy server does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisCheck {
    /// Empty is `PING`.
    pub key: String,
}

/// A call without arguments, which is to be answered with a reply that is no exception.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThriftCheck {
    pub method: String,
    pub transport: ThriftTransport,
    pub protocol: ThriftProtocol,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThriftTransport {
    Framed,
    Unframed,
    Header,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThriftProtocol {
    Binary,
    /// Without a version.
    LaxBinary,
    Compact,
}

/// A datagram, which is to be answered with another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UdpCheck {
    pub send: Vec<u8>,
    pub receive: Vec<u8>,
}

/// `grpc.health.v1.Health/Check`.
#[derive(Debug, Clone, PartialEq)]
pub struct GrpcCheck {
    pub service: String,
    /// Empty means the cluster's name.
    pub authority: String,
    pub metadata: HeaderEdits,
}

/// What an endpoint says about its checks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct EndpointCheck {
    /// Another port, and another address.
    pub port: Option<u16>,
    pub address: Option<crate::Address>,
    /// In place of the check's own host; may be empty.
    pub hostname: String,
    /// It is not checked, and counts as healthy.
    pub disabled: bool,
}
