//! Functions about connections that no filter chain was chosen for yet: each takes the pointer that the module got with its
//! filter of one, and most find what they are about while a hook runs and at no other time.
//!
//! What is wanted of the connection is done when the hook has returned: nothing enters a module while one of these functions
//! runs for it.

use std::ffi::{c_char, c_int, c_void};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::time::{SystemTime, UNIX_EPOCH};

use postrider_filter_api::{Known, ObjectKind, StreamInfo, TCP_CLUSTER};
use postrider_filter_plugin::Sort;
use postrider_model::Value;
use postrider_telemetry::stats::Unit;

use super::metadata::{as_number, as_text};
use super::metrics::{self, Change};
use super::{Symbol, calls, facts, give, notes, put, schedule};
use crate::abi::{Buffer, Header, items};
use crate::inbox::Event;
use crate::listener::ListenerConfig;
use crate::newcomer::Introduced;

about! {
    /// Their names.
    OF_NEWCOMERS: Introduced;

    envoy_dynamic_module_callback_listener_filter_get_buffer_chunk(out: *mut Buffer) -> bool
        = |session, out| {
            let data = session.data();
            put_or_nothing(out, data.map(|data| Buffer::of(data)))
        };
    envoy_dynamic_module_callback_listener_filter_drain_buffer(length: usize) -> bool
        = |session, length| {
            let Some(data) = session.data().filter(|_| length > 0) else { return false };
            data.drain(..length.min(data.len()));
            true
        };
    envoy_dynamic_module_callback_listener_filter_max_read_bytes() -> usize = |session| session.wants();

    envoy_dynamic_module_callback_listener_filter_set_detected_transport_protocol(protocol: Buffer) -> ()
        = |session, protocol| learn(session, protocol, |known, text| known.transport = text);
    envoy_dynamic_module_callback_listener_filter_set_requested_server_name(name: Buffer) -> ()
        = |session, name| learn(session, name, |known, text| known.server_name = Some(text.to_ascii_lowercase()));
    envoy_dynamic_module_callback_listener_filter_set_ja3_hash(hash: Buffer) -> ()
        = |session, hash| learn(session, hash, |known, text| known.ja3 = Some(text));
    envoy_dynamic_module_callback_listener_filter_set_ja4_hash(hash: Buffer) -> ()
        = |session, hash| learn(session, hash, |known, text| known.ja4 = Some(text));
    envoy_dynamic_module_callback_listener_filter_set_requested_application_protocols(protocols: *const Buffer, count: usize) -> ()
        = |session, protocols, count| {
            let protocols: Vec<Vec<u8>> = items(protocols, count).iter().map(|one| one.bytes().to_vec()).collect();
            if let (Some(newcomer), false) = (session.newcomer(), protocols.is_empty()) {
                newcomer.known.protocols = protocols.into_iter().filter(|one| !one.is_empty()).collect();
            }
        };
    envoy_dynamic_module_callback_listener_filter_get_detected_transport_protocol(out: *mut Buffer) -> bool
        = |session, out| put_or_nothing(out, known(session, |known| Some(&known.transport)));
    envoy_dynamic_module_callback_listener_filter_get_requested_server_name(out: *mut Buffer) -> bool
        = |session, out| put_or_nothing(out, known(session, |known| known.server_name.as_deref()));
    envoy_dynamic_module_callback_listener_filter_get_ja3_hash(out: *mut Buffer) -> bool
        = |session, out| put_or_nothing(out, known(session, |known| known.ja3.as_deref()));
    envoy_dynamic_module_callback_listener_filter_get_ja4_hash(out: *mut Buffer) -> bool
        = |session, out| put_or_nothing(out, known(session, |known| known.ja4.as_deref()));
    envoy_dynamic_module_callback_listener_filter_get_requested_application_protocols_size() -> usize
        = |session| session.newcomer().map_or(0, |newcomer| newcomer.known.protocols.len());
    envoy_dynamic_module_callback_listener_filter_get_requested_application_protocols(out: *mut Buffer) -> bool
        = |session, out| {
            let Some(newcomer) = session.newcomer() else { return false };
            for (at, protocol) in newcomer.known.protocols.iter().enumerate() {
                put(out.add(at), Buffer::of(protocol));
            }
            true
        };

    envoy_dynamic_module_callback_listener_filter_is_ssl() -> bool = |_| false;
    envoy_dynamic_module_callback_listener_filter_get_ssl_uri_sans_size() -> usize = |_| 0;
    envoy_dynamic_module_callback_listener_filter_get_ssl_uri_sans(_out: *mut Buffer) -> bool = |_, _| false;
    envoy_dynamic_module_callback_listener_filter_get_ssl_dns_sans_size() -> usize = |_| 0;
    envoy_dynamic_module_callback_listener_filter_get_ssl_dns_sans(_out: *mut Buffer) -> bool = |_, _| false;
    envoy_dynamic_module_callback_listener_filter_get_ssl_subject(out: *mut Buffer) -> bool
        = |_, out| put_or_nothing(out, None);

    envoy_dynamic_module_callback_listener_filter_get_remote_address(out: *mut Buffer, port: *mut u32) -> bool
        = |session, out, port| put_address(session, (out, port), of_info(session, |info| info.downstream_connection_remote));
    envoy_dynamic_module_callback_listener_filter_get_direct_remote_address(out: *mut Buffer, port: *mut u32) -> bool
        = |session, out, port| put_address(session, (out, port), of_info(session, |info| info.downstream_direct_remote));
    envoy_dynamic_module_callback_listener_filter_get_local_address(out: *mut Buffer, port: *mut u32) -> bool
        = |session, out, port| put_address(session, (out, port), of_info(session, |info| info.downstream_local));
    envoy_dynamic_module_callback_listener_filter_get_direct_local_address(out: *mut Buffer, port: *mut u32) -> bool
        = |session, out, port| put_address(session, (out, port), session.newcomer().and_then(|it| it.direct_local));
    envoy_dynamic_module_callback_listener_filter_get_original_dst(out: *mut Buffer, port: *mut u32) -> bool
        = |session, out, port| put_address(session, (out, port), session.newcomer().and_then(|it| (it.original)()));
    envoy_dynamic_module_callback_listener_filter_get_address_type() -> c_int
        = |session| match session.newcomer() {
            None => ADDRESS_UNKNOWN,
            Some(newcomer) if newcomer.direct_local.is_none() => ADDRESS_PIPE,
            Some(_) => ADDRESS_IP,
        };
    envoy_dynamic_module_callback_listener_filter_is_local_address_restored() -> bool
        = |session| session.newcomer().is_some_and(|newcomer| *newcomer.redirected);
    envoy_dynamic_module_callback_listener_filter_set_remote_address(address: Buffer, port: u32, is_v6: bool) -> bool
        = |session, address, port, is_v6| {
            let (Some(newcomer), Some(address)) = (session.newcomer(), address_of(address, port, is_v6)) else { return false };
            newcomer.info.downstream_connection_remote = Some(address);
            newcomer.info.downstream_remote = Some(address);
            true
        };
    envoy_dynamic_module_callback_listener_filter_restore_local_address(address: Buffer, port: u32, is_v6: bool) -> bool
        = |session, address, port, is_v6| {
            let (Some(newcomer), Some(address)) = (session.newcomer(), address_of(address, port, is_v6)) else { return false };
            newcomer.info.downstream_local = Some(address);
            *newcomer.redirected = true;
            true
        };

    envoy_dynamic_module_callback_listener_filter_continue_filter_chain(success: bool) -> ()
        = |session, success| session.handle.resume(success);
    envoy_dynamic_module_callback_listener_filter_use_original_dst(wanted: bool) -> ()
        = |session, wanted| if let Some(newcomer) = session.newcomer() {
            *newcomer.hands_over = wanted;
        };
    envoy_dynamic_module_callback_listener_filter_close_socket(details: Buffer) -> ()
        = |session, details| {
            let details = String::from_utf8_lossy(details.bytes()).into_owned();
            if let (Some(newcomer), false) = (session.newcomer(), details.is_empty()) {
                newcomer.info.termination_details = details.into();
            }
            session.handle.close();
        };
    envoy_dynamic_module_callback_listener_filter_set_downstream_transport_failure_reason(reason: Buffer) -> ()
        = |session, reason| {
            let reason = String::from_utf8_lossy(reason.bytes()).into_owned();
            if let (Some(newcomer), false) = (session.newcomer(), reason.is_empty()) {
                newcomer.info.downstream_failure = Some(reason.into());
            }
        };
    envoy_dynamic_module_callback_listener_filter_write_to_socket(data: Buffer) -> i64
        = |session, data| {
            let (Some(socket), data) = (socket(session), data.bytes()) else { return -1 };
            if data.is_empty() {
                return -1;
            }
            libc::send(socket, data.as_ptr().cast(), data.len(), libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) as i64
        };
    envoy_dynamic_module_callback_listener_filter_get_socket_fd() -> i64
        = |session| socket(session).map_or(-1, i64::from);
    envoy_dynamic_module_callback_listener_filter_set_socket_option_int(level: i64, name: i64, value: i64) -> bool
        = |session, level, name, value| set_option(session, level, name, &(value as c_int).to_ne_bytes());
    envoy_dynamic_module_callback_listener_filter_set_socket_option_bytes(level: i64, name: i64, value: Buffer) -> bool
        = |session, level, name, value| !value.start.is_null() && set_option(session, level, name, value.bytes());
    envoy_dynamic_module_callback_listener_filter_get_socket_option_int(level: i64, name: i64, out: *mut i64) -> bool
        = |session, level, name, out| {
            let mut value = [0; size_of::<c_int>()];
            let length = option(session, level, name, value.as_mut_ptr(), value.len());
            give(out, length.map(|_| i64::from(c_int::from_ne_bytes(value))))
        };
    envoy_dynamic_module_callback_listener_filter_get_socket_option_bytes(level: i64, name: i64, value: *mut c_char, room: usize, length: *mut usize) -> bool
        = |session, level, name, value, room, length| {
            !value.is_null() && give(length, option(session, level, name, value.cast(), room))
        };

    envoy_dynamic_module_callback_listener_filter_set_dynamic_metadata_string(namespace: Buffer, key: Buffer, value: Buffer) -> ()
        = |session, namespace, key, value| note(session, namespace, key, text_of(value));
    envoy_dynamic_module_callback_listener_filter_set_dynamic_metadata_string_batch(namespace: Buffer, entries: *const Header, count: usize) -> ()
        = |session, namespace, entries, count| for entry in items(entries, count) {
            let (key, value) = entry.parts();
            note(session, namespace, Buffer::of(key), text_of(Buffer::of(value)));
        };
    envoy_dynamic_module_callback_listener_filter_set_dynamic_metadata_number(namespace: Buffer, key: Buffer, value: f64) -> ()
        = |session, namespace, key, value| note(session, namespace, key, Value::Number(value));
    envoy_dynamic_module_callback_listener_filter_get_dynamic_metadata_string(namespace: Buffer, key: Buffer, out: *mut Buffer) -> bool
        = |session, namespace, key, out| put_or_nothing(out, noted(session, namespace, key).and_then(as_text));
    envoy_dynamic_module_callback_listener_filter_get_dynamic_metadata_number(namespace: Buffer, key: Buffer, out: *mut f64) -> bool
        = |session, namespace, key, out| give(out, noted(session, namespace, key).and_then(as_number));
    envoy_dynamic_module_callback_listener_filter_set_filter_state(key: Buffer, value: Buffer) -> bool
        = |session, key, value| name(key) != TCP_CLUSTER && set_state(session, key, value);
    envoy_dynamic_module_callback_listener_filter_get_filter_state(key: Buffer, out: *mut Buffer) -> bool
        = |session, key, out| put_or_nothing(out, state(session, key));
    envoy_dynamic_module_callback_listener_filter_set_filter_state_typed(key: Buffer, value: Buffer) -> bool
        = |session, key, value| make_state(session, key, value);
    envoy_dynamic_module_callback_listener_filter_get_filter_state_typed(key: Buffer, out: *mut Buffer) -> bool
        = |session, key, out| put_or_nothing(out, session.info().and_then(|info| notes::serialised(info, name(key))));

    envoy_dynamic_module_callback_listener_filter_get_attribute_string(attribute: c_int, out: *mut Buffer) -> bool
        = |session, attribute, out| {
            let info = session.info();
            give(out, info.and_then(|info| facts::of_stream(&|text| session.lend(text), info, attribute)))
        };
    envoy_dynamic_module_callback_listener_filter_get_attribute_int(attribute: c_int, out: *mut u64) -> bool
        = |session, attribute, out| give(out, session.info().and_then(|info| facts::number_of(info, attribute)));
    envoy_dynamic_module_callback_listener_filter_get_attribute_bool(attribute: c_int, out: *mut bool) -> bool
        = |session, attribute, out| give(out, session.info().and_then(|info| facts::truth_of(info, attribute)));
    envoy_dynamic_module_callback_listener_filter_get_connection_start_time_ms() -> u64
        = |session| session.info().map_or(0, |info| since_epoch(info.start));
    envoy_dynamic_module_callback_listener_filter_get_worker_index() -> u32 = |session| session.place.worker;

    envoy_dynamic_module_callback_listener_filter_http_callout(id: *mut u64, cluster: Buffer, headers: *const Header, count: usize, body: Buffer, timeout: u64) -> c_int
        = |session, id, cluster, headers, count, body, timeout| {
            match calls::request(None, cluster, headers, count, body, timeout) {
                Ok(request) => call(session, id, request),
                Err(error) => error,
            }
        };

    envoy_dynamic_module_callback_listener_filter_increment_counter(id: usize, value: u64) -> c_int
        = |session, id, value| change(session, Change::Increment, id, value);
    envoy_dynamic_module_callback_listener_filter_increment_gauge(id: usize, value: u64) -> c_int
        = |session, id, value| change(session, Change::Increase, id, value);
    envoy_dynamic_module_callback_listener_filter_decrement_gauge(id: usize, value: u64) -> c_int
        = |session, id, value| change(session, Change::Decrease, id, value);
    envoy_dynamic_module_callback_listener_filter_set_gauge(id: usize, value: u64) -> c_int
        = |session, id, value| change(session, Change::Set, id, value);
    envoy_dynamic_module_callback_listener_filter_record_histogram_value(id: usize, value: u64) -> c_int
        = |session, id, value| change(session, Change::Record, id, value);

    envoy_dynamic_module_callback_listener_filter_scheduler_new() -> Handle
        = |session| Handle(schedule::open_newcomer(session));
}

