//! Read buffers, lent when there is data to read.
//!
//! A worker owns a few large buffers and lends the one that was used last, still warm in the cache. An idle connection
//! holds none; a connection whose peer is slow keeps its buffer until the bytes are gone.

use std::cell::{Cell, RefCell};
use std::io;
use std::task::{Context, Poll, ready};

use crate::io::{Io, Room};

/// Room for what one read may bring. Large enough that big bodies move in few system calls; a peer that never reads
/// holds one of them, and must not cost more than 256 KiB with all that belongs to it.
const BUFFER_BYTES: usize = 200 * 1024;

/// Left free in front of what is read: a rewritten head goes there, in front of the body that came with it.
const HEADROOM: usize = 512;

/// Free buffers beyond this many are given back to the allocator: a burst of slow peers must not be paid for ever.
const MAX_FREE: usize = 16;

/// Waiting bytes up to this are kept in a box of their own size while the connection waits for more, so that a slow
/// sender does not hold a whole buffer.
const STOW_LIMIT: usize = 16 * 1024;

/// The buffers of one worker.
#[derive(Default)]
pub(crate) struct Buffers {
    /// The one that was used last; nearly always the only one.
    hot: Cell<Option<Box<[u8]>>>,
    free: RefCell<Vec<Box<[u8]>>>,
}

impl Buffers {
    fn lend(&self) -> Box<[u8]> {
        match self.hot.take() {
            Some(buffer) => buffer,
            None => self.free.borrow_mut().pop().unwrap_or_else(|| vec![0; BUFFER_BYTES].into_boxed_slice()),
        }
    }

    fn give_back(&self, buffer: Box<[u8]>) {
        if buffer.len() != BUFFER_BYTES {
            return;
        }
        if let Some(other) = self.hot.replace(Some(buffer)) {
            let mut free = self.free.borrow_mut();
            if free.len() < MAX_FREE {
                free.push(other);
            }
        }
    }
}

/// A buffer that is lent when something comes.
struct Lent<'b> {
    buffers: &'b Buffers,
    data: Option<Box<[u8]>>,
    limit: usize,
}

impl Room for Lent<'_> {
    #[inline]
    fn room(&mut self) -> &mut [u8] {
        let data = self.data.get_or_insert_with(|| self.buffers.lend());
        let end = data.len().min(HEADROOM.saturating_add(self.limit.max(1)));
        data.get_mut(HEADROOM..end).unwrap_or_default()
    }
}

/// What one side of a connection received and nobody consumed yet: `start..end` of a lent buffer, or of a small box.
#[derive(Debug, Default)]
pub(crate) struct Input {
    data: Option<Box<[u8]>>,
    start: usize,
    end: usize,
    /// Bytes that were taken so far, less those that were put back in front; wraps.
    consumed: u64,
}

impl Input {
    /// One that begins with `bytes`.
    pub(crate) fn holding(bytes: Vec<u8>) -> Input {
        let end = bytes.len();
        Input { data: (end > 0).then(|| bytes.into_boxed_slice()), start: 0, end, consumed: 0 }
    }

    /// The same of bytes that stay where they are.
    pub(crate) fn copied(bytes: &[u8], buffers: &Buffers) -> Input {
        let mut data = buffers.lend();
        let end = HEADROOM + bytes.len();
        match data.get_mut(HEADROOM..end) {
            Some(room) => {
                room.copy_from_slice(bytes);
                Input { data: Some(data), start: HEADROOM, end, consumed: 0 }
            }
            None => {
                buffers.give_back(data);
                Input::holding(bytes.to_vec())
            }
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.data.as_deref().and_then(|data| data.get(self.start..self.end)).unwrap_or_default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Bytes that were taken so far; only differences mean something.
    pub(crate) fn consumed(&self) -> u64 {
        self.consumed
    }

    pub(crate) fn consume(&mut self, count: usize, buffers: &Buffers) {
        self.consumed = self.consumed.wrapping_add(count as u64);
        self.start = (self.start + count).min(self.end);
        if self.start == self.end {
            self.release(buffers);
        }
    }

    /// Forgets everything.
    pub(crate) fn release(&mut self, buffers: &Buffers) {
        self.start = 0;
        self.end = 0;
        if let Some(data) = self.data.take() {
            buffers.give_back(data);
        }
    }

    /// Reads once, at most `limit` bytes, behind what is here; 0 is the end of the stream. While nothing comes, no more
    /// memory is held than what is here needs.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        io: &mut Io,
        limit: usize,
        buffers: &Buffers,
    ) -> Poll<io::Result<usize>> {
        if !self.is_empty() {
            return self.poll_fill_behind(cx, io, limit, buffers);
        }
        let mut lent = Lent { buffers, data: None, limit };
        match io.poll_read_lent(cx, &mut lent) {
            Poll::Ready(Ok(count @ 1..)) => {
                self.start = HEADROOM;
                self.end = HEADROOM + count;
                self.data = lent.data;
                Poll::Ready(Ok(count))
            }
            nothing => {
                if let Some(data) = lent.data {
                    buffers.give_back(data);
                }
                nothing
            }
        }
    }

    #[cold]
    fn poll_fill_behind(
        &mut self,
        cx: &mut Context<'_>,
        io: &mut Io,
        limit: usize,
        buffers: &Buffers,
    ) -> Poll<io::Result<usize>> {
        if io.poll_readable(cx).is_pending() {
            self.stow(buffers);
            return Poll::Pending;
        }
        let end = self.end;
        let space = self.space(buffers);
        let room = space.len().min(limit.max(1));
        let count = ready!(io.poll_read(cx, space.get_mut(..room).unwrap_or_default()))?;
        debug_assert!(self.end >= end || self.start == 0, "making space keeps the bytes");
        self.end += count;
        Poll::Ready(Ok(count))
    }

    /// Room behind the bytes; never empty: a head that is allowed to be larger than a buffer makes it grow.
    fn space(&mut self, buffers: &Buffers) -> &mut [u8] {
        let mut data = self.data.take().unwrap_or_default();
        let length = self.end - self.start;
        if data.len() < BUFFER_BYTES {
            let mut larger = buffers.lend();
            copy(data.get(self.start..self.end), larger.get_mut(HEADROOM..HEADROOM + length));
            (data, self.start, self.end) = (larger, HEADROOM, HEADROOM + length);
        } else if self.end == data.len() && self.start > 0 {
            data.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, length);
        } else if self.end == data.len() {
            let mut larger = vec![0; 2 * data.len()].into_boxed_slice();
            copy(data.get(..), larger.get_mut(..length));
            data = larger;
        }
        let end = self.end;
        self.data.insert(data).get_mut(end..).unwrap_or_default()
    }

