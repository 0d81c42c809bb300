//! The short way of a received head into [`Fields`]: one pass over heads of the usual form.
//!
//! Takes a part of what [`Fields::load`] and [`Fields::index_lines`] take, with the same result, and decides
//! nothing about the rest: those do. The tests hold the two against one another.

use super::{CANONICAL, Entry, Fields};
use crate::chars::{LANE, WORD, ascii_in_word, lower_name_word, unusual_in_lane};
use crate::header_id::{IdSet, KEY_BYTES};
use crate::{HeadLimits, HeaderId};

/// Longest head that [`Fields::load_usual`] takes: it copies before it knows where the head ends.
const USUAL_HEAD_BYTES: usize = 2048;

/// How much longer than the last one a head may be before it is copied a second time. A body behind a head is not copied
/// for nothing, beyond that.
const GROWTH: usize = 256;

/// What [`Fields::load_usual`] took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsualHead {
    /// Offset of the CR that ends the start line.
    pub start_line_end: usize,
    /// Offset behind the empty line.
    pub end: usize,
}

impl Fields {
    /// [`Fields::load`] and [`Fields::index_lines`] in one pass over a head in its most usual form: complete,
    /// short, each line `name: value` with one space and no tab, names of letters, digits and `-`. The start line
    /// holds no control byte but is not looked at otherwise; the caller has to. `None` when anything at all is
    /// unusual, right or wrong: then the thorough way has to decide, from the start.
    #[inline]
    pub fn load_usual(&mut self, buffer: &[u8], limits: &HeadLimits) -> Option<UsualHead> {
        let most = buffer.len().min(limits.max_bytes).min(USUAL_HEAD_BYTES);
        let mut length = most.min(self.last_usual + GROWTH);
        loop {
            match self.load_beginning(buffer, length, limits) {
                Some(head) => {
                    self.last_usual = head.end;
                    return Some(head);
                }
                None if length == most => return None,
                None => length = most,
            }
        }
    }

    /// [`Fields::load_usual`] of a head that ends within `length` bytes.
    #[inline(always)]
    fn load_beginning(&mut self, buffer: &[u8], length: usize, limits: &HeadLimits) -> Option<UsualHead> {
        self.clear();
        if self.block.len() < size_of::<Usual>() {
            self.block.clear();
            self.block.extend_from_slice(&EMPTY);
        }
        let Self { block, index, first, repeated, noted, .. } = self;
        let block: &mut Usual = block.first_chunk_mut()?;
        block.get_mut(..length)?.copy_from_slice(buffer.get(..length)?);
        // What an earlier head left stays behind a word that belongs in no line.
        *block.get_mut(length..)?.first_chunk_mut()? = [0; WORD];
        let (start_line_end, around) = usual_line_end(block, 0)?;
        let mut start = start_line_end + 2;
        let mut next = around.to_le_bytes()[3];
        while next != b'\r' {
            let (name_len, id, bit) = take_usual_name(block, start)?;
            let space = start + name_len + 1;
            let [b' ', first_of_value] = *bytes_at(block, space)? else { return None };
            let (end, around) = usual_line_end(block, space)?;
            // Without a value the space itself comes last.
            if first_of_value == b' ' || around as u8 == b' ' {
                return None;
            }
            index.push(Entry {
                name_start: start as u32,
                name_len: name_len as u16,
                value_start: space as u32 + 1,
                value_len: (end - space) as u32 - 1,
                id,
                flags: CANONICAL,
            });
            match first.get_mut(id as usize) {
                Some(first) if *first == 0 => *first = index.len() as u16,
                _ => *repeated |= 1 << id as u8,
            }
            *noted |= bit;
            start = end + 2;
            next = (around >> 24) as u8;
        }
        let end = start + 2;
        if end > length || block.get(start + 1) != Some(&b'\n') || index.len() > limits.max_fields {
            return None;
        }
        self.received = end;
        self.live = self.index.len();
        self.in_order = self.live;
        Some(UsualHead { start_line_end, end })
    }
}

/// What [`Fields::load_usual`] works on: of fixed size, so that one comparison with [`USUAL_HEAD_BYTES`] covers a
/// look at any of the few bytes behind.
type Usual = [u8; USUAL_HEAD_BYTES + 3 * WORD];

static EMPTY: Usual = [0; size_of::<Usual>()];

/// `N` bytes at `at`; `None` behind the bytes of a usual head.
#[inline(always)]
fn bytes_at<const N: usize>(block: &Usual, at: usize) -> Option<&[u8; N]> {
    if at >= USUAL_HEAD_BYTES {
        return None;
    }
    block.get(at..)?.first_chunk()
}

