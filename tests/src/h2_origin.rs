//! An origin that speaks HTTP/2 and nothing else, on the `h2` crate.

use crate::kit::Server;
use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::{HeaderMap, HeaderValue, Request, Response};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Answers every request with what it was, in the body, and with `x-checked` in the trailers:
///
/// - `/trailers-only` has no body and no trailers, but a status of gRPC in its head;
/// - `/grpc/N` answers with one message and the status N of gRPC in the trailers;
/// - `/echo…`, and a CONNECT, answers a call of gRPC with its own messages, status 0 and, in `x-seen`, with what the request's head said;
/// - `/never` is not answered;
/// - `/refused-once` is reset with REFUSED_STREAM unless `x-envoy-attempt-count` says that it comes again;
/// - `/reset` is reset with CANCEL, `/reset-protocol` with PROTOCOL_ERROR;
/// - `/grpc.health.v1.Health/Check` is answered as gRPC asks: the service `down` is not serving, `twice` says two messages that it
///   is, `early` says so with the status in its head, and `unending` begins a 503;
/// - `/length…` is answered as anything else, with a `content-length`, and `/length/empty` with one of 0;
/// - anything else says method, path, authority, the field `te`, the body's length and the request's trailer `x-sum`.
pub struct H2Origin {
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
    checks: Checks,
    _server: Server,
}

impl H2Origin {
    /// `streams` at once on a connection.
    pub fn start(streams: u32) -> Self {
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        let checks = Checks::default();
        let seen = checks.clone();
        let server = Server::start(move |stream| {
            counted.fetch_add(1, Ordering::SeqCst);
            serve(stream, streams, seen.clone())
        });
        Self { address: server.address, connections, checks, _server: server }
    }

    /// What the heads of health checks said.
    pub fn checks(&self) -> Vec<HeaderMap> {
        self.checks.lock().unwrap().clone()
    }

    /// Connections that were made so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

type Checks = Arc<Mutex<Vec<HeaderMap>>>;

async fn serve(stream: tokio::net::TcpStream, streams: u32, checks: Checks) {
    let mut builder = h2::server::Builder::new();
    let Ok(mut connection) = builder.max_concurrent_streams(streams).handshake::<_, Bytes>(stream).await else {
        return;
    };
    while let Some(Ok((request, respond))) = connection.accept().await {
        let checks = checks.clone();
        tokio::spawn(async move {
            // A proxy that gave up is what some tests are about.
            let _ = answer(request, respond, &checks).await;
        });
    }
}

async fn answer(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    checks: &Checks,
) -> Result<(), h2::Error> {
    let (parts, mut body) = request.into_parts();
    match parts.uri.path() {
        "/never" => {
            let _ = std::future::poll_fn(|cx| respond.poll_reset(cx)).await;
            return Ok(());
        }
        "/refused-once" if parts.headers.get("x-envoy-attempt-count").is_none_or(|count| count == "1") => {
            respond.send_reset(h2::Reason::REFUSED_STREAM);
            return Ok(());
        }
        "/reset" => {
            respond.send_reset(h2::Reason::CANCEL);
            return Ok(());
        }
        "/reset-protocol" => {
            respond.send_reset(h2::Reason::PROTOCOL_ERROR);
            return Ok(());
        }
        "/trailers-only" => {
            let head = Response::builder().header("content-type", "application/grpc").header("grpc-status", "12");
            respond.send_response(head.body(()).expect("a response"), true)?;
            return Ok(());
        }
        path if path.starts_with("/grpc/") => {
            let status = HeaderValue::from_str(&path["/grpc/".len()..]).expect("a number");
            let head = Response::builder().header("content-type", "application/grpc");
            let mut send = respond.send_response(head.body(()).expect("a response"), false)?;
            send.send_data(Bytes::from_static(b"\0\0\0\0\x03abc"), false)?;
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", status);
            return send.send_trailers(trailers);
        }
        _ => {}
    }
    if parts.method == http::Method::CONNECT || parts.uri.path().starts_with("/echo") {
        return echo(&parts, body, respond).await;
    }
    let mut length = 0;
    let mut received = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece?;
        length += piece.len();
        received.extend_from_slice(&piece);
        body.flow_control().release_capacity(piece.len())?;
    }
    let trailers = body.trailers().await?.unwrap_or_default();
    if parts.uri.path() == "/grpc.health.v1.Health/Check" {
        checks.lock().unwrap().push(parts.headers);
        return answer_check(&received, respond).await;
    }
    let mut text = format!(
        "{} {} {} te={} body={length} x-sum={}",
        parts.method,
        parts.uri.path(),
        parts.uri.authority().map_or("-", |authority| authority.as_str()),
        field(&parts.headers, "te"),
        field(&trailers, "x-sum"),
    );
    let mut head = Response::new(());
    if parts.uri.path() == "/length/empty" {
        text.clear();
    }
    if parts.uri.path().starts_with("/length") {
        head.headers_mut().insert("content-length", text.len().into());
    }
    let mut send = respond.send_response(head, false)?;
    if !text.is_empty() {
        send.send_data(text.into(), false)?;
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("x-checked", HeaderValue::from_static("yes"));
    send.send_trailers(trailers)
}

async fn answer_check(asked: &[u8], mut respond: SendResponse<Bytes>) -> Result<(), h2::Error> {
    let of = |service: &str| asked.ends_with(service.as_bytes());
    let head =
        Response::builder().status(if of("unending") { 503 } else { 200 }).header("content-type", "application/grpc");
    let head = if of("early") { head.header("grpc-status", "0") } else { head };
    let mut send = respond.send_response(head.body(()).expect("a response"), false)?;
    if of("unending") {
        return std::future::poll_fn(|cx| send.poll_reset(cx)).await.map(drop);
    }
    let message = Bytes::copy_from_slice(&[0, 0, 0, 0, 2, 8, if of("down") { 2 } else { 1 }]);
    if of("early") {
        return send.send_data(message, true);
    }
    if of("twice") {
        send.send_data(message.clone(), false)?;
    }
    send.send_data(message, false)?;
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    send.send_trailers(trailers)
}

async fn echo(
    parts: &http::request::Parts,
    mut body: RecvStream,
    mut respond: SendResponse<Bytes>,
) -> Result<(), h2::Error> {
    let seen = ["content-type", "te", "grpc-accept-encoding", "content-length"];
    let seen: Vec<_> = seen.iter().map(|name| field(&parts.headers, name)).collect();
    let head = Response::builder().header("content-type", "application/grpc").header("x-seen", seen.join(" "));
    let head = head.header("x-path", parts.uri.path_and_query().map_or("-", |path| path.as_str()));
    let mut send = respond.send_response(head.body(()).expect("a response"), false)?;
    while let Some(piece) = body.data().await {
        let piece = piece?;
        body.flow_control().release_capacity(piece.len())?;
        send.send_data(piece, false)?;
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    trailers.insert("grpc-message", HeaderValue::from_static("fine"));
    send.send_trailers(trailers)
}

fn field(map: &HeaderMap, name: &str) -> String {
    map.get(name).map_or("-", |value| value.to_str().unwrap_or("?")).to_owned()
}
