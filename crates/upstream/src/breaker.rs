//! Circuit breakers: limits that hold over all workers, at the cost of a plain addition while they are far away.
//!
//! Each worker counts in a cell of its own. A worker that stays within its share (limit / workers) of a limit that
//! nobody exceeded his share of need not look at the others; only then it sums all cells up.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use postrider_model::{Priority, RetryBudget, Thresholds};

/// The breakers of one cluster, shared by its workers.
#[derive(Debug)]
pub struct Breakers {
    pub default: PriorityBreakers,
    pub high: PriorityBreakers,
}

#[derive(Debug)]
pub struct PriorityBreakers {
    pub connections: Breaker,
    pub pending_requests: Breaker,
    pub requests: Breaker,
    pub retries: Breaker,
    /// Hosts with connections, for each worker.
    pub pools: Breaker,
    retry_budget: Option<RetryBudget>,
}

impl Breakers {
    pub fn new(default: &Thresholds, high: &Thresholds, workers: usize) -> Breakers {
        let of = |limits: &Thresholds| PriorityBreakers {
            connections: Breaker::new(limits.max_connections, workers),
            pending_requests: Breaker::new(limits.max_pending_requests, workers),
            requests: Breaker::new(limits.max_requests, workers),
            retries: Breaker::new(limits.max_retries, workers),
            pools: Breaker::new(limits.max_connection_pools.unwrap_or(u32::MAX), workers),
            retry_budget: limits.retry_budget,
        };
        Breakers { default: of(default), high: of(high) }
    }

    pub fn of(&self, priority: Priority) -> &PriorityBreakers {
        match priority {
            Priority::Default => &self.default,
            Priority::High => &self.high,
        }
    }
}

impl PriorityBreakers {
    /// Retries that may be under way now: a budget grows and shrinks with the requests that are.
    pub fn retry_limit(&self) -> u32 {
        let Some(budget) = &self.retry_budget else { return self.retries.limit() };
        let active = self.requests.held().saturating_add(self.pending_requests.held());
        // Rounded down, as in Envoy (`RetryBudgetImpl::max`).
        ((budget.percent / 100.0 * f64::from(active)) as u32).max(budget.at_least)
    }

    fn try_retry(&self, worker: usize) -> bool {
        if self.retry_budget.is_none() {
            return self.retries.try_acquire(worker);
        }
        let free = self.retries.held() < self.retry_limit();
        if free {
            self.retries.acquire(worker);
        }
        free
    }
}

/// One limit.
#[derive(Debug)]
pub struct Breaker {
    limit: u32,
    share: u32,
    /// Somebody holds more than his share, so everybody must look at the sum.
    beyond_share: AtomicBool,
    counts: Box<[Count]>,
}

/// A cell on a cache line of its own, written by one worker.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Count(AtomicU32);

impl Breaker {
    pub fn new(limit: u32, workers: usize) -> Breaker {
        let workers = workers.max(1);
        let counts = (0..workers).map(|_| Count::default()).collect();
        let share = limit / u32::try_from(workers).unwrap_or(u32::MAX);
        Breaker { limit, share, beyond_share: AtomicBool::new(false), counts }
    }

    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// What all workers hold.
    pub fn held(&self) -> u32 {
        self.counts.iter().fold(0u32, |sum, count| sum.saturating_add(count.0.load(Relaxed)))
    }

    /// How many more there may be.
    pub fn remaining(&self) -> u32 {
        self.limit.saturating_sub(self.held())
    }

    /// Takes one more for `worker`; `false` when the limit is reached.
    pub fn try_acquire(&self, worker: usize) -> bool {
        let Some(count) = self.counts.get(worker) else { return false };
        let held = count.0.load(Relaxed);
        if held >= self.share || self.beyond_share.load(Relaxed) {
            let sum = self.held();
            if sum >= self.limit {
                return false;
            }
            self.beyond_share.store(held >= self.share || sum > self.share, Relaxed);
        }
        count.0.store(held + 1, Relaxed);
        true
    }

    /// Takes one more whatever the limit says.
    pub fn acquire(&self, worker: usize) {
        if let Some(count) = self.counts.get(worker) {
            count.0.store(count.0.load(Relaxed).saturating_add(1), Relaxed);
        }
    }

    pub fn release(&self, worker: usize) {
        if let Some(count) = self.counts.get(worker) {
            count.0.store(count.0.load(Relaxed).saturating_sub(1), Relaxed);
        }
    }
}

/// The breakers as one worker holds them: counting who uses them touches nothing that workers share.
pub type LocalBreakers = Rc<Arc<Breakers>>;

