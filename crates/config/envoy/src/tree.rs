//! The document as a tree of mappings, lists and scalars, each with its place: YAML (and so JSON) before any schema.
//!
//! What it is for: one walk by descriptor over one kind of tree, whatever the file looked like. Syntax errors are
//! repaired line by line where a repair is plausible ([`repair`]), so that the rest of the file is still checked.
//!
//! What it must never do: guess a type. A plain scalar keeps its text; the schema decides what it means.
//!
//! Who calls it: the loader, and the migration from v2.

mod parse;
mod repair;

use postrider_config_core::{Diagnostics, FileId, SourceFile, Span};

/// Longest document: 64 MiB. The largest published configurations are far below a tenth of it.
pub const MAX_BYTES: usize = 64 << 20;

/// Deepest nesting, as protobuf's JSON parsers allow it.
pub const MAX_DEPTH: usize = 100;

/// Most nodes after aliases and merge keys are expanded: bounds the memory that a small file can ask for.
pub const MAX_NODES: usize = 4_000_000;

/// A value with its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub span: Span,
    pub kind: NodeKind,
}

/// What a value is.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeKind {
    /// `null`, `~` or nothing at all.
    Null,
    Scalar(Scalar),
    List(Vec<Node>),
    /// Pairs in the order of the file. Of a repeated key only the last is left.
    Map(Vec<Pair>),
}

/// Text with the style that decides whether it may be a number or a boolean.
#[derive(Clone, Debug, PartialEq)]
pub struct Scalar {
    pub text: String,
    /// Written without quotes, on one line: may stand for something other than text.
    pub plain: bool,
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    pub key: String,
    pub key_span: Span,
    pub value: Node,
}

impl Node {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Node> {
        match &self.kind {
            NodeKind::Map(pairs) => pairs.iter().find(|pair| pair.key == key).map(|pair| &pair.value),
            _ => None,
        }
    }

    /// The text of a scalar.
    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            NodeKind::Scalar(scalar) => Some(&scalar.text),
            _ => None,
        }
    }

    /// `null`, `a mapping`, `the list`…: what diagnostics call it.
    pub fn describe(&self) -> String {
        match &self.kind {
            NodeKind::Null => "nothing".to_owned(),
            NodeKind::List(_) => "a list".to_owned(),
            NodeKind::Map(_) => "a mapping".to_owned(),
            NodeKind::Scalar(scalar) if scalar.plain => format!("`{}`", shorten(&scalar.text)),
            NodeKind::Scalar(scalar) => format!("the string {:?}", shorten(&scalar.text)),
        }
    }
}

/// A parsed document.
#[derive(Debug)]
pub struct Document {
    /// `None` when there is nothing to read: an empty file, or one beyond repair.
    pub root: Option<Node>,
    /// Parts of the text were left out by a repair: what seems missing may only be unreadable.
    pub incomplete: bool,
}

/// Parses a YAML or JSON document. Findings go to `diagnostics`; a tree comes back whenever there is something to read.
pub fn parse(file: &SourceFile, id: FileId, diagnostics: &mut Diagnostics) -> Document {
    repair::parse_with_repairs(file, id, diagnostics)
}

/// Longest text quoted in a message.
const QUOTED_CHARACTERS: usize = 60;

