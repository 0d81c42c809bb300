//! The statistics that a configuration brings into being, whether or not anything was counted yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime};

use postrider_admin::EndpointStatus;
use postrider_model::{
    Address, CheckKind, Cluster, ConnectionHandler, Discovery, EndpointHealth, HealthCheck, Listener, LoadBalancing,
    LogOutput, Priority, StatsSink, Thresholds,
};
use postrider_telemetry::stats::sets::{self, scope_of_address};
use postrider_telemetry::{KnownScope, ScopeTags};
use postrider_upstream::dns::Lookups;
use postrider_upstream::{Limited, TableSizes};
use postrider_worker::{ClusterPlan, Plan, TlsPlace, named_check_prefix, transport_prefix};

use crate::certificates;

/// The action of overload that resets streams; Envoy shows its count whether or not it is configured.
const RESETTING: &str = "envoy.overload_actions.reset_high_memory_stream";

/// Days until the first certificate ends, where there is none: as Envoy says it.
const NO_CERTIFICATE: u64 = u32::MAX as u64;

/// Every scope of `plan`. `listeners` are the running ones with their real addresses.
pub fn known(plan: &Plan, listeners: &[(String, Vec<Address>)], workers: usize) -> Vec<KnownScope> {
    let snapshot = &plan.snapshot;
    let mut scopes = vec![
        of_server(plan),
        KnownScope::new(&sets::cluster_manager::SET, ""),
        KnownScope::new(&sets::listener_manager::SET, ""),
        KnownScope::new(&sets::runtime::SET, ""),
        KnownScope::new(&sets::http1::SET, ""),
        KnownScope::new(&sets::http_calls::SET, sets::CALLS),
        KnownScope::new(&sets::overload::SET, ""),
        KnownScope::new(&sets::overload_reset::SET, RESETTING),
        KnownScope::new(&sets::filesystem::SET, ""),
        KnownScope::new(&sets::access_log::SET, ""),
    ];
    scopes.extend(of_threads(plan, workers));
    if plan.access_logs().any(|log| matches!(log.output, LogOutput::Entries(_))) {
        scopes.push(KnownScope::new(&sets::grpc_access_log::SET, ""));
    }
    for log in plan.access_logs() {
        if let LogOutput::Records(log) = &log.output {
            scopes.push(KnownScope::new(&sets::open_telemetry_access_log::SET, log.stat_prefix.clone()));
        }
    }
    let mut sinks = snapshot.stats_sinks.iter().flat_map(|sinks| &sinks.sinks);
    if sinks.any(|sink| matches!(sink, StatsSink::StatsdTcp { .. })) {
        scopes.push(KnownScope::new(&sets::statsd::SET, ""));
    }
    if snapshot.listeners.iter().any(|listener| listener.inspection.tls) {
        scopes.push(KnownScope::new(&sets::tls_inspector::SET, ""));
    }
    if snapshot.listeners.iter().any(|listener| listener.inspection.http) {
        scopes.push(KnownScope::new(&sets::http_inspector::SET, ""));
    }
    for listener in &snapshot.listeners {
        let Some(prefix) = listener_prefix(listener, listeners) else { continue };
        if let Some(proxy) = &listener.inspection.proxy {
            scopes.push(KnownScope::new(&sets::proxy_protocol::SET, scope_of_address(&proxy.stat_prefix)));
            scopes.push(KnownScope::new(&sets::proxy_protocol_errors::SET, ""));
        }
        for worker in 0..workers {
            scopes.push(KnownScope::new(&sets::listener_worker::SET, format!("{prefix}.worker_{worker}")));
        }
        for chain in listener.filter_chains.iter().chain(&listener.default_filter_chain) {
            match &chain.handler {
                ConnectionHandler::Http(http) => {
                    let stat_prefix = scope_of_address(&http.stat_prefix);
                    let of_listener = format!("{prefix}.http.{stat_prefix}");
                    scopes.push(KnownScope::new(&sets::listener_http::SET, of_listener));
                    scopes.push(KnownScope::new(&sets::http_tracing::SET, format!("{stat_prefix}.tracing")));
                    if http.tracing.as_ref().is_some_and(|tracing| tracing.tracer.is_some()) {
                        scopes.push(KnownScope::new(&sets::tracing_opentelemetry::SET, ""));
                    }
                    if http.measures_routes {
                        scopes.push(KnownScope::new(&sets::http_routes::SET, stat_prefix.clone()));
                    }
                    scopes.push(KnownScope::new(&sets::http::SET, stat_prefix));
                }
                ConnectionHandler::Tcp(tcp) => {
                    scopes.push(KnownScope::new(&sets::tcp::SET, scope_of_address(&tcp.stat_prefix)));
                }
                ConnectionHandler::Echo | ConnectionHandler::Say(_) | ConnectionHandler::Filters => {}
            }
        }
        if listener.filter_chains.iter().chain(&listener.default_filter_chain).any(|chain| chain.tls.is_some()) {
            scopes.push(KnownScope::new(&sets::listener_ssl::SET, prefix.clone()));
        }
        scopes.push(KnownScope::new(&sets::listener_discovery::SET, prefix.clone()));
        scopes.push(KnownScope::new(&sets::listener::SET, prefix));
    }
    scopes.extend(groups(plan).into_iter().map(|prefix| KnownScope::new(&sets::group::SET, prefix)));
    scopes.extend(of_certificates(plan, listeners));
    scopes.extend(plan.clusters.iter().map(|cluster| of_cluster(cluster)));
    scopes.extend(plan.clusters.iter().flat_map(|cluster| remaining(cluster)));
    let watched = plan.clusters.iter().filter(|cluster| cluster.model.outliers.is_some());
    scopes.extend(watched.map(|cluster| KnownScope::new(&sets::cluster_outlier::SET, cluster_prefix(&cluster.model))));
    for cluster in &plan.clusters {
        let prefix = cluster_prefix(&cluster.model);
        let checks = &cluster.model.health.checks;
        let sets = [
            (true, &sets::cluster_subsets::SET),
            (true, &sets::cluster_zones::SET),
            (cluster.model.balancing.subsets.is_some(), &sets::cluster_single_hosts::SET),
            (cluster.each_transport().any(|transport| transport.tls.is_some()), &sets::cluster_ssl::SET),
            (checks.iter().any(is_in_http1), &sets::cluster_http1::SET),
        ];
        let there = sets.into_iter().filter(|(there, _)| *there);
        scopes.extend(there.map(|(_, set)| KnownScope::new(set, prefix.clone())));
    }
    let measuring = plan.clusters.iter().filter(|cluster| cluster.model.measures.is_of_tries());
    for cluster in measuring {
        let (measures, prefix) = (cluster.model.measures, cluster_prefix(&cluster.model));
        let wanted = [
            (measures.timeout_budgets, &sets::cluster_timeout_budget::SET),
            (measures.sizes, &sets::cluster_sizes::SET),
        ];
        let wanted = wanted.into_iter().filter(|(wanted, _)| *wanted);
        scopes.extend(wanted.map(|(_, set)| KnownScope::new(set, prefix.clone())));
    }
    for cluster in plan.clusters.iter().filter(|cluster| !cluster.transports.is_empty()) {
        let (prefix, named) = (cluster_prefix(&cluster.model), cluster.model.transports.iter());
        let known = |name: &str| KnownScope::new(&sets::cluster_transport::SET, transport_prefix(&prefix, name));
        scopes.extend(named.map(|transport| known(&transport.name)));
    }
    let introduces = |cluster: &ClusterPlan| cluster.each_transport().any(|transport| transport.proxy_header.is_some());
    let introducing = plan.clusters.iter().filter(|cluster| introduces(cluster));
    scopes
        .extend(introducing.map(|cluster| KnownScope::new(&sets::cluster_proxy::SET, cluster_prefix(&cluster.model))));
    let checked = plan.clusters.iter().filter(|cluster| !cluster.model.health.checks.is_empty());
    for cluster in checked {
        let prefix = cluster_prefix(&cluster.model);
        let named = cluster.model.health.checks.iter().filter(|check| !check.name.is_empty());
        scopes.extend(
            named.map(|check| {
                KnownScope::new(&sets::cluster_health_named::SET, named_check_prefix(&prefix, &check.name))
            }),
        );
        scopes.push(KnownScope::new(&sets::cluster_health::SET, prefix));
    }
    let plugins = super::plugins::scope_names(plan).into_iter();
    scopes.extend(plugins.map(|plugin| KnownScope::new(&postrider_filter_plugin::stat::plugin::SET, plugin)));
    scopes
}

