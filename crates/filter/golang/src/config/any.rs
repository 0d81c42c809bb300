//! Configurations of plugins as Go code reads them: a serialised `google.protobuf.Any`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_grpc::{Any, Message, Struct, to_struct};
use postrider_model::{Value, ValueError};

const PREFIX: &str = "type.googleapis.com/";
const TYPED_STRUCT: &str = "xds.type.v3.TypedStruct";
const OLD_TYPED_STRUCT: &str = "udpa.type.v1.TypedStruct";
const STRUCT: &str = "google.protobuf.Struct";
const STRING: &str = "google.protobuf.StringValue";
const BYTES: &str = "google.protobuf.BytesValue";

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
    // A message that only the plugin knows comes as the bytes that it is.
    let whole = match entry("@bytes") {
        Some(Value::String(text)) => Some(STANDARD.decode(text).map_err(|found| error(format!("no base64: {found}")))?),
        _ => None,
    };
    let bytes = match kind {
        _ if whole.is_some() => whole.unwrap_or_default(),
        TYPED_STRUCT | OLD_TYPED_STRUCT => typed_struct(text("type_url"), entry("value").map(to_struct)),
        STRUCT => entry("fields").map(to_struct).unwrap_or_default().encode_to_vec(),
        STRING => text("value").to_owned().encode_to_vec(),
        // As a text is, but for the base64.
        BYTES => STANDARD.decode(text("value")).map_err(|found| error(format!("no base64: {found}")))?.encode_to_vec(),
        other => {
            return Err(error(format!(
                "a configuration of type {other} cannot be passed on to Go plugins from here: use {TYPED_STRUCT}, {STRUCT}, \
                 {STRING} or {BYTES}"
            )));
        }
    };
    Ok(Any { type_url: url.clone(), value: bytes }.encode_to_vec())
}

/// An object without a type, as most plugins expect it: in a TypedStruct. A text in a StringValue.
pub(super) fn of(value: &Value) -> Vec<u8> {
    if let Value::String(text) = value {
        return Any { type_url: format!("{PREFIX}{STRING}"), value: text.encode_to_vec() }.encode_to_vec();
    }
    let value = typed_struct("", Some(to_struct(value)));
    Any { type_url: format!("{PREFIX}{TYPED_STRUCT}"), value }.encode_to_vec()
}

/// `string type_url = 1; google.protobuf.Struct value = 2;`, which is how `Any` begins, too: its second field is bytes
/// where this one is a message, and both are written alike.
fn typed_struct(type_url: &str, value: Option<Struct>) -> Vec<u8> {
    let bytes = value.as_ref().map(Message::encode_to_vec).unwrap_or_default();
    let is_empty = value.is_some() && bytes.is_empty();
    let mut all = Any { type_url: type_url.to_owned(), value: bytes }.encode_to_vec();
    if is_empty {
        // An object without fields is one all the same: plugins tell it from none.
        all.extend_from_slice(&[2 << 3 | 2, 0]);
    }
    all
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
        assert_eq!(encode(Some(&typed), "c").unwrap(), of(&inner));
        let string = map(&[("@type", text("type.googleapis.com/google.protobuf.StringValue")), ("value", text("t"))]);
        assert_eq!(encode(Some(&string), "c").unwrap(), of(&text("t")));
        let nothing = map(&[("@type", text("x/xds.type.v3.TypedStruct")), ("value", map(&[]))]);
        assert_eq!(Any::decode(&*encode(Some(&nothing), "c").unwrap()).unwrap().value, [18, 0]);
        assert!(encode(None, "c").unwrap().is_empty());
        let plain = map(&[("@type", text("type.googleapis.com/google.protobuf.Struct")), ("fields", inner.clone())]);
        let any = Any::decode(&*encode(Some(&plain), "c").unwrap()).unwrap();
        assert_eq!(Struct::decode(&*any.value).unwrap(), to_struct(&inner));
        let known_to_it = map(&[("@type", text("type.googleapis.com/x.Y")), ("@bytes", text("CAE="))]);
        let any = Any::decode(&*encode(Some(&known_to_it), "c").unwrap()).unwrap();
        assert_eq!((any.type_url.as_str(), any.value.as_slice()), ("type.googleapis.com/x.Y", &[8, 1][..]));
        let other = map(&[("@type", text("type.googleapis.com/x.Y"))]);
        assert!(encode(Some(&other), "c").unwrap_err().message.contains("type x.Y cannot be passed on"));
        assert!(encode(Some(&inner), "c").unwrap_err().message.contains("no `@type`"));
    }
}
