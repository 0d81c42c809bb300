//! Finds the rule for a request: an index over the segments of all templates, so that a method costs no request more
//! because there are others.
//!
//! At each level a literal is tried before `*`, and `*` before `**`, as Envoy does; so the most specific template wins
//! wherever it stands in the schema.

use std::collections::{HashMap, HashSet};

use super::template::{Segment, Template};

/// Matches every method.
const ANY_METHOD: &[u8] = b"*";

#[derive(Debug, Default)]
pub(super) struct Matcher {
    nodes: Vec<Node>,
    verbs: HashSet<Box<[u8]>>,
    /// A verb counts as one although no template has it.
    any_verb: bool,
}

#[derive(Debug, Default)]
struct Node {
    literals: HashMap<Box<[u8]>, usize>,
    one: Option<usize>,
    many: Option<Box<Many>>,
    ends: Ends,
}

/// Templates with `**` at this level, by what follows it: whole segments with the slashes between them.
#[derive(Debug, Default)]
struct Many {
    ends: HashMap<Box<[u8]>, Ends>,
    /// How many segments those have, the longest first.
    lengths: Vec<usize>,
}

/// Rules by verb (empty for none), then by method.
type Ends = HashMap<Box<[u8]>, Vec<(Box<[u8]>, usize)>>;

/// A rule that fits, with the segments of the path.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Match<'p> {
    pub(super) rule: usize,
    pub(super) segments: Vec<&'p [u8]>,
}

impl Matcher {
    pub(super) fn new(any_verb: bool) -> Matcher {
        Matcher { nodes: vec![Node::default()], verbs: HashSet::new(), any_verb }
    }

    /// Adds a rule.
    ///
    /// # Errors
    /// The number of the rule that takes the same requests already.
    pub(super) fn insert(&mut self, method: &str, template: &Template, rule: usize) -> Result<(), usize> {
        let mut at = 0;
        let mut segments = template.segments.iter();
        let mut suffix: Option<Vec<&str>> = None;
        for segment in segments.by_ref() {
            at = match segment {
                Segment::Literal(text) => self.literal(at, text.as_bytes()),
                Segment::One => self.one(at),
                Segment::Many => {
                    suffix = Some(Vec::new());
                    break;
                }
            };
        }
        if let Some(suffix) = &mut suffix {
            suffix.extend(segments.filter_map(|segment| match segment {
                Segment::Literal(text) => Some(text.as_str()),
                Segment::One | Segment::Many => None,
            }));
        }
        let verb = template.verb.as_deref().unwrap_or_default().as_bytes();
        if !verb.is_empty() {
            self.verbs.insert(verb.into());
        }
        let Some(node) = self.nodes.get_mut(at) else { return Ok(()) };
        let ends = match suffix {
            None => &mut node.ends,
            Some(suffix) => {
                let many = node.many.get_or_insert_default();
                if !many.lengths.contains(&suffix.len()) {
                    many.lengths.push(suffix.len());
                    many.lengths.sort_unstable_by(|a, b| b.cmp(a));
                }
                many.ends.entry(suffix.join("/").into_bytes().into()).or_default()
            }
        };
        let rules = ends.entry(verb.into()).or_default();
        if let Some((_, other)) = rules.iter().find(|(known, _)| **known == *method.as_bytes()) {
            return Err(*other);
        }
        rules.push((method.as_bytes().into(), rule));
        Ok(())
    }

    fn literal(&mut self, at: usize, text: &[u8]) -> usize {
        let next = self.nodes.len();
        let Some(node) = self.nodes.get_mut(at) else { return at };
        let child = *node.literals.entry(text.into()).or_insert(next);
        self.grow(child)
    }

    fn one(&mut self, at: usize) -> usize {
        let next = self.nodes.len();
        let Some(node) = self.nodes.get_mut(at) else { return at };
        let child = *node.one.get_or_insert(next);
        self.grow(child)
    }

    fn grow(&mut self, child: usize) -> usize {
        if child == self.nodes.len() {
            self.nodes.push(Node::default());
        }
        child
    }

    /// The rule for a method and a path without its query.
    pub(super) fn find<'p>(&self, method: &[u8], path: &'p [u8]) -> Option<Match<'p>> {
        let (path, verb) = self.split_verb(path.strip_prefix(b"/")?);
        let mut end = path.len();
        while end > 0 && path.get(end - 1) == Some(&b'/') {
            end -= 1;
        }
        let path = path.get(..end)?;
        let segments: Vec<&[u8]> = if path.is_empty() { Vec::new() } else { path.split(|b| *b == b'/').collect() };
        let rule = self.descend(0, &segments, path, Wanted { method, verb })?;
        Some(Match { rule, segments })
    }

    fn split_verb<'p>(&self, path: &'p [u8]) -> (&'p [u8], &'p [u8]) {
        let tail = path.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
        let colon = path.get(tail..).and_then(|rest| rest.iter().rposition(|b| *b == b':'));
        let split = colon.and_then(|at| path.split_at_checked(tail + at));
        match split.map(|(path, verb)| (path, verb.get(1..).unwrap_or_default())) {
            Some((path, verb)) if self.any_verb || self.verbs.contains(verb) => (path, verb),
            _ => (path, b""),
        }
    }

    /// `rest` are the segments that are left, and `tail` is their text. As deep as the longest template at most.
    fn descend(&self, at: usize, rest: &[&[u8]], tail: &[u8], wanted: Wanted<'_>) -> Option<usize> {
        let node = self.nodes.get(at)?;
        let found = match rest.split_first() {
            None => rule_of(&node.ends, wanted),
            Some((first, behind)) => {
                let after = tail.get(first.len() + 1..).unwrap_or_default();
                let literal = node.literals.get(*first).and_then(|next| self.descend(*next, behind, after, wanted));
                literal.or_else(|| self.descend(node.one?, behind, after, wanted))
            }
        };
        found.or_else(|| {
            let many = node.many.as_deref()?;
            many.lengths.iter().find_map(|&length| {
                let from = rest.len().checked_sub(length)?;
                let before: usize = rest.get(..from)?.iter().map(|segment| segment.len() + 1).sum();
                // A suffix of no segments is empty, also where no slash stands in front of it.
                let suffix = if length == 0 { b"" } else { tail.get(before..)? };
                rule_of(many.ends.get(suffix)?, wanted)
            })
        })
    }
}

