//! The short form: what most gateways need, in eight lines.
//!
//! ```yaml
//! listen: ":8080"
//! routes:
//! - { match: /api, to: "http://127.0.0.1:9000" }
//! ```
//!
//! What it is for: people who do not want to learn Envoy's form first. [`Short`] turns a document into the tree of an
//! Envoy v3 bootstrap, whose nodes keep the places of the short document; from there on it is loaded, checked and lowered
//! like any other, so the two forms cannot mean different things. `convert --to envoy` prints that tree.
//!
//! What it must never do: have a meaning that Envoy's form cannot express, or pass over a key that it does not know.
//!
//! Who calls it: the binary hands [`Short`] to [`postrider_config_envoy::load()`].

mod build;
mod fields;
mod hosts;
mod layer;
mod listen;
mod log;
mod matching;
mod plugins;
mod routes;
mod tcp;
mod tls;
mod upstreams;

use postrider_config_core::Diagnostics;
use postrider_config_envoy::tree::Node;
use postrider_config_envoy::{Form, PluginNode};

/// The short form, as the loader asks for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Short;

/// The keys of the document.
const KEYS: [&str; 8] = ["listen", "tls", "routes", "hosts", "plugins", "tcp", "admin", "access_log"];

impl Form for Short {
    /// Keys that only this form has.
    fn recognises(&self, root: &Node) -> bool {
        ["listen", "routes", "tcp"].iter().any(|key| root.get(key).is_some())
    }

    fn expand(&self, root: &Node, plugins: &[PluginNode], diagnostics: &mut Diagnostics) -> Option<Node> {
        Some(expand(root, plugins, diagnostics))
    }

    fn add_plugins(&self, root: Node, plugins: &[PluginNode], diagnostics: &mut Diagnostics) -> Node {
        layer::add(root, plugins, diagnostics)
    }
}

fn expand(root: &Node, added: &[PluginNode], diagnostics: &mut Diagnostics) -> Node {
    let fields = fields::Fields::of(root, "", diagnostics);
    let listen = fields.take("listen");
    let routes = fields.take("routes");
    let hosts = fields.take("hosts");
    let plugins = fields.take("plugins");
    let tcp = fields.take("tcp");
    let tls = fields.take("tls");
    let admin = fields.take("admin");
    let access_log = fields.take("access_log");
    fields.finish(&KEYS);

    let mut clusters = upstreams::Clusters::default();
    let log = access_log.map(|node| log::logger(node, "access_log", diagnostics));
    let mut listeners = Vec::new();
    if let (Some(node), None, None) = (plugins, listen, routes) {
        fields::missing(node, "plugins", "routes", "`listen` and `routes`: plugins see requests", diagnostics);
    }
    if let (Some(node), None, None) = (hosts, listen, routes) {
        fields::missing(node, "hosts", "routes", "`listen` and `routes`: hosts are those of requests", diagnostics);
    }
    if let (Some(node), None, None) = (tls, listen, routes) {
        fields::missing(node, "tls", "routes", "`listen` and `routes`: they say what TLS is for", diagnostics);
    }
    if let (Some(plugin), None, None) = (added.first(), listen, routes) {
        let expected = "`listen` and `routes` in the file: plugins see requests";
        fields::missing(&plugin.manifest, "plugins", "routes", expected, diagnostics);
    }
    let mut auto = None;
    let plugins = plugins::Plugins::read(plugins, added, &mut clusters, diagnostics);
    match (listen, routes) {
        (Some(listen), Some(routes)) => {
            let projects = hosts.map_or_else(Vec::new, |hosts| hosts::projects(hosts, &plugins, diagnostics));
            let hosts = routes::routes(routes, &projects, &plugins, &mut clusters, diagnostics);
            auto = tls.and_then(|tls| tls::read(tls, &hosts, Some(listen), diagnostics));
            listeners.extend(listen::http(listen, hosts, plugins.filters, log.as_ref(), auto.as_ref(), diagnostics));
            listeners.extend(auto.as_ref().and_then(|auto| auto.listener.clone()));
        }
        (Some(node), None) => fields::missing(node, "listen", "routes", "what to do with requests", diagnostics),
        (None, Some(node)) => {
            fields::missing(node, "routes", "listen", "an address such as \":8080\"", diagnostics);
        }
        (None, None) => {}
    }
    if let Some(tcp) = tcp {
        listeners.extend(tcp::listeners(tcp, log.as_ref(), &mut clusters, diagnostics));
    }
    let span = root.span;
    let mut bootstrap = Vec::new();
    if let Some(node) = admin
        && let Some(address) = listen::address(node, "admin", diagnostics)
    {
        bootstrap.push(build::pair("admin", build::map(node.span, vec![build::pair("address", address)])));
    }
    let mut resources = Vec::new();
    if !listeners.is_empty() {
        resources.push(build::pair("listeners", build::list(span, listeners)));
    }
    let mut clusters = clusters.into_nodes();
    if let Some(auto) = auto {
        clusters.extend(auto.cluster);
        bootstrap.push(build::pair("bootstrap_extensions", build::list(span, vec![auto.extension])));
    }
    if !clusters.is_empty() {
        resources.push(build::pair("clusters", build::list(span, clusters)));
    }
    bootstrap.push(build::pair("static_resources", build::map(span, resources)));
    build::map(span, bootstrap)
}

#[cfg(test)]
mod tests;
