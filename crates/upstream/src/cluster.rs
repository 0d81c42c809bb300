//! A cluster as one worker sees it: its hosts, and who is next.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use postrider_model::{
    Address, Balancing, Endpoint, EndpointHealth, HashPolicy, HealthRules, Labels, Leaving, LoadBalancing, NamedHosts,
};

use crate::hashing::TableSizes;
use crate::host::Host;
use crate::hosts::HostSet;
use crate::open::OpenConnections;
use crate::outlier::Monitors;
use crate::peak::Peak;
use crate::queue::{Queue, Waiter};
use crate::zones::{Home, Population, ZoneCounts};
use crate::{Health, Random, SubsetCounts};

/// What shares of requests are counted in.
const MILLION: u32 = 1_000_000;

/// The endpoints of a cluster at one moment, as published by discovery.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Endpoints(pub Vec<Arc<Endpoint>>);

/// One worker's hosts of one cluster. `C` is a pooled connection.
#[derive(Debug)]
pub struct Cluster<C> {
    balancing: Balancing,
    /// Asked when hosts change, not when one is picked.
    rules: RefCell<HealthRules>,
    /// Where bad answers of hosts are counted.
    monitors: Option<Arc<Monitors>>,
    /// Where connections to a host are counted.
    open: Option<Arc<OpenConnections>>,
    hosts: RefCell<HostSet<C>>,
    /// More than chance or turn may decide on the host of a request.
    asks_requests: Cell<bool>,
    /// See [`Balancing::maintained`].
    maintained: Cell<u32>,
    /// See [`Balancing::retried`].
    retried: Cell<u32>,
    /// Requests that wait until a connection comes free.
    queue: Queue,
}

/// What a cluster shares with others: with itself on other workers, and with other clusters on its worker.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// Where bad answers of hosts are counted, if they have consequences.
    pub monitors: Option<Arc<Monitors>>,
    /// Where connections to a host are counted, if hosts have limits of their own.
    pub open: Option<Arc<OpenConnections>>,
    /// Where the proxy stands.
    pub home: Rc<Home>,
    /// Who counts picks among hosts that are not all well.
    pub panics: OnPanic,
}

/// Called with every pick among hosts of which too few are well; nobody may listen.
#[derive(Clone, Default)]
pub struct OnPanic(Option<Rc<dyn Fn()>>);

impl OnPanic {
    pub fn new(count: impl Fn() + 'static) -> OnPanic {
        OnPanic(Some(Rc::new(count)))
    }

    #[cold]
    pub(crate) fn count(&self) {
        if let Some(count) = &self.0 {
            count();
        }
    }
}

impl std::fmt::Debug for OnPanic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OnPanic").field(&self.0.is_some()).finish()
    }
}

/// What of a request decides on its host.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Choice<'c> {
    /// For policies that choose by a hash; without, they choose at random.
    pub hash: Option<u64>,
    /// So many hosts were refused already.
    pub attempt: u32,
    /// What the host is to have, where hosts are known by their labels.
    pub labels: Option<&'c Labels>,
}

/// Why a cluster does not take a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It takes only some of them (`drop_overloads`).
    Dropped,
    /// It takes none.
    AllDropped,
    /// Somebody maintains it.
    Maintained,
}

/// How many hosts there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Members {
    pub all: usize,
    pub healthy: usize,
    pub degraded: usize,
    pub excluded: usize,
}

impl<C> Cluster<C> {
    pub fn new(balancing: Balancing, rules: HealthRules, endpoints: &Endpoints, random: &Random) -> Cluster<C> {
        Cluster::among(Surroundings::default(), balancing, rules, endpoints, random)
    }

    /// The same where others are to know of it, or it of them.
    pub fn among(
        Surroundings { monitors, open, home, panics }: Surroundings,
        balancing: Balancing,
        rules: HealthRules,
        endpoints: &Endpoints,
        random: &Random,
    ) -> Cluster<C> {
        let hosts = RefCell::new(HostSet::new(&balancing, &home, panics, random));
        let (maintained, retried) = (Cell::new(balancing.maintained), Cell::new(balancing.retried));
        let asks_requests = Cell::new(asks_requests(&balancing, balancing.maintained));
        let (rules, queue) = (RefCell::new(rules), Queue::default());
        let cluster = Cluster { balancing, rules, monitors, open, hosts, asks_requests, maintained, retried, queue };
        cluster.update(endpoints, random);
        cluster
    }

