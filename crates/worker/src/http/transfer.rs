//! One direction's body: from how it arrives to how it leaves.

use postrider_filter_api::Body;
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
    /// The framing changes.
    Pieces {
        decoder: BodyDecoder,
        chunked: bool,
        keep_trailers: bool,
    },
    /// Filters see the body: it is read piece by piece, and done when the last one left.
    Filtered {
        decoder: BodyDecoder,
        chunked: bool,
        keep_trailers: bool,
        /// Those that are kept leave a chunked body, too.
        chunk_trailers: bool,
        /// What the head promises that still has to leave.
        promised: Option<u64>,
    },
}

/// Filters let more or less of a body pass than the head promised.
#[derive(Debug)]
pub(crate) struct LengthDiffers;

/// What was read of a body that filters see.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Read {
    pub(crate) bytes: usize,
    /// All of the body is read, its trailers included.
    pub(crate) ended: bool,
}

impl Transfer {
    /// `limits` are those of the message's head, which its trailers have, too.
    #[inline]
    pub(crate) fn new(
        from: BodyFraming,
        to: BodyFraming,
        keep_trailers: bool,
        limits: impl FnOnce() -> HeadLimits,
    ) -> Transfer {
        match (from, to) {
            (BodyFraming::None | BodyFraming::Length(0), BodyFraming::None | BodyFraming::Length(0)) => Transfer::Done,
            (BodyFraming::Chunked, BodyFraming::Chunked) => {
                Transfer::Chunks { relay: ChunkedRelay::new(of_trailers(keep_trailers, limits)), keep_trailers }
            }
            (from, to) if from == to && !matches!(from, BodyFraming::Counted(_)) => Transfer::raw(from),
            (from, to) => Transfer::Pieces {
                decoder: BodyDecoder::new(from, of_trailers(keep_trailers, limits)),
                chunked: to == BodyFraming::Chunked,
                keep_trailers,
            },
        }
    }

    /// A body without chunks that stays as it is.
    pub(crate) fn raw(framing: BodyFraming) -> Transfer {
        // It has no trailers that could have limits.
        Transfer::Raw(BodyDecoder::new(framing, HeadLimits::default()))
    }

    /// A body that filters see; how it leaves is known later.
    pub(crate) fn filtered(from: BodyFraming, keep_trailers: bool, limits: impl FnOnce() -> HeadLimits) -> Transfer {
        let decoder = BodyDecoder::new(from, of_trailers(keep_trailers, limits));
        Transfer::Filtered { decoder, chunked: false, keep_trailers, chunk_trailers: true, promised: None }
    }

