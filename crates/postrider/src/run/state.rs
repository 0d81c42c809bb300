//! What the running process knows about itself, and the admin's view of it.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use postrider_admin::{
    ClusterStatus, Control, Drain, EndpointStatus, HealthFlag, History, HistoryEntry, ListenerStatus, OutlierStatus,
    PluginRefused, PluginStatus, RateComparison, RuntimeStatus, Served, ServerState, TlsContextStatus,
};
use postrider_config_envoy::{Dump, Runtime};
use postrider_filter_plugin::json::to_json;
use postrider_model::{Admin, EndpointHealth, Leaving, Snapshot, StatsRules, StringMatch, Value as Metadata};
use postrider_telemetry::intervals::{Interval, Intervals};
use postrider_telemetry::{KnownScope, Registry};
use postrider_worker::{Fleet, HostReport, Report};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::discovery::LookupsByCluster;
use super::values::Change;
use super::{plugins, scopes, told};
use crate::certificates;
use crate::config::Manifests;

/// What the admin may ask of the main loop.
#[derive(Debug)]
pub enum Order {
    /// Values of the runtime; answered when they are in force or refused.
    ModifyRuntime(Vec<Change>, std::sync::mpsc::SyncSender<Result<(), String>>),
    /// A plugin's manifest, or `None` for none any more; answered in the same way.
    ChangePlugin(String, Option<String>, std::sync::mpsc::SyncSender<Result<(), PluginRefused>>),
    Drain(Drain),
    Quit,
    ReopenLogs,
    /// Requests are counted by route, for so long.
    WatchRoutes(Duration),
}

/// How long the admin waits until other values of the runtime are in force: a large configuration is read within a second.
const MODIFY_TIMEOUT: Duration = Duration::from_secs(30);

/// How long an interval of statistics lasts unless the configuration says otherwise.
const INTERVAL: Duration = Duration::from_secs(5);

/// What flags say that the admin tells.
pub struct Told {
    /// For `/server_info`.
    pub command_line: Value,
    /// Tags of all statistics.
    pub stats_tags: Vec<(String, String)>,
}

/// Shared by the main loop and the admin's thread.
pub struct State {
    pub fleet: Arc<Fleet>,
    pub registry: Registry,
    pub history: History,
    pub sinks: super::sinks::Sinks,
    intervals: Intervals,
    started: SystemTime,
    lookups: LookupsByCluster,
    by_flags: Told,
    phase: AtomicU8,
    failing_health: AtomicBool,
    current: Mutex<Option<Current>>,
    orders: mpsc::Sender<Order>,
    admin_log: Mutex<Option<super::admin_log::AdminLog>>,
    /// What the admin may be asked for.
    allowed: Mutex<Vec<StringMatch>>,
}

/// The configuration in force.
#[derive(Clone)]
pub struct Current {
    pub snapshot: Arc<Snapshot>,
    pub dump: Dump,
    pub runtime: Arc<Runtime>,
    /// The manifests that the admin brought.
    pub manifests: Manifests,
    pub since: SystemTime,
}

impl State {
    pub fn new(
        fleet: Arc<Fleet>,
        registry: Registry,
        lookups: LookupsByCluster,
        by_flags: Told,
        orders: mpsc::Sender<Order>,
    ) -> State {
        State {
            fleet,
            registry,
            history: History::default(),
            sinks: super::sinks::Sinks::default(),
            intervals: Intervals::default(),
            started: SystemTime::now(),
            lookups,
            by_flags,
            phase: AtomicU8::new(ServerState::PreInitializing as u8),
            failing_health: AtomicBool::new(false),
            current: Mutex::default(),
            orders,
            admin_log: Mutex::default(),
            allowed: Mutex::default(),
        }
    }

    pub fn enter(&self, phase: ServerState) {
        self.phase.store(phase as u8, Relaxed);
    }

    pub fn current(&self) -> Option<Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Bounds what the admin may be asked for, as the configuration says.
    pub fn allow(&self, admin: Option<&Admin>) {
        let paths = admin.map(|admin| admin.allow_paths.clone()).unwrap_or_default();
        *self.allowed.lock().unwrap_or_else(PoisonError::into_inner) = paths;
    }

    pub fn set_current(&self, current: Current) {
        self.allow(current.snapshot.admin.as_ref());
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(current);
    }

    pub fn set_admin_log(&self, log: Option<super::admin_log::AdminLog>) {
        *self.admin_log.lock().unwrap_or_else(PoisonError::into_inner) = log;
    }

    fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.current().map(|current| current.snapshot)
    }

    fn reports(&self) -> Vec<Report> {
        awaited(self.fleet.inspect()).unwrap_or_default()
    }

    fn order(&self, order: Order) {
        // A main loop that has so many orders waiting is busy with the same ones.
        let _ = self.orders.try_send(order);
    }
}

/// What the workers were asked for, awaited on a thread of its own because the caller's runs a runtime already.
fn awaited<T: Send>(answer: impl Future<Output = T> + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let wait = || Some(tokio::runtime::Builder::new_current_thread().build().ok()?.block_on(answer));
        scope.spawn(wait).join().ok().flatten()
    })
}

impl Control for State {
    fn state(&self) -> ServerState {
        let phases =
            [ServerState::Live, ServerState::Draining, ServerState::PreInitializing, ServerState::Initializing];
        let phase = self.phase.load(Relaxed);
        let phase = phases.into_iter().find(|known| *known as u8 == phase).unwrap_or(ServerState::Draining);
        match phase {
            ServerState::Live if self.failing_health.load(Relaxed) => ServerState::Draining,
            phase => phase,
        }
    }

    fn started(&self) -> SystemTime {
        self.started
    }

    fn version(&self) -> String {
        crate::version::build()
    }

    fn command_line_options(&self) -> Value {
        self.by_flags.command_line.clone()
    }

    fn node(&self) -> Value {
        let node = self.snapshot().map(|snapshot| snapshot.node.clone()).unwrap_or_default();
        let mut shown = json!({"id": node.id, "cluster": node.cluster});
        if let Metadata::Map(_) = node.metadata {
            shown["metadata"] = to_json(&node.metadata);
        }
        let is_somewhere = [&node.region, &node.zone, &node.sub_zone].into_iter().any(|part| !part.is_empty());
        if is_somewhere {
            shown["locality"] = json!({"region": node.region, "zone": node.zone, "sub_zone": node.sub_zone});
        }
        if let Value::Object(shown) = &mut shown {
            shown.extend(crate::version::of_node(true));
            for list in ["client_features", "listening_addresses"] {
                shown.insert(list.into(), json!([]));
            }
            shown.insert("dynamic_parameters".into(), json!({}));
        }
        shown
    }

    fn heap_size(&self) -> u64 {
        postrider_sys::heap_size()
    }

    fn config_dump(&self) -> Vec<Value> {
        let Some(current) = self.current() else { return Vec::new() };
        current.dump.sections(&rfc3339(current.since), crate::version::of_node(false))
    }

    fn clusters(&self) -> Vec<ClusterStatus> {
        let Some(snapshot) = self.snapshot() else { return Vec::new() };
        let reports = self.reports();
        snapshot.clusters.iter().map(|cluster| cluster_status(cluster, &reports)).collect()
    }

    fn listeners(&self) -> Vec<ListenerStatus> {
        self.fleet
            .listeners()
            .into_iter()
            .filter_map(|(name, mut addresses)| {
                let address = if addresses.is_empty() { return None } else { addresses.remove(0) };
                Some(ListenerStatus { name, address, additional_addresses: addresses })
            })
            .collect()
    }

    fn plugins(&self) -> Vec<PluginStatus> {
        let mut all = self.fleet.plan().map(|plan| plugins::statuses(&plan)).unwrap_or_default();
        let current = self.current();
        let manifests = current.as_ref().map(|current| &current.manifests);
        for status in &mut all {
            status.is_by_admin = manifests.is_some_and(|manifests| manifests.contains_key(&status.name));
        }
        all
    }

    fn certificates(&self) -> Vec<TlsContextStatus> {
        self.fleet.plan().map(|plan| certificates::statuses(&plan)).unwrap_or_default()
    }

    fn history(&self) -> Vec<HistoryEntry> {
        self.history.entries()
    }

    fn statistics(&self) -> &Registry {
        &self.registry
    }

    fn stats_rules(&self) -> Option<Arc<StatsRules>> {
        let snapshot = self.snapshot()?;
        told::rules(&snapshot, &self.fleet.listeners(), &self.by_flags.stats_tags)
    }

    fn asked_for_statistics(&self) {
        self.sinks.asked();
    }

    fn interval(&self) -> Option<Arc<Interval>> {
        let period = self.stats_rules().and_then(|rules| rules.interval).unwrap_or(INTERVAL);
        let registry = self.registry.clone();
        self.intervals.ask(period, move || registry.read(&[]))
    }