/// What there is of each thread.
fn of_threads(plan: &Plan, workers: usize) -> Vec<KnownScope> {
    let threads = || std::iter::once("main_thread".to_owned()).chain((0..workers).map(|at| format!("worker_{at}")));
    let all = ["main_thread", "workers"].map(str::to_owned).into_iter();
    let watched = all.chain(threads().map(|thread| format!("server.{thread}")));
    let watched = watched.map(|thread| KnownScope::new(&sets::watchdog::SET, thread));
    let clusters = (sets::clusters_of_thread::CLUSTERS_INFLATED, plan.clusters.len() as u64);
    let of_clusters = threads().map(|thread| KnownScope {
        computed: vec![clusters],
        ..KnownScope::new(&sets::clusters_of_thread::SET, thread)
    });
    watched.chain(of_clusters).collect()
}

/// Whether a health check has a codec of HTTP/1.
fn is_in_http1(check: &HealthCheck) -> bool {
    matches!(&check.kind, CheckKind::Http(http) if !http.http2)
}

/// The prefixes of what requests count in beside their clusters.
pub fn groups(plan: &Plan) -> BTreeSet<String> {
    let chains = plan.listeners.iter().flat_map(|listener| listener.each_chain());
    let routes = chains.filter_map(|chain| chain.routes()).flat_map(|routes| &routes.routes);
    let groups = routes.filter_map(|route| route.groups.as_ref());
    groups.flat_map(|groups| groups.prefixes()).map(|prefix| prefix.to_string()).collect()
}

