//! What is left in the filter state: the decision that was not enforced, and how long it took.

use postrider_model::Value;

use super::verdict::Denial;

/// What a service decided, for who reads it behind the filter: `ShadowDecision`.
pub(super) enum Shadowed<'a> {
    Allowed,
    Denied { status: u16, denial: &'a Denial },
    Failed { status: u16 },
}

impl Shadowed<'_> {
    pub(super) fn to_value(&self) -> Value {
        let (result, status) = match self {
            Shadowed::Allowed => ("OK", 200),
            Shadowed::Denied { status, .. } => ("DENIED", *status),
            Shadowed::Failed { status } => ("ERROR", *status),
        };
        let mut entries = vec![
            ("check_result".to_owned(), Value::String(result.to_owned())),
            ("status_code".to_owned(), Value::Integer(status.into())),
        ];
        if let Shadowed::Denied { denial, .. } = self
            && !denial.headers.is_empty()
        {
            let text = |bytes: &[u8]| Value::String(String::from_utf8_lossy(bytes).into_owned());
            let header = |(name, value): &(String, Vec<u8>)| {
                Value::Map(vec![("key".to_owned(), text(name.as_bytes())), ("value".to_owned(), text(value))])
            };
            entries.push(("response_headers".to_owned(), Value::List(denial.headers.iter().map(header).collect())));
        }
        Value::Map(entries)
    }
}

/// How long a decision took.
pub(super) fn is_timing(value: &Value) -> bool {
    matches!(value, Value::Map(entries) if entries.iter().any(|(key, _)| key == "latency_us"))
}

/// Puts it there in place of an older one.
pub(super) fn note(state: &mut Vec<(String, Value)>, name: &str, value: Value) {
    match state.iter_mut().find(|(known, _)| known == name) {
        Some((_, known)) => *known = value,
        None => state.push((name.to_owned(), value)),
    }
}
