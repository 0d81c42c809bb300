//! The one place where the bench lets time pass.

use std::thread;
use std::time::Duration;

/// How often the bench looks again for something that other programs do; the resolution of its start times.
pub const POLL: Duration = Duration::from_millis(2);

/// Waits on the clock.
#[expect(
    clippy::disallowed_methods,
    reason = "the bench watches foreign programs, which announce nothing, and measures over stretches of time"
)]
pub fn pause(duration: Duration) {
    thread::sleep(duration);
}
