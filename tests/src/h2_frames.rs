//! HTTP/2 frame by frame (RFC 9113), for saying what no library would say. Blocks are written without compression; of
//! those that come back only the status is read.

use crate::kit::{DEADLINE, Transport};
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;

#[derive(Clone, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl std::fmt::Debug for Frame {
    /// Long payloads are cut.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, flags, stream, payload } = self;
        let shown = &payload[..payload.len().min(40)];
        write!(f, "{kind}/{flags:#x} on {stream}: {} bytes {shown:02x?}", payload.len())
    }
}

impl Frame {
    /// The status that a block of fields begins with.
    pub fn status(&self) -> Option<u16> {
        const STATIC: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
        match self.payload[..] {
            [byte @ 0x88..=0x8e, ..] => Some(STATIC[usize::from(byte) - 0x88]),
            // A literal with the name of entry 8 and 3 bytes as they are.
            [0x48 | 0x08 | 0x18, 3, a, b, c, ..] => std::str::from_utf8(&[a, b, c]).ok()?.parse().ok(),
            [0x48 | 0x08 | 0x18, length, ref rest @ ..] if length & 0x80 != 0 => {
                digits(rest.get(..usize::from(length & 0x7f))?)
            }
            _ => None,
        }
    }

    /// The code of RST_STREAM or GOAWAY.
    pub fn code(&self) -> u32 {
        let at = if self.kind == GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().expect("4 bytes"))
    }

    pub fn ends_stream(&self) -> bool {
        matches!(self.kind, DATA | HEADERS) && self.flags & END_STREAM != 0
    }
}

/// Three digits in the code of RFC 7541 appendix B: 5 bits for 0 to 2, 6 bits for the others.
fn digits(bytes: &[u8]) -> Option<u16> {
    let bits = bytes.iter().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
    let (mut left, mut number) = (bytes.len() * 8, 0);
    for _ in 0..3 {
        let five = (bits >> left.checked_sub(5)?) as u16 & 31;
        let digit = if five < 3 {
            left -= 5;
            five
        } else {
            left = left.checked_sub(6)?;
            ((bits >> left) as u16 & 63) - 25 + 3
        };
        number = number * 10 + digit;
    }
    Some(number)
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a frame's length").to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// A block of fields, each a literal that is not remembered.
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        string(name, &mut bytes);
        string(value, &mut bytes);
    }
    bytes
}

/// A string as it is (RFC 7541 section 5.2).
pub fn string(text: &str, out: &mut Vec<u8>) {
    let mut length = text.len();
    if length < 127 {
        out.push(length as u8);
    } else {
        out.push(127);
        length -= 127;
        while length >= 128 {
            out.push((length % 128) as u8 | 128);
            length /= 128;
        }
        out.push(length as u8);
    }
    out.extend_from_slice(text.as_bytes());
}

/// The block of a request.
pub fn request(method: &str, path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let own = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "test")];
    block(&[&own, fields].concat())
}

/// The HEADERS of a GET.
pub fn get(stream: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &request("GET", path, &[]))
}

pub fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let pairs = values.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()[..]].concat());
    frame(SETTINGS, 0, 0, &pairs.collect::<Vec<u8>>())
}

pub fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &code.to_be_bytes())
}

pub fn window_update(stream: u32, more: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &more.to_be_bytes())
}

/// How a connection went on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    Frame(Frame),
    /// The peer closed it, with FIN or RST.
    Closed,
    /// Nothing came in time.
    Silence,
}

/// One connection. By itself it answers PING only, and not even that when it is made [`Frames::deaf`].
pub struct Frames<S = TcpStream> {
    socket: S,
    pending: Vec<u8>,
    deaf: bool,
}

impl Frames {
    /// Connects and says hello, with settings of its own.
    pub fn connect(address: SocketAddr, values: &[(u16, u32)]) -> Self {
        let socket = TcpStream::connect_timeout(&address, DEADLINE).expect("connect");
        socket.set_nodelay(true).expect("TCP_NODELAY");
        Self::over(socket, values)
    }

    /// Goes on with a socket on which something was said already.
    pub fn joined(socket: TcpStream) -> Self {
        socket.set_nodelay(true).expect("TCP_NODELAY");
        Self { socket, pending: Vec::new(), deaf: false }
    }

