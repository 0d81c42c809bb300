//! Heads on the wire: serialised afresh from validated parts (RFC 9112 3, 4, 5).
//!
//! Consecutive fields whose received lines already are what a fresh serialisation would give are copied
//! as one span. Framing is written from [`BodyFraming`], `Connection` from [`Connection`]; whatever the
//! head still holds under those names is left out.

use crate::{BodyFraming, Fields, HeaderId, RequestHead, ResponseHead, reason_phrase};

/// What to say about the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Connection {
    /// Nothing: HTTP/1.1 persists by itself.
    #[default]
    Implicit,
    /// `connection: keep-alive`, for an HTTP/1.0 peer.
    KeepAlive,
    /// `connection: close`
    Close,
    /// `connection: upgrade`, with the head's own `Upgrade` field.
    Upgrade,
}

/// How to write a request head.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestWrite<'a> {
    /// Framing of the body that follows.
    pub framing: BodyFraming,
    /// What to say about the connection.
    pub connection: Connection,
    /// Path and query to send instead of [`RequestHead::path`]; must be one that
    /// [`RequestHead::set_path`] would take, else the head's own is sent.
    pub path: Option<&'a [u8]>,
    /// Fields to add at the end. Invalid values are left out.
    pub extra: &'a [(HeaderId, &'a [u8])],
}

/// How to write a response head.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResponseWrite<'a> {
    /// Framing of the body that follows.
    pub framing: BodyFraming,
    /// What to say about the connection.
    pub connection: Connection,
    /// Replaces every `Server` field of the head.
    pub server: Option<&'a [u8]>,
    /// Keep the head's `content-length` although no body follows: answers to HEAD, and 304.
    pub keep_length: bool,
    /// Fields to add at the end, such as `date`. Invalid values are left out.
    pub extra: &'a [(HeaderId, &'a [u8])],
}

/// Appends a request head, its empty line included, to `out`.
pub fn write_request(head: &RequestHead, options: &RequestWrite<'_>, out: &mut Vec<u8>) {
    let path = options.path.filter(|path| is_sendable_path(path)).unwrap_or(head.path());
    // RFC 9112 3.2.3: a CONNECT target is the authority; every other one has at least a slash.
    let target = match (head.method(), path) {
        (crate::Method::Connect, []) => head.authority(),
        (_, []) => b"/",
        (_, path) => path,
    };
    out.reserve(head.fields.block().len() + target.len() + HEADROOM);
    out.extend_from_slice(head.method_bytes());
    out.push(b' ');
    out.extend_from_slice(target);
    out.extend_from_slice(b" HTTP/1.1\r\n");
    let keep_length = false;
    let upgrade = options.connection == Connection::Upgrade;
    finish(
        &head.fields,
        options.framing,
        options.connection,
        keep_length,
        skip_ids(upgrade, false),
        options.extra,
        out,
    );
}

/// Appends a response head, its empty line included, to `out`.
pub fn write_response(head: &ResponseHead, options: &ResponseWrite<'_>, out: &mut Vec<u8>) {
    out.reserve(head.fields.block().len() + HEADROOM);
    write_status_line(head.status(), out);
    let upgrade = options.connection == Connection::Upgrade;
    let skip = skip_ids(upgrade, options.server.is_some());
    if let Some(server) = options.server {
        write_field(HeaderId::Server, server, out);
    }
    finish(&head.fields, options.framing, options.connection, options.keep_length, skip, options.extra, out);
}

/// Appends trailer fields and the empty line that ends them (RFC 9112 7.1.2).
pub fn write_trailers(trailers: &Fields, out: &mut Vec<u8>) {
    write_fields(trailers, skip_ids(false, false) | bit(HeaderId::ContentLength), out);
    out.extend_from_slice(b"\r\n");
}

/// Room for what a head gains beyond what was received: start line, framing, a few added fields.
const HEADROOM: usize = 256;

/// Ids to leave out, as bits; only ones that [`HeaderId::is_written_specially`].
type IdSet = u8;

const fn bit(id: HeaderId) -> IdSet {
    1 << (id as u8)
}

