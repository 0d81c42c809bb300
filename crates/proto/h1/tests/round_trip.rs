//! What is emitted, a strict parser reads the same way; and copying received lines whole gives the bytes
//! that a fresh serialisation would.

mod common;

use common::{fields_text, get, parse_whole, post, request_text};
use postrider_h1::{HeadScan, RequestParse, ResponseParse, parse_response};
use postrider_http::{
    Asked, BodyFraming, Connection, FieldLine, HeaderId, RequestHead, RequestRules, RequestWrite, ResponseHead,
    ResponseRules, ResponseWrite, Scheme, write_request, write_response,
};

fn emit(head: &RequestHead, options: &RequestWrite<'_>) -> String {
    let mut out = Vec::new();
    write_request(head, options, &mut out);
    String::from_utf8(out).unwrap()
}

fn parsed(input: &[u8]) -> (BodyFraming, RequestHead) {
    match parse_whole(input, &RequestRules::default()) {
        (RequestParse::Complete { facts, .. }, head) => (facts.framing, head),
        (other, _) => panic!("{:?}: {other:?}", String::from_utf8_lossy(input)),
    }
}

#[test]
fn requests_are_written_from_validated_parts() {
    for (input, want) in [
        (get("X: 1"), "GET / HTTP/1.1\r\nhost: a\r\nx: 1\r\n\r\n"),
        (get("X:1\r\nY:  2 \r\nZ:"), "GET / HTTP/1.1\r\nhost: a\r\nx: 1\r\ny: 2\r\nz: \r\n\r\n"),
        (get("Connection: x-a\r\nX-A: 1\r\nB: 2"), "GET / HTTP/1.1\r\nhost: a\r\nb: 2\r\n\r\n"),
        (post("Content-Length: 3"), "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\n"),
        (post("Content-Length: 003\r\nX: 1"), "POST / HTTP/1.1\r\nhost: a\r\nx: 1\r\ncontent-length: 3\r\n\r\n"),
        (
            post("Transfer-Encoding: Chunked\r\nX: 1"),
            "POST / HTTP/1.1\r\nhost: a\r\nx: 1\r\ntransfer-encoding: chunked\r\n\r\n",
        ),
        (
            b"GET http://b.test/a//./c HTTP/1.1\r\nX: 1\r\nHost: other\r\nY: 2\r\n\r\n".to_vec(),
            "GET /a/c HTTP/1.1\r\nx: 1\r\nhost: b.test\r\ny: 2\r\n\r\n",
        ),
        (b"CONNECT b:80 HTTP/1.1\r\nHost: c\r\n\r\n".to_vec(), "CONNECT b:80 HTTP/1.1\r\nhost: b:80\r\n\r\n"),
    ] {
        let (framing, head) = parsed(&input);
        assert_eq!(emit(&head, &RequestWrite { framing, ..RequestWrite::default() }), want);
    }
}

#[test]
fn the_framing_given_is_the_framing_written() {
    let (_, head) = parsed(&post("Content-Length: 3\r\nX: 1"));
    let write = |framing| emit(&head, &RequestWrite { framing, ..RequestWrite::default() });
    // Its method expects a body (RFC 9110 section 8.6).
    assert_eq!(write(BodyFraming::None), "POST / HTTP/1.1\r\nhost: a\r\nx: 1\r\ncontent-length: 0\r\n\r\n");
    assert_eq!(write(BodyFraming::Length(4)), "POST / HTTP/1.1\r\nhost: a\r\nx: 1\r\ncontent-length: 4\r\n\r\n");
    assert_eq!(write(BodyFraming::Chunked), "POST / HTTP/1.1\r\nhost: a\r\nx: 1\r\ntransfer-encoding: chunked\r\n\r\n");
}

