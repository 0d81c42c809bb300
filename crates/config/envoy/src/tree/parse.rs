//! YAML events to a tree: anchors, aliases, merge keys, repeated keys, limits.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span as YamlSpan, StructureStyle, Tag, options};
use postrider_config_core::{Diagnostic, Diagnostics, Span};

use super::{MAX_DEPTH, MAX_NODES, MAX_REPEATED_NODES, Node, NodeKind, Pair, Scalar};

/// Nesting that the YAML parser itself allows; above [`MAX_DEPTH`], so that our own message comes first.
const PARSER_NESTING: usize = 1000;

/// A tree, or where and why the text is no YAML.
pub enum Outcome {
    Tree(Option<Node>),
    Broken(Broken),
}

/// A syntax error with what the repairs want to know about its surroundings. Offsets are bytes of the parsed text.
#[derive(Clone, Debug)]
pub struct Broken {
    pub error: ScanError,
    pub at: usize,
    /// The last complete scalar before the error.
    pub last_scalar: Option<Range<usize>>,
    /// End of the last event.
    pub last_end: usize,
    /// `[` and `{` that were open, outermost first.
    pub open_brackets: Vec<(char, usize)>,
}

/// Parses `text`; `place` turns a byte range of it into a span of the source file.
pub fn parse(text: &str, place: &dyn Fn(Range<usize>) -> Span, diagnostics: &mut Diagnostics) -> Outcome {
    let options = options! {
        emit_comments: false,
        emit_unresolved_aliases: true,
        flow_nesting_limit: PARSER_NESTING,
        block_nesting_limit: PARSER_NESTING,
    };
    let mut builder = Builder::new(place, diagnostics);
    let mut around = Around::default();
    for next in Parser::new_from_str_with_options(text, options) {
        match next {
            Ok((event, span)) => {
                let range = span.byte_range().unwrap_or(0..0);
                around.see(&event, &range);
                builder.take(event, &span, range);
            }
            Err(error) => {
                let at = error.marker().byte_offset().unwrap_or(text.len()).min(text.len());
                return Outcome::Broken(Broken {
                    error,
                    at,
                    last_scalar: around.last_scalar,
                    last_end: around.last_end,
                    open_brackets: around.open_brackets,
                });
            }
        }
        if builder.stopped {
            break;
        }
    }
    Outcome::Tree(builder.finish())
}

#[derive(Default)]
struct Around {
    last_scalar: Option<Range<usize>>,
    last_end: usize,
    open_brackets: Vec<(char, usize)>,
    /// Whether each open collection is a flow collection.
    flow: Vec<bool>,
}

impl Around {
    fn see(&mut self, event: &Event<'_>, range: &Range<usize>) {
        match event {
            Event::Scalar(..) => self.last_scalar = Some(range.clone()),
            Event::SequenceStart(style, ..) => self.open('[', *style, range.start),
            Event::MappingStart(style, ..) => self.open('{', *style, range.start),
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            _ => {}
        }
        if !range.is_empty() {
            self.last_end = range.end;
        }
    }

    fn close(&mut self) {
        if self.flow.pop() == Some(true) {
            self.open_brackets.pop();
        }
    }

    fn open(&mut self, bracket: char, style: StructureStyle, at: usize) {
        let flow = style == StructureStyle::Flow;
        self.flow.push(flow);
        if flow {
            self.open_brackets.push((bracket, at));
        }
    }
}

/// Mappings up to this size are searched for a repeated key; larger ones get an index.
const SEARCHED_KEYS: usize = 16;

/// An open collection. `end` is where its last element ends.
struct Frame {
    start: usize,
    end: usize,
    anchor: usize,
    kind: FrameKind,
}

enum FrameKind {
    List(Vec<Node>),
    Map { pairs: Vec<Pair>, index: HashMap<String, usize>, key: Option<(Option<String>, Span)>, merges: Vec<Node> },
}

struct Builder<'b> {
    place: &'b dyn Fn(Range<usize>) -> Span,
    diagnostics: &'b mut Diagnostics,
    frames: Vec<Frame>,
    anchors: HashMap<usize, Node>,
    root: Option<Node>,
    documents: usize,
    nodes: usize,
    /// Values that aliases repeated.
    repeated: usize,
    /// Nested deeper than the limit: the events are skipped, the surroundings are kept.
    skipping: usize,
    stopped: bool,
}

