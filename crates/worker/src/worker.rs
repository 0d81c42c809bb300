//! One worker: a thread with its own runtime, listeners, clusters, pools, buffers, timers and counters. Nothing here is
//! shared with another worker but what `Shared` and the plans hold.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use postrider_filter_api::{Host, Moment, Place, Remote};
use postrider_h1::HeadScan;
use postrider_http::{Decimal, FieldLine, Fields, HeaderId};
use postrider_model::{AccessLogSink, LogService, Node};
use postrider_telemetry::access_log::{LogBuffer, LogFile};
use postrider_telemetry::stats::sets::{CALLS, http_calls};
use postrider_telemetry::{Block, WorkerStats};
use postrider_upstream::{Home, Random, Zone};
use tokio::runtime::LocalOptions;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::ahead::Ahead;
use crate::buffers::Buffers;
use crate::chain::Chain;
use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::h2::Lanes;
use crate::host::Detached;
use crate::http::Exchange;
use crate::idle_memory::IdleMemory;
use crate::listener::Listener;
use crate::log::{PluginLogs, ServiceLog};
use crate::message::{Apply, ClusterReport, HostReport, MakeAhead, Message, Report, Warm};
use crate::otlp::Exporters;
use crate::overload::Overload;
use crate::plan::ClusterPlan;
use crate::services::Services;
use crate::sinks;
use crate::timers::Timers;

/// Exchanges kept for reuse: as many as were ever under way at once, up to this.
const MAX_SPARE_EXCHANGES: usize = 256;

/// How often pools, clocks and log buffers are looked after.
const HOUSEKEEPING: Duration = Duration::from_secs(1);

/// How connections are asked to end.
#[derive(Clone, Copy)]
pub(crate) struct Draining {
    since: Moment,
    over: Duration,
    inbound_only: bool,
}

pub(crate) struct Worker {
    pub(crate) id: u32,
    pub(crate) buffers: Buffers,
    pub(crate) timers: Rc<Timers>,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    /// For heads that come in one piece, which is nearly all.
    pub(crate) scan: RefCell<HeadScan>,
    pub(crate) stats: WorkerStats,
    /// Who the proxy says it is.
    pub(crate) node: RefCell<Rc<Node>>,
    /// Rises with each change of the clusters; 0 is never.
    pub(crate) cluster_epoch: Cell<u64>,
    /// Where the proxy stands among those of its cluster, if one is named.
    pub(crate) home: Rc<Home>,
    local_cluster: RefCell<Option<Arc<str>>>,
    clusters: RefCell<HashMap<Arc<str>, Rc<Cluster>>>,
    /// Their hosts are being checked before the plan with them is in force.
    warming: RefCell<HashMap<Arc<str>, Rc<Cluster>>>,
    /// For routes that come into force with the next plan.
    pub(crate) ahead: Ahead,
    listeners: RefCell<HashMap<String, Rc<Listener>>>,
    log_files: RefCell<HashMap<AccessLogSink, LogFile>>,
    /// A log tells bytes on connections, so that those of HTTP/2 that are made from now on follow their streams.
    pub(crate) meters: Cell<bool>,
    /// How long lines wait at most; the same for all files.
    flush_interval: Cell<Duration>,
    log_buffers: RefCell<HashMap<AccessLogSink, Rc<RefCell<LogBuffer>>>>,
    /// As long as a chain writes to them.
    log_services: RefCell<Vec<Weak<ServiceLog>>>,
    /// Collectors that are told of requests.
    pub(crate) exporters: Exporters,
    /// The plugins that access logs are told to.
    pub(crate) log_plugins: PluginLogs,
    /// What runs without any listener.
    pub(crate) services: Services,
    /// Of calls, once there was one.
    calls: OnceCell<Rc<Block>>,
    /// What carries statistics to their sinks.
    carriers: RefCell<Vec<JoinHandle<()>>>,
    /// For streams of HTTP/2.
    pub(crate) lanes: Lanes,
    idle_memory: IdleMemory,
    #[expect(clippy::vec_box, reason = "an exchange is kilobytes: its box moves, it does not")]
    exchanges: RefCell<Vec<Box<Exchange>>>,
    date: RefCell<DateCache>,
    service_time: RefCell<Option<(u64, FieldLine)>>,
    next_id: Cell<u64>,
    /// Workers there are, and a way to each.
    pub(crate) peers: OnceCell<Vec<mpsc::Sender<Message>>>,
    pub(crate) draining: Cell<Option<Draining>>,
    /// How long connections of what a plan dropped may last.
    pub(crate) drain_time: Duration,
    /// The proxy is to say of itself that it is not healthy.
    pub(crate) fails_health: Cell<bool>,
    /// Somebody watches which routes requests find, until then.
    pub(crate) routes_watched_until: Cell<Moment>,
    /// No new connections, and idle ones end at once.
    pub(crate) stopping: Cell<bool>,
    /// Requests and tunnels under way.
    pub(crate) busy: Cell<usize>,
    pub(crate) overload: Overload,
    /// What filters have of this worker outside of streams.
    pub(crate) host: Rc<dyn Host>,
    remote: OnceCell<Remote>,
    /// For what reaches it later, and does not keep it.
    pub(crate) itself: Weak<Worker>,
}

