//! What a forwarding route does to path and authority before the request goes on.

use postrider_http::{RequestHead, check_authority};
use postrider_model::{Forward, HostRewrite, PathMatch, PathRewrite, Regex, Route};

/// Writes the new path and query into `out` (cleared first) and returns true, or returns false when the path stays.
///
/// `path` is that of the request with its query, the one which `route` matched. A prefix replaces what the route's
/// prefix or exact path matched, and the whole path (not the query) under a regular expression; nothing is added or
/// taken away between, so `/app` to `/` makes `//x` of `/app/x`. A regular expression sees the path without query. A
/// result that does not begin with `/` gets one; an empty one leaves the path as it was.
pub fn rewrite_path(forward: &Forward, route: &Route, path: &[u8], out: &mut Vec<u8>) -> bool {
    out.clear();
    match &forward.path_rewrite {
        // Who can evaluate a format says what becomes of the path.
        PathRewrite::None | PathRewrite::Format(_) => false,
        PathRewrite::Prefix(prefix) => replace_matched(route, path, prefix.as_bytes(), out),
        PathRewrite::Regex { pattern, substitution } => replace_in_path(pattern, substitution, path, out),
    }
}

/// Writes the new authority into `out` (cleared first) and returns true, or returns false when it stays.
///
/// `endpoint` is the host name of the chosen endpoint, if it has one. A header or a path that yields no valid
/// authority changes nothing: what a client wrote there must not become a malformed `Host`.
pub fn rewrite_host(rewrite: &HostRewrite, head: &RequestHead, endpoint: Option<&str>, out: &mut Vec<u8>) -> bool {
    out.clear();
    match rewrite {
        // So here.
        HostRewrite::None | HostRewrite::Format(_) => return false,
        HostRewrite::Literal(host) => out.extend_from_slice(host.as_bytes()),
        HostRewrite::Auto => out.extend_from_slice(endpoint.unwrap_or_default().as_bytes()),
        HostRewrite::Header(name) => out.extend_from_slice(head.fields.get_name(name.as_bytes()).unwrap_or_default()),
        HostRewrite::PathRegex { pattern, substitution } => pattern.substitute(substitution, head.path_only(), out),
    }
    check_authority(out).is_ok()
}

/// Puts `new` in place of the part of `path` before the query, into `out` (cleared first); false, with nothing written, when
/// it is empty.
pub fn replace_path(new: &[u8], path: &[u8], out: &mut Vec<u8>) -> bool {
    out.clear();
    if new.is_empty() {
        return false;
    }
    out.extend_from_slice(new);
    root(out, 0);
    out.extend_from_slice(path.get(without_query(path).len()..).unwrap_or_default());
    true
}

/// Puts `prefix` in place of what `route` matched in `path`; false, with nothing written, when `prefix` is empty.
pub(crate) fn replace_matched(route: &Route, path: &[u8], prefix: &[u8], out: &mut Vec<u8>) -> bool {
    if prefix.is_empty() || path.is_empty() {
        return false;
    }
    let matched = match &route.matches.path {
        PathMatch::Prefix(text) | PathMatch::Exact(text) | PathMatch::SeparatedPrefix(text) => text.len(),
        PathMatch::Regex(_) | PathMatch::Connect => without_query(path).len(),
    };
    if let PathMatch::Prefix(text) | PathMatch::Exact(text) | PathMatch::SeparatedPrefix(text) = &route.matches.path
        && !path.get(..matched).is_some_and(|begin| begin.eq_ignore_ascii_case(text.as_bytes()))
    {
        // It matched without its parameters, and they stand inside: as in Envoy it stays.
        return false;
    }
    let start = out.len();
    out.extend_from_slice(prefix);
    out.extend_from_slice(path.get(matched..).unwrap_or_default());
    root(out, start);
    true
}

/// Replaces every match of `pattern` in the part of `path` before the query; false, with nothing written, when that
/// leaves no path.
pub(crate) fn replace_in_path(pattern: &Regex, substitution: &str, path: &[u8], out: &mut Vec<u8>) -> bool {
    let plain = without_query(path);
    let start = out.len();
    pattern.substitute(substitution, plain, out);
    if out.len() == start {
        return false;
    }
    root(out, start);
    out.extend_from_slice(path.get(plain.len()..).unwrap_or_default());
    true
}

/// `path` up to its query.
pub(crate) fn without_query(path: &[u8]) -> &[u8] {
    memchr::memchr(b'?', path).and_then(|at| path.get(..at)).unwrap_or(path)
}

