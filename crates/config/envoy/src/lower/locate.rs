//! From a path (`static_resources.listeners[0].name`) back to its place in the text.

use postrider_config_core::Span;

use crate::message::{Message, Value};

/// The place of what `path` names below `root`, or of the nearest thing around it that exists. Paths are those of
/// diagnostics, of [`postrider_model::Origin`], and of a `ValueError` appended to an origin. Below a Struct they name the
/// user's own keys: `config.users[0].name`, `config["a.b"]`.
pub fn locate(root: &Message, path: &str) -> Option<Span> {
    let mut at = Place { message: Some(root), value: None };
    let mut best = root.span;
    for step in steps(path) {
        let Some((next, span)) = at.step(&step) else { return best };
        best = span.or(best);
        at = next;
    }
    best
}

/// What a path has led to so far.
struct Place<'m> {
    message: Option<&'m Message>,
    value: Option<&'m Value>,
}

impl<'m> Place<'m> {
    fn at(value: &'m Value) -> Place<'m> {
        let message = match value {
            Value::Message(inner) => Some(&**inner),
            Value::Any(any) => any.message.as_ref(),
            _ => None,
        };
        Place { message: message.and_then(in_struct), value: Some(value) }
    }

    /// What the step leads to, with its place.
    fn step(&self, step: &Step) -> Option<(Place<'m>, Option<Span>)> {
        let entries = match (self.value, self.message) {
            (_, Some(message)) if message.type_name() == STRUCT => message.value("fields"),
            (_, Some(message)) if message.type_name() == LIST => message.value("values"),
            (value, _) => value,
        };
        match (step, entries) {
            (Step::Field(key) | Step::Key(key), Some(Value::Map(entries))) => {
                let entry = entries.iter().find(|entry| entry.key == *key)?;
                Some((Place::at(&entry.value), entry.value_span.or(entry.key_span)))
            }
            (Step::Index(index), Some(Value::List(items))) => {
                let item = items.get(*index)?;
                Some((Place::at(&item.value), item.span))
            }
            (Step::Field(name), _) => {
                let field = self.message?.field(name)?;
                Some((Place::at(&field.value), field.span()))
            }
            _ => None,
        }
    }
}

const STRUCT: &str = "google.protobuf.Struct";
const LIST: &str = "google.protobuf.ListValue";

/// The Struct or ListValue in a `google.protobuf.Value`, `None` for a scalar in it; any other message as it is.
fn in_struct(message: &Message) -> Option<&Message> {
    if message.type_name() != "google.protobuf.Value" {
        return Some(message);
    }
    match &message.oneof("kind")?.value {
        Value::Message(inner) => Some(inner),
        _ => None,
    }
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

    /// A schema's findings have such paths.
    #[test]
    fn a_path_goes_on_below_a_struct() {
        let text = r#"
node:
  metadata:
    a: { b: [1, 2, { c: here }] }
    userList: [[x], [y, why]]
    "d.e": { "f": no }
"#;
        let file = SourceFile::new("a.yaml", text);
        let loaded = load_bootstrap(&file, &LoadOptions::default());
        let root = loaded.bootstrap.unwrap();
        let at = |path: &str| locate(&root, path).map(|span| file.slice(span).to_owned());
        assert_eq!(at("node.metadata.a.b[1]").as_deref(), Some("2"));
        assert_eq!(at("node.metadata.a.b[2].c").as_deref(), Some("here"));
        assert_eq!(at("node.metadata.a.b[2].missing").as_deref(), Some("{ c: here }"));
        assert_eq!(at("node.metadata.userList[1][1]").as_deref(), Some("why"));
        assert_eq!(at(r#"node.metadata["d.e"]["f"]"#).as_deref(), Some("no"));
        assert_eq!(at("node.metadata.fields").as_deref(), at("node.metadata").as_deref());
        let span = locate(&root, "node.metadata.a.b[2].c").unwrap();
        assert_eq!((file.position(span.start).line, file.position(span.start).column), (4, 25));
    }

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