    /// Writes what the peer takes at once and within `limit` altogether. False when it takes no more: closed or stuck.
    pub fn push(&mut self, bytes: &[u8], limit: Duration) -> bool {
        self.socket.set_write_timeout(Some(limit)).expect("SO_SNDTIMEO");
        self.socket.write_all(bytes).is_ok()
    }
}

impl<S: Transport> Frames<S> {
    pub fn over(socket: S, values: &[(u16, u32)]) -> Self {
        let mut frames = Self { socket, pending: Vec::new(), deaf: false };
        frames.send([PREFACE, &settings(values)].concat());
        frames
    }

    /// Answers nothing any more.
    pub fn deaf(mut self) -> Self {
        self.deaf = true;
        self
    }

    /// Writes bytes as they are; a peer that closed shows in what is read.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        let _ = self.socket.write_all(bytes.as_ref()).and_then(|()| self.socket.flush());
        self
    }

    /// The next frame, within `limit`.
    pub fn next_within(&mut self, limit: Duration) -> Next {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(frame) = self.take() {
                if frame.kind == PING && frame.flags & ACK == 0 && !self.deaf {
                    self.send(self::frame(PING, ACK, 0, &frame.payload));
                }
                return Next::Frame(frame);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Next::Silence;
            }
            let _ = self.socket.limit_reads(left);
            let mut room = [0; 16 * 1024];
            match self.socket.read(&mut room) {
                Ok(0) => return Next::Closed,
                Ok(count) => self.pending.extend_from_slice(&room[..count]),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => return Next::Silence,
                    ErrorKind::Interrupted => {}
                    _ => return Next::Closed,
                },
            }
        }
    }

    pub fn next_frame(&mut self) -> Next {
        self.next_within(DEADLINE)
    }

    /// Skips frames until one is as wanted; panics when the connection ends before.
    pub fn await_frame(&mut self, what: &str, wanted: impl Fn(&Frame) -> bool) -> Frame {
        let mut skipped = Vec::new();
        loop {
            match self.next_frame() {
                Next::Frame(frame) if wanted(&frame) => return frame,
                Next::Frame(frame) => skipped.push(frame),
                end => panic!("{what}: {end:?} behind {skipped:?}"),
            }
        }
    }

    /// The status of the answer on `stream`.
    pub fn await_status(&mut self, stream: u32) -> u16 {
        let head = self.await_frame("an answer", |frame| frame.kind == HEADERS && frame.stream == stream);
        head.status().unwrap_or_else(|| panic!("no status in {head:?}"))
    }

    /// Whether the request on `stream` is turned down: by an answer that says so, a reset, or the end of it all.
    pub fn refuses(&mut self, stream: u32) -> bool {
        loop {
            match self.next_frame() {
                Next::Frame(frame) if frame.kind == GOAWAY => return true,
                Next::Frame(frame) if frame.stream != stream => {}
                Next::Frame(frame) if frame.kind == RST_STREAM => return true,
                Next::Frame(frame) if frame.kind == HEADERS => return frame.status().is_some_and(|it| it >= 400),
                Next::Frame(_) => {}
                Next::Closed => return true,
                Next::Silence => return false,
            }
        }
    }

    /// All frames until the peer closes; panics when it does not.
    pub fn until_closed(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        loop {
            match self.next_frame() {
                Next::Frame(frame) => frames.push(frame),
                Next::Closed => return frames,
                Next::Silence => panic!("still open behind {frames:?}"),
            }
        }
    }

    fn take(&mut self) -> Option<Frame> {
        let head = self.pending.get(..9)?;
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let (kind, flags) = (head[3], head[4]);
        let stream = u32::from_be_bytes(head[5..9].try_into().expect("4 bytes")) & 0x7fff_ffff;
        let payload = self.pending.get(9..9 + length)?.to_vec();
        self.pending.drain(..9 + length);
        Some(Frame { kind, flags, stream, payload })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_however_it_is_written() {
        let status = |payload: &[u8]| Frame { kind: HEADERS, flags: 0, stream: 1, payload: payload.to_vec() }.status();
        assert_eq!(status(&[0x88]), Some(200));
        assert_eq!(status(&[0x48, 3, b'4', b'3', b'1']), Some(431));
        // RFC 7541 appendix C.6.1: 302.
        assert_eq!(status(&[0x48, 0x82, 0x64, 0x02]), Some(302));
    }
}
