//! What scripts beside the filter chain see: the headers of a request, and how busy clusters are.

use std::cell::Cell;
use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use postrider_http::RequestHead;

use super::text::{put, take};
use super::values::Plain;
use super::{NONE, NOT_HERE, OK, Text};
use postrider_filter_api::Clusters;

/// A choice under way.
pub(crate) struct Choice<'a> {
    pub(crate) request: &'a RequestHead,
    pub(crate) clusters: &'a dyn Clusters,
    pub(crate) bytes: Vec<u8>,
}

thread_local! {
    static CURRENT: Cell<*mut Choice<'static>> = const { Cell::new(ptr::null_mut()) };
}

impl Choice<'_> {
    /// Makes this the current choice while `run` runs.
    pub(crate) fn during<T>(&mut self, run: impl FnOnce() -> T) -> T {
        struct Restore(*mut Choice<'static>);
        impl Drop for Restore {
            fn drop(&mut self) {
                CURRENT.set(self.0);
            }
        }
        let this: *mut Choice<'_> = self;
        // The lifetime ends with `run`: `Restore` takes the pointer away whatever happens.
        let _restore = Restore(CURRENT.replace(this.cast()));
        run()
    }
}

fn with(act: impl FnOnce(&mut Choice<'_>) -> c_int) -> c_int {
    // SAFETY: set by `during` for as long as the choice lives, on this thread, and used by nothing else meanwhile.
    let Some(choice) = (unsafe { CURRENT.get().as_mut() }) else { return NOT_HERE };
    catch_unwind(AssertUnwindSafe(|| act(choice))).unwrap_or(NOT_HERE)
}

/// All values of a request's header, joined by commas.
pub(super) unsafe extern "C" fn header(name: *const c_char, length: usize, out: *mut Text) -> c_int {
    with(|choice| {
        // SAFETY: the SDK passes a Lua string with its length.
        let name = unsafe { take(name, length) }.to_ascii_lowercase();
        let request = choice.request;
        let bytes = &mut choice.bytes;
        bytes.clear();
        match name.as_slice() {
            b":authority" | b"host" => bytes.extend_from_slice(request.authority()),
            b":path" => bytes.extend_from_slice(request.path()),
            b":method" => bytes.extend_from_slice(request.method_bytes()),
            b":scheme" => {
                let scheme = request.scheme().map_or("http", postrider_http::Scheme::as_str);
                bytes.extend_from_slice(scheme.as_bytes());
            }
            name => {
                let mut count = 0;
                for value in request.fields.get_all_name(name) {
                    if count > 0 {
                        bytes.push(b',');
                    }
                    bytes.extend_from_slice(value);
                    count += 1;
                }
                if count == 0 {
                    return NONE;
                }
            }
        }
        // SAFETY: the SDK passes a place of its own.
        unsafe { put(out, bytes) };
        OK
    })
}

/// How busy a cluster is: 0 its connections, 1 its requests, 2 those that wait for a connection.
pub(super) unsafe extern "C" fn load(name: *const c_char, length: usize, what: c_int, out: *mut Plain) -> c_int {
    with(|choice| {
        // SAFETY: the SDK passes a Lua string with its length, and a place of its own.
        let (name, out) = unsafe { (take(name, length), out.as_mut()) };
        let load = std::str::from_utf8(name).ok().and_then(|name| choice.clusters.load(name));
        let (Some(load), Some(out)) = (load, out) else { return NONE };
        out.set_number(match what {
            0 => load.connections,
            1 => load.requests,
            _ => load.pending,
        });
        OK
    })
}
