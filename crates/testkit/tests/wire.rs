//! The client and the origins of this crate against each other: what they
//! claim to notice, they notice.

use postrider_testkit::{Gate, Origin, RawClient, WireError};

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

#[test]
fn an_echo_origin_returns_what_it_recorded() {
    let origin = Origin::echo("me");
    let mut client = RawClient::connect(origin.address);
    let request = "POST /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx-t: 1\r\n\r\n";
    let response = client.exchange(request);
    assert_eq!(response.header("x-origin"), "me");
    assert!(response.text().ends_with("\r\n\r\nabc"));
    let seen = &origin.requests()[0];
    assert_eq!((seen.body.as_slice(), seen.trailers.value("x-t")), (&b"abc"[..], Some("1")));
    assert_eq!(origin.bytes(0), request.as_bytes());
    assert_eq!(client.exchange("HEAD / HTTP/1.1\r\nhost: a\r\n\r\n").body, b"");
    assert_eq!(origin.connection_count(), 1);
}

#[test]
fn what_is_not_http_is_recorded_as_malformed() {
    for bad in ["GET / HTTP/1.1\r\n\r\n", "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nz\r\n"] {
        let origin = Origin::echo("me");
        let mut client = RawClient::connect(origin.address);
        client.send(bad);
        assert!(client.closed());
        assert_eq!((origin.malformed().len(), origin.requests().len()), (1, 0), "{bad:?}");
    }
}

#[test]
fn the_client_refuses_ambiguous_answers() {
    for bad in [
        "HTTP/1.1 2000 OK\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;x=y\r\na\r\n0\r\n\r\n",
        "HTTP/1.1 204 No\r\ntransfer-encoding: chunked\r\n\r\n",
    ] {
        let origin = Origin::fixed(bad);
        let error = RawClient::once(origin.address, GET).unwrap_err();
        assert!(matches!(error, WireError::Malformed(_)), "{bad:?}: {error:?}");
    }
}

#[test]
fn a_reset_and_a_short_answer_are_told_apart() {
    let resetting = Origin::start(|connection| {
        connection.request();
        connection.reset();
    });
    assert_eq!(RawClient::once(resetting.address, GET).unwrap_err(), WireError::Reset);
    let short = Origin::start(|connection| {
        connection.request();
        connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab");
    });
    assert_eq!(RawClient::once(short.address, GET).unwrap_err(), WireError::Eof("".into()));
}

#[test]
fn a_killed_origin_breaks_its_connections_and_refuses_new_ones() {
    let gate = Gate::default();
    let opened = gate.clone();
    let origin = Origin::start(move |connection| {
        connection.request();
        opened.wait();
        connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    });
    let mut client = RawClient::connect(origin.address);
    client.send(GET);
    origin.wait_requests(1);
    origin.kill();
    gate.open();
    assert!(matches!(client.response("GET"), Err(WireError::Eof(_) | WireError::Reset)));
    postrider_testkit::wait_until("refused", || std::net::TcpStream::connect(origin.address).is_err());
}
