//! A connection to a peer, plain or TLS, over a socket of either kind: read and written without blocking and without a
//! call that is known to fail.
//!
//! tokio remembers readiness per socket. It is told to forget it after a call that moved less than there was room for:
//! the socket is drained then (or full), and polling it again costs no system call. The calls go straight to the kernel,
//! past the C library's cancellation points.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use postrider_filter_api::StreamInfo;
use postrider_http::{BodyFraming, Fields};
use postrider_model::{Address, NumberedOption};
use postrider_sys::OptionMoment;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use tokio::io::{AsyncWrite, Interest};
use tokio::net::{TcpSocket, TcpStream, UnixStream};
use tokio::task::coop::has_budget_remaining;

mod bridged;
mod connections;
mod filtered;
mod patience;
mod resets;
mod session;
mod tls;

pub(crate) use bridged::Bridged;
pub(crate) use connections::Connections;
pub(crate) use filtered::{Filtered, Service};
pub(crate) use resets::Resets;
pub(crate) use session::{agreed, with_client, with_upstream};
pub(crate) use tls::{Arriving, HandshakeFailed, TlsStream, Unverified, verify_failure};

use crate::h2;
use connections::Enrolled;
use patience::Patience;

#[derive(Debug)]
pub(crate) enum Io {
    Plain(Socket),
    /// Boxed: it is large, and most connections inside a mesh have none.
    Tls(Box<TlsStream>),
    /// One stream of a connection.
    Http2(Box<h2::Stream>),
    /// A client's, with filters of its bytes.
    Filtered(Box<Filtered>),
    /// A host's that does not speak HTTP.
    Bridged(Box<Bridged>),
}

#[derive(Debug)]
pub(crate) struct Socket {
    /// Before `kind`: it is forgotten before its descriptor can be another's.
    enrolled: Option<Enrolled>,
    pub(crate) kind: Kind,
    /// How long it may take nothing more; `None` is for ever.
    patience: Option<Box<Patience>>,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Socket {
        Socket { enrolled: None, kind: Kind::Tcp(stream), patience: None }
    }
}

impl From<UnixStream> for Socket {
    fn from(stream: UnixStream) -> Socket {
        Socket { enrolled: None, kind: Kind::Unix(stream), patience: None }
    }
}

impl Io {
    /// How the body comes whose framing, by the head that was read from here, is `framing`.
    #[inline]
    pub(crate) fn framed(&self, framing: BodyFraming) -> BodyFraming {
        match self {
            Io::Http2(stream) => stream.framed(framing),
            Io::Plain(_) | Io::Tls(_) | Io::Filtered(_) | Io::Bridged(_) => framing,
        }
    }

