//! Source files and positions in them. Offsets are bytes; lines and columns are what an editor shows.
//!
//! A [`Span`] is small and `Copy`, so that every key and value of a large file can carry one; it names its file by a
//! [`FileId`] into the [`Sources`] of that load.

use std::sync::Arc;

/// Index of a file in [`Sources`]. The main file of a load is [`FileId::MAIN`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u16);

impl FileId {
    /// The first file of a load: what `-c` names.
    pub const MAIN: FileId = FileId(0);
}

/// A half-open byte range `start..end` in one file. An empty range (`start == end`) marks a place between characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    pub file: FileId,
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// The range `start..end` of `file`; `end` is raised to `start` if it is smaller.
    pub fn new(file: FileId, start: usize, end: usize) -> Span {
        let start = u32::try_from(start).unwrap_or(u32::MAX);
        let end = u32::try_from(end).unwrap_or(u32::MAX).max(start);
        Span { file, start, end }
    }

    /// The smallest range that covers both; `self` when they are in different files.
    pub fn to(self, other: Span) -> Span {
        if self.file != other.file {
            return self;
        }
        Span { file: self.file, start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

/// A place as an editor shows it: both numbers start at 1, and a column counts characters, not bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub line: u32,
    pub column: u32,
}

/// One input of a load: a file, standard input or a command-line argument. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SourceFile {
    name: Arc<str>,
    text: Arc<str>,
    bytes: Option<Arc<[u8]>>,
    line_starts: Arc<[u32]>,
}

impl SourceFile {
    /// Text under the name that diagnostics print (a path as the user gave it, `<stdin>`, `--config-yaml`).
    pub fn new(name: impl Into<Arc<str>>, text: impl Into<Arc<str>>) -> SourceFile {
        let text = text.into();
        let mut starts = vec![0];
        starts.extend(text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| offset(i + 1)));
        SourceFile { name: name.into(), text, bytes: None, line_starts: starts.into() }
    }

    /// What was read from a file, text or not. Bytes that are not UTF-8 (a binary protobuf) stay available as
    /// [`SourceFile::bytes`], with an empty text.
    pub fn from_bytes(name: impl Into<Arc<str>>, bytes: Vec<u8>) -> SourceFile {
        match String::from_utf8(bytes) {
            Ok(text) => SourceFile::new(name, text),
            Err(error) => {
                let mut file = SourceFile::new(name, "");
                file.bytes = Some(error.into_bytes().into());
                file
            }
        }
    }

    /// The name that diagnostics print.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text; empty when the input is not UTF-8.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The input as it came.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_deref().unwrap_or(self.text.as_bytes())
    }

    /// Line and column of a byte offset. An offset past the end is the end; one inside a character is that character.
    pub fn position(&self, offset: u32) -> Position {
        let mut at = (offset as usize).min(self.text.len());
        while !self.text.is_char_boundary(at) {
            at -= 1;
        }
        let line = self.line_starts.partition_point(|start| *start as usize <= at);
        let start = self.line_starts.get(line.saturating_sub(1)).copied().unwrap_or(0) as usize;
        let column = self.text.get(start..at).unwrap_or("").chars().count() + 1;
        Position { line: self::offset(line), column: self::offset(column) }
    }

    /// The text of a line (from 1) without its line break; `None` past the last line.
    pub fn line(&self, line: u32) -> Option<&str> {
        let index = (line as usize).checked_sub(1)?;
        let start = *self.line_starts.get(index)? as usize;
        let end = self.line_starts.get(index + 1).map_or(self.text.len(), |next| *next as usize);
        Some(self.text.get(start..end)?.trim_end_matches(['\n', '\r']))
    }

    /// Byte offset at which a line (from 1) starts; `None` past the last line.
    pub fn line_start(&self, line: u32) -> Option<u32> {
        self.line_starts.get((line as usize).checked_sub(1)?).copied()
    }

    /// The text under a span.
    pub fn slice(&self, span: Span) -> &str {
        self.text.get(span.start as usize..span.end as usize).unwrap_or("")
    }
}

/// The files of one load, by [`FileId`].
#[derive(Clone, Debug, Default)]
pub struct Sources {
    files: Vec<SourceFile>,
}

impl Sources {
    /// A set of one file, [`FileId::MAIN`].
    pub fn of(file: SourceFile) -> Sources {
        Sources { files: vec![file] }
    }

    /// Adds a file and says which id its spans carry.
    pub fn add(&mut self, file: SourceFile) -> FileId {
        self.files.push(file);
        FileId(u16::try_from(self.files.len() - 1).unwrap_or(u16::MAX))
    }

    /// The file of an id.
    pub fn file(&self, id: FileId) -> Option<&SourceFile> {
        self.files.get(id.0 as usize)
    }

    /// `file:line:col` of the start of a span.
    pub fn location(&self, span: Span) -> Option<(&SourceFile, Position)> {
        let file = self.file(span.file)?;
        Some((file, file.position(span.start)))
    }
}

fn offset(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_from_one() {
        let file = SourceFile::new("a.yaml", "a: é\nb: \"x\"\r\n\nc");
        assert_eq!(file.position(0), Position { line: 1, column: 1 });
        assert_eq!(file.position(5), Position { line: 1, column: 5 });
        assert_eq!(file.position(6), Position { line: 2, column: 1 });
        assert_eq!(file.position(9), Position { line: 2, column: 4 });
        assert_eq!(file.position(999), Position { line: 4, column: 2 });
        assert_eq!(file.line(2), Some("b: \"x\""));
        assert_eq!(file.line(3), Some(""));
        assert_eq!(file.line(4), Some("c"));
        assert_eq!(file.line(5), None);
    }

    #[test]
    fn an_offset_inside_a_character_is_that_character() {
        let file = SourceFile::new("a", "éx");
        assert_eq!(file.position(1), Position { line: 1, column: 1 });
        assert_eq!(file.position(2), Position { line: 1, column: 2 });
    }

    #[test]
    fn bytes_that_are_not_text_are_kept() {
        let file = SourceFile::from_bytes("b.pb", vec![0xff, 0x00]);
        assert_eq!(file.text(), "");
        assert_eq!(file.bytes(), [0xff, 0x00]);
    }
}
