//! Going on after a YAML syntax error: guess what was meant, say so, and read the rest of the file.
//!
//! Each error yields a few candidate repairs, each a small edit of one line or one block. The one after which the
//! parser gets furthest is reported and kept, and the text is parsed again. A line that no repair makes readable is left
//! out. Repairs never change the file; they only let one run report everything.

mod bracket;
mod indent;
mod line;
mod patched;
mod word;

use granit_parser::ErrorKind;
use postrider_config_core::{Diagnostic, Diagnostics, FileId, SourceFile, Span};

use self::patched::Patched;
use super::parse::{Broken, Outcome, parse};
use super::{Document, MAX_BYTES};

/// Syntax errors reported in one run. A file with more is not a configuration with slips but something else.
const MAX_REPAIRS: usize = 32;

/// Repairs of one line. A line that is still unreadable after these is left out: each quoting of a quoted value would
/// double its quotes.
const MAX_REPAIRS_PER_LINE: usize = 3;

/// A guess at what was meant.
pub struct Candidate {
    pub text: Patched,
    pub diagnostic: Diagnostic,
}

/// See [`super::parse`].
pub fn parse_with_repairs(file: &SourceFile, id: FileId, diagnostics: &mut Diagnostics) -> Document {
    if file.text().len() > MAX_BYTES {
        let message = format!("the file is longer than {} MiB", MAX_BYTES >> 20);
        diagnostics.push(Diagnostic::error("limit-exceeded", message).at(Span::new(id, 0, 0)));
        return Document { root: None, incomplete: true };
    }
    let mut text = Patched::new(file.text(), id);
    let mut incomplete = false;
    let mut after_tabs = false;
    let mut last = text.span(0..0);
    for _ in 0..MAX_REPAIRS {
        let mut found = Diagnostics::new();
        let place = |range| text.span(range);
        let broken = match parse(text.as_str(), &place, &mut found) {
            Outcome::Tree(root) => {
                diagnostics.append(found);
                return Document { root, incomplete };
            }
            Outcome::Broken(broken) => broken,
        };
        let line = text.position(broken.at).0;
        last = text.span(broken.at..broken.at);
        let tabbed = text.repairs_of(line) > 0 && after_tabs;
        let best = match best(&text, &broken) {
            Some(candidate) => candidate,
            None => {
                incomplete = true;
                leave_out(&text, &broken)
            }
        };
        after_tabs |= best.diagnostic.code == "yaml-tab";
        // How wide a tab was meant to be is a guess: where it does not fit, the tab has been reported already.
        if !(tabbed && best.diagnostic.code == "yaml-indent") {
            diagnostics.push(best.diagnostic);
        }
        text = best.text;
    }
    let message = format!("more than {MAX_REPAIRS} syntax errors: the rest of the file is not checked");
    diagnostics.push(Diagnostic::error("yaml-syntax", message).at(last));
    Document { root: None, incomplete: true }
}