#[test]
fn edits_and_options_reach_the_wire_and_bad_ones_do_not() {
    let (framing, mut head) = parsed(&get("A: 1\r\nB: 2\r\nC: 3\r\nConnection: upgrade\r\nUpgrade: websocket"));
    head.fields.set_name(b"b", b"two").unwrap();
    head.fields.append(HeaderId::XForwardedFor, b"127.0.0.1").unwrap();
    // However they got there, framing and connection fields are not the head's to say.
    head.fields.append(HeaderId::TransferEncoding, b"chunked").unwrap();
    head.fields.append(HeaderId::Connection, b"close").unwrap();
    let options = RequestWrite {
        framing,
        connection: Connection::Upgrade,
        absolute: Some(Scheme::Https),
        extra: &[(HeaderId::XRequestId, b"id"), (HeaderId::Via, b"a\r\nevil: 1"), (HeaderId::Unknown, b"x")],
    };
    assert_eq!(
        emit(&head, &options),
        "GET https://a/ HTTP/1.1\r\nhost: a\r\na: 1\r\nb: two\r\nc: 3\r\nupgrade: websocket\r\n\
         x-forwarded-for: 127.0.0.1\r\nconnection: upgrade\r\nx-request-id: id\r\n\r\n"
    );
    let plain = RequestWrite { framing, ..RequestWrite::default() };
    assert!(emit(&head, &plain).starts_with("GET / HTTP/1.1\r\n"));
    assert!(!emit(&head, &plain).contains("upgrade"));
}

#[test]
fn responses_are_written_from_validated_parts() {
    let parse = |input: &[u8], asked| {
        let mut head = ResponseHead::new();
        match parse_response(input, asked, &ResponseRules::default(), &mut HeadScan::new(), &mut head) {
            ResponseParse::Complete { facts, .. } => (facts, head),
            other => panic!("{other:?}"),
        }
    };
    let write = |head: &ResponseHead, options: &ResponseWrite<'_>| {
        let mut out = Vec::new();
        write_response(head, options, &mut out);
        String::from_utf8(out).unwrap()
    };
    let (facts, head) =
        parse(b"HTTP/1.1 200 Whatever\r\nServer: up\r\nContent-Length: 5\r\nX: 1\r\n\r\n", Asked::default());
    let server = FieldLine::new(HeaderId::Server, b"postrider").unwrap();
    let options = ResponseWrite {
        framing: facts.framing,
        server: Some(&server),
        extra: &[(HeaderId::Date, b"now")],
        ..ResponseWrite::default()
    };
    assert_eq!(
        write(&head, &options),
        "HTTP/1.1 200 OK\r\nserver: postrider\r\ncontent-length: 5\r\nx: 1\r\ndate: now\r\n\r\n"
    );
    let as_received = ResponseWrite { framing_as_received: true, ..options };
    assert_eq!(write(&head, &as_received), write(&head, &options));
    let close = ResponseWrite { framing: BodyFraming::UntilClose, connection: Connection::Close, ..options };
    assert_eq!(
        write(&head, &close),
        "HTTP/1.1 200 OK\r\nserver: postrider\r\nx: 1\r\nconnection: close\r\ndate: now\r\n\r\n"
    );
    let asked = Asked { method: postrider_http::Method::Head, upgrade: false };
    let (facts, head) = parse(b"HTTP/1.1 404 Gone?\r\nContent-Length: 5\r\n\r\n", asked);
    let head_answer = ResponseWrite { framing: facts.framing, keep_length: true, ..ResponseWrite::default() };
    assert_eq!(write(&head, &head_answer), "HTTP/1.1 404 Not Found\r\ncontent-length: 5\r\n\r\n");
    let mut reply = ResponseHead::new();
    reply.reply(599);
    reply.fields.append(HeaderId::ContentType, b"text/plain").unwrap();
    let options = ResponseWrite { framing: BodyFraming::Length(0), ..ResponseWrite::default() };
    assert_eq!(write(&reply, &options), "HTTP/1.1 599 \r\ncontent-type: text/plain\r\ncontent-length: 0\r\n\r\n");
    reply.reply(2000);
    assert_eq!(reply.status(), 500);
}

