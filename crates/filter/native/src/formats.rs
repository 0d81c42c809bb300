//! Formats of texts and JSON that configurations hold (`SubstitutionFormatString`).

use postrider_filter_api::WatchedFile;
use postrider_model::{BodyFormat, Format, JsonFormat, LogFormat, Reading, Value};

use crate::formatters::Formatters;
use crate::read;

/// As a text: its content type has no meaning. A file that is read is added to `files`.
pub(crate) fn text(at: &mut Reading<'_>, key: &str, files: &mut Vec<WatchedFile>) -> Option<LogFormat> {
    at.map(key, |at| {
        if at.has("content_type") {
            at.error("content_type", "what becomes of this text is no body: it has no content type");
        }
        format(at, files)
    })
    .flatten()
}

/// As a body.
pub(crate) fn body(at: &mut Reading<'_>, key: &str, files: &mut Vec<WatchedFile>) -> Option<BodyFormat> {
    at.map(key, |at| {
        let content_type = match at.text("content_type") {
            Some(content_type) => content_type,
            None if at.has("json_format") => "application/json",
            None => "text/plain",
        };
        Some(BodyFormat { content_type: content_type.to_owned(), format: format(at, files)? })
    })
    .flatten()
}

fn format(at: &mut Reading<'_>, files: &mut Vec<WatchedFile>) -> Option<LogFormat> {
    let mut formatters = Formatters::read(at);
    // Properties are sorted by name anyway.
    at.map("json_format_options", |at| at.flag("sort_properties"));
    let mut found = Vec::new();
    if at.has("text_format") {
        let text = at.text("text_format").unwrap_or_default();
        found.push(parsed(text, &mut formatters).map_err(|error| at.error("text_format", error)));
    }
    if at.has("text_format_source") {
        let bytes = read::data_source(at, "text_format_source", files).ok_or(());
        found.push(bytes.and_then(|bytes| {
            let text = std::str::from_utf8(&bytes).map_err(|_| "the format is not UTF-8 text".to_owned());
            text.and_then(|text| parsed(text, &mut formatters)).map_err(|error| at.error("text_format_source", error))
        }));
    }
    if let Some(value @ Value::Map(_)) = at.value("json_format") {
        let json = json(value, &mut formatters).map(LogFormat::Json);
        found.push(json.map_err(|error| at.error("json_format", error)));
    }
    files.append(&mut formatters.files);
    let omits = at.flag("omit_empty_values");
    let (Some(format), true) = (found.pop(), found.is_empty()) else {
        at.wrong("exactly one of text_format, text_format_source and json_format is wanted");
        return None;
    };
    let format = format.ok()?;
    Some(if omits { LogFormat::OmitEmpty(Box::new(format)) } else { format })
}

fn parsed(text: &str, formatters: &mut Formatters) -> Result<LogFormat, String> {
    Format::parse_with(text, formatters).map(LogFormat::Text).map_err(|error| error.to_string())
}

fn json(value: &Value, formatters: &mut Formatters) -> Result<JsonFormat, String> {
    Ok(match value {
        Value::Map(entries) => {
            let each = |(key, value): &(String, Value)| Ok((key.clone(), json(value, formatters)?));
            let mut all = entries.iter().map(each).collect::<Result<Vec<_>, String>>()?;
            all.sort_by(|a, b| a.0.cmp(&b.0));
            JsonFormat::Object(all)
        }
        Value::List(items) => {
            let each = |item| json(item, formatters);
            JsonFormat::List(items.iter().map(each).collect::<Result<_, _>>()?)
        }
        Value::String(text) => {
            JsonFormat::Text(Format::parse_with(text, formatters).map_err(|error| error.to_string())?)
        }
        Value::Integer(number) => JsonFormat::Number(*number as f64),
        Value::Number(number) => JsonFormat::Number(*number),
        Value::Bool(value) => JsonFormat::Bool(*value),
        Value::Null => JsonFormat::Null,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{list, object, text as string};

    fn read(config: Value) -> Result<Option<BodyFormat>, String> {
        let value = object([("f", config)]);
        let read = Reading::all(&value, |at| body(at, "f", &mut Vec::new()));
        read.map_err(|errors| {
            errors.iter().map(|e| format!("{}: {}", e.path, e.message)).collect::<Vec<_>>().join("; ")
        })
    }

    #[test]
    fn texts_and_json_are_read_with_their_content_types() {
        let plain = read(object([("text_format_source", object([("inline_string", string("a"))]))])).unwrap().unwrap();
        assert_eq!(
            plain,
            BodyFormat { content_type: "text/plain".into(), format: LogFormat::Text(Format::parse("a").unwrap()) }
        );
        let json =
            object([("b", Value::Integer(1)), ("a", list([Value::Null, Value::Bool(true), string("%PROTOCOL%")]))]);
        let json = object([("json_format", json), ("omit_empty_values", Value::Bool(true))]);
        let json = read(json).unwrap().unwrap();
        let items =
            vec![JsonFormat::Null, JsonFormat::Bool(true), JsonFormat::Text(Format::parse("%PROTOCOL%").unwrap())];
        let object = vec![("a".to_owned(), JsonFormat::List(items)), ("b".to_owned(), JsonFormat::Number(1.0))];
        assert_eq!(json.content_type, "application/json");
        assert_eq!(json.format, LogFormat::OmitEmpty(Box::new(LogFormat::Json(JsonFormat::Object(object)))));
    }

    #[test]
    fn what_is_no_format_is_refused() {
        assert!(read(object([])).unwrap_err().contains("exactly one of text_format"));
        assert!(read(object([("text_format", string("%NO%"))])).unwrap_err().starts_with("f.text_format: "));
        assert!(
            read(object([("json_format", object([("a", string("%NO%"))]))]))
                .unwrap_err()
                .starts_with("f.json_format: ")
        );
    }
}
