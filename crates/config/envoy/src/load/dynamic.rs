//! Binary protobuf: decoded by descriptor, then turned into the same [`Message`] as YAML. Findings have a path and no place.

use postrider_config_core::{Diagnostic, Diagnostics, Severity};
use prost_reflect::{DynamicMessage, FieldDescriptor, MapKey, MessageDescriptor, ReflectMessage, Value as Dynamic};

use super::LoadOptions;
use super::any::{OPAQUE, TYPED_STRUCTS};
use crate::coverage::join;
use crate::known::{self, VERSION};
use crate::message::{Any, Entry, Field, Item, Message, Value};
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
            let value = self.value(value, &descriptor, &path, depth);
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

    fn value(&mut self, dynamic: &Dynamic, field: &FieldDescriptor, path: &str, depth: usize) -> Value {
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
            Dynamic::Message(message) => self.nested(message, field, path, depth),
            Dynamic::List(items) => {
                let item = |(index, item): (usize, &Dynamic)| {
                    let value = self.value(item, field, &format!("{path}[{index}]"), depth);
                    Item { value, span: None }
                };
                Value::List(items.iter().enumerate().map(item).collect())
            }
            Dynamic::Map(map) => {
                let mut entries: Vec<Entry> = map
                    .iter()
                    .map(|(key, value)| {
                        let key = key_text(key);
                        let value = self.value(value, field, &format!("{path}[{key:?}]"), depth);
                        Entry { key, key_span: None, value, value_span: None }
                    })
                    .collect();
                // The decoder's map has no order; a stable one keeps reloads of the same file equal.
                entries.sort_by(|a, b| a.key.cmp(&b.key));
                Value::Map(entries)
            }
        }
    }

    fn nested(&mut self, dynamic: &DynamicMessage, field: &FieldDescriptor, path: &str, depth: usize) -> Value {
        if dynamic.descriptor().full_name() == "google.protobuf.Any" {
            return Value::Any(Box::new(self.any(dynamic, field, path, depth)));
        }
        let message = self.message(dynamic, path, depth + 1);
        Value::Message(Box::new(message.unwrap_or_else(|| Message::new(dynamic.descriptor(), None))))
    }

    fn any(&mut self, dynamic: &DynamicMessage, field: &FieldDescriptor, path: &str, depth: usize) -> Any {
        let bytes = part(dynamic, "value").and_then(|value| value.as_bytes().cloned()).unwrap_or_default();
        let mut any = Any { type_url: type_url(dynamic), type_url_span: None, message: None, wrapper: None };
        let decode = |descriptor| DynamicMessage::decode(descriptor, bytes);
        let Some(inner) = self.resolve(dynamic, any.type_name(), path, decode) else { return any };
        let wrapper = TYPED_STRUCTS.into_iter().find(|typed| *typed == any.type_name());
        if wrapper.is_none() || OPAQUE.contains(&field.full_name()) {
            any.message = self.message(&inner, path, depth + 1);
            return any;
        }
        // As in YAML: what the Struct stands for.
        (any.type_url, any.wrapper) = (type_url(&inner), wrapper);
        let structure = part(&inner, "value");
        let structure = structure.as_ref().and_then(Dynamic::as_message).map(serde_json::to_value);
        let structure = structure.and_then(Result::ok).unwrap_or_else(|| serde_json::json!({}));
        let read = |descriptor| DynamicMessage::deserialize(descriptor, structure);
        any.message =
            self.resolve(dynamic, any.type_name(), path, read).and_then(|read| self.message(&read, path, depth + 1));
        any
    }

    /// A message of that name, as `read` reads it; why there is none is reported.
    fn resolve<E: std::fmt::Display>(
        &mut self,
        near: &DynamicMessage,
        name: &str,
        path: &str,
        read: impl FnOnce(MessageDescriptor) -> Result<DynamicMessage, E>,
    ) -> Option<DynamicMessage> {
        let Some(descriptor) = near.descriptor().parent_pool().get_message_by_name(name) else {
            self.diagnostics.push(unknown_type(name).path(path));
            return None;
        };
        read(descriptor)
            .map_err(|error| {
                let text = format!("not a serialised {name}: {error}");
                self.diagnostics.push(Diagnostic::error("invalid-protobuf", text).path(path));
            })
            .ok()
    }
}

fn part(message: &DynamicMessage, name: &str) -> Option<Dynamic> {
    message.get_field_by_name(name).map(std::borrow::Cow::into_owned)
}

fn type_url(message: &DynamicMessage) -> String {
    part(message, "type_url").and_then(|url| url.as_str().map(str::to_owned)).unwrap_or_default()
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
