//! The commands about bytes on connections, by Envoy's names.

use super::{Command, Format, Piece};
use crate::{AccessLog, JsonFormat, LogFormat, LogOutput, Side};

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

impl Format {
    /// Whether it tells bytes on connections, which are counted only for who asks.
    pub fn tells_wire_bytes(&self) -> bool {
        tells(&self.pieces)
    }
}

fn tells(pieces: &[Piece]) -> bool {
    pieces.iter().any(|piece| match piece {
        Piece::Command { command: Command::Wire(_), .. } => true,
        Piece::Command { command: Command::First(pieces), .. } => tells(pieces),
        Piece::Command { .. } | Piece::Text(_) => false,
    })
}

impl AccessLog {
    /// As [`Format::tells_wire_bytes`]; entries for services always do, and plugins may.
    pub fn tells_wire_bytes(&self) -> bool {
        match &self.output {
            LogOutput::Lines { format, .. } => format.tells_wire_bytes(),
            LogOutput::Entries(_) => true,
            LogOutput::Records(log) => log.formats().iter().any(|format| format.tells_wire_bytes()),
            // A plugin may ask for them.
            LogOutput::Plugin(_) => true,
        }
    }
}

impl LogFormat {
    /// As [`Format::tells_wire_bytes`].
    pub fn tells_wire_bytes(&self) -> bool {
        match self {
            LogFormat::Text(format) => format.tells_wire_bytes(),
            LogFormat::Json(format) => format.tells_wire_bytes(),
            LogFormat::OmitEmpty(format) => format.tells_wire_bytes(),
        }
    }
}

impl JsonFormat {
    fn tells_wire_bytes(&self) -> bool {
        match self {
            JsonFormat::Object(entries) => entries.iter().any(|(_, value)| value.tells_wire_bytes()),
            JsonFormat::List(items) => items.iter().any(JsonFormat::tells_wire_bytes),
            JsonFormat::Text(format) => format.tells_wire_bytes(),
            JsonFormat::Number(_) | JsonFormat::Bool(_) | JsonFormat::Null => false,
        }
    }
}
