//! Named forms of text: addresses, hosts, URIs, header names.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Longest host name and longest label, RFC 1035 section 2.3.4.
const HOST_LENGTH: usize = 253;
const LABEL_LENGTH: usize = 63;

/// Whether a text has a form, by the name that the rule has in the schema.
pub fn has_form(text: &str, form: &str) -> bool {
    match form {
        "ip" => text.parse::<IpAddr>().is_ok(),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "hostname" => is_hostname(text),
        "address" => text.parse::<IpAddr>().is_ok() || is_hostname(text),
        "email" => text.rsplit_once('@').is_some_and(|(local, host)| !local.is_empty() && is_hostname(host)),
        "uri" => is_uri(text),
        "uri_ref" => !text.chars().any(|c| c.is_control() || c == ' '),
        "uuid" => is_uuid(text),
        _ => true,
    }
}

/// A form in words, with its article.
pub fn in_words(form: &str) -> &'static str {
    match form {
        "ip" => "an IP address",
        "ipv4" => "an IPv4 address",
        "ipv6" => "an IPv6 address",
        "hostname" => "a host name",
        "address" => "a host name or an IP address",
        "email" => "an e-mail address",
        "uri" => "an absolute URI",
        "uri_ref" => "a URI or a path",
        _ => "a UUID",
    }
}

/// `well_known_regex` of the schema: a strict name is a token (with a leading `:` for pseudo-headers).
pub fn is_header(text: &str, name: bool, strict: bool) -> bool {
    match (name, strict) {
        (_, false) => !text.contains(['\0', '\n', '\r']),
        (true, true) => {
            let token = text.strip_prefix(':').unwrap_or(text);
            !token.is_empty() && token.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_|~`".contains(&b))
        }
        (false, true) => text.chars().all(|c| c == '\t' || (c >= ' ' && c != '\u{7f}')),
    }
}

fn is_hostname(text: &str) -> bool {
    let text = text.strip_suffix('.').unwrap_or(text);
    let label = |label: &str| {
        (1..=LABEL_LENGTH).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    text.len() <= HOST_LENGTH && text.split('.').all(label)
}

fn is_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
        && !rest.is_empty()
        && !rest.chars().any(|c| c.is_control() || c == ' ')
}

fn is_uuid(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
        && groups.concat().bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        for (form, yes, no) in [
            ("ip", "::1", "localhost"),
            ("ipv4", "10.0.0.1", "::1"),
            ("ipv6", "::1", "10.0.0.1"),
            ("hostname", "a-b.example", "a_b"),
            ("address", "10.0.0.1", "a b"),
            ("email", "a@b.c", "a.b"),
            ("uri", "https://a/b", "/b"),
            ("uri_ref", "/b", "a b"),
            ("uuid", "01234567-89ab-cdef-0123-456789abcdef", "01234567"),
        ] {
            assert!(has_form(yes, form), "{form} {yes}");
            assert!(!has_form(no, form), "{form} {no}");
        }
        assert!(is_header("x-a", true, true) && is_header(":path", true, true) && !is_header("a b", true, true));
        assert!(is_header("a b", true, false) && !is_header("a\nb", true, false));
        assert!(is_header("a\tb", false, true) && !is_header("a\u{1}b", false, true));
    }
}
