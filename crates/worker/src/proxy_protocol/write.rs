//! The header with which a connection to an upstream says where it comes from.

use std::net::{IpAddr, SocketAddr};

use postrider_model::{ProxyHeader, ProxyVersion};

use super::SIGNATURE_V2;

/// Version 2, and who speaks: the proxy for itself, or for a client.
const LOCAL: u8 = 0x20;
const PROXY: u8 = 0x21;

/// A stream over either family.
const TCP4: u8 = 0x11;
const TCP6: u8 = 0x21;

/// Writes the header of a connection between `client`'s ends, source first; `None` where nobody else's connection is the
/// reason for it. `own` are the ends of the connection that begins with it.
pub(crate) fn write(
    header: &ProxyHeader,
    client: Option<(SocketAddr, SocketAddr)>,
    own: Option<(SocketAddr, SocketAddr)>,
) -> Vec<u8> {
    match header.version {
        ProxyVersion::V1 => line(client.or(own)).into_bytes(),
        ProxyVersion::V2 => binary(header, client),
    }
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
fn binary(header: &ProxyHeader, client: Option<(SocketAddr, SocketAddr)>) -> Vec<u8> {
    let mut content = Vec::new();
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
        for tlv in &header.tlvs {
            // The length was checked with the configuration.
            let length = u16::try_from(tlv.value.len()).unwrap_or(u16::MAX).to_be_bytes();
            content.push(tlv.kind);
            content.extend_from_slice(&length);
            content.extend_from_slice(&tlv.value);
        }
    }
    let length = u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes();
    [SIGNATURE_V2, &[command, family], &length, &content].concat()
}

#[cfg(test)]
mod tests {
    use super::super::{Reading, Version, read};
    use super::*;
    use postrider_model::{ProxyProtocol, Tlv};

    fn header(version: ProxyVersion, tlvs: Vec<Tlv>) -> ProxyHeader {
        ProxyHeader { version, tlvs }
    }

    fn ends(source: &str, destination: &str) -> Option<(SocketAddr, SocketAddr)> {
        Some((source.parse().unwrap(), destination.parse().unwrap()))
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        let rules = ProxyProtocol { v1: true, v2: true, optional: false, stat_prefix: String::new() };
        let tlv = Tlv { kind: 0xe1, value: b"abc".to_vec() };
        for client in [ends("10.1.2.3:1111", "10.4.5.6:2222"), ends("[fd00::1]:1", "[fd00::2]:2")] {
            for (version, read_as) in [(ProxyVersion::V1, Version::V1), (ProxyVersion::V2, Version::V2)] {
                let bytes = write(&header(version, vec![tlv.clone()]), client, None);
                assert_eq!(read(&bytes, &rules), Reading::Header(read_as, bytes.len(), client));
            }
        }
    }

    #[test]
    fn a_connection_of_the_proxy_s_own_says_so() {
        let own = ends("127.0.0.1:1", "127.0.0.1:2");
        let v2 = write(&header(ProxyVersion::V2, Vec::new()), None, own);
        assert_eq!(v2, [SIGNATURE_V2, &[0x20, 0, 0, 0]].concat());
        let v1 = write(&header(ProxyVersion::V1, Vec::new()), None, own);
        assert_eq!(v1, b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n");
        assert_eq!(write(&header(ProxyVersion::V1, Vec::new()), None, None), b"PROXY UNKNOWN\r\n");
        let mixed = ends("127.0.0.1:1", "[fd00::2]:2");
        assert_eq!(write(&header(ProxyVersion::V2, Vec::new()), mixed, None), v2);
    }
}
