//! Statistics that are sent: a thread reads them at an interval and hands what changed to sinks.
//!
//! Off the data path: workers know nothing of it. What cannot be sent is dropped and counted, never queued.

mod statsd;

pub use statsd::{Statsd, StatsdAddress, StatsdOptions, StatsdTags, statsd_lines};

use crate::Registry;
use crate::render::{BoundsOf, NameFilter, Tagger};
use crate::samples::{Ledger, Manner, Sample};
use crate::stats::ScopeValues;
use crate::stats::sets::stats_sinks as stat;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// Somebody who is told of statistics.
pub trait Sink: Send {
    /// Before the first sample of a flush, which are all of this moment.
    fn begin(&mut self, _now: SystemTime) {}

    fn take(&mut self, sample: &Sample<'_>);

    /// After the last sample of a flush: sends what is left. How many messages could not be sent since the last time.
    fn finish(&mut self) -> u64;
}

/// All there is at one moment, and how it is told.
#[derive(Default)]
pub struct Reading {
    pub values: Vec<ScopeValues>,
    /// All are told when there is none.
    pub filter: Option<NameFilter>,
    pub tagger: Tagger,
    /// All histograms have the default buckets when there is none.
    pub bounds: Option<BoundsOf>,
}

/// The thread that flushes. It ends when this is stopped or dropped, after a last flush.
pub struct Flusher {
    /// Taken when it ends.
    ask: Option<SyncSender<()>>,
    thread: Option<JoinHandle<Ledger>>,
}

impl Flusher {
    /// Flushes at each `interval`, if there is one, and whenever it is asked. `ledger` is that of the flusher before this
    /// one, so that nothing is told twice.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(
        registry: &Registry,
        interval: Option<Duration>,
        sinks: Vec<Box<dyn Sink>>,
        ledger: Ledger,
        read: impl FnMut() -> Reading + Send + 'static,
    ) -> io::Result<Flusher> {
        // One flush that waits is as good as several.
        let (ask, asked) = sync_channel(1);
        let registry = registry.clone();
        let thread = std::thread::Builder::new().name("statistics".into()).spawn(move || {
            let flush = Flush { registry, sinks, ledger, read };
            flush.run(interval, &asked)
        })?;
        Ok(Flusher { ask: Some(ask), thread: Some(thread) })
    }

    /// Asks for a flush, and does not wait for it.
    pub fn flush(&self) {
        if let Some(ask) = &self.ask {
            // When one waits already, that will do.
            let _ = ask.try_send(());
        }
    }

    /// Flushes once more and ends. What was told goes to the next one.
    pub fn stop(mut self) -> Ledger {
        self.end()
    }

    fn end(&mut self) -> Ledger {
        drop(self.ask.take());
        // A thread that panicked has said so already.
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.end();
    }
}

/// What the thread has.
struct Flush<R> {
    registry: Registry,
    sinks: Vec<Box<dyn Sink>>,
    ledger: Ledger,
    read: R,
}

impl<R: FnMut() -> Reading> Flush<R> {
    fn run(mut self, interval: Option<Duration>, asked: &Receiver<()>) -> Ledger {
        let stats = self.registry.worker(0).block(&stat::SET, "");
        let mut next = interval.map(|interval| Instant::now() + interval);
        loop {
            let ended = match next {
                // One that took longer than the interval is followed by the next at once, and none is made up for.
                Some(at) => match asked.recv_timeout(at.saturating_duration_since(Instant::now())) {
                    Ok(()) => false,
                    Err(RecvTimeoutError::Timeout) => {
                        next = interval.map(|interval| (at + interval).max(Instant::now()));
                        false
                    }
                    Err(RecvTimeoutError::Disconnected) => true,
                },
                None => asked.recv().is_err(),
            };
            let dropped = self.once();
            stats.inc(stat::FLUSHES);
            stats.add(stat::DROPPED, dropped);
            if ended {
                return self.ledger;
            }
        }
    }

    fn once(&mut self) -> u64 {
        let Reading { values, filter, tagger, bounds } = (self.read)();
        let now = SystemTime::now();
        let sinks = &mut self.sinks;
        sinks.iter_mut().for_each(|sink| sink.begin(now));
        let manner = Manner { tagger: &tagger, filter: filter.as_ref(), bounds: bounds.as_ref() };
        self.ledger.tell(values, &manner, |sample| sinks.iter_mut().for_each(|sink| sink.take(sample)));
        self.sinks.iter_mut().map(|sink| sink.finish()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::sets::cluster;

    /// Sends the names of each flush.
    struct Names(Vec<String>, SyncSender<Vec<String>>);

    impl Sink for Names {
        fn take(&mut self, sample: &Sample<'_>) {
            self.0.push(sample.name.to_owned());
        }

        fn finish(&mut self) -> u64 {
            // A test that has heard enough hears no more.
            let _ = self.1.try_send(std::mem::take(&mut self.0));
            2
        }
    }

    #[test]
    fn a_flush_comes_when_asked_and_at_the_end() {
        let registry = Registry::new();
        let worker = registry.worker(1);
        worker.block(&cluster::SET, "a").inc(cluster::UPSTREAM_CX_TOTAL);
        let of_thread = registry.clone();
        let read = move || {
            let filter: NameFilter = Box::new(|name| name.starts_with("cluster."));
            Reading { values: of_thread.read(&[]), filter: Some(filter), ..Reading::default() }
        };
        let (send, told) = sync_channel(16);
        let sinks: Vec<Box<dyn Sink>> = vec![Box::new(Names(Vec::new(), send))];
        let flusher = Flusher::start(&registry, None, sinks, Ledger::default(), read).unwrap();
        flusher.flush();
        assert_eq!(told.recv().unwrap(), ["cluster.a.upstream_cx_total"]);
        flusher.stop();
        assert_eq!(told.recv().unwrap(), ["cluster.a.upstream_cx_total"]);
        let counts = registry.read(&[]).into_iter().find(|scope| scope.set == &stat::SET).unwrap();
        assert_eq!(counts.cells, [4, 2]);
    }

    #[test]
    fn a_flush_comes_at_each_interval() {
        let registry = Registry::new();
        let read = Reading::default;
        let (send, told) = sync_channel(16);
        let sinks: Vec<Box<dyn Sink>> = vec![Box::new(Names(Vec::new(), send))];
        let interval = Some(Duration::from_millis(1));
        let _flusher = Flusher::start(&registry, interval, sinks, Ledger::default(), read).unwrap();
        (0..3).for_each(|_| assert!(told.recv().unwrap().is_empty()));
    }
}
