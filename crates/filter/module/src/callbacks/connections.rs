//! Functions about connections: each takes the pointer that the module got with its filter of one, and most find what they are
//! about while a hook runs and at no other time.
//!
//! What is wanted of the connection is done when the hook has returned: nothing enters a module while one of these functions
//! runs for it.

use std::borrow::Cow;
use std::ffi::{c_int, c_void};
use std::net::SocketAddr;

use postrider_filter_api::{Ending, ObjectKind, Reading, StreamInfo, TCP_CLUSTER};
use postrider_filter_plugin::Sort;
use postrider_model::{CertificatePart, Value};
use postrider_telemetry::stats::Unit;

use super::metadata::{as_bool, as_number, as_text};
use super::metrics::{self, Change};
use super::{Symbol, calls, facts, give, notes, put, schedule};
use crate::abi::{Buffer, Header, items};
use crate::connection::{Flow, Session, Stage};
use crate::hooks::as_word;
use crate::inbox::Event;
use crate::network::NetworkConfig;

about! {
    /// Their names.
    OF_CONNECTIONS: Session;

    envoy_dynamic_module_callback_network_filter_get_read_buffer_size() -> usize
        = |session| held(session, Flow::Received).map_or(0, |data| data.len());
    envoy_dynamic_module_callback_network_filter_get_read_buffer_chunks_size() -> usize
        = |session| held(session, Flow::Received).map_or(0, |data| usize::from(!data.is_empty()));
    envoy_dynamic_module_callback_network_filter_get_read_buffer_chunks(out: *mut Buffer) -> bool
        = |session, out| put_held(session, Flow::Received, out);
    envoy_dynamic_module_callback_network_filter_drain_read_buffer(length: usize) -> bool
        = |session, length| drain(session, Flow::Received, length);
    envoy_dynamic_module_callback_network_filter_prepend_read_buffer(data: Buffer) -> bool
        = |session, data| insert(session, Flow::Received, data, true);
    envoy_dynamic_module_callback_network_filter_append_read_buffer(data: Buffer) -> bool
        = |session, data| insert(session, Flow::Received, data, false);
    envoy_dynamic_module_callback_network_filter_get_write_buffer_size() -> usize
        = |session| held(session, Flow::Sent).map_or(0, |data| data.len());
    envoy_dynamic_module_callback_network_filter_get_write_buffer_chunks_size() -> usize
        = |session| held(session, Flow::Sent).map_or(0, |data| usize::from(!data.is_empty()));
    envoy_dynamic_module_callback_network_filter_get_write_buffer_chunks(out: *mut Buffer) -> bool
        = |session, out| put_held(session, Flow::Sent, out);
    envoy_dynamic_module_callback_network_filter_drain_write_buffer(length: usize) -> bool
        = |session, length| drain(session, Flow::Sent, length);
    envoy_dynamic_module_callback_network_filter_prepend_write_buffer(data: Buffer) -> bool
        = |session, data| insert(session, Flow::Sent, data, true);
    envoy_dynamic_module_callback_network_filter_append_write_buffer(data: Buffer) -> bool
        = |session, data| insert(session, Flow::Sent, data, false);

    envoy_dynamic_module_callback_network_filter_write(data: Buffer, end: bool) -> ()
        = |session, data, end| {
            let data = data.bytes();
            if !data.is_empty() || end {
                session.handle.send(data.to_vec(), end);
            }
        };
    envoy_dynamic_module_callback_network_filter_inject_read_data(data: Buffer, end: bool) -> ()
        = |session, data, end| session.handle.receive_behind(data.bytes().to_vec(), end);
    envoy_dynamic_module_callback_network_filter_inject_write_data(data: Buffer, end: bool) -> ()
        = |session, data, end| session.handle.send_behind(data.bytes().to_vec(), end);
    envoy_dynamic_module_callback_network_filter_continue_reading() -> ()
        = |session| session.handle.resume();
    envoy_dynamic_module_callback_network_filter_close(kind: c_int) -> ()
        = |session, kind| close(session, kind, CLOSED.into());
    envoy_dynamic_module_callback_network_filter_close_with_details(kind: c_int, details: Buffer) -> ()
        = |session, kind, details| {
            let details = String::from_utf8_lossy(details.bytes()).into_owned();
            let details: Cow<'static, str> = if details.is_empty() { CLOSED.into() } else { details.into() };
            if let Some(connection) = session.connection() {
                connection.info.termination_details = details.clone();
            }
            close(session, kind, details);
        };
    envoy_dynamic_module_callback_network_filter_disable_close(disabled: bool) -> ()
        = |session, disabled| if session.place.config.keeps {
            session.handle.keep(disabled);
        };

    envoy_dynamic_module_callback_network_filter_get_connection_state() -> c_int
        = |session| session.stage.get() as c_int;
    envoy_dynamic_module_callback_network_filter_read_disable(disabled: bool) -> c_int
        = |session, disabled| match session.handle.read(!disabled) {
            Reading::Begun => 2,
            Reading::Stopped => 3,
            Reading::Same => c_int::from(!session.handle.control().reads()),
        };
    envoy_dynamic_module_callback_network_filter_read_enabled() -> bool
        = |session| session.handle.control().reads();
    envoy_dynamic_module_callback_network_filter_is_half_close_enabled() -> bool
        = |session| session.handle.control().half_closes.get();
    envoy_dynamic_module_callback_network_filter_enable_half_close(enabled: bool) -> ()
        = |session, enabled| session.handle.control().half_closes.set(enabled);
    envoy_dynamic_module_callback_network_filter_get_buffer_limit() -> u32
        = |session| u32::try_from(session.handle.control().limit.get()).unwrap_or(u32::MAX);
    envoy_dynamic_module_callback_network_filter_set_buffer_limits(limit: u32) -> ()
        = |session, limit| session.handle.control().limit.set(limit as usize);
    envoy_dynamic_module_callback_network_filter_above_high_watermark() -> bool
        = |session| session.handle.control().congested.get();

    envoy_dynamic_module_callback_network_filter_get_connection_id() -> u64
        = |session| session.info().map_or(0, |info| info.connection_id);
    envoy_dynamic_module_callback_network_filter_get_remote_address(out: *mut Buffer, port: *mut u32) -> bool
        = |session, out, port| put_address(session, (out, port), |info| info.downstream_connection_remote);
    envoy_dynamic_module_callback_network_filter_get_direct_remote_address(out: *mut Buffer, port: *mut u32) -> bool
        = |session, out, port| put_address(session, (out, port), |info| info.downstream_direct_remote);
    envoy_dynamic_module_callback_network_filter_get_local_address(out: *mut Buffer, port: *mut u32) -> bool
        = |session, out, port| put_address(session, (out, port), |info| info.downstream_local);
    envoy_dynamic_module_callback_network_filter_get_worker_index() -> u32
        = |session| session.place.worker;
    envoy_dynamic_module_callback_network_filter_is_ssl() -> bool
        = |session| session.info().is_some_and(|info| info.tls.is_some());
    envoy_dynamic_module_callback_network_filter_get_requested_server_name(out: *mut Buffer) -> bool
        = |session, out| put_or_nothing(out, session.connection().and_then(|connection| text(connection.server_name?)));
    envoy_dynamic_module_callback_network_filter_get_ssl_uri_sans_size() -> usize
        = |session| of_peer(session, CertificatePart::UriNames).map_or(0, |names| names.len());
    envoy_dynamic_module_callback_network_filter_get_ssl_uri_sans(out: *mut Buffer) -> bool
        = |session, out| put_all(session, out, of_peer(session, CertificatePart::UriNames));
    envoy_dynamic_module_callback_network_filter_get_ssl_dns_sans_size() -> usize
        = |session| of_peer(session, CertificatePart::DnsNames).map_or(0, |names| names.len());
    envoy_dynamic_module_callback_network_filter_get_ssl_dns_sans(out: *mut Buffer) -> bool
        = |session, out| put_all(session, out, of_peer(session, CertificatePart::DnsNames));
    envoy_dynamic_module_callback_network_filter_get_ssl_subject(out: *mut Buffer) -> bool
        = |session, out| {
            let subject = of_peer(session, CertificatePart::Subject);
            put_or_nothing(out, subject.map(|names| session.lend(names.into_iter().next().unwrap_or_default())))
        };

    envoy_dynamic_module_callback_network_filter_has_upstream_host() -> bool
        = |session| upstream(session).is_some();
    envoy_dynamic_module_callback_network_filter_get_upstream_host_address(out: *mut Buffer, port: *mut u32) -> bool
        = |session, out, port| put_address(session, (out, port), |info| info.upstream_remote.as_deref()?.parse().ok());
    envoy_dynamic_module_callback_network_filter_get_upstream_host_hostname(out: *mut Buffer) -> bool
        = |session, out| {
            let host = upstream(session).and_then(StreamInfo::upstream_host).filter(|host| !host.hostname.is_empty());
            put_or_nothing(out, host.map(|host| session.lend(host.hostname.as_str())))
        };
    envoy_dynamic_module_callback_network_filter_get_upstream_host_cluster(out: *mut Buffer) -> bool
        = |session, out| put_or_nothing(out, upstream(session).and_then(|info| text(info.upstream_cluster.as_deref()?)));
    envoy_dynamic_module_callback_network_filter_get_upstream_connection_id() -> u64
        = |session| session.info().map_or(0, |info| info.upstream_connection_id);
    envoy_dynamic_module_callback_network_filter_start_downstream_secure_transport() -> bool = |_| false;
    envoy_dynamic_module_callback_network_filter_start_upstream_secure_transport() -> bool = |_| false;
    envoy_dynamic_module_callback_network_filter_get_cluster_host_count(cluster: Buffer, priority: u32, all: *mut usize, healthy: *mut usize, degraded: *mut usize) -> bool
        = |session, cluster, priority, all, healthy, degraded| {
            let cluster = std::str::from_utf8(cluster.bytes()).ok();
            let health = cluster.and_then(|cluster| session.place.host.hosts_of_priority(cluster, priority));
            let Some(health) = health else { return false };
            put(all, health.all);
            put(healthy, health.available - health.degraded);
            put(degraded, health.degraded);
            true
        };

    envoy_dynamic_module_callback_network_filter_get_attribute_string(attribute: c_int, out: *mut Buffer) -> bool
        = |session, attribute, out| {
            let info = session.info();
            give(out, info.and_then(|info| facts::of_stream(&|text| session.lend(text), info, attribute)))
        };
    envoy_dynamic_module_callback_network_filter_get_attribute_int(attribute: c_int, out: *mut u64) -> bool
        = |session, attribute, out| {
            let info = session.info().filter(|_| !facts::is_of_messages(attribute));
            give(out, info.and_then(|info| facts::number_of(info, attribute)))
        };
    envoy_dynamic_module_callback_network_filter_get_attribute_bool(attribute: c_int, out: *mut bool) -> bool
        = |session, attribute, out| give(out, session.info().and_then(|info| facts::truth_of(info, attribute)));

    envoy_dynamic_module_callback_network_set_dynamic_metadata_string(namespace: Buffer, key: Buffer, value: Buffer) -> ()
        = |session, namespace, key, value| note(session, namespace, key, text_of(value));
    envoy_dynamic_module_callback_network_set_dynamic_metadata_string_batch(namespace: Buffer, entries: *const Header, count: usize) -> ()
        = |session, namespace, entries, count| for entry in items(entries, count) {
            let (key, value) = entry.parts();
            note(session, namespace, Buffer::of(key), text_of(Buffer::of(value)));
        };
    envoy_dynamic_module_callback_network_set_dynamic_metadata_number(namespace: Buffer, key: Buffer, value: f64) -> ()
        = |session, namespace, key, value| note(session, namespace, key, Value::Number(value));
    envoy_dynamic_module_callback_network_set_dynamic_metadata_bool(namespace: Buffer, key: Buffer, value: bool) -> ()
        = |session, namespace, key, value| note(session, namespace, key, Value::Bool(value));
    envoy_dynamic_module_callback_network_get_dynamic_metadata_string(namespace: Buffer, key: Buffer, out: *mut Buffer) -> bool
        = |session, namespace, key, out| give(out, noted(session, namespace, key).and_then(as_text));
    envoy_dynamic_module_callback_network_get_dynamic_metadata_number(namespace: Buffer, key: Buffer, out: *mut f64) -> bool
        = |session, namespace, key, out| give(out, noted(session, namespace, key).and_then(as_number));
    envoy_dynamic_module_callback_network_get_dynamic_metadata_bool(namespace: Buffer, key: Buffer, out: *mut bool) -> bool
        = |session, namespace, key, out| give(out, noted(session, namespace, key).and_then(as_bool));
    envoy_dynamic_module_callback_network_set_filter_state_bytes(key: Buffer, value: Buffer) -> bool
        = |session, key, value| name(key) != TCP_CLUSTER && set_state(session, key, value);
    envoy_dynamic_module_callback_network_get_filter_state_bytes(key: Buffer, out: *mut Buffer) -> bool
        = |session, key, out| give(out, state(session, key));
    envoy_dynamic_module_callback_network_set_filter_state_typed(key: Buffer, value: Buffer) -> bool
        = |session, key, value| make_state(session, key, value);
    envoy_dynamic_module_callback_network_get_filter_state_typed(key: Buffer, out: *mut Buffer) -> bool
        = |session, key, out| give(out, session.info().and_then(|info| notes::serialised(info, name(key))));

    envoy_dynamic_module_callback_network_filter_http_callout(id: *mut u64, cluster: Buffer, headers: *const Header, count: usize, body: Buffer, timeout: u64) -> c_int
        = |session, id, cluster, headers, count, body, timeout| {
            match calls::request(None, cluster, headers, count, body, timeout) {
                Ok(request) => call(session, id, request),
                Err(error) => error,
            }
        };

    envoy_dynamic_module_callback_network_filter_increment_counter(id: usize, value: u64) -> c_int
        = |session, id, value| change(session, Change::Increment, id, value);
    envoy_dynamic_module_callback_network_filter_increment_gauge(id: usize, value: u64) -> c_int
        = |session, id, value| change(session, Change::Increase, id, value);
    envoy_dynamic_module_callback_network_filter_decrement_gauge(id: usize, value: u64) -> c_int
        = |session, id, value| change(session, Change::Decrease, id, value);
    envoy_dynamic_module_callback_network_filter_set_gauge(id: usize, value: u64) -> c_int
        = |session, id, value| change(session, Change::Set, id, value);
    envoy_dynamic_module_callback_network_filter_record_histogram_value(id: usize, value: u64) -> c_int
        = |session, id, value| change(session, Change::Record, id, value);

    envoy_dynamic_module_callback_network_filter_scheduler_new() -> Handle
        = |session| Handle(schedule::open_connection(session));
}

