//! The binary interface, versions 0.1 and 0.2: its types and the proxy's functions. `include/postrider_module.h` says the
//! same in C.
//!
//! Hidden from the documentation: modules use what is built on it, and the macro [`entry!`](crate::entry) needs its types.

use std::ffi::{c_char, c_int, c_void};
use std::slice;

/// Bytes that somebody lends for a call.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Buffer {
    start: *const c_char,
    length: usize,
}

/// A field with its name.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Header {
    name: *const c_char,
    name_length: usize,
    value: *const c_char,
    value_length: usize,
}

/// When the parts of a stream came and went: nanoseconds since it began, which is said since 1970; -1 for what is not known.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Times {
    pub(crate) start: i64,
    pub(crate) complete: i64,
    others: [i64; 6],
}

/// More of them, with those that are known marked.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Moments {
    pub(crate) times: [i64; 19],
    pub(crate) known: [u8; 24],
}

/// Bytes, the last two as they passed the upstream's connection.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Sizes {
    pub(crate) received: u64,
    pub(crate) sent: u64,
    on_wire: [u64; 2],
}

/// The proxy's handle of a stream, a connection or a logger.
pub type StreamRef = *mut c_void;

/// The proxy's handle of a filter's configuration.
pub type ConfigRef = *mut c_void;

/// Something of the module's own, as the proxy keeps it.
pub type Own = *const c_void;

impl Buffer {
    /// None: where a value is left out.
    pub const NOTHING: Buffer = Buffer { start: std::ptr::null(), length: 0 };

    /// These bytes.
    pub fn of(bytes: &[u8]) -> Buffer {
        Buffer { start: bytes.as_ptr().cast(), length: bytes.len() }
    }

    /// The bytes.
    ///
    /// # Safety
    /// They are there and stay as they are for as long as the answer is used.
    pub unsafe fn bytes<'a>(self) -> &'a [u8] {
        if self.start.is_null() || self.length == 0 {
            return &[];
        }
        // SAFETY: by the contract above.
        unsafe { slice::from_raw_parts(self.start.cast(), self.length) }
    }
}

impl Header {
    pub(crate) const NOTHING: Header =
        Header { name: std::ptr::null(), name_length: 0, value: std::ptr::null(), value_length: 0 };

    pub(crate) fn of(name: &[u8], value: &[u8]) -> Header {
        Header {
            name: name.as_ptr().cast(),
            name_length: name.len(),
            value: value.as_ptr().cast(),
            value_length: value.len(),
        }
    }

    /// # Safety
    /// As for [`Buffer::bytes`].
    pub(crate) unsafe fn parts<'a>(self) -> (&'a [u8], &'a [u8]) {
        let name = Buffer { start: self.name, length: self.name_length };
        let value = Buffer { start: self.value, length: self.value_length };
        // SAFETY: by the contract above.
        unsafe { (name.bytes(), value.bytes()) }
    }
}

/// The items of an array that the proxy passes.
///
/// # Safety
/// `start` points to `count` of them, which stay as they are for as long as the answer is used; it may be null for none.
pub(crate) unsafe fn items<'a, T>(start: *const T, count: usize) -> &'a [T] {
    if start.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: by the contract above.
    unsafe { slice::from_raw_parts(start, count) }
}

macro_rules! proxy {
    ($($name:ident = $full:literal ($($argument:ident: $kind:ty),*) $(-> $answer:ty)?;)*) => {
        unsafe extern "C" {
            $(
                #[link_name = $full]
                pub(crate) fn $name($($argument: $kind),*) $(-> $answer)?;
            )*
        }
    };
}

