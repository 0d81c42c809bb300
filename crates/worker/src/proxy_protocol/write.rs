//! The header with which a connection to an upstream says where it comes from.

use std::net::{IpAddr, SocketAddr};

use postrider_model::{ProxyHeader, ProxyVersion, Tlv};

use super::SIGNATURE_V2;

/// Version 2, and who speaks: the proxy for itself, or for a client.
const LOCAL: u8 = 0x20;
const PROXY: u8 = 0x21;

/// A stream over either family.
const TCP4: u8 = 0x11;
const TCP6: u8 = 0x21;

/// Writes the header of a connection between `client`'s ends, source first; `None` where nobody else's connection is the
/// reason for it. `own` are the ends of the connection that begins with it, `passed` the TLVs that are known of the client's.
pub(crate) fn write(
    header: &ProxyHeader,
    client: Option<(SocketAddr, SocketAddr)>,
    passed: &[Tlv],
    own: Option<(SocketAddr, SocketAddr)>,
) -> Written {
    match header.version {
        ProxyVersion::V1 => Written { bytes: line(client.or(own)).into_bytes(), cut: false },
        ProxyVersion::V2 => binary(header, client, passed),
    }
}

/// A header.
pub(crate) struct Written {
    pub(crate) bytes: Vec<u8>,
    /// There were more TLVs than fit.
    pub(crate) cut: bool,
}

/// Section 2.1. As version 1 cannot say that the proxy speaks for itself, its own ends stand there, as in Envoy.
fn line(ends: Option<(SocketAddr, SocketAddr)>) -> String {
    let Some((source, destination)) = ends else { return "PROXY UNKNOWN\r\n".to_owned() };
    let family = match (source.ip(), destination.ip()) {
        (IpAddr::V4(_), IpAddr::V4(_)) => "TCP4",
        (IpAddr::V6(_), IpAddr::V6(_)) => "TCP6",
        _ => return "PROXY UNKNOWN\r\n".to_owned(),
    };
    format!("PROXY {family} {} {} {} {}\r\n", source.ip(), destination.ip(), source.port(), destination.port())
}

/// Section 2.2.
fn binary(header: &ProxyHeader, client: Option<(SocketAddr, SocketAddr)>, passed: &[Tlv]) -> Written {
    let (mut content, mut cut) = (Vec::new(), false);
    let (command, family) = match client {
        Some((SocketAddr::V4(source), SocketAddr::V4(destination))) => {
            content.extend_from_slice(&source.ip().octets());
            content.extend_from_slice(&destination.ip().octets());
            (PROXY, TCP4)
        }
        Some((SocketAddr::V6(source), SocketAddr::V6(destination))) => {
            content.extend_from_slice(&source.ip().octets());
            content.extend_from_slice(&destination.ip().octets());
            (PROXY, TCP6)
        }
        _ => (LOCAL, 0),
    };
    if let Some((source, destination)) = client.filter(|_| command == PROXY) {
        content.extend_from_slice(&source.port().to_be_bytes());
        content.extend_from_slice(&destination.port().to_be_bytes());
        // What the cluster says itself is told of no client.
        let own = |tlv: &&Tlv| header.tlvs.iter().any(|own| own.kind == tlv.kind);
        for tlv in header.tlvs.iter().chain(passed.iter().filter(|tlv| !own(tlv))) {
            let length = u16::try_from(tlv.value.len()).ok();
            let Some(length) = length.filter(|_| content.len() + 3 + tlv.value.len() <= usize::from(u16::MAX)) else {
                cut = true;
                continue;
            };
            content.push(tlv.kind);
            content.extend_from_slice(&length.to_be_bytes());
            content.extend_from_slice(&tlv.value);
        }
    }
    let length = u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes();
    Written { bytes: [SIGNATURE_V2, &[command, family], &length, &content].concat(), cut }
}

#[cfg(test)]
mod tests {
    use super::super::{Reading, Version, read};
    use super::*;
    use postrider_model::{ProxyProtocol, TlvChoice};

    fn header(version: ProxyVersion, tlvs: Vec<Tlv>) -> ProxyHeader {
        ProxyHeader { version, tlvs, passed: TlvChoice::All }
    }

    fn ends(source: &str, destination: &str) -> Option<(SocketAddr, SocketAddr)> {
        Some((source.parse().unwrap(), destination.parse().unwrap()))
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        let rules = ProxyProtocol { v1: true, v2: true, ..ProxyProtocol::default() };
        let tlv = Tlv { kind: 0xe1, value: b"abc".to_vec() };
        for client in [ends("10.1.2.3:1111", "10.4.5.6:2222"), ends("[fd00::1]:1", "[fd00::2]:2")] {
            for (version, read_as) in [(ProxyVersion::V1, Version::V1), (ProxyVersion::V2, Version::V2)] {
                let bytes = write(&header(version, vec![tlv.clone()]), client, &[], None).bytes;
                assert_eq!(read(&bytes, &rules), Reading::Header(read_as, bytes.len(), client));
            }
        }
    }

    #[test]
    fn a_connection_of_the_proxy_s_own_says_so() {
        let own = ends("127.0.0.1:1", "127.0.0.1:2");
        let v2 = write(&header(ProxyVersion::V2, Vec::new()), None, &[], own).bytes;
        assert_eq!(v2, [SIGNATURE_V2, &[0x20, 0, 0, 0]].concat());
        let v1 = write(&header(ProxyVersion::V1, Vec::new()), None, &[], own).bytes;
        assert_eq!(v1, b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n");
        assert_eq!(write(&header(ProxyVersion::V1, Vec::new()), None, &[], None).bytes, b"PROXY UNKNOWN\r\n");
        let mixed = ends("127.0.0.1:1", "[fd00::2]:2");
        assert_eq!(write(&header(ProxyVersion::V2, Vec::new()), mixed, &[], None).bytes, v2);
    }

    #[test]
    fn tlvs_of_the_cluster_come_first_and_in_the_place_of_the_client_s() {
        let tlv = |kind: u8, value: &[u8]| Tlv { kind, value: value.to_vec() };
        let header = header(ProxyVersion::V2, vec![tlv(1, b"own"), tlv(1, b"too")]);
        let client = ends("10.1.2.3:1", "10.4.5.6:2");
        let written = write(&header, client, &[tlv(2, b"a"), tlv(1, b"b"), tlv(2, b"c")], None);
        let want = [&[1, 0, 3][..], b"own", &[1, 0, 3], b"too", &[2, 0, 1], b"a", &[2, 0, 1], b"c"].concat();
        assert_eq!((&written.bytes[28..], written.cut), (&want[..], false));
        let local = write(&header, None, &[tlv(2, b"a")], None);
        assert_eq!(local.bytes[12..], [0x20, 0, 0, 0]);
    }

    #[test]
    fn what_does_not_fit_is_left_out() {
        let tlv = |kind: u8, length: usize| Tlv { kind, value: vec![7; length] };
        let header = header(ProxyVersion::V2, vec![tlv(1, 0xf000)]);
        let client = ends("10.1.2.3:1", "10.4.5.6:2");
        let rest = 0xffff - 12 - 3 - 0xf000 - 3;
        let full = write(&header, client, &[tlv(2, rest)], None);
        assert_eq!((full.bytes.len(), full.cut), (16 + 0xffff, false));
        let cut = write(&header, client, &[tlv(2, rest + 1), tlv(3, 0)], None);
        assert_eq!((cut.bytes.len(), cut.cut), (16 + 12 + 3 + 0xf000 + 3, true));
    }
}
