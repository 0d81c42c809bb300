//! Heads of HTTP/2 as the heads of HTTP/1 that they mean (RFC 9113 section 8.3, RFC 9112 sections 3 and 4).

use h2::ext::Protocol;
use http::header::{CONTENT_LENGTH, COOKIE, HOST, HeaderName, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode, response};
use postrider_http::{Reject, is_token};

use super::websocket;

/// The authority and the `host` field name different hosts.
const TWO_HOSTS: Reject = Reject::new(400, "http2_host_and_authority_differ");

/// An extended CONNECT (RFC 8441 section 4) asks for a protocol that has no name in HTTP/1, or has a body besides.
const BAD_PROTOCOL: Reject = Reject::new(400, "http2_extended_connect_invalid");

/// How what follows a head is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// As it is, up to the length that the head gave: there is nothing behind it.
    Plain,
    /// As it is, and behind it the end of a chunked body: trailers may be there ([`postrider_http::BodyFraming::Counted`]).
    Counted,
    Chunked,
    /// It is no body: a tunnel may begin, and either side ends on its own.
    Tunnel,
}

/// What an upstream was asked, as far as its answer depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Question<'q> {
    Usual,
    /// Answered without a body (RFC 9110 section 9.3.2).
    Head,
    Connect,
    /// An upgrade, as an extended CONNECT. `key` is the WebSocket client's own.
    Upgrade {
        protocol: &'q [u8],
        key: Option<&'q [u8]>,
    },
}

/// Writes the head to `out`, which is empty. `ended`: no body follows. `random` is for the handshake of a WebSocket, which
/// HTTP/1 has and HTTP/2 does not. Answers how to read what follows.
///
/// # Errors
/// The request means nothing in HTTP/1. Whatever else is wrong is found when the head is read.
pub(super) fn write_request(
    parts: &Parts,
    ended: bool,
    random: impl Fn() -> u64,
    out: &mut Vec<u8>,
) -> Result<Reading, Reject> {
    let protocol = parts.extensions.get::<Protocol>().map(|protocol| protocol.as_ref());
    let authority = parts.uri.authority().map(|authority| authority.as_str().as_bytes());
    let host = parts.headers.get(HOST).map(|host| host.as_bytes());
    if let (Some(authority), Some(host)) = (authority, host)
        && !authority.eq_ignore_ascii_case(host)
    {
        return Err(TWO_HOSTS);
    }
    let target = match parts.uri.path_and_query() {
        _ if parts.method == Method::CONNECT && protocol.is_none() => authority.unwrap_or_default(),
        Some(path) => path.as_str().as_bytes(),
        None => b"",
    };
    // RFC 8441 section 5: what is an extended CONNECT here is an upgrade there.
    let method = if protocol.is_some() { "GET" } else { parts.method.as_str() };
    out.extend_from_slice(method.as_bytes());
    out.push(b' ');
    out.extend_from_slice(target);
    out.extend_from_slice(b" HTTP/1.1\r\n");
    if let Some(authority) = authority {
        write_line(b"host", authority, out);
    }
    write_fields(&parts.headers, authority.is_some(), out);
    if let Some(protocol) = protocol {
        write_upgrade(protocol, &parts.headers, random, out)?;
    }
    let tunnel = parts.method == Method::CONNECT;
    let chunked = !ended && !tunnel && !parts.headers.contains_key(CONTENT_LENGTH);
    if chunked {
        out.extend_from_slice(b"transfer-encoding: chunked\r\n");
    }
    out.extend_from_slice(b"\r\n");
    Ok(match (tunnel, chunked) {
        (true, _) => Reading::Tunnel,
        (false, true) => Reading::Chunked,
        (false, false) if !ended && has_bytes(&parts.headers) => Reading::Counted,
        (false, false) => Reading::Plain,
    })
}

/// The fields that ask for `protocol`.
///
/// # Errors
/// It has no name in HTTP/1, or the request has a body besides.
#[cold]
fn write_upgrade(
    protocol: &[u8],
    headers: &HeaderMap,
    random: impl Fn() -> u64,
    out: &mut Vec<u8>,
) -> Result<(), Reject> {
    if !is_token(protocol) || headers.contains_key(CONTENT_LENGTH) {
        return Err(BAD_PROTOCOL);
    }
    write_line(b"connection", b"upgrade", out);
    write_line(b"upgrade", protocol, out);
    if websocket::is_protocol(protocol) && !headers.contains_key(SEC_WEBSOCKET_KEY) {
        write_line(SEC_WEBSOCKET_KEY.as_str().as_bytes(), websocket::key(random).as_bytes(), out);
    }
    Ok(())
}

