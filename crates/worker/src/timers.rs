//! Deadlines of connections: a field each, swept when the earliest may be due.
//!
//! A connection sets its deadline many times a second and nearly always further away, so setting is a store. The
//! sweeper sleeps until the earliest deadline that it knows, looks at all, wakes those that are due and sleeps again; it
//! is woken early only when somebody sets a deadline before that.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use postrider_filter_api::Moment;

/// Sweeps are at least this far apart: deadlines are late by up to as much.
const RESOLUTION: Duration = Duration::from_millis(5);

/// All deadlines of one worker.
#[derive(Debug)]
pub(crate) struct Timers {
    slots: RefCell<Vec<Rc<Slot>>>,
    /// When the sweeper wakes up by itself; `None` when it sleeps until somebody calls.
    next: Cell<Option<Moment>>,
    sweeper: RefCell<Option<Waker>>,
}

#[derive(Debug)]
struct Slot {
    due: Cell<Option<Moment>>,
    call: Cell<Call>,
    waker: RefCell<Option<Waker>>,
    index: Cell<usize>,
}

/// Why a connection is woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    None,
    /// The last deadline passed before another was set.
    Past,
    /// Somebody wants it to look at its account.
    Account,
}

/// Calls one connection.
#[derive(Debug)]
pub(crate) struct Caller(Rc<Slot>);

impl Caller {
    /// It is to look at its account, unless it has other things to do.
    pub(crate) fn call(&self) {
        if self.0.call.get() == Call::None {
            self.0.call.set(Call::Account);
        }
        self.0.wake();
    }
}

/// One connection's place; leaves when dropped.
#[derive(Debug)]
pub(crate) struct Deadline {
    slot: Rc<Slot>,
    timers: Rc<Timers>,
}

impl Timers {
    pub(crate) fn new() -> Rc<Timers> {
        Rc::new(Timers { slots: RefCell::default(), next: Cell::new(None), sweeper: RefCell::new(None) })
    }

    pub(crate) fn register(self: &Rc<Self>) -> Deadline {
        let mut slots = self.slots.borrow_mut();
        let slot = Rc::new(Slot {
            due: Cell::new(None),
            call: Cell::new(Call::None),
            waker: RefCell::new(None),
            index: Cell::new(slots.len()),
        });
        slots.push(slot.clone());
        Deadline { slot, timers: self.clone() }
    }

    /// Wakes every connection, to look at what changed.
    pub(crate) fn wake_all(&self) {
        for slot in self.slots.borrow().iter() {
            slot.wake();
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.slots.borrow().len()
    }

    /// The sweeper: runs on the worker for as long as it lives.
    pub(crate) async fn sweep_for_ever(self: Rc<Self>, now: impl Fn() -> Moment) {
        loop {
            let next = self.next.get();
            let sleep = async {
                match next {
                    Some(next) => {
                        tokio::time::sleep(next.saturating_duration_since(now()).max(RESOLUTION)).await;
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = sleep => self.next.set(self.sweep(now())),
                () = self.called_before(next) => {}
            }
        }
    }

    /// Wakes those that are due; answers the earliest of the rest.
    fn sweep(&self, now: Moment) -> Option<Moment> {
        let mut earliest: Option<Moment> = None;
        for slot in self.slots.borrow().iter() {
            match slot.due.get() {
                Some(due) if due <= now => {
                    slot.due.set(None);
                    slot.call.set(Call::Past);
                    slot.wake();
                }
                Some(due) => earliest = Some(earliest.map_or(due, |earliest| earliest.min(due))),
                None => {}
            }
        }
        earliest
    }

    async fn called_before(&self, sleeping_until: Option<Moment>) {
        std::future::poll_fn(|cx| {
            if self.next.get() != sleeping_until {
                return Poll::Ready(());
            }
            let mut sweeper = self.sweeper.borrow_mut();
            if !sweeper.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                *sweeper = Some(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}

impl Slot {
    fn wake(&self) {
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }
}

impl Deadline {
    /// Remembers whom to wake. Cheap when it is the same task as before.
    pub(crate) fn watch(&self, waker: &Waker) {
        let mut kept = self.slot.waker.borrow_mut();
        if !kept.as_ref().is_some_and(|kept| kept.will_wake(waker)) {
            *kept = Some(waker.clone());
        }
    }

    /// From now on only this deadline counts; `None` is never.
    pub(crate) fn set(&self, due: Option<Moment>) {
        self.slot.due.set(due);
        self.slot.call.set(Call::None);
        if let Some(due) = due
            && self.timers.next.get().is_none_or(|next| due < next)
        {
            self.timers.next.set(Some(due));
            if let Some(sweeper) = self.timers.sweeper.borrow().as_ref() {
                sweeper.wake_by_ref();
            }
        }
    }

    /// The deadline that was set last has passed.
    pub(crate) fn is_past(&self) -> bool {
        self.slot.call.get() == Call::Past
    }

    /// So it has, or somebody called.
    pub(crate) fn is_called(&self) -> bool {
        self.slot.call.get() != Call::None
    }

    /// Somebody called; the call is taken.
    pub(crate) fn takes_call(&self) -> bool {
        let called = self.slot.call.get() == Call::Account;
        if called {
            self.slot.call.set(Call::None);
        }
        called
    }

    pub(crate) fn caller(&self) -> Caller {
        Caller(self.slot.clone())
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        let mut slots = self.timers.slots.borrow_mut();
        let index = self.slot.index.get();
        if index < slots.len() {
            slots.swap_remove(index);
        }
        if let Some(moved) = slots.get(index) {
            moved.index.set(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn only_what_is_due_is_woken_and_the_rest_gives_the_next_sweep() {
        let timers = Timers::new();
        let (early, late, gone) = (timers.register(), timers.register(), timers.register());
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        [&early, &late, &gone].iter().for_each(|deadline| deadline.watch(&waker));
        let start = Moment::default();
        let at = |seconds| start + Duration::from_secs(seconds);
        gone.set(Some(at(1)));
        drop(gone);
        early.set(Some(at(2)));
        late.set(Some(at(9)));
        assert_eq!(timers.next.get(), Some(at(1)));
        assert_eq!(timers.sweep(at(1)), Some(at(2)));
        assert_eq!(timers.sweep(at(3)), Some(at(9)));
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        drop(early);
        assert_eq!(timers.count(), 1);
        assert_eq!(timers.sweep(at(10)), None);
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_nearer_deadline_calls_the_sweeper_early() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async {
            let timers = Timers::new();
            let zero = tokio::time::Instant::now();
            let now = move || Moment::from_nanos(zero.elapsed().as_nanos() as u64);
            let sweeper = tokio::task::spawn_local(timers.clone().sweep_for_ever(now));
            let far = timers.register();
            far.set(Some(now() + Duration::from_secs(3600)));
            tokio::task::yield_now().await;
            let near = timers.register();
            let started = now();
            near.set(Some(started + Duration::from_millis(50)));
            std::future::poll_fn(|cx| {
                near.watch(cx.waker());
                if near.is_past() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            assert!(!far.is_past());
            assert!(now().saturating_duration_since(started) < Duration::from_secs(1));
            sweeper.abort();
        });
    }
}
