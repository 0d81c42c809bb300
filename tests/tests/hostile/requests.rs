//! The request side of the corpus: what a client may throw at the proxy.
//!
//! A case's bytes are one request by the strict reading, or not a request at
//! all. Wherever a lenient reader would find a second one, it finds a request
//! for `/canary`.

use super::verdict::*;

/// A body that is a whole request when it is taken for one.
const CANARY: &str = "GET /canary HTTP/1.1\r\nHost: test\r\n\r\n";

fn head(lines: &str) -> String {
    format!("POST /a HTTP/1.1\r\nHost: test\r\n{lines}\r\n")
}

fn chunked(body: &str) -> String {
    head("Transfer-Encoding: chunked\r\n") + body
}

fn target(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: test\r\n\r\n")
}

fn host(value: &str) -> String {
    format!("GET /a HTTP/1.1\r\nHost: {value}\r\n\r\n")
}

fn with(line: &str) -> String {
    format!("GET /a HTTP/1.1\r\nHost: test\r\n{line}\r\n\r\n")
}

/// What the origin sees of a plain request for `path`.
fn plain(path: &str) -> String {
    format!("GET {path}\nhost: test\n\n")
}

const HELLO: &str = "POST /a\nhost: test\ncontent-length: 5\n\nhello";
const HELLO_CHUNKED: &str = "POST /a\nhost: test\ntransfer-encoding: chunked\n\nhello";

/// Framing: RFC 9112 section 6.
pub fn framing() -> Vec<Case> {
    let length = |value: &str| head(&format!("Content-Length: {value}\r\n")) + "hello";
    let coding = |value: &str| head(&format!("Transfer-Encoding: {value}\r\n")) + "5\r\nhello\r\n0\r\n\r\n";
    let both = "0\r\n\r\n".to_string() + CANARY;
    vec![
        case("length then chunked", head("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n") + &both, reject(400)),
        case("chunked then length", head("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n") + &both, reject(400)),
        case("length 0 with chunked", head("Content-Length: 0\r\nTransfer-Encoding: chunked\r\n") + &both, reject(400)),
        case("two different lengths", head("Content-Length: 0\r\nContent-Length: 36\r\n") + CANARY, reject(400)),
        case("two equal lengths", head("Content-Length: 5\r\nContent-Length: 5\r\n") + "hello", reject_or(400, HELLO)),
        case("length list, equal", length("5, 5"), reject_or(400, HELLO)),
        case("length list, different", length("5, 6"), reject(400)),
        case("length with plus", length("+5"), reject(400)),
        case("length negative", length("-5"), reject(400)),
        case("length with letter", length("5a"), reject(400)),
        case("length empty", length(""), reject(400)),
        case("length hexadecimal", length("0x5"), reject(400)),
        case("length of two words", length("5 5"), reject(400)),
        case("length with fraction", length("5.0"), reject(400)),
        case("length with parameter", length("5;x"), reject(400)),
        case("length quoted", length("\"5\""), reject(400)),
        case("length with trailing comma", length("5,"), reject(400)),
        case("length over 64 bits", length("99999999999999999999"), reject(400)),
        case("length over 63 bits", length("9223372036854775808"), reject(400)).envoy(open()),
        case("length with leading zero", length("005"), forward(HELLO)),
        case("length padded", length("  5\t"), forward(HELLO)),
        case("length field name in capitals", head("CONTENT-LENGTH: 5\r\n") + "hello", forward(HELLO)),
        case("length folded", length("\r\n 5"), reject(400)).envoy(open()),
        case("length with vertical tab", length("\x0b5"), reject(400)),
        case("chunked twice", coding("chunked, chunked"), reject_any(&[400, 501])),
        case(
            "chunked on two lines",
            head("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n") + &both,
            reject_any(&[400, 501]),
        ),
        case("gzip before chunked", coding("gzip, chunked"), reject_any(&[400, 501])),
        case("chunked before gzip", coding("chunked, gzip"), reject_any(&[400, 501])),
        case("identity", coding("identity"), reject_any(&[400, 501])),
        case("chunked, identity", coding("chunked, identity"), reject_any(&[400, 501])),
        case("xchunked", coding("xchunked"), reject_any(&[400, 501])),
        case("chunked with parameter", coding("chunked;q=1"), reject_any(&[400, 501])),
        case("chunked quoted", coding("\"chunked\""), reject_any(&[400, 501])),
        case("chunked with trailing comma", coding("chunked,"), reject_any(&[400, 501])),
        case("chunked with leading comma", coding(",chunked"), reject_any(&[400, 501])),
        case("coding empty", coding(""), reject_any(&[400, 501])),
        case("chunked with vertical tab", coding("\x0bchunked"), reject_any(&[400, 501])),
        case("chunked folded", coding("\r\n chunked"), reject(400)).envoy(open()),
        case("chunked with bare LF", coding("chu\nnked"), reject(400)),
        case("chunked after tab", coding("\tchunked"), forward(HELLO_CHUNKED)),
        case("chunked in capitals", coding("CHUNKED"), forward(HELLO_CHUNKED)),
        case("space before colon of coding", head("Transfer-Encoding : chunked\r\n") + &both, reject(400)),
        case(
            "coding name with underscore",
            head("Transfer_Encoding: chunked\r\nContent-Length: 5\r\n") + &both,
            reject(400),
        )
        .envoy(open()),
        case("length name with underscore", head("Content_Length: 36\r\n") + CANARY, reject(400)).envoy(open()),
        case(
            "chunked in HTTP/1.0",
            "POST /a HTTP/1.0\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n".to_string() + &both,
            reject_any(&[400, 426]),
        ),
        case(
            "chunked body on GET",
            "GET /a HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            forward("GET /a\nhost: test\ntransfer-encoding: chunked\n\n"),
        ),
        case(
            "request inside a body",
            head("Content-Length: 36\r\n") + CANARY,
            forward("POST /a\nhost: test\ncontent-length: 36\n\nGET /canary HTTP/1.1\r\nHost: test\r\n\r\n"),
        ),
        case(
            "GET with a body",
            format!("GET /a HTTP/1.1\r\nHost: test\r\nContent-Length: 36\r\n\r\n{CANARY}"),
            forward("GET /a\nhost: test\ncontent-length: 36\n\nGET /canary HTTP/1.1\r\nHost: test\r\n\r\n"),
        ),
        case("a refusal ends the connection", format!("GET /a HTTP/1.1\r\n\r\n{CANARY}"), reject(400)),
    ]
}

