//! Sinks of statistics that are reached through a cluster, or are code on a worker.
//!
//! ```text
//! thread that flushes ── messages ──> queue ──> task on the first worker ──> cluster
//!      encodes                          │ full       one message after the other
//!                                       └──> dropped and counted
//! ```
//!
//! What is told is encoded before a worker sees it: to the worker these are bytes. No request knows of it.

mod carry;
mod line;
mod metrics;
mod otlp;
mod plugin;
mod statsd;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::SystemTime;

use postrider_model::{FilterSlot, GrpcTarget, OtlpTarget, StatsSink};
use postrider_telemetry::sink::Sink;
use tokio::sync::mpsc;

use crate::message::Message;
pub(crate) use carry::{FAREWELL, carry, export};

/// Flushes that may wait while one is being sent. More of them are dropped.
const WAITING: usize = 2;

/// The messages of one flush.
type Parcel = Vec<Vec<u8>>;

/// What the worker gets once: where messages go, and where they come from.
pub(crate) struct Carrier {
    way: Way,
    inbox: mpsc::Receiver<Parcel>,
    lost: Arc<AtomicU64>,
}

enum Way {
    /// Each message is a call.
    Otlp(OtlpTarget),
    /// All messages are one stream.
    Metrics(GrpcTarget),
    /// All messages are one connection, to this cluster.
    Statsd(Arc<str>),
    /// Each message is a call of the code's function.
    Plugin(FilterSlot),
}

impl Carrier {
    fn lose(&self, messages: usize) {
        self.lost.fetch_add(messages as u64, Relaxed);
    }
}

/// The sink's end of the way.
struct Courier {
    parcels: mpsc::Sender<Parcel>,
    lost: Arc<AtomicU64>,
    /// Until the worker has it.
    waiting: Option<(mpsc::Sender<Message>, Box<Carrier>)>,
}

impl Courier {
    fn new(way: Way, worker: mpsc::Sender<Message>) -> Courier {
        let (parcels, inbox) = mpsc::channel(WAITING);
        let lost = Arc::new(AtomicU64::new(0));
        let carrier = Carrier { way, inbox, lost: lost.clone() };
        Courier { parcels, lost, waiting: Some((worker, Box::new(carrier))) }
    }

    /// Hands the messages of a flush over; how many were lost since the last one, these among them if there is no room.
    fn send(&mut self, messages: Parcel) -> u64 {
        if let Some((worker, carrier)) = self.waiting.take() {
            // The thread that flushes may wait. When the worker is gone, so is the inbox.
            let _ = worker.blocking_send(Message::Carry(carrier));
        }
        let count = messages.len() as u64;
        let refused = count > 0 && self.parcels.try_send(messages).is_err();
        self.lost.swap(0, Relaxed) + if refused { count } else { 0 }
    }
}

/// The sink for `model`, whose messages go to `worker`; `None` for one that needs no cluster. `started` is since when there
/// are statistics.
pub(crate) fn sink(
    model: &StatsSink,
    started: SystemTime,
    worker: impl FnOnce() -> mpsc::Sender<Message>,
) -> Option<Box<dyn Sink>> {
    match model {
        StatsSink::Statsd { .. } => None,
        StatsSink::StatsdTcp { cluster, prefix } => {
            let courier = Courier::new(Way::Statsd(cluster.clone()), worker());
            Some(Box::new(statsd::StatsdTcp::new(prefix.clone(), courier)))
        }
        StatsSink::OpenTelemetry(model) => {
            let courier = Courier::new(Way::Otlp(model.to.clone()), worker());
            Some(Box::new(otlp::Otlp::new(model.clone(), started, courier)))
        }
        StatsSink::Metrics(model) => {
            let courier = Courier::new(Way::Metrics(model.service.clone()), worker());
            Some(Box::new(metrics::Metrics::new(model.clone(), courier)))
        }
        StatsSink::Plugin(slot) => {
            let courier = Courier::new(Way::Plugin(slot.clone()), worker());
            Some(Box::new(plugin::Plugin::new(courier)))
        }
    }
}

pub(crate) fn nanos(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// What a sink was given to carry, in tests without a worker.
#[cfg(test)]
fn overheard(way: Way) -> (Courier, mpsc::Receiver<Message>) {
    let (worker, mailbox) = mpsc::channel(1);
    (Courier::new(way, worker), mailbox)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_is_full_loses_whole_flushes() {
        let (mut courier, mut mailbox) = overheard(Way::Statsd("a".into()));
        let flush = || vec![vec![1], vec![2]];
        assert_eq!((courier.send(flush()), courier.send(flush())), (0, 0));
        assert_eq!(courier.send(flush()), 2);
        assert_eq!(courier.send(Vec::new()), 0);
        let Some(Message::Carry(mut carrier)) = mailbox.blocking_recv() else { panic!("no carrier") };
        assert_eq!(carrier.inbox.blocking_recv(), Some(flush()));
        carrier.lose(3);
        assert_eq!(courier.send(flush()), 3);
        drop(carrier);
        assert_eq!(courier.send(flush()), 2);
    }
}
