//! Metadata and filter state: what filters note for each other and for logs.

use std::ffi::c_int;
use std::sync::Arc;

use postrider_filter_api::{StateRules, Stream, StreamInfo};
use postrider_model::{Metadata, Value};

use super::{instance, notes, put};
use crate::abi::{Buffer, Header, StreamRef, items};
use crate::instance::Instance;

/// Where a function looks.
const DYNAMIC: c_int = 0;
const ROUTE: c_int = 1;
const CLUSTER: c_int = 2;
const HOST: c_int = 3;
const LOCALITY: c_int = 4;

unsafe fn notes_of<'a>(handle: StreamRef) -> Option<&'a mut StreamInfo> {
    // SAFETY: the caller is a module that follows the interface and runs no other function of this one's meanwhile.
    unsafe { instance(handle).and_then(|instance| instance.notes()) }
}

unsafe fn name<'a>(text: Buffer) -> &'a str {
    // SAFETY: as in `notes_of`. What is no text names nothing.
    std::str::from_utf8(unsafe { text.bytes() }).unwrap_or_default()
}

unsafe fn found<'a>(handle: StreamRef, from: c_int) -> Option<&'a Metadata> {
    // SAFETY: as in `notes_of`.
    source(unsafe { instance(handle) }?, from)
}

/// What is known from there.
pub(super) fn source(instance: &Instance, source: c_int) -> Option<&Metadata> {
    if source == DYNAMIC {
        return Some(&instance.info()?.metadata);
    }
    // SAFETY: no other function of this module's runs, and what is found lies in the route or is kept.
    let stream = unsafe { instance.stream() }?;
    match source {
        ROUTE => stream.route.map(|route| &*route.metadata),
        CLUSTER..=LOCALITY => {
            let kept = instance.keep_metadata(usize::try_from(source - CLUSTER).ok()?, around(stream, source)?)?;
            // SAFETY: it is kept until a hook finds another one in its place, or the stream is over.
            unsafe { kept.as_ref() }
        }
        _ => None,
    }
}

/// What the cluster that the request goes to says, and the host that it went to.
#[cold]
fn around(stream: &Stream<'_>, source: c_int) -> Option<Arc<Metadata>> {
    let cluster = stream.cluster()?;
    let around = stream.info.surroundings.as_ref()?;
    if source == CLUSTER {
        return around.cluster(&cluster)?.metadata;
    }
    let host = around.endpoint(&cluster, stream.info.upstream_remote.as_deref()?)?;
    match source {
        HOST => host.metadata.clone(),
        _ => host.place.as_ref()?.metadata.clone(),
    }
}

unsafe fn value<'a>(handle: StreamRef, from: c_int, namespace: Buffer, key: Buffer) -> Option<&'a Value> {
    // SAFETY: as in `notes_of`.
    unsafe { found(handle, from)?.get(name(namespace), name(key)) }
}

unsafe fn note(handle: StreamRef, namespace: Buffer, key: Buffer, value: Value) {
    // SAFETY: as in `notes_of`.
    let (notes, namespace, key) = unsafe { (notes_of(handle), name(namespace), name(key)) };
    if let Some(notes) = notes {
        notes.metadata.set(namespace, key, value);
    }
}

fn text_of(bytes: &[u8]) -> Value {
    Value::String(String::from_utf8_lossy(bytes).into_owned())
}

pub(super) unsafe fn set_number(handle: StreamRef, namespace: Buffer, key: Buffer, number: f64) {
    // SAFETY: as in `notes_of`.
    unsafe { note(handle, namespace, key, Value::Number(number)) };
}

pub(super) unsafe fn set_text(handle: StreamRef, namespace: Buffer, key: Buffer, text: Buffer) {
    // SAFETY: as in `notes_of`.
    unsafe { note(handle, namespace, key, text_of(text.bytes())) };
}