/// Chunked coding: RFC 9112 section 7.1.
pub fn chunks() -> Vec<Case> {
    let end = "0\r\n\r\n";
    vec![
        case("extension", chunked("5;a=b\r\nhello\r\n0;c\r\n\r\n"), forward(HELLO_CHUNKED)),
        case("extension with quotes", chunked("5;a=\"b\"\r\nhello\r\n0\r\n\r\n"), forward(HELLO_CHUNKED)),
        case("last chunk of many zeros", chunked("5\r\nhello\r\n000\r\n\r\n"), forward(HELLO_CHUNKED)),
        case("size with leading zeros", chunked("0005\r\nhello\r\n0\r\n\r\n"), forward(HELLO_CHUNKED)),
        case(
            "size in capitals",
            chunked("A\r\nhellohello\r\n0\r\n\r\n"),
            forward("POST /a\nhost: test\ntransfer-encoding: chunked\n\nhellohello"),
        ),
        case("size with 0x", chunked(&format!("0x5\r\nhello\r\n{end}")), reject(400)),
        case("size with plus", chunked(&format!("+5\r\nhello\r\n{end}")), reject(400)),
        case("size negative", chunked(&format!("-5\r\nhello\r\n{end}")), reject(400)),
        case("size after space", chunked(&format!(" 5\r\nhello\r\n{end}")), reject(400)),
        case("size before space", chunked(&format!("5 \r\nhello\r\n{end}")), reject(400)).envoy(open()),
        case("size before tab", chunked(&format!("5\t\r\nhello\r\n{end}")), reject(400)).envoy(open()),
        case("size empty", chunked(&format!("\r\nhello\r\n{end}")), reject(400)),
        case("size not hex", chunked(&format!("G\r\nhello\r\n{end}")), reject(400)),
        case("size with underscore", chunked(&format!("0_5\r\nhello\r\n{end}")), reject(400)),
        case("size of 17 digits", chunked(&format!("10000000000000005\r\nhello\r\n{end}")), reject(400)),
        case("size of 64 bits", chunked(&format!("FFFFFFFFFFFFFFFF\r\nhello\r\n{end}")), reject(400)).envoy(open()),
        case(
            "size over 64 bits with zeros",
            chunked(&format!("00000000000000000000000000000010000000000000005\r\nhello\r\n{end}")),
            reject(400),
        ),
        case("surplus after data", chunked(&format!("5\r\nhello!\r\n{end}")), reject(400)).envoy(open()),
        case("no CRLF after data", chunked("5\r\nhello0\r\n\r\n"), reject(400)).envoy(open()),
        case("LF after size", chunked(&format!("5\nhello\r\n{end}")), reject(400)),
        case("LF after data", chunked(&format!("5\r\nhello\n{end}")), reject(400)).envoy(open()),
        case("CR CR LF after size", chunked(&format!("5\r\r\nhello\r\n{end}")), reject(400)),
        case("LF in extension", chunked(&format!("5;a\nb\r\nhello\r\n{end}")), reject(400)),
        case("CRLF in quoted extension", chunked(&format!("5;a=\"\r\n0\r\n\r\n{CANARY}\"\r\n{end}")), reject(400))
            .envoy(open()),
        case("NUL in extension", chunked(&format!("5;a\0b\r\nhello\r\n{end}")), reject(400)).envoy(open()),
        case(
            "20 KB of extension",
            chunked(&format!("5;{}\r\nhello\r\n{end}", "x".repeat(20_000))),
            reject_any(&[400, 413, 431]),
        )
        .envoy(open()),
        case(
            "20 KB of extensions on many chunks",
            chunked(&(format!("1;{}\r\nx\r\n", "y".repeat(1_000)).repeat(20) + end)),
            reject_any(&[400, 413, 431]),
        )
        .envoy(open()),
        case("LF after last chunk", chunked("5\r\nhello\r\n0\n\r\n"), reject(400)),
        case("LF as the end", chunked("5\r\nhello\r\n0\r\n\n"), reject(400)).envoy(open()).closing(),
        case("trailer without colon", chunked("5\r\nhello\r\n0\r\nbad\r\n\r\n"), reject(400)),
        case("trailer with empty name", chunked("5\r\nhello\r\n0\r\n: x\r\n\r\n"), reject(400)),
        case("trailer folded", chunked("5\r\nhello\r\n0\r\nX: a\r\n b\r\n\r\n"), reject(400)).envoy(open()),
        case("trailer with NUL", chunked("5\r\nhello\r\n0\r\nX: a\0b\r\n\r\n"), reject(400)),
        case(
            "trailer with a length",
            chunked("5\r\nhello\r\n0\r\nContent-Length: 36\r\n\r\n"),
            reject_or(400, HELLO_CHUNKED),
        ),
        case(
            "trailer with a host",
            chunked("5\r\nhello\r\n0\r\nHost: evil.test\r\n\r\n"),
            reject_or(400, HELLO_CHUNKED),
        ),
        case(
            "70 KB of trailers",
            chunked(&format!("5\r\nhello\r\n0\r\nX: {}\r\n\r\n", "x".repeat(70_000))),
            reject_any(&[400, 413, 431]),
        ),
    ]
}

