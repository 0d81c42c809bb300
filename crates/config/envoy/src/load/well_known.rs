//! The types with a JSON form of their own: wrappers, Duration, Timestamp, FieldMask, Struct, Value, ListValue.

use postrider_config_core::{Diagnostic, Span};
use prost_reflect::{Kind, MessageDescriptor};

use super::decode::Decoder;
use super::format::Format;
use super::scalar::{self, Plain};
use crate::message::{Entry, Field, Item, Message, Value, is_wrapper};
use crate::time;
use crate::tree::{Node, NodeKind, Scalar, shorten};

/// Reads a well-known type from its JSON form. Outer `None`: not such a type, or written as an ordinary message (which
/// Envoy takes as well: `{seconds: 5}`). Inner `None`: reported.
pub fn decode(decoder: &mut Decoder<'_>, node: &Node, descriptor: &MessageDescriptor) -> Option<Option<Message>> {
    let name = descriptor.full_name().strip_prefix("google.protobuf.")?;
    if decoder.format == Format::Text {
        return None;
    }
    match (name, &node.kind) {
        ("Struct", NodeKind::Map(_)) => Some(structure(decoder, node, descriptor)),
        ("Value", _) => Some(value(decoder, node, descriptor)),
        ("ListValue", NodeKind::List(_)) => Some(list(decoder, node, descriptor)),
        (_, NodeKind::Scalar(text)) if is_wrapper(descriptor.full_name()) => {
            Some(wrapper(decoder, text, node.span, descriptor))
        }
        ("Duration", NodeKind::Scalar(text)) => Some(duration(decoder, text, node.span, descriptor)),
        ("Timestamp", NodeKind::Scalar(text)) => Some(timestamp(decoder, text, node.span, descriptor)),
        ("FieldMask", NodeKind::Scalar(text)) => Some(mask(&text.text, node.span, descriptor)),
        ("Duration", NodeKind::List(_)) => {
            decoder.wrong_type(node, "a duration such as `0.25s`");
            Some(None)
        }
        _ if is_wrapper(descriptor.full_name()) && matches!(node.kind, NodeKind::List(_)) => {
            let kind = descriptor.get_field_by_name("value")?.kind();
            decoder.wrong_type(node, &scalar::expected(&kind));
            Some(None)
        }
        _ => None,
    }
}

/// A message with the given fields of its descriptor.
fn message(descriptor: &MessageDescriptor, span: Span, fields: Vec<(&str, Value)>) -> Option<Message> {
    let mut message = Message::new(descriptor.clone(), Some(span));
    for (name, value) in fields {
        let descriptor = descriptor.get_field_by_name(name)?;
        message.fields.push(Field { descriptor, value, key_span: None, value_span: Some(span) });
    }
    Some(message)
}

fn wrapper(decoder: &mut Decoder<'_>, text: &Scalar, span: Span, descriptor: &MessageDescriptor) -> Option<Message> {
    let kind = descriptor.get_field_by_name("value")?.kind();
    let value = decoder.scalar(text, span, &kind);
    message(descriptor, span, vec![("value", value)])
}

fn duration(decoder: &mut Decoder<'_>, text: &Scalar, span: Span, descriptor: &MessageDescriptor) -> Option<Message> {
    let Some((seconds, nanos)) = time::parse_duration(&text.text) else {
        decoder.report(invalid_duration(&text.text, span));
        return None;
    };
    if !decoder.is_opaque && (seconds < 0 || nanos < 0) {
        let text = format!("`{}`: a duration cannot be negative here", shorten(&text.text));
        decoder.report(Diagnostic::error("invalid-duration", text).at(span).expected("a duration such as `0.25s`"));
        return None;
    }
    seconds_and_nanos(descriptor, span, seconds, nanos)
}

/// Only what is not zero is set, so that a merge behaves as protobuf's.
fn seconds_and_nanos(descriptor: &MessageDescriptor, span: Span, seconds: i64, nanos: i32) -> Option<Message> {
    let mut fields = Vec::new();
    if seconds != 0 {
        fields.push(("seconds", Value::I64(seconds)));
    }
    if nanos != 0 {
        fields.push(("nanos", Value::I64(i64::from(nanos))));
    }
    message(descriptor, span, fields)
}

