//! Heads on the wire: serialised afresh from validated parts (RFC 9112 3, 4, 5).
//!
//! Consecutive fields whose received lines already are what a fresh serialisation would give are copied
//! as one span. Framing is written from [`BodyFraming`], `Connection` from [`Connection`]; whatever the
//! head still holds under those names is left out.

use crate::header_id::IdSet;
use crate::{BodyFraming, FieldLine, Fields, HeaderId, RequestHead, ResponseHead, Scheme, reason_phrase};

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

impl Connection {
    /// What the field says; `None` where there is none.
    fn value(self) -> Option<&'static [u8]> {
        match self {
            Connection::Implicit => None,
            Connection::KeepAlive => Some(b"keep-alive"),
            Connection::Close => Some(b"close"),
            Connection::Upgrade => Some(b"upgrade"),
        }
    }
}

/// How to write a request head.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestWrite<'a> {
    /// Framing of the body that follows.
    pub framing: BodyFraming,
    /// What to say about the connection.
    pub connection: Connection,
    /// Write the target as a whole URL with this scheme (RFC 9112 3.2.2), as proxies are asked.
    pub absolute: Option<Scheme>,
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
    /// The framing is the one that admission read from this very head: a length line that nobody edited stands, and is
    /// not read again.
    pub framing_as_received: bool,
    /// Replaces every `Server` field of the head.
    pub server: Option<&'a FieldLine>,
    /// Keep the head's `content-length` although no body follows: answers to HEAD, and 304.
    pub keep_length: bool,
    /// Fields to add at the end, such as `date`. Invalid values are left out.
    pub extra: &'a [(HeaderId, &'a [u8])],
}

/// Appends a request head, its empty line included, to `out`.
pub fn write_request(head: &RequestHead, options: &RequestWrite<'_>, out: &mut Vec<u8>) {
    // RFC 9112 3.2.3: a CONNECT target is the authority; every other one has at least a slash.
    let target = match (head.method(), head.path()) {
        (crate::Method::Connect, []) => head.authority(),
        (_, []) => b"/",
        (_, path) => path,
    };
    let fields = &head.fields;
    out.reserve(fields.block().len() + target.len() + HEADROOM);
    // RFC 9110 8.6: where a method is expected to come with a body, its absence is said.
    let framing = match options.framing {
        BodyFraming::None if head.method().expects_body() && options.connection != Connection::Upgrade => {
            BodyFraming::Length(0)
        }
        framing => framing,
    };
    let plan = Plan::new(fields, framing, options.connection, false, false);
    let (lead, mut lines) = fields.lines_before(plan.skip);
    match head.canonical_line().filter(|line| options.absolute.is_none() && line.end == lines.start) {
        // The request line and the lines behind it, all as they came.
        Some(line) => lines.start = line.start,
        None => {
            out.extend_from_slice(head.method_bytes());
            out.push(b' ');
            // Other targets are none of a resource.
            if let Some(scheme) = options.absolute.filter(|_| target.starts_with(b"/")) {
                out.extend_from_slice(scheme.as_str().as_bytes());
                out.extend_from_slice(b"://");
                out.extend_from_slice(head.authority());
            }
            out.extend_from_slice(target);
            out.extend_from_slice(b" HTTP/1.1\r\n");
        }
    }
    out.extend_from_slice(fields.block().get(lines).unwrap_or_default());
    plan.finish(fields, lead, options.connection, options.extra, out);
}

/// Appends a response head, its empty line included, to `out`.
pub fn write_response(head: &ResponseHead, options: &ResponseWrite<'_>, out: &mut Vec<u8>) {
    let fields = &head.fields;
    out.reserve(fields.block().len() + HEADROOM);
    match head.own_reason() {
        None => write_status_line(head.status(), out),
        Some(reason) => write_status_and_reason(head.status(), reason, out),
    }
    if let Some(server) = options.server {
        out.extend_from_slice(server.as_bytes());
    }
    let length_stands =
        options.framing_as_received && options.framing.length().is_some() && fields.canonical_length_digits().is_some();
    let plan = match length_stands {
        true => Plan {
            skip: skip_ids(options.connection == Connection::Upgrade, options.server.is_some()),
            length: None,
            chunked: false,
        },
        false => Plan::new(fields, options.framing, options.connection, options.keep_length, options.server.is_some()),
    };
    let (lead, lines) = fields.lines_before(plan.skip);
    out.extend_from_slice(fields.block().get(lines).unwrap_or_default());
    plan.finish(fields, lead, options.connection, options.extra, out);
}

