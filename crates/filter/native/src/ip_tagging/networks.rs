//! Which of many networks an address is in.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use postrider_model::Cidr;

/// Networks by their length, so that an address costs one look-up for each length that there is.
#[derive(Debug, Default)]
pub(super) struct Networks {
    v4: BTreeMap<u8, HashMap<IpAddr, Vec<usize>>>,
    v6: BTreeMap<u8, HashMap<IpAddr, Vec<usize>>>,
}

impl Networks {
    /// Each network stands for a number; several may stand for the same one.
    pub(super) fn new(all: &[(Cidr, usize)]) -> Networks {
        let mut networks = Networks::default();
        for (network, number) in all {
            let by_length = if network.address().is_ipv4() { &mut networks.v4 } else { &mut networks.v6 };
            by_length.entry(network.length()).or_default().entry(network.address()).or_default().push(*number);
        }
        networks
    }

    /// The numbers of all networks that the address is in, ascending, each once.
    pub(super) fn find(&self, address: IpAddr) -> Vec<usize> {
        let address = address.to_canonical();
        let by_length = if address.is_ipv4() { &self.v4 } else { &self.v6 };
        let mut found: Vec<usize> = by_length
            .iter()
            .filter_map(|(length, networks)| networks.get(&Cidr::new(address, *length)?.address()))
            .flatten()
            .copied()
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }
}
