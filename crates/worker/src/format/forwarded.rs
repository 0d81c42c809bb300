//! What `x-forwarded-client-cert` says: elements with commas between them, each of pairs with semicolons between them.

/// Appends the value of the first pair with this key; `None` where there is none, or quotes are left open before it.
pub(super) fn value(field: &[u8], key: &str, out: &mut Vec<u8>) -> Option<()> {
    // What is wanted is the leftmost element's: its order among the pairs is that of the field.
    let mut rest = field;
    while !rest.is_empty() {
        let end = pair_end(rest)?;
        let (pair, tail) = rest.split_at(end);
        if let Some(at) = pair.iter().position(|byte| *byte == b'=')
            && let (name, value) = pair.split_at(at)
            && name.trim_ascii().eq_ignore_ascii_case(key.as_bytes())
        {
            let value = value.get(1..).unwrap_or_default().trim_ascii();
            let quoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
            unescape(quoted.unwrap_or(value), out);
            return Some(());
        }
        rest = tail.get(1..).unwrap_or_default();
    }
    None
}

/// Where the pair ends that `text` begins with; `None` within quotes.
fn pair_end(text: &[u8]) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'"' if !escaped => quoted = !quoted,
            b',' | b';' if !quoted => return Some(at),
            _ => {}
        }
        escaped = *byte == b'\\' && !escaped;
    }
    (!quoted).then_some(text.len())
}

/// Quotes and backslashes have a backslash before them.
fn unescape(text: &[u8], out: &mut Vec<u8>) {
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        if let (b'\\', [next @ (b'"' | b'\\'), after @ ..]) = (first, tail) {
            out.push(*next);
            rest = after;
        } else {
            out.push(*first);
            rest = tail;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_element_with_the_key_counts() {
        let of = |field: &str, key: &str| {
            let mut out = Vec::new();
            value(field.as_bytes(), key, &mut out).map(|()| String::from_utf8(out).unwrap())
        };
        let field = r#"By=b;Hash=h1; URI = spiffe://a ;Subject="CN=x,O=\"q;\"";DNS=d1;DNS=d2,By=c;Hash=h2;Cert=c2"#;
        for (key, wanted) in [
            ("by", Some("b")),
            ("hash", Some("h1")),
            ("uri", Some("spiffe://a")),
            ("subject", Some(r#"CN=x,O="q;""#)),
            ("dns", Some("d1")),
            ("cert", Some("c2")),
            ("chain", None),
        ] {
            assert_eq!(of(field, key).as_deref(), wanted, "{key}");
        }
        assert_eq!(of("", "by"), None);
        assert_eq!(of(r#"Subject="a;By=b"#, "by"), None, "quotes are left open");
        assert_eq!(of("By=", "by").as_deref(), Some(""));
        assert_eq!(of(r"By=a\b", "by").as_deref(), Some(r"a\b"));
    }
}
