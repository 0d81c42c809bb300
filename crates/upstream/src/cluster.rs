//! A cluster as one worker sees it: its hosts, who is next, and connections that wait for work.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use postrider_model::{Address, Endpoint, EndpointHealth, LoadBalancing};

use crate::{Picker, Random};

/// The endpoints of a cluster at one moment, as published by discovery.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Endpoints(pub Vec<Arc<Endpoint>>);

/// One worker's hosts of one cluster. `C` is a pooled connection.
#[derive(Debug)]
pub struct Cluster<C> {
    policy: LoadBalancing,
    hosts: RefCell<HostSet<C>>,
    /// Requests that wait until a connection comes free.
    waiters: RefCell<VecDeque<Rc<Waiter>>>,
}

#[derive(Debug)]
struct HostSet<C> {
    all: Vec<Rc<Host<C>>>,
    /// Those that get traffic: the healthy ones of the first priority that has any.
    usable: Vec<Rc<Host<C>>>,
    picker: Picker,
}

/// An endpoint with what this worker knows about it.
#[derive(Debug)]
pub struct Host<C> {
    pub endpoint: Arc<Endpoint>,
    /// Requests under way.
    pub active: Cell<u32>,
    /// Connections, pooled and busy.
    pub connections: Cell<u32>,
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
    pub fn new(policy: LoadBalancing, endpoints: &Endpoints, random: &Random) -> Cluster<C> {
        let hosts = HostSet { all: Vec::new(), usable: Vec::new(), picker: Picker::new(&policy, &[], random) };
        let cluster = Cluster { policy, hosts: RefCell::new(hosts), waiters: RefCell::default() };
        cluster.update(endpoints, random);
        cluster
    }

    /// Takes over a new set of endpoints. Hosts that stay keep their connections and counts; the pools of those that
    /// went are answered, to be closed, and their busy connections end with their requests.
    pub fn update(&self, endpoints: &Endpoints, random: &Random) -> Vec<C> {
        let mut hosts = self.hosts.borrow_mut();
        let mut old = std::mem::take(&mut hosts.all);
        for endpoint in &endpoints.0 {
            let known = old.iter().position(|host| host.endpoint == *endpoint);
            let host = match known {
                Some(index) => old.swap_remove(index),
                None => Rc::new(Host::new(endpoint.clone())),
            };
            hosts.all.push(host);
        }
        hosts.usable = usable(&hosts.all);
        let weights: Vec<u32> = hosts.usable.iter().map(|host| host.endpoint.weight).collect();
        hosts.picker = Picker::new(&self.policy, &weights, random);
        old.iter()
            .flat_map(|host| {
                host.retired.set(true);
                host.idle.take()
            })
            .collect()
    }

    /// The host for the next request; `None` when none is healthy.
    pub fn pick(&self, random: &Random) -> Option<Rc<Host<C>>> {
        let hosts = self.hosts.borrow();
        let load = |index: usize| hosts.usable.get(index).map_or(0, |host| host.active.get());
        hosts.usable.get(hosts.picker.pick(random, load)?).cloned()
    }

    /// The healthy host with this address, of whatever priority.
    pub fn at(&self, address: &Address) -> Option<Rc<Host<C>>> {
        let hosts = self.hosts.borrow();
        let fits = |host: &&Rc<Host<C>>| {
            host.endpoint.address == *address && host.endpoint.health != EndpointHealth::Unhealthy
        };
        hosts.all.iter().find(fits).cloned()
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

impl<C> Host<C> {
    fn new(endpoint: Arc<Endpoint>) -> Host<C> {
        Host {
            endpoint,
            active: Cell::new(0),
            connections: Cell::new(0),
            totals: HostTotals::default(),
            idle: RefCell::default(),
            retired: Cell::new(false),
        }
    }

    /// The connection that was used last: its buffers and the peer's are warm, and the others may time out.
    pub fn take_idle(&self) -> Option<C> {
        self.idle.borrow_mut().pop()
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

fn usable<C>(hosts: &[Rc<Host<C>>]) -> Vec<Rc<Host<C>>> {
    let healthy = |host: &&Rc<Host<C>>| host.endpoint.health != EndpointHealth::Unhealthy;
    let best = hosts.iter().filter(healthy).map(|host| host.endpoint.priority).min();
    hosts.iter().filter(healthy).filter(|host| Some(host.endpoint.priority) == best).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(port: u16, priority: u32, health: EndpointHealth) -> Arc<Endpoint> {
        let address = Address::Tcp(([127, 0, 0, 1], port).into());
        Arc::new(Endpoint { address, hostname: String::new(), weight: 1, priority, health })
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
        let cluster = Cluster::<u32>::new(LoadBalancing::RoundRobin, &endpoints, &random);
        assert!((0..9).all(|_| port(&cluster.pick(&random).unwrap()) == 2));
        cluster.update(&Endpoints::default(), &random);
        assert!(cluster.pick(&random).is_none());
    }

    #[test]
    fn a_host_that_stays_keeps_its_pool_and_one_that_goes_hands_it_over() {
        let random = Random::new(1);
        let (one, two) = (endpoint(1, 0, EndpointHealth::Healthy), endpoint(2, 0, EndpointHealth::Healthy));
        let cluster =
            Cluster::<u32>::new(LoadBalancing::RoundRobin, &Endpoints(vec![one.clone(), two.clone()]), &random);
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
        let host = Cluster::<u32>::new(LoadBalancing::RoundRobin, &endpoints, &random).pick(&random).unwrap();
        (1..=3).for_each(|c| host.put_idle(c).unwrap());
        assert_eq!(host.sweep_idle(|c| *c == 2), [2]);
        assert_eq!((host.take_idle(), host.take_idle(), host.take_idle()), (Some(3), Some(1), None));
    }

    #[test]
    fn a_turn_in_the_queue_is_never_lost() {
        let cluster = Cluster::<u32>::new(LoadBalancing::RoundRobin, &Endpoints::default(), &Random::new(1));
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