/// One unit of a breaker, given back on drop.
#[derive(Debug)]
pub struct Permit {
    breakers: LocalBreakers,
    kind: Kind,
    priority: Priority,
    worker: u32,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Connection,
    Pending,
    Request,
    Retry,
    Pool,
}

impl Permit {
    /// `None` when the limit of requests is reached; so for the others.
    pub fn request(breakers: &LocalBreakers, priority: Priority, worker: u32) -> Option<Permit> {
        Permit::take(breakers, Kind::Request, priority, worker)
    }

    /// For one more retry: held until it is known what became of it.
    pub fn retry(breakers: &LocalBreakers, priority: Priority, worker: u32) -> Option<Permit> {
        let free = breakers.of(priority).try_retry(worker as usize);
        free.then(|| Permit { breakers: breakers.clone(), kind: Kind::Retry, priority, worker })
    }

    pub fn pending(breakers: &LocalBreakers, priority: Priority, worker: u32) -> Option<Permit> {
        Permit::take(breakers, Kind::Pending, priority, worker)
    }

    /// For the first connection to a host.
    pub fn pool(breakers: &LocalBreakers, priority: Priority, worker: u32) -> Option<Permit> {
        Permit::take(breakers, Kind::Pool, priority, worker)
    }

    pub fn connection(breakers: &LocalBreakers, priority: Priority, worker: u32) -> Option<Permit> {
        Permit::take(breakers, Kind::Connection, priority, worker)
    }

    /// A connection beyond the limit: a host without any gets one, so that nobody waits for what can never come.
    pub fn connection_beyond_limit(breakers: &LocalBreakers, priority: Priority, worker: u32) -> Permit {
        breakers.of(priority).connections.acquire(worker as usize);
        Permit { breakers: breakers.clone(), kind: Kind::Connection, priority, worker }
    }

    fn take(breakers: &LocalBreakers, kind: Kind, priority: Priority, worker: u32) -> Option<Permit> {
        kind.of(breakers.of(priority)).try_acquire(worker as usize).then(|| Permit {
            breakers: breakers.clone(),
            kind,
            priority,
            worker,
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.kind.of(self.breakers.of(self.priority)).release(self.worker as usize);
    }
}

impl Kind {
    fn of(self, breakers: &PriorityBreakers) -> &Breaker {
        match self {
            Kind::Connection => &breakers.connections,
            Kind::Pending => &breakers.pending_requests,
            Kind::Request => &breakers.requests,
            Kind::Retry => &breakers.retries,
            Kind::Pool => &breakers.pools,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_worker_may_hold_the_whole_limit_and_no_more() {
        let breaker = Breaker::new(3, 2);
        assert!((0..3).all(|_| breaker.try_acquire(0)));
        assert!(!breaker.try_acquire(0) && !breaker.try_acquire(1));
        breaker.release(0);
        assert!(breaker.try_acquire(1) && !breaker.try_acquire(1));
        assert_eq!(breaker.held(), 3);
    }

    #[test]
    fn a_limit_of_zero_lets_nothing_pass() {
        assert!(!Breaker::new(0, 4).try_acquire(0));
    }

    #[test]
    fn permits_give_back_what_they_took() {
        let limits = Thresholds { max_requests: 1, ..Thresholds::default() };
        let breakers = Rc::new(Arc::new(Breakers::new(&limits, &limits, 1)));
        let first = Permit::request(&breakers, Priority::Default, 0);
        assert!(first.is_some() && Permit::request(&breakers, Priority::Default, 0).is_none());
        assert!(Permit::request(&breakers, Priority::High, 0).is_some());
        drop(first);
        assert!(Permit::request(&breakers, Priority::Default, 0).is_some());
    }

    #[test]
    fn a_retry_budget_follows_the_requests_under_way() {
        let budget = Some(RetryBudget { percent: 50.0, at_least: 1 });
        let limits = Thresholds { retry_budget: budget, ..Thresholds::default() };
        let breakers = Rc::new(Arc::new(Breakers::new(&limits, &limits, 2)));
        let retry = || Permit::retry(&breakers, Priority::Default, 0);
        let first = retry();
        assert!(first.is_some() && retry().is_none());
        let requests: Vec<_> = (0..4).map(|_| Permit::request(&breakers, Priority::Default, 1)).collect();
        let second = retry();
        assert!(second.is_some() && retry().is_none());
        drop((first, requests));
        assert!(retry().is_none(), "the second one is still under way");
    }

    #[test]
    fn the_sum_over_workers_never_exceeds_the_limit() {
        let breaker = Breaker::new(10, 4);
        let mut held = 0;
        for step in 0..1000usize {
            if breaker.try_acquire(step * 7 % 4) {
                held += 1;
            }
            assert!(held <= 10);
        }
        assert_eq!(held, 10);
    }
}
