//! Small readers of configurations that go on after an error.

use postrider_filter_api::ConfigError;
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
