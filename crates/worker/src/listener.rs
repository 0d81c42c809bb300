//! A listener on one worker: accepts, balances, chooses the filter chain and starts the connection's task.

mod accept;
mod handed;
mod inspect;
mod introduction;
mod newcomer;
mod serve;
mod surroundings;

use std::cell::{Cell, OnceCell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{Hello, Moment, NewcomerFilter, Noted, TlsSession};
use postrider_model::Address;
use postrider_sys::Bound;
use postrider_telemetry::Block;
use postrider_telemetry::stats::sets::{listener as stat, listener_worker as worker_stat};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::AbortHandle;

use crate::buffers::Input;
use crate::chain::Chain;
use crate::cluster::stat_name;
use crate::io::Io;
use crate::log::Logs;
use crate::plan::ListenerPlan;
use crate::record::Record;
use crate::worker::Worker;

use accept::report;
use newcomer::Newcomer;
use surroundings::Around;
pub(crate) use surroundings::of_chain;

pub(crate) struct Listener {
    plan: RefCell<Arc<ListenerPlan>>,
    /// Its own, of connections; `None` when it has none.
    logs: RefCell<Option<Rc<Logs>>>,
    /// In the order of [`ListenerPlan::each_chain`].
    chains: RefCell<Vec<Rc<Chain>>>,
    /// Those that look at new connections.
    filters: RefCell<Vec<Rc<dyn NewcomerFilter>>>,
    /// For those who ask about it.
    around: Rc<Around>,
    stats: Rc<Block>,
    worker_stats: Rc<Block>,
    /// Made with the first TLS connection.
    ssl_stats: OnceCell<Rc<Block>>,
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
    /// Received already.
    pub(crate) ahead: Input,
    pub(crate) local: Option<SocketAddr>,
    /// That is not ours, but where the connection was meant to go.
    pub(crate) redirected: bool,
    pub(crate) remote: Option<SocketAddr>,
    /// The peer itself, before what a proxy in front of us said.
    pub(crate) direct_remote: Option<SocketAddr>,
    /// What was agreed on; `None` for a plain connection.
    pub(crate) tls: Option<Rc<TlsSession>>,
    /// How TLS began that is passed on.
    pub(crate) hello: Option<Rc<Hello>>,
    pub(crate) id: u64,
    /// `None` for a stream of a connection that is counted itself.
    pub(crate) counted: Option<Counted>,
    /// What the listener's log will say of the connection.
    pub(crate) record: Option<Rc<Record>>,
    /// What the PROXY protocol said and guards noted.
    pub(crate) noted: Option<Rc<Noted>>,
}

impl Counted {
    /// When the connection was.
    pub(crate) fn accepted(&self) -> Moment {
        self.accepted
    }
}

impl Listener {
    /// Begins to accept on `sockets`.
    pub(crate) fn start(plan: &Arc<ListenerPlan>, sockets: Vec<Bound>, worker: &Rc<Worker>) -> Rc<Listener> {
        let stat_prefix = stat_prefix(plan, &sockets);
        let limit = plan.model.buffer_limit;
        let around = Rc::new(Around::new(plan, worker));
        let new = |chain| Chain::new(chain, &stat_prefix, limit, around.clone(), worker);
        let chains = plan.each_chain().map(new).collect();
        let listener = Rc::new(Listener {
            plan: RefCell::new(plan.clone()),
            logs: RefCell::default(),
            chains: RefCell::new(chains),
            filters: RefCell::new(newcomer_filters(plan, &stat_prefix, worker)),
            around,
            stats: worker.stats.block(&stat::SET, &stat_prefix),
            worker_stats: worker.stats.block(&worker_stat::SET, &format!("{stat_prefix}.worker_{}", worker.id)),
            ssl_stats: OnceCell::new(),
            stat_prefix,
            accepting: RefCell::default(),
            closed: Cell::new(false),
        });
        listener.take_logs(plan, worker);
        listener.welcome(plan);
        listener.fail_health(worker.fails_health.get());
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

    /// Takes over a new plan with the sockets as they are. Chains that differ at most in their routes and in the
    /// configurations of their HTTP filters go on; the others drain.
    pub(crate) fn update(&self, plan: &Arc<ListenerPlan>, worker: &Rc<Worker>) {
        if Arc::ptr_eq(&self.plan.borrow(), plan) {
            return;
        }
        self.around.replace_plan(plan);
        let mut old = self.chains.take();
        if self.plan.borrow().model.buffer_limit != plan.model.buffer_limit {
            old.drain(..).for_each(|chain| chain.drop_out(worker));
        }
        let chains = plan
            .each_chain()
            .map(|chain| {
                let goes_on = |old: &Rc<Chain>| {
                    let old = old.plan.borrow();
                    Arc::ptr_eq(&old, chain) || old.same_but_routes(chain)
                };
                let known = old.iter().position(goes_on);
                match known {
                    Some(index) => {
                        let known = old.swap_remove(index);
                        known.replace_routes(chain, worker);
                        known
                    }
                    None => {
                        let limit = plan.model.buffer_limit;
                        Chain::new(chain, &self.stat_prefix, limit, self.around.clone(), worker)
                    }
                }
            })
            .collect();
        old.iter().for_each(|gone| gone.drop_out(worker));
        *self.chains.borrow_mut() = chains;
        self.take_filters(plan, worker);
        self.take_logs(plan, worker);
        self.welcome(plan);
        *self.plan.borrow_mut() = plan.clone();
        self.fail_health(worker.fails_health.get());
    }

    /// The proxy says of itself that it is not healthy, or that it is again.
    pub(crate) fn fail_health(&self, fails: bool) {
        let fails = fails && self.plan.borrow().model.drains_unhealthy;
        self.chains.borrow().iter().for_each(|chain| chain.fail_health(fails));
    }

    /// Somebody watches which routes are found.
    pub(crate) fn watch_routes(&self) {
        self.chains.borrow().iter().for_each(|chain| chain.watch_routes());
    }

    /// Chains are under the pressure that `plan` has them under.
    fn welcome(&self, plan: &ListenerPlan) {
        self.chains.borrow().iter().for_each(|chain| chain.welcome(plan.model.bypasses_overload));
    }

    /// The filters of new connections are those of `plan`.
    fn take_filters(&self, plan: &Arc<ListenerPlan>, worker: &Rc<Worker>) {
        let old = self.plan.borrow().clone();
        let same = old.filters.len() == plan.filters.len()
            && old.filters.iter().zip(&plan.filters).all(|(old, new)| Arc::ptr_eq(old, new));
        if !same {
            *self.filters.borrow_mut() = newcomer_filters(plan, &self.stat_prefix, worker);
        }
    }

    /// The listener's own log is that of `plan`.
    fn take_logs(&self, plan: &ListenerPlan, worker: &Rc<Worker>) {
        let logs = Logs::new(&plan.model.access_log, worker);
        let logs = (!logs.is_empty()).then(|| Rc::new(logs));
        if logs.is_some() {
            self.chains.borrow().iter().for_each(|chain| chain.is_recorded());
        }
        *self.logs.borrow_mut() = logs;
    }

    /// No new connections; those that there are go on.
    pub(crate) fn stop_accepting(&self) {
        self.accepting.take().iter().for_each(AbortHandle::abort);
        self.closed.set(true);
    }

    /// Connections end after the request that they are at.
    pub(crate) fn drain(&self) {
        self.chains.borrow().iter().for_each(|chain| chain.drain());
    }

    /// The configuration has no such listener any more.
    pub(crate) fn close(&self, worker: &Worker) {
        self.stop_accepting();
        self.chains.borrow().iter().for_each(|chain| chain.drop_out(worker));
    }
}

fn newcomer_filters(plan: &ListenerPlan, stat_prefix: &str, worker: &Rc<Worker>) -> Vec<Rc<dyn NewcomerFilter>> {
    let place = worker.place(stat_prefix, plan.model.buffer_limit as usize);
    plan.filters.iter().map(|filter| filter.newcomer_filter(&place)).collect()
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