    fn known_scopes(&self) -> Vec<KnownScope> {
        match self.fleet.plan() {
            Some(plan) => {
                let mut known = scopes::known(&plan, &self.fleet.listeners(), self.fleet.workers());
                let looked_up = plan.clusters.iter().filter_map(|cluster| {
                    let lookups = self.lookups.of(&cluster.model.name)?;
                    Some(scopes::of_lookups(&cluster.model, &lookups))
                });
                known.extend(looked_up);
                known.push(scopes::of_listeners(self.fleet.draining(), self.fleet.pinned()));
                known.extend(self.reported_scopes());
                known
            }
            None => Vec::new(),
        }
    }

    fn drain_listeners(&self, drain: Drain) {
        self.order(Order::Drain(drain));
    }

    fn quit(&self) {
        self.order(Order::Quit);
    }

    fn reopen_logs(&self) {
        self.order(Order::ReopenLogs);
    }

    fn fail_health_checks(&self, fail: bool) {
        self.failing_health.store(fail, Relaxed);
        // Not by way of the main loop: whoever asked may rely on it when the answer is there, whatever the loop is at.
        awaited(self.fleet.fail_health(fail));
    }

    fn watch_routes(&self, time: Duration) {
        self.order(Order::WatchRoutes(time));
    }

    fn tap(&self, request: &[u8], only_failed: bool) -> Result<postrider_admin::Tap, String> {
        super::tap::open(request, only_failed)
    }

    fn allows(&self, target: &str) -> bool {
        let allowed = self.allowed.lock().unwrap_or_else(PoisonError::into_inner);
        allowed.is_empty() || allowed.iter().any(|path| path.matches(target))
    }

    fn runtime(&self) -> RuntimeStatus {
        let Some(current) = self.current() else { return RuntimeStatus::default() };
        let layers = current.runtime.layers().map(str::to_owned).collect();
        RuntimeStatus { layers, entries: current.runtime.table() }
    }

    fn modify_runtime(&self, changes: Vec<Change>) -> Result<(), String> {
        let (done, answer) = std::sync::mpsc::sync_channel(1);
        let sent = self.orders.try_send(Order::ModifyRuntime(changes, done));
        sent.map_err(|_| "the process is busy with other orders\n".to_owned())?;
        match answer.recv_timeout(MODIFY_TIMEOUT) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => {
                Err("the values will hold when the process has the time for it\n".to_owned())
            }
            Err(RecvTimeoutError::Disconnected) => Err("the process is about to end\n".to_owned()),
        }
    }

    fn manifest(&self, plugin: &str) -> Option<String> {
        self.current()?.manifests.get(plugin).cloned()
    }

    fn change_plugin(&self, plugin: &str, manifest: Option<String>) -> Result<(), PluginRefused> {
        let busy = |words: &str| PluginRefused::Busy(words.to_owned());
        let (done, answer) = std::sync::mpsc::sync_channel(1);
        let sent = self.orders.try_send(Order::ChangePlugin(plugin.to_owned(), manifest, done));
        sent.map_err(|_| busy("the process is busy with other orders\n"))?;
        match answer.recv_timeout(MODIFY_TIMEOUT) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => {
                Err(busy("the plugin will be changed when the process has the time for it; /history tells\n"))
            }
            Err(RecvTimeoutError::Disconnected) => Err(busy("the process is about to end\n")),
        }
    }

    fn served(&self, served: &Served<'_>) {
        if let Some(log) = &mut *self.admin_log.lock().unwrap_or_else(PoisonError::into_inner) {
            log.write(served);
        }
    }
}

impl State {
    /// Those of clusters whose endpoints are told apart, or chosen by tables. Workers are asked only where there are some.
    fn reported_scopes(&self) -> Vec<KnownScope> {
        let Some(snapshot) = self.snapshot() else { return Vec::new() };
        let is_told = |cluster: &Arc<postrider_model::Cluster>| {
            cluster.measures.endpoints || cluster.balancing.policy.is_hashing()
        };
        // Who asks for these has them counted up to now, as other counters are.
        let by_zone = snapshot.local_cluster.is_some();
        let is_counted = |cluster: &Arc<postrider_model::Cluster>| {
            is_told(cluster) || by_zone || cluster.balancing.subsets.is_some()
        };
        if !snapshot.clusters.iter().any(is_counted) {
            return Vec::new();
        }
        let reports = self.reports();
        let table_of = |name: &str| {
            let mut clusters = reports.iter().flat_map(|report| &report.clusters);
            clusters.find_map(|report| report.table.filter(|_| *report.name == *name))
        };
        let mut scopes = Vec::new();
        for cluster in snapshot.clusters.iter().filter(|cluster| is_told(cluster)) {
            if cluster.measures.endpoints {
                let endpoints = cluster_status(cluster, &reports).endpoints;
                scopes.extend(endpoints.iter().map(|endpoint| scopes::of_endpoint(cluster, endpoint)));
            }
            scopes.extend(scopes::of_table(cluster, table_of(&cluster.name)));
        }
        scopes
    }
}

