//! JSON objects of which there is one reading only: headers and payloads of tokens, key sets. And claims as text.
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

/// A value in Envoy's form: numbers are floating-point numbers, and what could end a piece of HTML or is not seen is escaped.
pub(super) fn text(value: &Json) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

fn write(value: &Json, out: &mut String) {
    match value {
        Json::Null => out.push_str("null"),
        Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Json::Number(value) => out.push_str(&number(value.as_f64().unwrap_or(0.0))),
        Json::String(text) => quote(text, out),
        Json::Array(items) => {
            for (item, before) in items.iter().zip(separators('[')) {
                out.push(before);
                write(item, out);
            }
            out.push_str(if items.is_empty() { "[]" } else { "]" });
        }
        Json::Object(entries) => {
            for ((key, entry), before) in entries.iter().zip(separators('{')) {
                out.push(before);
                quote(key, out);
                out.push(':');
                write(entry, out);
            }
            out.push_str(if entries.is_empty() { "{}" } else { "}" });
        }
    }
}

fn separators(first: char) -> impl Iterator<Item = char> {
    std::iter::once(first).chain(std::iter::repeat(','))
}

fn quote(text: &str, out: &mut String) {
    for c in Json::from(text).to_string().chars() {
        match c {
            '<'
            | '>'
            | '\u{7f}'..='\u{9f}'
            | '\u{ad}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{2064}'
            | '\u{206a}'..='\u{206f}'
            | '\u{feff}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
}

/// With 15 digits where they are enough, or with 17.
fn number(value: f64) -> String {
    let short = significant(value, 15);
    if short.parse() == Ok(value) { short } else { significant(value, 17) }
}

/// As C's `%g` has it: without zeros at the end, and with an exponent where the number is very large or small.
fn significant(value: f64, digits: i32) -> String {
    let bare = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    let scientific = format!("{value:.*e}", (digits - 1) as usize);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>().unwrap_or_default() {
        exponent if (-4..digits).contains(&exponent) => bare(&format!("{value:.*}", (digits - 1 - exponent) as usize)),
        exponent => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{}e{sign}{:02}", bare(mantissa), exponent.abs())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{object, text};

    #[test]
    fn values_are_written_as_envoy_does() {
        for (read, written) in [
            (r#"[1.0, 1, -0.5, true, null, {}, []]"#, r#"[1,1,-0.5,true,null,{},[]]"#),
            (r#"{"b":["<a>"],"a":"\u2028\u007f\n\"é"}"#, r#"{"b":["\u003ca\u003e"],"a":"\u2028\u007f\n\"é"}"#),
            ("[100000, 1e15, 1e14, 0.0001, 0.00001]", "[100000,1e+15,100000000000000,0.0001,1e-05]"),
            ("[9007199254740993, 9223372036854775807]", "[9007199254740992,9.2233720368547758e+18]"),
            ("[0.1, 1.7976931348623157e308, 0.30000000000000004]", "[0.1,1.7976931348623157e+308,0.30000000000000004]"),
        ] {
            assert_eq!(text(&serde_json::from_str(read).unwrap()), written);
        }
    }

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
