//! The chunked transfer coding, read strictly (RFC 9112 7.1).
//!
//! ```text
//!   Size ─digit─> Size ─CR─> SizeLf ─LF─> Data ─> DataCr ─> DataLf ─> Size
//!     └─BWS ;─> extension states ─CR─┘      │ size 0
//!                                           └─> TrailerStart ─CR─> FinalLf ─LF─> Done
//!                                                 └─ line ─LF─┘
//! ```
//! Extensions are checked and dropped. Nothing may stand between the data and its CR LF.

use postrider_http::{Fields, HeadLimits, admit_trailers, is_token, reason};

use crate::body::{BodyDecoder, BodyError};
use crate::encode::{CHUNK_END, ChunkSize, write_last_chunk};

/// Limit on the bytes of all chunk extensions of one body, white space included (RFC 9112 7.1.1 asks
/// recipients for one): no known use needs more, and without it a body of nothing is endless.
pub const MAX_CHUNK_EXTENSION_BYTES: u32 = 16 * 1024;

/// Most digits of a chunk size, leading zeros included.
const MAX_SIZE_DIGITS: u8 = 16;

#[derive(Clone, Debug)]
pub(crate) struct ChunkDecoder {
    state: State,
    /// Size read so far, then data bytes left.
    left: u64,
    digits: u8,
    extension_bytes: u32,
    limits: HeadLimits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Size,
    /// White space after the size: a `;` must follow.
    BeforeSemicolon,
    BeforeName,
    Name,
    /// White space after the name: `=` or `;` must follow.
    AfterName,
    BeforeValue,
    Token,
    Quoted,
    QuotedPair,
    AfterQuoted,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    TrailerLine,
    FinalLf,
}

/// What a step ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// All input is consumed and nothing is complete.
    NeedMore,
    /// A size line is complete; its size is above zero.
    ChunkStart(u64),
    /// What the step consumed is data.
    Data,
    /// The CR LF after a chunk's data.
    ChunkEnd,
    /// The last chunk and the trailers are complete.
    Done,
}

impl ChunkDecoder {
    pub(crate) fn new(limits: HeadLimits) -> Self {
        Self { state: State::Size, left: 0, digits: 0, extension_bytes: 0, limits }
    }

    /// Goes on to the next event; returns the bytes consumed with it.
    pub(crate) fn step(&mut self, input: &[u8], trailers: &mut Fields) -> Result<(usize, Event), BodyError> {
        let mut at = 0;
        loop {
            match self.state {
                State::Data => {
                    let available = input.len() - at;
                    if available == 0 {
                        return Ok((at, Event::NeedMore));
                    }
                    let taken = usize::try_from(self.left).unwrap_or(usize::MAX).min(available);
                    self.left -= taken as u64;
                    if self.left == 0 {
                        self.state = State::DataCr;
                    }
                    return Ok((at + taken, Event::Data));
                }
                State::TrailerStart | State::TrailerLine => {
                    let rest = input.get(at..).unwrap_or_default();
                    match rest.first() {
                        None => return Ok((at, Event::NeedMore)),
                        Some(b'\r') if self.state == State::TrailerStart => {
                            self.state = State::FinalLf;
                            at += 1;
                        }
                        Some(_) => at += self.trailer_bytes(rest, trailers)?,
                    }
                    continue;
                }
                _ => {}
            }
            let Some(&byte) = input.get(at) else { return Ok((at, Event::NeedMore)) };
            at += 1;
            match self.state {
                State::SizeLf => {
                    if byte != b'\n' {
                        return Err(BodyError::InvalidChunk);
                    }
                    self.digits = 0;
                    if self.left == 0 {
                        trailers.clear();
                        self.state = State::TrailerStart;
                    } else {
                        self.state = State::Data;
                        return Ok((at, Event::ChunkStart(self.left)));
                    }
                }
                State::DataCr if byte == b'\r' => self.state = State::DataLf,
                State::DataLf if byte == b'\n' => {
                    self.state = State::Size;
                    return Ok((at, Event::ChunkEnd));
                }
                State::FinalLf if byte == b'\n' => {
                    if trailers.block_len() > 0 {
                        trailers.index_section(self.limits.max_fields).map_err(BodyError::Trailers)?;
                        admit_trailers(trailers);
                    }
                    return Ok((at, Event::Done));
                }
                State::DataCr | State::DataLf | State::FinalLf => return Err(BodyError::InvalidChunk),
                _ => self.state = self.size_line_byte(byte)?,
            }
        }
    }

