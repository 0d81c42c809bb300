//! What one direction has ready to be sent: bytes of our own, then bytes that still lie where they were received.

use std::io;
use std::task::{Context, Poll, ready};

use crate::buffers::{Buffers, Input};
use crate::io::Io;

/// Bodies up to this are copied behind their head and sent with it in one plain call; a copy of a few KB costs less
/// than a gathering write.
const COPY_LIMIT: usize = 16 * 1024;

/// Less than this is copied faster than it is arranged.
const WORTH_PREPENDING: usize = 256;

/// Capacity that an outbox keeps for the next message.
const KEPT_CAPACITY: usize = 32 * 1024;

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// Sent first.
    pub(crate) bytes: Vec<u8>,
    sent: usize,
    /// Then so many bytes from the front of the source's input.
    direct: usize,
    /// Bytes that left so far; wraps.
    left: u64,
}

impl Outbox {
    /// Bytes that left or are to leave; only differences mean something.
    pub(crate) fn produced(&self) -> u64 {
        self.left.wrapping_add((self.bytes.len() - self.sent + self.direct) as u64)
    }

    /// Of what is to leave, what still lies in its source.
    pub(crate) fn passing(&self) -> u64 {
        self.direct as u64
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sent == self.bytes.len() && self.direct == 0
    }

    /// Bytes that are still to leave.
    pub(crate) fn waiting(&self) -> usize {
        self.bytes.len() - self.sent + self.direct
    }

    /// More may be put behind what waits already: it then leaves in the same call.
    pub(crate) fn has_room(&self) -> bool {
        self.direct == 0 && self.bytes.len() <= COPY_LIMIT
    }

    /// Makes the first `count` bytes of `source` leave next: behind a head that fits in front of them there, else by
    /// copy when they are few.
    pub(crate) fn pass_on(&mut self, source: &mut Input, count: usize, buffers: &Buffers) {
        let head = self.bytes.len();
        if self.sent == 0 && count >= WORTH_PREPENDING && source.prepend(&self.bytes) {
            self.bytes.clear();
            self.direct = head + count;
        } else if count <= COPY_LIMIT {
            self.bytes.extend_from_slice(source.bytes().get(..count).unwrap_or_default());
            source.consume(count, buffers);
        } else {
            self.direct = count;
        }
    }

    /// Sends once; ready when a part was sent or there is nothing to send.
    pub(crate) fn poll_flush(
        &mut self,
        cx: &mut Context<'_>,
        io: &mut Io,
        source: &mut Input,
        buffers: &Buffers,
    ) -> Poll<io::Result<usize>> {
        if self.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let own = self.bytes.get(self.sent..).unwrap_or_default();
        let direct = source.bytes().get(..self.direct).unwrap_or_default();
        let count = match (own, direct) {
            (own, []) => ready!(io.poll_write(cx, own)),
            ([], direct) => ready!(io.poll_write(cx, direct)),
            (own, direct) => ready!(io.poll_write_two(cx, own, direct)),
        }?;
        if count == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.left = self.left.wrapping_add(count as u64);
        let of_own = count.min(own.len());
        self.sent += of_own;
        self.direct -= (count - of_own).min(self.direct);
        source.consume(count - of_own, buffers);
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.sent = 0;
        }
        Poll::Ready(Ok(count))
    }

    /// Sends once what needs no source: all of it, unless the bytes that follow lie elsewhere.
    pub(crate) fn poll_flush_own(&mut self, cx: &mut Context<'_>, io: &mut Io) -> Poll<io::Result<usize>> {
        let own = self.bytes.get(self.sent..).unwrap_or_default();
        let count = ready!(io.poll_write(cx, own))?;
        if count == 0 && !own.is_empty() {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.left = self.left.wrapping_add(count as u64);
        self.sent += count;
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.sent = 0;
        }
        Poll::Ready(Ok(count))
    }

    /// Moves what was not sent to the end of another outbox.
    pub(crate) fn move_to(&mut self, other: &mut Outbox) {
        other.bytes.extend_from_slice(self.bytes.get(self.sent..).unwrap_or_default());
        self.bytes.clear();
        self.sent = 0;
    }

    /// Forgets what was not sent, also in the source.
    pub(crate) fn discard(&mut self, source: &mut Input, buffers: &Buffers) {
        source.consume(self.direct, buffers);
        self.reset();
    }

    pub(crate) fn reset(&mut self) {
        self.bytes.clear();
        self.sent = 0;
        self.direct = 0;
    }

    pub(crate) fn is_small(&self) -> bool {
        self.bytes.capacity() <= KEPT_CAPACITY
    }
}
