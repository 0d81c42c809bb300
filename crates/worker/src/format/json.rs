//! Formats that are JSON: single values keep their type.

use postrider_filter_api::cel;
use postrider_model::{AddressPart, Command, GrpcStatusForm, JsonFormat, Piece, StateForm};
use postrider_telemetry::json;

use super::{Absent, Context, noted};

impl Context<'_> {
    pub(super) fn json(&self, format: &JsonFormat, absent: Absent, out: &mut Vec<u8>) {
        match format {
            JsonFormat::Object(entries) => {
                out.push(b'{');
                let first = out.len();
                for (key, value) in entries {
                    let start = out.len();
                    if start > first {
                        out.push(b',');
                    }
                    json::write_string(key.as_bytes(), out);
                    out.push(b':');
                    if self.json_is_empty(value, absent, out) {
                        out.truncate(start);
                    }
                }
                out.push(b'}');
            }
            JsonFormat::List(items) => {
                out.push(b'[');
                let first = out.len();
                for item in items {
                    let start = out.len();
                    if start > first {
                        out.push(b',');
                    }
                    if self.json_is_empty(item, absent, out) {
                        out.truncate(start);
                    }
                }
                out.push(b']');
            }
            JsonFormat::Text(format) => match format.pieces.as_slice() {
                // A single command keeps its type, anything else is a string.
                [Piece::Command { command, max_length }] => self.json_command(command, *max_length, out),
                _ => {
                    let mut value = Vec::new();
                    self.write(format, absent, &mut value);
                    json::write_string(&value, out);
                }
            },
            JsonFormat::Number(number) => noted::write_number(*number, out),
            JsonFormat::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
            JsonFormat::Null => out.extend_from_slice(b"null"),
        }
    }

    /// Appends a value inside another one; whether it is left out where empty ones are: there is none, or it is an object of
    /// the format in which nothing is left. Lists stay.
    fn json_is_empty(&self, value: &JsonFormat, absent: Absent, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        self.json(value, absent, out);
        let written = out.get(start..).unwrap_or_default();
        let is_object = matches!(value, JsonFormat::Object(_));
        matches!(absent, Absent::Empty) && (written == b"null" || is_object && written == b"{}")
    }

    fn json_command(&self, command: &Command, max_length: Option<usize>, out: &mut Vec<u8>) {
        let start = out.len();
        match command {
            Command::First(pieces) => {
                // Its own length cuts the value, and that of the one which has it.
                let shorter = |own: Option<usize>| match (own, max_length) {
                    (Some(one), Some(other)) => Some(one.min(other)),
                    (one, other) => one.or(other),
                };
                match self.first(pieces, &mut Vec::new()) {
                    Some(Piece::Command { command, max_length }) => {
                        self.json_command(command, shorter(*max_length), out);
                    }
                    _ => out.extend_from_slice(b"null"),
                }
            }
            // Of whatever type it was noted.
            Command::Metadata { of, namespace, path } => {
                noted::typed_metadata((*of, namespace, path), max_length, self, out);
            }
            Command::Expression { expression, typed: true } => match cel::value_of(expression, &self.facts()) {
                Some(value) => noted::write_typed(&value, max_length, out),
                None => out.extend_from_slice(b"null"),
            },
            command if is_json(command) => {
                if self.command(command, out).is_none() {
                    out.truncate(start);
                    out.extend_from_slice(b"null");
                }
            }
            command => {
                let mut value = Vec::new();
                if self.command(command, &mut value).is_none() {
                    out.extend_from_slice(b"null");
                    return;
                }
                value.truncate(max_length.unwrap_or(usize::MAX));
                json::write_string(&value, out);
            }
        }
    }
}

/// Its value is JSON as it stands.
fn is_json(command: &Command) -> bool {
    match command {
        Command::FilterState { form, .. } | Command::SharedState { form, .. } => *form == StateForm::Typed,
        command => is_numeric(command),
    }
}

fn is_numeric(command: &Command) -> bool {
    matches!(
        command,
        Command::ResponseCode
            | Command::GrpcStatus(GrpcStatusForm::Number)
            | Command::BytesReceived
            | Command::BytesSent
            | Command::Wire(_)
            | Command::RequestHeadersBytes
            | Command::ResponseHeadersBytes
            | Command::ResponseTrailersBytes
            | Command::Between { .. }
            | Command::Duration
            | Command::RequestDuration
            | Command::RequestTxDuration
            | Command::ResponseDuration
            | Command::ResponseTxDuration
            | Command::UpstreamRequestAttemptCount
            | Command::ConnectionId
            | Command::RouteLookups
            | Command::RouteLookupTime
            | Command::DownstreamHandshake
            | Command::Zero
            | Command::DownstreamDirectLocalAddress(AddressPart::Port)
            | Command::UpstreamConnectionId
            | Command::UpstreamWait
            | Command::DownstreamLocalAddress(AddressPart::Port)
            | Command::DownstreamRemoteAddress(AddressPart::Port)
            | Command::DownstreamDirectRemoteAddress(AddressPart::Port)
            | Command::UpstreamLocalAddress(AddressPart::Port)
            | Command::UpstreamRemoteAddress(AddressPart::Port)
    )
}
