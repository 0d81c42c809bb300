//! Quotes and brackets that are not closed, closed wrongly or once too often; missing commas between brackets.

use granit_parser::ErrorKind;
use postrider_config_core::Diagnostic;

use super::Candidate;
use super::line::end_of_text;
use super::patched::Patched;
use crate::tree::parse::Broken;

/// A quote that is still open at the next line: close it on its own line, before or behind trailing brackets.
pub fn close_quote(text: &Patched, broken: &Broken) -> Vec<Candidate> {
    opening_quote(text, broken).map_or_else(Vec::new, |open| close_quote_at(text, broken, open))
}

fn close_quote_at(text: &Patched, broken: &Broken, open: usize) -> Vec<Candidate> {
    let (line, column) = text.position(open);
    if line == text.position(broken.at).0
        && text.as_str().get(open + 1..broken.at).is_some_and(|value| value.contains(['"', '\'']))
    {
        return Vec::new();
    }
    let content = text.line(line);
    let quote = content.get(column..column + 1).unwrap_or("\"");
    let end = end_of_text(content).max(column + 1);
    let inner = content.get(..end).unwrap_or(content).trim_end_matches([']', '}', ',', ' ']).len().max(column + 1);
    let start = text.start(line);
    let places = if broken.open_brackets.is_empty() { vec![end] } else { vec![inner, end] };
    let all = places.into_iter().map(|at| {
        let diagnostic = Diagnostic::error("yaml-unclosed", format!("this quote ({quote}) is not closed on its line"))
            .at(text.span(start + column..start + at))
            .fix(text.span(start + at..start + at), quote, format!("close it: insert {quote}"));
        Candidate { text: text.edit(line, at, 0, quote), diagnostic }
    });
    all.collect()
}

/// A quoted value that runs over several lines, shortly before the error: most likely its first line lacks the quote.
pub fn swallowed_lines(text: &Patched, broken: &Broken) -> Vec<Candidate> {
    let Some(scalar) = &broken.last_scalar else { return Vec::new() };
    let value = text.as_str().get(scalar.clone()).unwrap_or("");
    if !value.starts_with(['"', '\'']) || !value.contains('\n') {
        // The parser may have stopped behind it without announcing it.
        return match broken.error.kind() {
            ErrorKind::InvalidTrailingDoubleQuotedScalar | ErrorKind::InvalidTrailingSingleQuotedScalar => {
                close_quote(text, broken)
            }
            _ => Vec::new(),
        };
    }
    close_quote_at(text, broken, scalar.start)
}

/// `[1, 2}`.
pub fn wrong_closer(text: &Patched, broken: &Broken, open: char) -> Option<Candidate> {
    let closer = closer(open);
    // The parser points at the opening bracket: the wrong one is the next that closes anything behind the last value.
    let from = broken.last_end.max(broken.at);
    let found = text.as_str().get(from..)?.find([']', '}'])? + from;
    let wrong = text.as_str().get(found..found + 1)?;
    let (line, column) = text.position(found);
    let span = text.span(found..found + 1);
    let opened = text.position(broken.at).0 + 1;
    let diagnostic = Diagnostic::error(
        "yaml-unclosed",
        format!("`{wrong}` closes the `{open}` of line {opened}: expected `{closer}`"),
    )
    .at(span)
    .fix(span, closer, format!("write `{closer}`"));
    Some(Candidate { text: text.edit(line, column, 1, closer), diagnostic })
}

/// `[1, 2]]`.
pub fn surplus_closer(text: &Patched, broken: &Broken) -> Option<Candidate> {
    let closer = text.as_str().get(broken.at..broken.at + 1)?;
    let (line, column) = text.position(broken.at);
    let span = text.span(broken.at..broken.at + 1);
    let diagnostic =
        Diagnostic::error("yaml-unclosed", format!("`{closer}` closes nothing")).at(span).fix(span, "", "remove it");
    Some(Candidate { text: text.edit(line, column, 1, ""), diagnostic })
}

/// Whether the whole text is one `{…}` or `[…]`, as JSON is.
pub fn is_flow_document(text: &Patched) -> bool {
    text.as_str().trim_start().starts_with(['{', '['])
}

/// Inside `[…]` or `{…}`: a missing comma or colon, or a bracket that is never closed.
pub fn in_flow(text: &Patched, broken: &Broken) -> Vec<Candidate> {
    let mut all = Vec::new();
    all.extend(missing_comma(text, broken));
    all.extend(missing_between(text, broken));
    all.extend(unclosed(text, broken));
    all
}

/// `{a: 1 b: 2}`: the parser read `1 b` as one value; the comma belongs before its last word.
fn missing_comma(text: &Patched, broken: &Broken) -> Option<Candidate> {
    let scalar = broken.last_scalar.clone()?;
    let value = text.as_str().get(scalar.clone())?;
    let gap = value.rfind(char::is_whitespace)?;
    let behind = scalar.start + value.get(..gap)?.trim_end().len();
    // Only where the last word is what stands before the unexpected colon.
    if text.as_str().get(scalar.end..broken.at)?.trim() != "" {
        return None;
    }
    Some(insert(text, behind, ",", "no comma between two entries"))
}