/// The request line: RFC 9112 section 3.
pub fn start_line() -> Vec<Case> {
    let line = |line: &str| format!("{line}\r\nHost: test\r\n\r\n");
    vec![
        case("one empty line first", "\r\n".to_string() + &target("/a"), forward(&plain("/a"))),
        case("space first", line(" GET /a HTTP/1.1"), reject(400)),
        case("two spaces", line("GET  /a HTTP/1.1"), reject(400)).envoy(open()),
        case("space at the end", line("GET /a HTTP/1.1 "), reject(400)).envoy(open()),
        case("tabs", line("GET\t/a\tHTTP/1.1"), reject(400)).envoy(open()),
        case("vertical tab", line("GET\x0b/a HTTP/1.1"), reject(400)),
        case("HTTP/0.9", "GET /a\r\n\r\n", reject_any(&[400, 426, 505])),
        case("no version", line("GET /a"), reject_any(&[400, 426, 505])),
        case("HTTP/2.0", line("GET /a HTTP/2.0"), reject_any(&[400, 426, 505])),
        case("HTTP/1.2", line("GET /a HTTP/1.2"), Verdict::Either(vec![400, 426, 505], plain("/a"))),
        case("HTTP/3", line("GET /a HTTP/3"), reject_any(&[400, 426, 505])),
        case("HTTP/1.", line("GET /a HTTP/1."), reject_any(&[400, 426, 505])),
        case("HTTP/1.1x", line("GET /a HTTP/1.1x"), reject_any(&[400, 426, 505])),
        case("HTTP/01.1", line("GET /a HTTP/01.1"), reject_any(&[400, 426, 505])),
        case("HTTP/1.10", line("GET /a HTTP/1.10"), reject_any(&[400, 426, 505])),
        case("http/1.1", line("GET /a http/1.1"), reject_any(&[400, 426, 505])),
        case("HTTP / 1.1", line("GET /a HTTP / 1.1"), reject_any(&[400, 426, 505])),
        case("HTTPS/1.1", line("GET /a HTTPS/1.1"), reject_any(&[400, 426, 505])),
        case("no method", line("/a HTTP/1.1"), reject(400)),
        case("method with parenthesis", line("G(T /a HTTP/1.1"), reject(400)),
        case("method with @", line("G@T /a HTTP/1.1"), reject(400)),
        case("method with NUL", line("GE\0T /a HTTP/1.1"), reject(400)),
        case("method with colon", line("GET: /a HTTP/1.1"), reject(400)),
        case("method of 10 KB", line(&format!("{} /a HTTP/1.1", "G".repeat(10_000))), reject_any(&[400, 431, 501])),
        case("NUL in target", line("GET /a\0b HTTP/1.1"), reject(400)),
        case("DEL in target", line("GET /a\x7fb HTTP/1.1"), reject(400)),
        case("tab in target", line("GET /a\tb HTTP/1.1"), reject(400)),
        case("space in target", line("GET /a b HTTP/1.1"), reject(400)),
        case("CR in target", line("GET /a\rb HTTP/1.1"), reject(400)),
        raw_case("8-bit byte in target", b"GET /a\xe9 HTTP/1.1\r\nHost: test\r\n\r\n", reject(400)),
        case("target empty", line("GET HTTP/1.1"), reject_any(&[400, 426, 505])),
        case("target without slash", line("GET a HTTP/1.1"), reject(400)),
        case("authority-form with GET", line("GET test:80 HTTP/1.1"), reject(400)),
        case("asterisk with GET", line("GET * HTTP/1.1"), reject_any(&[400, 404])),
        case("target of 70 KB", line(&format!("GET /{} HTTP/1.1", "a".repeat(70_000))), reject_any(&[414, 431])),
        case("LF line ends", format!("GET /a HTTP/1.1\nHost: test\n\n{CANARY}"), reject(400)).envoy(open()),
        case("LF after the request line", "GET /a HTTP/1.1\nHost: test\r\n\r\n", reject(400)).envoy(open()),
        case("CR line ends", "GET /a HTTP/1.1\rHost: test\r\r", reject(400)).envoy(open()).closing(),
        case("CR CR LF line ends", "GET /a HTTP/1.1\r\r\nHost: test\r\n\r\n", reject(400)).envoy(open()),
        // Whole, it is the beginning of HTTP/2, which is welcome here.
        case("HTTP/2 preface of another version", "PRI * HTTP/2.1\r\n\r\nSM\r\n\r\n", reject_any(&[400, 426, 505])),
        case("CONNECT", "CONNECT test:443 HTTP/1.1\r\nHost: test:443\r\n\r\n", reject_any(&[400, 403, 404, 405])),
        case("CONNECT with a path", line("CONNECT /a HTTP/1.1"), reject_any(&[400, 403, 404, 405])),
        case("random bytes", "\x16\x03\x01\x02\0\x01\0\x01\u{7f}\x03\x03\r\n\r\n", reject(400)),
    ]
}

