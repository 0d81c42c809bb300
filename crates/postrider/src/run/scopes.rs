//! The statistics that a configuration brings into being, whether or not anything was counted yet.

use postrider_model::{Address, Cluster, ConnectionHandler, Discovery, EndpointHealth};
use postrider_telemetry::KnownScope;
use postrider_telemetry::stats::sets::{self, scope_of_address};
use postrider_upstream::Breaker;
use postrider_worker::{ClusterPlan, Plan};

/// Every scope of `plan`. `listeners` are the running ones with their real addresses.
pub fn known(plan: &Plan, listeners: &[(String, Vec<Address>)], workers: usize) -> Vec<KnownScope> {
    let snapshot = &plan.snapshot;
    let mut scopes = vec![
        KnownScope::new(&sets::server::SET, ""),
        KnownScope::new(&sets::cluster_manager::SET, ""),
        KnownScope::new(&sets::listener_manager::SET, ""),
        KnownScope::new(&sets::http1::SET, ""),
        KnownScope::new(&sets::filesystem::SET, ""),
        KnownScope::new(&sets::access_log::SET, ""),
    ];
    for listener in &snapshot.listeners {
        let bound = listeners.iter().find(|(name, _)| *name == listener.name);
        let address = bound.and_then(|(_, addresses)| addresses.first()).or(listener.addresses.first());
        let prefix = match (&listener.stat_prefix, address) {
            (Some(prefix), _) => scope_of_address(prefix),
            (None, Some(address)) => scope_of_address(&address.to_string()),
            (None, None) => continue,
        };
        for worker in 0..workers {
            scopes.push(KnownScope::new(&sets::listener_worker::SET, format!("{prefix}.worker_{worker}")));
        }
        for chain in listener.filter_chains.iter().chain(&listener.default_filter_chain) {
            match &chain.handler {
                ConnectionHandler::Http(http) => {
                    let stat_prefix = scope_of_address(&http.stat_prefix);
                    let of_listener = format!("{prefix}.http.{stat_prefix}");
                    scopes.push(KnownScope::new(&sets::listener_http::SET, of_listener));
                    scopes.push(KnownScope::new(&sets::http::SET, stat_prefix));
                }
                ConnectionHandler::Tcp(tcp) => {
                    scopes.push(KnownScope::new(&sets::tcp::SET, scope_of_address(&tcp.stat_prefix)));
                }
            }
        }
        scopes.push(KnownScope::new(&sets::listener::SET, prefix));
    }
    scopes.extend(plan.clusters.iter().map(|cluster| of_cluster(cluster)));
    let plugins = super::plugins::scope_names(plan).into_iter();
    scopes.extend(plugins.map(|plugin| KnownScope::new(&postrider_filter_plugin::stat::plugin::SET, plugin)));
    scopes
}

/// The prefix of a cluster's statistics.
pub fn cluster_prefix(cluster: &Cluster) -> String {
    scope_of_address(cluster.stat_name.as_deref().unwrap_or(&cluster.name))
}

fn of_cluster(cluster: &ClusterPlan) -> KnownScope {
    use sets::cluster::*;
    let mut scope = KnownScope::new(&SET, cluster_prefix(&cluster.model));
    if let Discovery::Static(endpoints) = &cluster.model.discovery {
        let healthy = endpoints.iter().filter(|e| e.health == EndpointHealth::Healthy).count();
        scope.computed = vec![(MEMBERSHIP_TOTAL, endpoints.len() as u64), (MEMBERSHIP_HEALTHY, healthy as u64)];
    }
    let open = |breaker: &Breaker| u64::from(breaker.held() >= breaker.limit());
    let (default, high) = (&cluster.breakers.default, &cluster.breakers.high);
    scope.computed.extend([
        (CIRCUIT_BREAKERS_DEFAULT_CX_OPEN, open(&default.connections)),
        (CIRCUIT_BREAKERS_DEFAULT_RQ_OPEN, open(&default.requests)),
        (CIRCUIT_BREAKERS_DEFAULT_RQ_PENDING_OPEN, open(&default.pending_requests)),
        (CIRCUIT_BREAKERS_HIGH_CX_OPEN, open(&high.connections)),
        (CIRCUIT_BREAKERS_HIGH_RQ_OPEN, open(&high.requests)),
        (CIRCUIT_BREAKERS_HIGH_RQ_PENDING_OPEN, open(&high.pending_requests)),
    ]);
    scope
}
