//! All workers, as the control plane handles them.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use postrider_model::{AccessLog, Address, Listener, SocketOptions, StatsSink};
use postrider_sys::{Bound, ListenOptions, Place};
use postrider_telemetry::Registry;
use postrider_telemetry::access_log::{LogFile, LogWriter};
use postrider_telemetry::sink::Sink;
use postrider_upstream::Endpoints;
use tokio::sync::{mpsc, oneshot};

use crate::account::Relief;
use crate::ahead::NewRoutes;
use crate::message::{Apply, KnownHealth, MAILBOX, MakeAhead, Message, Report, Warm};
use crate::overload::Strain;
use crate::plan::{ClusterPlan, Load, Plan};
use crate::sinks;
use crate::worker::Worker;

/// What a worker's thread has for its stack: scripts that call functions of C which call scripts use up to half of it. Only what is
/// used takes memory.
const STACK: usize = 8 << 20;

/// The workers. Dropping it stops them.
pub struct Fleet {
    senders: Vec<mpsc::Sender<Message>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Workers that stay on one processor.
    pinned: Arc<AtomicUsize>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The addresses that each running listener really has.
    bound: HashMap<String, Vec<Address>>,
    plan: Option<Arc<Plan>>,
    leaving: Leaving,
}

/// What is in the configuration no more, and may have connections.
#[derive(Default)]
struct Leaving {
    listeners: Vec<Arc<[Load]>>,
    chains: Vec<Arc<AtomicUsize>>,
}

impl Leaving {
    /// What `new` has no more of `old`.
    fn note(&mut self, old: Option<&Plan>, new: &Plan) {
        for listener in old.iter().flat_map(|old| &old.listeners) {
            match new.listener(&listener.model.name) {
                None => self.listeners.push(listener.loads.clone()),
                Some(new) => {
                    let goes_on = |gone: &AtomicUsize| new.each_chain().any(|chain| std::ptr::eq(&*chain.in_use, gone));
                    let gone = listener.each_chain().map(|chain| &chain.in_use).filter(|gone| !goes_on(gone));
                    self.chains.extend(gone.cloned());
                }
            }
        }
    }

    /// Listeners and chains that have connections.
    fn count(&mut self) -> (usize, usize) {
        self.listeners.retain(|loads| loads.iter().any(|load| load.0.load(Relaxed) > 0));
        self.chains.retain(|in_use| in_use.load(Relaxed) > 0);
        (self.listeners.len(), self.chains.len())
    }
}

/// Why a plan could not be put in force. Nothing changed then.
#[derive(Debug)]
pub enum ApplyError {
    Bind {
        listener: String,
        address: Address,
        error: io::Error,
    },
    AccessLog {
        path: String,
        error: io::Error,
    },
    /// A worker is gone: the process cannot go on.
    WorkerGone,
}

impl std::fmt::Display for ApplyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ApplyError::Bind { listener, address, error } => {
                write!(f, "listener \"{listener}\" cannot listen on {address}: {error}")
            }
            ApplyError::AccessLog { path, error } => write!(f, "access log {path} cannot be opened: {error}"),
            ApplyError::WorkerGone => f.write_str("a worker has ended"),
        }
    }
}

impl std::error::Error for ApplyError {}