impl<'b> Builder<'b> {
    fn new(place: &'b dyn Fn(Range<usize>) -> Span, diagnostics: &'b mut Diagnostics) -> Builder<'b> {
        Builder {
            place,
            diagnostics,
            frames: Vec::new(),
            anchors: HashMap::new(),
            root: None,
            documents: 0,
            nodes: 0,
            repeated: 0,
            skipping: 0,
            stopped: false,
        }
    }

    fn take(&mut self, event: Event<'_>, span: &YamlSpan, range: Range<usize>) {
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    let message = "a configuration is one document: the documents after `---` are not read";
                    self.diagnostics.push(
                        Diagnostic::error("several-documents", message)
                            .at((self.place)(range))
                            .help("put them into one document, or into files of their own"),
                    );
                    self.stopped = true;
                }
            }
            Event::SequenceStart(_, anchor, _) => self.open(FrameKind::List(Vec::new()), anchor, range),
            Event::MappingStart(_, anchor, _) => {
                let (pairs, index, merges) = (Vec::new(), HashMap::new(), Vec::new());
                self.open(FrameKind::Map { pairs, index, key: None, merges }, anchor, range);
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(range),
            Event::Scalar(text, style, anchor, tag) => {
                let range = scalar_range(range, span);
                if tag.as_deref().is_some_and(is_ignore) && self.leave_out(&range) {
                    return;
                }
                let kind = scalar(text.into_owned(), style, tag.as_deref());
                let node = Node { span: (self.place)(range.clone()), kind };
                self.remember(anchor, &node);
                self.add(node, range.end);
            }
            Event::Alias(id) => self.alias(id, range),
            Event::UnresolvedAlias(name) => {
                self.unknown_alias(&format!("no anchor `&{name}` stands before this alias"), range);
            }
            _ => {}
        }
    }

    fn finish(self) -> Option<Node> {
        self.root
    }

    fn open(&mut self, kind: FrameKind, anchor: usize, range: Range<usize>) {
        if self.skipping > 0 || self.frames.len() >= MAX_DEPTH {
            if self.skipping == 0 {
                self.limit(format!("nested deeper than {MAX_DEPTH} levels"), (self.place)(range));
            }
            self.skipping += 1;
            return;
        }
        self.frames.push(Frame { start: range.start, end: range.end, anchor, kind });
    }

    fn close(&mut self, range: Range<usize>) {
        if self.skipping > 0 {
            self.skipping -= 1;
            if self.skipping == 0 {
                let span = (self.place)(range.clone());
                self.add(Node { span, kind: NodeKind::Null }, range.end);
            }
            return;
        }
        let Some(Frame { start, end, anchor, kind }) = self.frames.pop() else { return };
        let kind = match kind {
            FrameKind::List(items) => NodeKind::List(items),
            FrameKind::Map { mut pairs, merges, .. } => {
                self.merge_all(&mut pairs, merges);
                NodeKind::Map(pairs)
            }
        };
        // A flow collection ends with its bracket; a block collection has no end of its own but its last element's.
        let end = if range.is_empty() { end } else { range.end };
        let node = Node { span: (self.place)(start..end), kind };
        self.remember(anchor, &node);
        self.add(node, end);
    }

    /// Adds a value to the innermost open collection. `end` is where it ends in the parsed text.
    fn add(&mut self, node: Node, end: usize) {
        if self.skipping > 0 || self.stopped {
            return;
        }
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            self.limit(format!("more than {MAX_NODES} values"), node.span);
            self.stopped = true;
            return;
        }
        let Some(frame) = self.frames.last_mut() else {
            self.root = Some(node);
            return;
        };
        frame.end = frame.end.max(end);
        match &mut frame.kind {
            FrameKind::List(items) => items.push(node),
            FrameKind::Map { pairs, index, key, merges } => match key.take() {
                // Its key is no name, which has been reported, or says that it is left out.
                Some((None, _)) => {}
                Some((Some(key), _)) if key == "<<" => merges.push(node),
                Some((Some(key), key_span)) => {
                    insert(pairs, index, Pair { key, key_span, value: node }, self.diagnostics)
                }
                None => *key = Some((key_text(&node, self.diagnostics), node.span)),
            },
        }
    }

    /// Where a key is expected, takes one whose value is read for its anchors alone. Whether one is expected here.
    fn leave_out(&mut self, range: &Range<usize>) -> bool {
        let span = (self.place)(range.clone());
        match self.frames.last_mut() {
            Some(Frame { kind: FrameKind::Map { key: key @ None, .. }, .. }) if self.skipping == 0 => {
                *key = Some((None, span));
                true
            }
            _ => false,
        }
    }

    /// Puts a copy of the anchored value in place of an alias; counted before it is made.
    fn alias(&mut self, id: usize, range: Range<usize>) {
        let Some(node) = self.anchors.get(&id) else {
            return self.unknown_alias("an alias inside the value that it stands for", range);
        };
        self.repeated += count(node);
        if self.repeated > MAX_REPEATED_NODES {
            if !self.stopped {
                let span = (self.place)(range);
                self.limit(format!("aliases repeat more than {MAX_REPEATED_NODES} values"), span);
            }
            self.stopped = true;
            return;
        }
        let mut node = node.clone();
        node.span = (self.place)(range.clone());
        self.add(node, range.end);
    }

    fn unknown_alias(&mut self, message: &str, range: Range<usize>) {
        let span = (self.place)(range.clone());
        self.diagnostics.push(
            Diagnostic::error("unknown-alias", message)
                .at(span)
                .help("if text is meant, quote it: a plain value cannot start with `*`"),
        );
        self.add(Node { span, kind: NodeKind::Null }, range.end);
    }

    fn remember(&mut self, anchor: usize, node: &Node) {
        if anchor != 0 && self.skipping == 0 {
            self.anchors.insert(anchor, node.clone());
        }
    }

    /// `<<: *a` or `<<: [*a, *b]`: adds the keys that the mapping itself does not set; earlier sources win.
    fn merge_all(&mut self, pairs: &mut Vec<Pair>, merges: Vec<Node>) {
        if merges.is_empty() {
            return;
        }
        let mut own: HashSet<String> = pairs.iter().map(|pair| pair.key.clone()).collect();
        let mut pending: Vec<Node> = merges.into_iter().rev().collect();
        while let Some(source) = pending.pop() {
            match source.kind {
                NodeKind::Map(merged) => pairs.extend(merged.into_iter().filter(|pair| own.insert(pair.key.clone()))),
                NodeKind::List(sources) => pending.extend(sources.into_iter().rev()),
                _ => self.diagnostics.push(
                    Diagnostic::error("wrong-type", "a merge key takes a mapping or a list of mappings")
                        .at(source.span)
                        .expected("an alias of a mapping: `<<: *defaults`"),
                ),
            }
        }
    }

    fn limit(&mut self, what: String, span: Span) {
        self.diagnostics.push(Diagnostic::error("limit-exceeded", what).at(span));
    }
}

