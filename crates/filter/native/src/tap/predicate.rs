//! Which requests are tapped: a tree of conditions on both messages, decided piece by piece as they come.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_model::{HeaderMatch, Reading, header_match};

/// Which message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Request,
    Response,
}

/// What of a message has fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Headers,
    Trailers,
}

/// The tree, its conditions in a list of their own.
#[derive(Debug)]
pub(super) struct Predicate {
    root: Node,
    conditions: Vec<Condition>,
}

#[derive(Debug)]
enum Node {
    All(Vec<Node>),
    Any(Vec<Node>),
    Not(Box<Node>),
    Always,
    /// The condition with this number.
    Leaf(usize),
}

#[derive(Debug)]
enum Condition {
    Fields(Side, Part, Vec<HeaderMatch>),
    Body(Side, Patterns),
}

/// What all must be found in a body.
#[derive(Debug)]
struct Patterns {
    all: Vec<Vec<u8>>,
    /// Only so many bytes are looked at; 0 is all of them.
    limit: usize,
}

/// What is known about one stream's conditions.
#[derive(Debug)]
pub(super) struct Progress(Vec<Leaf>);

#[derive(Debug)]
enum Leaf {
    /// What it is about has not come.
    Open,
    Searching(Search),
    Decided(bool),
}

#[derive(Debug, Default)]
struct Search {
    found: Vec<bool>,
    /// The end of what was seen, where a pattern may have begun.
    tail: Vec<u8>,
    seen: usize,
}

/// Where the decision stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verdict {
    /// With everything undecided taken for no match.
    pub(super) matches: bool,
    /// Nothing that comes changes it.
    pub(super) is_settled: bool,
}

impl Predicate {
    /// `MatchPredicate`.
    pub(super) fn read(at: &mut Reading<'_>) -> Option<Predicate> {
        let mut conditions = Vec::new();
        let root = node(at, &mut conditions)?;
        Some(Predicate { root, conditions })
    }

    pub(super) fn begin(&self) -> Progress {
        Progress(self.conditions.iter().map(|_| Leaf::Open).collect())
    }

    /// Headers or trailers came; `lines` tells a field's values.
    pub(super) fn see_fields<'f>(
        &self,
        progress: &mut Progress,
        (side, part): (Side, Part),
        lines: impl Fn(&str) -> Vec<&'f [u8]>,
    ) {
        for (condition, leaf) in self.conditions.iter().zip(&mut progress.0) {
            if let Condition::Fields(its_side, its_part, rules) = condition
                && (*its_side, *its_part) == (side, part)
            {
                let met = |rule: &HeaderMatch| {
                    let lines: Vec<_> = lines(&rule.name).into_iter().map(String::from_utf8_lossy).collect();
                    rule.matches(&lines.iter().map(|line| &**line).collect::<Vec<_>>())
                };
                *leaf = Leaf::Decided(rules.iter().all(met));
            }
        }
    }

    /// A piece of a body came.
    pub(super) fn see_body(&self, progress: &mut Progress, side: Side, piece: &[u8]) {
        for (condition, leaf) in self.conditions.iter().zip(&mut progress.0) {
            let Condition::Body(its_side, patterns) = condition else { continue };
            if *its_side != side {
                continue;
            }
            if matches!(leaf, Leaf::Open) {
                *leaf = Leaf::Searching(Search { found: vec![false; patterns.all.len()], ..Search::default() });
            }
            if let Leaf::Searching(search) = leaf
                && let Some(decided) = search.go_on(patterns, piece)
            {
                *leaf = Leaf::Decided(decided);
            }
        }
    }

    pub(super) fn verdict(&self, progress: &Progress) -> Verdict {
        self.root.verdict(progress)
    }
}

impl Node {
    fn verdict(&self, progress: &Progress) -> Verdict {
        let settled = |matches| Verdict { matches, is_settled: true };
        match self {
            Node::Always => settled(true),
            Node::Not(inner) => {
                let inner = inner.verdict(progress);
                Verdict { matches: !inner.matches, ..inner }
            }
            Node::Leaf(number) => match progress.0.get(*number) {
                Some(Leaf::Decided(matches)) => settled(*matches),
                _ => Verdict { matches: false, is_settled: false },
            },
            Node::All(nodes) => among(nodes, progress, false),
            Node::Any(nodes) => among(nodes, progress, true),
        }
    }
}

