//! A tree read by descriptor: fields, lists, maps and oneofs. Types are the schema's, never guessed.
//!
//! Every error is reported where it is and reading goes on. The path of a value with an error is remembered, so that the
//! rule check does not report the same fault in other words.

use std::collections::HashSet;
use std::fmt::Write;

use postrider_config_core::{Diagnostic, Diagnostics, Severity, Span, nearest};
use prost_reflect::{DescriptorPool, FieldDescriptor, Kind, MessageDescriptor};

use super::format::Format;
use super::{LoadOptions, any, scalar, v2, well_known};
use crate::message::{Entry, Field, Item, Message, Value};
use crate::tree::{Node, NodeKind, Pair, Scalar};

/// Messages that name an extension and carry its configuration.
const NAMED_EXTENSIONS: [&str; 5] = [
    "envoy.config.listener.v3.Filter",
    "envoy.config.listener.v3.ListenerFilter",
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter",
    "envoy.config.accesslog.v3.AccessLog",
    "envoy.config.core.v3.TransportSocket",
];

/// Reads trees into messages.
pub struct Decoder<'d> {
    pub pool: &'d DescriptorPool,
    /// JSON text has types of its own; a plain YAML scalar has those that Envoy gives it.
    pub format: Format,
    pub options: &'d LoadOptions,
    pub diagnostics: &'d mut Diagnostics,
    pub broken: &'d mut HashSet<String>,
    /// What is being read is of our own schema, where a number in a Struct is a number, be it a fraction.
    pub numbers_as_written: bool,
    /// What is being read is for code that is not ours, which may know what a negative duration means.
    pub is_opaque: bool,
    /// Path of what is being read.
    path: String,
}

/// The packages of our own extensions.
const OWN_PACKAGES: &str = "postrider.";

/// Texts that may be written as numbers: a status beside a word, a version.
const NUMBERS_AS_TEXT: [&str; 2] =
    ["postrider.filters.http.plugin.v1.Plugin.on_error", "postrider.filters.http.plugin.v1.Plugin.version"];