about! {
    /// Those about a configuration.
    OF_LISTENER_CONFIGS: ListenerConfig;

    envoy_dynamic_module_callback_listener_filter_config_define_counter(name: Buffer, out: *mut usize) -> c_int
        = |config, name, out| define(config, Sort::Counter, name, out);
    envoy_dynamic_module_callback_listener_filter_config_define_gauge(name: Buffer, out: *mut usize) -> c_int
        = |config, name, out| define(config, Sort::Gauge, name, out);
    envoy_dynamic_module_callback_listener_filter_config_define_histogram(name: Buffer, out: *mut usize) -> c_int
        = |config, name, out| define(config, Sort::Histogram(Unit::Unspecified), name, out);
    envoy_dynamic_module_callback_listener_filter_config_increment_counter(id: usize, value: u64) -> c_int
        = |config, id, value| change_later(config, Change::Increment, id, value);
    envoy_dynamic_module_callback_listener_filter_config_increment_gauge(id: usize, value: u64) -> c_int
        = |config, id, value| change_later(config, Change::Increase, id, value);
    envoy_dynamic_module_callback_listener_filter_config_decrement_gauge(id: usize, value: u64) -> c_int
        = |config, id, value| change_later(config, Change::Decrease, id, value);
    envoy_dynamic_module_callback_listener_filter_config_set_gauge(id: usize, value: u64) -> c_int
        = |config, id, value| change_later(config, Change::Set, id, value);
    envoy_dynamic_module_callback_listener_filter_config_record_histogram_value(id: usize, value: u64) -> c_int
        = |config, id, value| change_later(config, Change::Record, id, value);
    envoy_dynamic_module_callback_listener_filter_config_scheduler_new() -> Handle
        = |config| Handle(schedule::open_events(&config.reach, config.events()));
}

