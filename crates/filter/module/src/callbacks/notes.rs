//! What a module notes of a stream beside plain values: whole namespaces, messages, flags, and objects of its own.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{LifeSpan, ObjectKind, StateRules, StreamInfo};
use postrider_model::{Packed, Value};
use postrider_telemetry::warning;

use super::metadata::{self, as_text};
use super::moments::{Moments, View, moments};
use super::{Symbol, give, put};
use crate::abi::Buffer;
use crate::config::Config;
use crate::instance::Instance;
use crate::wire;

about! {
    /// Their names.
    OF_NOTES: Instance;

    envoy_dynamic_module_callback_http_set_dynamic_metadata_struct(namespace: Buffer, fields: Buffer) -> ()
        = |instance, namespace, fields| set_struct(instance, name(namespace), fields.bytes());
    envoy_dynamic_module_callback_http_set_dynamic_typed_metadata(namespace: Buffer, any: Buffer) -> ()
        = |instance, namespace, any| set_message(instance, name(namespace), any.bytes());
    envoy_dynamic_module_callback_http_get_typed_metadata(source: c_int, namespace: Buffer, kind: *mut Buffer, value: *mut Buffer) -> bool
        = |instance, source, namespace, kind, value| {
            let Some(found) = metadata::source(instance, source).and_then(|source| source.typed(name(namespace))) else {
                return false;
            };
            put(kind, Buffer::of(found.kind.as_bytes()));
            put(value, Buffer::of(&found.bytes));
            true
        };

    envoy_dynamic_module_callback_http_add_custom_flag(flag: Buffer) -> ()
        = |instance, flag| {
            if let (Some(notes), Ok(flag)) = (instance.notes(), std::str::from_utf8(flag.bytes())) {
                notes.add_custom_flag(flag);
            }
        };

    envoy_dynamic_module_callback_http_get_timing_info(out: *mut Moments) -> ()
        = |instance, out| put(out, moments(instance.info(), View::REQUEST));

    envoy_dynamic_module_callback_http_get_upstream_hosts_attempted_size() -> usize
        = |instance| usize::from(host(instance).is_some());
    envoy_dynamic_module_callback_http_get_upstream_hosts_attempted(out: *mut Buffer) -> bool
        = |instance, out| {
            give(out, host(instance));
            instance.info().is_some()
        };
    envoy_dynamic_module_callback_http_get_upstream_connection_ids_attempted_size() -> usize
        = |instance| usize::from(connection(instance).is_some());
    envoy_dynamic_module_callback_http_get_upstream_connection_ids_attempted(out: *mut u64) -> bool
        = |instance, out| {
            give(out, connection(instance));
            instance.info().is_some()
        };

    envoy_dynamic_module_callback_http_set_filter_state_value(key: Buffer, value: Buffer, span: c_int, shared: c_int) -> bool
        = |instance, key, value, span, shared| {
            let Some(span) = span_of(span) else { return false };
            let rules = StateRules { span, shared: shared != 0, ..StateRules::default() };
            set_state(instance, name(key), value.bytes(), rules)
        };
    envoy_dynamic_module_callback_http_set_filter_state_typed(key: Buffer, value: Buffer) -> bool
        = |instance, key, value| {
            let key = name(key);
            let (Some(notes), Some(kind)) = (instance.notes(), ObjectKind::of(key)) else { return false };
            make_state(notes, key, kind, value.bytes())
        };
    envoy_dynamic_module_callback_http_get_filter_state_typed(key: Buffer, out: *mut Buffer) -> bool
        = |instance, key, out| give(out, instance.info().and_then(|info| serialised(info, name(key))));
    envoy_dynamic_module_callback_http_set_filter_state_object(key: Buffer, object: *mut c_void, destroy: Option<Destroy>, span: c_int) -> bool
        = |instance, key, object, destroy, span| {
            let object = Object { key: name(key).to_owned(), object, destroy, _config: instance.config().clone() };
            match (instance.notes(), span_of(span)) {
                (Some(notes), Some(span)) => set_object(notes, span, object),
                _ => false,
            }
        };
    envoy_dynamic_module_callback_http_get_filter_state_object(key: Buffer) -> Found
        = |instance, key| Found(instance.info().and_then(|info| object(info, name(key))).unwrap_or(std::ptr::null_mut()));
}

/// What the interface answers for an object; null when there is none.
#[repr(transparent)]
struct Found(*mut c_void);

impl Default for Found {
    fn default() -> Found {
        Found(std::ptr::null_mut())
    }
}

/// # Safety
/// The bytes are there for as long as the answer is used. What is no text names nothing.
unsafe fn name<'a>(text: Buffer) -> &'a str {
    // SAFETY: by the contract above.
    std::str::from_utf8(unsafe { text.bytes() }).unwrap_or_default()
}

fn host(instance: &Instance) -> Option<Buffer> {
    instance.info()?.upstream_remote.as_deref().map(|host| Buffer::of(host.as_bytes()))
}

