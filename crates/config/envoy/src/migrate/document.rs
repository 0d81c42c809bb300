//! A YAML document that can be changed and written again with its order, its comments and its quoting.

use postrider_config_core::{SourceFile, Span};

use crate::tree;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub body: Body,
    /// Written in brackets.
    pub flow: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    Null,
    /// As it is written, quotes included; `text` is what it says.
    Scalar {
        text: String,
        written: String,
    },
    List(Vec<Entry>),
    Map(Vec<Entry>),
}

/// A key with its value, or (without a key) an item of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub key: String,
    pub node: Node,
    /// Where it stands in the old text; what a migration adds stands nowhere.
    pub span: Option<Span>,
    /// Whole lines of comment above it.
    pub before: Vec<String>,
    /// The comment at the end of its line.
    pub after: Option<String>,
}

/// A flow collection longer than this many characters is written in block style.
const LONGEST_FLOW: usize = 110;

impl Node {
    pub fn map(entries: Vec<Entry>) -> Node {
        Node { body: Body::Map(entries), flow: false }
    }

    pub fn list(items: Vec<Node>) -> Node {
        Node { body: Body::List(items.into_iter().map(|node| Entry::new("", node)).collect()), flow: false }
    }

    /// A string, quoted where YAML would read it as something else.
    pub fn text(text: &str) -> Node {
        Node { body: Body::Scalar { text: text.to_owned(), written: quoted(text) }, flow: false }
    }

    /// A number, a boolean or an enum's name.
    pub fn plain(text: &str) -> Node {
        Node { body: Body::Scalar { text: text.to_owned(), written: text.to_owned() }, flow: false }
    }

    /// `{}`.
    pub fn empty() -> Node {
        Node { body: Body::Map(Vec::new()), flow: true }
    }

    pub fn as_text(&self) -> Option<&str> {
        match &self.body {
            Body::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    pub fn entries(&self) -> &[Entry] {
        match &self.body {
            Body::Map(entries) | Body::List(entries) => entries,
            _ => &[],
        }
    }

    pub fn entries_mut(&mut self) -> Option<&mut Vec<Entry>> {
        match &mut self.body {
            Body::Map(entries) | Body::List(entries) => Some(entries),
            _ => None,
        }
    }

    pub fn is_map(&self) -> bool {
        matches!(self.body, Body::Map(_))
    }

    pub fn get(&self, key: &str) -> Option<&Node> {
        match &self.body {
            Body::Map(entries) => entries.iter().find(|entry| entry.key == key).map(|entry| &entry.node),
            _ => None,
        }
    }

    pub fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        match &mut self.body {
            Body::Map(entries) => entries.iter_mut().find(|entry| entry.key == key).map(|entry| &mut entry.node),
            _ => None,
        }
    }

    /// Takes an entry out of a mapping.
    pub fn take(&mut self, key: &str) -> Option<Entry> {
        let Body::Map(entries) = &mut self.body else { return None };
        let at = entries.iter().position(|entry| entry.key == key)?;
        Some(entries.remove(at))
    }

    /// Puts a new value in the place of `old`'s entry under a new key; its comments stay.
    pub fn replace(&mut self, old: &str, key: &str, node: Node) {
        let Body::Map(entries) = &mut self.body else { return };
        if let Some(entry) = entries.iter_mut().find(|entry| entry.key == old) {
            entry.key = key.to_owned();
            entry.node = node;
        }
    }

    /// Adds an entry at the end, or changes the one that is there.
    pub fn set(&mut self, key: &str, node: Node) {
        if matches!(self.body, Body::Null) {
            self.body = Body::Map(Vec::new());
        }
        let Body::Map(entries) = &mut self.body else { return };
        match entries.iter_mut().find(|entry| entry.key == key) {
            Some(entry) => entry.node = node,
            None => entries.push(Entry::new(key, node)),
        }
    }

    /// Puts an entry in front of all others.
    pub fn set_first(&mut self, key: &str, node: Node) {
        if matches!(self.body, Body::Null) {
            self.body = Body::Map(Vec::new());
        }
        if let Body::Map(entries) = &mut self.body {
            entries.insert(0, Entry::new(key, node));
        }
    }

    fn has_comments(&self) -> bool {
        self.entries()
            .iter()
            .any(|entry| !entry.before.is_empty() || entry.after.is_some() || entry.node.has_comments())
    }
}

impl Entry {
    pub fn new(key: &str, node: Node) -> Entry {
        Entry { key: key.to_owned(), node, span: None, before: Vec::new(), after: None }
    }
}

/// A document with the comments below its last value.
pub struct Document {
    pub root: Node,
    last: Vec<String>,
}

impl Document {
    /// Copies a parsed tree, with the comments of the text that it was parsed from.
    pub fn new(root: &tree::Node, file: &SourceFile) -> Document {
        let mut scalars = Vec::new();
        collect_scalars(root, &mut scalars);
        scalars.sort_unstable();
        let mut copy = Copy { file, comments: comments(file.text(), &scalars), next: 0 };
        let root = copy.node(root);
        let last = copy.comments.get(copy.next..).unwrap_or_default().iter().map(|c| c.text.clone()).collect();
        Document { root, last }
    }

