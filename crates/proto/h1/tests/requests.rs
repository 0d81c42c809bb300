//! Request heads: what is taken, what is refused with which status and token, at every cut.

mod common;

use common::{field, get, parse_at_every_cut, parse_whole, post, request_text};
use postrider_h1::{HeadScan, RequestParse, parse_request};
use postrider_http::{
    Aside, BodyFraming, EscapedSlashes, HeadLimits, HeaderId, Method, PathOptions, RequestHead, RequestRules, Scheme,
    Underscores, Version,
};

/// Input, status, token.
type Refusal = (Vec<u8>, u16, &'static str);

const CODEC: &str = "http1.codec_error";

fn refusals() -> Vec<Refusal> {
    let raw = |bytes: &[u8]| bytes.to_vec();
    vec![
        // RFC 9112 3: the request line.
        (raw(b"G@T / HTTP/1.1\r\nHost: a\r\n\r\n"), 400, CODEC),
        (raw(b"G\x01T / HTTP/1.1\r\nHost: a\r\n\r\n"), 400, CODEC),
        (raw(b"get / HTTP/1.1\r\nHost: a\r\n\r\n"), 400, CODEC),
        (raw(b"FOO / HTTP/1.1\r\nHost: a\r\n\r\n"), 400, CODEC),
        (raw(b" GET / HTTP/1.1\r\nHost: a\r\n\r\n"), 400, CODEC),
        (raw(b"GET\r\nHost: a\r\n\r\n"), 400, CODEC),
        (raw(b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n"), 400, CODEC),
        (raw(b"GET /  HTTP/1.1\r\nHost: a\r\n\r\n"), 400, CODEC),
        (raw(b"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n"), 400, CODEC),
        (raw(b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n"), 400, CODEC),
        (raw(b"GET / HTTP/1.1\r\r\nHost: a\r\n\r\n"), 400, CODEC),
        (raw(b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n"), 400, CODEC),
        (raw(b"GET /a\tb HTTP/1.1\r\nHost: a\r\n\r\n"), 400, CODEC),
        (raw(b"GET /a\0b HTTP/1.1\r\nHost: a\r\n\r\n"), 400, CODEC),
        (raw(b"GET /\xe9 HTTP/1.1\r\nHost: a\r\n\r\n"), 400, CODEC),
        (raw(b"GET / http/1.1\r\nHost: a\r\n\r\n"), 400, CODEC),
        (raw(b"GET / HTTP/1.1x\r\nHost: a\r\n\r\n"), 400, CODEC),
        (raw(b"GET / HTTP/11\r\nHost: a\r\n\r\n"), 400, CODEC),
        (raw(b"GET / HTTP/1.\r\nHost: a\r\n\r\n"), 400, CODEC),
        (raw(b"GET / XTTP/1.1\r\nHost: a\r\n\r\n"), 400, CODEC),
        (raw(b"GET /\r\n\r\n"), 426, "low_version"),
        (raw(b"GET /\r\n"), 426, "low_version"),
        (raw(b"GET / HTTP/0.9\r\nHost: a\r\n\r\n"), 426, "low_version"),
        (raw(b"GET / HTTP/1.0\r\nHost: a\r\n\r\n"), 426, "low_version"),
        (raw(b"GET / HTTP/1.2\r\nHost: a\r\n\r\n"), 426, "low_version"),
        (raw(b"GET / HTTP/2.0\r\nHost: a\r\n\r\n"), 426, "low_version"),
        (raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 426, "low_version"),
        (raw(b"\x16\x03\x01\x02\x00\x01\x00"), 400, CODEC),
        // RFC 9112 2.2: line ends.
        (raw(b"GET / HTTP/1.1\nHost: a\n\n"), 400, "http1.bare_lf"),
        (raw(b"GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n"), 400, "http1.bare_lf"),
        (raw(b"GET / HTTP/1.1\r\nHost: a\r\n\n"), 400, "http1.bare_lf"),
        (raw(b"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), 400, "http1.bare_lf"),
        (raw(b"\rGET / HTTP/1.1\r\nHost: a\r\n\r\n"), 400, CODEC),
        (raw(b"\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), 400, CODEC),
        (get("X: a\rb"), 400, "http1.bare_cr"),
        (get("X: a\r"), 400, "http1.bare_cr"),
        (get("X\r: a"), 400, "http1.bare_cr"),
        // RFC 9110 5.1, 5.5, RFC 9112 5: field lines.
        (get("X: a\0b"), 400, "http1.invalid_characters"),
        (get("X: a\x01b"), 400, "http1.invalid_characters"),
        (get("X: a\x0bb"), 400, "http1.invalid_characters"),
        (get("X: a\x7fb"), 400, "http1.invalid_characters"),
        (get("X\0: a"), 400, "http1.invalid_characters"),
        (get("X: a\r\n b"), 400, "http1.obs_fold"),
        (get("X: a\r\n\tb: c"), 400, "http1.obs_fold"),
        (raw(b"GET / HTTP/1.1\r\n Host: a\r\n\r\n"), 400, "http1.obs_fold"),
        (get("X : a"), 400, CODEC),
        (get("X\t: a"), 400, CODEC),
        (get("Content-Length : 3"), 400, CODEC),
        (get(": a"), 400, CODEC),
        (get("X"), 400, CODEC),
        (get("X Y: a"), 400, CODEC),
        (get("X(: a"), 400, CODEC),
        (get("X\u{e9}: a"), 400, CODEC),
        (get(":method: GET"), 400, CODEC),
        // RFC 9112 3.2: the authority.
        (raw(b"GET / HTTP/1.1\r\n\r\n"), 400, "missing_host_header"),
        (get("Host: a.test"), 400, "http1.multiple_hosts"),
        (get("hOST: evil.test"), 400, "http1.multiple_hosts"),
        (raw(b"GET http://a.test/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), 400, "http1.multiple_hosts"),
        (raw(b"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n"), 400, "http.userinfo_in_authority"),
        (raw(b"GET / HTTP/1.1\r\nHost:\r\n\r\n"), 400, "http.invalid_authority"),
        (raw(b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n"), 400, "http.invalid_authority"),
        (raw(b"GET / HTTP/1.1\r\nHost: a,b\r\n\r\n"), 400, "http.invalid_authority"),
        (raw(b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"), 400, "http.invalid_authority"),
        (raw(b"GET / HTTP/1.1\r\nHost: a:99999\r\n\r\n"), 400, "http.invalid_authority"),
        (raw(b"GET http://u:p@b.test/x HTTP/1.1\r\nHost: b.test\r\n\r\n"), 400, "http.userinfo_in_authority"),
        (raw(b"GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n"), 400, "http1.invalid_url"),
        (raw(b"GET http://b.test\\x/ HTTP/1.1\r\nHost: a\r\n\r\n"), 400, "http1.invalid_url"),
        (raw(b"GET ftp://b.test/ HTTP/1.1\r\nHost: a\r\n\r\n"), 400, "http1.invalid_scheme"),
        (raw(b"GET foo HTTP/1.1\r\nHost: a\r\n\r\n"), 400, CODEC),
        (raw(b"GET ?x HTTP/1.1\r\nHost: a\r\n\r\n"), 400, CODEC),
        (raw(b"GET * HTTP/1.1\r\nHost: a\r\n\r\n"), 400, "http1.invalid_url"),
        (raw(b"CONNECT a.test HTTP/1.1\r\nHost: a\r\n\r\n"), 400, "http1.invalid_url"),
        (raw(b"CONNECT /x HTTP/1.1\r\nHost: a\r\n\r\n"), 400, "http1.invalid_url"),
        (raw(b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n"), 400, "http1.body_disallowed"),
        (
            raw(b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"),
            501,
            "http1.invalid_transfer_encoding",
        ),
        // RFC 9112 6: framing.
        (post("Content-Length: 3\r\nTransfer-Encoding: chunked"), 400, "http1.content_length_and_chunked_not_allowed"),
        (post("Transfer-Encoding: chunked\r\nContent-Length: 0"), 400, "http1.content_length_and_chunked_not_allowed"),
        (post("Transfer-Encoding: gzip, chunked"), 501, "http1.invalid_transfer_encoding"),
        (post("Transfer-Encoding: chunked, chunked"), 501, "http1.invalid_transfer_encoding"),
        (post("Transfer-Encoding: chunked,"), 501, "http1.invalid_transfer_encoding"),
        (post("Transfer-Encoding: identity"), 501, "http1.invalid_transfer_encoding"),
        (post("Transfer-Encoding: xchunked"), 501, "http1.invalid_transfer_encoding"),
        (post("Transfer-Encoding: \"chunked\""), 501, "http1.invalid_transfer_encoding"),
        (post("Transfer-Encoding:"), 501, "http1.invalid_transfer_encoding"),
        (post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"), 501, "http1.invalid_transfer_encoding"),
        (post("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity"), 501, "http1.invalid_transfer_encoding"),
        (post("Content-Length: 3\r\nContent-Length: 3"), 400, CODEC),
        (post("Content-Length: 3\r\nContent-Length: 4"), 400, CODEC),
        (post("Content-Length: 3, 3"), 400, CODEC),
        (post("Content-Length: +3"), 400, CODEC),
        (post("Content-Length: -3"), 400, CODEC),
        (post("Content-Length: 0x3"), 400, CODEC),
        (post("Content-Length: 3 3"), 400, CODEC),
        (post("Content-Length: 3;"), 400, CODEC),
        (post("Content-Length:"), 400, CODEC),
        (post("Content-Length: 9223372036854775808"), 400, CODEC),
        (post("Content-Length: 99999999999999999999"), 400, CODEC),
        // RFC 9110 10.1.1, 7.6.1, look-alikes.
        (get("Expect: 200-ok"), 417, "http.expectation_failed"),
        (get("Expect: 100-continue, x"), 417, "http.expectation_failed"),
        (get("Expect:"), 417, "http.expectation_failed"),
        (get("Connection: X-Forwarded-For\r\nX-Forwarded-For: 1.1.1.1"), 400, "http1.connection_header_rejected"),
        (get("Connection: close, Forwarded"), 400, "http1.connection_header_rejected"),
        (get("Connection: :path"), 400, "http1.connection_header_rejected"),
        (get("Content_Length: 3"), 400, "http1.unexpected_underscore"),
        (get("Transfer_Encoding: chunked"), 400, "http1.unexpected_underscore"),
        (get("X_Forwarded_For: 1.1.1.1"), 400, "http1.unexpected_underscore"),
        (get("X-Forwarded_Proto: https"), 400, "http1.unexpected_underscore"),
        (get("keep_alive: 5"), 400, "http1.unexpected_underscore"),
        // Paths.
        (raw(b"GET /a#f HTTP/1.1\r\nHost: a\r\n\r\n"), 400, "path_normalization_failed"),
        (raw(b"GET /a?b#f HTTP/1.1\r\nHost: a\r\n\r\n"), 400, "path_normalization_failed"),
        (raw(b"GET /a\\b HTTP/1.1\r\nHost: a\r\n\r\n"), 400, "path_normalization_failed"),
        (raw(b"GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n"), 400, "path_normalization_failed"),
        (raw(b"GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n"), 400, "path_normalization_failed"),
        (raw(b"GET /%c0%ae%c0%ae/ HTTP/1.1\r\nHost: a\r\n\r\n"), 400, "path_normalization_failed"),
        (raw(b"GET /a/..%2f..%2fb HTTP/1.1\r\nHost: a\r\n\r\n"), 400, "path_normalization_failed"),
        (raw(b"GET http://a.test/..%5cx HTTP/1.1\r\nHost: a\r\n\r\n"), 400, "path_normalization_failed"),
        // Limits.
        (get(&format!("X: {}", "a".repeat(61_440))), 431, "http1.headers_too_large"),
        (
            format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(61_440)).into_bytes(),
            431,
            "http1.headers_too_large",
        ),
        (get(&vec!["X: a"; 100].join("\r\n")), 431, "http1.too_many_headers"),
    ]
}

#[test]
fn refused_with_status_and_token() {
    let rules = RequestRules::default();
    for (input, status, details) in refusals() {
        let (outcome, _) = parse_whole(&input, &rules);
        let RequestParse::Reject(reject) = outcome else {
            panic!("taken: {:?}: {outcome:?}", String::from_utf8_lossy(&input));
        };
        assert_eq!((reject.status, reject.details), (status, details), "{:?}", String::from_utf8_lossy(&input));
    }
}

/// Input, then what an upstream would see of it: `method path` line and fields, in order.
fn accepted() -> Vec<(Vec<u8>, &'static str)> {
    let raw = |bytes: &[u8]| bytes.to_vec();
    vec![
        (raw(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"), "GET /|host: a"),
        (raw(b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), "GET /|host: a"),
        (raw(b"PROPFIND / HTTP/1.1\r\nHost: a\r\n\r\n"), "PROPFIND /|host: a"),
        (raw(b"GET /a/../b?c=../d HTTP/1.1\r\nHost: a\r\n\r\n"), "GET /b?c=../d|host: a"),
        (raw(b"GET //x//%41?q HTTP/1.1\r\nHost: a\r\n\r\n"), "GET /x/A?q|host: a"),
        (raw(b"GET http://b.test/x/../y HTTP/1.1\r\nX: 1\r\nHost: a\r\n\r\n"), "GET /y|x: 1|host: b.test"),
        (raw(b"GET HTTP://B.test HTTP/1.1\r\n\r\n"), "GET /|host: B.test"),
        (raw(b"GET http://b.test?q HTTP/1.1\r\nHost: c\r\n\r\n"), "GET /?q|host: b.test"),
        (raw(b"OPTIONS http://b.test HTTP/1.1\r\nHost: c\r\n\r\n"), "OPTIONS *|host: b.test"),
        (raw(b"OPTIONS * HTTP/1.1\r\nHost: c\r\n\r\n"), "OPTIONS *|host: c"),
        (raw(b"CONNECT b.test:443 HTTP/1.1\r\nHost: c\r\n\r\n"), "CONNECT |host: b.test:443"),
        (get("x-a:b"), "GET /|host: a|x-a: b"),
        (get("X-A: \t b \t "), "GET /|host: a|x-a: b"),
        (get("X-A:"), "GET /|host: a|x-a: "),
        (get("X-A: a\tb"), "GET /|host: a|x-a: a\tb"),
        (get("!#$%&'*+-.^_`|~: v"), "GET /|host: a|!#$%&'*+-.^_`|~: v"),
        (get("x_custom: v"), "GET /|host: a|x_custom: v"),
        (get("Proxy: http://evil/"), "GET /|host: a"),
        (get("Keep-Alive: 5\r\nProxy-Connection: keep-alive\r\nX: 1"), "GET /|host: a|x: 1"),
        (get("Connection: close, X-Foo\r\nx-foo: 1\r\nX-Bar: 2"), "GET /|host: a|x-bar: 2"),
        (get("Connection: Host, Content-Length\r\nContent-Length: 0"), "GET /|host: a|content-length: 0"),
        (get("TE: gzip, trailers;q=1\r\nX: 1"), "GET /|host: a|x: 1"),
        (get("TE: gzip, Trailers\r\nConnection: TE"), "GET /|host: a|te: trailers"),
        (get("Upgrade: websocket"), "GET /|host: a"),
        (get("Connection: Upgrade\r\nUpgrade: websocket"), "GET /|host: a|upgrade: websocket"),
        (get("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x"), "GET /|host: a"),
        (post("Transfer-Encoding: Chunked\r\nX: 1"), "POST /|host: a|x: 1"),
        (post("Content-Length: 007"), "POST /|host: a|content-length: 007"),
        (post("Expect: 100-Continue\r\nContent-Length: 1"), "POST /|host: a|content-length: 1"),
        (get(&vec!["X: a"; 99].join("\r\n")), ""),
    ]
}

#[test]
fn accepted_as() {
    for (input, want) in accepted() {
        let (outcome, head) = parse_whole(&input, &RequestRules::default());
        let RequestParse::Complete { consumed, .. } = outcome else {
            panic!("{:?}: {outcome:?}", String::from_utf8_lossy(&input));
        };
        assert_eq!(consumed, input.len());
        if !want.is_empty() {
            assert_eq!(request_text(&head), want);
        }
    }
}

#[test]
fn cuts_change_nothing() {
    let rules = RequestRules::default();
    let inputs = refusals().into_iter().map(|(input, ..)| input).chain(accepted().into_iter().map(|(input, _)| input));
    for input in inputs {
        let whole = parse_whole(&input, &rules);
        parse_at_every_cut(&input, &rules, &whole);
    }
}

#[test]
fn pipelined_heads_come_one_by_one() {
    let buffer = b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: b\r\n\r\n\r\nGET /3 HTTP/1.1\r\nHost: c\r\n\r\nGET /4";
    let (mut scan, mut head) = (HeadScan::new(), RequestHead::new());
    let mut at = 0;
    for want in ["GET /1|host: a", "GET /2|host: b", "GET /3|host: c"] {
        match parse_request(&buffer[at..], &RequestRules::default(), &mut scan, &mut head) {
            RequestParse::Complete { consumed, .. } => at += consumed,
            other => panic!("{other:?}"),
        }
        assert_eq!(request_text(&head), want);
    }
    assert_eq!(parse_request(&buffer[at..], &RequestRules::default(), &mut scan, &mut head), RequestParse::Partial);
}

#[test]
fn framing_persistence_and_expectation() {
    let rules = RequestRules { accept_http_10: true, ..RequestRules::default() };
    let facts = |input: &[u8]| match parse_whole(input, &rules).0 {
        RequestParse::Complete { facts, .. } => facts,
        other => panic!("{:?}: {other:?}", String::from_utf8_lossy(input)),
    };
    assert_eq!(facts(&get("X: 1")).framing, BodyFraming::None);
    assert_eq!(facts(&post("Content-Length: 12")).framing, BodyFraming::Length(12));
    assert_eq!(facts(&post("Content-Length: 9223372036854775807")).framing, BodyFraming::Length(i64::MAX as u64));
    assert_eq!(facts(&post("Transfer-Encoding: CHUNKED")).framing, BodyFraming::Chunked);
    assert!(facts(&get("X: 1")).persistent);
    assert!(!facts(&get("Connection: Close")).persistent);
    assert!(!facts(&get("Connection: keep-alive, close")).persistent);
    assert!(facts(&post("Expect: 100-continue\r\nContent-Length: 1")).expects_continue);
    assert!(facts(&get("Connection: upgrade\r\nUpgrade: websocket")).upgrade);
    assert!(!facts(&get("Connection: upgrade")).upgrade);
    assert!(!facts(&get("Connection: upgrade\r\nUpgrade: h2c, websocket")).upgrade);
    let old = |fields: &str| facts(format!("GET / HTTP/1.0\r\nHost: a\r\n{fields}\r\n").as_bytes());
    assert!(!old("").persistent);
    assert!(old("Connection: Keep-Alive\r\n").persistent);
    assert!(!old("Expect: 100-continue\r\n").expects_continue);
    assert!(!old("Connection: upgrade\r\nUpgrade: websocket\r\n").upgrade);
}

#[test]
fn settings_open_what_they_name_and_nothing_else() {
    let status = |input: &[u8], rules: &RequestRules| match parse_whole(input, rules).0 {
        RequestParse::Reject(reject) => reject.status,
        RequestParse::Complete { .. } => 0,
        RequestParse::Partial => panic!("partial"),
    };
    let safe = RequestRules::default;
    let old = RequestRules { accept_http_10: true, ..safe() };
    assert_eq!(status(b"GET / HTTP/1.0\r\nHost: a\r\n\r\n", &old), 0);
    assert_eq!(status(b"GET / HTTP/1.0\r\n\r\n", &old), 400);
    assert_eq!(status(b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", &old), 400);
    let old_host = RequestRules { default_host_for_http_10: Some(b"d.test"[..].into()), ..old };
    let (_, head) = parse_whole(b"GET / HTTP/1.0\r\n\r\n", &old_host);
    assert_eq!((head.authority(), head.version()), (&b"d.test"[..], Version::Http10));
    assert_eq!(status(b"GET / HTTP/1.1\r\n\r\n", &old_host), 400);

    let custom = RequestRules { allow_custom_methods: true, ..safe() };
    assert_eq!(status(b"FOO / HTTP/1.1\r\nHost: a\r\n\r\n", &custom), 0);
    assert_eq!(status(b"F(O / HTTP/1.1\r\nHost: a\r\n\r\n", &custom), 400);

    let both = RequestRules { allow_chunked_length: true, ..safe() };
    let (outcome, head) = parse_whole(&post("Content-Length: 3\r\nTransfer-Encoding: chunked"), &both);
    assert!(matches!(outcome, RequestParse::Complete { facts, .. } if facts.framing == BodyFraming::Chunked));
    assert_eq!(field(&head, HeaderId::ContentLength), None);

    let with = |underscores| RequestRules { underscores, ..safe() };
    assert_eq!(status(&get("X_A: 1"), &with(Underscores::Reject)), 400);
    assert_eq!(status(&get("Content_Length: 1"), &with(Underscores::Allow)), 0);
    let (_, head) = parse_whole(&get("Content_Length: 1\r\nX: 2"), &with(Underscores::Drop));
    assert_eq!(request_text(&head), "GET /|host: a|x: 2");

    let proxy = RequestRules { keep_proxy_header: true, ..safe() };
    let (_, head) = parse_whole(&get("Proxy: x"), &proxy);
    assert_eq!(field(&head, HeaderId::Proxy), Some(&b"x"[..]));

    let raw_path = RequestRules { path: PathOptions::UNTOUCHED, ..safe() };
    let (_, head) = parse_whole(b"GET //a/../%zz\\ HTTP/1.1\r\nHost: a\r\n\r\n", &raw_path);
    assert_eq!(head.path(), b"//a/../%zz\\");

    let path = PathOptions { escaped_slashes: EscapedSlashes::UnescapeRedirect, ..PathOptions::default() };
    let (outcome, head) = parse_whole(b"GET /a%2Fb?c HTTP/1.1\r\nHost: a\r\n\r\n", &RequestRules { path, ..safe() });
    assert!(matches!(outcome, RequestParse::Complete { facts, .. } if facts.aside == Aside::RedirectToPath));
    assert_eq!((head.path(), head.path_only(), head.query()), (&b"/a/b?c"[..], &b"/a/b"[..], Some(&b"c"[..])));

    let relative = RequestRules { refuse_absolute_targets: true, ..safe() };
    let (outcome, head) = parse_whole(b"GET http://b/c HTTP/1.1\r\nHost: a\r\n\r\n", &relative);
    assert!(matches!(outcome, RequestParse::Complete { facts, .. } if facts.aside == Aside::AbsoluteTarget));
    assert_eq!((head.path(), head.authority()), (&b"http://b/c"[..], &b"a"[..]));
    assert_eq!(status(b"GET /c HTTP/1.1\r\nHost: a\r\n\r\n", &relative), 0);

    let sparing = RequestRules { spare_connections: true, ..safe() };
    let aside = |input: &[u8]| match parse_whole(input, &sparing).0 {
        RequestParse::Complete { facts, .. } => Some((facts.aside, facts.framing, facts.persistent)),
        _ => None,
    };
    let (length, none) = (BodyFraming::Length(2), BodyFraming::None);
    assert_eq!(aside(b"PUT / HTTP/1.1\r\nContent-Length: 2\r\n\r\n"), Some((Aside::MissingHost, length, true)));
    assert_eq!(aside(b"GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n"), Some((Aside::BadPath, none, true)));
    assert_eq!(aside(b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n"), None);

    let limits = HeadLimits { max_bytes: 64, max_fields: 2 };
    let small = RequestRules { limits, ..safe() };
    assert_eq!(status(&get("X: 1"), &small), 0);
    assert_eq!(status(&get("X: 1\r\nY: 2"), &small), 431);
    let exact = get(&format!("X: {}", "a".repeat(64 - get("X: ").len())));
    assert_eq!((exact.len(), status(&exact, &small)), (64, 0));
    let over = get(&format!("X: {}", "a".repeat(65 - get("X: ").len())));
    assert_eq!(status(&over, &small), 431);
}

#[test]
fn parts_of_a_request() {
    let input = b"PATCH https://B.Test:8443/x%2Fy?a=b&c HTTP/1.1\r\nHost: other\r\n\r\n";
    let (_, mut head) = parse_whole(input, &RequestRules::default());
    assert_eq!((head.method(), head.method_bytes()), (Method::Patch, &b"PATCH"[..]));
    assert_eq!(head.target(), b"https://B.Test:8443/x%2Fy?a=b&c");
    assert_eq!((head.authority(), head.host_lower()), (&b"B.Test:8443"[..], &b"b.test:8443"[..]));
    assert_eq!(head.scheme(), Some(Scheme::Https));
    assert_eq!((head.path_only(), head.query()), (&b"/x%2Fy"[..], Some(&b"a=b&c"[..])));
    head.set_authority(b"New.test").unwrap();
    assert_eq!((head.authority(), head.host_lower()), (&b"New.test"[..], &b"new.test"[..]));
    head.set_path(b"/z").unwrap();
    assert_eq!((head.path(), head.query()), (&b"/z"[..], None));
    for bad in [&b""[..], b"z", b"/a b", b"/a\r\nX: y", b"/a#b"] {
        assert!(head.set_path(bad).is_err());
    }
    for bad in [&b"u@a"[..], b"a b", b"", b"a\r\n"] {
        assert!(head.set_authority(bad).is_err());
    }
    assert!(head.set_method(b"A B").is_err());
}

#[test]
fn a_refused_head_still_tells_the_log_what_was_asked() {
    let (_, head) = parse_whole(b"GET /3?x HTTP/1.1\r\n\r\n", &RequestRules::default());
    assert_eq!((head.method_bytes(), head.path()), (&b"GET"[..], &b"/3?x"[..]));
}

#[test]
fn each_byte_of_a_head_is_looked_at_once_however_it_is_cut() {
    let cost = |fields: usize| {
        let limits = HeadLimits { max_bytes: 1 << 20, max_fields: 10_000 };
        let rules = RequestRules { limits, ..RequestRules::default() };
        let input = get(&vec!["x-name: some value"; fields].join("\r\n"));
        let (mut scan, mut head) = (HeadScan::new(), RequestHead::new());
        for end in 1..=input.len() {
            let outcome = parse_request(&input[..end], &rules, &mut scan, &mut head);
            assert_eq!(outcome == RequestParse::Partial, end < input.len());
        }
        assert_eq!(scan.looked_at(), input.len() as u64);
        scan.looked_at()
    };
    assert!(cost(2000) * 10 < cost(1000) * 25);
}
