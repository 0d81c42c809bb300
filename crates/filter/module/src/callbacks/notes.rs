//! What a module notes of a stream beside plain values: whole namespaces, messages, flags, and objects of its own.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{ObjectKind, Stream, StreamInfo};
use postrider_model::Value;

use super::metadata::as_text;
use super::moments::{Moments, moments};
use super::{Symbol, give, put};
use crate::abi::Buffer;
use crate::config::Config;
use crate::instance::Instance;
use crate::wire;

/// Where a function looks; nothing else here has messages.
const DYNAMIC: c_int = 0;

/// How long something of the filter state is there.
const OF_CONNECTION: c_int = 2;

about! {
    /// Their names.
    OF_NOTES: Instance;

    envoy_dynamic_module_callback_http_set_dynamic_metadata_struct(namespace: Buffer, fields: Buffer) -> ()
        = |instance, namespace, fields| set_struct(instance, name(namespace), fields.bytes());
    envoy_dynamic_module_callback_http_set_dynamic_typed_metadata(namespace: Buffer, any: Buffer) -> ()
        = |instance, namespace, any| set_message(instance, name(namespace), any.bytes());
    envoy_dynamic_module_callback_http_get_typed_metadata(source: c_int, namespace: Buffer, kind: *mut Buffer, value: *mut Buffer) -> bool
        = |instance, source, namespace, kind, value| {
            let found = instance.info().filter(|_| source == DYNAMIC).and_then(|info| message(info, name(namespace)));
            let Some((found_kind, found_value)) = found else { return false };
            put(kind, found_kind);
            put(value, found_value);
            true
        };

    envoy_dynamic_module_callback_http_add_custom_flag(flag: Buffer) -> ()
        = |instance, flag| {
            if let (Some(stream), Ok(flag)) = (instance.stream(), std::str::from_utf8(flag.bytes())) {
                stream.info.add_custom_flag(flag);
            }
        };

    envoy_dynamic_module_callback_http_get_timing_info(out: *mut Moments) -> ()
        = |instance, out| put(out, moments(instance.info(), true));

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
        = |instance, key, value, span, _| {
            let (stream, text) = (instance.stream(), std::str::from_utf8(value.bytes()));
            let (Some(stream), Ok(text)) = (stream, text) else { return false };
            lasts(span) && set_state(stream, name(key), Value::String(text.to_owned()))
        };
    envoy_dynamic_module_callback_http_set_filter_state_typed(key: Buffer, value: Buffer) -> bool
        = |instance, key, value| {
            let key = name(key);
            let (Some(stream), Some(kind)) = (instance.stream(), ObjectKind::of(key)) else { return false };
            let made = stream.info.make_state(key, kind, value.bytes(), false);
            if made {
                drop(taken(stream.info, key));
            }
            made
        };
    envoy_dynamic_module_callback_http_get_filter_state_typed(key: Buffer, out: *mut Buffer) -> bool
        = |instance, key, out| give(out, instance.info().and_then(|info| serialised(info, name(key))));
    envoy_dynamic_module_callback_http_set_filter_state_object(key: Buffer, object: *mut c_void, destroy: Option<Destroy>, span: c_int) -> bool
        = |instance, key, object, destroy, span| {
            let Some(stream) = instance.stream().filter(|_| lasts(span)) else { return false };
            let key = name(key).to_owned();
            set_object(stream, Object { key, object, destroy, _config: instance.config().clone() });
            true
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
    let stream = unsafe { instance.stream() };
    if let (Some(stream), Some(values)) = (stream, wire::fields(message)) {
        stream.info.metadata.merge(namespace, &values);
    }
}

/// What an `Any` holds.
struct Message {
    namespace: String,
    kind: Box<[u8]>,
    value: Box<[u8]>,
}

#[derive(Default)]
struct Messages(RefCell<Vec<Message>>);

/// What filters left of that type, which is made where there is none.
fn left<T: Default + 'static>(info: &mut StreamInfo) -> Option<&T> {
    if !info.shared.iter().any(|shared| shared.is::<T>()) {
        info.shared.push(Rc::new(T::default()));
    }
    found(info)
}

fn found<T: 'static>(info: &StreamInfo) -> Option<&T> {
    info.shared.iter().find_map(|shared| shared.downcast_ref())
}

/// Sets the message of a namespace. What is no `Any` changes nothing.
fn set_message(instance: &Instance, namespace: &str, any: &[u8]) {
    // SAFETY: no other function of this module's runs.
    let stream = unsafe { instance.stream() };
    let (Some(stream), Some((kind, value))) = (stream, wire::any(any)) else { return };
    let Some(Messages(messages)) = left(stream.info) else { return };
    let mut messages = messages.borrow_mut();
    messages.retain(|message| message.namespace != namespace);
    messages.push(Message { namespace: namespace.to_owned(), kind: kind.into(), value: value.into() });
}

fn message(info: &StreamInfo, namespace: &str) -> Option<(Buffer, Buffer)> {
    let messages = found::<Messages>(info)?.0.borrow();
    let message = messages.iter().find(|message| message.namespace == namespace)?;
    Some((Buffer::of(&message.kind), Buffer::of(&message.value)))
}

/// Whether something may be there for so long: nothing here stays with a connection.
fn lasts(span: c_int) -> bool {
    (0..OF_CONNECTION).contains(&span)
}

/// Puts a value into the filter state, in the place of whatever has its name.
pub(super) fn set_state(stream: &mut Stream<'_>, key: &str, value: Value) -> bool {
    drop(taken(stream.info, key));
    stream.info.set_state(key, value);
    true
}

fn serialised(info: &StreamInfo, key: &str) -> Option<Buffer> {
    let (_, value) = info.filter_state.iter().find(|(known, _)| known == key)?;
    match value {
        Value::Bool(true) => Some(Buffer::of(b"true")),
        Value::Bool(false) => Some(Buffer::of(b"false")),
        value => as_text(value),
    }
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

#[derive(Default)]
struct Objects(RefCell<Vec<Object>>);

fn set_object(stream: &mut Stream<'_>, object: Object) {
    let before = taken(stream.info, &object.key);
    stream.info.filter_state.retain(|(known, _)| *known != object.key);
    if let Some(Objects(objects)) = left(stream.info) {
        objects.borrow_mut().push(object);
    }
    // Last: the module may ask for the new one.
    drop(before);
}

/// Takes the object of that name out.
fn taken(info: &StreamInfo, key: &str) -> Option<Object> {
    let mut objects = found::<Objects>(info)?.0.borrow_mut();
    let at = objects.iter().position(|object| object.key == key)?;
    Some(objects.swap_remove(at))
}

/// The object of that name.
pub(super) fn object(info: &StreamInfo, key: &str) -> Option<*mut c_void> {
    let objects = found::<Objects>(info)?.0.borrow();
    objects.iter().find(|object| object.key == key).map(|object| object.object)
}