impl<'d> Decoder<'d> {
    pub fn new(
        pool: &'d DescriptorPool,
        format: Format,
        options: &'d LoadOptions,
        diagnostics: &'d mut Diagnostics,
        broken: &'d mut HashSet<String>,
    ) -> Decoder<'d> {
        let (numbers_as_written, is_opaque) = (false, false);
        Decoder { pool, format, options, diagnostics, broken, numbers_as_written, is_opaque, path: String::new() }
    }

    /// Reads the document itself.
    pub fn root(&mut self, node: &Node, descriptor: &MessageDescriptor) -> Option<Message> {
        self.message(node, descriptor)
    }

    /// Reads a message; `None` (reported) when the node cannot be one.
    pub fn message(&mut self, node: &Node, descriptor: &MessageDescriptor) -> Option<Message> {
        if let Some(message) = well_known::decode(self, node, descriptor) {
            return message;
        }
        match &node.kind {
            NodeKind::Map(_) if descriptor.full_name() == "google.protobuf.Any" && self.format != Format::Text => {
                Some(any::packed(self, node, descriptor))
            }
            NodeKind::Map(pairs) => Some(self.fields(node.span, pairs, descriptor)),
            // A key with nothing behind it: an empty message, which the caller has told apart from an unset field.
            NodeKind::Null => Some(Message::new(descriptor.clone(), Some(node.span))),
            _ => {
                self.wrong_type(node, &scalar::expected(&Kind::Message(descriptor.clone())));
                None
            }
        }
    }

    /// Reads the fields of a mapping, all but `@type`.
    pub fn fields(&mut self, span: Span, pairs: &[Pair], descriptor: &MessageDescriptor) -> Message {
        let own = descriptor.full_name().starts_with(OWN_PACKAGES);
        let around = std::mem::replace(&mut self.numbers_as_written, own);
        let mut message = Message::new(descriptor.clone(), Some(span));
        for pair in pairs {
            if pair.key == "@type" {
                continue;
            }
            match field_of(descriptor, &pair.key) {
                Some(field) => self.field(&mut message, pair, field),
                None if v2::extension_config(self, &mut message, pairs, pair) => {}
                None => self.unknown_field(descriptor, pairs, pair),
            }
        }
        self.numbers_as_written = around;
        self.missing_config(&message, pairs);
        if descriptor.full_name() == "google.protobuf.Duration"
            && !self.is_opaque
            && (message.integer("seconds") < 0 || message.integer("nanos") < 0)
        {
            self.report(Diagnostic::error("invalid-duration", "a duration cannot be negative here").at(span));
        }
        message
    }

    /// An extension with a name alone: Envoy finds extensions by the type of their configuration.
    fn missing_config(&mut self, message: &Message, pairs: &[Pair]) {
        let descriptor = &message.descriptor;
        let takes_config = descriptor.get_field_by_name("typed_config").is_some_and(|field| {
            let alone = field.containing_oneof().is_none_or(|oneof| message.oneof(oneof.name()).is_none());
            alone && message.field(field.name()).is_none()
        });
        let present = |key: &str| pairs.iter().any(|pair| pair.key == key);
        if !takes_config || !NAMED_EXTENSIONS.contains(&descriptor.full_name()) || present(v2::CONFIG) {
            return;
        }
        // A slip in the key is reported as such.
        if self.broken.contains(&crate::coverage::join(&self.path, "typed_config")) {
            return;
        }
        let Some(name) = pairs.iter().find(|pair| pair.key == "name") else { return };
        let shown = name.value.text().unwrap_or("");
        let text = format!("`{shown}` has no `typed_config`: an extension is found by the type of its configuration");
        let mut diagnostic = Diagnostic::error("missing-config", text).at(name.value.span);
        if let Some(extension) = super::names::extension(shown) {
            let url = format!("{}{}", crate::message::TYPE_URL_PREFIX, extension.type_name);
            diagnostic = diagnostic.expected(format!("`typed_config: {{\"@type\": {url}}}` beside the name"));
            if extension.old_names.contains(&shown) {
                diagnostic =
                    diagnostic.note(format!("`{shown}` is its name in the v2 API; today it is `{}`", extension.name));
            }
        }
        self.report(diagnostic);
    }

    /// Runs `read` with a field name at the end of the path.
    pub fn within<T>(&mut self, name: &str, read: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        let result = read(self);
        self.path.truncate(length);
        result
    }

    /// Reports a finding at the current path and remembers that the value there is broken.
    pub fn report(&mut self, diagnostic: Diagnostic) {
        if diagnostic.severity == Severity::Error {
            self.broken.insert(self.path.clone());
        }
        self.diagnostics.push(diagnostic.path(self.path.clone()));
    }

    /// Reports a value of the wrong kind.
    pub fn wrong_type(&mut self, node: &Node, expected: &str) {
        let message = format!("expected {expected}, found {}", node.describe());
        self.report(Diagnostic::error("wrong-type", message).at(node.span));
    }

    /// A single value of a kind; broken values become the kind's default, so that lists keep their positions. `place` is the field
    /// that the user wrote: of a map's values the map.
    fn single(&mut self, node: &Node, field: &FieldDescriptor, place: &FieldDescriptor) -> Value {
        let kind = field.kind();
        match (&kind, &node.kind) {
            (Kind::Message(descriptor), _) if descriptor.full_name() == "google.protobuf.Any" => {
                let empty = matches!(&node.kind, NodeKind::Map(pairs) if pairs.is_empty());
                if empty && place.full_name() == any::OPTIONAL {
                    any::untyped()
                } else {
                    any::decode(self, node, place.full_name())
                }
            }
            (Kind::Message(descriptor), _) => {
                let message = self.message(node, descriptor);
                Value::Message(Box::new(message.unwrap_or_else(|| Message::new(descriptor.clone(), Some(node.span)))))
            }
            (_, NodeKind::Scalar(scalar)) if self.is_number_for_text(scalar, field) => {
                Value::String(scalar.text.clone())
            }
            (_, NodeKind::Scalar(scalar)) => self.scalar(scalar, node.span, &kind),
            // In a list Envoy reads nothing as the default.
            (_, NodeKind::Null) => scalar::default(&kind),
            _ => {
                self.wrong_type(node, &scalar::expected(&kind));
                scalar::default(&kind)
            }
        }
    }

    /// A number where a field of ours takes it as the text that it is written as.
    fn is_number_for_text(&self, scalar: &Scalar, field: &FieldDescriptor) -> bool {
        self.format != Format::Text
            && NUMBERS_AS_TEXT.contains(&field.full_name())
            && matches!(scalar::classify(scalar, self.format), scalar::Plain::Int(_) | scalar::Plain::Float(_))
    }

    /// A scalar of a kind; the kind's default (reported) when it is none.
    pub fn scalar(&mut self, scalar: &Scalar, span: Span, kind: &Kind) -> Value {
        match scalar::decode(scalar, self.format, kind) {
            Ok(value) => {
                self.warn_of_enum_value(&value, span, kind);
                value
            }
            Err(fault) => {
                self.report(fault.diagnostic(scalar, span, kind));
                scalar::default(kind)
            }
        }
    }

    fn field(&mut self, message: &mut Message, pair: &Pair, field: FieldDescriptor) {
        // `null` is unset, but for the one type in which it is a value.
        if pair.value.kind == NodeKind::Null && !is_json_value(&field) {
            return;
        }
        let name = field.name().to_owned();
        self.within(&name, |decoder| {
            decoder.conflicts(message, pair, &field);
            decoder.warn_of_deprecation(pair, &field);
            let value = decoder.value(&pair.value, &field);
            let (key_span, value_span) = (Some(pair.key_span), Some(pair.value.span));
            message.fields.retain(|own| own.descriptor != field);
            message.fields.push(Field { descriptor: field, value, key_span, value_span });
        });
    }

    fn value(&mut self, node: &Node, field: &FieldDescriptor) -> Value {
        if field.is_map() {
            return self.map(node, field);
        }
        if !field.is_list() {
            return self.single(node, field, field);
        }
        let NodeKind::List(items) = &node.kind else {
            // As Envoy: one element may stand without its list.
            let length = self.path.len();
            self.path.push_str("[0]");
            let value = self.single(node, field, field);
            self.path.truncate(length);
            return Value::List(vec![Item { value, span: Some(node.span) }]);
        };
        let read = |(index, item): (usize, &Node)| {
            let length = self.path.len();
            let _ = write!(self.path, "[{index}]");
            let value = self.single(item, field, field);
            self.path.truncate(length);
            Item { value, span: Some(item.span) }
        };
        Value::List(items.iter().enumerate().map(read).collect())
    }

    fn map(&mut self, node: &Node, field: &FieldDescriptor) -> Value {
        let Kind::Message(entry) = field.kind() else { return Value::Map(Vec::new()) };
        let listed = if self.format == Format::Text { entries_of_text(node) } else { None };
        let pairs = match (&listed, &node.kind) {
            (Some(pairs), _) | (None, NodeKind::Map(pairs)) => pairs,
            _ => {
                self.wrong_type(node, "a mapping");
                return Value::Map(Vec::new());
            }
        };
        let (key_kind, value_field) = (entry.map_entry_key_field().kind(), entry.map_entry_value_field());
        let read = |pair: &Pair| {
            let length = self.path.len();
            let _ = write!(self.path, "[{:?}]", pair.key);
            // Keys that are numbers or booleans must read as such; text is any text.
            let key = Scalar { text: pair.key.clone(), plain: false };
            self.scalar(&key, pair.key_span, &key_kind);
            let value = self.single(&pair.value, &value_field, field);
            self.path.truncate(length);
            let (key_span, value_span) = (Some(pair.key_span), Some(pair.value.span));
            Entry { key: pair.key.clone(), key_span, value, value_span }
        };
        Value::Map(pairs.iter().map(read).collect())
    }

    /// Another member of the same oneof, or the same field under its other name.
    fn conflicts(&mut self, message: &mut Message, pair: &Pair, field: &FieldDescriptor) {
        if message.fields.iter().any(|own| own.descriptor == *field) {
            let text = format!(
                "the field `{}` is set twice (as {} and in camel case); this one wins",
                field.name(),
                field.name()
            );
            self.report(Diagnostic::warning("duplicate-key", text).at(pair.key_span).help("remove one of the two"));
        }
        let Some(oneof) = field.containing_oneof().filter(|oneof| !oneof.is_synthetic()) else { return };
        let other =
            |own: &&Field| own.descriptor != *field && own.descriptor.containing_oneof().as_ref() == Some(&oneof);
        let Some(other) = message.fields.iter().find(other) else { return };
        let (mine, theirs) = (field.name(), other.descriptor.name());
        let text = format!("`{mine}` and `{theirs}` exclude each other: only one of them may be set");
        let members: Vec<String> = oneof.fields().map(|field| format!("`{}`", field.name())).collect();
        self.report(
            Diagnostic::error("oneof-conflict", text)
                .at(pair.key_span)
                .expected(format!("one of {}", members.join(", ")))
                .help("remove one of the two"),
        );
    }

    fn unknown_field(&mut self, descriptor: &MessageDescriptor, pairs: &[Pair], pair: &Pair) {
        if let Some(diagnostic) = v2::removed_field(descriptor, &pair.key) {
            // What took its place is not there; that is no second fault.
            if let Some(successor) = v2::successor(descriptor, &pair.key) {
                self.broken.insert(crate::coverage::join(&self.path, &successor));
            }
            return self.within(&pair.key, |decoder| decoder.report(diagnostic.at(pair.key_span)));
        }
        if let Some(name) =
            pair.key.strip_prefix('-').filter(|name| name.starts_with(|c: char| c.is_ascii_alphabetic()))
        {
            let text = format!("no space behind the dash in front of `{name}`");
            let dash = Span { end: pair.key_span.start + 1, ..pair.key_span };
            let diagnostic = Diagnostic::error("yaml-syntax", text).at(pair.key_span).fix(
                dash,
                "- ",
                "insert a space behind the dash",
            );
            return self.report(diagnostic);
        }
        let names: Vec<FieldDescriptor> = descriptor.fields().collect();
        let suggestion = nearest(&pair.key, names.iter().map(FieldDescriptor::name));
        let severity = if self.options.allow_unknown_static_fields { Severity::Warning } else { Severity::Error };
        let text = format!("no field `{}` in {}", pair.key, descriptor.full_name());
        let mut diagnostic = Diagnostic::new(severity, "unknown-field", text).at(pair.key_span).suggest(suggestion);
        match suggestion {
            Some(name) if !pairs.iter().any(|own| own.key == name) => {
                if same_but_spelling(&pair.key, name) {
                    diagnostic = diagnostic.fix(pair.key_span, name, format!("write `{name}`"));
                }
                // Most likely the field is there under the wrong name: its absence is not reported as well.
                self.broken.insert(crate::coverage::join(&self.path, name));
            }
            Some(_) => {}
            None => diagnostic = diagnostic.expected(fields_in_words(&names)),
        }
        if let Some(misplaced) = owner_of(descriptor, pairs, &pair.key) {
            diagnostic = diagnostic.note(misplaced);
        }
        self.within(&pair.key, |decoder| decoder.report(diagnostic));
    }

    fn warn_of_deprecation(&mut self, pair: &Pair, field: &FieldDescriptor) {
        let options = field.field_descriptor_proto().options.as_ref();
        if options.is_none_or(|options| !options.deprecated()) {
            return;
        }
        let mut text = format!("`{}` is deprecated in Envoy", field.name());
        if let Some(since) = annotation(field, "envoy.annotations.deprecated_at_minor_version") {
            let _ = write!(text, " (since API version {since})");
        }
        let refused = annotation(field, "envoy.annotations.disallowed_by_default").is_some();
        let severity = if refused { Severity::Error } else { Severity::Warning };
        let mut diagnostic = Diagnostic::new(severity, "deprecated-field", text).at(pair.key_span);
        if let Some(help) = v2::replacement(field.parent_message(), field.name()) {
            diagnostic = diagnostic.help(help);
        }
        self.report(diagnostic);
    }

    fn warn_of_enum_value(&mut self, value: &Value, span: Span, kind: &Kind) {
        let (Value::Enum(number), Kind::Enum(descriptor)) = (value, kind) else { return };
        let Some(value) = descriptor.get_value(*number) else { return };
        if value.enum_value_descriptor_proto().options.as_ref().is_some_and(|options| options.deprecated()) {
            let text = format!("the value `{}` is deprecated in Envoy", value.name());
            self.report(Diagnostic::warning("deprecated-field", text).at(span));
        }
    }
}

