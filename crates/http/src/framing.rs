//! Body framing, decided once from a whole head (RFC 9112 6.3), and emitted afresh from the decision.

use crate::{Fields, HeaderId, Method, Reject, RequestHead, ResponseHead, Version, reason};

/// How the end of a message body is found. Nothing else in the proxy looks at Content-Length or
/// Transfer-Encoding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BodyFraming {
    /// There is no body and no framing field.
    #[default]
    None,
    /// Exactly this many bytes (below 2^63).
    Length(u64),
    /// Exactly this many bytes, more than none, and trailers may follow: only HTTP/2 can say so (RFC 9113 8.1).
    Counted(u64),
    /// Chunked transfer coding.
    Chunked,
    /// Until the peer closes; only in responses.
    UntilClose,
}

impl BodyFraming {
    /// Whether body bytes can follow the head.
    #[inline]
    pub fn has_body(self) -> bool {
        !matches!(self, Self::None | Self::Length(0))
    }

    /// The length that is said of the body.
    #[inline]
    pub fn length(self) -> Option<u64> {
        match self {
            Self::Length(length) | Self::Counted(length) => Some(length),
            Self::None | Self::Chunked | Self::UntilClose => None,
        }
    }

    /// Whether trailers can follow the body.
    #[inline]
    pub fn may_have_trailers(self) -> bool {
        matches!(self, Self::Chunked | Self::Counted(_))
    }

    /// The same over HTTP/2, where trailers may follow.
    #[must_use]
    pub fn over_http2(self) -> Self {
        match self {
            Self::Length(length @ 1..) => Self::Counted(length),
            framing => framing,
        }
    }

    /// A body that came as this, and is known to have that many bytes.
    #[must_use]
    pub fn with_length(self, length: u64) -> Self {
        match self {
            Self::Chunked | Self::Counted(_) => Self::Length(length).over_http2(),
            Self::None | Self::Length(_) | Self::UntilClose => Self::Length(length),
        }
    }
}

/// Framing of a request (RFC 9112 6.3 rules 3 to 7).
///
/// # Errors
/// Content-Length with Transfer-Encoding (unless `allow_chunked_length`, Envoy's
/// `http_protocol_options.allow_chunked_length`: then the length is ignored), Transfer-Encoding in
/// HTTP/1.0 or other than exactly `chunked`, and every Content-Length that is not one 1*DIGIT below 2^63.
#[inline]
pub fn request_framing(head: &RequestHead, allow_chunked_length: bool) -> Result<BodyFraming, Reject> {
    let fields = &head.fields;
    if !fields.has(HeaderId::TransferEncoding) && !fields.has(HeaderId::ContentLength) {
        return Ok(BodyFraming::None);
    }
    if head.method() == Method::Connect {
        // RFC 9110 9.3.6: content of CONNECT has no defined semantics; what follows is tunnel data.
        return match (fields.has(HeaderId::TransferEncoding), content_length(fields)?) {
            (true, _) => Err(reason::INVALID_TRANSFER_ENCODING),
            (_, Some(0) | None) => Ok(BodyFraming::None),
            _ => Err(reason::CONNECT_WITH_CONTENT_LENGTH),
        };
    }
    declared_framing(fields, head.version(), allow_chunked_length)
}

/// Framing of a final or interim response (RFC 9112 6.3 rules 1 to 8), given the request's method.
/// A 101 and a 2xx to CONNECT have no body: what follows is a tunnel.
///
/// # Errors
/// As [`request_framing`] with status 502, and a 1xx or 204 that declares a body (RFC 9110 8.6, 6.4.1).
#[inline]
pub fn response_framing(head: &ResponseHead, request_method: Method) -> Result<BodyFraming, Reject> {
    let fields = &head.fields;
    let declared = if fields.has(HeaderId::TransferEncoding) || fields.has(HeaderId::ContentLength) {
        declared_framing(fields, head.version(), false).map_err(Reject::upstream)?
    } else {
        BodyFraming::None
    };
    let status = head.status();
    if status == 204 || status < 200 {
        // RFC 9112 6.1: a server must not send Transfer-Encoding here; a length above zero lies.
        return match declared {
            BodyFraming::None | BodyFraming::Length(0) => Ok(BodyFraming::None),
            _ => Err(reason::BODY_NOT_ALLOWED),
        };
    }
    let tunnel = request_method == Method::Connect && (200..300).contains(&status);
    if request_method == Method::Head || status == 304 || tunnel {
        return Ok(BodyFraming::None);
    }
    Ok(match declared {
        BodyFraming::None => BodyFraming::UntilClose,
        framing => framing,
    })
}

