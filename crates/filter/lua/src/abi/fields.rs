//! Heads and trailers.

use std::ffi::{c_char, c_int};
use std::io::Write;

use postrider_filter_api::Stream;
use postrider_http::{Fields, RequestHead, ResponseHead, Scheme, with_lower_case};

use super::text::{put, take};
use super::turn::{Turn, with, with_stream};
use super::{INVALID, LIMIT, LOCKED, NONE, NOT_HERE, OK, Side, Text};
use crate::script::Script;

/// Which fields, as scripts number them.
const REQUEST: c_int = 0;
const RESPONSE: c_int = 1;
const REQUEST_TRAILERS: c_int = 2;
const RESPONSE_TRAILERS: c_int = 3;
/// The head of the answer to the last call.
const ANSWER: c_int = 4;
/// The answer that the script is putting together.
const REPLY: c_int = 5;
/// The call that the script is putting together.
const CALL: c_int = 6;

/// The pseudo fields of a request, in the order in which they are listed.
const PSEUDO: [&str; 4] = [":authority", ":path", ":method", ":scheme"];

/// A map of fields to read.
enum Map<'a> {
    Request(&'a RequestHead),
    Response(&'a ResponseHead),
    Plain(&'a Fields),
}

fn read<'a>(map: c_int, stream: &'a Stream<'_>, script: &'a Script) -> Option<Map<'a>> {
    Some(match map {
        REQUEST if !script.half(Side::Request).headless => Map::Request(stream.request),
        RESPONSE if script.has_response && !script.half(Side::Response).headless => Map::Response(stream.response),
        REQUEST_TRAILERS => Map::Plain(stream.request_trailers),
        RESPONSE_TRAILERS => Map::Plain(stream.response_trailers),
        ANSWER => Map::Response(&script.answer()?.as_ref().ok()?.head),
        _ => return None,
    })
}

impl<'a> Map<'a> {
    /// The value of a pseudo field; `None` when `name` is not one of this map. `host` is the authority.
    fn pseudo(&self, name: &[u8], digits: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        // Most names begin otherwise.
        if !matches!(name.first(), Some(b':' | b'h')) {
            return None;
        }
        match self {
            Map::Request(head) => Some(match name {
                b":authority" | b"host" => head.authority(),
                b":path" => head.path(),
                b":method" => head.method_bytes(),
                b":scheme" => head.scheme().map_or("http", Scheme::as_str).as_bytes(),
                _ => return None,
            }),
            Map::Response(head) if name == b":status" => {
                digits.clear();
                // Writing to a vector cannot fail.
                let _ = write!(digits, "{}", head.status());
                Some(digits)
            }
            Map::Response(_) | Map::Plain(_) => None,
        }
    }

    fn fields(&self) -> &'a Fields {
        match self {
            Map::Request(head) => &head.fields,
            Map::Response(head) => &head.fields,
            Map::Plain(fields) => fields,
        }
    }

    fn pseudo_names(&self) -> &'static [&'static str] {
        match self {
            Map::Request(_) => &PSEUDO,
            Map::Response(_) => &[":status"],
            Map::Plain(_) => &[],
        }
    }

    /// The fields behind the pseudo ones.
    fn plain(&self) -> impl Iterator<Item = postrider_http::FieldRef<'a>> + use<'a> {
        let is_request = matches!(self, Map::Request(_));
        self.fields().iter().filter(move |field| !(is_request && field.id == postrider_http::HeaderId::Host))
    }
}

/// All values of a field, joined by commas.
pub(super) unsafe extern "C" fn get(map: c_int, name: *const c_char, length: usize, out: *mut Text) -> c_int {
    with_stream(|stream, scratch, script| {
        let Some(map) = read(map, stream, script) else { return NOT_HERE };
        // SAFETY: the SDK passes a Lua string with its length, and a place of its own for the answer.
        let name = unsafe { take(name, length) };
        with_lower_case(name, |name| {
            if let Some(value) = map.pseudo(name, &mut scratch.bytes) {
                // SAFETY: as above.
                unsafe { put(out, value) };
                return if value.is_empty() { NONE } else { OK };
            }
            let fields = map.fields();
            let mut values = fields.get_all_name(name);
            let Some(first) = values.next() else { return NONE };
            let joined = match values.next() {
                None => first,
                Some(second) => {
                    scratch.bytes.clear();
                    scratch.bytes.extend_from_slice(first);
                    for value in [second].into_iter().chain(values) {
                        scratch.bytes.push(b',');
                        scratch.bytes.extend_from_slice(value);
                    }
                    &scratch.bytes
                }
            };
            // SAFETY: as above.
            unsafe { put(out, joined) };
            OK
        })
    })
}

