//! Circuit breakers: limits that hold over all workers, at the cost of a plain addition while they are far away.
//!
//! Each worker counts in a cell of its own. A worker that stays within its share (limit / workers) of a limit that
//! nobody exceeded his share of need not look at the others; only then it sums all cells up.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use postrider_model::{Priority, Thresholds};

use crate::recent::Recent;

/// The breakers of one cluster, shared by its workers.
#[derive(Debug)]
pub struct Breakers {
    default: Limits,
    high: Limits,
    counts: Box<[Counts]>,
}

/// The limits of one priority, by kind. They may become others while they are asked.
#[derive(Debug)]
struct Limits {
    of_kind: [Limit; KINDS],
    retry_budget: Option<Budget>,
    /// Where the budget is a share of requests that began lately.
    recent: Option<Recent>,
}

/// Retries as a share of requests.
#[derive(Debug)]
struct Budget {
    /// The bits of a number.
    percent: AtomicU64,
    at_least: AtomicU32,
}

#[derive(Debug)]
struct Limit {
    limit: AtomicU32,
    share: AtomicU32,
    /// Somebody holds more than his share, so everybody must look at the sum.
    beyond_share: AtomicBool,
}

/// What one worker holds, by priority and kind: alone on a cache line, which nobody else writes.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Counts([[AtomicU32; KINDS]; 2]);

/// What is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limited {
    Connections,
    PendingRequests,
    Requests,
    Retries,
    /// Hosts with connections, for each worker.
    Pools,
}

const KINDS: usize = 5;

impl Limited {
    /// The one of `all` that is about this.
    #[inline]
    fn of<T>(self, all: &[T; KINDS]) -> &T {
        let [connections, pending_requests, requests, retries, pools] = all;
        match self {
            Limited::Connections => connections,
            Limited::PendingRequests => pending_requests,
            Limited::Requests => requests,
            Limited::Retries => retries,
            Limited::Pools => pools,
        }
    }
}

impl Breakers {
    pub fn new(default: &Thresholds, high: &Thresholds, workers: usize) -> Breakers {
        let workers = workers.max(1);
        let of = |limits: &Thresholds| Limits {
            of_kind: by_kind(limits).map(|limit| Limit {
                limit: AtomicU32::new(limit),
                share: AtomicU32::new(share(limit, workers)),
                beyond_share: AtomicBool::new(false),
            }),
            retry_budget: limits.retry_budget.map(|budget| Budget {
                percent: AtomicU64::new(budget.percent.to_bits()),
                at_least: AtomicU32::new(budget.at_least),
            }),
            recent: limits
                .retry_budget
                .and_then(|budget| budget.interval)
                .map(|interval| Recent::new(interval, workers)),
        };
        Breakers { default: of(default), high: of(high), counts: (0..workers).map(|_| Counts::default()).collect() }
    }

    /// Other limits from now on; what is held stays held, be it too much. Whether there is a budget of retries, and what it
    /// counts, stays as well.
    pub fn limit_to(&self, default: &Thresholds, high: &Thresholds) {
        for (limits, model) in [(&self.default, default), (&self.high, high)] {
            for (at, limit) in limits.of_kind.iter().zip(by_kind(model)) {
                at.limit.store(limit, Relaxed);
                at.share.store(share(limit, self.counts.len()), Relaxed);
                // Somebody may hold more than the share that he has now.
                at.beyond_share.store(true, Relaxed);
            }
            if let (Some(budget), Some(model)) = (&limits.retry_budget, model.retry_budget) {
                budget.percent.store(model.percent.to_bits(), Relaxed);
                budget.at_least.store(model.at_least, Relaxed);
            }
        }
    }

