//! What Go's scheduler is told before it starts, so that it costs workers little.
//!
//! Go code runs on one of Go's processors, of which there are `GOMAXPROCS`. A worker that comes back from Go keeps its
//! processor, to have it at the next call. Where there are no more than workers, goroutines have none, and a thread of
//! Go's looks up to 14,000 times a second whether it may take one away, which interrupts the worker each time. So there
//! are as many more as there are workers, and that thread sleeps longer.

use postrider_telemetry::warning;

use crate::environment;

/// Go's variable for the number of its processors.
const PROCESSORS: &str = "GOMAXPROCS";

/// How much later than asked the kernel may wake Go's threads, in nanoseconds; it is 50,000 by default. Longer ones take
/// nothing more off the cost, and goroutines begin to wait for that thread.
const TIMER_SLACK: libc::c_ulong = 300_000;

/// Chooses the number of Go's processors, unless the environment has it: one for each CPU beside those of the workers. To be
/// called before there is a second thread; does nothing behind that, since others may read the environment.
pub fn settle_processors(workers: usize) {
    if std::env::var_os(PROCESSORS).is_some() {
        return;
    }
    let processors = postrider_sys::processor_count().saturating_add(workers);
    environment::set(PROCESSORS, processors.to_string().as_ref());
}

/// Has the threads that `start` starts woken with more slack: a thread hands it down to those that it starts.
pub(crate) fn with_slack<T>(start: impl FnOnce() -> T) -> T {
    // SAFETY: asks for a number of the calling thread.
    let usual = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) };
    set_slack(TIMER_SLACK);
    let started = start();
    set_slack(libc::c_ulong::try_from(usual).unwrap_or(0));
    started
}

/// 0 is what the thread began with.
fn set_slack(nanoseconds: libc::c_ulong) {
    // SAFETY: sets a number of the calling thread.
    if unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, nanoseconds) } != 0 {
        warning!(Filter, "cannot set the timer slack of threads: {}", std::io::Error::last_os_error());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slack() -> libc::c_int {
        // SAFETY: asks for a number of the calling thread.
        unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) }
    }

    #[test]
    fn threads_that_are_started_have_the_slack_and_the_starter_has_its_own_again() {
        let before = slack();
        let started = with_slack(|| std::thread::spawn(slack));
        assert_eq!(started.join().unwrap(), TIMER_SLACK as libc::c_int);
        assert_eq!(slack(), before);
    }

    #[test]
    fn the_environment_stays_where_there_are_other_threads() {
        let before = std::env::var_os(PROCESSORS);
        let other = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| other.wait());
            settle_processors(3);
            other.wait();
        });
        assert_eq!(std::env::var_os(PROCESSORS), before);
    }
}
