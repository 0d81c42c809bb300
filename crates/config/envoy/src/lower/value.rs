//! A filter's configuration message as a plain value: what filters read.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_model::Value;
use serde_json::Value as Json;

use crate::load::any::{OPAQUE, PACKED, TYPED_STRUCTS};
use crate::message::{Field, Message, Value as Wire, enum_name, is_wrapper};
use crate::wire;
use crate::write::message_to_json;

/// Texts, bytes and objects, which everybody reads; of TypedStructs, WebAssembly gets the bytes as well.
fn is_plain(type_name: &str, field: &str) -> bool {
    let own = type_name.strip_prefix("google.protobuf.").filter(|_| !PACKED.contains(&field));
    own.is_some_and(|own| matches!(own, "StringValue" | "BytesValue" | "Struct"))
        || TYPED_STRUCTS.contains(&type_name)
            && !field.starts_with("envoy.extensions.wasm.")
            && !PACKED.contains(&field)
}

/// Canonical form: keys in snake case, fields that equal an absent one left out, wrappers as their value, durations and
/// other well-known types as in protobuf JSON, enums by name, an `Any` as its message with `@type`.
pub(crate) fn value(message: &Message) -> Value {
    let name = message.type_name();
    if is_wrapper(name) || name.starts_with("google.protobuf.") {
        return from_json(message_to_json(message));
    }
    Value::Map(entries(message))
}

fn entries(message: &Message) -> Vec<(String, Value)> {
    let set = message.fields.iter().filter(|field| !field.is_default() || says_none(message, field));
    set.map(|field| (field.descriptor.name().to_owned(), field_value(field, &field.value))).collect()
}

/// A list whose absence means all, so that an empty one, where the text can say so, means none.
fn says_none(message: &Message, field: &Field) -> bool {
    message.type_name() == "postrider.filters.http.plugin.v1.Plugin" && field.descriptor.name() == "clusters"
}

fn field_value(field: &Field, wire: &Wire) -> Value {
    match wire {
        Wire::Bool(value) => Value::Bool(*value),
        Wire::I64(number) => Value::Integer(*number),
        Wire::U64(number) => i64::try_from(*number).map_or(Value::Number(*number as f64), Value::Integer),
        Wire::F64(number) => Value::Number(*number),
        Wire::String(text) => Value::String(text.clone()),
        Wire::Bytes(bytes) => Value::String(STANDARD.encode(bytes)),
        Wire::Enum(number) => Value::String(enum_name(&field.descriptor, *number)),
        Wire::Message(message) => value(message),
        Wire::List(items) => Value::List(items.iter().map(|item| field_value(field, &item.value)).collect()),
        Wire::Map(all) => {
            Value::Map(all.iter().map(|entry| (entry.key.clone(), field_value(field, &entry.value))).collect())
        }
        // One of an unknown type was reported, and is nothing to hand on.
        Wire::Any(any)
            if any.message.is_some()
                && OPAQUE.contains(&field.descriptor.full_name())
                && !is_plain(any.type_name(), field.descriptor.full_name()) =>
        {
            // Only the code that it is for knows it: it stays the bytes that it is on the wire.
            let bytes = any.message.as_ref().map(wire::encode).unwrap_or_default();
            let entry = |key: &str, text: String| (key.to_owned(), Value::String(text));
            Value::Map(vec![entry("@type", any.type_url.clone()), entry("@bytes", STANDARD.encode(bytes))])
        }
        Wire::Any(any) => {
            let mut all = vec![("@type".to_owned(), Value::String(any.type_url.clone()))];
            all.extend(any.message.iter().flat_map(entries));
            Value::Map(all)
        }
    }
}

fn from_json(json: Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(value),
        Json::Number(number) => match number.as_i64() {
            Some(integer) => Value::Integer(integer),
            None => Value::Number(number.as_f64().unwrap_or(0.0)),
        },
        Json::String(text) => Value::String(text),
        Json::Array(items) => Value::List(items.into_iter().map(from_json).collect()),
        Json::Object(entries) => Value::Map(entries.into_iter().map(|(key, value)| (key, from_json(value))).collect()),
    }
}
