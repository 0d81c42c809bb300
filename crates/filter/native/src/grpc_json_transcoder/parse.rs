//! JSON to messages, and texts of paths and queries to values of fields.
//!
//! As protobuf's JSON mapping says, with what Envoy reads beyond it: fields that nobody knows are skipped, booleans may
//! be written as texts. Errors are worded as Envoy words them, because clients see them.

use std::collections::HashMap;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use prost_reflect::prost::Message;
use prost_reflect::{
    DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MapKey, MessageDescriptor, ReflectMessage, Value as Proto,
};
use serde_json::{Map, Value as Json};

/// Why a value is none of its field.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Invalid {
    /// Names of fields, with dots.
    path: String,
    text: String,
}

impl Invalid {
    pub(super) fn value(value: &Json, kind: &Kind) -> Invalid {
        Invalid::text(format!("invalid value {} for type {}", short(value), kind_name(kind)))
    }

    pub(super) fn text(text: impl Into<String>) -> Invalid {
        Invalid { path: String::new(), text: text.into() }
    }

    /// The same seen from one level above.
    fn below(self, name: &str) -> Invalid {
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{name}.{}", self.path) };
        Invalid { path, ..self }
    }

    /// The error of a value at a path.
    pub(super) fn at(self, path: &[FieldDescriptor]) -> Invalid {
        path.iter().rev().fold(self, |error, field| error.below(field.name()))
    }
}

impl std::fmt::Display for Invalid {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}: {}", self.path, self.text)
    }
}

/// Settings of the reading.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reading {
    pub(super) case_insensitive_enums: bool,
}

/// Decodes both alphabets, with and without padding.
fn base64(text: &str) -> Option<Vec<u8>> {
    const CONFIG: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, CONFIG);
    const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, CONFIG);
    STANDARD.decode(text).or_else(|_| URL_SAFE.decode(text)).ok()
}

impl Reading {
    /// A message from the JSON of it. How deep it goes is bounded by the parser of the text.
    pub(super) fn message(self, kind: &MessageDescriptor, value: &Json) -> Result<DynamicMessage, Invalid> {
        if let Some(message) = self.well_known(kind, value) {
            return message;
        }
        let Json::Object(entries) = value else { return Err(Invalid::text("Root element must be a message.")) };
        let mut message = DynamicMessage::new(kind.clone());
        self.fields(&mut message, entries)?;
        Ok(message)
    }

    fn fields(self, message: &mut DynamicMessage, entries: &Map<String, Json>) -> Result<(), Invalid> {
        let kind = message.descriptor();
        for (name, value) in entries {
            let field = kind.get_field_by_json_name(name).or_else(|| kind.get_field_by_name(name));
            let Some(field) = field else { continue };
            if let Some(value) = self.field(&field, value).map_err(|error| error.below(field.name()))? {
                message.try_set_field(&field, value).map_err(|error| Invalid::text(error.to_string()))?;
            }
        }
        Ok(())
    }

    /// `None` for a null that leaves the field as it is.
    fn field(self, field: &FieldDescriptor, value: &Json) -> Result<Option<Proto>, Invalid> {
        let kind = field.kind();
        if value.is_null() && !takes_null(&kind) {
            return Ok(None);
        }
        if field.is_map() {
            let Json::Object(entries) = value else { return Err(Invalid::value(value, &kind)) };
            return self.map(&kind, entries).map(Some);
        }
        if field.is_list() {
            let Json::Array(items) = value else { return Err(Invalid::value(value, &kind)) };
            let items = items.iter().map(|item| self.single(&kind, item));
            return items.collect::<Result<Vec<_>, _>>().map(|items| Some(Proto::List(items)));
        }
        self.single(&kind, value).map(Some)
    }

