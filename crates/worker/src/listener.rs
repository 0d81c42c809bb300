//! A listener on one worker: accepts, balances, chooses the filter chain and starts the connection's task.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use postrider_filter_api::Moment;
use postrider_model::{Address, ConnectionBalance};
use postrider_sys::Bound;
use postrider_telemetry::Block;
use postrider_telemetry::stats::sets::{listener as stat, listener_worker as worker_stat};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::AbortHandle;

use crate::chain::{Chain, Handler};
use crate::cluster::{millis, stat_name};
use crate::filter_chain::{self, Peer};
use crate::io::Io;
use crate::message::{Accepted, Message};
use crate::plan::ListenerPlan;
use crate::worker::Worker;

/// How long accepting rests when the process is out of descriptors: trying at once would only burn the processor.
const ACCEPT_BACK_OFF: Duration = Duration::from_millis(100);

/// A worker hands a new connection over only when it holds at least this many more than the least loaded one: a move
/// costs more than a small difference.
const HAND_OVER_MARGIN: usize = 8;

pub(crate) struct Listener {
    plan: RefCell<Arc<ListenerPlan>>,
    /// In the order of [`ListenerPlan::each_chain`].
    chains: RefCell<Vec<Rc<Chain>>>,
    stats: Rc<Block>,
    worker_stats: Rc<Block>,
    stat_prefix: String,
    accepting: RefCell<Vec<AbortHandle>>,
    closed: Cell<bool>,
}

/// A connection's share in its listener's counts.
pub(crate) struct Counted {
    listener: Rc<Listener>,
    plan: Arc<ListenerPlan>,
    worker: Rc<Worker>,
    accepted: Moment,
}

/// What a new connection knows about itself.
pub(crate) struct Arrival {
    pub(crate) io: Io,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) id: u64,
    pub(crate) counted: Counted,
}

impl Listener {
    /// Begins to accept on `sockets`.
    pub(crate) fn start(plan: &Arc<ListenerPlan>, sockets: Vec<Bound>, worker: &Rc<Worker>) -> Rc<Listener> {
        let stat_prefix = stat_prefix(plan, &sockets);
        let limit = plan.model.buffer_limit;
        let chains = plan.each_chain().map(|chain| Chain::new(chain, &stat_prefix, limit, worker)).collect();
        let listener = Rc::new(Listener {
            plan: RefCell::new(plan.clone()),
            chains: RefCell::new(chains),
            stats: worker.stats.block(&stat::SET, &stat_prefix),
            worker_stats: worker.stats.block(&worker_stat::SET, &format!("{stat_prefix}.worker_{}", worker.id)),
            stat_prefix,
            accepting: RefCell::default(),
            closed: Cell::new(false),
        });
        for socket in sockets {
            let (listener_of_task, worker) = (listener.clone(), worker.clone());
            let task = tokio::task::spawn_local(async move {
                match socket {
                    Bound::Tcp(socket) => match TcpListener::from_std(socket) {
                        Ok(socket) => listener_of_task.accept_tcp(&worker, socket).await,
                        Err(error) => report(&error),
                    },
                    Bound::Unix(socket) => match UnixListener::from_std(socket) {
                        Ok(socket) => listener_of_task.accept_unix(&worker, socket).await,
                        Err(error) => report(&error),
                    },
                }
            });
            listener.accepting.borrow_mut().push(task.abort_handle());
        }
        listener
    }

    /// Takes over a new plan with the sockets as they are. Chains that differ at most in their routes go on; the
    /// others drain.
    pub(crate) fn update(&self, plan: &Arc<ListenerPlan>, worker: &Rc<Worker>) {
        if Arc::ptr_eq(&self.plan.borrow(), plan) {
            return;
        }
        let mut old = self.chains.take();
        if self.plan.borrow().model.buffer_limit != plan.model.buffer_limit {
            old.drain(..).for_each(|chain| chain.draining.set(true));
        }
        let chains = plan
            .each_chain()
            .map(|chain| {
                let known = old.iter().position(|old| Arc::ptr_eq(&old.plan, chain) || old.plan.same_but_routes(chain));
                match known {
                    Some(index) => {
                        let known = old.swap_remove(index);
                        known.replace_routes(chain);
                        known
                    }
                    None => Chain::new(chain, &self.stat_prefix, plan.model.buffer_limit, worker),
                }
            })
            .collect();
        old.iter().for_each(|gone| gone.draining.set(true));
        *self.chains.borrow_mut() = chains;
        *self.plan.borrow_mut() = plan.clone();
    }

    /// No new connections; those that there are go on.
    pub(crate) fn stop_accepting(&self) {
        self.accepting.take().iter().for_each(AbortHandle::abort);
        self.closed.set(true);
    }

    /// Connections end after the request that they are at.
    pub(crate) fn drain(&self) {
        self.chains.borrow().iter().for_each(|chain| chain.draining.set(true));
    }

    /// The configuration has no such listener any more.
    pub(crate) fn close(&self) {
        self.stop_accepting();
        self.drain();
    }

    /// A connection that another worker accepted and that counts as ours already.
    pub(crate) fn adopt(self: &Rc<Self>, worker: &Rc<Worker>, stream: Accepted, peer: Option<SocketAddr>) {
        let io = match stream {
            Accepted::Tcp(stream) => TcpStream::from_std(stream).map(Io::Tcp),
            Accepted::Unix(descriptor) => UnixStream::from_std(descriptor.into()).map(Io::Unix),
        };
        match io {
            Ok(io) => self.begin(worker, io, peer),
            Err(error) => {
                self.uncount(worker.id as usize);
                report(&error);
            }
        }
    }

