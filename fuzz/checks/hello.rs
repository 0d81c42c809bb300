//! Any bytes as the first of a TLS connection: reading them never fails badly, more bytes never change what was decided,
//! and what is told of a greeting holds together. Run by the fuzz target `hello` and, over its corpus, by the tests of the
//! TLS crate.

use postrider_tls::{ClientHello, Inspection, MAX_HELLO, inspect};

/// No greeting is waited for longer than this, however it is cut into records.
const MOST: usize = MAX_HELLO;

pub fn hello(data: &[u8]) {
    let whole = inspect(data);
    for cut in cuts(data.len()) {
        match inspect(&data[..cut]) {
            Inspection::NeedMore => {}
            decided => assert_eq!(decided, whole, "cut at {cut}"),
        }
    }
    match &whole {
        Inspection::Hello(hello) => {
            check_hello(hello);
            let more = [data, b"\x17\x03\x03\x00\x01x"].concat();
            assert_eq!(inspect(&more), whole, "what follows does not matter");
        }
        Inspection::NeedMore => {
            assert!(data.len() <= MOST, "{} bytes, and no end", data.len());
            assert!(data.first().is_none_or(|kind| *kind == 0x16), "what does not begin as TLS is not waited for");
        }
        Inspection::Invalid(why) => assert!(!why.is_empty()),
        Inspection::NotTls => assert!(!data.is_empty()),
    }
}

fn check_hello(hello: &ClientHello) {
    if let Some(name) = hello.server_name() {
        assert!(!name.is_empty() && name.len() <= 255 && !name.ends_with('.'), "{name:?}");
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-_:".contains(&byte);
        assert!(name.bytes().all(plain), "{name:?}");
    }
    assert!(hello.alpn().all(|protocol| !protocol.is_empty() && protocol.len() <= 255));
    let ja3 = hello.ja3();
    assert!(ja3.len() == 32 && ja3.bytes().all(|byte| byte.is_ascii_hexdigit()), "{ja3}");
    let ja4 = hello.ja4();
    let parts: Vec<&str> = ja4.split('_').collect();
    assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [10, 12, 12], "{ja4}");
    assert!(ja4.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'), "{ja4}");
}

/// All cuts of short inputs, a few of long ones.
fn cuts(length: usize) -> impl Iterator<Item = usize> {
    (1..length).step_by(length / 64 + 1)
}
