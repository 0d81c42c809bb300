//! A message as the bytes that it has on the wire, for whoever is handed a message that only he knows.
//!
//! The same message always gives the same bytes: fields and entries of maps stand in the order of the input.

use prost_reflect::{FieldDescriptor, Kind};

use crate::message::{Any, Entry, Field, Message, Value};

const VARINT: u64 = 0;
const EIGHT_BYTES: u64 = 1;
const LENGTH: u64 = 2;
const FOUR_BYTES: u64 = 5;

/// The bytes of a message.
pub(crate) fn encode(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    message.fields.iter().for_each(|field| put_field(field, &mut out));
    out
}

fn put_field(field: &Field, out: &mut Vec<u8>) {
    let descriptor = &field.descriptor;
    match &field.value {
        Value::List(items) if descriptor.is_packed() => {
            let mut packed = Vec::new();
            items.iter().for_each(|item| put_bare(&descriptor.kind(), &item.value, &mut packed));
            if !packed.is_empty() {
                put_tag(descriptor, LENGTH, out);
                put_bytes(&packed, out);
            }
        }
        Value::List(items) => items.iter().for_each(|item| put_one(descriptor, &item.value, out)),
        Value::Map(entries) => entries.iter().for_each(|entry| {
            put_tag(descriptor, LENGTH, out);
            put_bytes(&entry_of(descriptor, entry), out);
        }),
        _ if field.is_default() => {}
        value => put_one(descriptor, value, out),
    }
}

fn put_one(descriptor: &FieldDescriptor, value: &Value, out: &mut Vec<u8>) {
    let kind = descriptor.kind();
    let sort = match kind {
        Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => EIGHT_BYTES,
        Kind::Float | Kind::Fixed32 | Kind::Sfixed32 => FOUR_BYTES,
        Kind::String | Kind::Bytes | Kind::Message(_) => LENGTH,
        _ => VARINT,
    };
    put_tag(descriptor, sort, out);
    put_bare(&kind, value, out);
}

/// A map's entry: its key, which is text in the tree, and its value.
fn entry_of(descriptor: &FieldDescriptor, entry: &Entry) -> Vec<u8> {
    let mut out = Vec::new();
    let Kind::Message(pair) = descriptor.kind() else { return out };
    let key = pair.map_entry_key_field();
    let text = &entry.key;
    let value = match key.kind() {
        Kind::String => Value::String(text.clone()),
        Kind::Bool => Value::Bool(text == "true"),
        Kind::Uint32 | Kind::Uint64 | Kind::Fixed32 | Kind::Fixed64 => Value::U64(text.parse().unwrap_or_default()),
        _ => Value::I64(text.parse().unwrap_or_default()),
    };
    put_one(&key, &value, &mut out);
    put_one(&pair.map_entry_value_field(), &entry.value, &mut out);
    out
}

fn put_bare(kind: &Kind, value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Bool(set) => put_number(u64::from(*set), out),
        Value::Enum(number) => put_number(i64::from(*number) as u64, out),
        Value::I64(number) => match kind {
            Kind::Sint32 | Kind::Sint64 => put_number(((number << 1) ^ (number >> 63)) as u64, out),
            Kind::Sfixed32 => out.extend_from_slice(&(*number as i32).to_le_bytes()),
            Kind::Sfixed64 => out.extend_from_slice(&number.to_le_bytes()),
            _ => put_number(*number as u64, out),
        },
        Value::U64(number) => match kind {
            Kind::Fixed32 => out.extend_from_slice(&(*number as u32).to_le_bytes()),
            Kind::Fixed64 => out.extend_from_slice(&number.to_le_bytes()),
            _ => put_number(*number, out),
        },
        Value::F64(number) => match kind {
            Kind::Float => out.extend_from_slice(&(*number as f32).to_le_bytes()),
            _ => out.extend_from_slice(&number.to_le_bytes()),
        },
        Value::String(text) => put_bytes(text.as_bytes(), out),
        Value::Bytes(bytes) => put_bytes(bytes, out),
        Value::Message(message) => put_bytes(&encode(message), out),
        Value::Any(any) => put_bytes(&any_bytes(any), out),
        // Neither stands inside another.
        Value::List(_) | Value::Map(_) => {}
    }
}

/// `string type_url = 1; bytes value = 2;`
fn any_bytes(any: &Any) -> Vec<u8> {
    let mut out = Vec::new();
    let message = any.message.as_ref().map(encode).unwrap_or_default();
    for (number, part) in [(1, any.type_url.as_bytes()), (2, message.as_slice())] {
        if !part.is_empty() {
            put_number(number << 3 | LENGTH, &mut out);
            put_bytes(part, &mut out);
        }
    }
    out
}

fn put_tag(descriptor: &FieldDescriptor, sort: u64, out: &mut Vec<u8>) {
    put_number(u64::from(descriptor.number()) << 3 | sort, out);
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_number(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn put_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[cfg(test)]
mod tests {
    use postrider_config_core::SourceFile;
    use prost_reflect::DynamicMessage;
    use prost_reflect::prost::Message as _;

    use crate::load::{LoadOptions, load_bootstrap};

    #[test]
    fn a_message_is_written_as_the_descriptors_say() {
        let text = r#"
            node: {id: a, metadata: {n: 1.5, s: [x, true]}}
            stats_flush_interval: 1.5s
            hds_config: {set_node_on_first_message_only: true}
            static_resources:
              clusters:
              - name: c
                connect_timeout: 0.25s
                lb_policy: RING_HASH
                per_connection_buffer_limit_bytes: 70000
                typed_extension_protocol_options:
                  some: {"@type": type.googleapis.com/google.protobuf.StringValue, value: text}
            layered_runtime: {layers: [{name: l, static_layer: {a.b: 7}}]}
        "#;
        let loaded = load_bootstrap(&SourceFile::new("a.yaml", text), &LoadOptions::default());
        let message = loaded.bootstrap.unwrap();
        let bytes = super::encode(&message);
        let read = DynamicMessage::decode(message.descriptor.clone(), &*bytes).unwrap();
        let again = read.to_string();
        for wanted in ["RING_HASH", "70000", "250000000", "1.5", "\"a.b\"", "StringValue", "value:\"text\""] {
            assert!(again.contains(wanted), "{wanted}: {again}");
        }
        assert_eq!(DynamicMessage::decode(message.descriptor.clone(), &*read.encode_to_vec()).unwrap(), read);
    }

    #[test]
    fn a_message_in_two_envelopes_is_in_both_of_them() {
        let text = r#"
            static_resources:
              clusters:
              - name: c
                metadata:
                  typed_filter_metadata:
                    ns:
                      "@type": type.googleapis.com/google.protobuf.Any
                      value: {"@type": type.googleapis.com/google.protobuf.StringValue, value: text}
        "#;
        let loaded = load_bootstrap(&SourceFile::new("a.yaml", text), &LoadOptions::default());
        let message = loaded.bootstrap.unwrap();
        let read = DynamicMessage::decode(message.descriptor.clone(), &*super::encode(&message)).unwrap().to_string();
        // The descriptors open the outer one.
        let inner = r#"[type.googleapis.com/google.protobuf.Any]{[type.googleapis.com/google.protobuf.StringValue]{value:"text"}}"#;
        assert!(read.contains(inner), "{read}");
    }
}
