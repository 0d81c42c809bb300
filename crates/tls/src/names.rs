//! Subject alternative names (RFC 5280, 4.2.1.6), and when one fits.

use std::net::IpAddr;

use postrider_model::{NameKind, NameMatch, StringKind};

use crate::der::{self, Element, Reader};
use crate::distinguished;
use crate::x509::{X509, oid};

/// One name, of the kinds that anybody asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AltName<'a> {
    Dns(&'a str),
    Uri(&'a str),
    Email(&'a str),
    Ip(IpAddr),
    /// Of a kind of its own (`otherName`), by its identifier with dots; the value as text.
    Other(String, String),
}

impl std::fmt::Display for AltName<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AltName::Dns(text) | AltName::Uri(text) | AltName::Email(text) => f.write_str(text),
            AltName::Ip(address) => address.fmt(f),
            AltName::Other(_, value) => f.write_str(value),
        }
    }
}

/// The tag of an `otherName`.
const OTHER: u8 = der::context(0);

/// The names of a certificate in its own order; names of other kinds and text that is not UTF-8 are left out.
pub(crate) fn of<'a>(certificate: &X509<'a>) -> Vec<AltName<'a>> {
    let list = certificate.extension(oid::SUBJECT_ALT_NAME).and_then(|it| Reader::new(it).inside(der::SEQUENCE));
    let Some(mut list) = list else { return Vec::new() };
    let mut names = Vec::new();
    while let Some(name) = list.element() {
        let text = std::str::from_utf8(name.content).ok();
        names.extend(match name.tag {
            0x81 => text.map(AltName::Email),
            0x82 => text.map(AltName::Dns),
            0x86 => text.map(AltName::Uri),
            0x87 => address(name.content).map(AltName::Ip),
            OTHER => other(name).map(|(kind, value)| AltName::Other(kind, value)),
            _ => None,
        });
    }
    names
}

/// Names of a kind of their own: the kind's identifier, and the value.
pub(crate) fn others(certificate: &X509<'_>) -> Vec<(String, String)> {
    let pair = |name| match name {
        AltName::Other(kind, value) => Some((kind, value)),
        _ => None,
    };
    of(certificate).into_iter().filter_map(pair).collect()
}

/// `OtherName` is a SEQUENCE with a tag of its own: which kind, and `[0]` with the value in it. Text, numbers, truth values
/// and identifiers are told as text; `None` for anything else.
fn other(name: Element<'_>) -> Option<(String, String)> {
    let mut parts = Reader::new(name.content);
    let kind = distinguished::dotted(parts.expect(der::OID)?);
    let value = parts.inside(der::context(0))?.element()?;
    let value = match value.tag {
        der::BOOLEAN => (value.content != [0]).to_string(),
        der::INTEGER => integer(value.content)?.to_string(),
        der::OID => distinguished::dotted(value.content),
        _ => distinguished::decoded(value)?,
    };
    Some((kind, value))
}

/// `None` for one of more than 16 bytes.
fn integer(bytes: &[u8]) -> Option<i128> {
    let negative = bytes.first()? & 0x80 != 0;
    let start = if negative { -1 } else { 0 };
    (bytes.len() <= 16).then(|| bytes.iter().fold(start, |number: i128, byte| (number << 8) | i128::from(*byte)))
}

