//! One request of a check and its answer, on a connection of its own.

use std::future::poll_fn;
use std::io;

use postrider_h1::{BodyDecoder, HeadScan, ResponseParse, parse_response};
use postrider_http::{
    Asked, BodyFraming, Connection as Persistence, Fields, HeadLimits, RequestHead, RequestWrite, ResponseHead,
    ResponseRules, write_request,
};

use crate::buffers::{Buffers, Input};
use crate::io::Io;

/// The most of an answer's body that is kept, whatever is to be looked at.
const MAX_KEPT: usize = 1 << 20;

/// Bytes that one read may bring.
const READ: usize = 64 * 1024;

pub(super) struct Answer {
    pub(super) head: ResponseHead,
    /// Its beginning.
    pub(super) body: Vec<u8>,
    pub(super) trailers: Fields,
    /// The connection can carry another request.
    pub(super) persistent: bool,
}

/// What is asked, and how much of the answer is wanted.
pub(super) struct Question<'q> {
    pub(super) head: &'q RequestHead,
    pub(super) body: &'q [u8],
    pub(super) framing: BodyFraming,
    /// Bytes of the answer's body.
    pub(super) keep: usize,
    /// Whether more than this head is wanted of an answer.
    pub(super) goes_on: fn(&ResponseHead) -> bool,
}

/// Asks, and reads the answer.
///
/// # Errors
/// The connection broke, or the answer is no HTTP.
pub(super) async fn ask(
    io: &mut Io,
    question: &Question<'_>,
    limits: HeadLimits,
    buffers: &Buffers,
) -> io::Result<Answer> {
    let Question { head, body, framing, .. } = *question;
    let mut out = Vec::new();
    match io {
        Io::Http2(stream) => stream.send_request(head, framing, false)?,
        Io::Plain(_) | Io::Tls(_) | Io::Filtered(_) | Io::Bridged(_) => {
            let options = RequestWrite { framing, connection: Persistence::Implicit, absolute: None, extra: &[] };
            write_request(head, &options, &mut out);
        }
    }
    out.extend_from_slice(body);
    send(io, &out).await?;
    if let (Io::Http2(stream), BodyFraming::Chunked) = (&mut *io, framing) {
        stream.finish(&Fields::new());
    }
    let mut input = Input::default();
    let answer = read(io, &mut input, question, limits, buffers).await;
    let rest = !input.is_empty();
    input.release(buffers);
    answer.map(|answer| Answer { persistent: answer.persistent && !rest, ..answer })
}

pub(super) async fn send(io: &mut Io, mut out: &[u8]) -> io::Result<()> {
    while !out.is_empty() {
        let count = poll_fn(|cx| io.poll_write(cx, out)).await?;
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        out = out.get(count..).unwrap_or_default();
    }
    Ok(())
}

async fn read(
    io: &mut Io,
    input: &mut Input,
    question: &Question<'_>,
    limits: HeadLimits,
    buffers: &Buffers,
) -> io::Result<Answer> {
    let keep = question.keep.min(MAX_KEPT);
    let (mut scan, mut head) = (HeadScan::new(), ResponseHead::new());
    let asked = Asked { method: question.head.method(), upgrade: false };
    let rules = ResponseRules { limits };
    let facts = loop {
        if !input.is_empty() {
            match parse_response(input.bytes(), asked, &rules, &mut scan, &mut head) {
                ResponseParse::Complete { consumed, facts } => {
                    input.consume(consumed, buffers);
                    if facts.tunnel {
                        return Err(io::ErrorKind::InvalidData.into());
                    }
                    if !facts.interim {
                        break facts;
                    }
                    scan.reset();
                    continue;
                }
                ResponseParse::Reject(_) => return Err(io::ErrorKind::InvalidData.into()),
                ResponseParse::Partial => {}
            }
        }
        if poll_fn(|cx| input.poll_fill(cx, io, READ, buffers)).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    };
    let mut answer = Answer { head, body: Vec::new(), trailers: Fields::new(), persistent: facts.persistent };
    if !facts.framing.has_body() {
        return Ok(answer);
    }
    if !(question.goes_on)(&answer.head) {
        return Ok(Answer { persistent: false, ..answer });
    }
    let mut decoder = BodyDecoder::new(facts.framing, limits);
    loop {
        if !input.is_empty() {
            let decoded = decoder.decode(input.bytes(), &mut answer.trailers);
            let decoded = decoded.map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
            let piece = input.bytes().get(decoded.data.clone()).unwrap_or_default();
            let room = keep.saturating_sub(answer.body.len()).min(piece.len());
            answer.body.extend_from_slice(piece.get(..room).unwrap_or_default());
            input.consume(decoded.consumed, buffers);
            if decoded.done {
                return Ok(answer);
            }
            if decoded.consumed > 0 {
                continue;
            }
        }
        if poll_fn(|cx| input.poll_fill(cx, io, READ, buffers)).await? == 0 {
            // True end of a body that lasts until then.
            return match decoder.end_of_input() {
                Ok(()) => Ok(answer),
                Err(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            };
        }
    }
}
