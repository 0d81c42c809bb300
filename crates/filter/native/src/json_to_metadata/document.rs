//! A JSON body and what a rule finds in it.

use postrider_model::Value;
use serde_json::Value as Json;

use super::config::{Kind, Note, Rule};

/// A text that is longer is not noted.
pub(super) const MAX_TEXT: usize = 8 * 1024;

pub(super) struct Document(Json);

/// What a rule says of a document.
pub(super) enum Found<'r> {
    Value(&'r Note, Value),
    /// Nothing is noted, not even that something is missing.
    Nothing,
    Missing,
}

impl Document {
    /// `None` for what is no JSON, and for a whole number that 64 bits with a sign cannot hold.
    pub(super) fn parse(body: &[u8]) -> Option<Document> {
        // A byte order mark is allowed, if not welcome (RFC 8259, section 8.1).
        let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
        let json = serde_json::from_slice(body).ok()?;
        fits(&json).then_some(Document(json))
    }

    /// A document of one value has nothing that a rule could select.
    pub(super) fn is_scalar(&self) -> bool {
        !matches!(self.0, Json::Object(_) | Json::Array(_))
    }

    pub(super) fn find<'r>(&self, rule: &'r Rule) -> Found<'r> {
        let mut node = &self.0;
        for key in &rule.parents {
            match node.get(key) {
                Some(next @ Json::Object(_)) => node = next,
                _ => return Found::Missing,
            }
        }
        // From here on only a rule that wants the value can miss it.
        let Some(note) = &rule.present else { return Found::Nothing };
        // A fixed value does not ask for the last key.
        if let Some(value) = &note.value {
            return Found::Value(note, value.clone());
        }
        match node.get(&rule.key).map(|value| typed(value, note.kind)) {
            Some(Some(Value::String(text))) if text.is_empty() && matches!(note.kind, Kind::Text) => Found::Nothing,
            Some(Some(value)) => Found::Value(note, value),
            Some(None) | None => Found::Missing,
        }
    }
}

/// The recursion ends where the parser's does.
fn fits(json: &Json) -> bool {
    match json {
        Json::Number(number) => !number.is_u64() || number.is_i64(),
        Json::Array(items) => items.iter().all(fits),
        Json::Object(fields) => fields.values().all(fits),
        Json::Null | Json::Bool(_) | Json::String(_) => true,
    }
}

/// The value in its type; `None` for one that has none, or is too long.
fn typed(value: &Json, kind: Kind) -> Option<Value> {
    match (value, kind) {
        (Json::Bool(value), Kind::AsItIs) => Some(Value::Bool(*value)),
        (Json::Bool(value), Kind::Number) => Some(Value::Number(f64::from(u8::from(*value)))),
        (Json::Bool(value), Kind::Text) => Some(Value::String(u8::from(*value).to_string())),
        (Json::Number(number), Kind::AsItIs | Kind::Number) => Some(Value::Number(number.as_f64()?)),
        (Json::Number(number), Kind::Text) => Some(Value::String(match number.as_i64() {
            Some(whole) => whole.to_string(),
            None => format!("{:.6}", number.as_f64()?),
        })),
        (Json::String(text), Kind::Number) => text.trim_ascii().parse().ok().map(Value::Number),
        (Json::String(text), Kind::AsItIs | Kind::Text) => {
            (text.len() <= MAX_TEXT).then(|| Value::String(text.clone()))
        }
        (Json::Null | Json::Array(_) | Json::Object(_), _) => None,
    }
}
