//! One finding about a configuration, and the ordered collection of all of them.
//!
//! A finding says what is wrong, where, what was expected and, when that is certain, the edit that repairs it. Codes are
//! stable identifiers (`unknown-field`): tools may match on them, so a published code never changes its meaning.

use std::cmp::Ordering;

use crate::source::Span;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The configuration is refused.
    Error,
    /// It is accepted; an operator should look.
    Warning,
    /// Information only.
    Note,
}

impl Severity {
    /// The word in text and JSON output.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        }
    }
}

/// An edit that certainly repairs a finding: replace the text under `span` by `replacement`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fix {
    pub span: Span,
    pub replacement: String,
    /// One line in the imperative: "write `false`".
    pub description: String,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    pub severity: Severity,
    /// Stable identifier, in kebab case.
    pub code: &'static str,
    /// One line, lower case, without a full stop.
    pub message: String,
    /// Where; `None` for input without text positions (a binary protobuf).
    pub span: Option<Span>,
    /// Field path from the document's root: `static_resources.listeners[0].address`. Empty for the document itself.
    pub path: String,
    /// What would have been accepted here.
    pub expected: Option<String>,
    /// A name close to what was written: "did you mean".
    pub suggestion: Option<String>,
    pub fix: Option<Fix>,
    /// What to do, one line each.
    pub help: Vec<String>,
    /// Background, one line each.
    pub notes: Vec<String>,
}

impl Diagnostic {
    /// A finding of a given severity without a place.
    pub fn new(severity: Severity, code: &'static str, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            severity,
            code,
            message: message.into(),
            span: None,
            path: String::new(),
            expected: None,
            suggestion: None,
            fix: None,
            help: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// A finding that refuses the configuration.
    pub fn error(code: &'static str, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(Severity::Error, code, message)
    }

    /// A finding that does not.
    pub fn warning(code: &'static str, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(Severity::Warning, code, message)
    }

    /// Sets the place.
    #[must_use]
    pub fn at(mut self, span: impl Into<Option<Span>>) -> Diagnostic {
        self.span = span.into();
        self
    }

    /// Sets the field path.
    #[must_use]
    pub fn path(mut self, path: impl Into<String>) -> Diagnostic {
        self.path = path.into();
        self
    }

    /// Says what would have been accepted.
    #[must_use]
    pub fn expected(mut self, expected: impl Into<String>) -> Diagnostic {
        self.expected = Some(expected.into());
        self
    }

    /// Adds a "did you mean", if there is one.
    #[must_use]
    pub fn suggest(mut self, suggestion: Option<impl Into<String>>) -> Diagnostic {
        self.suggestion = suggestion.map(Into::into);
        self
    }

    /// Adds the edit that certainly repairs it.
    #[must_use]
    pub fn fix(mut self, span: Span, replacement: impl Into<String>, description: impl Into<String>) -> Diagnostic {
        self.fix = Some(Fix { span, replacement: replacement.into(), description: description.into() });
        self
    }

    /// Adds a line of advice.
    #[must_use]
    pub fn help(mut self, line: impl Into<String>) -> Diagnostic {
        self.help.push(line.into());
        self
    }

    /// Adds a line of background.
    #[must_use]
    pub fn note(mut self, line: impl Into<String>) -> Diagnostic {
        self.notes.push(line.into());
        self
    }
}

/// Every finding of a load, ordered by place once [`Diagnostics::sort`] ran (rendering does it).
#[derive(Clone, Debug, Default)]
pub struct Diagnostics {
    items: Vec<Diagnostic>,
}

impl Diagnostics {
    /// An empty collection.
    pub fn new() -> Diagnostics {
        Diagnostics::default()
    }

    /// Adds a finding.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.items.push(diagnostic);
    }

    /// Adds every finding of another collection.
    pub fn append(&mut self, other: Diagnostics) {
        self.items.extend(other.items);
    }

    /// Number of findings that refuse the configuration.
    pub fn errors(&self) -> usize {
        self.count(Severity::Error)
    }

    /// Number of warnings.
    pub fn warnings(&self) -> usize {
        self.count(Severity::Warning)
    }

    /// Whether the configuration is refused.
    pub fn has_errors(&self) -> bool {
        self.items.iter().any(|d| d.severity == Severity::Error)
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.items.iter()
    }

    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, Diagnostic> {
        self.items.iter_mut()
    }

    /// Keeps only the findings that `keep` accepts.
    pub fn retain(&mut self, keep: impl FnMut(&Diagnostic) -> bool) {
        self.items.retain(keep);
    }

    /// Orders by file and place (findings without a place last), then severity, and drops repetitions: the same words about
    /// the same place (an alias is read once for each of its uses).
    pub fn sort(&mut self) {
        self.items.sort_by(by_place);
        self.items.dedup_by(|a, b| same_finding(a, b));
    }

    fn count(&self, severity: Severity) -> usize {
        self.items.iter().filter(|d| d.severity == severity).count()
    }
}

impl FromIterator<Diagnostic> for Diagnostics {
    fn from_iter<I: IntoIterator<Item = Diagnostic>>(items: I) -> Diagnostics {
        Diagnostics { items: items.into_iter().collect() }
    }
}

impl<'d> IntoIterator for &'d Diagnostics {
    type Item = &'d Diagnostic;
    type IntoIter = std::slice::Iter<'d, Diagnostic>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.iter()
    }
}

impl IntoIterator for Diagnostics {
    type Item = Diagnostic;
    type IntoIter = std::vec::IntoIter<Diagnostic>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

fn same_finding(a: &Diagnostic, b: &Diagnostic) -> bool {
    a == b || (a.span.is_some() && (a.span, a.code, &a.message) == (b.span, b.code, &b.message))
}

fn by_place(a: &Diagnostic, b: &Diagnostic) -> Ordering {
    match (a.span, b.span) {
        (Some(x), Some(y)) => (x.file, x.start).cmp(&(y.file, y.start)),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => Ordering::Equal,
    }
    .then(a.severity.cmp(&b.severity))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::FileId;

    #[test]
    fn findings_come_in_the_order_of_the_file() {
        let span = |start| Span::new(FileId::MAIN, start, start + 1);
        let mut all: Diagnostics = [
            Diagnostic::error("c", "no place"),
            Diagnostic::warning("b", "later").at(span(9)),
            Diagnostic::error("a", "first").at(span(1)),
            Diagnostic::error("a", "first").at(span(1)),
            Diagnostic::error("b", "same place").at(span(9)),
        ]
        .into_iter()
        .collect();
        all.sort();
        let messages: Vec<&str> = all.iter().map(|d| d.message.as_str()).collect();
        assert_eq!(messages, ["first", "same place", "later", "no place"]);
        assert_eq!((all.errors(), all.warnings()), (3, 1));
    }
}
