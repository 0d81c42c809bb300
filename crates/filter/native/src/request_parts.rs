//! Parts of a request's head that several filters look at: headers by any name, parameters of the query, cookies, the URI.

use std::borrow::Cow;

use postrider_http::{Fields, HeaderId, Method, RequestHead, Scheme};
use postrider_model::HeaderMatch;

/// Of a longer path only this much is named in a challenge.
pub(crate) const MAX_REALM_PATH: usize = 256;

/// Whether the request meets all conditions.
pub(crate) fn matches_headers(rules: &[HeaderMatch], request: &RequestHead) -> bool {
    rules.iter().all(|rule| {
        let lines: Vec<_> = header(request, &rule.name).into_iter().map(String::from_utf8_lossy).collect();
        rule.matches(&lines.iter().map(|line| &**line).collect::<Vec<_>>())
    })
}

/// The values of a header's lines; of the parts of the head that HTTP/2 calls headers as well.
pub(crate) fn header<'r>(request: &'r RequestHead, name: &str) -> Vec<&'r [u8]> {
    match name {
        ":method" => vec![request.method_bytes()],
        ":path" => has_path(request).then(|| request.path()).into_iter().collect(),
        ":authority" => vec![request.authority()],
        ":scheme" => request.scheme().map(|scheme| scheme.as_str().as_bytes()).into_iter().collect(),
        name => request.fields.get_all_name(name.as_bytes()).collect(),
    }
}

/// A CONNECT names a host, and nothing of it.
pub(crate) fn has_path(request: &RequestHead) -> bool {
    request.method() != Method::Connect || !request.path().is_empty()
}

/// The first value of a query parameter, decoded; one without `=` has an empty value.
pub(crate) fn parameter(request: &RequestHead, name: &str) -> Option<String> {
    let query = request.query()?;
    let mut pairs = query.split(|byte| *byte == b'&').map(key_and_value);
    let (_, value) = pairs.find(|(key, _)| decoded(key) == name.as_bytes())?;
    Some(String::from_utf8_lossy(&decoded(value)).into_owned())
}

/// The same as it was sent, neither name nor value decoded: rules compare it so, as routes do.
pub(crate) fn raw_parameter(request: &RequestHead, name: &str) -> Option<String> {
    let mut pairs = request.query()?.split(|byte| *byte == b'&').map(key_and_value);
    let (_, value) = pairs.find(|(key, _)| *key == name.as_bytes())?;
    Some(String::from_utf8_lossy(value).into_owned())
}

/// The path without these parameters of its query; the others stay as they are.
pub(crate) fn without_parameters(path: &[u8], names: &[&str]) -> Vec<u8> {
    let Some(at) = path.iter().position(|byte| *byte == b'?') else { return path.to_vec() };
    let (bare, query) = path.split_at(at);
    let is_gone = |pair: &[u8]| {
        let key = decoded(key_and_value(pair).0);
        names.iter().any(|name| *key == *name.as_bytes())
    };
    let pairs = query.get(1..).unwrap_or_default().split(|byte| *byte == b'&');
    let kept: Vec<&[u8]> = pairs.filter(|pair| !is_gone(pair)).collect();
    match kept.iter().all(|pair| pair.is_empty()) {
        true => bare.to_vec(),
        false => [bare, b"?", &kept.join(&b'&')].concat(),
    }
}

/// The value of the first cookie of that name.
pub(crate) fn cookie(request: &RequestHead, name: &str) -> Option<String> {
    cookie_of(&request.fields, name)
}

/// The same among any fields.
pub(crate) fn cookie_of(fields: &Fields, name: &str) -> Option<String> {
    let pairs = fields.get_all(HeaderId::Cookie).flat_map(|line| line.split(|byte| *byte == b';'));
    let mut named = pairs.map(<[u8]>::trim_ascii).filter(|pair| pair.contains(&b'=')).map(key_and_value);
    let (_, value) = named.find(|(key, _)| *key == name.as_bytes())?;
    let bare = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
    Some(String::from_utf8_lossy(bare).into_owned())
}

