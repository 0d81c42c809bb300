//! Whole messages as expressions see them: their type, and the text of protocol buffers in one line, in which nothing stands
//! that is not set.

use std::fmt::Write as _;

use postrider_model::{Metadata, Node, Value};

use super::value::Data;

/// `envoy.config.core.v3.Metadata`.
pub(super) fn metadata<'a>(metadata: &Metadata) -> Data<'a> {
    let mut text = String::new();
    for (namespace, value) in sorted(metadata.iter()) {
        open("filter_metadata", &mut text);
        field("key", namespace, &mut text);
        open("value", &mut text);
        structure(value, &mut text);
        text.push_str("} } ");
    }
    Data::Message("envoy.config.core.v3.Metadata", text.into())
}

/// `envoy.config.core.v3.Node`, as far as it is configured.
pub(super) fn node<'a>(node: &Node) -> Data<'a> {
    let mut text = String::new();
    field("id", &node.id, &mut text);
    field("cluster", &node.cluster, &mut text);
    if let Value::Map(_) = &node.metadata {
        open("metadata", &mut text);
        structure(&node.metadata, &mut text);
        text.push_str("} ");
    }
    let place = places([&node.region, &node.zone, &node.sub_zone]);
    if !place.is_empty() {
        open("locality", &mut text);
        text.push_str(&place);
        text.push_str("} ");
    }
    Data::Message("envoy.config.core.v3.Node", text.into())
}

/// `envoy.config.core.v3.Locality`.
pub(super) fn locality<'a>(names: [&String; 3]) -> Data<'a> {
    Data::Message("envoy.config.core.v3.Locality", places(names).into())
}

fn places(names: [&String; 3]) -> String {
    let mut text = String::new();
    for (name, value) in ["region", "zone", "sub_zone"].into_iter().zip(names) {
        field(name, value, &mut text);
    }
    text
}

fn open(name: &str, out: &mut String) {
    out.push_str(name);
    out.push_str(" { ");
}

/// A field with a text; one that is empty is not set.
fn field(name: &str, text: &str, out: &mut String) {
    if !text.is_empty() {
        out.push_str(name);
        out.push_str(": ");
        quoted(text, out);
        out.push(' ');
    }
}

/// The fields of a `google.protobuf.Struct`.
fn structure(value: &Value, out: &mut String) {
    let Value::Map(entries) = value else { return };
    for (key, value) in sorted(entries.iter().map(|(key, value)| (key.as_str(), value))) {
        open("fields", out);
        field("key", key, out);
        open("value", out);
        self::value(value, out);
        out.push_str("} } ");
    }
}

/// The field of a `google.protobuf.Value`.
fn value(value: &Value, out: &mut String) {
    // Writing to a text cannot fail.
    let _ = match value {
        Value::Null => write!(out, "null_value: NULL_VALUE "),
        Value::Bool(on) => write!(out, "bool_value: {on} "),
        Value::Number(number) => write!(out, "number_value: {number} "),
        Value::Integer(number) => write!(out, "number_value: {number} "),
        Value::String(text) => {
            out.push_str("string_value: ");
            quoted(text, out);
            out.push(' ');
            Ok(())
        }
        Value::List(items) => {
            open("list_value", out);
            for item in items {
                open("values", out);
                self::value(item, out);
                out.push_str("} ");
            }
            write!(out, "}} ")
        }
        map @ Value::Map(_) => {
            open("struct_value", out);
            structure(map, out);
            write!(out, "}} ")
        }
    };
}

/// Entries of a map stand in the order of their keys.
fn sorted<'v>(entries: impl Iterator<Item = (&'v str, &'v Value)>) -> Vec<(&'v str, &'v Value)> {
    let mut all: Vec<_> = entries.collect();
    all.sort_unstable_by_key(|(key, _)| *key);
    all
}

fn quoted(text: &str, out: &mut String) {
    out.push('"');
    for byte in text.bytes() {
        match byte {
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            b'"' | b'\'' | b'\\' => {
                out.push('\\');
                out.push(char::from(byte));
            }
            b' '..=b'~' => out.push(char::from(byte)),
            _ => {
                let _ = write!(out, "\\{byte:03o}");
            }
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(data: &Data<'_>) -> String {
        match data {
            Data::Message(kind, text) => format!("{kind}: {text}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn metadata_is_written_as_text_of_protocol_buffers() {
        let mut noted = Metadata::default();
        assert_eq!(shown(&metadata(&noted)), "envoy.config.core.v3.Metadata: ");
        noted.set("b", "list", Value::List(vec![Value::Null, Value::Bool(true), Value::Number(1.5)]));
        noted.set("a", "z", Value::String("it's \"é\"\n".into()));
        noted.set("a", "map", Value::Map(vec![("k".into(), Value::Integer(2))]));
        assert_eq!(
            shown(&metadata(&noted)),
            "envoy.config.core.v3.Metadata: filter_metadata { key: \"a\" value { \
             fields { key: \"map\" value { struct_value { fields { key: \"k\" value { number_value: 2 } } } } } \
             fields { key: \"z\" value { string_value: \"it\\'s \\\"\\303\\251\\\"\\n\" } } } } \
             filter_metadata { key: \"b\" value { fields { key: \"list\" value { list_value { \
             values { null_value: NULL_VALUE } values { bool_value: true } values { number_value: 1.5 } } } } } } "
        );
    }

    #[test]
    fn a_node_shows_what_is_configured() {
        let mut known = Node { id: "n".into(), zone: "z".into(), ..Node::default() };
        assert_eq!(shown(&node(&known)), "envoy.config.core.v3.Node: id: \"n\" locality { zone: \"z\" } ");
        known.metadata = Value::Map(vec![("a".into(), Value::Bool(false))]);
        known.zone.clear();
        let want = "id: \"n\" metadata { fields { key: \"a\" value { bool_value: false } } } ";
        assert_eq!(shown(&node(&known)), format!("envoy.config.core.v3.Node: {want}"));
    }
}
