//! One direction's body: from how it arrives to how it leaves.

use postrider_h1::{BodyDecoder, BodyError, ChunkedRelay, write_chunk, write_last_chunk};
use postrider_http::{BodyFraming, Fields, HeadLimits};

use super::outbox::Outbox;
use crate::buffers::{Buffers, Input};

#[derive(Debug, Clone)]
pub(crate) enum Transfer {
    Done,
    /// The framing stays and nobody looks inside: bytes pass where they lie.
    Raw(BodyDecoder),
    /// Chunked on both sides and nobody looks inside.
    Chunks {
        relay: ChunkedRelay,
        keep_trailers: bool,
    },
    /// The framing changes, or filters see each piece.
    Pieces {
        decoder: BodyDecoder,
        chunked: bool,
        keep_trailers: bool,
    },
}

/// What a piece of body is after the filters saw it.
pub(crate) enum Seen {
    AsIs,
    Changed(Vec<u8>),
}

impl Transfer {
    pub(crate) fn new(from: BodyFraming, to: BodyFraming, filtered: bool, keep_trailers: bool) -> Transfer {
        let limits = HeadLimits::default();
        match (from, to) {
            (BodyFraming::None | BodyFraming::Length(0), BodyFraming::None | BodyFraming::Length(0)) => Transfer::Done,
            (BodyFraming::Chunked, BodyFraming::Chunked) if !filtered => {
                Transfer::Chunks { relay: ChunkedRelay::new(limits), keep_trailers }
            }
            (from, to) if from == to && from != BodyFraming::Chunked && !filtered => {
                Transfer::Raw(BodyDecoder::new(from, limits))
            }
            (from, to) => Transfer::Pieces {
                decoder: BodyDecoder::new(from, limits),
                chunked: to == BodyFraming::Chunked,
                keep_trailers,
            },
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self, Transfer::Done)
    }

    /// Moves what `input` holds of the body to `out`; answers how many bytes of body there were. `see` gets each piece
    /// when there are filters; it may stop the transfer after it by answering `None`.
    ///
    /// # Errors
    /// The body is malformed.
    pub(crate) fn step(
        &mut self,
        input: &mut Input,
        out: &mut Outbox,
        trailers: &mut Fields,
        buffers: &Buffers,
        mut see: impl FnMut(&[u8]) -> Seen,
    ) -> Result<u64, BodyError> {
        match self {
            Transfer::Done => Ok(0),
            Transfer::Raw(decoder) => {
                let decoded = decoder.decode(input.bytes(), trailers)?;
                out.pass_on(input, decoded.consumed, buffers);
                if decoded.done {
                    *self = Transfer::Done;
                }
                Ok(decoded.consumed as u64)
            }
            Transfer::Chunks { relay, keep_trailers } => {
                let relayed = relay.relay(input.bytes(), trailers, *keep_trailers, &mut out.bytes)?;
                input.consume(relayed.consumed, buffers);
                if relayed.done {
                    *self = Transfer::Done;
                }
                Ok(relayed.data)
            }
            Transfer::Pieces { decoder, chunked, keep_trailers } => {
                let (chunked, keep_trailers) = (*chunked, *keep_trailers);
                let mut data = 0;
                loop {
                    let decoded = decoder.decode(input.bytes(), trailers)?;
                    let piece = input.bytes().get(decoded.data.clone()).unwrap_or_default();
                    data += piece.len() as u64;
                    if !piece.is_empty() {
                        let seen = see(piece);
                        let piece = match &seen {
                            Seen::AsIs => piece,
                            Seen::Changed(bytes) => bytes,
                        };
                        write_piece(piece, chunked, &mut out.bytes);
                    }
                    input.consume(decoded.consumed, buffers);
                    if decoded.done {
                        *self = Transfer::Done;
                        finish(chunked, keep_trailers, trailers, &mut out.bytes);
                        return Ok(data);
                    }
                    if decoded.consumed == 0 || input.is_empty() {
                        return Ok(data);
                    }
                }
            }
        }
    }

    /// The sender closed. True end for a body that lasts until then.
    ///
    /// # Errors
    /// More was promised.
    pub(crate) fn end_of_input(&mut self, out: &mut Outbox, trailers: &mut Fields) -> Result<(), BodyError> {
        match self {
            Transfer::Done => Ok(()),
            Transfer::Raw(decoder) => {
                decoder.end_of_input()?;
                *self = Transfer::Done;
                Ok(())
            }
            Transfer::Chunks { .. } => Err(BodyError::Truncated),
            Transfer::Pieces { decoder, chunked, keep_trailers } => {
                decoder.end_of_input()?;
                finish(*chunked, *keep_trailers, trailers, &mut out.bytes);
                *self = Transfer::Done;
                Ok(())
            }
        }
    }
}

fn write_piece(piece: &[u8], chunked: bool, out: &mut Vec<u8>) {
    if chunked {
        write_chunk(piece, out);
    } else {
        out.extend_from_slice(piece);
    }
}

fn finish(chunked: bool, keep_trailers: bool, trailers: &mut Fields, out: &mut Vec<u8>) {
    if !keep_trailers {
        trailers.clear();
    }
    if chunked {
        write_last_chunk(trailers, out);
    }
}
