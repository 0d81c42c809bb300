#![no_main]

#[path = "../checks/hello.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::hello(data));