    fn map(self, kind: &Kind, entries: &Map<String, Json>) -> Result<Proto, Invalid> {
        let Kind::Message(entry) = kind else { return Err(Invalid::text("no map")) };
        let (key_kind, value_kind) = (entry.map_entry_key_field().kind(), entry.map_entry_value_field().kind());
        let mut map = HashMap::with_capacity(entries.len());
        for (key, value) in entries {
            let text = Json::String(key.clone());
            let key = self.single(&key_kind, &text).map_err(|error| error.below(key))?;
            let key = match key {
                Proto::Bool(key) => MapKey::Bool(key),
                Proto::I32(key) => MapKey::I32(key),
                Proto::I64(key) => MapKey::I64(key),
                Proto::U32(key) => MapKey::U32(key),
                Proto::U64(key) => MapKey::U64(key),
                Proto::String(key) => MapKey::String(key),
                _ => return Err(Invalid::value(&text, &key_kind)),
            };
            map.insert(key, self.single(&value_kind, value)?);
        }
        Ok(Proto::Map(map))
    }

    /// One value of a kind, be it the field's or an element's.
    pub(super) fn single(self, kind: &Kind, value: &Json) -> Result<Proto, Invalid> {
        let invalid = || Invalid::value(value, kind);
        let text = value.as_str();
        Ok(match kind {
            Kind::String => Proto::String(text.ok_or_else(invalid)?.to_owned()),
            Kind::Bytes => Proto::Bytes(text.and_then(base64).ok_or_else(invalid)?.into()),
            Kind::Bool => Proto::Bool(value.as_bool().or_else(|| boolean(text?)).ok_or_else(invalid)?),
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => {
                Proto::I32(signed(value).and_then(|number| i32::try_from(number).ok()).ok_or_else(invalid)?)
            }
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Proto::I64(signed(value).ok_or_else(invalid)?),
            Kind::Uint32 | Kind::Fixed32 => {
                Proto::U32(unsigned(value).and_then(|number| u32::try_from(number).ok()).ok_or_else(invalid)?)
            }
            Kind::Uint64 | Kind::Fixed64 => Proto::U64(unsigned(value).ok_or_else(invalid)?),
            Kind::Double => Proto::F64(float(value).ok_or_else(invalid)?),
            Kind::Float => {
                let number = float(value).ok_or_else(invalid)?;
                if number.is_finite() && number.abs() > f64::from(f32::MAX) {
                    return Err(invalid());
                }
                Proto::F32(number as f32)
            }
            Kind::Enum(names) => Proto::EnumNumber(self.enumerator(names, value).ok_or_else(invalid)?),
            Kind::Message(message) => match value {
                Json::Object(_) => Proto::Message(self.message(message, value)?),
                _ => Proto::Message(self.well_known(message, value).ok_or_else(invalid)??),
            },
        })
    }

    fn enumerator(self, names: &EnumDescriptor, value: &Json) -> Option<i32> {
        if names.full_name() == "google.protobuf.NullValue" && value.is_null() {
            return Some(0);
        }
        let Some(name) = value.as_str() else { return signed(value).and_then(|number| number.try_into().ok()) };
        if let Some(found) = names.get_value_by_name(name) {
            return Some(found.number());
        }
        if self.case_insensitive_enums
            && let Some(found) = names.values().find(|known| known.name().eq_ignore_ascii_case(name))
        {
            return Some(found.number());
        }
        names.get_value(name.parse().ok()?).map(|found| found.number())
    }

    /// The message of a type that JSON writes in its own way; `None` for all others.
    fn well_known(self, kind: &MessageDescriptor, value: &Json) -> Option<Result<DynamicMessage, Invalid>> {
        let name = kind.full_name().strip_prefix("google.protobuf.")?;
        match name {
            "Any" => Some(self.any(kind, value)),
            "Timestamp" | "Duration" | "FieldMask" | "Struct" | "Value" | "ListValue" => {
                let read = DynamicMessage::deserialize(kind.clone(), value);
                Some(read.map_err(|_| Invalid::value(value, &Kind::Message(kind.clone()))))
            }
            "DoubleValue" | "FloatValue" | "Int64Value" | "UInt64Value" | "Int32Value" | "UInt32Value"
            | "BoolValue" | "StringValue" | "BytesValue" => {
                let field = kind.get_field(1)?;
                let inner = self.single(&field.kind(), value);
                Some(inner.map(|inner| {
                    let mut message = DynamicMessage::new(kind.clone());
                    let _ = message.try_set_field(&field, inner);
                    message
                }))
            }
            _ => None,
        }
    }

