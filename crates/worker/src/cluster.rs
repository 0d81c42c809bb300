//! A cluster as one worker runs it, and the connections to its hosts.

mod apart;
mod connect;
mod open;
mod pool;
mod preconnect;
mod soundness;
mod upstream;

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use postrider_filter_api::{UpstreamObjects, UpstreamOverride};
use postrider_http::{HeadLimits, HeaderName, RequestHead, Version};
use postrider_model::{Address, Discovery, Endpoint, Metadata, NameForm, ProxyHeader, UpstreamProtocol, UpstreamTls};
use postrider_sys::TcpKeepalive;
use postrider_telemetry::Block;
use postrider_telemetry::stats::OWN_ROOT;
use postrider_telemetry::stats::sets::{
    cluster as stat, cluster_alternative, cluster_health, cluster_http2, cluster_manager, cluster_outlier,
    cluster_single_hosts, cluster_sizes, cluster_subsets, cluster_timeout_budget, cluster_transport, cluster_zones,
};
use postrider_upstream::{Choice, Endpoints, Health, LocalBreakers, OnPanic, Random, Surroundings};

use crate::destination::Destinations;
use crate::h2::Pool;
use crate::health::Check;
use crate::io;
use crate::outlier::Watch;
use crate::party::{Caller, Parting, Partings, Party};
use crate::plan::ClusterPlan;
use crate::worker::Worker;

use apart::Apart;
pub(crate) use connect::{NoConnection, alpn};
use open::Source;
pub(crate) use upstream::{Account, Active, Upstream};

pub(crate) type Hosts = postrider_upstream::Cluster<Box<Upstream>>;
pub(crate) type Host = postrider_upstream::Host<Box<Upstream>>;

/// Most names by which requests ask to be counted; one worker keeps so many for a cluster, and others count for the cluster
/// alone.
const MAX_ALTERNATIVES: usize = 100;

/// A name of requests' own, and where they are counted by it.
type Alternative = (Box<[u8]>, Rc<Block>);

/// Thousands may be there without traffic: what most of them do without is in boxes.
pub(crate) struct Cluster {
    pub(crate) plan: Arc<ClusterPlan>,
    /// What it is meant to be now: the plan's model, or one that [continues](postrider_model::Cluster::continues) it.
    pub(crate) now: RefCell<Arc<postrider_model::Cluster>>,
    pub(crate) name: Rc<str>,
    pub(crate) hosts: Hosts,
    /// How names are written over HTTP/1, and whether those that come go on.
    pub(crate) names: NameForm,
    /// Over HTTP/1, requests name what they ask for by a whole URL.
    pub(crate) absolute_targets: bool,
    pub(crate) breakers: LocalBreakers,
    /// For a cluster without endpoints of its own.
    pub(crate) destinations: Option<Box<Destinations>>,
    /// Connections are made before they are needed.
    pub(crate) preconnects: bool,
    /// Tries are measured, or may take so long only.
    pub(crate) looks_at_tries: bool,
    /// Its hosts are checked, and may say themselves that they fail.
    pub(crate) is_checked: bool,
    /// Some of its hosts' answers count apart.
    pub(crate) tells_apart: bool,
    apart: Apart,
    /// More is measured of tries than usual.
    pub(crate) is_measured: bool,
    /// Not every connection serves every request.
    partings: Option<Box<Partings>>,
    /// Connections that carry many requests at once.
    pub(crate) streams: Pool,
    keepalive: Option<Box<TcpKeepalive>>,
    socket_options: Box<[postrider_sys::NumberedOption]>,
    /// Where its connections come from, if anything is said of it.
    sources: Box<[Source]>,
    /// Made with the first request: a cluster without traffic holds no statistics.
    stats: OnceCell<Rc<Block>>,
    /// Checks of hosts, each a task: on the worker that checks.
    pub(crate) checks: RefCell<Vec<Check>>,
    /// Rung when the health of a host changed.
    pub(crate) health_changed: tokio::sync::Notify,
    /// Made with the first TLS connection.
    ssl_stats: OnceCell<Rc<Block>>,
    /// Made with the first check.
    health_stats: OnceCell<Rc<Block>>,
    /// Who decides about outliers: on the worker that does.
    pub(crate) outliers: RefCell<Option<Box<Watch>>>,
    outlier_stats: OnceCell<Rc<Block>>,
    /// Its hosts were counted before: on the first worker.
    is_counted: Cell<bool>,
    /// Where hosts are known by their labels.
    subset_stats: OnceCell<Rc<Block>>,
    /// Where a subset was to have one host and there were more.
    single_host_stats: OnceCell<Rc<Block>>,
    /// Where it is known in which zone the proxy stands.
    zone_stats: OnceCell<Rc<Block>>,
    /// Made with the first try, where they are wanted.
    budget_stats: OnceCell<Rc<Block>>,
    /// What requests are counted in by names of their own.
    alternatives: RefCell<Vec<Alternative>>,
    size_stats: OnceCell<Rc<Block>>,
    /// What its filters made when they came into force.
    _arrived: Box<[Rc<dyn Any>]>,
}

