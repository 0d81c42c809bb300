//! What the tool sees of the machines on its own thread. While a proxy serves nobody looks, and that costs a load.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use postrider_telemetry::log::Level;

use crate::abi::Side;
use crate::program::Program;
use crate::tool::coverage;
use crate::vm::{Fault, Vm};

/// Counting lines without the compiler takes so many times as long: budgets grow with it, so that a test fails for its own
/// reasons only.
const SLOWDOWN: u32 = 50;

/// Something that a plugin did.
#[derive(Debug)]
pub(crate) enum Event {
    /// A line that it logged, or that was logged about it.
    Log { level: Level, text: String },
    /// One entry into the script.
    Ran { side: Side, in_body_hook: bool, took: Duration, memory: usize },
    /// It failed.
    Fault { text: String, traceback: String },
}

thread_local! {
    static IS_ON: Cell<bool> = const { Cell::new(false) };
    static COUNTS_LINES: Cell<bool> = const { Cell::new(false) };
    static EVENTS: RefCell<Vec<Event>> = const { RefCell::new(Vec::new()) };
}

/// Whether somebody looks on this thread.
#[inline]
pub(crate) fn is_on() -> bool {
    IS_ON.get()
}

/// Remembers what happened.
#[cold]
pub(crate) fn note(event: Event) {
    EVENTS.with_borrow_mut(|events| events.push(event));
}

/// The CPU time of a call in a machine that is made now.
pub(crate) fn budget(cpu: Duration) -> Duration {
    if COUNTS_LINES.get() { cpu.saturating_mul(SLOWDOWN) } else { cpu }
}

/// A machine for `program` was made.
///
/// # Errors
/// Its lines cannot be counted.
pub(crate) fn made(vm: &Vm, program: &Program) -> Result<(), Fault> {
    if COUNTS_LINES.get() {
        coverage::count(&program.name);
        vm.trace_lines(coverage::on_line)?;
    }
    Ok(())
}

/// Looks until it is dropped; one at a time on a thread.
pub(crate) struct Watch(());

impl Watch {
    /// `lines`: machines that are made meanwhile count the lines that they run.
    pub(crate) fn start(lines: bool) -> Watch {
        IS_ON.set(true);
        COUNTS_LINES.set(lines);
        EVENTS.take();
        Watch(())
    }

    /// What happened since it was last asked.
    pub(crate) fn take(&self) -> Vec<Event> {
        EVENTS.take()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        IS_ON.set(false);
        COUNTS_LINES.set(false);
        EVENTS.take();
    }
}