    #[inline]
    pub fn breaker(&self, priority: Priority, kind: Limited) -> Breaker<'_> {
        Breaker { limit: kind.of(&self.limits(priority).of_kind), counts: &self.counts, priority, kind }
    }

    /// Whether it matters when requests begin.
    #[inline]
    pub fn counts_beginnings(&self, priority: Priority) -> bool {
        self.limits(priority).recent.is_some()
    }

    /// Retries are a share of the requests under way.
    pub fn counts_active(&self, priority: Priority) -> bool {
        let limits = self.limits(priority);
        limits.retry_budget.is_some() && limits.recent.is_none()
    }

    /// A request begins on `worker`. `now` is what the workers' clocks show.
    #[cold]
    pub fn count_beginning(&self, priority: Priority, worker: u32, now: Duration) {
        if let Some(recent) = &self.limits(priority).recent {
            recent.count(worker as usize, now);
        }
    }

    /// Retries that may be under way now: a budget grows and shrinks with the requests that are, or that began lately.
    pub fn retry_limit(&self, priority: Priority, now: Duration) -> u32 {
        let Some(budget) = &self.limits(priority).retry_budget else {
            return self.breaker(priority, Limited::Retries).limit();
        };
        let whole = match &self.limits(priority).recent {
            Some(recent) => recent.sum(now),
            None => {
                let held =
                    [Limited::Requests, Limited::PendingRequests].map(|kind| self.breaker(priority, kind).held());
                held.into_iter().fold(0, u32::saturating_add)
            }
        };
        // Rounded down, as in Envoy (`RetryBudgetImpl::max`).
        let percent = f64::from_bits(budget.percent.load(Relaxed));
        ((percent / 100.0 * f64::from(whole)) as u32).max(budget.at_least.load(Relaxed))
    }

    fn try_retry(&self, priority: Priority, worker: usize, now: Duration) -> bool {
        let retries = self.breaker(priority, Limited::Retries);
        if self.limits(priority).retry_budget.is_none() {
            return retries.try_acquire(worker);
        }
        let free = retries.held() < self.retry_limit(priority, now);
        if free {
            retries.acquire(worker);
        }
        free
    }

    #[inline]
    fn limits(&self, priority: Priority) -> &Limits {
        match priority {
            Priority::Default => &self.default,
            Priority::High => &self.high,
        }
    }
}

/// In the order in which [`Limited::of`] takes them apart.
fn by_kind(limits: &Thresholds) -> [u32; KINDS] {
    [
        limits.max_connections,
        limits.max_pending_requests,
        limits.max_requests,
        limits.max_retries,
        limits.max_connection_pools.unwrap_or(u32::MAX),
    ]
}

/// What one of so many workers may hold without a look at the others.
fn share(limit: u32, workers: usize) -> u32 {
    limit / u32::try_from(workers).unwrap_or(u32::MAX)
}

/// One limit and what is held of it.
#[derive(Debug, Clone, Copy)]
pub struct Breaker<'b> {
    limit: &'b Limit,
    counts: &'b [Counts],
    priority: Priority,
    kind: Limited,
}

impl<'b> Breaker<'b> {
    pub fn limit(self) -> u32 {
        self.limit.limit.load(Relaxed)
    }

    /// What all workers hold.
    pub fn held(self) -> u32 {
        let cells = self.counts.iter().map(|counts| self.cell(counts).load(Relaxed));
        cells.fold(0u32, u32::saturating_add)
    }

    /// How many more there may be.
    pub fn remaining(self) -> u32 {
        self.limit().saturating_sub(self.held())
    }

    /// Whether statistics show that `limit` is reached, which is this one's or grows and shrinks with requests. A limit of none is
    /// not while nobody holds anything: in Envoy only what is taken or given back changes what they show.
    pub fn shows_reached(self, limit: u32) -> bool {
        self.held() >= limit.max(1)
    }

    /// Whether `worker` could not take one more.
    pub fn is_reached(self, worker: usize) -> bool {
        let held = self.of_worker(worker).map_or(u32::MAX, |cell| cell.load(Relaxed));
        let Limit { limit, share, beyond_share } = self.limit;
        (held >= share.load(Relaxed) || beyond_share.load(Relaxed)) && self.held() >= limit.load(Relaxed)
    }

    /// Takes one more for `worker`; `false` when the limit is reached. Inlined, which leaves little of it where the kind is known.
    #[inline(always)]
    pub fn try_acquire(self, worker: usize) -> bool {
        let Some(cell) = self.of_worker(worker) else { return false };
        let held = cell.load(Relaxed);
        let share = self.limit.share.load(Relaxed);
        if (held >= share || self.limit.beyond_share.load(Relaxed)) && !self.may_exceed(held, share) {
            return false;
        }
        cell.store(held + 1, Relaxed);
        true
    }