/// Gives the head those fields that [`write_response`] writes in place of its own, for who reads it afterwards: `Server`,
/// `Connection` and the length. The coding of the body is not the answer's, and is not told.
pub fn note_written(head: &mut ResponseHead, options: &ResponseWrite<'_>) {
    let fields = &mut head.fields;
    let plan = Plan::new(fields, options.framing, options.connection, options.keep_length, options.server.is_some());
    for id in [HeaderId::Connection, HeaderId::TransferEncoding, HeaderId::Upgrade, HeaderId::ContentLength] {
        if id.is_in(plan.skip) {
            fields.remove(id);
        }
    }
    // The values are checked ones. Of a head that is full already they are left out.
    if let Some(server) = options.server {
        let _ = fields.set(HeaderId::Server, server.value());
    }
    if let Some(length) = plan.length {
        let _ = fields.append(HeaderId::ContentLength, Decimal::new(length).as_bytes());
    }
    if let Some(value) = options.connection.value() {
        let _ = fields.append(HeaderId::Connection, value);
    }
}

/// Appends trailer fields and the empty line that ends them (RFC 9112 7.1.2).
pub fn write_trailers(trailers: &Fields, out: &mut Vec<u8>) {
    write_fields(trailers, 0, skip_ids(false, false) | HeaderId::ContentLength.noted_bit(), out);
    out.extend_from_slice(b"\r\n");
}

/// Room for what a head gains beyond what was received: start line, framing, a few added fields.
const HEADROOM: usize = 256;

const fn skip_ids(upgrade: bool, server: bool) -> IdSet {
    let mut skip = HeaderId::Connection.noted_bit()
        | HeaderId::KeepAlive.noted_bit()
        | HeaderId::ProxyConnection.noted_bit()
        | HeaderId::TransferEncoding.noted_bit();
    if !upgrade {
        skip |= HeaderId::Upgrade.noted_bit();
    }
    if server {
        skip |= HeaderId::Server.noted_bit();
    }
    skip
}

/// What to leave out of a head, and what to write in its place.
struct Plan {
    skip: IdSet,
    /// The Content-Length to write behind the fields; `None` when there is none, or the received line says it.
    length: Option<u64>,
    chunked: bool,
}

impl Plan {
    #[inline]
    fn new(fields: &Fields, framing: BodyFraming, connection: Connection, keep_length: bool, server: bool) -> Self {
        let mut skip = skip_ids(connection == Connection::Upgrade, server);
        let wanted = match framing {
            BodyFraming::Length(length) | BodyFraming::Counted(length) => Some(length),
            BodyFraming::None if keep_length => crate::content_length(fields).ok().flatten(),
            _ => None,
        };
        let received_stands = wanted.is_some() && fields.canonical_length() == wanted;
        if !received_stands {
            skip |= HeaderId::ContentLength.noted_bit();
        }
        Self { skip, length: wanted.filter(|_| !received_stands), chunked: framing == BodyFraming::Chunked }
    }

    /// Writes the entries from position `from` on, framing, connection, `extra` and the empty line.
    #[inline]
    fn finish(
        self,
        fields: &Fields,
        from: usize,
        connection: Connection,
        extra: &[(HeaderId, &[u8])],
        out: &mut Vec<u8>,
    ) {
        write_fields(fields, from, self.skip, out);
        if let Some(length) = self.length {
            write_line(HeaderId::ContentLength.name().as_bytes(), Decimal::new(length).as_bytes(), out);
        }
        if self.chunked {
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
}

/// Every live field from position `from` on whose id is not in `skip`; lines that stand behind one another already
/// are copied whole.
#[inline]
fn write_fields(fields: &Fields, from: usize, skip: IdSet, out: &mut Vec<u8>) {
    let mut rest = fields.entries().get(from..).unwrap_or_default();
    while let Some((entry, mut behind)) = rest.split_first() {
        if entry.id.is_in(skip) {
            rest = behind;
            continue;
        }
        if !entry.is_canonical() && !entry.is_added() {
            if entry.is_live() {
                write_line(fields.name_of(entry), fields.value_of(entry), out);
            }
            rest = behind;
            continue;
        }
        let mut last = entry;
        while let Some((next, after)) = behind.split_first()
            && next.follows(last)
            && !next.id.is_in(skip)
        {
            last = next;
            behind = after;
        }
        let lines = if entry.is_canonical() { fields.block() } else { fields.arena() };
        out.extend_from_slice(lines.get(entry.line_start()..last.line_end()).unwrap_or_default());
        rest = behind;
    }
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
        out.extend_from_slice(id.line_start());
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
}

fn write_status_line(status: u16, out: &mut Vec<u8>) {
    if status == 200 {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        return;
    }
    write_status_and_reason(status, reason_phrase(status).as_bytes(), out);
}

fn write_status_and_reason(status: u16, reason: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(Decimal::new(u64::from(status)).as_bytes());
    out.push(b' ');
    out.extend_from_slice(reason);
    out.extend_from_slice(b"\r\n");
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
