//! Response heads: what is taken, what becomes a 502, at every cut.

mod common;

use common::{fields_text, text};
use postrider_h1::{HeadScan, ResponseParse, parse_response};
use postrider_http::{Asked, BodyFraming, HeadLimits, Method, ResponseFacts, ResponseHead, ResponseRules};

fn parse(input: &[u8], asked: Asked) -> (ResponseParse, ResponseHead) {
    let mut head = ResponseHead::new();
    let outcome = parse_response(input, asked, &ResponseRules::default(), &mut HeadScan::new(), &mut head);
    (outcome, head)
}

fn check_cuts(input: &[u8], asked: Asked) {
    let (whole, whole_head) = parse(input, asked);
    let (mut scan, mut head) = (HeadScan::new(), ResponseHead::new());
    let rules = ResponseRules::default();
    let step = if input.len() < 2_000 { 1 } else { 701 };
    for cut in (1..input.len()).step_by(step) {
        let mut outcome = parse_response(&input[..cut], asked, &rules, &mut scan, &mut head);
        if outcome == ResponseParse::Partial {
            outcome = parse_response(input, asked, &rules, &mut scan, &mut head);
        }
        assert_eq!(outcome, whole, "{:?} cut at {cut}", text(input));
        if let ResponseParse::Complete { .. } = outcome {
            assert_eq!(
                (head.status(), fields_text(&head.fields)),
                (whole_head.status(), fields_text(&whole_head.fields))
            );
        }
        scan.reset();
    }
}

#[test]
fn refused_as_502() {
    let too_large = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "a".repeat(61_440));
    let too_many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: a\r\n".repeat(101));
    for (input, details) in [
        ("HTTP/1.1 2000 OK\r\n\r\n", "http1.invalid_status"),
        ("HTTP/1.1 099 OK\r\n\r\n", "http1.invalid_status"),
        ("HTTP/1.1 000 OK\r\n\r\n", "http1.invalid_status"),
        ("HTTP/1.1 600 OK\r\n\r\n", "http1.invalid_status"),
        ("HTTP/1.1 999 OK\r\n\r\n", "http1.invalid_status"),
        ("HTTP/1.1 20 OK\r\n\r\n", "http1.invalid_status"),
        ("HTTP/1.1 +20 OK\r\n\r\n", "http1.codec_error"),
        ("HTTP/1.1 200OK\r\n\r\n", "http1.codec_error"),
        ("HTTP/1.1  200 OK\r\n\r\n", "http1.codec_error"),
        ("HTTP/1.1\r\n\r\n", "http1.codec_error"),
        ("HTTP/1.1 OK\r\n\r\n", "http1.codec_error"),
        ("HTTP/2.0 200 OK\r\n\r\n", "low_version"),
        ("HTTP/1.2 200 OK\r\n\r\n", "low_version"),
        ("HTTP/0.9 200 OK\r\n\r\n", "low_version"),
        ("http/1.1 200 OK\r\n\r\n", "http1.codec_error"),
        ("ICY 200 OK\r\n\r\n", "http1.codec_error"),
        ("<html>\r\n\r\n", "http1.codec_error"),
        ("\r\nHTTP/1.1 200 OK\r\n\r\n", "http1.codec_error"),
        ("HTTP/1.1 200 OK\nX: a\n\n", "http1.bare_lf"),
        ("HTTP/1.1 200 O\x01K\r\n\r\n", "http1.invalid_characters"),
        ("HTTP/1.1 200 O\rK\r\n\r\n", "http1.bare_cr"),
        ("HTTP/1.1 200 OK\r\nX A: b\r\n\r\n", "http1.codec_error"),
        ("HTTP/1.1 200 OK\r\nX: a\0\r\n\r\n", "http1.invalid_characters"),
        ("HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n", "http1.obs_fold"),
        ("HTTP/1.1 200 OK\r\n: a\r\n\r\n", "http1.codec_error"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "http1.codec_error"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n", "http1.codec_error"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\n", "http1.codec_error"),
        ("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "http1.codec_error"),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
            "http1.content_length_and_chunked_not_allowed",
        ),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "http1.invalid_transfer_encoding"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "http1.invalid_transfer_encoding"),
        ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "http1.transfer_encoding_in_http_10"),
        ("HTTP/1.1 204 NC\r\nContent-Length: 5\r\n\r\n", "http1.body_disallowed"),
        ("HTTP/1.1 204 NC\r\nTransfer-Encoding: chunked\r\n\r\n", "http1.body_disallowed"),
        ("HTTP/1.1 103 EH\r\nContent-Length: 5\r\n\r\n", "http1.body_disallowed"),
        (
            "HTTP/1.1 101 SP\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
            "http1.unexpected_switching_protocols",
        ),
        (too_large.as_str(), "http1.headers_too_large"),
        (too_many.as_str(), "http1.too_many_headers"),
    ] {
        match parse(input.as_bytes(), Asked::default()).0 {
            ResponseParse::Reject(reject) => assert_eq!((reject.status, reject.details), (502, details), "{input:?}"),
            other => panic!("{input:?}: {other:?}"),
        }
        check_cuts(input.as_bytes(), Asked::default());
    }
}

