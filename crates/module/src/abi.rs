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

/// The proxy's handle of a stream.
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
    start_http_stream = "envoy_dynamic_module_callback_http_filter_start_http_stream"(
        stream: StreamRef, id: *mut u64, cluster: Buffer, headers: *const Header, count: usize, body: Buffer,
        end: bool, timeout: u64) -> c_int;
    stream_send_data = "envoy_dynamic_module_callback_http_stream_send_data"(
        stream: StreamRef, id: u64, data: Buffer, end: bool) -> bool;
    reset_http_stream = "envoy_dynamic_module_callback_http_filter_reset_http_stream"(stream: StreamRef, id: u64);
}