/// A pointer that a function answers; null by default.
#[repr(transparent)]
struct Handle(*mut c_void);

impl Default for Handle {
    fn default() -> Handle {
        Handle(std::ptr::null_mut())
    }
}

/// What kind of address a listener has, as Envoy numbers it.
const ADDRESS_UNKNOWN: c_int = 0;
const ADDRESS_IP: c_int = 1;
const ADDRESS_PIPE: c_int = 2;

/// # Safety
/// There is room for one.
unsafe fn put_or_nothing(out: *mut Buffer, found: Option<Buffer>) -> bool {
    // SAFETY: by the contract above.
    unsafe { put(out, found.unwrap_or(Buffer::NOTHING)) };
    found.is_some()
}

/// # Safety
/// There is room for both.
unsafe fn put_address(session: &Introduced, (out, port): (*mut Buffer, *mut u32), address: Option<SocketAddr>) -> bool {
    // SAFETY: by the contract above.
    unsafe {
        put(port, address.map_or(0, |address| address.port().into()));
        put_or_nothing(out, address.map(|address| session.lend(address.ip().to_string())))
    }
}

fn of_info(session: &Introduced, of: impl FnOnce(&StreamInfo) -> Option<SocketAddr>) -> Option<SocketAddr> {
    session.info().and_then(of)
}

