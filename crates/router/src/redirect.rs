//! Where a redirecting route sends the client.

use postrider_http::{RequestHead, split_port};
use postrider_model::{Redirect, RedirectPath, RedirectScheme, Route};

use crate::rewrite::{replace_in_path, replace_matched, without_query};

/// Appends the value of `Location` to `out`: always an absolute URI.
///
/// `scheme` is that of the request as the client knows it (what `x-forwarded-proto` says). Parts that the redirect
/// does not name stay those of the request; but when the scheme changes, a port that was the default of the old one
/// goes, and a port that is named replaces the request's. A `?` in a replaced path replaces the query, and is safe
/// from `strip_query`. `rewritten` is what [`rewritten_by_redirect`] says.
pub fn redirect_location(
    redirect: &Redirect,
    rewritten: Option<&[u8]>,
    head: &RequestHead,
    scheme: &str,
    out: &mut Vec<u8>,
) {
    let new_scheme = match &redirect.scheme {
        Some(RedirectScheme::Https) => "https",
        Some(RedirectScheme::Named(name)) => name,
        None => scheme,
    };
    out.extend_from_slice(new_scheme.as_bytes());
    out.extend_from_slice(b"://");
    match redirect.host.as_deref() {
        Some(host) if !host.is_empty() => out.extend_from_slice(host.as_bytes()),
        _ => out.extend_from_slice(kept_host(redirect, head, scheme, new_scheme)),
    }
    if let Some(port) = redirect.port {
        out.push(b':');
        out.extend_from_slice(port.to_string().as_bytes());
    }
    let path_start = out.len();
    push_path(redirect, rewritten, head, out);
    if out.get(path_start) != Some(&b'/') {
        out.insert(path_start, b'/');
    }
}

/// The path that a redirect makes of the request's by rewriting a part of it, its query included; `None` where it does not. Without
/// a route, no prefix was matched that could be replaced.
pub fn rewritten_by_redirect(redirect: &Redirect, route: Option<&Route>, head: &RequestHead) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let is_rewritten = match &redirect.path {
        RedirectPath::Prefix(prefix) => replace_matched(route?, head.path(), prefix.as_bytes(), &mut out),
        RedirectPath::Regex { pattern, substitution } => replace_in_path(pattern, substitution, head.path(), &mut out),
        // Who can evaluate a format puts what comes out in its place.
        RedirectPath::Replace(_) | RedirectPath::Keep | RedirectPath::Format(_) => false,
    };
    is_rewritten.then_some(out)
}

/// The request's authority, or only its host.
fn kept_host<'h>(redirect: &Redirect, head: &'h RequestHead, scheme: &str, new_scheme: &str) -> &'h [u8] {
    let authority = head.authority();
    let (host, port) = split_port(authority);
    let was_default = matches!((scheme, port), ("http", Some(b"80")) | ("https", Some(b"443")));
    let drop_port = redirect.port.is_some() || (new_scheme != scheme && was_default);
    if drop_port { host } else { authority }
}

fn push_path(redirect: &Redirect, rewritten: Option<&[u8]>, head: &RequestHead, out: &mut Vec<u8>) {
    let start = out.len();
    let path = head.path();
    match &redirect.path {
        RedirectPath::Replace(text) if text.contains('?') => {
            out.extend_from_slice(text.as_bytes());
            return;
        }
        RedirectPath::Replace(text) if !text.is_empty() => {
            out.extend_from_slice(text.as_bytes());
            out.extend_from_slice(path.get(without_query(path).len()..).unwrap_or_default());
        }
        _ => out.extend_from_slice(rewritten.unwrap_or(path)),
    }
    if redirect.strip_query {
        let kept = without_query(out.get(start..).unwrap_or_default()).len();
        out.truncate(start + kept);
    }
}

#[cfg(test)]
mod tests {
    use postrider_model::{PathMatch, Regex};

    use super::*;
    use crate::table::tests::{head, route};

    fn keep() -> Redirect {
        Redirect { status: 301, scheme: None, host: None, port: None, path: RedirectPath::Keep, strip_query: false }
    }

    fn location(redirect: &Redirect, prefix: &str, host: &str, path: &str, scheme: &str) -> String {
        let mut out = Vec::new();
        let lines = [("x-forwarded-proto", scheme)];
        let (route, head) = (route(PathMatch::Prefix(prefix.into())), head("GET", host, path, &lines));
        let rewritten = rewritten_by_redirect(redirect, Some(&route), &head);
        redirect_location(redirect, rewritten.as_deref(), &head, scheme, &mut out);
        String::from_utf8(out).unwrap()
    }