impl Cluster {
    pub(crate) fn new(plan: &Arc<ClusterPlan>, worker: &Worker) -> Rc<Cluster> {
        let keepalive = plan.model.upstream.keepalive.as_ref();
        let (monitors, open) = (plan.monitors.clone(), plan.open.clone());
        let prefix = filter_prefix(plan);
        let place = worker.place(&prefix, plan.model.buffer_limit as usize);
        let filters = plan.filters.iter().flatten();
        let cluster = Rc::new_cyclic(|itself| Cluster {
            hosts: Hosts::among(
                Surroundings { monitors, open, home: worker.home.clone(), panics: on_panic(itself, worker) },
                plan.model.balancing.clone(),
                plan.model.health.clone(),
                &plan.initial,
                &worker.random,
            ),
            names: plan.model.upstream.names,
            absolute_targets: plan.model.upstream.absolute_targets,
            outliers: RefCell::default(),
            outlier_stats: OnceCell::new(),
            is_counted: Cell::new(!plan.initial.0.is_empty()),
            subset_stats: OnceCell::new(),
            single_host_stats: OnceCell::new(),
            zone_stats: OnceCell::new(),
            socket_options: io::system_options(&plan.model.upstream.socket_options).into(),
            sources: plan.model.upstream.sources.iter().map(Source::new).collect(),
            keepalive: keepalive.map(|k| Box::new(postrider_sys::keepalive(k.probes, k.time, k.interval))),
            preconnects: plan.model.preconnect.is_some(),
            is_checked: !plan.model.health.checks.is_empty(),
            tells_apart: apart::has_some(&plan.model.discovery),
            apart: Apart::default(),
            is_measured: plan.model.measures.is_of_tries(),
            looks_at_tries: plan.model.measures.is_of_tries()
                || plan.model.upstream.max_stream_duration.is_some()
                || plan.retry.is_some()
                || !plan.model.upstream.mirrors.is_empty(),
            alternatives: RefCell::default(),
            budget_stats: OnceCell::new(),
            size_stats: OnceCell::new(),
            partings: partings(&plan.model),
            destinations: match &plan.model.discovery {
                Discovery::Original(model) => Some(Box::new(Destinations::new(model))),
                Discovery::Static(_) | Discovery::StrictDns(_) | Discovery::LogicalDns(_) => None,
            },
            streams: Pool::default(),
            stats: OnceCell::new(),
            checks: RefCell::default(),
            health_changed: tokio::sync::Notify::new(),
            ssl_stats: OnceCell::new(),
            health_stats: OnceCell::new(),
            _arrived: filters.filter_map(|filter| filter.arrive(&place)).collect(),
            name: (*plan.name).into(),
            breakers: Rc::new(plan.breakers.clone()),
            now: RefCell::new(plan.model.clone()),
            plan: plan.clone(),
        });
        cluster.count_transports(&plan.initial.0, &[], worker);
        cluster
    }

    pub(crate) fn stats(&self, worker: &Worker) -> &Rc<Block> {
        self.stats.get_or_init(|| worker.stats.block(&stat::SET, &self.stat_prefix()))
    }

