//! What a message says whose type is only named, for scripts that look at one while the proxy serves.
//!
//! What it must never do: fail or panic over bytes, which come from anybody. Workers call it.

use std::cell::RefCell;
use std::collections::HashMap;

use postrider_envoy_proto as schema;
use postrider_model::{Packed, Part};
use prost_reflect::{DynamicMessage, MapKey, MessageDescriptor, Value};

/// A worker keeps the descriptors of so many types, each with the files that it needs; those of others are made for each call.
/// A configuration has one or two of them.
const KEPT: usize = 16;

thread_local! {
    /// Types that somebody has asked for: making their descriptors takes milliseconds.
    static TYPES: RefCell<HashMap<String, MessageDescriptor>> = RefCell::default();
}

/// What `message` says, under the names that its type gives to fields: see [`postrider_model::Unpack`].
pub fn unpack(message: &Packed) -> Option<Vec<Part>> {
    let (_, name) = message.kind.rsplit_once('/')?;
    let message = DynamicMessage::decode(descriptor(name)?, &*message.bytes).ok()?;
    let mut parts = Vec::new();
    put_message(&message, &mut parts);
    Some(parts)
}

fn descriptor(name: &str) -> Option<MessageDescriptor> {
    TYPES.with_borrow_mut(|types| {
        if let Some(known) = types.get(name) {
            return Some(known.clone());
        }
        let made = schema::known_type(name).then(|| schema::pool([name]))?.get_message_by_name(name)?;
        if types.len() < KEPT {
            types.insert(name.to_owned(), made.clone());
        }
        Some(made)
    })
}

fn put_message(message: &DynamicMessage, parts: &mut Vec<Part>) {
    parts.push(Part::Map(message.fields().count()));
    for (field, value) in message.fields() {
        parts.push(Part::Bytes(field.name().as_bytes().to_vec()));
        put(value, parts);
    }
}

fn put(value: &Value, parts: &mut Vec<Part>) {
    parts.push(match value {
        Value::Bool(set) => Part::Bool(*set),
        Value::I32(number) | Value::EnumNumber(number) => Part::Number(f64::from(*number)),
        Value::I64(number) => Part::Number(*number as f64),
        Value::U32(number) => Part::Number(f64::from(*number)),
        Value::U64(number) => Part::Number(*number as f64),
        Value::F32(number) => Part::Number(f64::from(*number)),
        Value::F64(number) => Part::Number(*number),
        Value::String(text) => Part::Bytes(text.as_bytes().to_vec()),
        Value::Bytes(bytes) => Part::Bytes(bytes.to_vec()),
        Value::Message(message) => return put_message(message, parts),
        Value::List(items) => {
            parts.push(Part::List(items.len()));
            return items.iter().for_each(|item| put(item, parts));
        }
        Value::Map(entries) => {
            parts.push(Part::Map(entries.len()));
            return entries.iter().for_each(|(key, value)| {
                parts.push(of_key(key));
                put(value, parts);
            });
        }
    });
}

fn of_key(key: &MapKey) -> Part {
    match key {
        MapKey::Bool(set) => Part::Bool(*set),
        MapKey::I32(number) => Part::Number(f64::from(*number)),
        MapKey::I64(number) => Part::Number(*number as f64),
        MapKey::U32(number) => Part::Number(f64::from(*number)),
        MapKey::U64(number) => Part::Number(*number as f64),
        MapKey::String(text) => Part::Bytes(text.as_bytes().to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(kind: &str, bytes: &[u8]) -> Packed {
        Packed { kind: kind.into(), bytes: bytes.into() }
    }

    fn text(text: &str) -> Part {
        Part::Bytes(text.as_bytes().to_vec())
    }

    #[test]
    fn a_message_is_told_by_the_names_of_its_type() {
        let tlvs = packed("type.googleapis.com/envoy.data.core.v3.TlvsMetadata", b"\x0a\x07\x0a\x01a\x12\x02\xff\x00");
        let want = vec![Part::Map(1), text("typed_metadata"), Part::Map(1), text("a"), Part::Bytes(vec![0xff, 0])];
        assert_eq!(unpack(&tlvs), Some(want));
        // `SocketAddress`: protocol UDP, address, port_value 80, and an empty `resolver_name`, which is not set.
        let address = packed("x/envoy.config.core.v3.SocketAddress", b"\x08\x01\x12\x01a\x18\x50\x2a\x00");
        let number = |number| Part::Number(number);
        let want =
            [Part::Map(3), text("protocol"), number(1.0), text("address"), text("a"), text("port_value"), number(80.0)];
        assert_eq!(unpack(&address), Some(want.to_vec()));
        assert_eq!(unpack(&address), Some(want.to_vec()), "the second time, its type is known");
    }

    #[test]
    fn what_is_no_message_of_its_type_says_nothing() {
        for (kind, bytes) in [
            ("x/no.such.Type", &b""[..]),
            ("google.protobuf.StringValue", b"\x0a\x01a"),
            ("x/", b""),
            ("", b""),
            ("x/google.protobuf.StringValue", b"\x0a\x02a"),
            ("x/google.protobuf.StringValue", b"\x0a\x01\xff"),
        ] {
            assert_eq!(unpack(&packed(kind, bytes)), None, "{kind} {bytes:?}");
        }
        assert_eq!(unpack(&packed("x/google.protobuf.StringValue", b"")), Some(vec![Part::Map(0)]));
    }
}