impl Fleet {
    /// Starts `count` workers, each on a thread of its own; `pin` keeps each on one processor. Connections of listeners and
    /// filter chains that a later plan has no more end `drain_time` after it came into force.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(count: usize, pin: bool, drain_time: Duration, registry: &Registry) -> io::Result<Fleet> {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..count.max(1)).map(|_| mpsc::channel(MAILBOX)).unzip();
        let mut threads = Vec::new();
        let pinned = Arc::new(AtomicUsize::new(0));
        for (index, receiver) in receivers.into_iter().enumerate() {
            let (registry, peers, of_thread) = (registry.clone(), senders.clone(), pinned.clone());
            let id = u32::try_from(index).unwrap_or_default();
            let thread = std::thread::Builder::new().name(format!("worker-{index}")).stack_size(STACK);
            let thread = thread.spawn(move || {
                match pin.then(|| postrider_sys::pin_to_cpu(index)) {
                    None => {}
                    Some(Ok(())) => _ = of_thread.fetch_add(1, Relaxed),
                    Some(Err(error)) => eprintln!("worker {index} cannot be pinned to a processor: {error}"),
                }
                if let Err(error) = Worker::run(id, drain_time, registry.worker(id), peers, receiver) {
                    eprintln!("worker {index} cannot start: {error}");
                }
            })?;
            threads.push(thread);
        }
        Ok(Fleet { senders, threads: Mutex::new(threads), pinned, state: Mutex::default() })
    }

    pub fn workers(&self) -> usize {
        self.senders.len()
    }

    /// Of them, how many stay on one processor.
    pub fn pinned(&self) -> usize {
        self.pinned.load(Relaxed)
    }

    /// The plan in force.
    pub fn plan(&self) -> Option<Arc<Plan>> {
        self.state().plan.clone()
    }

    /// Listeners, and filter chains of listeners that go on, which are no longer in force and still have connections.
    pub fn draining(&self) -> (usize, usize) {
        self.state().leaving.count()
    }

    /// Name and addresses of every running listener, ports resolved.
    pub fn listeners(&self) -> Vec<(String, Vec<Address>)> {
        let state = self.state();
        let order = state.plan.iter().flat_map(|plan| &plan.listeners).map(|listener| &listener.model.name);
        order.filter_map(|name| Some((name.clone(), state.bound.get(name)?.clone()))).collect()
    }

    /// Puts `plan` in force on all workers and waits until each has it: sockets and logs are opened first, so that a
    /// plan that cannot run changes nothing. `endpoints` are those that discovery found for new clusters.
    ///
    /// # Errors
    /// See [`ApplyError`].
    pub async fn apply(
        &self,
        plan: Arc<Plan>,
        endpoints: HashMap<Arc<str>, Endpoints>,
        logs: &LogWriter,
    ) -> Result<(), ApplyError> {
        let log_files = open_logs(&plan, logs)?;
        let (mut sockets, bound) = self.open_sockets(&plan)?;
        let health = self.warm(&plan, &endpoints, &log_files).await?;
        self.make_ahead(&plan).await?;
        let mut waiting = Vec::new();
        for sender in &self.senders {
            let (done, wait) = oneshot::channel();
            let apply = Apply {
                health: health.clone(),
                plan: plan.clone(),
                sockets: sockets.pop().unwrap_or_default(),
                endpoints: endpoints.clone(),
                logs: log_files.clone(),
                done,
            };
            sender.send(Message::Apply(Box::new(apply))).await.map_err(|_| ApplyError::WorkerGone)?;
            waiting.push(wait);
        }
        for wait in waiting {
            wait.await.map_err(|_| ApplyError::WorkerGone)?;
        }
        if let Some(checker) = self.senders.first() {
            // What changed after the first round, and before everybody had the plan. Who is gone is noticed elsewhere.
            let _ = checker.send(Message::PublishHealth).await;
        }
        let mut state = self.state();
        let State { bound: known, plan: current, leaving } = &mut *state;
        leaving.note(current.as_deref(), &plan);
        (*known, *current) = (bound, Some(plan));
        Ok(())
    }

    /// Has the filters of new routes make what their first request would wait for, on all workers at once.
    async fn make_ahead(&self, plan: &Plan) -> Result<(), ApplyError> {
        let new = NewRoutes::of(plan, self.plan().as_deref());
        if new.is_empty() {
            return Ok(());
        }
        let mut waiting = Vec::new();
        for sender in &self.senders {
            let (done, wait) = oneshot::channel();
            let message = Message::MakeAhead(Box::new(MakeAhead { new: new.clone(), done }));
            sender.send(message).await.map_err(|_| ApplyError::WorkerGone)?;
            waiting.push(wait);
        }
        for wait in waiting {
            wait.await.map_err(|_| ApplyError::WorkerGone)?;
        }
        Ok(())
    }

    /// Has the hosts of new clusters checked once, where the clusters have checks.
    async fn warm(
        &self,
        plan: &Plan,
        endpoints: &HashMap<Arc<str>, Endpoints>,
        logs: &HashMap<postrider_model::AccessLogSink, LogFile>,
    ) -> Result<KnownHealth, ApplyError> {
        let running = self.plan();
        let is_new = |cluster: &&Arc<ClusterPlan>| {
            let known = running.as_ref().is_some_and(|plan| plan.clusters.iter().any(|old| Arc::ptr_eq(old, cluster)));
            !cluster.model.health.checks.is_empty() && !known
        };
        let clusters: Vec<_> = plan.clusters.iter().filter(is_new).cloned().collect();
        let Some(checker) = self.senders.first().filter(|_| !clusters.is_empty()) else {
            return Ok(KnownHealth::default());
        };
        let (done, wait) = oneshot::channel();
        let warm = Warm { clusters, endpoints: endpoints.clone(), logs: logs.clone(), done };
        checker.send(Message::Warm(Box::new(warm))).await.map_err(|_| ApplyError::WorkerGone)?;
        wait.await.map_err(|_| ApplyError::WorkerGone)
    }

    /// Tells all workers about new endpoints of a cluster.
    pub async fn update_endpoints(&self, cluster: &Arc<str>, endpoints: &Endpoints) {
        for sender in &self.senders {
            let message = Message::Endpoints { cluster: cluster.clone(), endpoints: endpoints.clone() };
            // A worker that is gone is reported by the next apply.
            let _ = sender.send(message).await;
        }
    }

    /// Old connections get no new requests; with `stop_accepting` there are no new connections either.
    /// Clients learn it with their answers: at once, or more and more of them `over` some time.
    pub async fn drain(&self, stop_accepting: bool, over: Duration) {
        self.broadcast(|| Message::Drain { stop_accepting, over, inbound_only: false }).await;
    }

    /// The same for connections of listeners whose traffic is inbound, which go on accepting.
    pub async fn drain_inbound(&self, over: Duration) {
        self.broadcast(|| Message::Drain { stop_accepting: false, over, inbound_only: true }).await;
    }

    /// Tells all workers what is to be done while the process is short of something; `false` when one could not be told
    /// now. Does not wait.
    pub fn strain(&self, strain: &Arc<Strain>) -> bool {
        let tell = |sender: &mpsc::Sender<Message>| sender.try_send(Message::Strain(strain.clone())).is_ok();
        self.senders.iter().filter(|sender| tell(sender)).count() == self.senders.len()
    }

    /// Has all workers reset the streams that hold most memory. A worker that is too busy to hear of it now hears of the next
    /// time. Does not wait.
    pub fn relieve(&self, relief: &Relief) {
        for sender in &self.senders {
            let _ = sender.try_send(Message::Relieve(relief.clone()));
        }
    }

    /// Connections of all listeners in force that count for the bound of all together.
    pub fn connections(&self) -> usize {
        let state = self.state();
        let listeners = state.plan.iter().flat_map(|plan| &plan.listeners);
        listeners.filter(|listener| !listener.model.bypasses_bound).map(|listener| listener.connections()).sum()
    }

    /// Whether the proxy is to say of itself that it is not healthy.
    pub async fn fail_health(&self, fails: bool) {
        self.ask(|heard| Message::FailHealth(fails, heard)).await;
    }

    /// Counts the requests of each route, for so long.
    pub async fn watch_routes(&self, time: Duration) {
        self.broadcast(|| Message::WatchRoutes(time)).await;
    }

    /// Closes the sockets of these listeners and drains their connections.
    pub async fn stop_listeners(&self, names: &[String]) {
        self.broadcast(|| Message::StopListeners { names: names.to_vec() }).await;
    }

    /// The sink of statistics for `model`, where it is reached through a cluster: what it is told the first worker sends.
    /// `started` is since when there are statistics.
    pub fn sink(&self, model: &StatsSink, started: SystemTime) -> Option<Box<dyn Sink>> {
        let worker = self.senders.first()?;
        sinks::sink(model, started, || worker.clone())
    }

    /// What each worker sees, in their order.
    pub async fn inspect(&self) -> Vec<Report> {
        self.ask(Message::Inspect).await
    }

    /// Hands all log lines gathered so far to the writer.
    pub async fn flush_logs(&self) {
        self.ask(Message::Flush).await;
    }

    /// Ends all workers, whatever they are at.
    pub async fn stop(&self) {
        self.broadcast(|| Message::Stop).await;
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // A worker that panicked has said so already.
            let _ = thread.join();
        }
    }

    /// What the workers answer, in their order; one that is gone says nothing.
    async fn ask<T>(&self, message: impl Fn(oneshot::Sender<T>) -> Message) -> Vec<T> {
        let mut waiting = Vec::new();
        for sender in &self.senders {
            let (reply, wait) = oneshot::channel();
            if sender.send(message(reply)).await.is_ok() {
                waiting.push(wait);
            }
        }
        let mut answers = Vec::new();
        for wait in waiting {
            answers.extend(wait.await.ok());
        }
        answers
    }

    async fn broadcast(&self, message: impl Fn() -> Message) {
        for sender in &self.senders {
            // A worker that is gone needs no message.
            let _ = sender.send(message()).await;
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sockets for the listeners that need new ones: one set per worker, last worker first.
    #[expect(clippy::type_complexity, reason = "sockets per worker and addresses per listener, used once")]
    fn open_sockets(
        &self,
        plan: &Plan,
    ) -> Result<(Vec<HashMap<String, Vec<Bound>>>, HashMap<String, Vec<Address>>), ApplyError> {
        let state = self.state();
        let ours = |address: &Address| state.bound.values().flatten().any(|bound| bound == address);
        let mut per_worker: Vec<HashMap<String, Vec<Bound>>> = Vec::new();
        per_worker.resize_with(self.senders.len(), HashMap::new);
        let mut bound = HashMap::new();
        for listener in &plan.listeners {
            let model = &listener.model;
            let running = state.plan.as_ref().and_then(|plan| plan.listener(&model.name));
            if let (Some(running), Some(addresses)) = (running, state.bound.get(&model.name))
                && keeps_sockets(&running.model, model)
            {
                bound.insert(model.name.clone(), addresses.clone());
                continue;
            }
            let mut addresses = Vec::new();
            for (address, options) in model.addresses.iter().zip(&model.sockets).filter(|_| model.binds) {
                let refuse = |error| ApplyError::Bind { listener: model.name.clone(), address: address.clone(), error };
                let mut actual = address.clone();
                if !ours(address) {
                    refuse_shared(address, options).map_err(refuse)?;
                }
                let mut first: Option<Bound> = None;
                for sockets in &mut per_worker {
                    let socket = match (&first, &actual) {
                        (Some(first), Address::Unix { .. }) => first.try_clone().map_err(refuse)?,
                        (Some(first), Address::Tcp(_)) if model.one_queue => first.try_clone().map_err(refuse)?,
                        _ => open(&actual, model, options).map_err(refuse)?,
                    };
                    if let (Bound::Tcp(socket), Address::Tcp(any)) = (&socket, &actual)
                        && any.port() == 0
                    {
                        actual = Address::Tcp(socket.local_addr().map_err(refuse)?);
                    }
                    let list = sockets.entry(model.name.clone()).or_default();
                    if first.is_none() {
                        first = Some(socket.try_clone().map_err(refuse)?);
                    }
                    list.push(socket);
                }
                addresses.push(actual);
            }
            bound.insert(model.name.clone(), addresses);
        }
        Ok((per_worker, bound))
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for sender in &self.senders {
            // A full mailbox closes with the sender.
            let _ = sender.try_send(Message::Stop);
        }
    }
}

/// Whether a changed listener may go on with the sockets that it has.
fn keeps_sockets(old: &Listener, new: &Listener) -> bool {
    old.addresses == new.addresses
        && old.binds == new.binds
        && old.sockets == new.sockets
        && old.backlog == new.backlog
        && old.one_queue == new.one_queue
}

/// Sockets that share a port would also share it with another process that does the same, which is nearly always a
/// mistake: half of the connections would go elsewhere.
fn refuse_shared(address: &Address, options: &SocketOptions) -> io::Result<()> {
    match address {
        Address::Tcp(address) => {
            let alone = ListenOptions { backlog: 1, ipv4: options.ipv4_compat, ..ListenOptions::default() };
            postrider_sys::listen(&Place::Tcp(*address), &alone).map(drop)
        }
        Address::Unix { .. } => Ok(()),
    }
}

fn open(address: &Address, listener: &Listener, options: &SocketOptions) -> io::Result<Bound> {
    let keepalive = options.keepalive.as_ref();
    let options = ListenOptions {
        backlog: listener.backlog,
        reuse_port: !listener.one_queue,
        multipath: options.multipath,
        freebind: options.freebind,
        transparent: options.transparent,
        fast_open: options.tcp_fast_open,
        ipv4: options.ipv4_compat,
        keepalive: keepalive.map(|k| postrider_sys::keepalive(k.probes, k.time, k.interval)),
        numbered: crate::io::system_options(&options.numbered),
    };
    match address {
        Address::Tcp(address) => postrider_sys::listen(&Place::Tcp(*address), &options),
        Address::Unix { path, mode } => postrider_sys::listen(&Place::Unix(path, *mode), &options),
    }
}

fn open_logs(plan: &Plan, writer: &LogWriter) -> Result<HashMap<postrider_model::AccessLogSink, LogFile>, ApplyError> {
    let mut files = HashMap::new();
    let checks = plan.snapshot.clusters.iter().flat_map(|cluster| &cluster.health.checks);
    let sinks = plan.access_logs().filter_map(AccessLog::sink).chain(checks.flat_map(|check| &check.event_logs));
    let outliers = plan.snapshot.clusters.iter().filter_map(|cluster| cluster.outliers.as_ref());
    let sinks = sinks.chain(outliers.filter_map(|outliers| outliers.event_log.as_ref()));
    for sink in sinks {
        if !files.contains_key(sink) {
            let file = writer
                .open(crate::log::target(sink))
                .map_err(|error| ApplyError::AccessLog { path: format!("{sink:?}"), error })?;
            files.insert(sink.clone(), file);
        }
    }
    Ok(files)
}