fn address_of(text: Buffer, port: u32, is_v6: bool) -> Option<SocketAddr> {
    let address: IpAddr = name(text).parse().ok()?;
    (address.is_ipv6() == is_v6).then_some(SocketAddr::new(address, u16::try_from(port).ok()?))
}

fn learn(session: &Introduced, text: Buffer, put: impl FnOnce(&mut Known, String)) {
    // SAFETY: the module's bytes are there for the time of its call; no other function of it runs. So below.
    let (newcomer, text) = unsafe { (session.newcomer(), String::from_utf8_lossy(text.bytes()).into_owned()) };
    if let (Some(newcomer), false) = (newcomer, text.is_empty()) {
        put(newcomer.known, text);
    }
}

fn known(session: &Introduced, of: impl FnOnce(&Known) -> Option<&str>) -> Option<Buffer> {
    // SAFETY: as above.
    let newcomer = unsafe { session.newcomer() }?;
    of(newcomer.known).filter(|text| !text.is_empty()).map(|text| Buffer::of(text.as_bytes()))
}

fn socket(session: &Introduced) -> Option<RawFd> {
    // SAFETY: as above.
    unsafe { session.newcomer() }.map(|newcomer| newcomer.socket)
}

fn set_option(session: &Introduced, level: i64, name: i64, value: &[u8]) -> bool {
    let (Some(socket), Ok(level), Ok(name)) = (socket(session), c_int::try_from(level), c_int::try_from(name)) else {
        return false;
    };
    let Ok(length) = libc::socklen_t::try_from(value.len()) else { return false };
    // SAFETY: the socket is open while a hook runs, and the value is there.
    unsafe { libc::setsockopt(socket, level, name, value.as_ptr().cast(), length) == 0 }
}

