//! What is seen of plugins on this thread by whoever tries them out. While a proxy serves nobody looks, and that costs a
//! load.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use postrider_telemetry::log::Level;

use crate::Side;

/// Something that a plugin did.
#[derive(Debug)]
pub enum Event {
    /// A line that it logged, or that was logged about it.
    Log { level: Level, text: String },
    /// One entry into it.
    Ran { side: Side, in_body_hook: bool, took: Duration, memory: usize },
    /// It failed.
    Fault { text: String, traceback: String },
}

thread_local! {
    static IS_ON: Cell<bool> = const { Cell::new(false) };
    static EVENTS: RefCell<Vec<Event>> = const { RefCell::new(Vec::new()) };
}

/// How many look, on whatever thread.
static WATCHES: AtomicUsize = AtomicUsize::new(0);

/// What happened on threads of plugins' own.
static ELSEWHERE: Mutex<Vec<Event>> = Mutex::new(Vec::new());

/// Whether somebody looks on this thread.
#[inline]
pub fn is_on() -> bool {
    IS_ON.get()
}

/// Remembers what happened.
#[cold]
pub fn note(event: Event) {
    EVENTS.with_borrow_mut(|events| events.push(event));
}

/// Whether somebody looks, on whatever thread: for what plugins do on threads of their own.
pub fn is_on_anywhere() -> bool {
    WATCHES.load(Ordering::Relaxed) > 0
}

/// Remembers what happened on a thread that may be a plugin's own, for whoever asks next.
#[cold]
pub fn note_from_anywhere(event: Event) {
    match is_on() {
        true => note(event),
        // A panic with the lock held leaves a whole list behind.
        false => ELSEWHERE.lock().unwrap_or_else(PoisonError::into_inner).push(event),
    }
}

/// Looks until it is dropped. What happens is seen by the one that began last.
pub struct Watch {
    is_inner: bool,
}

impl Watch {
    pub fn start() -> Watch {
        EVENTS.take();
        WATCHES.fetch_add(1, Ordering::Relaxed);
        Watch { is_inner: IS_ON.replace(true) }
    }

    /// What happened since it was last asked.
    pub fn take(&self) -> Vec<Event> {
        let mut events = EVENTS.take();
        events.append(&mut ELSEWHERE.lock().unwrap_or_else(PoisonError::into_inner));
        events
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        IS_ON.set(self.is_inner);
        WATCHES.fetch_sub(1, Ordering::Relaxed);
        EVENTS.take();
    }
}