pub fn listener_prefix(listener: &Listener, running: &[(String, Vec<Address>)]) -> Option<String> {
    let bound = running.iter().find(|(name, _)| *name == listener.name);
    let address = bound.and_then(|(_, addresses)| addresses.first()).or(listener.addresses.first());
    match (&listener.stat_prefix, address) {
        (Some(prefix), _) => Some(scope_of_address(prefix)),
        (None, address) => address.map(|address| scope_of_address(&address.to_string())),
    }
}

fn of_server(plan: &Plan) -> KnownScope {
    use sets::server::*;
    let now = SystemTime::now();
    let days = certificates::days_until_first_ends(plan, now).unwrap_or(NO_CERTIFICATE);
    let mut scope = KnownScope::new(&SET, "");
    scope.computed = vec![
        (DAYS_UNTIL_FIRST_CERT_EXPIRING, days),
        (SECONDS_UNTIL_FIRST_OCSP_RESPONSE_EXPIRING, certificates::seconds_until_first_response_ends(plan, now)),
        (MEMORY_HEAP_SIZE, postrider_sys::heap_size()),
        (HOT_RESTART_GENERATION, 1),
    ];
    scope
}

/// When each certificate ends, by listener and cluster. Filter chains of one listener have their names in common.
fn of_certificates(plan: &Plan, running: &[(String, Vec<Address>)]) -> Vec<KnownScope> {
    let mut ends: BTreeMap<(bool, String), u64> = BTreeMap::new();
    for context in plan.tls_contexts() {
        let (of_cluster, prefix) = match context.place {
            TlsPlace::Chain { listener, .. } => {
                let model = plan.listener(listener).map(|plan| &plan.model);
                (false, model.and_then(|model| listener_prefix(model, running)))
            }
            TlsPlace::Cluster(name) => {
                let cluster = plan.clusters.iter().find(|cluster| cluster.model.name == name);
                (true, cluster.map(|cluster| cluster_prefix(&cluster.model)))
            }
        };
        let Some(prefix) = prefix else { continue };
        for (name, end) in certificates::expirations(&context) {
            let known = ends.entry((of_cluster, format!("{prefix}.ssl.certificate.{name}"))).or_insert(end);
            *known = end.min(*known);
        }
    }
    let scopes = ends.into_iter().map(|((of_cluster, prefix), end)| {
        let (set, gauge) = match of_cluster {
            true => (&sets::cluster_certificate::SET, sets::cluster_certificate::EXPIRATION_UNIX_TIME_SECONDS),
            false => (&sets::listener_certificate::SET, sets::listener_certificate::EXPIRATION_UNIX_TIME_SECONDS),
        };
        KnownScope { computed: vec![(gauge, end)], ..KnownScope::new(set, prefix) }
    });
    scopes.collect()
}

/// The prefix of a cluster's statistics.
pub fn cluster_prefix(cluster: &Cluster) -> String {
    scope_of_address(cluster.stat_name.as_deref().unwrap_or(&cluster.name))
}

