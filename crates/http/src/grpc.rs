//! What gRPC puts on top of HTTP: content types, status codes, the percent-encoding of messages, timeouts and frames.
//!
//! Everything here is a pure function over bytes that were received, and allocates only where it is given a buffer to
//! write to. The shapes are those of gRPC's `PROTOCOL-HTTP2.md`; where that leaves room, Envoy 1.40's reading holds.

use std::time::Duration;

use crate::{Fields, HeaderId};

/// The content type of gRPC without a named message format.
pub const CONTENT_TYPE: &[u8] = b"application/grpc";

/// Bytes before each message: a byte of flags and its length.
pub const PREFIX_BYTES: usize = 5;

/// The message is compressed.
pub const FLAG_COMPRESSED: u8 = 0x01;

/// The frame holds trailers (gRPC-Web only).
pub const FLAG_TRAILERS: u8 = 0x80;

/// The largest number that `grpc-timeout` may carry: eight digits.
const MAX_TIMEOUT_VALUE: u64 = 99_999_999;

/// Whether a content type is that of gRPC: `application/grpc` or `application/grpc+…`, nothing else. So
/// `application/grpc-web` is not, nor is one with parameters.
#[inline]
pub fn is_content_type(value: &[u8]) -> bool {
    value.strip_prefix(CONTENT_TYPE).is_some_and(|rest| matches!(rest, [] | [b'+', ..]))
}

/// Whether the `content-type` of these fields is that of gRPC.
#[inline]
pub fn has_content_type(fields: &Fields) -> bool {
    fields.get(HeaderId::ContentType).is_some_and(is_content_type)
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $camel:literal, $snake:literal, http $http:literal;)*) => {
        /// A gRPC status code that the protocol names.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Code {
            $($(#[$doc])* $name = $number,)*
        }

        impl Code {
            /// Every code, by number.
            pub const ALL: [Code; 17] = [$(Code::$name,)*];

            /// As logs write it: `NotFound`.
            pub const fn camel(self) -> &'static str {
                match self { $(Code::$name => $camel,)* }
            }

            /// As gRPC's own documents write it: `NOT_FOUND`.
            pub const fn snake(self) -> &'static str {
                match self { $(Code::$name => $snake,)* }
            }

            /// The HTTP status with the same meaning.
            pub const fn to_http(self) -> u16 {
                match self { $(Code::$name => $http,)* }
            }
        }
    };
}

codes! {
    /// It went well.
    Ok = 0, "OK", "OK", http 200;
    /// The caller gave up.
    Cancelled = 1, "Canceled", "CANCELLED", http 499;
    /// No other code fits.
    Unknown = 2, "Unknown", "UNKNOWN", http 500;
    /// The request is wrong whatever the state of the system.
    InvalidArgument = 3, "InvalidArgument", "INVALID_ARGUMENT", http 400;
    /// It took too long.
    DeadlineExceeded = 4, "DeadlineExceeded", "DEADLINE_EXCEEDED", http 504;
    /// There is no such thing.
    NotFound = 5, "NotFound", "NOT_FOUND", http 404;
    /// There is such a thing already.
    AlreadyExists = 6, "AlreadyExists", "ALREADY_EXISTS", http 409;
    /// The caller is known, and may not.
    PermissionDenied = 7, "PermissionDenied", "PERMISSION_DENIED", http 403;
    /// A quota or limit is used up.
    ResourceExhausted = 8, "ResourceExhausted", "RESOURCE_EXHAUSTED", http 429;
    /// The system is not in the state for it.
    FailedPrecondition = 9, "FailedPrecondition", "FAILED_PRECONDITION", http 400;
    /// Somebody else was faster.
    Aborted = 10, "Aborted", "ABORTED", http 409;
    /// Beyond the end.
    OutOfRange = 11, "OutOfRange", "OUT_OF_RANGE", http 400;
    /// The method does not exist.
    Unimplemented = 12, "Unimplemented", "UNIMPLEMENTED", http 501;
    /// Something is broken.
    Internal = 13, "Internal", "INTERNAL", http 500;
    /// Not now.
    Unavailable = 14, "Unavailable", "UNAVAILABLE", http 503;
    /// Data is lost for good.
    DataLoss = 15, "DataLoss", "DATA_LOSS", http 500;
    /// The caller is not known.
    Unauthenticated = 16, "Unauthenticated", "UNAUTHENTICATED", http 401;
}

