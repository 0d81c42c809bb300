//! Routes: what they match, where they send, redirect or answer.

use postrider_config_core::{Diagnostic, Diagnostics, Span};
use postrider_config_envoy::tree::{Node, NodeKind, Pair};

use crate::build::{list, map, pair, plain, text};
use crate::fields::{self, Fields, join};
use crate::hosts::{HOST, Hosted, Project, is_host, virtual_hosts};
use crate::matching;
use crate::plugins::Plugins;
use crate::upstreams::{Clusters, Scheme, Share, Target};

const KEYS: [&str; 10] =
    ["match", "hosts", "methods", "headers", "to", "redirect", "respond", "timeout", "rewrite", "plugins"];

/// The virtual hosts of `routes`; `projects` are those that `hosts` says something about.
pub fn routes(
    node: &Node,
    projects: &[Project],
    plugins: &Plugins,
    clusters: &mut Clusters,
    diagnostics: &mut Diagnostics,
) -> Vec<Node> {
    let NodeKind::List(items) = &node.kind else {
        fields::wrong(node, "routes", "a list of routes", diagnostics);
        return Vec::new();
    };
    let mut all = Vec::new();
    for (index, item) in items.iter().enumerate() {
        all.extend(route(item, &format!("routes[{index}]"), plugins, clusters, diagnostics));
    }
    // Routes that were refused leave their hosts without one: nothing is said about that.
    let projects = if all.len() == items.len() { projects } else { &[] };
    virtual_hosts(all, projects, node.span, diagnostics)
}

fn route(
    node: &Node,
    path: &str,
    plugins: &Plugins,
    clusters: &mut Clusters,
    diagnostics: &mut Diagnostics,
) -> Option<Hosted> {
    let fields = Fields::of(node, path, diagnostics);
    let [pattern, hosts, methods, headers, to, redirect, respond, timeout, rewrite, changed] =
        KEYS.map(|key| fields.take(key));
    fields.finish(&KEYS);
    if !matches!(node.kind, NodeKind::Map(_)) {
        return None;
    }
    let matches = matching::matches(node, path, pattern, methods, headers, diagnostics);
    let hosts = hosts.map_or_else(Vec::new, |hosts| self::hosts(hosts, &join(path, "hosts"), diagnostics));
    let changed = changed.and_then(|node| plugins.overrides(node, &join(path, "plugins"), diagnostics));
    let actions = [("to", to), ("redirect", redirect), ("respond", respond)];
    let given: Vec<(&str, &Node)> = actions.into_iter().filter_map(|(key, node)| Some((key, node?))).collect();
    let [(key, value)] = given.as_slice() else {
        const EXPECTED: &str = "one of `to`, `redirect` and `respond`";
        match given.get(1) {
            None => fields::missing(node, path, "to", EXPECTED, diagnostics),
            Some((key, second)) => {
                let first = given.first().map_or("", |first| first.0);
                let text = format!("a route has one action; `{first}` stands here already");
                fields::invalid(second, &join(path, key), text, EXPECTED, diagnostics);
            }
        }
        return None;
    };
    if *key != "to" {
        for (other, node) in [("timeout", timeout), ("rewrite", rewrite)] {
            if let Some(node) = node {
                let text = format!("`{other}` has no effect beside `{key}`");
                fields::invalid(node, &join(path, other), text, "`to` beside it", diagnostics);
            }
        }
    }
    let place = join(path, key);
    let action = match *key {
        "to" => {
            let target = clusters.target(value, &place, Scheme::Http, Some(plugins), diagnostics);
            let options = forward_options(path, timeout, rewrite, diagnostics);
            pair("route", forward(value.span, target?, options?))
        }
        "redirect" => pair("redirect", self::redirect(value, &place, diagnostics)?),
        _ => pair("direct_response", self::respond(value, &place, diagnostics)?),
    };
    let mut pairs = vec![pair("match", matches?), action];
    pairs.extend(changed.map(|changed| pair("typed_per_filter_config", changed)));
    Some(Hosted { hosts, route: map(node.span, pairs) })
}

fn hosts(node: &Node, path: &str, diagnostics: &mut Diagnostics) -> Vec<(String, Span)> {
    let mut all = Vec::new();
    for (path, item) in fields::several(node, path) {
        let Some(host) = fields::text(item, &path, HOST, diagnostics) else { continue };
        if !is_host(host) {
            fields::invalid(item, &path, format!("`{host}` is no host"), HOST, diagnostics);
            continue;
        }
        all.push((host.to_ascii_lowercase(), item.span));
    }
    all
}

fn forward(span: Span, target: Target, options: Vec<Pair>) -> Node {
    let mut pairs = vec![match target {
        Target::One(name) => pair("cluster", text(span, name)),
        Target::Weighted(parts) => {
            let entry = |Share { name, weight, span, changes }: Share| {
                let mut pairs = vec![pair("name", text(span, name)), pair("weight", plain(span, weight))];
                pairs.extend(changes.map(|changes| pair("typed_per_filter_config", changes)));
                map(span, pairs)
            };
            let entries = list(span, parts.into_iter().map(entry).collect());
            pair("weighted_clusters", map(span, vec![pair("clusters", entries)]))
        }
    }];
    pairs.extend(options);
    map(span, pairs)
}

