//! What tests of hosts begin with.

use postrider_model::{Address, Endpoint, EndpointHealth};

/// A healthy endpoint on this port, of which nothing else is said.
pub(crate) fn endpoint(port: u16) -> Endpoint {
    Endpoint {
        address: Address::Tcp(([127, 0, 0, 1], port).into()),
        additional: Vec::new(),
        hostname: String::new(),
        weight: 1,
        priority: 0,
        health: EndpointHealth::Healthy,
        leaving: None,
        check: None,
        place: None,
        hash_key: None,
        metadata: None,
    }
}
