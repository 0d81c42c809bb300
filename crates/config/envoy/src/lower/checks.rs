//! What must hold between resources: unique names and addresses, no unknown cluster.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use postrider_config_core::{Diagnostic, nearest};
use postrider_model::{Address, Cluster, Listener, UpstreamProtocol};

use super::context::Lowering;
use crate::reader::Reader;

/// Refuses the second resource of a name. Nameless ones are not compared.
pub(super) fn unique_names(cx: &mut Lowering<'_>, resources: &[Reader<'_>], what: &str) {
    let mut first: HashMap<&str, String> = HashMap::new();
    for resource in resources {
        let name = resource.str("name");
        if name.is_empty() {
            continue;
        }
        match first.get(name) {
            Some(other) => {
                let text = format!("the {what} name `{name}` is taken by {other}");
                cx.error(resource, "name", "duplicate-name", text);
            }
            None => {
                first.insert(name, resource.path().to_owned());
            }
        }
    }
}

/// Refuses two listeners on one address; port 0 is a new port each time.
pub(super) fn unique_addresses(cx: &mut Lowering<'_>, listeners: &[Arc<Listener>], resources: &Reader<'_>) {
    let places: HashMap<String, Reader<'_>> =
        resources.list("listeners").into_iter().map(|place| (place.path().to_owned(), place)).collect();
    let mut first: HashMap<&Address, &Listener> = HashMap::new();
    for listener in listeners {
        for address in &listener.addresses {
            if matches!(address, Address::Tcp(socket) if socket.port() == 0) {
                continue;
            }
            let Some(other) = first.insert(address, listener) else { continue };
            let text = format!("the address {address} is taken by listener `{}`", other.name);
            if let Some(place) = places.get(&listener.origin.0) {
                cx.error(place, "address", "duplicate-address", text);
            }
        }
    }
}

/// Refuses priorities in the cluster of the proxies themselves, which have none.
pub(super) fn one_priority(cx: &mut Lowering<'_>, cluster: &Reader<'_>) {
    let assignment = cluster.message("load_assignment");
    for locality in assignment.iter().flat_map(|assignment| assignment.list("endpoints")) {
        if locality.u32("priority") > 0 {
            let text = "the cluster named by `local_cluster_name` has the priority 0 alone";
            cx.error(&locality, "priority", "conflict", text);
        }
    }
}

/// Warns of gRPC services whose cluster speaks HTTP/1: gRPC is not spoken over it, so every call would fail.
pub(super) fn grpc_clusters(cx: &mut Lowering<'_>, clusters: &[Arc<Cluster>]) {
    for used in std::mem::take(&mut cx.grpc_uses) {
        let cluster = clusters.iter().find(|cluster| cluster.name == used.name);
        if cluster.is_some_and(|cluster| cluster.upstream.protocol == UpstreamProtocol::Http1) {
            let text =
                format!("the cluster `{}` speaks HTTP/1.1, and gRPC needs HTTP/2: every call will fail", used.name);
            let diagnostic = Diagnostic::warning("grpc-over-http1", text).at(used.span).path(used.path);
            cx.push(diagnostic.expected("a cluster with `explicit_http_config: { http2_protocol_options: {} }`"));
        }
    }
}

/// Refuses uses of clusters that do not exist.
pub(super) fn known_clusters(cx: &mut Lowering<'_>, clusters: &[Reader<'_>]) {
    // When a part of the cluster list was unreadable, its names may be all that is missing.
    const RESOURCES: &str = "static_resources";
    const LIST: &str = "static_resources.clusters";
    let nameless = clusters.iter().any(|cluster| cluster.str("name").is_empty());
    if nameless || (clusters.is_empty() && cx.is_broken(RESOURCES)) || cx.is_broken_list(LIST) {
        return;
    }
    let names: Vec<&str> = clusters.iter().map(|cluster| cluster.str("name")).collect();
    let known: HashSet<&str> = names.iter().copied().collect();
    for used in std::mem::take(&mut cx.cluster_uses) {
        if known.contains(used.name.as_str()) {
            continue;
        }
        let text = format!("there is no cluster `{}`", used.name);
        let diagnostic = if used.required {
            Diagnostic::error("unknown-cluster", text)
        } else {
            Diagnostic::warning("unknown-cluster", text)
        };
        let expected = match names.as_slice() {
            [] => "a cluster in static_resources.clusters; there is none".to_owned(),
            [only] => format!("`{only}`, the only cluster"),
            _ => "the name of one of static_resources.clusters".to_owned(),
        };
        let suggestion = nearest(&used.name, names.iter().copied()).map(str::to_owned);
        cx.push(diagnostic.at(used.span).path(used.path).expected(expected).suggest(suggestion));
    }
}