fn cluster_status(cluster: &postrider_model::Cluster, reports: &[Report]) -> ClusterStatus {
    let mut endpoints: Vec<EndpointStatus> = Vec::new();
    let ours = reports.iter().flat_map(|report| &report.clusters).filter(|report| *report.name == *cluster.name);
    // The worker that decides knows, and the others do not.
    let compared = |at: usize| {
        let known = ours.clone().find_map(|report| report.comparisons.get(at).copied().flatten());
        known.map(|known| RateComparison { average: known.mean, threshold: known.least })
    };
    let outliers = OutlierStatus { answers: compared(0), local_origin: compared(1) };
    for host in ours.flat_map(|report| &report.hosts) {
        let known = endpoints.iter_mut().find(|known| known.address == host.endpoint.address);
        let status = match known {
            Some(known) => known,
            None => {
                let mut fresh = EndpointStatus::new(host.endpoint.address.clone());
                fresh.hostname = host.endpoint.hostname.clone();
                fresh.weight = host.endpoint.weight;
                fresh.priority = host.endpoint.priority;
                fresh.canary = host.endpoint.is_canary();
                fresh.additional_addresses.clone_from(&host.endpoint.additional);
                fresh.metadata.clone_from(&host.endpoint.metadata);
                if let Some(check) = &host.endpoint.check {
                    fresh.check_hostname.clone_from(&check.hostname);
                    fresh.check_port = check.port;
                }
                fresh.health = health_flags(host);
                [fresh.success_rate, fresh.local_origin_success_rate] = host.success_rates;
                if let Some(place) = &host.endpoint.place {
                    fresh.region.clone_from(&place.region);
                    fresh.zone.clone_from(&place.zone);
                    fresh.sub_zone.clone_from(&place.sub_zone);
                }
                endpoints.push(fresh);
                let Some(fresh) = endpoints.last_mut() else { continue };
                fresh
            }
        };
        status.cx_active += host.connections_active;
        status.cx_total += host.connections_total;
        status.cx_connect_fail += host.connect_failures;
        status.rq_active += host.requests_active;
        status.rq_total += host.requests_total;
        status.rq_success += host.requests_success;
        status.rq_error += host.requests_error;
        status.rq_timeout += host.requests_late;
        status.rq_pending_active += host.requests_waiting;
    }
    ClusterStatus {
        name: cluster.name.clone(),
        observability_name: cluster.stat_name.clone().unwrap_or_else(|| cluster.name.clone()),
        default_priority: cluster.thresholds,
        high_priority: cluster.high_thresholds,
        overprovisioning: cluster.balancing.overprovisioning,
        added_via_api: false,
        outliers: cluster.outliers.is_some().then_some(outliers),
        endpoints,
    }
}

/// In Envoy's order.
fn health_flags(host: &HostReport) -> Vec<HealthFlag> {
    let configured = host.endpoint.health;
    let is_draining = host.endpoint.leaving == Some(Leaving::Draining);
    [
        (host.health.failed, HealthFlag::FailedActiveCheck),
        (host.ejected, HealthFlag::FailedOutlierCheck),
        (configured == EndpointHealth::Unhealthy && !is_draining, HealthFlag::FailedByConfiguration),
        (host.health.degraded, HealthFlag::DegradedActiveCheck),
        (configured == EndpointHealth::Degraded, HealthFlag::DegradedByConfiguration),
        (host.removed, HealthFlag::PendingRemoval),
        (host.health.excluded, HealthFlag::ExcludedByItself),
        (host.health.timed_out, HealthFlag::ActiveCheckTimeout),
        (is_draining, HealthFlag::DrainingByConfiguration),
        (host.degraded, HealthFlag::DegradedByItself),
    ]
    .into_iter()
    .filter_map(|(holds, flag)| holds.then_some(flag))
    .collect()
}

fn rfc3339(at: SystemTime) -> String {
    let mut text = Vec::new();
    postrider_telemetry::time::write(&postrider_telemetry::time::TimePattern::iso8601(), at, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}