/// The candidate after which the parser gets furthest, the first of equals; `None` when none gets further.
fn best(text: &Patched, broken: &Broken) -> Option<Candidate> {
    if text.repairs_of(text.position(broken.at).0) >= MAX_REPAIRS_PER_LINE {
        return None;
    }
    let mut best: Option<((usize, usize), Candidate)> = None;
    for candidate in candidates(text, broken) {
        let reached = reach(&candidate.text);
        let further = match &best {
            Some((record, _)) => reached > *record,
            None => reached > text.position(broken.at),
        };
        if further {
            best = Some((reached, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

fn candidates(text: &Patched, broken: &Broken) -> Vec<Candidate> {
    use ErrorKind::*;
    match broken.error.kind() {
        TabInBlockIndentation | TabInIndentation | TabNotAllowed | TabInPlainScalar | TabAtBlockScalarStart => {
            word::tabs(text).into_iter().collect()
        }
        UnexpectedCharacter { character } if character.is_control() => {
            word::control(text, broken).into_iter().collect()
        }
        UnexpectedCharacter { .. } | MissingAnchorOrAliasName | MissingTagUri | InvalidTagTerminator => {
            word::quote_value(text, broken).into_iter().collect()
        }
        UnknownQuotedScalarEscape | InvalidQuotedScalarHexEscape => word::escape(text, broken).into_iter().collect(),
        InvalidQuotedScalarIndent | UnclosedQuotedScalar | DocumentIndicatorInQuotedScalar => {
            bracket::close_quote(text, broken)
        }
        MismatchedFlowCollectionEnd { open, .. } => bracket::wrong_closer(text, broken, *open).into_iter().collect(),
        MisplacedFlowCollectionEnd => bracket::surplus_closer(text, broken).into_iter().collect(),
        _ => {
            let mut all = bracket::swallowed_lines(text, broken);
            if !broken.open_brackets.is_empty()
                || bracket::is_flow_document(text)
                || matches!(broken.error.kind(), UnclosedFlowCollection { .. })
            {
                all.extend(bracket::in_flow(text, broken));
            } else {
                all.extend(indent::block_text(text, broken));
                all.extend(word::missing_space(text, broken));
                all.extend(word::missing_colon(text, broken));
                all.extend(word::colon_in_value(text, broken));
                all.extend(word::text_behind_quote(text, broken));
                all.extend(indent::all(text, broken));
            }
            all
        }
    }
}

/// How far the parser gets: line and column of the first error, or the largest position there is.
fn reach(text: &Patched) -> (usize, usize) {
    let place = |_| Span::new(FileId::MAIN, 0, 0);
    match parse(text.as_str(), &place, &mut Diagnostics::new()) {
        Outcome::Tree(_) => (usize::MAX, usize::MAX),
        Outcome::Broken(broken) => text.position(broken.at),
    }
}

/// Without an idea: report what the parser says, and read on without the line and what is nested below it.
fn leave_out(text: &Patched, broken: &Broken) -> Candidate {
    let at = text.position(broken.at).0.min(text.len().saturating_sub(1));
    let line = text.line(at);
    let mut until = at + 1;
    while until < text.len()
        && (line::is_blank(text.line(until)) || line::indent(text.line(until)) > line::indent(line))
    {
        until += 1;
    }
    let message = match line.trim_start() {
        marker if ["<<<<<<<", "=======", ">>>>>>>"].iter().any(|m| marker.starts_with(m)) => {
            "a marker of an unresolved merge conflict".to_owned()
        }
        _ => explain(broken.error.kind()).unwrap_or_else(|| format!("this is not YAML: {}", broken.error.info())),
    };
    let span = text.span(text.content(at));
    let diagnostic = Diagnostic::error("yaml-syntax", message).at(span).note(if until == at + 1 {
        "the rest is checked without this line"
    } else {
        "the rest is checked without this block"
    });
    Candidate { text: text.without(at..until), diagnostic }
}

/// The parser's commonest complaints in words that need no knowledge of its states.
fn explain(kind: &ErrorKind) -> Option<String> {
    use ErrorKind::*;
    let words = match kind {
        ExpectedBlockMappingKey => "expected a key here (`name: value`), at the level of the keys above",
        ExpectedBlockSequenceEntry => "expected a list element here (`- value`)",
        SimpleKeyExpected => "expected a key and a colon (`name: value`)",
        MappingValueNotAllowed => "a `key: value` cannot start here: the line above already has a value",
        BlockSequenceEntryNotAllowed => "a list element cannot start here",
        ExpectedFlowMappingSeparator => "expected `,` or `}`",
        ExpectedFlowSequenceSeparator => "expected `,` or `]`",
        InvalidColonPlacement => "a `:` cannot stand here",
        BomInsideDocument => "a byte order mark in the middle of the text",
        _ => return None,
    };
    Some(words.to_owned())
}
