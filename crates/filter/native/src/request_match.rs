//! A condition on a request, as routes have them: `RouteMatch`.

use postrider_http::{Method, RequestHead};
use postrider_model::{HeaderMatch, PathTemplate, QueryMatch, Reading, Regex, header_match, query_match, regex};

use crate::request_parts::{header, raw_parameter};

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
        // Envoy takes them and looks at none: a rule that says more than it does is better not written.
        for key in ["runtime_fraction", "grpc", "tls_context", "dynamic_metadata", "filter_state", "cookies"] {
            at.refuse(key, "this condition, which a rule of a filter does not look at,");
        }
        let mut found = Vec::new();
        let mut text = |key: &str| at.has(key).then(|| at.text(key).unwrap_or_default().to_owned());
        found.extend(text("prefix").map(|path| Some(PathRule::Prefix(path))));
        found.extend(text("path").map(|path| Some(PathRule::Exact(path))));
        found.extend(text("path_separated_prefix").map(|path| Some(PathRule::Below(path))));
        found.extend(at.map("safe_regex", regex).map(|regex| regex.map(PathRule::Regex)));
        found.extend(at.map("connect_matcher", |_| Some(PathRule::Connect)));
        found.extend(at.map("path_match_policy", template));
        if found.len() != 1 {
            at.wrong(
                "a prefix, path, path_separated_prefix, safe_regex, path_match_policy or connect_matcher is required",
            );
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
            && self.headers.iter().all(|rule| rule.matches(&header(request, &rule.name)))
            && self.parameters.iter().all(|rule| rule.matches(raw_parameter(request, &rule.name).as_deref()))
    }

    fn path_matches(&self, request: &RequestHead) -> bool {
        let path = request.path_only();
        let same = |a: &[u8], b: &[u8]| if self.ignore_case { a.eq_ignore_ascii_case(b) } else { a == b };
        let starts = |with: &str| path.get(..with.len()).is_some_and(|start| same(start, with.as_bytes()));
        match &self.path {
            PathRule::Prefix(prefix) => starts(prefix),
            PathRule::Exact(wanted) => same(path, wanted.as_bytes()),
            PathRule::Below(prefix) => starts(prefix) && matches!(path.get(prefix.len()), None | Some(b'/')),
            PathRule::Regex(regex) => regex.matches_whole(path),
            PathRule::Connect => request.method() == Method::Connect,
        }
    }
}

/// `path_match_policy`: an extension, of which there is one.
fn template(at: &mut Reading<'_>) -> Option<PathRule> {
    const KIND: &str = "envoy.extensions.path.match.uri_template.v3.UriTemplateMatchConfig";
    at.text("name");
    let read = at.map("typed_config", |at| {
        let kind = at.text("@type").unwrap_or_default();
        if kind.rsplit('/').next() != Some(KIND) {
            at.error("@type", format!("paths are matched by {KIND}"));
            at.skip();
            return None;
        }
        let written = at.text("path_template").unwrap_or_default();
        match PathTemplate::new(written) {
            Ok(template) => Some(PathRule::Regex(template.regex)),
            Err(message) => {
                at.error("path_template", message);
                None
            }
        }
    });
    if read.is_none() {
        at.error("typed_config", "a configuration is required");
    }
    read.flatten()
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

    /// Else `%71` for `q` would lead past a rule that asks for a token where there is no `q`.
    #[test]
    fn parameters_are_compared_as_they_were_sent() {
        let matches = |condition: (&str, Value), path: &str| {
            let parameter = object([("name", text("q")), condition]);
            let rule = object([("prefix", text("/")), ("query_parameters", list([parameter]))]);
            let rule = Reading::all(&rule, RequestMatch::read).unwrap().unwrap();
            rule.matches(&request(path, &[]).request)
        };
        let absent = || ("present_match", Value::Bool(false));
        assert!(matches(absent(), "/?%71=1") && !matches(absent(), "/?q=1") && !matches(absent(), "/?a&q"));
        let exact = || ("string_match", object([("exact", text("1"))]));
        assert!(matches(exact(), "/?q=1") && !matches(exact(), "/?q=%31") && !matches(exact(), "/?%71=1"));
        let encoded = || ("string_match", object([("exact", text("%31"))]));
        assert!(matches(encoded(), "/?q=%31&q=1"));
    }

    #[test]
    fn a_path_matches_a_template() {
        let policy = |kind: &str, template: &str| {
            let config = object([("@type", text(kind)), ("path_template", text(template))]);
            object([("path_match_policy", object([("name", text("t")), ("typed_config", config)]))])
        };
        let kind = "type.googleapis.com/envoy.extensions.path.match.uri_template.v3.UriTemplateMatchConfig";
        let matches = |path: &str| {
            let policy = policy(kind, "/a/{b}/*.jpg");
            let rule = Reading::all(&policy, RequestMatch::read).unwrap().unwrap();
            rule.matches(&request(path, &[]).request)
        };
        assert!(matches("/a/x/y.jpg?z") && !matches("/a/x/y.png") && !matches("/a/x"));
        let error = |policy: Value| Reading::all(&policy, RequestMatch::read).unwrap_err()[0].path.clone();
        assert_eq!(error(policy(kind, "a")), "path_match_policy.typed_config.path_template");
        assert_eq!(error(policy("odd.Type", "/a")), "path_match_policy.typed_config.@type");
    }

    #[test]
    fn what_a_rule_does_not_look_at_is_refused() {
        for key in ["runtime_fraction", "grpc", "tls_context", "dynamic_metadata", "filter_state", "cookies"] {
            let errors = Reading::all(&object([("prefix", text("/")), (key, object([]))]), RequestMatch::read);
            assert_eq!(errors.unwrap_err()[0].path, key);
        }
    }
}