    /// Takes over what may change while the cluster goes on: who gets traffic when too few are well, and of `to` how many requests
    /// are told that somebody maintains it, and how many tries get another one.
    pub fn adjust(&self, panic_threshold: f64, to: &Balancing, random: &Random) {
        self.maintained.set(to.maintained);
        self.retried.set(to.retried);
        self.asks_requests.set(asks_requests(&self.balancing, to.maintained));
        let before = std::mem::replace(&mut self.rules.borrow_mut().panic_threshold, panic_threshold);
        if before != panic_threshold {
            self.rearrange(random);
        }
    }

    /// Takes over a new set of endpoints. Hosts that stay keep their connections and counts; the pools of those that
    /// went are answered, to be closed, and their busy connections end with their requests. A host that passes its
    /// checks does not go before it fails one.
    pub fn update(&self, endpoints: &Endpoints, random: &Random) -> Vec<C> {
        let mut hosts = self.hosts.borrow_mut();
        let mut old = std::mem::take(&mut hosts.all);
        let is_known = |endpoint: &Arc<Endpoint>| old.iter().any(|host| host.endpoint == *endpoint);
        let changed = endpoints.0.len() != old.len() || !endpoints.0.iter().all(is_known);
        let renewed = self.balancing.closes_on_change && changed;
        for endpoint in &endpoints.0 {
            let known = old.iter().position(|host| host.endpoint == *endpoint);
            let host = match known {
                // Its connections belong to the old one, and go with it.
                Some(index) if renewed => match old.get(index) {
                    Some(host) => Rc::new(host.successor()),
                    None => continue,
                },
                Some(index) => old.swap_remove(index),
                None => {
                    let monitor = self.monitors.as_ref().map(|monitors| monitors.of(endpoint));
                    let mut host = Host::new(endpoint.clone(), self.first_health(endpoint), monitor);
                    host.shared = self.open.as_ref().map(|open| open.of(&endpoint.address));
                    if let LoadBalancing::PeakEwma(rules) = &self.balancing.policy {
                        host.peak = Some(Box::new(Peak::new(rules, Instant::now())));
                    }
                    self.begin_slowly(&host);
                    Rc::new(host)
                }
            };
            host.removed.set(false);
            hosts.all.push(host);
        }
        let rules = self.rules.borrow();
        let stays = |host: &mut Rc<Host<C>>| {
            let replaced = endpoints.0.iter().any(|endpoint| endpoint.address == host.endpoint.address);
            self.is_checked(&host.endpoint) && !rules.drops_removed && !replaced && !host.health.get().failed
        };
        for host in old.extract_if(.., stays).collect::<Vec<_>>() {
            host.removed.set(true);
            hosts.all.push(host);
        }
        hosts.arrange(&self.balancing, &rules, random);
        old.iter().flat_map(|host| host.retire()).collect()
    }

    /// Ends with everything, however well hosts are. Their pools are answered, to be closed.
    pub fn clear(&self) -> Vec<C> {
        let mut hosts = self.hosts.borrow_mut();
        let old = std::mem::take(&mut hosts.all);
        hosts.arrange(&self.balancing, &self.rules.borrow(), &Random::new(1));
        old.iter().flat_map(|host| host.retire()).collect()
    }

    /// Takes over what checks found out about a host. One that discovery had dropped goes when it fails.
    pub fn set_health(&self, endpoint: &Endpoint, health: Health, random: &Random) -> Vec<C> {
        let mut hosts = self.hosts.borrow_mut();
        if !hosts.all.iter().any(|host| *host.endpoint == *endpoint) {
            return Vec::new();
        }
        // An endpoint that stands twice is two hosts.
        let mut gone = Vec::new();
        hosts.all.retain(|host| {
            if *host.endpoint != *endpoint {
                return true;
            }
            if host.health.replace(health).failed && !health.failed {
                self.begin_slowly(host);
            }
            let goes = health.failed && host.removed.get();
            if goes {
                gone.push(host.clone());
            }
            !goes
        });
        hosts.arrange(&self.balancing, &self.rules.borrow(), random);
        gone.iter().flat_map(|host| host.retire()).collect()
    }

