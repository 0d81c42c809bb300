//! What one line of block-style YAML looks like: its indentation, its dashes, its key.

/// Spaces in front of a line.
pub fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// Whether a line holds nothing but space or a comment.
pub fn is_blank(line: &str) -> bool {
    let text = line.trim_start();
    text.is_empty() || text.starts_with('#')
}

/// Whether a line starts a list element.
pub fn is_element(line: &str) -> bool {
    let text = line.trim();
    text == "-" || text.starts_with("- ")
}

/// Columns at which the line opens something: of each dash, then of the key (or the value) behind them.
pub fn columns(line: &str) -> Vec<Column> {
    let mut columns = Vec::new();
    let mut at = indent(line);
    while let Some(rest) = line.get(at..).and_then(|text| text.strip_prefix("- ")) {
        columns.push(Column { at, dash: true });
        at += 2 + indent(rest);
    }
    if line.get(at..).is_some_and(|rest| key_length(rest).is_some()) {
        columns.push(Column { at, dash: false });
    }
    columns
}

/// A column of [`columns`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    pub at: usize,
    /// A dash, not a key.
    pub dash: bool,
}

/// Length of the key with which a text starts (without its colon); `None` when it starts with no key.
pub fn key_length(text: &str) -> Option<usize> {
    if let Some(quote) = text.chars().next().filter(|c| matches!(c, '"' | '\'')) {
        let close = text.get(1..)?.find(quote)? + 2;
        return text.get(close..)?.starts_with(':').then_some(close);
    }
    if text.starts_with(['#', '[', '{']) {
        return None;
    }
    text.find(": ").or_else(|| text.trim_end().strip_suffix(':').map(str::len)).filter(|length| *length > 0)
}

/// The key with which a line starts, behind its dashes.
pub fn key(line: &str) -> Option<&str> {
    let column = columns(line).into_iter().rfind(|column| !column.dash)?;
    let rest = line.get(column.at..)?;
    rest.get(..key_length(rest)?)
}

/// End of a line's text before a trailing comment.
pub fn end_of_text(line: &str) -> usize {
    let text = line.find(" #").map_or(line, |comment| line.get(..comment).unwrap_or(line));
    text.trim_end().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_columns() {
        assert_eq!(
            columns("  - - a: 1"),
            [Column { at: 2, dash: true }, Column { at: 4, dash: true }, Column { at: 6, dash: false }]
        );
        assert_eq!(columns("  - x"), [Column { at: 2, dash: true }]);
        assert_eq!(key("  - \"@type\": x"), Some("\"@type\""));
        assert_eq!(key("routes:"), Some("routes"));
        assert_eq!(key("a:1"), None);
        assert_eq!(end_of_text("a: b  # c"), 4);
        assert!(is_element(" -") && is_element("- a") && !is_element("-a"));
    }
}
