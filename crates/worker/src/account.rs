//! What streams hold in memory, and which have to go when the process is short of it (Envoy's
//! `reset_high_memory_stream`).
//!
//! Nothing is added up while a stream runs. When somebody wants to know, every stream that has an account is called and
//! says how much it holds; then those of the heaviest classes are called again, to end.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use postrider_telemetry::WorkerStats;
use postrider_telemetry::stats::sets::overload_reset;

use crate::timers::Caller;

/// Classes of streams, each with twice as much as the one before.
const CLASSES: u32 = 8;

/// The most streams that a worker resets at once.
const AT_ONCE: usize = 50;

/// How often a worker's other tasks get their turn before what their streams hold is taken for known.
const TURNS: usize = 4;

/// Streams that hold much are to go.
#[derive(Debug, Clone, PartialEq)]
pub struct Relief {
    /// What says so, as statistics call it.
    pub action: Arc<str>,
    /// The lightest class begins at two to the power of this.
    pub least_power: u32,
    /// Between 0 and 1: how many classes have to go.
    pub strength: f64,
}

impl Relief {
    /// From so many bytes on a stream has to go.
    fn from(&self) -> u64 {
        let classes = ((self.strength * f64::from(CLASSES)) as u32 + 1).min(CLASSES);
        1_u64.checked_shl(self.least_power + CLASSES - classes).unwrap_or(u64::MAX)
    }
}

/// Those of one worker.
#[derive(Default)]
pub(crate) struct Accounts {
    all: RefCell<Vec<Weak<Account>>>,
    round: Cell<u64>,
}

/// What the streams of one connection hold, one after the other.
pub(crate) struct Account {
    caller: Caller,
    holds: Cell<Option<u64>>,
    is_doomed: Cell<bool>,
}

impl Account {
    /// It holds so much; whether it has to go.
    pub(crate) fn settle(&self, holds: u64) -> bool {
        self.holds.set(Some(holds));
        self.is_doomed.take()
    }
}

impl Accounts {
    pub(crate) fn open(&self, caller: Caller) -> Rc<Account> {
        let account = Rc::new(Account { caller, holds: Cell::new(None), is_doomed: Cell::new(false) });
        let mut all = self.all.borrow_mut();
        if all.len() == all.capacity() {
            all.retain(|account| account.strong_count() > 0);
        }
        all.push(Rc::downgrade(&account));
        account
    }

    /// Ends the streams that hold most.
    pub(crate) async fn relieve(&self, relief: &Relief, stats: &WorkerStats) {
        let round = self.round.get() + 1;
        self.round.set(round);
        for account in self.living() {
            account.is_doomed.set(false);
            account.holds.set(None);
            account.caller.call();
        }
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
        // A later call has forgotten what this one heard.
        if self.round.get() != round {
            return;
        }
        let mut heavy: Vec<_> = self.living().into_iter().filter_map(|one| Some((one.holds.get()?, one))).collect();
        heavy.retain(|(holds, _)| *holds >= relief.from());
        heavy.sort_by_key(|(holds, _)| std::cmp::Reverse(*holds));
        for (_, account) in heavy.iter().take(AT_ONCE) {
            account.is_doomed.set(true);
            account.caller.call();
        }
        let count = heavy.len().min(AT_ONCE);
        if count > 0 {
            stats.block(&overload_reset::SET, &relief.action).add(overload_reset::COUNT, count as u64);
        }
    }

    fn living(&self) -> Vec<Rc<Account>> {
        self.all.borrow().iter().filter_map(Weak::upgrade).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stronger_the_more_classes_have_to_go() {
        let from = |strength| Relief { action: "a".into(), least_power: 10, strength }.from();
        assert_eq!(from(0.01), 128 << 10);
        assert_eq!(from(0.125), 64 << 10);
        assert_eq!(from(0.5), 8 << 10);
        assert_eq!((from(0.9), from(1.0)), (1 << 10, 1 << 10));
        let widest = Relief { action: "a".into(), least_power: 56, strength: 0.01 };
        assert_eq!(widest.from(), 1 << 63);
    }
}
