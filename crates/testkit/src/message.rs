//! A strict reading of HTTP/1.1 messages, for judging what a proxy emits.
//!
//! It refuses everything RFC 9112 lets a recipient refuse: bare CR or LF,
//! whitespace before a colon, two `Host` or `Content-Length` lines, both
//! framings at once, chunk extensions. It must never grow lenient, since the
//! hostile-input suite relies on it to notice a second, smuggled request.

use std::fmt;

/// Field lines in the order of arrival, names spelled as received.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(pub Vec<(String, Vec<u8>)>);

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.0.iter().map(|(n, v)| format!("{n}: {}", String::from_utf8_lossy(v)));
        f.debug_list().entries(lines).finish()
    }
}

impl Headers {
    /// The first value of `name` (any case), as text.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.values(name).into_iter().next()
    }

    /// All values of `name` (any case), in order of arrival.
    pub fn values(&self, name: &str) -> Vec<&str> {
        self.0
            .iter()
            .filter(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| std::str::from_utf8(v).unwrap_or("<not utf-8>"))
            .collect()
    }

    /// Whether `name` is present in any case.
    pub fn contains(&self, name: &str) -> bool {
        self.value(name).is_some()
    }
}

/// How the end of a message body is found (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// No body.
    None,
    /// Exactly this many bytes.
    Length(u64),
    /// Chunks, then a trailer section.
    Chunked,
    /// Everything until the peer closes; responses only.
    UntilClose,
}

/// A request as an origin received it.
#[derive(Clone, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    pub target: String,
    /// `HTTP/1.0` or `HTTP/1.1`.
    pub version: String,
    pub headers: Headers,
    pub framing: Framing,
    pub body: Vec<u8>,
    pub trailers: Headers,
    /// The head exactly as received, the empty line included.
    pub raw_head: Vec<u8>,
}

/// A response as a client received it.
#[derive(Clone, PartialEq, Eq)]
pub struct Response {
    /// `HTTP/1.0` or `HTTP/1.1`.
    pub version: String,
    pub status: u16,
    pub reason: String,
    pub headers: Headers,
    pub framing: Framing,
    pub body: Vec<u8>,
    pub trailers: Headers,
    /// The head exactly as received, the empty line included.
    pub raw_head: Vec<u8>,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        message_text(f, &self.raw_head, &self.body)
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        message_text(f, &self.raw_head, &self.body)
    }
}

/// A message as text on one line, long bodies cut.
fn message_text(f: &mut fmt::Formatter<'_>, head: &[u8], body: &[u8]) -> fmt::Result {
    let shown = &body[..body.len().min(300)];
    write!(f, "{:?} + {} bytes {:?}", String::from_utf8_lossy(head), body.len(), String::from_utf8_lossy(shown))
}

impl Response {
    /// The body as text; panics when it is not UTF-8.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("response body is not UTF-8")
    }

    /// The first value of a header, or the empty string.
    pub fn header(&self, name: &str) -> &str {
        self.headers.value(name).unwrap_or("")
    }
}

impl Request {
    /// The first value of a header, or the empty string.
    pub fn header(&self, name: &str) -> &str {
        self.headers.value(name).unwrap_or("")
    }
}

/// Why a message is not well-formed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(pub String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn malformed<T>(why: impl Into<String>) -> Result<T, Malformed> {
    Err(Malformed(why.into()))
}

/// Reads one request head; `raw` ends with the empty line.
pub fn parse_request_head(raw: &[u8]) -> Result<Request, Malformed> {
    let (start, headers) = split_head(raw)?;
    let parts: Vec<&str> = start.split(' ').collect();
    let [method, target, version] = parts[..] else {
        return malformed(format!("request line {start:?}"));
    };
    if !is_token(method.as_bytes()) || target.is_empty() {
        return malformed(format!("request line {start:?}"));
    }
    if target.bytes().any(|b| !(0x21..=0x7e).contains(&b)) {
        return malformed(format!("request target {target:?}"));
    }
    if version != "HTTP/1.1" && version != "HTTP/1.0" {
        return malformed(format!("version {version:?}"));
    }
    let hosts = headers.values("host").len();
    if hosts > 1 || (hosts == 0 && version == "HTTP/1.1") {
        return malformed(format!("{hosts} host lines"));
    }
    let framing = declared_framing(&headers)?.unwrap_or(Framing::None);
    if framing == Framing::Chunked && version == "HTTP/1.0" {
        return malformed("transfer-encoding in HTTP/1.0");
    }
    Ok(Request {
        method: method.into(),
        target: target.into(),
        version: version.into(),
        headers,
        framing,
        body: Vec::new(),
        trailers: Headers::default(),
        raw_head: raw.to_vec(),
    })
}

/// Reads one response head to a request with `method`; `raw` ends with the
/// empty line.
pub fn parse_response_head(raw: &[u8], method: &str) -> Result<Response, Malformed> {
    let (start, headers) = split_head(raw)?;
    let mut parts = start.splitn(3, ' ');
    let version = parts.next().unwrap_or("");
    let code = parts.next().unwrap_or("");
    let Some(reason) = parts.next() else {
        return malformed(format!("status line {start:?} lacks its second space"));
    };
    if version != "HTTP/1.1" && version != "HTTP/1.0" {
        return malformed(format!("version {version:?}"));
    }
    let status = match code.parse::<u16>() {
        Ok(n) if code.len() == 3 && (100..600).contains(&n) => n,
        _ => return malformed(format!("status {code:?}")),
    };
    let declared = declared_framing(&headers)?;
    // RFC 9112 section 6.3, items 1 and 2.
    let bodiless = method == "HEAD" || status < 200 || status == 204 || status == 304;
    if (status < 200 || status == 204) && headers.contains("transfer-encoding") {
        return malformed(format!("transfer-encoding in a {status}"));
    }
    if status < 200 && headers.contains("content-length") {
        return malformed(format!("content-length in a {status}"));
    }
    let tunnel = method == "CONNECT" && (200..300).contains(&status);
    let framing = match declared {
        _ if bodiless || tunnel => Framing::None,
        Some(framing) => framing,
        None => Framing::UntilClose,
    };
    Ok(Response {
        version: version.into(),
        status,
        reason: reason.into(),
        headers,
        framing,
        body: Vec::new(),
        trailers: Headers::default(),
        raw_head: raw.to_vec(),
    })
}