/// In text protobuf a map is a repeated message with `key` and `value`.
fn entries_of_text(node: &Node) -> Option<Vec<Pair>> {
    let entries = match &node.kind {
        NodeKind::List(items) => items.as_slice(),
        _ => std::slice::from_ref(node),
    };
    let pair = |entry: &Node| {
        let key = entry.get("key")?;
        Some(Pair { key: key.text()?.to_owned(), key_span: key.span, value: entry.get("value")?.clone() })
    };
    entries.iter().map(pair).collect()
}

/// The field of a key: snake case, or the camel case of protobuf's JSON mapping.
fn field_of(descriptor: &MessageDescriptor, key: &str) -> Option<FieldDescriptor> {
    descriptor.get_field_by_name(key).or_else(|| descriptor.get_field_by_json_name(key))
}

/// Whether two names differ in nothing but case, dashes and underscores, so that one is certainly meant by the other.
pub fn same_but_spelling(a: &str, b: &str) -> bool {
    let bare = |name: &str| name.chars().filter(|c| c.is_alphanumeric()).collect::<String>().to_ascii_lowercase();
    bare(a) == bare(b)
}

fn is_json_value(field: &FieldDescriptor) -> bool {
    match field.kind() {
        Kind::Message(descriptor) => descriptor.full_name() == "google.protobuf.Value" && !field.is_list(),
        Kind::Enum(descriptor) => descriptor.full_name() == "google.protobuf.NullValue",
        _ => false,
    }
}

