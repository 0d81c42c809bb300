//! What routes, virtual hosts, clusters and hosts tell filters and logs (`envoy.config.core.v3.Metadata`).

use postrider_model::{Metadata, Packed};

use super::context::Lowering;
use super::value;
use crate::message::{Entry, Value};
use crate::reader::{AnyReader, Reader};
use crate::wire;

const METADATA: &str = "metadata";
const TYPED: &str = "typed_filter_metadata";

/// Where messages of clusters and listeners say which of their statistics are told.
pub(super) const STATS_MATCHER: &str = "envoy.stats_matcher";

/// The field `metadata` of `parent`; empty when there is none.
pub(super) fn metadata(cx: &mut Lowering<'_>, parent: &Reader<'_>) -> Metadata {
    named(cx, parent, METADATA)
}

/// The same of what filters and modules may ask for messages: routes, clusters, hosts and their localities.
pub(super) fn with_messages(parent: &Reader<'_>) -> Metadata {
    let Some(at) = parent.message(METADATA) else { return Metadata::default() };
    let mut metadata = maps(&at);
    if let Some(Value::Map(namespaces)) = at.whole(TYPED).map(|field| &field.value) {
        for Entry { key, value, .. } in namespaces {
            // One of an unknown type was reported.
            let Value::Any(any) = value else { continue };
            let Some(message) = &any.message else { continue };
            let packed = Packed { kind: any.type_url.as_str().into(), bytes: wire::encode(message).into() };
            metadata.set_typed(key, packed);
        }
    }
    metadata
}

/// A message in the metadata of `parent`.
pub(super) fn message<'m>(parent: &Reader<'m>, key: &str) -> Option<AnyReader<'m>> {
    let all = parent.message(METADATA)?.any_map(TYPED);
    all.into_iter().find(|(known, _)| *known == key).map(|(_, any)| any)
}

/// The same by another name.
pub(super) fn named(cx: &mut Lowering<'_>, parent: &Reader<'_>, field: &str) -> Metadata {
    let Some(at) = parent.message(field) else { return Metadata::default() };
    let typed = at.whole(TYPED).map(|field| &field.value);
    if !matches!(typed, Some(Value::Map(all)) if all.iter().all(|entry| entry.key == STATS_MATCHER)) {
        cx.no_effect(&at, TYPED, "nothing here hands it on; use `filter_metadata`");
    }
    maps(&at)
}

fn maps(at: &Reader<'_>) -> Metadata {
    let Some(Value::Map(namespaces)) = at.whole("filter_metadata").map(|field| &field.value) else {
        return Metadata::default();
    };
    let namespace = |Entry { key, value, .. }: &Entry| match value {
        Value::Message(message) => Some((key.clone(), value::value(message))),
        _ => None,
    };
    namespaces.iter().filter_map(namespace).collect()
}