/// What is no longer in force and still has connections: so many listeners, and so many filter chains of others. And how
/// many workers stay on one processor.
pub fn of_listeners((listeners, chains): (usize, usize), pinned: usize) -> KnownScope {
    use sets::listener_manager::*;
    let computed = vec![
        (TOTAL_LISTENERS_DRAINING, listeners as u64),
        (TOTAL_FILTER_CHAINS_DRAINING, chains as u64),
        (WORKERS_PINNED, pinned as u64),
    ];
    KnownScope { computed, ..KnownScope::new(&SET, "") }
}

/// How the names of a cluster were looked up.
pub fn of_lookups(cluster: &Cluster, lookups: &Lookups) -> KnownScope {
    use sets::cluster::*;
    let mut scope = KnownScope::new(&SET, cluster_prefix(cluster));
    scope.counted = vec![
        (UPDATE_ATTEMPT, lookups.attempts.load(Relaxed)),
        (UPDATE_SUCCESS, lookups.answers.load(Relaxed)),
        (UPDATE_FAILURE, lookups.failures.load(Relaxed)),
        (UPDATE_NO_REBUILD, lookups.unchanged.load(Relaxed)),
    ];
    scope
}

/// What workers say of an endpoint together.
pub fn of_endpoint(cluster: &Cluster, endpoint: &EndpointStatus) -> KnownScope {
    use sets::cluster_endpoint::*;
    let address = endpoint.address.to_string();
    let place = scope_of_address(&address);
    let tail = place.len();
    let mut tags = vec![("envoy.endpoint_address", address)];
    if !endpoint.hostname.is_empty() {
        tags.push(("envoy.endpoint_hostname", endpoint.hostname.clone()));
    }
    KnownScope {
        computed: vec![
            (CX_ACTIVE, endpoint.cx_active),
            (HEALTHY, u64::from(endpoint.is_healthy())),
            (RQ_ACTIVE, endpoint.rq_active),
            (RQ_PENDING_ACTIVE, endpoint.rq_pending_active),
        ],
        counted: vec![
            (CX_CONNECT_FAIL, endpoint.cx_connect_fail),
            (CX_TOTAL, endpoint.cx_total),
            (RQ_ERROR, endpoint.rq_error),
            (RQ_SUCCESS, endpoint.rq_success),
            (RQ_TIMEOUT, endpoint.rq_timeout),
            (RQ_TOTAL, endpoint.rq_total),
        ],
        tags: Some(Box::new(ScopeTags { tail, tags })),
        ..KnownScope::new(&SET, format!("{}.endpoint.{place}", cluster_prefix(cluster)))
    }
}

/// The table by which hosts are chosen, where a hash does it; without hosts there are zeros.
pub fn of_table(cluster: &Cluster, sizes: Option<TableSizes>) -> Option<KnownScope> {
    let sizes = sizes.unwrap_or(TableSizes { all: 0, fewest: 0, most: 0 });
    let (set, computed) = match &cluster.balancing.policy {
        LoadBalancing::Maglev(_) => {
            use sets::cluster_maglev::*;
            (&SET, vec![(MIN_ENTRIES_PER_HOST, sizes.fewest), (MAX_ENTRIES_PER_HOST, sizes.most)])
        }
        LoadBalancing::RingHash(_) => {
            use sets::cluster_ring_hash::*;
            let hosts = [(MIN_HASHES_PER_HOST, sizes.fewest), (MAX_HASHES_PER_HOST, sizes.most)];
            (&SET, [(SIZE, sizes.all)].into_iter().chain(hosts).collect())
        }
        _ => return None,
    };
    Some(KnownScope { computed, ..KnownScope::new(set, cluster_prefix(cluster)) })
}