/// Writes the head of a final answer to `question`. `ended`: no body follows. Answers how to read what does.
pub(super) fn write_response(
    parts: &response::Parts,
    ended: bool,
    question: Question<'_>,
    out: &mut Vec<u8>,
) -> Reading {
    if parts.status.is_success() {
        match question {
            Question::Upgrade { protocol, key } => {
                write_switch(parts, protocol, key, out);
                return Reading::Tunnel;
            }
            Question::Connect => {
                write_status(parts.status, out);
                write_fields(&parts.headers, false, out);
                out.extend_from_slice(b"\r\n");
                return Reading::Tunnel;
            }
            Question::Usual | Question::Head => {}
        }
    }
    write_status(parts.status, out);
    // RFC 9112 section 6.3: the reader knows by itself that these have no body.
    let known = question == Question::Head || matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let has_bytes = has_bytes(&parts.headers);
    // One of no bytes that goes on has trailers, which its length leaves no place for.
    let is_empty = !known && !ended && !has_bytes && parts.headers.contains_key(CONTENT_LENGTH);
    write_fields_but(&parts.headers, is_empty.then_some(&CONTENT_LENGTH), out);
    let open = !known && (is_empty || !parts.headers.contains_key(CONTENT_LENGTH));
    if open && ended {
        // Else it would wait for the end of the connection.
        out.extend_from_slice(b"content-length: 0\r\n");
    } else if open {
        out.extend_from_slice(b"transfer-encoding: chunked\r\n");
    }
    out.extend_from_slice(b"\r\n");
    match open && !ended {
        true => Reading::Chunked,
        false if !ended && !known && has_bytes => Reading::Counted,
        false => Reading::Plain,
    }
}

/// Its length says that there is a body. Which of several lengths counts is found when the head is read.
fn has_bytes(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_LENGTH).is_some_and(|length| length.as_bytes().iter().any(|digit| *digit != b'0'))
}

/// The upstream agreed to an upgrade.
#[cold]
fn write_switch(parts: &response::Parts, protocol: &[u8], key: Option<&[u8]>, out: &mut Vec<u8>) {
    write_status(StatusCode::SWITCHING_PROTOCOLS, out);
    write_line(b"connection", b"upgrade", out);
    write_line(b"upgrade", protocol, out);
    write_fields(&parts.headers, false, out);
    if let Some(key) = key
        && websocket::is_protocol(protocol)
        && !parts.headers.contains_key(SEC_WEBSOCKET_ACCEPT)
    {
        write_line(SEC_WEBSOCKET_ACCEPT.as_str().as_bytes(), websocket::accept(key).as_bytes(), out);
    }
    out.extend_from_slice(b"\r\n");
}

fn write_status(status: StatusCode, out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.extend_from_slice(b" \r\n");
}

/// Writes trailers and the end of a chunked body (RFC 9112 section 7.1.2).
pub(super) fn write_end(trailers: Option<&HeaderMap>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n");
    if let Some(trailers) = trailers {
        write_fields(trailers, false, out);
    }
    out.extend_from_slice(b"\r\n");
}

fn write_fields(fields: &HeaderMap, host_is_written: bool, out: &mut Vec<u8>) {
    write_fields_but(fields, host_is_written.then_some(&HOST), out);
}

fn write_fields_but(fields: &HeaderMap, left_out: Option<&HeaderName>, out: &mut Vec<u8>) {
    for (name, value) in fields {
        if *name != COOKIE && Some(name) != left_out {
            write_line(name.as_str().as_bytes(), value.as_bytes(), out);
        }
    }
    // RFC 9113 section 8.2.3: cookies may come in pieces, which are one line outside HTTP/2.
    let mut cookies = fields.get_all(COOKIE).iter();
    if let Some(first) = cookies.next() {
        out.extend_from_slice(b"cookie: ");
        out.extend_from_slice(first.as_bytes());
        for more in cookies {
            out.extend_from_slice(b"; ");
            out.extend_from_slice(more.as_bytes());
        }
        out.extend_from_slice(b"\r\n");
    }
}

