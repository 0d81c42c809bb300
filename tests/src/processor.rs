//! A processor for `ext_proc` that does what a test says and records what it heard.

use crate::kit::{Headers, Server, wait_until};
use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request as Head, Response as HeadBack};
use postrider_grpc::Message;
use postrider_grpc::core::{HeaderMap as Lines, HeaderValue as Line, HeaderValueOption};
use postrider_grpc::process::body_mutation::Mutation;
use postrider_grpc::process::processing_request::Request;
use postrider_grpc::process::processing_response::Response;
use postrider_grpc::process::{
    BodyMutation, BodyResponse, CommonResponse, HeaderMutation, HeadersResponse, HttpBody, ProcessingRequest,
    ProcessingResponse, StreamedBodyResponse, TrailersResponse,
};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

/// What the processor says next.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "a test has few of them")]
pub enum Say {
    Answer(ProcessingResponse),
    /// Ends the conversation with this `grpc-status` and `grpc-message`.
    End(u32, &'static str),
    Reset,
}

/// A conversation as far as it came.
#[derive(Debug, Clone, Default)]
pub struct Heard {
    pub path: String,
    pub metadata: Headers,
    pub requests: Vec<ProcessingRequest>,
    /// The proxy said that nothing follows.
    pub ended: bool,
    /// It gave the conversation up.
    pub abandoned: bool,
}

impl Heard {
    /// Which parts came, in order: `H` and `h` for headers of request and response, `B` and `b`, `T` and `t`. Pieces of a
    /// body count once.
    pub fn parts(&self) -> String {
        let mut parts: Vec<char> = self.requests.iter().map(part).collect();
        parts.dedup();
        parts.into_iter().collect()
    }

    /// The bytes of one side's body.
    pub fn body(&self, of: char) -> Vec<u8> {
        self.requests
            .iter()
            .filter(|request| part(request) == of)
            .flat_map(|request| body(request).body.clone())
            .collect()
    }
}

/// See [`Heard::parts`].
pub fn part(request: &ProcessingRequest) -> char {
    match request.request.as_ref().expect("a part") {
        Request::RequestHeaders(_) => 'H',
        Request::ResponseHeaders(_) => 'h',
        Request::RequestBody(_) => 'B',
        Request::ResponseBody(_) => 'b',
        Request::RequestTrailers(_) => 'T',
        Request::ResponseTrailers(_) => 't',
    }
}

/// The piece of a body that came.
pub fn body(request: &ProcessingRequest) -> &HttpBody {
    match request.request.as_ref().expect("a part") {
        Request::RequestBody(body) | Request::ResponseBody(body) => body,
        other => panic!("no body: {other:?}"),
    }
}

/// The value of a header or trailer that came; empty when there is none.
pub fn value(request: &ProcessingRequest, name: &str) -> String {
    let lines: Option<&Lines> = match request.request.as_ref().expect("a part") {
        Request::RequestHeaders(headers) | Request::ResponseHeaders(headers) => headers.headers.as_ref(),
        Request::RequestTrailers(trailers) | Request::ResponseTrailers(trailers) => trailers.trailers.as_ref(),
        other => panic!("no headers: {other:?}"),
    };
    let line = lines.and_then(|lines| lines.headers.iter().find(|line| line.key == name));
    line.map(|line| String::from_utf8_lossy(&line.raw_value).into_owned()).unwrap_or_default()
}

/// An answer of the kind that belongs to `request`.
pub fn with(request: &ProcessingRequest, common: CommonResponse) -> ProcessingResponse {
    let headers = || HeadersResponse { response: Some(common.clone()) };
    let body = || BodyResponse { response: Some(common.clone()) };
    let trailers = || TrailersResponse { header_mutation: common.header_mutation.clone() };
    let response = match part(request) {
        'H' => Response::RequestHeaders(headers()),
        'h' => Response::ResponseHeaders(headers()),
        'B' => Response::RequestBody(body()),
        'b' => Response::ResponseBody(body()),
        'T' => Response::RequestTrailers(trailers()),
        _ => Response::ResponseTrailers(trailers()),
    };
    ProcessingResponse { response: Some(response), ..ProcessingResponse::default() }
}

/// Lets a part go on as it is.
pub fn plain(request: &ProcessingRequest) -> ProcessingResponse {
    with(request, CommonResponse::default())
}

/// Overwrites these headers and removes those.
pub fn changes(set: &[(&str, &str)], remove: &[&str]) -> HeaderMutation {
    let option = |(key, value): &(&str, &str)| HeaderValueOption {
        header: Some(Line { key: (*key).into(), raw_value: value.as_bytes().to_vec(), ..Line::default() }),
        ..HeaderValueOption::default()
    };
    HeaderMutation {
        set_headers: set.iter().map(option).collect(),
        remove_headers: remove.iter().map(|name| (*name).to_owned()).collect(),
    }
}

/// The same as an answer.
pub fn set(set: &[(&str, &str)]) -> CommonResponse {
    CommonResponse { header_mutation: Some(changes(set, &[])), ..CommonResponse::default() }
}

/// Another body.
pub fn becomes(body: impl Into<Vec<u8>>) -> CommonResponse {
    let mutation = Mutation::Body(body.into());
    CommonResponse { body_mutation: Some(BodyMutation { mutation: Some(mutation) }), ..CommonResponse::default() }
}

/// A piece of a body of the processor's own, for `FULL_DUPLEX_STREAMED`.
pub fn piece(body: impl Into<Vec<u8>>, end_of_stream: bool) -> CommonResponse {
    let streamed = StreamedBodyResponse { body: body.into(), end_of_stream, ..StreamedBodyResponse::default() };
    let mutation = Mutation::StreamedResponse(streamed);
    CommonResponse { body_mutation: Some(BodyMutation { mutation: Some(mutation) }), ..CommonResponse::default() }
}

type Talk = Box<dyn FnMut(&ProcessingRequest) -> Vec<Say> + Send>;

/// The service, on a port of its own.
pub struct Processor {
    pub address: SocketAddr,
    calls: Arc<Mutex<Vec<Heard>>>,
    _server: Server,
}

impl Processor {
    /// `begin` is asked at the begin of each conversation; what it gives is asked after each message.
    pub fn talking(begin: impl Fn() -> Talk + Send + Sync + 'static) -> Self {
        Self::serving(begin, Arc::new(tokio::sync::Semaphore::new(tokio::sync::Semaphore::MAX_PERMITS)))
    }