    /// A host gets no traffic because of its answers, or gets some again; or one is degraded because of them.
    pub fn set_judged(&self, endpoint: &Endpoint, (ejected, degraded): (bool, bool), random: &Random) {
        let mut hosts = self.hosts.borrow_mut();
        let mut changes = false;
        // What is judged is an address, which several endpoints may have.
        for host in hosts.all.iter().filter(|host| host.endpoint.address == endpoint.address) {
            changes |= (host.ejected.replace(ejected), host.degraded.replace(degraded)) != (ejected, degraded);
        }
        if changes {
            hosts.arrange(&self.balancing, &self.rules.borrow(), random);
        }
    }

    /// Works out anew who gets traffic, since it is news where the proxy stands.
    pub fn rearrange(&self, random: &Random) {
        self.hosts.borrow_mut().arrange(&self.balancing, &self.rules.borrow(), random);
    }

    /// Where its hosts stand, as a cluster of proxies tells its own.
    pub fn population(&self) -> Population {
        Population::of(self.hosts.borrow().all.iter(), &self.rules.borrow())
    }

    fn begin_slowly(&self, host: &Host<C>) {
        if self.balancing.policy.slow_start().is_some() && !host.health.get().failed {
            host.since.set(Some(Instant::now()));
        }
    }

    /// Whether an endpoint is one that active checks are about.
    pub fn is_checked(&self, endpoint: &Endpoint) -> bool {
        !self.rules.borrow().checks.is_empty() && !endpoint.check.as_ref().is_some_and(|check| check.disabled)
    }

    fn first_health(&self, endpoint: &Endpoint) -> Health {
        if self.is_checked(endpoint) { Health::UNCHECKED } else { Health::default() }
    }

    /// The host for the next request; `None` when none is healthy.
    #[inline]
    pub fn pick(&self, random: &Random) -> Option<Rc<Host<C>>> {
        self.hosts.borrow().pick(random, Choice::default())
    }

    /// The same for a request that says something about its host.
    pub fn pick_for(&self, choice: Choice<'_>, random: &Random) -> Option<Rc<Host<C>>> {
        self.hosts.borrow().pick(random, choice)
    }

    /// The same for one that names hosts: the first of them that is among the hosts which it may get, in whatever state.
    pub fn pick_named(
        &self,
        named: &mut dyn Iterator<Item = Address>,
        choice: Choice<'_>,
        random: &Random,
    ) -> Option<Rc<Host<C>>> {
        self.hosts.borrow().pick_named(named, random, choice)
    }

    /// The same for one that wants no host of the priorities in `without`. When the others can take nothing, none is left out
    /// any more, and `without` is empty.
    pub fn pick_without(&self, without: &mut Vec<u32>, choice: Choice<'_>, random: &Random) -> Option<Rc<Host<C>>> {
        self.hosts.borrow().pick_without(without, (&self.balancing, &self.rules.borrow()), random, choice)
    }

    /// A host that is likely to be next, and that the next request gets unless something changes. As many may be asked for as
    /// there are healthy hosts; `None` also where nobody can tell, because it depends on requests.
    pub fn look_ahead(&self, random: &Random) -> Option<Rc<Host<C>>> {
        self.hosts.borrow().look_ahead(random)
    }

    /// Hosts are chosen by a hash, so another try of a request needs another attempt to find another host.
    pub fn is_hashing(&self) -> bool {
        self.balancing.policy.is_hashing()
    }

    /// Of the table by which hosts are chosen, where a hash does it and there are hosts; `None` elsewhere.
    pub fn table_sizes(&self, random: &Random) -> Option<TableSizes> {
        self.hosts.borrow().table_sizes((&self.balancing, &self.rules.borrow()), random)
    }

    /// Requests may want hosts with certain labels.
    #[inline]
    pub fn has_subsets(&self) -> bool {
        self.balancing.subsets.is_some()
    }

    /// More of a request may decide on its host, or on whether it gets one, than what its route says to hash.
    #[inline]
    pub fn asks_requests(&self) -> bool {
        self.asks_requests.get()
    }

    /// What is hashed, whatever routes say of it; none leaves it to them.
    pub fn hash_policies(&self) -> &[HashPolicy] {
        &self.balancing.hash_policies
    }

