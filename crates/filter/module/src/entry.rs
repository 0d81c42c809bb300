//! The functions of a module that the proxy calls. A module has the ones that it wants: only three are needed.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::abi::{Buffer, ConfigRef, Header, LoggerRef, Own, StreamRef};
use crate::library::Library;

type OnHead = unsafe extern "C" fn(StreamRef, Own, bool) -> c_int;
type OnTrailers = unsafe extern "C" fn(StreamRef, Own) -> c_int;
type OnBytes = unsafe extern "C" fn(StreamRef, Own, usize, bool) -> c_int;
type OnEvent = unsafe extern "C" fn(StreamRef, Own);
pub(crate) type OnReply = unsafe extern "C" fn(StreamRef, Own, u32, Buffer, bool) -> c_int;
pub(crate) type OnScheduled = unsafe extern "C" fn(StreamRef, Own, u64);
pub(crate) type OnCallout =
    unsafe extern "C" fn(StreamRef, Own, u64, c_int, *const Header, usize, *const Buffer, usize);
type OnStreamHead = unsafe extern "C" fn(StreamRef, Own, u64, *const Header, usize, bool);
type OnStreamData = unsafe extern "C" fn(StreamRef, Own, u64, *const Buffer, usize, bool);
type OnStreamTrailers = unsafe extern "C" fn(StreamRef, Own, u64, *const Header, usize);
type OnStreamEnd = unsafe extern "C" fn(StreamRef, Own, u64);
type OnStreamReset = unsafe extern "C" fn(StreamRef, Own, u64, c_int);

/// What the interface calls the function that is called when a module is loaded.
pub(crate) const INIT: &CStr = c"envoy_dynamic_module_on_program_init";

pub(crate) type Init = unsafe extern "C" fn() -> *const c_char;

