//! What else a header of version 2 says: types and values that follow the addresses (section 2.2).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_filter_api::Noted;
use postrider_model::{AddedTlvs, LogFormat, ProxyProtocol, Tlv, TlvMerge, TlvNote, TlvValue, Value};

use super::{FIXED_V2, SIGNATURE_V2};

/// The object of the filter state with the values that are noted there.
const STATE: &str = "envoy.network.proxy_protocol.tlv";

/// What is noted of the connection that begins with `header`, which was read and is good.
pub(crate) fn note(header: &[u8], rules: &ProxyProtocol) -> Noted {
    let mut noted = Noted { tlvs: Some(Vec::new()), ..Noted::default() };
    let mut state = Vec::new();
    for (kind, bytes) in each(header) {
        if rules.kept.includes(kind)
            && let Some(kept) = &mut noted.tlvs
        {
            kept.push(Tlv { kind, value: bytes.to_vec() });
        }
        let Some(rule) = rules.noted.iter().find(|rule| rule.kind == kind) else { continue };
        if rules.noted_in_state {
            put(&mut state, &rule.key, Value::String(text(rule, bytes)));
        } else {
            note_in_metadata(rule, bytes, &mut noted);
        }
    }
    if !state.is_empty() {
        noted.state.push((STATE.to_owned(), Value::Map(state)));
    }
    noted
}

/// TLVs for the upstream of a connection, whose header had `known`; formats are written by `write`.
pub(crate) fn merge(added: &AddedTlvs, known: Option<&[Tlv]>, write: impl Fn(&LogFormat, &mut Vec<u8>)) -> Vec<Tlv> {
    let value = |value: &TlvValue| match value {
        TlvValue::Fixed(bytes) => bytes.clone(),
        TlvValue::Format(format) => {
            let mut bytes = Vec::new();
            write(format, &mut bytes);
            bytes
        }
    };
    let own = added.entries.iter().map(|entry| Tlv { kind: entry.kind, value: value(&entry.value) });
    let is_own = |tlv: &&Tlv| added.entries.iter().any(|entry| entry.kind == tlv.kind);
    match (known, added.merge) {
        (None, _) => own.collect(),
        (Some(known), TlvMerge::OnlyAlone) => known.to_vec(),
        (Some(known), TlvMerge::Replace) => own.chain(known.iter().filter(|tlv| !is_own(tlv)).cloned()).collect(),
        (Some(known), TlvMerge::Append) => known.iter().cloned().chain(own).collect(),
    }
}

/// The first value of a type is the one of the metadata, and the last one of its bytes, as in Envoy.
fn note_in_metadata(rule: &TlvNote, bytes: &[u8], noted: &mut Noted) {
    let TlvNote { namespace, key, .. } = rule;
    if noted.metadata.get(namespace, key).is_none() {
        noted.metadata.set(namespace, key, Value::String(text(rule, bytes)));
    }
    noted.bytes.retain(|(of, name, _)| of != namespace || name != key);
    noted.bytes.push((namespace.clone(), key.clone(), bytes.to_vec()));
}

fn put(entries: &mut Vec<(String, Value)>, key: &str, value: Value) {
    match entries.iter_mut().find(|(known, _)| known == key) {
        Some((_, known)) => *known = value,
        None => entries.push((key.to_owned(), value)),
    }
}

fn text(rule: &TlvNote, bytes: &[u8]) -> String {
    if rule.base64 {
        return STANDARD.encode(bytes);
    }
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| '!'));
    }
    text
}

/// Types and values. None of a header of version 1, nor of one in which the proxy in front speaks for itself.
fn each(header: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut rest = content(header).unwrap_or_default();
    std::iter::from_fn(move || {
        let ([kind, high, low], after) = rest.split_first_chunk::<3>()?;
        let (value, next) = after.split_at_checked(usize::from(u16::from_be_bytes([*high, *low])))?;
        rest = next;
        Some((*kind, value))
    })
}

