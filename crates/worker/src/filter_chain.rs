//! The choice of a filter chain for a new connection.
//!
//! Criteria are tried one after the other (`FilterChainMatch` in Envoy's listener API). Each keeps only those chains
//! that match it most specifically; chains that do not mention a criterion are the least specific for it. So a later
//! criterion never brings back a chain that an earlier one ruled out, not even where no other one is left then.

use std::net::{IpAddr, SocketAddr};

use postrider_model::{ChainMatch, Cidr, SourceKind, TransportMatch};

use crate::greeting::Greeting;

/// The two ends of a connection, `None` on a Unix socket, and what the client said first.
#[derive(Debug, Clone, Copy)]
pub struct Peer<'a> {
    pub local: Option<SocketAddr>,
    pub remote: Option<SocketAddr>,
    /// The peer itself, before what a proxy in front of us said.
    pub direct_remote: Option<SocketAddr>,
    pub greeting: &'a Greeting,
}

/// How specifically a criterion matches: `None` when it does not, and the least for one that is not mentioned.
type Criterion = fn(&ChainMatch, &Peer<'_>) -> Option<u32>;

/// In Envoy's order.
const CRITERIA: [Criterion; 9] = [
    |chain, peer| match chain.destination_port {
        None => Some(0),
        Some(port) => matched(peer.local.is_some_and(|address| address.port() == port)),
    },
    |chain, peer| longest(&chain.destination_prefixes, peer.local),
    |chain, peer| closest(&chain.server_names, peer.greeting.server_name.as_deref()),
    |chain, peer| match chain.transport {
        TransportMatch::Any => Some(0),
        TransportMatch::Raw => matched(!peer.greeting.tls),
        TransportMatch::Tls => matched(peer.greeting.tls),
        TransportMatch::Quic => None,
    },
    |chain, peer| preferred(&chain.application_protocols, &peer.greeting.protocols),
    |chain, peer| longest(&chain.direct_source_prefixes, peer.direct_remote),
    |chain, peer| match chain.source_kind {
        SourceKind::Any => Some(0),
        kind => matched(is_local(peer.local.map(ip), peer.remote.map(ip)) == (kind == SourceKind::SameIpOrLoopback)),
    },
    |chain, peer| longest(&chain.source_prefixes, peer.remote),
    |chain, peer| match chain.source_ports.as_slice() {
        [] => Some(0),
        ports => matched(peer.remote.is_some_and(|address| ports.contains(&address.port()))),
    },
];

/// The index of the chain that takes the connection.
pub(crate) fn choose<'a>(chains: impl Iterator<Item = &'a ChainMatch>, peer: &Peer<'_>) -> Option<usize> {
    let mut left: Vec<(usize, &ChainMatch)> = chains.enumerate().collect();
    for criterion in CRITERIA {
        let best = left.iter().filter_map(|(_, chain)| criterion(chain, peer)).max()?;
        left.retain(|(_, chain)| criterion(chain, peer) == Some(best));
    }
    left.first().map(|(index, _)| *index)
}

fn matched(holds: bool) -> Option<u32> {
    holds.then_some(1)
}

fn ip(address: SocketAddr) -> IpAddr {
    address.ip()
}

/// A range of every address is less specific than none (so it is in Envoy). On a Unix socket no range holds.
fn longest(ranges: &[Cidr], address: Option<SocketAddr>) -> Option<u32> {
    if ranges.is_empty() {
        return Some(1);
    }
    let address = address?.ip();
    let lengths = ranges.iter().filter(|range| range.contains(address)).map(|range| u32::from(range.length()));
    lengths.max().map(|length| if length == 0 { 0 } else { length + 1 })
}

/// The client's order decides.
fn preferred(wanted: &[String], offered: &[Vec<u8>]) -> Option<u32> {
    if wanted.is_empty() {
        return Some(0);
    }
    let place = offered.iter().position(|offer| wanted.iter().any(|wanted| wanted.as_bytes() == offer))?;
    u32::try_from(offered.len() - place).ok()
}

