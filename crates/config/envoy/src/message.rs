//! [`Message`]: one protobuf message as the user wrote it, with the place of every field.
//!
//! What it is for: YAML, JSON, binary and text protobuf all become this one tree, so that validation, lowering to the
//! model, migration and `config_dump` have one thing to read. Only fields that the input sets are present; a field that
//! is written with its default value is present too, because its place matters for diagnostics.
//!
//! What it must never do: know what a field means. Types come from the descriptors alone.
//!
//! Who calls it: the loader builds it, [`crate::reader::Reader`] and [`crate::write`] read it.

use std::time::Duration;

use postrider_config_core::Span;
use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};

/// The prefix that Envoy writes in front of a type name in a type URL.
pub const TYPE_URL_PREFIX: &str = "type.googleapis.com/";

/// A message with the fields that were set, in the order of the input.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    pub descriptor: MessageDescriptor,
    pub fields: Vec<Field>,
    /// The mapping it was written as; `None` for binary input and for messages made by a migration.
    pub span: Option<Span>,
}

/// One set field.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    pub descriptor: FieldDescriptor,
    pub value: Value,
    pub key_span: Option<Span>,
    pub value_span: Option<Span>,
}

/// A value of a field, a list element or a map entry.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Bool(bool),
    /// int32, int64, sint*, sfixed*.
    I64(i64),
    /// uint32, uint64, fixed*.
    U64(u64),
    /// float, double.
    F64(f64),
    String(String),
    Bytes(Vec<u8>),
    /// The number; its name comes from the field's descriptor.
    Enum(i32),
    /// Any message but `google.protobuf.Any`. Well-known types (wrappers, Duration, Struct, …) are ordinary messages
    /// here; see [`Message::as_duration`] and its neighbours.
    Message(Box<Message>),
    List(Vec<Item>),
    /// Entries in the order of the input; no key occurs twice.
    Map(Vec<Entry>),
    Any(Box<Any>),
}

/// An element of a repeated field.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    pub value: Value,
    pub span: Option<Span>,
}

/// An entry of a map field. Keys of every kind are kept in their JSON form, which is text.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub key: String,
    pub key_span: Option<Span>,
    pub value: Value,
    pub value_span: Option<Span>,
}

/// A `google.protobuf.Any`, resolved by its type URL. A `TypedStruct` inside it is resolved too: `message` is then what
/// the struct stands for, and `wrapper` names the TypedStruct type that carried it.
#[derive(Clone, Debug, PartialEq)]
pub struct Any {
    /// As written, prefix included; of a TypedStruct the inner one.
    pub type_url: String,
    pub type_url_span: Option<Span>,
    /// `None` when no descriptor is known for the type; the loader has reported that.
    pub message: Option<Message>,
    /// `xds.type.v3.TypedStruct` or `udpa.type.v1.TypedStruct`.
    pub wrapper: Option<&'static str>,
}

impl Any {
    /// The message's full name: the part of the type URL behind the last `/`.
    pub fn type_name(&self) -> &str {
        type_name(&self.type_url)
    }
}

/// The full message name of a type URL: what follows the last `/`.
pub fn type_name(type_url: &str) -> &str {
    type_url.rsplit('/').next().unwrap_or(type_url)
}

impl Message {
    /// A message with no field set.
    pub fn new(descriptor: MessageDescriptor, span: Option<Span>) -> Message {
        Message { descriptor, fields: Vec::new(), span }
    }

    /// The full type name: `envoy.config.cluster.v3.Cluster`.
    pub fn type_name(&self) -> &str {
        self.descriptor.full_name()
    }

    /// The set field of a name (snake case).
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.descriptor.name() == name)
    }

    /// The set field of a name (snake case), to change it.
    pub fn field_mut(&mut self, name: &str) -> Option<&mut Field> {
        self.fields.iter_mut().find(|field| field.descriptor.name() == name)
    }

    /// The value of a set field.
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.field(name).map(|field| &field.value)
    }

    /// The message in a singular message field.
    pub fn message(&self, name: &str) -> Option<&Message> {
        match self.value(name)? {
            Value::Message(message) => Some(message),
            _ => None,
        }
    }

    /// The text of a string field; `""` when unset.
    pub fn str(&self, name: &str) -> &str {
        match self.value(name) {
            Some(Value::String(text)) => text,
            _ => "",
        }
    }

    /// The member of a oneof that is set.
    pub fn oneof(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.descriptor.containing_oneof().is_some_and(|oneof| oneof.name() == name))
    }

    /// A `google.protobuf.Duration`; `None` for a negative one or another type.
    pub fn as_duration(&self) -> Option<Duration> {
        if self.type_name() != "google.protobuf.Duration" {
            return None;
        }
        let seconds = u64::try_from(self.integer("seconds")).ok()?;
        let nanos = u32::try_from(self.integer("nanos")).ok()?;
        Some(Duration::new(seconds, nanos))
    }

    /// The value inside a wrapper (`google.protobuf.UInt32Value` and its kin); `None` when the wrapper holds the
    /// default or this is no wrapper.
    pub fn as_wrapped(&self) -> Option<&Value> {
        is_wrapper(self.type_name()).then(|| self.value("value")).flatten()
    }

    /// A signed 64-bit field; 0 when unset.
    pub(crate) fn integer(&self, name: &str) -> i64 {
        match self.value(name) {
            Some(Value::I64(n)) => *n,
            Some(Value::U64(n)) => i64::try_from(*n).unwrap_or(i64::MAX),
            _ => 0,
        }
    }
}

impl Field {
    /// Whether the value equals what an absent field means: proto3 fields without presence cannot tell the two apart.
    pub fn is_default(&self) -> bool {
        !self.descriptor.supports_presence()
            && match &self.value {
                Value::Bool(b) => !b,
                Value::I64(n) => *n == 0,
                Value::U64(n) => *n == 0,
                Value::F64(n) => *n == 0.0,
                Value::String(text) => text.is_empty(),
                Value::Bytes(bytes) => bytes.is_empty(),
                Value::Enum(number) => *number == 0,
                Value::List(items) => items.is_empty(),
                Value::Map(entries) => entries.is_empty(),
                Value::Message(_) | Value::Any(_) => false,
            }
    }

    /// The best place to point at: the value, else the key.
    pub fn span(&self) -> Option<Span> {
        self.value_span.or(self.key_span)
    }
}

/// Whether a type is one of the nine wrappers of `google/protobuf/wrappers.proto`.
pub fn is_wrapper(type_name: &str) -> bool {
    matches!(
        type_name.strip_prefix("google.protobuf."),
        Some(
            "BoolValue"
                | "StringValue"
                | "BytesValue"
                | "Int32Value"
                | "Int64Value"
                | "UInt32Value"
                | "UInt64Value"
                | "FloatValue"
                | "DoubleValue"
        )
    )
}

/// The name of an enum field's number, or the number itself as text when the enum does not know it.
pub fn enum_name(field: &FieldDescriptor, number: i32) -> String {
    match field.kind() {
        Kind::Enum(kind) => kind.get_value(number).map_or_else(|| number.to_string(), |value| value.name().to_owned()),
        _ => number.to_string(),
    }
}
