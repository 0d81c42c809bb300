//! Functions about things that streams do not have here: each says so, in the way that the interface has for it.

use std::ffi::c_void;

use super::Symbol;

macro_rules! absent {
    ($($answer:ty = $value:expr => $($name:ident)*;)*) => {
        /// Their names.
        pub(crate) static ABSENT: &[&str] = &[$($(stringify!($name)),*),*];

        $($(
            // SAFETY: nothing else in the executable has a name of the interface.
            #[unsafe(no_mangle)]
            extern "C" fn $name() -> $answer {
                $value
            }
        )*)*

        #[used]
        static KEPT: &[Symbol] = &[$($(Symbol($name as *const ())),*),*];
    };
}

absent! {
    // Modules are lent no spans, so there is none that anything could be done to.
    () = () =>
        envoy_dynamic_module_callback_http_span_set_tag
        envoy_dynamic_module_callback_http_span_set_tag_batch
        envoy_dynamic_module_callback_http_span_set_operation
        envoy_dynamic_module_callback_http_span_log
        envoy_dynamic_module_callback_http_span_set_sampled
        envoy_dynamic_module_callback_http_span_disable_local_decision
        envoy_dynamic_module_callback_http_span_set_baggage
        envoy_dynamic_module_callback_http_child_span_finish;

    // As above.
    bool = false =>
        envoy_dynamic_module_callback_http_span_get_baggage
        envoy_dynamic_module_callback_http_span_get_trace_id
        envoy_dynamic_module_callback_http_span_get_span_id;

    // As above.
    *mut c_void = std::ptr::null_mut() =>
        envoy_dynamic_module_callback_http_span_spawn_child;

    // Sockets' options are the configuration's: a stream shares its connections with others.
    bool = false =>
        envoy_dynamic_module_callback_http_set_socket_option_int
        envoy_dynamic_module_callback_http_set_socket_option_bytes
        envoy_dynamic_module_callback_http_get_socket_option_int
        envoy_dynamic_module_callback_http_get_socket_option_bytes;

    // A stream cannot begin anew.
    bool = false =>
        envoy_dynamic_module_callback_http_filter_recreate_stream;
}
