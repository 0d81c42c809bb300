//! Slips inside a line: tabs, a missing space or colon, text that must be quoted.

use std::ops::Range;

use postrider_config_core::Diagnostic;

use super::Candidate;
use super::line::{columns, end_of_text, indent, is_blank, key_length};
use super::patched::Patched;
use crate::tree::parse::Broken;
use crate::tree::shorten;

/// What one tab of indentation most likely stands for.
const SPACES_PER_TAB: &str = "  ";

/// Tabs in the indentation, of all lines at once: whoever used one used more.
pub fn tabs(text: &Patched) -> Option<Candidate> {
    let lead = |line: usize| {
        let content = text.line(line);
        content.len() - content.trim_start_matches([' ', '\t']).len()
    };
    let with_tabs: Vec<usize> = (0..text.len())
        .filter(|line| text.line(*line).get(..lead(*line)).is_some_and(|lead| lead.contains('\t')))
        .collect();
    let first = *with_tabs.first()?;
    let patched = text.edit_lines(with_tabs.iter().map(|line| {
        let lone = !with_tabs.contains(&line.wrapping_sub(1));
        let spaces = match level_below(text, *line).filter(|_| lone) {
            Some(level) => " ".repeat(level),
            None => text.line(*line).get(..lead(*line)).unwrap_or("").replace('\t', SPACES_PER_TAB),
        };
        (*line, 0, lead(*line), spaces)
    }));
    let start = text.start(first);
    let mut diagnostic = Diagnostic::error("yaml-tab", "a tab in the indentation; YAML takes spaces only")
        .at(text.span(start..start + lead(first)))
        .help("indent with spaces (two per level)");
    if let others @ 1.. = with_tabs.len() - 1 {
        let last = with_tabs.last().map_or(first, |line| *line) + 1;
        let plural = if others == 1 { "line has" } else { "lines have" };
        diagnostic = diagnostic.note(format!("{others} more {plural} tabs, the last of them line {last}"));
    }
    Some(Candidate { text: patched, diagnostic })
}

/// The column of a key below a line without tabs: that of the key there, or one level deeper when that key opens a block.
fn level_below(text: &Patched, line: usize) -> Option<usize> {
    let above = (0..line).rev().map(|number| text.line(number)).find(|above| !is_blank(above))?;
    if text.line(line).trim_start().starts_with("- ") || above.starts_with('\t') {
        return None;
    }
    let key = columns(above).into_iter().rfind(|column| !column.dash)?.at;
    Some(if above.trim_end().ends_with(':') { key + SPACES_PER_TAB.len() } else { key })
}

/// A control character anywhere in the text.
pub fn control(text: &Patched, broken: &Broken) -> Option<Candidate> {
    let (line, _) = text.position(broken.at);
    let (column, character) = text.line(line).char_indices().find(|(_, c)| c.is_control() && *c != '\t')?;
    let start = text.start(line) + column;
    let name = format!("U+{:04X}", u32::from(character));
    let span = text.span(start..start + character.len_utf8());
    let diagnostic = Diagnostic::error("yaml-syntax", format!("a control character ({name}) cannot stand in YAML"))
        .at(span)
        .fix(span, "", "remove it")
        .help(format!("inside double quotes it can be written as \"\\x{:02X}\"", u32::from(character)));
    Some(Candidate { text: text.edit(line, column, character.len_utf8(), ""), diagnostic })
}

/// A value that starts with a character that means something in YAML (`*`, `%`, `@`, …): quote it.
pub fn quote_value(text: &Patched, broken: &Broken) -> Option<Candidate> {
    let (line, column) = text.position(broken.at);
    let content = text.line(line);
    let rest = content.get(column..)?;
    let length = if broken.open_brackets.is_empty() {
        end_of_text(rest)
    } else {
        rest.find([',', ']', '}']).map_or(rest.trim_end().len(), |end| rest.get(..end).unwrap_or(rest).trim_end().len())
    };
    // `@type: …`: only the key needs the quotes.
    let length = key_length(rest).filter(|key| *key < length).unwrap_or(length);
    let value = rest.get(..length).filter(|value| !value.is_empty())?;
    let first = value.chars().next()?;
    let what = if length < end_of_text(rest) && key_length(rest).is_some() { "key" } else { "value" };
    let message = format!("a {what} that starts with {first:?} must be quoted");
    Some(quoted(text, line, column..column + length, message))
}

/// `name:value`, on this line or as the swallowed line above.
pub fn missing_space(text: &Patched, broken: &Broken) -> Vec<Candidate> {
    let fixable = |number: usize| {
        let line = text.line(number);
        let (start, word) = bare_word(line)?;
        let colon = word.find(':')?;
        let name = word.get(..colon)?;
        is_name(name).then_some((number, start + colon + 1, name.to_owned()))
    };
    let found = here_and_above(text, broken).filter_map(fixable);
    let all = found.map(|(number, at, name)| {
        let start = text.start(number);
        let diagnostic = Diagnostic::error("yaml-syntax", format!("no space behind `{name}:`"))
            .at(text.span(start + at - name.len() - 1..start + at))
            .fix(text.span(start + at..start + at), " ", "insert a space behind the colon");
        Candidate { text: text.edit(number, at, 0, " "), diagnostic }
    });
    all.collect()
}