/// Reads a chunk's size line without its CRLF. Extensions are refused: a proxy
/// that drops them (RFC 9112 section 7.1.1 allows it) never emits one.
pub fn parse_chunk_size(line: &[u8]) -> Result<u64, Malformed> {
    let valid = !line.is_empty() && line.len() <= 16 && line.iter().all(u8::is_ascii_hexdigit);
    match std::str::from_utf8(line).ok().and_then(|s| u64::from_str_radix(s, 16).ok()) {
        Some(size) if valid => Ok(size),
        _ => malformed(format!("chunk size {:?}", String::from_utf8_lossy(line))),
    }
}

/// Reads field lines, each ended by CRLF.
pub fn parse_fields(raw: &[u8]) -> Result<Headers, Malformed> {
    let mut headers = Headers::default();
    for line in lines(raw)? {
        let Some(colon) = line.iter().position(|b| *b == b':') else {
            return malformed(format!("no colon in {:?}", String::from_utf8_lossy(line)));
        };
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        if !is_token(name) {
            return malformed(format!("field name {:?}", String::from_utf8_lossy(name)));
        }
        if value.iter().any(|b| (*b < 0x20 && *b != b'\t') || *b == 0x7f) {
            return malformed(format!("field value {:?}", String::from_utf8_lossy(value)));
        }
        let name = String::from_utf8_lossy(name).into_owned();
        headers.0.push((name, value.trim_ascii().to_vec()));
    }
    Ok(headers)
}

fn split_head(raw: &[u8]) -> Result<(String, Headers), Malformed> {
    let Some(head) = raw.strip_suffix(b"\r\n\r\n") else {
        return malformed("head does not end with an empty line");
    };
    let end = head.windows(2).position(|w| w == b"\r\n");
    let (start, fields) = match end {
        Some(end) => (&head[..end], &raw[end + 2..raw.len() - 2]),
        None => (head, &b""[..]),
    };
    if start.iter().any(|b| *b < 0x20 || *b == 0x7f) {
        return malformed("control byte in the start line");
    }
    let start = String::from_utf8_lossy(start).into_owned();
    Ok((start, parse_fields(fields)?))
}

fn lines(raw: &[u8]) -> Result<Vec<&[u8]>, Malformed> {
    let mut out = Vec::new();
    let mut rest = raw;
    while !rest.is_empty() {
        let Some(end) = rest.windows(2).position(|w| w == b"\r\n") else {
            return malformed("line without CRLF");
        };
        let line = &rest[..end];
        if line.contains(&b'\r') || line.contains(&b'\n') {
            return malformed("bare CR or LF in a field line");
        }
        out.push(line);
        rest = &rest[end + 2..];
    }
    Ok(out)
}

fn declared_framing(headers: &Headers) -> Result<Option<Framing>, Malformed> {
    let lengths = headers.values("content-length");
    let codings = headers.values("transfer-encoding");
    match (lengths.as_slice(), codings.as_slice()) {
        ([], []) => Ok(None),
        ([], ["chunked"]) => Ok(Some(Framing::Chunked)),
        ([one], []) if !one.is_empty() && one.bytes().all(|b| b.is_ascii_digit()) => match one.parse() {
            Ok(n) => Ok(Some(Framing::Length(n))),
            Err(_) => malformed(format!("content-length {one}")),
        },
        _ => malformed(format!("framing: content-length {lengths:?}, transfer-encoding {codings:?}")),
    }
}

fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_request_is_read() {
        let raw = b"GET /a?b HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n";
        let request = parse_request_head(raw).unwrap();
        assert_eq!(request.target, "/a?b");
        assert_eq!(request.framing, Framing::Length(3));
    }

    #[test]
    fn ambiguous_requests_are_refused() {
        for raw in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
            b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nX: 1\n2\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\n x: 1\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        ] {
            let text = String::from_utf8_lossy(raw);
            assert!(parse_request_head(raw).is_err(), "{text}");
        }
    }

    #[test]
    fn framing_of_responses_follows_method_and_status() {
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n";
        let framing = |raw: &[u8], method| parse_response_head(raw, method).unwrap().framing;
        assert_eq!(framing(head, "GET"), Framing::Length(5));
        assert_eq!(framing(head, "HEAD"), Framing::None);
        assert_eq!(framing(b"HTTP/1.1 304 x\r\n\r\n", "GET"), Framing::None);
        assert_eq!(framing(b"HTTP/1.1 200 \r\n\r\n", "GET"), Framing::UntilClose);
        assert!(parse_response_head(b"HTTP/1.1 2000 OK\r\n\r\n", "GET").is_err());
        assert!(parse_response_head(b"HTTP/1.1 200\r\n\r\n", "GET").is_err());
    }

    #[test]
    fn chunk_sizes_are_bare_hex() {
        assert_eq!(parse_chunk_size(b"1F").unwrap(), 31);
        for bad in [&b""[..], b"0x1", b"+1", b"1;a", b" 1", b"11111111111111111"] {
            assert!(parse_chunk_size(bad).is_err());
        }
    }
}
