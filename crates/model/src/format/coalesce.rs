//! The argument of `COALESCE`: commands as JSON, the first of which with a value counts.
//!
//! `{"operators": ["REQUESTED_SERVER_NAME", {"command": "REQ", "param": ":authority", "max_length": 80}]}`

use super::Piece;
use super::parse::Spec;

/// The commands in `text`.
///
/// # Errors
/// What is wrong with the text.
pub(super) fn read(text: &str) -> Result<Vec<Piece>, String> {
    let mut rest = Rest(text);
    let root = rest.value(0)?;
    rest.skip_blanks();
    let (Json::Object(fields), "") = (root, rest.0) else { return Err("an object in JSON is wanted".to_owned()) };
    let [(name, Json::List(operators))] = fields.as_slice() else {
        return Err("an object with the list `operators` is wanted, and nothing else in it".to_owned());
    };
    if name != "operators" || operators.is_empty() {
        return Err("an object with the list `operators` is wanted, which is not empty".to_owned());
    }
    operators.iter().map(operator).collect()
}

fn operator(value: &Json) -> Result<Piece, String> {
    let (mut name, mut argument, mut max_length) = ("", None, None);
    match value {
        Json::Text(text) => name = text,
        Json::Object(fields) => {
            for (key, value) in fields {
                match (key.as_str(), value) {
                    ("command", Json::Text(text)) => name = text,
                    ("param", Json::Text(text)) => argument = Some(text.as_str()),
                    ("max_length", Json::Number(number)) => max_length = Some(number.as_str()),
                    (key, _) => return Err(format!("`{key}`: a command has `command`, `param` and `max_length`")),
                }
            }
        }
        Json::List(_) | Json::Number(_) => return Err("a command is a name, or an object".to_owned()),
    }
    if name.is_empty() {
        return Err("a command without a name".to_owned());
    }
    if name == "COALESCE" {
        return Err("COALESCE stands in itself".to_owned());
    }
    Spec { name, argument, max_length }.parse(0).map_err(|error| error.to_string())
}

enum Json {
    Text(String),
    /// A whole number, as it is written.
    Number(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

/// What was not read yet.
struct Rest<'t>(&'t str);

/// How deep values may stand in each other: the outer object, its list, a command, what it says.
const DEEPEST: usize = 4;

impl Rest<'_> {
    fn skip_blanks(&mut self) {
        self.0 = self.0.trim_start();
    }

    fn takes(&mut self, wanted: char) -> bool {
        self.skip_blanks();
        let rest = self.0.strip_prefix(wanted);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn wants(&mut self, wanted: char) -> Result<(), String> {
        if self.takes(wanted) { Ok(()) } else { Err(format!("no JSON: `{wanted}` is wanted before `{}`", self.0)) }
    }

    fn value(&mut self, depth: usize) -> Result<Json, String> {
        if depth >= DEEPEST {
            return Err("values stand too deep in each other".to_owned());
        }
        if self.takes('[') {
            let mut items = Vec::new();
            while !self.takes(']') {
                if !items.is_empty() {
                    self.wants(',')?;
                }
                items.push(self.value(depth + 1)?);
            }
            return Ok(Json::List(items));
        }
        if self.takes('{') {
            let mut fields = Vec::new();
            while !self.takes('}') {
                if !fields.is_empty() {
                    self.wants(',')?;
                }
                let key = self.text()?;
                self.wants(':')?;
                fields.push((key, self.value(depth + 1)?));
            }
            return Ok(Json::Object(fields));
        }
        let digits = self.0.len() - self.0.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if digits > 0 {
            let (number, rest) = self.0.split_at(digits);
            self.0 = rest;
            return Ok(Json::Number(number.to_owned()));
        }
        self.text().map(Json::Text)
    }

    fn text(&mut self) -> Result<String, String> {
        self.wants('"')?;
        let mut text = String::new();
        let mut letters = self.0.chars();
        loop {
            match letters.next() {
                Some('"') => break,
                Some('\\') => match letters.next() {
                    Some(letter @ ('"' | '\\' | '/')) => text.push(letter),
                    other => return Err(format!("no JSON here: `\\{}`", other.unwrap_or_default())),
                },
                Some(letter) => text.push(letter),
                None => return Err("no JSON: a text without its end".to_owned()),
            }
        }
        self.0 = letters.as_str();
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Command;

    #[test]
    fn commands_are_names_or_objects() {
        let text = r#"{ "operators": ["PROTOCOL", {"command": "REQ", "param": "x\"?y", "max_length": 3}] }"#;
        let name = Some("y".to_owned());
        assert_eq!(
            read(text).unwrap(),
            [
                Piece::Command { command: Command::Protocol, max_length: None },
                Piece::Command { command: Command::RequestHeader("x\"".into(), name), max_length: Some(3) },
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
            r#"{"operators": [{"command": "PROTOCOL", "length": 3}]}"#,
            r#"{"operators": ["PROTOCOL"#,
            r#"{"operators": ["COALESCE"]}"#,
            r#"{"operator": ["PROTOCOL"]}"#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