pub(crate) fn shorten(text: &str) -> String {
    if text.chars().count() <= QUOTED_CHARACTERS {
        return text.to_owned();
    }
    let head: String = text.chars().take(QUOTED_CHARACTERS).collect();
    format!("{head}…")
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_config_core::Sources;
    use postrider_config_core::render;

    fn show(text: &str) -> String {
        let file = SourceFile::new("f", text);
        let mut found = Diagnostics::new();
        let document = parse(&file, FileId::MAIN, &mut found);
        let mut out = render::text(&found, &Sources::of(file), false);
        if let Some(root) = document.root {
            out.push_str(&flow(&root));
        }
        out
    }

    /// The tree in one line: plain scalars bare, others quoted.
    fn flow(node: &Node) -> String {
        match &node.kind {
            NodeKind::Null => "~".to_owned(),
            NodeKind::Scalar(scalar) if scalar.plain => scalar.text.clone(),
            NodeKind::Scalar(scalar) => format!("{:?}", scalar.text),
            NodeKind::List(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
            NodeKind::Map(pairs) => {
                let pairs: Vec<_> = pairs.iter().map(|pair| format!("{}: {}", pair.key, flow(&pair.value))).collect();
                format!("{{{}}}", pairs.join(", "))
            }
        }
    }

    #[test]
    fn explore() {
        for (name, text) in [
            ("over-indent", "a: 1\n  b: 2\nc: 3\n"),
            ("over-indent2", "a:\n  x: 1\n    y: 2\nc: 3\n"),
            ("under-indent", "r:\n    a: 1\n   b: 2\n    c: 3\n"),
            ("under-indent-list", "r:\n  - a: 1\n   b: 2\n"),
            ("under-indent-list2", "r:\n- a: 1\n  b:\n  - c: 1\n c: 2\n"),
            ("dash-level", "r:\n  - a: 1\n - b: 2\n"),
            ("dash-level2", "r:\n  - a: 1\n    - b: 2\n"),
            ("dash in map", "r:\n  a: 1\n  - b: 2\n"),
            ("tab", "a:\n\tb: 1\n"),
            ("tab2", "a:\n  - x: 1\n\t y: 2\n"),
            ("no space", "a:\n  b:1\n  c: 2\n"),
            ("no space first", "a:\n  c: 2\n  b:1\n"),
            ("no space last", "a:\n  c: 2\n  b:1\nd: 1\n"),
            ("no colon", "a\n  b: 1\n"),
            ("no colon2", "x: 1\na\n  b: 1\n"),
            ("no colon3", "x: 1\na 5\nb: 1\n"),
            ("unclosed dq", "a: \"foo\nb: 1\nc: 2\n"),
            ("unclosed dq2", "a: \"foo\nb: \"x\"\nc: 2\n"),
            ("unclosed dq3", "a: [\"foo]\nb: \"x\"\nc: 2\n"),
            ("unclosed sq", "a: 'foo\nb: 1\n"),
            ("unclosed eof", "a: 'foo"),
            ("unclosed [", "a: [1, 2\nb: 1\nc: 3\n"),
            ("unclosed {", "a: { b: 1\nc: 3\nd: 4\n"),
            ("unclosed {{", "a: { b: {x: 1}\nc: 3\nd: 4\n"),
            ("mismatch", "a: [1, 2}\nb: 1\n"),
            ("extra", "a: [1, 2]]\nb: 1\n"),
            ("extra2", "a: {b: 1}}\nb: 1\n"),
            ("extra3", "a: 1\n}\n"),
            ("star", "a: [*]\nb: 1\n"),
            ("star2", "a: *\nb: 1\n"),
            ("percent", "a: %X% b\nb: 1\n"),
            ("at", "a: @foo\nb: 1\n"),
            ("colon in value", "a: foo: bar\nb: 1\n"),
            ("escape", "a: \"\\d+\"\nb: 1\n"),
            ("text after quote", "a: \"x\" y\nb: 1\n"),
            ("flow missing comma", "a: {b: 1 c: 2}\n"),
            ("flow missing comma2", "a: [\"b\" \"c\"]\n"),
            ("json missing comma", "{\"a\": 1\n \"b\": 2}\n"),
            ("json missing comma2", "{\"a\": {\"x\": 1}\n \"b\": 2}\n"),
            ("json missing colon", "{\"a\" 1,\n \"b\": 2}\n"),
            ("json unclosed", "{\"a\": {\n \"b\": 2}\n"),
            ("block", "a: |\n  x\n y\nb: 1\n"),
            ("multi", "a: 1\n---\nb: 2\n"),
            ("anchor", "a: *x\nb: 1\n"),
            ("control", "a: \"x\u{0}y\"\nb: 1\n"),
            ("merge conflict", "a: 1\n<<<<<<< HEAD\nb: 2\n=======\nb: 3\n>>>>>>> x\n"),
            ("r2", &std::fs::read_to_string("/work/shared/reference/configs/r2-envoy-1.14.yaml").unwrap()),
        ] {
            println!("==== {name}\n{}\n", show(text));
        }
    }
}
