//! Byte classes of RFC 9110/9112/3986 as tables, and the vectorisable whole-block check.

use wide::i8x16;

/// Lower-case form of each RFC 9110 5.6.2 `tchar`; 0 for every byte that is not one.
pub(crate) static TOKEN_LOWER: [u8; 256] = token_lower();

/// Whether `bytes` is a non-empty token (RFC 9110 5.6.2).
#[inline]
pub fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&b| token_lower_of(b) != 0)
}

/// A name up to this length is changed on the stack; longer ones are rare.
const SHORT_NAME: usize = 64;

/// Runs `act` with `name` in lower case. Allocates only for a long name that has capitals.
#[inline]
pub fn with_lower_case<T>(name: &[u8], act: impl FnOnce(&[u8]) -> T) -> T {
    // One call of `act`, which is made part of this then.
    let (mut short, long);
    let name = if has_capitals(name) {
        short = [0; SHORT_NAME];
        match short.get_mut(..name.len()) {
            Some(room) => {
                room.copy_from_slice(name);
                room.make_ascii_lowercase();
                &*room
            }
            None => {
                long = name.to_ascii_lowercase();
                &*long
            }
        }
    } else {
        name
    };
    act(name)
}

/// Whether a byte is one of `A` to `Z`, a word at a time; the last word may overlap the one before.
#[inline]
fn has_capitals(name: &[u8]) -> bool {
    let Some(last) = name.last_chunk::<WORD>() else { return name.iter().any(u8::is_ascii_uppercase) };
    let mut found = capitals_in_word(u64::from_le_bytes(*last));
    let mut rest = name;
    while let Some((word, behind)) = rest.split_first_chunk::<WORD>() {
        found |= capitals_in_word(u64::from_le_bytes(*word));
        rest = behind;
    }
    found != 0
}

/// The top bit of each byte that is one of `A` to `Z`.
#[inline]
fn capitals_in_word(word: u64) -> u64 {
    // Below the top bit no sum runs over into the next byte; two sums differ inside a range.
    let seven = word & !HIGHS;
    ((seven + all(0x80 - b'A')) ^ (seven + all(0x7f - b'Z'))) & HIGHS & !word
}

/// Whether `value` may stand in a field: no control but HTAB, no DEL (RFC 9110 5.5).
#[inline]
pub fn is_field_value(value: &[u8]) -> bool {
    is_usual_value(value) || !value.iter().fold(false, |bad, &b| bad | is_forbidden(b))
}

/// Whether `value` is visible ASCII and spaces, a word at a time; the last word may overlap the one before.
#[inline]
fn is_usual_value(value: &[u8]) -> bool {
    let is_usual = |word: u64| unusual_in_word(word) == 0;
    if let Some(last) = value.last_chunk::<WORD>() {
        let mut rest = value;
        while let Some((word, behind)) = rest.split_first_chunk::<WORD>() {
            if !is_usual(u64::from_le_bytes(*word)) {
                return false;
            }
            rest = behind;
        }
        return is_usual(u64::from_le_bytes(*last));
    }
    match (value.first_chunk::<4>(), value.last_chunk::<4>()) {
        (Some(first), Some(last)) => {
            is_usual(u64::from(u32::from_le_bytes(*first)) << 32 | u64::from(u32::from_le_bytes(*last)))
        }
        _ => value.iter().all(|b| matches!(b, b' '..=b'~')),
    }
}

/// `value` without surrounding optional white space (RFC 9110 5.6.3).
#[inline]
pub fn trim_ows(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// The members of a comma-separated list, trimmed, empty ones left out (RFC 9110 5.6.1.2).
pub fn list_members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&b| b == b',').map(trim_ows).filter(|member| !member.is_empty())
}

#[inline]
pub(crate) fn token_lower_of(byte: u8) -> u8 {
    // A `u8` always indexes a table of 256; `get` keeps the promise visible and costs nothing.
    TOKEN_LOWER.get(byte as usize).copied().unwrap_or(0)
}

#[inline]
fn is_forbidden(byte: u8) -> bool {
    ((byte < 0x20) & (byte != b'\t')) | (byte == 0x7f)
}

