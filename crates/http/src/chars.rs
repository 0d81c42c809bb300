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
    !value.iter().any(|&b| is_forbidden(b))
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
    (byte < 0x20 && byte != b'\t') || byte == 0x7f
}

/// What one sweep over a received head found.
pub(crate) struct Controls {
    /// A control other than HTAB, CR, LF, or a DEL, is in the block.
    pub bad: bool,
    /// Number of CR bytes: more than there are lines means that one is bare.
    pub carriage_returns: usize,
}

/// Sweeps a whole head for bytes that no field may contain. Sixteen at a time without a branch, so
/// that the compiler makes vector code of it; cheaper than looking at each value by itself.
#[inline]
pub(crate) fn sweep_controls(block: &[u8]) -> Controls {
    const LANES: usize = 16;
    let mut bad = [0u8; LANES];
    let mut carriage_returns = 0usize;
    let (chunks, tail) = block.as_chunks::<LANES>();
    let mut padded = [b' '; LANES];
    for (to, from) in padded.iter_mut().zip(tail) {
        *to = *from;
    }
    for chunk in chunks.iter().chain(std::iter::once(&padded)) {
        let mut returns = [0u8; LANES];
        for ((bad, returns), &b) in bad.iter_mut().zip(&mut returns).zip(chunk) {
            let allowed = (b == b'\t') | (b == b'\r') | (b == b'\n');
            *bad |= u8::from(((b < 0x20) & !allowed) | (b == 0x7f));
            *returns = u8::from(b == b'\r');
        }
        carriage_returns += returns.iter().map(|&n| n as usize).sum::<usize>();
    }
    Controls { bad: bad.iter().any(|&b| b != 0), carriage_returns }
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
    fn sweep_agrees_with_the_byte_rule_at_every_offset() {
        for byte in 0..=255u8 {
            for at in [0usize, 1, 15, 16, 17, 31, 32, 40] {
                let mut block = vec![b'a'; 41];
                block[at] = byte;
                let found = sweep_controls(&block);
                let line_byte = byte == b'\r' || byte == b'\n';
                assert_eq!(found.bad, is_forbidden(byte) && !line_byte, "{byte:#x} at {at}");
                assert_eq!(found.carriage_returns, usize::from(byte == b'\r'));
            }
        }
    }

    #[test]
    fn lists_drop_empty_members() {
        let members: Vec<_> = list_members(b" a,, \tb , ").collect();
        assert_eq!(members, [&b"a"[..], b"b"]);
    }
}
