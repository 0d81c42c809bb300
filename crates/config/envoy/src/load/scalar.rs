//! One scalar of the text as one scalar of the schema.
//!
//! YAML's plain scalars have the types that Envoy gives them before it looks at the schema: booleans in all of YAML 1.1's
//! spellings, integers (also hexadecimal, and octal with a leading 0), everything else text. So `123` is refused where
//! text is expected, and `1.5` is not.

use base64::Engine;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use postrider_config_core::{Diagnostic, Span, nearest};
use prost_reflect::{EnumDescriptor, Kind};

use super::decode::same_but_spelling;
use super::format::Format;
use crate::message::Value;
use crate::tree::{Scalar, shorten};

/// Why a scalar is not of a kind.
#[derive(Debug, PartialEq)]
pub enum Fault {
    WrongType,
    OutOfRange {
        least: i128,
        most: i128,
    },
    /// With the name that was probably meant.
    UnknownEnumValue(Option<String>),
    NotBase64,
}

/// What a plain scalar is before the schema.
#[derive(Debug, PartialEq)]
pub enum Plain {
    Bool(bool),
    Int(i64),
    /// Only in JSON: YAML's fractions are text to Envoy.
    Float(f64),
    Text(String),
}

/// Reads a scalar as a kind. Messages are not scalars: they are [`Fault::WrongType`].
pub fn decode(scalar: &Scalar, format: Format, kind: &Kind) -> Result<Value, Fault> {
    let quotes = matches!(kind, Kind::String | Kind::Bytes);
    if format == Format::Text && scalar.plain == quotes {
        return Err(Fault::WrongType);
    }
    let plain = classify(scalar, format);
    match kind {
        Kind::Bool => boolean(&plain).map(Value::Bool).ok_or(Fault::WrongType),
        Kind::String => match plain {
            Plain::Text(text) => Ok(Value::String(text)),
            _ => Err(Fault::WrongType),
        },
        Kind::Bytes => match plain {
            Plain::Text(text) if format == Format::Text => Ok(Value::Bytes(text.into_bytes())),
            Plain::Text(text) => bytes(&text).map(Value::Bytes).ok_or(Fault::NotBase64),
            _ => Err(Fault::WrongType),
        },
        Kind::Double => float(&plain).map(Value::F64).ok_or(Fault::WrongType),
        // Kept as the float that Envoy would hold.
        Kind::Float => float(&plain).map(|n| Value::F64(f64::from(n as f32))).ok_or(Fault::WrongType),
        Kind::Enum(descriptor) => enumeration(&plain, descriptor).map(Value::Enum),
        Kind::Message(_) => Err(Fault::WrongType),
        _ => {
            let (least, most) = range(kind);
            let number = integer(&plain).ok_or(Fault::WrongType)?;
            if number < least || number > most {
                return Err(Fault::OutOfRange { least, most });
            }
            Ok(if least < 0 { Value::I64(number as i64) } else { Value::U64(number as u64) })
        }
    }
}

/// The type that a scalar has before the schema is asked.
pub fn classify(scalar: &Scalar, format: Format) -> Plain {
    let text = scalar.text.as_str();
    if !scalar.plain {
        return Plain::Text(text.to_owned());
    }
    if format != Format::Yaml {
        return match text {
            "true" => Plain::Bool(true),
            "false" => Plain::Bool(false),
            _ if format == Format::Text && yaml_integer(text).is_some() => Plain::Int(yaml_integer(text).unwrap_or(0)),
            _ => match (text.parse::<i64>(), text.parse::<f64>()) {
                (Ok(n), _) => Plain::Int(n),
                (_, Ok(n)) => Plain::Float(n),
                _ => Plain::Text(text.to_owned()),
            },
        };
    }
    if let Some(value) = yaml_boolean(text) {
        return Plain::Bool(value);
    }
    match yaml_integer(text) {
        Some(n) if i32::try_from(n).is_ok() => Plain::Int(n),
        // Envoy hands larger ones on as text in decimal notation.
        Some(n) => Plain::Text(n.to_string()),
        None => Plain::Text(text.to_owned()),
    }
}

/// The default of a kind.
pub fn default(kind: &Kind) -> Value {
    match kind {
        Kind::Bool => Value::Bool(false),
        Kind::String | Kind::Message(_) => Value::String(String::new()),
        Kind::Bytes => Value::Bytes(Vec::new()),
        Kind::Double | Kind::Float => Value::F64(0.0),
        Kind::Enum(_) => Value::Enum(0),
        _ if range(kind).0 < 0 => Value::I64(0),
        _ => Value::U64(0),
    }
}

/// What a kind takes, in words.
pub fn expected(kind: &Kind) -> String {
    match kind {
        Kind::Bool => "`true` or `false`".to_owned(),
        Kind::String => "a string".to_owned(),
        Kind::Bytes => "a string in base64".to_owned(),
        Kind::Double | Kind::Float => "a number".to_owned(),
        Kind::Enum(descriptor) => format!("one of {}", values_in_words(descriptor)),
        Kind::Message(descriptor) if descriptor.full_name().starts_with("google.protobuf.") => "a mapping".to_owned(),
        Kind::Message(descriptor) => format!("a mapping with the fields of {}", descriptor.full_name()),
        _ if range(kind).0 < 0 => "an integer".to_owned(),
        _ => "a non-negative integer".to_owned(),
    }
}

