//! Plugins that do not stand in the file, put into a document of Envoy's form.
//!
//! A manifest takes the place of the plugin that has its name, wherever that stands. One whose name is new becomes a filter
//! of every HTTP connection manager, in front of the router.

use postrider_config_core::{Diagnostic, Diagnostics};
use postrider_config_envoy::PluginNode;
use postrider_config_envoy::tree::{Node, NodeKind, Pair};

use crate::build::{list, pair};
use crate::plugins::{MANIFEST, Plugins};
use crate::upstreams::Clusters;

const MANAGER: &str = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";

/// The document with the plugins in it.
pub fn add(mut root: Node, added: &[PluginNode], diagnostics: &mut Diagnostics) -> Node {
    let known: Vec<String> = match field(&mut root, RESOURCES).and_then(|resources| field(resources, ["clusters"; 2])) {
        Some(Node { kind: NodeKind::List(items), .. }) => {
            items.iter().filter_map(|item| Some(item.get("name")?.text()?.to_owned())).collect()
        }
        _ => Vec::new(),
    };
    let mut clusters = Clusters::beside(known.clone());
    let mut plugins = Plugins::default();
    for plugin in added {
        plugins.add_named(plugin, &mut clusters, diagnostics);
    }
    for filter in plugins.filters {
        put(&mut root, &filter, diagnostics);
    }
    let more: Vec<Node> = clusters.into_nodes();
    let is_new = |cluster: &Node| !known.iter().any(|known| cluster.get("name").and_then(Node::text) == Some(known));
    append(&mut root, more.into_iter().filter(is_new).collect());
    root
}

const RESOURCES: [&str; 2] = ["static_resources", "staticResources"];

/// Puts the filter of a plugin in its place.
fn put(root: &mut Node, filter: &Node, diagnostics: &mut Diagnostics) {
    let (Some(name), Some(config)) = (filter.get("name").and_then(Node::text), filter.get("typed_config")) else {
        return;
    };
    let Some(listeners) = field(root, RESOURCES).and_then(|resources| field(resources, ["listeners"; 2])) else {
        return nowhere(filter, name, diagnostics);
    };
    let mut replaced = false;
    each_map(listeners, &mut |node| {
        if is(node, MANIFEST) && node.get("name").and_then(Node::text) == Some(name) {
            *node = config.clone();
            replaced = true;
        }
    });
    if replaced {
        return;
    }
    let mut added = false;
    each_map(listeners, &mut |node| {
        if !is(node, MANAGER) {
            return;
        }
        let Some(Node { kind: NodeKind::List(filters), .. }) = field(node, ["http_filters", "httpFilters"]) else {
            return;
        };
        added = true;
        if let Some(other) = filters.iter().find(|other| other.get("name").and_then(Node::text) == Some(name)) {
            let message = format!("there is a filter `{name}` that is no plugin with a manifest");
            let diagnostic = Diagnostic::error("duplicate-name", message).at(other.span).path(name);
            diagnostics.push(diagnostic.expected("a plugin of another name"));
            return;
        }
        // The last one is the router.
        filters.insert(filters.len().saturating_sub(1), filter.clone());
    });
    if !added {
        nowhere(filter, name, diagnostics);
    }
}

fn nowhere(filter: &Node, name: &str, diagnostics: &mut Diagnostics) {
    let message = format!("there is no place for the plugin `{name}`: no listener has HTTP filters");
    diagnostics.push(Diagnostic::error("missing-field", message).at(filter.span).path(name));
}

/// Appends clusters to those of the document.
fn append(root: &mut Node, more: Vec<Node>) {
    let (false, Some(resources)) = (more.is_empty(), field(root, RESOURCES)) else { return };
    if let Some(Node { kind: NodeKind::List(clusters), .. }) = field(resources, ["clusters"; 2]) {
        clusters.extend(more);
    } else if let NodeKind::Map(pairs) = &mut resources.kind {
        let span = resources.span;
        pairs.retain(|pair| pair.key != "clusters");
        pairs.push(pair("clusters", list(span, more)));
    }
}

/// The value of a key, which may be written in two ways.
fn field<'n>(node: &'n mut Node, names: [&str; 2]) -> Option<&'n mut Node> {
    match &mut node.kind {
        NodeKind::Map(pairs) => {
            let found = pairs.iter_mut().find(|pair| names.contains(&pair.key.as_str()));
            found.map(|pair| &mut pair.value)
        }
        _ => None,
    }
}

/// Whether a mapping is a message of this type.
fn is(node: &Node, kind: &str) -> bool {
    let written = node.get("@type").and_then(Node::text);
    written.and_then(|url| url.rsplit('/').next()) == Some(kind)
}

/// Every mapping in a tree, the outer ones first.
fn each_map(node: &mut Node, seen: &mut dyn FnMut(&mut Node)) {
    if matches!(node.kind, NodeKind::Map(_)) {
        seen(node);
    }
    match &mut node.kind {
        NodeKind::Map(pairs) => pairs.iter_mut().for_each(|Pair { value, .. }| each_map(value, seen)),
        NodeKind::List(items) => items.iter_mut().for_each(|item| each_map(item, seen)),
        NodeKind::Null | NodeKind::Scalar(_) => {}
    }
}
