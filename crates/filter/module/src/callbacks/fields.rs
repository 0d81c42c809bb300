//! Heads and trailers.

use std::ffi::c_int;

use postrider_filter_api::Stream;
use postrider_http::{Decimal, FieldRef, Fields, HeaderId, RequestHead, ResponseHead, Scheme};

use super::{instance, put};
use crate::abi::{Buffer, Header, StreamRef, map as kind};
use crate::instance::Instance;

/// Fields to read.
#[derive(Clone, Copy)]
pub(super) enum Map<'a> {
    Request(&'a RequestHead),
    Response(&'a ResponseHead),
    Plain(&'a Fields),
}

/// The pseudo fields of a request, in the order in which they are listed.
const PSEUDO: [&str; 4] = [":authority", ":path", ":method", ":scheme"];

/// `None` when the message has no such fields, or not yet.
fn read<'a>(map: c_int, stream: &'a Stream<'_>) -> Option<Map<'a>> {
    Some(match map {
        kind::REQUEST_HEADERS => Map::Request(stream.request),
        kind::RESPONSE_HEADERS if stream.info.status != 0 => Map::Response(stream.response),
        kind::REQUEST_TRAILERS if !stream.request_trailers.is_empty() => Map::Plain(stream.request_trailers),
        kind::RESPONSE_TRAILERS if !stream.response_trailers.is_empty() => Map::Plain(stream.response_trailers),
        _ => return None,
    })
}

/// The same where a hook may only look: as the stream ends, too.
fn found(instance: &Instance, map: c_int) -> Option<Map<'_>> {
    // SAFETY: no other function of this module's runs.
    if let Some(stream) = unsafe { instance.stream() } {
        return read(map, stream);
    }
    let ended = instance.ended()?;
    Some(match map {
        // A head that cannot be understood has no method.
        kind::REQUEST_HEADERS if !ended.request.method_bytes().is_empty() => Map::Request(ended.request),
        kind::RESPONSE_HEADERS if ended.info.status != 0 => Map::Response(ended.response),
        kind::REQUEST_TRAILERS if !ended.request_trailers.is_empty() => Map::Plain(ended.request_trailers),
        kind::RESPONSE_TRAILERS if !ended.response_trailers.is_empty() => Map::Plain(ended.response_trailers),
        _ => return None,
    })
}

/// Makes a text for the module that lies nowhere else.
type Lend<'l> = &'l dyn Fn(&[u8]) -> Buffer;

impl<'a> Map<'a> {
    /// The value of a pseudo field; `None` when `name` is not one of this map. `host` is the authority.
    fn pseudo(self, name: &[u8], lend: Lend<'_>) -> Option<Buffer> {
        match self {
            Map::Request(head) => Some(Buffer::of(match name {
                b":authority" | b"host" => head.authority(),
                b":path" => head.path(),
                b":method" => head.method_bytes(),
                b":scheme" => head.scheme().map_or("http", Scheme::as_str).as_bytes(),
                _ => return None,
            })),
            Map::Response(head) if name == b":status" => Some(lend(Decimal::new(u64::from(head.status())).as_bytes())),
            Map::Response(_) | Map::Plain(_) => None,
        }
    }

    fn fields(self) -> &'a Fields {
        match self {
            Map::Request(head) => &head.fields,
            Map::Response(head) => &head.fields,
            Map::Plain(fields) => fields,
        }
    }

    fn pseudo_names(self) -> &'static [&'static str] {
        match self {
            Map::Request(_) => &PSEUDO,
            Map::Response(_) => &[":status"],
            Map::Plain(_) => &[],
        }
    }

    /// The fields behind the pseudo ones.
    fn plain(self) -> impl Iterator<Item = FieldRef<'a>> {
        let is_request = matches!(self, Map::Request(_));
        self.fields().iter().filter(move |field| !(is_request && field.id == HeaderId::Host))
    }

    /// How many fields there are, pseudo ones included.
    pub(super) fn count(self) -> usize {
        self.pseudo_names().len() + self.plain().count()
    }

    /// Every field, pseudo ones first.
    fn pairs(self, lend: Lend<'_>) -> impl Iterator<Item = Header> {
        let pseudo = self.pseudo_names().iter().map(move |name| {
            let value = self.pseudo(name.as_bytes(), lend).unwrap_or(Buffer::NOTHING);
            Header {
                name: name.as_ptr().cast(),
                name_length: name.len(),
                value: value.start,
                value_length: value.length,
            }
        });
        pseudo.chain(self.plain().map(|field| Header::of(field.name, field.value)))
    }

    /// # Safety
    /// There is room for as many as [`Map::count`] says.
    pub(super) unsafe fn put_all(self, lend: Lend<'_>, out: *mut Header) -> bool {
        for (at, header) in self.pairs(lend).enumerate() {
            // SAFETY: by the contract above.
            unsafe { put(out.add(at), header) };
        }
        true
    }

    /// Bytes of all names and values.
    pub(super) fn bytes(self, lend: Lend<'_>) -> u64 {
        self.pairs(lend).map(|header| (header.name_length + header.value_length) as u64).sum()
    }
}