/// Counts the control bytes (below 0x20, and DEL) of a block. A plain sum over a run is what compilers
/// make vector code of: a whole head is checked for less than its values one by one.
#[inline]
pub(crate) fn count_controls(block: &[u8]) -> usize {
    /// The sum is kept in a byte; a run must not be able to overflow it.
    const RUN: usize = 224;
    block
        .chunks(RUN)
        .map(|run| run.iter().map(|&b| u8::from((b < 0x20) | (b == 0x7f))).fold(0u8, u8::wrapping_add) as usize)
        .sum()
}

/// Bytes that [`lower_name_word`] takes at a time.
pub(crate) const WORD: usize = 8;

/// Lower-cases the leading letters, digits and `-` of eight bytes in place and returns their number; nearly
/// every header name consists of them. Each byte keeps to its own eight bits: sums stay below 0x100.
#[inline]
pub(crate) fn lower_name_word(bytes: &mut [u8; WORD]) -> usize {
    let word = u64::from_le_bytes(*bytes);
    let seven = word & !HIGHS;
    let lower = word | (capitals_in_word(word) >> 2);
    let lower_seven = lower & !HIGHS;
    // The high bit of each sum tells whether the byte reaches the bound; two sums differ inside a range.
    let letter = (lower_seven + all(0x80 - b'a')) ^ (lower_seven + all(0x7f - b'z'));
    let digit = (seven + all(0x80 - b'0')) ^ (seven + all(0x7f - b'9'));
    let dash = !((seven ^ all(b'-')) + all(0x7f));
    let stop = !(letter | digit | dash) & HIGHS | (word & HIGHS);
    if stop == 0 {
        *bytes = lower.to_le_bytes();
        return WORD;
    }
    let bits = stop.trailing_zeros() & !7;
    let keep = (1u64 << bits) - 1;
    *bytes = (lower & keep | word & !keep).to_le_bytes();
    (bits / 8) as usize
}

const ONES: u64 = u64::from_le_bytes([1; WORD]);
const HIGHS: u64 = ONES << 7;

/// Eight times the same byte.
#[inline(always)]
const fn all(byte: u8) -> u64 {
    ONES * byte as u64
}

/// Marks, in its highest bit, each byte of `word` that is no visible ASCII and no space. A byte behind a true mark
/// may be marked wrongly (a borrow or carry reaches it); the first mark is always true.
#[inline(always)]
pub(crate) fn unusual_in_word(word: u64) -> u64 {
    (word.wrapping_sub(all(b' ')) | word.wrapping_add(ONES)) & HIGHS
}

/// Bytes that are looked at at once where the processor has registers for them.
pub(crate) const LANE: usize = 16;

/// A bit for each byte of `lane`, the first lowest, that is no visible ASCII and no space.
#[inline(always)]
pub(crate) fn unusual_in_lane(lane: [u8; LANE]) -> u32 {
    // As numbers with a sign, bytes outside ASCII are less than a space too.
    let lane = i8x16::new(lane.map(u8::cast_signed));
    (lane.simd_lt(i8x16::splat(0x20)) | lane.simd_eq(i8x16::splat(0x7f))).to_bitmask()
}

/// Marks, in its highest bit, each byte of `word` that is `byte`, which is ASCII. The first mark is true, or lies on
/// or behind a byte outside ASCII.
#[inline(always)]
pub(crate) fn ascii_in_word(word: u64, byte: u8) -> u64 {
    (word ^ all(byte)).wrapping_sub(ONES) & HIGHS
}