    /// Reads once into `room`; 0 is the end of the stream.
    #[inline]
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Io::Plain(socket) => socket.poll_read(cx, room),
            Io::Tls(stream) => stream.poll_read(cx, room),
            Io::Http2(stream) => stream.poll_read(cx, room),
            Io::Filtered(filtered) => filtered.poll_read(cx, room),
            Io::Bridged(bridged) => bridged.poll_read(cx, room),
        }
    }

    /// The same into what is lent when there is something to read.
    #[inline]
    pub(crate) fn poll_read_lent(&mut self, cx: &mut Context<'_>, room: &mut impl Room) -> Poll<io::Result<usize>> {
        match self {
            Io::Plain(socket) => socket.poll_read_lent(cx, room),
            Io::Tls(stream) => stream.poll_read(cx, room.room()),
            Io::Http2(stream) => stream.poll_read(cx, room.room()),
            Io::Filtered(filtered) => {
                ready!(filtered.poll_readable(cx))?;
                filtered.poll_read(cx, room.room())
            }
            Io::Bridged(bridged) => {
                ready!(bridged.poll_readable(cx))?;
                bridged.poll_read(cx, room.room())
            }
        }
    }

    /// Something can be read, be it the end of the stream or an error.
    #[inline]
    pub(crate) fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Io::Plain(socket) => socket.poll_readable(cx),
            Io::Tls(stream) => stream.poll_readable(cx),
            Io::Http2(stream) => stream.poll_readable(cx),
            Io::Filtered(filtered) => filtered.poll_readable(cx),
            Io::Bridged(bridged) => bridged.poll_readable(cx),
        }
    }

    /// Ready when the peer reset what is here, for whoever does not want to read what is before that. `resets` is kept
    /// from call to call.
    #[cold]
    pub(crate) fn poll_reset(&mut self, resets: &mut Option<Resets>, cx: &mut Context<'_>) -> Poll<()> {
        if let Io::Http2(stream) = self {
            return stream.poll_gone(cx).map(drop);
        }
        let Some(socket) = self.socket() else { return Poll::Pending };
        if resets.is_none() {
            // Without a descriptor for it the reset is noticed when something is read.
            *resets = Resets::of(&socket.kind).ok();
        }
        resets.as_mut().map_or(Poll::Pending, |resets| resets.poll(cx))
    }

    /// Nothing is there to be read, neither the end of the stream nor an error. Nobody is woken when that changes.
    #[inline]
    pub(crate) fn is_quiet(&mut self) -> bool {
        match self {
            Io::Plain(socket) => socket.is_quiet(),
            Io::Tls(_) | Io::Http2(_) | Io::Filtered(_) | Io::Bridged(_) => {
                self.poll_readable(&mut Context::from_waker(Waker::noop())).is_pending()
            }
        }
    }

    /// Writes once; answers how much was taken. After `Pending` the next call begins with the same bytes.
    #[inline]
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Io::Plain(socket) => socket.poll_write(cx, bytes),
            Io::Tls(stream) => stream.poll_write(cx, &[bytes]),
            Io::Http2(stream) => stream.poll_write(cx, &[bytes]),
            Io::Filtered(filtered) => filtered.poll_write(cx, &[bytes]),
            Io::Bridged(bridged) => bridged.poll_write(cx, &[bytes]),
        }
    }

    /// Both in one system call.
    pub(crate) fn poll_write_two(&mut self, cx: &mut Context<'_>, a: &[u8], b: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Io::Plain(socket) => socket.poll_write_slices(cx, &[IoSlice::new(a), IoSlice::new(b)]),
            Io::Tls(stream) => stream.poll_write(cx, &[a, b]),
            Io::Http2(stream) => stream.poll_write(cx, &[a, b]),
            Io::Filtered(filtered) => filtered.poll_write(cx, &[a, b]),
            Io::Bridged(bridged) => bridged.poll_write(cx, &[a, b]),
        }
    }

    /// Tells the peer that nothing more comes; what it sends is still read.
    pub(crate) fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Io::Plain(socket) => socket.poll_finish(cx),
            Io::Tls(stream) => stream.poll_finish(cx),
            Io::Http2(stream) => {
                stream.end();
                Poll::Ready(Ok(()))
            }
            Io::Filtered(filtered) => filtered.poll_finish(cx),
            Io::Bridged(bridged) => {
                bridged.finish();
                Poll::Ready(Ok(()))
            }
        }
    }

    /// A body is written as it is, and its end is said by itself.
    #[inline]
    pub(crate) fn takes_plain_bodies(&self) -> bool {
        matches!(self, Io::Http2(_) | Io::Bridged(_))
    }

    /// The trailers behind what a tunnel brought: only a stream has any.
    pub(crate) fn take_trailers(&mut self) -> Fields {
        match self {
            Io::Http2(stream) => stream.take_trailers(),
            Io::Plain(_) | Io::Tls(_) | Io::Filtered(_) | Io::Bridged(_) => Fields::new(),
        }
    }

    pub(crate) fn local(&self) -> Option<SocketAddr> {
        self.socket()?.local()
    }

    /// The next close sends a reset: the peer learns at once that the stream is broken.
    pub(crate) fn reset_on_close(&mut self) {
        match self {
            Io::Http2(stream) => stream.reset(),
            Io::Plain(socket) => socket.reset_on_close(),
            Io::Tls(stream) => stream.reset_on_close(),
            Io::Filtered(filtered) => filtered.inner_mut().reset_on_close(),
            Io::Bridged(bridged) => bridged.inner_mut().reset_on_close(),
        }
    }

    /// Sets an option of its socket; `false` where the system does not take it, or the socket is not its alone.
    #[cold]
    pub(crate) fn set_option(&self, option: &NumberedOption) -> bool {
        let option = postrider_sys::NumberedOption { when: OptionMoment::BeforeBind, ..system_option(option) };
        let option = std::slice::from_ref(&option);
        self.socket().is_some_and(|socket| {
            let set = match &socket.kind {
                Kind::Tcp(stream) => postrider_sys::set_options(stream, option, OptionMoment::BeforeBind),
                Kind::Unix(stream) => postrider_sys::set_options(stream, option, OptionMoment::BeforeBind),
            };
            set.is_ok()
        })
    }

    /// Its peer took nothing for too long.
    pub(crate) fn gave_up(&self) -> bool {
        self.socket().is_some_and(Socket::gave_up)
    }

    /// A filter of its bytes ended it.
    pub(crate) fn was_ended(&self) -> bool {
        matches!(self, Io::Filtered(filtered) if filtered.was_ended())
    }

    fn socket(&self) -> Option<&Socket> {
        match self {
            Io::Plain(socket) => Some(socket),
            Io::Tls(stream) => Some(stream.socket()),
            Io::Http2(_) => None,
            Io::Filtered(filtered) => filtered.inner().socket(),
            Io::Bridged(bridged) => bridged.inner().socket(),
        }
    }

    /// Filters of its bytes learn what became of its upstream.
    pub(crate) fn teach(&mut self, info: &StreamInfo) {
        if let Io::Filtered(filtered) = self {
            filtered.learn(info);
        }
    }

    /// Such filters hear that it is over, which they may note something about.
    pub(crate) fn close(&mut self) {
        if let Io::Filtered(filtered) = self {
            filtered.close();
        }
    }

    /// Why such filters ended it.
    #[cold]
    pub(crate) fn tell_end(&self, info: &mut StreamInfo) {
        if let Io::Filtered(filtered) = self {
            filtered.tell_end(info);
        }
    }

    /// What such filters noted.
    pub(crate) fn noted(&self, info: &mut StreamInfo) {
        if let Io::Filtered(filtered) = self {
            filtered.tell(info);
        }
    }
}

