//! [`Reader`]: how lowering reads a [`Message`], recording what it read.
//!
//! What it is for: typed access by field name (snake case), with wrappers, durations, oneofs and `Any` unpacked, and with
//! place and path at hand for diagnostics. Every accessor marks its field in the [`Coverage`]; [`Reader::finish`] then
//! reports what nobody read, so that no field is silently ignored.
//!
//! What it must never do: report a wrong type or a broken rule. The loader did that before; a value of an unexpected
//! kind reads as unset.
//!
//! Who calls it: the lowering of each Envoy type, the extension registry and `doctor`.

use std::time::Duration;

use postrider_config_core::{Diagnostic, Diagnostics, Severity, Span};

use crate::coverage::{Coverage, Mark, UnsupportedPolicy, join};
use crate::message::{Any, Field, Message, Value, enum_name};

/// A message being read. Cheap to make; borrow it or pass it on by value.
#[derive(Clone, Debug)]
pub struct Reader<'m> {
    message: &'m Message,
    coverage: &'m Coverage,
    path: String,
}

/// An element of a repeated scalar field with its place.
#[derive(Clone, Copy, Debug)]
pub struct Element<T> {
    pub value: T,
    pub span: Option<Span>,
    /// Index in the list.
    pub index: usize,
}

/// A resolved `Any`: dispatch on `type_name`, never on the extension's free `name`.
#[derive(Clone, Debug)]
pub struct AnyReader<'m> {
    /// Full message name, such as `envoy.extensions.filters.http.router.v3.Router`.
    pub type_name: &'m str,
    /// The message; `None` when no descriptor is known (the loader reported it).
    pub reader: Option<Reader<'m>>,
    /// The place of the type URL.
    pub span: Option<Span>,
    /// The message itself, for opaque hand-over.
    pub any: &'m Any,
}

