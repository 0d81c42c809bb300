//! The response's side of a transcoded stream: frames of gRPC in, JSON or plain bytes out.

use postrider_http::grpc;
use prost_reflect::DynamicMessage;

use super::Failure;
use super::print::{Print, is_too_deep};
use super::schema::{Method, Rule};

/// How much longer than its message a text may be: names of fields make the difference, and defaults that are printed.
const MAX_GROWTH: usize = 16;

/// A part of an answer, as a client gets it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) body: Vec<u8>,
    /// What the first `HttpBody` says of its type.
    pub(super) content_type: Option<String>,
}

/// What came of a response's body and was not made text yet.
#[derive(Debug, Default)]
pub(super) struct Response {
    held: Vec<u8>,
    /// Messages that were made text.
    messages: u64,
    /// Some of the body came.
    pub(super) has_body: bool,
}

impl Response {
    /// The next piece of a body.
    ///
    /// # Errors
    /// It is no gRPC, or too much of it.
    pub(super) fn feed(&mut self, rule: &Rule, piece: &[u8], print: &Print, limit: usize) -> Result<Part, Failure> {
        self.has_body |= !piece.is_empty();
        let mut part = Part::default();
        if !rule.method.server_streaming {
            if piece.len() > limit.saturating_add(grpc::PREFIX_BYTES).saturating_sub(self.held.len()) {
                return Err(Failure::response_too_large());
            }
            self.held.extend_from_slice(piece);
            return Ok(part);
        }
        self.held.extend_from_slice(piece);
        let held = std::mem::take(&mut self.held);
        let mut rest = held.as_slice();
        while let Some((message, length)) = frame(rest, limit)? {
            self.message(rule, message, print, limit, &mut part)?;
            rest = rest.get(length..).unwrap_or_default();
        }
        self.held = rest.to_vec();
        Ok(part)
    }

    /// What is left to say when the body has ended.
    ///
    /// # Errors
    /// The body ended within a message, or is none.
    pub(super) fn finish(&mut self, rule: &Rule, print: &Print, limit: usize) -> Result<Part, Failure> {
        let held = std::mem::take(&mut self.held);
        let mut part = Part::default();
        if !held.is_empty() {
            // Of an answer that is one message the first one counts.
            match frame(&held, limit)? {
                Some((message, _)) => self.message(rule, message, print, limit, &mut part)?,
                None => return Err(incomplete(&held)),
            }
        }
        if is_array(rule, print) {
            part.body.extend_from_slice(if self.messages == 0 { b"[]" } else { b"]" });
        }
        Ok(part)
    }

    fn message(
        &mut self,
        rule: &Rule,
        message: &[u8],
        print: &Print,
        limit: usize,
        part: &mut Part,
    ) -> Result<(), Failure> {
        let message = decode(&rule.method, message)?;
        let first = self.messages == 0;
        self.messages += 1;
        if rule.response_is_raw {
            return raw(rule, &message, first, part);
        }
        let out = &mut part.body;
        if is_array(rule, print) {
            out.push(if first { b'[' } else { b',' });
        }
        let streaming = rule.method.server_streaming;
        let is_event = streaming && print.server_sent_events;
        if is_event {
            out.extend_from_slice(b"data: ");
        }
        let limit = limit.saturating_mul(MAX_GROWTH);
        print.write(&message, rule.response.as_ref(), limit, is_event, out).map_err(Failure::response)?;
        if is_event {
            out.extend_from_slice(b"\n\n");
        } else if streaming && print.newline_delimited {
            out.push(b'\n');
        }
        Ok(())
    }
}

fn is_array(rule: &Rule, print: &Print) -> bool {
    rule.method.server_streaming && !rule.response_is_raw && !print.server_sent_events && !print.newline_delimited
}

fn frame(bytes: &[u8], limit: usize) -> Result<Option<(&[u8], usize)>, Failure> {
    let limit = u32::try_from(limit).unwrap_or(u32::MAX);
    let flags = |flags: u8| Failure::response(format!("Unsupported gRPC frame flag: {flags}"));
    match grpc::first_frame(bytes, limit) {
        Ok(Some((frame, _))) if frame.flags != 0 => Err(flags(frame.flags)),
        Ok(found) => Ok(found.map(|(frame, length)| (frame.message, length))),
        Err(grpc::FrameError::Flags(found)) => Err(flags(found)),
        Err(grpc::FrameError::TooLong(_)) => Err(Failure::response_too_large()),
    }
}

fn incomplete(held: &[u8]) -> Failure {
    let actual = held.len().saturating_sub(grpc::PREFIX_BYTES);
    Failure::response(match grpc::Prefix::parse(held) {
        Some(prefix) => format!("Incomplete gRPC frame expected size: {} actual size: {actual}", prefix.length),
        None => format!("Incomplete gRPC frame header of {} bytes", held.len()),
    })
}

fn decode(method: &Method, message: &[u8]) -> Result<DynamicMessage, Failure> {
    let decoded = DynamicMessage::decode(method.output.clone(), message);
    let decoded = decoded.map_err(|error| Failure::response(format!("the upstream's message is broken: {error}")))?;
    if method.answers_any && is_too_deep(&decoded) {
        return Err(Failure::response("the upstream's message is too deep".to_owned()));
    }
    Ok(decoded)
}

fn raw(rule: &Rule, message: &DynamicMessage, first: bool, part: &mut Part) -> Result<(), Failure> {
    let inner = rule.response.as_ref().map(|field| message.get_field(field).into_owned());
    let body = match &inner {
        None => message,
        Some(inner) => {
            inner.as_message().ok_or_else(|| Failure::response("the upstream's message has no body".to_owned()))?
        }
    };
    if let Some(data) = body.get_field_by_name("data")
        && let Some(bytes) = data.as_bytes()
    {
        part.body.extend_from_slice(bytes);
    }
    if first {
        let kind = body.get_field_by_name("content_type");
        part.content_type = kind.and_then(|kind| kind.as_str().map(str::to_owned));
    }
    Ok(())
}
