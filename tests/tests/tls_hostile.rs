//! TLS from clients that mean harm: greetings without end, in crumbs or in numbers, and records that say nothing.
//! Each is ended or costs little, and a polite client is served all the while.

use postrider_tests::attack::meanwhile;
use postrider_tests::get;
use postrider_tests::kit::{Config, DEADLINE, Proxy};
use postrider_tests::tls::{Authority, Client, TlsClient, secured, tls_inspector};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// What an attack may cost, in KiB.
const MEMORY: u64 = 4096;

/// Runs `attack` against a site of TLS while a polite client asks, and sees what that costs.
fn withstand<T: Send>(listener: Value, attack: impl FnOnce(SocketAddr, &Client) -> T + Send) -> T {
    withstand_within(MEMORY, listener, attack)
}

/// The same where so many KiB are fair.
fn withstand_within<T: Send>(memory: u64, listener: Value, attack: impl FnOnce(SocketAddr, &Client) -> T + Send) -> T {
    let authority = Authority::new("authority");
    let config = Config::routes(json!([
        {"match": {"prefix": "/"}, "direct_response": {"status": 200, "body": {"inline_string": "hello"}}},
    ]));
    let config = secured(config, &authority.issue(&["site.test"]), json!({})).overlay_listener("http", listener);
    let proxy = Proxy::start(&config);
    let address = proxy.address("http");
    let client = Client::trusting(&authority);
    let mut polite = client.connect(address, "site.test");
    for _ in 0..20 {
        assert_eq!(polite.exchange(get("/")).text(), "hello");
        assert!(client.fresh().get(address, "site.test").is_ok());
    }
    meanwhile(&proxy, memory, || assert_eq!(polite.exchange(get("/")).text(), "hello"), || attack(address, &client))
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&address, DEADLINE).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    stream
}

/// Says `piece` until the proxy ends it; false when it does not, within `count` times.
fn is_ended(stream: &mut TcpStream, piece: &[u8], count: usize) -> bool {
    (0..count).any(|_| stream.write_all(piece).is_err())
}

/// Without and with a look at the greeting before a filter chain is chosen.
fn listeners() -> [Value; 2] {
    [json!({}), json!({"listener_filters": [tls_inspector()]})]
}

#[test]
fn a_greeting_that_does_not_end_is_ended() {
    for listener in listeners() {
        let ended = withstand(listener, |address, _| {
            let mut stream = connect(address);
            // A ClientHello of 16 MB, of which record after record comes.
            let mut first = vec![0x16, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff, 3, 3];
            first.resize(5 + 0x4000, 0);
            let mut more = vec![0x16, 3, 1, 0x40, 0];
            more.resize(5 + 0x4000, 0);
            stream.write_all(&first).unwrap();
            is_ended(&mut stream, &more, 1000)
        });
        assert!(ended);
    }
}

#[test]
fn a_greeting_in_records_of_a_byte_is_read_or_refused() {
    for listener in listeners() {
        withstand(listener, |address, client| {
            let mut session = client.session("site.test");
            let mut greeting = Vec::new();
            session.write_tls(&mut greeting).unwrap();
            let crumbs: Vec<u8> = greeting[5..].iter().flat_map(|byte| [0x16, 3, 1, 0, 1, *byte]).collect();
            let mut stream = connect(address);
            let _ = stream.write_all(&crumbs);
            let mut first = [0; 1];
            // A server's greeting or an alert, but an end to it.
            match stream.read(&mut first) {
                Ok(0) | Err(_) => {}
                Ok(_) => assert!(matches!(first[0], 0x15 | 0x16), "{first:?}"),
            }
        });
    }
}

#[test]
fn records_without_content_are_ended() {
    for listener in listeners() {
        // Handshake records may not be empty (RFC 8446 section 5.1), and nothing else may come yet.
        for kind in [0x16, 0x17, 0x18, 0x63] {
            let empty = [kind, 3, 1, 0, 0].repeat(1000);
            let ended = withstand(listener.clone(), |address, _| is_ended(&mut connect(address), &empty, 1000));
            assert!(ended, "records of kind {kind}");
        }
    }
}

#[test]
fn alerts_without_end_are_ended() {
    let warnings = [0x15, 3, 1, 0, 2, 1, 0].repeat(1000);
    let ended = withstand(json!({}), |address, _| is_ended(&mut connect(address), &warnings, 1000));
    assert!(ended);
}

#[test]
fn greetings_that_are_left_alone_cost_little() {
    // 300 clients that say half of a greeting, and 300 that do not answer the proxy's.
    const CLIENTS: u64 = 600;
    withstand_within(CLIENTS * 24, json!({}), |address, client| {
        (0..CLIENTS)
            .map(|turn| {
                let mut session = client.session("site.test");
                let mut greeting = Vec::new();
                session.write_tls(&mut greeting).unwrap();
                let mut stream = connect(address);
                let part = if turn % 2 == 0 { greeting.len() } else { greeting.len() / 2 };
                stream.write_all(&greeting[..part]).unwrap();
                stream
            })
            .collect::<Vec<TcpStream>>()
    });
}

#[test]
fn keys_that_change_without_end_are_held_up_or_ended() {
    withstand(json!({}), |address, client| {
        let mut client: TlsClient = client.connect(address, "site.test");
        assert_eq!(client.exchange(get("/")).text(), "hello");
        let mut socket = client.into_transport();
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(1) && socket.change_keys() {}
    });
}

#[test]
fn broken_records_end_the_connection_and_no_other() {
    withstand(json!({}), |address, client| {
        for garbage in [
            &b"\x17\x03\x03\x00\x20aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"[..],
            b"\x17\x03\x03\xff\xff",
            b"GET / HTTP/1.1\r\n\r\n",
        ] {
            let mut session = client.session("site.test");
            let mut stream = connect(address);
            while session.is_handshaking() {
                session.complete_io(&mut stream).unwrap();
            }
            stream.write_all(garbage).unwrap();
            let mut rest = Vec::new();
            // An alert, then the end.
            let _ = stream.read_to_end(&mut rest);
            assert!(!String::from_utf8_lossy(&rest).contains("HTTP/"));
        }
    });
}