impl Fault {
    /// The finding for a scalar at a place.
    pub fn diagnostic(&self, scalar: &Scalar, span: Span, kind: &Kind) -> Diagnostic {
        let shown = shorten(&scalar.text);
        match self {
            Fault::WrongType => wrong_type(scalar, span, kind),
            Fault::OutOfRange { least, most } => Diagnostic::error("out-of-range", format!("{shown} is out of range"))
                .at(span)
                .expected(format!("an integer from {least} to {most}")),
            Fault::UnknownEnumValue(nearest) => {
                let name = match kind {
                    Kind::Enum(descriptor) => descriptor.full_name().to_owned(),
                    _ => String::new(),
                };
                let mut diagnostic = Diagnostic::error("unknown-enum-value", format!("no value `{shown}` in {name}"))
                    .at(span)
                    .expected(expected(kind))
                    .suggest(nearest.as_deref());
                if let Some(nearest) = nearest.as_ref().filter(|nearest| same_but_spelling(&scalar.text, nearest)) {
                    diagnostic = diagnostic.fix(span, nearest, format!("write `{nearest}`"));
                }
                diagnostic
            }
            Fault::NotBase64 => Diagnostic::error("invalid-base64", "bytes are written in base64; this is not base64")
                .at(span)
                .expected("base64, such as `aGVsbG8=`")
                .help("for text as it is, use `inline_string` where the message has it"),
        }
    }
}

fn wrong_type(scalar: &Scalar, span: Span, kind: &Kind) -> Diagnostic {
    let shown = shorten(&scalar.text);
    let found = match scalar.plain {
        true if yaml_boolean(&scalar.text).is_some() => format!("the boolean `{shown}`"),
        true if yaml_integer(&scalar.text).is_some() || number(&scalar.text).is_some() => {
            format!("the number `{shown}`")
        }
        _ => format!("the string `{shown}`"),
    };
    let mut diagnostic =
        Diagnostic::error("wrong-type", format!("expected {}, found {found}", expected(kind))).at(span);
    if *kind == Kind::String {
        let quoted = format!("\"{}\"", scalar.text);
        diagnostic = diagnostic.fix(span, quoted.clone(), format!("quote it: `{quoted}`"));
    }
    // A comma from JSON is the commonest slip that turns a value into text.
    let trimmed = scalar.text.trim_end_matches([',', ';']).trim();
    if trimmed != scalar.text {
        let cleaned = Scalar { text: trimmed.to_owned(), plain: true };
        if decode(&cleaned, Format::Yaml, kind).is_ok() {
            diagnostic = diagnostic.fix(span, trimmed, format!("write `{trimmed}`, without the comma"));
        }
    }
    diagnostic
}

fn boolean(plain: &Plain) -> Option<bool> {
    match plain {
        Plain::Bool(value) => Some(*value),
        // Protobuf's JSON mapping takes text for a boolean, and Envoy all of these words.
        Plain::Text(text) => match text.to_ascii_lowercase().as_str() {
            "true" | "t" | "yes" | "y" | "1" => Some(true),
            "false" | "f" | "no" | "n" | "0" => Some(false),
            _ => None,
        },
        Plain::Int(_) | Plain::Float(_) => None,
    }
}

/// YAML 1.1's booleans: lower case, upper case or capitalised.
fn yaml_boolean(text: &str) -> Option<bool> {
    let lower = text.to_ascii_lowercase();
    let mut rest = text.chars().skip(1);
    let same_case = text == lower || text == text.to_ascii_uppercase() || rest.all(|c| c.is_ascii_lowercase());
    match lower.as_str() {
        _ if !same_case => None,
        "y" | "yes" | "true" | "on" => Some(true),
        "n" | "no" | "false" | "off" => Some(false),
        _ => None,
    }
}

fn yaml_integer(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let magnitude = if let Some(hex) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        i64::from_str_radix(hex, 16).ok()?
    } else if digits.len() > 1 && digits.starts_with('0') {
        i64::from_str_radix(digits, 8).ok()?
    } else {
        digits.parse().ok()?
    };
    Some(if negative { -magnitude } else { magnitude })
}

/// An integer, also written as text or as a number with an empty fraction (`80.0`, `8e1`).
fn integer(plain: &Plain) -> Option<i128> {
    match plain {
        Plain::Int(n) => Some(i128::from(*n)),
        Plain::Float(n) => whole(*n),
        Plain::Bool(_) => None,
        Plain::Text(text) => text.parse::<i128>().ok().or_else(|| whole(number(text)?)),
    }
}

fn whole(n: f64) -> Option<i128> {
    (n.is_finite() && n.fract() == 0.0).then_some(n as i128)
}