/// Field lines: RFC 9112 section 5.
pub fn fields() -> Vec<Case> {
    let pass = |name: &str, value: &str| forward(&format!("GET /a\nhost: test\n{name}: {value}\n\n"));
    vec![
        case("value padded", with("X-A: \t b \t"), pass("x-a", "b")),
        case("value empty", with("X-A:"), pass("x-a", "")),
        case("value with inner tab", with("X-A: b\tc"), pass("x-a", "b\tc")),
        case("underscore in a name of no meaning", with("my_field: 1"), pass("my_field", "1")),
        raw_case(
            "8-bit bytes in value",
            b"GET /a HTTP/1.1\r\nHost: test\r\nX-A: \xc3\xa9\r\n\r\n",
            pass("x-a", "\u{e9}"),
        ),
        case("no colon", with("X-A"), reject(400)),
        case("name empty", with(": x"), reject(400)),
        case("space before colon", with("X-A : b"), reject(400)),
        case("tab before colon", with("X-A\t: b"), reject(400)),
        case("space before the first name", "GET /a HTTP/1.1\r\n Host: test\r\n\r\n", reject(400)),
        case("space before a name", with(" X-A: b"), reject(400)),
        case("folded with space", with("X-A: b\r\n c"), reject(400)).envoy(open()),
        case("folded with tab", with("X-A: b\r\n\tc"), reject(400)).envoy(open()),
        case("folding hides a coding", head("X-A: b\r\n Transfer-Encoding: chunked\r\n") + CANARY, reject(400))
            .envoy(open()),
        case("NUL in value", with("X-A: b\0c"), reject(400)),
        case("CR in value", with("X-A: b\rc"), reject(400)).envoy(open()),
        case("LF in value", with("X-A: b\nX-B: c"), reject(400)).envoy(open()),
        case("CR before CRLF", with("X-A: b\r"), reject(400)).envoy(open()),
        case("control byte in value", with("X-A: b\x01c"), reject(400)),
        case("DEL in value", with("X-A: b\x7fc"), reject(400)),
        case("escape byte in value", with("X-A: \x1b[31m"), reject(400)),
        case("parenthesis in name", with("X(A): b"), reject(400)),
        case("slash in name", with("X/A: b"), reject(400)),
        case("NUL in name", with("X\0A: b"), reject(400)),
        case("quote in name", with("\"X\": b"), reject(400)),
        raw_case("8-bit byte in name", b"GET /a HTTP/1.1\r\nHost: test\r\nX\xe9: b\r\n\r\n", reject(400)),
        case("101 fields", with(&(0..100).map(|n| format!("X-{n}: b")).collect::<Vec<_>>().join("\r\n")), reject(431)),
        case("1000 empty fields", with(&vec!["a:"; 1000].join("\r\n")), reject(431)),
        case("70 KB of one field", with(&format!("X-A: {}", "b".repeat(70_000))), reject(431)),
        case("70 KB of a field name", with(&format!("{}: b", "X".repeat(70_000))), reject(431)),
        case("look-alike of x-forwarded-for", with("X_Forwarded_For: 1.2.3.4"), reject(400)).envoy(open()),
        case("look-alike of x-forwarded-proto", with("X-Forwarded_Proto: https"), reject(400)).envoy(open()),
        case("look-alike of x-forwarded-host", with("x_forwarded_host: evil.test"), reject(400)).envoy(open()),
    ]
}

