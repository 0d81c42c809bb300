//! The commands about bytes on connections, by Envoy's names.

use super::Command;
use crate::Side;

/// Which bytes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireBytes {
    pub side: Side,
    pub way: Way,
    pub part: WirePart,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Received,
    Sent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WirePart {
    /// Everything.
    All,
    /// Fields, as they were on the connection.
    Head,
    /// The same without the compression of HTTP/2.
    PlainHead,
}

const PARTS: [(&str, WirePart); 3] = [
    ("WIRE_BYTES_", WirePart::All),
    ("DECOMPRESSED_HEADER_BYTES_", WirePart::PlainHead),
    ("HEADER_BYTES_", WirePart::Head),
];

/// `None` for a name that is none of these.
pub(super) fn command(name: &str) -> Option<Command> {
    let (side, rest) = match (name.strip_prefix("DOWNSTREAM_"), name.strip_prefix("UPSTREAM_")) {
        (Some(rest), _) => (Side::Downstream, rest),
        (_, Some(rest)) => (Side::Upstream, rest),
        _ => return None,
    };
    let (way, part) = PARTS.iter().find_map(|(prefix, part)| Some((rest.strip_prefix(prefix)?, *part)))?;
    let way = match way {
        "RECEIVED" => Way::Received,
        "SENT" => Way::Sent,
        _ => return None,
    };
    Some(Command::Wire(WireBytes { side, way, part }))
}

pub(super) const NAMES: [&str; 12] = [
    "DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED",
    "DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_SENT",
    "DOWNSTREAM_HEADER_BYTES_RECEIVED",
    "DOWNSTREAM_HEADER_BYTES_SENT",
    "DOWNSTREAM_WIRE_BYTES_RECEIVED",
    "DOWNSTREAM_WIRE_BYTES_SENT",
    "UPSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED",
    "UPSTREAM_DECOMPRESSED_HEADER_BYTES_SENT",
    "UPSTREAM_HEADER_BYTES_RECEIVED",
    "UPSTREAM_HEADER_BYTES_SENT",
    "UPSTREAM_WIRE_BYTES_RECEIVED",
    "UPSTREAM_WIRE_BYTES_SENT",
];
