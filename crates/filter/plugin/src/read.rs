//! Small readers of configurations that go on after an error.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_filter_api::{ConfigError, WatchedFile};
use postrider_model::{Fields, Value, ValueError};

/// Remembers the error and goes on.
pub fn keep<T>(result: Result<T, ValueError>, errors: &mut ConfigError) -> Option<T> {
    result.map_err(|error| errors.push(error)).ok()
}

/// Reads an object that has all it says in its field `key`, but for what `others` takes of it.
///
/// # Errors
/// Everything that is wrong with it, what nobody took included.
pub fn within<T, O>(
    value: &Value,
    key: &str,
    others: impl FnOnce(&mut Fields<'_>, &mut ConfigError) -> O,
    read: impl FnOnce(Fields<'_>, &mut ConfigError) -> Option<T>,
) -> Result<(T, O), ConfigError> {
    let mut fields = value.fields().map_err(|error| vec![error])?;
    let mut errors = Vec::new();
    let others = others(&mut fields, &mut errors);
    let found = match keep(fields.map(key), &mut errors) {
        Some(Some(inner)) => read(inner, &mut errors),
        Some(None) => {
            errors.push(fields.error(key, format!("there is no `{key}`")));
            None
        }
        None => None,
    };
    errors.extend(fields.finish().err().into_iter().flatten());
    match found {
        Some(found) if errors.is_empty() => Ok((found, others)),
        _ => Err(errors),
    }
}

/// The bytes of an `envoy.config.core.v3.DataSource`; none when there is an error. `files` gets the one that they are of.
pub fn data_source(mut source: Fields<'_>, files: &mut Vec<WatchedFile>, errors: &mut ConfigError) -> Vec<u8> {
    let mut bytes = Vec::new();
    for key in ["inline_string", "inline_bytes", "filename", "environment_variable"] {
        let Some(text) = keep(source.string(key), errors).flatten() else { continue };
        let read = match key {
            "inline_bytes" => STANDARD.decode(text).map_err(|error| format!("no base64: {error}")),
            "filename" => {
                let content = std::fs::read(text);
                files.push(WatchedFile::new(text.as_ref(), content.as_deref().ok()));
                content.map_err(|error| format!("cannot read {text}: {error}"))
            }
            "environment_variable" => {
                std::env::var(text).map(String::into_bytes).map_err(|error| format!("{text}: {error}"))
            }
            _ => Ok(text.as_bytes().to_vec()),
        };
        match read {
            Ok(read) => bytes = read,
            Err(message) => errors.push(source.error(key, message)),
        }
    }
    source.value("watched_directory");
    errors.extend(source.finish().err().into_iter().flatten());
    bytes
}

/// An object as it is; an empty one when there is none.
pub fn object(fields: &mut Fields<'_>, key: &str, errors: &mut ConfigError) -> Value {
    match fields.value(key) {
        Some(Value::Map(entries)) => Value::Map(entries.clone()),
        None | Some(Value::Null) => Value::Map(Vec::new()),
        Some(_) => {
            errors.push(fields.error(key, "expected an object"));
            Value::Map(Vec::new())
        }
    }
}
