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

#[cfg(test)]
mod tests {
    use postrider_config_core::SourceFile;

    use super::locate;
    use crate::{LoadOptions, load_bootstrap};

    #[test]
    fn a_path_finds_its_value_or_what_stands_around_it() {
        let text = r#"node: { id: me, dynamic_parameters: { "a.b\"]": { params: { k: v } } } }
static_resources: { clusters: [{ name: one }, { name: two }] }
"#;
        let file = SourceFile::new("a.yaml", text);
        let loaded = load_bootstrap(&file, &LoadOptions::default());
        let root = loaded.bootstrap.unwrap();
        let at = |path: &str| locate(&root, path).map(|span| file.slice(span).to_owned());
        assert_eq!(at("node.id").as_deref(), Some("me"));
        assert_eq!(at("static_resources.clusters[1].name").as_deref(), Some("two"));
        assert_eq!(at(r#"node.dynamic_parameters["a.b\"]"].params["k"]"#).as_deref(), Some("v"));
        assert_eq!(at("static_resources.clusters[1].nothing[3].here").as_deref(), Some("{ name: two }"));
        assert_eq!(at("static_resources.clusters[9]").as_deref(), at("static_resources.clusters").as_deref());
        assert_eq!(at("static_resources.clusters[x]").as_deref(), at("static_resources.clusters").as_deref());
        assert!(at("").unwrap().starts_with("node:"));
    }
}
