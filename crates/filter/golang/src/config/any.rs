//! Configurations of plugins as Go code reads them: a serialised `google.protobuf.Any`.

use postrider_grpc::{Any, Message, Struct, to_struct};
use postrider_model::{Value, ValueError};

const PREFIX: &str = "type.googleapis.com/";
const TYPED_STRUCT: &str = "xds.type.v3.TypedStruct";
const OLD_TYPED_STRUCT: &str = "udpa.type.v1.TypedStruct";
const STRUCT: &str = "google.protobuf.Struct";
const STRING: &str = "google.protobuf.StringValue";

/// A configuration that stands in a document; none is an empty `Any`.
///
/// # Errors
/// It is of a type that cannot be passed on.
pub(crate) fn encode(value: Option<&Value>, path: &str) -> Result<Vec<u8>, ValueError> {
    let Some(value) = value.filter(|value| **value != Value::Null) else { return Ok(Vec::new()) };
    let error = |message: String| ValueError { path: path.to_owned(), message };
    let Value::Map(entries) = value else { return Err(error("expected an object with an `@type`".to_owned())) };
    let entry = |key: &str| entries.iter().find(|(known, _)| known == key).map(|(_, value)| value);
    let Some(Value::String(url)) = entry("@type") else { return Err(error("there is no `@type`".to_owned())) };
    let text = |key: &str| match entry(key) {
        Some(Value::String(text)) => text.as_str(),
        _ => "",
    };
    let kind = url.rsplit('/').next().unwrap_or_default();
    let bytes = match kind {
        TYPED_STRUCT | OLD_TYPED_STRUCT => {
            typed_struct(text("type_url"), entry("value").map(to_struct).unwrap_or_default())
        }
        STRUCT => {
            to_struct(&Value::Map(entries.iter().filter(|(key, _)| key != "@type").cloned().collect())).encode_to_vec()
        }
        STRING => text("value").to_owned().encode_to_vec(),
        other => {
            return Err(error(format!(
                "a configuration of type {other} cannot be passed on to Go plugins: use {TYPED_STRUCT}, {STRUCT} or {STRING}"
            )));
        }
    };
    Ok(Any { type_url: url.clone(), value: bytes }.encode_to_vec())
}

/// An object without a type, as most plugins expect it: in a TypedStruct.
pub(super) fn of_object(value: &Value) -> Vec<u8> {
    let value = typed_struct("", to_struct(value));
    Any { type_url: format!("{PREFIX}{TYPED_STRUCT}"), value }.encode_to_vec()
}

/// `string type_url = 1; google.protobuf.Struct value = 2;`, which is how `Any` begins, too: its second field is bytes
/// where this one is a message, and both are written alike.
fn typed_struct(type_url: &str, value: Struct) -> Vec<u8> {
    Any { type_url: type_url.to_owned(), value: value.encode_to_vec() }.encode_to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(&str, Value)]) -> Value {
        Value::Map(entries.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect())
    }

    #[test]
    fn a_struct_is_passed_on_with_its_type() {
        let text = |text: &str| Value::String(text.to_owned());
        let inner = map(&[("a", Value::Integer(1))]);
        let typed = map(&[("@type", text("type.googleapis.com/xds.type.v3.TypedStruct")), ("value", inner.clone())]);
        let any = Any::decode(&*encode(Some(&typed), "c").unwrap()).unwrap();
        assert_eq!(any.type_url, "type.googleapis.com/xds.type.v3.TypedStruct");
        let body = Any::decode(&*any.value).unwrap();
        assert_eq!((body.type_url.as_str(), Struct::decode(&*body.value).unwrap()), ("", to_struct(&inner)));
        assert_eq!(encode(Some(&typed), "c").unwrap(), of_object(&inner));
        assert!(encode(None, "c").unwrap().is_empty());
        let plain = map(&[("@type", text("type.googleapis.com/google.protobuf.Struct")), ("a", Value::Integer(1))]);
        let any = Any::decode(&*encode(Some(&plain), "c").unwrap()).unwrap();
        assert_eq!(Struct::decode(&*any.value).unwrap(), to_struct(&inner));
        let other = map(&[("@type", text("type.googleapis.com/x.Y"))]);
        assert!(encode(Some(&other), "c").unwrap_err().message.contains("type x.Y cannot be passed on"));
        assert!(encode(Some(&inner), "c").unwrap_err().message.contains("no `@type`"));
    }
}
