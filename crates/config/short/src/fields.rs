//! Reading mappings of the short document: every key is asked for once, and the rest is refused with a suggestion.

use postrider_config_core::{Diagnostic, Diagnostics, nearest};
use postrider_config_envoy::tree::{Node, NodeKind};

/// A mapping being read.
pub struct Fields<'n, 'd> {
    node: &'n Node,
    path: String,
    diagnostics: &'d mut Diagnostics,
}

impl<'n, 'd> Fields<'n, 'd> {
    /// Anything but a mapping is refused and then reads as an empty one.
    pub fn of(node: &'n Node, path: &str, diagnostics: &'d mut Diagnostics) -> Fields<'n, 'd> {
        if !matches!(node.kind, NodeKind::Map(_)) {
            wrong(node, path, "a mapping", diagnostics);
        }
        Fields { node, path: path.to_owned(), diagnostics }
    }

    /// The value of a key; a null is no value.
    pub fn take(&self, key: &str) -> Option<&'n Node> {
        self.node.get(key).filter(|value| value.kind != NodeKind::Null)
    }

    /// Refuses every key that is not in `known`.
    pub fn finish(self, known: &[&str]) {
        let NodeKind::Map(pairs) = &self.node.kind else { return };
        for pair in pairs.iter().filter(|pair| !known.contains(&pair.key.as_str())) {
            let diagnostic = Diagnostic::error("unknown-field", format!("there is no key `{}` here", pair.key))
                .at(pair.key_span)
                .path(join(&self.path, &pair.key))
                .expected(listed(known));
            self.diagnostics.push(match nearest(&pair.key, known.iter().copied()) {
                Some(name) => diagnostic.suggest(Some(name)).fix(pair.key_span, name, format!("write `{name}`")),
                None => diagnostic,
            });
        }
    }
}

/// `a` + `b` = `a.b`; the root's path is empty.
pub fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// Refuses a value of the wrong kind.
pub fn wrong(node: &Node, path: &str, expected: &str, diagnostics: &mut Diagnostics) {
    let diagnostic = Diagnostic::error("wrong-type", format!("`{}` cannot be {}", last(path), node.describe()));
    diagnostics.push(diagnostic.at(node.span).path(path).expected(expected));
}

/// Refuses a value for what it says.
pub fn invalid(node: &Node, path: &str, message: impl Into<String>, expected: &str, diagnostics: &mut Diagnostics) {
    diagnostics.push(Diagnostic::error("invalid-value", message).at(node.span).path(path).expected(expected));
}

/// Reports that `key` is missing beside or in what `node` is.
pub fn missing(node: &Node, path: &str, key: &str, expected: &str, diagnostics: &mut Diagnostics) {
    let text = format!("`{}` needs `{key}`", last(path));
    diagnostics.push(Diagnostic::error("missing-field", text).at(node.span).path(path).expected(expected));
}

/// The text of a scalar; anything else is refused.
pub fn text<'n>(node: &'n Node, path: &str, expected: &str, diagnostics: &mut Diagnostics) -> Option<&'n str> {
    let text = node.text();
    if text.is_none() {
        wrong(node, path, expected, diagnostics);
    }
    text
}

/// A list, or a single value as a list of one, each with its path.
pub fn several<'n>(node: &'n Node, path: &str) -> Vec<(String, &'n Node)> {
    match &node.kind {
        NodeKind::List(items) => {
            items.iter().enumerate().map(|(index, item)| (format!("{path}[{index}]"), item)).collect()
        }
        _ => vec![(path.to_owned(), node)],
    }
}

/// A duration such as `5s`, `250ms`, `2m` or `1h`, as protobuf writes it (`0.25s`).
pub fn duration(node: &Node, path: &str, diagnostics: &mut Diagnostics) -> Option<String> {
    const EXPECTED: &str = "a duration such as 5s, 250ms, 2m or 1h";
    let text = text(node, path, EXPECTED, diagnostics)?;
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let seconds = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => 0.0,
    };
    match number.trim().parse::<f64>() {
        Ok(number) if number >= 0.0 && number.is_finite() && (seconds > 0.0 || (unit.is_empty() && number == 0.0)) => {
            let milliseconds = (number * seconds * 1000.0).round() as u64;
            let (whole, rest) = (milliseconds / 1000, milliseconds % 1000);
            Some(if rest == 0 { format!("{whole}s") } else { format!("{whole}.{rest:03}s") })
        }
        _ => {
            invalid(node, path, format!("`{text}` is no duration"), EXPECTED, diagnostics);
            None
        }
    }
}

/// A number of bytes such as `65536`, `512KiB`, `16MiB` or `1GiB`.
pub fn size(node: &Node, path: &str, diagnostics: &mut Diagnostics) -> Option<u64> {
    const EXPECTED: &str = "a number of bytes such as 65536, 512KiB, 16MiB or 1GiB";
    let text = text(node, path, EXPECTED, diagnostics)?;
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit.trim() {
        "" | "B" => Some(1),
        "KiB" => Some(1 << 10),
        "MiB" => Some(1 << 20),
        "GiB" => Some(1 << 30),
        _ => None,
    };
    let bytes = number.parse::<u64>().ok().zip(factor).and_then(|(number, factor)| number.checked_mul(factor));
    if bytes.is_none() {
        invalid(node, path, format!("`{text}` is no number of bytes"), EXPECTED, diagnostics);
    }
    bytes
}

fn last(path: &str) -> &str {
    match path.rsplit('.').next() {
        None | Some("") => "the document",
        Some(name) => name,
    }
}

fn listed(known: &[&str]) -> String {
    let names: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => names.concat(),
    }
}
