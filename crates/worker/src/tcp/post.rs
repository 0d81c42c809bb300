//! A connection in the bodies of a POST and its answer: what the client sends goes out as the one, what the endpoint sends comes
//! back as the other.
//!
//! The answer may end before the request does, and the other way round: each side ends its own direction.

use std::io::{self, ErrorKind};
use std::task::{Context as TaskContext, Poll, ready};

use postrider_h1::{BodyDecoder, write_chunk, write_last_chunk};
use postrider_http::{BodyFraming, Fields, HeadLimits};

use super::relay::{Carriage, Direction, Plain, poll_write};
use crate::io::Io;

pub(super) struct Post {
    pub(super) request: RequestBody,
    pub(super) answer: AnswerBody,
}

/// What the client sends.
pub(super) struct RequestBody {
    /// The connection does not frame what is sent on it: bodies are sent in chunks.
    chunked: bool,
    /// Chunks on their way, and how much of them went.
    out: Vec<u8>,
    sent: usize,
}

/// What the endpoint sends.
pub(super) struct AnswerBody {
    decoder: BodyDecoder,
    /// Bytes of the endpoint that what was received begins with, and what of the framing follows them.
    data: usize,
    framing: usize,
    trailers: Fields,
}

impl Post {
    /// `answer` is how its body is framed, `limits` are those of its trailers. `framed`: the connection needs chunks.
    pub(super) fn new(answer: BodyFraming, limits: HeadLimits, chunked: bool) -> Post {
        let decoder = BodyDecoder::new(answer, limits);
        Post {
            request: RequestBody { chunked, out: Vec::new(), sent: 0 },
            answer: AnswerBody { decoder, data: 0, framing: 0, trailers: Fields::new() },
        }
    }

    /// The trailers of the answer; none before all of it came.
    pub(super) fn trailers(self) -> Fields {
        if self.answer.decoder.is_done() { self.answer.trailers } else { Fields::new() }
    }
}

impl Carriage for RequestBody {
    fn poll_send(&mut self, way: &mut Direction<'_>, cx: &mut TaskContext<'_>) -> Poll<io::Result<usize>> {
        ready!(self.poll_flush(way.sink, cx))?;
        if !self.chunked {
            return Plain.poll_send(way, cx);
        }
        let count = way.input.bytes().len();
        if count > 0 {
            write_chunk(way.input.bytes(), &mut self.out);
            way.input.consume(count, way.buffers);
        }
        Poll::Ready(Ok(count))
    }

    fn poll_end(&mut self, way: &mut Direction<'_>, _: &mut TaskContext<'_>) -> Poll<()> {
        match way.sink {
            Io::Http2(stream) => stream.finish(&Fields::new()),
            Io::Plain(_) | Io::Tls(_) | Io::Filtered(_) | Io::Bridged(_) => {
                write_last_chunk(&Fields::new(), &mut self.out)
            }
        }
        Poll::Ready(())
    }
}

impl RequestBody {
    /// Sends the chunks that are on their way.
    fn poll_flush(&mut self, sink: &mut Io, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.out.get(self.sent..).filter(|rest| !rest.is_empty()) {
            self.sent += ready!(poll_write(sink, rest, cx))?;
        }
        self.out.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }
}

impl Carriage for AnswerBody {
    fn poll_send(&mut self, way: &mut Direction<'_>, cx: &mut TaskContext<'_>) -> Poll<io::Result<usize>> {
        let Some(bytes) = way.input.bytes().get(..self.data).filter(|bytes| !bytes.is_empty()) else {
            return Poll::Ready(Ok(0));
        };
        let count = ready!(poll_write(way.sink, bytes, cx))?;
        self.data -= count.min(self.data);
        let framing = if self.data == 0 { std::mem::take(&mut self.framing) } else { 0 };
        way.input.consume(count + framing, way.buffers);
        Poll::Ready(Ok(count))
    }

    /// An error is that the body broke off, or is none.
    fn poll_receive(&mut self, way: &mut Direction<'_>, cx: &mut TaskContext<'_>) -> Poll<io::Result<bool>> {
        if self.decoder.is_done() {
            return Poll::Ready(Ok(false));
        }
        let broken = || io::Error::from(ErrorKind::InvalidData);
        if !way.input.is_empty() {
            let decoded = self.decoder.decode(way.input.bytes(), &mut self.trailers).map_err(|_| broken())?;
            self.data = decoded.data.len();
            self.framing = decoded.consumed.saturating_sub(decoded.data.end);
            let ahead = if self.data == 0 { decoded.consumed } else { decoded.data.start };
            way.input.consume(ahead, way.buffers);
            if decoded.consumed > 0 {
                return Poll::Ready(Ok(true));
            }
        }
        match ready!(way.input.poll_fill(cx, way.source, way.limit, way.buffers))? {
            0 => Poll::Ready(self.decoder.end_of_input().map(|()| false).map_err(|_| broken())),
            _ => Poll::Ready(Ok(true)),
        }
    }
}
