//! Data that a configuration carries or names (`DataSource`), and formats (`SubstitutionFormatString`).

use postrider_config_core::Span;
use postrider_model::{BodyFormat, Data, Format, JsonFormat, LogFormat};

use super::access_log::default_format;
use super::context::Lowering;
use super::formatters;
use crate::message::{Entry, Item, Message, Value};
use crate::reader::Reader;

/// The most bytes read from a file that a configuration names as data.
const LARGEST_FILE: u64 = 1 << 20;

/// A `SubstitutionFormatString` as a log line.
pub(super) fn log_format(cx: &mut Lowering<'_>, at: &Reader<'_>) -> LogFormat {
    at.ignore("content_type", "a log line has none");
    options(at);
    let format = formatters::with(cx, at, |cx| match at.message("json_format") {
        Some(json) => LogFormat::Json(json_format(cx, &json)),
        None => LogFormat::Text(text(cx, at).unwrap_or_else(default_format)),
    });
    if at.bool("omit_empty_values") { LogFormat::OmitEmpty(Box::new(format)) } else { format }
}

/// A `SubstitutionFormatString` as a body.
pub(super) fn body_format(cx: &mut Lowering<'_>, at: &Reader<'_>) -> BodyFormat {
    options(at);
    let json = at.message("json_format");
    let content_type = match at.str("content_type") {
        "" if json.is_some() => "application/json",
        "" => "text/plain",
        other => other,
    };
    let content_type = content_type.to_owned();
    let format = formatters::with(cx, at, |cx| match &json {
        Some(json) => LogFormat::Json(json_format(cx, json)),
        None => LogFormat::Text(text(cx, at).unwrap_or_default()),
    });
    let format = if at.bool("omit_empty_values") { LogFormat::OmitEmpty(Box::new(format)) } else { format };
    BodyFormat { format, content_type }
}

fn options(at: &Reader<'_>) {
    if let Some(options) = at.message("json_format_options") {
        options.ignore("sort_properties", "properties are always sorted");
    }
}

fn text(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<Format> {
    match at.oneof("format")? {
        "text_format" => {
            let text = at.str("text_format");
            Some(cx.format(at, "text_format", text))
        }
        "text_format_source" => {
            let source = at.message("text_format_source")?;
            let bytes = source_bytes(cx, &source)?;
            let Ok(text) = String::from_utf8(bytes) else {
                cx.error(at, "text_format_source", "invalid-format", "the format is not UTF-8 text");
                return None;
            };
            let field = source.oneof("specifier").unwrap_or("inline_string");
            Some(cx.format(&source, field, &text))
        }
        _ => None,
    }
}

/// A `DataSource` in `field` whose file is read later, by who uses it; `None` after an error, or when it is not set.
pub(super) fn named(cx: &mut Lowering<'_>, at: &Reader<'_>, field: &str) -> Option<Data> {
    let source = at.message(field)?;
    named_source(cx, &source)
}

/// The same for a source whose place is known.
pub(super) fn named_source(cx: &mut Lowering<'_>, source: &Reader<'_>) -> Option<Data> {
    source.ignore("watched_directory", "the file is watched anyway");
    let specifier = source.oneof("specifier")?;
    if specifier == "filename" {
        return Some(Data::File(source.str("filename").into()));
    }
    let bytes = bytes(cx, source)?;
    if bytes.is_empty() {
        // Envoy takes it for an absent source: an empty CA would switch verification off.
        cx.error(source, specifier, "empty-data", "there is nothing in it");
        return None;
    }
    Some(Data::Inline(bytes))
}

/// The bytes of a `DataSource`; `None` after an error, or when it is empty.
pub(super) fn source_bytes(cx: &mut Lowering<'_>, source: &Reader<'_>) -> Option<Vec<u8>> {
    if source.has("watched_directory") {
        cx.refuse(source, "watched_directory", "watching a directory for this file");
    }
    bytes(cx, source)
}

/// The same, read again when a file changes.
pub(super) fn watched(cx: &mut Lowering<'_>, source: &Reader<'_>) -> Option<Vec<u8>> {
    source.ignore("watched_directory", "the file is watched anyway");
    if source.oneof("specifier") == Some("filename") {
        cx.files.push(source.str("filename").into());
    }
    bytes(cx, source)
}

fn bytes(cx: &mut Lowering<'_>, source: &Reader<'_>) -> Option<Vec<u8>> {
    match source.oneof("specifier")? {
        "inline_string" => Some(source.str("inline_string").as_bytes().to_vec()),
        "inline_bytes" => Some(source.bytes("inline_bytes").to_vec()),
        "environment_variable" => {
            let name = source.str("environment_variable");
            match std::env::var(name) {
                Ok(value) => Some(value.into_bytes()),
                Err(_) => {
                    let text = format!("the environment variable `{name}` is not set");
                    cx.error(source, "environment_variable", "unreadable-data", text);
                    None
                }
            }
        }
        _ => {
            let path = source.str("filename");
            match read(path) {
                Ok(bytes) => Some(bytes),
                Err(reason) => {
                    cx.error(source, "filename", "unreadable-data", format!("cannot read `{path}`: {reason}"));
                    None
                }
            }
        }
    }
}

pub(super) fn read(path: &str) -> Result<Vec<u8>, String> {
    let size = std::fs::metadata(path).map_err(|error| error.to_string())?.len();
    if size > LARGEST_FILE {
        return Err(format!("it has {size} bytes; at most {LARGEST_FILE} are read"));
    }
    std::fs::read(path).map_err(|error| error.to_string())
}

/// A `google.protobuf.Struct` as the shape of a JSON line. Envoy writes the properties of an object sorted by name.
pub(super) fn json_format(cx: &mut Lowering<'_>, at: &Reader<'_>) -> JsonFormat {
    object(cx, at.as_message(), at.span(), at.path())
}

fn object(cx: &mut Lowering<'_>, message: &Message, span: Option<Span>, path: &str) -> JsonFormat {
    let Some(Value::Map(entries)) = message.value("fields") else { return JsonFormat::Object(Vec::new()) };
    let mut all: Vec<(String, JsonFormat)> = Vec::with_capacity(entries.len());
    for Entry { key, value, value_span, .. } in entries {
        all.push((key.clone(), json_value(cx, value, value_span.or(span), &format!("{path}.{key}"))));
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    JsonFormat::Object(all)
}

/// A `google.protobuf.Value`.
fn json_value(cx: &mut Lowering<'_>, value: &Value, span: Option<Span>, path: &str) -> JsonFormat {
    let Value::Message(message) = value else { return JsonFormat::Null };
    let span = message.span.or(span);
    let Some(kind) = message.oneof("kind") else { return JsonFormat::Null };
    match &kind.value {
        Value::String(text) => JsonFormat::Text(cx.format_at(text, kind.value_span.or(span), path)),
        Value::F64(number) => JsonFormat::Number(*number),
        Value::Bool(value) => JsonFormat::Bool(*value),
        Value::Message(inner) if inner.type_name() == "google.protobuf.Struct" => object(cx, inner, span, path),
        Value::Message(inner) => {
            let Some(Value::List(items)) = inner.value("values") else { return JsonFormat::List(Vec::new()) };
            let each = |(index, Item { value, span: own }): (usize, &Item)| {
                json_value(cx, value, own.or(span), &format!("{path}[{index}]"))
            };
            JsonFormat::List(items.iter().enumerate().map(each).collect())
        }
        _ => JsonFormat::Null,
    }
}