impl Code {
    /// The code with this number.
    pub fn from_number(number: u32) -> Option<Code> {
        Code::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// The code that an answer without one of its own stands for (gRPC's `http-grpc-status-mapping.md`).
    pub const fn from_http(status: u16) -> Code {
        match status {
            400 => Code::Internal,
            401 => Code::Unauthenticated,
            403 => Code::PermissionDenied,
            404 => Code::Unimplemented,
            429 | 502 | 503 | 504 => Code::Unavailable,
            _ => Code::Unknown,
        }
    }

    /// As it stands on the wire.
    pub const fn number(self) -> u8 {
        self as u8
    }
}

/// What `grpc-status` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// One of the named codes.
    Code(Code),
    /// A number that no code has.
    Other(u32),
    /// No number at all.
    Invalid,
}

impl Status {
    /// Reads the value of `grpc-status`; `None` when it is empty.
    pub fn parse(value: &[u8]) -> Option<Status> {
        if value.is_empty() {
            return None;
        }
        let number = std::str::from_utf8(value).ok().and_then(|text| text.trim_ascii().parse::<u32>().ok());
        Some(match number {
            Some(number) => Code::from_number(number).map_or(Status::Other(number), Status::Code),
            None => Status::Invalid,
        })
    }

    /// What the fields of a head or of trailers say.
    pub fn of(fields: &Fields) -> Option<Status> {
        Status::parse(fields.get(HeaderId::GrpcStatus)?)
    }

    /// The HTTP status with the same meaning; 500 for what is no code.
    pub fn to_http(self) -> u16 {
        match self {
            Status::Code(code) => code.to_http(),
            Status::Other(_) | Status::Invalid => 500,
        }
    }
}

/// Appends `text` as it may stand in `grpc-message`: everything but visible ASCII is percent-encoded, and `%` and `~`.
pub fn encode_message(text: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |nibble: u8| HEX.get(usize::from(nibble & 0x0f)).copied().unwrap_or(b'0');
    for &byte in text {
        // `~` is visible; Envoy encodes it all the same, and every decoder understands that.
        match byte {
            b'%' => out.extend_from_slice(b"%25"),
            b' '..b'~' => out.push(byte),
            _ => out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte)]),
        }
    }
}

/// Appends what `grpc-message` says in plain; an escape that is none stays as it is.
pub fn decode_message(value: &[u8], out: &mut Vec<u8>) {
    let hex = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut rest = value;
    while let Some((&byte, behind)) = rest.split_first() {
        if byte == b'%'
            && let [high, low, after @ ..] = behind
            && let (Some(high), Some(low)) = (hex(*high), hex(*low))
        {
            out.push(high << 4 | low);
            rest = after;
        } else {
            out.push(byte);
            rest = behind;
        }
    }
}

/// Reads `grpc-timeout`: up to eight digits and a unit. Parts of a millisecond count as a whole one.
pub fn parse_timeout(value: &[u8]) -> Option<Duration> {
    let (&unit, digits) = value.split_last()?;
    let number = std::str::from_utf8(digits).ok()?.trim_ascii().parse::<u64>().ok()?;
    if number > MAX_TIMEOUT_VALUE {
        return None;
    }
    let millis = match unit {
        b'H' => number * 3_600_000,
        b'M' => number * 60_000,
        b'S' => number * 1000,
        b'm' => number,
        b'u' => number.div_ceil(1000),
        b'n' => number.div_ceil(1_000_000),
        _ => return None,
    };
    Some(Duration::from_millis(millis))
}

/// Writes `timeout` as `grpc-timeout` says it, in the finest unit from milliseconds on that takes it.
pub fn write_timeout(timeout: Duration, out: &mut Vec<u8>) {
    let mut time = timeout.as_millis();
    let mut unit = b'm';
    for (coarser, factor) in [(b'S', 1000), (b'M', 60), (b'H', 60)] {
        if time <= u128::from(MAX_TIMEOUT_VALUE) {
            break;
        }
        time /= factor;
        unit = coarser;
    }
    let time = time.min(u128::from(MAX_TIMEOUT_VALUE));
    out.extend_from_slice(time.to_string().as_bytes());
    out.push(unit);
}

/// The five bytes before a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    /// [`FLAG_COMPRESSED`] and, in gRPC-Web, [`FLAG_TRAILERS`].
    pub flags: u8,
    /// Bytes of the message behind the prefix.
    pub length: u32,
}