/// Writes an option's value; how long it is.
///
/// # Safety
/// There is so much room for it.
unsafe fn option(session: &Introduced, level: i64, name: i64, out: *mut u8, room: usize) -> Option<usize> {
    let (level, name) = (c_int::try_from(level).ok()?, c_int::try_from(name).ok()?);
    let mut length = libc::socklen_t::try_from(room).ok()?;
    // SAFETY: by the contract above; the socket is open while a hook runs.
    let done = unsafe { libc::getsockopt(socket(session)?, level, name, out.cast(), &raw mut length) };
    (done == 0).then_some(length as usize)
}

fn since_epoch(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

fn name<'a>(text: Buffer) -> &'a str {
    // SAFETY: as above. What is no text names nothing.
    std::str::from_utf8(unsafe { text.bytes() }).unwrap_or_default()
}

fn text_of(bytes: Buffer) -> Value {
    // SAFETY: as above.
    Value::String(String::from_utf8_lossy(unsafe { bytes.bytes() }).into_owned())
}

fn note(session: &Introduced, namespace: Buffer, key: Buffer, value: Value) {
    // SAFETY: as above.
    if let Some(newcomer) = unsafe { session.newcomer() } {
        newcomer.info.metadata.set(name(namespace), name(key), value);
    }
}

fn noted(session: &Introduced, namespace: Buffer, key: Buffer) -> Option<&Value> {
    session.info()?.metadata.get(name(namespace), name(key))
}

fn set_state(session: &Introduced, key: Buffer, value: Buffer) -> bool {
    // SAFETY: as above.
    let (newcomer, value) = unsafe { (session.newcomer(), value.bytes()) };
    let Some(newcomer) = newcomer else { return false };
    newcomer.info.set_bytes_of_connection(name(key), value);
    true
}

/// Makes an object of a text, as Envoy's factory of the name does.
fn make_state(session: &Introduced, key: Buffer, value: Buffer) -> bool {
    // SAFETY: as above.
    let (newcomer, text) = unsafe { (session.newcomer(), value.bytes()) };
    let (Some(newcomer), Some(kind)) = (newcomer, ObjectKind::of(name(key))) else { return false };
    newcomer.info.make_state(name(key), kind, text, false)
}

fn state(session: &Introduced, key: Buffer) -> Option<Buffer> {
    notes::state(session.info()?, name(key))
}

/// # Safety
/// There is room for a number.
unsafe fn call(session: &Introduced, id: *mut u64, request: calls::Request) -> c_int {
    let inbox = session.inbox().clone();
    let tell = move |id, outcome| inbox.tell(Event::Call { id, outcome: Box::new(outcome) });
    // SAFETY: by the contract above.
    unsafe { calls::begin(&*session.place.host, &session.share.last_call, &session.share.calls, id, request, tell) }
}

/// # Safety
/// The name is there, and room for a number.
unsafe fn define(config: &ListenerConfig, sort: Sort, name: Buffer, out: *mut usize) -> c_int {
    // SAFETY: by the contract above.
    unsafe { metrics::define_plain(&config.definitions, sort, name, out) }
}

fn change(session: &Introduced, change: Change, id: usize, value: u64) -> c_int {
    metrics::change_plain(&session.place.config.definitions, &session.place.metrics, change, id, value)
}

/// The same from wherever a module is.
fn change_later(config: &ListenerConfig, change: Change, id: usize, value: u64) -> c_int {
    metrics::change_plain_later(&config.definitions, &config.reach, change, id, value)
}