fn float(plain: &Plain) -> Option<f64> {
    match plain {
        Plain::Int(n) => Some(*n as f64),
        Plain::Float(n) => Some(*n),
        Plain::Bool(_) => None,
        Plain::Text(text) => match text.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            text => number(text),
        },
    }
}

/// A decimal number; without the words (`inf`, `nan`) that Rust's parser takes too.
pub fn number(text: &str) -> Option<f64> {
    let shape = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | 'e' | 'E');
    text.chars().all(shape).then(|| text.parse().ok()).flatten()
}

fn enumeration(plain: &Plain, descriptor: &EnumDescriptor) -> Result<i32, Fault> {
    let text = match plain {
        Plain::Int(n) => return i32::try_from(*n).map_err(|_| Fault::WrongType),
        Plain::Text(text) => text.clone(),
        // `on: off`: an enum may have values that YAML takes for booleans.
        Plain::Bool(true) => "true".to_owned(),
        Plain::Bool(false) => "false".to_owned(),
        Plain::Float(_) => return Err(Fault::WrongType),
    };
    if let Some(value) = descriptor.get_value_by_name(&text) {
        return Ok(value.number());
    }
    if let Some(value) = descriptor.values().find(|value| value.name().eq_ignore_ascii_case(&text)) {
        return Ok(value.number());
    }
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let names: Vec<String> = descriptor.values().map(|value| value.name().to_owned()).collect();
    Err(Fault::UnknownEnumValue(nearest(&text, names.iter().map(String::as_str)).map(str::to_owned)))
}

/// Most enum values that a message lists.
const LISTED_VALUES: usize = 16;

fn values_in_words(descriptor: &EnumDescriptor) -> String {
    let names: Vec<String> = descriptor.values().map(|value| value.name().to_owned()).collect();
    match names.get(..LISTED_VALUES) {
        Some(first) if names.len() > LISTED_VALUES => format!("{}, … ({} values)", first.join(", "), names.len()),
        _ => names.join(", "),
    }
}

/// Base64 in either alphabet, padded or not, as protobuf's JSON mapping takes it.
fn bytes(text: &str) -> Option<Vec<u8>> {
    let config = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    let alphabet = if text.contains(['-', '_']) { URL_SAFE } else { STANDARD };
    GeneralPurpose::new(&alphabet, config).decode(text).ok()
}

fn range(kind: &Kind) -> (i128, i128) {
    match kind {
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => (i128::from(i32::MIN), i128::from(i32::MAX)),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => (i128::from(i64::MIN), i128::from(i64::MAX)),
        Kind::Uint32 | Kind::Fixed32 => (0, i128::from(u32::MAX)),
        _ => (0, i128::from(u64::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, plain: bool, kind: Kind) -> Result<Value, Fault> {
        decode(&Scalar { text: text.to_owned(), plain }, Format::Yaml, &kind)
    }

    #[test]
    fn plain_yaml_scalars_have_the_types_that_envoy_gives_them() {
        let text = |text: &str| Ok(Value::String(text.to_owned()));
        assert_eq!(read("1.5", true, Kind::String), text("1.5"));
        assert_eq!(read("3000000000", true, Kind::String), text("3000000000"));
        assert_eq!(read("123", false, Kind::String), text("123"));
        for refused in ["123", "0x10", "true", "yes", "OFF", "y"] {
            assert_eq!(read(refused, true, Kind::String), Err(Fault::WrongType), "{refused}");
        }
        for (word, expected) in
            [("yes", true), ("ON", true), ("True", true), ("tRue", true), ("n", false), ("off", false)]
        {
            assert_eq!(read(word, true, Kind::Bool), Ok(Value::Bool(expected)), "{word}");
        }
        assert_eq!(read("1", true, Kind::Bool), Err(Fault::WrongType));
        assert_eq!(read("yes", false, Kind::Bool), Ok(Value::Bool(true)));
    }

    #[test]
    fn integers_in_every_notation() {
        for (word, expected) in [("80", 80), ("80.0", 80), ("8e1", 80), ("0x50", 80), ("010", 8), ("+5", 5)] {
            assert_eq!(read(word, true, Kind::Uint32), Ok(Value::U64(expected)), "{word}");
        }
        assert_eq!(read("80", false, Kind::Uint32), Ok(Value::U64(80)));
        assert_eq!(read("18446744073709551615", true, Kind::Uint64), Ok(Value::U64(u64::MAX)));
        for refused in ["1_0", "1.5", "0o17", "ten"] {
            assert_eq!(read(refused, true, Kind::Uint32), Err(Fault::WrongType), "{refused}");
        }
        for out in ["-1", "4294967296"] {
            assert!(matches!(read(out, true, Kind::Uint32), Err(Fault::OutOfRange { .. })), "{out}");
        }
    }

    #[test]
    fn bytes_in_both_alphabets() {
        assert_eq!(bytes("aGk"), Some(b"hi".to_vec()));
        assert_eq!(bytes("aGk="), Some(b"hi".to_vec()));
        assert!(bytes("a-_=").is_some());
        assert_eq!(bytes("a*"), None);
    }
}
