//! TLS over a socket: rustls does the cryptography, this moves the bytes.
//!
//! ```text
//! socket ──ciphertext of the thread──> session ──> room          what finds no room waits in `ahead`
//! socket <──────────────────────────── session <── bytes         bytes count as written when all of theirs left
//! ```

use std::cell::RefCell;
use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use postrider_tls::{NotValidForName, rustls};

use super::Socket;

/// Bytes that one read of the socket may bring: two records of the largest size.
const READ_BYTES: usize = 34 * 1024;

thread_local! {
    /// What was just read; between reads nothing is in it.
    static CIPHERTEXT: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
}

pub(crate) struct TlsStream {
    socket: Socket,
    session: rustls::Connection,
    /// Received and not decrypted yet; read before anything else is.
    ahead: Vec<u8>,
    /// Decrypted bytes that wait in the session.
    plain: usize,
    /// So many of the bytes that are being written are encrypted already.
    taken: usize,
    end: End,
    said_goodbye: bool,
}

/// Whether the peer will send more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    NotYet,
    /// It said so.
    Told,
    /// Its connection ended, and whether that was all is not known.
    CutOff,
}

impl std::fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsStream").field("socket", &self.socket).field("end", &self.end).finish_non_exhaustive()
    }
}

impl TlsStream {
    /// `ahead` was received on `socket` before.
    pub(crate) fn new(socket: Socket, session: impl Into<rustls::Connection>, ahead: Vec<u8>) -> TlsStream {
        TlsStream { socket, session: session.into(), ahead, plain: 0, taken: 0, end: End::NotYet, said_goodbye: false }
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    pub(crate) fn session(&self) -> &rustls::Connection {
        &self.session
    }

    /// Until both sides agreed.
    ///
    /// # Errors
    /// The socket's, or `InvalidData` with what is wrong with the peer's messages; the peer was told.
    pub(crate) fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_send(cx))?;
            if !self.session.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            if self.end != End::NotYet {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            ready!(self.poll_receive(cx, &mut []))?;
        }
    }

    /// The connection ends without a word: the peer sees that it was cut off.
    pub(super) fn reset_on_close(&mut self) {
        self.said_goodbye = true;
        self.socket.reset_on_close();
    }

    /// See [`super::Io::poll_read`]. A peer that is cut off without saying so is an error.
    #[inline(never)]
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        if room.is_empty() {
            return Poll::Ready(Ok(0));
        }
        loop {
            if self.plain > 0 {
                return Poll::Ready(self.take_plain(room));
            }
            match self.end {
                End::NotYet => {}
                End::Told => return Poll::Ready(Ok(0)),
                End::CutOff => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            }
            let count = ready!(self.poll_receive(cx, room))?;
            if count > 0 {
                return Poll::Ready(Ok(count));
            }
        }
    }

    /// See [`super::Io::poll_readable`]. Messages that are TLS's own, such as session tickets, are taken in on the way.
    #[inline(never)]
    pub(super) fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.plain == 0 && self.end == End::NotYet {
            ready!(self.poll_receive(cx, &mut []))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Encrypts what it can of `parts` and sends it; ready with the count when all of that left. Until then every call
    /// begins with the same bytes.
    #[inline(never)]
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, parts: &[&[u8]]) -> Poll<io::Result<usize>> {
        let empty = parts.iter().all(|part| part.is_empty());
        loop {
            if self.taken == 0 {
                let mut writer = self.session.writer();
                for part in parts {
                    let count = writer.write(part)?;
                    self.taken += count;
                    if count < part.len() {
                        break;
                    }
                }
            }
            ready!(self.poll_send(cx))?;
            // Nothing is taken when what waited before these bytes leaves no room for them.
            if self.taken > 0 || empty {
                return Poll::Ready(Ok(std::mem::take(&mut self.taken)));
            }
        }
    }

    #[inline(never)]
    pub(super) fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.said_goodbye {
            self.said_goodbye = true;
            self.session.send_close_notify();
        }
        ready!(self.poll_send(cx))?;
        self.socket.poll_finish(cx)
    }

    /// Reads once and decrypts into `room` as far as that goes; answers how much is in it.
    fn poll_receive(&mut self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        if !self.ahead.is_empty() {
            let ahead = std::mem::take(&mut self.ahead);
            return Poll::Ready(self.decrypt(cx, &ahead, room));
        }
        CIPHERTEXT.with_borrow_mut(|ciphertext| {
            let count = ready!(self.socket.poll_read(cx, ciphertext))?;
            if count == 0 {
                self.end = End::CutOff;
            }
            Poll::Ready(self.decrypt(cx, ciphertext.get(..count).unwrap_or_default(), room))
        })
    }

    fn decrypt(&mut self, cx: &mut Context<'_>, mut ciphertext: &[u8], room: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while !ciphertext.is_empty() && self.end != End::Told {
            let rest = room.get_mut(filled..).unwrap_or_default();
            // The session takes no more in while too much plain text waits.
            if self.plain > 0 && rest.is_empty() {
                self.ahead = ciphertext.to_vec();
                break;
            }
            self.session.read_tls(&mut ciphertext)?;
            match self.session.process_new_packets() {
                Ok(state) => {
                    self.plain = state.plaintext_bytes_to_read();
                    if state.peer_has_closed() {
                        self.end = End::Told;
                    }
                }
                Err(error) => {
                    // The peer is told why; whether it still listens is its own affair.
                    let _ = self.poll_send(cx);
                    return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                }
            }
            if self.plain > 0 && !rest.is_empty() {
                filled += self.take_plain(rest)?;
            }
        }
        if self.session.wants_write() && !self.session.is_handshaking() {
            // An answer that the protocol wants; if it has to wait it leaves with the next bytes.
            let _ = self.poll_send(cx);
        }
        Ok(filled)
    }

    fn take_plain(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let count = self.session.reader().read(room)?;
        self.plain = self.plain.saturating_sub(count);
        Ok(count)
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.session.wants_write() {
            let mut sink = Sink { socket: &mut self.socket, cx };
            match self.session.write_tls(&mut sink) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for TlsStream {
    /// The peer learns that this is the end and not a cut (RFC 8446 section 6.1), as far as it takes that at once.
    fn drop(&mut self) {
        if !self.said_goodbye && !self.session.is_handshaking() {
            self.session.send_close_notify();
            let _ = self.poll_send(&mut Context::from_waker(Waker::noop()));
        }
    }
}

/// Why the other side's certificate was not good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unverified {
    NoCertificate,
    /// None of its names fits.
    Name,
    /// Neither it nor its key is one of those that are wanted.
    Hash,
    Certificate,
}

/// Whether a handshake failed for the other side's certificate.
pub(crate) fn verify_failure(error: &io::Error) -> Option<Unverified> {
    use rustls::{CertificateError, Error};
    match error.get_ref()?.downcast_ref::<Error>()? {
        Error::NoCertificatesPresented => Some(Unverified::NoCertificate),
        error if NotValidForName::is_why(error) => Some(Unverified::Name),
        Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure) => Some(Unverified::Hash),
        Error::InvalidCertificate(_) => Some(Unverified::Certificate),
        _ => None,
    }
}