macro_rules! entries {
    ($(#[$whole:meta])* $entries:ident; $($(#[$about:meta])* $field:ident = $name:literal: $kind:ty;)*) => {
        $(#[$whole])*
        #[derive(Debug, Clone, Copy)]
        pub(crate) struct $entries {
            $($(#[$about])* pub(crate) $field: Option<$kind>,)*
        }

        impl $entries {
            /// Their names.
            #[cfg(test)]
            pub(crate) const NAMES: &[&CStr] = &[$($name),*];

            pub(crate) fn of(library: &Library) -> $entries {
                $entries::found(|name| library.find(name))
            }

            /// What `find` finds are addresses of a loaded module's functions of these names.
            fn found(find: impl Fn(&CStr) -> Option<*mut c_void>) -> $entries {
                $entries {
                    $($field: find($name).map(|found| {
                        // SAFETY: the interface says what a function of this name takes and answers, and a module's
                        // author says by exporting it that it is one.
                        unsafe { std::mem::transmute::<*mut c_void, $kind>(found) }
                    }),)*
                }
            }
        }
    };
}

entries! {
    /// One module's functions for HTTP filters, by what they are for.
    Entries;
    config_new = c"envoy_dynamic_module_on_http_filter_config_new":
        unsafe extern "C" fn(ConfigRef, Buffer, Buffer) -> Own;
    config_destroy = c"envoy_dynamic_module_on_http_filter_config_destroy": unsafe extern "C" fn(Own);
    route_config_new = c"envoy_dynamic_module_on_http_filter_per_route_config_new":
        unsafe extern "C" fn(Buffer, Buffer) -> Own;
    route_config_destroy = c"envoy_dynamic_module_on_http_filter_per_route_config_destroy":
        unsafe extern "C" fn(Own);
    /// Not of the interface: which hooks on messages the filter wants, as bits ([`crate::config::Phases::of_bits`]).
    wanted = c"postrider_module_on_http_filter_hooks": unsafe extern "C" fn(Own) -> u32;
    new = c"envoy_dynamic_module_on_http_filter_new": unsafe extern "C" fn(Own, StreamRef) -> Own;
    destroy = c"envoy_dynamic_module_on_http_filter_destroy": unsafe extern "C" fn(Own);
    request_headers = c"envoy_dynamic_module_on_http_filter_request_headers": OnHead;
    request_body = c"envoy_dynamic_module_on_http_filter_request_body": OnHead;
    request_trailers = c"envoy_dynamic_module_on_http_filter_request_trailers": OnTrailers;
    response_headers = c"envoy_dynamic_module_on_http_filter_response_headers": OnHead;
    response_body = c"envoy_dynamic_module_on_http_filter_response_body": OnHead;
    response_trailers = c"envoy_dynamic_module_on_http_filter_response_trailers": OnTrailers;
    stream_complete = c"envoy_dynamic_module_on_http_filter_stream_complete": OnEvent;
    local_reply = c"envoy_dynamic_module_on_http_filter_local_reply": OnReply;
    scheduled = c"envoy_dynamic_module_on_http_filter_scheduled": OnScheduled;
    callout_done = c"envoy_dynamic_module_on_http_filter_http_callout_done":
        unsafe extern "C" fn(StreamRef, Own, u64, c_int, *const Header, usize, *const Buffer, usize);
    stream_headers = c"envoy_dynamic_module_on_http_filter_http_stream_headers": OnStreamHead;
    stream_data = c"envoy_dynamic_module_on_http_filter_http_stream_data": OnStreamData;
    stream_trailers = c"envoy_dynamic_module_on_http_filter_http_stream_trailers": OnStreamTrailers;
    stream_completed = c"envoy_dynamic_module_on_http_filter_http_stream_complete": OnStreamEnd;
    stream_reset = c"envoy_dynamic_module_on_http_filter_http_stream_reset": OnStreamReset;
    config_stream_headers = c"envoy_dynamic_module_on_http_filter_config_http_stream_headers": OnStreamHead;
    config_stream_data = c"envoy_dynamic_module_on_http_filter_config_http_stream_data": OnStreamData;
    config_stream_trailers = c"envoy_dynamic_module_on_http_filter_config_http_stream_trailers": OnStreamTrailers;
    config_stream_completed = c"envoy_dynamic_module_on_http_filter_config_http_stream_complete": OnStreamEnd;
    config_stream_reset = c"envoy_dynamic_module_on_http_filter_config_http_stream_reset": OnStreamReset;
    above_watermark = c"envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark": OnEvent;
    below_watermark = c"envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark": OnEvent;
    config_scheduled = c"envoy_dynamic_module_on_http_filter_config_scheduled":
        unsafe extern "C" fn(ConfigRef, Own, u64);
    config_callout_done = c"envoy_dynamic_module_on_http_filter_config_http_callout_done":
        unsafe extern "C" fn(ConfigRef, Own, u64, c_int, *const Header, usize, *const Buffer, usize);
}

/// The functions that hear what comes of requests in pieces: of a stream, or of a configuration in its place.
pub(crate) struct StreamEntries {
    pub(crate) headers: Option<OnStreamHead>,
    pub(crate) data: Option<OnStreamData>,
    pub(crate) trailers: Option<OnStreamTrailers>,
    pub(crate) completed: Option<OnStreamEnd>,
    pub(crate) reset: Option<OnStreamReset>,
}

impl Entries {
    /// Without those that do nothing: where a module has none, the same happens.
    pub(crate) fn busy(library: &Library) -> Entries {
        let is_idle = |name: &CStr| name.to_str().is_ok_and(|name| library.contents.is_idle(name));
        // One that makes something fails when it answers 0.
        let makes = |name: &CStr| name.to_bytes().ends_with(b"_new");
        Entries::found(|name| library.find(name).filter(|_| makes(name) || !is_idle(name)))
    }

    pub(crate) fn of_streams(&self) -> StreamEntries {
        StreamEntries {
            headers: self.stream_headers,
            data: self.stream_data,
            trailers: self.stream_trailers,
            completed: self.stream_completed,
            reset: self.stream_reset,
        }
    }

    pub(crate) fn of_config_streams(&self) -> StreamEntries {
        StreamEntries {
            headers: self.config_stream_headers,
            data: self.config_stream_data,
            trailers: self.config_stream_trailers,
            completed: self.config_stream_completed,
            reset: self.config_stream_reset,
        }
    }
}

entries! {
    /// One module's functions for filters of connections.
    NetworkEntries;
    config_new = c"envoy_dynamic_module_on_network_filter_config_new":
        unsafe extern "C" fn(ConfigRef, Buffer, Buffer) -> Own;
    config_destroy = c"envoy_dynamic_module_on_network_filter_config_destroy": unsafe extern "C" fn(Own);
    new = c"envoy_dynamic_module_on_network_filter_new": unsafe extern "C" fn(Own, StreamRef) -> Own;
    destroy = c"envoy_dynamic_module_on_network_filter_destroy": unsafe extern "C" fn(Own);
    new_connection = c"envoy_dynamic_module_on_network_filter_new_connection": OnTrailers;
    read = c"envoy_dynamic_module_on_network_filter_read": OnBytes;
    write = c"envoy_dynamic_module_on_network_filter_write": OnBytes;
    event = c"envoy_dynamic_module_on_network_filter_event": unsafe extern "C" fn(StreamRef, Own, c_int);
    scheduled = c"envoy_dynamic_module_on_network_filter_scheduled": OnScheduled;
    callout_done = c"envoy_dynamic_module_on_network_filter_http_callout_done": OnCallout;
    above_watermark = c"envoy_dynamic_module_on_network_filter_above_write_buffer_high_watermark": OnEvent;
    below_watermark = c"envoy_dynamic_module_on_network_filter_below_write_buffer_low_watermark": OnEvent;
    config_scheduled = c"envoy_dynamic_module_on_network_filter_config_scheduled": unsafe extern "C" fn(Own, u64);
}

entries! {
    /// One module's functions for filters of listeners.
    ListenerEntries;
    config_new = c"envoy_dynamic_module_on_listener_filter_config_new":
        unsafe extern "C" fn(ConfigRef, Buffer, Buffer) -> Own;
    config_destroy = c"envoy_dynamic_module_on_listener_filter_config_destroy": unsafe extern "C" fn(Own);
    new = c"envoy_dynamic_module_on_listener_filter_new": unsafe extern "C" fn(Own, StreamRef) -> Own;
    destroy = c"envoy_dynamic_module_on_listener_filter_destroy": unsafe extern "C" fn(Own);
    accept = c"envoy_dynamic_module_on_listener_filter_on_accept": OnTrailers;
    data = c"envoy_dynamic_module_on_listener_filter_on_data":
        unsafe extern "C" fn(StreamRef, Own, usize) -> c_int;
    close = c"envoy_dynamic_module_on_listener_filter_on_close": OnEvent;
    wants = c"envoy_dynamic_module_on_listener_filter_get_max_read_bytes":
        unsafe extern "C" fn(StreamRef, Own) -> usize;
    scheduled = c"envoy_dynamic_module_on_listener_filter_scheduled": OnScheduled;
    callout_done = c"envoy_dynamic_module_on_listener_filter_http_callout_done": OnCallout;
    config_scheduled = c"envoy_dynamic_module_on_listener_filter_config_scheduled":
        unsafe extern "C" fn(ConfigRef, Own, u64);
}

entries! {
    /// One module's functions for access loggers.
    LoggerEntries;
    config_new = c"envoy_dynamic_module_on_access_logger_config_new":
        unsafe extern "C" fn(ConfigRef, Buffer, Buffer) -> Own;
    config_destroy = c"envoy_dynamic_module_on_access_logger_config_destroy": unsafe extern "C" fn(Own);
    new = c"envoy_dynamic_module_on_access_logger_new": unsafe extern "C" fn(Own, LoggerRef) -> Own;
    log = c"envoy_dynamic_module_on_access_logger_log": unsafe extern "C" fn(LoggerRef, Own, c_int);
    flush = c"envoy_dynamic_module_on_access_logger_flush": unsafe extern "C" fn(Own);
    destroy = c"envoy_dynamic_module_on_access_logger_destroy": unsafe extern "C" fn(Own);
}
