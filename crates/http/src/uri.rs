//! Absolute URIs, as redirects and configurations name places.

use crate::host::check_authority;
use crate::method::Scheme;

/// Scheme, authority and path with its query, of an absolute URI. What follows a `#` is for the client only.
pub fn absolute_uri(uri: &[u8]) -> Option<(Scheme, &[u8], Vec<u8>)> {
    let (scheme, rest) = if let Some(rest) = strip_no_case(uri, b"http://") {
        (Scheme::Http, rest)
    } else {
        (Scheme::Https, strip_no_case(uri, b"https://")?)
    };
    let rest = rest.split(|byte| *byte == b'#').next()?;
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end)?;
    if authority.is_empty() || check_authority(authority).is_err() {
        return None;
    }
    let mut whole = Vec::with_capacity(path.len() + 1);
    if path.first() != Some(&b'/') {
        whole.push(b'/');
    }
    whole.extend_from_slice(path);
    Some((scheme, authority, whole))
}

fn strip_no_case<'t>(text: &'t [u8], prefix: &[u8]) -> Option<&'t [u8]> {
    let (begin, rest) = text.split_at_checked(prefix.len())?;
    begin.eq_ignore_ascii_case(prefix).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_names_scheme_and_host_is_absolute() {
        let seen = |text: &str| {
            absolute_uri(text.as_bytes()).map(|(scheme, authority, path)| {
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                (scheme == Scheme::Https, text(authority), text(&path))
            })
        };
        assert_eq!(seen("http://a/b?c#d"), Some((false, "a".into(), "/b?c".into())));
        assert_eq!(seen("HTTPS://a:1"), Some((true, "a:1".into(), "/".into())));
        assert_eq!(seen("http://a?c"), Some((false, "a".into(), "/?c".into())));
        for bad in ["/b", "../b", "http://", "ftp://a/", "http:///x", "http://u@a/", ""] {
            assert_eq!(seen(bad), None, "{bad}");
        }
    }
}