    /// There is room for one more where some worker has no room of its own.
    #[cold]
    fn may_exceed(self, held: u32, share: u32) -> bool {
        let sum = self.held();
        if sum >= self.limit.limit.load(Relaxed) {
            return false;
        }
        self.limit.beyond_share.store(held >= share || sum > share, Relaxed);
        true
    }

    /// Takes one more whatever the limit says.
    pub fn acquire(self, worker: usize) {
        if let Some(cell) = self.of_worker(worker) {
            cell.store(cell.load(Relaxed).saturating_add(1), Relaxed);
        }
    }

    pub fn release(self, worker: usize) {
        if let Some(cell) = self.of_worker(worker) {
            cell.store(cell.load(Relaxed).saturating_sub(1), Relaxed);
        }
    }

    #[inline]
    fn of_worker(self, worker: usize) -> Option<&'b AtomicU32> {
        self.counts.get(worker).map(|counts| self.cell(counts))
    }

    #[inline]
    fn cell(self, counts: &Counts) -> &AtomicU32 {
        let [default, high] = &counts.0;
        self.kind.of(match self.priority {
            Priority::Default => default,
            Priority::High => high,
        })
    }
}

/// The breakers as one worker holds them: counting who uses them touches nothing that workers share.
pub type LocalBreakers = Rc<Arc<Breakers>>;

/// One unit of a breaker, given back on drop.
#[derive(Debug)]
pub struct Permit {
    breakers: LocalBreakers,
    kind: Limited,
    priority: Priority,
    worker: u32,
}

impl Permit {
    /// `None` when the limit of requests is reached; so for the others.
    pub fn request(breakers: &LocalBreakers, priority: Priority, worker: u32) -> Option<Permit> {
        Permit::take(breakers, Limited::Requests, priority, worker)
    }

    /// For one more retry: held until it is known what became of it.
    pub fn retry(breakers: &LocalBreakers, priority: Priority, worker: u32, now: Duration) -> Option<Permit> {
        let free = breakers.try_retry(priority, worker as usize, now);
        free.then(|| Permit { breakers: breakers.clone(), kind: Limited::Retries, priority, worker })
    }

    pub fn pending(breakers: &LocalBreakers, priority: Priority, worker: u32) -> Option<Permit> {
        Permit::take(breakers, Limited::PendingRequests, priority, worker)
    }

    /// For the first connection to a host.
    pub fn pool(breakers: &LocalBreakers, priority: Priority, worker: u32) -> Option<Permit> {
        Permit::take(breakers, Limited::Pools, priority, worker)
    }

    pub fn connection(breakers: &LocalBreakers, priority: Priority, worker: u32) -> Option<Permit> {
        Permit::take(breakers, Limited::Connections, priority, worker)
    }

    /// A connection beyond the limit: a host without any gets one, so that nobody waits for what can never come.
    pub fn connection_beyond_limit(breakers: &LocalBreakers, priority: Priority, worker: u32) -> Permit {
        breakers.breaker(priority, Limited::Connections).acquire(worker as usize);
        Permit { breakers: breakers.clone(), kind: Limited::Connections, priority, worker }
    }