/// The YAML parser puts an empty value where the next token starts, maybe lines below; it belongs behind its key.
fn scalar_range(range: Range<usize>, span: &YamlSpan) -> Range<usize> {
    if span.start.line() != span.end.line() && range.is_empty() { range.start..range.start } else { range }
}

/// Envoy's tag for keys that only hold what others refer to.
fn is_ignore(tag: &Tag) -> bool {
    tag.to_string() == "!ignore"
}

fn scalar(text: String, style: ScalarStyle, tag: Option<&Tag>) -> NodeKind {
    let tagged_text = tag.is_some_and(|tag| tag.to_string().ends_with(":str"));
    let plain = style == ScalarStyle::Plain && !tagged_text;
    if plain && matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL") {
        return NodeKind::Null;
    }
    NodeKind::Scalar(Scalar { text, plain })
}

fn key_text(node: &Node, diagnostics: &mut Diagnostics) -> Option<String> {
    match &node.kind {
        NodeKind::Scalar(scalar) => Some(scalar.text.clone()),
        NodeKind::Null => Some(String::new()),
        NodeKind::List(_) | NodeKind::Map(_) => {
            diagnostics
                .push(Diagnostic::error("yaml-syntax", "a key is a name, not a list or a mapping").at(node.span));
            None
        }
    }
}

/// A repeated key keeps its first place and takes the last value, as in Envoy.
fn insert(pairs: &mut Vec<Pair>, index: &mut HashMap<String, usize>, pair: Pair, diagnostics: &mut Diagnostics) {
    if pairs.len() == SEARCHED_KEYS {
        index.extend(pairs.iter().enumerate().map(|(at, pair)| (pair.key.clone(), at)));
    }
    let before = match pairs.len() {
        0..SEARCHED_KEYS => pairs.iter().position(|own| own.key == pair.key),
        _ => index.get(&pair.key).copied(),
    };
    let Some(slot) = before.and_then(|at| pairs.get_mut(at)) else {
        if pairs.len() >= SEARCHED_KEYS {
            index.insert(pair.key.clone(), pairs.len());
        }
        pairs.push(pair);
        return;
    };
    diagnostics.push(
        Diagnostic::warning("duplicate-key", format!("the key `{}` is set twice; this one wins", pair.key))
            .at(pair.key_span)
            .help("remove one of the two"),
    );
    *slot = pair;
}

fn count(node: &Node) -> usize {
    match &node.kind {
        NodeKind::List(items) => 1 + items.iter().map(count).sum::<usize>(),
        NodeKind::Map(pairs) => 1 + pairs.iter().map(|pair| count(&pair.value)).sum::<usize>(),
        _ => 1,
    }
}
