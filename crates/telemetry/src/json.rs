//! Strings as JSON (RFC 8259, section 7), written into a buffer that the caller keeps.

/// Appends `text` between quotes, escaped. One that is not UTF-8 is written byte by byte, each as the character of its
/// number, as in Envoy: JSON has no way to carry bytes, and which they were can be told from that.
pub fn write_string(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    write_escaped(text, out);
    out.push(b'"');
}

/// Appends `text` as it would stand between quotes.
pub fn write_escaped(text: &[u8], out: &mut Vec<u8>) {
    let is_valid = std::str::from_utf8(text).is_ok();
    let mut rest = text;
    let escapes = |byte: &u8| matches!(byte, 0..=0x1f | b'"' | b'\\' | 0x7f) || !is_valid && !byte.is_ascii();
    while let Some(at) = rest.iter().position(escapes) {
        let (clean, tail) = rest.split_at(at);
        out.extend_from_slice(clean);
        let Some((&byte, tail)) = tail.split_first() else { return };
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            _ => {
                let digit = |nibble: u8| if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 };
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
            }
        }
        rest = tail;
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(text: &[u8]) -> String {
        let mut out = Vec::new();
        write_string(text, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn escapes_what_json_forbids() {
        assert_eq!(quoted(b"plain"), r#""plain""#);
        assert_eq!(quoted(b"a\"b\\c\n\r\t\x08\x0c\x00\x1f\x7f"), r#""a\"b\\c\n\r\t\b\f\u0000\u001f\u007f""#);
        assert_eq!(quoted("grün €".as_bytes()), "\"grün €\"");
        assert_eq!(quoted(b""), r#""""#);
    }

    #[test]
    fn bytes_outside_utf8_can_still_be_told() {
        assert_eq!(quoted(b"a\xffb\xc3\xa9"), r#""a\u00ffb\u00c3\u00a9""#);
    }
}
