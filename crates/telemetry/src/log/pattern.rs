//! What a line of the application log looks like, by the patterns of `--log-format`.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::SystemTime;

use super::{Component, Level};
use crate::json;
use crate::time::{self, TimePattern};

/// A pattern: texts, and what `%` and a letter stand for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinePattern {
    parts: Vec<Part>,
    /// `--log-format-escaped`: whatever is no plain character is written as C writes it.
    escaped: bool,
}

/// What a line is made of.
pub(super) struct Entry<'a> {
    pub component: Component,
    pub level: Level,
    pub message: &'a str,
    pub at: SystemTime,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Field(Field, Padding),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Field {
    Time(TimePattern),
    Message,
    /// As it stands between the quotes of JSON.
    JsonMessage,
    Component,
    Level,
    LevelLetter,
    Thread,
    Process,
    /// A place in the source, a colour: nothing here.
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Padding {
    width: usize,
    side: Side,
    /// `!`: what is longer is cut.
    cuts: bool,
}

/// Where a short value stands within its width.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Side {
    #[default]
    Right,
    Left,
    Centre,
}

/// No value is made wider.
const MAX_WIDTH: usize = 64;

impl LinePattern {
    /// Reads a pattern, which has no wrong form: what stands for nothing is written as it is. Times are local ones.
    pub fn parse(pattern: &str, escaped: bool) -> LinePattern {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = pattern;
        while let Some((text, after)) = rest.split_once('%') {
            literal.push_str(text);
            let (padding, letters) = Padding::read(after);
            let mut chars = letters.chars();
            let letter = chars.next();
            rest = chars.as_str();
            match letter.and_then(field) {
                Some(field) => {
                    if !literal.is_empty() {
                        parts.push(Part::Text(std::mem::take(&mut literal)));
                    }
                    parts.push(Part::Field(field, padding));
                }
                None if letter == Some('%') => literal.push('%'),
                None => {
                    literal.push('%');
                    literal.extend(letter);
                }
            }
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            parts.push(Part::Text(literal));
        }
        LinePattern { parts, escaped }
    }

    /// Appends a line, without its end.
    pub(super) fn write(&self, entry: &Entry<'_>, out: &mut Vec<u8>) {
        let start = out.len();
        for part in &self.parts {
            match part {
                Part::Text(text) => out.extend_from_slice(text.as_bytes()),
                Part::Field(field, padding) => {
                    let start = out.len();
                    field.write(entry, out);
                    padding.apply(start, out);
                }
            }
        }
        if self.escaped {
            let line = out.split_off(start);
            escape(&line, out);
        }
    }
}

impl Padding {
    fn read(text: &str) -> (Padding, &str) {
        let (side, text) = match text.strip_prefix('-') {
            Some(text) => (Side::Left, text),
            None => text.strip_prefix('=').map_or((Side::Right, text), |text| (Side::Centre, text)),
        };
        let letters = text.trim_start_matches(|c: char| c.is_ascii_digit());
        let digits = text.get(..text.len() - letters.len()).unwrap_or_default();
        let width = digits.parse().unwrap_or(0).min(MAX_WIDTH);
        let cut = letters.strip_prefix('!').filter(|_| width > 0);
        (Padding { width, side, cuts: cut.is_some() }, cut.unwrap_or(letters))
    }

    fn apply(self, start: usize, out: &mut Vec<u8>) {
        let length = out.len() - start;
        if self.cuts && length > self.width {
            return out.truncate(start + self.width);
        }
        let missing = self.width.saturating_sub(length);
        let before = match self.side {
            Side::Right => missing,
            Side::Centre => missing / 2,
            Side::Left => 0,
        };
        out.splice(start..start, std::iter::repeat_n(b' ', before));
        out.resize(start + length + missing, b' ');
    }
}