impl<'m> Reader<'m> {
    /// Starts at a document's root; its path is empty.
    pub fn root(message: &'m Message, coverage: &'m Coverage) -> Reader<'m> {
        Reader::at(message, coverage, String::new())
    }

    /// Starts at a message that has a path already (a resource of a discovery response).
    pub fn at(message: &'m Message, coverage: &'m Coverage, path: String) -> Reader<'m> {
        Reader { message, coverage, path }
    }

    /// The message being read.
    pub fn as_message(&self) -> &'m Message {
        self.message
    }

    /// Full type name of the message being read.
    pub fn type_name(&self) -> &'m str {
        self.message.type_name()
    }

    /// Path of this message, such as `static_resources.listeners[0]`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Path of a field of this message.
    pub fn path_of(&self, name: &str) -> String {
        join(&self.path, name)
    }

    /// Place of this message.
    pub fn span(&self) -> Option<Span> {
        self.message.span
    }

    /// Place of a set field's value, else of this message.
    pub fn span_of(&self, name: &str) -> Option<Span> {
        self.message.field(name).and_then(Field::span).or(self.message.span)
    }

    /// Place of a set field's key, else of this message.
    pub fn key_span_of(&self, name: &str) -> Option<Span> {
        self.message.field(name).and_then(|field| field.key_span.or(field.value_span)).or(self.message.span)
    }

    /// Whether a field is set (written, and not with the default of a field without presence). Marks it as read; fields
    /// inside it still count as unread.
    pub fn has(&self, name: &str) -> bool {
        self.field(name).is_some_and(|field| !field.is_default())
    }

    /// `string`; `""` when unset.
    pub fn str(&self, name: &str) -> &'m str {
        match self.value(name) {
            Some(Value::String(text)) => text,
            _ => "",
        }
    }

    /// `bytes`; empty when unset.
    pub fn bytes(&self, name: &str) -> &'m [u8] {
        match self.value(name) {
            Some(Value::Bytes(bytes)) => bytes,
            _ => &[],
        }
    }

    /// `bool`; false when unset.
    pub fn bool(&self, name: &str) -> bool {
        matches!(self.value(name), Some(Value::Bool(true)))
    }

    /// `uint32` (also `fixed32`); 0 when unset.
    pub fn u32(&self, name: &str) -> u32 {
        u32::try_from(self.u64(name)).unwrap_or(u32::MAX)
    }

    /// `uint64`; 0 when unset.
    pub fn u64(&self, name: &str) -> u64 {
        unsigned(self.value(name)).unwrap_or(0)
    }

    /// `int32`; 0 when unset.
    pub fn i32(&self, name: &str) -> i32 {
        i32::try_from(self.i64(name)).unwrap_or(if self.i64(name) < 0 { i32::MIN } else { i32::MAX })
    }

    /// `int64`; 0 when unset.
    pub fn i64(&self, name: &str) -> i64 {
        signed(self.value(name)).unwrap_or(0)
    }

    /// `float`, `double`; 0 when unset.
    pub fn f64(&self, name: &str) -> f64 {
        float(self.value(name)).unwrap_or(0.0)
    }

    /// An enum's value name, such as `ROUND_ROBIN`; the name of number 0 when unset.
    pub fn enum_name(&self, name: &str) -> String {
        let Some(descriptor) = self.message.descriptor.get_field_by_name(name) else { return String::new() };
        enum_name(&descriptor, self.enum_number(name))
    }

    /// An enum's number; 0 when unset.
    pub fn enum_number(&self, name: &str) -> i32 {
        match self.value(name) {
            Some(Value::Enum(number)) => *number,
            _ => 0,
        }
    }

    /// `google.protobuf.BoolValue`.
    pub fn bool_wrapper(&self, name: &str) -> Option<bool> {
        Some(matches!(self.wrapped(name)?, Some(Value::Bool(true))))
    }

    /// `google.protobuf.UInt32Value`.
    pub fn u32_wrapper(&self, name: &str) -> Option<u32> {
        Some(u32::try_from(self.u64_wrapper(name)?).unwrap_or(u32::MAX))
    }

    /// `google.protobuf.UInt64Value` (also `UInt32Value`).
    pub fn u64_wrapper(&self, name: &str) -> Option<u64> {
        Some(unsigned(self.wrapped(name)?).unwrap_or(0))
    }

    /// `google.protobuf.Int64Value`, `Int32Value`.
    pub fn i64_wrapper(&self, name: &str) -> Option<i64> {
        Some(signed(self.wrapped(name)?).unwrap_or(0))
    }

    /// `google.protobuf.DoubleValue`, `FloatValue`.
    pub fn f64_wrapper(&self, name: &str) -> Option<f64> {
        Some(float(self.wrapped(name)?).unwrap_or(0.0))
    }

    /// `google.protobuf.StringValue`.
    pub fn str_wrapper(&self, name: &str) -> Option<&'m str> {
        match self.wrapped(name)? {
            Some(Value::String(text)) => Some(text),
            _ => Some(""),
        }
    }

    /// `google.protobuf.Duration`; `None` when unset or negative.
    pub fn duration(&self, name: &str) -> Option<Duration> {
        self.message_of(name)?.as_duration()
    }

    /// `google.protobuf.Struct`, `Value` or `ListValue` (or any message) as JSON. Reads the subtree whole.
    pub fn json(&self, name: &str) -> Option<serde_json::Value> {
        Some(crate::write::message_to_json(self.message_of(name)?))
    }

    /// A singular message field.
    pub fn message(&self, name: &str) -> Option<Reader<'m>> {
        Some(self.child(self.message_of(name)?, self.path_of(name)))
    }

    /// A repeated message field; empty when unset. Elements that are `Any` come from [`Reader::anys`].
    pub fn list(&self, name: &str) -> Vec<Reader<'m>> {
        let path = self.path_of(name);
        let Some(Value::List(items)) = self.value(name) else { return Vec::new() };
        let messages = items.iter().enumerate().filter_map(|(index, item)| match &item.value {
            Value::Message(message) => Some(self.child(message, format!("{path}[{index}]"))),
            _ => None,
        });
        messages.collect()
    }

    /// A repeated string field.
    pub fn strings(&self, name: &str) -> Vec<Element<&'m str>> {
        self.elements(name, |value| match value {
            Value::String(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// A repeated uint32 or uint64 field.
    pub fn u64s(&self, name: &str) -> Vec<Element<u64>> {
        self.elements(name, |value| unsigned(Some(value)))
    }

    /// A repeated float or double field.
    pub fn f64s(&self, name: &str) -> Vec<Element<f64>> {
        self.elements(name, |value| float(Some(value)))
    }

    /// A repeated enum field, as numbers.
    pub fn enum_numbers(&self, name: &str) -> Vec<Element<i32>> {
        self.elements(name, |value| match value {
            Value::Enum(number) => Some(*number),
            _ => None,
        })
    }

    /// A map from a scalar (in text form) to messages.
    pub fn message_map(&self, name: &str) -> Vec<(&'m str, Reader<'m>)> {
        let path = self.path_of(name);
        let Some(Value::Map(entries)) = self.value(name) else { return Vec::new() };
        let messages = entries.iter().filter_map(|entry| match &entry.value {
            Value::Message(message) => {
                Some((entry.key.as_str(), self.child(message, format!("{path}[{:?}]", entry.key))))
            }
            _ => None,
        });
        messages.collect()
    }

    /// A map from a scalar (in text form) to `Any`, such as `typed_per_filter_config`.
    pub fn any_map(&self, name: &str) -> Vec<(&'m str, AnyReader<'m>)> {
        let path = self.path_of(name);
        let Some(Value::Map(entries)) = self.value(name) else { return Vec::new() };
        let all = entries.iter().filter_map(|entry| match &entry.value {
            Value::Any(any) => Some((entry.key.as_str(), self.any_reader(any, format!("{path}[{:?}]", entry.key)))),
            _ => None,
        });
        all.collect()
    }

    /// A map from a scalar (in text form) to strings.
    pub fn string_map(&self, name: &str) -> Vec<(&'m str, &'m str)> {
        let Some(Value::Map(entries)) = self.value(name) else { return Vec::new() };
        let strings = entries.iter().filter_map(|entry| match &entry.value {
            Value::String(text) => Some((entry.key.as_str(), text.as_str())),
            _ => None,
        });
        strings.collect()
    }

    /// The name of the oneof member that is set. Does not mark it: the accessor that reads the member does.
    pub fn oneof(&self, name: &str) -> Option<&'m str> {
        self.message.oneof(name).map(|field| field.descriptor.name())
    }

    /// A singular `google.protobuf.Any`.
    pub fn any(&self, name: &str) -> Option<AnyReader<'m>> {
        match self.value(name)? {
            Value::Any(any) => Some(self.any_reader(any, self.path_of(name))),
            _ => None,
        }
    }

    /// A repeated `google.protobuf.Any`.
    pub fn anys(&self, name: &str) -> Vec<AnyReader<'m>> {
        let path = self.path_of(name);
        let Some(Value::List(items)) = self.value(name) else { return Vec::new() };
        let all = items.iter().enumerate().filter_map(|(index, item)| match &item.value {
            Value::Any(any) => Some(self.any_reader(any, format!("{path}[{index}]"))),
            _ => None,
        });
        all.collect()
    }

    /// Marks a field (if set) as legitimately without effect here, with the reason that `doctor` shows.
    pub fn ignore(&self, name: &str, why: &str) {
        self.mark(name, Mark::Ignored(why.to_owned()));
    }

    /// Marks a field (if set) as honoured in another way than Envoy's, with the difference that `doctor` shows. Call it
    /// beside the accessor, in either order.
    pub fn approximate(&self, name: &str, how: &str) {
        self.mark(name, Mark::Approximated(how.to_owned()));
    }

    /// Refuses a set field with a message of its own (code `unsupported-field`) in place of the generic one of
    /// [`Reader::finish`].
    pub fn refuse(&self, name: &str, why: &str, diagnostics: &mut Diagnostics) {
        let Some(field) = self.message.field(name).filter(|field| !field.is_default()) else { return };
        self.coverage.mark(field, Mark::Refused(why.to_owned()));
        diagnostics.push(self.diagnostic_at(name, Severity::Error, "unsupported-field", why));
    }

    /// Reads the whole subtree of a field: nothing below it counts as unread. For what is handed over opaquely, such as
    /// metadata.
    pub fn whole(&self, name: &str) -> Option<&'m Field> {
        let field = self.field(name)?;
        self.read_below(&field.value);
        Some(field)
    }

    /// Reads all of this message but what is in messages of certain types, by their full names.
    pub fn read_whole_but(&self, is_left: &dyn Fn(&str) -> bool) {
        self.read_but(self.message, is_left);
    }

    /// A reader of a message below this one, which stands at `path`.
    pub fn below(&self, message: &'m Message, path: String) -> Reader<'m> {
        self.child(message, path)
    }

    /// Reads all of this message: what [`Reader::whole`] does for a field.
    pub fn read_whole(&self) {
        self.read_all(self.message);
    }

    /// A finding about this message, with its place and path.
    pub fn diagnostic(&self, severity: Severity, code: &'static str, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(severity, code, message).at(self.span()).path(self.path.clone())
    }

    /// A finding about a field (or about its absence), with its place and path.
    pub fn diagnostic_at(
        &self,
        name: &str,
        severity: Severity,
        code: &'static str,
        message: impl Into<String>,
    ) -> Diagnostic {
        Diagnostic::new(severity, code, message).at(self.span_of(name)).path(self.path_of(name))
    }

    /// Reports every set field of this message and below that nobody read (code `unsupported-field`). Call it once, at
    /// the root, after lowering.
    pub fn finish(&self, diagnostics: &mut Diagnostics, policy: UnsupportedPolicy) {
        self.coverage.finish(self.message, &self.path, policy, diagnostics);
    }

    fn child(&self, message: &'m Message, path: String) -> Reader<'m> {
        Reader { message, coverage: self.coverage, path }
    }

    fn any_reader(&self, any: &'m Any, path: String) -> AnyReader<'m> {
        let reader = any.message.as_ref().map(|message| self.child(message, path));
        AnyReader { type_name: any.type_name(), reader, span: any.type_url_span, any }
    }

    fn field(&self, name: &str) -> Option<&'m Field> {
        debug_assert!(
            self.message.descriptor.get_field_by_name(name).is_some(),
            "{} has no field {name}",
            self.message.type_name()
        );
        let field = self.message.field(name)?;
        self.coverage.read(field);
        Some(field)
    }

    fn value(&self, name: &str) -> Option<&'m Value> {
        self.field(name).map(|field| &field.value)
    }

    fn message_of(&self, name: &str) -> Option<&'m Message> {
        match self.value(name)? {
            Value::Message(message) => Some(message),
            _ => None,
        }
    }

    /// Outer `None`: the wrapper is unset. Inner `None`: it holds the default.
    fn wrapped(&self, name: &str) -> Option<Option<&'m Value>> {
        Some(self.message_of(name)?.as_wrapped())
    }

    fn elements<T>(&self, name: &str, read: impl Fn(&'m Value) -> Option<T>) -> Vec<Element<T>> {
        let Some(Value::List(items)) = self.value(name) else { return Vec::new() };
        let all = items.iter().enumerate().filter_map(|(index, item)| {
            let value = read(&item.value)?;
            Some(Element { value, span: item.span, index })
        });
        all.collect()
    }

    fn mark(&self, name: &str, mark: Mark) {
        if let Some(field) = self.field(name) {
            self.coverage.mark(field, mark);
        }
    }

    fn read_below(&self, value: &'m Value) {
        match value {
            Value::Message(message) => self.read_all(message),
            Value::Any(any) => any.message.iter().for_each(|message| self.read_all(message)),
            Value::List(items) => items.iter().for_each(|item| self.read_below(&item.value)),
            Value::Map(entries) => entries.iter().for_each(|entry| self.read_below(&entry.value)),
            _ => {}
        }
    }

    fn read_but(&self, message: &'m Message, is_left: &dyn Fn(&str) -> bool) {
        if is_left(message.type_name()) {
            return;
        }
        for field in &message.fields {
            self.coverage.read(field);
            self.read_value_but(&field.value, is_left);
        }
    }

    fn read_value_but(&self, value: &'m Value, is_left: &dyn Fn(&str) -> bool) {
        match value {
            Value::Message(message) => self.read_but(message, is_left),
            Value::Any(any) => any.message.iter().for_each(|message| self.read_but(message, is_left)),
            Value::List(items) => items.iter().for_each(|item| self.read_value_but(&item.value, is_left)),
            Value::Map(entries) => entries.iter().for_each(|entry| self.read_value_but(&entry.value, is_left)),
            _ => {}
        }
    }

    fn read_all(&self, message: &'m Message) {
        for field in &message.fields {
            self.coverage.read(field);
            self.read_below(&field.value);
        }
    }
}

fn unsigned(value: Option<&Value>) -> Option<u64> {
    match value? {
        Value::U64(n) => Some(*n),
        Value::I64(n) => u64::try_from(*n).ok(),
        _ => None,
    }
}

fn signed(value: Option<&Value>) -> Option<i64> {
    match value? {
        Value::I64(n) => Some(*n),
        Value::U64(n) => i64::try_from(*n).ok(),
        _ => None,
    }
}

fn float(value: Option<&Value>) -> Option<f64> {
    match value? {
        Value::F64(n) => Some(*n),
        _ => None,
    }
}