/// Offset of the CR LF that ends the line in which `from` lies; and the last byte of that line, CR, LF and the byte
/// behind, as one little-endian number. `None` when a control byte, DEL or a byte outside ASCII comes first.
#[inline(always)]
fn usual_line_end(block: &Usual, from: usize) -> Option<(usize, u32)> {
    let mut at = from;
    loop {
        let marks = unusual_in_lane(*bytes_at(block, at)?);
        if marks != 0 {
            at += marks.trailing_zeros() as usize;
            break;
        }
        at += LANE;
    }
    let around = u32::from_le_bytes(*bytes_at(block, at.wrapping_sub(1))?);
    ((around >> 8) as u16 == u16::from_le_bytes(*b"\r\n")).then_some((at, around))
}

/// Lower-cases the name of letters, digits and `-` at `start` in place; its length, not 0, its id, and the
/// [`HeaderId::noted_bit`] of that. A colon is behind it. `None` when there is no such name.
#[inline(always)]
fn take_usual_name(block: &mut Usual, start: usize) -> Option<(usize, HeaderId, IdSet)> {
    if start >= USUAL_HEAD_BYTES {
        return None;
    }
    let name: &mut [u8; 2 * WORD] = block.get_mut(start..)?.first_chunk_mut()?;
    let [first, second] = name.as_chunks_mut::<WORD>().0.first_chunk_mut::<2>()?;
    let word = u64::from_le_bytes(*first);
    let colons = ascii_in_word(word, b':');
    if colons != 0 {
        let mask = through_first(colons);
        let key = key_word(word, mask);
        let Some((id, bit)) = HeaderId::from_key([key, 0]) else { return take_other_name(block, start) };
        *first = (key | word & !mask).to_le_bytes();
        return Some(((colons.trailing_zeros() / 8) as usize, id, bit));
    }
    let next = u64::from_le_bytes(*second);
    let colons = ascii_in_word(next, b':');
    let mask = through_first(colons);
    let key = [key_word(word, !0), key_word(next, mask)];
    let Some((id, bit)) = HeaderId::from_key(key) else { return take_other_name(block, start) };
    *first = key[0].to_le_bytes();
    *second = (key[1] | next & !mask).to_le_bytes();
    Some((WORD + (colons.trailing_zeros() / 8) as usize, id, bit))
}

/// The bytes of `word` that `mask` selects, capitals made small. Other bytes with the bit 0x40 change too, but into
/// none that a well-known name holds: a key that is found belongs to a well-formed name.
#[inline(always)]
fn key_word(word: u64, mask: u64) -> u64 {
    const CASE: u64 = u64::from_le_bytes([0x20; WORD]);
    (word | word >> 1 & CASE) & mask
}

/// All bits of the bytes up to the first marked one, this one included.
#[inline(always)]
fn through_first(marks: u64) -> u64 {
    marks ^ marks.wrapping_sub(1)
}

