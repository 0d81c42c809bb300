//! Request and response heads (RFC 9112 2.1, 3, 4, 5).

use std::ops::Range;

use postrider_http::{
    Asked, Fields, HeadLimits, Reject, RequestFacts, RequestHead, RequestRules, ResponseFacts, ResponseHead,
    ResponseRules, UsualHead, Version, admit_request, admit_response, is_token, reason,
};

use crate::scan::{Complete, HeadScan, MAX_LEADING_EMPTY_LINES, Side, StartLine};

/// Outcome of [`parse_request`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestParse {
    /// The head is complete, checked and admitted.
    Complete {
        /// Bytes of the buffer that the head took, leading empty lines included.
        consumed: usize,
        /// What the rules found out.
        facts: RequestFacts,
    },
    /// More bytes are needed; call again with the same bytes and more behind them.
    Partial,
    /// Answer this and close: what follows in the buffer cannot be trusted.
    Reject(Reject),
}

/// Outcome of [`parse_response`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseParse {
    /// The head is complete, checked and admitted. When `facts.interim` is set another head follows.
    Complete {
        /// Bytes of the buffer that the head took.
        consumed: usize,
        /// What the rules found out.
        facts: ResponseFacts,
    },
    /// More bytes are needed; call again with the same bytes and more behind them.
    Partial,
    /// Give the client this (502) and close the upstream connection.
    Reject(Reject),
}

/// Reads one request head from the start of `buffer` into `head`, which is overwritten.
///
/// `scan` must be the same one from the first byte of a head to its end, and `buffer` must only grow in
/// between; after `Complete` and `Reject` it is ready for the next head. The outcome does not depend on
/// how the bytes were cut. On `Reject`, `head` holds what was read so far (method and path, for a log).
#[inline]
pub fn parse_request(buffer: &[u8], rules: &RequestRules, scan: &mut HeadScan, head: &mut RequestHead) -> RequestParse {
    if scan.is_fresh()
        && let Some(end) = load_usual_request(buffer, &rules.limits, head)
    {
        return match admit_request(head, rules) {
            Ok(facts) => RequestParse::Complete { consumed: end, facts },
            Err(reject) => RequestParse::Reject(reject),
        };
    }
    let outcome = match scan.advance::<Request>(buffer, &rules.limits) {
        Ok(None) => return RequestParse::Partial,
        Ok(Some(complete)) => load_request(buffer, &complete, head)
            .and_then(|()| admit_request(head, rules))
            .map(|facts| RequestParse::Complete { consumed: complete.end, facts }),
        Err(reject) => {
            head.clear();
            Err(reject)
        }
    };
    scan.reset();
    outcome.unwrap_or_else(RequestParse::Reject)
}

/// Reads one response head, interim ones included, from the start of `buffer` into `head`. Everything
/// said about [`parse_request`] holds; every [`Reject`] has status 502.
#[inline]
pub fn parse_response(
    buffer: &[u8],
    asked: Asked,
    rules: &ResponseRules,
    scan: &mut HeadScan,
    head: &mut ResponseHead,
) -> ResponseParse {
    if scan.is_fresh()
        && let Some(end) = load_usual_response(buffer, &rules.limits, head)
    {
        return match admit_response(head, asked) {
            Ok(facts) => ResponseParse::Complete { consumed: end, facts },
            Err(reject) => ResponseParse::Reject(reject.upstream()),
        };
    }
    let outcome = match scan.advance::<Response>(buffer, &rules.limits) {
        Ok(None) => return ResponseParse::Partial,
        Ok(Some(complete)) => load_response(buffer, &complete, head)
            .and_then(|()| admit_response(head, asked))
            .map(|facts| ResponseParse::Complete { consumed: complete.end, facts }),
        Err(reject) => {
            head.clear();
            Err(reject)
        }
    };
    scan.reset();
    outcome.unwrap_or_else(|reject| ResponseParse::Reject(reject.upstream()))
}

fn load_request(buffer: &[u8], complete: &Complete<'_>, head: &mut RequestHead) -> Result<(), Reject> {
    let loaded = load_block(buffer, complete, &mut head.fields);
    start_request(complete.start_line, head);
    loaded?;
    head.fields.index_lines(complete.line_ends)
}

fn load_response(buffer: &[u8], complete: &Complete<'_>, head: &mut ResponseHead) -> Result<(), Reject> {
    let loaded = load_block(buffer, complete, &mut head.fields);
    let reason_end = complete.line_ends.first().map_or(0, |&end| end as usize);
    start_response(complete.start_line, reason_end, head);
    loaded?;
    head.fields.index_lines(complete.line_ends)
}

/// A whole head in its most usual form, in one pass; its end. `None` for everything else, incomplete heads and
/// refusals included: the scan decides about those.
#[inline]
fn load_usual_request(buffer: &[u8], limits: &HeadLimits, head: &mut RequestHead) -> Option<usize> {
    let UsualHead { start_line_end, end } = head.fields.load_usual(buffer, limits)?;
    let (before, version_name) = buffer.get(..start_line_end)?.split_last_chunk::<8>()?;
    let before = before.strip_suffix(b" ")?;
    let method_len = if before.starts_with(b"GET ") {
        3
    } else {
        before.iter().position(|&b| b == b' ').filter(|&len| before.get(..len).is_some_and(is_token))?
    };
    head.start(0..method_len, method_len + 1..before.len(), version(version_name).ok()?);
    (head.has_plain_target() || is_target(head.target())).then_some(end)
}

