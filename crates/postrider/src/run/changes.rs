//! What differs between two snapshots, in the operator's words.

use std::sync::Arc;

use postrider_admin::{Change, ChangeKind};
use postrider_model::Snapshot;

/// Listeners and clusters that were added, changed or removed.
pub fn between(old: Option<&Snapshot>, new: &Snapshot) -> Vec<Change> {
    let (no_listeners, no_clusters) = (Vec::new(), Vec::new());
    let old_listeners = old.map_or(&no_listeners, |old| &old.listeners);
    let old_clusters = old.map_or(&no_clusters, |old| &old.clusters);
    let mut changes = differences("listener", old_listeners, &new.listeners, |listener| &listener.name);
    changes.extend(differences("cluster", old_clusters, &new.clusters, |cluster| &cluster.name));
    changes
}

fn differences<T: PartialEq>(kind: &str, old: &[Arc<T>], new: &[Arc<T>], name: impl Fn(&T) -> &str) -> Vec<Change> {
    let change = |change, item: &T| Change { kind: change, what: format!("{kind} {}", name(item)) };
    let mut changes = Vec::new();
    for item in new {
        match old.iter().find(|old| name(old) == name(item)) {
            None => changes.push(change(ChangeKind::Added, item)),
            Some(old) if old != item => changes.push(change(ChangeKind::Changed, item)),
            Some(_) => {}
        }
    }
    let gone = old.iter().filter(|old| !new.iter().any(|item| name(item) == name(old)));
    changes.extend(gone.map(|gone| change(ChangeKind::Removed, gone)));
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use postrider_model::{Cluster, Discovery, Http2Options, Origin, Thresholds, UpstreamOptions, UpstreamProtocol};

    fn cluster(name: &str, seconds: u64) -> Arc<Cluster> {
        Arc::new(Cluster {
            name: name.into(),
            metadata: None,
            stat_name: None,
            told: None,
            discovery: Discovery::Static(Vec::new()),
            connect_timeout: Duration::from_secs(seconds),
            balancing: postrider_model::Balancing::default(),
            health: postrider_model::HealthRules::default(),
            outliers: None,
            thresholds: Thresholds::default(),
            high_thresholds: Thresholds::default(),
            preconnect: None,
            measures: Default::default(),
            buffer_limit: 0,
            full_buffer_timeout: None,
            upstream: UpstreamOptions {
                idle_timeout: None,
                max_requests_per_connection: None,
                pool_per_client: false,
                max_connection_duration: None,
                max_stream_duration: None,
                max_response_headers: 100,
                max_response_head_bytes: 60 * 1024,
                enable_trailers: false,
                names: Default::default(),
                absolute_targets: false,
                protocol: UpstreamProtocol::Http1,
                http2: Http2Options::default(),
                keepalive: None,
                sources: Vec::new(),
                socket_options: Vec::new(),
                auto_host_sni: false,
                address_order: postrider_model::AddressOrder { first: None, run: 1 },
                retry: None,
                mirrors: Vec::new(),
                filters: None,
                bridge: None,
                errors: None,
            },
            tls: None,
            proxy_header: None,
            transports: Vec::new(),
            origin: Origin(format!("clusters[{seconds}]")),
        })
    }

    #[test]
    fn only_real_differences_are_changes() {
        let old = Snapshot { clusters: vec![cluster("a", 1), cluster("b", 1)], ..Snapshot::default() };
        let new = Snapshot { clusters: vec![cluster("a", 1), cluster("c", 1)], ..Snapshot::default() };
        assert!(between(Some(&old), &old.clone()).is_empty());
        let changes = between(Some(&old), &new);
        let words: Vec<_> = changes.iter().map(|change| (change.kind, change.what.as_str())).collect();
        assert_eq!(words, [(ChangeKind::Added, "cluster c"), (ChangeKind::Removed, "cluster b")]);
        let changed = Snapshot { clusters: vec![cluster("a", 2)], ..Snapshot::default() };
        assert_eq!(between(Some(&old), &changed)[0].kind, ChangeKind::Changed);
    }
}