    pub(crate) fn health_stats(&self, worker: &Worker) -> &Rc<Block> {
        self.health_stats.get_or_init(|| worker.stats.block(&cluster_health::SET, &self.stat_prefix()))
    }

    /// What a request is counted in that brings a name for it; `None` where there are too many names.
    #[cold]
    pub(crate) fn alternative_stats(&self, name: &[u8], worker: &Worker) -> Option<Rc<Block>> {
        if name.is_empty() {
            return None;
        }
        let mut known = self.alternatives.borrow_mut();
        if let Some((_, block)) = known.iter().find(|(known, _)| **known == *name) {
            return Some(block.clone());
        }
        if known.len() >= MAX_ALTERNATIVES {
            return None;
        }
        let prefix = format!("{}.{}", self.stat_prefix(), String::from_utf8_lossy(name));
        let block = worker.stats.block(&cluster_alternative::SET, &prefix);
        known.push((name.into(), block.clone()));
        Some(block)
    }

    /// `None` where nobody wants to know.
    #[cold]
    pub(crate) fn budget_stats(&self, worker: &Worker) -> Option<&Rc<Block>> {
        let make = || worker.stats.block(&cluster_timeout_budget::SET, &self.stat_prefix());
        self.plan.model.measures.timeout_budgets.then(|| self.budget_stats.get_or_init(make))
    }

    /// `None` where nobody wants to know.
    #[cold]
    pub(crate) fn size_stats(&self, worker: &Worker) -> Option<&Rc<Block>> {
        let make = || worker.stats.block(&cluster_sizes::SET, &self.stat_prefix());
        self.plan.model.measures.sizes.then(|| self.size_stats.get_or_init(make))
    }

    pub(crate) fn outlier_stats(&self, worker: &Worker) -> &Rc<Block> {
        self.outlier_stats.get_or_init(|| worker.stats.block(&cluster_outlier::SET, &self.stat_prefix()))
    }

    /// What filters count by that are this cluster's.
    pub(crate) fn filter_prefix(&self) -> String {
        filter_prefix(&self.plan)
    }

    /// What it is called where it is watched.
    pub(crate) fn shown_name(&self) -> &str {
        self.plan.model.stat_name.as_deref().unwrap_or(&self.name)
    }

    /// What its statistics are found by.
    pub(crate) fn stat_prefix(&self) -> String {
        stat_prefix(&self.plan)
    }

    /// How large the head of an answer may be.
    #[inline]
    pub(crate) fn response_limits(&self) -> HeadLimits {
        let options = &self.plan.model.upstream;
        HeadLimits {
            max_bytes: options.max_response_head_bytes as usize,
            max_fields: options.max_response_headers as usize,
        }
    }

    /// Requests of this worker that wait for a connection.
    pub(crate) fn pending(&self, worker: &Worker) -> u64 {
        self.stats(worker).gauge(stat::UPSTREAM_RQ_PENDING_ACTIVE)
    }

    /// What to speak for a request that came as `version`.
    #[inline]
    pub(crate) fn protocol_for(&self, version: Version) -> UpstreamProtocol {
        match (self.plan.model.upstream.protocol, version) {
            (UpstreamProtocol::SameAsClient, Version::Http2) => UpstreamProtocol::Http2,
            (UpstreamProtocol::SameAsClient, Version::Http10 | Version::Http11) => UpstreamProtocol::Http1,
            (protocol, _) => protocol,
        }
    }

