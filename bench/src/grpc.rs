//! gRPC as the bench needs it: a framed message, and an upstream that sends each message back.
//!
//! The upstream speaks HTTP/2 in clear text with prior knowledge and runs as a process of its own (`serve-grpc`).

use std::io;
use std::net::{Ipv4Addr, TcpListener};

use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use h2::server::SendResponse;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use tokio::net::TcpStream;

/// The method that is called.
pub const PATH: &str = "/bench.Echo/Unary";
/// The fields of a call.
pub const HEADERS: &[&str] = &["content-type: application/grpc", "te: trailers"];
/// The trailer with the outcome, and its values for success and for a message that cannot be read.
pub const STATUS: &str = "grpc-status";
pub const OK: &str = "0";
const INTERNAL: &str = "13";

/// One byte for compression and four for the length stand before a message.
const PREFIX: usize = 5;

/// Bytes on the wire of a message.
pub const fn framed(message: usize) -> usize {
    PREFIX + message
}

/// A message of so many bytes, uncompressed, with its prefix.
pub fn frame(message: usize) -> Vec<u8> {
    let mut bytes = vec![0];
    bytes.extend_from_slice(&(message as u32).to_be_bytes());
    bytes.resize(framed(message), b'm');
    bytes
}

/// Whether it is one whole uncompressed message.
fn is_message(bytes: &[u8]) -> bool {
    matches!(bytes.split_first_chunk::<PREFIX>(),
        Some(([0, length @ ..], message)) if u32::from_be_bytes(*length) as usize == message.len())
}

/// What serves the calls.
pub struct Origin {
    listener: TcpListener,
}

impl Origin {
    /// Listens on a free loopback port.
    pub fn open() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener })
    }

    pub fn port(&self) -> io::Result<u16> {
        Ok(self.listener.local_addr()?.port())
    }

    /// Serves until the process ends, in this thread alone: it shares a CPU with the load generator.
    pub fn serve(self) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(self.listener)?;
            loop {
                let (socket, _) = listener.accept().await?;
                socket.set_nodelay(true)?;
                // A connection that breaks is the proxy's affair.
                tokio::spawn(serve_connection(socket));
            }
        })
    }
}

async fn serve_connection(socket: TcpStream) -> Result<(), h2::Error> {
    let mut connection = h2::server::handshake(socket).await?;
    while let Some(accepted) = connection.accept().await {
        let (request, respond) = accepted?;
        tokio::spawn(answer(request, respond));
    }
    Ok(())
}

async fn answer(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) -> Result<(), h2::Error> {
    let mut body = request.into_body();
    let mut received = Bytes::new();
    while let Some(piece) = body.data().await {
        let piece = piece?;
        body.flow_control().release_capacity(piece.len())?;
        received = joined(received, piece);
    }
    let status = if is_message(&received) { OK } else { INTERNAL };
    let mut head = Response::new(());
    head.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    let mut stream = respond.send_response(head, false)?;
    if !received.is_empty() {
        stream.send_data(received, false)?;
    }
    let mut trailers = HeaderMap::new();
    trailers.insert(HeaderName::from_static(STATUS), HeaderValue::from_static(status));
    stream.send_trailers(trailers)
}

/// A message mostly comes in one piece, which is not copied.
fn joined(front: Bytes, back: Bytes) -> Bytes {
    match (front.is_empty(), back.is_empty()) {
        (true, _) => back,
        (false, true) => front,
        (false, false) => {
            let mut both = BytesMut::from(front);
            both.extend_from_slice(&back);
            both.freeze()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_a_message_and_a_cut_one_is_not() {
        let bytes = frame(100);
        assert_eq!((bytes.len(), framed(100)), (105, 105));
        assert!(is_message(&bytes));
        for cut in 0..bytes.len() {
            assert!(!is_message(&bytes[..cut]), "cut at {cut}");
        }
        let mut compressed = bytes;
        compressed[0] = 1;
        assert!(!is_message(&compressed));
    }

    #[test]
    fn pieces_are_joined_in_order() {
        let [one, two] = ["one", "two"].map(Bytes::from);
        assert_eq!(joined(joined(Bytes::new(), one), joined(two, Bytes::new())), "onetwo");
    }
}
