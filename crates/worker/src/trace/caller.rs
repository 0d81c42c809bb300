//! What a caller says of the trace that its request is part of (W3C Trace Context, `traceparent` and `tracestate`).

use postrider_filter_api::SpanIds;
use postrider_http::{Fields, HeaderId};

/// Of version 00: version, trace, span and flags, with dashes between them.
const LENGTH: usize = 55;

/// A caller's part of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) ids: SpanIds,
    /// It told its own part.
    pub(crate) sampled: bool,
    /// What other tracers want to go on with the request; may be empty.
    pub(crate) state: String,
}

impl Caller {
    /// `None` when nothing is said.
    ///
    /// # Errors
    /// What is said cannot be understood: the trace is not ours to go on with.
    pub(crate) fn read(fields: &Fields) -> Option<Result<Caller, ()>> {
        let parent = fields.get(HeaderId::Traceparent)?;
        let Some((ids, sampled)) = parse(parent) else { return Some(Err(())) };
        let lines: Vec<_> = fields.get_all(HeaderId::Tracestate).map(String::from_utf8_lossy).collect();
        Some(Ok(Caller { ids, sampled, state: lines.join(",") }))
    }
}

/// Later versions are read as the first one, as long as that is all they say.
fn parse(text: &[u8]) -> Option<(SpanIds, bool)> {
    if text.len() != LENGTH {
        return None;
    }
    let mut parts = text.split(|byte| *byte == b'-');
    let [version, trace, span, flags] = [(); 4].map(|()| parts.next());
    unhex::<1>(version?)?;
    let ids = SpanIds { trace: unhex(trace?)?, span: unhex(span?)? };
    let [flags] = unhex(flags?)?;
    let is_whole = parts.next().is_none() && ids.trace != [0; 16] && ids.span != [0; 8];
    is_whole.then_some((ids, flags & 1 == 1))
}

fn unhex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let mut out = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in out.iter_mut().zip(text.chunks_exact(2)) {
        let digit = |at: usize| char::from(*pair.get(at)?).to_digit(16);
        *byte = (digit(0)? << 4 | digit(1)?) as u8;
    }
    Some(out)
}

/// Appends bytes as digits, in lower case.
pub(crate) fn hex(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            out.push(if digit < 10 { b'0' + digit } else { b'a' + digit - 10 });
        }
    }
}

/// What is said of our own part.
pub(crate) fn traceparent(ids: &SpanIds, sampled: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(LENGTH);
    out.extend_from_slice(b"00-");
    hex(&ids.trace, &mut out);
    out.push(b'-');
    hex(&ids.span, &mut out);
    out.extend_from_slice(if sampled { b"-01" } else { b"-00" });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn what_is_said_is_what_is_read() {
        let (ids, sampled) = parse(PARENT.as_bytes()).unwrap();
        assert!(sampled);
        assert_eq!(traceparent(&ids, true), PARENT.as_bytes());
        assert_eq!(parse(&traceparent(&ids, false)), Some((ids, false)));
    }

    /// Envoy 1.40 does the same.
    #[test]
    fn only_whole_words_count() {
        let is_read = |text: &str| parse(text.as_bytes()).is_some();
        assert!(is_read(&PARENT.replacen("00", "cc", 1)), "a later version");
        assert!(is_read(&PARENT.to_uppercase()));
        for broken in [
            "",
            "00",
            &PARENT[..54],
            &format!("{PARENT}-00"),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319g-b7ad6b7169203331-01",
            "0--0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333-001",
        ] {
            assert!(!is_read(broken), "{broken}");
        }
    }

    #[test]
    fn state_of_several_lines_is_one_list() {
        let mut fields = Fields::new();
        assert_eq!(Caller::read(&fields), None);
        fields.set(HeaderId::Tracestate, b"a=1").unwrap();
        assert_eq!(Caller::read(&fields), None, "without a parent there is no state");
        fields.append(HeaderId::Tracestate, b"b=2").unwrap();
        fields.set(HeaderId::Traceparent, PARENT.as_bytes()).unwrap();
        assert_eq!(Caller::read(&fields).unwrap().unwrap().state, "a=1,b=2");
        fields.set(HeaderId::Traceparent, b"x").unwrap();
        assert_eq!(Caller::read(&fields), Some(Err(())));
    }
}
