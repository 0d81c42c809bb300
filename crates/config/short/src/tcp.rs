//! TCP listeners: `tcp: {listen, to, idle_timeout}`, or a list of such.

use postrider_config_core::Diagnostics;
use postrider_config_envoy::tree::Node;

use crate::build::{extension, list, map, pair, plain, text};
use crate::fields::{self, Fields, join};
use crate::listen;
use crate::upstreams::{Clusters, Scheme, Share, Target};

pub fn listeners(node: &Node, log: Option<&Node>, clusters: &mut Clusters, diagnostics: &mut Diagnostics) -> Vec<Node> {
    let mut all = Vec::new();
    for (path, item) in fields::several(node, "tcp") {
        all.extend(listener(item, &path, all.len(), log, clusters, diagnostics));
    }
    all
}

fn listener(
    node: &Node,
    path: &str,
    index: usize,
    log: Option<&Node>,
    clusters: &mut Clusters,
    diagnostics: &mut Diagnostics,
) -> Option<Node> {
    let fields = Fields::of(node, path, diagnostics);
    let (listen, to, idle) = (fields.take("listen"), fields.take("to"), fields.take("idle_timeout"));
    fields.finish(&["listen", "to", "idle_timeout"]);
    if listen.is_none() {
        fields::missing(node, path, "listen", "an address such as \":5432\"", diagnostics);
    }
    if to.is_none() {
        fields::missing(node, path, "to", "an address such as \"127.0.0.1:5432\"", diagnostics);
    }
    let target = to.and_then(|to| clusters.target(to, &join(path, "to"), Scheme::Tcp, None, diagnostics));
    let idle =
        idle.and_then(|idle| Some((idle.span, fields::duration(idle, &join(path, "idle_timeout"), diagnostics)?)));
    let address = listen::address(listen?, &join(path, "listen"), diagnostics)?;
    let span = node.span;
    let mut proxy = vec![pair("stat_prefix", text(span, "tcp"))];
    match target? {
        Target::One(name) => proxy.push(pair("cluster", text(span, name))),
        Target::Weighted(parts) => {
            let entry = |Share { name, weight, span, .. }: Share| {
                map(span, vec![pair("name", text(span, name)), pair("weight", plain(span, weight))])
            };
            let entries = list(span, parts.into_iter().map(entry).collect());
            proxy.push(pair("weighted_clusters", map(span, vec![pair("clusters", entries)])));
        }
    }
    proxy.extend(idle.map(|(span, idle)| pair("idle_timeout", text(span, idle))));
    proxy.extend(log.map(|log| pair("access_log", list(log.span, vec![log.clone()]))));
    let kind = "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy";
    let filter = extension(span, "envoy.filters.network.tcp_proxy", kind, proxy);
    let chain = map(span, vec![pair("filters", list(span, vec![filter]))]);
    Some(map(
        span,
        vec![
            pair("name", text(span, format!("tcp_{index}"))),
            pair("address", address),
            pair("filter_chains", list(span, vec![chain])),
        ],
    ))
}
