//! The inspector, on greetings that rustls writes and on greetings that nobody should.

use postrider_model::UpstreamTls;
use postrider_tls::{ClientHello, Inspection, MAX_HELLO, Target, inspect};

use crate::support::*;

fn greeting(model: &UpstreamTls, alpn: &[&[u8]]) -> Vec<u8> {
    let target = Target { alpn: Some(alpn), ..Target::default() };
    let mut connection = client(model).connection(&target).unwrap();
    let mut bytes = Vec::new();
    connection.write_tls(&mut bytes).unwrap();
    bytes
}

fn hello(bytes: &[u8]) -> Box<ClientHello> {
    match inspect(bytes) {
        Inspection::Hello(hello) => hello,
        other => panic!("{other:?}"),
    }
}

/// The same handshake bytes in records of `size`.
fn split(bytes: &[u8], size: usize) -> Vec<u8> {
    let records = bytes[5..].chunks(size);
    records.flat_map(|part| [&[22, 3, 1][..], &(part.len() as u16).to_be_bytes(), part].concat()).collect()
}

#[test]
fn what_a_client_says() {
    let bytes = greeting(&UpstreamTls { sni: Some("A.Example".into()), ..upstream() }, &[b"h2", b"http/1.1"]);
    let hello = hello(&bytes);
    assert_eq!(hello.server_name(), Some("a.example"));
    assert_eq!(hello.alpn().collect::<Vec<_>>(), [&b"h2"[..], b"http/1.1"]);
    assert_eq!(hello.versions(), [0x0304, 0x0303]);
    assert!(hello.ja4().starts_with("t13d"), "{}", hello.ja4());
}

#[test]
fn a_client_that_says_little() {
    let bytes = greeting(&UpstreamTls { sni: None, ..upstream() }, &[]);
    let hello = hello(&bytes);
    assert_eq!((hello.server_name(), hello.alpn().count()), (None, 0));
    assert!(hello.ja4().starts_with("t13i"), "{}", hello.ja4());
}

#[test]
fn every_cut_needs_more_and_the_whole_is_the_same() {
    let bytes = greeting(&upstream(), &[b"h2"]);
    let whole = hello(&bytes);
    for end in 0..bytes.len() {
        assert_eq!(inspect(&bytes[..end]), Inspection::NeedMore, "{end}");
    }
    let longer = [&bytes[..], b"what follows"].concat();
    assert_eq!(hello(&longer), whole);
}

#[test]
fn a_greeting_may_be_in_many_records() {
    let bytes = greeting(&upstream(), &[b"h2"]);
    let whole = hello(&bytes);
    let says = |hello: &ClientHello| {
        let alpn: Vec<Vec<u8>> = hello.alpn().map(<[u8]>::to_vec).collect();
        (hello.ja4(), hello.server_name().map(str::to_owned), alpn, hello.versions().to_vec())
    };
    for size in [1, 2, 3, 4, 5, 100] {
        let parts = split(&bytes, size);
        let hello = hello(&parts);
        assert_eq!(says(&hello), says(&whole), "{size}");
        assert_eq!(hello.wire_bytes(), parts.len(), "{size}");
        for end in 0..parts.len() {
            assert_eq!(inspect(&parts[..end]), Inspection::NeedMore, "{size} {end}");
        }
    }
}

#[test]
fn other_protocols_are_not_tls() {
    for bytes in
        [&b"GET / HTTP/1.1\r\n"[..], b"PRI * HTTP/2.0", b"SSH-2.0-x", &[0x80, 0x2e, 1, 3, 1], &[22, 2], &[21, 3, 3]]
    {
        for end in 1..=bytes.len() {
            let got = inspect(&bytes[..end]);
            let undecided = bytes[0] == 22 && end == 1;
            assert_eq!(got, if undecided { Inspection::NeedMore } else { Inspection::NotTls }, "{bytes:02x?} {end}");
        }
    }
    assert_eq!(inspect(&[]), Inspection::NeedMore);
}

