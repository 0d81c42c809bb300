//! Where requests go: URLs, and one cluster for each distinct set of servers.

use std::net::IpAddr;

use postrider_config_core::{Diagnostic, Diagnostics, Span};
use postrider_config_envoy::known::VERSION;
use postrider_config_envoy::tree::{Node, NodeKind};

use crate::build::{list, map, pair, plain, socket_address, text};
use crate::fields::{self, Fields, join};
use crate::plugins::Plugins;

const EXPECTED: &str = "a URL such as \"http://127.0.0.1:9000\"";

/// The clusters that routes asked for, each once.
#[derive(Default)]
pub struct Clusters {
    all: Vec<Cluster>,
    /// Names of clusters that the document has in Envoy's form.
    known: Vec<String>,
}

struct Cluster {
    name: String,
    servers: Vec<Server>,
    span: Span,
}

/// One server of a cluster.
#[derive(Clone, PartialEq, Eq)]
struct Server {
    host: String,
    port: u16,
}

/// Where a route goes.
pub enum Target {
    One(String),
    /// Of each a share.
    Weighted(Vec<Share>),
}

/// A cluster that gets a share of a route's requests.
pub struct Share {
    pub name: String,
    pub weight: u32,
    pub span: Span,
    /// `typed_per_filter_config`
    pub changes: Option<Node>,
}

impl Clusters {
    /// The target of `to`: a URL, a list of URLs that share the load, or a list of `{url, weight}`, which may say what is
    /// different about `plugins` where those see what goes there.
    pub fn target(
        &mut self,
        node: &Node,
        path: &str,
        scheme: Scheme,
        plugins: Option<&Plugins>,
        diagnostics: &mut Diagnostics,
    ) -> Option<Target> {
        let items = fields::several(node, path);
        if items.is_empty() {
            fields::invalid(node, path, "the list of servers is empty", EXPECTED, diagnostics);
            return None;
        }
        if items.iter().any(|(_, item)| matches!(item.kind, NodeKind::Map(_))) {
            return self.weighted(&items, scheme, plugins, diagnostics);
        }
        let mut servers = Vec::new();
        for (path, item) in &items {
            servers.push(server(item, path, scheme, diagnostics));
        }
        let servers: Option<Vec<Server>> = servers.into_iter().collect();
        Some(Target::One(self.cluster(servers?, node.span)))
    }

    /// Those of a document that has clusters of these names.
    pub fn beside(known: Vec<String>) -> Clusters {
        Clusters { all: Vec::new(), known }
    }

    /// Whether the document has a cluster of this name.
    pub fn knows(&self, name: &str) -> bool {
        self.known.iter().any(|known| known == name)
    }

    /// The names of all that there are so far.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.known.iter().chain(self.all.iter().map(|cluster| &cluster.name)).map(String::as_str)
    }

    /// The finished `clusters` list.
    pub fn into_nodes(self) -> Vec<Node> {
        self.all.into_iter().map(Cluster::into_node).collect()
    }

    fn weighted(
        &mut self,
        items: &[(String, &Node)],
        scheme: Scheme,
        plugins: Option<&Plugins>,
        diagnostics: &mut Diagnostics,
    ) -> Option<Target> {
        let keys: &[&str] = if plugins.is_some() { &["url", "weight", "plugins"] } else { &["url", "weight"] };
        let mut all = Vec::new();
        let mut sound = true;
        for (path, item) in items {
            if !matches!(item.kind, NodeKind::Map(_)) {
                fields::wrong(item, path, "`{url, weight}`, as its neighbours", diagnostics);
                sound = false;
                continue;
            }
            let fields = Fields::of(item, path, diagnostics);
            let (url, weight) = (fields.take("url"), fields.take("weight"));
            let changed = plugins.and_then(|plugins| Some((plugins, fields.take("plugins")?)));
            fields.finish(keys);
            let changes =
                changed.and_then(|(plugins, node)| plugins.overrides(node, &join(path, "plugins"), diagnostics));
            let Some(url) = url else {
                fields::missing(item, path, "url", EXPECTED, diagnostics);
                sound = false;
                continue;
            };
            let share = match weight {
                None => Some(1),
                Some(node) => {
                    let number = node.text().and_then(|text| text.parse::<u32>().ok());
                    if number.is_none() {
                        fields::wrong(node, &join(path, "weight"), "a whole number", diagnostics);
                    }
                    number
                }
            };
            match (server(url, &join(path, "url"), scheme, diagnostics), share) {
                (Some(server), Some(share)) => {
                    let name = self.cluster(vec![server], url.span);
                    all.push(Share { name, weight: share, span: item.span, changes });
                }
                _ => sound = false,
            }
        }
        sound.then_some(Target::Weighted(all))
    }

    /// The name of the cluster of exactly these servers.
    fn cluster(&mut self, servers: Vec<Server>, span: Span) -> String {
        if let Some(known) = self.all.iter().find(|cluster| cluster.servers == servers) {
            return known.name.clone();
        }
        let names: Vec<String> = servers.iter().map(|server| format!("{}:{}", server.host, server.port)).collect();
        let name = names.join(",");
        self.all.push(Cluster { name: name.clone(), servers, span });
        name
    }
}

