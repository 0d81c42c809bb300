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

/// Most values of a document. A cluster takes about ten.
pub const MAX_NODES: usize = 1_000_000;

/// Most values that aliases and merge keys may add by repeating others: a few lines of nested aliases ask for billions.
pub const MAX_REPEATED_NODES: usize = 100_000;

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

    /// Each fault: the line and the code reported, and the tree that is read on with.
    #[test]
    fn a_fault_is_told_once_and_the_rest_is_read() {
        for (text, expected, tree) in [
            ("a: 1\n  b: 2\nc: 3\n", "2 yaml-indent", "{a: 1, b: 2, c: 3}"),
            ("r:\n    a: 1\n   b: 2\n    c: 3\n", "3 yaml-indent", "{r: {a: 1, b: 2, c: 3}}"),
            ("r:\n- a: 1\n  b:\n  - c: 1\n c: 2\n", "5 yaml-indent", "{r: [{a: 1, b: [{c: 1}], c: 2}]}"),
            ("r:\n  - a: 1\n - b: 2\n", "3 yaml-indent", "{r: [{a: 1}, {b: 2}]}"),
            ("r:\n  - a: 1\n    - b: 2\n", "3 yaml-indent", "{r: [{a: 1}, {b: 2}]}"),
            ("a:\n  - x: 1\n\t y: 2\n", "3 yaml-tab", "{a: [{x: 1, y: 2}]}"),
            ("a:\n  b:1\n  c: 2\n", "2 yaml-syntax", "{a: {b: 1, c: 2}}"),
            ("x: 1\na\n  b: 1\n", "2 yaml-syntax", "{x: 1, a: {b: 1}}"),
            ("a: \"foo\nb: \"x\"\nc: 2\n", "1 yaml-unclosed", "{a: \"foo\", b: \"x\", c: 2}"),
            ("a: [\"foo]\nb: \"x\"\nc: 2\n", "1 yaml-unclosed", "{a: [\"foo\"], b: \"x\", c: 2}"),
            ("a: { b: {x: 1}\nc: 3\n", "1 yaml-unclosed", "{a: {b: {x: 1}}, c: 3}"),
            ("a: [1, 2]]\nb: 1\n", "1 yaml-unclosed", "{a: [1, 2], b: 1}"),
            ("a: [*]\nb: 1\n", "1 yaml-syntax", "{a: [\"*\"], b: 1}"),
            ("a: foo: bar\nb: 1\n", "1 yaml-syntax", "{a: \"foo: bar\", b: 1}"),
            ("a: \"\\d+\"\nb: 1\n", "1 yaml-syntax", "{a: \"\\\\d+\", b: 1}"),
            ("a: {b: 1 c: 2}\n", "1 yaml-syntax", "{a: {b: 1, c: 2}}"),
            ("{\"a\" 1,\n \"b\": 2}\n", "1 yaml-syntax", "{a: 1, b: 2}"),
            ("{\"a\": {\n \"b\": 2}\n", "1 yaml-unclosed", "{a: {b: 2}}"),
            ("a: |\n  x\n y\nb: 1\n", "3 yaml-indent", "{a: \"x\\ny\\n\", b: 1}"),
            ("a: 1\nno yaml at all\nb: 1\n", "2 yaml-syntax", "{a: 1, b: 1}"),
        ] {
            let file = SourceFile::new("f", text);
            let mut found = Diagnostics::new();
            let document = parse(&file, FileId::MAIN, &mut found);
            let told: Vec<String> = found
                .iter()
                .map(|d| format!("{} {}", d.span.map_or(0, |span| file.position(span.start).line), d.code))
                .collect();
            assert_eq!(told, [expected], "{text}");
            assert_eq!(document.root.as_ref().map(flow).as_deref(), Some(tree), "{text}");
        }
    }

    #[test]
    fn a_line_is_not_quoted_again_and_again() {
        let text = "a: b: c\n   d: e\n  f: [1]\n      \"    - name: router\n        x: {\"@type\": [a]}\n";
        let file = SourceFile::new("f", text);
        let mut found = Diagnostics::new();
        parse(&file, FileId::MAIN, &mut found);
        assert!(found.has_errors() && found.len() < text.len(), "{}", found.len());
    }

    #[test]
    fn whatever_is_cut_off_the_end_something_is_told_or_read() {
        let text = "a:\n- {b: [1, \"x\\n\", 'y'], c: &k |\n    t\n  }\n- *k\nd: !!str 1\n";
        for end in 0..=text.len() {
            let file = SourceFile::new("f", &text[..end]);
            let mut found = Diagnostics::new();
            let document = parse(&file, FileId::MAIN, &mut found);
            assert!(
                document.root.is_some() || found.has_errors() || text[..end].trim().is_empty(),
                "{:?}",
                &text[..end]
            );
        }
    }
}