#[test]
fn a_greeting_that_is_wrong_is_refused() {
    let bytes = greeting(&upstream(), &[b"h2"]);
    let changed = |at: usize, byte: u8| {
        let mut changed = bytes.clone();
        changed[at] = byte;
        inspect(&changed)
    };
    let parts = split(&bytes, 50);
    let interrupted = [&parts[..55], &[21, 3, 3, 0, 2, 1, 0], &parts[55..]].concat();
    for (got, why) in [
        (changed(5, 2), "no ClientHello"),
        (changed(6, 0xff), "too large"),
        (inspect(&[22, 3, 1, 0, 0]), "impossible length"),
        (inspect(&[22, 3, 1, 0xff, 0xff]), "impossible length"),
        // The session id is longer than it may be.
        (changed(5 + 4 + 2 + 32, 33), "malformed"),
        (inspect(&interrupted), "interrupts"),
    ] {
        assert!(matches!(got, Inspection::Invalid(text) if text.contains(why)), "{got:?} {why}");
    }
}

/// A greeting with these extensions.
fn with_extensions(extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let list: Vec<u8> = extensions
        .iter()
        .flat_map(|(kind, content)| [&kind.to_be_bytes()[..], &(content.len() as u16).to_be_bytes(), content].concat())
        .collect();
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0x13, 0x01, 1, 0]);
    if !extensions.is_empty() {
        body.extend((list.len() as u16).to_be_bytes());
        body.extend(list);
    }
    let message = [&[1, 0][..], &(body.len() as u16).to_be_bytes(), &body].concat();
    split(&[&[0; 5][..], &message].concat(), 1 << 14)
}

fn server_name(name: &[u8]) -> Vec<u8> {
    let entry = [&[0][..], &(name.len() as u16).to_be_bytes(), name].concat();
    [&(entry.len() as u16).to_be_bytes()[..], &entry].concat()
}

#[test]
fn server_names_that_could_mean_something_else_are_refused() {
    for (name, want) in [
        (&b"a.example"[..], Some("a.example")),
        (b"A.EXAMPLE.", Some("a.example")),
        (b"a_b.example", Some("a_b.example")),
        (b"a.example\0.evil", None),
        (b"a.example/x", None),
        (b"a example", None),
        ("\u{e4}.example".as_bytes(), None),
        (b"", None),
        (b".", None),
    ] {
        let got = match inspect(&with_extensions(&[(0, server_name(name))])) {
            Inspection::Hello(hello) => hello.server_name().map(str::to_owned),
            Inspection::Invalid(_) => None,
            other => panic!("{other:?}"),
        };
        assert_eq!(got.as_deref(), want, "{name:?}");
    }
    let long = with_extensions(&[(0, server_name(&[b'a'; 256]))]);
    assert!(matches!(inspect(&long), Inspection::Invalid(_)));
}

#[test]
fn an_extension_comes_once() {
    let twice = with_extensions(&[(0, server_name(b"a.example")), (0, server_name(b"b.example"))]);
    assert!(matches!(inspect(&twice), Inspection::Invalid(text) if text.contains("twice")));
}

#[test]
fn a_greeting_without_extensions_is_one() {
    let hello = hello(&with_extensions(&[]));
    assert_eq!((hello.server_name(), hello.versions()), (None, &[0x0303][..]));
    assert_eq!(hello.ja4(), "t12i010000_0f2cb44170f4_000000000000");
}

#[test]
fn a_greeting_that_does_not_end_is_refused_at_the_limit() {
    let mut endless = vec![22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc];
    endless.resize(MAX_HELLO - 1, 0);
    assert_eq!(inspect(&endless), Inspection::NeedMore);
    endless.push(0);
    assert_eq!(inspect(&endless), Inspection::Invalid("the ClientHello is too large"));
}

/// No input may panic: every byte of a real greeting, changed to each value that means something somewhere.
#[test]
fn changed_bytes_never_panic() {
    let bytes = greeting(&upstream(), &[b"h2", b"http/1.1"]);
    let bytes = split(&bytes, 1000);
    for at in 0..bytes.len() {
        for value in [0, 1, 2, 0x0a, 0x16, 0x20, 0x7f, 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[at] = value;
            if let Inspection::Hello(hello) = inspect(&changed) {
                assert_eq!((hello.ja3().len(), hello.ja4().len()), (32, 36));
            }
        }
    }
}
