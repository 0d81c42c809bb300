//! Which commands a format has: what they tell is noted only for who asks.

use super::{Command, Format, Piece};
use crate::{AccessLog, JsonFormat, LogFormat, LogOutput};

impl AccessLog {
    /// Whether it tells bytes on connections. Entries for services always do, and plugins may.
    pub fn tells_wire_bytes(&self) -> bool {
        let asks = matches!(self.output, LogOutput::Entries(_) | LogOutput::Plugin(_));
        asks || self.has(|command| matches!(command, Command::Wire(_)))
    }

    /// Whether it tells how long routes were looked for.
    pub fn tells_lookup_time(&self) -> bool {
        self.has(|command| matches!(command, Command::RouteLookupTime))
    }

    fn has(&self, wanted: fn(&Command) -> bool) -> bool {
        match &self.output {
            LogOutput::Lines { format, .. } => format.has(wanted),
            LogOutput::Records(log) => log.formats().iter().any(|format| format.has(wanted)),
            LogOutput::Entries(_) | LogOutput::Plugin(_) => false,
        }
    }
}

impl LogFormat {
    fn has(&self, wanted: fn(&Command) -> bool) -> bool {
        match self {
            LogFormat::Text(format) => format.has(wanted),
            LogFormat::Json(format) => format.has(wanted),
            LogFormat::OmitEmpty(format) => format.has(wanted),
        }
    }
}

impl JsonFormat {
    fn has(&self, wanted: fn(&Command) -> bool) -> bool {
        match self {
            JsonFormat::Object(entries) => entries.iter().any(|(_, value)| value.has(wanted)),
            JsonFormat::List(items) => items.iter().any(|item| item.has(wanted)),
            JsonFormat::Text(format) => format.has(wanted),
            JsonFormat::Number(_) | JsonFormat::Bool(_) | JsonFormat::Null => false,
        }
    }
}

impl Format {
    fn has(&self, wanted: fn(&Command) -> bool) -> bool {
        has(&self.pieces, wanted)
    }
}

fn has(pieces: &[Piece], wanted: fn(&Command) -> bool) -> bool {
    pieces.iter().any(|piece| match piece {
        Piece::Command { command: Command::First(pieces), .. } => has(pieces, wanted),
        Piece::Command { command, .. } => wanted(command),
        Piece::Text(_) => false,
    })
}
