#![no_main]

#[path = "../checks/chunked.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::chunked(data));
