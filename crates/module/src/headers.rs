//! Header fields and trailers.

use std::ffi::c_int;

use crate::abi::{self, Buffer, Header, StreamRef};

/// Which fields of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Map {
    RequestHeaders = 0,
    RequestTrailers = 1,
    ResponseHeaders = 2,
    ResponseTrailers = 3,
}

/// Fields of a message, in their order, pseudo-headers (`:path`, `:status`) included. Names are matched whatever their case.
#[derive(Clone, Copy)]
pub struct Headers<'s> {
    stream: &'s StreamRef,
    map: Map,
}

/// The same, to be changed.
pub struct HeadersMut<'s> {
    stream: &'s StreamRef,
    map: Map,
}

impl<'s> Headers<'s> {
    pub(crate) fn new(stream: &'s StreamRef, map: Map) -> Headers<'s> {
        Headers { stream, map }
    }

    /// The first value of a field.
    pub fn get(&self, name: &str) -> Option<&'s [u8]> {
        self.at(name, 0).0
    }

    /// The same where it is a text in UTF-8.
    pub fn text(&self, name: &str) -> Option<&'s str> {
        self.get(name).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// Every value of a field.
    pub fn values(&self, name: &str) -> Vec<&'s [u8]> {
        let (first, count) = self.at(name, 0);
        let others = (1..count).filter_map(|index| self.at(name, index).0);
        first.into_iter().chain(others).collect()
    }

    /// Every field with its name.
    pub fn all(&self) -> Vec<(&'s [u8], &'s [u8])> {
        // SAFETY: the handle is that of a stream in a hook. So below.
        let count = unsafe { abi::get_headers_size(*self.stream, self.map as c_int) };
        let mut fields = vec![Header::NOTHING; count];
        // SAFETY: there is room for as many as there are.
        if count == 0 || !unsafe { abi::get_headers(*self.stream, self.map as c_int, fields.as_mut_ptr()) } {
            return Vec::new();
        }
        // SAFETY: the proxy's bytes stay as they are until the stream is changed, which its borrow keeps anybody from.
        fields.into_iter().map(|field| unsafe { field.parts() }).collect()
    }

    /// How many fields there are.
    pub fn len(&self) -> usize {
        // SAFETY: as above.
        unsafe { abi::get_headers_size(*self.stream, self.map as c_int) }
    }

    /// Whether there are none, or the message has none yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn at(&self, name: &str, index: usize) -> (Option<&'s [u8]>, usize) {
        let (mut value, mut count) = (Buffer::NOTHING, 0);
        let name = Buffer::of(name.as_bytes());
        // SAFETY: as above.
        let found =
            unsafe { abi::get_header(*self.stream, self.map as c_int, name, &raw mut value, index, &raw mut count) };
        // SAFETY: the proxy's bytes stay as they are until the stream is changed, which its borrow keeps anybody from.
        (found.then(|| unsafe { value.bytes() }), count)
    }
}

impl<'s> HeadersMut<'s> {
    pub(crate) fn new(stream: &'s mut StreamRef, map: Map) -> HeadersMut<'s> {
        HeadersMut { stream, map }
    }

    /// The fields, to be read.
    pub fn read(&self) -> Headers<'_> {
        Headers { stream: self.stream, map: self.map }
    }

    /// Puts a value in the place of all that the field had. `false` where the proxy takes no such field: its bytes are not
    /// allowed, or there are no such fields now.
    pub fn set(&mut self, name: &str, value: impl AsRef<[u8]>) -> bool {
        let (name, value) = (Buffer::of(name.as_bytes()), Buffer::of(value.as_ref()));
        // SAFETY: the handle is that of a stream in a hook; the bytes are there during the call. So below.
        unsafe { abi::set_header(*self.stream, self.map as c_int, name, value) }
    }

    /// Adds a value behind those that the field has. Answers as [`HeadersMut::set`] does.
    pub fn add(&mut self, name: &str, value: impl AsRef<[u8]>) -> bool {
        let (name, value) = (Buffer::of(name.as_bytes()), Buffer::of(value.as_ref()));
        // SAFETY: as above.
        unsafe { abi::add_header(*self.stream, self.map as c_int, name, value) }
    }

    /// Removes every value of a field.
    pub fn remove(&mut self, name: &str) {
        // SAFETY: as above. That there was nothing to remove is no failure.
        let _ =
            unsafe { abi::set_header(*self.stream, self.map as c_int, Buffer::of(name.as_bytes()), Buffer::NOTHING) };
    }
}
