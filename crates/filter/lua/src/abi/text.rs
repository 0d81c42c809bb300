//! Texts across the border.

use std::ffi::c_char;

/// `pr_str`: bytes somewhere, not terminated.
#[repr(C)]
pub(crate) struct Text {
    pub(crate) start: *const c_char,
    pub(crate) length: usize,
}

/// Writes where `bytes` lie to `out`.
///
/// # Safety
/// `out` is null or a place for a [`Text`].
pub(super) unsafe fn put(out: *mut Text, bytes: &[u8]) {
    // SAFETY: by the contract above.
    if let Some(out) = unsafe { out.as_mut() } {
        *out = Text { start: bytes.as_ptr().cast(), length: bytes.len() };
    }
}

/// The bytes that a script hands in.
///
/// # Safety
/// `start` is null or points to `length` bytes that stay while the result is used.
pub(super) unsafe fn take<'a>(start: *const c_char, length: usize) -> &'a [u8] {
    if start.is_null() {
        return &[];
    }
    // SAFETY: by the contract above.
    unsafe { std::slice::from_raw_parts(start.cast(), length) }
}