/// The one Content-Length of these fields.
///
/// # Errors
/// [`reason::INVALID_CONTENT_LENGTH`] when it is repeated or not 1*DIGIT below 2^63.
#[inline]
pub fn content_length(fields: &Fields) -> Result<Option<u64>, Reject> {
    let Some(value) = fields.get(HeaderId::ContentLength) else { return Ok(None) };
    // RFC 9112 6.3 lets identical repeats pass; they are refused here, as in Envoy.
    if fields.is_repeated(HeaderId::ContentLength) && fields.get_all(HeaderId::ContentLength).nth(1).is_some() {
        return Err(reason::INVALID_CONTENT_LENGTH);
    }
    parse_length(value).map(Some).ok_or(reason::INVALID_CONTENT_LENGTH)
}

#[inline]
fn declared_framing(fields: &Fields, version: Version, allow_both: bool) -> Result<BodyFraming, Reject> {
    if !fields.has(HeaderId::TransferEncoding) {
        return Ok(content_length(fields)?.map_or(BodyFraming::None, BodyFraming::Length));
    }
    coded_framing(fields, version, allow_both)
}

fn coded_framing(fields: &Fields, version: Version, allow_both: bool) -> Result<BodyFraming, Reject> {
    // RFC 9112 6.1: ought to be handled as an error.
    if fields.has(HeaderId::ContentLength) && !allow_both {
        return Err(reason::LENGTH_AND_CHUNKED);
    }
    // RFC 9112 6.1: treat the message as if the framing is faulty.
    if version == Version::Http10 {
        return Err(reason::CHUNKED_IN_HTTP_10);
    }
    let mut codings = fields.get_all(HeaderId::TransferEncoding);
    match (codings.next(), codings.next()) {
        (Some(coding), None) if coding.eq_ignore_ascii_case(b"chunked") => Ok(BodyFraming::Chunked),
        _ => Err(reason::INVALID_TRANSFER_ENCODING),
    }
}

/// 1*DIGIT below 2^63 (RFC 9110 8.6).
#[inline]
pub(crate) fn parse_length(digits: &[u8]) -> Option<u64> {
    /// So many digits cannot overflow.
    const SAFE_DIGITS: usize = 18;
    if digits.is_empty() {
        return None;
    }
    if digits.len() > SAFE_DIGITS {
        return parse_long_length(digits);
    }
    let mut length: u64 = 0;
    for &digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        length = length * 10 + u64::from(digit);
    }
    Some(length)
}

#[cold]
fn parse_long_length(digits: &[u8]) -> Option<u64> {
    let mut length: u64 = 0;
    for &digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        length = length.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    (length <= i64::MAX as u64).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths() {
        assert_eq!(parse_length(b"0"), Some(0));
        assert_eq!(parse_length(b"007"), Some(7));
        assert_eq!(parse_length(b"9223372036854775807"), Some(i64::MAX as u64));
        for digits in ["999999999999999999", "1000000000000000000", "0000000000000000000000007"] {
            assert_eq!(parse_length(digits.as_bytes()), digits.parse().ok(), "{digits}");
        }
        for bad in ["99999999999999999x", "100000000000000000x", "1000000000000000000x"] {
            assert_eq!(parse_length(bad.as_bytes()), None, "{bad}");
        }
        for bad in ["", "+5", "-0", "5 ", "0x5", "5,5", "1_0", "9223372036854775808", "99999999999999999999", "\u{665}"]
        {
            assert_eq!(parse_length(bad.as_bytes()), None, "{bad}");
        }
    }
}