    /// Such redirects are those of filters, for requests that no route took.
    #[test]
    fn without_a_route_a_regex_rewrites_and_a_prefix_does_not() {
        let head = head("GET", "rd", "/old/x?q", &[]);
        let pattern = Regex::new("/old").unwrap();
        let regex = Redirect { path: RedirectPath::Regex { pattern, substitution: "/new".into() }, ..keep() };
        let prefix = Redirect { path: RedirectPath::Prefix("/new".into()), ..keep() };
        assert_eq!(rewritten_by_redirect(&regex, None, &head).as_deref(), Some(&b"/new/x?q"[..]));
        assert_eq!(rewritten_by_redirect(&prefix, None, &head), None);
    }

    /// Each row was observed on the proxy whose meaning this is.
    #[test]
    fn scheme_host_and_port() {
        let https = Redirect { scheme: Some(RedirectScheme::Https), ..keep() };
        let ftp = Redirect { scheme: Some(RedirectScheme::Named("ftp".into())), ..keep() };
        let capitals = Redirect { scheme: Some(RedirectScheme::Named("HTTP".into())), ..keep() };
        let host = Redirect { host: Some("new.host".into()), ..keep() };
        let port = Redirect { port: Some(8443), ..keep() };
        let all = Redirect { host: Some("new.host".into()), port: Some(8443), ..https.clone() };
        for (redirect, host, path, scheme, want) in [
            (&https, "rd", "/https/x?y=1", "http", "https://rd/https/x?y=1"),
            (&https, "rd:80", "/x", "http", "https://rd/x"),
            (&https, "rd:8080", "/x", "http", "https://rd:8080/x"),
            (&https, "rd:443", "/x", "http", "https://rd:443/x"),
            (&https, "[::2]:80", "/x", "http", "https://[::2]/x"),
            (&https, "rd:443", "/x", "https", "https://rd:443/x"),
            (&https, "RD:80", "/x", "http", "https://RD/x"),
            (&ftp, "rd:80", "/x?a", "http", "ftp://rd/x?a"),
            (&capitals, "rd:80", "/x", "http", "HTTP://rd/x"),
            (&capitals, "rd:443", "/x", "https", "HTTP://rd/x"),
            (&host, "rd:80", "/host", "http", "http://new.host/host"),
            (&port, "rd:80", "/x", "http", "http://rd:8443/x"),
            (&port, "rd:8080", "/x?x", "http", "http://rd:8443/x?x"),
            (&port, "[::2]:80", "/x", "http", "http://[::2]:8443/x"),
            (&port, "[::2]", "/x", "http", "http://[::2]:8443/x"),
            (&all, "rd", "/hp", "http", "https://new.host:8443/hp"),
            (&keep(), "rd:80", "/x", "http", "http://rd:80/x"),
            (&keep(), "rd:443", "/x", "https", "https://rd:443/x"),
        ] {
            assert_eq!(location(redirect, "/", host, path, scheme), want, "{redirect:?} {host}{path}");
        }
    }

    /// Each row was observed on the proxy whose meaning this is.
    #[test]
    fn path_and_query() {
        let replace = |text: &str| RedirectPath::Replace(text.into());
        let prefix = |text: &str| RedirectPath::Prefix(text.into());
        let regex = RedirectPath::Regex { pattern: Regex::new("/rx/(a+)").unwrap(), substitution: r"/\1-\0\\".into() };
        for (rewrite, strip_query, matched, path, want) in [
            (replace("/new"), false, "/", "/path?x=2", "/new?x=2"),
            (replace("/new?x=1"), true, "/", "/pq?y", "/new?x=1"),
            (replace("/new"), true, "/", "/ps?y=1", "/new"),
            (replace("new"), false, "/", "/prel?z", "/new?z"),
            (prefix("/"), false, "/pre/", "/pre/a/b?c", "/a/b?c"),
            (prefix("/zz"), true, "/prf", "/prfoo?c", "/zzoo"),
            (prefix("/zz?a=1"), false, "/prq", "/prq/x?c=1", "/zz?a=1/x?c=1"),
            (prefix("/zz?a=1"), true, "/prs", "/prs/x?c=1", "/zz"),
            (regex, false, "/rx", "/rx/aaab?q=/rx/a", r"/aaa-/rx/aaa\b?q=/rx/a"),
            (RedirectPath::Keep, true, "/", "/keep?x", "/keep"),
        ] {
            let redirect = Redirect { path: rewrite, strip_query, ..keep() };
            assert_eq!(location(&redirect, matched, "rd", path, "http"), format!("http://rd{want}"), "{path}");
        }
    }
}
