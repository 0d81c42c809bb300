//! Distinguished names as text, as OpenSSL prints them with `XN_FLAG_RFC2253`: the last part first, short attribute
//! names, and everything but plain ASCII escaped. Header and log readers compare this text, so it must be the same.

use crate::der::{self, Element, Reader};

const UTF8_STRING: u8 = 0x0c;
const NUMERIC_STRING: u8 = 0x12;
const PRINTABLE_STRING: u8 = 0x13;
const T61_STRING: u8 = 0x14;
const IA5_STRING: u8 = 0x16;
const VISIBLE_STRING: u8 = 0x1a;
const UNIVERSAL_STRING: u8 = 0x1c;
const BMP_STRING: u8 = 0x1e;

/// Attribute types with a short name of their own, by the content of their identifier.
const SHORT_NAMES: &[(&[u8], &str)] = &[
    (&[0x55, 4, 3], "CN"),
    (&[0x55, 4, 4], "SN"),
    (&[0x55, 4, 5], "serialNumber"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 9], "street"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x55, 4, 12], "title"),
    (&[0x55, 4, 13], "description"),
    (&[0x55, 4, 15], "businessCategory"),
    (&[0x55, 4, 17], "postalCode"),
    (&[0x55, 4, 41], "name"),
    (&[0x55, 4, 42], "GN"),
    (&[0x55, 4, 43], "initials"),
    (&[0x55, 4, 44], "generationQualifier"),
    (&[0x55, 4, 46], "dnQualifier"),
    (&[0x55, 4, 65], "pseudonym"),
    (&[0x55, 4, 97], "organizationIdentifier"),
    // 0.9.2342.19200300.100.1.1 and .25
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], "UID"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], "DC"),
    // 1.2.840.113549.1.9.1
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1], "emailAddress"),
];

/// `name` is the content of a Name (RFC 5280, 4.1.2.4). What cannot be read ends the text.
pub(crate) fn text(name: &[u8]) -> String {
    let mut sets = Vec::new();
    let mut reader = Reader::new(name);
    while let Some(mut set) = reader.inside(der::SET) {
        let mut attributes = Vec::new();
        while let Some(attribute) = set.inside(der::SEQUENCE).and_then(attribute) {
            attributes.push(attribute);
        }
        attributes.reverse();
        sets.push(attributes.join("+"));
    }
    sets.reverse();
    sets.join(",")
}

/// The text of every attribute of that kind, first things first.
pub(crate) fn values(name: &[u8], wanted: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let mut sets = Reader::new(name);
    while let Some(mut set) = sets.inside(der::SET) {
        while let Some(mut attribute) = set.inside(der::SEQUENCE) {
            if attribute.expect(der::OID) == Some(wanted) {
                found.extend(attribute.element().and_then(decoded));
            }
        }
    }
    found
}

fn attribute(mut parts: Reader<'_>) -> Option<String> {
    let kind = parts.expect(der::OID)?;
    let value = parts.element()?;
    let known = SHORT_NAMES.iter().find(|(oid, _)| *oid == kind).map(|(_, name)| *name);
    Some(match known {
        Some(name) => format!("{name}={}", shown(value)),
        None => format!("{}=#{}", dotted(kind), hex_upper(value.whole)),
    })
}

/// A string as escaped text; anything else as its DER in hexadecimal.
fn shown(value: Element<'_>) -> String {
    match decoded(value) {
        Some(text) => escaped(&text),
        None => format!("#{}", hex_upper(value.whole)),
    }
}

