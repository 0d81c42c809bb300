//! A text under repair that still knows where each byte came from.

use std::ops::Range;

use postrider_config_core::{FileId, Span};

/// Lines with the edits made to them. Edits stay inside lines, so line numbers never change.
#[derive(Clone)]
pub struct Patched {
    file: FileId,
    lines: Vec<Line>,
    joined: String,
    /// Offset in `joined` at which each line starts.
    starts: Vec<usize>,
}

#[derive(Clone)]
struct Line {
    text: String,
    /// Offset of the line in the file.
    origin: usize,
    /// In the order in which they were made.
    edits: Vec<Edit>,
}

#[derive(Clone)]
struct Edit {
    at: usize,
    removed: usize,
    inserted: usize,
}

impl Patched {
    pub fn new(text: &str, file: FileId) -> Patched {
        let mut origin = 0;
        let mut lines = Vec::new();
        for line in text.split('\n') {
            lines.push(Line { text: line.to_owned(), origin, edits: Vec::new() });
            origin += line.len() + 1;
        }
        Patched::join(file, lines)
    }

    pub fn as_str(&self) -> &str {
        &self.joined
    }

    /// Number of lines.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// How often a line was repaired.
    pub fn repairs_of(&self, number: usize) -> usize {
        self.lines.get(number).map_or(0, |line| line.edits.len())
    }

    /// A line, counted from 0, without its line break; empty past the end.
    pub fn line(&self, number: usize) -> &str {
        self.lines.get(number).map_or("", |line| line.text.trim_end_matches('\r'))
    }

    /// Line and byte column, both from 0, of an offset in the repaired text.
    pub fn position(&self, offset: usize) -> (usize, usize) {
        let line = self.starts.partition_point(|start| *start <= offset).saturating_sub(1);
        (line, offset - self.starts.get(line).copied().unwrap_or(0).min(offset))
    }

    /// Offset in the repaired text at which a line starts.
    pub fn start(&self, line: usize) -> usize {
        self.starts.get(line).copied().unwrap_or(self.joined.len())
    }

    /// The part of a line between its indentation and its trailing space.
    pub fn content(&self, line: usize) -> Range<usize> {
        let text = self.line(line);
        let start = self.start(line);
        start + (text.len() - text.trim_start().len())..start + text.trim_end().len()
    }

    /// The place in the file that a range of the repaired text came from.
    pub fn span(&self, range: Range<usize>) -> Span {
        let (start, end) = (self.origin(range.start), self.origin(range.end));
        Span::new(self.file, start, end.max(start))
    }

    /// Replaces `removed` bytes of a line by `insert`.
    pub fn edit(&self, line: usize, at: usize, removed: usize, insert: &str) -> Patched {
        self.edit_lines(std::iter::once((line, at, removed, insert.to_owned())))
    }

    /// Several edits of different lines.
    pub fn edit_lines(&self, edits: impl Iterator<Item = (usize, usize, usize, String)>) -> Patched {
        let mut lines = self.lines.clone();
        for (line, at, removed, insert) in edits {
            let Some(line) = lines.get_mut(line) else { continue };
            if line.text.get(at..at + removed).is_none() {
                continue;
            }
            line.text.replace_range(at..at + removed, &insert);
            line.edits.push(Edit { at, removed, inserted: insert.len() });
        }
        Patched::join(self.file, lines)
    }

    /// The text with some lines emptied.
    pub fn without(&self, lines: Range<usize>) -> Patched {
        self.edit_lines(
            lines.map(|line| (line, 0, self.lines.get(line).map_or(0, |line| line.text.len()), String::new())),
        )
    }

    fn join(file: FileId, lines: Vec<Line>) -> Patched {
        let mut joined = String::new();
        let mut starts = Vec::with_capacity(lines.len());
        for (number, line) in lines.iter().enumerate() {
            if number > 0 {
                joined.push('\n');
            }
            starts.push(joined.len());
            joined.push_str(&line.text);
        }
        Patched { file, lines, joined, starts }
    }

    fn origin(&self, offset: usize) -> usize {
        let (number, mut column) = self.position(offset);
        let Some(line) = self.lines.get(number) else { return 0 };
        for edit in line.edits.iter().rev() {
            if column >= edit.at + edit.inserted {
                column = column - edit.inserted + edit.removed;
            } else if column > edit.at {
                column = edit.at;
            }
        }
        line.origin + column
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_do_not_move_places_in_the_file() {
        let text = Patched::new("a: 1\n b: 2\nc: 3", FileId::MAIN);
        let patched = text.edit(1, 0, 1, "   ").edit(1, 6, 0, "\"").edit(1, 8, 0, "\"");
        assert_eq!(patched.as_str(), "a: 1\n   b: \"2\"\nc: 3");
        let find = |needle: &str| patched.as_str().find(needle).unwrap();
        assert_eq!(patched.span(find("b")..find("b") + 1), Span::new(FileId::MAIN, 6, 7));
        assert_eq!(patched.span(find("2")..find("2") + 1), Span::new(FileId::MAIN, 9, 10));
        assert_eq!(patched.span(find("c")..find("c") + 1), Span::new(FileId::MAIN, 11, 12));
        assert_eq!(patched.without(1..2).as_str(), "a: 1\n\nc: 3");
    }
}
