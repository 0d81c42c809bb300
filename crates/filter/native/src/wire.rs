//! Addresses, moments and text as messages have them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use postrider_grpc::core::{Address, SocketAddress, address, socket_address};
use postrider_grpc::{Any, Timestamp, to_any};
use postrider_model::Packed;

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

/// The messages of metadata with these names, for a service that knows their types.
pub(crate) fn messages<'m>(noted: impl Fn(&str) -> Option<&'m Packed>, namespaces: &[String]) -> BTreeMap<String, Any> {
    namespaces.iter().filter_map(|name| Some((name.clone(), to_any(noted(name)?)))).collect()
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
