//! What is seen of plugins on this thread by whoever tries them out. While a proxy serves nobody looks, and that costs a
//! load.

use std::cell::{Cell, RefCell};
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

/// Looks until it is dropped. What happens is seen by the one that began last.
pub struct Watch {
    is_inner: bool,
}

impl Watch {
    pub fn start() -> Watch {
        EVENTS.take();
        Watch { is_inner: IS_ON.replace(true) }
    }

    /// What happened since it was last asked.
    pub fn take(&self) -> Vec<Event> {
        EVENTS.take()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        IS_ON.set(self.is_inner);
        EVENTS.take();
    }
}