/// The name itself is closer than any wildcard, and a longer one is closer than a shorter.
fn closest(names: &[String], asked: Option<&str>) -> Option<u32> {
    if names.is_empty() {
        return Some(0);
    }
    let asked = asked?;
    let fit = |name: &String| match name.strip_prefix('*') {
        None => (name == asked).then_some(u32::MAX),
        Some(domain) => {
            let below = asked.len() > domain.len() && asked.ends_with(domain);
            below.then(|| u32::try_from(domain.len()).unwrap_or(u32::MAX - 1))
        }
    };
    names.iter().filter_map(fit).max()
}

/// A connection within this host: over loopback, from an address to itself, or over a Unix socket.
pub(crate) fn is_local(local: Option<IpAddr>, remote: Option<IpAddr>) -> bool {
    match (local, remote) {
        (Some(local), Some(remote)) => local == remote || remote.is_loopback(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(local: &str, remote: &str) -> Peer<'static> {
        static NOTHING: Greeting =
            Greeting { tls: false, server_name: None, protocols: Vec::new(), ja3: None, ja4: None };
        Peer {
            local: local.parse().ok(),
            remote: remote.parse().ok(),
            direct_remote: remote.parse().ok(),
            greeting: &NOTHING,
        }
    }

    fn ranges(text: &[&str]) -> Vec<Cidr> {
        let range = |text: &&str| {
            let (address, length) = text.split_once('/').unwrap();
            Cidr::new(address.parse().unwrap(), length.parse().unwrap()).unwrap()
        };
        text.iter().map(range).collect()
    }

    #[test]
    fn the_most_specific_chain_of_the_first_criterion_wins() {
        let chains = [
            ChainMatch::default(),
            ChainMatch { destination_port: Some(443), ..Default::default() },
            ChainMatch { source_prefixes: ranges(&["10.0.0.0/8"]), ..Default::default() },
            ChainMatch { source_prefixes: ranges(&["10.1.0.0/16", "127.0.0.1/32"]), ..Default::default() },
            ChainMatch { source_ports: vec![7], source_prefixes: ranges(&["10.0.0.0/8"]), ..Default::default() },
        ];
        let choose = |local, remote| super::choose(chains.iter(), &peer(local, remote));
        assert_eq!(choose("1.1.1.1:443", "10.1.0.1:9"), Some(1), "the port is looked at before the source");
        assert_eq!(choose("1.1.1.1:80", "10.1.0.1:9"), Some(3));
        assert_eq!(choose("1.1.1.1:80", "10.2.0.1:9"), Some(2));
        assert_eq!(choose("1.1.1.1:80", "10.2.0.1:7"), Some(4));
        assert_eq!(choose("1.1.1.1:80", "11.2.0.1:7"), Some(0));
    }

    #[test]
    fn the_closest_server_name_wins_and_comes_before_protocols() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let chains = [
            ChainMatch::default(),
            ChainMatch { server_names: names(&["*.test"]), ..Default::default() },
            ChainMatch { server_names: names(&["*.a.test"]), ..Default::default() },
            ChainMatch { server_names: names(&["b.a.test"]), ..Default::default() },
            ChainMatch { transport: TransportMatch::Tls, application_protocols: names(&["h2"]), ..Default::default() },
            ChainMatch { transport: TransportMatch::Raw, ..Default::default() },
        ];
        let choose = |greeting: Greeting| {
            super::choose(chains.iter(), &Peer { local: None, remote: None, direct_remote: None, greeting: &greeting })
        };
        let hello = |name: Option<&str>, protocols: &[&str]| Greeting {
            tls: true,
            server_name: name.map(str::to_owned),
            protocols: protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect(),
            ..Greeting::default()
        };
        assert_eq!(choose(hello(Some("b.a.test"), &["h2"])), Some(3));
        assert_eq!(choose(hello(Some("x.b.a.test"), &[])), Some(2));
        assert_eq!(choose(hello(Some("a.test"), &[])), Some(1));
        assert_eq!(choose(hello(Some("test"), &["h2", "http/1.1"])), Some(4));
        assert_eq!(choose(hello(None, &["http/1.1"])), None, "the chain for TLS wants another protocol");
        assert_eq!(choose(Greeting::default()), Some(5));
    }

    #[test]
    fn a_chain_for_quic_takes_no_connection_over_tcp() {
        let quic = ChainMatch { transport: TransportMatch::Quic, ..Default::default() };
        let chains = [quic, ChainMatch { destination_port: Some(443), ..Default::default() }];
        assert_eq!(choose(chains.iter(), &peer("1.1.1.1:443", "10.0.0.1:9")), Some(1));
        assert_eq!(choose(chains.iter().take(1), &peer("1.1.1.1:443", "10.0.0.1:9")), None);
    }

    #[test]
    fn a_stranger_to_a_chain_of_its_port_was_let_into_the_one_for_all() {
        let local = || ranges(&["10.0.0.0/8"]);
        let narrow = [
            ChainMatch { destination_port: Some(443), ..Default::default() },
            ChainMatch { destination_prefixes: ranges(&["1.0.0.0/8"]), ..Default::default() },
            ChainMatch { transport: TransportMatch::Raw, ..Default::default() },
            ChainMatch { source_kind: SourceKind::External, ..Default::default() },
        ];
        for narrow in narrow {
            let chains = [ChainMatch { source_prefixes: local(), ..narrow }, ChainMatch::default()];
            let choose = |remote| super::choose(chains.iter(), &peer("1.1.1.1:443", remote));
            assert_eq!(["10.0.0.1:9", "11.0.0.1:9"].map(choose), [Some(0), None]);
        }
        let ports = [
            ChainMatch { source_prefixes: ranges(&["11.0.0.0/16"]), source_ports: vec![7], ..Default::default() },
            ChainMatch { source_prefixes: ranges(&["11.0.0.0/8"]), ..Default::default() },
        ];
        let choose = |remote| super::choose(ports.iter(), &peer("1.1.1.1:443", remote));
        assert_eq!(["11.0.0.1:7", "11.0.0.1:9", "11.1.0.1:9"].map(choose), [Some(0), None, Some(1)]);
    }

    #[test]
    fn a_range_of_all_addresses_went_before_no_range() {
        let chains =
            [ChainMatch { source_prefixes: ranges(&["0.0.0.0/0"]), ..Default::default() }, ChainMatch::default()];
        assert_eq!(choose(chains.iter(), &peer("1.1.1.1:443", "10.0.0.1:9")), Some(1));
        assert_eq!(choose(chains.iter().take(1), &peer("1.1.1.1:443", "10.0.0.1:9")), Some(0));
    }

    #[test]
    fn the_first_protocol_that_the_client_offers_and_a_chain_names_decides() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let chains = [
            ChainMatch { application_protocols: names(&["http/1.1"]), ..Default::default() },
            ChainMatch { application_protocols: names(&["h2", "http/1.1"]), ..Default::default() },
        ];
        let choose = |protocols: &[&str]| {
            let protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
            let greeting = Greeting { tls: true, protocols, ..Greeting::default() };
            super::choose(chains.iter(), &Peer { local: None, remote: None, direct_remote: None, greeting: &greeting })
        };
        assert_eq!(choose(&["h2", "http/1.1"]), Some(1));
        assert_eq!(choose(&["http/1.1", "h2"]), Some(0));
        assert_eq!(choose(&["h3"]), None);
    }

    #[test]
    fn without_a_match_there_is_no_chain() {
        let chains = [
            ChainMatch { source_kind: SourceKind::External, ..Default::default() },
            ChainMatch { destination_prefixes: ranges(&["9.0.0.0/8"]), ..Default::default() },
        ];
        assert_eq!(choose(chains.iter(), &peer("127.0.0.1:80", "127.0.0.1:9")), None);
        assert_eq!(choose(chains.iter(), &peer("2.2.2.2:80", "3.3.3.3:9")), Some(0));
        assert_eq!(choose(chains.iter(), &peer("2.2.2.2:80", "2.2.2.2:9")), None);
    }
}
