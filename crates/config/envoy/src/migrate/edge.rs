//! The top of the bootstrap, the admin interface, listeners and their chains.

use super::document::{Entry, Node};
use super::{Migration, typed};

const FILE_LOG: &str = "envoy.extensions.access_loggers.file.v3.FileAccessLog";
const DOWNSTREAM_TLS: &str = "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext";
const UPSTREAM_TLS: &str = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
const PROXY_PROTOCOL: &str = "envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol";

pub fn top(cx: &mut Migration, node: &mut Node) {
    cx.drop(node, "rate_limit_service", "each rate limit filter names its service");
    cx.change(node, "runtime", "layered_runtime", |old| Some(runtime(old)));
    cx.change(node, "use_tcp_for_dns_lookups", "use_tcp_for_dns_lookups", |_| None);
}

/// `runtime: {symlink_root, subdirectory, override_subdirectory}` as layers, in the order of precedence of v2.
fn runtime(old: &Node) -> Node {
    let root = old.get("symlink_root").cloned();
    let disk = |name: &str, subdirectory: &str, append: bool| {
        let mut layer = Node::map(Vec::new());
        if let Some(root) = &root {
            layer.set("symlink_root", root.clone());
        }
        layer.set("subdirectory", Node::text(subdirectory));
        if append {
            layer.set("append_service_cluster", Node::plain("true"));
        }
        let mut outer = Node::map(vec![Entry::new("name", Node::text(name))]);
        outer.set("disk_layer", layer);
        outer
    };
    let mut layers = Vec::new();
    if let Some(base) = old.get("base") {
        let mut layer = Node::map(vec![Entry::new("name", Node::text("base"))]);
        layer.set("static_layer", base.clone());
        layers.push(layer);
    }
    if let Some(subdirectory) = old.get("subdirectory").and_then(Node::as_text) {
        layers.push(disk("root", subdirectory, false));
    }
    if let Some(subdirectory) = old.get("override_subdirectory").and_then(Node::as_text) {
        layers.push(disk("override", subdirectory, true));
    }
    let mut admin = Node::map(vec![Entry::new("name", Node::text("admin"))]);
    admin.set("admin_layer", Node::empty());
    layers.push(admin);
    Node::map(vec![Entry::new("layers", Node::list(layers))])
}

pub fn admin(cx: &mut Migration, node: &mut Node) {
    if node.get("access_log").is_some() {
        return;
    }
    cx.change(node, "access_log_path", "access_log", |path| {
        let mut config = Node::map(Vec::new());
        config.set("path", path.clone());
        let mut log = Node::map(vec![Entry::new("name", Node::text("envoy.access_loggers.file"))]);
        log.set("typed_config", typed(FILE_LOG, Some(config)));
        Some(Node::list(vec![log]))
    });
}

pub fn listener(cx: &mut Migration, node: &mut Node) {
    if let Some(entry) = node.take("deprecated_v1") {
        match entry.node.get("bind_to_port") {
            Some(bind) => {
                node.set("bind_to_port", bind.clone());
                cx.note(entry.span, "`deprecated_v1.bind_to_port` is now `bind_to_port`");
            }
            None => cx.dropped(entry.span, "`deprecated_v1` is left out: nothing in it has a meaning"),
        }
    }
    cx.rename(node, "reuse_port", "enable_reuse_port");
    proxy_protocol(cx, node);
}

/// The PROXY protocol is a listener filter now, and the first.
fn proxy_protocol(cx: &mut Migration, node: &mut Node) {
    let mut asked = None;
    let mut plain = 0;
    let Some(chains) = node.get_mut("filter_chains") else { return };
    for chain in chains.entries_mut().into_iter().flatten() {
        match chain.node.take("use_proxy_proto") {
            Some(entry) if entry.node.as_text() == Some("true") => asked = Some(entry.span),
            _ => plain += 1,
        }
    }
    let Some(span) = asked else { return };
    if plain > 0 {
        let text = "`use_proxy_proto` stands in some filter chains only, and v3 has it for whole listeners";
        cx.impossible(span, text);
        return;
    }
    let mut filter = Node::map(vec![Entry::new("name", Node::text("envoy.filters.listener.proxy_protocol"))]);
    filter.set("typed_config", typed(PROXY_PROTOCOL, None));
    match node.get_mut("listener_filters").and_then(Node::entries_mut) {
        Some(filters) => filters.insert(0, Entry::new("", filter)),
        None => node.set("listener_filters", Node::list(vec![filter])),
    }
    cx.note(span, "`use_proxy_proto` is now the listener filter envoy.filters.listener.proxy_protocol");
}

pub fn chain(cx: &mut Migration, node: &mut Node) {
    tls_context(cx, node, DOWNSTREAM_TLS);
}

/// `tls_context` of a chain or a cluster.
pub fn upstream_tls(cx: &mut Migration, node: &mut Node) {
    tls_context(cx, node, UPSTREAM_TLS);
}

fn tls_context(cx: &mut Migration, node: &mut Node, kind: &str) {
    cx.change(node, "tls_context", "transport_socket", |context| {
        let mut socket = Node::map(vec![Entry::new("name", Node::text("envoy.transport_sockets.tls"))]);
        socket.set("typed_config", typed(kind, Some(context.clone())));
        Some(socket)
    });
    let Some(socket) = node.get_mut("transport_socket") else { return };
    if matches!(socket.get("name").and_then(Node::as_text), Some("tls" | "envoy.transport_sockets.tls"))
        && socket.get("typed_config").is_none()
    {
        let config = socket.take("config");
        let span = config.as_ref().and_then(|entry| entry.span);
        socket.set("name", Node::text("envoy.transport_sockets.tls"));
        socket.set("typed_config", typed(kind, config.map(|entry| entry.node)));
        cx.note(span, "the TLS transport socket has a `typed_config`");
    }
}