#[test]
fn framing_follows_status_method_and_fields() {
    use BodyFraming::{Chunked, Length, None, UntilClose};
    use Method::{Connect, Get, Head};
    let plain = |framing, persistent: bool| {
        let closes = !persistent && framing != UntilClose;
        ResponseFacts { framing, persistent, closes, interim: false, tunnel: false }
    };
    for (input, method, want) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", Get, plain(Length(5), true)),
        ("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", Get, plain(Length(0), true)),
        ("HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n", Get, plain(Length(0), true)),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n", Get, plain(Chunked, true)),
        ("HTTP/1.1 200 OK\r\nconnection: close\r\nContent-Length: 5\r\n\r\n", Get, plain(Length(5), false)),
        ("HTTP/1.1 200 OK\r\n\r\n", Get, plain(UntilClose, false)),
        ("HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n\r\n", Get, plain(UntilClose, false)),
        ("HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", Get, plain(Length(5), false)),
        ("HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: Keep-Alive\r\n\r\n", Get, plain(Length(5), true)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", Head, plain(None, true)),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", Head, plain(None, true)),
        ("HTTP/1.1 200 OK\r\n\r\n", Head, plain(None, true)),
        ("HTTP/1.1 204 No Content\r\n\r\n", Get, plain(None, true)),
        ("HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", Get, plain(None, true)),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", Get, plain(None, true)),
        ("HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n", Get, ResponseFacts { interim: true, ..plain(None, true) }),
        ("HTTP/1.1 100 Continue\r\n\r\n", Get, ResponseFacts { interim: true, ..plain(None, true) }),
        ("HTTP/1.1 200 OK\r\n\r\n", Connect, ResponseFacts { tunnel: true, ..plain(None, true) }),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", Connect, ResponseFacts { tunnel: true, ..plain(None, true) }),
        ("HTTP/1.1 403 Forbidden\r\nContent-Length: 5\r\n\r\n", Connect, plain(Length(5), true)),
    ] {
        let asked = Asked { method, upgrade: false };
        match parse(input.as_bytes(), asked).0 {
            ResponseParse::Complete { consumed, facts } => {
                assert_eq!((consumed, facts), (input.len(), want), "{input:?} to {method:?}");
            }
            other => panic!("{input:?}: {other:?}"),
        }
        check_cuts(input.as_bytes(), asked);
    }
}

#[test]
fn a_101_must_answer_our_own_upgrade() {
    let asked = Asked { method: Method::Get, upgrade: true };
    let good = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX: 1\r\n\r\n";
    let (outcome, head) = parse(good, asked);
    let ResponseParse::Complete { facts, .. } = outcome else { panic!("{outcome:?}") };
    assert!(facts.tunnel && !facts.interim && facts.framing == BodyFraming::None);
    assert_eq!(fields_text(&head.fields), "|upgrade: websocket|x: 1");
    for bad in ["", "Upgrade: websocket\r\nContent-Length: 5\r\n", "Connection: upgrade\r\n"] {
        let input = format!("HTTP/1.1 101 SP\r\n{bad}\r\n");
        assert!(matches!(parse(input.as_bytes(), asked).0, ResponseParse::Reject(_)), "{bad:?}");
    }
}

#[test]
fn hop_by_hop_fields_of_the_upstream_stay_there() {
    let input = b"HTTP/1.1 200 OK\r\nX: 1\r\nConnection: x-b, X-Forwarded-For, close\r\nX-Forwarded-For: 1\r\nX-B: 2\r\nKeep-Alive: t\r\nUpgrade: h2c\r\n\
        Proxy-Connection: x\r\nTE: x\r\nTransfer-Encoding: chunked\r\nTrailer: x-t\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n\r\n";
    let (_, head) = parse(input, Asked::default());
    assert_eq!(fields_text(&head.fields), "|x: 1|trailer: x-t|set-cookie: a|set-cookie: b");
    assert_eq!((head.status(), head.received_reason()), (200, &b"OK"[..]));
}

#[test]
fn limits_are_settings() {
    let rules = ResponseRules { limits: HeadLimits { max_bytes: 30, max_fields: 1 } };
    let run = |input: &str| {
        let outcome =
            parse_response(input.as_bytes(), Asked::default(), &rules, &mut HeadScan::new(), &mut ResponseHead::new());
        matches!(outcome, ResponseParse::Complete { .. })
    };
    assert!(run("HTTP/1.1 200 OK\r\na: 123456\r\n\r\n"));
    assert!(!run("HTTP/1.1 200 OK\r\na: 1234567\r\n\r\n"));
    assert!(!run("HTTP/1.1 200 OK\r\na:\r\nb:\r\n\r\n"));
}
