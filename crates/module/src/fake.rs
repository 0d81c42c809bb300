//! A proxy that notes what it is asked, for tests of the border: the functions that the tests reach, and no others.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;

use crate::abi::{Buffer, Header, Own, StreamRef};

thread_local! {
    static ASKED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    /// What the proxy does at once when a request is continued or a call reset, as some do.
    static AT_ONCE: Cell<Option<fn()>> = const { Cell::new(None) };
}

/// What was asked since the last time.
pub(crate) fn asked() -> Vec<String> {
    ASKED.take()
}

pub(crate) fn at_once(act: fn()) {
    AT_ONCE.set(Some(act));
}

fn note(what: String) {
    ASKED.with_borrow_mut(|asked| asked.push(what));
    if let Some(act) = AT_ONCE.take() {
        act();
    }
}

fn text(buffer: Buffer) -> String {
    // SAFETY: tests keep what they pass.
    String::from_utf8_lossy(unsafe { buffer.bytes() }).into_owned()
}

// SAFETY: nothing else in the test has a name of the interface.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_log(_: c_int, line: Buffer) {
    note(format!("log {}", text(line)));
}

// SAFETY: nothing else in the test has a name of the interface.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_log_enabled(_: c_int) -> bool {
    true
}

// SAFETY: nothing else in the test has a name of the interface.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_send_response(
    _: StreamRef,
    status: u32,
    _: *const Header,
    _: usize,
    body: Buffer,
    details: Buffer,
) {
    note(format!("reply {status} {} {}", text(body), text(details)));
}

// SAFETY: nothing else in the test has a name of the interface.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_filter_continue_decoding(_: StreamRef) {
    note("continue".to_owned());
}

// SAFETY: nothing else in the test has a name of the interface.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_filter_reset_http_stream(_: StreamRef, call: u64) {
    note(format!("reset {call}"));
}

// SAFETY: nothing else in the test has a name of the interface.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_get_most_specific_route_config(route: StreamRef) -> Own {
    route.cast_const()
}

// SAFETY: nothing else in the test has a name of the interface.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_filter_continue_encoding(_: StreamRef) {
    note("continue the response".to_owned());
}

// SAFETY: nothing else in the test has a name of the interface.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_filter_reset_stream(_: StreamRef, _: c_int, details: Buffer) {
    note(format!("reset the stream: {}", text(details)));
}

// SAFETY: nothing else in the test has a name of the interface.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_filter_recreate_stream(
    _: StreamRef,
    _: *const Header,
    count: usize,
) -> bool {
    note(format!("anew with {count}"));
    false
}

// SAFETY: nothing else in the test has a name of the interface.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_send_response_headers(
    _: StreamRef,
    _: *const Header,
    count: usize,
    end: bool,
) {
    note(format!("begin with {count}, end {end}"));
}

// SAFETY: nothing else in the test has a name of the interface.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_send_response_data(_: StreamRef, data: Buffer, end: bool) {
    note(format!("piece {}, end {end}", text(data)));
}

// SAFETY: nothing else in the test has a name of the interface.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_send_response_trailers(_: StreamRef, _: *const Header, count: usize) {
    note(format!("{count} trailers"));
}

// SAFETY: nothing else in the test has a name of the interface.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_network_filter_write(_: StreamRef, data: Buffer, end: bool) {
    note(format!("write {}, end {end}", text(data)));
}

// SAFETY: nothing else in the test has a name of the interface.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_network_filter_inject_write_data(_: StreamRef, data: Buffer, end: bool) {
    note(format!("behind {}, end {end}", text(data)));
}

// SAFETY: nothing else in the test has a name of the interface.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_network_filter_inject_read_data(_: StreamRef, data: Buffer, end: bool) {
    note(format!("forth {}, end {end}", text(data)));
}

// SAFETY: nothing else in the test has a name of the interface.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_network_filter_disable_close(_: StreamRef, disabled: bool) {
    note(format!("keep {disabled}"));
}

// SAFETY: nothing else in the test has a name of the interface.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_network_filter_continue_reading(_: StreamRef) {
    note("go on".to_owned());
}

// SAFETY: nothing else in the test has a name of the interface.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_network_filter_close_with_details(
    _: StreamRef,
    kind: c_int,
    details: Buffer,
) {
    note(format!("close {kind} {}", text(details)));
}
