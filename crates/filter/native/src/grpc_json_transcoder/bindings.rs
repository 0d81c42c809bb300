//! Values from a request's path and query, and how they get into its message.

use std::collections::BTreeMap;

use postrider_filter_api::ConfigError;
use prost_reflect::{DynamicMessage, FieldDescriptor, MessageDescriptor, Value as Proto};
use serde_json::Value as Json;

use super::parse::{Invalid, Reading};
use super::schema::{Rule, resolve};

/// More fields than any query has; each is looked up in the schema.
const MAX_PARAMETERS: usize = 1024;

/// Which escapes in a path are resolved where a variable may be several segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Unescape {
    /// All but those of RFC 6570's reserved characters.
    #[default]
    ExceptReserved,
    ExceptSlash,
    All,
}

impl Unescape {
    pub(super) fn read(name: &str) -> Option<Unescape> {
        match name {
            "ALL_CHARACTERS_EXCEPT_RESERVED" => Some(Unescape::ExceptReserved),
            "ALL_CHARACTERS_EXCEPT_SLASH" => Some(Unescape::ExceptSlash),
            "ALL_CHARACTERS" => Some(Unescape::All),
            _ => None,
        }
    }

    fn keeps(self, byte: u8) -> bool {
        match self {
            Unescape::ExceptReserved => b"!#$&'()*+,/:;=?@[]".contains(&byte),
            Unescape::ExceptSlash => byte == b'/',
            Unescape::All => false,
        }
    }
}

/// What happens to parameters of a query, whose names may be no fields.
#[derive(Debug, Clone, Default)]
pub(super) struct Parameters {
    /// Not looked at.
    pub(super) ignored: Vec<String>,
    pub(super) ignore_unknown: bool,
    pub(super) capture_unknown: bool,
    pub(super) plus_is_space: bool,
    pub(super) unescape: Unescape,
}

/// A value for a field of the request message.
#[derive(Debug)]
pub(super) struct Binding {
    field: Vec<FieldDescriptor>,
    text: Vec<u8>,
}

/// What a request's target says.
#[derive(Debug, Default)]
pub(super) struct Bindings {
    all: Vec<Binding>,
    /// Parameters that are no fields, by name.
    pub(super) unknown: BTreeMap<String, Vec<String>>,
}

impl Bindings {
    /// # Errors
    /// A parameter is no field, and the settings do not excuse it.
    pub(super) fn read(
        rule: &Rule,
        segments: &[&[u8]],
        query: &[u8],
        settings: &Parameters,
    ) -> Result<Bindings, String> {
        let mut bindings = Bindings::default();
        for variable in &rule.variables {
            let (place, several) = variable.place(segments.len());
            let unescape = if several { settings.unescape } else { Unescape::All };
            let mut text = Vec::new();
            for (at, segment) in segments.get(place).unwrap_or_default().iter().enumerate() {
                if at > 0 {
                    text.push(b'/');
                }
                decode(segment, unescape, false, &mut text);
            }
            bindings.push(rule, variable.field.clone(), text);
        }
        for (count, parameter) in query.split(|byte| *byte == b'&').enumerate() {
            if count >= MAX_PARAMETERS {
                return Err(format!("there are more than {MAX_PARAMETERS} query parameters"));
            }
            let Some(equals) = parameter.iter().position(|byte| *byte == b'=').filter(|at| *at > 0) else { continue };
            let (name, value) = parameter.split_at_checked(equals).unwrap_or_default();
            let Ok(name) = std::str::from_utf8(name) else { continue };
            if settings.ignored.iter().any(|ignored| ignored == name) {
                continue;
            }
            let mut text = Vec::new();
            decode(value.get(1..).unwrap_or_default(), Unescape::All, settings.plus_is_space, &mut text);
            match resolve(&rule.method.input, name.split('.')) {
                Ok(field) => bindings.push(rule, field, text),
                Err(_) if settings.capture_unknown => {
                    let value = String::from_utf8_lossy(&text).into_owned();
                    bindings.unknown.entry(name.to_owned()).or_default().push(value);
                }
                Err(_) if settings.ignore_unknown => {}
                Err(error) => return Err(error),
            }
        }
        Ok(bindings)
    }

