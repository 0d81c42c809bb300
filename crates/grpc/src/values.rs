//! `google.protobuf.Struct` and plain values of the model, each as the other.

use postrider_model::{Packed, Value};
use prost::Message;
use prost_types::value::Kind;
use prost_types::{Any, ListValue, Struct};

/// A message that is handed on.
pub fn to_any(message: &Packed) -> Any {
    Any { type_url: message.kind.to_string(), value: message.bytes.to_vec() }
}

/// The same the other way round.
pub fn from_any(message: &Any) -> Packed {
    Packed { kind: message.type_url.as_str().into(), bytes: message.value.as_slice().into() }
}

/// A map as a Struct; anything else as an empty one.
pub fn to_struct(value: &Value) -> Struct {
    let Value::Map(entries) = value else { return Struct::default() };
    Struct { fields: entries.iter().map(|(key, value)| (key.clone(), to_value(value))).collect() }
}

pub fn to_value(value: &Value) -> prost_types::Value {
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(value) => Kind::BoolValue(*value),
        Value::Number(number) => Kind::NumberValue(*number),
        Value::Integer(number) => Kind::NumberValue(*number as f64),
        Value::String(text) => Kind::StringValue(text.clone()),
        Value::List(items) => Kind::ListValue(ListValue { values: items.iter().map(to_value).collect() }),
        Value::Map(_) => Kind::StructValue(to_struct(value)),
    };
    value_of(kind)
}

/// A value of one kind.
pub fn value_of(kind: Kind) -> prost_types::Value {
    prost_types::Value { kind: Some(kind) }
}

/// A Struct as a map. How deep it may nest is `prost`'s affair, which refuses to decode more than a hundred levels.
pub fn from_struct(value: &Struct) -> Value {
    Value::Map(value.fields.iter().map(|(key, value)| (key.clone(), from_value(value))).collect())
}

/// A serialised `google.protobuf.Value`; `None` when it is none.
pub fn decode_value(bytes: &[u8]) -> Option<Value> {
    prost_types::Value::decode(bytes).ok().as_ref().map(from_value)
}

fn from_value(value: &prost_types::Value) -> Value {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(value)) => Value::Bool(*value),
        // Whole numbers within what a double holds exactly are told apart: logs write them without a fraction.
        Some(Kind::NumberValue(number)) if number.fract() == 0.0 && number.abs() < 9e15 => {
            Value::Integer(*number as i64)
        }
        Some(Kind::NumberValue(number)) => Value::Number(*number),
        Some(Kind::StringValue(text)) => Value::String(text.clone()),
        Some(Kind::ListValue(list)) => Value::List(list.values.iter().map(from_value).collect()),
        Some(Kind::StructValue(inner)) => from_struct(inner),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_comes_back_as_it_was() {
        let value = Value::Map(vec![
            ("a".into(), Value::List(vec![Value::Integer(1), Value::Number(0.5), Value::Null])),
            ("b".into(), Value::Map(vec![("c".into(), Value::Bool(true))])),
            ("d".into(), Value::String("x".into())),
        ]);
        assert_eq!(from_struct(&to_struct(&value)), value);
        assert_eq!(from_struct(&to_struct(&Value::Bool(true))), Value::Map(Vec::new()));
    }
}