    /// Gives a large buffer back that holds little: for whoever is going to wait.
    pub(crate) fn stow(&mut self, buffers: &Buffers) {
        let small = self.bytes().len() <= STOW_LIMIT;
        if let Some(large) = self.data.take_if(|data| small && data.len() >= BUFFER_BYTES) {
            let bytes: Box<[u8]> = large.get(self.start..self.end).unwrap_or_default().into();
            (self.start, self.end) = (0, bytes.len());
            self.data = Some(bytes);
            buffers.give_back(large);
        }
    }

    /// Puts `head` right in front of the bytes; `false` when there is no room for it.
    pub(crate) fn prepend(&mut self, head: &[u8]) -> bool {
        let Some(start) = self.start.checked_sub(head.len()) else { return false };
        let Some(room) = self.data.as_deref_mut().and_then(|data| data.get_mut(start..self.start)) else {
            return false;
        };
        room.copy_from_slice(head);
        self.start = start;
        self.consumed = self.consumed.wrapping_sub(head.len() as u64);
        true
    }

    #[cfg(test)]
    fn receive(&mut self, bytes: &[u8], buffers: &Buffers) {
        if self.is_empty() {
            (self.data, self.start, self.end) = (Some(buffers.lend()), HEADROOM, HEADROOM);
        }
        self.space(buffers)[..bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }
}

/// Both ranges exist and are of one length, or nothing is copied.
fn copy(from: Option<&[u8]>, to: Option<&mut [u8]>) {
    if let (Some(from), Some(to)) = (from, to)
        && from.len() == to.len()
    {
        to.copy_from_slice(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_goes_round() {
        let buffers = Buffers::default();
        let mut input = Input::default();
        input.receive(b"abc", &buffers);
        input.consume(3, &buffers);
        assert!(input.is_empty() && input.data.is_none());
        assert!(buffers.hot.take().is_some());
    }

    #[test]
    fn few_bytes_are_stowed_and_come_first_in_the_next_buffer() {
        let buffers = Buffers::default();
        let mut input = Input::default();
        input.receive(b"abc", &buffers);
        input.consume(1, &buffers);
        input.stow(&buffers);
        assert_eq!(input.data.as_ref().map(|data| data.len()), Some(2));
        assert_eq!(input.bytes(), b"bc");
        input.receive(b"d", &buffers);
        assert_eq!(input.bytes(), b"bcd");
        assert!(input.prepend(b"head ") && input.bytes() == b"head bcd");
        assert!(!input.prepend(&[0; HEADROOM]));
    }

    #[test]
    fn bytes_move_to_the_front_of_a_full_buffer_and_a_head_beyond_it_makes_it_grow() {
        let buffers = Buffers::default();
        let mut input = Input::default();
        let most = vec![b'x'; BUFFER_BYTES - HEADROOM];
        input.receive(&most, &buffers);
        input.receive(b"yz", &buffers);
        assert_eq!(input.start, 0);
        assert_eq!(&input.bytes()[most.len() - 1..], b"xyz");
        input.receive(&[b'w'; HEADROOM - 2], &buffers);
        input.receive(b"v", &buffers);
        assert!(input.data.as_ref().is_some_and(|data| data.len() > BUFFER_BYTES));
        assert_eq!(input.bytes().len(), BUFFER_BYTES + 1);
        input.release(&buffers);
    }
}
