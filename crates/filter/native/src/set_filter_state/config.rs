//! Reading which objects are made.

use postrider_filter_api::WatchedFile;
use postrider_model::{LogFormat, Reading};

use crate::formats;

#[derive(Debug)]
pub(super) struct Object {
    pub(super) key: String,
    pub(super) kind: Kind,
    pub(super) format: LogFormat,
    /// An empty text leaves alone what is there.
    pub(super) skips_empty: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Bool,
}

/// What makes objects.
const FACTORIES: [(&str, Kind); 3] =
    [("envoy.string", Kind::Text), ("envoy.hashable_string", Kind::Text), ("envoy.bool", Kind::Bool)];

/// Objects that Envoy acts upon by their names.
const ACTED_UPON: [&str; 13] = [
    "envoy.filters.listener.original_dst.local_ip",
    "envoy.filters.listener.original_dst.remote_ip",
    "envoy.network.application_protocols",
    "envoy.network.network_namespace",
    "envoy.network.transport_socket.original_dst_address",
    "envoy.network.upstream_server_name",
    "envoy.network.upstream_subject_alt_names",
    "envoy.ratelimit.hits_addend",
    "envoy.tcp_proxy.cluster",
    "envoy.tcp_proxy.disable_tunneling",
    "envoy.tcp_proxy.per_connection_idle_timeout_ms",
    "envoy.upstream.dynamic_host",
    "envoy.upstream.dynamic_port",
];

/// The objects of one scope, in their order. `acted_upon`: those among [`ACTED_UPON`] that somebody here acts upon.
pub(super) fn objects(
    at: &mut Reading<'_>,
    hook: &str,
    acted_upon: &[&str],
    files: &mut Vec<WatchedFile>,
) -> Vec<Object> {
    at.each(hook, |at| object(at, acted_upon, files)).into_iter().flatten().collect()
}

fn object(at: &mut Reading<'_>, acted_upon: &[&str], files: &mut Vec<WatchedFile>) -> Option<Object> {
    // Has no effect in Envoy either: an object may always be replaced.
    at.flag("read_only");
    if matches!(at.text("shared_with_upstream"), Some("ONCE" | "TRANSITIVE")) {
        at.error(
            "shared_with_upstream",
            "there are no internal connections to share it with: not supported by Postrider",
        );
    }
    let skips_empty = at.flag("skip_if_empty");
    let key = at.text("object_key").unwrap_or_default();
    let kind = kind(at, key, acted_upon);
    if !at.has("format_string") {
        at.error("format_string", "the value of the object is required");
    }
    let format = formats::text(at, "format_string", files);
    Some(Object { key: key.to_owned(), kind: kind?, format: format?, skips_empty })
}

fn kind(at: &mut Reading<'_>, key: &str, acted_upon: &[&str]) -> Option<Kind> {
    let factory = at.text("factory_key");
    if key.is_empty() {
        at.error("object_key", "the name of the object is required");
        return None;
    }
    // Each of them is made by a factory of its name, from a text.
    if acted_upon.contains(&key) && factory.is_none_or(|factory| factory == key) {
        return Some(Kind::Text);
    }
    if ACTED_UPON.contains(&key) {
        at.error("object_key", format!("what \"{key}\" does in Envoy is not supported by Postrider"));
        return None;
    }
    let (field, name) = factory.map_or(("object_key", key), |factory| ("factory_key", factory));
    let known = FACTORIES.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind);
    if known.is_none() {
        let factories = FACTORIES.map(|(name, _)| name).join(", ");
        at.error(field, format!("\"{name}\" makes no objects here; factory_key may be {factories}"));
    }
    known
}