/// `name` or `name value`, on this line or as the swallowed line above.
pub fn missing_colon(text: &Patched, broken: &Broken) -> Vec<Candidate> {
    let fixable = |number: usize| {
        let line = text.line(number);
        let (start, words) = bare_word(line)?;
        let mut parts = words.split_whitespace();
        let name = parts.next().filter(|name| is_name(name))?;
        // More words are prose, not a key and its value.
        if parts.count() > 1 {
            return None;
        }
        Some((number, start + name.len(), name.to_owned()))
    };
    let found = here_and_above(text, broken).filter_map(fixable);
    let all = found.map(|(number, at, name)| {
        let start = text.start(number);
        let diagnostic = Diagnostic::error("yaml-syntax", format!("no colon behind the key `{name}`"))
            .at(text.span(start + at - name.len()..start + at))
            .fix(text.span(start + at..start + at), ":", "insert a colon behind the key");
        Candidate { text: text.edit(number, at, 0, ":"), diagnostic }
    });
    all.collect()
}

/// `key: one: two`: the value holds `: ` and must be quoted.
pub fn colon_in_value(text: &Patched, broken: &Broken) -> Option<Candidate> {
    let (line, _) = text.position(broken.at);
    let content = text.line(line);
    let key = columns(content).into_iter().rfind(|column| !column.dash)?.at;
    let value = key + key_length(content.get(key..)?)? + 1;
    let value = value + indent(content.get(value..)?);
    let end = end_of_text(content);
    if !content.get(value..end)?.contains(": ") {
        return None;
    }
    let message = "a value that contains `: ` must be quoted".to_owned();
    Some(quoted(text, line, value..end, message))
}

/// `"text" more`: nothing may follow a quoted value.
pub fn text_behind_quote(text: &Patched, broken: &Broken) -> Option<Candidate> {
    let (line, column) = text.position(broken.at);
    let content = text.line(line);
    let before = content.get(..column)?.trim_end();
    if !before.ends_with(['"', '\'']) {
        return None;
    }
    let end = end_of_text(content).max(column);
    let start = text.start(line);
    let surplus = content.get(column..end)?;
    let diagnostic = Diagnostic::error("yaml-syntax", format!("`{}` behind a quoted value", shorten(surplus)))
        .at(text.span(start + column..start + end))
        .help("put it inside the quotes or remove it");
    Some(Candidate { text: text.edit(line, column, end - column, ""), diagnostic })
}

/// `"\d"`: an escape that YAML does not know, nearly always a regular expression.
pub fn escape(text: &Patched, broken: &Broken) -> Option<Candidate> {
    let (line, column) = text.position(broken.at);
    let content = text.line(line);
    let open = column + content.get(column..)?.find('"')?;
    let body = content.get(open + 1..)?;
    let mut end = None;
    let mut fixed = String::new();
    let mut first = None;
    let mut characters = body.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => {
                end = Some(at);
                break;
            }
            '\\' => {
                let (_, escaped) = characters.next()?;
                if !"0abtnvfre \"/\\N_LPxuU".contains(escaped) {
                    fixed.push('\\');
                    first.get_or_insert((at, escaped));
                }
                fixed.push('\\');
                fixed.push(escaped);
            }
            c => fixed.push(c),
        }
    }
    let (at, escaped) = first?;
    let start = text.start(line) + open + 1;
    let single = body.get(..end?)?.replace('\'', "''");
    let span = text.span(start + at..start + at + 1 + escaped.len_utf8());
    let whole = text.span(start - 1..start + end? + 1);
    let message = format!("`\\{escaped}` is no escape in a double-quoted value");
    let diagnostic = Diagnostic::error("yaml-syntax", message).at(span).fix(
        whole,
        format!("'{single}'"),
        "use single quotes, in which a backslash is a backslash",
    );
    Some(Candidate { text: text.edit(line, open + 1, end?, &fixed), diagnostic })
}

/// The line of the error, and the line above it that a plain scalar may have swallowed.
fn here_and_above(text: &Patched, broken: &Broken) -> impl Iterator<Item = usize> {
    let at = text.position(broken.at).0;
    let above = (0..at).rev().find(|number| !is_blank(text.line(*number)));
    above.into_iter().chain(std::iter::once(at))
}

/// The text of a line behind its dashes, when that text has no key: its column and itself.
fn bare_word(line: &str) -> Option<(usize, &str)> {
    let mut start = indent(line);
    while let Some(rest) = line.get(start..).and_then(|text| text.strip_prefix("- ")) {
        start += 2 + indent(rest);
    }
    let text = line.get(start..end_of_text(line))?;
    (!text.is_empty() && key_length(text).is_none()).then_some((start, text))
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
}

fn quoted(text: &Patched, line: usize, range: Range<usize>, message: String) -> Candidate {
    let value = text.line(line).get(range.clone()).unwrap_or("");
    let replacement = format!("'{}'", value.replace('\'', "''"));
    let start = text.start(line);
    let span = text.span(start + range.start..start + range.end);
    let diagnostic = Diagnostic::error("yaml-syntax", message).at(span).fix(
        span,
        replacement.clone(),
        format!("write `{}`", shorten(&replacement)),
    );
    Candidate { text: text.edit(line, range.start, range.len(), &replacement), diagnostic }
}
