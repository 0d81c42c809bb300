//! Tags from a file: `ip_tags_datasource`. The file holds a list under `ip_tags`, written as in a configuration, in JSON.

use std::path::Path;

use postrider_filter_api::WatchedFile;
use postrider_model::{Reading, Value};

use super::{Tag, tags};
use crate::read::data_source_of;

/// `None` after an error. A file that is read is added to `files`, and read again when it changes.
pub(super) fn read(at: &mut Reading<'_>, files: &mut Vec<WatchedFile>) -> Option<Vec<Tag>> {
    let name = at.text("filename").unwrap_or_default().to_owned();
    if Path::new(&name).extension().is_none_or(|end| end != "json") {
        at.error("filename", "the file of the tags must be one in JSON, and be called so: `….json`");
        at.skip();
        return None;
    }
    let text = data_source_of(at, files)?;
    let json: serde_json::Value = match serde_json::from_slice(&text) {
        Ok(json) => json,
        Err(error) => {
            at.error("filename", format!("{name}: {error}"));
            return None;
        }
    };
    match Reading::all(&to_value(json), tags) {
        Ok(tags) => Some(tags),
        Err(errors) => {
            for error in errors {
                at.error("filename", format!("{name}: {}: {}", error.path, error.message));
            }
            None
        }
    }
}

fn to_value(json: serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(flag) => Value::Bool(flag),
        serde_json::Value::Number(number) => match number.as_i64() {
            Some(whole) => Value::Integer(whole),
            None => Value::Number(number.as_f64().unwrap_or_default()),
        },
        serde_json::Value::String(text) => Value::String(text),
        serde_json::Value::Array(items) => Value::List(items.into_iter().map(to_value).collect()),
        serde_json::Value::Object(entries) => {
            Value::Map(entries.into_iter().map(|(key, value)| (key, to_value(value))).collect())
        }
    }
}