/// A handshake with a server failed; what logs say of that, which may be nothing.
#[derive(Debug)]
pub(crate) struct HandshakeFailed {
    pub(crate) reason: String,
    /// What the other side sent is at fault, not its connection.
    pub(crate) is_of_tls: bool,
}

impl HandshakeFailed {
    /// `session` failed with `error`.
    pub(crate) fn new(error: &io::Error, session: &rustls::Connection) -> HandshakeFailed {
        let of_tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let reason = match (of_tls, error.raw_os_error().and_then(|number| u32::try_from(number).ok())) {
            (Some(error), _) => postrider_tls::handshake_failure(error, session.protocol_version().is_some()),
            (None, Some(number)) => postrider_tls::system_failure(number, &super::words_of(error)),
            // The other side ended its connection, which it may.
            (None, None) if error.kind() == io::ErrorKind::UnexpectedEof => String::new(),
            (None, None) => format!("TLS error: {error}"),
        };
        HandshakeFailed { reason, is_of_tls: of_tls.is_some() }
    }
}

impl std::fmt::Display for HandshakeFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.reason.as_str() {
            "" => f.write_str("TLS error: the connection ended"),
            reason => f.write_str(reason),
        }
    }
}

impl std::error::Error for HandshakeFailed {}

/// A client that has yet to say its ClientHello.
pub(crate) struct Arriving {
    socket: Socket,
    acceptor: rustls::server::Acceptor,
    /// Received before.
    ahead: Vec<u8>,
}

