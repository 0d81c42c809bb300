#![no_main]

#[path = "../checks/head.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::head(data));
