//! The argument of `COALESCE`: commands as JSON, the first of which with a value counts.
//!
//! `{"operators": ["REQUESTED_SERVER_NAME", {"command": "REQ", "param": ":authority", "max_length": 80}]}`

use serde_json::Value;

use super::parse::Spec;
use super::{NoContents, Piece};

/// The commands in `text`.
///
/// # Errors
/// What is wrong with the text.
pub(super) fn read(text: &str) -> Result<Vec<Piece>, String> {
    let root: Value = serde_json::from_str(text).map_err(|error| format!("an object in JSON is wanted: {error}"))?;
    match root.get("operators") {
        Some(Value::Array(operators)) if !operators.is_empty() => operators.iter().map(operator).collect(),
        _ => Err("an object with the list `operators` is wanted, which is not empty".to_owned()),
    }
}

fn operator(value: &Value) -> Result<Piece, String> {
    let (mut name, mut argument, mut max_length) = ("", None, None);
    match value {
        Value::String(text) => name = text,
        Value::Object(fields) => {
            for (key, value) in fields {
                match (key.as_str(), value) {
                    ("command", Value::String(text)) => name = text,
                    ("param", Value::String(text)) => argument = Some(text.as_str()),
                    ("max_length", Value::Number(number)) => max_length = Some(number.to_string()),
                    ("command" | "param" | "max_length", _) => {
                        return Err(format!("`{key}`: names and arguments are texts, and lengths numbers"));
                    }
                    // Envoy looks at no others.
                    _ => {}
                }
            }
        }
        _ => return Err("a command is a name, or an object".to_owned()),
    }
    if name.is_empty() {
        return Err("a command without a name".to_owned());
    }
    if name == "COALESCE" {
        return Err("COALESCE stands in itself".to_owned());
    }
    Spec { name, argument, max_length: max_length.as_deref() }
        .parse(0, &mut NoContents)
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Command, RequestField};

    #[test]
    fn commands_are_names_or_objects() {
        let text = r#"{ "operators": ["PROTOCOL", {"command": "REQ", "param": "\u0078?y", "max_length": 3}] }"#;
        let named = |name: &str| RequestField::Named(name.to_owned());
        let command = Command::RequestHeader(named("x"), Some(named("y")));
        assert_eq!(
            read(text).unwrap(),
            [
                Piece::Command { command: Command::Protocol, max_length: None },
                Piece::Command { command, max_length: Some(3) },
            ]
        );
    }

    #[test]
    fn what_is_no_list_of_commands_is_refused() {
        for bad in [
            "",
            "[]",
            r#"{"operators": []}"#,
            r#"{"operators": ["REQ(x)"]}"#,
            r#"{"operators": ["PROTOCOL"],}"#,
            r#"{"operators": ["PROTOCOL"]} x"#,
            r#"{"operators": [["PROTOCOL"]]}"#,
            r#"{"operators": [{"command": "PROTOCOL", "max_length": "3"}]}"#,
            r#"{"operators": ["PROTOCOL"#,
            r#"{"operators": ["COALESCE"]}"#,
            r#"{"operator": ["PROTOCOL"]}"#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
