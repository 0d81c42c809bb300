//! The response side of the corpus: what an origin may throw at the proxy.
//!
//! Whatever it sends, the client gets one answer that it can read in one way,
//! the next request gets its own answer, and an upstream connection in doubt
//! is not used again.

use postrider_tests::kit::{Origin, Proxy, RawClient, Response, WireError};
use postrider_tests::{envoy, get};
use std::sync::Arc;

/// What the client must get for an answer.
#[derive(Clone, Debug)]
enum Outcome {
    /// A 502 made by the proxy.
    Bad,
    /// This status and body; the upstream connection stays usable.
    Pass(u16, &'static str),
    /// This status and body; the upstream connection must not be used again.
    PassOnce(u16, &'static str),
    /// The head was good, so the body breaks off, or all of it is a 502.
    Cut,
    /// Either refused, or read as this.
    BadOr(u16, &'static str),
    /// Envoy reads it in some way of its own.
    Open,
}

use Outcome::{Bad, BadOr, Cut, Open, Pass, PassOnce};

struct Case {
    name: &'static str,
    method: &'static str,
    answer: Vec<u8>,
    outcome: Outcome,
    envoy: Option<Outcome>,
    /// The origin closes after these bytes.
    close: bool,
}

fn case(name: &'static str, answer: impl AsRef<[u8]>, outcome: Outcome) -> Case {
    Case { name, method: "GET", answer: answer.as_ref().into(), outcome, envoy: None, close: false }
}

impl Case {
    fn envoy(mut self, outcome: Outcome) -> Self {
        self.envoy = Some(outcome);
        self
    }

    fn head(mut self) -> Self {
        self.method = "HEAD";
        self
    }

    fn close(mut self) -> Self {
        self.close = true;
        self
    }
}

/// A whole answer that nobody asked for.
const CANARY: &str = "HTTP/1.1 200 OK\r\nx-canary: yes\r\ncontent-length: 6\r\n\r\ncanary";

fn cases() -> Vec<Case> {
    let status = |line: &str| format!("{line}\r\ncontent-length: 4\r\n\r\nevil");
    let lengths = |lines: &str| format!("HTTP/1.1 200 OK\r\n{lines}\r\n\r\nhello");
    let coding = |value: &str| format!("HTTP/1.1 200 OK\r\ntransfer-encoding: {value}\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
    let chunks = |body: &str| format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{body}");
    let field = |line: &str| format!("HTTP/1.1 200 OK\r\n{line}\r\ncontent-length: 5\r\n\r\nhello");
    vec![
        case("status 2000", status("HTTP/1.1 2000 OK"), Bad).envoy(Open),
        case("status 600", status("HTTP/1.1 600 OK"), Bad).envoy(Open),
        case("status 999", status("HTTP/1.1 999 OK"), Bad).envoy(Open),
        case("status 099", status("HTTP/1.1 099 OK"), Bad).envoy(Open),
        case("status 0", status("HTTP/1.1 0 OK"), Bad).envoy(Open),
        case("status of two digits", status("HTTP/1.1 20 OK"), Bad).envoy(Open),
        case("status of letters", status("HTTP/1.1 abc OK"), Bad),
        case("status negative", status("HTTP/1.1 -200 OK"), Bad),
        case("status with plus", status("HTTP/1.1 +200 OK"), Bad).envoy(Open),
        case("no status", status("HTTP/1.1"), Bad),
        case("two spaces before the status", status("HTTP/1.1  200 OK"), Bad).envoy(Open),
        case("no version", status("200 OK"), Bad),
        case("HTTP/2.0", status("HTTP/2.0 200 OK"), Bad).envoy(Open),
        case("HTTP/0.9", status("HTTP/0.9 200 OK"), Bad).envoy(Open),
        case("HTTP/1.2", status("HTTP/1.2 200 OK"), BadOr(200, "evil")),
        case("lower-case version", status("http/1.1 200 OK"), Bad),
        case("ICY", status("ICY 200 OK"), Bad),
        case("rubbish", "rubbish\r\n\r\n", Bad),
        case("bytes of TLS", b"\x15\x03\x01\0\x02\x02\x46\r\n\r\n", Bad),
        case("reason with NUL", status("HTTP/1.1 200 O\0K"), Bad).envoy(Open),
        case("reason with CR", status("HTTP/1.1 200 O\rK"), Bad).envoy(Open),
        case("reason empty", "HTTP/1.1 200 \r\ncontent-length: 2\r\n\r\nok", Pass(200, "ok")),
        case(
            "length and chunked",
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            Bad,
        )
        .envoy(Open),
        case("two different lengths", lengths("content-length: 5\r\ncontent-length: 0"), Bad),
        case("two equal lengths", lengths("content-length: 5\r\ncontent-length: 5"), BadOr(200, "hello")),
        case("length list, different", lengths("content-length: 5, 6"), Bad),
        case("length with plus", lengths("content-length: +5"), Bad),
        case("length negative", lengths("content-length: -5"), Bad),
        case("length empty", lengths("content-length:"), Bad),
        case("length with letter", lengths("content-length: 5a"), Bad),
        case("length hexadecimal", lengths("content-length: 0x5"), Bad),
        case("length over 64 bits", lengths("content-length: 99999999999999999999"), Bad),
        case("chunked twice", coding("chunked, chunked"), Bad),
        case("gzip, chunked", coding("gzip, chunked"), Bad),
        case("identity", coding("identity"), Bad),
        case("xchunked", coding("xchunked"), Bad),
        case(
            "chunked in HTTP/1.0",
            "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            Bad,
        )
        .envoy(Open),
        case("field folded", field("x-a: b\r\n c"), Bad).envoy(Open),
        case("field folds a length", field("x-a: b\r\n content-length: 3"), Bad).envoy(Open),
        case("space before colon", field("x-a : b"), Bad),
        case("field without colon", field("x-a"), Bad),
        case("field with an empty name", field(": b"), Bad),
        case("NUL in value", field("x-a: b\0c"), Bad),
        case("CR in value", field("x-a: b\rc"), Bad).envoy(Open),
        case("control byte in value", field("x-a: b\x01c"), Bad),
        case("parenthesis in name", field("x(a): b"), Bad),
        case("LF line ends", "HTTP/1.1 200 OK\ncontent-length: 5\n\nhello", Bad).envoy(Open),
        case("90 KB of fields", field(&format!("x-a: {}", "b".repeat(90_000))), Bad),
        case("150 fields", field(&(0..150).map(|n| format!("x-{n}: b")).collect::<Vec<_>>().join("\r\n")), Bad)
            .envoy(Open),
        case(
            "101 nobody asked for",
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nevil",
            Bad,
        )
        .envoy(Open),
        case("101 without upgrade", "HTTP/1.1 101 Switching Protocols\r\n\r\nevil", Bad).envoy(Open),
        case("204 with a body", "HTTP/1.1 204 No Content\r\ncontent-length: 4\r\n\r\nevil", BadOr(204, "")).envoy(Open),
        case("204 with surplus", format!("HTTP/1.1 204 No Content\r\n\r\n{CANARY}"), PassOnce(204, "")),
        case("304 with surplus", format!("HTTP/1.1 304 Not Modified\r\n\r\n{CANARY}"), PassOnce(304, "")),
        case("answer to HEAD with a body", "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil", PassOnce(200, ""))
            .head(),
        case(
            "a second answer after a length",
            format!("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok{CANARY}"),
            PassOnce(200, "ok"),
        ),
        case("a second answer after chunks", chunks(&format!("2\r\nok\r\n0\r\n\r\n{CANARY}")), PassOnce(200, "ok")),
        case("one byte of surplus", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokX", PassOnce(200, "ok")),
        case("chunk size with 0x", chunks("0x5\r\nhello\r\n0\r\n\r\n"), Cut),
        case("chunk size empty", chunks("\r\nhello\r\n0\r\n\r\n"), Cut),
        case("chunk size over 64 bits", chunks("10000000000000005\r\nhello\r\n0\r\n\r\n"), Cut),
        case("chunk size negative", chunks("-5\r\nhello\r\n0\r\n\r\n"), Cut),
        case("chunk with surplus", chunks("5\r\nhello!\r\n0\r\n\r\n"), Cut).envoy(Open),
        case("chunk ended by LF", chunks("5\r\nhello\n0\r\n\r\n"), Cut).envoy(Open),
        case("chunk size ended by LF", chunks("5\nhello\r\n0\r\n\r\n"), Cut),
        case("trailer without colon", chunks("5\r\nhello\r\n0\r\nevil\r\n\r\n"), Cut),
        case("length not fulfilled", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhel", Cut).close(),
        case("chunks without end", chunks("5\r\nhello\r\n"), Cut).close(),
        case("chunk extension", chunks("5;a=b\r\nhello\r\n0\r\n\r\n"), Pass(200, "hello")),
        case("field listed by connection", field("connection: x-hop\r\nx-hop: evil"), Pass(200, "hello")).envoy(Open),
        case("keep-alive field", field("keep-alive: timeout=5"), Pass(200, "hello")),
        case("upgrade offered in a 200", field("upgrade: h2c"), Pass(200, "hello")).envoy(Open),
    ]
}

/// Fields that must never pass the hop.
const FORBIDDEN: [&str; 5] = ["x-canary", "x-hop", "keep-alive", "proxy-connection", "upgrade"];

pub fn judge() {
    let cases = Arc::new(cases());
    assert!(cases.len() >= 60);
    let script = Arc::clone(&cases);
    let origin = Origin::start(move |connection| {
        while let Some(request) = connection.request() {
            let case = request.target.strip_prefix("/case/").and_then(|n| n.parse::<usize>().ok());
            match case.and_then(|index| script.get(index)) {
                Some(case) => {
                    connection.write(&case.answer);
                    if case.close {
                        return;
                    }
                }
                None => {
                    connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nafter");
                }
            }
        }
    });
    let proxy = Proxy::start(&super::config(&origin));
    let address = proxy.address("http");
    let mut failures = Vec::new();
    for (index, case) in cases.iter().enumerate() {
        let outcome = match (&case.envoy, envoy()) {
            (Some(other), true) => other,
            _ => &case.outcome,
        };
        if matches!(outcome, Open) {
            continue;
        }
        let before = origin.connection_count();
        let mut client = RawClient::connect(address);
        client.set_timeout(std::time::Duration::from_secs(8));
        client.send(format!("{} /case/{index} HTTP/1.1\r\nhost: test\r\n\r\n", case.method));
        let answer = client.response(case.method);
        let verdict = assess(outcome, &answer).and_then(|()| {
            // The next request, on this connection where it lives on.
            let reuse = matches!(&answer, Ok(a) if a.header("connection") != "close");
            let next = if reuse {
                client.exchange(get("/after"))
            } else {
                RawClient::once(address, get("/after")).map_err(|e| format!("next: {e:?}"))?
            };
            let (text, leftover) = (next.text().to_string(), client.leftover().len());
            match outcome {
                _ if text != "after" => Err(format!("the next answer is {text:?}")),
                _ if reuse && leftover != 0 => Err("bytes of nobody follow".into()),
                Pass(..) | BadOr(..) => Ok(()),
                _ if origin.connection_count() == before.max(1) => Err("the upstream connection was used again".into()),
                _ => Ok(()),
            }
        });
        if let Err(why) = verdict {
            failures.push(format!("{}: {why}\n    observed {answer:?}", case.name));
        }
    }
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), cases.len(), failures.join("\n"));
}

fn assess(outcome: &Outcome, answer: &Result<Response, WireError>) -> Result<(), String> {
    if let Ok(answer) = answer
        && let Some(name) = FORBIDDEN.iter().find(|name| answer.headers.contains(name))
    {
        return Err(format!("{name} came through"));
    }
    let bad = matches!(answer, Ok(a) if a.status == 502 && !a.text().contains("evil"));
    let is = |status: u16, body: &str| matches!(answer, Ok(a) if a.status == status && a.text() == body);
    let broken = matches!(answer, Err(WireError::Eof(_) | WireError::Reset));
    let good = match outcome {
        Bad => bad,
        Pass(status, body) | PassOnce(status, body) => is(*status, body),
        BadOr(status, body) => bad || is(*status, body),
        // An origin that closed early may also be a reset before headers.
        Cut => bad || broken || matches!(answer, Ok(a) if a.status == 503),
        Open => true,
    };
    if good { Ok(()) } else { Err(format!("not {outcome:?}")) }
}

pub fn unsolicited() {
    let origin = Origin::start(|connection| {
        if connection.request().is_some() {
            connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nfirst");
            connection.write(CANARY.as_bytes());
            connection.read_to_end();
        }
    });
    let proxy = Proxy::start(&super::config(&origin));
    let mut client = proxy.client();
    for _ in 0..5 {
        assert_eq!(client.exchange(get("/")).text(), "first");
        // The proxy drops the connection as soon as the surplus arrives.
        origin.wait_open_at_most(0);
    }
    assert_eq!(origin.connection_count(), 5);
}