about! {
    /// Those about a configuration.
    OF_NETWORK_CONFIGS: NetworkConfig;

    envoy_dynamic_module_callback_network_filter_config_define_counter(name: Buffer, out: *mut usize) -> c_int
        = |config, name, out| define(config, Sort::Counter, name, out);
    envoy_dynamic_module_callback_network_filter_config_define_gauge(name: Buffer, out: *mut usize) -> c_int
        = |config, name, out| define(config, Sort::Gauge, name, out);
    envoy_dynamic_module_callback_network_filter_config_define_histogram(name: Buffer, out: *mut usize) -> c_int
        = |config, name, out| define(config, Sort::Histogram(Unit::Unspecified), name, out);
    envoy_dynamic_module_callback_network_filter_config_increment_counter(id: usize, value: u64) -> c_int
        = |config, id, value| change_later(config, Change::Increment, id, value);
    envoy_dynamic_module_callback_network_filter_config_increment_gauge(id: usize, value: u64) -> c_int
        = |config, id, value| change_later(config, Change::Increase, id, value);
    envoy_dynamic_module_callback_network_filter_config_decrement_gauge(id: usize, value: u64) -> c_int
        = |config, id, value| change_later(config, Change::Decrease, id, value);
    envoy_dynamic_module_callback_network_filter_config_set_gauge(id: usize, value: u64) -> c_int
        = |config, id, value| change_later(config, Change::Set, id, value);
    envoy_dynamic_module_callback_network_filter_config_record_histogram_value(id: usize, value: u64) -> c_int
        = |config, id, value| change_later(config, Change::Record, id, value);
}

