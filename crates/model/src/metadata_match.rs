//! A condition on dynamic metadata: `envoy.type.matcher.v3.MetadataMatcher`.

use crate::{Metadata, Reading, StringMatch, Value, string_match};

/// What a value that lies under a path of keys must be like.
#[derive(Debug, Clone, PartialEq)]
pub struct MetadataMatch {
    namespace: String,
    path: Vec<String>,
    condition: ValueMatch,
    invert: bool,
}

/// `ValueMatcher`.
#[derive(Debug, Clone, PartialEq)]
enum ValueMatch {
    Null,
    Bool(bool),
    Text(StringMatch),
    Number(f64),
    /// From the first to before the second.
    Range(f64, f64),
    Present(bool),
    /// One item of a list.
    Item(Box<ValueMatch>),
    Any(Vec<ValueMatch>),
}

impl MetadataMatch {
    /// Reads one; `None` after an error.
    pub fn read(at: &mut Reading<'_>) -> Option<MetadataMatch> {
        let namespace = at.text("filter").unwrap_or_default().to_owned();
        let path = at.each("path", |segment| segment.text("key").unwrap_or_default().to_owned());
        if namespace.is_empty() || path.is_empty() || path.iter().any(String::is_empty) {
            at.wrong("filter and path are required, each with a name");
        }
        MetadataMatch::of(namespace, path, at)
    }

    /// The condition alone, on a value whose place is known.
    pub(crate) fn of(namespace: String, path: Vec<String>, at: &mut Reading<'_>) -> Option<MetadataMatch> {
        let condition = at.map("value", ValueMatch::read);
        if condition.is_none() {
            at.error("value", "a condition is required");
        }
        Some(MetadataMatch { namespace, path, condition: condition.flatten()?, invert: at.flag("invert") })
    }

    pub fn matches(&self, metadata: &Metadata) -> bool {
        self.condition.matches(self.value(metadata)) != self.invert
    }

    /// There is a value to compare.
    pub fn finds(&self, metadata: &Metadata) -> bool {
        self.value(metadata).is_some()
    }

    fn value<'m>(&self, metadata: &'m Metadata) -> Option<&'m Value> {
        let mut value = metadata.namespace(&self.namespace)?;
        for key in &self.path {
            let Value::Map(entries) = value else { return None };
            value = entries.iter().find(|(known, _)| known == key).map(|(_, value)| value)?;
        }
        Some(value)
    }
}

impl ValueMatch {
    fn read(at: &mut Reading<'_>) -> Option<ValueMatch> {
        let mut found = Vec::new();
        found.extend(at.map("null_match", |_| Some(ValueMatch::Null)));
        found.extend(at.bool("bool_match").map(|wanted| Some(ValueMatch::Bool(wanted))));
        found.extend(at.map("string_match", string_match).map(|rule| rule.map(ValueMatch::Text)));
        found.extend(at.bool("present_match").map(|wanted| Some(ValueMatch::Present(wanted))));
        found.extend(at.map("double_match", |at| {
            let range = at.map("range", |range| {
                let (start, end) = (number(range, "start"), number(range, "end"));
                ValueMatch::Range(start.unwrap_or(0.0), end.unwrap_or(0.0))
            });
            // A number that is zero is left out of what filters read.
            range.or_else(|| Some(ValueMatch::Number(number(at, "exact").unwrap_or(0.0))))
        }));
        found.extend(at.map("list_match", |at| {
            let item = at.map("one_of", ValueMatch::read);
            if item.is_none() {
                at.error("one_of", "a condition is required");
            }
            item.flatten().map(|item| ValueMatch::Item(Box::new(item)))
        }));
        found.extend(at.map("or_match", |at| {
            let rules = at.each("value_matchers", ValueMatch::read);
            rules.into_iter().collect::<Option<_>>().map(ValueMatch::Any)
        }));
        if found.len() != 1 {
            at.wrong("exactly one condition is wanted");
        }
        found.pop().flatten()
    }

    fn matches(&self, value: Option<&Value>) -> bool {
        match (self, value) {
            // `present_match: false` asks for nothing, and nothing is that, as in Envoy.
            (ValueMatch::Present(wanted), value) => *wanted && value.is_some(),
            (ValueMatch::Any(rules), value) => rules.iter().any(|rule| rule.matches(value)),
            (ValueMatch::Null, Some(Value::Null)) => true,
            (ValueMatch::Bool(wanted), Some(Value::Bool(value))) => value == wanted,
            (ValueMatch::Text(wanted), Some(Value::String(value))) => wanted.matches(value),
            (ValueMatch::Number(wanted), Some(value)) => as_number(value) == Some(*wanted),
            (ValueMatch::Range(start, end), Some(value)) => {
                as_number(value).is_some_and(|number| (*start..*end).contains(&number))
            }
            (ValueMatch::Item(rule), Some(Value::List(items))) => items.iter().any(|item| rule.matches(Some(item))),
            _ => false,
        }
    }
}

fn number(at: &mut Reading<'_>, key: &str) -> Option<f64> {
    at.value(key).and_then(as_number)
}

fn as_number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => Some(*number),
        Value::Integer(number) => Some(*number as f64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object<const N: usize>(entries: [(&str, Value); N]) -> Value {
        Value::Map(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    fn list<const N: usize>(items: [Value; N]) -> Value {
        Value::List(items.into_iter().collect())
    }

    fn text(text: &str) -> Value {
        Value::String(text.to_owned())
    }

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
        assert!(!matches("none", object([("present_match", Value::Bool(false))]), false));
        assert!(!matches("count", object([("present_match", Value::Bool(false))]), false));
        assert!(!matches("none", object([("null_match", object([]))]), false));
        let range = |end| object([("range", object([("start", Value::Integer(1)), ("end", Value::Integer(end))]))]);
        assert!(matches("count", object([("double_match", range(3))]), false));
        assert!(!matches("count", object([("double_match", range(2))]), false));
        let either = list([exact("allowed"), exact("denied")]);
        assert!(matches("result", object([("or_match", object([("value_matchers", either)]))]), false));
    }

    #[test]
    fn one_item_of_a_list_is_enough() {
        let mut metadata = Metadata::default();
        metadata.set("jwt", "groups", list([text("dev"), text("ops")]));
        let matches = |group: &str| {
            let one_of = object([("string_match", object([("exact", text(group))]))]);
            let value = object([
                ("filter", text("jwt")),
                ("path", list([object([("key", text("groups"))])])),
                ("value", object([("list_match", object([("one_of", one_of)]))])),
            ]);
            Reading::all(&value, MetadataMatch::read).unwrap().unwrap().matches(&metadata)
        };
        assert!(matches("ops") && !matches("boss"));
    }
}