    /// For whom the connection of a request to `host` is, or one without a request, where it may serve no other.
    #[inline]
    pub(crate) fn party<'c>(
        &self,
        host: &Host,
        request: Option<&RequestHead>,
        caller: impl FnOnce() -> Caller<'c>,
    ) -> Option<Box<Party>> {
        let partings = self.partings.as_ref()?;
        self.parting_of(partings, &host.endpoint).map(|parting| parting.of(request, caller()))
    }

    #[cold]
    fn parting_of<'p>(&self, partings: &'p Partings, endpoint: &Endpoint) -> Option<&'p Parting> {
        let model = &self.plan.model;
        match model.transport_for(endpoint.metadata.as_deref(), endpoint.place.as_deref()) {
            Some(index) => partings.others.get(index)?.as_ref(),
            None => partings.own.as_ref(),
        }
    }

    /// The same for one upon whose objects the connection depends.
    #[cold]
    pub(crate) fn party_with<'c>(
        &self,
        host: &Host,
        request: Option<&RequestHead>,
        caller: impl FnOnce() -> Caller<'c>,
        objects: Option<&UpstreamObjects>,
    ) -> Option<Box<Party>> {
        let party = self.party(host, request, caller);
        let Some(objects) = objects.filter(|objects| !objects.wishes.is_empty()) else { return party };
        Some(Box::new(Party { wishes: objects.wishes.clone(), ..party.map(|party| *party).unwrap_or_default() }))
    }

    /// Takes over what may have changed since it began, whether or not it has. Who looks for outliers learns it when they are
    /// [supervised](crate::outlier::supervise) next.
    pub(crate) fn adjust(&self, model: &Arc<postrider_model::Cluster>, worker: &Worker) {
        *self.now.borrow_mut() = model.clone();
        self.breakers.limit_to(&model.thresholds, &model.high_thresholds);
        self.hosts.adjust(model.health.panic_threshold, &model.balancing, &worker.random);
    }

    /// New endpoints; connections to those that are gone close.
    pub(crate) fn update(self: &Rc<Cluster>, endpoints: &Endpoints, worker: &Rc<Worker>) {
        let before = self.plan.model.balancing.closes_on_change.then(|| self.hosts.all());
        let known = (worker.id == 0).then(|| self.addresses());
        let hosts = if self.plan.transports.is_empty() { Vec::new() } else { self.hosts.all() };
        drop(self.hosts.update(endpoints, &worker.random));
        self.count_transports(&endpoints.0, &hosts, worker);
        if let Some(known) = known {
            self.weigh(worker);
            if known != self.addresses() {
                self.count_change(worker);
            }
        }
        if before.is_some_and(|before| before.iter().any(|host| host.is_retired())) {
            self.streams.clear();
        }
        if !self.checks.borrow().is_empty() {
            crate::health::supervise(self, worker);
        }
        if self.outliers.borrow().is_some() {
            crate::outlier::supervise(self, worker);
        }
        self.count_members(worker);
        worker.look_at_peers(self);
    }

    /// Of all hosts, in order.
    fn addresses(&self) -> Vec<String> {
        let mut addresses: Vec<_> = self.hosts.all().iter().map(|host| host.endpoint.address.to_string()).collect();
        addresses.sort_unstable();
        addresses
    }

    /// Names were looked up, though the addresses may be those that stand in the file: tells of the heaviest host.
    fn weigh(&self, worker: &Worker) {
        if let Discovery::StrictDns(_) = self.plan.model.discovery {
            let heaviest = self.hosts.all().iter().map(|host| host.endpoint.weight).max();
            self.stats(worker).gauge_set(stat::MAX_HOST_WEIGHT, heaviest.map_or(1, u64::from));
        }
    }

    /// There are other hosts than before.
    fn count_change(&self, worker: &Worker) {
        self.stats(worker).inc(stat::MEMBERSHIP_CHANGE);
        if self.is_counted.replace(true) {
            self.count_update(worker);
        }
    }

    /// Those of endpoints that are not among these hosts: counted by the first worker.
    fn count_transports(&self, endpoints: &[Arc<Endpoint>], known: &[Rc<Host>], worker: &Worker) {
        // Of hosts that stay what they are, readers know the number.
        let counts = !self.plan.transports.is_empty() || !matches!(self.plan.model.discovery, Discovery::Static(_));
        if worker.id == 0 && counts {
            let is_new = |endpoint: &&Arc<Endpoint>| !known.iter().any(|host| host.endpoint == **endpoint);
            let new = endpoints.iter().filter(is_new);
            new.for_each(|endpoint| self.count_transport(endpoint, endpoint.metadata.as_deref(), worker));
        }
    }

    /// Connections to this endpoint will have their transport by what is said `about` it.
    #[cold]
    pub(crate) fn count_transport(&self, endpoint: &Endpoint, about: Option<&Metadata>, worker: &Worker) {
        let model = &self.plan.model;
        let index = model.transport_for(about, endpoint.place.as_deref());
        let Some(transport) = index.and_then(|index| model.transports.get(index)) else {
            return self.stats(worker).inc(stat::DEFAULT_TRANSPORT);
        };
        let prefix = transport_prefix(&self.stat_prefix(), &transport.name);
        worker.stats.block(&cluster_transport::SET, &prefix).inc(cluster_transport::TOTAL_MATCH_COUNT);
    }

    /// Its hosts, or how they are, changed while it was in force: counted by the first worker.
    fn count_update(&self, worker: &Worker) {
        if worker.id == 0 {
            worker.stats.block(&cluster_manager::SET, "").inc(cluster_manager::CLUSTER_UPDATED);
        }
    }

    /// A host is left out because of its answers, or back, or degraded because of them.
    pub(crate) fn look_at_ejection(&self, endpoint: &Endpoint, worker: &Worker) {
        let Some(monitors) = &self.plan.monitors else { return };
        let monitor = monitors.of(endpoint);
        self.hosts.set_judged(endpoint, (monitor.is_ejected(), monitor.is_degraded()), &worker.random);
        self.count_update(worker);
        self.count_members(worker);
        worker.look_at_peers(self);
    }

    /// What a check found out about a host.
    pub(crate) fn set_health(self: &Rc<Cluster>, endpoint: &Endpoint, health: Health, worker: &Rc<Worker>) {
        drop(self.hosts.set_health(endpoint, health, &worker.random));
        self.count_update(worker);
        if !self.checks.borrow().is_empty() {
            crate::health::supervise(self, worker);
        }
        self.health_changed.notify_waiters();
        worker.look_at_peers(self);
    }

    /// Ready when `host` fails its checks.
    pub(crate) async fn failure_of(&self, host: Rc<Host>) {
        loop {
            let mut changed = std::pin::pin!(self.health_changed.notified());
            // Before looking, so that no change comes between.
            changed.as_mut().enable();
            if host.health.get().failed {
                return;
            }
            changed.await;
        }
    }

    /// The host that a filter wants, or another if it may be another.
    #[cold]
    pub(crate) fn pick_wanted(
        &self,
        wanted: &UpstreamOverride,
        choice: Choice<'_>,
        random: &Random,
    ) -> Option<Rc<Host>> {
        let found = self.hosts.at(&Address::Tcp(wanted.address));
        found.or_else(|| self.hosts.pick_for(choice, random).filter(|_| !wanted.strict))
    }

    /// How many hosts there are, where that can change: counted by the first worker.
    pub(crate) fn count_members(&self, worker: &Worker) {
        let model = &self.plan.model;
        let fixed = matches!(model.discovery, Discovery::Static(_)) && model.health.checks.is_empty();
        if worker.id != 0 || fixed && self.plan.monitors.is_none() {
            return;
        }
        let stats = self.stats(worker);
        let members = self.hosts.members();
        stats.gauge_set(stat::MEMBERSHIP_TOTAL, members.all as u64);
        stats.gauge_set(stat::MEMBERSHIP_HEALTHY, members.healthy as u64);
        stats.gauge_set(stat::MEMBERSHIP_DEGRADED, members.degraded as u64);
        stats.gauge_set(stat::MEMBERSHIP_EXCLUDED, members.excluded as u64);
    }

    /// Tells what was done about zones, where they count.
    pub(crate) fn count_zones(&self, worker: &Worker) {
        let Some(counts) = self.hosts.take_zone_counts() else { return };
        let stats = self.zone_stats.get_or_init(|| worker.stats.block(&cluster_zones::SET, &self.stat_prefix()));
        stats.add(cluster_zones::ALL_DIRECTLY, counts.all_directly);
        stats.add(cluster_zones::SAMPLED, counts.sampled);
        stats.add(cluster_zones::CROSS_ZONE, counts.cross_zone);
        stats.add(cluster_zones::NO_CAPACITY_LEFT, counts.no_capacity_left);
        stats.add(cluster_zones::LOCAL_CLUSTER_NOT_OK, counts.local_cluster_not_ok);
        stats.add(cluster_zones::CLUSTER_TOO_SMALL, counts.cluster_too_small);
        stats.add(cluster_zones::RECALCULATED, counts.recalculated);
    }

    /// Tells what happened to the subsets of hosts, where there are some.
    pub(crate) fn count_subsets(&self, worker: &Worker) {
        let Some(counts) = self.hosts.take_subset_counts() else { return };
        let stats = self.subset_stats.get_or_init(|| worker.stats.block(&cluster_subsets::SET, &self.stat_prefix()));
        stats.gauge_set(cluster_subsets::ACTIVE, counts.active);
        stats.add(cluster_subsets::CREATED, counts.created);
        stats.add(cluster_subsets::REMOVED, counts.removed);
        stats.add(cluster_subsets::SELECTED, counts.selected);
        stats.add(cluster_subsets::FALLBACK, counts.fallback);
        stats.add(cluster_subsets::FALLBACK_PANIC, counts.fallback_panic);
        if counts.duplicates > 0 || self.single_host_stats.get().is_some() {
            let set = &cluster_single_hosts::SET;
            let stats = self.single_host_stats.get_or_init(|| worker.stats.block(set, &self.stat_prefix()));
            stats.gauge_set(cluster_single_hosts::DUPLICATE, counts.duplicates);
        }
    }

    /// A connection ends whose peer answers no PING.
    #[cold]
    pub(crate) fn count_dead_peer(&self, worker: &Worker) {
        worker.stats.block(&cluster_http2::SET, &self.stat_prefix()).inc(cluster_http2::KEEPALIVE_TIMEOUT);
    }
}

