//! Reading which objects are made.

use postrider_filter_api::{FACTORIES, ObjectKind, StreamInfo, WatchedFile};
use postrider_model::{LogFormat, Reading};

use crate::formats;

#[derive(Debug)]
pub(super) struct Object {
    pub(super) key: String,
    pub(super) kind: ObjectKind,
    pub(super) format: LogFormat,
    /// An empty text leaves alone what is there.
    pub(super) skips_empty: bool,
    /// Connections to upstreams know of it.
    pub(super) is_shared: bool,
}

impl Object {
    /// Puts what `text` stands for into the filter state.
    pub(super) fn set(&self, text: &[u8], info: &mut StreamInfo) {
        if !text.is_empty() || !self.skips_empty {
            info.make_state(&self.key, self.kind, text, self.is_shared);
        }
    }
}

/// Objects that Envoy acts upon by their names, and nobody here does.
const UNKNOWN: [&str; 6] = [
    "envoy.ai.llm_protocol.request",
    "envoy.ai.model.request",
    "envoy.network.transport_socket.http_11_proxy.info",
    "envoy.router.debug_config",
    "envoy.upstream.dynamic_host",
    "envoy.upstream.dynamic_port",
];

/// The objects of one scope, in their order.
pub(super) fn objects(at: &mut Reading<'_>, hook: &str, files: &mut Vec<WatchedFile>) -> Vec<Object> {
    at.each(hook, |at| object(at, files)).into_iter().flatten().collect()
}

fn object(at: &mut Reading<'_>, files: &mut Vec<WatchedFile>) -> Option<Object> {
    // Has no effect in Envoy either: an object may always be replaced.
    at.flag("read_only");
    // Both are the same to connections of the first upstream, and there are no others behind them.
    let is_shared = matches!(at.text("shared_with_upstream"), Some("ONCE" | "TRANSITIVE"));
    let skips_empty = at.flag("skip_if_empty");
    let key = at.text("object_key").unwrap_or_default();
    let kind = kind(at, key);
    if !at.has("format_string") {
        at.error("format_string", "the value of the object is required");
    }
    let format = formats::text(at, "format_string", files);
    Some(Object { key: key.to_owned(), kind: kind?, format: format?, skips_empty, is_shared })
}

fn kind(at: &mut Reading<'_>, key: &str) -> Option<ObjectKind> {
    let factory = at.text("factory_key");
    if key.is_empty() {
        at.error("object_key", "the name of the object is required");
        return None;
    }
    let (field, name) = factory.map_or(("object_key", key), |factory| ("factory_key", factory));
    if let Some(unknown) = [key, name].into_iter().find(|name| UNKNOWN.contains(name)) {
        at.error(field, format!("what \"{unknown}\" does in Envoy is not supported by Postrider"));
        return None;
    }
    if ObjectKind::of_known(key).is_some() && name != key {
        at.error("factory_key", format!("whoever asks for \"{key}\" takes what the factory of that name makes only"));
        return None;
    }
    let known = ObjectKind::of(name);
    if known.is_none() {
        let factories = FACTORIES.map(|(name, _)| name).join(", ");
        at.error(field, format!("\"{name}\" makes no objects here; factory_key may be {factories}"));
    }
    known
}