/// The authority: RFC 9112 section 3.2 and RFC 3986 section 3.2.
pub fn authority() -> Vec<Case> {
    let pass = |value: &str| forward(&format!("GET /a\nhost: {value}\n\n"));
    vec![
        case("no host", "GET /a HTTP/1.1\r\nX-A: b\r\n\r\n", reject(400)),
        case("two hosts", "GET /a HTTP/1.1\r\nHost: test\r\nHost: evil.test\r\n\r\n", reject(400)).envoy(open()),
        case("the same host twice", "GET /a HTTP/1.1\r\nHost: test\r\nHost: test\r\n\r\n", reject(400)).envoy(open()),
        case("space before colon of host", "GET /a HTTP/1.1\r\nHost : test\r\n\r\n", reject(400)),
        case("host folded", "GET /a HTTP/1.1\r\nHost: te\r\n st\r\n\r\n", reject(400)),
        case("host empty", "GET /a HTTP/1.1\r\nHost:\r\n\r\n", reject(400)).envoy(open()),
        case("user info", host("user@test"), reject(400)).envoy(open()),
        case("user and password", host("user:pass@test"), reject(400)).envoy(open()),
        case("comma in host", host("test,evil.test"), reject(400)).envoy(open()),
        case("space in host", host("test evil.test"), reject(400)).envoy(open()),
        case("tab in host", host("te\tst"), reject(400)).envoy(open()),
        case("slash in host", host("test/evil"), reject(400)).envoy(open()),
        case("backslash in host", host("test\\evil"), reject(400)).envoy(open()),
        case("question mark in host", host("test?evil"), reject(400)).envoy(open()),
        case("hash in host", host("test#evil"), reject(400)).envoy(open()),
        case("angle bracket in host", host("<test>"), reject(400)).envoy(open()),
        case("quote in host", host("\"test\""), reject(400)).envoy(open()),
        case("NUL in host", host("te\0st"), reject(400)),
        case("port of letters", host("test:http"), reject(400)).envoy(open()),
        case("port over 65535", host("test:99999"), reject(400)).envoy(open()),
        case("two ports", host("test:80:81"), reject(400)).envoy(open()),
        case("port negative", host("test:-80"), reject(400)).envoy(open()),
        case("IPv6 without end", host("[::1"), reject(400)).envoy(open()),
        case("IPv6 with rubbish", host("[::1]x"), reject(400)).envoy(open()),
        case("IPv6 without brackets", host("::1"), reject(400)).envoy(open()),
        case("IPv6", host("[::1]:8080"), pass("[::1]:8080")),
        case("IPv4 with port", host("127.0.0.1:80"), pass("127.0.0.1:80")),
        case("name with port", host("test:8080"), pass("test:8080")),
        case(
            "absolute-form wins over host",
            "GET http://test/a HTTP/1.1\r\nHost: evil.test\r\n\r\n",
            forward(&plain("/a")),
        ),
        case("absolute-form with user info", "GET http://user@test/a HTTP/1.1\r\nHost: test\r\n\r\n", reject(400))
            .envoy(open()),
        case("absolute-form without authority", "GET http:///a HTTP/1.1\r\nHost: test\r\n\r\n", reject(400))
            .envoy(open()),
        case("absolute-form of another scheme", "GET ftp://test/a HTTP/1.1\r\nHost: test\r\n\r\n", reject(400)),
        case(
            "absolute-form with two hosts",
            "GET http://test/a HTTP/1.1\r\nHost: test\r\nHost: evil.test\r\n\r\n",
            reject(400),
        )
        .envoy(open()),
        case("absolute-form without host", "GET http://test/a HTTP/1.1\r\n\r\n", reject_or(400, &plain("/a"))),
        case(
            "absolute-form with dot segments",
            "GET http://test/x/../a HTTP/1.1\r\nHost: test\r\n\r\n",
            forward(&plain("/a")),
        )
        .envoy(open()),
    ]
}

