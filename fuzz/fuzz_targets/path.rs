#![no_main]

#[path = "../checks/path.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::path(data));