impl Drop for Cluster {
    /// Pooled connections hold their host and it holds them: the ring is cut here.
    fn drop(&mut self) {
        self.checks.take().iter().for_each(|check| check.task.abort());
        drop(self.outliers.take());
        drop(self.hosts.clear());
        if let Some(destinations) = &self.destinations {
            destinations.clear();
        }
        self.streams.clear();
    }
}

/// Counts requests of the cluster that go to any of its hosts because too few are well.
fn on_panic(cluster: &Weak<Cluster>, worker: &Worker) -> OnPanic {
    let (cluster, worker) = (cluster.clone(), worker.itself.clone());
    OnPanic::new(move || {
        if let (Some(cluster), Some(worker)) = (cluster.upgrade(), worker.upgrade()) {
            cluster.stats(&worker).inc(stat::LB_HEALTHY_PANIC);
        }
    })
}

/// What the choice of a transport with a name is counted by.
pub fn transport_prefix(cluster: &str, name: &str) -> String {
    format!("{cluster}.{}", stat_name(name))
}

/// What filters count by that are the cluster's.
pub(crate) fn filter_prefix(plan: &ClusterPlan) -> String {
    format!("{OWN_ROOT}cluster.{}", stat_prefix(plan))
}

fn stat_prefix(plan: &ClusterPlan) -> String {
    stat_name(plan.model.stat_name.as_deref().unwrap_or(&plan.name))
}

/// As Envoy writes names into statistics.
pub(crate) fn stat_name(name: &str) -> String {
    name.replace(':', "_")
}

pub(crate) fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn partings(model: &postrider_model::Cluster) -> Option<Box<Partings>> {
    let by_client = model.upstream.pool_per_client;
    let parting = |tls: Option<&UpstreamTls>, introduced: Option<&ProxyHeader>| {
        let by_host = tls.is_some_and(|tls| tls.request_sni);
        let by_ends = introduced.is_some();
        let header = tls.and_then(|tls| HeaderName::new(tls.sni_header.as_ref()?.as_bytes()).ok());
        let passed = introduced.map(|header| header.passed.clone()).unwrap_or_default();
        (by_host || by_ends || by_client).then_some(Parting { by_host, header, by_ends, passed, by_client })
    };
    let own = parting(model.tls.as_deref(), model.proxy_header.as_deref());
    let others: Vec<_> =
        model.transports.iter().map(|it| parting(it.tls.as_deref(), it.proxy_header.as_deref())).collect();
    (own.is_some() || others.iter().any(Option::is_some)).then(|| Box::new(Partings { own, others }))
}