    /// One that hears a message for each permit of `patience` only.
    pub fn serving(begin: impl Fn() -> Talk + Send + Sync + 'static, patience: Arc<tokio::sync::Semaphore>) -> Self {
        let begin: Arc<dyn Fn() -> Talk + Send + Sync> = Arc::new(begin);
        let calls = Arc::new(Mutex::new(Vec::new()));
        let record = calls.clone();
        let server = Server::start(move |stream| serve(stream, begin.clone(), record.clone(), patience.clone()));
        Self { address: server.address, calls, _server: server }
    }

    /// One without a memory of its own.
    pub fn start(script: impl Fn(&ProcessingRequest) -> Vec<Say> + Send + Sync + 'static) -> Self {
        let script = Arc::new(script);
        Self::talking(move || {
            let script = script.clone();
            Box::new(move |request| script(request))
        })
    }

    /// One that answers each message with an answer.
    pub fn answering(script: impl Fn(&ProcessingRequest) -> ProcessingResponse + Send + Sync + 'static) -> Self {
        Self::start(move |request| vec![Say::Answer(script(request))])
    }

    /// Every conversation so far.
    pub fn calls(&self) -> Vec<Heard> {
        self.calls.lock().expect("no test thread panicked").clone()
    }

    /// The only conversation, once it is over.
    pub fn only(&self) -> Heard {
        wait_until("the end of the conversation", || {
            self.calls().first().is_some_and(|call| call.ended || call.abandoned)
        });
        self.calls().remove(0)
    }

    /// How many messages came so far.
    pub fn messages(&self) -> usize {
        self.calls.lock().expect("no test thread panicked").iter().map(|call| call.requests.len()).sum()
    }

