//! Binary protobuf: decoded by descriptor, then turned into the same [`Message`] as YAML. Findings have a path and no place.

use postrider_config_core::{Diagnostic, Diagnostics, Severity};
use prost_reflect::{DynamicMessage, MapKey, MessageDescriptor, ReflectMessage, Value as Dynamic};

use super::LoadOptions;
use crate::coverage::join;
use crate::known::{self, VERSION};
use crate::message::{Any, Entry, Field, Item, Message, Value, type_name};
use crate::tree::MAX_DEPTH;

/// Reads a serialised message.
pub fn from_binary(
    bytes: &[u8],
    descriptor: &MessageDescriptor,
    options: &LoadOptions,
    diagnostics: &mut Diagnostics,
) -> Option<Message> {
    match DynamicMessage::decode(descriptor.clone(), bytes) {
        Ok(message) => Converter { options, diagnostics }.message(&message, "", 0),
        Err(error) => {
            let text = format!("not a serialised {}: {error}", descriptor.full_name());
            diagnostics.push(Diagnostic::error("invalid-protobuf", text));
            None
        }
    }
}

struct Converter<'c> {
    options: &'c LoadOptions,
    diagnostics: &'c mut Diagnostics,
}

impl Converter<'_> {
    fn message(&mut self, dynamic: &DynamicMessage, path: &str, depth: usize) -> Option<Message> {
        if depth > MAX_DEPTH {
            let text = format!("nested deeper than {MAX_DEPTH} levels");
            self.diagnostics.push(Diagnostic::error("limit-exceeded", text).path(path));
            return None;
        }
        let mut message = Message::new(dynamic.descriptor(), None);
        for (descriptor, value) in dynamic.fields() {
            let path = join(path, descriptor.name());
            let value = self.value(value, &path, depth);
            message.fields.push(Field { descriptor, value, key_span: None, value_span: None });
        }
        self.unknown_fields(dynamic, path);
        Some(message)
    }

    fn unknown_fields(&mut self, dynamic: &DynamicMessage, path: &str) {
        let severity = if self.options.allow_unknown_static_fields { Severity::Warning } else { Severity::Error };
        for field in dynamic.unknown_fields() {
            let text = format!("no field number {} in {}", field.number(), dynamic.descriptor().full_name());
            self.diagnostics.push(Diagnostic::new(severity, "unknown-field", text).path(path));
        }
    }

    fn value(&mut self, dynamic: &Dynamic, path: &str, depth: usize) -> Value {
        match dynamic {
            Dynamic::Bool(b) => Value::Bool(*b),
            Dynamic::I32(n) => Value::I64(i64::from(*n)),
            Dynamic::I64(n) => Value::I64(*n),
            Dynamic::U32(n) => Value::U64(u64::from(*n)),
            Dynamic::U64(n) => Value::U64(*n),
            Dynamic::F32(n) => Value::F64(f64::from(*n)),
            Dynamic::F64(n) => Value::F64(*n),
            Dynamic::String(text) => Value::String(text.clone()),
            Dynamic::Bytes(bytes) => Value::Bytes(bytes.to_vec()),
            Dynamic::EnumNumber(number) => Value::Enum(*number),
            Dynamic::Message(message) => self.nested(message, path, depth),
            Dynamic::List(items) => {
                let item = |(index, item): (usize, &Dynamic)| {
                    let value = self.value(item, &format!("{path}[{index}]"), depth);
                    Item { value, span: None }
                };
                Value::List(items.iter().enumerate().map(item).collect())
            }
            Dynamic::Map(map) => {
                let mut entries: Vec<Entry> = map
                    .iter()
                    .map(|(key, value)| {
                        let key = key_text(key);
                        let value = self.value(value, &format!("{path}[{key:?}]"), depth);
                        Entry { key, key_span: None, value, value_span: None }
                    })
                    .collect();
                // The decoder's map has no order; a stable one keeps reloads of the same file equal.
                entries.sort_by(|a, b| a.key.cmp(&b.key));
                Value::Map(entries)
            }
        }
    }

    fn nested(&mut self, dynamic: &DynamicMessage, path: &str, depth: usize) -> Value {
        if dynamic.descriptor().full_name() == "google.protobuf.Any" {
            return self.any(dynamic, path, depth);
        }
        let message = self.message(dynamic, path, depth + 1);
        Value::Message(Box::new(message.unwrap_or_else(|| Message::new(dynamic.descriptor(), None))))
    }

    fn any(&mut self, dynamic: &DynamicMessage, path: &str, depth: usize) -> Value {
        let field = |name: &str| dynamic.get_field_by_name(name).map(std::borrow::Cow::into_owned);
        let type_url = field("type_url").and_then(|url| url.as_str().map(str::to_owned)).unwrap_or_default();
        let bytes = field("value").and_then(|value| value.as_bytes().cloned()).unwrap_or_default();
        let name = type_name(&type_url).to_owned();
        let mut any = Any { type_url, type_url_span: None, message: None, wrapper: None };
        let Some(descriptor) = dynamic.descriptor().parent_pool().get_message_by_name(&name) else {
            self.diagnostics.push(unknown_type(&name).path(path));
            return Value::Any(Box::new(any));
        };
        match DynamicMessage::decode(descriptor, bytes) {
            Ok(inner) => any.message = self.message(&inner, path, depth + 1),
            Err(error) => {
                let text = format!("not a serialised {name}: {error}");
                self.diagnostics.push(Diagnostic::error("invalid-protobuf", text).path(path));
            }
        }
        Value::Any(Box::new(any))
    }
}

fn unknown_type(name: &str) -> Diagnostic {
    if name.is_empty() {
        return Diagnostic::error("missing-type", "an empty type URL: the type of this configuration is not known");
    }
    if known::is_contrib(name) {
        let text = format!("`{name}` is a known Envoy extension, not supported by Postrider {VERSION}");
        return Diagnostic::error("unsupported-extension", text);
    }
    Diagnostic::error("unknown-type", format!("no message type `{name}` in Envoy's API"))
}

fn key_text(key: &MapKey) -> String {
    match key {
        MapKey::Bool(b) => b.to_string(),
        MapKey::I32(n) => n.to_string(),
        MapKey::I64(n) => n.to_string(),
        MapKey::U32(n) => n.to_string(),
        MapKey::U64(n) => n.to_string(),
        MapKey::String(text) => text.clone(),
    }
}
