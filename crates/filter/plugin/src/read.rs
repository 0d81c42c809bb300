//! Small readers of configurations that go on after an error.

use postrider_filter_api::ConfigError;
use postrider_model::{Fields, Value, ValueError};

/// Remembers the error and goes on.
pub fn keep<T>(result: Result<T, ValueError>, errors: &mut ConfigError) -> Option<T> {
    result.map_err(|error| errors.push(error)).ok()
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
