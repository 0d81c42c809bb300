//! JSON objects of which there is one reading only: headers and payloads of tokens, key sets.
//!
//! A name that stands twice in an object makes it unusable (RFC 7519 section 4 leaves that or the last one): the upstream
//! that gets the token may take the other one.

use serde_json::{Map, Value as Json};

/// How deep objects and lists may stand in each other, as in Envoy.
const MAX_DEPTH: usize = 100;

/// `None` for what is no JSON object, or has a name twice in itself or in one within it, or is too deep.
pub(super) fn object(text: &[u8]) -> Option<Map<String, Json>> {
    let members = members(text)?;
    let read: Map<String, Json> = serde_json::from_slice(text).ok()?;
    let kept = read.len() + read.values().map(members_in).sum::<usize>();
    // Of members with the same name, the last one was kept.
    (kept == members).then_some(read)
}

/// How many members the objects of a JSON text have, those of each counted as often as they are written. `None` where it is
/// too deep.
fn members(text: &[u8]) -> Option<usize> {
    let (mut members, mut depth) = (0, 0_usize);
    let (mut in_string, mut is_escaped) = (false, false);
    for byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b':' => members += 1,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return None;
        }
    }
    Some(members)
}

fn members_in(value: &Json) -> usize {
    match value {
        Json::Object(entries) => entries.len() + entries.values().map(members_in).sum::<usize>(),
        Json::Array(items) => items.iter().map(members_in).sum(),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::object;

    #[test]
    fn a_name_that_stands_twice_is_refused_at_any_depth() {
        for text in [
            r#"{"iss":"a","iss":"b"}"#,
            r#"{"iss":"a","\u0069ss":"a"}"#,
            r#"{"a":{"b":1,"b":1}}"#,
            r#"{"a":[1,{"b":{}, "b" : [{}]}]}"#,
            r#"{"":1,"":2}"#,
        ] {
            assert_eq!(object(text.as_bytes()), None, "{text}");
        }
        for text in [
            "{}",
            r#" {"a" : {"b":1}, "b":{"b":":"}, "c":[{"a":1},{"a":1}], "\"":"a:\\", "A": "\":\"" } "#,
            r#"{"a":"{\"b\":1,\"b\":1}"}"#,
        ] {
            assert!(object(text.as_bytes()).is_some(), "{text}");
        }
    }

    #[test]
    fn what_is_too_deep_or_no_object_is_refused() {
        let nested = |depth: usize| format!(r#"{{"a":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
        assert!(object(nested(99).as_bytes()).is_some() && object(nested(100).as_bytes()).is_none());
        let brackets = format!(r#"{{"a":"{}"}}"#, "[".repeat(200));
        assert!(object(brackets.as_bytes()).is_some());
        for text in ["", "null", "[]", r#"{"a":1}}"#, r#"{"a":1,}"#, "{'a':1}", r#"{"a":"#, "{\"a\":\"\u{1}\"}"] {
            assert_eq!(object(text.as_bytes()), None, "{text}");
        }
    }
}
