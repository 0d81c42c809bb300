//! A cluster as one worker sees it: its hosts, who is next, and connections that wait for work.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use postrider_model::{Address, Endpoint, EndpointHealth, HealthRules, LoadBalancing};

use crate::priorities::{self, Census};
use crate::{Health, Picker, Random};

/// The endpoints of a cluster at one moment, as published by discovery.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Endpoints(pub Vec<Arc<Endpoint>>);

/// One worker's hosts of one cluster. `C` is a pooled connection.
#[derive(Debug)]
pub struct Cluster<C> {
    policy: LoadBalancing,
    rules: HealthRules,
    hosts: RefCell<HostSet<C>>,
    /// Requests that wait until a connection comes free.
    waiters: RefCell<VecDeque<Rc<Waiter>>>,
}

#[derive(Debug)]
struct HostSet<C> {
    all: Vec<Rc<Host<C>>>,
    /// Those that get traffic, where that is one group of hosts: the usual case.
    usable: Group<C>,
    /// Otherwise, or when hosts are used that are not well.
    spread: Option<Box<Spread<C>>>,
}

/// Hosts among which one is picked.
#[derive(Debug)]
struct Group<C> {
    hosts: Vec<Rc<Host<C>>>,
    picker: Picker,
}

/// Groups with their shares of traffic.
#[derive(Debug)]
struct Spread<C> {
    /// Percent, and whether all hosts are used because too few are well.
    groups: Vec<(u64, bool, Group<C>)>,
    /// Picks among hosts that are not all well, since somebody asked.
    panics: Cell<u64>,
}

/// How many hosts there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Members {
    pub all: usize,
    pub healthy: usize,
    pub degraded: usize,
    pub excluded: usize,
}

/// An endpoint with what this worker knows about it.
#[derive(Debug)]
pub struct Host<C> {
    pub endpoint: Arc<Endpoint>,
    /// Requests under way.
    pub active: Cell<u32>,
    /// Connections, pooled and busy.
    pub connections: Cell<u32>,
    /// What active checks say.
    pub health: Cell<Health>,
    /// Discovery dropped it, and it stays while it passes its checks.
    pub removed: Cell<bool>,
    /// Counters for `/clusters`: connections and requests so far, and those that failed.
    pub totals: HostTotals,
    idle: RefCell<Vec<C>>,
    retired: Cell<bool>,
}

#[derive(Debug, Default)]
pub struct HostTotals {
    pub connections: Cell<u64>,
    pub connect_failures: Cell<u64>,
    pub requests: Cell<u64>,
    pub successes: Cell<u64>,
    pub errors: Cell<u64>,
}

/// Somebody in the queue for a connection.
#[derive(Debug, Default)]
pub struct Waiter {
    waker: RefCell<Option<Waker>>,
    called: Cell<bool>,
}

impl Waiter {
    /// It is this one's turn to try again. Otherwise the waker is kept for when it is.
    pub fn is_called(&self, waker: &Waker) -> bool {
        if !self.called.get() {
            let mut kept = self.waker.borrow_mut();
            if !kept.as_ref().is_some_and(|kept| kept.will_wake(waker)) {
                *kept = Some(waker.clone());
            }
        }
        self.called.get()
    }
}

impl<C> Cluster<C> {
    pub fn new(policy: LoadBalancing, rules: HealthRules, endpoints: &Endpoints, random: &Random) -> Cluster<C> {
        let hosts = HostSet { all: Vec::new(), usable: Group::new(&policy, Vec::new(), random), spread: None };
        let cluster = Cluster { policy, rules, hosts: RefCell::new(hosts), waiters: RefCell::default() };
        cluster.update(endpoints, random);
        cluster
    }

    /// Takes over a new set of endpoints. Hosts that stay keep their connections and counts; the pools of those that
    /// went are answered, to be closed, and their busy connections end with their requests. A host that passes its
    /// checks does not go before it fails one.
    pub fn update(&self, endpoints: &Endpoints, random: &Random) -> Vec<C> {
        let mut hosts = self.hosts.borrow_mut();
        let mut old = std::mem::take(&mut hosts.all);
        for endpoint in &endpoints.0 {
            let known = old.iter().position(|host| host.endpoint == *endpoint);
            let host = match known {
                Some(index) => old.swap_remove(index),
                None => Rc::new(Host::new(endpoint.clone(), self.first_health(endpoint))),
            };
            host.removed.set(false);
            hosts.all.push(host);
        }
        let stays = |host: &mut Rc<Host<C>>| {
            let replaced = endpoints.0.iter().any(|endpoint| endpoint.address == host.endpoint.address);
            self.is_checked(&host.endpoint) && !self.rules.drops_removed && !replaced && !host.health.get().failed
        };
        for host in old.extract_if(.., stays).collect::<Vec<_>>() {
            host.removed.set(true);
            hosts.all.push(host);
        }
        hosts.arrange(&self.policy, &self.rules, random);
        old.iter().flat_map(|host| host.retire()).collect()
    }