/// A path begins with a slash.
fn root(out: &mut Vec<u8>, start: usize) {
    if out.get(start) != Some(&b'/') {
        out.insert(start, b'/');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{forward, head, route};

    fn regex(pattern: &str) -> Regex {
        Regex::new(pattern).unwrap()
    }

    fn rewritten(matches: PathMatch, rewrite: PathRewrite, path: &str) -> Option<String> {
        let forward = Forward { path_rewrite: rewrite, ..forward() };
        let mut out = b"left over".to_vec();
        rewrite_path(&forward, &route(matches), path.as_bytes(), &mut out).then(|| String::from_utf8(out).unwrap())
    }

    /// Each row was observed on the proxy whose meaning this is; the marked one differs on purpose.
    #[test]
    fn a_prefix_replaces_what_was_matched() {
        let prefix = |text: &str| PathMatch::Prefix(text.into());
        let separated = |text: &str| PathMatch::SeparatedPrefix(text.into());
        for (matches, to, path, want) in [
            (prefix("/app"), "/", "/app", "/"),
            (prefix("/app"), "/", "/app/x", "//x"),
            (prefix("/app"), "/", "/apple", "/le"),
            (prefix("/app"), "/", "/app?x", "/?x"),
            (prefix("/bpp/"), "/", "/bpp/x", "/x"),
            (prefix("/cci"), "/x", "/CcI/q?r", "/x/q?r"),
            (PathMatch::Exact("/dex".into()), "/y", "/dex?x", "/y?x"),
            (PathMatch::Regex(regex("/e/.*")), "/z", "/e/abc?d", "/z?d"),
            (separated("/fsep"), "/f", "/fsep/x", "/f/x"),
            (separated("/fsla"), "/", "/fsla/x", "//x"),
            (separated("/fsla"), "/", "/fsla?x", "/?x"),
            (prefix("/nq"), "/n?a=b", "/nq?c=d", "/n?a=b?c=d"),
            // Elsewhere `rel/x`, which is no request target.
            (prefix("/gno"), "rel", "/gno/x", "/rel/x"),
        ] {
            assert_eq!(rewritten(matches, PathRewrite::Prefix(to.into()), path).as_deref(), Some(want), "{path}");
        }
        assert_eq!(rewritten(prefix("/"), PathRewrite::Prefix(String::new()), "/x"), None);
        assert_eq!(rewritten(prefix("/"), PathRewrite::None, "/x"), None);
    }

    /// Each row was observed on the proxy whose meaning this is; the marked one differs on purpose.
    #[test]
    fn a_regex_replaces_every_match_before_the_query() {
        for (pattern, substitution, path, want) in [
            ("/h(r)x", r"/\1\1", "/hrx/hrx?/hrx", Some("/rr/rr?/hrx")),
            ("a|ab", r"<\0>", "/orxabab", Some("/orx<a>b<a>b")),
            (".*", "", "/jrx/a?b", None),
            ("/rx/(a+)", r"/\1-\0\\", "/rx/aaab?q=/rx/a", Some(r"/aaa-/rx/aaa\b?q=/rx/a")),
            // Elsewhere `-/-i-r-y-?x`, which is no request target.
            ("x*", "-", "/irxxy?x", Some("/-/-i-r-y-?x")),
            ("none", "x", "/a", Some("/a")),
        ] {
            let rewrite = PathRewrite::Regex { pattern: regex(pattern), substitution: substitution.into() };
            let got = rewritten(PathMatch::Prefix("/".into()), rewrite, path);
            assert_eq!(got.as_deref(), want, "{pattern} on {path}");
        }
    }

    #[test]
    fn the_host_is_taken_from_where_the_route_says() {
        let by_path = HostRewrite::PathRegex { pattern: regex("^/m/(.+?)/.*$"), substitution: r"\1".into() };
        let header = HostRewrite::Header("x-h".into());
        for (rewrite, path, lines, want) in [
            (&HostRewrite::None, "/", &[][..], None),
            (&HostRewrite::Literal("lit".into()), "/", &[], Some("lit")),
            (&HostRewrite::Auto, "/", &[], Some("endpoint.test")),
            (&header, "/", &[], None),
            (&header, "/", &[("x-h", "other:81")], Some("other:81")),
            (&header, "/", &[("x-h", "a"), ("x-h", "b")], Some("a")),
            (&header, "/", &[("x-h", "a/b")], None),
            (&header, "/", &[("x-h", "")], None),
            (&by_path, "/m/abc/d?/m/x/", &[], Some("abc")),
            (&by_path, "/m", &[], None),
        ] {
            let head = head("GET", "rw", path, lines);
            let mut out = Vec::new();
            let got = rewrite_host(rewrite, &head, Some("endpoint.test"), &mut out);
            assert_eq!(got.then(|| String::from_utf8(out).unwrap()).as_deref(), want, "{rewrite:?} {path}");
        }
        assert!(!rewrite_host(&HostRewrite::Auto, &head("GET", "rw", "/", &[]), None, &mut Vec::new()));
    }
}
