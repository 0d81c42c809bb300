//! From a path (`static_resources.listeners[0].name`) back to its place in the text.

use postrider_config_core::Span;

use crate::message::{Message, Value};

/// The place of what `path` names below `root`, or of the nearest thing around it that exists. Paths are those of
/// diagnostics, of [`postrider_model::Origin`], and of a `ValueError` appended to an origin.
pub fn locate(root: &Message, path: &str) -> Option<Span> {
    let mut message = Some(root);
    let mut value: Option<&Value> = None;
    let mut best = root.span;
    for step in steps(path) {
        match step {
            Step::Field(name) => {
                let Some(field) = message.and_then(|message| message.field(&name)) else { return best };
                best = field.span().or(best);
                value = Some(&field.value);
            }
            Step::Index(index) => {
                let Some(Value::List(items)) = value else { return best };
                let Some(item) = items.get(index) else { return best };
                best = item.span.or(best);
                value = Some(&item.value);
            }
            Step::Key(key) => {
                let Some(Value::Map(entries)) = value else { return best };
                let Some(entry) = entries.iter().find(|entry| entry.key == key) else { return best };
                best = entry.value_span.or(entry.key_span).or(best);
                value = Some(&entry.value);
            }
        }
        message = match value {
            Some(Value::Message(inner)) => Some(inner),
            Some(Value::Any(any)) => any.message.as_ref(),
            _ => None,
        };
    }
    best
}

enum Step {
    Field(String),
    Index(usize),
    Key(String),
}

/// `a.b[0]["x.y"].c` as its steps. What cannot be read ends the path.
fn steps(path: &str) -> Vec<Step> {
    let mut all = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix("[\"") {
            let Some((key, tail)) = quoted(inner) else { break };
            all.push(Step::Key(key));
            rest = tail;
        } else if let Some(inner) = rest.strip_prefix('[') {
            let Some((digits, tail)) = inner.split_once(']') else { break };
            let Ok(index) = digits.parse() else { break };
            all.push(Step::Index(index));
            rest = tail;
        } else {
            let name = rest.strip_prefix('.').unwrap_or(rest);
            let end = name.find(['.', '[']).unwrap_or(name.len());
            if end == 0 {
                break;
            }
            all.push(Step::Field(name[..end].to_owned()));
            rest = &name[end..];
        }
    }
    all
}

/// The text up to an unescaped `"]`.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut key = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => key.push(letters.next()?.1),
            '"' => return text[at..].strip_prefix("\"]").map(|tail| (key, tail)),
            other => key.push(other),
        }
    }
    None
}
