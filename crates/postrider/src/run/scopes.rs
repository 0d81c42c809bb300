//! The statistics that a configuration brings into being, whether or not anything was counted yet.

use postrider_model::{Address, Cluster, ConnectionHandler, Discovery, Snapshot};
use postrider_telemetry::KnownScope;
use postrider_telemetry::stats::sets::{self, scope_of_address};

/// Every scope of `snapshot`. `listeners` are the running ones with their real addresses.
pub fn known(snapshot: &Snapshot, listeners: &[(String, Vec<Address>)], workers: usize) -> Vec<KnownScope> {
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
    scopes.extend(snapshot.clusters.iter().map(|cluster| of_cluster(cluster)));
    scopes
}

/// The prefix of a cluster's statistics.
pub fn cluster_prefix(cluster: &Cluster) -> String {
    scope_of_address(cluster.stat_name.as_deref().unwrap_or(&cluster.name))
}

fn of_cluster(cluster: &Cluster) -> KnownScope {
    let mut scope = KnownScope::new(&sets::cluster::SET, cluster_prefix(cluster));
    if let Discovery::Static(endpoints) = &cluster.discovery {
        let healthy = endpoints.iter().filter(|e| e.health == postrider_model::EndpointHealth::Healthy).count();
        scope.computed = vec![
            (sets::cluster::MEMBERSHIP_TOTAL, endpoints.len() as u64),
            (sets::cluster::MEMBERSHIP_HEALTHY, healthy as u64),
        ];
    }
    scope
}