/// A pointer that a function answers; null by default.
#[repr(transparent)]
struct Handle(*mut c_void);

impl Default for Handle {
    fn default() -> Handle {
        Handle(std::ptr::null_mut())
    }
}

/// Envoy's word for a connection that a module ends without one of its own.
const CLOSED: &str = "dynamic_module_close";

#[allow(clippy::mut_from_ref, reason = "they are lent for the time of a hook")]
fn held(session: &Session, flow: Flow) -> Option<&mut Vec<u8>> {
    // SAFETY: no other function of this module's runs, and none keeps the bytes.
    unsafe { session.data(flow) }
}

/// # Safety
/// There is room for one.
unsafe fn put_held(session: &Session, flow: Flow, out: *mut Buffer) -> bool {
    let Some(data) = held(session, flow) else { return false };
    if !data.is_empty() {
        // SAFETY: by the contract above.
        unsafe { put(out, Buffer::of(data)) };
    }
    true
}

fn drain(session: &Session, flow: Flow, length: usize) -> bool {
    let Some(data) = held(session, flow).filter(|_| length > 0) else { return false };
    data.drain(..length.min(data.len()));
    true
}

/// # Safety
/// The bytes are there.
unsafe fn insert(session: &Session, flow: Flow, bytes: Buffer, in_front: bool) -> bool {
    // SAFETY: by the contract above.
    let bytes = unsafe { bytes.bytes() };
    let Some(data) = held(session, flow).filter(|_| !bytes.is_empty()) else { return false };
    let at = if in_front { 0 } else { data.len() };
    data.splice(at..at, bytes.iter().copied());
    true
}

