//! Endpoints from DNS, on the control side: never on a worker.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use postrider_model::{Address, Discovery, DnsDiscovery, DnsName, Endpoint, EndpointHealth};

use crate::health::draw;
use crate::resolver::{Answer, Resolver};
use crate::{Endpoints, Random};

/// A TTL below this is treated as this, so that a zero TTL is no busy loop.
const SHORTEST_TTL: Duration = Duration::from_secs(1);

/// Nor is a wait between two lookups.
const SHORTEST_WAIT: Duration = Duration::from_millis(10);

/// Looks at names of one cluster, as statistics tell them.
#[derive(Debug, Default)]
pub struct Lookups {
    pub attempts: AtomicU64,
    pub answers: AtomicU64,
    pub failures: AtomicU64,
    /// Answers that said what was known.
    pub unchanged: AtomicU64,
}

/// Follows the names of a cluster for as long as the future is polled: `publish` gets each new set of endpoints, first
/// as soon as every name was answered or failed once. A name that fails keeps its last addresses. Returns at once for
/// a cluster that needs no DNS.
pub async fn follow(
    resolver: &Resolver,
    discovery: &Discovery,
    lookups: &Lookups,
    mut publish: impl FnMut(Endpoints, Vec<String>),
) {
    let (names, logical) = match discovery {
        Discovery::Static(_) | Discovery::Original(_) => return,
        Discovery::StrictDns(names) => (names, false),
        Discovery::LogicalDns(names) => (names, true),
    };
    let mut known: Vec<Vec<IpAddr>> = vec![Vec::new(); names.names.len()];
    let random = Random::default();
    let (first_failure, longest_failure) = names.failure_refresh;
    // Of each name: how long to wait at most after its next failure.
    let mut back_off = vec![first_failure; names.names.len()];
    let mut published = None;
    loop {
        let mut wait = if names.respect_ttl { Duration::MAX } else { names.refresh };
        let mut failures = Vec::new();
        for ((name, addresses), back_off) in names.names.iter().zip(&mut known).zip(&mut back_off) {
            lookups.attempts.fetch_add(1, Relaxed);
            match resolver.resolve(&name.host, names.family).await {
                Ok(answer) => {
                    // Which is no answer for the one host of a logical cluster.
                    let is_nothing = logical && answer.addresses.is_empty();
                    let counter = if is_nothing { &lookups.failures } else { &lookups.answers };
                    counter.fetch_add(1, Relaxed);
                    wait = wait.min(next_look(names, &answer));
                    // As in Envoy, one logical host stays when its name has no addresses any more; others go.
                    let changes = !same(addresses, &answer.addresses, logical);
                    lookups.unchanged.fetch_add(u64::from(!changes && !is_nothing), Relaxed);
                    if !is_nothing {
                        *addresses = answer.addresses;
                    }
                    *back_off = first_failure;
                }
                Err(error) => {
                    lookups.failures.fetch_add(1, Relaxed);
                    failures.push(format!("{}: {error}", name.host));
                    // As Envoy's back-off does: somewhere below a limit that doubles.
                    wait = wait.min(match longest_failure > Duration::ZERO {
                        true => draw(*back_off, &random),
                        false => names.refresh,
                    });
                    *back_off = back_off.saturating_mul(2).min(longest_failure);
                }
            }
        }
        let endpoints = endpoints(names, &known, logical);
        if published.as_ref() != Some(&endpoints) || !failures.is_empty() {
            publish(endpoints.clone(), failures);
            published = Some(endpoints);
        }
        match Instant::now().checked_add(wait.max(SHORTEST_WAIT).saturating_add(draw(names.jitter, &random))) {
            Some(next) => tokio::time::sleep_until(next.into()).await,
            // Literal addresses only: they will not change.
            None => return,
        }
    }
}

/// Whether an answer brings nothing new: of a logical host its first address counts, of others their set.
fn same(known: &[IpAddr], answer: &[IpAddr], logical: bool) -> bool {
    match logical {
        true => known.first() == answer.first(),
        false => known.len() == answer.len() && answer.iter().all(|address| known.contains(address)),
    }
}

/// How long an answer is relied on.
fn next_look(names: &DnsDiscovery, answer: &Answer) -> Duration {
    match names.respect_ttl && !answer.addresses.is_empty() && !answer.ttl.is_zero() {
        true => answer.ttl.max(SHORTEST_TTL).max(names.shortest_ttl),
        false => names.refresh,
    }
}

/// The endpoints that a cluster starts with before any name was resolved.
pub fn initial(discovery: &Discovery) -> Endpoints {
    match discovery {
        Discovery::Static(endpoints) => Endpoints(endpoints.iter().cloned().map(Arc::new).collect()),
        Discovery::StrictDns(names) => literal_only(names, false),
        Discovery::LogicalDns(names) => literal_only(names, true),
        Discovery::Original(_) => Endpoints::default(),
    }
}

fn literal_only(names: &DnsDiscovery, logical: bool) -> Endpoints {
    let known: Vec<Vec<IpAddr>> = names.names.iter().map(|name| name.host.parse().into_iter().collect()).collect();
    endpoints(names, &known, logical)
}

