//! How received lines get into [`Fields`]: validated, lower-cased in place, indexed.
//!
//! Called by codecs only. What a line may look like is decided here and nowhere else.

use super::{CANONICAL, Entry, Fields};
use crate::chars::{WORD, count_controls, is_field_value, lower_name_word, token_lower_of};
use crate::{HeaderId, Reject, reason};

impl Fields {
    /// Clears, then copies a received head (start line, field lines, empty line) into the block. The
    /// line offsets given to [`Fields::index_lines`] are offsets into `head`.
    ///
    /// `lines` is the number of CR LF pairs in `head`: a CR beyond those is bare and is refused, as is
    /// any control byte but HTAB (RFC 9110 5.5, RFC 9112 2.2).
    ///
    /// # Errors
    /// A [`Reject`] with status 400.
    #[inline]
    pub fn load(&mut self, head: &[u8], lines: usize) -> Result<(), Reject> {
        self.clear();
        if u32::try_from(head.len()).is_err() {
            return Err(reason::HEAD_TOO_LARGE);
        }
        self.block.clear();
        self.block.reserve(head.len() + WORD);
        self.block.extend_from_slice(head);
        // Room behind the last line, so that a name can be read eight bytes at a time.
        self.block.extend_from_slice(&[b' '; WORD]);
        self.received = self.block.len();
        if count_controls(&self.block) == 2 * lines { Ok(()) } else { check_controls(head, lines) }
    }

    /// Takes the received lines into the index, lower-casing names in place. `line_ends` are the offsets in the
    /// block at which lines end (their CR), the start line's first; each CR is followed by LF and the next
    /// line. Relies on [`Fields::load`] for the bytes of the values.
    ///
    /// # Errors
    /// A [`Reject`] with status 400: obs-fold (RFC 9112 5.2), no colon, space before the colon
    /// (RFC 9112 5.1), an empty name or one that is no token (RFC 9110 5.1).
    #[inline]
    pub fn index_lines(&mut self, line_ends: &[u32]) -> Result<(), Reject> {
        let Some((&first_end, ends)) = line_ends.split_first() else { return Ok(()) };
        self.index.reserve(ends.len());
        let mut start = first_end as usize + 2;
        for &end in ends {
            let entry = index_line(&mut self.block, start, end as usize)?;
            self.push(entry).map_err(|_| reason::TOO_MANY_HEADERS)?;
            start = end as usize + 2;
        }
        Ok(())
    }

    /// Appends received bytes of a section that arrives in pieces (trailers) to the block.
    pub fn extend_block(&mut self, bytes: &[u8]) {
        self.block.truncate(self.received);
        self.block.extend_from_slice(bytes);
        self.received = self.block.len();
    }

    /// Bytes gathered by [`Fields::extend_block`].
    pub fn block_len(&self) -> usize {
        self.received
    }

    /// Indexes a whole section gathered by [`Fields::extend_block`]: field lines, each ended by CR LF,
    /// without the empty line. At most `max_fields` of them.
    ///
    /// # Errors
    /// As [`Fields::load`] and [`Fields::index_lines`]; [`reason::TOO_MANY_HEADERS`] for too many.
    pub fn index_section(&mut self, max_fields: usize) -> Result<(), Reject> {
        let mut start = 0;
        while let Some(length) = memchr::memchr(b'\n', self.block.get(start..self.received).unwrap_or_default()) {
            let line = self.block.get(start..start + length).unwrap_or_default();
            let Some((b'\r', line)) = line.split_last() else { return Err(reason::BARE_LF) };
            if line.contains(&b'\r') {
                return Err(reason::BARE_CR);
            }
            if !is_field_value(line) {
                return Err(reason::INVALID_CHARACTERS);
            }
            if self.index.len() >= max_fields {
                return Err(reason::TOO_MANY_HEADERS);
            }
            let end = start + line.len();
            let entry = index_line(&mut self.block, start, end)?;
            self.push(entry).map_err(|_| reason::TOO_MANY_HEADERS)?;
            start += length + 1;
        }
        Ok(())
    }
}