/// Ends the connection; logs have the first reason for that.
fn close(session: &Session, kind: c_int, reason: Cow<'static, str>) {
    // SAFETY: no other function of this module's runs, and none keeps the connection.
    if let Some(connection) = unsafe { session.connection() }
        && session.stage.get() == Stage::Open
    {
        // One word, as in Envoy.
        connection.info.closed.downstream_reason = as_word(&reason).map_or(reason, Cow::Owned);
    }
    session.end(ending(kind));
}

fn ending(kind: c_int) -> Ending {
    match kind {
        // Flushed, with or without a delay for the client to close first.
        0 | 2 => Ending::Flushed,
        3 => Ending::Dropped,
        4 => Ending::Reset,
        _ => Ending::AtOnce,
    }
}

fn text(text: &str) -> Option<Buffer> {
    (!text.is_empty()).then(|| Buffer::of(text.as_bytes()))
}

/// # Safety
/// There is room for one.
unsafe fn put_or_nothing(out: *mut Buffer, found: Option<Buffer>) -> bool {
    // SAFETY: by the contract above.
    unsafe { put(out, found.unwrap_or(Buffer::NOTHING)) };
    found.is_some()
}

/// # Safety
/// There is room for both.
unsafe fn put_address(
    session: &Session,
    (out, port): (*mut Buffer, *mut u32),
    of: impl FnOnce(&StreamInfo) -> Option<SocketAddr>,
) -> bool {
    let address = session.info().and_then(of);
    // SAFETY: by the contract above.
    unsafe {
        put(port, address.map_or(0, |address| address.port().into()));
        put_or_nothing(out, address.map(|address| session.lend(address.ip().to_string())))
    }
}