/// Runs `act` with the name in lower case.
fn lower<T>(name: &[u8], act: impl FnOnce(&[u8]) -> T) -> T {
    if !name.iter().any(u8::is_ascii_uppercase) {
        return act(name);
    }
    act(&name.to_ascii_lowercase())
}

/// One value of a field, and how many it has.
pub(super) unsafe fn get(
    handle: StreamRef,
    map: c_int,
    name: Buffer,
    out: *mut Buffer,
    index: usize,
    count: *mut usize,
) -> bool {
    // SAFETY: the caller is a module that follows the interface, here and below.
    let instance = unsafe { instance(handle) };
    let map = instance.and_then(|instance| found(instance, map));
    // What most ask for: the one value of a field by its name as it is kept.
    if index == 0
        && count.is_null()
        // SAFETY: as above.
        && let (Some(map), name) = (map, unsafe { name.bytes() })
        && !matches!(name, [b':', ..] | b"host")
        && let Some(value) = map.fields().get_name(name)
    {
        // SAFETY: as above.
        unsafe { put(out, Buffer::of(value)) };
        return true;
    }
    let lend = |text: &[u8]| instance.map_or(Buffer::NOTHING, |instance| instance.lend(text));
    // SAFETY: as above.
    unsafe { put_one(map, &lend, name, out, index, count) }
}

/// # Safety
/// The name is there; so is room for a text and a number where they are not null.
pub(super) unsafe fn put_one(
    map: Option<Map<'_>>,
    lend: Lend<'_>,
    name: Buffer,
    out: *mut Buffer,
    index: usize,
    count: *mut usize,
) -> bool {
    // SAFETY: by the contract above.
    let name = unsafe { name.bytes() };
    let found = map.map(|map| {
        lower(name, |name| {
            if let Some(value) = map.pseudo(name, lend) {
                return ((index == 0).then_some(value), 1);
            }
            let fields = map.fields();
            let mut values = fields.get_all_name(name);
            let value = values.by_ref().nth(index).map(Buffer::of);
            let seen = if value.is_some() { index + 1 } else { 0 };
            let all = match (value, count.is_null()) {
                (_, true) => seen,
                (Some(_), false) => seen + values.count(),
                (None, false) => fields.get_all_name(name).count(),
            };
            (value, all)
        })
    });
    let (value, all) = found.unwrap_or_default();
    // SAFETY: by the contract above.
    unsafe {
        put(count, all);
        put(out, value.unwrap_or(Buffer::NOTHING));
    }
    value.is_some()
}

/// All values of a field.
pub(super) unsafe fn values(handle: StreamRef, map: c_int, name: Buffer, out: *mut Buffer) -> bool {
    // SAFETY: as in `get`.
    let (Some(instance), name) = (unsafe { (instance(handle), name.bytes()) }) else { return false };
    let Some(map) = found(instance, map) else { return false };
    lower(name, |name| {
        if let Some(value) = map.pseudo(name, &|text| instance.lend(text)) {
            // SAFETY: the module has room for as many as `get` counts.
            unsafe { put(out, value) };
            return true;
        }
        for (at, value) in map.fields().get_all_name(name).enumerate() {
            // SAFETY: as above.
            unsafe { put(out.add(at), Buffer::of(value)) };
        }
        true
    })
}

