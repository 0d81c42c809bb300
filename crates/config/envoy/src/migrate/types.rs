//! Type URLs of v2 and their names in v3, and the versions of configuration sources.

use std::collections::HashMap;

use prost_reflect::{DynamicMessage, MessageDescriptor, Value};

use super::Migration;
use super::document::Node;

/// v2 full names and the v3 messages that took their place.
pub type Renames = HashMap<String, String>;

/// The option by which v3 messages name what they were before.
const VERSIONING: &str = "udpa.annotations.versioning";

const TYPE_PREFIX: &str = "type.googleapis.com/";

/// The v3 name of a v2 type; `None` when it is no v2 type, or has none.
pub fn renamed(cx: &mut Migration, name: &str) -> Option<String> {
    // The schema has no v2 types, and reading all of it takes a while.
    if postrider_envoy_proto::known_type(name) {
        return None;
    }
    cx.types.get_or_insert_with(read).get(name).cloned()
}

/// Gives an `@type` of v2 its v3 name.
pub fn type_url(cx: &mut Migration, config: &mut Node) {
    let Some(url) = config.get("@type").and_then(Node::as_text).map(str::to_owned) else { return };
    let name = url.rsplit('/').next().unwrap_or_default();
    if let Some(new) = renamed(cx, name) {
        let span = config.entries().iter().find(|entry| entry.key == "@type").and_then(|entry| entry.span);
        cx.note(span, format!("the type `{name}` is now `{new}`"));
        config.set("@type", Node::text(&format!("{TYPE_PREFIX}{new}")));
    }
}

/// Sources of dynamic configuration state their API version; v2 is gone and absence meant v2.
pub fn config_source(cx: &mut Migration, node: &mut Node) {
    for (sign, field) in [
        ("api_type", "transport_api_version"),
        ("api_config_source", "resource_api_version"),
        ("ads", "resource_api_version"),
        ("path", "resource_api_version"),
    ] {
        // A `path` alone is a config source only beside its version.
        let marked = node.get(sign).is_some() && (sign != "path" || node.get(field).is_some());
        let own = sign != "ads" || node.get("ads").is_some_and(Node::is_map);
        if !marked || !own || node.get(field).and_then(Node::as_text) == Some("V3") {
            continue;
        }
        let span = node.entries().first().and_then(|entry| entry.span);
        cx.note(span, format!("`{field}` is V3"));
        node.set(field, Node::plain("V3"));
    }
}

fn read() -> Renames {
    let pool = postrider_envoy_proto::full_pool();
    let Some(option) = pool.get_extension_by_name(VERSIONING) else { return Renames::new() };
    let mut all = Renames::new();
    for message in pool.all_messages() {
        let options: DynamicMessage = message.options();
        if !options.has_extension(&option) {
            continue;
        }
        let Value::Message(versioning) = options.get_extension(&option).into_owned() else { continue };
        let previous = versioning.get_field_by_name("previous_message_type");
        if let Some(previous) = previous.as_deref().and_then(Value::as_str) {
            remember(&mut all, previous, &message);
        }
    }
    all
}

fn remember(all: &mut Renames, previous: &str, message: &MessageDescriptor) {
    if !previous.is_empty() {
        all.entry(previous.to_owned()).or_insert_with(|| message.full_name().to_owned());
    }
}
