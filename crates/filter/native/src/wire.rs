//! Addresses, moments and text as messages have them.

use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use postrider_grpc::Timestamp;
use postrider_grpc::core::{Address, SocketAddress, address, socket_address};

pub(crate) fn to_address(address: SocketAddr) -> Address {
    let socket = SocketAddress {
        address: address.ip().to_string(),
        port_specifier: Some(socket_address::PortSpecifier::PortValue(u32::from(address.port()))),
        ..SocketAddress::default()
    };
    Address { address: Some(address::Address::SocketAddress(socket)) }
}

pub(crate) fn to_timestamp(moment: SystemTime) -> Timestamp {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(since.subsec_nanos()).unwrap_or_default(),
    }
}

/// As text: bytes that are no UTF-8 become `!`.
pub(crate) fn sanitized(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        out.extend(chunk.invalid().iter().map(|_| '!'));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_is_marked() {
        assert_eq!(sanitized(b"a\xff\xfeb"), "a!!b");
    }
}