fn forward_options(
    path: &str,
    timeout: Option<&Node>,
    rewrite: Option<&Node>,
    diagnostics: &mut Diagnostics,
) -> Option<Vec<Pair>> {
    const EXPECTED: &str = "a path that replaces the matched prefix, or `{regex, to}`";
    let mut pairs = Vec::new();
    if let Some(node) = timeout {
        pairs.push(pair("timeout", text(node.span, fields::duration(node, &join(path, "timeout"), diagnostics)?)));
    }
    let Some(node) = rewrite else { return Some(pairs) };
    let place = join(path, "rewrite");
    if let NodeKind::Map(_) = &node.kind {
        let fields = Fields::of(node, &place, diagnostics);
        let (regex, to) = (fields.take("regex"), fields.take("to"));
        fields.finish(&["regex", "to"]);
        let (Some(regex), Some(to)) = (regex, to) else {
            let key = if regex.is_none() { "regex" } else { "to" };
            fields::missing(node, &place, key, EXPECTED, diagnostics);
            return None;
        };
        let pattern = fields::text(regex, &join(&place, "regex"), "a regular expression", diagnostics)?;
        let substitution = fields::text(to, &join(&place, "to"), "a path; `\\1` is the first group", diagnostics)?;
        let pattern = map(regex.span, vec![pair("regex", text(regex.span, pattern))]);
        let parts = vec![pair("pattern", pattern), pair("substitution", text(to.span, substitution))];
        pairs.push(pair("regex_rewrite", map(node.span, parts)));
        return Some(pairs);
    }
    let prefix = fields::text(node, &place, EXPECTED, diagnostics)?;
    if !prefix.starts_with('/') {
        fields::invalid(node, &place, format!("the path `{prefix}` must start with `/`"), EXPECTED, diagnostics);
        return None;
    }
    pairs.push(pair("prefix_rewrite", text(node.span, prefix)));
    Some(pairs)
}

/// `/path`, `https://host/path`, or `{to, status}`.
fn redirect(node: &Node, path: &str, diagnostics: &mut Diagnostics) -> Option<Node> {
    const EXPECTED: &str = "a path, a URL, `https` for the same URL over TLS, or `{to, status}`";
    let (to, status, place) = match &node.kind {
        NodeKind::Map(_) => {
            let fields = Fields::of(node, path, diagnostics);
            let (to, status) = (fields.take("to"), fields.take("status"));
            fields.finish(&["to", "status"]);
            if to.is_none() {
                fields::missing(node, path, "to", EXPECTED, diagnostics);
            }
            (to?, status, join(path, "to"))
        }
        _ => (node, None, path.to_owned()),
    };
    let target = fields::text(to, &place, EXPECTED, diagnostics)?;
    let span = to.span;
    let mut pairs = Vec::new();
    if target == "https" {
        pairs.push(pair("https_redirect", plain(span, true)));
    } else if target.starts_with('/') {
        pairs.push(pair("path_redirect", text(span, target)));
    } else if let Some((scheme @ ("http" | "https"), rest)) = target.split_once("://") {
        let (authority, tail) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !authority.ends_with(']') => (host, Some(port)),
            _ => (authority, None),
        };
        pairs.push(pair("scheme_redirect", text(span, scheme)));
        pairs.push(pair("host_redirect", text(span, host)));
        if let Some(port) = port {
            let Ok(port) = port.parse::<u16>() else {
                fields::invalid(to, &place, format!("`{port}` is no port"), EXPECTED, diagnostics);
                return None;
            };
            pairs.push(pair("port_redirect", plain(span, port)));
        }
        if !tail.is_empty() {
            pairs.push(pair("path_redirect", text(span, tail)));
        }
    } else {
        fields::invalid(to, &place, format!("`{target}` is neither a path nor a URL"), EXPECTED, diagnostics);
        return None;
    }
    if let Some(status) = status {
        let name = match status.text() {
            Some("301") => "MOVED_PERMANENTLY",
            Some("302") => "FOUND",
            Some("303") => "SEE_OTHER",
            Some("307") => "TEMPORARY_REDIRECT",
            Some("308") => "PERMANENT_REDIRECT",
            _ => {
                let text = format!("{} is no status of a redirect", status.describe());
                fields::invalid(status, &join(path, "status"), text, "301, 302, 303, 307 or 308", diagnostics);
                return None;
            }
        };
        pairs.push(pair("response_code", plain(status.span, name)));
    }
    Some(map(node.span, pairs))
}

/// A status, a text, or `{status, body}`.
fn respond(node: &Node, path: &str, diagnostics: &mut Diagnostics) -> Option<Node> {
    const EXPECTED: &str = "a status such as 404, a text, or `{status, body}`";
    let (status, body) = match &node.kind {
        NodeKind::Map(_) => {
            let fields = Fields::of(node, path, diagnostics);
            let (status, body) = (fields.take("status"), fields.take("body"));
            fields.finish(&["status", "body"]);
            (status, body)
        }
        NodeKind::Scalar(scalar) if scalar.plain && scalar.text.parse::<u32>().is_ok() => (Some(node), None),
        NodeKind::Scalar(_) => (None, Some(node)),
        _ => {
            fields::wrong(node, path, EXPECTED, diagnostics);
            return None;
        }
    };
    let number = match status {
        None => 200,
        Some(status) => match status.text().and_then(|text| text.parse::<u32>().ok()) {
            Some(number) if (200..600).contains(&number) => number,
            _ => {
                let text = format!("{} is no status of an answer", status.describe());
                diagnostics
                    .push(Diagnostic::error("invalid-value", text).at(status.span).path(path).expected("200 to 599"));
                return None;
            }
        },
    };
    let mut pairs = vec![pair("status", plain(status.unwrap_or(node).span, number))];
    if let Some(body) = body {
        let written = fields::text(body, &join(path, "body"), "a text", diagnostics)?;
        pairs.push(pair("body", map(body.span, vec![pair("inline_string", text(body.span, written))])));
    }
    Some(map(node.span, pairs))
}
