//! JSON values as block-style YAML that every YAML 1.1 and 1.2 parser reads the same way.

use serde_json::{Map, Value as Json};

/// Spaces per level.
const INDENT: usize = 2;

/// A JSON value as a YAML document, ending in a line break. Text is quoted where a parser could take it for something
/// else; text of several lines becomes a literal block.
pub fn json_to_yaml(json: &Json) -> String {
    let mut out = String::new();
    match json {
        Json::Object(fields) if !fields.is_empty() => mapping(&mut out, fields, 0, false),
        Json::Array(items) if !items.is_empty() => sequence(&mut out, items, 0),
        other => {
            scalar(&mut out, other, 0);
            out.push('\n');
        }
    }
    out
}

/// `inline_first`: the cursor already stands where the first key goes (behind `- `).
fn mapping(out: &mut String, fields: &Map<String, Json>, level: usize, inline_first: bool) {
    for (index, (key, value)) in fields.iter().enumerate() {
        if index > 0 || !inline_first {
            pad(out, level);
        }
        out.push_str(&plain_or_quoted(key));
        out.push(':');
        match value {
            Json::Object(inner) if !inner.is_empty() => {
                out.push('\n');
                mapping(out, inner, level + INDENT, false);
            }
            Json::Array(items) if !items.is_empty() => {
                out.push('\n');
                sequence(out, items, level);
            }
            other => {
                out.push(' ');
                scalar(out, other, level);
                out.push('\n');
            }
        }
    }
}

fn sequence(out: &mut String, items: &[Json], level: usize) {
    for item in items {
        pad(out, level);
        out.push_str("- ");
        match item {
            Json::Object(fields) if !fields.is_empty() => mapping(out, fields, level + INDENT, true),
            Json::Array(inner) if !inner.is_empty() => {
                // A list in a list starts on its own line: `- - a` is legal but hard to read.
                out.truncate(out.len() - 1);
                out.push('\n');
                sequence(out, inner, level + INDENT);
            }
            other => {
                scalar(out, other, level);
                out.push('\n');
            }
        }
    }
}

fn scalar(out: &mut String, value: &Json, level: usize) {
    match value {
        Json::Null => out.push_str("null"),
        Json::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Json::Number(n) => out.push_str(&n.to_string()),
        Json::String(text) if is_block(text) => block(out, text, level + INDENT),
        Json::String(text) => out.push_str(&plain_or_quoted(text)),
        Json::Array(_) => out.push_str("[]"),
        Json::Object(_) => out.push_str("{}"),
    }
}

/// Text that reads better, and is exactly representable, as a literal block.
fn is_block(text: &str) -> bool {
    let body = text.trim_end_matches('\n');
    body.contains('\n')
        && !body.starts_with([' ', '\n', '\t'])
        && text.lines().all(|line| !line.ends_with([' ', '\t', '\r']))
        && text.chars().all(|c| c == '\n' || c == '\t' || !is_special(c))
}

fn block(out: &mut String, text: &str, level: usize) {
    let body = text.trim_end_matches('\n');
    // Chomping: strip, clip, keep.
    out.push_str(match text.len() - body.len() {
        0 => "|-",
        1 => "|",
        _ => "|+",
    });
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        out.push('\n');
        if !line.is_empty() {
            pad(out, level);
            out.push_str(line);
        }
    }
}

fn plain_or_quoted(text: &str) -> String {
    if is_plain(text) { text.to_owned() } else { quoted(text) }
}

/// Whether a parser of any YAML version takes the bare text as that text.
fn is_plain(text: &str) -> bool {
    let Some(first) = text.chars().next() else { return false };
    if first.is_ascii_digit() && crate::time::parse_duration(text).is_some() {
        return true;
    }
    if !(first.is_ascii_alphabetic() || matches!(first, '_' | '/' | '.')) {
        return false;
    }
    let safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '+' | ' ' | ':' | '@' | '=');
    text.chars().all(safe)
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !is_reserved_word(text)
        && text.parse::<f64>().is_err()
        // `.inf` and `.nan`.
        && (first != '.' || text.len() > 5)
}

fn is_reserved_word(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    matches!(lower.as_str(), "null" | "true" | "false" | "yes" | "no" | "on" | "off" | "y" | "n")
}

/// A JSON string is a YAML double-quoted scalar; characters that YAML calls unprintable are escaped on top.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if is_special(c) && u32::from(c) <= 0xffff => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn is_special(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

fn pad(out: &mut String, level: usize) {
    out.extend(std::iter::repeat_n(' ', level));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nested_lists_and_mappings() {
        let value = json!({"a": [{"b": 1, "c": {"d": []}}, [1, 2]], "e": {}, "f": null});
        assert_eq!(json_to_yaml(&value), "a:\n- b: 1\n  c:\n    d: []\n-\n  - 1\n  - 2\ne: {}\nf: null\n");
    }

    #[test]
    fn text_that_looks_like_something_else_is_quoted() {
        for text in
            ["", "true", "No", "~", "1.5", "0x1", "a: b", "*x", "- a", "#c", " a", "a ", ".inf", "1:20", "a #b", "é"]
        {
            assert!(json_to_yaml(&json!(text)).starts_with('"'), "{text:?}");
        }
        for text in ["abc", "/dev/null", "type.googleapis.com/a.B", "0.25s", "a:b"] {
            assert_eq!(json_to_yaml(&json!(text)), format!("{text}\n"));
        }
    }

    #[test]
    fn several_lines_become_a_block() {
        assert_eq!(json_to_yaml(&json!({"a": "x\n  y\n"})), "a: |\n  x\n    y\n");
        assert_eq!(json_to_yaml(&json!({"a": "x\n\ny"})), "a: |-\n  x\n\n  y\n");
        assert_eq!(json_to_yaml(&json!({"a": "x\ny\n\n"})), "a: |+\n  x\n  y\n\n");
        assert_eq!(json_to_yaml(&json!({"a": " x\ny"})), "a: \" x\\ny\"\n");
    }
}
