//! A client that writes exactly the bytes it is given and reads answers with
//! the strict parser of [`crate::message`].

use crate::message::{self, Response};
use crate::wire::{Transport, Wire, WireError};
use crate::{DEADLINE, net};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// One client connection. Every operation has a deadline.
pub struct RawClient<S = TcpStream> {
    wire: Wire<S>,
}

impl RawClient {
    /// Connects, or panics: in a test a proxy that does not accept is a failure.
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect_timeout(&address, DEADLINE)
            .unwrap_or_else(|error| panic!("connect to {address}: {error}"));
        Self::from_stream(stream)
    }

    /// Whether a new connection is reset before it carries anything: as soon as it is made, so that connecting itself
    /// may fail, or later.
    pub fn is_reset(address: SocketAddr) -> bool {
        match TcpStream::connect_timeout(&address, DEADLINE) {
            Ok(stream) => Self::from_stream(stream).read_to_end() == Err(WireError::Reset),
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }

    /// Wraps a socket that the test made itself (small buffers, bound source).
    pub fn from_stream(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("TCP_NODELAY");
        stream.set_write_timeout(Some(DEADLINE)).expect("SO_SNDTIMEO");
        Self::over(stream)
    }

    /// One request on a connection of its own, its answer, then close.
    pub fn once(address: SocketAddr, request: impl AsRef<[u8]>) -> Result<Response, WireError> {
        let mut client = Self::connect(address);
        client.send(request.as_ref());
        client.response(method_of(request.as_ref()))
    }

    /// Sends FIN and keeps reading.
    pub fn half_close(&mut self) -> &mut Self {
        self.wire.stream.shutdown(Shutdown::Write).expect("half-close");
        self
    }

    /// Sends `bytes` and FIN in one segment, so that nobody sees the one without the other, and keeps reading.
    pub fn send_and_half_close(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        // Linux: MSG_MORE, "there is more to come".
        const MORE: i32 = 0x8000;
        let bytes = bytes.as_ref();
        let sent = socket2::SockRef::from(&self.wire.stream).send_with_flags(bytes, MORE).expect("send");
        assert_eq!(sent, bytes.len(), "the rest has no room");
        self.half_close()
    }

    /// Ends the connection with RST.
    pub fn reset(self) {
        net::reset(self.wire.stream);
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.wire.stream.local_addr().expect("local address")
    }
}

impl<S: Transport> RawClient<S> {
    /// Speaks over what is connected already.
    pub fn over(transport: S) -> Self {
        Self { wire: Wire::new(transport, DEADLINE) }
    }

    /// Replaces the deadline of each read.
    pub fn set_timeout(&mut self, timeout: Duration) -> &mut Self {
        self.wire.set_timeout(timeout);
        self
    }

    /// Writes bytes as they are. A peer that already closed is not an error
    /// here: its answer, or the lack of one, is what the test looks at.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        let _ = self.wire.stream.write_all(bytes.as_ref());
        self
    }

    /// Writes bytes, telling whether the socket took them all.
    pub fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.wire.stream.write_all(bytes)
    }

    /// Sends a request and reads its final answer, skipping interim ones.
    pub fn exchange(&mut self, request: impl AsRef<[u8]>) -> Response {
        let request = request.as_ref();
        self.send(request);
        self.response(method_of(request)).unwrap_or_else(|error| {
            panic!("no answer to {:?}: {error:?}", String::from_utf8_lossy(&request[..request.len().min(300)]))
        })
    }

    /// The next final answer with its whole body; interim (1xx) answers other
    /// than 101 are skipped.
    pub fn response(&mut self, method: &str) -> Result<Response, WireError> {
        loop {
            let response = self.any_response(method)?;
            if response.status >= 200 || response.status == 101 {
                return Ok(response);
            }
        }
    }

    /// The next answer, interim or final, with its whole body.
    pub fn any_response(&mut self, method: &str) -> Result<Response, WireError> {
        let mut response = self.response_head(method)?;
        let mut body = Vec::new();
        response.trailers = self.wire.body(response.framing, &mut |piece| body.extend_from_slice(piece))?;
        response.body = body;
        Ok(response)
    }

    /// The next head only; the body is left on the wire.
    pub fn response_head(&mut self, method: &str) -> Result<Response, WireError> {
        let raw = self.wire.head()?.ok_or_else(|| WireError::Eof(String::new()))?;
        Ok(message::parse_response_head(&raw, method)?)
    }

    /// Reads the body that follows `head` piece by piece.
    pub fn body(&mut self, head: &Response, sink: &mut dyn FnMut(&[u8])) -> Result<(), WireError> {
        self.wire.body(head.framing, sink).map(|_| ())
    }

    /// Exactly `count` raw bytes.
    pub fn read_exact(&mut self, count: usize) -> Result<Vec<u8>, WireError> {
        self.wire.exact(count)
    }

    /// All raw bytes until the peer closes.
    pub fn read_to_end(&mut self) -> Result<Vec<u8>, WireError> {
        self.wire.until_eof()
    }

    /// Bytes received beyond what was consumed.
    pub fn leftover(&self) -> &[u8] {
        self.wire.pending()
    }

    /// Whether the peer closes or resets without sending anything more.
    pub fn closed(&mut self) -> bool {
        match self.wire.until_eof() {
            Ok(rest) => rest.is_empty(),
            Err(WireError::Reset) => true,
            Err(_) => false,
        }
    }

    pub fn stream(&self) -> &S {
        &self.wire.stream
    }

    /// Gives the transport to who speaks something else on it.
    pub fn into_transport(self) -> S {
        self.wire.stream
    }
}

/// The method that a raw request starts with; an answer's framing needs it.
fn method_of(request: &[u8]) -> &str {
    let end = request.iter().position(|b| *b == b' ').unwrap_or(0);
    std::str::from_utf8(&request[..end]).unwrap_or("")
}