    /// Ends with everything, however well hosts are. Their pools are answered, to be closed.
    pub fn clear(&self) -> Vec<C> {
        let mut hosts = self.hosts.borrow_mut();
        let old = std::mem::take(&mut hosts.all);
        hosts.arrange(&self.policy, &self.rules, &Random::new(1));
        old.iter().flat_map(|host| host.retire()).collect()
    }

    /// Takes over what checks found out about a host. One that discovery had dropped goes when it fails.
    pub fn set_health(&self, endpoint: &Endpoint, health: Health, random: &Random) -> Vec<C> {
        let mut hosts = self.hosts.borrow_mut();
        let Some(at) = hosts.all.iter().position(|host| *host.endpoint == *endpoint) else { return Vec::new() };
        let Some(host) = hosts.all.get(at).cloned() else { return Vec::new() };
        host.health.set(health);
        let goes = health.failed && host.removed.get();
        if goes {
            hosts.all.remove(at);
        }
        hosts.arrange(&self.policy, &self.rules, random);
        if goes { host.retire() } else { Vec::new() }
    }

    /// Whether an endpoint is one that active checks are about.
    pub fn is_checked(&self, endpoint: &Endpoint) -> bool {
        !self.rules.checks.is_empty() && !endpoint.check.as_ref().is_some_and(|check| check.disabled)
    }

    fn first_health(&self, endpoint: &Endpoint) -> Health {
        if self.is_checked(endpoint) { Health::UNCHECKED } else { Health::default() }
    }

    /// The host for the next request; `None` when none is healthy.
    pub fn pick(&self, random: &Random) -> Option<Rc<Host<C>>> {
        let hosts = self.hosts.borrow();
        match &hosts.spread {
            None => hosts.usable.pick(random),
            Some(spread) => spread.pick(random),
        }
    }

    /// How often a host was picked since the last time although too few are well.
    pub fn take_panics(&self) -> u64 {
        self.hosts.borrow().spread.as_ref().map_or(0, |spread| spread.panics.take())
    }

    pub fn members(&self) -> Members {
        let hosts = self.hosts.borrow();
        let count = |of: &dyn Fn(&Host<C>) -> bool| hosts.all.iter().filter(|host| of(host)).count();
        Members {
            all: hosts.all.len(),
            healthy: count(&|host| host.standing() == EndpointHealth::Healthy),
            degraded: count(&|host| host.standing() == EndpointHealth::Degraded),
            excluded: count(&|host| self.rules.ignores_unchecked && host.health.get().unchecked),
        }
    }

    /// The healthy host with this address, of whatever priority.
    pub fn at(&self, address: &Address) -> Option<Rc<Host<C>>> {
        let hosts = self.hosts.borrow();
        let fits =
            |host: &&Rc<Host<C>>| host.endpoint.address == *address && host.standing() != EndpointHealth::Unhealthy;
        hosts.all.iter().find(fits).cloned()
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
        let waiter = Rc::new(Waiter::default());
        self.waiters.borrow_mut().push_back(waiter.clone());
        waiter
    }

    /// Leaves the queue. One that was called and does not use its turn passes it on.
    pub fn leave(&self, waiter: &Rc<Waiter>) {
        if waiter.called.get() {
            self.call_next();
        } else {
            self.waiters.borrow_mut().retain(|other| !Rc::ptr_eq(other, waiter));
        }
    }

    /// A connection came free or ended: the first in the queue may try again.
    pub fn call_next(&self) {
        let next = self.waiters.borrow_mut().pop_front();
        if let Some(waiter) = next {
            waiter.called.set(true);
            if let Some(waker) = waiter.waker.take() {
                waker.wake();
            }
        }
    }

    pub fn has_waiters(&self) -> bool {
        !self.waiters.borrow().is_empty()
    }
}

