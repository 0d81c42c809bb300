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

    /// Whether nothing at all has been looked at.
    #[inline]
    pub(crate) fn is_fresh(&self) -> bool {
        self.scanned == 0
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
        let unseen_from = self.scanned;
        // What lies beyond the limit is not looked at: the outcome must not depend on how much of it came.
        let mut window = window(buffer, self.start, limits);
        let mut words = window.get(unseen_from..).unwrap_or_default();
        let mut at = unseen_from;
        while let Some((pair, rest)) = words.split_first_chunk::<{ 2 * WORD }>() {
            let pair = u128::from_le_bytes(*pair);
            let mut candidates = newline_candidates(pair as u64) | newline_candidates((pair >> 64) as u64) << WORD;
            while candidates != 0 {
                let newline = at + candidates.trailing_zeros() as usize;
                candidates &= candidates - 1;
                if window.get(newline) == Some(&b'\n') && self.line::<S>(window, newline, limits)? {
                    return Ok(self.complete(newline + 1));
                }
            }
            at += 2 * WORD;
            words = rest;
        }
        loop {
            while let Some(&byte) = window.get(at) {
                if byte == b'\n' && self.line::<S>(window, at, limits)? {
                    return Ok(self.complete(at + 1));
                }
                at += 1;
            }
            // Empty lines before the start line do not count: they have moved the limit.
            let moved = self::window(buffer, self.start, limits);
            if moved.len() == window.len() {
                break;
            }
            window = moved;
        }
        self.looked_at += (at - self.scanned) as u64;
        self.scanned = at;
        // A peer that speaks something else (TLS, say) may never send a line end: tell it now.
        if self.start_line.is_none() {
            self.check_beginning::<S>(window.get(self.line_start..).unwrap_or_default())?;
        }
        if buffer.len() > window.len() {
            return Err(reason::HEAD_TOO_LARGE);
        }
        Ok(None)
    }

    #[inline]
    fn complete(&mut self, end: usize) -> Option<Complete<'_>> {
        self.looked_at += (end - self.scanned) as u64;
        let start_line = self.start_line?;
        Some(Complete { start: self.start, end, start_line, line_ends: &self.line_ends })
    }

    /// Takes the line that ends at `newline`; true when it is the empty one after the fields.
    #[inline(always)]
    fn line<S: Side>(&mut self, window: &[u8], newline: usize, limits: &HeadLimits) -> Result<bool, Reject> {
        let length = newline - self.line_start;
        if self.line_ends.is_empty() {
            return self.line_before_fields::<S>(window, newline).map(|()| false);
        }
        if length == 0 || window.get(newline - 1) != Some(&b'\r') {
            return Err(reason::BARE_LF);
        }
        self.line_start = newline + 1;
        if length == 1 {
            return Ok(true);
        }
        if self.line_ends.len() > limits.max_fields {
            return Err(reason::TOO_MANY_HEADERS);
        }
        self.line_ends.push((newline - 1 - self.start) as u32);
        Ok(false)
    }

    /// The start line, or an empty line before it.
    fn line_before_fields<S: Side>(&mut self, window: &[u8], newline: usize) -> Result<(), Reject> {
        let line = window.get(self.line_start..newline).unwrap_or_default();
        self.check_beginning::<S>(line)?;
        let [line @ .., b'\r'] = line else { return Err(reason::BARE_LF) };
        self.line_start = newline + 1;
        if line.is_empty() {
            self.empty_lines += 1;
            self.start = newline + 1;
            return Ok(());
        }
        self.start_line = Some(S::start_line(line)?);
        self.line_ends.push((newline - 1 - self.start) as u32);
        Ok(())
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

/// The part of the buffer that a head may fill.
#[inline]
fn window<'b>(buffer: &'b [u8], start: usize, limits: &HeadLimits) -> &'b [u8] {
    buffer.get(..start.saturating_add(limits.max_bytes)).unwrap_or(buffer)
}

/// Bytes looked at together.
const WORD: usize = 8;

/// One bit for each byte that is a line feed, the first byte's lowest. A byte behind a line feed may be marked
/// wrongly (a borrow reaches it), so each has to be looked at. Cheaper than a call of `memchr` for lines as
/// short as these.
#[inline]
fn newline_candidates(word: u64) -> u32 {
    const ONES: u64 = u64::from_le_bytes([1; WORD]);
    /// Brings the lowest bits of eight bytes together in the highest byte.
    const GATHER: u64 = 0x0102_0408_1020_4080;
    let zero_where_newline = word ^ (ONES * b'\n' as u64);
    let marks = zero_where_newline.wrapping_sub(ONES) & !zero_where_newline & (ONES << 7);
    ((marks >> 7).wrapping_mul(GATHER) >> 56) as u32
}
