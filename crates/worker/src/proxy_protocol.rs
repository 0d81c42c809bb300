//! The PROXY protocol, with which a proxy in front of us says where a connection comes from
//! (<https://www.haproxy.org/download/2.9/doc/proxy-protocol.txt>).
//!
//! It only reads and writes bytes: the listener has those that came, and says what becomes of the connection. Whoever can connect can say
//! anything here, so a listener that believes it must be reachable for the proxy in front alone.

mod tlvs;
mod write;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use postrider_model::ProxyProtocol;

pub(crate) use tlvs::{merge, note};
pub(crate) use write::write;

/// The longest header of version 1, line end included (section 2.1).
const MOST_V1: usize = 107;

const SIGNATURE_V1: &[u8] = b"PROXY ";
const SIGNATURE_V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// The part of a header of version 2 that each has.
const FIXED_V2: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    V1,
    V2,
}

/// What the first bytes of a connection are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    NeedMore,
    /// Something else.
    Absent,
    /// So many bytes, and both ends of the connection, source first; `None` where the proxy in front speaks for itself.
    Header(Version, usize, Option<(SocketAddr, SocketAddr)>),
    /// A version that is not allowed.
    Disallowed(Version),
    Malformed(Version),
}

/// Reads the header at the beginning of `bytes`.
pub(crate) fn read(bytes: &[u8], rules: &ProxyProtocol) -> Reading {
    let known = [(SIGNATURE_V1, Version::V1, rules.v1), (SIGNATURE_V2, Version::V2, rules.v2)];
    for (signature, version, allowed) in known {
        // Where others may connect too, a version that is not read is nothing special.
        if !allowed && rules.optional {
            continue;
        }
        if bytes.starts_with(signature) {
            return match (allowed, version) {
                (false, version) => Reading::Disallowed(version),
                (true, Version::V1) => read_v1(bytes),
                (true, Version::V2) => read_v2(bytes),
            };
        }
        if signature.starts_with(bytes) {
            return Reading::NeedMore;
        }
    }
    Reading::Absent
}

/// A line of text (section 2.1).
fn read_v1(bytes: &[u8]) -> Reading {
    let start = bytes.get(..MOST_V1).unwrap_or(bytes);
    let Some(end) = start.iter().position(|byte| *byte == b'\n') else {
        return if start.len() < MOST_V1 { Reading::NeedMore } else { Reading::Malformed(Version::V1) };
    };
    match ends_of_v1(start.get(..end).unwrap_or_default()) {
        Some(ends) => Reading::Header(Version::V1, end + 1, ends),
        None => Reading::Malformed(Version::V1),
    }
}

/// `None` when the line is not good.
fn ends_of_v1(line: &[u8]) -> Option<Option<(SocketAddr, SocketAddr)>> {
    let line = std::str::from_utf8(line).ok()?.strip_suffix('\r')?;
    let mut words = line.strip_prefix("PROXY ")?.split(' ');
    let family = words.next()?;
    if family == "UNKNOWN" {
        // What follows means nothing.
        return Some(None);
    }
    let mut address = || -> Option<IpAddr> {
        let word = words.next()?;
        match family {
            "TCP4" => word.parse::<Ipv4Addr>().ok().map(IpAddr::from),
            "TCP6" => word.parse::<Ipv6Addr>().ok().map(IpAddr::from),
            _ => None,
        }
    };
    let (source, destination) = (address()?, address()?);
    let mut port = || words.next().filter(|word| word.bytes().all(|byte| byte.is_ascii_digit()))?.parse::<u16>().ok();
    let ends = (SocketAddr::new(source, port()?), SocketAddr::new(destination, port()?));
    (words.next().is_none() && both_are_hosts(&ends)).then_some(Some(ends))
}

/// Binary (section 2.2).
fn read_v2(bytes: &[u8]) -> Reading {
    const BAD: Reading = Reading::Malformed(Version::V2);
    let Some([.., kind, family, high, low]) = bytes.first_chunk::<FIXED_V2>() else { return Reading::NeedMore };
    if kind >> 4 != 2 {
        return BAD;
    }
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    let Some(content) = bytes.get(FIXED_V2..FIXED_V2 + length) else { return Reading::NeedMore };
    let ends = match (kind & 0x0f, family) {
        // LOCAL: a check of the proxy's own; what follows means nothing.
        (0, _) => None,
        (1, 0x11 | 0x12) => match ends_of_v2::<4>(content) {
            Some((ends, rest)) if both_are_hosts(&ends) && are_tlvs(rest) => Some(ends),
            _ => return BAD,
        },
        (1, 0x21 | 0x22) => match ends_of_v2::<16>(content) {
            Some((ends, rest)) if both_are_hosts(&ends) && are_tlvs(rest) => Some(ends),
            _ => return BAD,
        },
        _ => return BAD,
    };
    Reading::Header(Version::V2, FIXED_V2 + length, ends)
}