/// How many fields there are, pseudo ones included.
pub(super) unsafe fn count(handle: StreamRef, map: c_int) -> usize {
    // SAFETY: as in `get`.
    let instance = unsafe { instance(handle) };
    instance.and_then(|instance| found(instance, map)).map_or(0, Map::count)
}

/// Every field, pseudo ones first.
pub(super) unsafe fn all(handle: StreamRef, map: c_int, out: *mut Header) -> bool {
    // SAFETY: as in `get`.
    let Some(instance) = (unsafe { instance(handle) }) else { return false };
    let Some(map) = found(instance, map) else { return false };
    // SAFETY: the module has room for as many as `count` says.
    unsafe { map.put_all(&|text| instance.lend(text), out) }
}

enum Edit {
    Set,
    Add,
    Remove,
}

/// Adds a value to a field. As in Envoy, an empty one is not added.
pub(super) unsafe fn add(handle: StreamRef, map: c_int, name: Buffer, value: Buffer) -> bool {
    // SAFETY: as in `get`.
    !is_none(value) && unsafe { change(handle, map, Edit::Add, name, value) }
}

/// Replaces all values of a field by one; without one, removes the field. An empty value is none, as in Envoy.
pub(super) unsafe fn set(handle: StreamRef, map: c_int, name: Buffer, value: Buffer) -> bool {
    let edit = if is_none(value) { Edit::Remove } else { Edit::Set };
    // SAFETY: as in `get`.
    unsafe { change(handle, map, edit, name, value) }
}

fn is_none(value: Buffer) -> bool {
    value.start.is_null() || value.length == 0
}

unsafe fn change(handle: StreamRef, map: c_int, edit: Edit, name: Buffer, value: Buffer) -> bool {
    // SAFETY: as in `get`.
    let (name, value) = unsafe { (name.bytes(), value.bytes()) };
    // SAFETY: as in `get`.
    let Some(stream) = (unsafe { instance(handle).and_then(|instance| instance.stream()) }) else { return false };
    if read(map, stream).is_none() {
        return false;
    }
    lower(name, |name| match map {
        kind::REQUEST_HEADERS => change_request(stream.request, edit, name, value),
        kind::REQUEST_TRAILERS => change_fields(stream.request_trailers, edit, name, value),
        kind::RESPONSE_HEADERS => change_response(stream.response, edit, name, value),
        _ => change_fields(stream.response_trailers, edit, name, value),
    })
}

pub(super) fn set_of_request(head: &mut RequestHead, name: &[u8], value: &[u8]) -> bool {
    lower(name, |name| change_request(head, Edit::Add, name, value))
}

/// What is not well-formed is left out.
pub(super) fn set_of_response(head: &mut ResponseHead, name: &[u8], value: &[u8]) -> bool {
    lower(name, |name| change_response(head, Edit::Add, name, value))
}

fn change_request(head: &mut RequestHead, edit: Edit, name: &[u8], value: &[u8]) -> bool {
    match (name, edit) {
        (b"host" | [b':', ..], Edit::Remove) => false,
        (b":authority" | b"host", _) => head.set_authority(value).is_ok(),
        (b":path", _) => head.set_path(value).is_ok(),
        (b":method", _) => head.set_method(value).is_ok(),
        (b":scheme", _) => match value {
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
        ([b':', ..], _) => false,
        (name, edit) => change_fields(&mut head.fields, edit, name, value),
    }
}

fn change_response(head: &mut ResponseHead, edit: Edit, name: &[u8], value: &[u8]) -> bool {
    match (name, edit) {
        (b":status", Edit::Set | Edit::Add) => match status(value) {
            Some(status) => {
                head.set_status(status);
                true
            }
            None => false,
        },
        ([b':', ..], _) => false,
        (name, edit) => change_fields(&mut head.fields, edit, name, value),
    }
}

/// A final status.
pub(super) fn status(value: &[u8]) -> Option<u16> {
    std::str::from_utf8(value).ok()?.parse().ok().filter(|status| (200..=599).contains(status))
}

fn change_fields(fields: &mut Fields, edit: Edit, name: &[u8], value: &[u8]) -> bool {
    match edit {
        Edit::Set => fields.set_name(name, value).is_ok(),
        Edit::Add => fields.append_name(name, value).is_ok(),
        Edit::Remove => {
            fields.remove_name(name);
            true
        }
    }
}
