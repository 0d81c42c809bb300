//! JSON Schemas that scripts register.

use std::cell::RefCell;
use std::collections::HashMap;

use postrider_filter_plugin::{Schema, json};
use postrider_model::Value;

/// Compiled schemas that a worker keeps: plugins have two or three each.
const KEPT: usize = 256;

/// Bytes of JSON that a script may have validated at a time, and that a schema of its may have: nothing interrupts the parser.
const MAX_VALUE: usize = 4 << 20;
const MAX_SCHEMA: usize = 1 << 18;

thread_local! {
    static COMPILED: RefCell<HashMap<Vec<u8>, Schema>> = RefCell::default();
}

/// What is wrong with `value` by `schema`, both JSON; also what is wrong with the schema.
pub(crate) fn check(schema: &[u8], value: &[u8]) -> Vec<String> {
    if value.len() > MAX_VALUE {
        return vec![format!("the value has {} bytes as JSON; at most {MAX_VALUE} are validated", value.len())];
    }
    match (compile(schema), parse(value)) {
        (Ok(schema), Ok(value)) => shown(schema.check(&value, "")),
        (Err(errors), _) => errors,
        (_, Err(error)) => vec![error],
    }
}

/// # Errors
/// What is wrong with the schema.
pub(crate) fn compile(text: &[u8]) -> Result<Schema, Vec<String>> {
    if let Some(known) = COMPILED.with_borrow(|compiled| compiled.get(text).cloned()) {
        return Ok(known);
    }
    if text.len() > MAX_SCHEMA {
        return Err(vec![format!("the schema has {} bytes as JSON; at most {MAX_SCHEMA} are read", text.len())]);
    }
    let schema = Schema::compile(&parse(text).map_err(|error| vec![error])?).map_err(shown)?;
    COMPILED.with_borrow_mut(|compiled| {
        if compiled.len() >= KEPT {
            compiled.clear();
        }
        compiled.insert(text.to_vec(), schema.clone());
    });
    Ok(schema)
}

fn parse(text: &[u8]) -> Result<Value, String> {
    std::str::from_utf8(text).map_err(|error| error.to_string()).and_then(json::from_json_text)
}

fn shown(errors: Vec<postrider_model::ValueError>) -> Vec<String> {
    let line = |error: postrider_model::ValueError| match error.path.as_str() {
        "" => error.message,
        path => format!("{path}: {}", error.message),
    };
    errors.into_iter().map(line).collect()
}