/// Two addresses of `N` bytes and two ports, and what follows.
fn ends_of_v2<const N: usize>(content: &[u8]) -> Option<((SocketAddr, SocketAddr), &[u8])>
where
    IpAddr: From<[u8; N]>,
{
    let (source, rest) = content.split_first_chunk::<N>()?;
    let (destination, rest) = rest.split_first_chunk::<N>()?;
    let (source_port, rest) = rest.split_first_chunk::<2>()?;
    let (destination_port, rest) = rest.split_first_chunk::<2>()?;
    let end = |ip: &[u8; N], port: &[u8; 2]| SocketAddr::new(IpAddr::from(*ip), u16::from_be_bytes(*port));
    Some(((end(source, source_port), end(destination, destination_port)), rest))
}

/// Types and lengths fit; nobody asks for the values.
fn are_tlvs(mut bytes: &[u8]) -> bool {
    while let Some(([_, high, low], rest)) = bytes.split_first_chunk::<3>() {
        match rest.get(usize::from(u16::from_be_bytes([*high, *low]))..) {
            Some(next) => bytes = next,
            None => return false,
        }
    }
    bytes.is_empty()
}

/// A connection has two hosts at its ends, never a group of them or nobody.
fn both_are_hosts((source, destination): &(SocketAddr, SocketAddr)) -> bool {
    [source, destination].iter().all(|end| match end.ip() {
        IpAddr::V4(ip) => !ip.is_unspecified() && !ip.is_broadcast() && !ip.is_multicast(),
        IpAddr::V6(ip) => !ip.is_unspecified() && !ip.is_multicast(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(v1: bool, v2: bool, optional: bool) -> ProxyProtocol {
        ProxyProtocol { v1, v2, optional, ..ProxyProtocol::default() }
    }

    fn any(bytes: &[u8]) -> Reading {
        read(bytes, &rules(true, true, false))
    }

    fn v2(kind: u8, family: u8, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [SIGNATURE_V2, &[kind, family], &length, content].concat()
    }

    const FOUR: &[u8] = &[10, 1, 2, 3, 10, 4, 5, 6, 0x04, 0x57, 0x08, 0xae];

    fn ends(source: &str, destination: &str) -> Option<(SocketAddr, SocketAddr)> {
        Some((source.parse().unwrap(), destination.parse().unwrap()))
    }

    #[test]
    fn lines_of_text() {
        let four = ends("10.1.2.3:1111", "10.4.5.6:2222");
        for (line, want) in [
            ("PROXY TCP4 10.1.2.3 10.4.5.6 1111 2222\r\n", Some(four)),
            ("PROXY TCP6 fd00::1 fd00::2 1111 2222\r\n", Some(ends("[fd00::1]:1111", "[fd00::2]:2222"))),
            ("PROXY TCP4 10.1.2.3 10.4.5.6 0 0\r\n", Some(ends("10.1.2.3:0", "10.4.5.6:0"))),
            ("PROXY UNKNOWN\r\n", Some(None)),
            ("PROXY UNKNOWN ff 1 2 3 4 5\r\n", Some(None)),
            ("PROXY TCP5 10.1.2.3 10.4.5.6 1111 2222\r\n", None),
            ("PROXY TCP4 fd00::1 fd00::2 1111 2222\r\n", None),
            ("PROXY TCP6 10.1.2.3 10.4.5.6 1111 2222\r\n", None),
            ("PROXY TCP4 10.1.2.3 10.4.5.6 1111 65536\r\n", None),
            ("PROXY TCP4 10.1.2.3 10.4.5.6 +111 2222\r\n", None),
            ("PROXY TCP4 10.1.2.3 10.4.5.6 1111 2222\n", None),
            ("PROXY  TCP4 10.1.2.3 10.4.5.6 1111 2222\r\n", None),
            ("PROXY TCP4 10.1.2.3 10.4.5.6 1111\r\n", None),
            ("PROXY TCP4 10.1.2.3 10.4.5.6 1111 2222 9\r\n", None),
            ("PROXY TCP4 10.1.2.3 10.4.5.6 1111 2222 \r\n", None),
            ("PROXY TCP4 0.0.0.0 10.4.5.6 1111 2222\r\n", None),
            ("PROXY TCP4 10.1.2.3 255.255.255.255 1111 2222\r\n", None),
            ("PROXY TCP4 224.0.0.1 10.4.5.6 1111 2222\r\n", None),
            ("PROXY TCP6 ff02::1 fd00::2 1111 2222\r\n", None),
            ("PROXY \r\n", None),
            ("PROXY \u{e9}\r\n", None),
        ] {
            let want = match want {
                Some(ends) => Reading::Header(Version::V1, line.len(), ends),
                None => Reading::Malformed(Version::V1),
            };
            assert_eq!(any(line.as_bytes()), want, "{line:?}");
            assert_eq!(any(&[line.as_bytes(), b"GET / HTTP/1.1\r\n"].concat()), want, "{line:?}");
            for cut in 0..line.len() {
                assert_eq!(any(&line.as_bytes()[..cut]), Reading::NeedMore, "{cut} of {line:?}");
            }
        }
        let long = |digits: usize| [b"PROXY UNKNOWN ", "1".repeat(digits).as_bytes(), b"\r\n"].concat();
        assert_eq!(any(&long(91)), Reading::Header(Version::V1, 107, None));
        assert_eq!(any(&long(92)), Reading::Malformed(Version::V1));
        assert_eq!(any(&long(92)[..107]), Reading::Malformed(Version::V1), "its line end cannot come in time");
    }

    #[test]
    fn binary_headers() {
        let six: Vec<u8> = [&[0xfd; 16][..], &[0xfc; 16], &[0, 1, 0, 2]].concat();
        let tlvs = |content: &[u8]| [FOUR, content].concat();
        let four = ends("10.1.2.3:1111", "10.4.5.6:2222");
        let group: Vec<u8> = [&[224, 0, 0, 1], &FOUR[4..]].concat();
        for (bytes, want) in [
            (v2(0x21, 0x11, FOUR), Some(four)),
            (v2(0x21, 0x12, FOUR), Some(four)),
            (
                v2(0x21, 0x21, &six),
                Some(ends(
                    "[fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd]:1",
                    "[fcfc:fcfc:fcfc:fcfc:fcfc:fcfc:fcfc:fcfc]:2",
                )),
            ),
            (v2(0x21, 0x11, &tlvs(&[0xe1, 0, 2, 9, 9, 4, 0, 0])), Some(four)),
            (v2(0x20, 0x11, FOUR), Some(None)),
            (v2(0x20, 0x00, &[]), Some(None)),
            (v2(0x20, 0xff, &[1, 2, 3]), Some(None)),
            (v2(0x21, 0x00, &[]), None),
            (v2(0x21, 0x31, &[b'a'; 216]), None),
            (v2(0x22, 0x11, FOUR), None),
            (v2(0x11, 0x11, FOUR), None),
            (v2(0x21, 0x11, &FOUR[..11]), None),
            (v2(0x21, 0x21, FOUR), None),
            (v2(0x21, 0x11, &tlvs(&[0xe1, 0, 3, 9, 9])), None),
            (v2(0x21, 0x11, &tlvs(&[0xe1])), None),
            (v2(0x21, 0x11, &group), None),
        ] {
            let want = match want {
                Some(ends) => Reading::Header(Version::V2, bytes.len(), ends),
                None => Reading::Malformed(Version::V2),
            };
            assert_eq!(any(&bytes), want, "{bytes:02x?}");
            assert_eq!(any(&[&bytes[..], b"\x16\x03\x01"].concat()), want, "{bytes:02x?}");
            for cut in 0..16.min(bytes.len()) {
                assert_eq!(any(&bytes[..cut]), Reading::NeedMore, "{cut} of {bytes:02x?}");
            }
        }
        let longest = v2(0x21, 0x11, &tlvs(&[&[4, 0xff, 0xf0][..], &vec![7; 0xfff0]].concat()));
        assert_eq!(longest.len(), 16 + 0xffff);
        assert_eq!(any(&longest), Reading::Header(Version::V2, longest.len(), four));
        assert_eq!(any(&longest[..longest.len() - 1]), Reading::NeedMore);
    }

    #[test]
    fn versions_may_be_forbidden_and_the_header_optional() {
        let (one, two) = (&b"PROXY UNKNOWN\r\n"[..], v2(0x20, 0, &[]));
        let header = |version, bytes: &[u8]| Reading::Header(version, bytes.len(), None);
        for (allowed, bytes, want) in [
            (rules(true, false, false), one, header(Version::V1, one)),
            (rules(true, false, false), &two, Reading::Disallowed(Version::V2)),
            (rules(false, true, false), one, Reading::Disallowed(Version::V1)),
            (rules(false, true, false), &two, header(Version::V2, &two)),
            (rules(false, true, true), one, Reading::Absent),
            (rules(true, false, true), &two, Reading::Absent),
            (rules(true, true, true), b"GET / HTTP/1.1", Reading::Absent),
            (rules(true, true, false), b"GET / HTTP/1.1", Reading::Absent),
            (rules(true, true, true), b"P", Reading::NeedMore),
            (rules(true, true, true), b"PUT", Reading::Absent),
            (rules(true, true, true), b"\x16\x03", Reading::Absent),
            (rules(true, true, true), b"PROXY x\r\n", Reading::Malformed(Version::V1)),
        ] {
            assert_eq!(read(bytes, &allowed), want, "{allowed:?} {bytes:?}");
        }
    }
}