    /// The same of requests, of which the cluster's HTTP options may say it.
    pub fn request_hash_policies(&self) -> &[HashPolicy] {
        match self.balancing.hash_policies.as_slice() {
            [] => &self.balancing.request_hash_policies,
            own => own,
        }
    }

    /// How requests name their hosts, where they may.
    pub fn named(&self) -> Option<&NamedHosts> {
        self.balancing.named.as_deref()
    }

    /// Why the next request gets no host, whichever there are: chance has a say in that.
    pub fn refusal(&self, random: &Random) -> Option<Refusal> {
        match self.balancing.dropped {
            _ if self.is_maintained(random) => Some(Refusal::Maintained),
            MILLION.. => Some(Refusal::AllDropped),
            dropped => {
                (dropped > 0 && random.next() % u64::from(MILLION) < u64::from(dropped)).then_some(Refusal::Dropped)
            }
        }
    }

    fn is_maintained(&self, random: &Random) -> bool {
        self.maintained.get() > 0 && random.next() % 100 < u64::from(self.maintained.get())
    }

    /// A try that is worth another one gets it, as far as chance has a say in that.
    pub fn lets_retry(&self, random: &Random) -> bool {
        let retried = self.retried.get();
        retried >= 100 || random.next() % 100 < u64::from(retried)
    }

    /// What happened to subsets since the last time; `None` when there are none.
    pub fn take_subset_counts(&self) -> Option<SubsetCounts> {
        self.hosts.borrow().take_subset_counts()
    }

    /// What happened to zones since the last time; `None` where they never count.
    pub fn take_zone_counts(&self) -> Option<ZoneCounts> {
        self.hosts.borrow().take_zone_counts()
    }

    pub fn members(&self) -> Members {
        self.count(|_| true)
    }

    /// Those of one priority; `None` where there is none such.
    pub fn members_of(&self, priority: u32) -> Option<Members> {
        let last = self.hosts.borrow().all.iter().map(|host| host.endpoint.priority).max().unwrap_or(0);
        (priority <= last).then(|| self.count(|host| host.endpoint.priority == priority))
    }

    fn count(&self, counts: impl Fn(&Host<C>) -> bool) -> Members {
        let hosts = self.hosts.borrow();
        let ignores_unchecked = self.rules.borrow().ignores_unchecked;
        let count = |of: &dyn Fn(&Host<C>) -> bool| hosts.all.iter().filter(|host| counts(host) && of(host)).count();
        Members {
            all: count(&|_| true),
            healthy: count(&|host| host.standing() == EndpointHealth::Healthy),
            degraded: count(&|host| host.standing() == EndpointHealth::Degraded),
            excluded: count(&|host| host.is_excluded(ignores_unchecked)),
        }
    }

    /// The host with this address, of whatever priority, if it is in a state in which it may be chosen by it.
    pub fn at(&self, address: &Address) -> Option<Rc<Host<C>>> {
        let allowed = self.balancing.by_address;
        let may = |host: &Host<C>| match (host.standing(), host.leaving()) {
            (EndpointHealth::Healthy, _) => allowed.healthy,
            (EndpointHealth::Degraded, _) => allowed.degraded,
            (EndpointHealth::Unhealthy, None) => allowed.unhealthy,
            (EndpointHealth::Unhealthy, Some(Leaving::Draining)) => allowed.draining,
            (EndpointHealth::Unhealthy, Some(Leaving::TimedOut)) => allowed.timed_out,
        };
        let hosts = self.hosts.borrow();
        hosts.all.iter().find(|host| host.endpoint.address == *address).filter(|host| may(host)).cloned()
    }

    /// The host with this address, in whatever state.
    pub fn find(&self, address: &Address) -> Option<Rc<Host<C>>> {
        self.hosts.borrow().all.iter().find(|host| host.endpoint.address == *address).cloned()
    }

    /// Whether there is a host with this address, in whatever state.
    pub fn has(&self, address: &Address) -> bool {
        self.find(address).is_some()
    }

    /// Every host as it is shared.
    pub fn all(&self) -> Vec<Rc<Host<C>>> {
        self.hosts.borrow().all.clone()
    }

