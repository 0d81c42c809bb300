//! Structured values: metadata, filter state and configurations.

use std::ffi::{c_char, c_double, c_int};

use postrider_filter_api::ObjectKind;
use postrider_filter_plugin::json;
use postrider_model::Value;

use super::text::{put, take};
use super::turn::{Turn, with};
use super::{INVALID, LIMIT, NONE, NOT_HERE, OK, Text};

/// Whose values, as scripts number them.
pub(super) const ROUTE: c_int = 0;
const VIRTUAL_HOST: c_int = 1;
pub(super) const DYNAMIC: c_int = 2;
const FILTER_CONTEXT: c_int = 3;
const BASE_CONFIG: c_int = 4;
const ROUTE_CONFIG: c_int = 5;
const FILTER_STATE: c_int = 6;
pub(super) const CONNECTION: c_int = 7;
/// A route's in Envoy's dialect, whose namespace may also be the one that all filters for Lua know.
const ROUTE_OR_USUAL: c_int = 8;

/// The namespace in which the method `metadata` also looks.
const USUAL_NAME: &str = "envoy.filters.http.lua";

/// `pr_value`: a value that is not a table is here, a table as JSON in `text`.
#[repr(C)]
pub(crate) struct Plain {
    pub(super) kind: c_int,
    pub(super) number: c_double,
    pub(super) text: Text,
}

impl Plain {
    pub(super) fn set_number(&mut self, number: u64) {
        self.kind = NUMBER;
        self.number = number as c_double;
    }
}

/// Kinds of [`Plain`], and of what [`set`] takes.
pub(super) const BOOL: c_int = 1;
pub(super) const NUMBER: c_int = 2;
pub(super) const STRING: c_int = 3;
pub(super) const LIST: c_int = 4;
pub(super) const MAP: c_int = 5;

fn find<'t>(turn: &'t Turn<'_, '_>, which: c_int, namespace: &str, key: &str) -> Option<&'t Value> {
    let of = |metadata: &'t postrider_model::Metadata| match key {
        "" => metadata.namespace(namespace),
        key => metadata.get(namespace, key),
    };
    let inside = |whole: &'t Value| match (key, whole) {
        ("", whole) => Some(whole),
        (key, Value::Map(entries)) => entries.iter().find(|(name, _)| name == key).map(|(_, value)| value),
        _ => None,
    };
    // Envoy's dialect asks for its filter's own, by the filter's name in its chain.
    let own = |metadata: &'t postrider_model::Metadata, name: &str| match key {
        "" => metadata.namespace(name),
        key => metadata.get(name, key),
    };
    let name = turn.plugin.facts.name.as_str();
    let stream = turn.stream.as_ref();
    match which {
        ROUTE_OR_USUAL => {
            let metadata = &stream?.route?.metadata;
            own(metadata, if metadata.namespace(name).is_some() { name } else { USUAL_NAME })
        }
        ROUTE if namespace.is_empty() => own(&stream?.route?.metadata, name),
        VIRTUAL_HOST if namespace.is_empty() => own(&stream?.route?.virtual_host_metadata, name),
        ROUTE => of(&stream?.route?.metadata),
        VIRTUAL_HOST => of(&stream?.route?.virtual_host_metadata),
        DYNAMIC => of(&stream?.info.metadata),
        FILTER_CONTEXT => inside(&turn.view.filter_context),
        BASE_CONFIG => inside(&turn.plugin.facts.config),
        ROUTE_CONFIG => turn.view.route_config.as_ref().and_then(inside),
        CONNECTION => of(&stream?.info.connection.as_ref()?.metadata),
        FILTER_STATE => stream?.info.filter_state.iter().find(|(name, _)| name == namespace).map(|(_, value)| value),
        _ => None,
    }
}

/// One value; the whole map of the namespace for an empty key.
pub(super) unsafe extern "C" fn get(
    which: c_int,
    namespace: *const c_char,
    namespace_length: usize,
    key: *const c_char,
    key_length: usize,
    out: *mut Plain,
) -> c_int {
    with(|turn| {
        // SAFETY: the SDK passes Lua strings with their lengths, and a place of its own for the answer.
        let (namespace, key, out) = unsafe { (take(namespace, namespace_length), take(key, key_length), out.as_mut()) };
        let (Ok(namespace), Ok(key), Some(out)) = (std::str::from_utf8(namespace), std::str::from_utf8(key), out)
        else {
            return NONE;
        };
        let mut bytes = std::mem::take(&mut turn.scratch.bytes);
        bytes.clear();
        let plain = match find(turn, which, namespace, key) {
            None | Some(Value::Null) => None,
            Some(Value::Bool(value)) => Some((BOOL, f64::from(u8::from(*value)))),
            Some(Value::Number(number)) => Some((NUMBER, *number)),
            Some(Value::Integer(number)) => Some((NUMBER, *number as f64)),
            Some(Value::String(text)) => {
                bytes.extend_from_slice(text.as_bytes());
                Some((STRING, 0.0))
            }
            Some(list @ Value::List(_)) => {
                bytes.extend_from_slice(json::to_json_text(list).as_bytes());
                Some((LIST, 0.0))
            }
            Some(map @ Value::Map(_)) => {
                bytes.extend_from_slice(json::to_json_text(map).as_bytes());
                Some((MAP, 0.0))
            }
        };
        turn.scratch.bytes = bytes;
        let Some((kind, number)) = plain else { return NONE };
        out.kind = kind;
        out.number = number;
        // SAFETY: a field of the SDK's own place.
        unsafe { put(&mut out.text, &turn.scratch.bytes) };
        OK
    })
}

