//! Writes a JSON value as block-style YAML, the form in which operators write
//! configurations. Strings are always quoted, so no value changes its type.

use serde_json::Value;
use std::fmt::Write;

/// `value` as a YAML document.
pub fn to_yaml(value: &Value) -> String {
    let mut out = String::new();
    write_value(&mut out, value, 0);
    if !out.ends_with('\n') {
        out.push('\n');
    }
    out
}

fn write_value(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (index, (key, value)) in map.iter().enumerate() {
                if index > 0 {
                    let _ = write!(out, "{:indent$}", "");
                }
                let plain = key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'.');
                let key = if plain { key.clone() } else { format!("{:?}", key) };
                let _ = write!(out, "{key}:");
                write_nested(out, value, indent + 2);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    let _ = write!(out, "{:indent$}", "");
                }
                out.push_str("- ");
                write_value(out, item, indent + 2);
            }
        }
        // JSON's scalars, and its empty collections, are YAML as they stand.
        scalar => {
            let _ = writeln!(out, "{scalar}");
        }
    }
}

fn write_nested(out: &mut String, value: &Value, indent: usize) {
    let nested = match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    };
    if nested {
        let _ = write!(out, "\n{:indent$}", "");
    } else {
        out.push(' ');
    }
    write_value(out, value, indent);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nested_lists_and_maps_keep_their_shape() {
        let value = json!({"a": {"@type": "x", "b": [1, {"c": "d: e", "f": []}]}, "g": true});
        let expected = "a:\n  \"@type\": \"x\"\n  b:\n    - 1\n    - c: \"d: e\"\n      f: []\ng: true\n";
        assert_eq!(to_yaml(&value), expected);
    }
}
