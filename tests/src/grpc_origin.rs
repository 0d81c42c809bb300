//! A gRPC server whose answers are a test's own, on the `h2` crate: it knows no schema, only frames.

use crate::kit::Server;
use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

/// What reached the server.
#[derive(Clone, Debug)]
pub struct Call {
    pub method: String,
    pub path: String,
    pub headers: HeaderMap,
    /// The body without the prefixes of its frames.
    pub messages: Vec<Vec<u8>>,
    /// What was left of the body behind its last whole frame.
    pub rest: Vec<u8>,
}

/// What it answers.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Fields of the head beside the content type.
    pub headers: Vec<(String, String)>,
    pub content_type: &'static str,
    /// The body as it is sent, one frame of HTTP/2 each.
    pub pieces: Vec<Vec<u8>>,
    pub trailers: Vec<(String, String)>,
    /// Head and trailers are one.
    pub trailers_only: bool,
}

impl Answer {
    /// These messages and the status 0.
    pub fn messages(messages: impl IntoIterator<Item = Vec<u8>>) -> Self {
        Self {
            headers: Vec::new(),
            content_type: "application/grpc",
            pieces: messages.into_iter().map(|message| frame(&message)).collect(),
            trailers: vec![("grpc-status".to_owned(), "0".to_owned())],
            trailers_only: false,
        }
    }

    /// A status behind what was answered so far.
    pub fn status(mut self, code: u32, message: &str) -> Self {
        self.trailers = vec![("grpc-status".to_owned(), code.to_string())];
        if !message.is_empty() {
            self.trailers.push(("grpc-message".to_owned(), message.to_owned()));
        }
        self
    }

    pub fn trailer(mut self, name: &str, value: &str) -> Self {
        self.trailers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn trailers_only(mut self) -> Self {
        self.trailers_only = true;
        self
    }
}

/// A message with its prefix.
pub fn frame(message: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0];
    bytes.extend_from_slice(&u32::try_from(message.len()).expect("a small message").to_be_bytes());
    bytes.extend_from_slice(message);
    bytes
}

type Script = Arc<dyn Fn(&Call) -> Answer + Send + Sync>;

/// Answers every call by a script, once the call has ended. A path that ends in `/Chat` is answered message by message
/// instead: each comes back as soon as it is there.
pub struct GrpcOrigin {
    pub address: SocketAddr,
    calls: Arc<Mutex<Vec<Call>>>,
    _server: Server,
}

impl GrpcOrigin {
    pub fn start(script: impl Fn(&Call) -> Answer + Send + Sync + 'static) -> Self {
        let script: Script = Arc::new(script);
        let calls = Arc::new(Mutex::new(Vec::new()));
        let record = calls.clone();
        let server = Server::start(move |stream| serve(stream, script.clone(), record.clone()));
        Self { address: server.address, calls, _server: server }
    }

    /// The calls that ended so far.
    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().expect("no panic").clone()
    }

    /// The last call.
    pub fn last(&self) -> Call {
        self.calls().pop().expect("a call")
    }
}

async fn serve(stream: tokio::net::TcpStream, script: Script, record: Arc<Mutex<Vec<Call>>>) {
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        let (script, record) = (script.clone(), record.clone());
        tokio::spawn(async move {
            // A proxy that gave up is what some tests are about.
            let _ = answer(request, respond, script, record).await;
        });
    }
}

async fn answer(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    script: Script,
    record: Arc<Mutex<Vec<Call>>>,
) -> Result<(), h2::Error> {
    let (parts, mut body) = request.into_parts();
    let chats = parts.uri.path().ends_with("/Chat");
    let head = |content_type: &str| Response::builder().header("content-type", content_type.to_owned());
    let mut early = None;
    if chats {
        early = Some(respond.send_response(head("application/grpc").body(()).expect("a head"), false)?);
    }
    let (mut messages, mut rest) = (Vec::new(), Vec::new());
    while let Some(piece) = body.data().await {
        let piece = piece?;
        body.flow_control().release_capacity(piece.len())?;
        rest.extend_from_slice(&piece);
        while let Some((message, left)) = split(&rest) {
            if let Some(send) = &mut early {
                send.send_data(frame(&message).into(), false)?;
            }
            messages.push(message);
            rest = left;
        }
    }
    let call = Call {
        method: parts.method.to_string(),
        path: parts.uri.path_and_query().map_or_else(String::new, ToString::to_string),
        headers: parts.headers,
        messages,
        rest,
    };
    let answer = script(&call);
    record.lock().expect("no panic").push(call);
    let fields = |lines: &[(String, String)]| -> HeaderMap {
        let field = |(name, value): &(String, String)| {
            let name = HeaderName::try_from(name.as_str()).expect("a name");
            (name, HeaderValue::try_from(value.as_str()).expect("a value"))
        };
        lines.iter().map(field).collect()
    };
    if let Some(mut send) = early {
        return send.send_trailers(fields(&answer.trailers));
    }
    let mut response = head(answer.content_type).body(()).expect("a head");
    response.headers_mut().extend(fields(&answer.headers));
    if answer.trailers_only {
        response.headers_mut().extend(fields(&answer.trailers));
        respond.send_response(response, true)?;
        return Ok(());
    }
    let mut send = respond.send_response(response, false)?;
    for piece in answer.pieces {
        send.send_data(piece.into(), false)?;
    }
    send.send_trailers(fields(&answer.trailers))
}

/// The first whole message of `bytes`, and what follows it.
fn split(bytes: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (prefix, rest) = bytes.split_first_chunk::<5>()?;
    let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
    (rest.len() >= length).then(|| (rest[..length].to_vec(), rest[length..].to_vec()))
}
