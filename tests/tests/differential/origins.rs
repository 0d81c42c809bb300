//! The upstreams of both proxies: each remembers what it got, and answers as the request asks for with `x-answer: NAME` or
//! `?answer=NAME`, or as [`made`] describes it.

use crate::made::made;
use postrider_tests::kit::message::Request;
use postrider_tests::kit::{Origin, OriginConnection};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One upstream.
pub struct Upstream {
    pub name: &'static str,
    pub origin: Origin,
    attempts: Arc<AtomicUsize>,
}

impl Upstream {
    pub fn start(name: &'static str) -> Self {
        let attempts = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&attempts);
        let origin = Origin::start(move |connection| serve(connection, name, &count));
        Self { name, origin, attempts }
    }

    /// Forgets what it got, and that it was asked before.
    pub fn forget(&self) {
        self.attempts.store(0, Ordering::SeqCst);
        self.origin.forget();
    }
}

fn serve(connection: &mut OriginConnection, name: &str, attempts: &AtomicUsize) {
    while let Some(request) = connection.request() {
        let attempt = attempts.fetch_add(1, Ordering::SeqCst);
        let wanted = wanted(&request, attempt);
        match wanted.as_str() {
            "hangup" => return,
            "reset" => return connection.reset(),
            "silent" => {
                connection.read_to_end();
                return;
            }
            _ => {}
        }
        let mut answer = match request.headers.value("x-make") {
            Some(order) => made(order, name),
            None => canned(&wanted, name),
        };
        let is_head = request.method == "HEAD";
        if is_head {
            without_body(&mut answer);
        }
        // Without its body an answer is whole, and its connection is kept for the next request: it must not end under that.
        let lacks_its_end = matches!(wanted.as_str(), "until-close" | "truncated" | "half-chunk") && !is_head;
        let ends = lacks_its_end || matches!(wanted.as_str(), "close" | "1.0");
        if !connection.write(&answer) || ends || request.header("connection") == "close" {
            return;
        }
    }
}

/// Leaves the last head, and the interim answers before it.
fn without_body(answer: &mut Vec<u8>) {
    let last = answer.windows(9).rposition(|bytes| bytes == b"HTTP/1.1 " || bytes == b"HTTP/1.0 ").unwrap_or(0);
    if let Some(end) = answer[last..].windows(4).position(|bytes| bytes == b"\r\n\r\n") {
        answer.truncate(last + end + 4);
    }
}

/// The name of the answer. `503x2` is 503 for the first two requests, and the usual answer afterwards.
fn wanted(request: &Request, attempt: usize) -> String {
    let query = request.target.split_once("answer=").map(|(_, rest)| rest.split('&').next().unwrap_or(""));
    let name = request.headers.value("x-answer").or(query).unwrap_or("");
    match name.rsplit_once('x') {
        Some((first, times)) if times.parse().is_ok_and(|times: usize| attempt < times) => first.to_owned(),
        Some((_, times)) if times.parse::<usize>().is_ok() => String::new(),
        _ => name.to_owned(),
    }
}

fn canned(wanted: &str, name: &str) -> Vec<u8> {
    let text = match wanted {
        "204" => "HTTP/1.1 204 No Content\r\nx-a: b\r\n\r\n",
        "304" => "HTTP/1.1 304 Not Modified\r\netag: \"1\"\r\n\r\n",
        "304-length" => "HTTP/1.1 304 Not Modified\r\ncontent-length: 4\r\n\r\n",
        "404" => "HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\n\r\ngone",
        "403" => "HTTP/1.1 403 Forbidden\r\ncontent-type: text/html\r\nx-deny: because\r\ncontent-length: 2\r\n\r\nno",
        "409" => "HTTP/1.1 409 Conflict\r\ncontent-length: 0\r\n\r\n",
        "500" => "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 3\r\n\r\nbad",
        "502" => "HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n",
        "503" => "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nbusy",
        "limited" => {
            "HTTP/1.1 429 Too Many Requests\r\nx-envoy-ratelimited: true\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n"
        }
        "retriable" => "HTTP/1.1 200 OK\r\nx-again: yes\r\ncontent-length: 0\r\n\r\n",
        "unavailable" => {
            "HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\ngrpc-status: 14\r\ncontent-length: 0\r\n\r\n"
        }
        "grpc" => {
            "HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\ntransfer-encoding: chunked\r\ntrailer: grpc-status\r\n\r\n\
             7\r\n\0\0\0\0\u{2}ab\r\n0\r\ngrpc-status: 0\r\n\r\n"
        }
        "chunked" => "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\n\r\n",
        "trailers" => {
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx-end: 1\r\nX-More: 2\r\n\r\n"
        }
        "until-close" => "HTTP/1.1 200 OK\r\nx-a: b\r\n\r\nuntil the end",
        "close" => "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        "truncated" => "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nshort",
        "half-chunk" => "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\nshort",
        "1.0" => "HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        "early" => "HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        "continue" => "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        "garbage" => "rubbish\r\n\r\n",
        "no-reason" => "HTTP/1.1 200 \r\ncontent-length: 2\r\n\r\nok",
        "odd-reason" => "HTTP/1.1 200 Very Well Indeed\r\ncontent-length: 2\r\n\r\nok",
        "two-lengths" => "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok",
        "both-framings" => "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "bad-coding" => "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n",
        "bad-chunk" => "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n",
        "redirect" => "HTTP/1.1 302 Found\r\nlocation: http://test/redirected?answer=\r\ncontent-length: 0\r\n\r\n",
        "location" => "HTTP/1.1 302 Found\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n",
        "allow" => {
            "HTTP/1.1 200 OK\r\nx-user: ann\r\nx-append: more\r\nx-down: told\r\nset-cookie: s=1\r\ncontent-length: 0\r\n\r\n"
        }
        "fields" => {
            "HTTP/1.1 200 OK\r\nServer: theirs\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nSet-Cookie: a=1; path=/\r\n\
             Set-Cookie: b=2\r\nX-Dup: 1\r\nx-dup: 2\r\nVia: 1.1 them\r\nKeep-Alive: timeout=5\r\nConnection: x-hop\r\n\
             X-Hop: 1\r\nX-Envoy-Upstream-Service-Time: 5\r\nx-envoy-overloaded: true\r\nx-envoy-attempt-count: 9\r\n\
             X-MiXed:   spaced out  \r\nx-empty:\r\nx-latin: caf\u{e9}\r\nContent-Type: text/html; charset=utf-8\r\n\
             content-length: 2\r\n\r\nok"
        }
        "big" => return big(),
        _ => {
            return format!("HTTP/1.1 200 OK\r\nx-origin: {name}\r\ncontent-length: 6\r\n\r\nfrom {name}").into_bytes();
        }
    };
    text.as_bytes().to_vec()
}

fn big() -> Vec<u8> {
    let mut answer = b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n".to_vec();
    answer.resize(answer.len() + 100_000, b'x');
    answer
}
