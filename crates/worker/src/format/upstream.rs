//! What formats can say of the hosts that a request was sent to, and of their cluster.
//!
//! Hosts are found by their addresses, and only for formats that ask: nothing is remembered of them while a request runs.

use std::rc::Rc;
use std::sync::Arc;

use postrider_http::split_port;
use postrider_model::{Endpoint, Metadata};

use super::number;
use crate::cluster::{Cluster, Host};

/// Where a request goes.
#[derive(Clone, Copy, Default)]
pub(crate) struct OfUpstream<'a> {
    pub(crate) cluster: Option<&'a Cluster>,
    /// Hosts that it was sent to before.
    pub(crate) tried: &'a [Rc<Host>],
    /// Connections that it was sent on before, each once.
    pub(crate) tried_on: &'a [u64],
}

impl<'a> OfUpstream<'a> {
    /// The host with this address.
    pub(crate) fn endpoint(&self, address: &str) -> Option<Arc<Endpoint>> {
        let mut found = None;
        self.cluster?.hosts.each_host(|host| {
            let mut all = std::iter::once(&host.endpoint.address).chain(&host.endpoint.additional);
            if found.is_none() && all.any(|own| own.to_string() == address) {
                found = Some(host.endpoint.clone());
            }
        });
        found
    }

    /// What the host with this address is called.
    pub(super) fn name(&self, address: &str, port: bool, out: &mut Vec<u8>) {
        match self.endpoint(address) {
            Some(endpoint) => name(&endpoint, port, out),
            None => part(address, port, out),
        }
    }

    /// All hosts, in the order in which they were asked; the last has this address.
    pub(super) fn all(&self, last: &str, names: bool, port: bool, out: &mut Vec<u8>) {
        for host in self.tried {
            match names {
                true => name(&host.endpoint, port, out),
                false => part(&host.endpoint.address.to_string(), port, out),
            }
            out.push(b',');
        }
        if names { self.name(last, port, out) } else { part(last, port, out) }
    }

    /// All connections, in the order in which they were used; the last has this number, 0 for none.
    pub(super) fn connections(&self, last: u64, out: &mut Vec<u8>) -> Option<()> {
        let before = self.tried_on.iter().copied().filter(|id| *id != last);
        for (index, id) in before.chain((last != 0).then_some(last)).enumerate() {
            if index > 0 {
                out.push(b',');
            }
            number(id, out);
        }
        (last != 0 || !self.tried_on.is_empty()).then_some(())
    }

    pub(super) fn host_metadata(&self, address: &str) -> Option<Arc<Metadata>> {
        self.endpoint(address)?.metadata.clone()
    }

    pub(super) fn cluster_metadata(&self) -> Option<&'a Metadata> {
        self.cluster?.plan.model.metadata.as_deref()
    }
}

/// Its address where it has no name.
fn name(endpoint: &Endpoint, port: bool, out: &mut Vec<u8>) {
    match endpoint.hostname.as_str() {
        "" => part(&endpoint.address.to_string(), port, out),
        name => part(name, port, out),
    }
}

fn part(text: &str, port: bool, out: &mut Vec<u8>) {
    let text = text.as_bytes();
    out.extend_from_slice(if port { text } else { split_port(text).0 });
}