/// How many values a field has.
pub(super) unsafe extern "C" fn count(map: c_int, name: *const c_char, length: usize) -> c_int {
    with_stream(|stream, scratch, script| {
        let Some(map) = read(map, stream, script) else { return 0 };
        // SAFETY: as in `get`.
        with_lower_case(unsafe { take(name, length) }, |name| match map.pseudo(name, &mut scratch.bytes) {
            Some(value) => c_int::from(!value.is_empty()),
            None => c_int::try_from(map.fields().get_all_name(name).count()).unwrap_or(c_int::MAX),
        })
    })
}

/// One of a field's values, from 0.
pub(super) unsafe extern "C" fn at(
    map: c_int,
    name: *const c_char,
    length: usize,
    index: c_int,
    out: *mut Text,
) -> c_int {
    with_stream(|stream, scratch, script| {
        let Some(map) = read(map, stream, script) else { return NOT_HERE };
        let Ok(index) = usize::try_from(index) else { return NONE };
        // SAFETY: as in `get`.
        with_lower_case(unsafe { take(name, length) }, |name| {
            let value = match map.pseudo(name, &mut scratch.bytes) {
                Some(value) => Some(value).filter(|value| index == 0 && !value.is_empty()),
                None => map.fields().get_all_name(name).nth(index),
            };
            let Some(value) = value else { return NONE };
            // SAFETY: as in `get`.
            unsafe { put(out, value) };
            OK
        })
    })
}

/// How many fields there are, pseudo ones included.
pub(super) unsafe extern "C" fn len(map: c_int) -> c_int {
    with_stream(|stream, _, script| {
        let Some(map) = read(map, stream, script) else { return NOT_HERE };
        c_int::try_from(map.pseudo_names().len() + map.plain().count()).unwrap_or(c_int::MAX)
    })
}

/// The field at a cursor that begins with 0; answers the next cursor, or -1 behind the last.
pub(super) unsafe extern "C" fn next(map: c_int, cursor: c_int, name: *mut Text, value: *mut Text) -> c_int {
    with_stream(|stream, scratch, script| {
        let (Some(map), Ok(at)) = (read(map, stream, script), usize::try_from(cursor)) else { return NOT_HERE };
        let pseudo = map.pseudo_names();
        let (found, text) = match pseudo.get(at) {
            Some(found) => (found.as_bytes(), map.pseudo(found.as_bytes(), &mut scratch.bytes).unwrap_or_default()),
            None => match map.plain().nth(at - pseudo.len()) {
                Some(field) => (field.name, field.value),
                None => return NOT_HERE,
            },
        };
        // SAFETY: as in `get`.
        unsafe {
            put(name, found);
            put(value, text);
        }
        cursor + 1
    })
}

enum Edit {
    Set,
    Add,
}

/// Replaces all values of a field by one.
pub(super) unsafe extern "C" fn set(
    map: c_int,
    name: *const c_char,
    length: usize,
    value: *const c_char,
    value_length: usize,
) -> c_int {
    // SAFETY: as in `get`.
    let (name, value) = unsafe { (take(name, length), take(value, value_length)) };
    with(|turn| edit(map, Edit::Set, name, value, turn))
}

/// Adds a value to a field.
pub(super) unsafe extern "C" fn add(
    map: c_int,
    name: *const c_char,
    length: usize,
    value: *const c_char,
    value_length: usize,
) -> c_int {
    // SAFETY: as in `get`.
    let (name, value) = unsafe { (take(name, length), take(value, value_length)) };
    with(|turn| edit(map, Edit::Add, name, value, turn))
}

fn edit(map: c_int, edit: Edit, name: &[u8], value: &[u8], turn: &mut Turn<'_, '_>) -> c_int {
    if !turn.may_hold(name.len() + value.len()) {
        return LIMIT;
    }
    let Turn { stream: Some(stream), scratch, script, plugin, .. } = turn else { return NOT_HERE };
    if map == REQUEST && plugin.program.clears_route_cache && !script.has_response {
        stream.info.route_is_stale = true;
    }
    let done = match map {
        REQUEST if script.half(Side::Request).headless => return NOT_HERE,
        RESPONSE if script.half(Side::Response).headless => return NOT_HERE,
        REQUEST if script.is_released(Side::Request) => return LOCKED,
        RESPONSE if script.is_released(Side::Response) => return LOCKED,
        REQUEST => with_lower_case(name, |name| edit_request(stream.request, edit, name, value)),
        RESPONSE if !script.has_response => return NOT_HERE,
        RESPONSE => with_lower_case(name, |name| edit_response(stream.response, edit, name, value)),
        REQUEST_TRAILERS => edit_fields(stream.request_trailers, edit, name, value),
        RESPONSE_TRAILERS => edit_fields(stream.response_trailers, edit, name, value),
        REPLY => {
            let Some(reply) = &mut scratch.reply else { return NOT_HERE };
            if !postrider_http::is_field_value(value) || postrider_http::HeaderName::new(name).is_err() {
                return INVALID;
            }
            let name = String::from_utf8_lossy(name).to_ascii_lowercase();
            reply.headers.push((name.into(), value.to_vec().into()));
            true
        }
        CALL => with_lower_case(name, |name| edit_request(&mut scratch.call.head, edit, name, value)),
        _ => return NOT_HERE,
    };
    if !done && map == REQUEST && !script.has_response && !postrider_http::is_field_value(value) {
        script.unsendable = true;
    }
    if done { OK } else { INVALID }
}

