//! Diagnostics as text for people and as JSON for machines.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use crate::diagnostic::{Diagnostic, Diagnostics, Severity};
use crate::source::{SourceFile, Sources, Span};

/// A snippet line longer than this many characters is cut around the caret: a minified JSON file is one line.
const SNIPPET_WIDTH: usize = 160;

/// Characters of context kept in front of the caret when a line is cut.
const SNIPPET_LEAD: usize = 40;

/// Every finding in the order of the file, in the form
/// ```text
/// envoy.yaml:31:5: error[v2-field]: `hosts` is a field of the v2 API
///    |
/// 31 |     hosts: [{ … }]
///    |     ^^^^^
///    = path: static_resources.clusters[0].hosts
///    = help: run `postrider migrate`
/// ```
/// followed by a line of totals. Colour (ANSI) only when asked: the caller knows whether a terminal reads this.
pub fn text(diagnostics: &Diagnostics, sources: &Sources, colour: bool) -> String {
    let mut sorted = diagnostics.clone();
    sorted.sort();
    let paint = Paint { colour };
    let mut out = String::new();
    for diagnostic in &sorted {
        one(&mut out, diagnostic, sources, &paint);
        out.push('\n');
    }
    if let Some(totals) = totals(&sorted) {
        out.push_str(&totals);
        out.push('\n');
    }
    out
}

/// `{"errors": n, "warnings": n, "diagnostics": [{severity, code, message, file, line, column, end_line, end_column,
/// path, expected, suggestion, fix, help, notes}]}`. Absent facts are left out; lines and columns start at 1.
pub fn json(diagnostics: &Diagnostics, sources: &Sources) -> Value {
    let mut sorted = diagnostics.clone();
    sorted.sort();
    json!({
        "errors": sorted.errors(),
        "warnings": sorted.warnings(),
        "diagnostics": sorted.iter().map(|d| json_one(d, sources)).collect::<Vec<Value>>(),
    })
}

fn one(out: &mut String, diagnostic: &Diagnostic, sources: &Sources, paint: &Paint) {
    let located = diagnostic.span.and_then(|span| sources.location(span).map(|(file, at)| (file, at, span)));
    if let Some((file, at, _)) = located {
        let _ = write!(out, "{}:{}:{}: ", file.name(), at.line, at.column);
    }
    let head = format!("{}[{}]", diagnostic.severity.as_str(), diagnostic.code);
    let _ = writeln!(out, "{}: {}", paint.severity(diagnostic.severity, &head), paint.bold(&diagnostic.message));
    let mut gutter = 2;
    if let Some((file, _, span)) = located {
        gutter = snippet(out, file, span, diagnostic.severity, paint);
    }
    let mut line = |label: &str, text: &str| {
        let _ = writeln!(out, "{:gutter$} {} {label}: {text}", "", paint.frame("="));
    };
    if !diagnostic.path.is_empty() {
        line("path", &diagnostic.path);
    }
    if let Some(expected) = &diagnostic.expected {
        line("expected", expected);
    }
    if let Some(suggestion) = &diagnostic.suggestion {
        line("help", &format!("did you mean `{suggestion}`?"));
    }
    if let Some(fix) = &diagnostic.fix {
        line("fix", &fix.description);
    }
    for help in &diagnostic.help {
        line("help", help);
    }
    for note in &diagnostic.notes {
        line("note", note);
    }
}

/// Writes the line under a span with carets below it; returns the width of the line-number column.
fn snippet(out: &mut String, file: &SourceFile, span: Span, severity: Severity, paint: &Paint) -> usize {
    let at = file.position(span.start);
    let number = at.line.to_string();
    let gutter = number.len();
    let Some(line) = file.line(at.line) else {
        return gutter;
    };
    let from = at.column as usize - 1;
    let end = file.position(span.end);
    let until = if end.line == at.line { end.column as usize - 1 } else { line.trim_end().chars().count() };
    let (shown, from, until) = cut(line, from, until.max(from + 1));
    // A control character would vanish or move the cursor.
    let shown: String = shown.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }).collect();
    let _ = writeln!(out, "{:gutter$} {}", "", paint.frame("|"));
    let _ = writeln!(out, "{} {} {}", paint.frame(&number), paint.frame("|"), shown.trim_end());
    // Tabs stay tabs, so that the caret stands below its character whatever the terminal's tab width.
    let lead: String = shown.chars().take(from).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    let lead = format!("{lead:<from$}");
    let carets = "^".repeat(until - from);
    let _ = writeln!(out, "{:gutter$} {} {lead}{}", "", paint.frame("|"), paint.severity(severity, &carets));
    gutter
}

/// The part of a line to show, with the caret range moved along.
fn cut(line: &str, from: usize, until: usize) -> (String, usize, usize) {
    let length = line.chars().count();
    if length <= SNIPPET_WIDTH {
        return (line.to_owned(), from, until.min(length.max(from + 1)));
    }
    let start = from.saturating_sub(SNIPPET_LEAD);
    let (head, dropped) = if start == 0 { ("", 0) } else { ("… ", 2) };
    let part: String = line.chars().skip(start).take(SNIPPET_WIDTH).collect();
    let tail = if start + SNIPPET_WIDTH < length { " …" } else { "" };
    let shift = |column: usize| column - start + dropped;
    let until = shift(until).min(dropped + SNIPPET_WIDTH).max(shift(from) + 1);
    (format!("{head}{part}{tail}"), shift(from), until)
}

