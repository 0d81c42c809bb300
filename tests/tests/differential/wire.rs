//! A request on its way to a listener, and what comes back: over TCP, TLS or HTTP/2.

use crate::scene::Over;
use crate::seen::{self, Mask, Seen};
use postrider_tests::h2_client::H2Client;
use postrider_tests::kit::message::{self, Framing, Headers, Response};
use postrider_tests::kit::{RawClient, Transport};
use postrider_tests::tls::{Authority, Client, Identity};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;

/// How long an answer may take: one that neither sends is the same.
const PATIENCE: Duration = Duration::from_secs(5);

/// Who the proxies and their clients are.
pub struct Names {
    authority: Authority,
    server: Identity,
    client: Identity,
}

impl Names {
    pub fn new() -> Self {
        let authority = Authority::new("tests");
        Self { server: authority.issue(&["test"]), client: authority.issue(&["ann.test", "ann"]), authority }
    }

    /// What a listener needs for TLS; clients may show a certificate.
    pub fn listener(&self) -> Value {
        let trusted = json!({"common_tls_context": {"validation_context": {
            "trusted_ca": {"inline_string": self.authority.pem()},
        }}});
        postrider_tests::tls::downstream(&[self.server.inline()], trusted)
    }

    pub fn client(&self) -> Client {
        Client::showing(&self.authority, &self.client)
    }
}

/// Sends a request on a connection of its own; answers where that came from.
pub fn exchange(
    over: Over,
    tls: &Client,
    to: SocketAddr,
    request: &[u8],
    mask: &mut Mask,
    seen: &mut Seen,
) -> SocketAddr {
    match over {
        Over::Plain => {
            let client = RawClient::connect(to);
            let address = client.local_addr();
            converse(client, request, mask.with_client(address), seen);
            address
        }
        Over::Tls => {
            let client = tls.fresh().connect(to, "test");
            let address = client.stream().local_addr();
            converse(client, request, mask.with_client(address), seen);
            address
        }
        Over::Http2 => {
            let client = H2Client::connect(to);
            let address = client.local_addr();
            stream(client, request, mask.with_client(address), seen);
            address
        }
    }
}

fn converse<S: Transport>(mut client: RawClient<S>, request: &[u8], mask: &Mask, seen: &mut Seen) {
    client.set_timeout(PATIENCE).send(request);
    let method = request.split(|byte| *byte == b' ').next().unwrap_or_default();
    let method = String::from_utf8_lossy(method).into_owned();
    loop {
        match client.any_response(&method) {
            Ok(answer) => {
                seen::note_answer(seen, mask, &answer);
                if answer.status >= 200 || answer.status == 101 {
                    return;
                }
            }
            Err(error) => return seen::note_end(seen, mask, &error),
        }
    }
}

fn stream(mut client: H2Client, request: &[u8], mask: &Mask, seen: &mut Seen) {
    let (head, body) = as_stream(request).expect("a request that HTTP/2 has, too");
    let answer = client.try_start(head, body.is_empty()).and_then(|mut exchange| {
        if !body.is_empty() {
            // Who answers before the end of a body may not want the rest.
            let _ = client.send_all(&mut exchange.body, body, true);
        }
        client.answer(exchange)
    });
    match answer {
        Ok(answer) => {
            let answer = Response {
                version: "HTTP/2".to_owned(),
                status: answer.status,
                reason: String::new(),
                headers: fields(&answer.headers),
                framing: Framing::UntilClose,
                body: answer.body,
                trailers: fields(&answer.trailers),
                raw_head: Vec::new(),
            };
            seen::note_answer(seen, mask, &answer);
        }
        Err(error) => seen.push(format!("answer: none: {:?}", error.reason())),
    }
}

fn fields(map: &http::HeaderMap) -> Headers {
    Headers(map.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect())
}

/// Fields that a stream does not have.
const OF_CONNECTIONS: &[&str] =
    &["connection", "transfer-encoding", "upgrade", "keep-alive", "proxy-connection", "te", "expect", "http2-settings"];

/// A request of HTTP/1 as one of HTTP/2, with its body; `None` when it has a meaning in HTTP/1 only.
pub fn as_stream(request: &[u8]) -> Option<(http::Request<()>, &[u8])> {
    let end = request.windows(4).position(|bytes| bytes == b"\r\n\r\n")? + 4;
    let (head, body) = request.split_at(end);
    let parsed = message::parse_request_head(head).ok()?;
    let length = parsed.headers.value("content-length").map_or(Some(0), |length| length.parse().ok())?;
    let whole = parsed.version == "HTTP/1.1" && length == body.len() && parsed.target.starts_with('/');
    if !whole || OF_CONNECTIONS.iter().any(|name| parsed.headers.contains(name)) {
        return None;
    }
    let host = parsed.headers.value("host").filter(|host| !host.is_empty())?;
    let mut made =
        http::Request::builder().method(parsed.method.as_str()).uri(format!("http://{host}{}", parsed.target));
    for (name, value) in parsed.headers.0.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("host")) {
        made = made.header(name.as_str(), value.as_slice());
    }
    Some((made.body(()).ok()?, body))
}