/// Units that people write, in the seconds that they mean.
const UNITS: [(&str, f64); 6] = [("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9), ("m", 60.0), ("h", 3600.0), ("d", 86400.0)];

fn invalid_duration(text: &str, span: Span) -> Diagnostic {
    let diagnostic = Diagnostic::error("invalid-duration", format!("`{}` is not a duration", shorten(text)))
        .at(span)
        .expected("seconds with the unit `s`, such as `5s` or `0.25s`");
    let meant = if let Ok(number) = text.parse::<f64>() {
        Some(number)
    } else {
        UNITS.iter().find_map(|(unit, factor)| Some(text.strip_suffix(unit)?.trim().parse::<f64>().ok()? * factor))
    };
    match meant.filter(|seconds| seconds.is_finite() && (0.0..1e9).contains(seconds)) {
        Some(seconds) => {
            let decimals = format!("{seconds:.9}");
            let fixed = format!("{}s", decimals.trim_end_matches('0').trim_end_matches('.'));
            diagnostic.fix(span, fixed.clone(), format!("write `{fixed}`"))
        }
        None => diagnostic,
    }
}

fn timestamp(decoder: &mut Decoder<'_>, text: &Scalar, span: Span, descriptor: &MessageDescriptor) -> Option<Message> {
    let Some((seconds, nanos)) = time::parse_timestamp(&text.text) else {
        let message = format!("`{}` is not a point in time", shorten(&text.text));
        let expected = "RFC 3339, such as `2026-01-31T12:00:00Z`";
        decoder.report(Diagnostic::error("invalid-timestamp", message).at(span).expected(expected));
        return None;
    };
    seconds_and_nanos(descriptor, span, seconds, nanos)
}

fn mask(text: &str, span: Span, descriptor: &MessageDescriptor) -> Option<Message> {
    let item = |path: &str| Item { value: Value::String(snake(path)), span: Some(span) };
    let paths = text.split(',').map(str::trim).filter(|path| !path.is_empty()).map(item);
    message(descriptor, span, vec![("paths", Value::List(paths.collect()))])
}

fn snake(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for c in path.chars() {
        if c.is_ascii_uppercase() {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

fn structure(decoder: &mut Decoder<'_>, node: &Node, descriptor: &MessageDescriptor) -> Option<Message> {
    let NodeKind::Map(pairs) = &node.kind else { return None };
    let Kind::Message(entry) = descriptor.get_field_by_name("fields")?.kind() else { return None };
    let Kind::Message(value_type) = entry.map_entry_value_field().kind() else { return None };
    let mut entries = Vec::with_capacity(pairs.len());
    for pair in pairs {
        let value = Value::Message(Box::new(value(decoder, &pair.value, &value_type)?));
        let (key_span, value_span) = (Some(pair.key_span), Some(pair.value.span));
        entries.push(Entry { key: pair.key.clone(), key_span, value, value_span });
    }
    message(descriptor, node.span, vec![("fields", Value::Map(entries))])
}

fn list(decoder: &mut Decoder<'_>, node: &Node, descriptor: &MessageDescriptor) -> Option<Message> {
    let NodeKind::List(nodes) = &node.kind else { return None };
    let Kind::Message(value_type) = descriptor.get_field_by_name("values")?.kind() else { return None };
    let mut items = Vec::with_capacity(nodes.len());
    for node in nodes {
        let value = Value::Message(Box::new(value(decoder, node, &value_type)?));
        items.push(Item { value, span: Some(node.span) });
    }
    message(descriptor, node.span, vec![("values", Value::List(items))])
}

/// A `google.protobuf.Value`: any tree.
fn value(decoder: &mut Decoder<'_>, node: &Node, descriptor: &MessageDescriptor) -> Option<Message> {
    let nested = |name: &str| match descriptor.get_field_by_name(name)?.kind() {
        Kind::Message(nested) => Some(nested),
        _ => None,
    };
    let (name, inner) = match &node.kind {
        NodeKind::Null => ("null_value", Value::Enum(0)),
        NodeKind::Map(_) => {
            let nested = structure(decoder, node, &nested("struct_value")?)?;
            ("struct_value", Value::Message(Box::new(nested)))
        }
        NodeKind::List(_) => {
            let nested = list(decoder, node, &nested("list_value")?)?;
            ("list_value", Value::Message(Box::new(nested)))
        }
        NodeKind::Scalar(text) => scalar_value(text, decoder),
    };
    message(descriptor, node.span, vec![(name, inner)])
}

fn scalar_value(text: &Scalar, decoder: &Decoder<'_>) -> (&'static str, Value) {
    match scalar::classify(text, decoder.format) {
        Plain::Bool(value) => ("bool_value", Value::Bool(value)),
        Plain::Int(number) => ("number_value", Value::F64(number as f64)),
        Plain::Float(number) => ("number_value", Value::F64(number)),
        Plain::Text(written) => {
            match scalar::number(&written).filter(|n| n.is_finite() && text.plain && decoder.numbers_as_written) {
                Some(number) => ("number_value", Value::F64(number)),
                None => ("string_value", Value::String(written)),
            }
        }
    }
}