fn write_line(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(request: http::request::Builder, ended: bool) -> Result<String, Reject> {
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let mut out = Vec::new();
        write_request(&parts, ended, || 7, &mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn a_request_becomes_the_head_that_it_means() {
        let request = http::Request::post("https://a.test:1/x?y").header("cookie", "a=1").header("x", "y");
        assert_eq!(
            text(request.header("cookie", "b=2"), false).unwrap(),
            "POST /x?y HTTP/1.1\r\nhost: a.test:1\r\nx: y\r\ncookie: a=1; b=2\r\ntransfer-encoding: chunked\r\n\r\n"
        );
        let request = http::Request::put("https://a.test/").header("content-length", "3");
        assert_eq!(text(request, false).unwrap(), "PUT / HTTP/1.1\r\nhost: a.test\r\ncontent-length: 3\r\n\r\n");
        let request = http::Request::connect("a.test:443");
        assert_eq!(text(request, false).unwrap(), "CONNECT a.test:443 HTTP/1.1\r\nhost: a.test:443\r\n\r\n");
    }

    #[test]
    fn an_answer_says_where_its_body_ends_only_where_that_is_not_known() {
        let text = |status: u16, ended, is_head: bool| {
            let question = if is_head { Question::Head } else { Question::Usual };
            let (parts, ()) = http::Response::builder().status(status).header("x", "y").body(()).unwrap().into_parts();
            let mut out = Vec::new();
            let chunked = write_response(&parts, ended, question, &mut out) == Reading::Chunked;
            (String::from_utf8(out).unwrap(), chunked)
        };
        let bare = |status| format!("HTTP/1.1 {status} \r\nx: y\r\n\r\n");
        assert_eq!(text(200, false, false).0, "HTTP/1.1 200 \r\nx: y\r\ntransfer-encoding: chunked\r\n\r\n");
        assert!(text(200, false, false).1);
        assert_eq!(text(200, true, false), ("HTTP/1.1 200 \r\nx: y\r\ncontent-length: 0\r\n\r\n".to_owned(), false));
        assert_eq!(text(200, true, true), (bare(200), false), "what HEAD would have had is not known");
        assert_eq!(text(304, true, false), (bare(304), false));
    }

    #[test]
    fn a_host_field_stands_for_the_authority_but_never_against_it() {
        let request = http::Request::get("/").header("host", "b.test");
        assert_eq!(text(request, true).unwrap(), "GET / HTTP/1.1\r\nhost: b.test\r\n\r\n");
        let request = http::Request::get("https://b.test/").header("host", "B.test");
        assert_eq!(text(request, true).unwrap(), "GET / HTTP/1.1\r\nhost: b.test\r\n\r\n");
        let request = http::Request::get("https://a.test/").header("host", "b.test");
        assert_eq!(text(request, true), Err(TWO_HOSTS));
    }

    #[test]
    fn an_extended_connect_is_an_upgrade_of_http1() {
        let connect = |protocol: &'static str| {
            http::Request::connect("https://a.test/chat").extension(Protocol::from_static(protocol)).header("x", "y")
        };
        assert_eq!(
            text(connect("websocket"), false).unwrap(),
            "GET /chat HTTP/1.1\r\nhost: a.test\r\nx: y\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-key: BwAAAAAAAAAHAAAAAAAAAA==\r\n\r\n"
        );
        let own = connect("websocket").header("sec-websocket-key", "abc");
        assert_eq!(text(own, false).unwrap().matches("sec-websocket-key").count(), 1);
        assert_eq!(text(connect("a\r\nx: z"), false), Err(BAD_PROTOCOL));
        assert_eq!(text(connect(""), false), Err(BAD_PROTOCOL));
        assert_eq!(text(connect("websocket").header("content-length", "3"), false), Err(BAD_PROTOCOL));
    }

    #[test]
    fn only_a_2xx_agrees_to_a_tunnel() {
        let text = |status: u16, question| {
            let (parts, ()) = http::Response::builder().status(status).body(()).unwrap().into_parts();
            let mut out = Vec::new();
            let reading = write_response(&parts, false, question, &mut out);
            (String::from_utf8(out).unwrap(), reading)
        };
        let upgrade = Question::Upgrade { protocol: b"websocket", key: Some(b"dGhlIHNhbXBsZSBub25jZQ==") };
        // The key and its answer are the example of RFC 6455 section 1.3.
        let switch = "HTTP/1.1 101 \r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                      sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
        assert_eq!(text(200, upgrade), (switch.to_owned(), Reading::Tunnel));
        let refused = "HTTP/1.1 403 \r\ntransfer-encoding: chunked\r\n\r\n".to_owned();
        assert_eq!(text(403, upgrade), (refused.clone(), Reading::Chunked));
        assert_eq!(text(403, Question::Connect), (refused, Reading::Chunked));
        assert_eq!(text(200, Question::Connect), ("HTTP/1.1 200 \r\n\r\n".to_owned(), Reading::Tunnel));
    }
}
