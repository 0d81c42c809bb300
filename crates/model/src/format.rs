//! Substitution formats: text with `%COMMANDS%`, as header values, log lines and reply bodies use them.
//!
//! Parsing happens when a configuration is read; whoever has a stream at hand evaluates the commands.

mod coalesce;
mod command;
mod names;
mod older;
mod parse;
mod tells;
mod tls;
mod wire;

pub use command::*;
pub use older::in_newer_forms;
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

    /// Reads `text`, to which no formatters are listed; `%%` is a percent sign.
    ///
    /// # Errors
    /// The first command that is unknown or malformed, and where.
    pub fn parse(text: &str) -> Result<Format, FormatError> {
        Format::parse_with(text, &mut NoContents)
    }

    /// The same with commands that stand for what a configuration brings along: they are texts from now on.
    ///
    /// # Errors
    /// The first command that is unknown or malformed, or has nothing to stand for, and where.
    pub fn parse_with(text: &str, contents: &mut dyn Contents) -> Result<Format, FormatError> {
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
            match spec.parse(offset, contents)? {
                Piece::Text(text) => plain.push_str(&text),
                command => {
                    if !plain.is_empty() {
                        pieces.push(Piece::Text(std::mem::take(&mut plain)));
                    }
                    pieces.push(command);
                }
            }
            rest = tail;
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Format { pieces })
    }
}

/// What commands stand for that a configuration brings along: `%FILE_CONTENT(…)%` and `%SECRET(…)%`.
pub trait Contents {
    /// The text for a command of this name with this argument; `None` where there is no value.
    ///
    /// # Errors
    /// Why it cannot be had.
    fn find(&mut self, name: &str, argument: &str) -> Result<Option<String>, String>;
}

/// The file and the folder to watch, if any, in the argument of `%FILE_CONTENT(…)%`.
///
/// # Errors
/// It is neither `path` nor `path:folder`.
pub fn file_of_content(argument: &str) -> Result<(&str, Option<&str>), String> {
    let mut parts = argument.split(':');
    match (parts.next().filter(|path| !path.is_empty()), parts.next(), parts.next()) {
        (Some(path), folder, None) if folder != Some("") => Ok((path, folder)),
        _ => Err(format!("`{argument}`: expected PATH or PATH:FOLDER_TO_WATCH")),
    }
}

/// Those of a format that lists no formatters.
#[derive(Debug)]
pub struct NoContents;

impl Contents for NoContents {
    fn find(&mut self, name: &str, _: &str) -> Result<Option<String>, String> {
        let formatter =
            if name == "SECRET" { "generic_secret.v3.GenericSecret" } else { "file_content.v3.FileContent" };
        Err(format!(
            "%{name}% is known where `formatters` stands beside the format and lists the extension {formatter}"
        ))
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