    /// Every host, also those without traffic.
    pub fn each_host(&self, mut visit: impl FnMut(&Host<C>)) {
        self.hosts.borrow().all.iter().for_each(|host| visit(host));
    }

    /// Takes a place at the end of the queue for a connection.
    pub fn wait(&self) -> Rc<Waiter> {
        self.queue.wait()
    }

    /// Leaves the queue. One that was called and does not use its turn passes it on.
    pub fn leave(&self, waiter: &Rc<Waiter>) {
        self.queue.leave(waiter);
    }

    /// A connection came free or ended: the first in the queue may try again.
    pub fn call_next(&self) {
        self.queue.call_next();
    }

    pub fn has_waiters(&self) -> bool {
        !self.queue.is_empty()
    }
}

/// More of a request may decide on its host, or on whether it gets one, than what its route says to hash.
fn asks_requests(balancing: &Balancing, maintained: u32) -> bool {
    balancing.subsets.is_some()
        || balancing.named.is_some()
        || balancing.dropped > 0
        || maintained > 0
        || !balancing.hash_policies.is_empty()
        || !balancing.request_hash_policies.is_empty()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing;

    fn endpoint(port: u16, priority: u32, health: EndpointHealth) -> Arc<Endpoint> {
        Arc::new(Endpoint { priority, health, ..testing::endpoint(port) })
    }

    fn port(host: &Host<u32>) -> u16 {
        match &host.endpoint.address {
            Address::Tcp(address) => address.port(),
            Address::Unix { .. } => 0,
        }
    }

    #[test]
    fn traffic_goes_to_the_healthy_hosts_of_the_first_priority() {
        let random = Random::new(1);
        let endpoints = Endpoints(vec![
            endpoint(1, 0, EndpointHealth::Unhealthy),
            endpoint(2, 1, EndpointHealth::Healthy),
            endpoint(3, 2, EndpointHealth::Healthy),
        ]);
        let cluster = Cluster::<u32>::new(Balancing::default(), HealthRules::default(), &endpoints, &random);
        assert!((0..9).all(|_| port(&cluster.pick(&random).unwrap()) == 2));
        cluster.update(&Endpoints::default(), &random);
        assert!(cluster.pick(&random).is_none());
    }

    #[test]
    fn a_host_is_chosen_by_its_address_only_in_the_states_that_are_named() {
        let random = Random::new(1);
        let is =
            |port, leaving| Arc::new(Endpoint { leaving, ..(*endpoint(port, 0, EndpointHealth::Unhealthy)).clone() });
        let endpoints = Endpoints(vec![is(1, None), is(2, Some(Leaving::Draining)), is(3, Some(Leaving::TimedOut))]);
        let none = postrider_model::HostStatuses { healthy: false, degraded: false, ..Default::default() };
        for (by_address, want) in [
            (postrider_model::HostStatuses { unhealthy: true, ..none }, 1),
            (postrider_model::HostStatuses { draining: true, ..none }, 2),
            (postrider_model::HostStatuses { timed_out: true, ..none }, 3),
        ] {
            let balancing = Balancing { by_address, ..Balancing::default() };
            let cluster = Cluster::<u32>::new(balancing, HealthRules::default(), &endpoints, &random);
            let at = |port| cluster.at(&Address::Tcp(([127, 0, 0, 1], port).into()));
            let found: Vec<u16> = (1..=3).filter(|port| at(*port).is_some()).collect();
            assert_eq!(found, [want]);
            // What fails besides is unhealthy, whatever else it is.
            let draining = cluster.find(&Address::Tcp(([127, 0, 0, 1], 2).into())).unwrap();
            draining.ejected.set(true);
            assert_eq!(at(2).is_some(), by_address.unhealthy);
        }
    }

    fn checked(drops_removed: bool) -> HealthRules {
        let check = postrider_model::HealthCheck {
            name: String::new(),
            kind: postrider_model::CheckKind::Tcp(postrider_model::TcpCheck {
                proxy_header: None,
                send: Vec::new(),
                receive: Vec::new(),
            }),
            timeout: Duration::from_secs(1),
            intervals: postrider_model::CheckIntervals {
                healthy: Duration::ZERO,
                unhealthy: Duration::ZERO,
                healthy_edge: Duration::ZERO,
                unhealthy_edge: Duration::ZERO,
                idle: Duration::ZERO,
                idle_healthy: Duration::ZERO,
                jitter: Duration::ZERO,
                jitter_percent: 0,
                initial_jitter: Duration::ZERO,
            },
            unhealthy_threshold: 1,
            healthy_threshold: 1,
            reuse_connection: true,
            alpn: Vec::new(),
            transport_by: None,
            user_agent: String::new(),
            event_logs: Vec::new(),
            logs_every_failure: false,
            logs_every_success: false,
        };
        HealthRules { drops_removed, checks: vec![check], ..HealthRules::default() }
    }

    #[test]
    fn panics_are_counted_with_each_pick() {
        let random = Random::new(1);
        let all: Vec<_> = (1..=4).map(|port| endpoint(port, 0, EndpointHealth::Healthy)).collect();
        let (counted, surroundings) = crate::testing::counting_panics();
        let (balancing, rules) = (Balancing::default(), checked(false));
        let cluster = Cluster::<u32>::among(surroundings, balancing, rules, &Endpoints(all.clone()), &random);
        let pick = |count: u32| (0..count).for_each(|_| drop(cluster.pick(&random)));
        pick(3);
        assert_eq!(counted.get(), 3, "nobody was checked yet");
        cluster.set_health(&all[0], Health::default(), &random);
        pick(2);
        assert_eq!(counted.get(), 5);
        all.iter().for_each(|endpoint| drop(cluster.set_health(endpoint, Health::default(), &random)));
        pick(1);
        assert_eq!(counted.get(), 5);
    }

    #[test]
    fn what_is_found_out_about_an_endpoint_that_stands_twice_holds_for_both() {
        let random = Random::new(1);
        let all: Vec<_> = [1, 1, 2].map(|port| endpoint(port, 0, EndpointHealth::Healthy)).into();
        let cluster = Cluster::<u32>::new(Balancing::default(), checked(false), &Endpoints(all.clone()), &random);
        cluster.set_health(&all[0], Health::default(), &random);
        assert_eq!(cluster.members().healthy, 2);
        cluster.set_judged(&all[0], (true, false), &random);
        assert_eq!(cluster.members().healthy, 0);
        cluster.set_judged(&all[0], (false, false), &random);
        assert_eq!(cluster.members().healthy, 2);
    }

    #[test]
    fn another_panic_threshold_forgets_nothing_of_the_hosts() {
        let random = Random::new(1);
        let all: Vec<_> = (1..=4).map(|port| endpoint(port, 0, EndpointHealth::Healthy)).collect();
        let cluster = Cluster::<u32>::new(Balancing::default(), checked(false), &Endpoints(all.clone()), &random);
        for (at, endpoint) in all.iter().enumerate() {
            cluster.set_health(endpoint, Health { failed: at > 0, ..Health::default() }, &random);
        }
        let picked = || (0..40).filter(|_| cluster.pick(&random).is_some_and(|host| host.health.get().failed)).count();
        assert!(picked() > 0, "too few are well");
        cluster.adjust(20.0, &Balancing::default(), &random);
        assert_eq!((picked(), cluster.members().healthy), (0, 1));
    }

    #[test]
    fn requests_are_asked_while_somebody_maintains_the_cluster() {
        let random = Random::new(1);
        let endpoints = Endpoints(vec![endpoint(1, 0, EndpointHealth::Healthy)]);
        let cluster = Cluster::<u32>::new(Balancing::default(), HealthRules::default(), &endpoints, &random);
        assert_eq!((cluster.asks_requests(), cluster.refusal(&random)), (false, None));
        cluster.adjust(50.0, &Balancing { maintained: 100, ..Balancing::default() }, &random);
        assert_eq!((cluster.asks_requests(), cluster.refusal(&random)), (true, Some(Refusal::Maintained)));
        cluster.adjust(50.0, &Balancing::default(), &random);
        assert_eq!((cluster.asks_requests(), cluster.refusal(&random)), (false, None));
    }

    #[test]
    fn traffic_follows_the_checks_and_panics_when_too_few_pass() {
        let random = Random::new(1);
        let all: Vec<_> = (1..=4).map(|port| endpoint(port, 0, EndpointHealth::Healthy)).collect();
        let endpoints = Endpoints(all.clone());
        let cluster = Cluster::<u32>::new(Balancing::default(), checked(false), &endpoints, &random);
        let ports =
            || (0..40).map(|_| port(&cluster.pick(&random).unwrap())).collect::<std::collections::BTreeSet<_>>();
        assert_eq!(ports().len(), 4, "nobody was checked yet");
        for endpoint in all.iter().take(2) {
            cluster.set_health(endpoint, Health::default(), &random);
        }
        assert_eq!(ports().into_iter().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(cluster.members(), Members { all: 4, healthy: 2, degraded: 0, excluded: 0 });
    }

    #[test]
    fn a_host_that_discovery_drops_stays_while_it_passes_its_checks() {
        let random = Random::new(1);
        let one = endpoint(1, 0, EndpointHealth::Healthy);
        for (drops, left) in [(false, 1), (true, 0)] {
            let endpoints = Endpoints(vec![one.clone()]);
            let cluster = Cluster::<u32>::new(Balancing::default(), checked(drops), &endpoints, &random);
            cluster.set_health(&one, Health::default(), &random);
            cluster.update(&Endpoints::default(), &random);
            assert_eq!(cluster.members().all, left);
            cluster.set_health(&one, Health { failed: true, ..Health::default() }, &random);
            assert_eq!(cluster.members().all, 0);
        }
    }

    #[test]
    fn a_host_that_stays_keeps_its_pool_and_one_that_goes_hands_it_over() {
        let random = Random::new(1);
        let (one, two) = (endpoint(1, 0, EndpointHealth::Healthy), endpoint(2, 0, EndpointHealth::Healthy));
        let cluster = Cluster::<u32>::new(
            Balancing::default(),
            HealthRules::default(),
            &Endpoints(vec![one.clone(), two.clone()]),
            &random,
        );
        let hosts = [cluster.pick(&random).unwrap(), cluster.pick(&random).unwrap()];
        for host in &hosts {
            host.put_idle(u32::from(port(host))).unwrap();
        }
        assert_eq!(cluster.update(&Endpoints(vec![two]), &random), [1]);
        assert_eq!(cluster.pick(&random).unwrap().take_idle(), Some(2));
        let gone = hosts.iter().find(|host| port(host) == 1).unwrap();
        assert_eq!(gone.put_idle(9), Err(9));
    }

    #[test]
    fn connections_to_all_hosts_may_end_when_hosts_come_or_go() {
        let random = Random::new(1);
        let (one, two) = (endpoint(1, 0, EndpointHealth::Healthy), endpoint(2, 0, EndpointHealth::Healthy));
        let balancing = Balancing { closes_on_change: true, ..Balancing::default() };
        let both = Endpoints(vec![one.clone(), two]);
        let cluster = Cluster::<u32>::new(balancing, HealthRules::default(), &both, &random);
        let old = cluster.all()[0].clone();
        old.begin_connection();
        old.put_idle(7).unwrap();
        assert!(cluster.update(&both, &random).is_empty(), "nothing changed");
        assert_eq!(cluster.update(&Endpoints(vec![one]), &random), [7]);
        let new = cluster.pick(&random).unwrap();
        assert!(old.is_retired() && !new.is_retired());
        assert_eq!((new.connections.get(), new.totals.connections.get()), (0, 1));
    }

    #[test]
    fn a_host_that_answers_slowly_gets_less() {
        let random = Random::new(1);
        let both = Endpoints((1..=2).map(|port| endpoint(port, 0, EndpointHealth::Healthy)).collect());
        let policy = LoadBalancing::PeakEwma(postrider_model::PeakEwma::default());
        let balancing = Balancing { policy, ..Balancing::default() };
        let cluster = Cluster::<u32>::new(balancing, HealthRules::default(), &both, &random);
        let of_first = || (0..100).filter(|_| port(&cluster.pick(&random).unwrap()) == 1).count();
        let first = cluster.all()[0].clone();
        assert!(first.is_timed());
        first.observe(Duration::from_secs(5), true);
        assert_eq!(of_first(), 0);
        let second = cluster.all()[1].clone();
        second.active.set(1000);
        assert_eq!(of_first(), 100, "a fast host with a thousand requests is not fast");
    }
}