    /// The same, but where it leaves in chunks its trailers are for the filters alone.
    pub(crate) fn without_trailers_in_chunks(mut self) -> Transfer {
        if let Transfer::Filtered { chunk_trailers, .. } = &mut self {
            *chunk_trailers = false;
        }
        self
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self, Transfer::Done)
    }

    /// Nothing more is to be read of the body, whether or not all of it left.
    pub(crate) fn is_heard(&self) -> bool {
        match self {
            Transfer::Done => true,
            Transfer::Filtered { decoder, .. } => decoder.is_done(),
            Transfer::Raw(_) | Transfer::Chunks { .. } | Transfer::Pieces { .. } => false,
        }
    }

    /// The body leaves on a stream that says itself where it ends, whatever it came as.
    #[cold]
    pub(crate) fn leave_plain(&mut self) {
        match self {
            Transfer::Filtered { chunked, promised, .. } => (*chunked, *promised) = (false, None),
            Transfer::Done => {}
            Transfer::Raw(decoder) => {
                *self = Transfer::Pieces { decoder: decoder.clone(), chunked: false, keep_trailers: true };
            }
            Transfer::Chunks { relay, .. } => {
                *self = Transfer::Pieces { decoder: relay.decoder(), chunked: false, keep_trailers: true };
            }
            Transfer::Pieces { chunked, keep_trailers, .. } => (*chunked, *keep_trailers) = (false, true),
        }
    }

    /// For a body that filters see: how it leaves.
    pub(crate) fn leave_as(&mut self, to: BodyFraming) {
        if let Transfer::Filtered { chunked, promised, .. } = self {
            *chunked = to == BodyFraming::Chunked;
            *promised = to.length();
        }
    }

    /// So much of a body that filters see is about to leave.
    ///
    /// # Errors
    /// It is more than the head promised.
    pub(crate) fn admit(&mut self, count: usize) -> Result<(), LengthDiffers> {
        if let Transfer::Filtered { promised: Some(promised), .. } = self {
            *promised = promised.checked_sub(count as u64).ok_or(LengthDiffers)?;
        }
        Ok(())
    }

    /// Nothing more of such a body is to leave.
    ///
    /// # Errors
    /// The head promised more.
    pub(crate) fn check_end(&self) -> Result<(), LengthDiffers> {
        match self {
            Transfer::Filtered { promised: Some(1..), .. } => Err(LengthDiffers),
            _ => Ok(()),
        }
    }

    /// Reads what `input` holds of a body that filters see. `hears_trailers`: they see its trailers too, whether or not
    /// those leave.
    ///
    /// # Errors
    /// The body is malformed.
    pub(crate) fn read(
        &mut self,
        input: &mut Input,
        into: &mut Body,
        trailers: &mut Fields,
        buffers: &Buffers,
        hears_trailers: bool,
    ) -> Result<Read, BodyError> {
        let Transfer::Filtered { decoder, keep_trailers, .. } = self else { return Ok(Read { bytes: 0, ended: true }) };
        let mut bytes = 0;
        loop {
            let decoded = decoder.decode(input.bytes(), trailers)?;
            let piece = input.bytes().get(decoded.data.clone()).unwrap_or_default();
            into.push(piece);
            bytes += piece.len();
            input.consume(decoded.consumed, buffers);
            if decoded.done && !*keep_trailers && !hears_trailers {
                trailers.clear();
            }
            if decoded.done || decoded.consumed == 0 || input.is_empty() {
                return Ok(Read { bytes, ended: decoder.is_done() });
            }
        }
    }

    /// Puts a piece that passed the filters where it is sent from.
    pub(crate) fn write(&self, piece: &[u8], out: &mut Outbox) {
        if let Transfer::Filtered { chunked, .. } = self {
            write_piece(piece, *chunked, &mut out.bytes);
        }
    }

    /// The last piece and the trailers passed the filters.
    pub(crate) fn finish(&mut self, trailers: &mut Fields, out: &mut Outbox) {
        if let Transfer::Filtered { chunked, keep_trailers, chunk_trailers, .. } = self {
            finish(*chunked, *keep_trailers && (*chunk_trailers || !*chunked), trailers, &mut out.bytes);
        }
        *self = Transfer::Done;
    }

    /// Reads what `input` holds of the body and forgets it; answers how many bytes of body there were.
    ///
    /// # Errors
    /// The body is malformed.
    pub(crate) fn swallow(
        &mut self,
        input: &mut Input,
        out: &mut Outbox,
        trailers: &mut Fields,
        buffers: &Buffers,
    ) -> Result<u64, BodyError> {
        let moved = match self {
            Transfer::Filtered { .. } => {
                let read = self.read(input, &mut Body::default(), trailers, buffers, false);
                read.map(|read| read.bytes as u64)
            }
            other => other.step(input, out, trailers, buffers),
        };
        out.discard(input, buffers);
        moved
    }

    /// Moves what `input` holds of the body to `out`; answers how many bytes of body there were.
    ///
    /// # Errors
    /// The body is malformed.
    pub(crate) fn step(
        &mut self,
        input: &mut Input,
        out: &mut Outbox,
        trailers: &mut Fields,
        buffers: &Buffers,
    ) -> Result<u64, BodyError> {
        match self {
            // Filters' bodies are read.
            Transfer::Done | Transfer::Filtered { .. } => Ok(0),
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
                    write_piece(piece, chunked, &mut out.bytes);
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
            Transfer::Filtered { decoder, .. } => decoder.end_of_input(),
            Transfer::Pieces { decoder, chunked, keep_trailers } => {
                decoder.end_of_input()?;
                finish(*chunked, *keep_trailers, trailers, &mut out.bytes);
                *self = Transfer::Done;
                Ok(())
            }
        }
    }
}

/// Trailers that go nowhere are still read, but nobody configured how many of them there may be.
fn of_trailers(kept: bool, configured: impl FnOnce() -> HeadLimits) -> HeadLimits {
    if kept { configured() } else { HeadLimits::default() }
}

/// An empty piece is nothing on the wire, chunked or not.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leaves_of_a_filtered_body_is_what_its_head_promised() {
        let filtered = |to| {
            let mut transfer = Transfer::filtered(BodyFraming::Length(9), false, HeadLimits::default);
            transfer.leave_as(to);
            transfer
        };
        let mut transfer = filtered(BodyFraming::Length(3));
        assert!(transfer.check_end().is_err());
        assert!(transfer.admit(2).is_ok() && transfer.admit(1).is_ok() && transfer.check_end().is_ok());
        assert!(transfer.admit(1).is_err());
        let mut transfer = filtered(BodyFraming::Length(3));
        assert!(transfer.admit(4).is_err());
        for to in [BodyFraming::Chunked, BodyFraming::UntilClose] {
            let mut transfer = filtered(to);
            assert!(transfer.admit(100).is_ok() && transfer.check_end().is_ok());
        }
    }
}