    fn any(self, kind: &MessageDescriptor, value: &Json) -> Result<DynamicMessage, Invalid> {
        let Json::Object(entries) = value else { return Err(Invalid::value(value, &Kind::Message(kind.clone()))) };
        let url = entries.get("@type").and_then(Json::as_str);
        let url = url.ok_or_else(|| Invalid::text("Missing @type for any field"))?;
        let name = url.rsplit('/').next().unwrap_or_default();
        let inner = kind.parent_pool().get_message_by_name(name);
        let inner = inner.ok_or_else(|| Invalid::text(format!("Invalid type URL, unknown type: {name}")))?;
        let nothing = Json::Null;
        let value = match self.well_known(&inner, entries.get("value").unwrap_or(&nothing)) {
            Some(message) => message?,
            None => {
                let mut message = DynamicMessage::new(inner);
                self.fields(&mut message, entries)?;
                message
            }
        };
        let mut any = DynamicMessage::new(kind.clone());
        let set = any.try_set_field_by_number(1, Proto::String(url.to_owned())).is_ok()
            && any.try_set_field_by_number(2, Proto::Bytes(value.encode_to_vec().into())).is_ok();
        if set { Ok(any) } else { Err(Invalid::text("no Any")) }
    }
}

fn takes_null(kind: &Kind) -> bool {
    match kind {
        Kind::Message(message) => message.full_name() == "google.protobuf.Value",
        Kind::Enum(names) => names.full_name() == "google.protobuf.NullValue",
        _ => false,
    }
}

fn boolean(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "t" | "yes" | "y" | "1" => Some(true),
        "false" | "f" | "no" | "n" | "0" => Some(false),
        _ => None,
    }
}

/// Beyond this a double does not hold every whole number.
const EXACT: f64 = 9_007_199_254_740_992.0;

fn whole(number: f64) -> Option<i64> {
    (number.fract() == 0.0 && number.abs() <= EXACT).then_some(number as i64)
}

fn signed(value: &Json) -> Option<i64> {
    match value {
        Json::Number(number) => number.as_i64().or_else(|| whole(number.as_f64()?)),
        Json::String(text) => text.parse().ok().or_else(|| whole(plain_float(text)?)),
        _ => None,
    }
}

fn unsigned(value: &Json) -> Option<u64> {
    match value {
        Json::Number(number) => number.as_u64().or_else(|| whole(number.as_f64()?)?.try_into().ok()),
        Json::String(text) => text.parse().ok().or_else(|| whole(plain_float(text)?)?.try_into().ok()),
        _ => None,
    }
}

fn float(value: &Json) -> Option<f64> {
    match value {
        Json::Number(number) => number.as_f64(),
        Json::String(text) => match text.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            text => plain_float(text),
        },
        _ => None,
    }
}

/// Digits only: Rust would read `inf` and `nan` as well.
fn plain_float(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-'));
    text.parse().ok().filter(|number: &f64| plain && number.is_finite())
}

/// Of a larger value only this much is shown.
const MAX_SHOWN: usize = 100;

fn short(value: &Json) -> String {
    let mut text = value.to_string();
    if let Some((at, _)) = text.char_indices().nth(MAX_SHOWN) {
        text.truncate(at);
        text.push('…');
    }
    text
}

fn kind_name(kind: &Kind) -> String {
    match kind {
        Kind::Message(message) => format!("type.googleapis.com/{}", message.full_name()),
        Kind::Enum(names) => format!("type.googleapis.com/{}", names.full_name()),
        scalar => format!("TYPE_{scalar:?}").to_ascii_uppercase(),
    }
}
