//! Where a stream is served, and what stands behind it: for who asks, and at no cost for others.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use postrider_model::{Direction, Endpoint, Metadata, Node};

/// The proxy, the listener and the clusters around a stream, as they are when they are asked about.
pub trait Surroundings {
    /// Who this proxy says it is.
    fn node(&self) -> Rc<Node>;

    /// What the listener is called.
    fn listener_name(&self) -> String;

    /// Which way traffic flows through the listener.
    fn direction(&self) -> Direction;

    /// What the configuration says about the listener.
    fn listener_metadata(&self) -> Option<Arc<Metadata>>;

    /// What the configuration says about the filter chain.
    fn chain_metadata(&self) -> Option<Arc<Metadata>> {
        None
    }

    /// The cluster of that name; `None` when the configuration has none.
    fn cluster(&self, name: &str) -> Option<ClusterFacts>;

    /// The host of a cluster by its address (`host:port`, or a socket's path).
    fn endpoint(&self, cluster: &str, address: &str) -> Option<Arc<Endpoint>>;
}

impl fmt::Debug for dyn Surroundings + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Surroundings")
    }
}

/// What expressions may ask about a cluster.
#[derive(Debug, Clone, Default)]
pub struct ClusterFacts {
    pub metadata: Option<Arc<Metadata>>,
    /// How many hosts it has, healthy or not.
    pub endpoints: usize,
}
