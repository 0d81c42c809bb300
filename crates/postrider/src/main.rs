//! The binary: reads the command line, does what it says, ends with a code that scripts can rely on.
//!
//! It must never hold logic that a test would want to reach without starting a process.

mod config;
mod flags;

fn main() {}
