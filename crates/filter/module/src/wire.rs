//! Messages that modules hand over in protobuf's wire format: `google.protobuf.Struct` and `google.protobuf.Any`.

use postrider_model::Value;

/// Deepest nesting of a value, as protobuf's own readers have it.
const MAX_DEPTH: usize = 100;

/// A field of a message.
enum Part<'a> {
    Number(u64),
    Fixed64([u8; 8]),
    Bytes(&'a [u8]),
    /// Of four bytes, which no field here has.
    Other,
}

/// The entries of a `Struct`; `None` when it is none.
pub(crate) fn fields(message: &[u8]) -> Option<Vec<(String, Value)>> {
    entries(message, MAX_DEPTH)
}

/// The type and the bytes of what an `Any` holds; `None` when it is none.
pub(crate) fn any(mut message: &[u8]) -> Option<(&str, &[u8])> {
    let (mut kind, mut value): (&str, &[u8]) = ("", &[]);
    while !message.is_empty() {
        match next(&mut message)? {
            (1, Part::Bytes(bytes)) => kind = text(bytes)?,
            (2, Part::Bytes(bytes)) => value = bytes,
            _ => {}
        }
    }
    Some((kind, value))
}

fn entries(mut message: &[u8], depth: usize) -> Option<Vec<(String, Value)>> {
    let mut all: Vec<(String, Value)> = Vec::new();
    while !message.is_empty() {
        let (1, Part::Bytes(mut entry)) = next(&mut message)? else { continue };
        let (mut key, mut value) = (String::new(), Value::Null);
        while !entry.is_empty() {
            match next(&mut entry)? {
                (1, Part::Bytes(bytes)) => key = text(bytes)?.to_owned(),
                (2, Part::Bytes(bytes)) => value = one(bytes, depth.checked_sub(1)?)?,
                _ => {}
            }
        }
        match all.iter_mut().find(|(known, _)| *known == key) {
            Some((_, old)) => *old = value,
            None => all.push((key, value)),
        }
    }
    Some(all)
}

/// A `Value`; one that says nothing is null.
fn one(mut message: &[u8], depth: usize) -> Option<Value> {
    let mut value = Value::Null;
    while !message.is_empty() {
        value = match next(&mut message)? {
            (1, Part::Number(_)) => Value::Null,
            (2, Part::Fixed64(bytes)) => Value::Number(f64::from_le_bytes(bytes)),
            (3, Part::Bytes(bytes)) => Value::String(text(bytes)?.to_owned()),
            (4, Part::Number(truth)) => Value::Bool(truth != 0),
            (5, Part::Bytes(bytes)) => Value::Map(entries(bytes, depth)?),
            (6, Part::Bytes(bytes)) => Value::List(list(bytes, depth)?),
            _ => value,
        };
    }
    Some(value)
}

fn list(mut message: &[u8], depth: usize) -> Option<Vec<Value>> {
    let mut all = Vec::new();
    while !message.is_empty() {
        if let (1, Part::Bytes(bytes)) = next(&mut message)? {
            all.push(one(bytes, depth.checked_sub(1)?)?);
        }
    }
    Some(all)
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// Takes the next field off: its number and what it holds.
fn next<'a>(message: &mut &'a [u8]) -> Option<(u64, Part<'a>)> {
    let tag = varint(message)?;
    let part = match tag & 7 {
        0 => Part::Number(varint(message)?),
        1 => Part::Fixed64(take(message, 8)?.try_into().ok()?),
        2 => {
            let length = varint(message)?;
            Part::Bytes(take(message, usize::try_from(length).ok()?)?)
        }
        5 => {
            take(message, 4)?;
            Part::Other
        }
        _ => return None,
    };
    let number = tag >> 3;
    (number > 0).then_some((number, part))
}

fn take<'a>(message: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = message.split_at_checked(length)?;
    *message = rest;
    Some(taken)
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for at in 0..10 {
        let (byte, rest) = message.split_first()?;
        *message = rest;
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `{"a": 1.5, "l": ["x", null], "s": {"b": true}}`, as protobuf's own library writes it.
    const STRUCT: &[u8] = b"\x0a\x0e\x0a\x01a\x12\x09\x11\0\0\0\0\0\0\xf8\x3f\
        \x0a\x10\x0a\x01l\x12\x0b\x32\x09\x0a\x03\x1a\x01x\x0a\x02\x08\0\
        \x0a\x10\x0a\x01s\x12\x0b\x2a\x09\x0a\x07\x0a\x01b\x12\x02\x20\x01";

    #[test]
    fn structs_are_read_with_all_that_is_in_them() {
        let text = |text: &str| text.to_owned();
        let wanted = vec![
            (text("a"), Value::Number(1.5)),
            (text("l"), Value::List(vec![Value::String(text("x")), Value::Null])),
            (text("s"), Value::Map(vec![(text("b"), Value::Bool(true))])),
        ];
        assert_eq!(fields(STRUCT), Some(wanted));
        assert_eq!(fields(b""), Some(Vec::new()));
    }

    #[test]
    fn what_ends_early_or_goes_too_deep_is_none() {
        let whole = [16, 34, STRUCT.len()];
        for end in (1..STRUCT.len()).filter(|end| !whole.contains(end)) {
            assert_eq!(fields(&STRUCT[..end]), None, "{end}");
        }
        let nested = |depth: usize| {
            let mut value = vec![0x08, 0];
            for _ in 0..depth {
                let mut entry = vec![0x12];
                push(&mut entry, &value);
                let mut message = vec![0x0a];
                push(&mut message, &entry);
                value = vec![0x2a];
                push(&mut value, &message);
            }
            let mut entry = vec![0x12];
            push(&mut entry, &value);
            let mut message = vec![0x0a];
            push(&mut message, &entry);
            message
        };
        assert!(fields(&nested(MAX_DEPTH - 1)).is_some());
        assert!(fields(&nested(MAX_DEPTH)).is_none());
    }

    fn push(out: &mut Vec<u8>, bytes: &[u8]) {
        let mut length = bytes.len();
        while length > 0x7f {
            out.push(length as u8 & 0x7f | 0x80);
            length >>= 7;
        }
        out.push(length as u8);
        out.extend_from_slice(bytes);
    }

    #[test]
    fn an_any_is_its_type_and_its_bytes() {
        assert_eq!(any(b"\x0a\x01t\x12\x02\xff\0"), Some(("t", &b"\xff\0"[..])));
        assert_eq!(any(b""), Some(("", &b""[..])));
        assert_eq!(any(b"\x0a\x05t"), None);
        assert_eq!(any(b"nonsense"), None);
    }
}