impl Socket {
    /// Reads once into `room`; 0 is the end of the stream.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        self.poll_read_lent(cx, &mut Slice(room))
    }

    /// Reads once into what is lent when there is something to read. A task that is woken has something to read most
    /// times, so readiness is waited for only when there was nothing.
    pub(crate) fn poll_read_lent(&mut self, cx: &mut Context<'_>, room: &mut impl Room) -> Poll<io::Result<usize>> {
        if !has_budget_remaining() {
            // Wakes the task again at once.
            ready!(self.poll_readable(cx))?;
        }
        loop {
            // Stands when tokio thinks better of it and makes no call.
            let mut outcome = Err(Errno::AGAIN);
            let mut filled = false;
            let mut call = |fd: BorrowedFd<'_>| {
                let room = room.room();
                outcome = rustix::net::recv(fd, &mut *room, RecvFlags::empty()).map(|(count, _)| count);
                filled = outcome == Ok(room.len());
                drained(&outcome, room.len())
            };
            let _ = match &mut self.kind {
                Kind::Tcp(stream) => stream.try_io(Interest::READABLE, || call(stream.as_fd())),
                Kind::Unix(stream) => stream.try_io(Interest::READABLE, || call(stream.as_fd())),
            };
            match outcome {
                Err(Errno::AGAIN | Errno::INTR) => ready!(self.poll_readable(cx))?,
                outcome => {
                    if filled {
                        // There may be more and more of it: this counts, so that the others get their turn.
                        let _ = self.poll_readable(cx);
                    }
                    return Poll::Ready(outcome.map_err(Into::into));
                }
            }
        }
    }

    /// Something can be read, be it the end of the stream or an error.
    pub(crate) fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.kind {
            Kind::Tcp(stream) => stream.poll_read_ready(cx),
            Kind::Unix(stream) => stream.poll_read_ready(cx),
        }
    }

    /// Done when the peer ended its side, for a socket that nobody reads any more: what waits there is not looked at.
    pub(crate) async fn left(&self) {
        let unread = || Err::<(), io::Error>(io::ErrorKind::WouldBlock.into());
        loop {
            let ready = match &self.kind {
                Kind::Tcp(stream) => stream.ready(Interest::READABLE).await,
                Kind::Unix(stream) => stream.ready(Interest::READABLE).await,
            };
            // An error of the watching is as good as one of the socket: the runtime ends.
            if ready.is_err() || ready.is_ok_and(|ready| ready.is_read_closed()) {
                return;
            }
            // What came makes it readable once, not for ever: what comes behind is waited for.
            let _ = match &self.kind {
                Kind::Tcp(stream) => stream.try_io(Interest::READABLE, unread),
                Kind::Unix(stream) => stream.try_io(Interest::READABLE, unread),
            };
        }
    }

    /// See [`Io::is_quiet`]. The system is asked only where it said that there is something.
    #[inline]
    fn is_quiet(&self) -> bool {
        let peek = |fd: BorrowedFd<'_>| match rustix::net::recv(fd, &mut [0; 1], RecvFlags::PEEK) {
            Err(Errno::AGAIN) => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(()),
        };
        let seen = match &self.kind {
            Kind::Tcp(stream) => stream.try_io(Interest::READABLE, || peek(stream.as_fd())),
            Kind::Unix(stream) => stream.try_io(Interest::READABLE, || peek(stream.as_fd())),
        };
        seen.is_err_and(|error: io::Error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Writes once; answers how much the system took. A socket nearly always takes something, so it is asked for readiness
    /// only when it did not; reads, which come before writes, keep one connection from starving the others.
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            // Stands when tokio thinks better of it and makes no call.
            let mut outcome = Err(Errno::AGAIN);
            let mut call = |fd: BorrowedFd<'_>| {
                outcome = rustix::net::send(fd, bytes, SendFlags::NOSIGNAL);
                drained(&outcome, bytes.len())
            };
            let _ = match &mut self.kind {
                Kind::Tcp(stream) => stream.try_io(Interest::WRITABLE, || call(stream.as_fd())),
                Kind::Unix(stream) => stream.try_io(Interest::WRITABLE, || call(stream.as_fd())),
            };
            match outcome {
                Err(Errno::AGAIN | Errno::INTR) => {
                    let room = match &mut self.kind {
                        Kind::Tcp(stream) => stream.poll_write_ready(cx),
                        Kind::Unix(stream) => stream.poll_write_ready(cx),
                    };
                    if room.is_pending() && self.patience.is_some() {
                        return self.wait(cx);
                    }
                    ready!(room)?;
                }
                outcome => {
                    if self.patience.is_some() {
                        self.took(outcome.unwrap_or_default(), bytes.len());
                    }
                    return Poll::Ready(outcome.map_err(Into::into));
                }
            }
        }
    }

    /// Sends all of `bytes`.
    ///
    /// # Errors
    /// As the system says; `WriteZero` when it takes no more.
    pub(crate) async fn send_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut sent = 0;
        std::future::poll_fn(|cx| {
            while let Some(rest) = bytes.get(sent..).filter(|rest| !rest.is_empty()) {
                match ready!(self.poll_write(cx, rest))? {
                    0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    count => sent += count,
                }
            }
            Poll::Ready(Ok(()))
        })
        .await
    }

    /// All of them in one system call.
    fn poll_write_slices(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let written = match &mut self.kind {
            Kind::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Kind::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        };
        if self.patience.is_none() {
            return written;
        }
        match written {
            Poll::Pending => self.wait(cx),
            Poll::Ready(written) => {
                let offered = slices.iter().map(|slice| slice.len()).sum();
                self.took(written.as_ref().map_or(0, |count| *count), offered);
                Poll::Ready(written)
            }
        }
    }

    /// Tells the peer that nothing more comes; what it sends is still read.
    pub(crate) fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.kind {
            Kind::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Kind::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    /// Where the connection was meant to go before the system redirected it to us.
    pub(crate) fn original_destination(&self) -> Option<SocketAddr> {
        match &self.kind {
            Kind::Tcp(stream) => postrider_sys::original_destination(stream),
            Kind::Unix(_) => None,
        }
    }

    pub(crate) fn local(&self) -> Option<SocketAddr> {
        match &self.kind {
            Kind::Tcp(stream) => stream.local_addr().ok().map(postrider_sys::canonical),
            Kind::Unix(_) => None,
        }
    }

    /// The next close sends a reset: the peer learns at once that the stream is broken.
    pub(crate) fn reset_on_close(&self) {
        // A socket that is gone needs no reset.
        let _ = match &self.kind {
            Kind::Tcp(stream) => postrider_sys::reset_on_close(stream),
            Kind::Unix(_) => Ok(()),
        };
    }

    /// Counts it among what a filter chain may have to end.
    pub(crate) fn enroll(&mut self, connections: &Rc<Connections>) {
        self.enrolled = Some(match &self.kind {
            Kind::Tcp(stream) => connections.enroll(stream),
            Kind::Unix(stream) => connections.enroll(stream),
        });
    }

    /// The connection ends when a full buffer stays full for `limit`: when what waits is not taken, nor half of `buffer`.
    pub(crate) fn limit_waiting(&mut self, limit: Option<Duration>, buffer: usize) {
        self.patience = limit.map(|limit| Box::new(Patience::new(limit, buffer)));
    }

    /// It took nothing for too long.
    pub(crate) fn gave_up(&self) -> bool {
        self.patience.as_ref().is_some_and(|patience| patience.is_over)
    }

    #[cold]
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let Some(patience) = &mut self.patience else { return Poll::Pending };
        ready!(patience.poll_over(cx));
        // Nothing comes from there any more either.
        let _ = match &self.kind {
            Kind::Tcp(stream) => rustix::net::shutdown(stream, Shutdown::Both),
            Kind::Unix(stream) => rustix::net::shutdown(stream, Shutdown::Both),
        };
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    #[cold]
    fn took(&mut self, count: usize, offered: usize) {
        if let Some(patience) = &mut self.patience {
            patience.took(count, offered);
        }
    }
}

