//! Substitution formats: text with `%COMMANDS%`, as header values, log lines and reply bodies use them.
//!
//! Parsing happens when a configuration is read; whoever has a stream at hand evaluates the commands.

mod coalesce;
mod command;
mod names;
mod parse;
mod tls;
mod wire;

pub use command::*;
pub use wire::{Way, WireBytes, WirePart};

use std::fmt;

use parse::split_command;

/// A parsed format. Compares by what it means.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Format {
    pub pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Piece {
    Text(String),
    Command {
        command: Command,
        /// `%REQ(X):9%` cuts the value after nine bytes.
        max_length: Option<usize>,
    },
}

impl Format {
    /// A format without commands.
    pub fn literal(text: &str) -> Format {
        let pieces = if text.is_empty() { Vec::new() } else { vec![Piece::Text(text.to_owned())] };
        Format { pieces }
    }

    /// The text, if there is no command in it.
    pub fn as_literal(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [] => Some(""),
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Reads `text`; `%%` is a percent sign.
    ///
    /// # Errors
    /// The first command that is unknown or malformed, and where.
    pub fn parse(text: &str) -> Result<Format, FormatError> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(start) = rest.find('%') {
            plain.push_str(&rest[..start]);
            let offset = text.len() - rest.len() + start;
            let after = &rest[start + 1..];
            if let Some(tail) = after.strip_prefix('%') {
                plain.push('%');
                rest = tail;
                continue;
            }
            let (spec, tail) = split_command(after).ok_or_else(|| FormatError {
                offset,
                message: "a command must end with `%`; write `%%` for a percent sign".into(),
                suggestion: None,
            })?;
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            pieces.push(spec.parse(offset)?);
            rest = tail;
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Format { pieces })
    }
}

/// Why a text is no format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatError {
    /// Byte offset into the text.
    pub offset: usize,
    pub message: String,
    /// The command that was probably meant.
    pub suggestion: Option<&'static str>,
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        match self.suggestion {
            Some(name) => write!(f, "; did you mean %{name}%?"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for FormatError {}

#[cfg(test)]
mod tests;