impl<C> HostSet<C> {
    /// Works out who gets traffic.
    fn arrange(&mut self, policy: &LoadBalancing, rules: &HealthRules, random: &Random) {
        self.spread = None;
        let levels = self.all.iter().map(|host| host.endpoint.priority as usize + 1).max().unwrap_or(1);
        let of = |level: usize| self.all.iter().filter(move |host| host.endpoint.priority as usize == level);
        let census: Vec<Census> = (0..levels)
            .map(|level| {
                let count = |standing| of(level).filter(|host| host.standing() == standing).count();
                Census {
                    all: of(level).count(),
                    healthy: count(EndpointHealth::Healthy),
                    degraded: count(EndpointHealth::Degraded),
                    excluded: of(level).filter(|h| rules.ignores_unchecked && h.health.get().unchecked).count(),
                }
            })
            .collect();
        let mut groups = Vec::new();
        for (level, share) in priorities::spread(&census, rules.panic_threshold).iter().enumerate() {
            let standing = [(share.healthy, EndpointHealth::Healthy), (share.degraded, EndpointHealth::Degraded)];
            for (percent, standing) in standing.into_iter().filter(|(percent, _)| *percent > 0) {
                let hosts = of(level).filter(|host| share.panic || host.standing() == standing).cloned().collect();
                groups.push((percent, share.panic, Group::new(policy, hosts, random)));
            }
        }
        let alone = matches!(groups.as_slice(), [(_, false, _)]);
        match groups.pop() {
            Some((_, _, group)) if alone => self.usable = group,
            last => {
                groups.extend(last);
                self.usable = Group::new(policy, Vec::new(), random);
                self.spread = Some(Box::new(Spread { groups, panics: Cell::new(0) }));
            }
        }
    }
}

impl<C> Group<C> {
    fn new(policy: &LoadBalancing, hosts: Vec<Rc<Host<C>>>, random: &Random) -> Group<C> {
        let weights: Vec<u32> = hosts.iter().map(|host| host.endpoint.weight).collect();
        Group { picker: Picker::new(policy, &weights, random), hosts }
    }

    #[inline]
    fn pick(&self, random: &Random) -> Option<Rc<Host<C>>> {
        let load = |index: usize| self.hosts.get(index).map_or(0, |host| host.active.get());
        self.hosts.get(self.picker.pick(random, load)?).cloned()
    }
}

impl<C> Spread<C> {
    #[cold]
    fn pick(&self, random: &Random) -> Option<Rc<Host<C>>> {
        let mut ticket = random.below(100) as u64;
        let drawn = self.groups.iter().find(|(percent, _, _)| {
            let hit = ticket < *percent;
            ticket = ticket.saturating_sub(*percent);
            hit
        });
        let (_, panic, group) = drawn?;
        self.panics.set(self.panics.get() + u64::from(*panic));
        group.pick(random)
    }
}

impl<C> Host<C> {
    /// A host that belongs to no set of hosts, and that nobody checks.
    pub fn alone(endpoint: Arc<Endpoint>) -> Host<C> {
        Host::new(endpoint, Health::default())
    }

    fn new(endpoint: Arc<Endpoint>, health: Health) -> Host<C> {
        Host {
            endpoint,
            health: Cell::new(health),
            removed: Cell::new(false),
            active: Cell::new(0),
            connections: Cell::new(0),
            totals: HostTotals::default(),
            idle: RefCell::default(),
            retired: Cell::new(false),
        }
    }

    /// What configuration and checks say together.
    pub fn standing(&self) -> EndpointHealth {
        match (self.endpoint.health, self.health.get()) {
            (EndpointHealth::Unhealthy, _) | (_, Health { failed: true, .. }) => EndpointHealth::Unhealthy,
            (EndpointHealth::Degraded, _) | (_, Health { degraded: true, .. }) => EndpointHealth::Degraded,
            _ => EndpointHealth::Healthy,
        }
    }

    /// It no longer belongs to its cluster; answers its pool.
    pub fn retire(&self) -> Vec<C> {
        self.retired.set(true);
        self.idle.take()
    }

    /// It no longer belongs to its cluster.
    pub fn is_retired(&self) -> bool {
        self.retired.get()
    }

    /// The connection that was used last: its buffers and the peer's are warm, and the others may time out.
    pub fn take_idle(&self) -> Option<C> {
        self.idle.borrow_mut().pop()
    }

    /// The one that was used last of those for which `fits` holds.
    pub fn take_idle_that(&self, fits: impl FnMut(&C) -> bool) -> Option<C> {
        let mut idle = self.idle.borrow_mut();
        let at = idle.iter().rposition(fits)?;
        Some(idle.remove(at))
    }

