//! Where functions beside the filters count: those that judge texts or choose clusters are given what they look at and
//! nothing else, and run on whichever worker asks.

use std::cell::RefCell;

use postrider_telemetry::WorkerStats;

thread_local! {
    static STATS: RefCell<Option<WorkerStats>> = const { RefCell::new(None) };
}

/// The calling thread is a worker that counts there, until it ends.
pub fn count_here(stats: &WorkerStats) {
    STATS.replace(Some(stats.clone()));
}

/// Where the calling worker counts. `None` on other threads: they only try out what a request would meet.
pub fn counts_here() -> Option<WorkerStats> {
    STATS.with_borrow(Clone::clone)
}

#[cfg(test)]
mod tests {
    use postrider_telemetry::Registry;

    use super::*;

    #[test]
    fn a_thread_counts_nothing_until_it_is_a_worker() {
        assert!(counts_here().is_none());
        count_here(&Registry::new().worker(3));
        assert_eq!(counts_here().map(|stats| stats.id()), Some(3));
        assert!(std::thread::spawn(|| counts_here().is_none()).join().unwrap());
    }
}
