//! Heads of HTTP/2 as the heads of HTTP/1 that they mean (RFC 9113 section 8.3, RFC 9112 sections 3 and 4).

use h2::ext::Protocol;
use http::header::{CONTENT_LENGTH, COOKIE, HOST};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode, response};
use postrider_http::Reject;

/// The authority and the `host` field name different hosts.
const TWO_HOSTS: Reject = Reject::new(400, "http2_host_and_authority_differ");

/// An extended CONNECT (RFC 8441), which nothing here allows yet.
const EXTENDED_CONNECT: Reject = Reject::new(501, "http2_extended_connect");

/// Writes the head to `out`, which is empty. `ended`: no body follows. Answers whether the body is to be read as chunked.
///
/// # Errors
/// The request means nothing in HTTP/1. Whatever else is wrong is found when the head is read.
pub(super) fn write_request(parts: &Parts, ended: bool, out: &mut Vec<u8>) -> Result<bool, Reject> {
    if parts.extensions.get::<Protocol>().is_some() {
        return Err(EXTENDED_CONNECT);
    }
    let authority = parts.uri.authority().map(|authority| authority.as_str().as_bytes());
    let host = parts.headers.get(HOST).map(|host| host.as_bytes());
    if let (Some(authority), Some(host)) = (authority, host)
        && !authority.eq_ignore_ascii_case(host)
    {
        return Err(TWO_HOSTS);
    }
    let target = match parts.uri.path_and_query() {
        _ if parts.method == Method::CONNECT => authority.unwrap_or_default(),
        Some(path) => path.as_str().as_bytes(),
        None => b"",
    };
    out.extend_from_slice(parts.method.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(target);
    out.extend_from_slice(b" HTTP/1.1\r\n");
    if let Some(authority) = authority {
        write_line(b"host", authority, out);
    }
    write_fields(&parts.headers, authority.is_some(), out);
    let chunked = !ended && !parts.headers.contains_key(CONTENT_LENGTH) && parts.method != Method::CONNECT;
    if chunked {
        out.extend_from_slice(b"transfer-encoding: chunked\r\n");
    }
    out.extend_from_slice(b"\r\n");
    Ok(chunked)
}

/// Writes the head of a final answer. `ended`: no body follows; `is_head`: none can, since it answers HEAD. Answers
/// whether the body is to be read as chunked.
pub(super) fn write_response(parts: &response::Parts, ended: bool, is_head: bool, out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(parts.status.as_str().as_bytes());
    out.extend_from_slice(b" \r\n");
    write_fields(&parts.headers, false, out);
    // RFC 9112 section 6.3: the reader knows by itself that these have no body.
    let known = is_head || matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let open = !known && !parts.headers.contains_key(CONTENT_LENGTH);
    if open && ended {
        // Else it would wait for the end of the connection.
        out.extend_from_slice(b"content-length: 0\r\n");
    } else if open {
        out.extend_from_slice(b"transfer-encoding: chunked\r\n");
    }
    out.extend_from_slice(b"\r\n");
    open && !ended
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
    for (name, value) in fields {
        if *name != COOKIE && !(host_is_written && *name == HOST) {
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
        write_request(&parts, ended, &mut out)?;
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
        let text = |status: u16, ended, is_head| {
            let (parts, ()) = http::Response::builder().status(status).header("x", "y").body(()).unwrap().into_parts();
            let mut out = Vec::new();
            let chunked = write_response(&parts, ended, is_head, &mut out);
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
}
