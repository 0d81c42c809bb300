//! A connection in the bodies of a POST and its answer: what the client sends goes out as the one, what the endpoint sends comes
//! back as the other.
//!
//! The answer may end before the request does, and the other way round: each side ends its own direction.

use std::task::{Context as TaskContext, Poll, ready};

use postrider_h1::{BodyDecoder, write_chunk, write_last_chunk};
use postrider_http::{BodyFraming, Fields, HeadLimits};

use super::relay::{Ended, Side};
use crate::buffers::{Buffers, Input};
use crate::io::Io;

pub(super) struct Post {
    /// The connection does not frame what is sent on it: bodies are sent in chunks.
    chunked: bool,
    /// Chunks on their way, and how much of them went.
    out: Vec<u8>,
    sent: usize,
    decoder: BodyDecoder,
    /// Bytes of the endpoint that what was received begins with, and what of the framing follows them.
    data: usize,
    framing: usize,
    trailers: Fields,
}

impl Post {
    /// `answer` is how its body is framed, `limits` are those of its trailers. `framed`: the connection needs chunks.
    pub(super) fn new(answer: BodyFraming, limits: HeadLimits, chunked: bool) -> Post {
        Post {
            chunked,
            out: Vec::new(),
            sent: 0,
            decoder: BodyDecoder::new(answer, limits),
            data: 0,
            framing: 0,
            trailers: Fields::new(),
        }
    }

    /// The trailers of the answer; none before all of it came.
    pub(super) fn trailers(self) -> Fields {
        if self.decoder.is_done() { self.trailers } else { Fields::new() }
    }

    /// Moves what the client sends as far as it goes; answers whether anything moved and how many bytes of the client that was.
    pub(super) fn upload(
        &mut self,
        cx: &mut TaskContext<'_>,
        limit: usize,
        client: &mut Io,
        input: &mut Input,
        upstream: &mut Io,
        ended: &mut Ended,
        buffers: &Buffers,
    ) -> Result<(bool, usize), Side> {
        let (mut moved, mut sent) = (false, 0);
        loop {
            if self.poll_flush(cx, upstream)?.is_pending() {
                return Ok((moved, sent));
            }
            let count = input.bytes().len();
            if count > 0 {
                let taken = match self.chunked {
                    true => {
                        write_chunk(input.bytes(), &mut self.out);
                        count
                    }
                    false => match upstream.poll_write(cx, input.bytes()) {
                        Poll::Ready(Ok(taken @ 1..)) => taken,
                        Poll::Ready(_) => return Err(Side::Sink),
                        Poll::Pending => return Ok((moved, sent)),
                    },
                };
                input.consume(taken, buffers);
                moved = true;
                sent += taken;
                continue;
            }
            match *ended {
                Ended::Told => return Ok((moved, sent)),
                Ended::Received => {
                    *ended = Ended::Told;
                    moved = true;
                    match upstream {
                        Io::Http2(stream) => stream.finish(&Fields::new()),
                        Io::Plain(_) | Io::Tls(_) => write_last_chunk(&Fields::new(), &mut self.out),
                    }
                }
                Ended::Open => match input.poll_fill(cx, client, limit, buffers) {
                    Poll::Ready(Ok(0)) => {
                        *ended = Ended::Received;
                        moved = true;
                    }
                    Poll::Ready(Ok(_)) => moved = true,
                    Poll::Ready(Err(_)) => return Err(Side::Source),
                    Poll::Pending => return Ok((moved, sent)),
                },
            }
        }
    }

    /// Sends the chunks that are on their way.
    fn poll_flush(&mut self, cx: &mut TaskContext<'_>, upstream: &mut Io) -> Result<Poll<()>, Side> {
        while let Some(rest) = self.out.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match upstream.poll_write(cx, rest) {
                Poll::Ready(Ok(count @ 1..)) => self.sent += count,
                Poll::Ready(_) => return Err(Side::Sink),
                Poll::Pending => return Ok(Poll::Pending),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(Poll::Ready(()))
    }

    /// The same for what the endpoint sends.
    pub(super) fn download(
        &mut self,
        cx: &mut TaskContext<'_>,
        limit: usize,
        upstream: &mut Io,
        input: &mut Input,
        client: &mut Io,
        ended: &mut Ended,
        buffers: &Buffers,
    ) -> Result<(bool, usize), Side> {
        let (mut moved, mut sent) = (false, 0);
        loop {
            if let Some(bytes) = input.bytes().get(..self.data).filter(|bytes| !bytes.is_empty()) {
                match client.poll_write(cx, bytes) {
                    Poll::Ready(Ok(count @ 1..)) => {
                        self.data -= count.min(self.data);
                        let framing = if self.data == 0 { std::mem::take(&mut self.framing) } else { 0 };
                        input.consume(count + framing, buffers);
                        moved = true;
                        sent += count;
                        continue;
                    }
                    Poll::Ready(_) => return Err(Side::Sink),
                    Poll::Pending => return Ok((moved, sent)),
                }
            }
            match *ended {
                Ended::Told => return Ok((moved, sent)),
                Ended::Received => match client.poll_finish(cx) {
                    // A peer that is gone already needs not be told.
                    Poll::Ready(_) => {
                        *ended = Ended::Told;
                        return Ok((true, sent));
                    }
                    Poll::Pending => return Ok((moved, sent)),
                },
                Ended::Open => match self.poll_body(cx, limit, upstream, input, buffers) {
                    Poll::Ready(Ok(true)) => moved = true,
                    Poll::Ready(Ok(false)) => {
                        *ended = Ended::Received;
                        moved = true;
                    }
                    Poll::Ready(Err(())) => return Err(Side::Source),
                    Poll::Pending => return Ok((moved, sent)),
                },
            }
        }
    }

    /// Reads on in the answer's body; `false` at its end. The error is that it broke off, or is none.
    fn poll_body(
        &mut self,
        cx: &mut TaskContext<'_>,
        limit: usize,
        upstream: &mut Io,
        input: &mut Input,
        buffers: &Buffers,
    ) -> Poll<Result<bool, ()>> {
        if self.decoder.is_done() {
            return Poll::Ready(Ok(false));
        }
        if !input.is_empty() {
            let decoded = self.decoder.decode(input.bytes(), &mut self.trailers).map_err(drop)?;
            self.data = decoded.data.len();
            self.framing = decoded.consumed.saturating_sub(decoded.data.end);
            let ahead = if self.data == 0 { decoded.consumed } else { decoded.data.start };
            input.consume(ahead, buffers);
            if decoded.consumed > 0 {
                return Poll::Ready(Ok(true));
            }
        }
        match ready!(input.poll_fill(cx, upstream, limit, buffers)) {
            Ok(1..) => Poll::Ready(Ok(true)),
            Ok(0) => Poll::Ready(self.decoder.end_of_input().map(|()| false).map_err(drop)),
            Err(_) => Poll::Ready(Err(())),
        }
    }
}
