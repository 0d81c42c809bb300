//! Bodies on the way in: pieces of data out of what arrived, for each framing (RFC 9112 6, 7).

use std::ops::Range;

use postrider_http::{BodyFraming, Fields, HeadLimits, Reject, reason};

use crate::chunk::{ChunkDecoder, Event};

/// Decodes one body. Small (a few words), so that a connection can own one.
#[derive(Clone, Debug)]
pub struct BodyDecoder {
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Done,
    Length(u64),
    /// So many bytes, and what a chunked body has behind its last piece.
    Counted(u64, ChunkDecoder),
    Chunked(ChunkDecoder),
    UntilClose,
}

/// What one call of [`BodyDecoder::decode`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// Bytes of the input that are dealt with; call again with the rest.
    pub consumed: usize,
    /// The range of the input that is body data; empty when only framing was consumed.
    pub data: Range<usize>,
    /// The body is complete, trailers included: what follows belongs to the next message.
    pub done: bool,
}

/// Why a body is not one. The connection that it came from cannot be used any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// Not RFC 9112 7.1: size, extension, or what follows the data.
    InvalidChunk,
    /// A chunk size that does not fit 63 bits.
    ChunkSizeOverflow,
    /// More extension bytes than [`crate::MAX_CHUNK_EXTENSION_BYTES`] in one body.
    ExtensionsTooLarge,
    /// A trailer line that is refused, or too many of them.
    Trailers(Reject),
    /// The peer closed before the end (RFC 9112 8).
    Truncated,
}

impl BodyError {
    /// Status and token for a client whose request body this was. For an upstream's response body use
    /// [`Reject::upstream`] when nothing was sent yet, else reset.
    pub fn reject(self) -> Reject {
        match self {
            Self::InvalidChunk => reason::INVALID_CHUNK,
            Self::ChunkSizeOverflow => reason::CHUNK_SIZE_OVERFLOW,
            Self::ExtensionsTooLarge => reason::CHUNK_EXTENSIONS_TOO_LARGE,
            Self::Trailers(reject) => reject,
            Self::Truncated => reason::TRUNCATED_BODY,
        }
    }
}

impl std::fmt::Display for BodyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::InvalidChunk => "chunk syntax error",
            Self::ChunkSizeOverflow => "chunk size overflow",
            Self::ExtensionsTooLarge => "chunk extensions too large",
            Self::Trailers(reject) => return write!(f, "trailers refused: {}", reject.details),
            Self::Truncated => "body ended early",
        })
    }
}

impl std::error::Error for BodyError {}

impl BodyDecoder {
    /// A decoder for a body with this framing; `limits` apply to the trailers. Behind a counted one there is the end of a chunked
    /// body, with its trailers: who hands over what came by HTTP/2 writes it so.
    pub fn new(framing: BodyFraming, limits: HeadLimits) -> Self {
        let state = match framing {
            BodyFraming::None | BodyFraming::Length(0) => State::Done,
            BodyFraming::Length(length) => State::Length(length),
            BodyFraming::Counted(length) => State::Counted(length, ChunkDecoder::new(limits)),
            BodyFraming::Chunked => State::Chunked(ChunkDecoder::new(limits)),
            BodyFraming::UntilClose => State::UntilClose,
        };
        Self { state }
    }

    /// Goes on where `chunks` are.
    pub(crate) fn chunked(chunks: ChunkDecoder) -> Self {
        Self { state: State::Chunked(chunks) }
    }

    /// Whether the body is complete: only then may the connection carry another message.
    #[inline]
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Bytes of a body of known length that are still to come; `None` for other framings.
    pub fn remaining(&self) -> Option<u64> {
        match self.state {
            State::Done => Some(0),
            State::Length(left) | State::Counted(left, _) => Some(left),
            State::Chunked(_) | State::UntilClose => None,
        }
    }

    /// Deals with the beginning of `input`, up to the end of one piece of data. `data` lies within
    /// `..consumed`. Length and until-close bodies take one call per buffer, whatever its size.
    /// `trailers` gathers the trailer section of a chunked body, unfiltered by
    /// [`postrider_http::admit_trailers`] until `done`, filtered then; pass the same one each time.
    ///
    /// # Errors
    /// [`BodyError`], except [`BodyError::Truncated`]; the decoder must not be used any further.
    #[inline]
    pub fn decode(&mut self, input: &[u8], trailers: &mut Fields) -> Result<Decoded, BodyError> {
        match &mut self.state {
            State::Done => Ok(Decoded { consumed: 0, data: 0..0, done: true }),
            State::UntilClose => Ok(Decoded { consumed: input.len(), data: 0..input.len(), done: false }),
            State::Length(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                *left -= taken as u64;
                let done = *left == 0;
                if done {
                    self.state = State::Done;
                }
                Ok(Decoded { consumed: taken, data: 0..taken, done })
            }
            State::Counted(left @ 1.., _) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                *left -= taken as u64;
                Ok(Decoded { consumed: taken, data: 0..taken, done: false })
            }
            State::Counted(_, chunks) | State::Chunked(chunks) => {
                let mut consumed = 0;
                loop {
                    let rest = input.get(consumed..).unwrap_or_default();
                    let (taken, event) = chunks.step(rest, trailers)?;
                    let start = consumed;
                    consumed += taken;
                    match event {
                        Event::ChunkStart(_) | Event::ChunkEnd => {}
                        Event::Data => return Ok(Decoded { consumed, data: start..consumed, done: false }),
                        Event::NeedMore => return Ok(Decoded { consumed, data: consumed..consumed, done: false }),
                        Event::Done => {
                            self.state = State::Done;
                            return Ok(Decoded { consumed, data: consumed..consumed, done: true });
                        }
                    }
                }
            }
        }
    }

    /// The peer closed its side. True end for an until-close body.
    ///
    /// # Errors
    /// [`BodyError::Truncated`] when more was promised (RFC 9112 6.3, 8).
    pub fn end_of_input(&mut self) -> Result<(), BodyError> {
        match self.state {
            State::Done => Ok(()),
            State::UntilClose => {
                self.state = State::Done;
                Ok(())
            }
            State::Length(_) | State::Counted(..) | State::Chunked(_) => Err(BodyError::Truncated),
        }
    }
}