/// Sets a value of the dynamic metadata, or (namespace as its key) of the filter state. Tables come as JSON.
pub(super) unsafe extern "C" fn set(
    which: c_int,
    namespace: *const c_char,
    namespace_length: usize,
    key: *const c_char,
    key_length: usize,
    kind: c_int,
    number: c_double,
    text: *const c_char,
    length: usize,
) -> c_int {
    with(|turn| {
        // Of a table each value takes some room of its own, however short its text is.
        let length_held =
            if matches!(kind, LIST | MAP) { length.saturating_mul(size_of::<Value>() / 2) } else { length };
        if !turn.may_hold(namespace_length + key_length + length_held + size_of::<(String, Value)>()) {
            return LIMIT;
        }
        let Some(stream) = &mut turn.stream else { return NOT_HERE };
        // SAFETY: as in `get`.
        let (namespace, key, text) =
            unsafe { (take(namespace, namespace_length), take(key, key_length), take(text, length)) };
        let (namespace, key) = (String::from_utf8_lossy(namespace), String::from_utf8_lossy(key));
        let text = String::from_utf8_lossy(text);
        let value = match kind {
            0 => Value::Null,
            BOOL => Value::Bool(number != 0.0),
            NUMBER => Value::Number(number),
            STRING => Value::String(text.into_owned()),
            LIST | MAP => match json::from_json_text(&text) {
                Ok(value) => value,
                Err(_) => return INVALID,
            },
            _ => return INVALID,
        };
        match which {
            DYNAMIC => stream.info.metadata.set(&namespace, &key, value),
            // The key is what makes the object: where nothing here does, a text is put there that nobody acts upon.
            FILTER_STATE => match (ObjectKind::of(&key), &value) {
                (Some(kind), Value::String(text)) => {
                    if !stream.info.make_state(&namespace, kind, text.as_bytes(), false) {
                        return INVALID;
                    }
                }
                _ => stream.info.set_state(&namespace, value),
            },
            _ => return INVALID,
        }
        OK
    })
}

/// The namespaces of the dynamic metadata, by cursor from 0; -1 behind the last.
pub(super) unsafe extern "C" fn namespace(which: c_int, cursor: c_int, out: *mut Text) -> c_int {
    with(|turn| {
        let Some(stream) = &turn.stream else { return NOT_HERE };
        let metadata = match which {
            CONNECTION => stream.info.connection.as_ref().map(|noted| &noted.metadata),
            _ => Some(&stream.info.metadata),
        };
        let at = usize::try_from(cursor).ok();
        let Some((name, _)) = metadata.zip(at).and_then(|(metadata, at)| metadata.iter().nth(at)) else {
            return NOT_HERE;
        };
        // SAFETY: as in `get`.
        unsafe { put(out, name.as_bytes()) };
        cursor + 1
    })
}

/// A number that tells the configurations that a route can see apart; 0 without one.
pub(super) unsafe extern "C" fn route_config_id() -> c_double {
    let mut id = 0.0;
    with(|turn| {
        id = turn.view.route_config_id;
        OK
    });
    id
}

/// Validates `value` (JSON) against a JSON Schema; the first errors as text in `out`.
pub(super) unsafe extern "C" fn check_schema(
    schema: *const c_char,
    schema_length: usize,
    value: *const c_char,
    length: usize,
    out: *mut Text,
) -> c_int {
    with(|turn| {
        // SAFETY: as in `get`.
        let (schema, value) = unsafe { (take(schema, schema_length), take(value, length)) };
        let errors = crate::schema::check(schema, value);
        turn.scratch.bytes.clear();
        turn.scratch.bytes.extend_from_slice(errors.join("; ").as_bytes());
        // SAFETY: as in `get`.
        unsafe { put(out, &turn.scratch.bytes) };
        if errors.is_empty() { OK } else { INVALID }
    })
}

/// Whether `schema` (JSON) is a JSON Schema; what is wrong with it as text in `out`.
pub(super) unsafe extern "C" fn check_is_schema(schema: *const c_char, length: usize, out: *mut Text) -> c_int {
    with(|turn| {
        // SAFETY: as in `get`.
        let errors = crate::schema::compile(unsafe { take(schema, length) }).err().unwrap_or_default();
        turn.scratch.bytes.clear();
        turn.scratch.bytes.extend_from_slice(errors.join("; ").as_bytes());
        // SAFETY: as in `get`.
        unsafe { put(out, &turn.scratch.bytes) };
        if errors.is_empty() { OK } else { INVALID }
    })
}

/// A text, or a number cut to a whole one, as text: what Rider's metadata functions tell of a value.
///
/// # Safety
/// `namespace` and `key` are null or strings with their lengths.
pub(super) unsafe fn text(
    which: c_int,
    namespace: *const c_char,
    namespace_length: usize,
    key: *const c_char,
    key_length: usize,
) -> Option<String> {
    let mut answer = None;
    with(|turn| {
        // SAFETY: by the contract above.
        let (namespace, key) = unsafe { (take(namespace, namespace_length), take(key, key_length)) };
        if let (Ok(namespace), Ok(key)) = (std::str::from_utf8(namespace), std::str::from_utf8(key)) {
            answer = match find(turn, which, namespace, key) {
                Some(Value::String(text)) => Some(text.clone()),
                Some(Value::Integer(number)) => Some(number.to_string()),
                // Zero is added so that none is negative.
                Some(Value::Number(number)) => Some(format!("{:.0}", number.trunc() + 0.0)),
                _ => None,
            };
        }
        OK
    });
    answer
}