/// `decisive`: the outcome of one node that settles the outcome of all.
fn among(nodes: &[Node], progress: &Progress, decisive: bool) -> Verdict {
    let mut all = Verdict { matches: !decisive, is_settled: true };
    for verdict in nodes.iter().map(|node| node.verdict(progress)) {
        if verdict == (Verdict { matches: decisive, is_settled: true }) {
            return verdict;
        }
        if verdict.matches == decisive {
            all.matches = decisive;
        }
        all.is_settled &= verdict.is_settled;
    }
    all
}

impl Search {
    /// The outcome, when this piece decides it.
    fn go_on(&mut self, patterns: &Patterns, piece: &[u8]) -> Option<bool> {
        let room = if patterns.limit == 0 { usize::MAX } else { patterns.limit.saturating_sub(self.seen) };
        let piece = piece.get(..room).unwrap_or(piece);
        self.seen = self.seen.saturating_add(piece.len());
        self.tail.extend_from_slice(piece);
        for (found, pattern) in self.found.iter_mut().zip(&patterns.all) {
            *found = *found || self.tail.windows(pattern.len()).any(|window| window == pattern);
        }
        if self.found.iter().all(|found| *found) {
            return Some(true);
        }
        if patterns.limit != 0 && self.seen >= patterns.limit {
            return Some(false);
        }
        let kept = patterns.all.iter().map(Vec::len).max().unwrap_or(0).saturating_sub(1);
        self.tail.drain(..self.tail.len().saturating_sub(kept));
        None
    }
}

const FIELDS: [(&str, Side, Part); 4] = [
    ("http_request_headers_match", Side::Request, Part::Headers),
    ("http_request_trailers_match", Side::Request, Part::Trailers),
    ("http_response_headers_match", Side::Response, Part::Headers),
    ("http_response_trailers_match", Side::Response, Part::Trailers),
];

const BODIES: [(&str, Side); 2] =
    [("http_request_generic_body_match", Side::Request), ("http_response_generic_body_match", Side::Response)];

fn node(at: &mut Reading<'_>, conditions: &mut Vec<Condition>) -> Option<Node> {
    let mut found: Vec<Option<Node>> = Vec::new();
    let leaf = |condition: Condition, conditions: &mut Vec<Condition>| {
        conditions.push(condition);
        Some(Node::Leaf(conditions.len() - 1))
    };
    for (key, side, part) in FIELDS {
        found.extend(at.map(key, |at| {
            let rules = at.each("headers", header_match).into_iter().collect::<Option<_>>()?;
            leaf(Condition::Fields(side, part, rules), conditions)
        }));
    }
    for (key, side) in BODIES {
        found.extend(at.map(key, |at| leaf(Condition::Body(side, patterns(at)), conditions)));
    }
    for (key, make) in [("or_match", Node::Any as fn(Vec<Node>) -> Node), ("and_match", Node::All)] {
        found.extend(at.map(key, |at| {
            let nodes = at.each("rules", |at| node(at, conditions));
            if nodes.len() < 2 {
                at.error("rules", "at least two are required");
            }
            nodes.into_iter().collect::<Option<_>>().map(make)
        }));
    }
    found.extend(at.map("not_match", |at| node(at, conditions).map(|inner| Node::Not(Box::new(inner)))));
    if at.flag("any_match") {
        found.push(Some(Node::Always));
    }
    match (found.pop(), found.is_empty()) {
        (Some(node), true) => node,
        _ => {
            at.wrong("exactly one condition is wanted: any_match, http_response_headers_match, or_match, …");
            None
        }
    }
}