/// [`take_usual_name`] for names that are long or not well known.
#[inline(never)]
fn take_other_name(block: &mut Usual, start: usize) -> Option<(usize, HeaderId, IdSet)> {
    let line = block.get_mut(start..)?;
    let mut name_len = 0;
    for word in line.as_chunks_mut::<WORD>().0 {
        let length = lower_name_word(word);
        name_len += length;
        if length < WORD {
            break;
        }
    }
    let (name, rest) = line.split_at_checked(name_len)?;
    if name.is_empty() || rest.first() != Some(&b':') {
        return None;
    }
    // A name that fits a key was not found by its key.
    let id = if name_len <= KEY_BYTES { HeaderId::Unknown } else { HeaderId::from_lower(name) };
    Some((name_len, id, id.noted_bit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FieldRef;

    const HEAD: &[u8] = b"GET / HTTP/1.1\r\nHost: a.test:80\r\nUSER-Agent: x (y)\r\nX-My-Own-Thing: 1, 2\r\n\
        accept-encoding: gzip\r\nCookie: a=b; c=d\r\ncookie: e\r\nIf-Modified-Since: then\r\nVia: 1\r\n\r\nbody: no\r\n";

    /// The thorough way: line ends found byte by byte. `None` for what it refuses and for incomplete heads.
    fn thorough(input: &[u8]) -> Option<Fields> {
        let end = input.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
        let head = &input[..end];
        let ends: Vec<u32> = (0..end).filter(|&at| head[at..].starts_with(b"\r\n")).map(|at| at as u32).collect();
        let mut fields = Fields::new();
        fields.load(head, ends.len()).ok()?;
        if head.iter().filter(|&&b| b == b'\n').count() != ends.len() {
            return None;
        }
        fields.index_lines(&ends[..ends.len() - 1]).ok()?;
        Some(fields)
    }

    fn all(fields: &Fields) -> Vec<FieldRef<'_>> {
        fields.iter().collect()
    }

    /// Both ways over `input`, the short one with what an earlier head left; whether the short one took it.
    fn compare(input: &[u8], used: &mut Fields) -> bool {
        let Some(UsualHead { start_line_end, end }) = used.load_usual(input, &HeadLimits::default()) else {
            return false;
        };
        let thorough = thorough(input).unwrap_or_else(|| panic!("taken: {:?}", String::from_utf8_lossy(input)));
        assert!(input[start_line_end..].starts_with(b"\r\n") && input[..end].ends_with(b"\r\n\r\n"));
        assert!(!input[..start_line_end].contains(&b'\r'));
        assert_eq!(all(used), all(&thorough), "{:?}", String::from_utf8_lossy(input));
        assert_eq!(used.block(), thorough.block_range(super::super::Span { start: 0, end: end as u32 }));
        assert_eq!(used.len(), thorough.len());
        for id in HeaderId::all() {
            assert_eq!(used.get(id), thorough.get(id));
            assert_eq!(used.get_all(id).count(), thorough.get_all(id).count());
            assert_eq!(used.is_repeated(id), thorough.is_repeated(id));
        }
        assert_eq!(used.noted, thorough.noted);
        assert_eq!(used.canonical_length(), thorough.canonical_length());
        true
    }

    #[test]
    fn every_byte_at_every_place() {
        let mut used = Fields::new();
        assert!(compare(HEAD, &mut used));
        let mut taken = 0;
        for at in 0..HEAD.len() {
            for byte in 0..=255u8 {
                let mut input = HEAD.to_vec();
                input[at] = byte;
                taken += usize::from(compare(&input, &mut used));
            }
        }
        assert!(taken > HEAD.len() * 50, "{taken}");
    }

    #[test]
    fn every_pair_of_special_bytes_in_and_out() {
        const SPECIAL: &[u8] = b"\r\n\t :-_A\x00\x0d\x10\x1f\x7f\x80\xff";
        let mut used = Fields::new();
        for at in 0..=HEAD.len() {
            for &first in SPECIAL {
                for &second in SPECIAL {
                    let mut input = HEAD.to_vec();
                    input.splice(at..at, [first, second]);
                    compare(&input, &mut used);
                    input.drain((at + 2).min(input.len())..(at + 4).min(input.len()));
                    compare(&input, &mut used);
                }
            }
        }
    }

    #[test]
    fn cut_heads_are_never_completed_by_earlier_ones() {
        let mut used = Fields::new();
        let end = used.load_usual(HEAD, &HeadLimits::default()).unwrap().end;
        for cut in 0..HEAD.len() {
            assert_eq!(compare(&HEAD[..cut], &mut used), cut >= end, "{cut}");
            used.load_usual(HEAD, &HeadLimits::default()).unwrap();
        }
    }

    #[test]
    fn limits_and_lengths() {
        let mut used = Fields::new();
        let limits = |max_bytes, max_fields| HeadLimits { max_bytes, max_fields };
        let end = used.load_usual(HEAD, &limits(1 << 20, 8)).unwrap().end;
        assert_eq!(used.load_usual(HEAD, &limits(1 << 20, 7)), None);
        assert!(used.load_usual(HEAD, &limits(end, 8)).is_some());
        assert_eq!(used.load_usual(HEAD, &limits(end - 1, 8)), None);
        // Around the longest head that is taken, with every kind of line at its end.
        for length in USUAL_HEAD_BYTES - 80..USUAL_HEAD_BYTES + 20 {
            for behind in ["\r\n\r\n", "\r\nvia: a\r\n\r\n", "\r\nx-y: abcdefghijklmnopqrst\r\n\r\n"] {
                let input = format!("GET / HTTP/1.1\r\nhost: {}{behind}", "a".repeat(length));
                assert_eq!(compare(input.as_bytes(), &mut used), input.len() <= USUAL_HEAD_BYTES, "{length}");
            }
        }
    }

    #[test]
    fn names_of_every_length() {
        let mut used = Fields::new();
        for length in 0..40 {
            for byte in [b'a', b'Z', b'-', b'7', b'_', b'\r', 0, 0x10, b':', b' '] {
                for at in 0..length {
                    let mut name = vec![b'x'; length];
                    name[at] = byte;
                    let input = [b"A\r\n", &name[..], b": v\r\n\r\n"].concat();
                    let plain = byte.is_ascii_alphanumeric() || byte == b'-';
                    assert_eq!(compare(&input, &mut used), plain, "{input:x?}");
                }
            }
        }
    }
}
