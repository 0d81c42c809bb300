//! The functions that modules call, under the names of the interface. The executable exports them by a linker argument
//! (`build.rs` of the binary).
//!
//! Each takes the pointer that the module got with its stream or its configuration. Bytes that they hand out lie in the
//! message or in the instance, until the hook ends or something changes.

/// Functions that take the pointer to something of the proxy's, of that type; without it they find nothing.
macro_rules! about {
    ($(#[$about:meta])* $names:ident: $of:ty; $($name:ident($($argument:ident: $kind:ty),*) -> $answer:ty = $act:expr;)*) => {
        $(#[$about])*
        pub(crate) static $names: &[&str] = &[$(stringify!($name)),*];

        $(
            /// # Safety
            /// The arguments are what the interface says for the function of this name.
            // SAFETY: nothing else in the executable has a name of the interface.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(handle: *mut std::ffi::c_void, $($argument: $kind),*) -> $answer {
                // SAFETY: by the contract above: what it points to is there, and places have room for what is put there.
                unsafe {
                    let act: fn(&$of, $($kind),*) -> $answer = $act;
                    match handle.cast::<$of>().cast_const().as_ref() {
                        Some(known) => act(known, $($argument),*),
                        None => Default::default(),
                    }
                }
            }
        )*

        const _: () = {
            #[used]
            static KEPT: &[Symbol] = &[$(Symbol($name as *const ())),*];
        };
    };
}

mod bodies;
mod calls;
mod config_exchanges;
mod configs;
mod connections;
mod exchanges;
mod facts;
mod fields;
mod metadata;
mod metrics;
mod moments;
mod newcomers;
mod notes;
pub(crate) mod options;
mod process;
mod records;
mod replies;
pub(crate) mod runtime;
mod schedule;
mod secrets;
pub(crate) mod spans;
mod streams;

use std::ffi::{c_int, c_void};

pub(crate) use config_exchanges::{Live, forget};
pub(crate) use moments::View;
pub use process::{set_concurrency, set_validating};
pub(crate) use schedule::{ConfigEvents, Scheduled};

use crate::abi::{Buffer, ConfigRef, Header, Own, StreamRef};
use crate::config::Config;
use crate::instance::Instance;

/// The names of all functions that do something.
pub(crate) static FUNCTIONS: [&&[&str]; 11] = [
    &KNOWN,
    &notes::OF_NOTES,
    &options::OF_OPTIONS,
    &options::OF_OPTIONS_OF_CONNECTIONS,
    &spans::OF_SPANS,
    &spans::OF_SPANNED,
    &records::OF_RECORDS,
    &connections::OF_CONNECTIONS,
    &connections::OF_NETWORK_CONFIGS,
    &newcomers::OF_NEWCOMERS,
    &newcomers::OF_LISTENER_CONFIGS,
];

/// # Safety
/// A pointer that a module got for a stream which is not over.
unsafe fn instance<'a>(handle: StreamRef) -> Option<&'a Instance> {
    // SAFETY: by the contract above; instances are only ever borrowed shared.
    unsafe { handle.cast::<Instance>().cast_const().as_ref() }
}

/// # Safety
/// A pointer that a module got for a configuration which is not gone.
unsafe fn config<'a>(handle: ConfigRef) -> Option<&'a Config> {
    // SAFETY: by the contract above; configurations are only ever borrowed shared.
    unsafe { handle.cast::<Config>().cast_const().as_ref() }
}

/// Writes an answer to where the module wants it.
///
/// # Safety
/// `out` is null or a place for a `T`.
unsafe fn put<T>(out: *mut T, value: T) {
    if !out.is_null() {
        // SAFETY: by the contract above.
        unsafe { out.write(value) };
    }
}

/// # Safety
/// As for [`put`].
unsafe fn give<T>(out: *mut T, found: Option<T>) -> bool {
    // SAFETY: by the contract above.
    found.map(|found| unsafe { put(out, found) }).is_some()
}

/// A function's address, so that nothing between here and the executable drops it.
struct Symbol(#[expect(dead_code, reason = "it is there for the linker")] *const ());

// SAFETY: the address of a function; nobody reads through it.
unsafe impl Sync for Symbol {}

macro_rules! exported {
    ($($name:ident = $module:ident::$function:ident($($argument:ident: $kind:ty),*) $(-> $answer:ty)?;)*) => {
        /// Their names.
        pub(crate) static KNOWN: &[&str] = &[$(stringify!($name)),*];

        $(
            /// # Safety
            /// The arguments are what the interface says for the function of this name.
            // SAFETY: nothing else in the executable has a name of the interface.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($argument: $kind),*) $(-> $answer)? {
                // SAFETY: by the contract above.
                unsafe { $module::$function($($argument),*) }
            }
        )*

        #[used]
        static KEPT: &[Symbol] = &[$(Symbol($name as *const ())),*];
    };
}

exported! {
    envoy_dynamic_module_callback_log = process::log(level: c_int, text: Buffer);
    envoy_dynamic_module_callback_log_v2 = process::log_at(level: c_int, text: Buffer, file: Buffer, line: u32);
    envoy_dynamic_module_callback_get_log_level = process::log_level() -> c_int;
    envoy_dynamic_module_callback_log_enabled = process::log_enabled(level: c_int) -> bool;
    envoy_dynamic_module_callback_get_concurrency = process::concurrency() -> u32;
    envoy_dynamic_module_callback_is_validation_mode = process::is_validating() -> bool;
    envoy_dynamic_module_callback_register_function = process::register_function(key: Buffer, function: *mut c_void) -> bool;
    envoy_dynamic_module_callback_get_function = process::function(key: Buffer, out: *mut *mut c_void) -> bool;
    envoy_dynamic_module_callback_register_shared_data = process::register_data(key: Buffer, data: *mut c_void) -> bool;
    envoy_dynamic_module_callback_get_shared_data = process::data(key: Buffer, out: *mut *mut c_void) -> bool;

    envoy_dynamic_module_callback_get_runtime_bool = runtime::get_bool(key: Buffer, instead: bool) -> bool;
    envoy_dynamic_module_callback_get_runtime_int = runtime::get_int(key: Buffer, instead: u64) -> u64;
    envoy_dynamic_module_callback_get_runtime_number = runtime::get_number(key: Buffer, instead: f64) -> f64;

    envoy_dynamic_module_callback_http_filter_config_generic_secret_subscribe
        = secrets::subscribe(handle: ConfigRef, name: Buffer, source: Buffer) -> usize;
    envoy_dynamic_module_callback_http_filter_config_get_generic_secret
        = secrets::of_config(handle: ConfigRef, number: usize, out: *mut Buffer) -> bool;
    envoy_dynamic_module_callback_http_filter_get_generic_secret
        = secrets::of_stream(handle: StreamRef, number: usize, out: *mut Buffer) -> bool;

    envoy_dynamic_module_callback_http_get_header
        = fields::get(handle: StreamRef, map: c_int, name: Buffer, out: *mut Buffer, index: usize, count: *mut usize) -> bool;
    envoy_dynamic_module_callback_http_get_header_values
        = fields::values(handle: StreamRef, map: c_int, name: Buffer, out: *mut Buffer) -> bool;
    envoy_dynamic_module_callback_http_get_headers_size = fields::count(handle: StreamRef, map: c_int) -> usize;
    envoy_dynamic_module_callback_http_get_headers = fields::all(handle: StreamRef, map: c_int, out: *mut Header) -> bool;
    envoy_dynamic_module_callback_http_add_header
        = fields::add(handle: StreamRef, map: c_int, name: Buffer, value: Buffer) -> bool;
    envoy_dynamic_module_callback_http_set_header
        = fields::set(handle: StreamRef, map: c_int, name: Buffer, value: Buffer) -> bool;

    envoy_dynamic_module_callback_http_get_body_size = bodies::size(handle: StreamRef, kind: c_int) -> usize;
    envoy_dynamic_module_callback_http_get_body_chunks_size = bodies::count(handle: StreamRef, kind: c_int) -> usize;
    envoy_dynamic_module_callback_http_get_body_chunks
        = bodies::chunks(handle: StreamRef, kind: c_int, out: *mut Buffer) -> bool;
    envoy_dynamic_module_callback_http_append_body = bodies::append(handle: StreamRef, kind: c_int, data: Buffer) -> bool;
    envoy_dynamic_module_callback_http_drain_body = bodies::drain(handle: StreamRef, kind: c_int, count: usize) -> bool;
    envoy_dynamic_module_callback_http_received_buffered_request_body = bodies::came_at_once(handle: StreamRef) -> bool;
    envoy_dynamic_module_callback_http_received_buffered_response_body = bodies::came_at_once(handle: StreamRef) -> bool;
    envoy_dynamic_module_callback_http_get_buffer_limit = bodies::limit(handle: StreamRef) -> u64;
    envoy_dynamic_module_callback_http_set_buffer_limit = bodies::set_limit(handle: StreamRef, limit: u64);

    envoy_dynamic_module_callback_http_send_response
        = replies::send(handle: StreamRef, status: u32, headers: *const Header, count: usize, body: Buffer, details: Buffer);
    envoy_dynamic_module_callback_http_send_response_headers
        = replies::begin(handle: StreamRef, headers: *const Header, count: usize, end: bool);
    envoy_dynamic_module_callback_http_send_response_data = replies::piece(handle: StreamRef, data: Buffer, end: bool);
    envoy_dynamic_module_callback_http_send_response_trailers
        = replies::trailers(handle: StreamRef, trailers: *const Header, count: usize);

    envoy_dynamic_module_callback_http_filter_continue_decoding = streams::continue_request(handle: StreamRef);
    envoy_dynamic_module_callback_http_filter_continue_encoding = streams::continue_response(handle: StreamRef);
    envoy_dynamic_module_callback_http_clear_route_cache = streams::clear_route(handle: StreamRef);
    envoy_dynamic_module_callback_http_clear_route_cluster_cache = streams::clear_route(handle: StreamRef);
    envoy_dynamic_module_callback_get_most_specific_route_config = streams::route_config(handle: StreamRef) -> Own;
    envoy_dynamic_module_callback_http_filter_get_worker_index = streams::worker(handle: StreamRef) -> u32;
    envoy_dynamic_module_callback_http_filter_reset_stream
        = streams::reset(handle: StreamRef, reason: c_int, details: Buffer);
    envoy_dynamic_module_callback_http_filter_recreate_stream
        = streams::recreate(handle: StreamRef, headers: *const Header, count: usize) -> bool;
    envoy_dynamic_module_callback_http_filter_send_go_away_and_close = streams::go_away(handle: StreamRef, graceful: bool);
    envoy_dynamic_module_callback_http_get_cluster_name = streams::cluster(handle: StreamRef, out: *mut Buffer) -> bool;
    envoy_dynamic_module_callback_http_get_cluster_host_count
        = streams::hosts(handle: StreamRef, priority: u32, all: *mut usize, healthy: *mut usize, degraded: *mut usize) -> bool;
    envoy_dynamic_module_callback_http_set_upstream_override_host
        = streams::override_host(handle: StreamRef, host: Buffer, strict: bool) -> bool;

    envoy_dynamic_module_callback_http_filter_get_attribute_string
        = facts::text(handle: StreamRef, attribute: c_int, out: *mut Buffer) -> bool;
    envoy_dynamic_module_callback_http_filter_get_attribute_int
        = facts::number(handle: StreamRef, attribute: c_int, out: *mut u64) -> bool;
    envoy_dynamic_module_callback_http_filter_get_attribute_bool
        = facts::truth(handle: StreamRef, attribute: c_int, out: *mut bool) -> bool;

    envoy_dynamic_module_callback_http_get_downstream_direct_remote_address
        = facts::direct_remote(handle: StreamRef, out: *mut Buffer) -> bool;
    envoy_dynamic_module_callback_http_get_upstream_remote_address
        = facts::upstream_remote(handle: StreamRef, out: *mut Buffer) -> bool;
    envoy_dynamic_module_callback_http_get_upstream_connection_id = facts::upstream_connection(handle: StreamRef) -> u64;

    envoy_dynamic_module_callback_http_set_dynamic_metadata_number
        = metadata::set_number(handle: StreamRef, namespace: Buffer, key: Buffer, value: f64);
    envoy_dynamic_module_callback_http_set_dynamic_metadata_string
        = metadata::set_text(handle: StreamRef, namespace: Buffer, key: Buffer, value: Buffer);
    envoy_dynamic_module_callback_http_set_dynamic_metadata_string_batch
        = metadata::set_texts(handle: StreamRef, namespace: Buffer, entries: *const Header, count: usize);
    envoy_dynamic_module_callback_http_set_dynamic_metadata_bool
        = metadata::set_bool(handle: StreamRef, namespace: Buffer, key: Buffer, value: bool);
    envoy_dynamic_module_callback_http_get_metadata_number
        = metadata::number(handle: StreamRef, source: c_int, namespace: Buffer, key: Buffer, out: *mut f64) -> bool;
    envoy_dynamic_module_callback_http_get_metadata_string
        = metadata::text(handle: StreamRef, source: c_int, namespace: Buffer, key: Buffer, out: *mut Buffer) -> bool;
    envoy_dynamic_module_callback_http_get_metadata_bool
        = metadata::truth(handle: StreamRef, source: c_int, namespace: Buffer, key: Buffer, out: *mut bool) -> bool;
    envoy_dynamic_module_callback_http_get_metadata_keys_count
        = metadata::key_count(handle: StreamRef, source: c_int, namespace: Buffer) -> usize;
    envoy_dynamic_module_callback_http_get_metadata_keys
        = metadata::keys(handle: StreamRef, source: c_int, namespace: Buffer, out: *mut Buffer) -> bool;
    envoy_dynamic_module_callback_http_get_metadata_namespaces_count
        = metadata::namespace_count(handle: StreamRef, source: c_int) -> usize;
    envoy_dynamic_module_callback_http_get_metadata_namespaces
        = metadata::namespaces(handle: StreamRef, source: c_int, out: *mut Buffer) -> bool;
    envoy_dynamic_module_callback_http_add_dynamic_metadata_list_number
        = metadata::add_number(handle: StreamRef, namespace: Buffer, key: Buffer, value: f64) -> bool;
    envoy_dynamic_module_callback_http_add_dynamic_metadata_list_string
        = metadata::add_text(handle: StreamRef, namespace: Buffer, key: Buffer, value: Buffer) -> bool;
    envoy_dynamic_module_callback_http_add_dynamic_metadata_list_bool
        = metadata::add_bool(handle: StreamRef, namespace: Buffer, key: Buffer, value: bool) -> bool;
    envoy_dynamic_module_callback_http_get_metadata_list_size
        = metadata::list_size(handle: StreamRef, source: c_int, namespace: Buffer, key: Buffer, out: *mut usize) -> bool;
    envoy_dynamic_module_callback_http_get_metadata_list_number = metadata::list_number(
        handle: StreamRef, source: c_int, namespace: Buffer, key: Buffer, index: usize, out: *mut f64) -> bool;
    envoy_dynamic_module_callback_http_get_metadata_list_string = metadata::list_text(
        handle: StreamRef, source: c_int, namespace: Buffer, key: Buffer, index: usize, out: *mut Buffer) -> bool;
    envoy_dynamic_module_callback_http_get_metadata_list_bool = metadata::list_bool(
        handle: StreamRef, source: c_int, namespace: Buffer, key: Buffer, index: usize, out: *mut bool) -> bool;
    envoy_dynamic_module_callback_http_set_filter_state_bytes
        = metadata::set_state(handle: StreamRef, key: Buffer, value: Buffer) -> bool;
    envoy_dynamic_module_callback_http_get_filter_state_bytes
        = metadata::state(handle: StreamRef, key: Buffer, out: *mut Buffer) -> bool;
    envoy_dynamic_module_callback_http_has_filter_state
        = metadata::has_state(handle: StreamRef, key: Buffer) -> bool;

    envoy_dynamic_module_callback_http_filter_config_define_counter
        = metrics::counter(handle: ConfigRef, name: Buffer, labels: *const Buffer, count: usize, out: *mut usize) -> c_int;
    envoy_dynamic_module_callback_http_filter_config_define_gauge
        = metrics::gauge(handle: ConfigRef, name: Buffer, labels: *const Buffer, count: usize, out: *mut usize) -> c_int;
    envoy_dynamic_module_callback_http_filter_config_define_histogram
        = metrics::histogram(handle: ConfigRef, name: Buffer, labels: *const Buffer, count: usize, out: *mut usize) -> c_int;
    envoy_dynamic_module_callback_http_filter_increment_counter
        = metrics::increment(handle: StreamRef, id: usize, labels: *const Buffer, count: usize, value: u64) -> c_int;
    envoy_dynamic_module_callback_http_filter_increment_gauge
        = metrics::increase(handle: StreamRef, id: usize, labels: *const Buffer, count: usize, value: u64) -> c_int;
    envoy_dynamic_module_callback_http_filter_decrement_gauge
        = metrics::decrease(handle: StreamRef, id: usize, labels: *const Buffer, count: usize, value: u64) -> c_int;
    envoy_dynamic_module_callback_http_filter_set_gauge
        = metrics::set(handle: StreamRef, id: usize, labels: *const Buffer, count: usize, value: u64) -> c_int;
    envoy_dynamic_module_callback_http_filter_record_histogram_value
        = metrics::record(handle: StreamRef, id: usize, labels: *const Buffer, count: usize, value: u64) -> c_int;

    envoy_dynamic_module_callback_http_filter_config_increment_counter = metrics::config_increment(
        handle: ConfigRef, id: usize, labels: *const Buffer, count: usize, value: u64) -> c_int;
    envoy_dynamic_module_callback_http_filter_config_increment_gauge = metrics::config_increase(
        handle: ConfigRef, id: usize, labels: *const Buffer, count: usize, value: u64) -> c_int;
    envoy_dynamic_module_callback_http_filter_config_decrement_gauge = metrics::config_decrease(
        handle: ConfigRef, id: usize, labels: *const Buffer, count: usize, value: u64) -> c_int;
    envoy_dynamic_module_callback_http_filter_config_set_gauge
        = metrics::config_set(handle: ConfigRef, id: usize, labels: *const Buffer, count: usize, value: u64) -> c_int;
    envoy_dynamic_module_callback_http_filter_config_record_histogram_value = metrics::config_record(
        handle: ConfigRef, id: usize, labels: *const Buffer, count: usize, value: u64) -> c_int;

    envoy_dynamic_module_callback_access_logger_config_define_counter
        = metrics::logger_counter(handle: ConfigRef, name: Buffer, out: *mut usize) -> c_int;
    envoy_dynamic_module_callback_access_logger_config_define_gauge
        = metrics::logger_gauge(handle: ConfigRef, name: Buffer, out: *mut usize) -> c_int;
    envoy_dynamic_module_callback_access_logger_config_define_histogram
        = metrics::logger_histogram(handle: ConfigRef, name: Buffer, out: *mut usize) -> c_int;
    envoy_dynamic_module_callback_access_logger_increment_counter
        = metrics::logger_increment(handle: ConfigRef, id: usize, value: u64) -> c_int;
    envoy_dynamic_module_callback_access_logger_increment_gauge
        = metrics::logger_increase(handle: ConfigRef, id: usize, value: u64) -> c_int;
    envoy_dynamic_module_callback_access_logger_decrement_gauge
        = metrics::logger_decrease(handle: ConfigRef, id: usize, value: u64) -> c_int;
    envoy_dynamic_module_callback_access_logger_set_gauge
        = metrics::logger_set(handle: ConfigRef, id: usize, value: u64) -> c_int;
    envoy_dynamic_module_callback_access_logger_record_histogram_value
        = metrics::logger_record(handle: ConfigRef, id: usize, value: u64) -> c_int;

    envoy_dynamic_module_callback_http_filter_scheduler_new = schedule::open(handle: StreamRef) -> *mut c_void;
    envoy_dynamic_module_callback_http_filter_scheduler_commit = schedule::commit(scheduler: *mut c_void, event: u64);
    envoy_dynamic_module_callback_http_filter_scheduler_delete = schedule::close(scheduler: *mut c_void);
    envoy_dynamic_module_callback_http_filter_config_scheduler_new
        = schedule::open_config(handle: ConfigRef) -> *mut c_void;
    envoy_dynamic_module_callback_http_filter_config_scheduler_commit
        = schedule::commit_config(scheduler: *mut c_void, event: u64);
    envoy_dynamic_module_callback_http_filter_config_scheduler_delete = schedule::close_config(scheduler: *mut c_void);

    envoy_dynamic_module_callback_network_filter_scheduler_commit = schedule::commit(scheduler: *mut c_void, event: u64);
    envoy_dynamic_module_callback_network_filter_scheduler_delete = schedule::close(scheduler: *mut c_void);
    envoy_dynamic_module_callback_network_filter_config_scheduler_new
        = schedule::open_network_config(handle: ConfigRef) -> *mut c_void;
    envoy_dynamic_module_callback_network_filter_config_scheduler_commit
        = schedule::commit_config(scheduler: *mut c_void, event: u64);
    envoy_dynamic_module_callback_network_filter_config_scheduler_delete = schedule::close_config(scheduler: *mut c_void);

    envoy_dynamic_module_callback_listener_filter_scheduler_commit = schedule::commit(scheduler: *mut c_void, event: u64);
    envoy_dynamic_module_callback_listener_filter_scheduler_delete = schedule::close(scheduler: *mut c_void);
    envoy_dynamic_module_callback_listener_filter_config_scheduler_commit
        = schedule::commit_config(scheduler: *mut c_void, event: u64);
    envoy_dynamic_module_callback_listener_filter_config_scheduler_delete = schedule::close_config(scheduler: *mut c_void);

    envoy_dynamic_module_callback_http_filter_http_callout = calls::call(
        handle: StreamRef, id: *mut u64, cluster: Buffer, headers: *const Header, count: usize, body: Buffer, timeout: u64
    ) -> c_int;
    envoy_dynamic_module_callback_http_filter_start_http_stream = exchanges::open(
        handle: StreamRef, id: *mut u64, cluster: Buffer, headers: *const Header, count: usize, body: Buffer, end: bool,
        timeout: u64) -> c_int;
    envoy_dynamic_module_callback_http_stream_send_data
        = exchanges::send(handle: StreamRef, id: u64, data: Buffer, end: bool) -> bool;
    envoy_dynamic_module_callback_http_stream_send_trailers
        = exchanges::trailers(handle: StreamRef, id: u64, trailers: *const Header, count: usize) -> bool;
    envoy_dynamic_module_callback_http_filter_reset_http_stream = exchanges::reset(handle: StreamRef, id: u64);
    envoy_dynamic_module_callback_http_filter_config_http_callout = configs::call(
        handle: ConfigRef, id: *mut u64, cluster: Buffer, headers: *const Header, count: usize, body: Buffer, timeout: u64
    ) -> c_int;

    envoy_dynamic_module_callback_http_filter_config_start_http_stream = config_exchanges::open(
        handle: ConfigRef, id: *mut u64, cluster: Buffer, headers: *const Header, count: usize, body: Buffer, end: bool,
        timeout: u64) -> c_int;
    envoy_dynamic_module_callback_http_filter_config_stream_send_data
        = config_exchanges::send(handle: ConfigRef, id: u64, data: Buffer, end: bool) -> bool;
    envoy_dynamic_module_callback_http_filter_config_stream_send_trailers
        = config_exchanges::trailers(handle: ConfigRef, id: u64, trailers: *const Header, count: usize) -> bool;
    envoy_dynamic_module_callback_http_filter_config_reset_http_stream
        = config_exchanges::reset(handle: ConfigRef, id: u64);

    envoy_dynamic_module_callback_http_child_span_finish = spans::finish(child: *mut c_void);
}
