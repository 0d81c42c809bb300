//! What histograms got within the last whole interval, for whoever asks again and again.
//!
//! ```text
//! nobody asks ──a question──> a thread notes the totals at each interval ──long no question──> nobody asks
//! ```
//!
//! Recording knows nothing of it, and nothing is kept while nobody asks: the answer to the first question has no interval.

use crate::stats::{Distribution, ScopeValues};
use std::collections::HashMap;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// After so many intervals without a question, nothing is kept any more.
const QUIET: u32 = 24;

/// The histograms of one interval.
#[derive(Debug, Default)]
pub struct Interval(HashMap<u32, HashMap<String, Vec<Distribution>>>);

impl Interval {
    /// What a histogram of a scope got.
    pub(crate) fn of(&self, values: &ScopeValues, at: usize) -> Option<&Distribution> {
        self.0.get(&values.set.id)?.get(&values.prefix)?.get(at)
    }
}

/// The intervals of one process.
#[derive(Default)]
pub struct Intervals {
    kept: Arc<Mutex<Kept>>,
    running: Mutex<Option<Running>>,
}

#[derive(Default)]
struct Kept {
    last: Option<Arc<Interval>>,
    /// Intervals since somebody asked.
    quiet: u32,
}

struct Running {
    period: Duration,
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Intervals {
    /// The last whole interval, if one has passed since the first question; from now on they are kept. `read` tells all there is.
    pub fn ask(
        &self,
        period: Duration,
        read: impl FnMut() -> Vec<ScopeValues> + Send + 'static,
    ) -> Option<Arc<Interval>> {
        let mut running = lock(&self.running);
        let goes_on = running.as_ref().is_some_and(|running| running.goes_on(period));
        if !goes_on {
            drop(running.take());
            *lock(&self.kept) = Kept::default();
            *running = Running::start(period, self.kept.clone(), read);
        }
        let mut kept = lock(&self.kept);
        kept.quiet = 0;
        kept.last.clone()
    }
}

impl Running {
    /// `None` when the system refuses a thread.
    fn start(
        period: Duration,
        kept: Arc<Mutex<Kept>>,
        mut read: impl FnMut() -> Vec<ScopeValues> + Send + 'static,
    ) -> Option<Running> {
        let (stop, stopped) = sync_channel(1);
        let thread = std::thread::Builder::new().name("intervals".into());
        let thread = thread.spawn(move || {
            let mut before = totals(read());
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(period) {
                let now = totals(read());
                let last = since(&now, &before);
                before = now;
                let mut kept = lock(&kept);
                kept.quiet += 1;
                if kept.quiet > QUIET {
                    kept.last = None;
                    return;
                }
                kept.last = Some(Arc::new(last));
            }
        });
        thread.ok().map(|thread| Running { period, stop: Some(stop), thread: Some(thread) })
    }

    fn goes_on(&self, period: Duration) -> bool {
        self.period == period && self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so already.
            let _ = thread.join();
        }
    }
}

fn totals(values: Vec<ScopeValues>) -> Interval {
    let mut all = Interval::default();
    for scope in values.into_iter().filter(|scope| !scope.histograms.is_empty()) {
        all.0.entry(scope.set.id).or_default().insert(scope.prefix, scope.histograms);
    }
    all
}

fn since(now: &Interval, before: &Interval) -> Interval {
    let of_set = |(id, scopes): (&u32, &HashMap<String, Vec<Distribution>>)| {
        let old = before.0.get(id);
        let of_scope = |(prefix, totals): (&String, &Vec<Distribution>)| {
            let old = old.and_then(|scopes| scopes.get(prefix));
            let new = totals.iter().enumerate().map(|(at, total)| total.since(old.and_then(|old| old.get(at))));
            (prefix.clone(), new.collect())
        };
        (*id, scopes.iter().map(of_scope).collect())
    };
    Interval(now.0.iter().map(of_set).collect())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Registry;
    use crate::stats::sets::cluster;

    fn read(registry: &Registry) -> Vec<ScopeValues> {
        registry.read(&[])
    }

    #[test]
    fn an_interval_has_what_came_within_it() {
        let registry = Registry::new();
        let block = registry.worker(0).block(&cluster::SET, "cluster.a.");
        let record = |value| block.record(cluster::UPSTREAM_CX_CONNECT_MS, value);
        record(5);
        let before = totals(read(&registry));
        record(7);
        record(7);
        let now = totals(read(&registry));
        let interval = since(&now, &before);
        let scopes = read(&registry);
        let counts = |interval: &Interval| -> u64 {
            let scope = scopes.iter().find(|scope| !scope.histograms.is_empty()).unwrap();
            (0..scope.histograms.len()).filter_map(|at| interval.of(scope, at)).map(Distribution::count).sum()
        };
        assert_eq!((counts(&before), counts(&now), counts(&interval)), (1, 3, 2));
        assert_eq!(counts(&since(&now, &now)), 0);
    }

    #[test]
    fn the_first_question_has_no_answer_and_later_ones_have() {
        let intervals = Intervals::default();
        let (tell, told) = sync_channel(0);
        let period = Duration::from_millis(1);
        let ask = |tell: SyncSender<()>| {
            intervals.ask(period, move || {
                // Whoever hears nothing any more has seen enough.
                let _ = tell.send(());
                Vec::new()
            })
        };
        assert!(ask(tell.clone()).is_none());
        // The totals before the first interval, those behind it, and a third time: by then the first is kept.
        for _ in 0..3 {
            told.recv().unwrap();
        }
        assert!(ask(tell).is_some());
        drop(told);
    }
}
