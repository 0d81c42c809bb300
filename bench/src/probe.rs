//! One request as a scenario's clients make it, and what came back: the check before every measurement.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use crate::client::header_length;
use crate::grpc;
use crate::shape::Http;
use crate::tls::server_name;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
const READ_BUFFER: usize = 64 * 1024;

/// What is asked for, and what must come back with a 200.
#[derive(Clone, Copy)]
pub struct Probe<'a> {
    pub path: &'a str,
    /// Bytes of the answer's body.
    pub body: usize,
    pub headers: &'a [&'a str],
    /// A gRPC call with a message of so many bytes, which must come back with the status OK. `None`: a GET.
    pub message: Option<usize>,
}

impl<'a> Probe<'a> {
    pub const fn get(path: &'a str, body: usize) -> Self {
        Self { path, body, headers: &[], message: None }
    }
}

/// Who is asked, and how.
pub struct Place {
    pub port: u16,
    pub http: Http,
    /// Over TLS, and how to check the certificate.
    pub tls: Option<Arc<ClientConfig>>,
}

impl Place {
    pub fn plain(port: u16, http: Http) -> Self {
        Self { port, http, tls: None }
    }
}

/// Status and bytes of the body.
pub fn ask(place: &Place, probe: Probe) -> io::Result<(u16, usize)> {
    match place.http {
        Http::One => {
            let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, place.port))?;
            socket.set_read_timeout(Some(PATIENCE))?;
            match &place.tls {
                None => over_http1(socket, place.port, probe),
                Some(config) => {
                    let name = server_name().map_err(io::Error::other)?;
                    let session = ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
                    over_http1(StreamOwned::new(session, socket), place.port, probe)
                }
            }
        }
        Http::Two => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let asking = async { tokio::time::timeout(PATIENCE, ask_http2(place, probe)).await };
            runtime.block_on(asking).unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
        }
    }
}

fn over_http1(mut stream: impl Read + Write, port: u16, probe: Probe) -> io::Result<(u16, usize)> {
    let mut request = format!("GET {} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n", probe.path);
    for header in probe.headers.iter().filter(|header| !header.starts_with("Connection:")) {
        request.push_str(header);
        request.push_str("\r\n");
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes())?;
    stream.flush()?;
    // To the announced length, not to the end of the stream: behind the relay the origin decides whether it closes.
    let mut answer = Vec::new();
    let mut buffer = vec![0; READ_BUFFER];
    loop {
        let received = stream.read(&mut buffer)?;
        answer.extend_from_slice(&buffer[..received]);
        let end = answer.windows(4).position(|window| window == b"\r\n\r\n");
        let head = end.map(|end| String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase()).unwrap_or_default();
        let sent = end.map_or(&[][..], |end| &answer[end + 4..]);
        // A plugin that may change a body makes it chunked.
        let (body, is_whole) = if head.contains("\r\ntransfer-encoding: chunked") {
            chunked_length(sent)
        } else {
            (sent.len(), header_length(&head).is_some_and(|announced| sent.len() >= announced))
        };
        if received == 0 || is_whole {
            let status = answer.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
            return match (end, status) {
                (Some(_), Some(status)) => Ok((status, body)),
                _ => Err(invalid("not an HTTP/1.1 answer")),
            };
        }
    }
}

/// Bytes of data in chunks (RFC 9112 section 7.1), and whether the last one is there.
fn chunked_length(mut bytes: &[u8]) -> (usize, bool) {
    let mut length = 0;
    loop {
        let Some(end) = bytes.windows(2).position(|window| window == b"\r\n") else { return (length, false) };
        let Some(size) = std::str::from_utf8(&bytes[..end]).ok().and_then(|size| usize::from_str_radix(size, 16).ok())
        else {
            return (length, false);
        };
        let Some(rest) = bytes.get(end + 2 + size + 2..) else { return (length, false) };
        if size == 0 {
            return (length, true);
        }
        length += size;
        bytes = rest;
    }
}

