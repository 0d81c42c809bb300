//! Messages to JSON.

use std::io::{self, Write};

use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, ReflectMessage, SerializeOptions, Value as Proto};
use serde_json::Value as Json;
use serde_json::ser::{PrettyFormatter, Serializer};

/// How deep messages may lie in each other, those inside of `google.protobuf.Any` included. The decoder counts anew in
/// each of those, and the writer needs some of the stack for each level.
const MAX_DEPTH: usize = 100;

/// How JSON is written.
#[derive(Debug, Clone, Default)]
pub(super) struct Print {
    pub(super) whitespace: bool,
    pub(super) primitives: bool,
    pub(super) enums_as_numbers: bool,
    pub(super) proto_names: bool,
    pub(super) newline_delimited: bool,
    pub(super) server_sent_events: bool,
}

impl Print {
    /// Appends `message`, or the value of its `part`; `limit` bounds the bytes. `is_event`: it is sent as one.
    ///
    /// # Errors
    /// A message inside of an `Any` is unknown or broken, or there is too much of it.
    pub(super) fn write(
        &self,
        message: &DynamicMessage,
        part: Option<&FieldDescriptor>,
        limit: usize,
        is_event: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        let options = self.options(!self.primitives);
        // An event ends at an empty line, and begins anew at each other: JSON with line breaks would be cut apart.
        let spaced = self.whitespace && !is_event;
        let written = match part {
            None => self.message(message, &options, spaced, Bounded { out, left: limit }),
            Some(part) if !part.is_list() && !part.is_map() && matches!(part.kind(), Kind::Message(_)) => {
                match &*message.get_field(part) {
                    Proto::Message(inner) => self.message(inner, &options, spaced, Bounded { out, left: limit }),
                    _ => Ok(()),
                }
            }
            Some(part) => {
                // Only messages can be written: one with nothing but this field is, and taken apart again. A field that is
                // left out there has its default, which an empty message can be made to show.
                let empty = DynamicMessage::new(message.descriptor());
                let mut alone = empty.clone();
                let _ = alone.try_set_field(part, message.get_field(part).into_owned());
                let name = if self.proto_names { part.name() } else { part.json_name() };
                let of = |message: &DynamicMessage, options| {
                    let json = message.serialize_with_options(serde_json::value::Serializer, &options);
                    json.map_err(|error| error.to_string()).map(|mut json| json.get_mut(name).map(Json::take))
                };
                let value = match of(&alone, self.options(!self.primitives))? {
                    Some(value) => value,
                    None => of(&empty, self.options(false))?.unwrap_or_default(),
                };
                let text = if spaced { format!("{value:#}") } else { value.to_string() };
                if text.len() > limit {
                    return Err(super::RESPONSE_TOO_LARGE.to_owned());
                }
                out.extend_from_slice(text.as_bytes());
                Ok(())
            }
        };
        written.map_err(|error| error.to_string())?;
        if spaced {
            out.push(b'\n');
        }
        Ok(())
    }

    fn options(&self, skip_default: bool) -> SerializeOptions {
        SerializeOptions::new()
            .skip_default_fields(skip_default)
            .use_enum_numbers(self.enums_as_numbers)
            .use_proto_field_name(self.proto_names)
    }

    fn message(
        &self,
        message: &DynamicMessage,
        options: &SerializeOptions,
        spaced: bool,
        to: Bounded<'_>,
    ) -> Result<(), serde_json::Error> {
        if spaced {
            let mut to = Serializer::with_formatter(to, PrettyFormatter::with_indent(b" "));
            message.serialize_with_options(&mut to, options)
        } else {
            message.serialize_with_options(&mut Serializer::new(to), options)
        }
    }
}

struct Bounded<'a> {
    out: &'a mut Vec<u8>,
    left: usize,
}

impl Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left = self.left.checked_sub(bytes.len()).ok_or_else(|| io::Error::other(super::RESPONSE_TOO_LARGE))?;
        self.out.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether messages lie deeper in each other than may be written.
pub(super) fn is_too_deep(message: &DynamicMessage) -> bool {
    depth(message, 0) > MAX_DEPTH
}

fn depth(message: &DynamicMessage, above: usize) -> usize {
    let here = above + 1;
    if here > MAX_DEPTH {
        return here;
    }
    let mut deepest = here;
    for (_, value) in message.fields() {
        deepest = deepest.max(value_depth(value, here));
    }
    if message.descriptor().full_name() == "google.protobuf.Any"
        && let Some(inner) = inside(message)
    {
        deepest = deepest.max(depth(&inner, here));
    }
    deepest
}

fn value_depth(value: &Proto, above: usize) -> usize {
    match value {
        Proto::Message(message) => depth(message, above),
        Proto::List(items) => items.iter().map(|item| value_depth(item, above)).max().unwrap_or(above),
        Proto::Map(entries) => entries.values().map(|value| value_depth(value, above)).max().unwrap_or(above),
        _ => above,
    }
}

/// What an `Any` holds; `None` when that is unknown or broken, which the writer will find.
fn inside(any: &DynamicMessage) -> Option<DynamicMessage> {
    let url = any.get_field_by_number(1)?.into_owned();
    let value = any.get_field_by_number(2)?.into_owned();
    let name = url.as_str()?.rsplit('/').next()?;
    let kind = any.descriptor().parent_pool().get_message_by_name(name)?;
    DynamicMessage::decode(kind, value.as_bytes()?.clone()).ok()
}
