//! What a worker does while the process is short of something.
//!
//! Control threads measure and tell every worker how strong each measure is to be, whenever that changes: a [`Strain`].
//! Where a connection or request begins, a worker looks at one flag of its own; what follows from it is rare code.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use postrider_model::{ConnectionBound, ScaledTimer, ShedKind, TimerScale};
use postrider_telemetry::WorkerStats;
use postrider_telemetry::stats::sets::{load_shed, overload_resource};
use postrider_upstream::Random;

use crate::account::Accounts;

/// How strong each measure is to be; shares are between 0 and 1.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Strain {
    /// Requests that are answered 503.
    pub refused_requests: f64,
    /// Connections that end after the request that they are at.
    pub ended_connections: f64,
    /// Connections that are closed as soon as they are accepted.
    pub refused_connections: f64,
    /// What is shed at points of the pipeline, each with a count of its own.
    pub shed: Vec<(ShedKind, Shed)>,
    /// New connections wait in the system's queue.
    pub paused: bool,
    /// How far timers are shortened.
    pub haste: f64,
    pub timers: Vec<TimerScale>,
    /// What each stream holds is to be known: some may have to go.
    pub keeps_accounts: bool,
    /// The most connections of all listeners together.
    pub bound: Option<ConnectionBound>,
}

/// A share of what comes to a point of the pipeline, with the name under which it is counted.
#[derive(Debug, Clone, PartialEq)]
pub struct Shed {
    pub point: String,
    pub share: f64,
}

impl Strain {
    fn shed_at(&self, kind: ShedKind) -> Option<&Shed> {
        self.shed.iter().find(|(known, _)| *known == kind).map(|(_, shed)| shed)
    }

    fn sheds_at(&self, kinds: &[ShedKind]) -> bool {
        kinds.iter().any(|kind| self.shed_at(*kind).is_some_and(|shed| shed.share > 0.0))
    }
}

/// Where requests are shed.
const OF_REQUESTS: [ShedKind; 5] =
    [ShedKind::Codec, ShedKind::Http1, ShedKind::GoAway, ShedKind::Head, ShedKind::Filters];

/// The strain as one worker feels it.
#[derive(Default)]
pub(crate) struct Overload {
    strain: RefCell<Arc<Strain>>,
    /// Something is to be done where a request begins.
    pub(crate) requests: Cell<bool>,
    /// Something is to be done where a connection is accepted.
    pub(crate) accepts: Cell<bool>,
    /// Something is to be done where an upstream gets a connection.
    pub(crate) upstreams: Cell<bool>,
    pub(crate) paused: Cell<bool>,
    /// Timers are, or were, shorter than configured.
    pub(crate) hurries: Cell<bool>,
    /// Listeners that wait for the end of a pause.
    waiting: RefCell<Vec<Waker>>,
    pub(crate) accounts: Accounts,
}

impl Overload {
    /// From now on this is so. Connections that sleep are to be woken.
    pub(crate) fn bear(&self, strain: Arc<Strain>) {
        let strained = strain.refused_requests > 0.0 || strain.ended_connections > 0.0 || strain.keeps_accounts;
        self.requests.set(strained || strain.sheds_at(&OF_REQUESTS));
        let refuses = strain.refused_connections > 0.0 || strain.sheds_at(&[ShedKind::Accept]);
        self.accepts.set(refuses || strain.bound.is_some());
        self.upstreams.set(strain.sheds_at(&[ShedKind::Upstream]));
        self.hurries.set(!strain.timers.is_empty() && (self.hurries.get() || strain.haste > 0.0));
        self.paused.set(strain.paused);
        *self.strain.borrow_mut() = strain;
        if !self.paused.get() {
            self.waiting.take().into_iter().for_each(Waker::wake);
        }
    }

    pub(crate) fn strain(&self) -> Arc<Strain> {
        self.strain.borrow().clone()
    }

