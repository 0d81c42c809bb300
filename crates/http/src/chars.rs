//! Byte classes of RFC 9110/9112/3986 as tables, and the vectorisable whole-block check.

/// Lower-case form of each RFC 9110 5.6.2 `tchar`; 0 for every byte that is not one.
pub(crate) static TOKEN_LOWER: [u8; 256] = token_lower();

/// Whether `bytes` is a non-empty token (RFC 9110 5.6.2).
#[inline]
pub fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&b| token_lower_of(b) != 0)
}

/// Whether `value` may stand in a field: no control but HTAB, no DEL (RFC 9110 5.5).
#[inline]
pub fn is_field_value(value: &[u8]) -> bool {
    // Without an early exit, so that it becomes vector code.
    !value.iter().fold(false, |bad, &b| bad | is_forbidden(b))
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
    const fn all(byte: u8) -> u64 {
        u64::from_le_bytes([byte; WORD])
    }
    const HIGH: u64 = all(0x80);
    let word = u64::from_le_bytes(*bytes);
    let seven = word & !HIGH;
    // The high bit of each sum tells whether the byte reaches the bound; two sums differ inside a range.
    let upper = ((seven + all(0x80 - b'A')) ^ (seven + all(0x7f - b'Z'))) & HIGH & !word;
    let lower = word | (upper >> 2);
    let lower_seven = lower & !HIGH;
    let letter = (lower_seven + all(0x80 - b'a')) ^ (lower_seven + all(0x7f - b'z'));
    let digit = (seven + all(0x80 - b'0')) ^ (seven + all(0x7f - b'9'));
    let dash = !((seven ^ all(b'-')) + all(0x7f));
    let stop = !(letter | digit | dash) & HIGH | (word & HIGH);
    if stop == 0 {
        *bytes = lower.to_le_bytes();
        return WORD;
    }
    let bits = stop.trailing_zeros() & !7;
    let keep = (1u64 << bits) - 1;
    *bytes = (lower & keep | word & !keep).to_le_bytes();
    (bits / 8) as usize
}

/// Offset of the first control byte (below 0x20, or DEL) at or after `from`, eight bytes at a time; `None` when
/// there is none before the last whole word ends.
#[inline(always)]
pub(crate) fn first_control(block: &[u8], from: usize) -> Option<usize> {
    const ONES: u64 = u64::from_le_bytes([1; WORD]);
    let mut at = from;
    while let Some(word) = block.get(at..).and_then(<[u8]>::first_chunk::<WORD>) {
        let word = u64::from_le_bytes(*word);
        let delete = word ^ (ONES * 0x7f);
        // A borrow may mark a byte behind a true mark wrongly; the first mark is always true.
        let low = word.wrapping_sub(ONES * 0x20) & !word;
        let marks = (low | (delete.wrapping_sub(ONES) & !delete)) & (ONES << 7);
        if marks != 0 {
            return Some(at + (marks.trailing_zeros() / 8) as usize);
        }
        at += WORD;
    }
    None
}

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
    fn first_controls_are_found() {
        for byte in 0..=255u8 {
            for at in 0..23 {
                for behind in [b'a', 0x1f, 0x20, 0x7f, 0x80] {
                    let mut block = *b"abcdefgh\xc3\xa9jklmn ~!\xffpqrs";
                    block[at] = byte;
                    if at + 1 < block.len() {
                        block[at + 1] = behind;
                    }
                    let want = (3..23).find(|&i| block[i] < 0x20 || block[i] == 0x7f);
                    // From 3 there are two whole words, up to 19.
                    assert_eq!(first_control(&block, 3), want.filter(|&i| i < 19), "{byte:#x} {at} {behind:#x}");
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