/// Takes every cookie of that name out of the request.
pub(crate) fn remove_cookie(request: &mut RequestHead, name: &str) {
    let lines: Vec<Vec<u8>> = request.fields.get_all(HeaderId::Cookie).map(<[u8]>::to_vec).collect();
    request.fields.remove(HeaderId::Cookie);
    let is_other = |pair: &&[u8]| !(pair.contains(&b'=') && key_and_value(pair).0 == name.as_bytes());
    for line in lines {
        let pairs = line.split(|byte| *byte == b';').map(<[u8]>::trim_ascii).filter(|pair| !pair.is_empty());
        let kept: Vec<&[u8]> = pairs.filter(is_other).collect();
        if !kept.is_empty() {
            // Parts of what was a value are one.
            let _ = request.fields.append(HeaderId::Cookie, &kept.join(&b"; "[..]));
        }
    }
}

/// The URI that the client asked for, as what a quoted string may hold (RFC 9110 section 5.6.4). Empty where it named a host
/// alone, as in Envoy.
pub(crate) fn quotable_uri(request: &RequestHead) -> Vec<u8> {
    if request.path().is_empty() {
        return Vec::new();
    }
    let fields = &request.fields;
    let scheme = match request.scheme() {
        Some(scheme) => scheme.as_str().as_bytes(),
        None => fields.get(HeaderId::XForwardedProto).unwrap_or(Scheme::Http.as_str().as_bytes()),
    };
    let path = fields.get(HeaderId::XEnvoyOriginalPath).unwrap_or(request.path());
    let path = path.get(..MAX_REALM_PATH).unwrap_or(path);
    quoted([scheme, b"://", request.authority(), path].into_iter().flatten().copied())
}

/// As it stands in a quoted string (RFC 9110 5.6.4), without the quotes around it.
pub(crate) fn quoted(text: impl Iterator<Item = u8>) -> Vec<u8> {
    let mut out = Vec::new();
    for byte in text {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out
}

/// Percent-encoded bytes as what they stand for.
pub(crate) fn decoded(bytes: &[u8]) -> Cow<'_, [u8]> {
    if !bytes.contains(&b'%') {
        return Cow::Borrowed(bytes);
    }
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((first, tail)) = rest.split_first() {
        let digits = (*first == b'%').then(|| tail.get(..2)).flatten();
        let byte = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        out.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { tail.get(2..).unwrap_or_default() } else { tail };
    }
    Cow::Owned(out)
}

pub(crate) fn key_and_value(pair: &[u8]) -> (&[u8], &[u8]) {
    let at = pair.iter().position(|byte| *byte == b'=');
    let split = at.and_then(|at| Some((pair.get(..at)?, pair.get(at + 1..)?)));
    split.unwrap_or((pair, b""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::request;

    #[test]
    fn a_cookie_is_found_among_others() {
        let stream = request("/", &[("cookie", "a=1; b=\"x y\";c"), ("cookie", "b=2; d=3=4")]);
        let find = |name: &str| cookie(&stream.request, name);
        assert_eq!(find("a").as_deref(), Some("1"));
        assert_eq!(find("b").as_deref(), Some("x y"));
        assert_eq!(find("d").as_deref(), Some("3=4"));
        assert_eq!((find("c"), find("A")), (None, None));
    }

    #[test]
    fn a_cookie_is_taken_out_and_the_others_stay() {
        let mut stream = request("/", &[("cookie", "a=1; b=2;c"), ("cookie", "b=3")]);
        remove_cookie(&mut stream.request, "b");
        assert_eq!(crate::testing::lines(&stream.request.fields), ["cookie: a=1; c"]);
    }

    #[test]
    fn parameters_are_taken_out_and_the_others_stay_as_they_are() {
        let text = |path: &str| String::from_utf8(without_parameters(path.as_bytes(), &["k"])).unwrap();
        assert_eq!(text("/p?z=1&k=2&a=%26+&k"), "/p?z=1&a=%26+");
        assert_eq!(text("/p?%6b=2"), "/p");
        assert_eq!((text("/p?k=1&"), text("/p?&k=1&&a")), ("/p".to_owned(), "/p?&&a".to_owned()));
        assert_eq!(text("/p"), "/p");
    }

    #[test]
    fn a_request_for_a_tunnel_has_no_uri() {
        let mut tunnel = RequestHead::new();
        tunnel.set_method(b"CONNECT").unwrap();
        tunnel.set_authority(b"h.test:443").unwrap();
        assert_eq!(quotable_uri(&tunnel), b"");
        assert_eq!(quotable_uri(&request("/p?a=\"", &[]).request), b"http://x/p?a=\\\"");
    }
}
