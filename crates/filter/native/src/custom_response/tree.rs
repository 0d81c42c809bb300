//! The tree that chooses (`xds.type.matcher.v3.Matcher`), as far as answers need one.

use std::borrow::Cow;

use postrider_filter_api::Stream;
use postrider_model::{Reading, StringMatch, string_match};

use super::config::Policy;
use crate::request_parts;

#[derive(Debug)]
pub(super) struct Tree {
    branch: Branch,
    /// Where nothing of the branch leads anywhere.
    otherwise: Option<Box<Leaf>>,
}

#[derive(Debug)]
enum Branch {
    /// The first that holds and leads somewhere.
    List(Vec<(Predicate, Leaf)>),
    Exact(Input, Vec<(String, Leaf)>),
    /// The longest prefix first.
    Prefix(Input, Vec<(String, Leaf)>),
    Nothing,
}

#[derive(Debug)]
enum Leaf {
    Policy(Box<Policy>),
    Tree(Tree),
}

#[derive(Debug)]
enum Predicate {
    Single(Input, StringMatch),
    All(Vec<Predicate>),
    Any(Vec<Predicate>),
    Not(Box<Predicate>),
}

/// What is looked at.
#[derive(Debug)]
enum Input {
    Status,
    /// `2xx` and the like.
    StatusClass,
    /// In lower case.
    RequestHeader(String),
    ResponseHeader(String),
    /// `true` for an answer of the proxy's own, `false` for one of an upstream.
    IsLocal,
}

type ReadPolicy<'r> = &'r mut dyn FnMut(&mut Reading<'_>) -> Option<Policy>;

impl Tree {
    pub(super) fn read(at: &mut Reading<'_>, policy: ReadPolicy<'_>) -> Tree {
        let list = at.map("matcher_list", |at| {
            let matchers = at.each("matchers", |at| {
                let predicate = at.map("predicate", predicate);
                if predicate.is_none() {
                    at.error("predicate", "a condition is required");
                }
                let leaf = leaf(at, "on_match", policy);
                Some((predicate.flatten()?, leaf?))
            });
            if matchers.is_empty() {
                at.error("matchers", "at least one is required");
            }
            Branch::List(matchers.into_iter().flatten().collect())
        });
        let map = at.map("matcher_tree", |at| by_map(at, policy));
        if list.is_some() && map.is_some() {
            at.wrong("matcher_list and matcher_tree exclude each other");
        }
        let otherwise = if at.has("on_no_match") { leaf(at, "on_no_match", policy).map(Box::new) } else { None };
        Tree { branch: list.or(map.flatten()).unwrap_or(Branch::Nothing), otherwise }
    }

    pub(super) fn find(&self, stream: &Stream<'_>) -> Option<&Policy> {
        let found = match &self.branch {
            Branch::List(all) => {
                all.iter().filter(|(predicate, _)| predicate.holds(stream)).find_map(|(_, leaf)| leaf.find(stream))
            }
            Branch::Exact(input, all) => input.value(stream).and_then(|value| {
                all.iter().find(|(key, _)| key.as_bytes() == &*value).and_then(|(_, leaf)| leaf.find(stream))
            }),
            Branch::Prefix(input, all) => input.value(stream).and_then(|value| {
                let fits = |key: &str| value.starts_with(key.as_bytes());
                all.iter().filter(|(key, _)| fits(key)).find_map(|(_, leaf)| leaf.find(stream))
            }),
            Branch::Nothing => None,
        };
        found.or_else(|| self.otherwise.as_ref()?.find(stream))
    }
}

impl Leaf {
    fn find(&self, stream: &Stream<'_>) -> Option<&Policy> {
        match self {
            Leaf::Policy(policy) => Some(policy),
            Leaf::Tree(tree) => tree.find(stream),
        }
    }
}

impl Predicate {
    fn holds(&self, stream: &Stream<'_>) -> bool {
        match self {
            Predicate::Single(input, rule) => input
                .value(stream)
                .is_some_and(|value| std::str::from_utf8(&value).is_ok_and(|value| rule.matches(value))),
            Predicate::All(all) => all.iter().all(|predicate| predicate.holds(stream)),
            Predicate::Any(all) => all.iter().any(|predicate| predicate.holds(stream)),
            Predicate::Not(predicate) => !predicate.holds(stream),
        }
    }
}

impl Input {
    /// `None` when there is nothing to look at.
    fn value<'s>(&self, stream: &'s Stream<'_>) -> Option<Cow<'s, [u8]>> {
        let joined = |lines: Vec<&'s [u8]>| match lines[..] {
            [] => None,
            [line] => Some(Cow::Borrowed(line)),
            _ => Some(Cow::Owned(lines.join(&b','))),
        };
        match self {
            Input::Status => Some(stream.response.status().to_string().into_bytes().into()),
            Input::StatusClass => Some(match stream.response.status() {
                100..200 => b"1xx".into(),
                200..300 => b"2xx".into(),
                300..400 => b"3xx".into(),
                400..500 => b"4xx".into(),
                500..600 => b"5xx".into(),
                _ => return None,
            }),
            Input::RequestHeader(name) => joined(request_parts::header(stream.request, name)),
            Input::ResponseHeader(name) => joined(stream.response.fields.get_all_name(name.as_bytes()).collect()),
            Input::IsLocal => Some(if super::is_local(stream) { b"true".into() } else { b"false".into() }),
        }
    }
}