impl Prefix {
    /// The prefix at the beginning of `bytes`; `None` when it is not complete.
    pub fn parse(bytes: &[u8]) -> Option<Prefix> {
        let (&[flags, a, b, c, d], _) = bytes.split_first_chunk::<PREFIX_BYTES>()?;
        Some(Prefix { flags, length: u32::from_be_bytes([a, b, c, d]) })
    }

    /// As it stands on the wire.
    pub fn to_bytes(self) -> [u8; PREFIX_BYTES] {
        let [a, b, c, d] = self.length.to_be_bytes();
        [self.flags, a, b, c, d]
    }
}

/// One whole message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// See [`Prefix::flags`].
    pub flags: u8,
    /// Without its prefix.
    pub message: &'a [u8],
}

/// Why bytes are no gRPC frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    /// A flag that gRPC does not know.
    Flags(u8),
    /// The message is longer than is allowed here.
    TooLong(u32),
}

/// Takes the first whole message off `bytes` and answers it with how many bytes it took; `None` when more must come
/// first. Whoever gathers bytes until then holds no more than `limit` and the prefix.
///
/// # Errors
/// The prefix has flags other than [`FLAG_COMPRESSED`], or announces more than `limit` bytes.
pub fn first_frame(bytes: &[u8], limit: u32) -> Result<Option<(Frame<'_>, usize)>, FrameError> {
    let Some(prefix) = Prefix::parse(bytes) else { return Ok(None) };
    if prefix.flags & !FLAG_COMPRESSED != 0 {
        return Err(FrameError::Flags(prefix.flags));
    }
    if prefix.length > limit {
        return Err(FrameError::TooLong(prefix.length));
    }
    let length = prefix.length as usize;
    let message = bytes.get(PREFIX_BYTES..).and_then(|rest| rest.get(..length));
    Ok(message.map(|message| (Frame { flags: prefix.flags, message }, PREFIX_BYTES + length)))
}

/// Puts the prefix of an uncompressed message of `length` bytes to `out`.
pub fn write_prefix(length: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&Prefix { flags: 0, length }.to_bytes());
}

/// Counts the messages of a body that passes in pieces, wherever it is cut. It keeps nothing of them.
#[derive(Debug, Default, Clone, Copy)]
pub struct FrameCounter {
    messages: u64,
    /// Bytes of a prefix that came so far; all of it once the message itself is passing.
    seen: u8,
    /// What the prefix says, and later what is left of the message.
    left: u32,
}

impl FrameCounter {
    /// The next piece of the body; answers how many messages began in it.
    pub fn feed(&mut self, mut bytes: &[u8]) -> u64 {
        let before = self.messages;
        while !bytes.is_empty() {
            let (taken, _) = self.step(bytes);
            bytes = bytes.get(taken..).unwrap_or_default();
        }
        self.messages - before
    }

    /// Goes on to the end of the message under way or of `bytes`; answers how many bytes that are, and whether the
    /// message ends there.
    pub fn step(&mut self, bytes: &[u8]) -> (usize, bool) {
        let mut taken = 0;
        for &byte in bytes.iter().take(PREFIX_BYTES.saturating_sub(usize::from(self.seen))) {
            self.messages += u64::from(self.seen == 0);
            // Four bytes of length shift the flags out again.
            self.left = self.left << 8 | u32::from(byte);
            self.seen += 1;
            taken += 1;
        }
        if usize::from(self.seen) < PREFIX_BYTES {
            return (taken, false);
        }
        let rest = bytes.len().saturating_sub(taken).min(self.left as usize);
        self.left -= u32::try_from(rest).unwrap_or(self.left);
        let ended = self.left == 0;
        if ended {
            self.seen = 0;
        }
        (taken + rest, ended)
    }

    /// Messages that began so far.
    pub fn messages(&self) -> u64 {
        self.messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_grpc_is_grpc() {
        for (value, want) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc+", true),
            ("application/grpc-web", false),
            ("application/grpc; charset=utf-8", false),
            ("application/grp", false),
            ("", false),
        ] {
            assert_eq!(is_content_type(value.as_bytes()), want, "{value}");
        }
    }