fn of_peer(session: &Session, part: CertificatePart) -> Option<Vec<String>> {
    Some(session.info()?.tls.as_deref()?.of_peer(part))
}

/// # Safety
/// There is room for as many as the function says that counts them.
unsafe fn put_all(session: &Session, out: *mut Buffer, values: Option<Vec<String>>) -> bool {
    let Some(values) = values else { return false };
    for (at, value) in values.into_iter().enumerate() {
        // SAFETY: by the contract above.
        unsafe { put(out.add(at), session.lend(value)) };
    }
    true
}

/// What is known of the connection, where it has an upstream.
fn upstream(session: &Session) -> Option<&StreamInfo> {
    session.info().filter(|info| info.upstream_remote.is_some())
}

fn name<'a>(text: Buffer) -> &'a str {
    // SAFETY: the module's bytes are there for the time of its call. What is no text names nothing.
    std::str::from_utf8(unsafe { text.bytes() }).unwrap_or_default()
}

fn text_of(bytes: Buffer) -> Value {
    // SAFETY: as above.
    Value::String(String::from_utf8_lossy(unsafe { bytes.bytes() }).into_owned())
}

fn note(session: &Session, namespace: Buffer, key: Buffer, value: Value) {
    // SAFETY: no other function of this module's runs, and none keeps the connection. So below.
    if let Some(connection) = unsafe { session.connection() } {
        connection.info.metadata.set(name(namespace), name(key), value);
    }
}

