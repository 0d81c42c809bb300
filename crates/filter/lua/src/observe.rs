//! What is different in machines that somebody tries out: which lines ran is counted, and what they print is no result.

use std::cell::Cell;
use std::time::Duration;

use postrider_filter_trial::observe;

use crate::program::Program;
use crate::sdk;
use crate::tool::coverage;
use crate::vm::{Fault, Vm};

/// Counting lines without the compiler takes so many times as long: budgets grow with it, so that a test fails for its own
/// reasons only.
const SLOWDOWN: u32 = 50;

thread_local! {
    static COUNTS_LINES: Cell<bool> = const { Cell::new(false) };
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
    if observe::is_on() {
        vm.run("=postrider.print", sdk::PRINT.as_bytes(), &[])?;
    }
    if COUNTS_LINES.get() {
        coverage::count(&program.name);
        vm.trace_lines(coverage::on_line)?;
    }
    Ok(())
}

/// Machines that are made until it is dropped count the lines that they run; one at a time on a thread.
pub(crate) struct LineCounts(());

impl LineCounts {
    pub(crate) fn start() -> LineCounts {
        COUNTS_LINES.set(true);
        LineCounts(())
    }
}

impl Drop for LineCounts {
    fn drop(&mut self) {
        COUNTS_LINES.set(false);
    }
}