    #[test]
    fn codes_are_numbered_as_listed() {
        for (number, code) in Code::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(code.number()), number);
            assert_eq!(Code::from_number(number as u32), Some(code));
            let camel = code.camel().to_ascii_uppercase().replace("CANCELED", "CANCELLED");
            assert_eq!(code.snake().replace('_', ""), camel);
        }
        assert_eq!(Code::from_number(17), None);
    }

    #[test]
    fn statuses_are_read() {
        assert_eq!(Status::parse(b""), None);
        assert_eq!(Status::parse(b"0"), Some(Status::Code(Code::Ok)));
        assert_eq!(Status::parse(b"16"), Some(Status::Code(Code::Unauthenticated)));
        assert_eq!(Status::parse(b"17"), Some(Status::Other(17)));
        assert_eq!(Status::parse(b"-1"), Some(Status::Invalid));
        assert_eq!(Status::parse(b"99999999999"), Some(Status::Invalid));
        assert_eq!(Status::parse(b"x"), Some(Status::Invalid));
        assert_eq!(Status::parse(b"17").map(Status::to_http), Some(500));
    }

    #[test]
    fn messages_come_back_from_their_encoding() {
        let mut encoded = Vec::new();
        encode_message("100 % ~ \n ü\u{7f}".as_bytes(), &mut encoded);
        assert_eq!(String::from_utf8_lossy(&encoded), "100 %25 %7E %0A %C3%BC%7F");
        let all: Vec<u8> = (0..=255).collect();
        encoded.clear();
        encode_message(&all, &mut encoded);
        assert!(crate::is_field_value(&encoded));
        let mut decoded = Vec::new();
        decode_message(&encoded, &mut decoded);
        assert_eq!(decoded, all);
        decoded.clear();
        decode_message(b"%4x%zz%4", &mut decoded);
        assert_eq!(decoded, b"%4x%zz%4");
    }

    #[test]
    fn timeouts_are_read() {
        for (value, want) in [
            ("1H", Some(3_600_000)),
            ("2M", Some(120_000)),
            ("3S", Some(3000)),
            ("4m", Some(4)),
            ("1u", Some(1)),
            ("1001u", Some(2)),
            ("0n", Some(0)),
            ("1000001n", Some(2)),
            ("99999999H", Some(359_999_996_400_000)),
            ("100000000n", None),
            ("-1S", None),
            ("1s", None),
            ("S", None),
            ("", None),
            ("1.5S", None),
        ] {
            assert_eq!(parse_timeout(value.as_bytes()), want.map(Duration::from_millis), "{value}");
        }
    }

    #[test]
    fn timeouts_are_written_with_up_to_eight_digits() {
        for (millis, want) in [
            (0, "0m"),
            (99_999_999, "99999999m"),
            (100_000_000, "100000S"),
            (100_000_000_000, "1666666M"),
            (99_999_999 * 60_000 + 60_000, "1666666H"),
            (u64::MAX, "99999999H"),
        ] {
            let mut out = Vec::new();
            write_timeout(Duration::from_millis(millis), &mut out);
            assert_eq!(String::from_utf8_lossy(&out), want, "{millis}");
        }
    }

    #[test]
    fn frames_are_bounded_and_whole() {
        let mut bytes = Vec::new();
        write_prefix(3, &mut bytes);
        bytes.extend_from_slice(b"abcrest");
        for cut in 0..8 {
            assert_eq!(first_frame(&bytes[..cut], 3), Ok(None), "{cut}");
        }
        assert_eq!(first_frame(&bytes, 3), Ok(Some((Frame { flags: 0, message: b"abc" }, 8))));
        assert_eq!(first_frame(&bytes, 2), Err(FrameError::TooLong(3)));
        assert_eq!(first_frame(&[2, 0, 0, 0, 0], 3), Err(FrameError::Flags(2)));
        assert_eq!(first_frame(&[1, 0, 0, 0, 0], 3), Ok(Some((Frame { flags: 1, message: b"" }, 5))));
    }

    #[test]
    fn messages_are_counted_wherever_they_are_cut() {
        let mut body = Vec::new();
        for length in [0u32, 1, 300, 0, 70_000] {
            write_prefix(length, &mut body);
            body.resize(body.len() + length as usize, 0xff);
        }
        for cut in [1, 2, 3, 5, 7, 64, 1000, body.len()] {
            let mut counter = FrameCounter::default();
            let sum: u64 = body.chunks(cut).map(|piece| counter.feed(piece)).sum();
            assert_eq!((sum, counter.messages()), (5, 5), "{cut}");
        }
    }
}