// What each is for is said where it is used.
proxy! {
    log = "envoy_dynamic_module_callback_log"(level: c_int, text: Buffer);
    log_enabled = "envoy_dynamic_module_callback_log_enabled"(level: c_int) -> bool;
    get_concurrency = "envoy_dynamic_module_callback_get_concurrency"() -> u32;

    get_header = "envoy_dynamic_module_callback_http_get_header"(
        stream: StreamRef, map: c_int, name: Buffer, out: *mut Buffer, index: usize, count: *mut usize) -> bool;
    get_headers_size = "envoy_dynamic_module_callback_http_get_headers_size"(stream: StreamRef, map: c_int) -> usize;
    get_headers = "envoy_dynamic_module_callback_http_get_headers"(
        stream: StreamRef, map: c_int, out: *mut Header) -> bool;
    add_header = "envoy_dynamic_module_callback_http_add_header"(
        stream: StreamRef, map: c_int, name: Buffer, value: Buffer) -> bool;
    set_header = "envoy_dynamic_module_callback_http_set_header"(
        stream: StreamRef, map: c_int, name: Buffer, value: Buffer) -> bool;

    get_body_size = "envoy_dynamic_module_callback_http_get_body_size"(stream: StreamRef, part: c_int) -> usize;
    get_body_chunks_size = "envoy_dynamic_module_callback_http_get_body_chunks_size"(
        stream: StreamRef, part: c_int) -> usize;
    get_body_chunks = "envoy_dynamic_module_callback_http_get_body_chunks"(
        stream: StreamRef, part: c_int, out: *mut Buffer) -> bool;
    append_body = "envoy_dynamic_module_callback_http_append_body"(
        stream: StreamRef, part: c_int, data: Buffer) -> bool;
    drain_body = "envoy_dynamic_module_callback_http_drain_body"(
        stream: StreamRef, part: c_int, count: usize) -> bool;
    received_buffered_request_body = "envoy_dynamic_module_callback_http_received_buffered_request_body"(
        stream: StreamRef) -> bool;
    received_buffered_response_body = "envoy_dynamic_module_callback_http_received_buffered_response_body"(
        stream: StreamRef) -> bool;
    get_buffer_limit = "envoy_dynamic_module_callback_http_get_buffer_limit"(stream: StreamRef) -> u64;
    set_buffer_limit = "envoy_dynamic_module_callback_http_set_buffer_limit"(stream: StreamRef, limit: u64);

    send_response = "envoy_dynamic_module_callback_http_send_response"(
        stream: StreamRef, status: u32, headers: *const Header, count: usize, body: Buffer, details: Buffer);
    send_response_headers = "envoy_dynamic_module_callback_http_send_response_headers"(
        stream: StreamRef, headers: *const Header, count: usize, end: bool);
    send_response_data = "envoy_dynamic_module_callback_http_send_response_data"(
        stream: StreamRef, data: Buffer, end: bool);
    send_response_trailers = "envoy_dynamic_module_callback_http_send_response_trailers"(
        stream: StreamRef, trailers: *const Header, count: usize);

    continue_decoding = "envoy_dynamic_module_callback_http_filter_continue_decoding"(stream: StreamRef);
    continue_encoding = "envoy_dynamic_module_callback_http_filter_continue_encoding"(stream: StreamRef);
    clear_route_cache = "envoy_dynamic_module_callback_http_clear_route_cache"(stream: StreamRef);
    reset_stream = "envoy_dynamic_module_callback_http_filter_reset_stream"(
        stream: StreamRef, reason: c_int, details: Buffer);
    recreate_stream = "envoy_dynamic_module_callback_http_filter_recreate_stream"(
        stream: StreamRef, headers: *const Header, count: usize) -> bool;
    get_active_span = "envoy_dynamic_module_callback_http_get_active_span"(stream: StreamRef) -> *mut c_void;
    span_set_tag = "envoy_dynamic_module_callback_http_span_set_tag"(span: *mut c_void, name: Buffer, value: Buffer);
    span_set_operation = "envoy_dynamic_module_callback_http_span_set_operation"(span: *mut c_void, name: Buffer);
    span_log = "envoy_dynamic_module_callback_http_span_log"(stream: StreamRef, span: *mut c_void, event: Buffer);
    span_set_sampled = "envoy_dynamic_module_callback_http_span_set_sampled"(span: *mut c_void, sampled: bool);
    span_disable_local_decision = "envoy_dynamic_module_callback_http_span_disable_local_decision"(
        span: *mut c_void);
    span_get_trace_id = "envoy_dynamic_module_callback_http_span_get_trace_id"(
        span: *mut c_void, out: *mut Buffer) -> bool;
    span_get_span_id = "envoy_dynamic_module_callback_http_span_get_span_id"(
        span: *mut c_void, out: *mut Buffer) -> bool;
    span_spawn_child = "envoy_dynamic_module_callback_http_span_spawn_child"(
        stream: StreamRef, span: *mut c_void, name: Buffer) -> *mut c_void;
    child_span_finish = "envoy_dynamic_module_callback_http_child_span_finish"(span: *mut c_void);
    set_socket_option_int = "envoy_dynamic_module_callback_http_set_socket_option_int"(
        stream: StreamRef, level: i64, name: i64, state: c_int, direction: c_int, value: i64) -> bool;
    get_route_config = "envoy_dynamic_module_callback_get_most_specific_route_config"(stream: StreamRef) -> Own;
    get_worker_index = "envoy_dynamic_module_callback_http_filter_get_worker_index"(stream: StreamRef) -> u32;
    get_cluster_name = "envoy_dynamic_module_callback_http_get_cluster_name"(
        stream: StreamRef, out: *mut Buffer) -> bool;
    set_upstream_override_host = "envoy_dynamic_module_callback_http_set_upstream_override_host"(
        stream: StreamRef, host: Buffer, strict: bool) -> bool;

    get_attribute_string = "envoy_dynamic_module_callback_http_filter_get_attribute_string"(
        stream: StreamRef, attribute: c_int, out: *mut Buffer) -> bool;
    get_attribute_int = "envoy_dynamic_module_callback_http_filter_get_attribute_int"(
        stream: StreamRef, attribute: c_int, out: *mut u64) -> bool;
    get_attribute_bool = "envoy_dynamic_module_callback_http_filter_get_attribute_bool"(
        stream: StreamRef, attribute: c_int, out: *mut bool) -> bool;

    set_metadata_string = "envoy_dynamic_module_callback_http_set_dynamic_metadata_string"(
        stream: StreamRef, namespace: Buffer, key: Buffer, value: Buffer);
    set_metadata_number = "envoy_dynamic_module_callback_http_set_dynamic_metadata_number"(
        stream: StreamRef, namespace: Buffer, key: Buffer, value: f64);
    set_metadata_bool = "envoy_dynamic_module_callback_http_set_dynamic_metadata_bool"(
        stream: StreamRef, namespace: Buffer, key: Buffer, value: bool);
    get_metadata_string = "envoy_dynamic_module_callback_http_get_metadata_string"(
        stream: StreamRef, source: c_int, namespace: Buffer, key: Buffer, out: *mut Buffer) -> bool;
    get_metadata_number = "envoy_dynamic_module_callback_http_get_metadata_number"(
        stream: StreamRef, source: c_int, namespace: Buffer, key: Buffer, out: *mut f64) -> bool;
    get_metadata_bool = "envoy_dynamic_module_callback_http_get_metadata_bool"(
        stream: StreamRef, source: c_int, namespace: Buffer, key: Buffer, out: *mut bool) -> bool;
    set_filter_state = "envoy_dynamic_module_callback_http_set_filter_state_bytes"(
        stream: StreamRef, key: Buffer, value: Buffer) -> bool;
    get_filter_state = "envoy_dynamic_module_callback_http_get_filter_state_bytes"(
        stream: StreamRef, key: Buffer, out: *mut Buffer) -> bool;

    set_metadata_struct = "envoy_dynamic_module_callback_http_set_dynamic_metadata_struct"(
        stream: StreamRef, namespace: Buffer, fields: Buffer);
    set_metadata_message = "envoy_dynamic_module_callback_http_set_dynamic_typed_metadata"(
        stream: StreamRef, namespace: Buffer, any: Buffer);
    get_metadata_message = "envoy_dynamic_module_callback_http_get_typed_metadata"(
        stream: StreamRef, source: c_int, namespace: Buffer, kind: *mut Buffer, value: *mut Buffer) -> bool;
    set_typed_filter_state = "envoy_dynamic_module_callback_http_set_filter_state_typed"(
        stream: StreamRef, key: Buffer, value: Buffer) -> bool;
    get_typed_filter_state = "envoy_dynamic_module_callback_http_get_filter_state_typed"(
        stream: StreamRef, key: Buffer, out: *mut Buffer) -> bool;
    add_custom_flag = "envoy_dynamic_module_callback_http_add_custom_flag"(stream: StreamRef, flag: Buffer);
    get_timing_info = "envoy_dynamic_module_callback_http_get_timing_info"(stream: StreamRef, out: *mut Moments);

    subscribe_secret = "envoy_dynamic_module_callback_http_filter_config_generic_secret_subscribe"(
        config: ConfigRef, name: Buffer, source: Buffer) -> usize;
    get_config_secret = "envoy_dynamic_module_callback_http_filter_config_get_generic_secret"(
        config: ConfigRef, number: usize, out: *mut Buffer) -> bool;
    get_secret = "envoy_dynamic_module_callback_http_filter_get_generic_secret"(
        stream: StreamRef, number: usize, out: *mut Buffer) -> bool;
    get_runtime_bool = "envoy_dynamic_module_callback_get_runtime_bool"(key: Buffer, instead: bool) -> bool;
    get_runtime_int = "envoy_dynamic_module_callback_get_runtime_int"(key: Buffer, instead: u64) -> u64;
    get_runtime_number = "envoy_dynamic_module_callback_get_runtime_number"(key: Buffer, instead: f64) -> f64;

    define_counter = "envoy_dynamic_module_callback_http_filter_config_define_counter"(
        config: ConfigRef, name: Buffer, labels: *const Buffer, count: usize, out: *mut usize) -> c_int;
    define_gauge = "envoy_dynamic_module_callback_http_filter_config_define_gauge"(
        config: ConfigRef, name: Buffer, labels: *const Buffer, count: usize, out: *mut usize) -> c_int;
    define_histogram = "envoy_dynamic_module_callback_http_filter_config_define_histogram"(
        config: ConfigRef, name: Buffer, labels: *const Buffer, count: usize, out: *mut usize) -> c_int;
    increment_counter = "envoy_dynamic_module_callback_http_filter_increment_counter"(
        stream: StreamRef, id: usize, labels: *const Buffer, count: usize, value: u64) -> c_int;
    increment_gauge = "envoy_dynamic_module_callback_http_filter_increment_gauge"(
        stream: StreamRef, id: usize, labels: *const Buffer, count: usize, value: u64) -> c_int;
    decrement_gauge = "envoy_dynamic_module_callback_http_filter_decrement_gauge"(
        stream: StreamRef, id: usize, labels: *const Buffer, count: usize, value: u64) -> c_int;
    set_gauge = "envoy_dynamic_module_callback_http_filter_set_gauge"(
        stream: StreamRef, id: usize, labels: *const Buffer, count: usize, value: u64) -> c_int;
    record_histogram = "envoy_dynamic_module_callback_http_filter_record_histogram_value"(
        stream: StreamRef, id: usize, labels: *const Buffer, count: usize, value: u64) -> c_int;

    scheduler_new = "envoy_dynamic_module_callback_http_filter_scheduler_new"(stream: StreamRef) -> *mut c_void;
    scheduler_commit = "envoy_dynamic_module_callback_http_filter_scheduler_commit"(scheduler: *mut c_void, event: u64);
    scheduler_delete = "envoy_dynamic_module_callback_http_filter_scheduler_delete"(scheduler: *mut c_void);
    config_scheduler_new = "envoy_dynamic_module_callback_http_filter_config_scheduler_new"(
        config: ConfigRef) -> *mut c_void;
    config_scheduler_commit = "envoy_dynamic_module_callback_http_filter_config_scheduler_commit"(
        scheduler: *mut c_void, event: u64);
    config_scheduler_delete = "envoy_dynamic_module_callback_http_filter_config_scheduler_delete"(
        scheduler: *mut c_void);

    http_callout = "envoy_dynamic_module_callback_http_filter_http_callout"(
        stream: StreamRef, id: *mut u64, cluster: Buffer, headers: *const Header, count: usize, body: Buffer,
        timeout: u64) -> c_int;
    config_http_callout = "envoy_dynamic_module_callback_http_filter_config_http_callout"(
        config: ConfigRef, id: *mut u64, cluster: Buffer, headers: *const Header, count: usize, body: Buffer,
        timeout: u64) -> c_int;
    get_read_buffer_size = "envoy_dynamic_module_callback_network_filter_get_read_buffer_size"(
        connection: StreamRef) -> usize;
    get_read_buffer_chunks_size = "envoy_dynamic_module_callback_network_filter_get_read_buffer_chunks_size"(
        connection: StreamRef) -> usize;
    get_read_buffer_chunks = "envoy_dynamic_module_callback_network_filter_get_read_buffer_chunks"(
        connection: StreamRef, out: *mut Buffer) -> bool;
    drain_read_buffer = "envoy_dynamic_module_callback_network_filter_drain_read_buffer"(
        connection: StreamRef, count: usize) -> bool;
    prepend_read_buffer = "envoy_dynamic_module_callback_network_filter_prepend_read_buffer"(
        connection: StreamRef, data: Buffer) -> bool;
    append_read_buffer = "envoy_dynamic_module_callback_network_filter_append_read_buffer"(
        connection: StreamRef, data: Buffer) -> bool;
    get_write_buffer_size = "envoy_dynamic_module_callback_network_filter_get_write_buffer_size"(
        connection: StreamRef) -> usize;
    get_write_buffer_chunks_size = "envoy_dynamic_module_callback_network_filter_get_write_buffer_chunks_size"(
        connection: StreamRef) -> usize;
    get_write_buffer_chunks = "envoy_dynamic_module_callback_network_filter_get_write_buffer_chunks"(
        connection: StreamRef, out: *mut Buffer) -> bool;
    drain_write_buffer = "envoy_dynamic_module_callback_network_filter_drain_write_buffer"(
        connection: StreamRef, count: usize) -> bool;
    prepend_write_buffer = "envoy_dynamic_module_callback_network_filter_prepend_write_buffer"(
        connection: StreamRef, data: Buffer) -> bool;
    append_write_buffer = "envoy_dynamic_module_callback_network_filter_append_write_buffer"(
        connection: StreamRef, data: Buffer) -> bool;
    connection_write = "envoy_dynamic_module_callback_network_filter_write"(
        connection: StreamRef, data: Buffer, end: bool);
    inject_read_data = "envoy_dynamic_module_callback_network_filter_inject_read_data"(
        connection: StreamRef, data: Buffer, end: bool);
    inject_write_data = "envoy_dynamic_module_callback_network_filter_inject_write_data"(
        connection: StreamRef, data: Buffer, end: bool);
    continue_reading = "envoy_dynamic_module_callback_network_filter_continue_reading"(
        connection: StreamRef);
    close_with_details = "envoy_dynamic_module_callback_network_filter_close_with_details"(
        connection: StreamRef, kind: c_int, details: Buffer);
    disable_close = "envoy_dynamic_module_callback_network_filter_disable_close"(
        connection: StreamRef, disabled: bool);
    read_disable = "envoy_dynamic_module_callback_network_filter_read_disable"(
        connection: StreamRef, disabled: bool) -> c_int;
    enable_half_close = "envoy_dynamic_module_callback_network_filter_enable_half_close"(
        connection: StreamRef, enabled: bool);
    get_connection_buffer_limit = "envoy_dynamic_module_callback_network_filter_get_buffer_limit"(
        connection: StreamRef) -> u32;
    set_connection_buffer_limits = "envoy_dynamic_module_callback_network_filter_set_buffer_limits"(
        connection: StreamRef, limit: u32);
    get_connection_id = "envoy_dynamic_module_callback_network_filter_get_connection_id"(
        connection: StreamRef) -> u64;
    get_connection_remote_address = "envoy_dynamic_module_callback_network_filter_get_remote_address"(
        connection: StreamRef, out: *mut Buffer, port: *mut u32) -> bool;
    get_connection_direct_remote_address = "envoy_dynamic_module_callback_network_filter_get_direct_remote_address"(
        connection: StreamRef, out: *mut Buffer, port: *mut u32) -> bool;
    get_connection_local_address = "envoy_dynamic_module_callback_network_filter_get_local_address"(
        connection: StreamRef, out: *mut Buffer, port: *mut u32) -> bool;
    get_upstream_host_address = "envoy_dynamic_module_callback_network_filter_get_upstream_host_address"(
        connection: StreamRef, out: *mut Buffer, port: *mut u32) -> bool;
    is_ssl = "envoy_dynamic_module_callback_network_filter_is_ssl"(
        connection: StreamRef) -> bool;
    get_requested_server_name = "envoy_dynamic_module_callback_network_filter_get_requested_server_name"(
        connection: StreamRef, out: *mut Buffer) -> bool;
    get_connection_string = "envoy_dynamic_module_callback_network_filter_get_attribute_string"(
        connection: StreamRef, attribute: c_int, out: *mut Buffer) -> bool;
    get_connection_int = "envoy_dynamic_module_callback_network_filter_get_attribute_int"(
        connection: StreamRef, attribute: c_int, out: *mut u64) -> bool;
    get_connection_bool = "envoy_dynamic_module_callback_network_filter_get_attribute_bool"(
        connection: StreamRef, attribute: c_int, out: *mut bool) -> bool;
    get_connection_worker = "envoy_dynamic_module_callback_network_filter_get_worker_index"(
        connection: StreamRef) -> u32;
    set_connection_metadata = "envoy_dynamic_module_callback_network_set_dynamic_metadata_string"(
        connection: StreamRef, namespace: Buffer, key: Buffer, value: Buffer);
    get_connection_metadata = "envoy_dynamic_module_callback_network_get_dynamic_metadata_string"(
        connection: StreamRef, namespace: Buffer, key: Buffer, out: *mut Buffer) -> bool;
    set_connection_state = "envoy_dynamic_module_callback_network_set_filter_state_bytes"(
        connection: StreamRef, key: Buffer, value: Buffer) -> bool;
    get_connection_state_bytes = "envoy_dynamic_module_callback_network_get_filter_state_bytes"(
        connection: StreamRef, key: Buffer, out: *mut Buffer) -> bool;
    set_connection_state_typed = "envoy_dynamic_module_callback_network_set_filter_state_typed"(
        connection: StreamRef, key: Buffer, value: Buffer) -> bool;
    connection_callout = "envoy_dynamic_module_callback_network_filter_http_callout"(
        connection: StreamRef, id: *mut u64, cluster: Buffer, headers: *const Header, count: usize, body: Buffer,
        timeout: u64) -> c_int;
    network_define_counter = "envoy_dynamic_module_callback_network_filter_config_define_counter"(
        config: ConfigRef, name: Buffer, out: *mut usize) -> c_int;
    network_define_gauge = "envoy_dynamic_module_callback_network_filter_config_define_gauge"(
        config: ConfigRef, name: Buffer, out: *mut usize) -> c_int;
    network_define_histogram = "envoy_dynamic_module_callback_network_filter_config_define_histogram"(
        config: ConfigRef, name: Buffer, out: *mut usize) -> c_int;
    connection_increment_counter = "envoy_dynamic_module_callback_network_filter_increment_counter"(
        connection: StreamRef, id: usize, value: u64) -> c_int;
    connection_increment_gauge = "envoy_dynamic_module_callback_network_filter_increment_gauge"(
        connection: StreamRef, id: usize, value: u64) -> c_int;
    connection_decrement_gauge = "envoy_dynamic_module_callback_network_filter_decrement_gauge"(
        connection: StreamRef, id: usize, value: u64) -> c_int;
    connection_record_histogram = "envoy_dynamic_module_callback_network_filter_record_histogram_value"(
        connection: StreamRef, id: usize, value: u64) -> c_int;
    connection_scheduler_new = "envoy_dynamic_module_callback_network_filter_scheduler_new"(
        connection: StreamRef) -> *mut c_void;
    connection_scheduler_commit = "envoy_dynamic_module_callback_network_filter_scheduler_commit"(
        scheduler: *mut c_void, event: u64);
    connection_scheduler_delete = "envoy_dynamic_module_callback_network_filter_scheduler_delete"(
        scheduler: *mut c_void);

    logger_define_counter = "envoy_dynamic_module_callback_access_logger_config_define_counter"(
        config: ConfigRef, name: Buffer, out: *mut usize) -> c_int;
    logger_define_gauge = "envoy_dynamic_module_callback_access_logger_config_define_gauge"(
        config: ConfigRef, name: Buffer, out: *mut usize) -> c_int;
    logger_define_histogram = "envoy_dynamic_module_callback_access_logger_config_define_histogram"(
        config: ConfigRef, name: Buffer, out: *mut usize) -> c_int;
    logger_increment_counter = "envoy_dynamic_module_callback_access_logger_increment_counter"(
        config: ConfigRef, id: usize, value: u64) -> c_int;
    logger_set_gauge = "envoy_dynamic_module_callback_access_logger_set_gauge"(
        config: ConfigRef, id: usize, value: u64) -> c_int;
    logger_record_histogram = "envoy_dynamic_module_callback_access_logger_record_histogram_value"(
        config: ConfigRef, id: usize, value: u64) -> c_int;
    logger_header = "envoy_dynamic_module_callback_access_logger_get_header_value"(
        logger: StreamRef, map: c_int, name: Buffer, out: *mut Buffer, index: usize, count: *mut usize) -> bool;
    logger_string = "envoy_dynamic_module_callback_access_logger_get_attribute_string"(
        logger: StreamRef, attribute: c_int, out: *mut Buffer) -> bool;
    logger_int = "envoy_dynamic_module_callback_access_logger_get_attribute_int"(
        logger: StreamRef, attribute: c_int, out: *mut u64) -> bool;
    logger_bool = "envoy_dynamic_module_callback_access_logger_get_attribute_bool"(
        logger: StreamRef, attribute: c_int, out: *mut bool) -> bool;
    logger_status = "envoy_dynamic_module_callback_access_logger_get_response_code"(
        logger: StreamRef) -> u32;
    logger_cluster = "envoy_dynamic_module_callback_access_logger_get_upstream_cluster"(
        logger: StreamRef, out: *mut Buffer) -> bool;
    logger_metadata = "envoy_dynamic_module_callback_access_logger_get_dynamic_metadata"(
        logger: StreamRef, namespace: Buffer, path: Buffer, out: *mut Buffer) -> bool;
    logger_sizes = "envoy_dynamic_module_callback_access_logger_get_bytes_info"(
        logger: StreamRef, out: *mut Sizes);
    logger_times = "envoy_dynamic_module_callback_access_logger_get_timing_info"(
        logger: StreamRef, out: *mut Times);

    newcomer_data = "envoy_dynamic_module_callback_listener_filter_get_buffer_chunk"(
        newcomer: StreamRef, out: *mut Buffer) -> bool;
    newcomer_drain = "envoy_dynamic_module_callback_listener_filter_drain_buffer"(
        newcomer: StreamRef, length: usize) -> bool;
    set_newcomer_transport = "envoy_dynamic_module_callback_listener_filter_set_detected_transport_protocol"(
        newcomer: StreamRef, protocol: Buffer);
    set_newcomer_server_name = "envoy_dynamic_module_callback_listener_filter_set_requested_server_name"(
        newcomer: StreamRef, name: Buffer);
    set_newcomer_protocols = "envoy_dynamic_module_callback_listener_filter_set_requested_application_protocols"(
        newcomer: StreamRef, protocols: *const Buffer, count: usize);
    newcomer_transport = "envoy_dynamic_module_callback_listener_filter_get_detected_transport_protocol"(
        newcomer: StreamRef, out: *mut Buffer) -> bool;
    newcomer_server_name = "envoy_dynamic_module_callback_listener_filter_get_requested_server_name"(
        newcomer: StreamRef, out: *mut Buffer) -> bool;
    newcomer_remote_address = "envoy_dynamic_module_callback_listener_filter_get_remote_address"(
        newcomer: StreamRef, out: *mut Buffer, port: *mut u32) -> bool;
    newcomer_local_address = "envoy_dynamic_module_callback_listener_filter_get_local_address"(
        newcomer: StreamRef, out: *mut Buffer, port: *mut u32) -> bool;
    newcomer_original_destination = "envoy_dynamic_module_callback_listener_filter_get_original_dst"(
        newcomer: StreamRef, out: *mut Buffer, port: *mut u32) -> bool;
    set_newcomer_remote_address = "envoy_dynamic_module_callback_listener_filter_set_remote_address"(
        newcomer: StreamRef, address: Buffer, port: u32, is_v6: bool) -> bool;
    restore_newcomer_local_address = "envoy_dynamic_module_callback_listener_filter_restore_local_address"(
        newcomer: StreamRef, address: Buffer, port: u32, is_v6: bool) -> bool;
    continue_newcomer = "envoy_dynamic_module_callback_listener_filter_continue_filter_chain"(
        newcomer: StreamRef, success: bool);
    close_newcomer = "envoy_dynamic_module_callback_listener_filter_close_socket"(
        newcomer: StreamRef, details: Buffer);
    newcomer_send = "envoy_dynamic_module_callback_listener_filter_write_to_socket"(
        newcomer: StreamRef, data: Buffer) -> i64;
    newcomer_string = "envoy_dynamic_module_callback_listener_filter_get_attribute_string"(
        newcomer: StreamRef, attribute: c_int, out: *mut Buffer) -> bool;
    set_newcomer_metadata = "envoy_dynamic_module_callback_listener_filter_set_dynamic_metadata_string"(
        newcomer: StreamRef, namespace: Buffer, key: Buffer, value: Buffer);
    newcomer_metadata = "envoy_dynamic_module_callback_listener_filter_get_dynamic_metadata_string"(
        newcomer: StreamRef, namespace: Buffer, key: Buffer, out: *mut Buffer) -> bool;
    set_newcomer_state = "envoy_dynamic_module_callback_listener_filter_set_filter_state"(
        newcomer: StreamRef, key: Buffer, value: Buffer) -> bool;
    newcomer_callout = "envoy_dynamic_module_callback_listener_filter_http_callout"(
        newcomer: StreamRef, id: *mut u64, cluster: Buffer, headers: *const Header, count: usize, body: Buffer,
        timeout: u64) -> c_int;
    newcomer_increment_counter = "envoy_dynamic_module_callback_listener_filter_increment_counter"(
        newcomer: StreamRef, id: usize, value: u64) -> c_int;
    newcomer_set_gauge = "envoy_dynamic_module_callback_listener_filter_set_gauge"(
        newcomer: StreamRef, id: usize, value: u64) -> c_int;
    newcomer_record_histogram = "envoy_dynamic_module_callback_listener_filter_record_histogram_value"(
        newcomer: StreamRef, id: usize, value: u64) -> c_int;
    newcomer_scheduler_new = "envoy_dynamic_module_callback_listener_filter_scheduler_new"(
        newcomer: StreamRef) -> *mut c_void;
    newcomer_scheduler_commit = "envoy_dynamic_module_callback_listener_filter_scheduler_commit"(
        scheduler: *mut c_void, event: u64);
    newcomer_scheduler_delete = "envoy_dynamic_module_callback_listener_filter_scheduler_delete"(
        scheduler: *mut c_void);
    listener_define_counter = "envoy_dynamic_module_callback_listener_filter_config_define_counter"(
        config: ConfigRef, name: Buffer, out: *mut usize) -> c_int;
    listener_define_gauge = "envoy_dynamic_module_callback_listener_filter_config_define_gauge"(
        config: ConfigRef, name: Buffer, out: *mut usize) -> c_int;
    listener_define_histogram = "envoy_dynamic_module_callback_listener_filter_config_define_histogram"(
        config: ConfigRef, name: Buffer, out: *mut usize) -> c_int;

    start_http_stream = "envoy_dynamic_module_callback_http_filter_start_http_stream"(
        stream: StreamRef, id: *mut u64, cluster: Buffer, headers: *const Header, count: usize, body: Buffer,
        end: bool, timeout: u64) -> c_int;
    stream_send_data = "envoy_dynamic_module_callback_http_stream_send_data"(
        stream: StreamRef, id: u64, data: Buffer, end: bool) -> bool;
    stream_send_trailers = "envoy_dynamic_module_callback_http_stream_send_trailers"(
        stream: StreamRef, id: u64, trailers: *const Header, count: usize) -> bool;
    config_start_http_stream = "envoy_dynamic_module_callback_http_filter_config_start_http_stream"(
        config: ConfigRef, id: *mut u64, cluster: Buffer, headers: *const Header, count: usize, body: Buffer,
        end: bool, timeout: u64) -> c_int;
    config_stream_send_data = "envoy_dynamic_module_callback_http_filter_config_stream_send_data"(
        config: ConfigRef, id: u64, data: Buffer, end: bool) -> bool;
    config_stream_send_trailers = "envoy_dynamic_module_callback_http_filter_config_stream_send_trailers"(
        config: ConfigRef, id: u64, trailers: *const Header, count: usize) -> bool;
    config_reset_http_stream = "envoy_dynamic_module_callback_http_filter_config_reset_http_stream"(
        config: ConfigRef, id: u64);
    reset_http_stream = "envoy_dynamic_module_callback_http_filter_reset_http_stream"(stream: StreamRef, id: u64);
}