/// Most fields that a message about an unknown field lists.
const LISTED_FIELDS: usize = 12;

fn fields_in_words(fields: &[FieldDescriptor]) -> String {
    let names: Vec<&str> = fields.iter().filter(|field| !is_deprecated(field)).map(FieldDescriptor::name).collect();
    match names.as_slice() {
        [] => "no field: this message is always empty".to_owned(),
        names if names.len() <= LISTED_FIELDS => format!("one of: {}", names.join(", ")),
        names => {
            format!("one of: {}, … ({} fields)", names.get(..LISTED_FIELDS).unwrap_or(names).join(", "), names.len())
        }
    }
}

fn is_deprecated(field: &FieldDescriptor) -> bool {
    field.field_descriptor_proto().options.as_ref().is_some_and(|options| options.deprecated())
}

/// Where a key would be right: in one of the message's own sub-messages (it lost its parent or its indentation).
fn owner_of(descriptor: &MessageDescriptor, pairs: &[Pair], key: &str) -> Option<String> {
    let owns = |field: &FieldDescriptor| match field.kind() {
        Kind::Message(child) => !field.is_map() && child != *descriptor && child.get_field_by_name(key).is_some(),
        _ => false,
    };
    let owners: Vec<FieldDescriptor> = descriptor.fields().filter(owns).collect();
    let set = |owner: &&FieldDescriptor| pairs.iter().any(|pair| pair.key == owner.name());
    // One that is there beside the key most likely lost it.
    let owner = match (owners.iter().filter(set).collect::<Vec<_>>().as_slice(), owners.as_slice()) {
        ([owner], _) => (*owner).clone(),
        ([], [owner]) => owner.clone(),
        _ => return None,
    };
    let name = owner.name();
    Some(if pairs.iter().any(|pair| pair.key == name) {
        format!("`{name}` above has a field `{key}`: if it belongs there, its line is indented too little")
    } else {
        format!("`{name}` has a field `{key}`: does it belong there?")
    })
}

/// The text of a string option, or an empty text for a boolean one that is set.
fn annotation(field: &FieldDescriptor, name: &str) -> Option<String> {
    let extension = field.parent_pool().get_extension_by_name(name)?;
    let options = field.options();
    if !options.has_extension(&extension) {
        return None;
    }
    Some(options.get_extension(&extension).as_str().unwrap_or("").to_owned())
}