/// Where a read puts what it brings.
pub(crate) trait Room {
    /// Asked when there is something to read.
    fn room(&mut self) -> &mut [u8];
}

struct Slice<'r>(&'r mut [u8]);

impl Room for Slice<'_> {
    fn room(&mut self) -> &mut [u8] {
        self.0
    }
}

/// What tokio is told after a call: `WouldBlock` makes it forget that the socket was ready.
fn drained(outcome: &Result<usize, Errno>, room: usize) -> io::Result<()> {
    match outcome {
        Ok(count) if *count == 0 || *count == room => Ok(()),
        Err(error) if *error != Errno::AGAIN => Ok(()),
        _ => Err(io::ErrorKind::WouldBlock.into()),
    }
}

/// As the system is told them.
pub(crate) fn system_options(options: &[NumberedOption]) -> Vec<postrider_sys::NumberedOption> {
    options.iter().map(system_option).collect()
}

fn system_option(option: &NumberedOption) -> postrider_sys::NumberedOption {
    let when = match option.when {
        postrider_model::OptionMoment::BeforeBind => OptionMoment::BeforeBind,
        postrider_model::OptionMoment::AfterBind => OptionMoment::AfterBind,
        postrider_model::OptionMoment::WhenListening => OptionMoment::WhenListening,
    };
    let ip_version = option.ip_version.map(|version| match version {
        postrider_model::IpVersion::V4 => postrider_sys::IpVersion::V4,
        postrider_model::IpVersion::V6 => postrider_sys::IpVersion::V6,
    });
    postrider_sys::NumberedOption {
        level: option.level,
        name: option.name,
        value: option.value.clone(),
        when,
        ip_version,
    }
}

