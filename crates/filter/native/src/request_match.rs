//! A condition on a request, as routes have them: `RouteMatch`.

use postrider_http::{Method, RequestHead};
use postrider_model::{HeaderMatch, QueryMatch, Reading, Regex, header_match, query_match, regex};

use crate::request_parts::{header, parameter};

#[derive(Debug)]
pub(crate) struct RequestMatch {
    path: PathRule,
    ignore_case: bool,
    headers: Vec<HeaderMatch>,
    parameters: Vec<QueryMatch>,
}

#[derive(Debug)]
enum PathRule {
    Prefix(String),
    Exact(String),
    /// Whole segments.
    Below(String),
    Regex(Regex),
    Connect,
}

impl RequestMatch {
    pub(crate) fn read(at: &mut Reading<'_>) -> Option<RequestMatch> {
        for key in [
            "path_match_policy",
            "runtime_fraction",
            "grpc",
            "tls_context",
            "dynamic_metadata",
            "filter_state",
            "cookies",
        ] {
            at.refuse(key, "this condition of a rule");
        }
        let mut found = Vec::new();
        let mut text = |key: &str| at.has(key).then(|| at.text(key).unwrap_or_default().to_owned());
        found.extend(text("prefix").map(|path| Some(PathRule::Prefix(path))));
        found.extend(text("path").map(|path| Some(PathRule::Exact(path))));
        found.extend(text("path_separated_prefix").map(|path| Some(PathRule::Below(path))));
        found.extend(at.map("safe_regex", regex).map(|regex| regex.map(PathRule::Regex)));
        found.extend(at.map("connect_matcher", |_| Some(PathRule::Connect)));
        if found.len() != 1 && !at.has("path_match_policy") {
            at.wrong("a prefix, path, path_separated_prefix, safe_regex or connect_matcher is required");
        }
        Some(RequestMatch {
            ignore_case: at.bool("case_sensitive") == Some(false),
            headers: at.each("headers", header_match).into_iter().flatten().collect(),
            parameters: at.each("query_parameters", query_match).into_iter().flatten().collect(),
            path: found.pop().flatten()?,
        })
    }

    pub(crate) fn matches(&self, request: &RequestHead) -> bool {
        self.path_matches(request)
            && self.headers.iter().all(|rule| {
                let lines: Vec<_> = header(request, &rule.name).into_iter().map(String::from_utf8_lossy).collect();
                rule.matches(&lines.iter().map(|line| &**line).collect::<Vec<_>>())
            })
            && self.parameters.iter().all(|rule| rule.matches(parameter(request, &rule.name).as_deref()))
    }

    fn path_matches(&self, request: &RequestHead) -> bool {
        let path = request.path_only();
        let same = |a: &[u8], b: &[u8]| if self.ignore_case { a.eq_ignore_ascii_case(b) } else { a == b };
        let starts = |with: &str| path.get(..with.len()).is_some_and(|start| same(start, with.as_bytes()));
        match &self.path {
            PathRule::Prefix(prefix) => starts(prefix),
            PathRule::Exact(wanted) => same(path, wanted.as_bytes()),
            PathRule::Below(prefix) => starts(prefix) && matches!(path.get(prefix.len()), None | Some(b'/')),
            PathRule::Regex(regex) => regex.matches_whole(&String::from_utf8_lossy(path)),
            PathRule::Connect => request.method() == Method::Connect,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{list, object, request, text};
    use postrider_model::Value;

    #[test]
    fn a_request_matches_by_path_headers_and_parameters() {
        let matches = |rule: Value, path: &str| {
            let rule = Reading::all(&rule, RequestMatch::read).unwrap().unwrap();
            rule.matches(&request(path, &[("x", "1")]).request)
        };
        let one = |key: &str, value: &str| object([(key, text(value))]);
        assert!(matches(one("prefix", "/a"), "/ab?x") && !matches(one("prefix", "/a"), "/b"));
        assert!(matches(one("path", "/a"), "/a?x") && !matches(one("path", "/a"), "/ab"));
        let below = || one("path_separated_prefix", "/a");
        assert!(matches(below(), "/a") && matches(below(), "/a/b") && !matches(below(), "/ab"));
        let regex = || object([("safe_regex", one("regex", "/[0-9]+"))]);
        assert!(matches(regex(), "/12?x") && !matches(regex(), "/12a"));
        let folded = object([("prefix", text("/A")), ("case_sensitive", Value::Bool(false))]);
        assert!(matches(folded, "/a"));
        let more =
            |key: &str, name: &str| object([("prefix", text("/")), (key, list([object([("name", text(name))])]))]);
        assert!(matches(more("headers", "x"), "/") && !matches(more("headers", "y"), "/"));
        assert!(matches(more("query_parameters", "q"), "/?q") && !matches(more("query_parameters", "q"), "/"));
        assert!(!matches(object([("connect_matcher", object([]))]), "/"));
        assert!(Reading::all(&object([]), RequestMatch::read).is_err());
    }
}
