//! One scalar, wrapper or duration against its rules.

use super::format;
use super::rules::{EnumRules, HeaderForm, Limits, Rules, TextRules};
use crate::message::{Message, Value};
use crate::time;
use crate::tree::shorten;

const NANOS: i128 = 1_000_000_000;

/// A broken rule in words.
#[derive(Debug)]
pub struct Fault {
    pub code: &'static str,
    pub message: String,
    pub expected: String,
}

impl Fault {
    fn new(code: &'static str, message: impl Into<String>, expected: impl Into<String>) -> Fault {
        Fault { code, message: message.into(), expected: expected.into() }
    }
}

/// The first rule that a value breaks. Lists, maps and ordinary messages have none here.
pub fn check(value: &Value, rules: &Rules) -> Option<Fault> {
    match value {
        Value::Bool(b) => rules
            .boolean
            .filter(|constant| constant != b)
            .map(|constant| Fault::new("rule-value", format!("`{b}` is not allowed here"), format!("`{constant}`"))),
        Value::I64(n) => number(&i128::from(*n), rules.integer.as_ref()?, &|n| n.to_string()),
        Value::U64(n) => number(&i128::from(*n), rules.integer.as_ref()?, &|n| n.to_string()),
        Value::F64(n) => number(n, rules.float.as_ref()?, &|n| n.to_string()),
        Value::String(text) => string(text, rules.text.as_ref()?),
        Value::Bytes(bytes) => bytes_rules(bytes, rules.bytes.as_ref()?),
        Value::Enum(number) => enumeration(*number, rules.enumeration.as_ref()?),
        Value::Message(message) => self::message(message, rules),
        Value::List(_) | Value::Map(_) | Value::Any(_) => None,
    }
}

/// A duration, or a wrapper with the rules of what it wraps.
fn message(message: &Message, rules: &Rules) -> Option<Fault> {
    match message.type_name() {
        "google.protobuf.Duration" => {
            let limits = rules.duration.as_ref()?;
            let (seconds, nanos) = (message.integer("seconds"), message.integer("nanos"));
            number(&(i128::from(seconds) * NANOS + i128::from(nanos)), limits, &duration_in_words)
        }
        name if crate::message::is_wrapper(name) => match message.as_wrapped() {
            Some(value) => check(value, rules),
            None => check(&crate::load::default_of(&message.descriptor.get_field_by_name("value")?.kind()), rules),
        },
        _ => None,
    }
}

fn duration_in_words(nanos: &i128) -> String {
    let part = |n: i128| i64::try_from(n).unwrap_or(i64::MAX);
    time::format_duration(part(nanos / NANOS), part(nanos % NANOS))
}

fn number<T: PartialOrd + Default>(n: &T, limits: &Limits<T>, show: &dyn Fn(&T) -> String) -> Option<Fault> {
    if limits.ignore_empty && *n == T::default() {
        return None;
    }
    if let Some(constant) = limits.constant.as_ref().filter(|constant| *constant != n) {
        return Some(Fault::new("rule-value", format!("{} is not allowed here", show(n)), show(constant)));
    }
    if !limits.within(n) {
        return Some(Fault::new("rule-range", format!("{} is out of range", show(n)), bounds(limits, show)));
    }
    in_and_not_in(n, &limits.one_of, &limits.none_of, show)
}

fn bounds<T>(limits: &Limits<T>, show: &dyn Fn(&T) -> String) -> String {
    let low = limits.above.as_ref().map(|n| format!("above {}", show(n)));
    let low = low.or_else(|| limits.at_least.as_ref().map(|n| format!("at least {}", show(n))));
    let high = limits.below.as_ref().map(|n| format!("below {}", show(n)));
    let high = high.or_else(|| limits.at_most.as_ref().map(|n| format!("at most {}", show(n))));
    [low, high].into_iter().flatten().collect::<Vec<String>>().join(" and ")
}

fn in_and_not_in<T: PartialEq>(value: &T, one_of: &[T], none_of: &[T], show: &dyn Fn(&T) -> String) -> Option<Fault> {
    let text = || format!("{} is not allowed here", show(value));
    if !one_of.is_empty() && !one_of.contains(value) {
        let all: Vec<String> = one_of.iter().map(show).collect();
        return Some(Fault::new("rule-value", text(), format!("one of {}", all.join(", "))));
    }
    if none_of.contains(value) {
        let all: Vec<String> = none_of.iter().map(show).collect();
        return Some(Fault::new("rule-value", text(), format!("anything but {}", all.join(", "))));
    }
    None
}

