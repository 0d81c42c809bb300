//! Finds the end of a head in bytes that arrive in pieces, looking at each byte once.

use postrider_http::{HeadLimits, Reject, Version, reason};

/// Empty lines tolerated before a request line (RFC 9112 2.2 asks for at least one); more are refused,
/// because a peer could send them forever.
pub const MAX_LEADING_EMPTY_LINES: u8 = 4;

/// Progress through an incomplete head. Holds nothing between heads, so that one per worker may serve
/// all connections, and only a connection whose head is incomplete needs to keep one.
#[derive(Clone, Debug, Default)]
pub struct HeadScan {
    /// Offset in the buffer where the start line begins, after empty lines.
    start: usize,
    /// Everything before this offset has been looked at.
    scanned: usize,
    /// Offset where the line under way begins.
    line_start: usize,
    empty_lines: u8,
    start_line: Option<StartLine>,
    /// End of each complete line (its CR), relative to `start`; the start line comes first.
    line_ends: Vec<u32>,
    /// Bytes looked at since creation: what the tests on complexity count.
    looked_at: u64,
}

/// The parts of a start line, as offsets from its beginning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartLine {
    /// Request: length of the method. Response: the status.
    pub first: u32,
    /// Request: end of the target. Response: start of the reason phrase.
    pub second: u32,
    pub version: Version,
}

/// Which syntax the start line has.
pub(crate) trait Side {
    /// Empty lines tolerated before the start line.
    const LEADING_EMPTY_LINES: u8;
    /// Reads a whole start line, without its CR LF.
    fn start_line(line: &[u8]) -> Result<StartLine, Reject>;
    /// Whether a start line can begin with this byte.
    fn can_begin_with(byte: u8) -> bool;
    /// What `start_line` answers to a line that begins with any other byte.
    const BAD_BEGINNING: Reject;
}

/// A complete head in the buffer.
pub(crate) struct Complete<'s> {
    pub start: usize,
    pub end: usize,
    pub start_line: StartLine,
    pub line_ends: &'s [u32],
}

impl HeadScan {
    /// Ready for the first byte of a head.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether no byte of a head has been seen, empty lines aside.
    pub fn is_idle(&self) -> bool {
        self.line_ends.is_empty() && self.scanned == self.start
    }

    /// Forgets a head that will not be finished; keeps the capacity.
    pub fn reset(&mut self) {
        self.start = 0;
        self.scanned = 0;
        self.line_start = 0;
        self.empty_lines = 0;
        self.start_line = None;
        self.line_ends.clear();
    }

    /// Total bytes looked at, for tests on complexity: equals the bytes received.
    pub fn looked_at(&self) -> u64 {
        self.looked_at
    }

    /// Looks on from where it stopped. `buffer` is the same as last time, with more at the end.
    #[inline]
    pub(crate) fn advance<S: Side>(
        &mut self,
        buffer: &[u8],
        limits: &HeadLimits,
    ) -> Result<Option<Complete<'_>>, Reject> {
        let unseen = buffer.get(self.scanned..).unwrap_or_default();
        let base = self.scanned;
        for at in memchr::memchr_iter(b'\n', unseen) {
            let newline = base + at;
            let line = buffer.get(self.line_start..newline).unwrap_or_default();
            if self.start_line.is_none() {
                self.check_beginning::<S>(line)?;
            }
            if newline + 1 - self.start > limits.max_bytes {
                return Err(reason::HEAD_TOO_LARGE);
            }
            let Some((b'\r', line)) = line.split_last() else { return Err(reason::BARE_LF) };
            let line_end = newline - 1;
            self.looked_at += (newline + 1 - self.line_start) as u64;
            self.line_start = newline + 1;
            if line.is_empty() {
                match self.start_line {
                    Some(start_line) => {
                        return Ok(Some(Complete {
                            start: self.start,
                            end: newline + 1,
                            start_line,
                            line_ends: &self.line_ends,
                        }));
                    }
                    None => {
                        self.empty_lines += 1;
                        self.start = newline + 1;
                        continue;
                    }
                }
            }
            if self.start_line.is_none() {
                self.start_line = Some(S::start_line(line)?);
            } else if self.line_ends.len() > limits.max_fields {
                return Err(reason::TOO_MANY_HEADERS);
            }
            self.line_ends.push((line_end - self.start) as u32);
        }
        self.scanned = buffer.len();
        // A peer that speaks something else (TLS, say) may never send a line end: tell it now.
        if self.start_line.is_none() {
            self.check_beginning::<S>(buffer.get(self.line_start..).unwrap_or_default())?;
        }
        if buffer.len().saturating_sub(self.start) > limits.max_bytes {
            return Err(reason::HEAD_TOO_LARGE);
        }
        Ok(None)
    }

    /// Whether `line`, perhaps incomplete, can be a start line or a tolerated empty line before it.
    fn check_beginning<S: Side>(&self, line: &[u8]) -> Result<(), Reject> {
        let fine = match line {
            [] => true,
            [b'\r'] => self.empty_lines < S::LEADING_EMPTY_LINES,
            [first, ..] => S::can_begin_with(*first),
        };
        if fine { Ok(()) } else { Err(S::BAD_BEGINNING) }
    }
}
