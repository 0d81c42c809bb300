//! A connection to a cluster that statistics are written to, and that is made again when it is gone.

use std::rc::Rc;
use std::task::{Context, Poll};

use postrider_model::Priority;
use postrider_telemetry::stats::sets::{cluster as cluster_stat, statsd as stat};

use super::{Carrier, Parcel};
use crate::cluster::{Cluster, Upstream};
use crate::party::Caller;
use crate::worker::Worker;

/// Bytes that may wait for the server to take them, as in Envoy. A flush that finds more ends the connection.
const MAX_WAITING_BYTES: usize = 16 << 20;

/// What the server says is read and forgotten, so much at once.
const HEARD_BYTES: usize = 512;

/// The connection, and what is to be written to it.
#[derive(Default)]
struct Line {
    open: Option<(Rc<Cluster>, Box<Upstream>)>,
    waiting: Vec<u8>,
    sent: usize,
}

enum Event {
    /// `None`: there will be no more.
    Flush(Option<Parcel>),
    /// The connection is gone.
    Ended,
}

/// Writes what comes, until nothing comes any more.
pub(super) async fn run(worker: &Rc<Worker>, carrier: &mut Carrier, cluster: &str) {
    let mut line = Line::default();
    loop {
        let event = std::future::poll_fn(|cx| {
            if let Poll::Ready(parcel) = carrier.inbox.poll_recv(cx) {
                return Poll::Ready(Event::Flush(parcel));
            }
            line.poll_ended(cx).map(|()| Event::Ended)
        });
        match event.await {
            Event::Ended => carrier.lose(line.end()),
            Event::Flush(None) => break,
            Event::Flush(Some(messages)) => {
                if line.left() > MAX_WAITING_BYTES {
                    worker.stats.block(&stat::SET, "").inc(stat::CX_OVERFLOW);
                    carrier.lose(line.end() + messages.len());
                    continue;
                }
                line.waiting.drain(..line.sent);
                line.sent = 0;
                messages.iter().for_each(|message| line.waiting.extend_from_slice(message));
                if line.open.is_none() {
                    line.open = open(worker, cluster).await;
                }
                if line.open.is_none() {
                    carrier.lose(line.end());
                }
            }
        }
    }
    // Whoever stops the worker sets the time for this.
    let ended = std::future::poll_fn(|cx| match line.poll_ended(cx) {
        Poll::Ready(()) => Poll::Ready(true),
        Poll::Pending if line.left() == 0 => Poll::Ready(false),
        Poll::Pending => Poll::Pending,
    });
    if ended.await {
        carrier.lose(line.end());
    } else if let Some((_, upstream)) = &mut line.open {
        let _ = std::future::poll_fn(|cx| upstream.io.poll_finish(cx)).await;
    }
}

async fn open(worker: &Rc<Worker>, name: &str) -> Option<(Rc<Cluster>, Box<Upstream>)> {
    let cluster = worker.cluster(name)?;
    let Some(host) = cluster.hosts.pick(&worker.random) else {
        cluster.stats(worker).inc(cluster_stat::UPSTREAM_CX_NONE_HEALTHY);
        return None;
    };
    let party = cluster.party(&host, None, Caller::default);
    let upstream = cluster.connect(worker, &host, Priority::Default, None, party.as_deref()).await.ok()?;
    Some((cluster, upstream))
}

impl Line {
    /// Bytes that were not written yet.
    fn left(&self) -> usize {
        self.waiting.len() - self.sent
    }

    /// Ends the connection; how many flushes are lost by it, at least.
    fn end(&mut self) -> usize {
        let lost = usize::from(self.left() > 0);
        self.waiting.clear();
        self.sent = 0;
        if let Some((cluster, upstream)) = self.open.take() {
            drop(upstream);
            cluster.gone();
        }
        lost
    }

    /// Writes as far as that goes; ready when the connection is gone.
    fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some((_, upstream)) = &mut self.open else { return Poll::Pending };
        while let Some(rest) = self.waiting.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match upstream.io.poll_write(cx, rest) {
                Poll::Ready(Ok(count @ 1..)) => {
                    self.sent += count;
                    upstream.stats().add(cluster_stat::UPSTREAM_CX_TX_BYTES_TOTAL, count as u64);
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => break,
            }
        }
        let mut heard = [0; HEARD_BYTES];
        loop {
            match upstream.io.poll_read(cx, &mut heard) {
                Poll::Ready(Ok(count @ 1..)) => {
                    upstream.stats().add(cluster_stat::UPSTREAM_CX_RX_BYTES_TOTAL, count as u64);
                }
                Poll::Ready(_) => {
                    upstream.peer_ended();
                    return Poll::Ready(());
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.end();
    }
}
