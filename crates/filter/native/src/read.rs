//! What configurations hold that plain values do not know: header names, statuses.

use postrider_grpc::core::StatusCode;
use postrider_http::{HeaderName, is_field_value};
use postrider_model::{AppendAction, Format, HeaderValue, Piece, Reading};

/// A field name.
pub(crate) fn header(at: &mut Reading<'_>, key: &str) -> Option<HeaderName> {
    let text = at.text(key)?;
    match HeaderName::new(text.as_bytes()) {
        Ok(name) => Some(name),
        Err(_) => {
            at.error(key, format!("\"{text}\" is no header name"));
            None
        }
    }
}

/// `HttpStatus`.
pub(crate) fn status(at: &mut Reading<'_>, key: &str) -> Option<u16> {
    at.map(key, |status| {
        let name = status.text("code")?;
        let code = StatusCode::from_str_name(name).and_then(|code| u16::try_from(code as i32).ok());
        if code.is_none() {
            status.error("code", format!("\"{name}\" is no status"));
        }
        code
    })
    .flatten()
}

/// `HeaderValueOption`.
pub(crate) fn header_option(at: &mut Reading<'_>) -> Option<HeaderValue> {
    const ACTIONS: [(&str, AppendAction); 4] = [
        ("APPEND_IF_EXISTS_OR_ADD", AppendAction::AppendIfExistsOrAdd),
        ("ADD_IF_ABSENT", AppendAction::AddIfAbsent),
        ("OVERWRITE_IF_EXISTS_OR_ADD", AppendAction::OverwriteIfExistsOrAdd),
        ("OVERWRITE_IF_EXISTS", AppendAction::OverwriteIfExists),
    ];
    let field = at.map("header", |field| {
        let name = header(field, "key");
        if name.is_none() && !field.has("key") {
            field.error("key", "a header name is required");
        }
        field.refuse("raw_value", "a value in bytes");
        let format = Format::parse(field.text("value").unwrap_or_default());
        let format = format.map_err(|error| field.error("value", error.to_string())).ok()?;
        let fits = |piece: &Piece| !matches!(piece, Piece::Text(text) if !is_field_value(text.as_bytes()));
        if !format.pieces.iter().all(fits) {
            field.error("value", "a header value cannot hold control characters");
        }
        Some((String::from_utf8_lossy(name?.as_bytes()).into_owned(), format))
    });
    if field.is_none() {
        at.error("header", "the header is required");
    }
    let written = at.text("append_action");
    let action = ACTIONS.iter().find(|(name, _)| Some(*name) == written).map(|(_, action)| *action);
    let action = match at.bool("append") {
        Some(false) => AppendAction::OverwriteIfExistsOrAdd,
        Some(true) | None => action.unwrap_or_default(),
    };
    let keep_empty = at.flag("keep_empty_value");
    let (name, value) = field.flatten()?;
    Some(HeaderValue { name, value, action, keep_empty })
}