/// `HttpGenericBodyMatch`.
fn patterns(at: &mut Reading<'_>) -> Patterns {
    let limit = at.number("bytes_limit").and_then(|limit| usize::try_from(limit).ok()).unwrap_or(0);
    let all = at.each("patterns", |at| {
        let text = at.text("string_match").map(|text| text.as_bytes().to_vec());
        let bytes = at.text("binary_match").map(|text| STANDARD.decode(text).unwrap_or_default());
        let pattern = text.or(bytes).filter(|pattern| !pattern.is_empty());
        if pattern.is_none() {
            at.wrong("a string_match or binary_match is required");
        }
        pattern
    });
    if all.is_empty() {
        at.error("patterns", "at least one is required");
    }
    Patterns { all: all.into_iter().flatten().collect(), limit }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{list, object, text};
    use postrider_model::Value;

    fn read(value: Value) -> Predicate {
        Reading::all(&value, Predicate::read).unwrap().unwrap()
    }

    fn fields(key: &str, name: &str, value: &str) -> Value {
        let rule = object([("name", text(name)), ("string_match", object([("exact", text(value))]))]);
        object([(key, object([("headers", list([rule]))]))])
    }

    fn rules(key: &str, first: Value, second: Value) -> Value {
        object([(key, object([("rules", list([first, second]))]))])
    }

    fn verdict(matches: bool, is_settled: bool) -> Verdict {
        Verdict { matches, is_settled }
    }

    #[test]
    fn a_tree_is_settled_as_soon_as_nothing_can_change_it() {
        let request = || fields("http_request_headers_match", "x", "1");
        let failed = || {
            let range = object([("start", Value::Integer(500)), ("end", Value::Integer(600))]);
            let rule = object([("name", text(":status")), ("range_match", range)]);
            object([("http_response_headers_match", object([("headers", list([rule]))]))])
        };
        let go = |tree: Value, x: &str, status: &str| {
            let tree = read(tree);
            let mut progress = tree.begin();
            let mut verdicts = vec![tree.verdict(&progress)];
            let (x, status) = (x.as_bytes().to_vec(), status.as_bytes().to_vec());
            tree.see_fields(&mut progress, (Side::Request, Part::Headers), |_| vec![&x]);
            verdicts.push(tree.verdict(&progress));
            tree.see_fields(&mut progress, (Side::Response, Part::Headers), |_| vec![&status]);
            verdicts.push(tree.verdict(&progress));
            verdicts
        };
        let open = verdict(false, false);
        let no = verdict(false, true);
        let yes = verdict(true, true);
        assert_eq!(go(rules("and_match", request(), failed()), "1", "503"), [open, open, yes]);
        assert_eq!(go(rules("and_match", request(), failed()), "2", "503"), [open, no, no]);
        assert_eq!(go(rules("or_match", request(), failed()), "1", "200"), [open, yes, yes]);
        assert_eq!(go(rules("or_match", request(), failed()), "2", "200"), [open, open, no]);
        let not = object([("not_match", failed())]);
        assert_eq!(go(not, "1", "503"), [verdict(true, false), verdict(true, false), no]);
        assert_eq!(go(object([("any_match", Value::Bool(true))]), "", ""), [yes, yes, yes]);
    }

    #[test]
    fn patterns_are_found_across_pieces_and_up_to_the_limit() {
        let wanted = |limit: i64| {
            let patterns = list([
                object([("string_match", text("needle"))]),
                object([("binary_match", text(&STANDARD.encode([0, 255])))]),
            ]);
            let body = object([("bytes_limit", Value::Integer(limit)), ("patterns", patterns)]);
            read(object([("http_request_generic_body_match", body)]))
        };
        let go = |limit: i64, pieces: &[&[u8]]| {
            let tree = wanted(limit);
            let mut progress = tree.begin();
            pieces.iter().for_each(|piece| tree.see_body(&mut progress, Side::Request, piece));
            tree.see_body(&mut progress, Side::Response, b"needle\x00\xff");
            tree.verdict(&progress)
        };
        assert_eq!(go(0, &[b"a nee", b"d", b"le\x00", b"\xff b"]), verdict(true, true));
        assert_eq!(go(0, &[b"needl", b"x", b"e\x00\xff"]), verdict(false, false));
        assert_eq!(go(9, &[b"needle", b"..\x00", b"\xff"]), verdict(false, true));
        assert_eq!(go(10, &[b"needle", b"..\x00", b"\xff"]), verdict(true, true));
    }

    #[test]
    fn a_tree_that_says_nothing_or_two_things_is_refused() {
        let errors = |value: Value| Reading::all(&value, Predicate::read).unwrap_err()[0].message.clone();
        let one = "exactly one condition";
        assert!(errors(object([])).starts_with(one));
        let two = object([("any_match", Value::Bool(true)), ("http_request_trailers_match", object([]))]);
        assert!(errors(two).starts_with(one));
        assert_eq!(errors(object([("or_match", object([]))])), "at least two are required");
        let empty = object([("http_response_generic_body_match", object([]))]);
        assert_eq!(errors(empty), "at least one is required");
    }
}
