//! A host as one worker sees it: its state, its counts, and connections that wait for work.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use postrider_model::{Endpoint, EndpointHealth, Leaving};

use crate::outlier::Monitor;
use crate::peak::Peak;
use crate::{Health, Permit};

/// An endpoint with what this worker knows about it.
#[derive(Debug)]
pub struct Host<C> {
    pub endpoint: Arc<Endpoint>,
    /// Requests under way.
    pub active: Cell<u32>,
    /// Requests that wait for a connection to it.
    pub waiting: Cell<u32>,
    /// Those of them that may not open one, and wait for one to come free.
    pub queued: Cell<u32>,
    /// Connections, pooled and busy.
    pub connections: Cell<u32>,
    /// What active checks say.
    pub health: Cell<Health>,
    /// Its answers were so bad that it gets no traffic for a while.
    pub ejected: Cell<bool>,
    /// It said in an answer that it is degraded, and counts so for a while.
    pub degraded: Cell<bool>,
    /// Where its answers are counted, if that has consequences.
    pub monitor: Option<Arc<Monitor>>,
    /// Since when it is well, where new hosts start slowly.
    pub(crate) since: Cell<Option<Instant>>,
    /// How fast it answers, where that decides.
    pub(crate) peak: Option<Box<Peak>>,
    /// Discovery dropped it, and it stays while it passes its checks.
    pub removed: Cell<bool>,
    /// Counters for `/clusters`: connections and requests so far, and those that failed.
    pub totals: HostTotals,
    /// Connections of all workers, where a host has a limit of its own.
    pub(crate) shared: Option<Arc<AtomicU32>>,
    /// Permission to have connections at all, where that is limited.
    pool: RefCell<Option<Permit>>,
    has_pool: Cell<bool>,
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
    /// Tries, and requests at their last try, that took too long.
    pub timeouts: Cell<u64>,
}

impl<C> Host<C> {
    /// A host that belongs to no set of hosts, and that nobody checks.
    pub fn alone(endpoint: Arc<Endpoint>) -> Host<C> {
        Host::new(endpoint, Health::default(), None)
    }

    pub(crate) fn new(endpoint: Arc<Endpoint>, health: Health, monitor: Option<Arc<Monitor>>) -> Host<C> {
        Host {
            endpoint,
            health: Cell::new(health),
            ejected: Cell::new(monitor.as_ref().is_some_and(|monitor| monitor.is_ejected())),
            degraded: Cell::new(monitor.as_ref().is_some_and(|monitor| monitor.is_degraded())),
            monitor,
            shared: None,
            pool: RefCell::new(None),
            has_pool: Cell::new(false),
            since: Cell::new(None),
            peak: None,
            removed: Cell::new(false),
            active: Cell::new(0),
            waiting: Cell::new(0),
            queued: Cell::new(0),
            connections: Cell::new(0),
            totals: HostTotals::default(),
            idle: RefCell::default(),
            retired: Cell::new(false),
        }
    }

    /// What configuration, checks and its answers say together.
    pub fn standing(&self) -> EndpointHealth {
        if self.ejected.get() {
            return EndpointHealth::Unhealthy;
        }
        match (self.endpoint.health, self.health.get()) {
            (EndpointHealth::Unhealthy, _) | (_, Health { failed: true, .. }) => EndpointHealth::Unhealthy,
            (EndpointHealth::Degraded, _) | (_, Health { degraded: true, .. }) => EndpointHealth::Degraded,
            _ if self.degraded.get() => EndpointHealth::Degraded,
            _ => EndpointHealth::Healthy,
        }
    }

    /// It does not count among the hosts of which some share has to be well: nobody expects one that drains to be.
    pub fn is_excluded(&self, ignores_unchecked: bool) -> bool {
        self.health.get().is_excluded(ignores_unchecked) || self.endpoint.drains()
    }

    /// What else than its health takes it out of service; nothing where checks or outlier detection do.
    pub fn leaving(&self) -> Option<Leaving> {
        let fails = self.ejected.get() || self.health.get().failed;
        self.endpoint.leaving.filter(|_| !fails)
    }

    /// Somebody wants to know how long its answers take.
    #[inline]
    pub fn is_timed(&self) -> bool {
        self.peak.is_some()
    }

    /// A request took so long. One that was not `answered` makes the host no faster.
    #[cold]
    pub fn observe(&self, took: Duration, answered: bool) {
        if let Some(peak) = &self.peak {
            peak.observe(took, answered, Instant::now());
        }
    }

    /// Seconds that an answer is likely to take, where that decides.
    pub(crate) fn latency(&self) -> f64 {
        self.peak.as_ref().map_or(0.0, |peak| peak.average(Instant::now()))
    }

    /// The same host without the connections.
    pub(crate) fn successor(&self) -> Host<C> {
        let host = Host::new(self.endpoint.clone(), self.health.get(), self.monitor.clone());
        let totals = &self.totals;
        host.totals.connections.set(totals.connections.get());
        host.totals.connect_failures.set(totals.connect_failures.get());
        host.totals.requests.set(totals.requests.get());
        host.totals.successes.set(totals.successes.get());
        host.totals.errors.set(totals.errors.get());
        host.totals.timeouts.set(totals.timeouts.get());
        host.since.set(self.since.get());
        Host { shared: self.shared.clone(), peak: self.peak.clone(), ..host }
    }

    /// A connection to it is being made.
    pub fn begin_connection(&self) {
        self.connections.set(self.connections.get() + 1);
        self.totals.connections.set(self.totals.connections.get() + 1);
        if let Some(shared) = &self.shared {
            shared.fetch_add(1, Relaxed);
        }
    }

    /// A connection ended, or was not made. With the last one goes the permission to have any.
    pub fn end_connection(&self) {
        self.connections.set(self.connections.get().saturating_sub(1));
        if let Some(shared) = &self.shared {
            shared.fetch_sub(1, Relaxed);
        }
        if self.connections.get() == 0 && self.has_pool.replace(false) {
            drop(self.pool.take());
        }
    }

    /// Connections of all workers, where somebody counts them.
    pub fn open_connections(&self) -> u32 {
        self.shared.as_ref().map_or(self.connections.get(), |shared| shared.load(Relaxed))
    }

    /// It may have connections, from now until it has none any more.
    pub fn admit(&self, permit: Permit) {
        *self.pool.borrow_mut() = Some(permit);
        self.has_pool.set(true);
    }

    pub fn is_admitted(&self) -> bool {
        self.has_pool.get()
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
    use crate::testing::endpoint;

    #[test]
    fn the_pool_gives_back_the_last_one_first() {
        let host = Host::<u32>::alone(Arc::new(endpoint(1)));
        (1..=3).for_each(|c| host.put_idle(c).unwrap());
        assert_eq!(host.sweep_idle(|c| *c == 2), [2]);
        assert_eq!((host.take_idle(), host.take_idle(), host.take_idle()), (Some(3), Some(1), None));
    }
}