    async fn accept_tcp(self: Rc<Self>, worker: &Rc<Worker>, socket: TcpListener) {
        loop {
            match socket.accept().await {
                Ok((stream, peer)) => self.accepted(worker, Io::Tcp(stream), Some(peer)),
                Err(error) => self.failed(&error).await,
            }
        }
    }

    async fn accept_unix(self: Rc<Self>, worker: &Rc<Worker>, socket: UnixListener) {
        loop {
            match socket.accept().await {
                Ok((stream, _)) => self.accepted(worker, Io::Unix(stream), None),
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

    fn accepted(self: &Rc<Self>, worker: &Rc<Worker>, io: Io, peer: Option<SocketAddr>) {
        let plan = self.plan.borrow().clone();
        if let Some(limit) = plan.model.connection_limit {
            let held: usize = plan.loads.iter().map(|load| load.0.load(Relaxed)).sum();
            if held as u64 >= limit {
                self.stats.inc(stat::DOWNSTREAM_CX_OVERFLOW);
                return;
            }
        }
        let target = least_loaded(&plan, worker.id as usize);
        if let Some(load) = plan.loads.get(target) {
            load.0.fetch_add(1, Relaxed);
        }
        if target == worker.id as usize {
            self.begin(worker, io, peer);
        } else if let Some((sender, stream)) = worker.peers.get().and_then(|p| p.get(target)).zip(into_std(io)) {
            let message = Message::Connection { listener: plan.model.name.clone(), stream, peer };
            if sender.try_send(message).is_err() {
                // A worker whose mailbox is full could not serve it soon.
                self.uncount(target);
            }
        } else {
            self.uncount(target);
        }
    }

    /// Starts the task of a connection that was counted for this worker.
    fn begin(self: &Rc<Self>, worker: &Rc<Worker>, io: Io, remote: Option<SocketAddr>) {
        let plan = self.plan.borrow().clone();
        self.stats.inc(stat::DOWNSTREAM_CX_TOTAL);
        self.stats.gauge_inc(stat::DOWNSTREAM_CX_ACTIVE);
        self.worker_stats.inc(worker_stat::DOWNSTREAM_CX_TOTAL);
        self.worker_stats.gauge_inc(worker_stat::DOWNSTREAM_CX_ACTIVE);
        let accepted = worker.clock.now();
        let counted = Counted { listener: self.clone(), plan: plan.clone(), worker: worker.clone(), accepted };
        let local = local_address(&plan, &io);
        let chain = filter_chain::choose(plan.each_match(), &Peer { local, remote });
        let chain = chain.or(plan.default_chain.as_ref().map(|_| plan.chains.len()));
        let Some(chain) = chain.and_then(|index| self.chains.borrow().get(index).cloned()) else {
            self.stats.inc(stat::NO_FILTER_CHAIN_MATCH);
            return;
        };
        let arrival = Arrival { io, local, remote, id: worker.next_connection_id(), counted };
        let worker = worker.clone();
        match &chain.handler {
            Handler::Http(_) => {
                tokio::task::spawn_local(crate::http::serve(worker, chain, arrival));
            }
            Handler::Tcp(_) => {
                tokio::task::spawn_local(crate::tcp::serve(worker, chain, arrival));
            }
        }
    }

    fn uncount(&self, worker: usize) {
        if let Some(load) = self.plan.borrow().loads.get(worker) {
            load.0.fetch_sub(1, Relaxed);
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(load) = self.plan.loads.get(self.worker.id as usize) {
            load.0.fetch_sub(1, Relaxed);
        }
        let stats = &self.listener.stats;
        stats.gauge_dec(stat::DOWNSTREAM_CX_ACTIVE);
        stats.inc(stat::DOWNSTREAM_CX_DESTROY);
        self.listener.worker_stats.gauge_dec(worker_stat::DOWNSTREAM_CX_ACTIVE);
        let age = self.worker.clock.now().saturating_duration_since(self.accepted);
        stats.record(stat::DOWNSTREAM_CX_LENGTH_MS, millis(age));
    }
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

fn into_std(io: Io) -> Option<Accepted> {
    match io {
        Io::Tcp(stream) => stream.into_std().ok().map(Accepted::Tcp),
        Io::Unix(stream) => stream.into_std().ok().map(|stream| Accepted::Unix(OwnedFd::from(stream))),
    }
}

/// The address that the client connected to; asked from the system only where the listener's own leaves it open.
fn local_address(plan: &ListenerPlan, io: &Io) -> Option<SocketAddr> {
    match plan.model.addresses.as_slice() {
        [Address::Tcp(only)] if !only.ip().is_unspecified() && only.port() != 0 => Some(*only),
        _ => io.local(),
    }
}

/// `127.0.0.1_10000`: what a listener is called in statistics.
fn stat_prefix(plan: &ListenerPlan, sockets: &[Bound]) -> String {
    if let Some(prefix) = &plan.model.stat_prefix {
        return stat_name(prefix);
    }
    let bound = sockets.first().and_then(|socket| match socket {
        Bound::Tcp(socket) => socket.local_addr().ok().map(|address| address.to_string()),
        Bound::Unix(_) => None,
    });
    let configured = || plan.model.addresses.first().map(Address::to_string).unwrap_or_default();
    stat_name(&bound.unwrap_or_else(configured))
}

fn report(error: &std::io::Error) {
    postrider_telemetry::warning!(Connection, "cannot accept a connection: {error}");
}
