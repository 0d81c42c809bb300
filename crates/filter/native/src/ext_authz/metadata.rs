//! A condition on dynamic metadata: `envoy.type.matcher.v3.MetadataMatcher`.

use postrider_model::{Metadata, Reading, StringMatch, Value, string_match};

#[derive(Debug, Clone, PartialEq)]
pub(super) struct MetadataMatch {
    namespace: String,
    path: Vec<String>,
    condition: Condition,
    invert: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum Condition {
    Null,
    Bool(bool),
    Text(StringMatch),
    Number(f64),
    Present(bool),
}

impl MetadataMatch {
    pub(super) fn read(at: &mut Reading<'_>) -> Option<MetadataMatch> {
        let namespace = at.text("filter").unwrap_or_default().to_owned();
        let path = at.each("path", |segment| segment.text("key").unwrap_or_default().to_owned());
        if namespace.is_empty() || path.is_empty() || path.iter().any(String::is_empty) {
            at.wrong("filter and path are required, each with a name");
        }
        let condition = at.map("value", |value| {
            value.refuse("list_match", "a condition on a list");
            value.refuse("or_match", "a choice of conditions");
            let mut found = Vec::new();
            found.extend(value.map("null_match", |_| Condition::Null));
            found.extend(value.bool("bool_match").map(Condition::Bool));
            found.extend(value.map("string_match", string_match).flatten().map(Condition::Text));
            found.extend(value.bool("present_match").map(Condition::Present));
            let number = value.map("double_match", |number| {
                number.refuse("range", "a range of numbers");
                match number.value("exact") {
                    Some(Value::Number(exact)) => *exact,
                    Some(Value::Integer(exact)) => *exact as f64,
                    _ => 0.0,
                }
            });
            found.extend(number.map(Condition::Number));
            if found.len() != 1 {
                value.wrong("exactly one condition is wanted");
            }
            found.pop()
        });
        if condition.is_none() {
            at.error("value", "a condition is required");
        }
        Some(MetadataMatch { namespace, path, condition: condition.flatten()?, invert: at.flag("invert") })
    }

    pub(super) fn matches(&self, metadata: &Metadata) -> bool {
        let mut value = metadata.namespace(&self.namespace);
        for key in &self.path {
            value = match value {
                Some(Value::Map(entries)) => entries.iter().find(|(known, _)| known == key).map(|(_, value)| value),
                _ => None,
            };
        }
        let met = match (&self.condition, value) {
            (Condition::Present(wanted), value) => value.is_some() == *wanted,
            (Condition::Null, Some(Value::Null)) => true,
            (Condition::Bool(wanted), Some(Value::Bool(value))) => value == wanted,
            (Condition::Text(wanted), Some(Value::String(value))) => wanted.matches(value),
            (Condition::Number(wanted), Some(Value::Number(value))) => value == wanted,
            (Condition::Number(wanted), Some(Value::Integer(value))) => *value as f64 == *wanted,
            _ => false,
        };
        met != self.invert
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{list, object, text};

    #[test]
    fn a_value_deep_inside_is_compared_by_its_kind() {
        let mut metadata = Metadata::default();
        metadata.set("rbac", "shadow", object([("result", text("denied")), ("count", Value::Integer(2))]));
        let matches = |key: &str, condition: Value, invert: bool| {
            let path = list([object([("key", text("shadow"))]), object([("key", text(key))])]);
            let value = object([
                ("filter", text("rbac")),
                ("path", path),
                ("value", condition),
                ("invert", Value::Bool(invert)),
            ]);
            Reading::all(&value, MetadataMatch::read).unwrap().unwrap().matches(&metadata)
        };
        let exact = |value: &str| object([("string_match", object([("exact", text(value))]))]);
        assert!(matches("result", exact("denied"), false));
        assert!(!matches("result", exact("allowed"), false) && matches("result", exact("allowed"), true));
        assert!(matches("count", object([("double_match", object([("exact", Value::Integer(2))]))]), false));
        assert!(matches("none", object([("present_match", Value::Bool(false))]), false));
        assert!(!matches("none", object([("null_match", object([]))]), false));
    }
}