/// What follows the addresses.
fn content(header: &[u8]) -> Option<&[u8]> {
    let fixed = header.strip_prefix(SIGNATURE_V2)?;
    let addresses = match fixed.get(..2)? {
        [0x21, 0x11 | 0x12] => 12,
        [0x21, 0x21 | 0x22] => 36,
        _ => return None,
    };
    header.get(FIXED_V2 + addresses..)
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_model::{TlvChoice, TlvEntry};

    fn header(kind: u8, tlvs: &[(u8, &[u8])]) -> Vec<u8> {
        let mut content = vec![10, 1, 2, 3, 10, 4, 5, 6, 0, 1, 0, 2];
        for (kind, value) in tlvs {
            content.extend([*kind, 0, u8::try_from(value.len()).unwrap()]);
            content.extend_from_slice(value);
        }
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [SIGNATURE_V2, &[kind, 0x11], &length, &content].concat()
    }

    fn rule(kind: u8, key: &str, base64: bool) -> TlvNote {
        TlvNote { kind, namespace: "n".into(), key: key.into(), base64 }
    }

    fn rules(noted: Vec<TlvNote>) -> ProxyProtocol {
        ProxyProtocol { noted, kept: TlvChoice::Kinds(vec![1, 9]), ..ProxyProtocol::default() }
    }

    fn tlv(kind: u8, value: &[u8]) -> Tlv {
        Tlv { kind, value: value.to_vec() }
    }

    #[test]
    fn values_are_noted_as_text_and_kept_as_bytes() {
        let tlvs: &[(u8, &[u8])] =
            &[(1, b"one"), (1, b"two"), (2, b"\xff\xfe"), (3, b"x\xff\xe2\x82y\xc3\xa9"), (4, b"-")];
        let mut rules = rules(vec![rule(1, "a", false), rule(2, "b", true), rule(3, "c", false)]);
        let noted = note(&header(0x21, tlvs), &rules);
        let of = |key: &str| noted.metadata.get("n", key).cloned();
        assert_eq!(of("a"), Some(Value::String("one".into())), "the first one");
        assert_eq!(of("b"), Some(Value::String("//4=".into())));
        assert_eq!(of("c"), Some(Value::String("x!!!y\u{e9}".into())));
        assert_eq!(noted.bytes[0], ("n".into(), "a".into(), b"two".to_vec()), "the last one");
        assert_eq!(noted.bytes[1].2, b"\xff\xfe");
        assert_eq!(noted.tlvs, Some(vec![tlv(1, b"one"), tlv(1, b"two")]));
        assert!(noted.state.is_empty());

        rules.noted_in_state = true;
        let noted = note(&header(0x21, tlvs), &rules);
        assert!(noted.metadata.is_empty() && noted.bytes.is_empty());
        let [(name, Value::Map(entries))] = &noted.state[..] else { panic!("{:?}", noted.state) };
        assert_eq!(name, STATE);
        assert_eq!(entries[0], ("a".into(), Value::String("two".into())), "the last one");
        assert_eq!(entries.len(), 3);
    }

    #[test]
    fn a_header_without_tlvs_is_a_header_all_the_same() {
        for bytes in [&b"PROXY UNKNOWN\r\n"[..], &header(0x20, &[(1, b"one")]), &header(0x21, &[])] {
            let noted = note(bytes, &rules(vec![rule(1, "a", false)]));
            assert_eq!((noted.tlvs, noted.metadata.is_empty()), (Some(Vec::new()), true));
            assert!(noted.bytes.is_empty() && noted.state.is_empty());
        }
    }

    #[test]
    fn added_ones_replace_follow_or_stay_out() {
        let entry = |kind: u8, value: &[u8]| TlvEntry { kind, value: TlvValue::Fixed(value.to_vec()) };
        let known = [tlv(1, b"a"), tlv(2, b"b")];
        let merged = |known: Option<&[Tlv]>, merge: TlvMerge| {
            super::merge(&AddedTlvs { entries: vec![entry(2, b"x"), entry(2, b"y")], merge }, known, |_, _| {})
        };
        let own = [tlv(2, b"x"), tlv(2, b"y")];
        for merge in [TlvMerge::OnlyAlone, TlvMerge::Replace, TlvMerge::Append] {
            assert_eq!(merged(None, merge), own);
        }
        assert_eq!(merged(Some(&[]), TlvMerge::OnlyAlone), []);
        assert_eq!(merged(Some(&known), TlvMerge::OnlyAlone), known);
        assert_eq!(merged(Some(&known), TlvMerge::Replace), [tlv(2, b"x"), tlv(2, b"y"), tlv(1, b"a")]);
        assert_eq!(merged(Some(&known), TlvMerge::Append), [&known[..], &own[..]].concat());
    }
}