#[derive(Clone, Copy)]
struct Wanted<'a> {
    method: &'a [u8],
    verb: &'a [u8],
}

fn rule_of(ends: &Ends, wanted: Wanted<'_>) -> Option<usize> {
    let rules = ends.get(wanted.verb)?;
    let find = |method: &[u8]| rules.iter().find(|(known, _)| **known == *method).map(|(_, rule)| *rule);
    find(wanted.method).or_else(|| find(ANY_METHOD))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matcher(any_verb: bool, rules: &[(&str, &str)]) -> Matcher {
        let mut matcher = Matcher::new(any_verb);
        for (number, (method, template)) in rules.iter().enumerate() {
            matcher.insert(method, &Template::parse(template).unwrap(), number).unwrap();
        }
        matcher
    }

    #[test]
    fn the_most_specific_template_wins() {
        let matcher = matcher(
            false,
            &[
                ("GET", "/v1/**"),
                ("GET", "/v1/{a}/b"),
                ("GET", "/v1/x/{b}"),
                ("GET", "/v1/x/b"),
                ("POST", "/v1/x"),
                ("GET", "/v1/x/{c=**}/end"),
                ("GET", "/v1/{a}:archive"),
                ("*", "/any"),
                ("GET", "/any"),
                ("GET", "/v1/{d=deep/**}:look"),
                ("GET", "/"),
            ],
        );
        for (method, path, want) in [
            ("GET", "/v1/x/b", Some(3)),
            ("GET", "/v1/x/c", Some(2)),
            ("GET", "/v1/y/b", Some(1)),
            ("GET", "/v1/y/c", Some(0)),
            ("GET", "/v1", Some(0)),
            ("GET", "/v1///", Some(0)),
            ("GET", "/v1/x/b/", Some(3)),
            ("POST", "/v1/x", Some(4)),
            ("POST", "/v1/y", None),
            ("GET", "/v1/x/p/q/end", Some(5)),
            ("GET", "/v1/x/end", Some(2)),
            ("GET", "/v1/x/end/end/end", Some(5)),
            ("GET", "/v1/y:archive", Some(6)),
            ("GET", "/v1/y:other", Some(0)),
            ("GET", "/v1/y:z/b", Some(1)),
            ("PUT", "/any", Some(7)),
            ("GET", "/any", Some(8)),
            ("GET", "/v1/deep/a/b:look", Some(9)),
            ("GET", "/v1/deep:look", Some(9)),
            ("GET", "/v2", None),
            ("GET", "/", Some(10)),
            ("GET", "*", None),
            ("GET", "", None),
        ] {
            assert_eq!(
                matcher.find(method.as_bytes(), path.as_bytes()).map(|found| found.rule),
                want,
                "{method} {path}"
            );
        }
    }

    #[test]
    fn an_unknown_verb_is_one_when_the_setting_says_so() {
        let rules = [("GET", "/v1/{a}")];
        assert_eq!(matcher(false, &rules).find(b"GET", b"/v1/a:b").unwrap().segments, [b"v1".as_slice(), b"a:b"]);
        assert_eq!(matcher(true, &rules).find(b"GET", b"/v1/a:b"), None);
    }

    #[test]
    fn two_rules_for_the_same_requests_are_an_error() {
        let mut matcher = matcher(false, &[("GET", "/a/{b}"), ("GET", "/c/**/d")]);
        let mut insert = |method, text| matcher.insert(method, &Template::parse(text).unwrap(), 9);
        assert_eq!(insert("GET", "/a/{c}"), Err(0));
        assert_eq!(insert("GET", "/c/{x=**}/d"), Err(1));
        assert_eq!(insert("POST", "/a/{c}"), Ok(()));
        assert_eq!(insert("GET", "/a/{c}:v"), Ok(()));
    }

    #[test]
    fn a_path_of_very_many_segments_is_no_deep_recursion() {
        let matcher = matcher(false, &[("GET", "/**/end"), ("GET", "/{a}/{b}/{c=**}")]);
        let path = "/x".repeat(30_000) + "/end";
        assert_eq!(matcher.find(b"GET", path.as_bytes()).map(|found| found.rule), Some(1));
    }
}
