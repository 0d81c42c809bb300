//! Gives memory that was freed back to the system.
//!
//! The allocator keeps freed pages for a moment, for whoever wants them next, and lets go of them when it is next called.
//! A worker that has become idle never calls it: what a burst of connections needed would stay for ever.

use std::cell::Cell;

/// Housekeeping rounds, a second apart, after which nothing is left that the allocator still waits with.
const ROUNDS: u8 = 3;

#[derive(Debug, Default)]
pub(crate) struct IdleMemory {
    /// How often this thread had asked for memory when it was last looked at.
    allocations: Cell<u64>,
    rounds_left: Cell<u8>,
}

impl IdleMemory {
    /// Called about once a second; costs nothing when nothing was allocated for a while.
    pub(crate) fn give_back(&self) {
        let allocations = postrider_sys::allocations();
        if self.allocations.replace(allocations) != allocations {
            self.rounds_left.set(ROUNDS);
        }
        let left = self.rounds_left.get();
        if left > 0 {
            self.rounds_left.set(left - 1);
            postrider_sys::release_expired_memory();
        }
    }
}