/// Paths: the same one is matched and forwarded.
pub fn paths() -> Vec<Case> {
    let becomes = |from: &str, to: &str| case(&format!("path {from}"), target(from), forward(&plain(to)));
    let refused = |path: &str| case(&format!("path {path}"), target(path), reject(400)).envoy(open());
    let mut cases = vec![
        becomes("/x/../secret", "/secret").envoy(open()),
        becomes("/x/./y", "/x/y").envoy(open()),
        becomes("/x/..", "/").envoy(open()),
        becomes("/%73ecret", "/secret").envoy(open()),
        becomes("/x/%2e%2e/secret", "/secret").envoy(open()),
        becomes("/x/.%2E/secret", "/secret").envoy(open()),
        becomes("/x/%2E/y", "/x/y").envoy(open()),
        becomes("//secret", "/secret").envoy(open()),
        becomes("/x///y//", "/x/y/").envoy(open()),
        becomes("/x//y/../z", "/x/z").envoy(open()),
        becomes("/x%2fy", "/x%2fy"),
        becomes("/x?a=../../secret//", "/x?a=../../secret//"),
        becomes("/x?a=%2e%2e%2f", "/x?a=%2e%2e%2f"),
        becomes("/x;a=../y", "/x;a=../y"),
        becomes("/%252e%252e/secret", "/%252e%252e/secret"),
        becomes("/caf%c3%a9", "/caf%c3%a9"),
        becomes("/...", "/..."),
        case("path /../secret", target("/../secret"), reject_or(400, &plain("/secret"))).envoy(open()),
        case("path /x/..;/secret", target("/x/..;/secret"), reject_or(400, &plain("/x/..;/secret"))),
        case("path with escaped CRLF", target("/x%0d%0aX-Evil:1"), reject_or(400, &plain("/x%0d%0aX-Evil:1"))),
        case("path with fragment", target("/x#/../secret"), reject(400)),
    ];
    for path in [
        "/x%2f..%2fsecret",
        "/x/..%2fsecret",
        "/%2e%2e%2fsecret",
        "/x%2F%2e%2E/secret",
        "/x\\secret",
        "/x/..\\secret",
        "/x/..%5csecret",
        "/x%5c../secret",
        "/%c0%ae%c0%ae/secret",
        "/%e0%80%af",
        "/%zz",
        "/%2",
        "/x%",
        "/x%00",
        "/%u002e",
    ] {
        cases.push(refused(path));
    }
    cases
}

