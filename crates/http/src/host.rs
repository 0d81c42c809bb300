//! The authority of a request: its grammar, and what `Host` may look like (RFC 9110 4.2, RFC 3986 3.2).
//!
//! Stricter than RFC 3986's reg-name: names carry letters, digits, `-`, `.`, `_` and `~` only. A comma
//! would let two joined Host lines pass for one, an escape would give one host two spellings.

use crate::{Reject, reason};

/// Checks `host [ ":" port ]`.
///
/// # Errors
/// [`reason::USERINFO`] when there is an `@`, else [`reason::INVALID_AUTHORITY`].
pub fn check_authority(authority: &[u8]) -> Result<(), Reject> {
    scan_authority(authority).map(|_| ())
}

/// [`check_authority`] that also tells whether there are capitals, from the same look at each byte.
#[inline]
pub(crate) fn scan_authority(authority: &[u8]) -> Result<bool, Reject> {
    let mut port_at = authority.len();
    while let Some(byte) = authority.get(port_at.wrapping_sub(1))
        && byte.is_ascii_digit()
    {
        port_at -= 1;
    }
    let (host, port) = match authority.split_at_checked(port_at) {
        Some(([host @ .., b':'], port)) => (host, port),
        _ => (authority, &[][..]),
    };
    // Without an early exit: this loop is short.
    let seen = host.iter().fold(0, |seen, &byte| seen | CLASS.get(byte as usize).copied().unwrap_or(OTHER));
    if seen & OTHER == 0 && !host.is_empty() && is_port_number(port) {
        return Ok(seen & UPPER != 0);
    }
    check_unusual(authority)
}

/// An IPv6 literal, or the cause of refusal.
#[cold]
fn check_unusual(authority: &[u8]) -> Result<bool, Reject> {
    let (host, port) = split_port(authority);
    if let [b'[', inner @ .., b']'] = host
        && is_ipv6(inner)
        && port.is_none_or(is_port)
    {
        return Ok(inner.iter().any(u8::is_ascii_uppercase));
    }
    Err(if authority.contains(&b'@') { reason::USERINFO } else { reason::INVALID_AUTHORITY })
}

/// Splits `host[:port]` at the port's colon; brackets stay with the host. An authority that passed
/// [`check_authority`] gives a port of at most five digits (an empty one for `host:`).
#[inline]
pub fn split_port(authority: &[u8]) -> (&[u8], Option<&[u8]>) {
    let digits = authority.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let before = authority.len() - digits;
    match authority.split_at_checked(before) {
        Some(([host @ .., b':'], port)) if !host.contains(&b':') || host.ends_with(b"]") => (host, Some(port)),
        _ => (authority, None),
    }
}

/// A byte of a name that has no capital form, or is one already in lower case.
const LOWER: u8 = 1;
const UPPER: u8 = 2;
/// A byte that has no place in a name.
const OTHER: u8 = 4;

static CLASS: [u8; 256] = classes();

#[allow(clippy::indexing_slicing, reason = "a byte indexes a table of 256, and this runs in the compiler")]
const fn classes() -> [u8; 256] {
    let mut table = [OTHER; 256];
    let mut b = 0usize;
    while b < 256 {
        let byte = b as u8;
        if byte.is_ascii_uppercase() {
            table[b] = UPPER;
        } else if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            table[b] = LOWER;
        }
        b += 1;
    }
    table
}

fn is_port(port: &[u8]) -> bool {
    port.iter().all(u8::is_ascii_digit) && is_port_number(port)
}

/// RFC 3986 allows no digits and any number of them; a TCP port ends at 65535.
#[inline]
fn is_port_number(digits: &[u8]) -> bool {
    digits.len() < 5 || (digits.len() == 5 && digits <= b"65535")
}

fn is_ipv6(inner: &[u8]) -> bool {
    std::str::from_utf8(inner).is_ok_and(|text| text.parse::<std::net::Ipv6Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities() {
        for good in
            ["a", "a.test", "A.Test.", "a_b.c", "127.0.0.1", "a:80", "a:", "[::1]", "[::1]:8080", "a:65535", "x--1.y"]
        {
            assert_eq!(check_authority(good.as_bytes()), Ok(()), "{good}");
        }
        for bad in [
            "",
            ":80",
            "a b",
            "a/b",
            "a,b",
            "a:65536",
            "a:99999",
            "a:080000",
            "a:8x",
            "a:-1",
            "a:80:80",
            "::1",
            "[::1",
            "[::1]x",
            "[::1]:x",
            "[fe80::1%25eth0]",
            "[]",
            "a\\b",
            "a%41",
            "a?b",
            "a#b",
            "\u{e9}",
            "a;b",
            "a'b",
        ] {
            assert_eq!(check_authority(bad.as_bytes()), Err(reason::INVALID_AUTHORITY), "{bad}");
        }
        for bad in ["u@a", "u:p@a", "@a", "a@", "u@a:80"] {
            assert_eq!(check_authority(bad.as_bytes()), Err(reason::USERINFO), "{bad}");
        }
    }

    #[test]
    fn ports_split_from_hosts() {
        assert_eq!(split_port(b"a:80"), (&b"a"[..], Some(&b"80"[..])));
        assert_eq!(split_port(b"a:"), (&b"a"[..], Some(&b""[..])));
        assert_eq!(split_port(b"a80"), (&b"a80"[..], None));
        assert_eq!(split_port(b"[::1]:80"), (&b"[::1]"[..], Some(&b"80"[..])));
        assert_eq!(split_port(b"[::1]"), (&b"[::1]"[..], None));
    }
}