fn totals(diagnostics: &Diagnostics) -> Option<String> {
    let plural = |n: usize, word: &str| match n {
        0 => None,
        1 => Some(format!("1 {word}")),
        n => Some(format!("{n} {word}s")),
    };
    let parts = [plural(diagnostics.errors(), "error"), plural(diagnostics.warnings(), "warning")];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn json_one(diagnostic: &Diagnostic, sources: &Sources) -> Value {
    let mut out = Map::new();
    out.insert("severity".into(), diagnostic.severity.as_str().into());
    out.insert("code".into(), diagnostic.code.into());
    out.insert("message".into(), diagnostic.message.as_str().into());
    if let Some(span) = diagnostic.span {
        place(&mut out, span, sources);
    }
    if !diagnostic.path.is_empty() {
        out.insert("path".into(), diagnostic.path.as_str().into());
    }
    if let Some(expected) = &diagnostic.expected {
        out.insert("expected".into(), expected.as_str().into());
    }
    if let Some(suggestion) = &diagnostic.suggestion {
        out.insert("suggestion".into(), suggestion.as_str().into());
    }
    if let Some(fix) = &diagnostic.fix {
        let mut edit = Map::new();
        place(&mut edit, fix.span, sources);
        edit.insert("replacement".into(), fix.replacement.as_str().into());
        edit.insert("description".into(), fix.description.as_str().into());
        out.insert("fix".into(), edit.into());
    }
    for (key, lines) in [("help", &diagnostic.help), ("notes", &diagnostic.notes)] {
        if !lines.is_empty() {
            out.insert(key.into(), lines.as_slice().into());
        }
    }
    out.into()
}

fn place(out: &mut Map<String, Value>, span: Span, sources: &Sources) {
    let Some(file) = sources.file(span.file) else {
        return;
    };
    let (start, end) = (file.position(span.start), file.position(span.end));
    out.insert("file".into(), file.name().into());
    out.insert("line".into(), start.line.into());
    out.insert("column".into(), start.column.into());
    out.insert("end_line".into(), end.line.into());
    out.insert("end_column".into(), end.column.into());
}

struct Paint {
    colour: bool,
}

impl Paint {
    fn severity(&self, severity: Severity, text: &str) -> String {
        let code = match severity {
            Severity::Error => "1;31",
            Severity::Warning => "1;33",
            Severity::Note => "1;36",
        };
        self.wrap(code, text)
    }

    fn bold(&self, text: &str) -> String {
        self.wrap("1", text)
    }

    fn frame(&self, text: &str) -> String {
        self.wrap("1;34", text)
    }

    fn wrap(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::FileId;

    fn sample() -> (Diagnostics, Sources) {
        let sources = Sources::of(SourceFile::new("e.yaml", "a:\n\tnaem: [1,\n 2]\n"));
        let span = Span::new(FileId::MAIN, 4, 8);
        let found = Diagnostic::error("unknown-field", "no field `naem`")
            .at(span)
            .path("a.naem")
            .expected("a field of `X`")
            .suggest(Some("name"))
            .fix(span, "name", "write `name`")
            .help("see the docs")
            .note("why");
        (Diagnostics::from_iter([Diagnostic::warning("empty", "nothing here"), found]), sources)
    }

    #[test]
    fn text_has_place_snippet_and_every_fact() {
        let (found, sources) = sample();
        let expected = "e.yaml:2:2: error[unknown-field]: no field `naem`\n  |\n2 | \tnaem: [1,\n  | \t^^^^\n  = path: a.naem\n  \
             = expected: a field of `X`\n  = help: did you mean `name`?\n  = fix: write `name`\n  = help: see the docs\n  \
             = note: why\n\nwarning[empty]: nothing here\n\n1 error, 1 warning\n";
        assert_eq!(text(&found, &sources, false), expected);
        assert!(text(&found, &sources, true).contains("\x1b[1;31merror[unknown-field]\x1b[0m"));
    }

    #[test]
    fn a_span_over_several_lines_is_marked_to_the_end_of_the_first() {
        let (_, sources) = sample();
        let found = Diagnostics::from_iter([Diagnostic::error("x", "list").at(Span::new(FileId::MAIN, 10, 16))]);
        assert!(text(&found, &sources, false).contains("2 | \tnaem: [1,\n  | \t      ^^^\n"));
    }

    #[test]
    fn a_very_long_line_is_cut_around_the_caret() {
        let line = format!("{}HERE{}", "x".repeat(1000), "y".repeat(1000));
        let sources = Sources::of(SourceFile::new("e.json", line));
        let found = Diagnostics::from_iter([Diagnostic::error("x", "m").at(Span::new(FileId::MAIN, 1000, 1004))]);
        let text = text(&found, &sources, false);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[2].chars().count() < 200);
        let column = lines[3].find('^').unwrap_or(0);
        assert_eq!(lines[2].chars().skip(column).take(4).collect::<String>(), "HERE");
    }

    #[test]
    fn json_has_lines_columns_and_the_edit() {
        let (found, sources) = sample();
        let value = json(&found, &sources);
        assert_eq!(value["errors"], 1);
        let first = &value["diagnostics"][0];
        assert_eq!((&first["line"], &first["column"]), (&json!(2), &json!(2)));
        assert_eq!(first["fix"]["replacement"], "name");
        assert!(value["diagnostics"][1].get("file").is_none());
    }
}