/// Several texts of a namespace, each a name with a value.
pub(super) unsafe fn set_texts(handle: StreamRef, namespace: Buffer, entries: *const Header, count: usize) {
    // SAFETY: as in `notes_of`.
    for entry in unsafe { items(entries, count) } {
        // SAFETY: as in `notes_of`.
        let (key, text) = unsafe { entry.parts() };
        // SAFETY: as in `notes_of`.
        unsafe { note(handle, namespace, Buffer::of(key), text_of(text)) };
    }
}

pub(super) unsafe fn set_bool(handle: StreamRef, namespace: Buffer, key: Buffer, truth: bool) {
    // SAFETY: as in `notes_of`.
    unsafe { note(handle, namespace, key, Value::Bool(truth)) };
}

pub(super) fn as_number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => Some(*number),
        Value::Integer(number) => Some(*number as f64),
        _ => None,
    }
}

pub(super) fn as_text(value: &Value) -> Option<Buffer> {
    match value {
        Value::String(text) => Some(Buffer::of(text.as_bytes())),
        _ => None,
    }
}

pub(super) fn as_bool(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(truth) => Some(*truth),
        _ => None,
    }
}

unsafe fn answer<T>(found: Option<T>, out: *mut T) -> bool {
    // SAFETY: as in `notes_of`.
    found.map(|found| unsafe { put(out, found) }).is_some()
}

pub(super) unsafe fn number(handle: StreamRef, from: c_int, namespace: Buffer, key: Buffer, out: *mut f64) -> bool {
    // SAFETY: as in `notes_of`.
    unsafe { answer(value(handle, from, namespace, key).and_then(as_number), out) }
}

pub(super) unsafe fn text(handle: StreamRef, from: c_int, namespace: Buffer, key: Buffer, out: *mut Buffer) -> bool {
    // SAFETY: as in `notes_of`.
    unsafe { answer(value(handle, from, namespace, key).and_then(as_text), out) }
}

pub(super) unsafe fn truth(handle: StreamRef, from: c_int, namespace: Buffer, key: Buffer, out: *mut bool) -> bool {
    // SAFETY: as in `notes_of`.
    unsafe { answer(value(handle, from, namespace, key).and_then(as_bool), out) }
}

unsafe fn entries<'a>(handle: StreamRef, from: c_int, namespace: Buffer) -> Option<&'a [(String, Value)]> {
    // SAFETY: as in `notes_of`.
    match unsafe { found(handle, from)?.namespace(name(namespace)) }? {
        Value::Map(entries) => Some(entries),
        _ => None,
    }
}

pub(super) unsafe fn key_count(handle: StreamRef, from: c_int, namespace: Buffer) -> usize {
    // SAFETY: as in `notes_of`.
    unsafe { entries(handle, from, namespace) }.map_or(0, <[_]>::len)
}

pub(super) unsafe fn keys(handle: StreamRef, from: c_int, namespace: Buffer, out: *mut Buffer) -> bool {
    // SAFETY: as in `notes_of`.
    let Some(entries) = (unsafe { entries(handle, from, namespace) }) else { return false };
    for (at, (key, _)) in entries.iter().enumerate() {
        // SAFETY: the module has room for as many as `key_count` says.
        unsafe { put(out.add(at), Buffer::of(key.as_bytes())) };
    }
    true
}

pub(super) unsafe fn namespace_count(handle: StreamRef, from: c_int) -> usize {
    // SAFETY: as in `notes_of`.
    unsafe { found(handle, from) }.map_or(0, |source| source.iter().count())
}

pub(super) unsafe fn namespaces(handle: StreamRef, from: c_int, out: *mut Buffer) -> bool {
    // SAFETY: as in `notes_of`.
    let Some(source) = (unsafe { found(handle, from) }) else { return false };
    for (at, (namespace, _)) in source.iter().enumerate() {
        // SAFETY: the module has room for as many as `namespace_count` says.
        unsafe { put(out.add(at), Buffer::of(namespace.as_bytes())) };
    }
    true
}