    /// The one that was not used for the longest time.
    pub fn take_oldest_idle(&self) -> Option<C> {
        let mut idle = self.idle.borrow_mut();
        (!idle.is_empty()).then(|| idle.remove(0))
    }

    /// Keeps a connection for later; gives it back, to be closed, when the host is gone.
    ///
    /// # Errors
    /// The host no longer belongs to its cluster.
    #[inline]
    pub fn put_idle(&self, connection: C) -> Result<(), C> {
        if self.retired.get() {
            return Err(connection);
        }
        self.idle.borrow_mut().push(connection);
        Ok(())
    }

    /// Takes out the idle connections for which `expired` holds.
    pub fn sweep_idle(&self, expired: impl FnMut(&mut C) -> bool) -> Vec<C> {
        self.idle.borrow_mut().extract_if(.., expired).collect()
    }

    pub fn idle_count(&self) -> usize {
        self.idle.borrow().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn endpoint(port: u16, priority: u32, health: EndpointHealth) -> Arc<Endpoint> {
        let address = Address::Tcp(([127, 0, 0, 1], port).into());
        Arc::new(Endpoint { address, hostname: String::new(), weight: 1, priority, health, check: None })
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
        let cluster = Cluster::<u32>::new(LoadBalancing::RoundRobin, HealthRules::default(), &endpoints, &random);
        assert!((0..9).all(|_| port(&cluster.pick(&random).unwrap()) == 2));
        cluster.update(&Endpoints::default(), &random);
        assert!(cluster.pick(&random).is_none());
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
            user_agent: String::new(),
            event_log: None,
            logs_every_failure: false,
            logs_every_success: false,
        };
        HealthRules { drops_removed, checks: vec![check], ..HealthRules::default() }
    }

    #[test]
    fn traffic_follows_the_checks_and_panics_when_too_few_pass() {
        let random = Random::new(1);
        let all: Vec<_> = (1..=4).map(|port| endpoint(port, 0, EndpointHealth::Healthy)).collect();
        let endpoints = Endpoints(all.clone());
        let cluster = Cluster::<u32>::new(LoadBalancing::RoundRobin, checked(false), &endpoints, &random);
        let ports =
            || (0..40).map(|_| port(&cluster.pick(&random).unwrap())).collect::<std::collections::BTreeSet<_>>();
        assert_eq!(ports().len(), 4, "nobody was checked yet");
        assert_eq!(cluster.take_panics(), 40);
        for endpoint in all.iter().take(2) {
            cluster.set_health(endpoint, Health::default(), &random);
        }
        assert_eq!(ports().into_iter().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(cluster.take_panics(), 0);
        assert_eq!(cluster.members(), Members { all: 4, healthy: 2, degraded: 0, excluded: 0 });
    }

    #[test]
    fn a_host_that_discovery_drops_stays_while_it_passes_its_checks() {
        let random = Random::new(1);
        let one = endpoint(1, 0, EndpointHealth::Healthy);
        for (drops, left) in [(false, 1), (true, 0)] {
            let endpoints = Endpoints(vec![one.clone()]);
            let cluster = Cluster::<u32>::new(LoadBalancing::RoundRobin, checked(drops), &endpoints, &random);
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
            LoadBalancing::RoundRobin,
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
    fn the_pool_gives_back_the_last_one_first() {
        let random = Random::new(1);
        let endpoints = Endpoints(vec![endpoint(1, 0, EndpointHealth::Healthy)]);
        let host = Cluster::<u32>::new(LoadBalancing::RoundRobin, HealthRules::default(), &endpoints, &random)
            .pick(&random)
            .unwrap();
        (1..=3).for_each(|c| host.put_idle(c).unwrap());
        assert_eq!(host.sweep_idle(|c| *c == 2), [2]);
        assert_eq!((host.take_idle(), host.take_idle(), host.take_idle()), (Some(3), Some(1), None));
    }

    #[test]
    fn a_turn_in_the_queue_is_never_lost() {
        let cluster = Cluster::<u32>::new(
            LoadBalancing::RoundRobin,
            HealthRules::default(),
            &Endpoints::default(),
            &Random::new(1),
        );
        let (first, second) = (cluster.wait(), cluster.wait());
        let waker = Waker::noop();
        assert!(!first.is_called(waker) && !second.is_called(waker));
        cluster.call_next();
        assert!(first.is_called(waker) && !second.is_called(waker));
        cluster.leave(&first);
        assert!(second.is_called(waker));
        assert!(!cluster.has_waiters());
    }
}