fn enumeration(n: i32, rules: &EnumRules) -> Option<Fault> {
    let show = |n: &i32| match rules.descriptor.as_ref().and_then(|descriptor| descriptor.get_value(*n)) {
        Some(value) => format!("`{}`", value.name()),
        None => n.to_string(),
    };
    if let Some(constant) = rules.constant.filter(|constant| *constant != n) {
        return Some(Fault::new("rule-value", format!("{} is not allowed here", show(&n)), show(&constant)));
    }
    let undefined =
        |descriptor: &&prost_reflect::EnumDescriptor| rules.defined_only && descriptor.get_value(n).is_none();
    if let Some(descriptor) = rules.descriptor.as_ref().filter(undefined) {
        let names: Vec<String> = descriptor.values().map(|value| value.name().to_owned()).collect();
        let text = format!("{} has no value with the number {n}", descriptor.full_name());
        return Some(Fault::new("rule-value", text, format!("one of {}", names.join(", "))));
    }
    in_and_not_in(&n, &rules.one_of, &rules.none_of, &show)
}

fn string(text: &str, rules: &TextRules) -> Option<Fault> {
    if text.is_empty() && rules.ignore_empty {
        return None;
    }
    lengths(text.chars().count(), text.len(), rules).or_else(|| parts(text, rules)).or_else(|| forms(text, rules))
}

fn lengths(characters: usize, bytes: usize, rules: &TextRules) -> Option<Fault> {
    let exact = |length: Option<usize>, found: usize, unit: &str| {
        let length = length.filter(|length| *length != found)?;
        Some(Fault::new("rule-length", format!("{found} {unit}"), format!("exactly {length} {unit}")))
    };
    let least = |least: usize, found: usize, unit: &str| {
        if found >= least {
            return None;
        }
        if least == 1 {
            return Some(Fault::new("rule-length", "this must not be empty", "at least 1 character"));
        }
        Some(Fault::new("rule-length", format!("too short: {found} {unit}"), format!("at least {least} {unit}")))
    };
    let most = |most: Option<usize>, found: usize, unit: &str| {
        let most = most.filter(|most| found > *most)?;
        Some(Fault::new("rule-length", format!("too long: {found} {unit}"), format!("at most {most} {unit}")))
    };
    exact(rules.length, characters, "characters")
        .or_else(|| exact(rules.length_bytes, bytes, "bytes"))
        .or_else(|| least(rules.least, characters, "characters"))
        .or_else(|| least(rules.least_bytes, bytes, "bytes"))
        .or_else(|| most(rules.most, characters, "characters"))
        .or_else(|| most(rules.most_bytes, bytes, "bytes"))
}

fn parts(text: &str, rules: &TextRules) -> Option<Fault> {
    let shown = shorten(text);
    let fault = |expected: String| Some(Fault::new("rule-pattern", format!("`{shown}` has the wrong form"), expected));
    if let Some(constant) = rules.constant.as_ref().filter(|constant| *constant != text) {
        return Some(Fault::new("rule-value", format!("`{shown}` is not allowed here"), format!("`{constant}`")));
    }
    if let Some(prefix) = rules.prefix.as_ref().filter(|prefix| !text.starts_with(prefix.as_str())) {
        return fault(format!("text that starts with `{prefix}`"));
    }
    if let Some(suffix) = rules.suffix.as_ref().filter(|suffix| !text.ends_with(suffix.as_str())) {
        return fault(format!("text that ends with `{suffix}`"));
    }
    if let Some(part) = rules.contains.as_ref().filter(|part| !text.contains(part.as_str())) {
        return fault(format!("text that contains `{part}`"));
    }
    if let Some(part) = rules.not_contains.as_ref().filter(|part| text.contains(part.as_str())) {
        return fault(format!("text without `{part}`"));
    }
    if let Some(pattern) = rules.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
        return fault(format!("text that matches the regular expression `{}`", pattern.as_str()));
    }
    let quote = |text: &String| format!("`{}`", shorten(text));
    in_and_not_in(&text.to_owned(), &rules.one_of, &rules.none_of, &quote)
}

fn forms(text: &str, rules: &TextRules) -> Option<Fault> {
    let shown = shorten(text);
    if let Some(form) = rules.form.filter(|form| !format::has_form(text, form)) {
        let expected = format::in_words(form);
        return Some(Fault::new("rule-format", format!("`{shown}` is not {expected}"), expected));
    }
    let HeaderForm { name, strict } = rules.header?;
    if format::is_header(text, name, strict) {
        return None;
    }
    let what = if name { "a header name" } else { "a header value" };
    let expected = match (name, strict) {
        (true, true) => "letters, digits and the token characters of RFC 9110",
        (false, true) => "text without control characters",
        (_, false) => "text without NUL, carriage return and line feed",
    };
    Some(Fault::new("rule-format", format!("`{}` is not {what}", shown.escape_debug()), expected))
}

fn bytes_rules(bytes: &[u8], rules: &TextRules) -> Option<Fault> {
    if bytes.is_empty() && rules.ignore_empty {
        return None;
    }
    // For bytes the schema counts bytes under the names that mean characters for text.
    lengths(bytes.len(), bytes.len(), rules)
}
