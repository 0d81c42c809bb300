//! Endpoints from DNS, on the control side: never on a worker.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use postrider_model::{Address, Discovery, DnsDiscovery, DnsName, Endpoint};

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

/// Follows the names of a cluster, each by itself, for as long as the future is polled: `publish` gets each new set of
/// endpoints, first as soon as one name has addresses or all were looked at once, and why a name failed. One that fails keeps
/// its last addresses. Returns at once for a cluster that needs no DNS.
pub async fn follow(
    resolver: &Resolver,
    discovery: &Discovery,
    lookups: &Lookups,
    publish: impl FnMut(Option<Endpoints>, Option<String>),
) {
    let (names, logical) = match discovery {
        Discovery::Static(_) | Discovery::Original(_) => return,
        Discovery::StrictDns(names) => (names, false),
        Discovery::LogicalDns(names) => (names, true),
    };
    let addresses = vec![None; names.names.len()];
    let found = Mutex::new(Found { names, logical, addresses, published: None, publish });
    let mut all: Vec<_> =
        (0..names.names.len()).map(|index| Box::pin(follow_name(resolver, lookups, &found, index))).collect();
    std::future::poll_fn(|cx| {
        all.retain_mut(|name| name.as_mut().poll(cx).is_pending());
        if all.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// What is known of all names of a cluster.
struct Found<'n, F> {
    names: &'n DnsDiscovery,
    logical: bool,
    /// By name; `None` before the first look.
    addresses: Vec<Option<Vec<IpAddr>>>,
    published: Option<Endpoints>,
    publish: F,
}

impl<F: FnMut(Option<Endpoints>, Option<String>)> Found<'_, F> {
    /// Whether the answer brings something new.
    fn take(&mut self, index: usize, answer: Vec<IpAddr>) -> bool {
        let Some(known) = self.addresses.get_mut(index) else { return false };
        let changes = !same(known.as_deref().unwrap_or_default(), &answer, self.logical);
        *known = Some(answer);
        self.tell(None);
        changes
    }

    fn fail(&mut self, index: usize, failure: Option<String>) {
        if let Some(known) = self.addresses.get_mut(index) {
            known.get_or_insert_default();
        }
        self.tell(failure);
    }

    fn tell(&mut self, failure: Option<String>) {
        let is_first = self.published.is_none();
        let is_early = is_first && self.addresses.iter().any(Option::is_none);
        let known: Vec<Vec<IpAddr>> = self.addresses.iter().map(|known| known.clone().unwrap_or_default()).collect();
        if is_early && known.iter().all(Vec::is_empty) {
            if failure.is_some() {
                (self.publish)(None, failure);
            }
            return;
        }
        let endpoints = endpoints(self.names, &known, self.logical);
        let news = (self.published.as_ref() != Some(&endpoints)).then_some(endpoints);
        if news.is_some() || failure.is_some() {
            (self.publish)(news.clone(), failure);
        }
        self.published = news.or(self.published.take());
    }
}

/// Looks at one name again and again; ends where nothing could change.
async fn follow_name<F: FnMut(Option<Endpoints>, Option<String>)>(
    resolver: &Resolver,
    lookups: &Lookups,
    found: &Mutex<Found<'_, F>>,
    index: usize,
) {
    // Whoever panicked with it left whole lists behind.
    let locked = || found.lock().unwrap_or_else(PoisonError::into_inner);
    let (names, logical) = {
        let found = locked();
        (found.names, found.logical)
    };
    let Some(name) = names.names.get(index) else { return };
    let random = Random::default();
    let (first_failure, longest_failure) = names.failure_refresh;
    // How long to wait at most after the next failure.
    let mut back_off = first_failure;
    loop {
        lookups.attempts.fetch_add(1, Relaxed);
        let answer = resolver.resolve(&name.host, names.family).await;
        let wait = match answer {
            // One logical host stays when its name has no addresses any more, as in Envoy; others go.
            Ok(answer) if !logical || !answer.addresses.is_empty() => {
                lookups.answers.fetch_add(1, Relaxed);
                back_off = first_failure;
                let wait = next_look(names, &answer);
                let changes = locked().take(index, answer.addresses);
                lookups.unchanged.fetch_add(u64::from(!changes), Relaxed);
                wait.saturating_add(draw(names.jitter, &random))
            }
            failed => {
                lookups.failures.fetch_add(1, Relaxed);
                let failure = failed.err().map(|error| format!("{}: {error}", name.host));
                locked().fail(index, failure);
                let longest = back_off;
                back_off = back_off.saturating_mul(2).min(longest_failure);
                // As Envoy's back-off does: somewhere below a limit that doubles.
                match longest_failure > Duration::ZERO {
                    true => draw(longest, &random),
                    false => names.refresh,
                }
            }
        };
        match Instant::now().checked_add(wait.max(SHORTEST_WAIT)) {
            Some(next) => tokio::time::sleep_until(next.into()).await,
            // An address, which will not change.
            None => return,
        }
    }
}

/// Whether an answer brings nothing new: of a logical host its addresses in their order, of others their set.
fn same(known: &[IpAddr], answer: &[IpAddr], logical: bool) -> bool {
    match logical {
        true => known == answer,
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
        if !logical {
            // Two names of one address are two endpoints, each with its own weight and priority; one name has it once.
            addresses.dedup();
        }
        let mut addresses = addresses.into_iter();
        while let Some(address) = addresses.next() {
            let additional = if logical { addresses.by_ref().collect() } else { Vec::new() };
            endpoints.push(Arc::new(endpoint(name, address, additional)));
        }
    }
    Endpoints(endpoints)
}

fn endpoint(name: &DnsName, address: IpAddr, additional: Vec<IpAddr>) -> Endpoint {
    let at = |address| Address::Tcp(SocketAddr::new(address, name.port));
    Endpoint {
        address: at(address),
        additional: additional.into_iter().map(at).collect(),
        hostname: name.hostname.clone().unwrap_or_else(|| name.host.clone()),
        weight: name.weight,
        priority: name.priority,
        health: name.health,
        leaving: name.leaving,
        check: name.check.clone(),
        place: name.place.clone(),
        hash_key: name.hash_key.clone(),
        metadata: name.metadata.clone(),
    }
}

#[cfg(test)]
mod tests {
    use postrider_model::{DnsFamily, EndpointHealth};

    use super::*;

    fn names(hosts: &[&str]) -> DnsDiscovery {
        let names = hosts
            .iter()
            .map(|host| DnsName {
                host: (*host).to_owned(),
                port: 80,
                hostname: None,
                weight: 1,
                priority: 0,
                health: EndpointHealth::Healthy,
                leaving: None,
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
    fn two_names_of_one_address_are_two_endpoints() {
        let mut names = names(&["a", "b"]);
        names.names[1].weight = 5;
        let address: IpAddr = [10, 0, 0, 1].into();
        let found = endpoints(&names, &[vec![address, address], vec![address]], false);
        let weights: Vec<u32> = found.0.iter().map(|endpoint| endpoint.weight).collect();
        assert_eq!((addresses(&found), weights), (vec!["10.0.0.1:80".to_owned(); 2], vec![1, 5]));
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
