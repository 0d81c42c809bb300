//! How a connection is carried without being read.

use std::time::Duration;

use crate::{AccessLog, Origin};

#[derive(Debug, Clone, PartialEq)]
pub struct TcpProxy {
    /// `tcp.<stat_prefix>.…` in statistics.
    pub stat_prefix: String,
    /// Never empty; weights are positive. One entry means all connections.
    pub clusters: Vec<TcpCluster>,
    /// A connection on which nothing moves in either direction; `None` is no limit.
    pub idle_timeout: Option<Duration>,
    pub max_connection_duration: Option<Duration>,
    /// Tries in all, at least 1; each picks an endpoint anew.
    pub max_connect_attempts: u32,
    pub access_log: Vec<AccessLog>,
    pub origin: Origin,
}

#[derive(Debug, Clone, PartialEq)]
pub struct TcpCluster {
    pub cluster: String,
    pub weight: u32,
}
