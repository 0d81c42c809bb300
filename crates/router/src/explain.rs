//! Why a request goes where it goes, in words. The decisions are those of [`Table::find`]; only the telling is here.

use postrider_http::RequestHead;
use postrider_model::{
    CookieMatch, HeaderCondition, HeaderMatch, PathMatch, QueryCondition, QueryMatch, Route, StringKind, StringMatch,
};

use crate::conditions::{Draw, Surroundings, Unmet, cookie, query_value, shown_value};
use crate::hosts::Step;
use crate::table::{Found, Table, is_connect};

/// The way of one request through a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// What of the authority was compared with the domains.
    pub host: String,
    /// The domains that were looked for, in order, up to the one that was found.
    pub tried_hosts: Vec<TriedHost>,
    pub virtual_host: Option<u32>,
    /// The routes of the virtual host, in order, up to the winner; all of them when there is none.
    pub tried: Vec<Tried>,
    pub winner: Option<Found>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TriedHost {
    /// As a domain is written: `a.test`, `*.test`, `a.*`, `*`.
    pub domain: String,
    pub found: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    /// For [`Table::route`].
    pub route: u32,
    pub outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Matched,
    /// The first condition that did not hold, and what was found instead.
    Failed(String),
}

impl Table {
    /// Says how [`Table::find_in`] decides on `head`. `random` is the number that shares of traffic are drawn by: 0 is
    /// inside every share.
    pub fn explain(&self, head: &RequestHead, stream: &impl Surroundings, random: u64) -> Explanation {
        let mut tried_hosts = Vec::new();
        let virtual_host = self.hosts.find_watched(self.host_of(head), |step| tried_hosts.push(TriedHost::from(step)));
        let winner = virtual_host.and_then(|host| self.find_route(host, head, stream, || random));
        let mut draw = Draw::new(|| random);
        let mut tried = Vec::new();
        for (entry, route) in virtual_host.into_iter().flat_map(|host| self.entries_of(host, head)) {
            let outcome = if !entry.path_holds(&self.path_of(head), is_connect(head)) {
                Outcome::Failed(path_failure(&entry.route, head))
            } else {
                match entry.check(head, stream, &mut draw) {
                    Ok(()) => Outcome::Matched,
                    Err(unmet) => Outcome::Failed(condition_failure(&entry.route, unmet, head)),
                }
            };
            let matched = outcome == Outcome::Matched;
            tried.push(Tried { route, outcome });
            if matched {
                break;
            }
        }
        let host = text(self.hosts.matched_part(self.host_of(head))).to_ascii_lowercase();
        Explanation { host, tried_hosts, virtual_host, tried, winner }
    }
}

impl From<Step<'_>> for TriedHost {
    fn from(step: Step<'_>) -> TriedHost {
        let (domain, found) = match step {
            Step::Exact(host, found) => (text(host), found),
            Step::Suffix(end, found) => (format!("*{}", text(end)), found),
            Step::Prefix(begin, found) => (format!("{}*", text(begin)), found),
            Step::Any(found) => ("*".to_owned(), found),
        };
        TriedHost { domain: domain.to_ascii_lowercase(), found }
    }
}

fn path_failure(route: &Route, head: &RequestHead) -> String {
    let path = text(head.path_only());
    let case = if route.matches.case_sensitive { "" } else { " (case ignored)" };
    if head.path().is_empty() && route.matches.path != PathMatch::Connect {
        return "the request has no path".to_owned();
    }
    match &route.matches.path {
        PathMatch::Prefix(want) => format!("path \"{path}\" does not begin with \"{want}\"{case}"),
        PathMatch::Exact(want) => format!("path \"{path}\" is not \"{want}\"{case}"),
        PathMatch::SeparatedPrefix(want) => {
            format!("path \"{path}\" is neither \"{want}\" nor below \"{want}/\"{case}")
        }
        PathMatch::Regex(regex) => format!("path \"{path}\" does not match the regular expression {}", regex.as_str()),
        PathMatch::Connect => format!("the method is {} and not CONNECT", text(head.method_bytes())),
    }
}

fn condition_failure(route: &Route, unmet: Unmet, head: &RequestHead) -> String {
    let matches = &route.matches;
    match unmet {
        Unmet::Fraction => {
            let percent = f64::from(matches.fraction.unwrap_or_default()) / 10_000.0;
            format!("the route takes {percent} % of the requests, and this one was not drawn")
        }
        Unmet::Header(at) => matches.headers.get(at).map(|test| header_failure(test, head)).unwrap_or_default(),
        Unmet::Query(at) => matches.query.get(at).map(|test| query_failure(test, head)).unwrap_or_default(),
        Unmet::Cookie(at) => matches.cookies.get(at).map(|test| cookie_failure(test, head)).unwrap_or_default(),
        Unmet::Metadata(_) => "the metadata of a request is known when it is under way".to_owned(),
        Unmet::State(_) => "the filter state of a request is known when it is under way".to_owned(),
        Unmet::Presented => "the client's certificate is not asked for here: it showed none".to_owned(),
        Unmet::Validated => "the client's certificate is not asked for here: it showed none that is good".to_owned(),
        Unmet::Grpc => {
            let found = found(shown_value("content-type", head));
            format!("header content-type: expected application/grpc or application/grpc+…, found {found}")
        }
    }
}

fn header_failure(test: &HeaderMatch, head: &RequestHead) -> String {
    let not = if test.invert { "not " } else { "" };
    let expected = match &test.condition {
        HeaderCondition::Present(present) if *present != test.invert => "any value".to_owned(),
        HeaderCondition::Present(_) => "none".to_owned(),
        HeaderCondition::Value(want) => format!("{not}{}", string_words(want)),
        HeaderCondition::Range { start, end } => format!("{not}a number from {start} to below {end}"),
    };
    let found = found(shown_value(&test.name, head));
    format!("header {}: expected {expected}, found {found}", test.name)
}

