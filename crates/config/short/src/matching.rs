//! What a route matches: path, methods, headers.

use postrider_config_core::Diagnostics;
use postrider_config_envoy::tree::{Node, NodeKind, Pair};

use crate::build::{list, map, pair, plain, text};
use crate::fields::{self, Fields, join};

const EXPECTED: &str = "a prefix such as /api, `{path: /exact}` or `{regex: \"/v[0-9]+/.*\"}`";

/// Envoy's `RouteMatch`.
pub fn matches(
    route: &Node,
    path: &str,
    pattern: Option<&Node>,
    methods: Option<&Node>,
    headers: Option<&Node>,
    diagnostics: &mut Diagnostics,
) -> Option<Node> {
    let mut pairs = vec![match pattern {
        None => pair("prefix", text(route.span, "/")),
        Some(node) => specifier(node, &join(path, "match"), diagnostics)?,
    }];
    let mut conditions = Vec::new();
    if let Some(node) = methods {
        conditions.push(method(node, &join(path, "methods"), diagnostics)?);
    }
    if let Some(node) = headers {
        conditions.extend(header_conditions(node, &join(path, "headers"), diagnostics)?);
    }
    if !conditions.is_empty() {
        pairs.push(pair("headers", list(route.span, conditions)));
    }
    Some(map(pattern.unwrap_or(route).span, pairs))
}

fn specifier(node: &Node, path: &str, diagnostics: &mut Diagnostics) -> Option<Pair> {
    if let NodeKind::Map(_) = &node.kind {
        let fields = Fields::of(node, path, diagnostics);
        let found = [("path", "path"), ("prefix", "prefix"), ("regex", "safe_regex")]
            .into_iter()
            .filter_map(|(short, full)| Some((short, full, fields.take(short)?)))
            .collect::<Vec<_>>();
        fields.finish(&["path", "prefix", "regex"]);
        let [(short, full, value)] = found.as_slice() else {
            fields::invalid(node, path, "a match has one of `path`, `prefix` and `regex`", EXPECTED, diagnostics);
            return None;
        };
        let written = fields::text(value, &join(path, short), EXPECTED, diagnostics)?;
        let value = text(value.span, written);
        return Some(match *full {
            "safe_regex" => pair(full, map(value.span, vec![pair("regex", value)])),
            full => pair(full, value),
        });
    }
    let prefix = fields::text(node, path, EXPECTED, diagnostics)?;
    if !prefix.starts_with('/') {
        fields::invalid(node, path, format!("the prefix `{prefix}` must start with `/`"), EXPECTED, diagnostics);
        return None;
    }
    Some(pair("prefix", text(node.span, prefix)))
}

fn method(node: &Node, path: &str, diagnostics: &mut Diagnostics) -> Option<Node> {
    const EXPECTED: &str = "a method such as GET, or a list of them";
    let mut names = Vec::new();
    for (path, item) in fields::several(node, path) {
        let name = fields::text(item, &path, EXPECTED, diagnostics)?;
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_uppercase() || b == b'-') {
            fields::invalid(item, &path, format!("`{name}` is no method"), EXPECTED, diagnostics);
            return None;
        }
        names.push(name);
    }
    let string = match names.as_slice() {
        [] => {
            fields::invalid(node, path, "the list of methods is empty", EXPECTED, diagnostics);
            return None;
        }
        [one] => pair("exact", text(node.span, *one)),
        several => pair("safe_regex", map(node.span, vec![pair("regex", text(node.span, several.join("|")))])),
    };
    Some(map(
        node.span,
        vec![pair("name", text(node.span, ":method")), pair("string_match", map(node.span, vec![string]))],
    ))
}

/// `{name: value}` is equality; `true` and `false` mean present and absent.
fn header_conditions(node: &Node, path: &str, diagnostics: &mut Diagnostics) -> Option<Vec<Node>> {
    let NodeKind::Map(pairs) = &node.kind else {
        fields::wrong(node, path, "a mapping of header names to values", diagnostics);
        return None;
    };
    let mut all = Vec::new();
    for entry in pairs {
        let span = entry.value.span;
        let name = pair("name", text(entry.key_span, entry.key.clone()));
        let condition = match &entry.value.kind {
            NodeKind::Scalar(scalar) if scalar.plain && matches!(scalar.text.as_str(), "true" | "false") => {
                pair("present_match", plain(span, &scalar.text))
            }
            NodeKind::Scalar(scalar) => {
                pair("string_match", map(span, vec![pair("exact", text(span, scalar.text.clone()))]))
            }
            _ => {
                fields::wrong(&entry.value, &join(path, &entry.key), "a value, `true` or `false`", diagnostics);
                return None;
            }
        };
        all.push(map(entry.value.span, vec![name, condition]));
    }
    Some(all)
}