    /// `waker` is told when the pause is over.
    #[cold]
    pub(crate) fn wait(&self, waker: &Waker) {
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|known| known.will_wake(waker)) {
            waiting.push(waker.clone());
        }
    }

    /// Whether a new connection is one of those that are to go.
    pub(crate) fn draws_connection(&self, random: &Random, stats: &WorkerStats) -> bool {
        let shed = self.sheds(ShedKind::Accept, random, stats);
        draw(random, self.strain.borrow().refused_connections) || shed
    }

    /// Whether a new request is one of those that are to be refused.
    pub(crate) fn draws_request(&self, random: &Random, stats: &WorkerStats) -> bool {
        let shed = self.sheds(ShedKind::Head, random, stats);
        draw(random, self.strain.borrow().refused_requests) || shed
    }

    /// Whether what comes to a point is shed there, which is counted.
    #[cold]
    pub(crate) fn sheds(&self, kind: ShedKind, random: &Random, stats: &WorkerStats) -> bool {
        let strain = self.strain();
        let Some(shed) = strain.shed_at(kind).filter(|shed| draw(random, shed.share)) else { return false };
        stats.block(&load_shed::SET, &shed.point).inc(load_shed::SHED_LOAD_COUNT);
        true
    }

    /// Whether a request's connection is one of those that are to end.
    pub(crate) fn draws_end(&self, random: &Random) -> bool {
        draw(random, self.strain.borrow().ended_connections)
    }

    /// A connection was turned away because of the bound.
    pub(crate) fn count_bound(&self, stats: &WorkerStats) {
        if let Some(bound) = &self.strain.borrow().bound {
            stats.block(&overload_resource::SET, &bound.name).inc(overload_resource::FAILED_UPDATES);
        }
    }

    /// A time limit as it is now.
    #[inline]
    pub(crate) fn hurried(&self, timer: ScaledTimer, full: Option<Duration>) -> Option<Duration> {
        if self.hurries.get() { self.shortened(timer, full) } else { full }
    }

    #[cold]
    fn shortened(&self, timer: ScaledTimer, full: Option<Duration>) -> Option<Duration> {
        let strain = self.strain.borrow();
        let scale = strain.timers.iter().find(|scale| scale.timer == timer);
        Some(scale.map_or(full?, |scale| scale.shortened(full.unwrap_or_default(), strain.haste)))
    }
}

/// True for that share of all calls.
fn draw(random: &Random, share: f64) -> bool {
    share > 0.0 && ((random.next() >> 11) as f64) < share * (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_and_nothing_are_certain_and_a_half_is_a_half() {
        let random = Random::new(7);
        let count = |share| (0..10_000).filter(|_| draw(&random, share)).count();
        assert_eq!((count(0.0), count(1.0)), (0, 10_000));
        assert!((4_700..5_300).contains(&count(0.5)));
    }

    #[test]
    fn flags_are_raised_only_for_what_is_to_be_done() {
        let overload = Overload::default();
        let flags = |strain| {
            overload.bear(Arc::new(strain));
            (overload.requests.get(), overload.accepts.get(), overload.hurries.get())
        };
        assert_eq!(flags(Strain::default()), (false, false, false));
        assert_eq!(flags(Strain { ended_connections: 0.1, ..Strain::default() }), (true, false, false));
        assert_eq!(
            flags(Strain {
                shed: vec![(ShedKind::Accept, Shed { point: String::new(), share: 0.1 })],
                ..Strain::default()
            }),
            (false, true, false)
        );
        assert_eq!(
            flags(Strain {
                shed: vec![(ShedKind::Filters, Shed { point: String::new(), share: 0.1 })],
                ..Strain::default()
            }),
            (true, false, false)
        );
        assert_eq!(flags(Strain { haste: 1.0, ..Strain::default() }), (false, false, false));
    }

    #[test]
    fn timers_that_were_short_are_looked_at_until_they_are_long_again() {
        let scale = TimerScale {
            timer: ScaledTimer::ConnectionIdle,
            least: postrider_model::Least::Time(Duration::from_secs(1)),
        };
        let overload = Overload::default();
        let at = |haste| {
            overload.bear(Arc::new(Strain { haste, timers: vec![scale], ..Strain::default() }));
            overload.hurried(ScaledTimer::ConnectionIdle, Some(Duration::from_secs(9)))
        };
        assert_eq!(at(0.0), Some(Duration::from_secs(9)));
        assert!(!overload.hurries.get());
        assert_eq!(at(1.0), Some(Duration::from_secs(1)));
        assert_eq!(at(0.0), Some(Duration::from_secs(9)));
        assert!(overload.hurries.get());
        assert_eq!(overload.hurried(ScaledTimer::Handshake, None), None);
    }
}