async fn ask_http2(place: &Place, probe: Probe<'_>) -> io::Result<(u16, usize)> {
    let socket = tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, place.port)).await?;
    let Some(config) = &place.tls else { return over_http2(socket, "http", place.port, probe).await };
    let name = server_name().map_err(io::Error::other)?;
    let stream = TlsConnector::from(config.clone()).connect(name, socket).await?;
    if stream.get_ref().1.alpn_protocol() != Some(Http::Two.alpn().as_bytes()) {
        return Err(invalid("HTTP/2 was not chosen by ALPN"));
    }
    over_http2(stream, "https", place.port, probe).await
}

async fn over_http2<S>(stream: S, scheme: &str, port: u16, probe: Probe<'_>) -> io::Result<(u16, usize)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (requests, connection) = h2::client::handshake(stream).await.map_err(io::Error::other)?;
    // It ends with the runtime.
    tokio::spawn(connection);
    let uri = format!("{scheme}://127.0.0.1:{port}{}", probe.path);
    let mut request = Request::builder().uri(uri);
    for (name, value) in probe.headers.iter().filter_map(|header| header.split_once(": ")) {
        request = request.header(name, value);
    }
    let sends = probe.message.map(grpc::frame);
    if sends.is_some() {
        request = request.method(Method::POST);
    }
    let request = request.body(()).map_err(io::Error::other)?;
    let mut requests = requests.ready().await.map_err(io::Error::other)?;
    let (response, mut sending) = requests.send_request(request, sends.is_none()).map_err(io::Error::other)?;
    if let Some(sends) = &sends {
        sending.send_data(Bytes::copy_from_slice(sends), true).map_err(io::Error::other)?;
    }
    let (head, mut stream) = response.await.map_err(io::Error::other)?.into_parts();
    let mut body = BytesMut::new();
    while let Some(piece) = stream.data().await {
        let piece = piece.map_err(io::Error::other)?;
        stream.flow_control().release_capacity(piece.len()).map_err(io::Error::other)?;
        body.extend_from_slice(&piece);
    }
    if let Some(sent) = sends {
        let trailers = stream.trailers().await.map_err(io::Error::other)?;
        check_call(&sent, &body, trailers.as_ref())?;
    }
    Ok((head.status.as_u16(), body.len()))
}

/// A call is answered if its own message came back, and the status OK behind it.
fn check_call(sent: &[u8], body: &[u8], trailers: Option<&HeaderMap>) -> io::Result<()> {
    let status = trailers.and_then(|trailers| trailers.get(grpc::STATUS));
    if status.is_none_or(|status| status != grpc::OK) {
        return Err(invalid(&format!("grpc-status in trailers: {status:?}")));
    }
    if body != sent {
        return Err(invalid("another message came back than was sent"));
    }
    Ok(())
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_counted_without_their_sizes() {
        assert_eq!(chunked_length(b"d\r\nhello, world!\r\n0\r\n\r\n"), (13, true));
        assert_eq!(chunked_length(b"5\r\nhello\r\nA\r\n0123"), (5, false));
        assert_eq!(chunked_length(b""), (0, false));
    }
    use http::HeaderValue;

    #[test]
    fn a_call_is_answered_by_its_own_message_and_the_status_ok() {
        let trailers = |status: &'static str| {
            HeaderMap::from_iter([(http::HeaderName::from_static(grpc::STATUS), HeaderValue::from_static(status))])
        };
        assert!(check_call(b"one", b"one", Some(&trailers("0"))).is_ok());
        assert!(check_call(b"one", b"two", Some(&trailers("0"))).is_err());
        assert!(check_call(b"one", b"one", Some(&trailers("14"))).is_err());
        assert!(check_call(b"one", b"one", None).is_err());
    }

    #[test]
    fn a_call_to_the_origin_is_answered() {
        let origin = grpc::Origin::open().unwrap();
        let place = Place::plain(origin.port().unwrap(), Http::Two);
        std::thread::spawn(move || origin.serve());
        let probe = Probe { path: grpc::PATH, body: 105, headers: grpc::HEADERS, message: Some(100) };
        assert_eq!(ask(&place, probe).unwrap(), (200, 105));
        // A GET is no call.
        assert_eq!(ask(&place, Probe::get("/", 0)).unwrap(), (200, 0));
    }
}