struct DateCache {
    /// The moment for which it was looked up last.
    at: SystemTime,
    second: u64,
    line: Option<FieldLine>,
}

/// Threads beside a worker's own, for the private keys' work of handshakes. As with workers, a processor has one.
const HANDSHAKE_THREADS: usize = 1;

/// What such a thread gives way by, in steps of `nice`: a worker that has something to do is preferred, and a handshake
/// still gets its share.
const HANDSHAKE_NICENESS: i32 = 5;

fn give_way() {
    // A system that refuses leaves things as fair as they are.
    let _ = rustix::process::nice(HANDSHAKE_NICENESS);
}

impl Worker {
    /// Runs a worker on the calling thread until it is told to stop or everybody who could tell it is gone.
    pub(crate) fn run(
        id: u32,
        drain_time: Duration,
        stats: WorkerStats,
        peers: Vec<mpsc::Sender<Message>>,
        messages: mpsc::Receiver<Message>,
    ) -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .on_thread_unpark(Clock::woke_up)
            .max_blocking_threads(HANDSHAKE_THREADS)
            .on_thread_start(give_way)
            .build_local(LocalOptions::default())?;
        postrider_filter_api::count_here(&stats);
        let worker = Rc::new_cyclic(|worker| Worker::new(id, drain_time, stats, worker.clone()));
        let _ = worker.peers.set(peers);
        runtime.block_on(worker.serve(messages));
        Ok(())
    }

    fn new(id: u32, drain_time: Duration, stats: WorkerStats, itself: Weak<Worker>) -> Worker {
        Worker {
            id,
            drain_time,
            buffers: Buffers::default(),
            timers: Timers::new(),
            clock: Clock::default(),
            random: Random::default(),
            scan: RefCell::default(),
            stats,
            node: RefCell::default(),
            cluster_epoch: Cell::new(0),
            home: Rc::default(),
            calls: OnceCell::new(),
            local_cluster: RefCell::default(),
            clusters: RefCell::default(),
            warming: RefCell::default(),
            ahead: Ahead::default(),
            listeners: RefCell::default(),
            log_files: RefCell::default(),
            flush_interval: Cell::new(HOUSEKEEPING),
            meters: Cell::new(false),
            log_buffers: RefCell::default(),
            log_services: RefCell::default(),
            exporters: Exporters::default(),
            log_plugins: PluginLogs::default(),
            services: Services::default(),
            carriers: RefCell::default(),
            lanes: Lanes::default(),
            idle_memory: IdleMemory::default(),
            exchanges: RefCell::default(),
            date: RefCell::new(DateCache { at: SystemTime::UNIX_EPOCH, second: 0, line: None }),
            service_time: RefCell::default(),
            next_id: Cell::new(0),
            peers: OnceCell::new(),
            draining: Cell::new(None),
            fails_health: Cell::new(false),
            routes_watched_until: Cell::default(),
            stopping: Cell::new(false),
            busy: Cell::new(0),
            overload: Overload::default(),
            host: Rc::new(Detached(itself.clone())),
            remote: OnceCell::new(),
            itself,
        }
    }

    async fn serve(self: Rc<Self>, mut messages: mpsc::Receiver<Message>) {
        let clock = self.clone();
        tokio::task::spawn_local(self.timers.clone().sweep_for_ever(move || clock.clock.now()));
        let mut housekeeping = tokio::time::interval(HOUSEKEEPING);
        housekeeping.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut flushing = self.flushing();
        loop {
            if flushing.period() != self.flush_interval.get() {
                flushing = self.flushing();
            }
            tokio::select! {
                biased;
                message = messages.recv() => match message {
                    None | Some(Message::Stop) => break,
                    Some(message) => self.clone().handle(message),
                },
                _ = housekeeping.tick() => self.keep_house(),
                _ = flushing.tick() => self.flush_logs(),
            }
        }
        self.flush_logs();
        tokio::join!(self.finish_log_services(), self.exporters.finish(), self.finish_carriers());
        // Sinks of statistics are among them: they were told the last of it.
        self.services.end();
        // Pooled connections and listeners' tasks hold the worker that holds them: the rings are cut here.
        drop(self.clusters.take());
        drop(self.warming.take());
        self.ahead.clear();
        drop(self.listeners.take());
    }

    /// Where filters run.
    #[inline]
    pub(crate) fn place<'p>(&'p self, stat_prefix: &'p str, buffer_limit: usize) -> Place<'p> {
        Place { stats: &self.stats, stat_prefix, worker: self.id, buffer_limit, head_limits: None, host: &self.host }
    }

    /// A way here for other threads; who runs what comes by it begins with the first that wants one.
    pub(crate) fn remote(&self) -> Remote {
        let begin = || {
            let (remote, jobs) = Remote::new();
            tokio::task::spawn_local(async move {
                loop {
                    for job in std::future::poll_fn(|cx| jobs.poll(cx)).await {
                        job();
                    }
                }
            });
            remote
        };
        self.remote.get_or_init(begin).clone()
    }

    fn handle(self: Rc<Self>, message: Message) {
        match message {
            Message::Apply(apply) => self.apply(*apply),
            Message::Endpoints { cluster, endpoints } => {
                if let Some(cluster) = self.cluster(&cluster) {
                    cluster.update(&endpoints, &self);
                }
            }
            Message::MakeAhead(ahead) => self.make_ahead(*ahead),
            Message::Warm(warm) => self.warm(*warm),
            Message::Health { cluster, endpoint, health } => {
                let warming = self.warming.borrow().get(&cluster).cloned();
                for cluster in warming.into_iter().chain(self.cluster(&cluster)) {
                    cluster.set_health(&endpoint, health, &self);
                }
            }
            Message::Resigned { cluster, endpoint } => {
                if let Some(cluster) = self.cluster(&cluster) {
                    crate::health::take_resignation(&cluster, &endpoint);
                }
            }
            Message::Outlier { cluster, endpoint, cause } => {
                if let Some(cluster) = self.cluster(&cluster) {
                    crate::outlier::judge(&cluster, &self, &endpoint, cause);
                }
            }
            Message::Ejection { cluster, endpoint } => {
                if let Some(cluster) = self.cluster(&cluster) {
                    cluster.look_at_ejection(&endpoint, &self);
                }
            }
            Message::PublishHealth => self.publish_health(),
            Message::Connection { listener, stream, peer } => {
                if let Some(listener) = self.listeners.borrow().get(&listener).cloned() {
                    listener.adopt(&self, stream, peer);
                }
            }
            Message::Drain { stop_accepting, over, inbound_only } => {
                self.draining.set(Some(Draining { since: self.clock.now(), over, inbound_only }));
                if stop_accepting {
                    self.stopping.set(true);
                    self.listeners.borrow().values().for_each(|listener| listener.stop_accepting());
                }
                self.timers.wake_all();
            }
            Message::Strain(strain) => {
                self.overload.bear(strain);
                if self.overload.hurries.get() {
                    self.timers.wake_all();
                }
            }
            Message::Relieve(relief) => {
                tokio::task::spawn_local(async move { self.overload.accounts.relieve(&relief, &self.stats).await });
            }
            Message::FailHealth(fails, heard) => {
                self.fails_health.set(fails);
                self.listeners.borrow().values().for_each(|listener| listener.fail_health(fails));
                let _ = heard.send(());
            }
            Message::WatchRoutes(time) => {
                self.routes_watched_until.set(self.clock.exact() + time);
                self.listeners.borrow().values().for_each(|listener| listener.watch_routes());
            }
            Message::StopListeners { names } => {
                for name in names {
                    if let Some(listener) = self.listeners.borrow().get(&name) {
                        listener.stop_accepting();
                        listener.drain();
                    }
                }
                self.timers.wake_all();
            }
            Message::Carry(carrier) => {
                let carrier = tokio::task::spawn_local(sinks::carry(self.clone(), *carrier));
                let mut carriers = self.carriers.borrow_mut();
                carriers.retain(|carrier| !carrier.is_finished());
                carriers.push(carrier);
            }
            // Whoever asked may be gone; then nobody needs the answer.
            Message::Inspect(reply) => drop(reply.send(self.report())),
            Message::Flush(reply) => {
                self.flush_logs();
                let _ = reply.send(());
            }
            Message::Stop => {}
        }
    }

    /// Takes over a new plan. What did not change is not touched.
    fn apply(self: Rc<Self>, apply: Apply) {
        let Apply { plan, mut sockets, endpoints, health, logs, done } = apply;
        if let Some(log) = logs.values().next() {
            self.flush_interval.set(log.flush_interval().max(Duration::from_millis(1)));
        }
        *self.log_files.borrow_mut() = logs;
        *self.node.borrow_mut() = Rc::new(plan.snapshot.node.clone());
        self.log_buffers.borrow_mut().retain(|sink, _| self.log_files.borrow().contains_key(sink));
        self.log_plugins.apply(&plan.loggers, &self.place("", 0));
        let mut old = self.clusters.take();
        let mut clusters = HashMap::with_capacity(plan.clusters.len());
        let is_local = |cluster: &&Arc<ClusterPlan>| plan.snapshot.local_cluster.as_deref() == Some(&*cluster.name);
        let local = plan.clusters.iter().find(is_local);
        let models: HashMap<&str, _> = plan.snapshot.clusters.iter().map(|model| (&*model.name, model)).collect();
        // Until all clusters are there, nobody is to be told of it.
        self.local_cluster.take();
        let mut moved = local.is_none() && self.home.learn(None);
        // First the proxies of our own cluster, since they are news to the others.
        for cluster in local.into_iter().chain(plan.clusters.iter().filter(|cluster| !is_local(cluster))) {
            let kept = old.remove(&cluster.name).filter(|old| Arc::ptr_eq(&old.plan, cluster));
            let warm = || self.warming.borrow_mut().remove(&cluster.name).filter(|w| Arc::ptr_eq(&w.plan, cluster));
            let running = kept.or_else(warm).unwrap_or_else(|| Cluster::new(cluster, &self));
            if let Some(model) = models.get(&*cluster.name) {
                running.adjust(model, &self);
            }
            if let Some(endpoints) = endpoints.get(&cluster.name) {
                running.update(endpoints, &self);
            }
            for (endpoint, health) in health.get(&cluster.name).into_iter().flatten() {
                running.set_health(endpoint, *health, &self);
            }
            crate::outlier::supervise(&running, &self);
            if is_local(&cluster) {
                let Node { region, zone, sub_zone, .. } = plan.snapshot.node.clone();
                moved = self.home.learn(Some((Zone { region, zone, sub_zone }, running.hosts.population())));
            }
            if moved {
                running.hosts.rearrange(&self.random);
            }
            clusters.insert(cluster.name.clone(), running);
        }
        *self.clusters.borrow_mut() = clusters;
        *self.local_cluster.borrow_mut() = local.map(|cluster| cluster.name.clone());
        drop(self.warming.take());
        self.cluster_epoch.set(self.cluster_epoch.get() + 1);
        // They may call clusters, and listeners' filters may count on them.
        self.services.apply(&plan.services, &self.place("", 0));
        let mut old = self.listeners.take();
        for listener in &plan.listeners {
            let name = listener.model.name.clone();
            let fresh = sockets.remove(&name).unwrap_or_default();
            let running = match old.remove(&name) {
                Some(running) if fresh.is_empty() => {
                    running.update(listener, &self);
                    running
                }
                gone => {
                    if let Some(gone) = gone {
                        gone.close(&self);
                    }
                    Listener::start(listener, fresh, &self)
                }
            };
            self.listeners.borrow_mut().insert(name, running);
        }
        old.into_values().for_each(|gone| gone.close(&self));
        self.ahead.clear();
        self.timers.wake_all();
        let _ = done.send(());
    }

    /// Has filters of routes to come make what they need, and tells when they did. Requests go on meanwhile.
    fn make_ahead(self: Rc<Self>, ahead: MakeAhead) {
        let MakeAhead { new, done } = ahead;
        tokio::task::spawn_local(async move {
            self.ahead.make(new, &self).await;
            // Whoever asked may be gone; then nobody needs the answer.
            let _ = done.send(());
        });
    }

    /// Whether it has listeners.
    pub(crate) fn serves(&self) -> bool {
        !self.listeners.borrow().is_empty()
    }

    /// Checks the hosts of clusters to come, and tells when each was checked once.
    fn warm(self: Rc<Self>, warm: Warm) {
        let Warm { clusters, endpoints, logs, done } = warm;
        self.log_files.borrow_mut().extend(logs);
        let mut warming = HashMap::new();
        for plan in clusters {
            let cluster = Cluster::new(&plan, &self);
            if let Some(endpoints) = endpoints.get(&plan.name) {
                cluster.update(endpoints, &self);
            }
            crate::health::supervise(&cluster, &self);
            warming.insert(plan.name.clone(), cluster);
        }
        *self.warming.borrow_mut() = warming.clone();
        tokio::task::spawn_local(async move {
            let known = crate::health::first_round(warming).await;
            // Whoever asked may be gone; then nobody needs the answer.
            let _ = done.send(known);
        });
    }

    /// What this worker's checks have found out, for all workers.
    fn publish_health(self: Rc<Self>) {
        let clusters: Vec<_> = self.clusters.borrow().values().cloned().collect();
        tokio::task::spawn_local(async move {
            for cluster in clusters.iter().filter(|cluster| !cluster.plan.model.health.checks.is_empty()) {
                for host in cluster.hosts.all() {
                    crate::health::publish(&self, &cluster.plan.name, &host.endpoint, host.health.get()).await;
                }
            }
        });
    }

    fn keep_house(&self) {
        self.clock.synchronise();
        let now = self.clock.now();
        self.clusters.borrow().values().for_each(|cluster| {
            cluster.sweep(now);
            self.count_choices(cluster);
        });
        self.idle_memory.give_back();
        postrider_telemetry::log::tell_left_out();
    }

    /// Tells what was counted where hosts are chosen, which knows no statistics.
    fn count_choices(&self, cluster: &Cluster) {
        cluster.count_subsets(self);
        cluster.count_zones(self);
    }

    /// Ticks when lines of logs are to be handed over.
    fn flushing(&self) -> tokio::time::Interval {
        let mut flushing = tokio::time::interval(self.flush_interval.get());
        flushing.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        flushing
    }

    fn flush_logs(&self) {
        self.log_buffers.borrow().values().for_each(|buffer| buffer.borrow_mut().flush());
    }

    /// The hosts of `cluster` changed: if they are the proxies of our own one, that is news to all clusters.
    pub(crate) fn look_at_peers(&self, cluster: &Cluster) {
        let is_local = self.local_cluster.borrow().as_ref().is_some_and(|name| *name == cluster.plan.name);
        if is_local && self.home.meet(cluster.hosts.population()) {
            self.clusters.borrow().values().for_each(|cluster| cluster.hosts.rearrange(&self.random));
        }
    }

    /// How many hosts the cluster has that lists the proxies of this one's kind; 0 without one.
    pub(crate) fn peers(&self) -> usize {
        let local = self.local_cluster.borrow();
        let cluster = local.as_ref().and_then(|name| self.clusters.borrow().get(name).cloned());
        cluster.map_or(0, |cluster| cluster.hosts.members().all)
    }

    /// A call begins, of a filter or of another part of the proxy.
    pub(crate) fn count_call(&self) {
        self.calls.get_or_init(|| self.stats.block(&http_calls::SET, CALLS)).inc(http_calls::RQ_TOTAL);
    }

    pub(crate) fn cluster(&self, name: &str) -> Option<Rc<Cluster>> {
        self.clusters.borrow().get(name).cloned()
    }

    /// The listener for connections to an address, whether or not it is bound there.
    pub(crate) fn listener_at(&self, destination: SocketAddr) -> Option<Rc<Listener>> {
        let listeners = self.listeners.borrow();
        let fits = listeners.values().filter_map(|listener| Some((listener.serves(destination)?, listener)));
        fits.min_by_key(|(fit, _)| *fit).map(|(_, listener)| listener.clone())
    }

    /// The worker's buffer for a sink; `None` when the sink was not opened.
    pub(crate) fn log_buffer(&self, sink: &AccessLogSink) -> Option<Rc<RefCell<LogBuffer>>> {
        if let Some(buffer) = self.log_buffers.borrow().get(sink) {
            return Some(buffer.clone());
        }
        let buffer = Rc::new(RefCell::new(self.log_files.borrow().get(sink)?.buffer()));
        self.log_buffers.borrow_mut().insert(sink.clone(), buffer.clone());
        Some(buffer)
    }

    /// What this worker has for a service; one for all loggers that say the same of it.
    pub(crate) fn log_service(self: &Rc<Self>, model: &Arc<LogService>) -> Rc<ServiceLog> {
        let mut known = self.log_services.borrow_mut();
        known.retain(|service| service.strong_count() > 0);
        if let Some(service) = known.iter().filter_map(Weak::upgrade).find(|service| service.is_of(model)) {
            return service;
        }
        let service = ServiceLog::start(model, self);
        known.push(Rc::downgrade(&service));
        service
    }

    /// Tells the services the last of it, all at once.
    async fn finish_log_services(&self) {
        let known = self.log_services.take();
        let finish = |service: Rc<ServiceLog>| tokio::task::spawn_local(async move { service.finish().await });
        let finished: Vec<_> = known.iter().filter_map(Weak::upgrade).map(finish).collect();
        for finished in finished {
            // One that panicked has nothing more to say.
            let _ = finished.await;
        }
    }

    /// The sinks are gone: what they left is sent, if that goes in time.
    async fn finish_carriers(&self) {
        let carriers = self.carriers.take();
        let finish = async {
            for carrier in carriers {
                // One that panicked has nothing more to send.
                let _ = carrier.await;
            }
        };
        let _ = tokio::time::timeout(sinks::FAREWELL, finish).await;
    }

    /// Connections of all listeners, on all workers, that count for the bound of all together.
    pub(crate) fn connections_of_all(&self) -> usize {
        let listeners = self.listeners.borrow();
        listeners.values().map(|listener| listener.connections_for_bound()).sum()
    }

    pub(crate) fn take_exchange(&self) -> Box<Exchange> {
        let spare = self.exchanges.borrow_mut().pop();
        spare.unwrap_or_else(|| Box::new(Exchange::new(self.clock.now())))
    }

    pub(crate) fn put_exchange(&self, exchange: Box<Exchange>) {
        let mut exchanges = self.exchanges.borrow_mut();
        if exchanges.len() < MAX_SPARE_EXCHANGES && exchange.is_small() {
            exchanges.push(exchange);
        }
    }

    /// Unique over all workers.
    pub(crate) fn next_connection_id(&self) -> u64 {
        let count = self.peers.get().map_or(1, Vec::len) as u64;
        let next = self.next_id.get();
        self.next_id.set(next + 1);
        next * count + u64::from(self.id)
    }

    /// Gives `add` the field that tells how many milliseconds an upstream took. Most take as long as the one before.
    pub(crate) fn with_service_time(&self, millis: u64, add: impl FnOnce(&FieldLine)) {
        let mut last = self.service_time.borrow_mut();
        if last.as_ref().is_none_or(|(known, _)| *known != millis) {
            let line = FieldLine::new(HeaderId::XEnvoyUpstreamServiceTime, Decimal::new(millis).as_bytes());
            *last = line.ok().map(|line| (millis, line));
        }
        if let Some((_, line)) = &*last {
            add(line);
        }
    }

    /// Gives a response its `date` if it has none (RFC 9110 section 6.6.1).
    pub(crate) fn date(&self, fields: &mut Fields) {
        let wall = self.clock.wall_now();
        let mut date = self.date.borrow_mut();
        if date.at != wall {
            date.at = wall;
            let second = wall.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
            if date.second != second || date.line.is_none() {
                date.second = second;
                let mut text = Vec::new();
                crate::format::write_http_date(wall, &mut text);
                date.line = FieldLine::new(HeaderId::Date, &text).ok();
            }
        }
        if let Some(line) = &date.line {
            let _ = fields.append_line_if_absent(line);
        }
    }

    /// Whether an answer should say now that its connection ends: under a gradual drain, the likelier the later.
    #[inline]
    pub(crate) fn drains(&self, chain: &Chain) -> bool {
        chain.draining.get() || self.draining.get().is_some_and(|draining| self.drains_by(draining, chain))
    }

    #[cold]
    fn drains_by(&self, Draining { since, over, inbound_only }: Draining, chain: &Chain) -> bool {
        if inbound_only && !chain.is_inbound() {
            return false;
        }
        let passed = self.clock.now().saturating_duration_since(since);
        passed >= over
            || (self.random.below(1 << 20) as f64) < passed.as_secs_f64() / over.as_secs_f64() * f64::from(1 << 20)
    }

    fn report(&self) -> Report {
        let clusters = self.clusters.borrow();
        clusters.values().for_each(|cluster| self.count_choices(cluster));
        let hosts = |cluster: &Cluster| {
            let mut hosts = Vec::new();
            cluster.hosts.each_host(|host| {
                hosts.push(HostReport {
                    endpoint: host.endpoint.clone(),
                    health: host.health.get(),
                    ejected: host.ejected.get(),
                    degraded: host.degraded.get(),
                    success_rates: crate::outlier::rates(cluster, &host.endpoint),
                    removed: host.removed.get(),
                    connections_active: u64::from(host.connections.get()),
                    connections_total: host.totals.connections.get(),
                    connect_failures: host.totals.connect_failures.get(),
                    requests_active: u64::from(host.active.get()),
                    requests_total: host.totals.requests.get(),
                    requests_success: host.totals.successes.get(),
                    requests_error: host.totals.errors.get(),
                    requests_late: host.totals.timeouts.get(),
                    requests_waiting: u64::from(host.waiting.get()),
                });
            });
            hosts
        };
        Report {
            clusters: clusters
                .values()
                .map(|cluster| ClusterReport {
                    name: cluster.plan.name.clone(),
                    hosts: hosts(cluster),
                    comparisons: crate::outlier::comparisons(cluster),
                    table: (self.id == 0).then(|| cluster.hosts.table_sizes(&self.random)).flatten(),
                })
                .collect(),
            connections: self.timers.count(),
            busy: self.busy.get(),
        }
    }
}
