//! Which routes of one virtual host a path may match, in the order of the document.
//!
//! [`holds`] compares one route with one path; short lists of routes are simply walked with it. [`PathIndex`] says the
//! same for long ones: it yields the ids of the routes whose path condition can hold, smallest first. What it yields
//! is final for prefixes and exact paths; a regular expression is yielded for its literal prefix and must still be
//! asked.

use postrider_model::{PathMatch, Route};

use crate::pattern::{Whole, literal_prefix, starts_with_no_case};
use crate::text_map::{Case, TextMap};
use crate::trie::{self, Trie, first_from, smaller};

/// Whether the path condition of `route` holds. `whole` is its compiled regular expression, where it has one; `path` is without
/// query, and empty for a CONNECT request of authority form, which only a route for CONNECT matches.
#[inline(always)]
pub(crate) fn holds(route: &Route, whole: Option<&Whole>, path: &[u8], connect: bool) -> bool {
    let sensitive = route.matches.case_sensitive;
    match &route.matches.path {
        PathMatch::Connect => connect,
        _ if path.is_empty() => false,
        PathMatch::Prefix(want) if sensitive => path.starts_with(want.as_bytes()),
        PathMatch::Prefix(want) => starts_with_no_case(path, want.as_bytes()),
        PathMatch::Exact(want) if sensitive => path == want.as_bytes(),
        PathMatch::Exact(want) => path.eq_ignore_ascii_case(want.as_bytes()),
        PathMatch::SeparatedPrefix(want) => path.split_at_checked(want.len()).is_some_and(|(begin, rest)| {
            (if sensitive { begin == want.as_bytes() } else { begin.eq_ignore_ascii_case(want.as_bytes()) })
                && matches!(rest, [] | [b'/', ..])
        }),
        // Case-blind matching leaves regular expressions as they are.
        PathMatch::Regex(_) => whole.is_some_and(|whole| whole.matches(path)),
    }
}

/// The path conditions of one virtual host's routes.
#[derive(Debug, Default)]
pub(crate) struct PathIndex {
    exact: ExactPaths,
    exact_no_case: ExactPaths,
    prefixes: Trie,
    prefixes_no_case: Trie,
    connect: Box<[u32]>,
}

/// The routes whose path condition can hold for one request.
#[derive(Debug)]
pub(crate) struct Candidates<'i> {
    exact: &'i [u32],
    exact_no_case: &'i [u32],
    prefixes: trie::Found<'i>,
    prefixes_no_case: trie::Found<'i>,
    connect: &'i [u32],
}

impl PathIndex {
    pub(crate) fn build<'r>(routes: impl Iterator<Item = (&'r Route, u32)>) -> PathIndex {
        let (mut exact, mut exact_no_case) = (Vec::new(), Vec::new());
        let (mut prefixes, mut prefixes_no_case) = (Vec::new(), Vec::new());
        let mut connect = Vec::new();
        for (route, id) in routes {
            let case = route.matches.case_sensitive;
            let text = |text: &str| if case { text.as_bytes().to_vec() } else { text.as_bytes().to_ascii_lowercase() };
            let prefixes_here = if case { &mut prefixes } else { &mut prefixes_no_case };
            let exact_here = if case { &mut exact } else { &mut exact_no_case };
            match &route.matches.path {
                PathMatch::Prefix(want) => prefixes_here.push((text(want), id)),
                PathMatch::Exact(want) => exact_here.push((text(want), id)),
                // A path cannot both be the prefix and go on behind it, so no id is yielded twice.
                PathMatch::SeparatedPrefix(want) => {
                    exact_here.push((text(want), id));
                    prefixes_here.push((text(&format!("{want}/")), id));
                }
                PathMatch::Regex(regex) => prefixes.push((literal_prefix(regex), id)),
                PathMatch::Connect => connect.push(id),
            }
        }
        PathIndex {
            exact: ExactPaths::build(exact, Case::Sensitive),
            exact_no_case: ExactPaths::build(exact_no_case, Case::Ignored),
            prefixes: Trie::build(prefixes.iter().map(|(text, id)| (text.as_slice(), *id)).collect()),
            prefixes_no_case: Trie::build(prefixes_no_case.iter().map(|(text, id)| (text.as_slice(), *id)).collect()),
            connect: connect.into_boxed_slice(),
        }
    }

    /// `path` and `connect` as in [`holds`].
    #[inline]
    pub(crate) fn candidates(&self, path: &[u8], connect: bool) -> Candidates<'_> {
        let connect: &[u32] = if connect { &self.connect } else { &[] };
        if path.is_empty() {
            // The mark of a request without a path, not the prefix of anything.
            return Candidates {
                exact: &[],
                exact_no_case: &[],
                prefixes: trie::Found::none(&self.prefixes),
                prefixes_no_case: trie::Found::none(&self.prefixes_no_case),
                connect,
            };
        }
        Candidates {
            exact: self.exact.find(path, Case::Sensitive),
            exact_no_case: self.exact_no_case.find(path, Case::Ignored),
            prefixes: self.prefixes.prefixes_of(path, Case::Sensitive),
            prefixes_no_case: self.prefixes_no_case.prefixes_of(path, Case::Ignored),
            connect,
        }
    }
}

impl Candidates<'_> {
    /// The smallest id that is not below `from`.
    #[inline]
    pub(crate) fn next(&self, from: u32) -> Option<u32> {
        let exact = smaller(first_from(self.exact, from), first_from(self.exact_no_case, from));
        let prefix = smaller(self.prefixes.next(from), self.prefixes_no_case.next(from));
        smaller(smaller(exact, prefix), first_from(self.connect, from))
    }
}

/// Routes by their whole path.
#[derive(Debug, Default)]
struct ExactPaths {
    /// From the path to its group.
    groups: TextMap,
    /// Where each group begins in `ids`, and one more for the end of the last.
    starts: Box<[u32]>,
    ids: Box<[u32]>,
}

impl ExactPaths {
    fn build(mut entries: Vec<(Vec<u8>, u32)>, case: Case) -> ExactPaths {
        entries.sort();
        let (mut keys, mut starts) = (Vec::<(&[u8], u32)>::new(), Vec::new());
        for ((path, _), at) in entries.iter().zip(0u32..) {
            if keys.last().is_none_or(|(last, _)| *last != path.as_slice()) {
                keys.push((path, starts.len() as u32));
                starts.push(at);
            }
        }
        starts.push(entries.len() as u32);
        ExactPaths {
            groups: TextMap::build(&keys, case),
            starts: starts.into_boxed_slice(),
            ids: entries.iter().map(|(_, id)| *id).collect(),
        }
    }

    #[inline]
    fn find(&self, path: &[u8], case: Case) -> &[u32] {
        let Some(group) = self.groups.find(path, case) else { return &[] };
        let bound = |at: usize| self.starts.get(at).copied().unwrap_or_default() as usize;
        self.ids.get(bound(group as usize)..bound(group as usize + 1)).unwrap_or_default()
    }
}