#[allow(clippy::indexing_slicing, reason = "a byte indexes a table of 256, and this runs in the compiler")]
const fn token_lower() -> [u8; 256] {
    let mut table = [0u8; 256];
    let extra = b"!#$%&'*+-.^_`|~";
    let mut i = 0;
    while i < extra.len() {
        table[extra[i] as usize] = extra[i];
        i += 1;
    }
    let mut b = 0usize;
    while b < 256 {
        let byte = b as u8;
        if byte.is_ascii_alphanumeric() {
            table[b] = byte.to_ascii_lowercase();
        }
        b += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_are_counted_at_every_offset() {
        for byte in 0..=255u8 {
            for at in [0usize, 1, 15, 16, 17, 31, 32, 40] {
                let mut block = vec![b'a'; 41];
                block[at] = byte;
                assert_eq!(count_controls(&block), usize::from(byte < 0x20 || byte == 0x7f), "{byte:#x} at {at}");
            }
        }
        assert_eq!(count_controls(&[1; 10_007]), 10_007);
    }

    #[test]
    fn field_values_are_judged_at_every_length() {
        for length in 0..40 {
            for at in 0..length {
                for byte in 0..=255u8 {
                    let mut value = vec![b'v'; length];
                    value[at] = byte;
                    assert_eq!(is_field_value(&value), byte == b'\t' || (byte >= 0x20 && byte != 0x7f), "{value:x?}");
                }
            }
            assert!(is_field_value(&vec![b' '; length]));
        }
    }

    #[test]
    fn capitals_are_found_at_every_place() {
        for length in 0..20 {
            for at in 0..length {
                for byte in 0..=255u8 {
                    for around in [b'a', b'@', b'[', 0, 0xff] {
                        let mut name = vec![around; length];
                        name[at] = byte;
                        assert_eq!(has_capitals(&name), byte.is_ascii_uppercase(), "{name:x?}");
                    }
                }
            }
        }
        assert_eq!(with_lower_case(b"X-Long-Name", <[u8]>::to_vec), b"x-long-name");
    }

    #[test]
    fn every_unusual_byte_of_a_lane_is_marked() {
        for byte in 0..=255u8 {
            let unusual = !matches!(byte, b' '..=b'~');
            for at in 0..LANE {
                for others in [b' ', b'~', 0x7f, 0xff] {
                    let mut lane = [others; LANE];
                    lane[at] = byte;
                    let rest = if matches!(others, 0x7f | 0xff) { u32::from(u16::MAX) & !(1 << at) } else { 0 };
                    assert_eq!(unusual_in_lane(lane), rest | u32::from(unusual) << at, "{lane:x?}");
                }
            }
        }
    }

    #[test]
    fn first_marks_are_true() {
        let first = |marks: u64| (marks != 0).then(|| (marks.trailing_zeros() / 8) as usize);
        for byte in 0..=255u8 {
            for at in 0..WORD {
                for behind in [b'a', b':', b';', b'9', 0, 0x1f, 0x20, 0x7e, 0x7f, 0x80, 0xff] {
                    for before in [b' ', b'~', b'!'] {
                        let mut bytes = [before; WORD];
                        bytes[at..].fill(behind);
                        bytes[at] = byte;
                        let word = u64::from_le_bytes(bytes);
                        let unusual = bytes.iter().position(|b| !matches!(b, b' '..=b'~'));
                        assert_eq!(first(unusual_in_word(word)), unusual, "{bytes:x?}");
                        for wanted in [b':', byte] {
                            let want = bytes.iter().position(|&b| b == wanted);
                            let foreign = bytes.iter().position(|b| !b.is_ascii());
                            let found = first(ascii_in_word(word, wanted & 0x7f));
                            let fine = found == want || foreign.is_some_and(|at| found.is_none_or(|found| at <= found));
                            assert!(fine || !wanted.is_ascii(), "{bytes:x?}: {found:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn name_words_agree_with_the_table() {
        for byte in 0..=255u8 {
            for at in 0..WORD {
                for around in [*b"AbCdZ-09", *b"ZzAa90-x"] {
                    let mut word = around;
                    word[at] = byte;
                    let before = word;
                    let length = lower_name_word(&mut word);
                    let plain = byte.is_ascii_alphanumeric() || byte == b'-';
                    assert_eq!(length, if plain { WORD } else { at }, "{byte:#x} at {at}");
                    for i in 0..WORD {
                        let want = if i < length { token_lower_of(before[i]) } else { before[i] };
                        assert_eq!(word[i], want, "{byte:#x} at {at}");
                    }
                }
            }
        }
    }

    #[test]
    fn lists_drop_empty_members() {
        let members: Vec<_> = list_members(b" a,, \tb , ").collect();
        assert_eq!(members, [&b"a"[..], b"b"]);
    }
}