/// A generator of field lines from a seed, canonical and not.
fn field_lines(seed: u64) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = |bound: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % bound
    };
    let names = ["X-A", "x-b", "Cookie", "accept", "User-Agent", "X_c", "connection", "te", "x-forwarded-for", "Proxy"];
    let values = ["1", "a b", "", "x-a", "a\tb", "close", "\u{ff}", "trailers", "q=1;\"x\""];
    let separators = [": ", ":", ":  ", ":\t"];
    let ends = ["", " ", "\t "];
    let mut lines = String::new();
    for _ in 0..next(12) {
        lines += names[next(10) as usize];
        lines += separators[next(4) as usize];
        lines += values[next(9) as usize];
        lines += ends[next(3) as usize];
        lines += "\r\n";
    }
    lines
}

#[test]
fn emitted_heads_read_back_the_same() {
    for seed in 1..3_000 {
        let input = format!("GET /p%61th/../x?q HTTP/1.1\r\nHost: A.test\r\n{}\r\n", field_lines(seed));
        let (framing, mut head) = parsed(input.as_bytes());
        if seed % 3 == 0 {
            head.fields.set(HeaderId::Accept, b"edited").unwrap();
            head.fields.remove_name(b"x-b");
        }
        let wire = {
            let mut out = Vec::new();
            write_request(&head, &RequestWrite { framing, ..RequestWrite::default() }, &mut out);
            out
        };
        let (again_framing, again) = parsed(&wire);
        assert_eq!((again_framing, request_text(&again)), (framing, request_text(&head)), "{input:?}");
        // A fresh serialisation of the same fields, nothing copied from the received block.
        let mut lines = Vec::new();
        for field in head.fields.iter() {
            lines.extend_from_slice(&[field.name, b": ", field.value, b"\r\n"].concat());
        }
        let line_end = wire.windows(2).position(|pair| pair == b"\r\n").unwrap() + 2;
        assert_eq!(&wire[line_end..wire.len() - 2], &lines[..], "{input:?}");
        assert!(!fields_text(&head.fields).contains("connection"));
    }
}

