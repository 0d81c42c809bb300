//! Lines that are indented like nothing above them.

use std::ops::Range;

use postrider_config_core::Diagnostic;

use super::Candidate;
use super::line::{Column, columns, indent, is_blank, is_element, key};
use super::patched::Patched;
use crate::tree::parse::Broken;

/// Moves the line of the error, alone or with what follows it, to each column at which something above it is open,
/// nearest first.
pub fn all(text: &Patched, broken: &Broken) -> Vec<Candidate> {
    let at = text.position(broken.at).0;
    let line = text.line(at);
    if is_blank(line) || columns(line).is_empty() {
        return Vec::new();
    }
    let mut targets = open_columns(text, at);
    targets.retain(|target| target.column.at != indent(line) && target.column.dash == is_element(line));
    // Of two columns at the same distance the deeper one: keys are lost to the left more often than to the right.
    targets.sort_by_key(|target| (target.column.at.abs_diff(indent(line)), usize::MAX - target.column.at));
    let mut all = Vec::new();
    for target in targets {
        for block in [block(text, at), at..at + 1] {
            all.push(moved(text, &block, &target));
        }
    }
    all
}

/// A line without a key, less indented than the block of text (`|`, `>`) above it: it belongs to the text.
pub fn block_text(text: &Patched, broken: &Broken) -> Option<Candidate> {
    let at = text.position(broken.at).0;
    let level = indent(text.line(at));
    if is_blank(text.line(at)) || key(text.line(at)).is_some() || is_element(text.line(at)) {
        return None;
    }
    let mut content = None;
    let header = (0..at).rev().find(|number| {
        let line = text.line(*number);
        let opens =
            line.trim_end().ends_with(['|', '>']) || line.trim_end().ends_with("|-") || line.trim_end().ends_with(">-");
        if !opens && !line.trim().is_empty() {
            content = Some(indent(line));
        }
        opens || (!line.trim().is_empty() && indent(line) < level)
    })?;
    let to = content.filter(|content| *content > level && indent(text.line(header)) <= level)?;
    if !text.line(header).trim_end().ends_with(['|', '>', '-']) {
        return None;
    }
    let patched = text.edit(at, 0, level, &" ".repeat(to));
    let what = format!("indent this line by {} spaces", to - level);
    let line = text.span(text.start(at)..text.content(at).end);
    let message = format!("expected a line of the text that starts at line {}; {what}", header + 2);
    let diagnostic =
        Diagnostic::error("yaml-indent", message).at(text.span(text.content(at))).fix(line, patched.line(at), what);
    Some(Candidate { text: patched, diagnostic })
}

/// Something open above a line.
struct Target {
    column: Column,
    /// The line that opened it.
    line: usize,
}

/// Where a line could belong: the columns of the nearest line above, and of its ancestors.
fn open_columns(text: &Patched, below: usize) -> Vec<Target> {
    let mut targets: Vec<Target> = Vec::new();
    let mut limit = usize::MAX;
    // A list may stand at the column of its key: above a dash, a key at the same column is its parent.
    let mut dash = false;
    for number in (0..below).rev() {
        let line = text.line(number);
        if is_blank(line) || line.trim_start().starts_with("---") {
            continue;
        }
        let parent = dash && indent(line) == limit && !is_element(line);
        if indent(line) >= limit && !parent {
            continue;
        }
        for column in columns(line) {
            if column.at < limit || (parent && !column.dash) {
                targets.push(Target { column, line: number });
            }
        }
        limit = indent(line);
        dash = is_element(line);
        if limit == 0 && !dash {
            break;
        }
    }
    targets
}

/// The line and those below it that are indented as deep or deeper, up to the next element of a list at its level.
fn block(text: &Patched, at: usize) -> Range<usize> {
    let level = indent(text.line(at));
    let element = is_element(text.line(at));
    let mut until = at + 1;
    for number in at + 1..text.len() {
        let line = text.line(number);
        if is_blank(line) {
            continue;
        }
        if indent(line) < level || (indent(line) == level && is_element(line) && !element) {
            break;
        }
        until = number + 1;
    }
    at..until
}

fn moved(text: &Patched, block: &Range<usize>, target: &Target) -> Candidate {
    let from = indent(text.line(block.start));
    let to = target.column.at;
    let shift = |line: usize| {
        let old = indent(text.line(line));
        let new = (old + to).saturating_sub(from);
        (line, 0, old, " ".repeat(new))
    };
    let lines = || block.clone().filter(|line| !is_blank(text.line(*line)));
    let patched = text.edit_lines(lines().map(shift));
    let spaces = match to.abs_diff(from) {
        1 => "1 space".to_owned(),
        n => format!("{n} spaces"),
    };
    let (first, last) = (block.start + 1, block.end);
    let which = if first == last { "this line".to_owned() } else { format!("lines {first} to {last}") };
    let what =
        if to > from { format!("indent {which} by {spaces}") } else { format!("remove {spaces} in front of {which}") };
    let replacement = block.clone().map(|line| patched.line(line)).collect::<Vec<&str>>().join("\n");
    let whole = text.span(text.start(block.start)..text.content(block.end - 1).end);
    let diagnostic = Diagnostic::error("yaml-indent", format!("{}; {what}", expected(text, target)))
        .at(text.span(text.content(block.start)))
        .fix(whole, replacement, what);
    Candidate { text: patched, diagnostic }
}

fn expected(text: &Patched, target: &Target) -> String {
    let opener = text.line(target.line);
    let number = target.line + 1;
    let in_item = columns(opener).iter().any(|column| column.dash);
    match (target.column.dash, in_item, key(opener)) {
        (true, ..) => format!("expected an element of the list that has one at line {number}"),
        (false, true, _) => format!("expected a key of the list item that starts at line {number}"),
        (false, false, Some(key)) => format!("expected a key at the level of `{key}` in line {number}"),
        (false, false, None) => format!("expected a key at the level of line {number}"),
    }
}