fn edit_request(head: &mut RequestHead, edit: Edit, name: &[u8], value: &[u8]) -> bool {
    match name {
        // Most names begin otherwise than the special ones.
        [first, ..] if !matches!(first, b':' | b'h') => edit_fields(&mut head.fields, edit, name, value),
        b":authority" | b"host" => head.set_authority(value).is_ok(),
        b":path" => head.set_path(value).is_ok(),
        b":method" => head.set_method(value).is_ok(),
        b":scheme" => match value {
            b"http" => {
                head.set_scheme(Scheme::Http);
                true
            }
            b"https" => {
                head.set_scheme(Scheme::Https);
                true
            }
            _ => false,
        },
        name if name.starts_with(b":") => false,
        name => edit_fields(&mut head.fields, edit, name, value),
    }
}

fn edit_response(head: &mut ResponseHead, edit: Edit, name: &[u8], value: &[u8]) -> bool {
    match name {
        b":status" => match std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()) {
            Some(status @ 200..=599) => {
                head.set_status(status);
                true
            }
            _ => false,
        },
        name if name.starts_with(b":") => false,
        name => edit_fields(&mut head.fields, edit, name, value),
    }
}

fn edit_fields(fields: &mut Fields, edit: Edit, name: &[u8], value: &[u8]) -> bool {
    match edit {
        Edit::Set => fields.set_name(name, value).is_ok(),
        Edit::Add => fields.append_name(name, value).is_ok(),
    }
}

/// Removes a field; one that is not there is all right. Pseudo fields cannot go.
pub(super) unsafe extern "C" fn remove(map: c_int, name: *const c_char, length: usize) -> c_int {
    // SAFETY: as in `get`.
    let name = unsafe { take(name, length) };
    with(|turn| {
        let Turn { stream: Some(stream), script, plugin, .. } = turn else { return NOT_HERE };
        if map == REQUEST && plugin.program.clears_route_cache && !script.has_response {
            stream.info.route_is_stale = true;
        }
        let fields = match map {
            REQUEST if script.half(Side::Request).headless => return NOT_HERE,
            RESPONSE if script.half(Side::Response).headless => return NOT_HERE,
            REQUEST if script.is_released(Side::Request) => return LOCKED,
            RESPONSE if script.is_released(Side::Response) => return LOCKED,
            REQUEST if name.eq_ignore_ascii_case(b"host") => return INVALID,
            REQUEST => &mut stream.request.fields,
            RESPONSE if script.has_response => &mut stream.response.fields,
            REQUEST_TRAILERS => &mut *stream.request_trailers,
            RESPONSE_TRAILERS => &mut *stream.response_trailers,
            _ => return NOT_HERE,
        };
        if name.starts_with(b":") {
            return INVALID;
        }
        fields.remove_name(name);
        OK
    })
}

/// Removes all fields but the pseudo ones.
pub(super) unsafe extern "C" fn clear(map: c_int) -> c_int {
    with_stream(|stream, _, script| {
        match map {
            REQUEST if script.half(Side::Request).headless => return NOT_HERE,
            RESPONSE if script.half(Side::Response).headless => return NOT_HERE,
            REQUEST if script.is_released(Side::Request) => return LOCKED,
            RESPONSE if script.is_released(Side::Response) => return LOCKED,
            REQUEST => stream.request.fields.retain(|field| field.id == postrider_http::HeaderId::Host),
            RESPONSE if script.has_response => stream.response.fields.retain(|_| false),
            _ => return NOT_HERE,
        };
        OK
    })
}

/// Whether a message could carry this field; an empty value is all right. Pseudo fields count by their form only.
pub(super) unsafe extern "C" fn check(
    name: *const c_char,
    length: usize,
    value: *const c_char,
    value_length: usize,
) -> c_int {
    // SAFETY: as in `get`.
    let (name, value) = unsafe { (take(name, length), take(value, value_length)) };
    let plain = name.strip_prefix(b":").unwrap_or(name);
    if postrider_http::is_token(plain) && postrider_http::is_field_value(value) { OK } else { INVALID }
}
