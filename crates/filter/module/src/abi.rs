//! The types of the binary interface, versions 0.1 and 0.2: what is passed between the proxy and a module.
//!
//! `include/postrider_module.h` says the same in C. Nothing here may change its layout.

use std::ffi::{c_char, c_int, c_void};
use std::slice;

/// Bytes that somebody lends for a call. By value, in two registers.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Buffer {
    pub(crate) start: *const c_char,
    pub(crate) length: usize,
}

/// A field with its name, in either direction.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    pub(crate) name: *const c_char,
    pub(crate) name_length: usize,
    pub(crate) value: *const c_char,
    pub(crate) value_length: usize,
}

/// The stream's own state in the proxy, as modules hold it.
pub(crate) type StreamRef = *mut c_void;

/// The filter's configuration in the proxy.
pub(crate) type ConfigRef = *mut c_void;

/// An access logger on one worker, as modules hold it.
pub(crate) type LoggerRef = *mut c_void;

/// Something of the module's own.
pub(crate) type Own = *const c_void;

impl Buffer {
    pub(crate) const NOTHING: Buffer = Buffer { start: std::ptr::null(), length: 0 };

    pub(crate) fn of(bytes: &[u8]) -> Buffer {
        Buffer { start: bytes.as_ptr().cast(), length: bytes.len() }
    }

    /// # Safety
    /// The bytes are there and stay as they are for as long as the answer is used.
    pub(crate) unsafe fn bytes<'a>(self) -> &'a [u8] {
        if self.start.is_null() || self.length == 0 {
            return &[];
        }
        // SAFETY: by the contract above.
        unsafe { slice::from_raw_parts(self.start.cast(), self.length) }
    }
}

impl Header {
    pub(crate) fn of(name: &[u8], value: &[u8]) -> Header {
        Header {
            name: name.as_ptr().cast(),
            name_length: name.len(),
            value: value.as_ptr().cast(),
            value_length: value.len(),
        }
    }

    /// # Safety
    /// As for [`Buffer::bytes`].
    pub(crate) unsafe fn parts<'a>(self) -> (&'a [u8], &'a [u8]) {
        let name = Buffer { start: self.name, length: self.name_length };
        let value = Buffer { start: self.value, length: self.value_length };
        // SAFETY: by the contract above.
        unsafe { (name.bytes(), value.bytes()) }
    }
}

/// The items of an array that a module passes.
///
/// # Safety
/// `start` points to `count` of them, which stay as they are for as long as the answer is used; it may be null for none.
pub(crate) unsafe fn items<'a, T>(start: *const T, count: usize) -> &'a [T] {
    if start.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: by the contract above.
    unsafe { slice::from_raw_parts(start, count) }
}

/// What a hook on a head answers.
pub(crate) mod head {
    use super::c_int;

    pub(crate) const CONTINUE: c_int = 0;
    pub(crate) const STOP: c_int = 1;
    pub(crate) const CONTINUE_WITHOUT_END: c_int = 2;
}

/// What a hook on a piece of a body answers.
pub(crate) mod body {
    use super::c_int;

    pub(crate) const CONTINUE: c_int = 0;
    pub(crate) const STOP_AND_BUFFER: c_int = 1;
    pub(crate) const STOP_AND_WATERMARK: c_int = 2;
}

/// Which fields a function is about.
pub(crate) mod map {
    use super::c_int;

    pub(crate) const REQUEST_HEADERS: c_int = 0;
    pub(crate) const REQUEST_TRAILERS: c_int = 1;
    pub(crate) const RESPONSE_HEADERS: c_int = 2;
    pub(crate) const RESPONSE_TRAILERS: c_int = 3;
}

/// What a module is told of a connection.
pub(crate) mod event {
    use super::c_int;

    pub(crate) const REMOTE_CLOSE: c_int = 0;
    pub(crate) const LOCAL_CLOSE: c_int = 1;
    pub(crate) const CONNECTED: c_int = 2;
}

/// What became of the wish for a call.
pub(crate) mod call {
    use super::c_int;

    pub(crate) const SUCCESS: c_int = 0;
    pub(crate) const MISSING_REQUIRED_HEADERS: c_int = 1;
    pub(crate) const CLUSTER_NOT_FOUND: c_int = 2;
    pub(crate) const CANNOT_CREATE: c_int = 4;
}

/// What became of a call.
pub(crate) mod outcome {
    use super::c_int;

    pub(crate) const SUCCESS: c_int = 0;
}

/// What became of a statistic.
pub(crate) mod metric {
    use super::c_int;

    pub(crate) const SUCCESS: c_int = 0;
    pub(crate) const NOT_FOUND: c_int = 1;
    pub(crate) const INVALID_LABELS: c_int = 2;
    pub(crate) const FROZEN: c_int = 3;
}