    /// What lies inside a body that is taken as it comes is the body's own.
    fn push(&mut self, rule: &Rule, field: Vec<FieldDescriptor>, text: Vec<u8>) {
        if !(rule.body_is_raw && field.starts_with(&rule.body)) {
            self.all.push(Binding { field, text });
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Puts the values into `message`, which was made from `body`: what the body says itself stays. `strict`: it must
    /// not say anything else.
    pub(super) fn apply(
        &self,
        message: &mut DynamicMessage,
        body: &Json,
        reading: Reading,
        strict: bool,
    ) -> Result<(), String> {
        // A repeated message on the way to a field is one new element, whatever number of values goes there.
        let mut opened: Vec<Vec<u32>> = Vec::new();
        for binding in &self.all {
            let Some(leaf) = binding.field.last() else { continue };
            let value = binding.value(leaf, reading).map_err(|error| error.at(&binding.field).to_string())?;
            if !leaf.is_list()
                && let Some(said) = said(body, &binding.field)
            {
                let same = || reading.single(&leaf.kind(), said).is_ok_and(|said| said == value);
                if strict && !same() {
                    let text = String::from_utf8_lossy(&binding.text);
                    let said = said.to_string();
                    return Err(format!(
                        "The binding value \"{text}\" of the field {} is conflicting with the value \"{}\" in the body.",
                        leaf.name(),
                        said.trim_matches('"'),
                    ));
                }
                continue;
            }
            set(message, &binding.field, value, &mut opened);
        }
        Ok(())
    }
}

impl Binding {
    fn value(&self, leaf: &FieldDescriptor, reading: Reading) -> Result<Proto, Invalid> {
        let text = String::from_utf8(self.text.clone()).map_err(|_| Invalid::text("the value is no UTF-8"))?;
        let json = Json::String(text);
        if leaf.is_map() { Err(Invalid::value(&json, &leaf.kind())) } else { reading.single(&leaf.kind(), &json) }
    }
}

/// What the body says of a field.
fn said<'j>(body: &'j Json, path: &[FieldDescriptor]) -> Option<&'j Json> {
    path.iter().try_fold(body, |value, field| {
        let entries = value.as_object()?;
        entries.get(field.json_name()).or_else(|| entries.get(field.name())).filter(|value| !value.is_null())
    })
}

fn set(message: &mut DynamicMessage, path: &[FieldDescriptor], value: Proto, opened: &mut Vec<Vec<u32>>) {
    let Some((leaf, way)) = path.split_last() else { return };
    let mut numbers = Vec::with_capacity(way.len());
    let mut at = message;
    for field in way {
        numbers.push(field.number());
        let inner = at.get_field_mut(field);
        let next = match inner {
            Proto::List(items) => {
                if !opened.contains(&numbers) {
                    opened.push(numbers.clone());
                    let Some(kind) = message_of(field) else { return };
                    items.push(Proto::Message(DynamicMessage::new(kind)));
                }
                items.last_mut().and_then(Proto::as_message_mut)
            }
            inner => inner.as_message_mut(),
        };
        let Some(next) = next else { return };
        at = next;
    }
    if leaf.is_list() {
        if let Proto::List(items) = at.get_field_mut(leaf) {
            items.push(value);
        }
    } else {
        // The value was made for this very field.
        let _ = at.try_set_field(leaf, value);
    }
}

fn message_of(field: &FieldDescriptor) -> Option<MessageDescriptor> {
    field.kind().as_message().cloned()
}

/// Resolves `%XX` where `unescape` does, and `+` if it is a space.
fn decode(text: &[u8], unescape: Unescape, plus_is_space: bool, out: &mut Vec<u8>) {
    let hex = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut rest = text;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte == b'%'
            && let [high, low, after @ ..] = behind
            && let (Some(high), Some(low)) = (hex(*high), hex(*low))
            && !unescape.keeps(high << 4 | low)
        {
            out.push(high << 4 | low);
            rest = after;
        } else if byte == b'+' && plus_is_space {
            out.push(b' ');
        } else {
            out.push(byte);
        }
    }
}

/// Reads the settings of queries and paths.
pub(super) fn read_settings(fields: &mut postrider_model::Fields<'_>, errors: &mut ConfigError) -> Parameters {
    let mut flag = |key: &str, errors: &mut ConfigError| {
        fields.bool(key).map_err(|error| errors.push(error)).ok().flatten().unwrap_or_default()
    };
    let ignore_unknown = flag("ignore_unknown_query_parameters", errors);
    let capture_unknown = flag("capture_unknown_query_parameters", errors);
    let plus_is_space = flag("query_param_unescape_plus", errors);
    let mut ignored = Vec::new();
    match fields.list("ignored_query_parameters") {
        Ok(items) => ignored.extend(items.into_iter().filter_map(|(_, item)| match item {
            postrider_model::Value::String(name) => Some(name.clone()),
            _ => None,
        })),
        Err(error) => errors.push(error),
    }
    let unescape = match fields.string("url_unescape_spec") {
        Ok(None) => Unescape::default(),
        Ok(Some(name)) => Unescape::read(name).unwrap_or_else(|| {
            errors.push(fields.error("url_unescape_spec", format!("`{name}` is no way of unescaping")));
            Unescape::default()
        }),
        Err(error) => {
            errors.push(error);
            Unescape::default()
        }
    };
    Parameters { ignored, ignore_unknown, capture_unknown, plus_is_space, unescape }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_resolved_as_the_setting_says() {
        let decoded = |text: &str, unescape, plus| {
            let mut out = Vec::new();
            decode(text.as_bytes(), unescape, plus, &mut out);
            String::from_utf8(out).unwrap()
        };
        let text = "%2f%23/%20%2523+%zz%4";
        assert_eq!(decoded(text, Unescape::ExceptReserved, false), "%2f%23/ %23+%zz%4");
        assert_eq!(decoded(text, Unescape::ExceptSlash, false), "%2f#/ %23+%zz%4");
        assert_eq!(decoded(text, Unescape::All, true), "/#/ %23 %zz%4");
    }
}