    /// The document as YAML.
    pub fn write(&self) -> String {
        let mut out = String::new();
        block(&mut out, &self.root, 0);
        for comment in &self.last {
            out.push_str(comment);
            out.push('\n');
        }
        out
    }
}

struct Comment {
    at: usize,
    /// From the `#` to the end of the line.
    text: String,
    whole_line: bool,
}

fn collect_scalars(node: &tree::Node, into: &mut Vec<(usize, usize)>) {
    let range = |span: Span| (span.start as usize, span.end as usize);
    match &node.kind {
        tree::NodeKind::Null => {}
        tree::NodeKind::Scalar(_) => into.push(range(node.span)),
        tree::NodeKind::List(items) => items.iter().for_each(|item| collect_scalars(item, into)),
        tree::NodeKind::Map(pairs) => {
            for pair in pairs {
                into.push(range(pair.key_span));
                collect_scalars(&pair.value, into);
            }
        }
    }
}

/// Every comment outside of scalars, in order.
fn comments(text: &str, scalars: &[(usize, usize)]) -> Vec<Comment> {
    let mut all = Vec::new();
    let mut line_start = 0;
    for line in text.split_inclusive('\n') {
        let found = line.char_indices().filter(|(_, c)| *c == '#').map(|(at, _)| at).find(|at| {
            let before = line.get(..*at).unwrap_or("");
            let place = line_start + at;
            let inside = scalars.partition_point(|(start, _)| *start <= place);
            let in_scalar = inside > 0 && scalars.get(inside - 1).is_some_and(|(_, end)| place < *end);
            !in_scalar && (before.is_empty() || before.ends_with([' ', '\t']))
        });
        if let Some(at) = found {
            let whole_line = line.get(..at).unwrap_or("").trim().is_empty();
            let text = line.get(at..).unwrap_or("").trim_end().to_owned();
            all.push(Comment { at: line_start + at, text, whole_line });
        }
        line_start += line.len();
    }
    all
}

struct Copy<'f> {
    file: &'f SourceFile,
    comments: Vec<Comment>,
    next: usize,
}

impl Copy<'_> {
    fn node(&mut self, node: &tree::Node) -> Node {
        let written = self.file.slice(node.span);
        let flow = written.starts_with(['{', '[']);
        let body = match &node.kind {
            tree::NodeKind::Null => Body::Null,
            tree::NodeKind::Scalar(scalar) => {
                // A quoted or plain scalar on one line is kept as it is written.
                let one_line = !written.contains('\n') && !written.starts_with(['|', '>', '&', '*', '!']);
                let written = match (scalar.plain, one_line && !written.is_empty()) {
                    (true, _) => scalar.text.clone(),
                    (false, true) => written.to_owned(),
                    (false, false) => quoted(&scalar.text),
                };
                Body::Scalar { text: scalar.text.clone(), written }
            }
            tree::NodeKind::List(items) => Body::List(self.entries(items.iter().map(|item| ("", item.span, item)))),
            tree::NodeKind::Map(pairs) => {
                Body::Map(self.entries(pairs.iter().map(|pair| (pair.key.as_str(), pair.key_span, &pair.value))))
            }
        };
        Node { body, flow }
    }

    fn entries<'n>(&mut self, parts: impl Iterator<Item = (&'n str, Span, &'n tree::Node)>) -> Vec<Entry> {
        let mut all: Vec<Entry> = Vec::new();
        for (key, span, value) in parts {
            let before = self.until(span.start as usize, all.last_mut());
            let mut entry = Entry { key: key.to_owned(), node: Node::empty(), span: Some(span), before, after: None };
            if value.span.start >= span.end {
                self.line_end(span.end as usize, value.span.start as usize, &mut entry);
            }
            entry.node = self.node(value);
            self.line_end(value.span.end as usize, usize::MAX, &mut entry);
            all.push(entry);
        }
        all
    }

    /// The comments before `end`; one at the end of a line belongs to `previous`.
    fn until(&mut self, end: usize, mut previous: Option<&mut Entry>) -> Vec<String> {
        let mut before = Vec::new();
        while let Some(comment) = self.comments.get(self.next).filter(|comment| comment.at < end) {
            match previous.as_deref_mut() {
                Some(entry) if !comment.whole_line && entry.after.is_none() => entry.after = Some(comment.text.clone()),
                _ => before.push(comment.text.clone()),
            }
            self.next += 1;
        }
        before
    }

    /// Takes the comment that follows `end` on its line, if it stands before `limit`.
    fn line_end(&mut self, end: usize, limit: usize, entry: &mut Entry) {
        let follows = |comment: &&Comment| comment.at >= end && comment.at < limit && !comment.whole_line;
        let Some(comment) = self.comments.get(self.next).filter(follows) else { return };
        if entry.after.is_some() {
            return;
        }
        let between = self.file.text().get(end..comment.at).unwrap_or("\n");
        if !between.contains('\n') {
            entry.after = Some(comment.text.clone());
            self.next += 1;
        }
    }
}

