//! Virtual hosts, routes and their matchers.

use super::document::{Entry, Node};
use super::{Migration, filters, wrapped};

pub fn virtual_host(cx: &mut Migration, node: &mut Node) {
    filters::per_route(cx, node);
    for cluster in node.get_mut("virtual_clusters").and_then(Node::entries_mut).into_iter().flatten() {
        virtual_cluster(cx, &mut cluster.node);
    }
}

/// `pattern` and `method` are conditions on headers now.
fn virtual_cluster(cx: &mut Migration, node: &mut Node) {
    let mut headers = Vec::new();
    let mut at = None;
    for (old, header) in [("pattern", ":path"), ("method", ":method")] {
        let Some(entry) = node.take(old) else { continue };
        at = at.or(entry.span);
        let text = entry.node.as_text().unwrap_or_default();
        let condition = if old == "pattern" {
            wrapped("safe_regex", wrapped("regex", Node::text(text)))
        } else {
            wrapped("exact", Node::text(text))
        };
        headers.push(Node::map(vec![Entry::new("name", Node::text(header)), Entry::new("string_match", condition)]));
    }
    if !headers.is_empty() {
        node.set("headers", Node::list(headers));
        cx.note(at, "`pattern` and `method` of a virtual cluster are now `headers`");
    }
}

pub fn route(cx: &mut Migration, node: &mut Node) {
    filters::per_route(cx, node);
    if let Some(action) = node.get_mut("route") {
        self::action(cx, action);
    }
}

fn action(cx: &mut Migration, node: &mut Node) {
    // Envoy 1.40 has a `host_rewrite` of its own, which is a format; v2's was a plain host.
    if node.get("host_rewrite").and_then(Node::as_text).is_some_and(|host| !host.contains('%')) {
        cx.rename(node, "host_rewrite", "host_rewrite_literal");
    }
    cx.rename(node, "auto_host_rewrite_header", "host_rewrite_header");
    if let Some(entry) = node.take("use_websocket")
        && entry.node.as_text() == Some("true")
    {
        let upgrade = wrapped("upgrade_type", Node::text("websocket"));
        node.set("upgrade_configs", Node::list(vec![upgrade]));
        cx.note(entry.span, "`use_websocket` is now an entry of `upgrade_configs`");
    }
    if let Some(entry) = node.take("websocket_config") {
        cx.dropped(entry.span, "`websocket_config` is left out: upgrades have the route's own settings");
    }
    cx.change(node, "request_mirror_policy", "request_mirror_policies", |policy| {
        let mut policy = policy.clone();
        if let Some(key) = policy.take("runtime_key") {
            let all = wrapped("numerator", Node::plain("100"));
            let mut fraction = Node::map(vec![Entry::new("default_value", all)]);
            fraction.set("runtime_key", key.node);
            policy.set("runtime_fraction", fraction);
        }
        policy.flow = false;
        Some(Node::list(vec![policy]))
    });
    if let Some(entry) = node.take("internal_redirect_action")
        && entry.node.as_text() == Some("HANDLE_INTERNAL_REDIRECT")
    {
        node.set("internal_redirect_policy", Node::empty());
        cx.note(entry.span, "`internal_redirect_action` is now `internal_redirect_policy`");
    }
    if let Some(weighted) = node.get_mut("weighted_clusters") {
        for cluster in weighted.get_mut("clusters").and_then(Node::entries_mut).into_iter().flatten() {
            filters::per_route(cx, &mut cluster.node);
        }
    }
}

pub fn matches(cx: &mut Migration, node: &mut Node) {
    cx.change(node, "regex", "safe_regex", |regex| Some(wrapped("regex", regex.clone())));
    without_engine(node, "safe_regex");
    cx.change(node, "runtime", "runtime_fraction", |runtime| {
        let percent = runtime.get("default_value").and_then(Node::as_text).unwrap_or("0");
        let default = wrapped("numerator", Node::plain(percent));
        let mut fraction = Node::map(vec![Entry::new("default_value", default)]);
        if let Some(key) = runtime.get("runtime_key") {
            fraction.set("runtime_key", key.clone());
        }
        Some(fraction)
    });
}

/// An item of `headers` in a match, a retry policy, a filter.
pub fn header_matcher(cx: &mut Migration, node: &mut Node) {
    if node.get("name").is_none() {
        return;
    }
    for (old, kind) in [
        ("exact_match", "exact"),
        ("prefix_match", "prefix"),
        ("suffix_match", "suffix"),
        ("contains_match", "contains"),
    ] {
        cx.change(node, old, "string_match", |value| Some(wrapped(kind, value.clone())));
    }
    cx.change(node, "regex_match", "string_match", |regex| {
        Some(wrapped("safe_regex", wrapped("regex", regex.clone())))
    });
    cx.change(node, "safe_regex_match", "string_match", |regex| {
        let mut regex = regex.clone();
        regex.take("google_re2");
        Some(wrapped("safe_regex", regex))
    });
    old_value(cx, node);
}

/// An item of `query_parameters`.
pub fn query_matcher(cx: &mut Migration, node: &mut Node) {
    if node.get("name").is_some() {
        old_value(cx, node);
    }
}

/// `value` with `regex: true|false`, the first form of all.
fn old_value(cx: &mut Migration, node: &mut Node) {
    let is_regex = node.get("regex").and_then(Node::as_text) == Some("true");
    let had = node.take("regex");
    cx.change(node, "value", "string_match", |value| {
        if is_regex {
            Some(wrapped("safe_regex", wrapped("regex", value.clone())))
        } else {
            Some(wrapped("exact", value.clone()))
        }
    });
    if let Some(entry) = had
        && node.get("string_match").is_none()
    {
        cx.dropped(entry.span, "`regex` is left out: there is no value that it is about");
    }
}

pub fn cors(cx: &mut Migration, node: &mut Node) {
    let mut patterns = Vec::new();
    let mut at = None;
    for (old, kind) in [("allow_origin", "exact"), ("allow_origin_regex", "safe_regex")] {
        let Some(entry) = node.take(old) else { continue };
        at = at.or(entry.span);
        for origin in entry.node.entries() {
            let value = match kind {
                "exact" => origin.node.clone(),
                _ => wrapped("regex", origin.node.clone()),
            };
            patterns.push(wrapped(kind, value));
        }
    }
    if !patterns.is_empty() {
        node.set("allow_origin_string_match", Node::list(patterns));
        cx.note(at, "`allow_origin` is now `allow_origin_string_match`");
    }
    cx.change(node, "enabled", "filter_enabled", |enabled| {
        let percent = if enabled.as_text() == Some("false") { "0" } else { "100" };
        Some(wrapped("default_value", wrapped("numerator", Node::plain(percent))))
    });
}

pub fn retry_policy(cx: &mut Migration, node: &mut Node) {
    if let Some(priority) = node.get_mut("retry_priority") {
        filters::configured(cx, priority, false);
    }
    for predicate in node.get_mut("retry_host_predicate").and_then(Node::entries_mut).into_iter().flatten() {
        filters::configured(cx, &mut predicate.node, false);
    }
}

fn without_engine(node: &mut Node, key: &str) {
    if let Some(regex) = node.get_mut(key) {
        regex.take("google_re2");
    }
}
