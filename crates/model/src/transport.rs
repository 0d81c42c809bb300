//! Which transport the connections to an endpoint have, where that depends on the endpoint (`transport_socket_matches`).

use std::sync::Arc;

use crate::{Cluster, Labels, Locality, Metadata, ProxyHeader, TRANSPORT_LABELS, UpstreamTls};

/// A transport for endpoints with certain labels.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelledTransport {
    /// By which it is known in statistics; not empty.
    pub name: String,
    /// An endpoint has to have all of them; none means every endpoint.
    pub labels: Labels,
    /// `None` for plain connections.
    pub tls: Option<Arc<UpstreamTls>>,
    /// Connections begin by saying where they come from, before TLS.
    pub proxy_header: Option<Box<ProxyHeader>>,
}

impl Cluster {
    /// Which of `transports` is for endpoints of which this is said; `None` is the cluster's own. The first that fits what is
    /// said of the endpoint itself counts, and only then the first that fits what is said of its locality.
    pub fn transport_for(&self, about: Option<&Metadata>, place: Option<&Locality>) -> Option<usize> {
        let first_for = |about: Option<&Metadata>| {
            self.transports.iter().position(|transport| transport.labels.are_had_under(TRANSPORT_LABELS, about))
        };
        first_for(about).or_else(|| first_for(place.and_then(|place| place.metadata.as_deref())))
    }
}
