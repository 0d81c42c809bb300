//! A connected socket of either kind, read and written without blocking and without a call that is known to fail.
//!
//! tokio remembers readiness per socket. It is told to forget it after a call that moved less than there was room for:
//! the socket is drained then (or full), and polling it again costs no system call. The calls go straight to the kernel,
//! past the C library's cancellation points.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use postrider_model::Address;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use tokio::io::{AsyncWrite, Interest};
use tokio::net::{TcpSocket, TcpStream, UnixStream};

#[derive(Debug)]
pub(crate) enum Io {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Io {
    /// Reads once into `room`; 0 is the end of the stream.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_readable(cx))?;
            // Stands when tokio thinks better of it and makes no call.
            let mut outcome = Err(Errno::AGAIN);
            let mut call = |fd: BorrowedFd<'_>| {
                outcome = rustix::net::recv(fd, &mut *room, RecvFlags::empty()).map(|(count, _)| count);
                drained(&outcome, room.len())
            };
            let _ = match self {
                Io::Tcp(stream) => stream.try_io(Interest::READABLE, || call(stream.as_fd())),
                Io::Unix(stream) => stream.try_io(Interest::READABLE, || call(stream.as_fd())),
            };
            match outcome {
                Err(Errno::AGAIN | Errno::INTR) => {}
                outcome => return Poll::Ready(outcome.map_err(Into::into)),
            }
        }
    }

    /// Something can be read, be it the end of the stream or an error.
    pub(crate) fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Io::Tcp(stream) => stream.poll_read_ready(cx),
            Io::Unix(stream) => stream.poll_read_ready(cx),
        }
    }

    /// Writes once; answers how much the system took.
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(match self {
                Io::Tcp(stream) => stream.poll_write_ready(cx),
                Io::Unix(stream) => stream.poll_write_ready(cx),
            })?;
            // Stands when tokio thinks better of it and makes no call.
            let mut outcome = Err(Errno::AGAIN);
            let mut call = |fd: BorrowedFd<'_>| {
                outcome = rustix::net::send(fd, bytes, SendFlags::NOSIGNAL);
                drained(&outcome, bytes.len())
            };
            let _ = match self {
                Io::Tcp(stream) => stream.try_io(Interest::WRITABLE, || call(stream.as_fd())),
                Io::Unix(stream) => stream.try_io(Interest::WRITABLE, || call(stream.as_fd())),
            };
            match outcome {
                Err(Errno::AGAIN | Errno::INTR) => {}
                outcome => return Poll::Ready(outcome.map_err(Into::into)),
            }
        }
    }

    /// Both in one system call.
    pub(crate) fn poll_write_two(&mut self, cx: &mut Context<'_>, a: &[u8], b: &[u8]) -> Poll<io::Result<usize>> {
        let slices = [IoSlice::new(a), IoSlice::new(b)];
        match self {
            Io::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, &slices),
            Io::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, &slices),
        }
    }

    /// Tells the peer that nothing more comes; what it sends is still read.
    pub(crate) fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Io::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Io::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    pub(crate) fn local(&self) -> Option<SocketAddr> {
        match self {
            Io::Tcp(stream) => stream.local_addr().ok(),
            Io::Unix(_) => None,
        }
    }

    /// The next close sends a reset: the peer learns at once that the stream is broken.
    pub(crate) fn reset_on_close(&self) {
        // A socket that is gone needs no reset.
        let _ = match self {
            Io::Tcp(stream) => postrider_sys::reset_on_close(stream),
            Io::Unix(_) => Ok(()),
        };
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

/// Connects to `address`, from `bind` if given.
///
/// # Errors
/// As the system says: refused, unreachable, no such file.
pub(crate) async fn connect(
    address: &Address,
    bind: Option<std::net::IpAddr>,
    keepalive: Option<&postrider_sys::TcpKeepalive>,
) -> io::Result<Io> {
    match address {
        Address::Tcp(address) => {
            let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            postrider_sys::prepare_stream(&socket, keepalive)?;
            if let Some(bind) = bind {
                socket.bind(SocketAddr::new(bind, 0))?;
            }
            Ok(Io::Tcp(socket.connect(*address).await?))
        }
        Address::Unix { path, .. } => {
            let text = path.to_string_lossy();
            let stream = match text.strip_prefix('@') {
                Some(name) => UnixStream::connect(format!("\0{name}")).await?,
                None => UnixStream::connect(path).await?,
            };
            Ok(Io::Unix(stream))
        }
    }
}
