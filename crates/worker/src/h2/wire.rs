//! A connection as the `h2` crate wants it, with the frames of all streams gathered: they leave in one write when the
//! crate has nothing more to say for now.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frames::Frames;
use super::meter::Taps;
use crate::io::Io;

/// Frames that may gather before the peer has to take some.
const GATHER_LIMIT: usize = 128 * 1024;

/// Bytes that one read may bring: a frame of the largest size and more.
const READ_BYTES: usize = 32 * 1024;

thread_local! {
    /// What was just read. The `h2` crate's own room is not initialised, and zeroing all of it costs more than copying what
    /// is there.
    static RECEIVED: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());

    /// Where frames gather. A connection on which nothing waits has none.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Shared by the `h2` crate, which reads and writes, and the connection's task, which sends.
#[derive(Clone)]
pub(super) struct Wire(Rc<RefCell<Ends>>);

struct Ends {
    io: Io,
    /// Received before anybody knew that this is HTTP/2.
    ahead: Vec<u8>,
    out: Vec<u8>,
    sent: usize,
    received: u64,
    delivered: u64,
    /// The peer closed, or the connection failed.
    ended: bool,
    /// Of a client's connection.
    frames: Option<Frames>,
    /// Where a log tells what streams take.
    taps: Option<Box<Taps>>,
}

impl Wire {
    /// `frames` follows what is received, and `taps` both directions.
    pub(super) fn new(io: Io, ahead: Vec<u8>, frames: Option<Frames>, taps: Option<Taps>) -> Wire {
        let (out, sent, received, delivered, ended, taps) = (Vec::new(), 0, 0, 0, false, taps.map(Box::new));
        Wire(Rc::new(RefCell::new(Ends { io, ahead, out, sent, received, delivered, ended, frames, taps })))
    }

    /// Sends what has gathered; pending while the peer takes no more.
    pub(super) fn poll_send(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().poll_send(cx)
    }

    /// Ends our side and reads on until the peer ended its own, so that a reset cannot overtake what was said last.
    pub(super) fn poll_linger(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ends = &mut *self.0.borrow_mut();
        ready!(ends.poll_send(cx))?;
        ready!(ends.io.poll_finish(cx))?;
        let mut unread = [0; 4096];
        loop {
            let read = ready!(ends.io.poll_read(cx, &mut unread));
            ends.ended |= !matches!(read, Ok(1..));
            if read? == 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// A header block has begun and not ended.
    pub(super) fn is_in_head(&self) -> bool {
        self.0.borrow().frames.as_ref().is_some_and(Frames::in_head)
    }

    /// The client asks for more than it is worth; `seconds` is the connection's age.
    pub(super) fn is_abused(&self, seconds: u64) -> bool {
        let ends = self.0.borrow();
        ends.frames.as_ref().is_some_and(|frames| frames.is_abuse(seconds, ends.delivered))
    }

    /// The peer closed, or the connection failed.
    pub(super) fn is_ended(&self) -> bool {
        self.0.borrow().ended
    }

    /// Bytes received so far.
    pub(super) fn received(&self) -> u64 {
        self.0.borrow().received
    }
}

impl Ends {
    /// The last `count` bytes of `filled` were received.
    fn note(&mut self, filled: &[u8], count: usize) {
        self.received += count as u64;
        let new = filled.get(filled.len().saturating_sub(count)..).unwrap_or_default();
        if let Some(frames) = &mut self.frames {
            frames.feed(new);
        }
        if let Some(taps) = &mut self.taps {
            taps.received(new);
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.out.len() {
            let rest = self.out.get(self.sent..).unwrap_or_default();
            let count = ready!(self.io.poll_write(cx, rest))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += count;
            self.delivered += count as u64;
        }
        self.sent = 0;
        if self.out.capacity() > 0 {
            let mut out = std::mem::take(&mut self.out);
            out.clear();
            SPARE.set(out);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut ends = self.0.borrow_mut();
        if !ends.ahead.is_empty() {
            let count = ends.ahead.len().min(room.remaining());
            room.put_slice(ends.ahead.get(..count).unwrap_or_default());
            ends.ahead.drain(..count);
            ends.note(room.filled(), count);
            return Poll::Ready(Ok(()));
        }
        RECEIVED.with_borrow_mut(|received| {
            let most = room.remaining().min(READ_BYTES);
            let read = ready!(ends.io.poll_read(cx, received.get_mut(..most).unwrap_or_default()));
            ends.ended |= !matches!(read, Ok(1..));
            let count = read?;
            room.put_slice(received.get(..count).unwrap_or_default());
            ends.note(room.filled(), count);
            Poll::Ready(Ok(()))
        })
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut ends = self.0.borrow_mut();
        if ends.out.len() >= GATHER_LIMIT {
            ready!(ends.poll_send(cx))?;
        }
        if ends.out.capacity() == 0 {
            ends.out = SPARE.take();
        }
        ends.out.extend_from_slice(bytes);
        if let Some(taps) = &mut ends.taps {
            taps.sent(bytes);
        }
        Poll::Ready(Ok(bytes.len()))
    }

    /// Nothing leaves here: see [`Wire::poll_send`].
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut ends = self.0.borrow_mut();
        ready!(ends.poll_send(cx))?;
        ends.io.poll_finish(cx)
    }
}
