//! Values as JSON and back: what plugins read their configuration as, and what schemas are checked on.

use postrider_model::Value;
use serde_json::{Map, Number, Value as Json};

/// A value as JSON. Whole numbers stay whole; a number that JSON lacks (infinite, not a number) is null.
pub fn to_json(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Number(number) => Number::from_f64(*number).map_or(Json::Null, Json::Number),
        Value::Integer(number) => Json::from(*number),
        Value::String(text) => Json::from(text.as_str()),
        Value::List(items) => items.iter().map(to_json).collect(),
        Value::Map(entries) => {
            Json::Object(entries.iter().map(|(key, value)| (key.clone(), to_json(value))).collect::<Map<_, _>>())
        }
    }
}

/// JSON as a value; an integer beyond 64 bits becomes a number.
pub fn from_json(json: Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(value),
        Json::Number(number) => match number.as_i64() {
            Some(integer) => Value::Integer(integer),
            None => Value::Number(number.as_f64().unwrap_or(0.0)),
        },
        Json::String(text) => Value::String(text),
        Json::Array(items) => Value::List(items.into_iter().map(from_json).collect()),
        Json::Object(entries) => Value::Map(entries.into_iter().map(|(key, value)| (key, from_json(value))).collect()),
    }
}

/// A value as compact JSON text, keys in their order.
pub fn to_json_text(value: &Value) -> String {
    to_json(value).to_string()
}

/// # Errors
/// What is wrong with the text, with line and column. Nesting deeper than 128 levels is refused.
pub fn from_json_text(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map(from_json).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips_and_keeps_order_and_integers() {
        let text = r#"{"z":9007199254740993,"a":[1,-1,1.5,1.0,true,null,"é\n"],"":{}}"#;
        assert_eq!(to_json_text(&from_json_text(text).unwrap()), text);
        let value = from_json_text("[18446744073709551615, 1e3]").unwrap();
        assert_eq!(value, Value::List(vec![Value::Number(18_446_744_073_709_551_615.0), Value::Number(1000.0)]));
        assert_eq!(to_json_text(&Value::Number(f64::NAN)), "null");
    }

    #[test]
    fn broken_text_says_where() {
        assert!(from_json_text("{\n\"a\" 1}").unwrap_err().contains("line 2"));
        assert!(from_json_text(&"[".repeat(100_000)).is_err());
    }
}