/// Whether one of `names` meets `rule`.
pub(crate) fn meets(rule: &NameMatch, names: &[AltName<'_>]) -> bool {
    names.iter().any(|name| match (&rule.kind, name) {
        (NameKind::Dns, AltName::Dns(pattern)) => match &rule.value.kind {
            StringKind::Exact(wanted) => covers(pattern, wanted),
            _ => rule.value.matches(pattern),
        },
        (NameKind::Uri, AltName::Uri(text)) | (NameKind::Email, AltName::Email(text)) => rule.value.matches(text),
        (NameKind::Ip, AltName::Ip(address)) => match &rule.value.kind {
            // An address has more than one way to be written.
            StringKind::Exact(wanted) if wanted.parse() == Ok(*address) => true,
            _ => rule.value.matches(address.to_string()),
        },
        (NameKind::Other(wanted), AltName::Other(kind, value)) => kind == wanted && rule.value.matches(value),
        _ => false,
    })
}

/// Whether a name in a certificate covers `host`: the same, or with a `*` in its first label only, which stands for one
/// label or a part of one (RFC 6125, 6.4.3; Envoy reads `w*.example.com` so, too). Case does not matter.
pub(crate) fn covers(pattern: &str, host: &str) -> bool {
    if pattern.eq_ignore_ascii_case(host) {
        return true;
    }
    let (Some((label, rest)), Some((host_label, host_rest))) = (pattern.split_once('.'), host.split_once('.')) else {
        return false;
    };
    let Some((before, after)) = label.split_once('*') else { return false };
    let label_fits = !after.contains('*')
        // Part of an A-label means nothing.
        && !starts_with(label, "xn--")
        && !host_label.is_empty()
        && host_label.len() + 1 >= label.len()
        && starts_with(host_label, before)
        && ends_with(host_label, after);
    label_fits && !rest.contains('*') && rest.eq_ignore_ascii_case(host_rest)
}

/// Whether a name is the one that is wanted, whatever its kind.
pub(crate) fn is(name: &AltName<'_>, wanted: &str) -> bool {
    match name {
        AltName::Dns(pattern) => covers(pattern, wanted),
        AltName::Uri(text) | AltName::Email(text) => *text == wanted,
        AltName::Ip(address) => wanted.parse() == Ok(*address),
        AltName::Other(_, value) => value == wanted,
    }
}

fn starts_with(text: &str, head: &str) -> bool {
    text.as_bytes().get(..head.len()).is_some_and(|it| it.eq_ignore_ascii_case(head.as_bytes()))
}

fn ends_with(text: &str, tail: &str) -> bool {
    let start = text.len().checked_sub(tail.len());
    start.and_then(|start| text.as_bytes().get(start..)).is_some_and(|it| it.eq_ignore_ascii_case(tail.as_bytes()))
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_model::{Regex, StringMatch};

    #[test]
    fn a_wildcard_covers_one_label() {
        for (pattern, host, want) in [
            ("a.example", "a.example", true),
            ("A.Example", "a.eXample", true),
            ("*.example", "a.example", true),
            ("*.example", "a.b.example", false),
            ("*.example", "example", false),
            ("*.example", ".example", false),
            ("w*.example", "www.example", true),
            ("w*w.example", "ww.example", true),
            ("w*w.example", "w.example", false),
            ("*.*.example", "a.b.example", false),
            ("a.*.example", "a.b.example", false),
            ("xn--*.example", "xn--a.example", false),
            ("*", "example", false),
            ("*.com", "example.com", true),
            ("b.example", "a.example", false),
            // What a C string would end with.
            ("a.example\0.evil", "a.example", false),
        ] {
            assert_eq!(covers(pattern, host), want, "{pattern} {host}");
        }
    }

    #[test]
    fn names_of_a_kind_of_their_own_are_told_as_text() {
        let other = |value: &[u8]| {
            let explicit = [&[der::context(0), u8::try_from(value.len()).unwrap()][..], value].concat();
            let content = [&[der::OID, 2, 0x2a, 3][..], &explicit].concat();
            super::other(Element { tag: der::context(0), content: &content, whole: &[] })
        };
        for (value, want) in [
            (&[0x0c, 2, b'h', b'i'][..], Some("hi")),
            (&[der::BOOLEAN, 1, 0xff], Some("true")),
            (&[der::INTEGER, 2, 0x12, 0x67], Some("4711")),
            (&[der::INTEGER, 1, 0xfe], Some("-2")),
            (&[der::INTEGER, 0], None),
            (&[der::INTEGER, 17, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], None),
            (&[der::OID, 3, 0x2a, 0x86, 0x48], Some("1.2.840")),
            (&[der::OCTET_STRING, 1, 1], None),
            (&[], None),
        ] {
            let want = want.map(|want| ("1.2.3".to_owned(), want.to_owned()));
            assert_eq!(other(value), want, "{value:02x?}");
        }
    }

    #[test]
    fn rules_meet_names_of_their_kind_only() {
        let names = [
            AltName::Dns("*.example"),
            AltName::Uri("spiffe://td/a"),
            AltName::Email("a@b.example"),
            AltName::Ip("fd00::1".parse().unwrap()),
            AltName::Other("1.2.3".into(), "hi".into()),
        ];
        let rule = |kind, value| NameMatch { kind, value: StringMatch { kind: value, ignore_case: false } };
        let exact = |text: &str| StringKind::Exact(text.to_owned());
        for (kind, value, want) in [
            (NameKind::Dns, exact("www.example"), true),
            (NameKind::Dns, exact("www.other"), false),
            (NameKind::Dns, StringKind::Suffix(".example".into()), true),
            (NameKind::Uri, exact("spiffe://td/a"), true),
            (NameKind::Uri, StringKind::Prefix("spiffe://td/".into()), true),
            (NameKind::Uri, StringKind::Regex(Regex::new("spiffe://[a-z]+/a").unwrap()), true),
            (NameKind::Uri, exact("a@b.example"), false),
            (NameKind::Email, StringKind::Contains("@b".into()), true),
            (NameKind::Ip, exact("fd00:0::1"), true),
            (NameKind::Ip, exact("fd00::2"), false),
            (NameKind::Ip, StringKind::Prefix("fd00:".into()), true),
            (NameKind::Other("1.2.3".into()), exact("hi"), true),
            (NameKind::Other("1.2.3".into()), exact("ho"), false),
            (NameKind::Other("1.2.4".into()), exact("hi"), false),
        ] {
            assert_eq!(meets(&rule(kind.clone(), value.clone()), &names), want, "{kind:?} {value:?}");
        }
    }
}
