//! The macro that makes a module of filters and loggers.

/// Exports the functions that the proxy looks for in a module.
///
/// - `entry!(Filter)`: a filter, whatever `filter_name` says. [`Setup::name`](crate::Setup::name) tells the name.
/// - `entry!(Filter, route = Route)`: with a [`RouteConfig`](crate::RouteConfig) of its own for routes.
/// - `entry!(connections = Filter)`: a [`NetworkFilter`](crate::NetworkFilter).
/// - `entry!(listener = Filter)`: a [`ListenerFilter`](crate::ListenerFilter).
/// - `entry!(logger = Logger)`: an [`AccessLogger`](crate::AccessLogger).
///
/// They go together, in this order: `entry!(Filter, route = Route, connections = Other, listener = Third, logger = Logger)`.
///
/// Once per module, which is a crate of the type `cdylib`. In test builds it is left out: what they lack is the proxy.
#[macro_export]
macro_rules! entry {
    (connections = $connections:ty $(, listener = $listener:ty)? $(, logger = $logger:ty)?) => {
        $crate::entry!(@init);
        $crate::entry!(@connections $connections);
        $($crate::entry!(@listener $listener);)?
        $($crate::entry!(@logger $logger);)?
    };
    (listener = $listener:ty $(, logger = $logger:ty)?) => {
        $crate::entry!(@init);
        $crate::entry!(@listener $listener);
        $($crate::entry!(@logger $logger);)?
    };
    (logger = $logger:ty) => {
        $crate::entry!(@init);
        $crate::entry!(@logger $logger);
    };
    (
        $filter:ty $(, route = $route:ty)? $(, connections = $connections:ty)? $(, listener = $listener:ty)?
        $(, logger = $logger:ty)?
    ) => {
        $crate::entry!(@init);
        $crate::entry!(@exported $filter, $($route)?);
        $($crate::entry!(@connections $connections);)?
        $($crate::entry!(@listener $listener);)?
        $($crate::entry!(@logger $logger);)?
    };
    (@init) => {
        #[cfg(not(test))]
        const _: () = {
            // SAFETY: nothing else in the module has a name of the interface.
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_program_init() -> *const ::std::ffi::c_char {
                $crate::hooks::version()
            }
        };
    };
    (@connections $filter:ty) => {
        // What nothing calls in a test build is used all the same.
        #[cfg(test)]
        const _: fn() = || {
            let _ = <$filter as $crate::NetworkFilter>::new;
        };

        #[cfg(not(test))]
        const _: () = {
            use ::std::ffi::c_int;
            use $crate::abi::{Buffer, ConfigRef, Header, Own, StreamRef};

            $crate::entry!(@of network_hooks, $filter:
                envoy_dynamic_module_on_network_filter_config_new
                    = config_new(config: ConfigRef, name: Buffer, text: Buffer) -> Own;
                envoy_dynamic_module_on_network_filter_config_destroy = config_destroy(own: Own);
                envoy_dynamic_module_on_network_filter_new = new(own: Own, connection: StreamRef) -> Own;
                envoy_dynamic_module_on_network_filter_destroy = destroy(own: Own);
                envoy_dynamic_module_on_network_filter_new_connection
                    = connected(connection: StreamRef, own: Own) -> c_int;
                envoy_dynamic_module_on_network_filter_read
                    = received(connection: StreamRef, own: Own, length: usize, end: bool) -> c_int;
                envoy_dynamic_module_on_network_filter_write
                    = sent(connection: StreamRef, own: Own, length: usize, end: bool) -> c_int;
                envoy_dynamic_module_on_network_filter_event = event(connection: StreamRef, own: Own, event: c_int);
                envoy_dynamic_module_on_network_filter_scheduled
                    = scheduled(connection: StreamRef, own: Own, event: u64);
                envoy_dynamic_module_on_network_filter_http_callout_done = call_done(
                    connection: StreamRef, own: Own, id: u64, result: c_int, headers: *const Header, header_count: usize,
                    body: *const Buffer, body_count: usize);
                envoy_dynamic_module_on_network_filter_above_write_buffer_high_watermark
                    = above(connection: StreamRef, own: Own);
                envoy_dynamic_module_on_network_filter_below_write_buffer_low_watermark
                    = below(connection: StreamRef, own: Own);
            );
        };
    };
    (@listener $filter:ty) => {
        // As above.
        #[cfg(test)]
        const _: fn() = || {
            let _ = <$filter as $crate::ListenerFilter>::new;
        };

        #[cfg(not(test))]
        const _: () = {
            use ::std::ffi::c_int;
            use $crate::abi::{Buffer, ConfigRef, Header, Own, StreamRef};

            $crate::entry!(@of listener_hooks, $filter:
                envoy_dynamic_module_on_listener_filter_config_new
                    = config_new(config: ConfigRef, name: Buffer, text: Buffer) -> Own;
                envoy_dynamic_module_on_listener_filter_config_destroy = config_destroy(own: Own);
                envoy_dynamic_module_on_listener_filter_new = new(own: Own, newcomer: StreamRef) -> Own;
                envoy_dynamic_module_on_listener_filter_destroy = destroy(own: Own);
                envoy_dynamic_module_on_listener_filter_on_accept = accepted(newcomer: StreamRef, own: Own) -> c_int;
                envoy_dynamic_module_on_listener_filter_get_max_read_bytes
                    = most(newcomer: StreamRef, own: Own) -> usize;
                envoy_dynamic_module_on_listener_filter_on_data
                    = data(newcomer: StreamRef, own: Own, length: usize) -> c_int;
                envoy_dynamic_module_on_listener_filter_on_close = closed(newcomer: StreamRef, own: Own);
                envoy_dynamic_module_on_listener_filter_scheduled = scheduled(newcomer: StreamRef, own: Own, event: u64);
                envoy_dynamic_module_on_listener_filter_http_callout_done = call_done(
                    newcomer: StreamRef, own: Own, id: u64, result: c_int, headers: *const Header, header_count: usize,
                    body: *const Buffer, body_count: usize);
            );
        };
    };
    (@logger $logger:ty) => {
        // As above.
        #[cfg(test)]
        const _: fn() = || {
            let _ = <$logger as $crate::AccessLogger>::new;
        };

        #[cfg(not(test))]
        const _: () = {
            use ::std::ffi::c_int;
            use $crate::abi::{Buffer, ConfigRef, Own, StreamRef};

            $crate::entry!(@of logger, $logger:
                envoy_dynamic_module_on_access_logger_config_new
                    = config_new(config: ConfigRef, name: Buffer, text: Buffer) -> Own;
                envoy_dynamic_module_on_access_logger_config_destroy = config_destroy(own: Own);
                envoy_dynamic_module_on_access_logger_new = new(own: Own, logger: StreamRef) -> Own;
                envoy_dynamic_module_on_access_logger_log = log(logger: StreamRef, own: Own, moment: c_int);
                envoy_dynamic_module_on_access_logger_flush = flush(own: Own);
                envoy_dynamic_module_on_access_logger_destroy = destroy(own: Own);
            );
        };
    };
    (@exported $filter:ty, $($route:ty)?) => {
        // What nothing calls in a test build is used all the same.
        #[cfg(test)]
        const _: fn() = || {
            let _ = <$filter as $crate::HttpFilter>::new;
            $(let _ = <$route as $crate::RouteConfig>::new;)?
        };

        #[cfg(not(test))]
        const _: () = {
            use ::std::ffi::c_int;
            use $crate::abi::{Buffer, ConfigRef, Header, Own, StreamRef};
            use $crate::hooks;

            $crate::entry!(@of hooks, $filter:
                envoy_dynamic_module_on_http_filter_config_new
                    = config_new(config: ConfigRef, name: Buffer, text: Buffer) -> Own;
                envoy_dynamic_module_on_http_filter_config_destroy = config_destroy(own: Own);
                postrider_module_on_http_filter_hooks = wanted(own: Own) -> u32;
                envoy_dynamic_module_on_http_filter_new = new(own: Own, stream: StreamRef) -> Own;
                envoy_dynamic_module_on_http_filter_destroy = destroy(own: Own);
                envoy_dynamic_module_on_http_filter_request_headers
                    = request_headers(stream: StreamRef, own: Own, end: bool) -> c_int;
                envoy_dynamic_module_on_http_filter_request_body
                    = request_body(stream: StreamRef, own: Own, end: bool) -> c_int;
                envoy_dynamic_module_on_http_filter_request_trailers
                    = request_trailers(stream: StreamRef, own: Own) -> c_int;
                envoy_dynamic_module_on_http_filter_response_headers
                    = response_headers(stream: StreamRef, own: Own, end: bool) -> c_int;
                envoy_dynamic_module_on_http_filter_response_body
                    = response_body(stream: StreamRef, own: Own, end: bool) -> c_int;
                envoy_dynamic_module_on_http_filter_response_trailers
                    = response_trailers(stream: StreamRef, own: Own) -> c_int;
                envoy_dynamic_module_on_http_filter_stream_complete = complete(stream: StreamRef, own: Own);
                envoy_dynamic_module_on_http_filter_scheduled = scheduled(stream: StreamRef, own: Own, event: u64);
                envoy_dynamic_module_on_http_filter_http_callout_done = call_done(
                    stream: StreamRef, own: Own, id: u64, result: c_int, headers: *const Header, header_count: usize,
                    body: *const Buffer, body_count: usize);
                envoy_dynamic_module_on_http_filter_http_stream_headers = call_headers(
                    stream: StreamRef, own: Own, id: u64, headers: *const Header, count: usize, end: bool);
                envoy_dynamic_module_on_http_filter_http_stream_data = call_body(
                    stream: StreamRef, own: Own, id: u64, chunks: *const Buffer, count: usize, end: bool);
                envoy_dynamic_module_on_http_filter_http_stream_trailers = call_trailers(
                    stream: StreamRef, own: Own, id: u64, trailers: *const Header, count: usize);
                envoy_dynamic_module_on_http_filter_config_scheduled
                    = background_event(config: ConfigRef, own: Own, event: u64);
                envoy_dynamic_module_on_http_filter_config_http_stream_headers = background_call_headers(
                    config: ConfigRef, own: Own, id: u64, headers: *const Header, count: usize, end: bool);
                envoy_dynamic_module_on_http_filter_config_http_stream_data = background_call_body(
                    config: ConfigRef, own: Own, id: u64, chunks: *const Buffer, count: usize, end: bool);
                envoy_dynamic_module_on_http_filter_config_http_stream_trailers = background_call_trailers(
                    config: ConfigRef, own: Own, id: u64, trailers: *const Header, count: usize);
                envoy_dynamic_module_on_http_filter_config_http_stream_complete
                    = background_call_complete(config: ConfigRef, own: Own, id: u64);
                envoy_dynamic_module_on_http_filter_config_http_stream_reset
                    = background_call_reset(config: ConfigRef, own: Own, id: u64, reason: c_int);
                envoy_dynamic_module_on_http_filter_config_http_callout_done = background_call_done(
                    config: ConfigRef, own: Own, id: u64, result: c_int, headers: *const Header, header_count: usize,
                    body: *const Buffer, body_count: usize);
            );

            // SAFETY: nothing else in the module has a name of the interface.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn envoy_dynamic_module_on_http_filter_local_reply(
                stream: StreamRef,
                own: Own,
                status: u32,
                details: Buffer,
                _: bool,
            ) -> c_int {
                // SAFETY: the proxy calls it as the interface says. So below.
                unsafe { hooks::local_reply::<$filter>(stream, own, status, details) }
            }

            // SAFETY: nothing else in the module has a name of the interface.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_complete(
                stream: StreamRef,
                own: Own,
                id: u64,
            ) {
                // SAFETY: as above.
                unsafe { hooks::call_end::<$filter>(stream, own, id, Ok(())) };
            }

            // SAFETY: nothing else in the module has a name of the interface.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_reset(
                stream: StreamRef,
                own: Own,
                id: u64,
                _: c_int,
            ) {
                // SAFETY: as above.
                unsafe { hooks::call_end::<$filter>(stream, own, id, hooks::RESET) };
            }

            // SAFETY: nothing else in the module has a name of the interface.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark(
                stream: StreamRef,
                own: Own,
            ) {
                // SAFETY: as above.
                unsafe { hooks::congested::<$filter>(stream, own, true) };
            }

            // SAFETY: nothing else in the module has a name of the interface.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark(
                stream: StreamRef,
                own: Own,
            ) {
                // SAFETY: as above.
                unsafe { hooks::congested::<$filter>(stream, own, false) };
            }

            $(
                // SAFETY: nothing else in the module has a name of the interface.
                #[unsafe(no_mangle)]
                unsafe extern "C" fn envoy_dynamic_module_on_http_filter_per_route_config_new(
                    name: Buffer,
                    text: Buffer,
                ) -> Own {
                    // SAFETY: as above.
                    unsafe { hooks::route_config_new::<$route>(name, text) }
                }

                // SAFETY: nothing else in the module has a name of the interface.
                #[unsafe(no_mangle)]
                unsafe extern "C" fn envoy_dynamic_module_on_http_filter_per_route_config_destroy(own: Own) {
                    // SAFETY: as above.
                    unsafe { hooks::route_config_destroy(own) };
                }
            )?
        };
    };
    (@of $hooks:ident, $filter:ty:
        $($name:ident = $hook:ident($($argument:ident: $kind:ty),*) $(-> $answer:ty)?;)*
    ) => {
        $(
            // SAFETY: nothing else in the module has a name of the interface.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($argument: $kind),*) $(-> $answer)? {
                // SAFETY: the proxy calls it as the interface says.
                unsafe { $crate::$hooks::$hook::<$filter>($($argument),*) }
            }
        )*
    };
}