/// What the breakers of a cluster have left, where that is asked for.
fn remaining(cluster: &ClusterPlan) -> Vec<KnownScope> {
    use sets::cluster_remaining::*;
    let model = &cluster.model;
    let priorities =
        [("default", &model.thresholds, Priority::Default), ("high", &model.high_thresholds, Priority::High)];
    let tracked = priorities.into_iter().filter(|(_, thresholds, _)| thresholds.track_remaining);
    let scope = |(name, thresholds, priority): (&str, &Thresholds, Priority)| {
        let breaker = |kind| cluster.breakers.breaker(priority, kind);
        let left = |kind| u64::from(breaker(kind).remaining());
        let retries = cluster.breakers.retry_limit(priority, now()).saturating_sub(breaker(Limited::Retries).held());
        let pools = match thresholds.max_connection_pools {
            Some(_) => left(Limited::Pools),
            // So much is no limit, and they are counted off all the same, as in Envoy.
            None => u64::MAX - u64::from(breaker(Limited::Pools).held()),
        };
        let prefix = format!("{}.circuit_breakers.{name}", cluster_prefix(model));
        let mut scope = KnownScope::new(&SET, prefix);
        scope.computed = vec![
            (CX, left(Limited::Connections)),
            (CX_POOLS, pools),
            (PENDING, left(Limited::PendingRequests)),
            (RETRIES, u64::from(retries)),
            (RQ, left(Limited::Requests)),
        ];
        scope
    };
    tracked.map(scope).collect()
}

/// What the workers' clocks show.
fn now() -> Duration {
    Duration::from_nanos(postrider_sys::monotonic_nanos())
}

fn of_cluster(cluster: &ClusterPlan) -> KnownScope {
    use sets::cluster::*;
    let mut scope = KnownScope::new(&SET, cluster_prefix(&cluster.model));
    // Of a cluster whose hosts come and go, the first worker counts them; none is a number as well.
    scope.computed =
        [MEMBERSHIP_TOTAL, MEMBERSHIP_HEALTHY, MEMBERSHIP_DEGRADED, MEMBERSHIP_EXCLUDED].map(|gauge| (gauge, 0)).into();
    if let (Discovery::Static(endpoints), true, None) =
        (&cluster.model.discovery, cluster.model.health.checks.is_empty(), &cluster.model.outliers)
    {
        let those = |health| endpoints.iter().filter(|endpoint| endpoint.health == health).count() as u64;
        scope.computed.extend([
            (MEMBERSHIP_TOTAL, endpoints.len() as u64),
            (MEMBERSHIP_HEALTHY, those(EndpointHealth::Healthy)),
            (MEMBERSHIP_DEGRADED, those(EndpointHealth::Degraded)),
            (MEMBERSHIP_EXCLUDED, endpoints.iter().filter(|endpoint| endpoint.drains()).count() as u64),
        ]);
    }
    // The hosts that a priority begins with are its first change; what comes later the first worker counts.
    let priorities: BTreeSet<u32> = cluster.initial.0.iter().map(|endpoint| endpoint.priority).collect();
    scope.counted = vec![(MEMBERSHIP_CHANGE, priorities.len() as u64)];
    if let (Discovery::Static(endpoints), true) = (&cluster.model.discovery, cluster.transports.is_empty()) {
        scope.counted.push((DEFAULT_TRANSPORT, endpoints.len() as u64));
    }
    let open = |priority, kind| {
        let breaker = cluster.breakers.breaker(priority, kind);
        let limit = match kind {
            Limited::Retries => cluster.breakers.retry_limit(priority, now()),
            _ => breaker.limit(),
        };
        u64::from(breaker.shows_reached(limit))
    };
    let (default, high) = (|kind| open(Priority::Default, kind), |kind| open(Priority::High, kind));
    scope.computed.extend([
        (CIRCUIT_BREAKERS_DEFAULT_CX_OPEN, default(Limited::Connections)),
        (CIRCUIT_BREAKERS_DEFAULT_CX_POOL_OPEN, default(Limited::Pools)),
        (CIRCUIT_BREAKERS_HIGH_CX_POOL_OPEN, high(Limited::Pools)),
        (CIRCUIT_BREAKERS_DEFAULT_RQ_OPEN, default(Limited::Requests)),
        (CIRCUIT_BREAKERS_DEFAULT_RQ_PENDING_OPEN, default(Limited::PendingRequests)),
        (CIRCUIT_BREAKERS_DEFAULT_RQ_RETRY_OPEN, default(Limited::Retries)),
        (CIRCUIT_BREAKERS_HIGH_RQ_RETRY_OPEN, high(Limited::Retries)),
        (CIRCUIT_BREAKERS_HIGH_CX_OPEN, high(Limited::Connections)),
        (CIRCUIT_BREAKERS_HIGH_RQ_OPEN, high(Limited::Requests)),
        (CIRCUIT_BREAKERS_HIGH_RQ_PENDING_OPEN, high(Limited::PendingRequests)),
    ]);
    scope
}
