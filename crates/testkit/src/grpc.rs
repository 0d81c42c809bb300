//! A gRPC service that does what a test says and records what it was asked. Messages are bytes: what they hold is the
//! test's business.

use crate::server::Server;
use crate::{Headers, wait_until};
use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request, Response};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// What the service does next on a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Send(Vec<u8>),
    /// These bytes of the body as they are: no frame is put around them.
    Raw(Vec<u8>),
    /// Ends the call with this `grpc-status` and `grpc-message`.
    End(u32, &'static str),
    /// An answer of HTTP alone.
    Http(u16),
    Reset,
}

/// A call as it was received.
#[derive(Debug, Clone)]
pub struct Received {
    pub path: String,
    pub authority: String,
    pub headers: Headers,
    pub messages: Vec<Vec<u8>>,
    /// The client said that nothing follows.
    pub ended: bool,
    /// The client gave the call up.
    pub abandoned: bool,
}

type Script = dyn Fn(&Received) -> Vec<Step> + Send + Sync;

/// The service, on a port of its own.
pub struct GrpcOrigin {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    _server: Server,
}

struct Shared {
    script: Box<Script>,
    connections: AtomicUsize,
    calls: Mutex<Vec<Received>>,
}

impl GrpcOrigin {
    /// `script` is asked after each message, and at the end when none came, what to do.
    pub fn start(script: impl Fn(&Received) -> Vec<Step> + Send + Sync + 'static) -> Self {
        let shared =
            Arc::new(Shared { script: Box::new(script), connections: AtomicUsize::new(0), calls: Mutex::default() });
        let ours = shared.clone();
        let server = Server::start(move |stream| {
            ours.connections.fetch_add(1, Ordering::SeqCst);
            serve(stream, ours.clone())
        });
        Self { address: server.address, shared, _server: server }
    }

    /// One that answers each call with this message, well.
    pub fn fixed(answer: Vec<u8>) -> Self {
        Self::start(move |_| vec![Step::Send(answer.clone()), Step::End(0, "")])
    }

    /// One that never answers.
    pub fn silent() -> Self {
        Self::start(|_| Vec::new())
    }

    /// Connections that were made so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Every call so far, as far as it came.
    pub fn calls(&self) -> Vec<Received> {
        self.shared.calls.lock().expect("no test thread panicked").clone()
    }

    /// Every message of every call so far.
    pub fn messages(&self) -> Vec<Vec<u8>> {
        self.calls().into_iter().flat_map(|call| call.messages).collect()
    }

    pub fn wait_messages(&self, count: usize) {
        wait_until(&format!("{count} messages"), || self.messages().len() >= count);
    }

    pub fn wait_abandoned(&self, count: usize) {
        wait_until(&format!("{count} abandoned calls"), || {
            self.calls().iter().filter(|call| call.abandoned).count() >= count
        });
    }
}

async fn serve(stream: tokio::net::TcpStream, shared: Arc<Shared>) {
    let Ok(mut connection) = h2::server::Builder::new().handshake::<_, Bytes>(stream).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        tokio::spawn(call(request, respond, shared.clone()));
    }
}

async fn call(request: Request<RecvStream>, respond: SendResponse<Bytes>, shared: Arc<Shared>) {
    let (parts, mut body) = request.into_parts();
    let lines = parts.headers.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()));
    let mut received = Received {
        path: parts.uri.path().to_owned(),
        authority: parts.uri.authority().map(|authority| authority.to_string()).unwrap_or_default(),
        headers: Headers(lines.collect()),
        messages: Vec::new(),
        ended: false,
        abandoned: false,
    };
    let index = {
        let mut calls = shared.calls.lock().expect("no test thread panicked");
        calls.push(received.clone());
        calls.len() - 1
    };
    let note = |received: &Received| {
        if let Some(noted) = shared.calls.lock().expect("no test thread panicked").get_mut(index) {
            noted.clone_from(received);
        }
    };
    let mut answer = Answer { respond, send: None, over: false };
    let mut held = Vec::new();
    loop {
        match body.data().await {
            Some(Ok(piece)) => {
                let _ = body.flow_control().release_capacity(piece.len());
                held.extend_from_slice(&piece);
            }
            Some(Err(_)) => {
                received.abandoned = true;
                note(&received);
                return;
            }
            None => received.ended = true,
        }
        let before = received.messages.len();
        while let Some(length) = held.get(1..5).map(|l| u32::from_be_bytes([l[0], l[1], l[2], l[3]]) as usize) {
            if held.len() < 5 + length {
                break;
            }
            received.messages.push(held[5..5 + length].to_vec());
            held.drain(..5 + length);
            note(&received);
            answer.take((shared.script)(&received));
        }
        if received.ended {
            note(&received);
            if before == 0 && received.messages.is_empty() {
                answer.take((shared.script)(&received));
            }
            break;
        }
    }
    if !answer.over {
        // A client that gives up is what some tests are about.
        answer.gone().await;
        received.abandoned = true;
        note(&received);
    }
}

/// What was said on a call so far.
struct Answer {
    respond: SendResponse<Bytes>,
    send: Option<SendStream<Bytes>>,
    over: bool,
}

impl Answer {
    fn take(&mut self, steps: Vec<Step>) {
        for step in steps {
            if self.over {
                return;
            }
            // A proxy that gave up is what some tests are about.
            let _ = self.step(step);
        }
    }

    fn step(&mut self, step: Step) -> Result<(), h2::Error> {
        match step {
            Step::Send(message) => {
                let mut bytes = vec![0];
                bytes.extend_from_slice(&(message.len() as u32).to_be_bytes());
                bytes.extend_from_slice(&message);
                self.body()?.send_data(bytes.into(), false)
            }
            Step::Raw(bytes) => self.body()?.send_data(bytes.into(), false),
            Step::End(code, message) => {
                self.over = true;
                let mut fields = HeaderMap::new();
                fields.insert("grpc-status", code.into());
                fields.insert("grpc-message", HeaderValue::from_static(message));
                match &mut self.send {
                    Some(send) => send.send_trailers(fields),
                    None => {
                        let mut head = Response::new(());
                        fields.insert("content-type", HeaderValue::from_static("application/grpc"));
                        *head.headers_mut() = fields;
                        self.respond.send_response(head, true).map(drop)
                    }
                }
            }
            Step::Http(status) => {
                self.over = true;
                let head = Response::builder().status(status).body(()).expect("a status");
                self.respond.send_response(head, true).map(drop)
            }
            Step::Reset => {
                self.over = true;
                self.respond.send_reset(Reason::INTERNAL_ERROR);
                Ok(())
            }
        }
    }

    fn body(&mut self) -> Result<&mut SendStream<Bytes>, h2::Error> {
        if self.send.is_none() {
            let head = Response::builder().header("content-type", "application/grpc").body(()).expect("a response");
            self.send = Some(self.respond.send_response(head, false)?);
        }
        Ok(self.send.as_mut().expect("it was just put there"))
    }

    async fn gone(&mut self) {
        match &mut self.send {
            Some(send) => drop(std::future::poll_fn(|cx| send.poll_reset(cx)).await),
            None => drop(std::future::poll_fn(|cx| self.respond.poll_reset(cx)).await),
        }
    }
}