/// The same head by the short way and, with an empty line before it or cut, by the thorough one.
#[test]
fn the_way_in_does_not_change_what_is_written() {
    let requests = [
        get("A: 1"),
        get("User-Agent: x\r\nX-Own: y\r\nConnection: keep-alive\r\nAccept: */*\r\nVia: 1.1 p"),
        post("Content-Length: 3\r\nX-Own: y\r\nTE: trailers\r\nProxy: z\r\nExpect: 100-continue"),
        post("Connection: close, x-own\r\nTransfer-Encoding: chunked\r\nX-Own: y\r\nVia: 1"),
        b"GET /a/b?c=d HTTP/1.0\r\nHost: A:1\r\nCookie: a\r\nCookie: b\r\n\r\n".to_vec(),
        b"GET /a/../b?c HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
        b"GET http://b/x HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
        b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
    ];
    let rules = RequestRules { accept_http_10: true, ..RequestRules::default() };
    let edits: [fn(&mut RequestHead); 8] = [
        |_| {},
        |head| head.fields.set(HeaderId::Host, b"other").unwrap(),
        |head| _ = head.fields.remove(HeaderId::Host),
        |head| _ = head.fields.remove_name(b"x-own"),
        |head| head.fields.append(HeaderId::XRequestId, b"1").unwrap(),
        |head| head.fields.set_name(b"x-own", b"2").unwrap(),
        |head| {
            head.set_path(b"/else").unwrap();
            head.fields.append_name(b"X-New", b"3").unwrap();
        },
        |head| {
            head.set_method(b"PUT").unwrap();
            head.fields.remove(HeaderId::Cookie);
        },
    ];
    for input in requests {
        let before = [b"\r\n", &input[..]].concat();
        for edit in edits {
            let written = [&input, &before].map(|input| {
                let (outcome, mut head) = parse_whole(input, &rules);
                let RequestParse::Complete { facts, .. } = outcome else { panic!("{outcome:?}") };
                edit(&mut head);
                let framings = [facts.framing, BodyFraming::None, BodyFraming::Length(3), BodyFraming::Chunked];
                framings.map(|framing| {
                    let connection = if facts.upgrade { Connection::Upgrade } else { Connection::Implicit };
                    let extra: &[(HeaderId, &[u8])] = &[(HeaderId::Via, b"1.1 v")];
                    let whole = emit(&head, &RequestWrite { framing, connection, absolute: None, extra });
                    let absolute = Some(Scheme::Http);
                    (whole, emit(&head, &RequestWrite { framing, connection, absolute, extra }))
                })
            });
            assert_eq!(written[0], written[1], "{:?}", String::from_utf8_lossy(&input));
            // Each line was written from its parts: what the parts say is what stands there.
            let (_, head) = parse_whole(&input, &rules);
            let fresh = emit(&head, &RequestWrite::default());
            let lines = head.fields.iter().map(|f| [f.name, b": ", f.value, b"\r\n"].concat()).collect::<Vec<_>>();
            for line in lines.iter().filter(|line| !line.starts_with(b"content-length")) {
                assert!(fresh.contains(std::str::from_utf8(line).unwrap()), "{fresh}");
            }
        }
    }
    let response =
        b"HTTP/1.1 200 OK\r\nServer: s\r\nDate: d\r\nContent-Length: 5\r\nConnection: close\r\nVia: 1\r\n\r\n";
    let asked = Asked::default();
    let parse = |cut: usize| {
        let (mut scan, mut head) = (HeadScan::new(), ResponseHead::new());
        let rules = ResponseRules::default();
        parse_response(&response[..cut], asked, &rules, &mut scan, &mut head);
        let outcome = parse_response(response, asked, &rules, &mut scan, &mut head);
        assert!(matches!(outcome, ResponseParse::Complete { .. }), "{outcome:?}");
        head
    };
    let edits: [fn(&mut ResponseHead); 4] = [
        |_| {},
        |head| _ = head.fields.remove(HeaderId::Date),
        |head| head.fields.set(HeaderId::Via, b"2").unwrap(),
        |head| head.fields.append(HeaderId::Server, b"again").unwrap(),
    ];
    let me = FieldLine::new(HeaderId::Server, b"me").unwrap();
    for edit in edits {
        for server in [None, Some(&me)] {
            for framing in [BodyFraming::None, BodyFraming::Length(5), BodyFraming::Length(6), BodyFraming::Chunked] {
                let options = ResponseWrite { framing, server, ..ResponseWrite::default() };
                let [short, thorough] = [0, 20].map(|cut| {
                    let mut head = parse(cut);
                    edit(&mut head);
                    let mut out = Vec::new();
                    write_response(&head, &options, &mut out);
                    String::from_utf8(out).unwrap()
                });
                assert_eq!(short, thorough);
            }
        }
    }
}

/// Added lines are copied in runs: whatever was edited between them, each stands alone on the wire.
#[test]
fn added_fields_are_written_one_by_one() {
    let steps: [fn(&mut RequestHead); 7] = [
        |head| head.fields.append(HeaderId::Via, b" 1.1 a ").unwrap(),
        |head| head.fields.append_name(b"X-New", b"n").unwrap(),
        |head| head.set_path(b"/stashed").unwrap(),
        |head| head.fields.set(HeaderId::Via, b"1.1 b").unwrap(),
        |head| _ = head.fields.remove_name(b"x-new"),
        |head| head.fields.append(HeaderId::Connection, b"x").unwrap(),
        |head| head.fields.append_name(b"x-empty", b"").unwrap(),
    ];
    // Every sequence of four steps.
    for sequence in 0..steps.len().pow(4) {
        let (_, mut head) = parsed(&get("A: 1\r\nB:2\r\nC: 3"));
        for place in 0..4 {
            steps[sequence / steps.len().pow(place) % steps.len()](&mut head);
        }
        let lines: String = head
            .fields
            .iter()
            .filter(|field| field.id != HeaderId::Connection)
            .map(|field| format!("{}: {}\r\n", common::text(field.name), common::text(field.value)))
            .collect();
        let want = format!("GET {} HTTP/1.1\r\n{lines}\r\n", common::text(head.path()));
        assert_eq!(emit(&head, &RequestWrite::default()), want, "{sequence}");
    }
}
