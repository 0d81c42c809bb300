//! What expressions mean for a stream: values, their operations, and where they come from.
//!
//! An evaluation never fails loudly: a value that is missing or of the wrong kind makes an expression neither true nor
//! false, and who asks takes that for false. What it makes is bounded by [`MAX_TEXT`] and by the length of the expression.

mod evaluate;
mod facts;
mod messages;
mod native;
mod shown;
mod text;
mod time;
mod typed;
mod value;

pub use facts::Facts;
pub use native::{Path, write_result, write_value};

use postrider_model::{Expression, Value};

use evaluate::evaluate;
use value::Data;

/// The longest text that an expression may make, in bytes.
const MAX_TEXT: usize = 64 << 10;

/// Whether the expression is true for what is known.
#[cold]
pub fn is_true(expression: &Expression, facts: &Facts<'_>) -> bool {
    matches!(evaluate(&expression.root, expression.allowed, facts), Ok(Data::Bool(true)))
}

/// The value of an expression as a log shows it; `None` where it has none.
#[cold]
pub fn text_of(expression: &Expression, facts: &Facts<'_>) -> Option<String> {
    evaluate(&expression.root, expression.allowed, facts).ok().map(|value| shown::shown(&value))
}

/// The same as what it is; `None` where it has none that JSON knows.
#[cold]
pub fn value_of(expression: &Expression, facts: &Facts<'_>) -> Option<Value> {
    evaluate(&expression.root, expression.allowed, facts).ok().and_then(|value| typed::typed(&value, facts))
}

#[cfg(test)]
mod tests;
