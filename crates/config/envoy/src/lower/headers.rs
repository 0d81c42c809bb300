//! Header edits of tables, virtual hosts, routes and weighted clusters.

use postrider_config_core::Diagnostic;
use postrider_model::{AppendAction, Format, HeaderEdits, HeaderValue, Piece, in_newer_forms};

use super::context::Lowering;
use crate::reader::{Element, Reader};

/// Fields that frame the message or belong to one connection: the proxy alone writes them.
const OWN: [&str; 9] = [
    "connection",
    "content-length",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];

pub(super) fn request_edits(cx: &mut Lowering<'_>, at: &Reader<'_>) -> HeaderEdits {
    edits(cx, at, "request_headers_to_add", "request_headers_to_remove")
}

pub(super) fn response_edits(cx: &mut Lowering<'_>, at: &Reader<'_>) -> HeaderEdits {
    edits(cx, at, "response_headers_to_add", "response_headers_to_remove")
}

/// A repeated `HeaderValueOption`.
pub(super) fn additions(cx: &mut Lowering<'_>, at: &Reader<'_>, field: &str) -> HeaderEdits {
    HeaderEdits { add: at.list(field).iter().filter_map(|option| addition(cx, option)).collect(), remove: Vec::new() }
}

/// A repeated field of header names, lower case and checked.
pub(super) fn names(cx: &mut Lowering<'_>, at: &Reader<'_>, field: &str) -> Vec<String> {
    let all = at.strings(field);
    all.iter().filter_map(|name| removable(cx, at, field, name, false)).collect()
}

/// The same for names that are only looked up, also `before` the fields.
pub(super) fn shown_names(cx: &mut Lowering<'_>, at: &Reader<'_>, field: &str, before: &[&str]) -> Vec<String> {
    let all = at.strings(field);
    let shown = all.iter().filter_map(|name| match name.value.to_ascii_lowercase() {
        lower if before.contains(&&*lower) => Some(lower),
        _ => removable(cx, at, field, name, false),
    });
    shown.collect()
}

/// A field that holds one header name, lower case and checked.
pub(super) fn name(cx: &mut Lowering<'_>, at: &Reader<'_>, field: &str) -> Option<String> {
    let lower = at.str(field).to_ascii_lowercase();
    if !is_token(&lower) {
        cx.error(at, field, "invalid-header-name", format!("`{lower}` is no header name"));
        return None;
    }
    Some(lower)
}

/// The same for the name of a field that is edited.
pub(super) fn edited_name(cx: &mut Lowering<'_>, at: &Reader<'_>, field: &str) -> Option<String> {
    let name = name(cx, at, field)?;
    match unwritable(&name) {
        None => Some(name),
        Some(problem) => {
            cx.error(at, field, "invalid-header-name", problem);
            None
        }
    }
}

fn edits(cx: &mut Lowering<'_>, at: &Reader<'_>, add: &str, remove: &str) -> HeaderEdits {
    let additions = at.list(add);
    let removals = at.strings(remove);
    HeaderEdits {
        add: additions.iter().filter_map(|option| addition(cx, option)).collect(),
        remove: removals.iter().filter_map(|name| removable(cx, at, remove, name, true)).collect(),
    }
}

pub(super) fn addition(cx: &mut Lowering<'_>, option: &Reader<'_>) -> Option<HeaderValue> {
    let header = option.message("header")?;
    let action = action(cx, option);
    let keep_empty = option.bool("keep_empty_value");
    let name = header.str("key").to_ascii_lowercase();
    let value = header.str("value");
    cx.no_effect(&header, "raw_value", "as in Envoy, `value` is sent");
    if let Some(problem) = unwritable(&name) {
        cx.error(&header, "key", "invalid-header-name", problem);
        return None;
    }
    if has_control(value) {
        cx.error(&header, "value", "invalid-header-value", "a header value holds no control characters");
        return None;
    }
    let value: Format = cx.format(&header, "value", &in_newer_forms(value));
    // A file or a secret may have brought more.
    if value.pieces.iter().any(|piece| matches!(piece, Piece::Text(text) if has_control(text))) {
        cx.error(&header, "value", "invalid-header-value", "a header value holds no control characters");
        return None;
    }
    Some(HeaderValue { name, value, action, keep_empty })
}

fn has_control(text: &str) -> bool {
    text.bytes().any(|byte| byte == 0x7f || (byte < 0x20 && byte != b'\t'))
}

fn action(cx: &mut Lowering<'_>, option: &Reader<'_>) -> AppendAction {
    let action = match option.enum_name("append_action").as_str() {
        "ADD_IF_ABSENT" => AppendAction::AddIfAbsent,
        "OVERWRITE_IF_EXISTS_OR_ADD" => AppendAction::OverwriteIfExistsOrAdd,
        "OVERWRITE_IF_EXISTS" => AppendAction::OverwriteIfExists,
        _ => AppendAction::AppendIfExistsOrAdd,
    };
    let Some(append) = option.bool_wrapper("append") else { return action };
    if option.has("append_action") {
        cx.error(option, "append", "conflict", "`append` and `append_action` exclude each other");
    }
    if append { AppendAction::AppendIfExistsOrAdd } else { AppendAction::OverwriteIfExistsOrAdd }
}

/// Why an edit may not write a field of this (lower-case) name.
fn unwritable(name: &str) -> Option<String> {
    if name.starts_with(':') || name == "host" {
        return Some(format!("`{name}` routes the request and is not edited here; see the host and path rewrites"));
    }
    if OWN.contains(&name) {
        return Some(format!("`{name}` belongs to one connection or frames the message: only the proxy writes it"));
    }
    (!is_token(name)).then(|| format!("`{name}` is no header name"))
}

fn removable(
    cx: &mut Lowering<'_>,
    at: &Reader<'_>,
    field: &str,
    name: &Element<&str>,
    editing: bool,
) -> Option<String> {
    let lower = name.value.to_ascii_lowercase();
    let problem = if editing && (lower.starts_with(':') || lower == "host") {
        Some(format!("`{lower}` routes the request and cannot be removed"))
    } else if editing && OWN.contains(&lower.as_str()) {
        Some(format!("`{lower}` belongs to one connection or frames the message: only the proxy removes it"))
    } else if !is_token(&lower) {
        Some(format!("`{lower}` is no header name"))
    } else {
        None
    };
    match problem {
        None => Some(lower),
        Some(problem) => {
            let path = format!("{}[{}]", at.path_of(field), name.index);
            cx.push(Diagnostic::error("invalid-header-name", problem).at(name.span.or(at.span_of(field))).path(path));
            None
        }
    }
}

/// RFC 9110 section 5.6.2.
fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}
