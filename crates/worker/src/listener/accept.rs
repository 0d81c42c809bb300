//! New connections: whether there may be one more, and which worker gets it.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use postrider_model::ConnectionBalance;
use postrider_telemetry::stats::sets::listener as stat;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::Listener;
use crate::io::{Kind, Socket};
use crate::message::{Accepted, Message};
use crate::plan::ListenerPlan;
use crate::worker::Worker;

/// How long accepting rests when the process is out of descriptors: trying at once would only burn the processor.
const ACCEPT_BACK_OFF: Duration = Duration::from_millis(100);

/// A worker hands a new connection over only when it holds at least this many more than the least loaded one: a move
/// costs more than a small difference.
const HAND_OVER_MARGIN: usize = 8;

impl Listener {
    /// A connection that another worker accepted and that counts as ours already.
    pub(crate) fn adopt(self: &Rc<Self>, worker: &Rc<Worker>, stream: Accepted, peer: Option<SocketAddr>) {
        let socket = match stream {
            Accepted::Tcp(stream) => TcpStream::from_std(stream).map(Socket::from),
            Accepted::Unix(descriptor) => UnixStream::from_std(descriptor.into()).map(Socket::from),
        };
        match socket {
            Ok(socket) => self.begin(worker, socket, peer),
            Err(error) => {
                self.uncount(worker.id as usize);
                report(&error);
            }
        }
    }

    pub(super) async fn accept_tcp(self: Rc<Self>, worker: &Rc<Worker>, socket: TcpListener) {
        let mut burst = 0;
        loop {
            match next(worker, &self, &mut burst, |cx| socket.poll_accept(cx)).await {
                Ok((stream, peer)) => self.accepted(worker, stream.into(), Some(postrider_sys::canonical(peer))),
                Err(error) => self.failed(&error).await,
            }
        }
    }

    pub(super) async fn accept_unix(self: Rc<Self>, worker: &Rc<Worker>, socket: UnixListener) {
        let mut burst = 0;
        loop {
            match next(worker, &self, &mut burst, |cx| socket.poll_accept(cx)).await {
                Ok((stream, _)) => self.accepted(worker, stream.into(), None),
                Err(error) => self.failed(&error).await,
            }
        }
    }

    async fn failed(&self, error: &std::io::Error) {
        // A client that left before it was accepted is no trouble of ours.
        if error.kind() != std::io::ErrorKind::ConnectionAborted {
            report(error);
            tokio::time::sleep(ACCEPT_BACK_OFF).await;
        }
    }

    fn accepted(self: &Rc<Self>, worker: &Rc<Worker>, socket: Socket, peer: Option<SocketAddr>) {
        if worker.overload.accepts.get() && self.turns_away(worker) {
            return;
        }
        let plan = self.plan.borrow().clone();
        if plan.model.connection_limit.is_some_and(|limit| plan.connections() as u64 >= limit) {
            self.stats.inc(stat::DOWNSTREAM_CX_OVERFLOW);
            return;
        }
        let target = least_loaded(&plan, worker.id as usize);
        if let Some(load) = plan.loads.get(target) {
            load.0.fetch_add(1, Relaxed);
        }
        if target == worker.id as usize {
            self.begin(worker, socket, peer);
        } else if let Some((sender, stream)) = worker.peers.get().and_then(|p| p.get(target)).zip(into_std(socket)) {
            let message = Message::Connection { listener: plan.model.name.clone(), stream, peer };
            if sender.try_send(message).is_err() {
                // A worker whose mailbox is full could not serve it soon.
                self.uncount(target);
            }
        } else {
            self.uncount(target);
        }
    }

    /// Whether a new connection is one too many for the process.
    #[cold]
    fn turns_away(&self, worker: &Worker) -> bool {
        let plan = self.plan.borrow().clone();
        if let Some(bound) = &worker.overload.strain().bound
            && !plan.model.bypasses_bound
            && worker.connections_of_all() as u64 >= bound.most
        {
            self.stats.inc(stat::DOWNSTREAM_GLOBAL_CX_OVERFLOW);
            worker.overload.count_bound(&worker.stats);
            return true;
        }
        let refused = !plan.model.bypasses_overload && worker.overload.draws_connection(&worker.random, &worker.stats);
        if refused {
            self.stats.inc(stat::DOWNSTREAM_CX_OVERLOAD_REJECT);
        }
        refused
    }

    /// Whether so many connections in one go are as many as there may be.
    fn accepted_enough(&self, burst: u64) -> bool {
        burst > 0 && self.plan.borrow().model.accepts_at_once.is_some_and(|most| burst >= u64::from(most))
    }

    /// What this listener adds to the connections that are bounded for all together.
    pub(crate) fn connections_for_bound(&self) -> usize {
        let plan = self.plan.borrow();
        if plan.model.bypasses_bound { 0 } else { plan.connections() }
    }

    fn uncount(&self, worker: usize) {
        if let Some(load) = self.plan.borrow().loads.get(worker) {
            load.0.fetch_sub(1, Relaxed);
        }
    }
}

/// What `accept` comes to, which is not asked while new connections have to wait. `burst` is how many came since the task
/// slept for the last time.
async fn next<T>(
    worker: &Worker,
    listener: &Listener,
    burst: &mut u64,
    mut accept: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> T {
    std::future::poll_fn(|cx| {
        if worker.overload.paused.get() && !listener.plan.borrow().model.bypasses_overload {
            worker.overload.wait(cx.waker());
            return Poll::Pending;
        }
        let accepted = if listener.accepted_enough(*burst) {
            // Those that wait come when everything else had its turn.
            cx.waker().wake_by_ref();
            Poll::Pending
        } else {
            accept(cx)
        };
        match &accepted {
            Poll::Ready(_) => *burst += 1,
            Poll::Pending if *burst > 0 => {
                listener.stats.record(stat::CONNECTIONS_ACCEPTED_PER_SOCKET_EVENT, std::mem::take(burst));
            }
            Poll::Pending => {}
        }
        accepted
    })
    .await
}

/// The worker that should have a connection which `own` accepted.
fn least_loaded(plan: &ListenerPlan, own: usize) -> usize {
    let load = |index: usize| plan.loads.get(index).map_or(usize::MAX, |load| load.0.load(Relaxed));
    let Some(least) = (0..plan.loads.len()).min_by_key(|index| load(*index)) else { return own };
    let margin = match plan.model.balance {
        ConnectionBalance::Exact => 1,
        ConnectionBalance::Kernel => HAND_OVER_MARGIN,
    };
    if load(own) >= load(least).saturating_add(margin) { least } else { own }
}

fn into_std(socket: Socket) -> Option<Accepted> {
    match socket.kind {
        Kind::Tcp(stream) => stream.into_std().ok().map(Accepted::Tcp),
        Kind::Unix(stream) => stream.into_std().ok().map(|stream| Accepted::Unix(OwnedFd::from(stream))),
    }
}

pub(super) fn report(error: &std::io::Error) {
    postrider_telemetry::warning!(Connection, "cannot accept a connection: {error}");
}
