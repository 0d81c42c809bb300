//! Read buffers, lent when there is data to read.
//!
//! A worker owns a few large buffers and lends the one that was used last, still warm in the cache. An idle connection
//! holds none; a connection whose peer is slow keeps its lease until the bytes are gone.

use std::cell::RefCell;

/// Room for what one read may bring. Large enough that big bodies move in few system calls; a peer that never reads
/// holds one of them, and must not cost more than 256 KiB with all that belongs to it.
pub(crate) const LEASE_BYTES: usize = 200 * 1024;

/// Free buffers beyond this many are given back to the allocator: a burst of slow peers must not be paid for ever.
const MAX_FREE: usize = 16;

/// The buffers of one worker.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    free: RefCell<Vec<Box<[u8]>>>,
}

impl Buffers {
    pub(crate) fn lend(&self) -> Lease {
        let data = self.free.borrow_mut().pop();
        Lease { data: data.unwrap_or_else(|| vec![0; LEASE_BYTES].into_boxed_slice()), start: 0, end: 0 }
    }

    pub(crate) fn give_back(&self, lease: Lease) {
        let mut free = self.free.borrow_mut();
        if free.len() < MAX_FREE && lease.data.len() == LEASE_BYTES {
            free.push(lease.data);
        }
    }
}

/// A buffer on loan: `start..end` are bytes received and not consumed.
#[derive(Debug)]
pub(crate) struct Lease {
    data: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Lease {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.data.get(self.start..self.end).unwrap_or_default()
    }

    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    pub(crate) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
    }

    /// Where the next read goes; never empty: a head that is allowed to be larger than a lease makes it grow.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        } else if self.end == self.data.len() && self.start > 0 {
            self.data.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        } else if self.end == self.data.len() {
            let mut larger = vec![0; 2 * self.data.len()].into_boxed_slice();
            if let Some(front) = larger.get_mut(..self.end) {
                front.copy_from_slice(&self.data);
            }
            self.data = larger;
        }
        self.data.get_mut(self.end..).unwrap_or_default()
    }

    /// `count` bytes were read into [`Lease::space`].
    pub(crate) fn filled(&mut self, count: usize) {
        self.end = (self.end + count).min(self.data.len());
    }

    /// Puts bytes behind those that are there; answers whether there was room.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> bool {
        let Some(room) = self.space().get_mut(..bytes.len()) else { return false };
        room.copy_from_slice(bytes);
        self.filled(bytes.len());
        true
    }
}

/// What one side of a connection received and nobody consumed yet. Few bytes are kept in a small vector of their own
/// while the connection waits for more, so that a slow sender does not hold a whole lease.
#[derive(Debug, Default)]
pub(crate) struct Input {
    lease: Option<Lease>,
    stowed: Vec<u8>,
}

/// More waiting bytes than this are not worth copying out of their lease.
const STOW_LIMIT: usize = 16 * 1024;

impl Input {
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.lease {
            Some(lease) => lease.bytes(),
            None => &self.stowed,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes().is_empty()
    }

    pub(crate) fn consume(&mut self, count: usize, buffers: &Buffers) {
        match &mut self.lease {
            Some(lease) => {
                lease.consume(count);
                if lease.is_empty() {
                    self.release(buffers);
                }
            }
            None => {
                let count = count.min(self.stowed.len());
                self.stowed.drain(..count);
                if self.stowed.is_empty() {
                    self.stowed = Vec::new();
                }
            }
        }
    }

    /// A buffer to read into behind what is there already.
    pub(crate) fn open(&mut self, buffers: &Buffers) -> &mut Lease {
        let stowed = std::mem::take(&mut self.stowed);
        let lease = self.lease.get_or_insert_with(|| buffers.lend());
        if !stowed.is_empty() {
            lease.push(&stowed);
        }
        lease
    }

    /// Before a wait: gives the lease back unless it holds much.
    pub(crate) fn stow(&mut self, buffers: &Buffers) {
        if let Some(lease) = self.lease.take_if(|lease| lease.len() <= STOW_LIMIT) {
            self.stowed = lease.bytes().to_vec();
            buffers.give_back(lease);
        }
    }

    /// Forgets everything.
    pub(crate) fn release(&mut self, buffers: &Buffers) {
        self.stowed = Vec::new();
        if let Some(lease) = self.lease.take() {
            buffers.give_back(lease);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_goes_round_and_moves_its_rest_to_the_front_when_full() {
        let buffers = Buffers::default();
        let mut lease = buffers.lend();
        let size = lease.space().len();
        lease.filled(size);
        lease.consume(size - 3);
        assert_eq!(lease.space().len(), size - 3);
        assert_eq!(lease.len(), 3);
        buffers.give_back(lease);
        assert_eq!(buffers.free.borrow().len(), 1);
    }

    #[test]
    fn stowed_bytes_come_first_in_the_next_lease() {
        let buffers = Buffers::default();
        let mut input = Input::default();
        input.open(&buffers).push(b"abc");
        input.consume(1, &buffers);
        input.stow(&buffers);
        assert!(input.lease.is_none());
        assert_eq!(input.bytes(), b"bc");
        input.open(&buffers).push(b"d");
        assert_eq!(input.bytes(), b"bcd");
        input.consume(3, &buffers);
        assert!(input.is_empty() && input.lease.is_none());
    }
}