fn endpoints(names: &DnsDiscovery, known: &[Vec<IpAddr>], logical: bool) -> Endpoints {
    let mut endpoints: Vec<Arc<Endpoint>> = Vec::new();
    for (name, addresses) in names.names.iter().zip(known) {
        let mut addresses = addresses.clone();
        // Servers rotate their answers: an order of our own keeps an unchanged set equal. A logical cluster wants the
        // first address of each answer instead, whichever that is now; the others are what to try if it does not answer.
        addresses.get_mut(usize::from(logical)..).unwrap_or_default().sort();
        let mut addresses = addresses.into_iter();
        while let Some(address) = addresses.next() {
            let additional = if logical { addresses.by_ref().collect() } else { Vec::new() };
            let endpoint = endpoint(name, address, additional);
            // Two names of one address are one endpoint, as in Envoy's strict DNS.
            if !endpoints.iter().any(|other| other.address == endpoint.address) {
                endpoints.push(Arc::new(endpoint));
            }
        }
    }
    Endpoints(endpoints)
}

fn endpoint(name: &DnsName, address: IpAddr, additional: Vec<IpAddr>) -> Endpoint {
    let at = |address| Address::Tcp(SocketAddr::new(address, name.port));
    Endpoint {
        address: at(address),
        additional: additional.into_iter().map(at).collect(),
        hostname: name.host.clone(),
        weight: name.weight,
        priority: name.priority,
        health: EndpointHealth::Healthy,
        leaving: None,
        check: name.check.clone(),
        place: name.place.clone(),
        hash_key: name.hash_key.clone(),
        metadata: name.metadata.clone(),
    }
}

#[cfg(test)]
mod tests {
    use postrider_model::DnsFamily;

    use super::*;

    fn names(hosts: &[&str]) -> DnsDiscovery {
        let names = hosts
            .iter()
            .map(|host| DnsName {
                host: (*host).to_owned(),
                port: 80,
                weight: 1,
                priority: 0,
                check: None,
                place: None,
                hash_key: None,
                metadata: None,
            })
            .collect();
        DnsDiscovery {
            names,
            resolver: Arc::default(),
            family: DnsFamily::V4Only,
            refresh: Duration::from_secs(5),
            respect_ttl: false,
            shortest_ttl: Duration::ZERO,
            jitter: Duration::ZERO,
            failure_refresh: (Duration::ZERO, Duration::ZERO),
            wait_for_first: true,
        }
    }

    fn addresses(endpoints: &Endpoints) -> Vec<String> {
        endpoints.0.iter().map(|endpoint| endpoint.address.to_string()).collect()
    }

    #[test]
    fn a_rotated_answer_is_the_same_set_for_strict_dns_and_a_new_first_for_logical_dns() {
        let (a, b): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let names = names(&["x"]);
        assert_eq!(endpoints(&names, &[vec![a, b]], false), endpoints(&names, &[vec![b, a]], false));
        assert_eq!(addresses(&endpoints(&names, &[vec![b, a]], true)), ["10.0.0.2:80"]);
    }

    #[test]
    fn the_endpoint_of_logical_dns_has_all_addresses_and_is_the_same_while_its_first_is() {
        let answer = |last: &[u8]| vec![last.iter().map(|last| [10, 0, 0, *last].into()).collect::<Vec<IpAddr>>()];
        let names = names(&["x"]);
        let set = endpoints(&names, &answer(&[2, 3, 1]), true);
        assert_eq!(set, endpoints(&names, &answer(&[2, 1, 3]), true));
        let [endpoint] = &set.0[..] else { panic!("one endpoint") };
        let additional: Vec<_> = endpoint.additional.iter().map(ToString::to_string).collect();
        assert_eq!(additional, ["10.0.0.1:80", "10.0.0.3:80"]);
        assert!(endpoints(&names, &answer(&[1, 2]), false).0.iter().all(|endpoint| endpoint.additional.is_empty()));
    }

    #[test]
    fn literal_addresses_are_there_before_any_lookup() {
        let cluster = Discovery::StrictDns(names(&["127.0.0.1", "a.test"]));
        assert_eq!(addresses(&initial(&cluster)), ["127.0.0.1:80"]);
    }

    #[test]
    fn an_answer_is_relied_on_as_long_as_it_says_where_that_counts() {
        let answer =
            |ttl, addresses: &[IpAddr]| Answer { addresses: addresses.to_vec(), ttl: Duration::from_secs(ttl) };
        let some: [IpAddr; 1] = [[10, 0, 0, 1].into()];
        let by_rate = names(&["x"]);
        let by_ttl = DnsDiscovery { respect_ttl: true, ..names(&["x"]) };
        let floored = DnsDiscovery { shortest_ttl: Duration::from_secs(30), ..by_ttl.clone() };
        assert_eq!(next_look(&by_rate, &answer(20, &some)).as_secs(), 5);
        assert_eq!(next_look(&by_ttl, &answer(20, &some)).as_secs(), 20);
        assert_eq!(next_look(&floored, &answer(20, &some)).as_secs(), 30);
        // Nothing is said, or there is nothing to rely on.
        assert_eq!([answer(0, &some), answer(20, &[])].map(|answer| next_look(&by_ttl, &answer).as_secs()), [5, 5]);
    }
}