/// Hop-by-hop fields, upgrades, expectations: RFC 9110 sections 7.6.1, 7.8, 10.1.1.
pub fn hops() -> Vec<Case> {
    vec![
        case("field listed by connection", with("Connection: x-secret\r\nX-Secret: 1"), forward(&plain("/a")))
            .envoy(open()),
        case("close and a listed field", with("Connection: close, x-secret\r\nX-Secret: 1"), forward(&plain("/a")))
            .envoy(open()),
        case("connection lists host", with("Connection: host"), reject_or(400, &plain("/a"))),
        case(
            "connection lists the length",
            head("Connection: content-length\r\nContent-Length: 5\r\n") + "hello",
            forward(HELLO),
        )
        .envoy(open()),
        case(
            "connection lists the coding",
            head("Connection: transfer-encoding\r\nTransfer-Encoding: chunked\r\n") + "5\r\nhello\r\n0\r\n\r\n",
            forward(HELLO_CHUNKED),
        ),
        case(
            "connection lists authorization twice",
            with("Connection: x-a\r\nConnection: x-b\r\nX-A: 1\r\nX-B: 1"),
            forward(&plain("/a")),
        )
        .envoy(open()),
        case("keep-alive field", with("Keep-Alive: timeout=300"), forward(&plain("/a"))),
        case("proxy-connection", with("Proxy-Connection: keep-alive"), forward(&plain("/a"))),
        case("te of another coding", with("Connection: te\r\nTE: gzip"), forward(&plain("/a"))).envoy(open()),
        case("proxy field (httpoxy)", with("Proxy: http://evil.test"), forward(&plain("/a"))).envoy(open()),
        case(
            "upgrade that is not configured",
            with("Connection: upgrade\r\nUpgrade: websocket"),
            reject_or(403, &plain("/a")),
        ),
        case(
            "upgrade to h2c",
            with("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"),
            reject_or(403, &plain("/a")),
        ),
        case("upgrade without connection", with("Upgrade: websocket"), reject_or(403, &plain("/a"))),
        case("unknown expectation", with("Expect: 200-ok"), reject(417)).envoy(open()),
        case("expectation with more", with("Expect: 100-continue, x"), reject(417)).envoy(open()),
        case("expectation empty", with("Expect: "), reject_or(417, &plain("/a"))).envoy(open()),
    ]
}