/// Appends to a list, which is made where there is nothing; `false` where there is something else.
unsafe fn append(handle: StreamRef, namespace: Buffer, key: Buffer, item: Value) -> bool {
    // SAFETY: as in `notes_of`.
    let (notes, namespace, key) = unsafe { (notes_of(handle), name(namespace), name(key)) };
    let Some(notes) = notes else { return false };
    let mut list = match notes.metadata.get(namespace, key) {
        None => Vec::new(),
        Some(Value::List(items)) => items.clone(),
        Some(_) => return false,
    };
    list.push(item);
    notes.metadata.set(namespace, key, Value::List(list));
    true
}

pub(super) unsafe fn add_number(handle: StreamRef, namespace: Buffer, key: Buffer, number: f64) -> bool {
    // SAFETY: as in `notes_of`.
    unsafe { append(handle, namespace, key, Value::Number(number)) }
}

pub(super) unsafe fn add_text(handle: StreamRef, namespace: Buffer, key: Buffer, text: Buffer) -> bool {
    // SAFETY: as in `notes_of`.
    unsafe { append(handle, namespace, key, text_of(text.bytes())) }
}

pub(super) unsafe fn add_bool(handle: StreamRef, namespace: Buffer, key: Buffer, truth: bool) -> bool {
    // SAFETY: as in `notes_of`.
    unsafe { append(handle, namespace, key, Value::Bool(truth)) }
}

unsafe fn list<'a>(handle: StreamRef, from: c_int, namespace: Buffer, key: Buffer) -> Option<&'a [Value]> {
    // SAFETY: as in `notes_of`.
    match unsafe { value(handle, from, namespace, key) }? {
        Value::List(items) => Some(items),
        _ => None,
    }
}

pub(super) unsafe fn list_size(
    handle: StreamRef,
    from: c_int,
    namespace: Buffer,
    key: Buffer,
    out: *mut usize,
) -> bool {
    // SAFETY: as in `notes_of`.
    unsafe { answer(list(handle, from, namespace, key).map(<[_]>::len), out) }
}

macro_rules! items_of_lists {
    ($($function:ident: $kind:ty = $as:ident;)*) => {$(
        pub(super) unsafe fn $function(
            handle: StreamRef, from: c_int, namespace: Buffer, key: Buffer, index: usize, out: *mut $kind,
        ) -> bool {
            // SAFETY: as in `notes_of`.
            unsafe { answer(list(handle, from, namespace, key).and_then(|items| $as(items.get(index)?)), out) }
        }
    )*};
}

items_of_lists! {
    list_number: f64 = as_number;
    list_text: Buffer = as_text;
    list_bool: bool = as_bool;
}

/// Puts bytes into the filter state, for as long as the filters of the request.
pub(super) unsafe fn set_state(handle: StreamRef, key: Buffer, value: Buffer) -> bool {
    // SAFETY: as in `notes_of`.
    let (instance, key, value) = unsafe { (instance(handle), name(key), value.bytes()) };
    instance.is_some_and(|instance| notes::set_state(instance, key, value, StateRules::default()))
}

pub(super) unsafe fn state(handle: StreamRef, key: Buffer, out: *mut Buffer) -> bool {
    // SAFETY: as in `notes_of`.
    let (info, key) = unsafe { (instance(handle).and_then(|instance| instance.info()), name(key)) };
    // SAFETY: as in `notes_of`.
    unsafe { answer(info.and_then(|info| notes::state(info, key)), out) }
}

pub(super) unsafe fn has_state(handle: StreamRef, key: Buffer) -> bool {
    // SAFETY: as in `notes_of`.
    let (info, key) = unsafe { (instance(handle).and_then(|instance| instance.info()), name(key)) };
    info.is_some_and(|info| {
        info.filter_state.iter().any(|(known, _)| known == key) || notes::object(info, key).is_some()
    })
}
