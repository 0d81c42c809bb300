//! Buffered reads from a socket with a deadline on each, and the reading of
//! whole messages on top. Used by both the raw client and the origins. The
//! socket may be a session over one, such as TLS: see [`Transport`].

use crate::message::{self, Framing, Headers, Malformed};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Bytes kept of what a connection received; beyond it (bulk transfers) only
/// the count goes on, so that a 100 MB test does not need 100 MB.
pub const RECORD_LIMIT: usize = 4 << 20;

/// What ended a read.
#[derive(Debug, PartialEq, Eq)]
pub enum WireError {
    /// Nothing more came in time. Carries what was buffered.
    Timeout(String),
    /// The peer closed. Carries what was buffered.
    Eof(String),
    /// The peer reset the connection.
    Reset,
    /// The peer sent something that is not HTTP/1.1.
    Malformed(String),
    /// Any other failure of the socket.
    Io(String),
}

impl From<Malformed> for WireError {
    fn from(bad: Malformed) -> Self {
        Self::Malformed(bad.0)
    }
}

/// What carries the bytes.
pub trait Transport: Read + Write {
    /// How long a read that follows may take.
    fn limit_reads(&mut self, limit: Duration) -> std::io::Result<()>;
}

impl Transport for TcpStream {
    fn limit_reads(&mut self, limit: Duration) -> std::io::Result<()> {
        self.set_read_timeout(Some(limit))
    }
}

impl Transport for UnixStream {
    fn limit_reads(&mut self, limit: Duration) -> std::io::Result<()> {
        self.set_read_timeout(Some(limit))
    }
}

/// A socket's receiving side.
pub struct Wire<S = TcpStream> {
    pub stream: S,
    pending: Vec<u8>,
    timeout: Duration,
    record: Option<Arc<Mutex<Vec<u8>>>>,
}

impl<S: Transport> Wire<S> {
    pub fn new(stream: S, timeout: Duration) -> Self {
        Self { stream, pending: Vec::new(), timeout, record: None }
    }

    /// Also appends each byte received, up to [`RECORD_LIMIT`], to `record`.
    pub fn recording(mut self, record: Arc<Mutex<Vec<u8>>>) -> Self {
        self.record = Some(record);
        self
    }

    /// Replaces the time that one read operation may take as a whole.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Bytes received but not consumed yet.
    pub fn pending(&self) -> &[u8] {
        &self.pending
    }

    /// A message head up to and with its empty line; `None` when the peer
    /// closed before sending any byte of it.
    pub fn head(&mut self) -> Result<Option<Vec<u8>>, WireError> {
        let deadline = Instant::now() + self.timeout;
        let mut scanned = 0;
        loop {
            let from = scanned.min(self.pending.len());
            if let Some(at) = find(&self.pending[from..], b"\r\n\r\n") {
                return Ok(Some(self.pending.drain(..from + at + 4).collect()));
            }
            scanned = self.pending.len().saturating_sub(3);
            match self.fill(deadline) {
                Err(WireError::Eof(rest)) if rest.is_empty() => return Ok(None),
                other => other?,
            }
        }
    }

    /// Exactly `count` bytes.
    pub fn exact(&mut self, count: usize) -> Result<Vec<u8>, WireError> {
        let deadline = Instant::now() + self.timeout;
        while self.pending.len() < count {
            self.fill(deadline)?;
        }
        Ok(self.pending.drain(..count).collect())
    }

    /// Everything up to the peer's orderly close.
    pub fn until_eof(&mut self) -> Result<Vec<u8>, WireError> {
        let deadline = Instant::now() + self.timeout;
        loop {
            match self.fill(deadline) {
                Ok(()) => {}
                Err(WireError::Eof(_)) => return Ok(std::mem::take(&mut self.pending)),
                Err(other) => return Err(other),
            }
        }
    }

    /// Reads a body and hands its pieces to `sink`; returns the trailers. The
    /// timeout applies to each piece, so bulk bodies may take longer.
    pub fn body(&mut self, framing: Framing, sink: &mut dyn FnMut(&[u8])) -> Result<Headers, WireError> {
        match framing {
            Framing::None => {}
            Framing::Length(length) => self.pieces(length, sink)?,
            Framing::UntilClose => loop {
                sink(&std::mem::take(&mut self.pending));
                match self.fill(Instant::now() + self.timeout) {
                    Err(WireError::Eof(_)) => break,
                    other => other?,
                }
            },
            Framing::Chunked => loop {
                let size = message::parse_chunk_size(&self.line()?)?;
                if size == 0 {
                    return self.trailers();
                }
                self.pieces(size, sink)?;
                if self.exact(2)? != b"\r\n" {
                    return Err(WireError::Malformed("no CRLF after chunk data".into()));
                }
            },
        }
        Ok(Headers::default())
    }

    fn trailers(&mut self) -> Result<Headers, WireError> {
        let mut raw = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok(message::parse_fields(&raw)?);
            }
            raw.extend_from_slice(&line);
            raw.extend_from_slice(b"\r\n");
        }
    }

    fn pieces(&mut self, length: u64, sink: &mut dyn FnMut(&[u8])) -> Result<(), WireError> {
        let mut left = length;
        while left > 0 {
            if self.pending.is_empty() {
                self.fill(Instant::now() + self.timeout)?;
            }
            let take = self.pending.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            sink(&self.pending[..take]);
            self.pending.drain(..take);
            left -= take as u64;
        }
        Ok(())
    }

    /// A line without its CRLF.
    fn line(&mut self) -> Result<Vec<u8>, WireError> {
        let deadline = Instant::now() + self.timeout;
        loop {
            if let Some(at) = find(&self.pending, b"\r\n") {
                let mut line: Vec<u8> = self.pending.drain(..at + 2).collect();
                line.truncate(at);
                return Ok(line);
            }
            self.fill(deadline)?;
        }
    }

    /// Waits for at least one more byte.
    fn fill(&mut self, deadline: Instant) -> Result<(), WireError> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(400)]).into_owned();
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(WireError::Timeout(text(&self.pending)));
        }
        let io = |error: std::io::Error| WireError::Io(error.to_string());
        self.stream.limit_reads(left).map_err(io)?;
        let mut buffer = [0; 64 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) => Err(WireError::Eof(text(&self.pending))),
            Ok(count) => {
                self.pending.extend_from_slice(&buffer[..count]);
                if let Some(record) = &self.record {
                    let mut record = record.lock().unwrap();
                    let room = RECORD_LIMIT.saturating_sub(record.len()).min(count);
                    record.extend_from_slice(&buffer[..room]);
                }
                Ok(())
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => Err(WireError::Timeout(text(&self.pending))),
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Err(WireError::Reset),
                ErrorKind::Interrupted => Ok(()),
                _ => Err(io(error)),
            },
        }
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|w| w == needle)
}
