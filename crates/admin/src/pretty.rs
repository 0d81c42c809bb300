//! JSON in the layout of Envoy's admin: one blank per level, a line break at the end.

use postrider_telemetry::json;
use serde_json::Value;

/// The document as text.
pub(crate) fn pretty(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    write(value, 0, &mut out);
    out.push(b'\n');
    out
}

fn write(value: &Value, depth: usize, out: &mut Vec<u8>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            list(b"{}", fields.iter(), depth, out, |(key, value), out| {
                json::write_string(key.as_bytes(), out);
                out.extend_from_slice(b": ");
                write(value, depth + 1, out);
            });
        }
        Value::Array(items) if !items.is_empty() => {
            list(b"[]", items.iter(), depth, out, |item, out| write(item, depth + 1, out));
        }
        Value::String(text) => json::write_string(text.as_bytes(), out),
        plain => out.extend_from_slice(plain.to_string().as_bytes()),
    }
}

fn list<T>(
    brackets: &[u8; 2],
    items: impl Iterator<Item = T>,
    depth: usize,
    out: &mut Vec<u8>,
    mut item: impl FnMut(T, &mut Vec<u8>),
) {
    out.push(brackets[0]);
    for (at, it) in items.enumerate() {
        out.extend_from_slice(if at == 0 { b"\n" } else { b",\n" });
        out.extend(std::iter::repeat_n(b' ', depth + 1));
        item(it, out);
    }
    out.push(b'\n');
    out.extend(std::iter::repeat_n(b' ', depth));
    out.push(brackets[1]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_layout_is_envoys() {
        let value = json!({"configs": [{"a": "x\"y", "n": 1.5, "e": {}, "l": []}, null], "t": true});
        let want = "{\n \"configs\": [\n  {\n   \"a\": \"x\\\"y\",\n   \"n\": 1.5,\n   \"e\": {},\n   \"l\": []\n  },\n  null\n ],\n \"t\": true\n}\n";
        assert_eq!(String::from_utf8(pretty(&value)).unwrap(), want);
        assert_eq!(pretty(&json!({})), b"{}\n");
    }
}
