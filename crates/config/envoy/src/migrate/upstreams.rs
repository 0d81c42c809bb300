//! Clusters, health checks and TLS validation.

use super::document::{Entry, Node};
use super::{Migration, edge, typed, wrapped};

const HTTP_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

pub fn cluster(cx: &mut Migration, node: &mut Node) {
    let name = node.get("name").and_then(Node::as_text).unwrap_or_default().to_owned();
    cx.change(node, "hosts", "load_assignment", |hosts| Some(assignment(&name, hosts)));
    edge::upstream_tls(cx, node);
    protocol_options(cx, node);
    cx.rename(node, "extension_protocol_options", "typed_extension_protocol_options");
    cx.rename(node, "drain_connections_on_host_removal", "ignore_health_on_host_removal");
    if node.get("lb_policy").and_then(Node::as_text).is_some_and(|text| text.eq_ignore_ascii_case("ORIGINAL_DST_LB")) {
        cx.change(node, "lb_policy", "lb_policy", |_| Some(Node::plain("CLUSTER_PROVIDED")));
    }
}

/// `hosts: [address, …]` as one locality.
fn assignment(name: &str, hosts: &Node) -> Node {
    let endpoint = |host: &Entry| {
        let address = Entry { key: "address".to_owned(), ..host.clone() };
        let mut endpoint = Node::map(Vec::new());
        endpoint.body = super::Body::Map(vec![Entry { before: Vec::new(), after: None, ..address }]);
        let mut item = Entry::new("", wrapped("endpoint", endpoint));
        item.before.clone_from(&host.before);
        item.after.clone_from(&host.after);
        item
    };
    let endpoints = Node { body: super::Body::List(hosts.entries().iter().map(endpoint).collect()), flow: false };
    Node::map(vec![
        Entry::new("cluster_name", Node::text(name)),
        Entry::new("endpoints", Node::list(vec![wrapped("lb_endpoints", endpoints)])),
    ])
}

/// The protocol fields of a cluster moved into one extension.
fn protocol_options(cx: &mut Migration, node: &mut Node) {
    const FIELDS: [&str; 5] = [
        "http_protocol_options",
        "http2_protocol_options",
        "common_http_protocol_options",
        "upstream_http_protocol_options",
        "protocol_selection",
    ];
    if !FIELDS.iter().any(|field| node.get(field).is_some()) || node.get("typed_extension_protocol_options").is_some() {
        return;
    }
    let [http1, http2, common, upstream, selection] = FIELDS.map(|field| node.take(field));
    let span = [&http1, &http2, &common, &upstream, &selection].into_iter().flatten().find_map(|entry| entry.span);
    let mut options = typed(HTTP_OPTIONS, None);
    if let Some(entry) = common {
        options.set("common_http_protocol_options", entry.node);
    }
    if let Some(entry) = upstream {
        options.set("upstream_http_protocol_options", entry.node);
    }
    let downstream = selection.is_some_and(|entry| {
        entry.node.as_text().is_some_and(|text| text.eq_ignore_ascii_case("USE_DOWNSTREAM_PROTOCOL"))
    });
    let (http1, http2) = (http1.map(|entry| entry.node), http2.map(|entry| entry.node));
    if downstream {
        let mut both = Node::empty();
        for (key, value) in [("http_protocol_options", http1), ("http2_protocol_options", http2)] {
            if let Some(value) = value {
                both.set(key, value);
            }
        }
        options.set("use_downstream_protocol_config", both);
    } else {
        // With both, v2 spoke HTTP/2.
        let (key, value) = match (http1, http2) {
            (_, Some(http2)) => ("http2_protocol_options", http2),
            (http1, None) => ("http_protocol_options", http1.unwrap_or_else(Node::empty)),
        };
        options.set("explicit_http_config", wrapped(key, value));
    }
    node.set("typed_extension_protocol_options", wrapped(HTTP_OPTIONS, options));
    cx.note(
        span,
        format!("the cluster's protocol options are now `typed_extension_protocol_options` of {HTTP_OPTIONS}"),
    );
}

pub fn health_check(cx: &mut Migration, node: &mut Node) {
    if let Some(http) = node.get_mut("http_health_check") {
        if let Some(entry) = http.take("use_http2")
            && entry.node.as_text() == Some("true")
        {
            http.set("codec_client_type", Node::plain("HTTP2"));
            cx.note(entry.span, "`use_http2` is now `codec_client_type: HTTP2`");
        }
        cx.change(http, "service_name", "service_name_matcher", |name| Some(wrapped("prefix", name.clone())));
    }
}

/// Names that a peer's certificate may carry.
pub fn validation_context(cx: &mut Migration, node: &mut Node) {
    const OLD: &str = "verify_subject_alt_name";
    cx.change(node, OLD, "match_typed_subject_alt_names", |names| {
        let mut all = Vec::new();
        for name in names.entries() {
            let text = name.node.as_text()?;
            let mut item = Node::map(vec![Entry::new("san_type", Node::plain(san_type(text)))]);
            item.set("matcher", wrapped("exact", Node::text(text)));
            all.push(item);
        }
        Some(Node::list(all))
    });
    cx.change(node, "match_subject_alt_names", "match_typed_subject_alt_names", |names| {
        let mut all = Vec::new();
        for name in names.entries() {
            let text = name.node.entries().first().and_then(|entry| entry.node.as_text()).unwrap_or_default();
            let mut item = Node::map(vec![Entry::new("san_type", Node::plain(san_type(text)))]);
            item.set("matcher", name.node.clone());
            all.push(item);
        }
        Some(Node::list(all))
    });
}

/// v2 compared names of every kind; the text shows which kind was meant.
fn san_type(text: &str) -> &'static str {
    if text.contains("://") {
        "URI"
    } else if text.contains('@') {
        "EMAIL"
    } else if text.parse::<std::net::IpAddr>().is_ok() {
        "IP_ADDRESS"
    } else {
        "DNS"
    }
}
