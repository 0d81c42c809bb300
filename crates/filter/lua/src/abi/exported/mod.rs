//! The functions of the published Rider SDK under their published C names, for SDK files and plugins that declare them
//! themselves (`sdk: filesystem`).
//!
//! Each is there twice: the first SDK's takes a context, which is passed over, since the current turn says whose stream it
//! is; the second's takes none. The executable exports them by a linker argument (`build.rs`). Texts that they hand out
//! lie in the message until it is edited, or among the last [`keep::KEPT`] ones that were made.

mod facts;
mod headers;
mod keep;
mod values;

use std::ffi::{c_char, c_int, c_void};

use super::{INVALID, LOCKED, NONE, OK, Text};
use keep::keep;

/// `envoy_lua_ffi_str_t`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Str {
    length: c_int,
    start: *const c_char,
}

/// `envoy_lua_ffi_table_elt_t`
#[repr(C)]
pub(super) struct Pair {
    key: Str,
    value: Str,
}

/// `envoy_lua_ffi_string_pairs`
#[repr(C)]
pub(super) struct Pairs {
    data: *mut Pair,
    size: c_int,
    capacity: c_int,
}

/// Codes of the published functions.
const FFI_OK: c_int = 0;
const FFI_BAD_CONTEXT: c_int = -1;
const FFI_NOT_FOUND: c_int = -2;
const FFI_BAD_ARGUMENT: c_int = -3;

/// One of our codes as one of theirs.
fn code(ours: c_int) -> c_int {
    match ours {
        OK => FFI_OK,
        NONE => FFI_NOT_FOUND,
        INVALID | LOCKED => FFI_BAD_ARGUMENT,
        _ => FFI_BAD_CONTEXT,
    }
}

impl Str {
    fn of(bytes: &[u8]) -> Str {
        Str { length: c_int::try_from(bytes.len()).unwrap_or(c_int::MAX), start: bytes.as_ptr().cast() }
    }

    fn from_text(text: &Text) -> Str {
        Str { length: c_int::try_from(text.length).unwrap_or(c_int::MAX), start: text.start }
    }

    /// Start and length as our functions take them.
    fn parts(&self) -> (*const c_char, usize) {
        (self.start, size(self.length))
    }
}

/// A length that scripts give.
fn size(length: c_int) -> usize {
    usize::try_from(length).unwrap_or(0)
}

fn nothing() -> Text {
    Text { start: std::ptr::null(), length: 0 }
}

/// An exported function's address, so that nothing between here and the executable drops it.
struct Symbol(#[expect(dead_code, reason = "it is there for the linker")] *const ());

// SAFETY: the address of a function; nobody reads through it.
unsafe impl Sync for Symbol {}

macro_rules! exported {
    ($($first:ident $second:ident = $module:ident::$function:ident($($argument:ident: $kind:ty),*) $(-> $answer:ty)?;)*) => {
        $(
            /// # Safety
            /// The arguments are valid for the published function of this name.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $first(_: *const c_void, $($argument: $kind),*) $(-> $answer)? {
                // SAFETY: by the contract above.
                unsafe { $module::$function($($argument),*) }
            }

            /// # Safety
            /// The arguments are valid for the published function of this name.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $second($($argument: $kind),*) $(-> $answer)? {
                // SAFETY: by the contract above.
                unsafe { $module::$function($($argument),*) }
            }
        )*

        #[used]
        static KEPT: &[Symbol] = &[$(Symbol($first as *const ()), Symbol($second as *const ())),*];
    };
}

