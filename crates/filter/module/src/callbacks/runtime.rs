//! Values of the runtime's layers. They are known where a module makes a configuration, as in Envoy; elsewhere each function
//! answers with what the module takes instead.

use std::cell::RefCell;

use postrider_model::Value;

use crate::abi::Buffer;

thread_local! {
    /// While a module makes a configuration on this thread.
    static VALUES: RefCell<Vec<(String, Value)>> = const { RefCell::new(Vec::new()) };
}

/// Has something made where these values are known.
pub(crate) fn known_during<T>(values: Vec<(String, Value)>, make: impl FnOnce() -> T) -> T {
    let before = VALUES.replace(values);
    let made = make();
    VALUES.set(before);
    made
}

/// Whether the runtime says so of a switch in Envoy's code that is off by default.
pub(crate) fn is_on(key: &str) -> bool {
    find(key, truth).unwrap_or(false)
}

fn of<T>(key: Buffer, read: impl FnOnce(&Value) -> Option<T>) -> Option<T> {
    // SAFETY: the caller is a module that follows the interface.
    find(std::str::from_utf8(unsafe { key.bytes() }).ok()?, read)
}

fn find<T>(key: &str, read: impl FnOnce(&Value) -> Option<T>) -> Option<T> {
    VALUES.with_borrow(|values| read(&values.iter().find(|(known, _)| known == key)?.1))
}

/// A text that is a number is one.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => Some(*number),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

/// Whole numbers are true but for zero; others, and texts that are no numbers, say nothing.
fn truth(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(truth) => Some(*truth),
        value => number(value).filter(|number| number.fract() == 0.0).map(|number| number != 0.0),
    }
}

/// The whole part of what is not negative.
fn whole(value: &Value) -> Option<u64> {
    number(value).filter(|number| *number >= 0.0).map(|number| number as u64)
}

pub(super) unsafe fn get_bool(key: Buffer, instead: bool) -> bool {
    of(key, truth).unwrap_or(instead)
}

pub(super) unsafe fn get_int(key: Buffer, instead: u64) -> u64 {
    of(key, whole).unwrap_or(instead)
}

pub(super) unsafe fn get_number(key: Buffer, instead: f64) -> f64 {
    of(key, number).unwrap_or(instead)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Envoy 1.40 answers, with 77 and 7.5 in the place of what is not there.
    #[test]
    fn each_kind_of_value_is_asked_for_in_three_ways() {
        let text = |text: &str| Value::String(text.to_owned());
        let values = [
            ("on", Value::Bool(true), (true, true, 77, 7.5)),
            ("count", Value::Number(3.0), (true, true, 3, 3.0)),
            ("share", Value::Number(0.25), (false, true, 0, 0.25)),
            ("zero", Value::Number(0.0), (false, false, 0, 0.0)),
            ("below", Value::Number(-2.0), (true, true, 77, -2.0)),
            ("text", text("words"), (false, true, 77, 7.5)),
            ("yes", text("true"), (false, true, 77, 7.5)),
            ("digits", text("42"), (true, true, 42, 42.0)),
            ("odd", Value::Null, (false, true, 77, 7.5)),
        ];
        let ask = |key: &str| {
            let key = Buffer::of(key.as_bytes());
            // SAFETY: the text is there for the time of the calls.
            unsafe { (get_bool(key, false), get_bool(key, true), get_int(key, 77), get_number(key, 7.5)) }
        };
        let known = values.iter().map(|(key, value, _)| ((*key).to_owned(), value.clone())).collect();
        known_during(known, || {
            for (key, _, wanted) in &values {
                assert_eq!(ask(key), *wanted, "{key}");
            }
            assert_eq!(ask("absent"), (false, true, 77, 7.5));
        });
        assert_eq!(ask("count"), (false, true, 77, 7.5));
    }
}