/// `["a" "b"]` or `{"a" 1}`: something between a quoted text and what follows.
fn missing_between(text: &Patched, broken: &Broken) -> Vec<Candidate> {
    let quoted = matches!(
        broken.error.kind(),
        ErrorKind::InvalidTrailingDoubleQuotedScalar | ErrorKind::InvalidTrailingSingleQuotedScalar
    );
    let before = text.as_str().get(..broken.at).unwrap_or("").trim_end();
    if !quoted && !before.ends_with(['"', '\'', ']', '}']) {
        return Vec::new();
    }
    let comma = insert(text, before.len(), ",", "no comma between two entries");
    let colon = insert(text, before.len(), ":", "no colon between a key and its value");
    let behind = text.as_str().get(before.len()..).unwrap_or("").trim_start();
    let entry = behind.split([',', '\n', '}', ']']).next().unwrap_or(behind);
    let key_follows = super::line::key_length(entry).is_some();
    // The parser announces a bracket only with its first key: in JSON it is found in the text.
    let innermost = match broken.open_brackets.last() {
        Some((bracket, _)) if !is_flow_document(text) => Some(*bracket),
        _ => innermost(before),
    };
    match innermost {
        Some('{') if !key_follows => vec![colon, comma],
        Some('{') => vec![comma, colon],
        _ => vec![comma],
    }
}

/// The bracket that is open at the end of a JSON text.
fn innermost(text: &str) -> Option<char> {
    let mut open = Vec::new();
    let mut quoted = false;
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match c {
            '\\' if quoted => {
                characters.next();
            }
            '"' => quoted = !quoted,
            '[' | '{' if !quoted => open.push(c),
            ']' | '}' if !quoted => {
                open.pop();
            }
            _ => {}
        }
    }
    open.pop()
}

/// Closes what is open: at the end of the line that opened it, else at the end of the file.
fn unclosed(text: &Patched, broken: &Broken) -> Vec<Candidate> {
    let mut open = broken.open_brackets.clone();
    if let (ErrorKind::UnclosedFlowCollection { open: bracket }, true) = (broken.error.kind(), open.is_empty()) {
        open.push((*bracket, broken.at));
    }
    let mut all = Vec::new();
    let (mut seen, mut closers) = (None, String::new());
    // From the inside out, as many as were opened on the same line.
    for (bracket, at) in open.iter().rev() {
        let line = text.position(*at).0;
        if seen.is_some_and(|seen| seen != line) {
            break;
        }
        seen = Some(line);
        closers.push_str(closer(*bracket));
        let end = end_of_text(text.line(line));
        all.push(close(text, *bracket, *at, text.start(line) + end, &closers));
    }
    let everything: String = open.iter().rev().map(|(bracket, _)| closer(*bracket)).collect();
    if let Some((bracket, at)) = open.last() {
        let end = text.as_str().trim_end().len();
        all.push(close(text, *bracket, *at, end, &everything));
    }
    all
}

fn close(text: &Patched, bracket: char, at: usize, end: usize, closers: &str) -> Candidate {
    let (line, column) = text.position(end);
    let number = line + 1;
    let place =
        if text.position(at).0 == line { "at the end of its line".to_owned() } else { format!("in line {number}") };
    let diagnostic = Diagnostic::error("yaml-unclosed", format!("this `{bracket}` is never closed"))
        .at(text.span(at..at + 1))
        .fix(text.span(end..end), closers, format!("insert `{closers}` {place}"));
    Candidate { text: text.edit(line, column, 0, closers), diagnostic }
}

fn insert(text: &Patched, at: usize, what: &str, message: &str) -> Candidate {
    let (line, column) = text.position(at);
    let diagnostic = Diagnostic::error("yaml-syntax", message).at(text.span(at..at + 1)).fix(
        text.span(at..at),
        what,
        format!("insert `{what}`"),
    );
    Candidate { text: text.edit(line, column, 0, what), diagnostic }
}

/// The quote that opened the scalar in which the error is: the first one behind the last event.
fn opening_quote(text: &Patched, broken: &Broken) -> Option<usize> {
    let from = match broken.error.kind() {
        // The parser points at the opening quote itself.
        ErrorKind::UnclosedQuotedScalar => broken.at.min(text.as_str().len()),
        _ => broken.last_end,
    };
    let quote = |from: usize| text.as_str().get(from..)?.find(['"', '\'']).map(|at| from + at);
    quote(from).or_else(|| quote(broken.last_end)).filter(|open| *open <= broken.at || from == broken.at)
}

fn closer(open: char) -> &'static str {
    if open == '[' { "]" } else { "}" }
}