/// A local address could not be taken. Says what the system says.
#[derive(Debug)]
struct NotBound(io::Error);

impl std::fmt::Display for NotBound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for NotBound {}

#[cold]
fn not_bound(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), NotBound(error))
}

/// `Connection refused`, without the number that Rust adds.
pub(crate) fn words_of(error: &io::Error) -> String {
    error.to_string().split(" (os error").next().unwrap_or_default().to_owned()
}

/// [`connect`] failed for want of its local address.
pub(crate) fn is_not_bound(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<NotBound>())
}

/// Connects to `address`, from `bind` if given.
///
/// # Errors
/// As the system says: refused, unreachable, no such file.
pub(crate) async fn connect(
    address: &Address,
    bind: Option<SocketAddr>,
    keepalive: Option<&postrider_sys::TcpKeepalive>,
    options: &[postrider_sys::NumberedOption],
) -> io::Result<Socket> {
    match address {
        Address::Tcp(address) => {
            let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            postrider_sys::prepare_stream(&socket, keepalive)?;
            postrider_sys::set_options(&socket, options, OptionMoment::BeforeBind)?;
            if let Some(bind) = bind {
                socket.bind(bind).map_err(not_bound)?;
            }
            postrider_sys::set_options(&socket, options, OptionMoment::AfterBind)?;
            Ok(socket.connect(*address).await?.into())
        }
        Address::Unix { path, .. } => {
            let text = path.to_string_lossy();
            let stream = match text.strip_prefix('@') {
                Some(name) => UnixStream::connect(format!("\0{name}")).await?,
                None => UnixStream::connect(path).await?,
            };
            Ok(stream.into())
        }
    }
}
