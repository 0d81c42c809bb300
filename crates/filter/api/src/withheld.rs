//! What a filter in the shadow does not do to the traffic, and tells instead.

use std::cell::Cell;
use std::time::Duration;

/// Where a filter in the shadow says, from within a hook, that it would have held the stream up; whoever called the hook
/// takes it.
#[derive(Debug, Default)]
pub struct Withheld {
    wait: Cell<Option<Duration>>,
    paces: Cell<bool>,
}

impl Withheld {
    /// The message would have waited for so long.
    pub fn would_wait(&self, time: Duration) {
        self.wait.set(Some(time));
    }

    /// The body would have gone on more slowly. To be said once of a message.
    pub fn would_pace(&self) {
        self.paces.set(true);
    }

    /// How long the message would have waited, once.
    pub fn take_wait(&self) -> Option<Duration> {
        self.wait.take()
    }

    /// Whether the body would have gone on more slowly, once.
    pub fn take_paces(&self) -> bool {
        self.paces.take()
    }
}