    /// One byte of `chunk-size [ chunk-ext ] CR`.
    fn size_line_byte(&mut self, byte: u8) -> Result<State, BodyError> {
        if self.state == State::Size {
            if let Some(digit) = (byte as char).to_digit(16) {
                // Two bits short of the top: the sum of sizes and lengths stays far from overflow.
                if self.digits >= MAX_SIZE_DIGITS || self.left > (i64::MAX as u64 >> 4) {
                    return Err(BodyError::ChunkSizeOverflow);
                }
                self.digits += 1;
                self.left = self.left << 4 | u64::from(digit);
                return Ok(State::Size);
            }
            return match byte {
                _ if self.digits == 0 => Err(BodyError::InvalidChunk),
                b'\r' => Ok(State::SizeLf),
                b';' => self.count_extension(State::BeforeName),
                b' ' | b'\t' => self.count_extension(State::BeforeSemicolon),
                _ => Err(BodyError::InvalidChunk),
            };
        }
        let blank = byte == b' ' || byte == b'\t';
        let token = is_token(&[byte]);
        let next = match (self.state, byte) {
            (State::BeforeSemicolon | State::AfterName | State::BeforeName | State::BeforeValue, _) if blank => {
                self.state
            }
            (State::BeforeSemicolon | State::Name | State::AfterName | State::Token | State::AfterQuoted, b';') => {
                State::BeforeName
            }
            (State::BeforeName | State::Name, _) if token => State::Name,
            (State::Name | State::AfterName, b'=') => State::BeforeValue,
            (State::Name, _) if blank => State::AfterName,
            (State::BeforeValue, b'"') => State::Quoted,
            (State::BeforeValue | State::Token, _) if token => State::Token,
            (State::Token | State::AfterQuoted, _) if blank => State::BeforeSemicolon,
            (State::Quoted, b'"') => State::AfterQuoted,
            (State::Quoted, b'\\') => State::QuotedPair,
            // RFC 9110 5.6.4: HTAB, SP, visible and obs-text; the escape takes the same.
            (State::Quoted | State::QuotedPair, _) if blank || (byte > b' ' && byte != 0x7f) => State::Quoted,
            (State::Name | State::Token | State::AfterQuoted, b'\r') => return Ok(State::SizeLf),
            _ => return Err(BodyError::InvalidChunk),
        };
        self.count_extension(next)
    }

    fn count_extension(&mut self, next: State) -> Result<State, BodyError> {
        self.extension_bytes += 1;
        if self.extension_bytes > MAX_CHUNK_EXTENSION_BYTES {
            return Err(BodyError::ExtensionsTooLarge);
        }
        Ok(next)
    }

    /// Takes the rest of a trailer line, or all there is of it.
    fn trailer_bytes(&mut self, rest: &[u8], trailers: &mut Fields) -> Result<usize, BodyError> {
        let taken = match memchr::memchr(b'\n', rest) {
            Some(newline) => {
                self.state = State::TrailerStart;
                newline + 1
            }
            None => {
                self.state = State::TrailerLine;
                rest.len()
            }
        };
        if trailers.block_len() + taken > self.limits.max_bytes {
            return Err(BodyError::Trailers(reason::HEAD_TOO_LARGE));
        }
        trailers.extend_block(rest.get(..taken).unwrap_or_default());
        Ok(taken)
    }
}

/// Passes a chunked body on as a chunked body: chunk by chunk as received, each size line, the last
/// chunk and the trailers written afresh, extensions dropped. One copy per byte, no buffering: a size
/// line goes out when it is complete, data as it comes.
#[derive(Clone, Debug)]
pub struct ChunkedRelay {
    chunks: ChunkDecoder,
    done: bool,
}

/// What one call of [`ChunkedRelay::relay`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relayed {
    /// Bytes of the input that are dealt with: all of them unless `done`.
    pub consumed: usize,
    /// Bytes of body data among them.
    pub data: u64,
    /// The body is complete and its end was written.
    pub done: bool,
}

impl ChunkedRelay {
    /// A relay at the start of a body; `limits` apply to the trailers.
    pub fn new(limits: HeadLimits) -> Self {
        Self { chunks: ChunkDecoder::new(limits), done: false }
    }

    /// What reads the rest of the body where its chunks do not go on.
    #[must_use]
    pub fn decoder(&self) -> BodyDecoder {
        BodyDecoder::chunked(self.chunks.clone())
    }

    /// Whether the whole body went through.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Appends the re-framed form of `input` to `out`. At the end, trailers that may be forwarded are in
    /// `trailers` and, when `keep_trailers` is set, in `out`.
    ///
    /// # Errors
    /// [`BodyError`]; `out` then ends in an incomplete chunk and its receiver must be cut off.
    pub fn relay(
        &mut self,
        input: &[u8],
        trailers: &mut Fields,
        keep_trailers: bool,
        out: &mut Vec<u8>,
    ) -> Result<Relayed, BodyError> {
        let mut relayed = Relayed { consumed: 0, data: 0, done: self.done };
        while !relayed.done {
            let rest = input.get(relayed.consumed..).unwrap_or_default();
            let (taken, event) = self.chunks.step(rest, trailers)?;
            relayed.consumed += taken;
            match event {
                Event::NeedMore => break,
                Event::ChunkStart(size) => out.extend_from_slice(ChunkSize::new(size).as_bytes()),
                Event::Data => {
                    relayed.data += taken as u64;
                    out.extend_from_slice(rest.get(..taken).unwrap_or_default());
                }
                Event::ChunkEnd => out.extend_from_slice(CHUNK_END),
                Event::Done => {
                    if !keep_trailers {
                        trailers.clear();
                    }
                    write_last_chunk(trailers, out);
                    self.done = true;
                    relayed.done = true;
                }
            }
        }
        Ok(relayed)
    }
}