fn block(out: &mut String, node: &Node, indent: usize) {
    match &node.body {
        Body::Map(entries) => {
            for entry in entries {
                comment_lines(out, entry, indent);
                push_indent(out, indent);
                map_entry(out, entry, indent);
            }
        }
        Body::List(items) => {
            for item in items {
                comment_lines(out, item, indent);
                push_indent(out, indent);
                list_item(out, item, indent);
            }
        }
        _ => {
            out.push_str(&inline(node));
            out.push('\n');
        }
    }
}

/// One `key: value`, the indent of its first line already written.
fn map_entry(out: &mut String, entry: &Entry, indent: usize) {
    out.push_str(&quoted(&entry.key));
    out.push(':');
    match one_line(&entry.node) {
        Some(text) => {
            if !text.is_empty() {
                out.push(' ');
                out.push_str(&text);
            }
            end_line(out, entry);
        }
        None => {
            end_line(out, entry);
            // The items of a list stand under the key itself.
            let deeper = if entry.node.is_map() { indent + 2 } else { indent };
            block(out, &entry.node, deeper);
        }
    }
}

fn list_item(out: &mut String, item: &Entry, indent: usize) {
    out.push_str("- ");
    if let Some(text) = one_line(&item.node) {
        out.push_str(&text);
        end_line(out, item);
        return;
    }
    if let Some(comment) = &item.after {
        out.push_str(comment);
        out.push('\n');
        push_indent(out, indent + 2);
    }
    for (index, entry) in item.node.entries().iter().enumerate() {
        if index > 0 || !entry.before.is_empty() {
            if index == 0 {
                // A comment between the dash and the first key goes to the end of the dash's line.
                let joined = entry.before.join(" ");
                out.push_str(&joined);
                out.push('\n');
            } else {
                comment_lines(out, entry, indent + 2);
            }
            push_indent(out, indent + 2);
        }
        if item.node.is_map() {
            map_entry(out, entry, indent + 2);
        } else {
            list_item(out, entry, indent + 2);
        }
    }
}

fn comment_lines(out: &mut String, entry: &Entry, indent: usize) {
    for comment in &entry.before {
        push_indent(out, indent);
        out.push_str(comment);
        out.push('\n');
    }
}

fn end_line(out: &mut String, entry: &Entry) {
    if let Some(comment) = &entry.after {
        out.push(' ');
        out.push_str(comment);
    }
    out.push('\n');
}

fn push_indent(out: &mut String, indent: usize) {
    out.extend(std::iter::repeat_n(' ', indent));
}

/// The value on one line, if that is how it was written and it still fits.
fn one_line(node: &Node) -> Option<String> {
    match &node.body {
        Body::Null | Body::Scalar { .. } => Some(inline(node)),
        Body::Map(entries) | Body::List(entries) => {
            if entries.is_empty() {
                return Some(inline(node));
            }
            let text = (node.flow && !node.has_comments()).then(|| inline(node))?;
            (text.len() <= LONGEST_FLOW).then_some(text)
        }
    }
}

fn inline(node: &Node) -> String {
    match &node.body {
        Body::Null => String::new(),
        Body::Scalar { written, .. } => written.clone(),
        Body::List(items) => {
            let parts: Vec<String> = items.iter().map(|item| in_flow(&item.node)).collect();
            format!("[{}]", parts.join(", "))
        }
        Body::Map(entries) if entries.is_empty() => "{}".to_owned(),
        Body::Map(entries) => {
            let parts: Vec<String> =
                entries.iter().map(|entry| format!("{}: {}", quoted(&entry.key), in_flow(&entry.node))).collect();
            format!("{{ {} }}", parts.join(", "))
        }
    }
}

/// Inside brackets more characters are special.
fn in_flow(node: &Node) -> String {
    match &node.body {
        Body::Null => "null".to_owned(),
        Body::Scalar { text, written } if written == text && text.contains([',', '[', ']', '{', '}']) => json(text),
        _ => inline(node),
    }
}

/// `text` in double quotes where plain YAML would read something else.
fn quoted(text: &str) -> String {
    let first_ok = text.starts_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '.' | '('));
    let rest_ok = text.chars().all(|c| c.is_ascii_graphic() || c == ' ')
        && !text.contains([',', '[', ']', '{', '}', '"', '\''])
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.ends_with([' ', ':']);
    let word = text.to_ascii_lowercase();
    let typed = matches!(word.as_str(), "true" | "false" | "null" | "yes" | "no" | "on" | "off" | "y" | "n")
        || text.parse::<f64>().is_ok()
        || word.starts_with("0x");
    if first_ok && rest_ok && !typed { text.to_owned() } else { json(text) }
}

fn json(text: &str) -> String {
    serde_json::Value::String(text.to_owned()).to_string()
}