    fn take(breakers: &LocalBreakers, kind: Limited, priority: Priority, worker: u32) -> Option<Permit> {
        breakers.breaker(priority, kind).try_acquire(worker as usize).then(|| Permit {
            breakers: breakers.clone(),
            kind,
            priority,
            worker,
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.breakers.breaker(self.priority, self.kind).release(self.worker as usize);
    }
}

#[cfg(test)]
mod tests {
    use postrider_model::RetryBudget;

    use super::*;

    fn of_requests(limit: u32, workers: usize) -> Breakers {
        let limits = Thresholds { max_requests: limit, ..Thresholds::default() };
        Breakers::new(&limits, &limits, workers)
    }

    fn requests(breakers: &Breakers) -> Breaker<'_> {
        breakers.breaker(Priority::Default, Limited::Requests)
    }

    #[test]
    fn one_worker_may_hold_the_whole_limit_and_no_more() {
        let breakers = of_requests(3, 2);
        let breaker = requests(&breakers);
        assert!((0..3).all(|_| breaker.try_acquire(0)));
        assert!(!breaker.try_acquire(0) && !breaker.try_acquire(1));
        breaker.release(0);
        assert!(breaker.try_acquire(1) && !breaker.try_acquire(1));
        assert_eq!(breaker.held(), 3);
    }

    #[test]
    fn a_limit_of_zero_lets_nothing_pass() {
        assert!(!requests(&of_requests(0, 4)).try_acquire(0));
    }

    #[test]
    fn other_limits_count_what_is_held_already() {
        let breakers = of_requests(4, 2);
        let breaker = requests(&breakers);
        assert!((0..2).all(|_| breaker.try_acquire(0)) && breaker.try_acquire(1));
        let limit_to = |max_requests| {
            let limits = Thresholds { max_requests, ..Thresholds::default() };
            breakers.limit_to(&limits, &limits);
        };
        limit_to(2);
        assert!(breaker.is_reached(1) && !breaker.try_acquire(0) && !breaker.try_acquire(1));
        limit_to(8);
        assert!((0..5).all(|_| breaker.try_acquire(1)) && !breaker.try_acquire(0));
        assert_eq!(breaker.held(), 8);
    }

    #[test]
    fn another_budget_counts_from_the_next_retry_on() {
        let of = |percent, at_least| Thresholds {
            retry_budget: Some(RetryBudget { percent, at_least, interval: None }),
            ..Thresholds::default()
        };
        let breakers = Breakers::new(&of(20.0, 3), &of(20.0, 3), 1);
        assert_eq!(breakers.retry_limit(Priority::High, Duration::ZERO), 3);
        breakers.limit_to(&of(50.0, 0), &of(20.0, 6));
        assert_eq!(breakers.retry_limit(Priority::Default, Duration::ZERO), 0);
        assert_eq!(breakers.retry_limit(Priority::High, Duration::ZERO), 6);
        (0..5).for_each(|_| requests(&breakers).acquire(0));
        assert_eq!(breakers.retry_limit(Priority::Default, Duration::ZERO), 2);
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
        let budget = Some(RetryBudget { percent: 50.0, at_least: 1, interval: None });
        let limits = Thresholds { retry_budget: budget, ..Thresholds::default() };
        let breakers = Rc::new(Arc::new(Breakers::new(&limits, &limits, 2)));
        let retry = || Permit::retry(&breakers, Priority::Default, 0, Duration::ZERO);
        let first = retry();
        assert!(first.is_some() && retry().is_none());
        let requests: Vec<_> = (0..4).map(|_| Permit::request(&breakers, Priority::Default, 1)).collect();
        let second = retry();
        assert!(second.is_some() && retry().is_none());
        drop((first, requests));
        assert!(retry().is_none(), "the second one is still under way");
    }

    #[test]
    fn a_retry_budget_with_an_interval_follows_the_requests_that_began() {
        let budget = Some(RetryBudget { percent: 50.0, at_least: 0, interval: Some(Duration::from_secs(1)) });
        let limits = Thresholds { retry_budget: budget, ..Thresholds::default() };
        let breakers = Rc::new(Arc::new(Breakers::new(&limits, &limits, 2)));
        let retry = |now| Permit::retry(&breakers, Priority::Default, 0, Duration::from_millis(now));
        assert!(breakers.counts_beginnings(Priority::Default) && retry(5000).is_none());
        (0..2).for_each(|_| breakers.count_beginning(Priority::Default, 1, Duration::from_secs(5)));
        // They are over, and count.
        let first = retry(5900);
        assert!(first.is_some() && retry(5900).is_none());
        drop(first);
        assert!(retry(6500).is_none(), "their time is over");
    }

    #[test]
    fn the_sum_over_workers_never_exceeds_the_limit() {
        let breakers = of_requests(10, 4);
        let breaker = requests(&breakers);
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
