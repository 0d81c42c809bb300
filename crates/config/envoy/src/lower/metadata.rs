//! What routes and virtual hosts tell filters and logs (`envoy.config.core.v3.Metadata`).

use postrider_model::Metadata;

use super::context::Lowering;
use super::value;
use crate::message::{Entry, Value};
use crate::reader::Reader;

/// The field `metadata` of `parent`; empty when there is none.
pub(super) fn metadata(cx: &mut Lowering<'_>, parent: &Reader<'_>) -> Metadata {
    named(cx, parent, "metadata")
}

/// The same by another name.
pub(super) fn named(cx: &mut Lowering<'_>, parent: &Reader<'_>, field: &str) -> Metadata {
    let Some(at) = parent.message(field) else { return Metadata::default() };
    at.whole("typed_filter_metadata");
    cx.no_effect(&at, "typed_filter_metadata", "no filter here has a type of its own for it; use `filter_metadata`");
    let Some(Value::Map(namespaces)) = at.whole("filter_metadata").map(|field| &field.value) else {
        return Metadata::default();
    };
    let namespace = |Entry { key, value, .. }: &Entry| match value {
        Value::Message(message) => Some((key.clone(), value::value(message))),
        _ => None,
    };
    namespaces.iter().filter_map(namespace).collect()
}