#[inline]
fn load_usual_response(buffer: &[u8], limits: &HeadLimits, head: &mut ResponseHead) -> Option<usize> {
    let UsualHead { start_line_end, end } = head.fields.load_usual(buffer, limits)?;
    let start_line = Response::start_line(buffer.get(..start_line_end)?).ok()?;
    start_response(start_line, start_line_end, head);
    Some(end)
}

#[inline]
fn start_request(line: StartLine, head: &mut RequestHead) {
    let StartLine { first: method_len, second: target_end, version } = line;
    head.start(0..method_len as usize, method_len as usize + 1..target_end as usize, version);
}

#[inline]
fn start_response(line: StartLine, line_end: usize, head: &mut ResponseHead) {
    let StartLine { first: status, second: reason_start, version } = line;
    head.start(status as u16, Range { start: reason_start as usize, end: line_end }, version);
}

fn load_block(buffer: &[u8], complete: &Complete<'_>, fields: &mut Fields) -> Result<(), Reject> {
    let block = buffer.get(complete.start..complete.end).unwrap_or_default();
    fields.load(block, complete.line_ends.len() + 1)
}

struct Request;

impl Side for Request {
    const LEADING_EMPTY_LINES: u8 = MAX_LEADING_EMPTY_LINES;
    const BAD_BEGINNING: Reject = reason::INVALID_METHOD;

    fn can_begin_with(byte: u8) -> bool {
        is_token(&[byte])
    }

    /// `method SP request-target SP HTTP-version`, one space each: RFC 9112 3 lets a recipient be
    /// lenient about white space, and that leniency has been used to smuggle.
    #[inline]
    fn start_line(line: &[u8]) -> Result<StartLine, Reject> {
        let Some(method_len) = memchr::memchr(b' ', line) else {
            let whole_method = is_token(line);
            return Err(if whole_method { reason::CODEC_ERROR } else { reason::INVALID_METHOD });
        };
        if !is_token(line.get(..method_len).unwrap_or_default()) {
            return Err(reason::INVALID_METHOD);
        }
        let target_end = memchr::memrchr(b' ', line).unwrap_or(method_len);
        if target_end == method_len {
            // HTTP/0.9: a method and a path. Envoy tells such a client to upgrade.
            return Err(if line.get(method_len + 1..).is_some_and(is_target) {
                reason::LOW_VERSION
            } else {
                reason::INVALID_TARGET
            });
        }
        if !line.get(method_len + 1..target_end).is_some_and(is_target) {
            return Err(reason::INVALID_TARGET);
        }
        let version = version(line.get(target_end + 1..).unwrap_or_default())?;
        Ok(StartLine { first: method_len as u32, second: target_end as u32, version })
    }
}

struct Response;

impl Side for Response {
    const LEADING_EMPTY_LINES: u8 = 0;
    const BAD_BEGINNING: Reject = reason::CODEC_ERROR;

    fn can_begin_with(byte: u8) -> bool {
        byte == b'H'
    }

    /// `HTTP-version SP 3DIGIT [ SP reason ]` (RFC 9112 4; the space before an absent reason may be
    /// missing, as servers do).
    #[inline]
    fn start_line(line: &[u8]) -> Result<StartLine, Reject> {
        let (name, rest) = line.split_at_checked(8).ok_or(reason::CODEC_ERROR)?;
        let version = version(name)?;
        if let [b' ', a @ b'0'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', after @ ..] = rest
            && matches!(after, [] | [b' ', ..])
        {
            let status = [a, b, c].iter().fold(0, |n, &&digit| n * 10 + u32::from(digit - b'0'));
            let reason_start = 12 + usize::from(!after.is_empty());
            return Ok(StartLine { first: status, second: reason_start as u32, version });
        }
        let [b' ', rest @ ..] = rest else { return Err(reason::CODEC_ERROR) };
        let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        // Three digits come to this only with something else than a space behind.
        Err(if matches!(digits, 0 | 3) { reason::CODEC_ERROR } else { reason::INVALID_STATUS })
    }
}

/// No blank, no control byte.
#[inline]
fn is_target(target: &[u8]) -> bool {
    // Without an early exit, so that it becomes vector code.
    !target.is_empty() && target.iter().fold(true, |fine, &b| fine & (b > b' ') & (b != 0x7f))
}

/// RFC 9112 2.3: case-sensitive. A version that is well-formed and not ours is told apart from garbage.
#[inline]
fn version(bytes: &[u8]) -> Result<Version, Reject> {
    let name: [u8; 8] = bytes.try_into().map_err(|_| reason::CODEC_ERROR)?;
    // Arrays compare as one number, patterns byte by byte.
    if name == *b"HTTP/1.1" {
        return Ok(Version::Http11);
    }
    if name == *b"HTTP/1.0" {
        return Ok(Version::Http10);
    }
    match name {
        [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'] => Err(reason::LOW_VERSION),
        _ => Err(reason::CODEC_ERROR),
    }
}