    pub fn wait_messages(&self, count: usize) {
        wait_until(&format!("{count} messages"), || self.messages() >= count);
    }
}

async fn serve(
    stream: tokio::net::TcpStream,
    begin: Arc<dyn Fn() -> Talk + Send + Sync>,
    calls: Arc<Mutex<Vec<Heard>>>,
    patience: Arc<tokio::sync::Semaphore>,
) {
    let Ok(mut connection) = h2::server::Builder::new().handshake::<_, Bytes>(stream).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        tokio::spawn(converse(request, respond, begin(), calls.clone(), patience.clone()));
    }
}

async fn converse(
    request: Head<RecvStream>,
    respond: SendResponse<Bytes>,
    mut talk: Talk,
    calls: Arc<Mutex<Vec<Heard>>>,
    patience: Arc<tokio::sync::Semaphore>,
) {
    let (parts, mut body) = request.into_parts();
    let lines = parts.headers.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()));
    let index = {
        let mut calls = calls.lock().expect("no test thread panicked");
        calls.push(Heard { path: parts.uri.path().to_owned(), metadata: Headers(lines.collect()), ..Heard::default() });
        calls.len() - 1
    };
    let note = |change: &dyn Fn(&mut Heard)| {
        if let Some(heard) = calls.lock().expect("no test thread panicked").get_mut(index) {
            change(heard);
        }
    };
    let mut voice = Voice { respond, send: None, over: false };
    let mut held = Vec::new();
    loop {
        match body.data().await {
            Some(Ok(piece)) => {
                held.extend_from_slice(&piece);
                while let Some(length) = held.get(1..5).map(|l| u32::from_be_bytes([l[0], l[1], l[2], l[3]]) as usize) {
                    if held.len() < 5 + length {
                        break;
                    }
                    let permit = patience.acquire().await.expect("it is never closed");
                    permit.forget();
                    let request = ProcessingRequest::decode(&held[5..5 + length]).expect("a message");
                    held.drain(..5 + length);
                    let said = talk(&request);
                    note(&|heard| heard.requests.push(request.clone()));
                    for say in said {
                        // A proxy that gave up is what some tests are about.
                        let _ = voice.say(say);
                    }
                }
                let _ = body.flow_control().release_capacity(piece.len());
            }
            Some(Err(_)) => return note(&|heard| heard.abandoned = true),
            None => {
                note(&|heard| heard.ended = true);
                let _ = voice.say(Say::End(0, ""));
                return;
            }
        }
    }
}

struct Voice {
    respond: SendResponse<Bytes>,
    send: Option<SendStream<Bytes>>,
    over: bool,
}

impl Voice {
    fn say(&mut self, say: Say) -> Result<(), h2::Error> {
        if self.over {
            return Ok(());
        }
        match say {
            Say::Answer(answer) => {
                let message = answer.encode_to_vec();
                let mut bytes = vec![0];
                bytes.extend_from_slice(&(message.len() as u32).to_be_bytes());
                bytes.extend_from_slice(&message);
                self.body()?.send_data(bytes.into(), false)
            }
            Say::End(code, message) => {
                self.over = true;
                let mut fields = HeaderMap::new();
                fields.insert("grpc-status", code.into());
                fields.insert("grpc-message", HeaderValue::from_static(message));
                match &mut self.send {
                    Some(send) => send.send_trailers(fields),
                    None => {
                        let mut head = HeadBack::new(());
                        fields.insert("content-type", HeaderValue::from_static("application/grpc"));
                        *head.headers_mut() = fields;
                        self.respond.send_response(head, true).map(drop)
                    }
                }
            }
            Say::Reset => {
                self.over = true;
                self.respond.send_reset(Reason::INTERNAL_ERROR);
                Ok(())
            }
        }
    }

    fn body(&mut self) -> Result<&mut SendStream<Bytes>, h2::Error> {
        if self.send.is_none() {
            let head = HeadBack::builder().header("content-type", "application/grpc").body(()).expect("a response");
            self.send = Some(self.respond.send_response(head, false)?);
        }
        Ok(self.send.as_mut().expect("it was just put there"))
    }
}
