//! The JSON forms of Duration, Timestamp, FieldMask, Struct, Value and ListValue (protobuf's JSON mapping).

use serde_json::Value as Json;

use super::float;
use crate::message::{Entry, Message, Value};
use crate::time;

/// The special form of a well-known type; `None` for every other type.
pub fn to_json(message: &Message) -> Option<Json> {
    Some(match message.type_name().strip_prefix("google.protobuf.")? {
        "Duration" => Json::from(time::format_duration(message.integer("seconds"), message.integer("nanos"))),
        "Timestamp" => Json::from(time::format_timestamp(message.integer("seconds"), message.integer("nanos"))),
        "FieldMask" => Json::from(mask(message)),
        "Struct" => structure(message),
        "ListValue" => list(message),
        "Value" => value(message),
        _ => return None,
    })
}

fn mask(message: &Message) -> String {
    let Some(Value::List(items)) = message.value("paths") else { return String::new() };
    let paths = items.iter().filter_map(|item| match &item.value {
        Value::String(path) => Some(camel(path)),
        _ => None,
    });
    paths.collect::<Vec<String>>().join(",")
}

fn camel(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    let mut raise = false;
    for c in path.chars() {
        match c {
            '_' => raise = true,
            c if raise => {
                out.push(c.to_ascii_uppercase());
                raise = false;
            }
            c => out.push(c),
        }
    }
    out
}

fn structure(message: &Message) -> Json {
    let Some(Value::Map(entries)) = message.value("fields") else { return Json::Object(serde_json::Map::new()) };
    let fields = entries.iter().map(|Entry { key, value, .. }| (key.clone(), any_value(value)));
    Json::Object(fields.collect())
}

fn list(message: &Message) -> Json {
    let Some(Value::List(items)) = message.value("values") else { return Json::Array(Vec::new()) };
    items.iter().map(|item| any_value(&item.value)).collect()
}

fn any_value(value_: &Value) -> Json {
    match value_ {
        Value::Message(message) => value(message),
        _ => Json::Null,
    }
}

/// A `google.protobuf.Value`: the one member that is set.
fn value(message: &Message) -> Json {
    match message.oneof("kind").map(|field| &field.value) {
        Some(Value::Bool(b)) => Json::Bool(*b),
        Some(Value::F64(n)) => float(*n),
        Some(Value::String(text)) => Json::from(text.as_str()),
        Some(Value::Message(inner)) => to_json(inner).unwrap_or(Json::Null),
        _ => Json::Null,
    }
}
