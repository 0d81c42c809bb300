//! [`Message`] back to JSON and YAML, as `config_dump`, `convert` and `migrate` print it.
//!
//! Field names are snake case (as Envoy's `/config_dump`), enums are names, durations are `0.25s`, an `Any` is a mapping
//! with `@type`, and 64-bit integers are strings: the protobuf JSON mapping. A TypedStruct that the loader resolved is
//! written as what it stands for.
//!
//! What it must never do: print a secret when asked to redact. Who calls it: the admin endpoint and the sub-commands.

mod well_known;
mod yaml;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value as Json};

use crate::message::{Any, Field, Message, Value, enum_name, is_wrapper};
pub use yaml::json_to_yaml;

/// What stands in place of a sensitive string.
const REDACTED: &str = "[redacted]";

/// The field option by which Envoy marks secrets.
const SENSITIVE_OPTION: &str = "udpa.annotations.sensitive";

/// A message as JSON.
pub fn message_to_json(message: &Message) -> Json {
    Writer { redact: false }.message(message, false)
}

/// A message as JSON without secrets: below a field that carries `udpa.annotations.sensitive`, text becomes
/// `[redacted]` and everything else that is no message is left out, as Envoy does in `/config_dump`.
pub fn message_to_redacted_json(message: &Message) -> Json {
    Writer { redact: true }.message(message, false)
}

/// A message as block-style YAML.
pub fn message_to_yaml(message: &Message) -> String {
    json_to_yaml(&message_to_json(message))
}

/// An `Any` as JSON: the message's fields beside `@type` (or `@type` and `value` for a well-known type).
pub fn any_to_json(any: &Any) -> Json {
    Writer { redact: false }.any(any, false)
}

struct Writer {
    redact: bool,
}

impl Writer {
    /// `secret`: an enclosing field is sensitive.
    fn message(&self, message: &Message, secret: bool) -> Json {
        if is_wrapper(message.type_name()) {
            return self.wrapper(message, secret);
        }
        if let Some(json) = well_known::to_json(message) {
            return if secret { redacted(&json) } else { json };
        }
        let mut out = Map::new();
        for field in &message.fields {
            let secret = secret || (self.redact && is_sensitive(field));
            if let Some(json) = self.value(&field.value, field, secret) {
                out.insert(field.descriptor.name().to_owned(), json);
            }
        }
        Json::Object(out)
    }

    fn any(&self, any: &Any, secret: bool) -> Json {
        let mut out = Map::new();
        out.insert("@type".to_owned(), Json::from(any.type_url.as_str()));
        if let Some(message) = &any.message {
            match self.message(message, secret) {
                Json::Object(fields) if !has_own_json_form(message.type_name()) => out.extend(fields),
                value => {
                    out.insert("value".to_owned(), value);
                }
            }
        }
        Json::Object(out)
    }

    fn wrapper(&self, message: &Message, secret: bool) -> Json {
        if let Some(field) = message.field("value") {
            return self.value(&field.value, field, secret).unwrap_or(Json::Null);
        }
        match message.type_name() {
            "google.protobuf.BoolValue" => Json::Bool(false),
            "google.protobuf.StringValue" | "google.protobuf.BytesValue" => Json::from(""),
            "google.protobuf.Int64Value" | "google.protobuf.UInt64Value" => Json::from("0"),
            _ => Json::from(0),
        }
    }

    /// `None`: the value is secret and has no redacted form.
    fn value(&self, value: &Value, field: &Field, secret: bool) -> Option<Json> {
        Some(match value {
            Value::String(_) | Value::Bytes(_) if secret => Json::from(REDACTED),
            Value::Message(message) => self.message(message, secret),
            Value::Any(any) => self.any(any, secret),
            Value::List(items) => items.iter().filter_map(|item| self.value(&item.value, field, secret)).collect(),
            Value::Map(entries) => {
                let fields = entries.iter().filter_map(|entry| {
                    let json = self.value(&entry.value, &map_value(field), secret)?;
                    Some((entry.key.clone(), json))
                });
                Json::Object(fields.collect())
            }
            _ if secret => return None,
            Value::Bool(b) => Json::Bool(*b),
            Value::I64(n) if is_64_bit(field) => Json::from(n.to_string()),
            Value::U64(n) if is_64_bit(field) => Json::from(n.to_string()),
            Value::I64(n) => Json::from(*n),
            Value::U64(n) => Json::from(*n),
            Value::F64(n) => float(*n),
            Value::String(text) => Json::from(text.as_str()),
            Value::Bytes(bytes) => Json::from(STANDARD.encode(bytes)),
            Value::Enum(number) => Json::from(enum_name(&field.descriptor, *number)),
        })
    }
}

/// Whether a type's JSON form is not the object of its fields, so that inside an `Any` it stands under `value`.
pub(crate) fn has_own_json_form(type_name: &str) -> bool {
    is_wrapper(type_name)
        || matches!(
            type_name.strip_prefix("google.protobuf."),
            Some("Duration" | "Timestamp" | "FieldMask" | "Struct" | "Value" | "ListValue" | "Any")
        )
}

/// Numbers that JSON lacks are text, as in protobuf's mapping.
pub(crate) fn float(n: f64) -> Json {
    // A whole number without a fraction reads better and parses to the same value.
    if n.fract() == 0.0 && n.abs() < 1e15 {
        return Json::from(n as i64);
    }
    match Number::from_f64(n) {
        Some(number) => Json::Number(number),
        None if n.is_nan() => Json::from("NaN"),
        None if n > 0.0 => Json::from("Infinity"),
        None => Json::from("-Infinity"),
    }
}

/// A map entry's value has the descriptor of the entry message's `value` field.
fn map_value(field: &Field) -> Field {
    let descriptor = match field.descriptor.kind() {
        prost_reflect::Kind::Message(entry) if entry.is_map_entry() => entry.map_entry_value_field(),
        _ => field.descriptor.clone(),
    };
    Field { descriptor, value: Value::Bool(false), key_span: None, value_span: None }
}

fn is_64_bit(field: &Field) -> bool {
    use prost_reflect::Kind::{Fixed64, Int64, Sfixed64, Sint64, Uint64};
    matches!(field.descriptor.kind(), Int64 | Sint64 | Sfixed64 | Uint64 | Fixed64)
}

fn is_sensitive(field: &Field) -> bool {
    let Some(extension) = field.descriptor.parent_pool().get_extension_by_name(SENSITIVE_OPTION) else { return false };
    field.descriptor.options().get_extension(&extension).as_bool() == Some(true)
}

fn redacted(json: &Json) -> Json {
    match json {
        Json::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), redacted(value))).collect(),
        Json::Array(items) => items.iter().map(redacted).collect(),
        _ => Json::from(REDACTED),
    }
}