/// Reads the received line `block[start..end]`, lower-casing its name in place.
#[inline(always)]
fn index_line(block: &mut [u8], start: usize, end: usize) -> Result<Entry, Reject> {
    let name_end = lower_name(block, start, end);
    let Some(after_colon) = block.get(name_end + 1..end) else {
        return Err(field_line_fault(block.get(start..end).unwrap_or_default(), name_end - start));
    };
    let name = block.get(start..name_end).unwrap_or_default();
    if name.is_empty() || block.get(name_end) != Some(&b':') {
        return Err(field_line_fault(block.get(start..end).unwrap_or_default(), name.len()));
    }
    // Canonical: exactly one space before a value, nothing after it.
    let (value_start, value_len, flags) = match after_colon {
        [b' ', first, ..] if !is_blank(*first) && !after_colon.last().is_some_and(|&b| is_blank(b)) => {
            (name_end + 2, after_colon.len() - 1, CANONICAL)
        }
        _ => {
            let value_len = crate::chars::trim_ows(after_colon).len();
            let lead = after_colon.iter().take_while(|&&b| is_blank(b)).count();
            // A value of nothing but blanks: any place serves an empty range.
            (name_end + 1 + if value_len == 0 { 0 } else { lead }, value_len, 0)
        }
    };
    Ok(Entry {
        name_start: start as u32,
        name_len: u16::try_from(name.len()).map_err(|_| reason::HEAD_TOO_LARGE)?,
        value_start: value_start as u32,
        value_len: value_len as u32,
        id: HeaderId::from_lower(name),
        flags,
    })
}

/// Lower-cases the token at the start of `block[start..end]` in place; returns where it ends.
#[inline(always)]
fn lower_name(block: &mut [u8], start: usize, end: usize) -> usize {
    let mut at = start;
    while at < end
        && let Some(word) = block.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<WORD>)
    {
        let length = lower_name_word(word);
        at += length;
        if length < WORD {
            break;
        }
    }
    if block.get(at) == Some(&b':') || at >= end { at.min(end) } else { lower_rest_of_name(block, at, end) }
}

/// Goes on where a word held a byte that words do not know, or at the very end of the block.
fn lower_rest_of_name(block: &mut [u8], from: usize, end: usize) -> usize {
    let mut at = from;
    for byte in block.get_mut(from..end).unwrap_or_default() {
        let lower = token_lower_of(*byte);
        if lower == 0 {
            break;
        }
        *byte = lower;
        at += 1;
    }
    at
}

#[inline]
fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// Tells tabs, which may stand in values, from what may not stand anywhere.
#[cold]
fn check_controls(head: &[u8], lines: usize) -> Result<(), Reject> {
    if head.iter().any(|&b| (b < 0x20 && !matches!(b, b'\t' | b'\r' | b'\n')) || b == 0x7f) {
        return Err(reason::INVALID_CHARACTERS);
    }
    if memchr::memchr_iter(b'\r', head).count() != lines {
        return Err(reason::BARE_CR);
    }
    Ok(())
}

/// Which rule a line breaks that is not `name:` and a value.
#[cold]
fn field_line_fault(line: &[u8], name_len: usize) -> Reject {
    let rest = line.get(name_len..).unwrap_or_default();
    match (name_len, rest.first()) {
        (0, Some(b' ' | b'\t')) => reason::OBS_FOLD,
        (0, Some(b':')) => reason::EMPTY_NAME,
        (_, Some(b' ' | b'\t')) if rest.contains(&b':') => reason::SPACE_BEFORE_COLON,
        (_, None) => reason::NO_COLON,
        _ => reason::INVALID_NAME,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_faults_have_names() {
        for (line, want) in [
            (" folded", reason::OBS_FOLD),
            ("\tfolded: x", reason::OBS_FOLD),
            ("name : v", reason::SPACE_BEFORE_COLON),
            ("name", reason::NO_COLON),
            ("na me", reason::INVALID_NAME),
            (": v", reason::EMPTY_NAME),
            ("na(me: v", reason::INVALID_NAME),
            ("n\u{e9}: v", reason::INVALID_NAME),
        ] {
            let mut fields = Fields::new();
            fields.load(format!("\r\n{line}\r\n").as_bytes(), 2).unwrap();
            assert_eq!(fields.index_lines(&[0, 2 + line.len() as u32]), Err(want), "{line:?}");
        }
    }
}