/// The text of a string of any kind. `None` for what is none.
pub(crate) fn decoded(value: Element<'_>) -> Option<String> {
    let bytes = value.content;
    match value.tag {
        UTF8_STRING => std::str::from_utf8(bytes).ok().map(str::to_owned),
        // The narrow strings are read as Latin-1, of which ASCII is the first half.
        NUMERIC_STRING | PRINTABLE_STRING | T61_STRING | IA5_STRING | VISIBLE_STRING => {
            Some(bytes.iter().map(|&it| char::from(it)).collect())
        }
        BMP_STRING => bytes
            .chunks(2)
            .map(|pair| match pair {
                [high, low] => char::from_u32(u32::from(u16::from_be_bytes([*high, *low]))),
                _ => None,
            })
            .collect(),
        UNIVERSAL_STRING => bytes
            .chunks(4)
            .map(|four| <[u8; 4]>::try_from(four).ok().and_then(|four| char::from_u32(u32::from_be_bytes(four))))
            .collect(),
        _ => None,
    }
}

/// RFC 2253, 2.4, and `\XX` for control characters and for each byte of what is not ASCII.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let last = text.len().wrapping_sub(1);
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';' => {
                out.push('\\');
                out.push(char::from(byte));
            }
            b'#' if index == 0 => out.push_str("\\#"),
            b' ' if index == 0 || index == last => out.push_str("\\ "),
            0x20..=0x7e => out.push(char::from(byte)),
            _ => out.push_str(&format!("\\{byte:02X}")),
        }
    }
    out
}

/// `1.2.840…`, from the content of an object identifier (X.690, 8.19).
pub(crate) fn dotted(oid: &[u8]) -> String {
    let mut numbers: Vec<u128> = Vec::new();
    let mut number = 0u128;
    for byte in oid {
        number = (number << 7) | u128::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            if numbers.is_empty() {
                let first = (number / 40).min(2);
                numbers.push(first);
                number -= first * 40;
            }
            numbers.push(number);
            number = 0;
        }
    }
    numbers.iter().map(u128::to_string).collect::<Vec<_>>().join(".")
}

fn hex_upper(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(tag: u8, content: &[u8]) -> Vec<u8> {
        let mut out = vec![tag, content.len() as u8];
        out.extend(content);
        out
    }

    fn part(oid: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
        wrapped(der::SEQUENCE, &[wrapped(der::OID, oid), wrapped(tag, value)].concat())
    }

    fn name(sets: &[&[Vec<u8>]]) -> Vec<u8> {
        sets.iter().flat_map(|set| wrapped(der::SET, &set.concat())).collect()
    }

    /// Each expectation is what `openssl x509 -subject -nameopt RFC2253` prints for the same name.
    #[test]
    fn names_are_shown_as_openssl_shows_them() {
        let cn = |value: &[u8]| part(&[0x55, 4, 3], UTF8_STRING, value);
        let country = part(&[0x55, 4, 6], PRINTABLE_STRING, b"GB");
        let unit = part(&[0x55, 4, 11], UTF8_STRING, b"Sales");
        for (sets, want) in [
            (name(&[std::slice::from_ref(&country), &[cn(b"Steve Kille")]]), "CN=Steve Kille,C=GB"),
            (name(&[&[unit, cn(b"J. Smith")], &[country]]), "C=GB,CN=J. Smith+OU=Sales"),
            (name(&[&[cn(b"Sue, Grabbit+Runn; \"a\" <b> \\")]]), r#"CN=Sue\, Grabbit\+Runn\; \"a\" \<b\> \\"#),
            (name(&[&[cn(b"#x ")]]), r"CN=\#x\ "),
            (name(&[&[cn(b" a b ")]]), r"CN=\ a b\ "),
            (name(&[&[cn("Lučić".as_bytes())]]), r"CN=Lu\C4\8Di\C4\87"),
            (name(&[&[cn(b"a\nb\x7f")]]), r"CN=a\0Ab\7F"),
            (name(&[&[part(&[0x55, 4, 3], BMP_STRING, &[0, b'h', 0x01, 0x0d])]]), r"CN=h\C4\8D"),
            (name(&[&[part(&[0x55, 4, 3], T61_STRING, &[0xe9])]]), r"CN=\C3\A9"),
            (name(&[&[part(&[0x2a, 3, 4], UTF8_STRING, b"x")]]), "1.2.3.4=#0C0178"),
            (name(&[]), ""),
        ] {
            assert_eq!(text(&sets), want);
        }
    }
}