impl Cluster {
    fn into_node(self) -> Node {
        let span = self.span;
        let literal = self.servers.iter().all(|server| server.host.parse::<IpAddr>().is_ok());
        let endpoint = |server: &Server| {
            let address = pair("address", socket_address(span, &server.host, server.port));
            map(span, vec![pair("endpoint", map(span, vec![address]))])
        };
        let endpoints = list(span, self.servers.iter().map(endpoint).collect());
        let locality = map(span, vec![pair("lb_endpoints", endpoints)]);
        let assignment =
            vec![pair("cluster_name", text(span, self.name.clone())), pair("endpoints", list(span, vec![locality]))];
        let kind = if literal { "STATIC" } else { "STRICT_DNS" };
        map(
            span,
            vec![
                pair("name", text(span, self.name)),
                pair("type", plain(span, kind)),
                pair("load_assignment", map(span, assignment)),
            ],
        )
    }
}

/// What a target's URL may start with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// `http://`, or nothing.
    Http,
    /// `tcp://`, or nothing.
    Tcp,
}

fn server(node: &Node, path: &str, scheme: Scheme, diagnostics: &mut Diagnostics) -> Option<Server> {
    let (own, expected) = match scheme {
        Scheme::Http => ("http", EXPECTED),
        Scheme::Tcp => ("tcp", "an address such as \"127.0.0.1:9000\""),
    };
    let url = fields::text(node, path, expected, diagnostics)?;
    let rest = match url.split_once("://") {
        None => url,
        Some((written, rest)) if written.eq_ignore_ascii_case(own) => rest,
        Some(("https" | "tls", _)) => {
            let text = format!("TLS to a server is not supported by Postrider {VERSION}");
            diagnostics.push(Diagnostic::error("unsupported-value", text).at(node.span).path(path).expected(expected));
            return None;
        }
        Some((other, _)) => {
            fields::invalid(node, path, format!("`{other}://` is no way to reach a server"), expected, diagnostics);
            return None;
        }
    };
    let (authority, tail) = rest.find(['/', '?', '#']).map_or((rest, ""), |at| rest.split_at(at));
    if !matches!(tail, "" | "/") {
        let text = format!("a server has no path; `{tail}` would have no effect");
        let diagnostic = Diagnostic::error("invalid-value", text).at(node.span).path(path).expected(expected);
        diagnostics.push(diagnostic.help("change the path of requests with `rewrite`"));
        return None;
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse::<u16>().ok()),
        _ if scheme == Scheme::Http => (authority, Some(80)),
        _ => (authority, None),
    };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    if host.is_empty() || !host.chars().all(letters) {
        fields::invalid(node, path, format!("`{host}` is no host"), expected, diagnostics);
        return None;
    }
    let Some(port) = port.filter(|port| *port != 0) else {
        fields::invalid(node, path, format!("`{url}` has no port"), expected, diagnostics);
        return None;
    };
    Some(Server { host: host.to_owned(), port })
}
