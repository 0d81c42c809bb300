//! Bodies: the piece that is being shown, and what was kept before.

use std::ffi::c_int;

use crate::abi::{self, Buffer, StreamRef};

/// Which bytes of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Part {
    RequestReceived = 0,
    RequestKept = 1,
    ResponseReceived = 2,
    ResponseKept = 3,
}

/// Bytes of a body, which lie in pieces of memory.
#[derive(Clone, Copy)]
pub struct Body<'s> {
    stream: &'s StreamRef,
    part: Part,
}

/// The same, to be changed.
pub struct BodyMut<'s> {
    stream: &'s StreamRef,
    part: Part,
}

impl<'s> Body<'s> {
    pub(crate) fn new(stream: &'s StreamRef, part: Part) -> Body<'s> {
        Body { stream, part }
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        // SAFETY: the handle is that of a stream in a hook. So below.
        unsafe { abi::get_body_size(*self.stream, self.part as c_int) }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pieces of memory, where they lie.
    pub fn chunks(&self) -> Vec<&'s [u8]> {
        // SAFETY: as above.
        let count = unsafe { abi::get_body_chunks_size(*self.stream, self.part as c_int) };
        let mut chunks = vec![Buffer::NOTHING; count];
        // SAFETY: there is room for as many as there are.
        if count == 0 || !unsafe { abi::get_body_chunks(*self.stream, self.part as c_int, chunks.as_mut_ptr()) } {
            return Vec::new();
        }
        // SAFETY: the proxy's bytes stay as they are until the stream is changed, which its borrow keeps anybody from.
        chunks.into_iter().map(|chunk| unsafe { chunk.bytes() }).collect()
    }

    /// A copy of them all.
    pub fn to_vec(&self) -> Vec<u8> {
        self.chunks().concat()
    }
}

impl<'s> BodyMut<'s> {
    pub(crate) fn new(stream: &'s mut StreamRef, part: Part) -> BodyMut<'s> {
        BodyMut { stream, part }
    }

    /// The bytes, to be read.
    pub fn read(&self) -> Body<'_> {
        Body { stream: self.stream, part: self.part }
    }

    /// Adds bytes at the end. `false` where there is no such body now.
    pub fn append(&mut self, data: impl AsRef<[u8]>) -> bool {
        // SAFETY: the handle is that of a stream in a hook; the bytes are there during the call.
        unsafe { abi::append_body(*self.stream, self.part as c_int, Buffer::of(data.as_ref())) }
    }

    /// Drops bytes from the front; all of them where there are no more.
    pub fn drain(&mut self, count: usize) -> bool {
        let count = count.min(self.read().len());
        // SAFETY: as above.
        count == 0 || unsafe { abi::drain_body(*self.stream, self.part as c_int, count) }
    }

    /// Puts other bytes in the place of all.
    pub fn replace(&mut self, data: impl AsRef<[u8]>) -> bool {
        let count = self.read().len();
        self.drain(count) && self.append(data)
    }
}