fn field(letter: char) -> Option<Field> {
    let of_time = match letter {
        'e' => "%3f",
        'f' => "%6f",
        'F' => "%9f",
        'E' => "%s",
        'C' => "%y",
        'D' | 'x' => "%m/%d/%y",
        'z' => "%Ez",
        'T' | 'X' => "%H:%M:%S",
        'a' => "%a",
        'A' => "%A",
        'b' | 'h' => "%b",
        'B' => "%B",
        'c' => "%a %b %e %H:%M:%S %Y",
        'Y' => "%Y",
        'm' => "%m",
        'd' => "%d",
        'H' => "%H",
        'I' => "%I",
        'M' => "%M",
        'S' => "%S",
        'p' => "%p",
        'r' => "%I:%M:%S %p",
        'R' => "%H:%M",
        _ => "",
    };
    if !of_time.is_empty() {
        return Some(Field::Time(TimePattern::parse(of_time).in_local_time()));
    }
    Some(match letter {
        'v' | '_' => Field::Message,
        'j' => Field::JsonMessage,
        'n' => Field::Component,
        'l' => Field::Level,
        'L' => Field::LevelLetter,
        't' => Field::Thread,
        'P' => Field::Process,
        's' | 'g' | '#' | '!' | '@' | '^' | '$' | '*' => Field::Nothing,
        _ => return None,
    })
}

impl Field {
    fn write(&self, entry: &Entry<'_>, out: &mut Vec<u8>) {
        let text: Cow<'_, str> = match self {
            Field::Time(pattern) => return time::write(pattern, entry.at, out),
            Field::JsonMessage => return json::write_escaped(entry.message.as_bytes(), out),
            Field::Message => return write_on_one_line(entry.message, out),
            Field::Component => entry.component.name().into(),
            Field::Level => entry.level.name().into(),
            Field::LevelLetter => entry.level.name().get(..1).unwrap_or_default().to_ascii_uppercase().into(),
            Field::Thread => postrider_sys::thread_id().to_string().into(),
            Field::Process => std::process::id().to_string().into(),
            Field::Nothing => return,
        };
        out.extend_from_slice(text.as_bytes());
    }
}

/// Line breaks are written as `\n`: a line is an entry.
pub(super) fn write_on_one_line(message: &str, out: &mut Vec<u8>) {
    for byte in message.bytes() {
        match byte {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            byte => out.push(byte),
        }
    }
}

/// As C writes texts: bytes that are no letters by their number in octal.
fn escape(line: &[u8], out: &mut Vec<u8>) {
    let mut number = String::new();
    for byte in line {
        match byte {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'"' | b'\'' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            b' '..=b'~' => out.push(*byte),
            _ => {
                number.clear();
                // Writing to a String cannot fail.
                let _ = write!(number, "\\{byte:03o}");
                out.extend_from_slice(number.as_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn line(pattern: &str, escaped: bool, message: &str) -> String {
        let at = UNIX_EPOCH + Duration::from_millis(1_795_169_472_345);
        let entry = Entry { component: Component::Upstream, level: Level::Warning, message, at };
        let mut out = b"> ".to_vec();
        LinePattern::parse(pattern, escaped).write(&entry, &mut out);
        String::from_utf8(out).unwrap().split_off(2)
    }

    #[test]
    fn letters_stand_for_what_a_line_has() {
        let (pid, thread) = (std::process::id(), postrider_sys::thread_id());
        for (pattern, wanted) in [
            ("%L|%l|%n|%v", "W|warning|upstream|a \"b\"\\nc".to_owned()),
            ("{\"m\":\"%j\"}", "{\"m\":\"a \\\"b\\\"\\nc\"}".to_owned()),
            ("%P %t", format!("{pid} {thread}")),
            ("%e %f %F %E %Y%%", "345 345000 345000000 1795169472 2026%".to_owned()),
            ("[%-9l][%9l][%=9l][%3!l]", "[warning  ][  warning][ warning ][war]".to_owned()),
            ("%g%#%@%^x%$%*", "x".to_owned()),
            ("%Q %", "%Q %".to_owned()),
        ] {
            assert_eq!(line(pattern, false, "a \"b\"\nc"), wanted, "{pattern}");
        }
    }

    #[test]
    fn what_is_escaped_is_escaped_as_in_c() {
        assert_eq!(line("%v", true, "a\t\"ä\u{1}"), r#"a\t\"\303\244\001"#);
    }
}