exported! {
    envoy_http_lua_ffi_log envoy_http_lua_ffi_v2_log = facts::log(level: c_int, text: *const c_char) -> c_int;
    envoy_http_lua_ffi_file_log envoy_http_lua_ffi_v2_file_log = facts::file_log(text: *const c_char, length: usize) -> c_int;
    envoy_http_lua_ffi_get_configuration envoy_http_lua_ffi_v2_get_configuration
        = values::configuration(out: *mut Str) -> c_int;
    envoy_http_lua_ffi_get_route_configuration envoy_http_lua_ffi_v2_get_route_configuration
        = values::route_configuration(out: *mut Str) -> c_int;
    envoy_http_lua_ffi_get_route_config_hash envoy_http_lua_ffi_v2_get_route_config_hash
        = values::route_config_hash() -> u64;
    envoy_http_lua_ffi_get_header_map_size envoy_http_lua_ffi_v2_get_header_map_size
        = headers::map_size(source: c_int) -> c_int;
    envoy_http_lua_ffi_get_header_map envoy_http_lua_ffi_v2_get_header_map
        = headers::map(source: c_int, out: *mut Pairs) -> c_int;
    envoy_http_lua_ffi_get_header_map_value envoy_http_lua_ffi_v2_get_header_map_value
        = headers::value(source: c_int, name: *const c_char, length: c_int, out: *mut Str) -> c_int;
    envoy_http_lua_ffi_get_header_map_value_size envoy_http_lua_ffi_v2_get_header_map_value_size
        = headers::value_size(source: c_int, name: *const c_char, length: c_int) -> c_int;
    envoy_http_lua_ffi_get_header_map_value_index envoy_http_lua_ffi_v2_get_header_map_value_index
        = headers::value_index(source: c_int, name: *const c_char, length: c_int, out: *mut Str, index: c_int) -> c_int;
    envoy_http_lua_ffi_set_header_map envoy_http_lua_ffi_v2_set_header_map
        = headers::set_map(source: c_int, pairs: *mut Pairs) -> c_int;
    envoy_http_lua_ffi_set_header_map_value envoy_http_lua_ffi_v2_set_header_map_value
        = headers::set_value(source: c_int, name: *const c_char, length: c_int, value: *const c_char, value_length: c_int)
        -> c_int;
    envoy_http_lua_ffi_remove_header_map_value envoy_http_lua_ffi_v2_remove_header_map_value
        = headers::remove(source: c_int, name: *const c_char, length: c_int) -> c_int;
    envoy_http_lua_ffi_get_query_parameters envoy_http_lua_ffi_v2_get_query_parameters
        = headers::query_parameters(out: *mut Pairs) -> c_int;
    envoy_http_lua_ffi_get_shared_table envoy_http_lua_ffi_v2_get_shared_table = facts::shared_table() -> c_int;
    envoy_http_lua_ffi_get_metadata envoy_http_lua_ffi_v2_get_metadata
        = values::metadata(filter: *const Str, key: *const Str, out: *mut Str) -> c_int;
    envoy_http_lua_ffi_get_dynamic_metadata_value envoy_http_lua_ffi_v2_get_dynamic_metadata_value
        = values::dynamic_metadata(filter: *const Str, key: *const Str, out: *mut Str) -> c_int;
    envoy_http_lua_ffi_set_dynamic_metadata_value envoy_http_lua_ffi_v2_set_dynamic_metadata_value
        = values::set_dynamic_metadata(filter: *const Str, key: *const Str, value: *const Str) -> c_int;
    envoy_http_lua_ffi_get_body envoy_http_lua_ffi_v2_get_body = facts::body(source: c_int, out: *mut Str) -> c_int;
    envoy_http_lua_ffi_define_metric envoy_http_lua_ffi_v2_define_metric
        = facts::define_metric(kind: c_int, name: *const Str) -> c_int;
    envoy_http_lua_ffi_increment_metric envoy_http_lua_ffi_v2_increment_metric
        = facts::increment_metric(id: c_int, offset: c_int) -> c_int;
    envoy_http_lua_ffi_record_metric envoy_http_lua_ffi_v2_record_metric
        = facts::record_metric(id: c_int, value: c_int) -> c_int;
    envoy_http_lua_ffi_get_metric envoy_http_lua_ffi_v2_get_metric = facts::metric(id: c_int) -> c_int;
    envoy_http_lua_ffi_upstream_host envoy_http_lua_ffi_v2_upstream_host = facts::upstream_host() -> *const c_char;
    envoy_http_lua_ffi_upstream_cluster envoy_http_lua_ffi_v2_upstream_cluster
        = facts::upstream_cluster() -> *const c_char;
    envoy_http_lua_ffi_downstream_local_address envoy_http_lua_ffi_v2_downstream_local_address
        = facts::downstream_local_address() -> *const c_char;
    envoy_http_lua_ffi_downstream_remote_address envoy_http_lua_ffi_v2_downstream_remote_address
        = facts::downstream_remote_address() -> *const c_char;
    envoy_http_lua_ffi_streaminfo_start_time envoy_http_lua_ffi_v2_streaminfo_start_time = facts::start_time() -> i64;
    envoy_http_lua_ffi_start_time envoy_http_lua_ffi_v2_start_time = facts::start_time() -> i64;
    envoy_http_lua_ffi_get_current_time_milliseconds envoy_http_lua_ffi_v2_get_current_time_milliseconds
        = facts::now() -> i64;
    envoy_http_lua_ffi_clear_route_cache envoy_http_lua_ffi_v2_clear_route_cache = facts::clear_route_cache();
}