fn noted(session: &Session, namespace: Buffer, key: Buffer) -> Option<&Value> {
    session.info()?.metadata.get(name(namespace), name(key))
}

fn set_state(session: &Session, key: Buffer, value: Buffer) -> bool {
    // SAFETY: as above.
    let (connection, value) = unsafe { (session.connection(), value.bytes()) };
    let Some(connection) = connection else { return false };
    connection.info.set_bytes_of_connection(name(key), value);
    true
}

fn make_state(session: &Session, key: Buffer, value: Buffer) -> bool {
    // SAFETY: as above.
    let (connection, text) = unsafe { (session.connection(), value.bytes()) };
    let (Some(connection), Some(kind)) = (connection, ObjectKind::of(name(key))) else { return false };
    connection.info.make_state(name(key), kind, text, false)
}

fn state(session: &Session, key: Buffer) -> Option<Buffer> {
    notes::state(session.info()?, name(key))
}

/// # Safety
/// There is room for a number.
unsafe fn call(session: &Session, id: *mut u64, request: calls::Request) -> c_int {
    let inbox = session.inbox().clone();
    let tell = move |id, outcome| inbox.tell(Event::Call { id, outcome: Box::new(outcome) });
    // SAFETY: by the contract above.
    unsafe { calls::begin(&*session.place.host, &session.share.last_call, &session.share.calls, id, request, tell) }
}

/// # Safety
/// The name is there, and room for a number.
unsafe fn define(config: &NetworkConfig, sort: Sort, name: Buffer, out: *mut usize) -> c_int {
    // SAFETY: by the contract above.
    unsafe { metrics::define_plain(&config.definitions, sort, name, out) }
}

fn change(session: &Session, change: Change, id: usize, value: u64) -> c_int {
    metrics::change_plain(&session.place.config.definitions, &session.place.metrics, change, id, value)
}

/// The same from wherever a module is.
fn change_later(config: &NetworkConfig, change: Change, id: usize, value: u64) -> c_int {
    metrics::change_plain_later(&config.definitions, &config.reach, change, id, value)
}