fn cookie_failure(test: &CookieMatch, head: &RequestHead) -> String {
    let not = if test.invert { "not " } else { "" };
    let found = found(cookie(head, test.name.as_bytes()).map(text));
    format!("cookie {}: expected {not}{}, found {found}", test.name, string_words(&test.condition))
}

fn query_failure(test: &QueryMatch, head: &RequestHead) -> String {
    let expected = match &test.condition {
        QueryCondition::Present(true) => "any value".to_owned(),
        QueryCondition::Present(false) => "none".to_owned(),
        QueryCondition::Value(want) => string_words(want),
    };
    let found = found(query_value(head, test.name.as_bytes()).map(text));
    format!("query parameter {}: expected {expected}, found {found}", test.name)
}

fn string_words(want: &StringMatch) -> String {
    let words = match &want.kind {
        StringKind::Exact(text) => format!("\"{text}\""),
        StringKind::Prefix(text) => format!("a value that begins with \"{text}\""),
        StringKind::Suffix(text) => format!("a value that ends with \"{text}\""),
        StringKind::Contains(text) => format!("a value that contains \"{text}\""),
        StringKind::Regex(regex) => return format!("a match of the regular expression {}", regex.as_str()),
        StringKind::Custom { kind, .. } => format!("a value that {kind} takes"),
    };
    if want.ignore_case { format!("{words} (case ignored)") } else { words }
}

fn found(value: Option<String>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| format!("\"{value}\""))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use postrider_model::Regex;

    use super::*;
    use crate::conditions::Nothing;
    use crate::table::tests::{head, route, table};

    fn failure(change: impl FnOnce(&mut Route), path: &str, lines: &[(&str, &str)]) -> String {
        let mut changed = route(PathMatch::Prefix("/".into()));
        change(&mut changed);
        let explanation = table(vec![changed]).explain(&head("GET", "h", path, lines), &Nothing, 999_999);
        assert_eq!((explanation.winner, explanation.tried.len()), (None, 1));
        match &explanation.tried[0].outcome {
            Outcome::Failed(words) => words.clone(),
            Outcome::Matched => panic!("matched"),
        }
    }

    fn header(name: &str, condition: HeaderCondition, invert: bool) -> HeaderMatch {
        HeaderMatch { name: name.into(), condition, invert, treat_missing_as_empty: false }
    }

    fn exact(text: &str) -> StringMatch {
        StringMatch { kind: StringKind::Exact(text.into()), ignore_case: false }
    }

    #[test]
    fn a_failure_names_the_condition_and_what_was_found() {
        let path = |path: PathMatch| failure(|route| route.matches.path = path, "/b?q", &[]);
        assert_eq!(path(PathMatch::Prefix("/a".into())), r#"path "/b" does not begin with "/a""#);
        assert_eq!(path(PathMatch::Exact("/a".into())), r#"path "/b" is not "/a""#);
        assert_eq!(path(PathMatch::SeparatedPrefix("/a".into())), r#"path "/b" is neither "/a" nor below "/a/""#);
        let regex = PathMatch::Regex(Regex::new("/a+").unwrap());
        assert_eq!(path(regex), r#"path "/b" does not match the regular expression /a+"#);
        assert_eq!(path(PathMatch::Connect), "the method is GET and not CONNECT");

        let on_header = |condition, invert, lines: &[(&str, &str)]| {
            failure(|route| route.matches.headers = vec![header("x", condition, invert)], "/", lines)
        };
        let value = HeaderCondition::Value(exact("1"));
        assert_eq!(on_header(value.clone(), false, &[]), r#"header x: expected "1", found none"#);
        let lines = [("x", "2"), ("x", "3")];
        assert_eq!(on_header(value.clone(), false, &lines), r#"header x: expected "1", found "2" and "3""#);
        assert_eq!(on_header(value, true, &[("x", "1")]), r#"header x: expected not "1", found "1""#);
        let range = HeaderCondition::Range { start: 1, end: 5 };
        assert_eq!(
            on_header(range, false, &[("x", "5")]),
            r#"header x: expected a number from 1 to below 5, found "5""#
        );
        assert_eq!(
            on_header(HeaderCondition::Present(true), true, &[("x", "")]),
            r#"header x: expected none, found """#
        );

        let query = QueryMatch { name: "q".into(), condition: QueryCondition::Value(exact("1")) };
        let words = failure(|route| route.matches.query = vec![query], "/?p=1&q", &[]);
        assert_eq!(words, r#"query parameter q: expected "1", found """#);
        let words = failure(|route| route.matches.grpc = true, "/", &[]);
        assert!(words.starts_with("header content-type: expected application/grpc"), "{words}");
        let words = failure(|route| route.matches.fraction = Some(25_000), "/", &[]);
        assert_eq!(words, "the route takes 2.5 % of the requests, and this one was not drawn");
    }

    #[test]
    fn the_way_ends_at_the_winner() {
        let table = table(vec![
            route(PathMatch::Exact("/a".into())),
            route(PathMatch::Prefix("/".into())),
            route(PathMatch::Prefix("/b".into())),
        ]);
        let explanation = table.explain(&head("GET", "H.test", "/b", &[]), &Nothing, 0);
        assert_eq!(explanation.host, "h.test");
        assert_eq!(explanation.tried_hosts, [TriedHost { domain: "*".into(), found: true }]);
        assert_eq!(explanation.tried.len(), 2);
        assert_eq!(explanation.winner, Some(Found { virtual_host: 0, route: 1 }));
    }
}