fn connection(instance: &Instance) -> Option<u64> {
    instance.info().map(|info| info.upstream_connection_id).filter(|id| *id != 0)
}

/// Sets the values of a namespace, which is there from now on. What is no `Struct` changes nothing.
fn set_struct(instance: &Instance, namespace: &str, message: &[u8]) {
    // SAFETY: no other function of this module's runs.
    let notes = unsafe { instance.notes() };
    if let (Some(notes), Some(values)) = (notes, wire::fields(message)) {
        notes.metadata.merge(namespace, &values);
    }
}

/// Sets the message of a namespace. What is no `Any` changes nothing.
fn set_message(instance: &Instance, namespace: &str, any: &[u8]) {
    // SAFETY: no other function of this module's runs.
    let notes = unsafe { instance.notes() };
    let (Some(notes), Some((kind, value))) = (notes, wire::any(any)) else { return };
    notes.metadata.set_typed(namespace, Packed { kind: kind.into(), bytes: value.into() });
}

/// Nothing here stays longer than with the client's connection.
fn span_of(number: c_int) -> Option<LifeSpan> {
    LifeSpan::of(number).filter(|span| *span <= LifeSpan::Connection)
}

/// Puts bytes into the filter state. That something else stays there is told in the log, as in Envoy.
pub(super) fn set_state(instance: &Instance, key: &str, value: &[u8], rules: StateRules) -> bool {
    // SAFETY: no other function of this module's runs.
    let Some(notes) = (unsafe { instance.notes() }) else { return false };
    match notes.set_bytes(key, value, rules) {
        Ok(()) => drop(taken(notes, key)),
        Err(why) => stays(key, why),
    }
    true
}

#[cold]
fn stays(key: &str, why: &str) {
    warning!(Filter, "a native module sets the filter state `{key}`, which stays as it is: {why}");
}

/// Makes an object of bytes, which goes with the filters.
fn make_state(info: &mut StreamInfo, key: &str, kind: ObjectKind, bytes: &[u8]) -> bool {
    if kind.make(bytes).is_none() {
        return false;
    }
    if let Err(why) = info.claim_name(key, StateRules::default()) {
        stays(key, why);
        return true;
    }
    drop(taken(info, key));
    info.make_state(key, kind, bytes, false)
}

/// The same as [`state`], and flags by their words.
pub(super) fn serialised(info: &StreamInfo, key: &str) -> Option<Buffer> {
    let (_, value) = info.filter_state.iter().find(|(known, _)| known == key)?;
    match value {
        Value::Bool(true) => Some(Buffer::of(b"true")),
        Value::Bool(false) => Some(Buffer::of(b"false")),
        _ => state(info, key),
    }
}

/// What has that name in the filter state, as bytes: those that are no text lie as long as nothing takes their place.
pub(super) fn state(info: &StreamInfo, key: &str) -> Option<Buffer> {
    if let Some(bytes) = info.state_bytes(key) {
        return Some(Buffer::of(&bytes));
    }
    let (_, value) = info.filter_state.iter().find(|(known, _)| known == key)?;
    as_text(value)
}

type Destroy = unsafe extern "C" fn(*mut c_void);

/// Something of a module's own in the filter state.
struct Object {
    key: String,
    object: *mut c_void,
    destroy: Option<Destroy>,
    /// The module is there as long as what it is to destroy.
    _config: Arc<Config>,
}

impl Drop for Object {
    fn drop(&mut self) {
        if let Some(destroy) = self.destroy {
            // SAFETY: the function of a loaded module, once, on what it gave.
            unsafe { destroy(self.object) };
        }
    }
}

/// Those of a stream, or of a connection.
#[derive(Default)]
struct Objects(RefCell<Vec<Object>>);

/// `false` when something else stays in its place.
fn set_object(info: &mut StreamInfo, span: LifeSpan, object: Object) -> bool {
    if let Err(why) = info.claim_name(&object.key, StateRules { span, ..StateRules::default() }) {
        stays(&object.key, why);
        return false;
    }
    let before = taken(info, &object.key);
    let objects: Rc<Objects> = match &info.connection {
        Some(noted) if span.lasts() => noted.lasting.left(),
        _ => info.left(),
    };
    objects.0.borrow_mut().push(object);
    // Last: the module may ask for the new one.
    drop(before);
    true
}

/// Those that there are.
fn all(info: &StreamInfo) -> impl Iterator<Item = Rc<Objects>> {
    let of_connection = info.connection.as_ref().and_then(|noted| noted.lasting.found());
    info.found().into_iter().chain(of_connection)
}

/// Takes the object of that name out.
fn taken(info: &StreamInfo, key: &str) -> Option<Object> {
    all(info).find_map(|objects| {
        let mut objects = objects.0.borrow_mut();
        let at = objects.iter().position(|object| object.key == key)?;
        Some(objects.swap_remove(at))
    })
}

/// The object of that name.
pub(super) fn object(info: &StreamInfo, key: &str) -> Option<*mut c_void> {
    all(info).find_map(|objects| objects.0.borrow().iter().find(|object| object.key == key).map(|object| object.object))
}
