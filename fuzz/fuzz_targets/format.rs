#![no_main]

#[path = "../checks/format.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::format(data));
