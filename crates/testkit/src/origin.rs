//! An upstream that does what its script says and remembers all it received.
//!
//! A script is a closure run once per connection on a thread of its own. It
//! reads requests with the strict parser; what that parser refuses is kept in
//! [`Origin::malformed`], so a suite can assert that nothing odd ever came
//! through. Delays are made with [`crate::Gate`]s, never with sleeps.

use crate::message::{self, Request};
use crate::wire::{Wire, WireError};
use crate::{DEADLINE, wait_until};
use std::io::Write;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A running origin; stops, resetting what is open, on drop.
pub struct Origin {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    stopping: AtomicBool,
    connections: Mutex<Vec<Seen>>,
}

/// What is remembered of one connection.
struct Seen {
    bytes: Arc<Mutex<Vec<u8>>>,
    requests: Vec<Request>,
    malformed: Vec<String>,
    open: bool,
    /// For [`Origin::kill`]; dropped with the script, since an RST is only sent
    /// when the last handle of a socket closes.
    stream: Option<TcpStream>,
}

/// The scripted side of one accepted connection.
pub struct OriginConnection {
    wire: Wire,
    shared: Arc<Shared>,
    /// 0 for the first connection accepted, and so on.
    pub index: usize,
}

impl Origin {
    /// Runs `script` for each connection.
    pub fn start(script: impl Fn(&mut OriginConnection) + Send + Sync + 'static) -> Self {
        Self::start_at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), script)
    }

    /// The same at a given address, for origins that come back after a fall.
    pub fn start_at(address: SocketAddr, script: impl Fn(&mut OriginConnection) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(address).expect("origin: bind");
        let address = listener.local_addr().expect("origin: address");
        let shared = Arc::new(Shared::default());
        let script = Arc::new(script);
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if accepting.stopping.load(Ordering::SeqCst) {
                    break;
                }
                let mut connection = accepting.accept(stream);
                let script = Arc::clone(&script);
                std::thread::spawn(move || {
                    script(&mut connection);
                    connection.finish();
                });
            }
        });
        Self { address, shared }
    }

    /// Answers each request, once read whole, with the same bytes. Closes the
    /// connection afterwards when they say `connection: close` or are
    /// delimited by it (no framing field).
    pub fn fixed(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        let text = String::from_utf8_lossy(&answer).to_ascii_lowercase();
        let framed = text.contains("content-length:")
            || text.contains("transfer-encoding:")
            || text.starts_with("http/1.1 204")
            || text.starts_with("http/1.1 304");
        let close = text.contains("connection: close") || !framed;
        Self::start(move |connection| {
            while let Some(request) = connection.request() {
                connection.write(&answer);
                if close || closes(&request) {
                    return;
                }
            }
        })
    }

    /// Answers 200 with the request as it arrived (head, then decoded body) as
    /// the body, and `name` in the header `x-origin`.
    pub fn echo(name: &str) -> Self {
        let name = name.to_string();
        Self::start(move |connection| {
            while let Some(request) = connection.request() {
                connection.write(&echo_answer(&name, &request));
                if closes(&request) {
                    return;
                }
            }
        })
    }

    /// Sends every byte back: the peer of TCP proxy tests. Half-closes when
    /// the other side did.
    pub fn tcp_echo(greeting: &str) -> Self {
        let greeting = greeting.as_bytes().to_vec();
        Self::start(move |connection| {
            connection.write(&greeting);
            loop {
                match connection.wire.exact(1) {
                    Ok(first) => {
                        let pending = connection.wire.pending().len();
                        let rest = connection.wire.exact(pending).unwrap_or_default();
                        connection.write(&[first, rest].concat());
                    }
                    Err(_) => return connection.half_close(),
                }
            }
        })
    }

    /// Accepts and reads, but never answers.
    pub fn silent() -> Self {
        Self::start(|connection| {
            let _ = connection.wire.until_eof();
        })
    }

    /// Connections accepted so far.
    pub fn connection_count(&self) -> usize {
        self.shared.connections.lock().unwrap().len()
    }

    /// Connections not closed yet by either side's script.
    pub fn open_connections(&self) -> usize {
        self.shared.connections.lock().unwrap().iter().filter(|c| c.open).count()
    }

    /// All requests read so far, by connection and in order of arrival.
    pub fn requests(&self) -> Vec<Request> {
        let connections = self.shared.connections.lock().unwrap();
        connections.iter().flat_map(|c| c.requests.clone()).collect()
    }

    /// The raw bytes received on connection `index`.
    pub fn bytes(&self, index: usize) -> Vec<u8> {
        let connections = self.shared.connections.lock().unwrap();
        connections.get(index).map(|c| c.bytes.lock().unwrap().clone()).unwrap_or_default()
    }

    /// The raw bytes received on all connections, one after the other.
    pub fn all_bytes(&self) -> Vec<u8> {
        (0..self.connection_count()).flat_map(|index| self.bytes(index)).collect()
    }

    /// What the strict parser refused.
    pub fn malformed(&self) -> Vec<String> {
        let connections = self.shared.connections.lock().unwrap();
        connections.iter().flat_map(|c| c.malformed.clone()).collect()
    }

    /// Forgets what was recorded; connections stay open.
    pub fn forget(&self) {
        for connection in self.shared.connections.lock().unwrap().iter_mut() {
            connection.bytes.lock().unwrap().clear();
            connection.requests.clear();
            connection.malformed.clear();
        }
    }

    pub fn wait_connections(&self, count: usize) {
        wait_until(&format!("{count} origin connections"), || self.connection_count() >= count);
    }

    pub fn wait_requests(&self, count: usize) {
        wait_until(&format!("{count} origin requests"), || self.requests().len() >= count);
    }

    /// Waits until no more than `count` connections are open.
    pub fn wait_open_at_most(&self, count: usize) {
        wait_until(&format!("at most {count} open"), || self.open_connections() <= count);
    }

    /// Stops accepting and resets every connection, as a killed process does.
    pub fn kill(&self) {
        if self.shared.stopping.swap(true, Ordering::SeqCst) {
            return;
        }
        // Wakes the accepting thread, which then drops its listener.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
        for connection in self.shared.connections.lock().unwrap().iter() {
            if let Some(stream) = &connection.stream {
                let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
                // Wakes the script, whose end closes the socket with an RST.
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, stream: TcpStream) -> OriginConnection {
        stream.set_nodelay(true).expect("origin: TCP_NODELAY");
        stream.set_write_timeout(Some(DEADLINE)).expect("origin: SO_SNDTIMEO");
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let mut connections = self.connections.lock().unwrap();
        let index = connections.len();
        connections.push(Seen {
            bytes: Arc::clone(&bytes),
            requests: Vec::new(),
            malformed: Vec::new(),
            open: true,
            stream: stream.try_clone().ok(),
        });
        OriginConnection { wire: Wire::new(stream, DEADLINE * 3).recording(bytes), shared: Arc::clone(self), index }
    }
}

impl OriginConnection {
    /// The next request with its whole body; `None` when the peer is gone, or
    /// sent what is not HTTP/1.1 (recorded).
    pub fn request(&mut self) -> Option<Request> {
        let mut request = self.unrecorded_head()?;
        let mut body = Vec::new();
        match self.wire.body(request.framing, &mut |piece| body.extend_from_slice(piece)) {
            Ok(trailers) => request.trailers = trailers,
            Err(error) => {
                self.note(error);
                return None;
            }
        }
        request.body = body;
        self.record(request.clone());
        Some(request)
    }

    /// The next request's head, recorded at once; the body is left to
    /// [`OriginConnection::body`].
    pub fn request_head(&mut self) -> Option<Request> {
        let request = self.unrecorded_head()?;
        self.record(request.clone());
        Some(request)
    }

    /// Reads the body of `request` piece by piece. False when it broke off.
    pub fn body(&mut self, request: &Request, sink: &mut dyn FnMut(&[u8])) -> bool {
        match self.wire.body(request.framing, sink) {
            Ok(_) => true,
            Err(error) => {
                self.note(error);
                false
            }
        }
    }

    /// Exactly `count` raw bytes, or `None` when the peer is gone.
    pub fn read_exact(&mut self, count: usize) -> Option<Vec<u8>> {
        self.wire.exact(count).ok()
    }

    /// Raw bytes until the peer's FIN; `None` after a reset or timeout.
    pub fn read_to_end(&mut self) -> Option<Vec<u8>> {
        self.wire.until_eof().ok()
    }

    /// Writes bytes as they are; false when the peer is gone.
    pub fn write(&mut self, bytes: &[u8]) -> bool {
        self.wire.stream.write_all(bytes).is_ok()
    }

    /// Sends FIN and goes on reading.
    pub fn half_close(&mut self) {
        let _ = self.wire.stream.shutdown(Shutdown::Write);
    }

    /// Makes the close at the end of the script an RST.
    pub fn reset(&mut self) {
        let socket = socket2::SockRef::from(&self.wire.stream);
        let _ = socket.set_linger(Some(Duration::ZERO));
    }

    pub fn stream(&self) -> &TcpStream {
        &self.wire.stream
    }

    fn unrecorded_head(&mut self) -> Option<Request> {
        match self.wire.head() {
            Ok(Some(raw)) => match message::parse_request_head(&raw) {
                Ok(request) => Some(request),
                Err(bad) => {
                    let raw = String::from_utf8_lossy(&raw).into_owned();
                    self.note(WireError::Malformed(format!("{bad} in {raw:?}")));
                    None
                }
            },
            Ok(None) => None,
            Err(error) => {
                self.note(error);
                None
            }
        }
    }

    fn record(&self, request: Request) {
        if let Some(seen) = self.shared.connections.lock().unwrap().get_mut(self.index) {
            seen.requests.push(request);
        }
    }

    fn note(&self, error: WireError) {
        if let WireError::Malformed(why) = error
            && let Some(seen) = self.shared.connections.lock().unwrap().get_mut(self.index)
        {
            seen.malformed.push(why);
        }
    }

    /// The end of the script: FIN, unless the script asked for a reset.
    fn finish(self) {
        let mut connections = self.shared.connections.lock().unwrap();
        if let Some(seen) = connections.get_mut(self.index) {
            seen.open = false;
            seen.stream = None;
        }
    }
}

/// Whether the connection ends after the answer (RFC 9112 section 9.3).
fn closes(request: &Request) -> bool {
    let connection = request.header("connection");
    let old = request.version == "HTTP/1.0" && !connection.eq_ignore_ascii_case("keep-alive");
    old || connection.eq_ignore_ascii_case("close")
}

/// The answer of an echo origin to `request`.
pub fn echo_answer(name: &str, request: &Request) -> Vec<u8> {
    let mut body = request.raw_head.clone();
    body.extend_from_slice(&request.body);
    let mut answer =
        format!("HTTP/1.1 200 OK\r\nx-origin: {name}\r\ncontent-length: {}\r\n\r\n", body.len()).into_bytes();
    if request.method != "HEAD" {
        answer.extend_from_slice(&body);
    }
    answer
}
