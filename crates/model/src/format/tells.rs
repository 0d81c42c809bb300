//! Which commands a format has: what they tell is noted only for who asks.

use super::{Command, Format, Piece};
use crate::{AccessLog, CustomTag, JsonFormat, LogCondition, LogFormat, LogOutput, TagSource};

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

    /// Whether it tells fields of answers that are known only when their head is written. Plugins may.
    pub fn tells_written_fields(&self) -> bool {
        let by_output = match &self.output {
            LogOutput::Entries(entries) => {
                entries.response_headers.iter().any(|name| is_written(name)) || tell_written(&entries.tags)
            }
            LogOutput::Records(log) => tell_written(&log.tags),
            LogOutput::Plugin(_) => true,
            LogOutput::Lines { .. } => false,
        };
        by_output || self.has(reads_written) || self.condition.as_ref().is_some_and(LogCondition::evaluates)
    }

    fn has(&self, wanted: fn(&Command) -> bool) -> bool {
        match &self.output {
            LogOutput::Lines { format, .. } => format.has(wanted),
            LogOutput::Records(log) => log.formats().iter().any(|format| format.has(wanted)),
            LogOutput::Entries(_) | LogOutput::Plugin(_) => false,
        }
    }
}

impl LogCondition {
    /// Whether there is an expression in it.
    fn evaluates(&self) -> bool {
        match self {
            LogCondition::Expression(_) => true,
            LogCondition::All(all) | LogCondition::Any(all) => all.iter().any(LogCondition::evaluates),
            _ => false,
        }
    }
}

/// Whether one of the tags tells such fields.
fn tell_written(tags: &[CustomTag]) -> bool {
    tags.iter().any(|tag| matches!(&tag.value, TagSource::Format(format) if format.has(reads_written)))
}

/// What an expression reads is not looked into: it may ask for every field.
fn reads_written(command: &Command) -> bool {
    match command {
        Command::ResponseHeader(name, other) => is_written(name) || other.as_deref().is_some_and(is_written),
        Command::Expression { .. } => true,
        _ => false,
    }
}

/// A field that the head itself does not have: it depends on the connection, or stands in place of the upstream's.
fn is_written(name: &str) -> bool {
    matches!(name, "connection" | "content-length" | "server")
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