const fn skip_ids(upgrade: bool, server: bool) -> IdSet {
    let mut skip = bit(HeaderId::Connection)
        | bit(HeaderId::KeepAlive)
        | bit(HeaderId::ProxyConnection)
        | bit(HeaderId::TransferEncoding);
    if !upgrade {
        skip |= bit(HeaderId::Upgrade);
    }
    if server {
        skip |= bit(HeaderId::Server);
    }
    skip
}

fn finish(
    fields: &Fields,
    framing: BodyFraming,
    connection: Connection,
    keep_length: bool,
    mut skip: IdSet,
    extra: &[(HeaderId, &[u8])],
    out: &mut Vec<u8>,
) {
    // The length to write, unless the received line already says just that.
    let decimal = match framing {
        BodyFraming::Length(length) => Some(Decimal::new(length)),
        BodyFraming::None if keep_length => crate::content_length(fields).ok().flatten().map(Decimal::new),
        _ => None,
    };
    let received_stands = decimal.as_ref().is_some_and(|decimal| fields.has_canonical_length(decimal.as_bytes()));
    if !received_stands {
        skip |= bit(HeaderId::ContentLength);
    }
    write_fields(fields, skip, out);
    if let Some(decimal) = decimal.filter(|_| !received_stands) {
        write_line(HeaderId::ContentLength.name().as_bytes(), decimal.as_bytes(), out);
    }
    if framing == BodyFraming::Chunked {
        out.extend_from_slice(b"transfer-encoding: chunked\r\n");
    }
    match connection {
        Connection::Implicit => {}
        Connection::KeepAlive => out.extend_from_slice(b"connection: keep-alive\r\n"),
        Connection::Close => out.extend_from_slice(b"connection: close\r\n"),
        Connection::Upgrade => out.extend_from_slice(b"connection: upgrade\r\n"),
    }
    for (id, value) in extra {
        write_field(*id, value, out);
    }
    out.extend_from_slice(b"\r\n");
}

/// Every live field whose id is not in `skip`, unbroken spans of canonical lines copied whole.
#[inline]
fn write_fields(fields: &Fields, skip: IdSet, out: &mut Vec<u8>) {
    let block = fields.block();
    let (mut span_start, mut span_end) = (0, 0);
    let flush = |start: usize, end: usize, out: &mut Vec<u8>| {
        if start < end {
            out.extend_from_slice(block.get(start..end).unwrap_or_default());
        }
    };
    for entry in fields.entries() {
        if !entry.is_live() || (entry.id.is_written_specially() && skip & bit(entry.id) != 0) {
            continue;
        }
        if let Some((start, end)) = entry.canonical_line() {
            if start != span_end {
                flush(span_start, span_end, out);
                span_start = start;
            }
            span_end = end;
            continue;
        }
        flush(span_start, span_end, out);
        (span_start, span_end) = (0, 0);
        write_line(fields.name_of(entry), fields.value_of(entry), out);
    }
    flush(span_start, span_end, out);
}

#[inline]
fn write_line(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// A field given by the caller: nothing unvalidated leaves, so a bad one is left out.
#[inline]
fn write_field(id: HeaderId, value: &[u8], out: &mut Vec<u8>) {
    if id != HeaderId::Unknown && crate::chars::is_field_value(value) {
        write_line(id.name().as_bytes(), value, out);
    }
}

fn write_status_line(status: u16, out: &mut Vec<u8>) {
    if status == 200 {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        return;
    }
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(Decimal::new(u64::from(status)).as_bytes());
    out.push(b' ');
    out.extend_from_slice(reason_phrase(status).as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn is_sendable_path(path: &[u8]) -> bool {
    (path.first() == Some(&b'/') || path == b"*") && !path.iter().any(|&b| b <= b' ' || b == 0x7f || b == b'#')
}

/// A number in decimal, without allocation.
pub struct Decimal {
    digits: [u8; 20],
    start: usize,
}

impl Decimal {
    /// The decimal form of `number`.
    pub fn new(mut number: u64) -> Self {
        let mut digits = [b'0'; 20];
        let mut start = digits.len();
        for (at, digit) in digits.iter_mut().enumerate().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
            start = at;
            if number == 0 {
                break;
            }
        }
        Self { digits, start }
    }

    /// The digits.
    pub fn as_bytes(&self) -> &[u8] {
        self.digits.get(self.start..).unwrap_or_default()
    }
}