impl Arriving {
    /// Boxed, as are the steps that follow: hundreds of clients may say half of a greeting and wait.
    pub(crate) fn new(socket: Socket, ahead: Vec<u8>) -> Box<Arriving> {
        Box::new(Arriving { socket, acceptor: rustls::server::Acceptor::default(), ahead })
    }

    /// Ready with the ClientHello, which [`Arriving::answer`] wants back.
    ///
    /// # Errors
    /// The socket's, or `InvalidData` with what is wrong with the client's message; the client was told.
    pub(crate) fn poll_hello(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Box<rustls::server::Accepted>>> {
        loop {
            if self.ahead.is_empty() {
                let Arriving { socket, ahead, .. } = self;
                ready!(CIPHERTEXT.with_borrow_mut(|ciphertext| {
                    let count = ready!(socket.poll_read(cx, ciphertext))?;
                    ahead.extend_from_slice(ciphertext.get(..count).unwrap_or_default());
                    Poll::Ready(if count == 0 { Err(io::Error::from(io::ErrorKind::UnexpectedEof)) } else { Ok(()) })
                }))?;
            }
            let mut rest = self.ahead.as_slice();
            self.acceptor.read_tls(&mut rest)?;
            let taken = self.ahead.len() - rest.len();
            self.ahead.drain(..taken);
            match self.acceptor.accept() {
                Ok(None) => {}
                Ok(Some(accepted)) => return Poll::Ready(Ok(Box::new(accepted))),
                Err((error, mut alert)) => {
                    // Whether it still listens is the client's own affair.
                    let _ = alert.write(&mut Sink { socket: &mut self.socket, cx });
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
                }
            }
        }
    }

    /// Goes on as `config` says. The private key's work, half a millisecond for RSA, is done on another thread, which
    /// yields to the worker: other connections do not wait for it.
    ///
    /// # Errors
    /// What the client offers does not fit; it was told if it could be told at once.
    #[expect(clippy::disallowed_methods, reason = "the worker's one thread beside its own is for this")]
    pub(crate) async fn answer(
        self: Box<Self>,
        accepted: Box<rustls::server::Accepted>,
        config: Arc<rustls::ServerConfig>,
    ) -> io::Result<Box<TlsStream>> {
        let Arriving { mut socket, ahead, .. } = *self;
        let answer = move || accepted.into_connection(config).map(Box::new).map_err(Box::new);
        match tokio::task::spawn_blocking(answer).await.map_err(io::Error::other)? {
            Ok(session) => Ok(Box::new(TlsStream::new(socket, *session, ahead))),
            Err(refused) => {
                let (error, mut alert) = *refused;
                let cx = &mut Context::from_waker(Waker::noop());
                let _ = alert.write(&mut Sink { socket: &mut socket, cx });
                Err(io::Error::new(io::ErrorKind::InvalidData, error))
            }
        }
    }
}

/// A socket as rustls wants it; `WouldBlock` when the task is to be woken.
struct Sink<'a, 'b> {
    socket: &'a mut Socket,
    cx: &'a mut Context<'b>,
}

impl Write for Sink<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        or_would_block(self.socket.poll_write(self.cx, bytes))
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        or_would_block(match slices {
            [only] => self.socket.poll_write(self.cx, only),
            slices => self.socket.poll_write_slices(self.cx, slices),
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn or_would_block(outcome: Poll<io::Result<usize>>) -> io::Result<usize> {
    match outcome {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}