fn by_map(at: &mut Reading<'_>, policy: ReadPolicy<'_>) -> Option<Branch> {
    let input = input(at);
    at.refuse("custom_match", "matching by an extension");
    let mut entries = |at: &mut Reading<'_>, key: &str| {
        at.map(key, |at| {
            at.map("map", |at| {
                let keys: Vec<&str> = at.keys().collect();
                keys.into_iter().filter_map(|key| Some((key.to_owned(), leaf(at, key, policy)?))).collect::<Vec<_>>()
            })
            .unwrap_or_default()
        })
    };
    let (exact, prefix) = (entries(at, "exact_match_map"), entries(at, "prefix_match_map"));
    let input = input?;
    match (exact, prefix) {
        (Some(all), None) => Some(Branch::Exact(input, all)),
        (None, Some(mut all)) => {
            all.sort_by_key(|(key, _)| std::cmp::Reverse(key.len()));
            Some(Branch::Prefix(input, all))
        }
        _ => {
            at.wrong("exactly one of exact_match_map and prefix_match_map is wanted");
            None
        }
    }
}

/// `OnMatch`.
fn leaf(at: &mut Reading<'_>, key: &str, policy: ReadPolicy<'_>) -> Option<Leaf> {
    let read = at.map(key, |at| {
        at.refuse("keep_matching", "going on after a match");
        let tree = at.map("matcher", |at| Tree::read(at, policy));
        let own = at.map("action", |at| {
            // Names the policy for people.
            at.text("name");
            let made = at.map("typed_config", &mut *policy);
            if made.is_none() {
                at.error("typed_config", "what takes the answer's place is required");
            }
            made.flatten()
        });
        match (tree, own) {
            (Some(tree), None) => Some(Leaf::Tree(tree)),
            (None, Some(policy)) => policy.map(|policy| Leaf::Policy(Box::new(policy))),
            _ => {
                at.wrong("exactly one of action and matcher is wanted");
                None
            }
        }
    });
    if read.is_none() {
        at.error(key, "what follows from the match is required");
    }
    read.flatten()
}

fn predicate(at: &mut Reading<'_>) -> Option<Predicate> {
    let mut found = Vec::new();
    found.extend(at.map("single_predicate", single));
    for (key, make) in
        [("or_matcher", Predicate::Any as fn(Vec<Predicate>) -> Predicate), ("and_matcher", Predicate::All)]
    {
        found.extend(at.map(key, |at| {
            let all = at.each("predicate", predicate);
            if all.len() < 2 {
                at.error("predicate", "at least two are required");
            }
            all.into_iter().collect::<Option<_>>().map(make)
        }));
    }
    found.extend(at.map("not_matcher", |at| predicate(at).map(|inner| Predicate::Not(Box::new(inner)))));
    match (found.pop(), found.is_empty()) {
        (Some(predicate), true) => predicate,
        _ => {
            at.wrong("exactly one of single_predicate, or_matcher, and_matcher and not_matcher is wanted");
            None
        }
    }
}

fn single(at: &mut Reading<'_>) -> Option<Predicate> {
    let input = input(at);
    at.refuse("custom_match", "matching by an extension");
    let rule = at.map("value_match", string_match);
    if rule.is_none() {
        at.error("value_match", "what the value is compared with is required");
    }
    Some(Predicate::Single(input?, rule.flatten()?))
}

fn input(at: &mut Reading<'_>) -> Option<Input> {
    let read = at.map("input", |at| {
        at.text("name");
        at.map("typed_config", |at| {
            let url = at.text("@type").unwrap_or_default();
            let kind = url.rsplit('/').next().unwrap_or_default();
            Some(match kind.strip_prefix("envoy.type.matcher.v3.") {
                Some("HttpResponseStatusCodeMatchInput") => Input::Status,
                Some("HttpResponseStatusCodeClassMatchInput") => Input::StatusClass,
                Some("HttpResponseLocalReplyMatchInput") => Input::IsLocal,
                Some("HttpRequestHeaderMatchInput") => Input::RequestHeader(header_name(at)?),
                Some("HttpResponseHeaderMatchInput") => Input::ResponseHeader(header_name(at)?),
                _ => {
                    at.error(
                        "@type",
                        format!("{kind}: nothing that Postrider looks at here: statuses and headers are"),
                    );
                    at.skip();
                    return None;
                }
            })
        })
        .flatten()
    });
    if read.is_none() {
        at.error("input", "what is looked at is required");
    }
    read.flatten()
}

fn header_name(at: &mut Reading<'_>) -> Option<String> {
    let name = at.text("header_name").map(str::to_ascii_lowercase);
    if name.is_none() {
        at.error("header_name", "the name of a header is required");
    }
    name
}
