//! Connections of filters' own to hosts of clusters, each on a task of its own: see [`postrider_filter_api::Dial`].
//!
//! What the filter wants of one waits in its handle, as for connections of clients.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use postrider_filter_api::{ConnectionControl, ConnectionHandle, Dial, DialFailure, DialUser, Ending, Wish};
use postrider_model::Priority;
use postrider_telemetry::stats::sets::cluster as stat;
use postrider_upstream::Choice;
use postrider_upstream::outlier::Outcome;

use crate::cluster::{Cluster, Host, NoConnection, Upstream};
use crate::party::Caller;
use crate::worker::Worker;

/// Connects to a host of `cluster`.
pub(crate) fn start(worker: Rc<Worker>, cluster: Rc<Cluster>, dial: Dial) -> ConnectionHandle {
    let control = Rc::new(ConnectionControl::default());
    let handle = ConnectionHandle::new(&control, 0);
    tokio::task::spawn_local(run(worker, cluster, dial, control));
    handle
}

async fn run(worker: Rc<Worker>, cluster: Rc<Cluster>, mut dial: Dial, control: Rc<ConnectionControl>) {
    let (host, mut upstream) = match connect(&worker, &cluster, &dial).await {
        Ok(reached) => reached,
        Err(why) => return dial.user.on_failed(why),
    };
    let stats = cluster.stats(&worker).clone();
    host.active.set(host.active.get() + 1);
    host.totals.requests.set(host.totals.requests.get() + 1);
    stats.inc(stat::UPSTREAM_RQ_TOTAL);
    stats.gauge_inc(stat::UPSTREAM_RQ_ACTIVE);
    let mut user = dial.user;
    user.on_ready(&upstream.name);
    let mut line = Line {
        worker: &worker,
        upstream: &mut upstream,
        control: &control,
        out: Outgoing::default(),
        heard_end: false,
    };
    let by_peer = std::future::poll_fn(|cx| line.poll(&mut *user, cx)).await;
    stats.gauge_dec(stat::UPSTREAM_RQ_ACTIVE);
    host.active.set(host.active.get().saturating_sub(1));
    upstream.input.release(&worker.buffers);
    drop(upstream);
    cluster.gone();
    user.on_closed(by_peer);
}

async fn connect(
    worker: &Rc<Worker>,
    cluster: &Rc<Cluster>,
    dial: &Dial,
) -> Result<(Rc<Host>, Box<Upstream>), DialFailure> {
    if cluster.is_full(worker) {
        cluster.stats(worker).inc(stat::UPSTREAM_CX_OVERFLOW);
        return Err(DialFailure::Overflow);
    }
    let choice = Choice { hash: None, attempt: 0, labels: None };
    let host = cluster.hosts.pick_for(choice, &worker.random);
    let Some(host) = host.or_else(|| cluster.destination(None, dial.meant, None, worker)) else {
        cluster.stats(worker).inc(stat::UPSTREAM_CX_NONE_HEALTHY);
        return Err(DialFailure::NoHost);
    };
    let party = cluster.party(&host, None, Caller::default);
    let connected = cluster.connect(worker, &host, Priority::Default, None, party.as_deref()).await;
    let untried = matches!(connected, Err(NoConnection::Overflow | NoConnection::NoPool));
    if host.monitor.is_some() && !untried {
        let outcome = if connected.is_ok() { Outcome::ConnectedFinally } else { Outcome::Failed };
        crate::outlier::report(cluster, &host, outcome, worker);
    }
    match connected {
        Ok(upstream) => Ok((host, upstream)),
        Err(NoConnection::Overflow | NoConnection::NoPool) => Err(DialFailure::Overflow),
        Err(NoConnection::Timeout) => Err(DialFailure::Timeout),
        Err(NoConnection::Failed(_)) => Err(DialFailure::Unreached),
    }
}

/// A connection that is there.
struct Line<'l> {
    worker: &'l Worker,
    upstream: &'l mut Upstream,
    control: &'l ConnectionControl,
    out: Outgoing,
    /// The peer sends nothing more.
    heard_end: bool,
}

/// What is to be sent.
#[derive(Default)]
struct Outgoing {
    data: Vec<u8>,
    /// So much of it went.
    gone: usize,
    end: bool,
    end_told: bool,
    ending: Option<Ending>,
}

impl Line<'_> {
    /// Ready when it is over; whether the peer ended it.
    fn poll(&mut self, user: &mut dyn DialUser, cx: &mut Context<'_>) -> Poll<bool> {
        loop {
            self.control.watch(cx.waker());
            for wish in self.control.take_wishes() {
                self.out.take(wish);
            }
            let flushed = self.poll_flush(cx);
            if let Some(ending) = self.out.ending {
                match ending {
                    Ending::Flushed if flushed.is_pending() => return Poll::Pending,
                    Ending::Reset => self.upstream.io.reset_on_close(),
                    Ending::Flushed | Ending::AtOnce | Ending::Dropped => {}
                }
                return Poll::Ready(false);
            }
            if let Poll::Ready(Err(_)) = flushed {
                return Poll::Ready(true);
            }
            if self.heard_end {
                return if self.out.end_told { Poll::Ready(false) } else { Poll::Pending };
            }
            if let Some(over) = ready!(self.poll_receive(user, cx)) {
                return Poll::Ready(over);
            }
        }
    }

    /// Hears once from the peer. What that ended, if it did.
    fn poll_receive(&mut self, user: &mut dyn DialUser, cx: &mut Context<'_>) -> Poll<Option<bool>> {
        let Upstream { io, input, buffer_limit, .. } = &mut *self.upstream;
        let buffers = &self.worker.buffers;
        match ready!(input.poll_fill(cx, io, *buffer_limit, buffers)) {
            Ok(0) if self.control.half_closes.get() => {
                self.heard_end = true;
                user.on_received(&[], true);
                Poll::Ready(self.out.end_told.then_some(true))
            }
            Ok(0) | Err(_) => Poll::Ready(Some(true)),
            Ok(count) => {
                user.on_received(input.bytes(), false);
                input.consume(count, buffers);
                self.upstream.stats().add(stat::UPSTREAM_CX_RX_BYTES_TOTAL, count as u64);
                Poll::Ready(None)
            }
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.out.ending == Some(Ending::Dropped) || self.out.ending == Some(Ending::Reset) {
            return Poll::Ready(Ok(()));
        }
        while let Some(rest) = self.out.data.get(self.out.gone..).filter(|rest| !rest.is_empty()) {
            let count = ready!(self.upstream.io.poll_write(cx, rest))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.out.gone += count;
            self.upstream.stats().add(stat::UPSTREAM_CX_TX_BYTES_TOTAL, count as u64);
        }
        self.out.data.clear();
        self.out.gone = 0;
        if self.out.end && !self.out.end_told {
            // A peer that is gone already needs not be told.
            let _ = ready!(self.upstream.io.poll_finish(cx));
            self.out.end_told = true;
        }
        Poll::Ready(Ok(()))
    }
}

impl Outgoing {
    fn take(&mut self, wish: Wish) {
        match wish {
            // Nothing comes behind the end.
            _ if self.ending.is_some() => {}
            Wish::End(ending) => self.ending = Some(ending),
            // Nobody keeps it.
            Wish::Leave => self.ending = Some(Ending::Flushed),
            Wish::Send { mut data, end, .. } if !self.end => {
                self.data.append(&mut data);
                self.end |= end;
            }
            // Nobody is behind it.
            Wish::Send { .. } | Wish::Receive { .. } => {}
        }
    }
}
