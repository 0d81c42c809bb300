//! A client of HTTP/2 that keeps to the rules, on the `h2` crate. The connection is driven on a thread of its own, so
//! that a test reads from top to bottom; what the test does not ask for is not taken off the wire's windows.

use crate::kit::{DEADLINE, wait_until};
use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use std::future::Future;
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;

/// One connection.
pub struct H2Client {
    runtime: tokio::runtime::Runtime,
    send: SendRequest<Bytes>,
    driver: JoinHandle<Result<(), h2::Error>>,
    local: SocketAddr,
}

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    pub trailers: HeaderMap,
}

impl Answer {
    /// The first value of a field, or the empty string.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("ASCII"))
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("UTF-8")
    }
}

/// A request that is on its way.
pub struct Exchange {
    pub body: SendStream<Bytes>,
    response: ResponseFuture,
}

impl H2Client {
    pub fn connect(address: SocketAddr) -> Self {
        Self::with(address, h2::client::Builder::new())
    }

    /// With windows and limits of the test's own.
    pub fn with(address: SocketAddr, mut builder: h2::client::Builder) -> Self {
        builder.enable_push(false);
        let stream = TcpStream::connect_timeout(&address, DEADLINE).expect("connect");
        let local = stream.local_addr().expect("local address");
        stream.set_nodelay(true).expect("TCP_NODELAY");
        stream.set_nonblocking(true).expect("O_NONBLOCK");
        let runtime = runtime();
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        let driver = std::thread::spawn(move || {
            self::runtime().block_on(async {
                let stream = tokio::net::TcpStream::from_std(stream).expect("a socket");
                let (send, connection) = builder.handshake(stream).await?;
                sender.send(send).expect("a test that waits");
                connection.await
            })
        });
        let send = receiver.recv_timeout(DEADLINE).expect("an HTTP/2 connection");
        Self { runtime, send, driver, local }
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Runs to its end what a part of this connection gives; panics when that takes too long.
    pub fn wait<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime.block_on(async { tokio::time::timeout(DEADLINE, what).await }).expect("in time")
    }

    /// Sends the head; `ended` says that there is no body.
    pub fn start(&mut self, request: Request<()>, ended: bool) -> Exchange {
        self.try_start(request, ended).expect("a stream")
    }

    pub fn try_start(&mut self, request: Request<()>, ended: bool) -> Result<Exchange, h2::Error> {
        let send = self.send.clone();
        self.send = self.wait(send.ready())?;
        let (response, body) = self.send.send_request(request, ended)?;
        Ok(Exchange { body, response })
    }

    /// The head of the answer.
    pub fn head(&self, exchange: Exchange) -> Result<Response<RecvStream>, h2::Error> {
        self.wait(exchange.response)
    }

    /// The head of the answer to a request whose own side stays open.
    pub fn start_tunnel(&mut self, request: Request<()>) -> (Response<RecvStream>, SendStream<Bytes>) {
        let Exchange { body, response } = self.start(request, false);
        (self.wait(response).expect("an answer"), body)
    }

    /// The whole answer.
    pub fn answer(&self, exchange: Exchange) -> Result<Answer, h2::Error> {
        let response = self.head(exchange)?;
        let (parts, mut recv) = response.into_parts();
        let mut body = Vec::new();
        while let Some(piece) = self.wait(recv.data()) {
            let piece = piece?;
            body.extend_from_slice(&piece);
            recv.flow_control().release_capacity(piece.len())?;
        }
        let trailers = self.wait(recv.trailers())?.unwrap_or_default();
        Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, body, trailers })
    }

    /// One exchange from beginning to end.
    pub fn exchange(&mut self, request: Request<()>, body: &[u8]) -> Answer {
        self.try_exchange(request, body).expect("an answer")
    }

    pub fn try_exchange(&mut self, request: Request<()>, body: &[u8]) -> Result<Answer, h2::Error> {
        let mut exchange = self.try_start(request, body.is_empty())?;
        let sent = if body.is_empty() { Ok(()) } else { self.send_all(&mut exchange.body, body, true) };
        // An answer may be complete before its request is, the rest of which nobody wants (RFC 9113, section 8.1).
        let answer = self.answer(exchange);
        if answer.is_ok() { answer } else { sent.and(answer) }
    }

    pub fn get(&mut self, path: &str) -> Answer {
        self.exchange(get(path), b"")
    }

    /// Sends as the windows allow.
    pub fn send_all(&self, to: &mut SendStream<Bytes>, mut bytes: &[u8], ended: bool) -> Result<(), h2::Error> {
        while !bytes.is_empty() {
            to.reserve_capacity(bytes.len());
            let room = self.wait(std::future::poll_fn(|cx| to.poll_capacity(cx)));
            let room = room.unwrap_or(Err(Reason::STREAM_CLOSED.into()))?.min(bytes.len());
            let (now, later) = bytes.split_at(room);
            to.send_data(Bytes::copy_from_slice(now), ended && later.is_empty())?;
            bytes = later;
        }
        Ok(())
    }

    /// Waits until the peer has ended the connection, and tells how.
    pub fn ended(self) -> Result<(), h2::Error> {
        wait_until("the connection ends", || self.driver.is_finished());
        self.driver.join().expect("the driver")
    }
}

pub fn request(method: &str, path: &str) -> http::request::Builder {
    Request::builder().method(method).uri(format!("http://test{path}"))
}

pub fn get(path: &str) -> Request<()> {
    request("GET", path).body(()).expect("a request")
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}
