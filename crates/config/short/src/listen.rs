//! Addresses to listen on, and the HTTP listener.

use std::net::IpAddr;

use postrider_config_core::{Diagnostics, Span};
use postrider_config_envoy::tree::{Node, Pair};

use crate::build::{extension, list, map, pair, plain, socket_address, text};
use crate::fields;
use crate::tls::Tls;

/// How long a request head may take: the short form faces clients, and a slow one must not hold a connection.
const REQUEST_HEADERS_TIMEOUT: &str = "10s";

const EXPECTED: &str = "`:PORT`, `ADDRESS:PORT`, `[IPV6]:PORT` or `unix:PATH`";

/// The listener of the routes. `hosts` are the virtual hosts, `filters` what stands before the router.
pub fn http(
    listen: &Node,
    hosts: Vec<Node>,
    mut filters: Vec<Node>,
    log: Option<&Node>,
    tls: Option<&Tls>,
    diagnostics: &mut Diagnostics,
) -> Option<Node> {
    let addresses: Vec<Node> = fields::several(listen, "listen")
        .into_iter()
        .filter_map(|(path, node)| address(node, &path, diagnostics))
        .collect();
    let (main, additional) = addresses.split_first()?;
    let span = listen.span;
    let routes = route_config(list(span, hosts), span);
    filters.push(router(span));
    let websocket = map(span, vec![pair("upgrade_type", text(span, "websocket"))]);
    let mut manager = vec![
        pair("stat_prefix", text(span, "http")),
        pair("server_name", text(span, "postrider")),
        pair("use_remote_address", plain(span, true)),
        pair("request_headers_timeout", text(span, REQUEST_HEADERS_TIMEOUT)),
        pair("upgrade_configs", list(span, vec![websocket])),
    ];
    manager.extend(log.map(|log| pair("access_log", list(log.span, vec![log.clone()]))));
    manager.push(pair("route_config", routes));
    manager.push(pair("http_filters", list(span, filters)));
    let mut chain = vec![pair("filters", list(span, vec![connection_manager(manager, span)]))];
    chain.extend(tls.map(|tls| pair("transport_socket", tls.transport_socket.clone())));
    let mut chains = vec![map(span, chain)];
    chains.extend(tls.and_then(|tls| tls.chain.clone()));
    let mut listener = vec![pair("name", text(span, "http")), pair("address", main.clone())];
    if !additional.is_empty() {
        let wrapped = additional.iter().map(|one| map(one.span, vec![pair("address", one.clone())])).collect();
        listener.push(pair("additional_addresses", list(span, wrapped)));
    }
    if chains.len() > 1 {
        const INSPECTOR: &str = "envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector";
        let inspector = extension(span, "envoy.filters.listener.tls_inspector", INSPECTOR, vec![]);
        listener.push(pair("listener_filters", list(span, vec![inspector])));
    }
    listener.push(pair("filter_chains", list(span, chains)));
    Some(map(span, listener))
}

/// A listener of the proxy's own, without log and plugins.
pub fn plain_http(name: &str, address: Node, hosts: Node, span: Span) -> Node {
    let chain = map(span, vec![pair("filters", list(span, vec![plain_http_filter(name, hosts, span)]))]);
    map(
        span,
        vec![pair("name", text(span, name)), pair("address", address), pair("filter_chains", list(span, vec![chain]))],
    )
}

/// Its connection manager.
pub fn plain_http_filter(name: &str, hosts: Node, span: Span) -> Node {
    let manager = vec![
        pair("stat_prefix", text(span, name.replace('-', "_"))),
        pair("server_name", text(span, "postrider")),
        pair("use_remote_address", plain(span, true)),
        pair("request_headers_timeout", text(span, REQUEST_HEADERS_TIMEOUT)),
        pair("route_config", route_config(hosts, span)),
        pair("http_filters", list(span, vec![router(span)])),
    ];
    connection_manager(manager, span)
}

fn route_config(hosts: Node, span: Span) -> Node {
    map(
        span,
        vec![
            pair("name", text(span, "routes")),
            pair("ignore_port_in_host_matching", plain(span, true)),
            pair("virtual_hosts", hosts),
        ],
    )
}

fn router(span: Span) -> Node {
    const ROUTER: &str = "envoy.extensions.filters.http.router.v3.Router";
    extension(span, "envoy.filters.http.router", ROUTER, vec![])
}

fn connection_manager(manager: Vec<Pair>, span: Span) -> Node {
    extension(
        span,
        "envoy.filters.network.http_connection_manager",
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        manager,
    )
}

/// An address to bind, as Envoy's `Address`.
pub fn address(node: &Node, path: &str, diagnostics: &mut Diagnostics) -> Option<Node> {
    let written = fields::text(node, path, EXPECTED, diagnostics)?;
    if let Some(path) = written.strip_prefix("unix:").filter(|path| !path.is_empty()) {
        let pipe = map(node.span, vec![pair("path", text(node.span, path))]);
        return Some(map(node.span, vec![pair("pipe", pipe)]));
    }
    let (host, port) = written.rsplit_once(':').unwrap_or(("", written));
    let host = match host {
        "" | "*" => "0.0.0.0",
        "localhost" => "127.0.0.1",
        host => host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host),
    };
    match (host.parse::<IpAddr>(), port.parse::<u16>()) {
        (Ok(_), Ok(port)) => Some(socket_address(node.span, host, port)),
        (Err(_), _) => {
            fields::invalid(node, path, format!("`{host}` is no IP address to listen on"), EXPECTED, diagnostics);
            None
        }
        (_, Err(_)) => {
            fields::invalid(node, path, format!("`{port}` is no port"), EXPECTED, diagnostics);
            None
        }
    }
}
