//! What a module has of the process.

use std::ffi::c_int;
use std::fmt;

use crate::abi::{self, Buffer};

/// How much a line of the log matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(i32)]
pub enum Level {
    /// For people who look for a fault step by step.
    Trace = 0,
    /// For people who look for a fault.
    Debug = 1,
    /// What is good to know.
    Info = 2,
    /// Something is not as it should be.
    Warn = 3,
    /// Something failed.
    Error = 4,
    /// Nothing goes on as it should.
    Critical = 5,
}

/// Writes a line into the proxy's log, from any thread: `log(Level::Warn, format_args!("no {thing}"))`.
pub fn log(level: Level, text: fmt::Arguments<'_>) {
    if !log_enabled(level) {
        return;
    }
    let text = text.to_string();
    // SAFETY: the text is there during the call.
    unsafe { abi::log(level as c_int, Buffer::of(text.as_bytes())) };
}

/// Whether lines of this level are written now.
pub fn log_enabled(level: Level) -> bool {
    // SAFETY: it takes nothing but a number.
    unsafe { abi::log_enabled(level as c_int) }
}

/// How many workers the proxy has.
pub fn concurrency() -> u32 {
    // SAFETY: it takes nothing.
    unsafe { abi::get_concurrency() }
}
