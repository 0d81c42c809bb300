//! That a peer reset its connection, behind bytes of it that nobody reads meanwhile.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

use super::Kind;

/// Looks at a socket beside whoever reads and writes it. While bytes wait in a socket it is readable, and nobody is woken
/// for what comes behind them; here only errors count.
pub(crate) struct Resets(Pin<Box<dyn Future<Output = ()>>>);

impl Resets {
    /// # Errors
    /// The process has no descriptor left.
    pub(super) fn of(socket: &Kind) -> io::Result<Resets> {
        // A descriptor of its own, because the system knows the other one to be watched already. An error of the watching
        // is as good as one of the socket: the runtime ends.
        Ok(Resets(match socket {
            Kind::Tcp(stream) => {
                let watched = TcpStream::from_std(stream.as_fd().try_clone_to_owned()?.into())?;
                Box::pin(async move { drop(watched.ready(Interest::ERROR).await) })
            }
            Kind::Unix(stream) => {
                let watched = UnixStream::from_std(stream.as_fd().try_clone_to_owned()?.into())?;
                Box::pin(async move { drop(watched.ready(Interest::ERROR).await) })
            }
        }))
    }

    /// Ready once, when there was a reset.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for Resets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resets")
    }
}
