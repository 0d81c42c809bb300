//! Formats that are JSON: single values keep their type.

use std::io::Write;

use postrider_model::{AddressPart, Command, Format, GrpcStatusForm, JsonFormat, Piece, StateForm};
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
                    let value_start = out.len();
                    self.json(value, absent, out);
                    if matches!(absent, Absent::Empty) && out.get(value_start..) == Some(b"null") {
                        out.truncate(start);
                    }
                }
                out.push(b'}');
            }
            JsonFormat::List(items) => {
                out.push(b'[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    self.json(item, absent, out);
                }
                out.push(b']');
            }
            JsonFormat::Text(format) => self.json_text(format, out),
            JsonFormat::Number(number) => {
                let _ = write!(out, "{number}");
            }
            JsonFormat::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
            JsonFormat::Null => out.extend_from_slice(b"null"),
        }
    }

    /// A single command keeps its type, anything else is a string.
    fn json_text(&self, format: &Format, out: &mut Vec<u8>) {
        let mut value = Vec::new();
        if let [Piece::Command { command, max_length }] = format.pieces.as_slice() {
            if self.command(command, &mut value).is_none() {
                out.extend_from_slice(b"null");
                return;
            }
            if let Command::Metadata { of, namespace, path } = command {
                // Of whatever type it was noted.
                noted::typed_metadata(*of, namespace, path, self, out);
                return;
            }
            if self.is_typed(command) {
                out.extend_from_slice(&value);
                return;
            }
            value.truncate(max_length.unwrap_or(usize::MAX));
        } else {
            self.write(format, Absent::Dash, &mut value);
        }
        json::write_string(&value, out);
    }

    /// Its value is JSON as it stands.
    fn is_typed(&self, command: &Command) -> bool {
        match command {
            Command::FilterState { form: StateForm::Typed, .. }
            | Command::SharedState { form: StateForm::Typed, .. } => true,
            Command::First(pieces) => match self.first(pieces, &mut Vec::new()) {
                Some(Piece::Command { command, max_length: None }) => is_numeric(command),
                _ => false,
            },
            command => is_numeric(command),
        }
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
