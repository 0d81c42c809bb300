//! What is known about the stream, and what can be done to it beside editing its messages.

use std::ffi::{c_char, c_double, c_int};
use std::io::Write;
use std::net::SocketAddr;
use std::time::SystemTime;

use postrider_filter_api::UpstreamOverride;
use postrider_telemetry::log::Level;

use super::text::{put, take};
use super::turn::{with, with_stream};
use super::{INVALID, NONE, NOT_HERE, OK, Side, Text};

/// Facts as text, as scripts number them.
pub(super) unsafe extern "C" fn info(what: c_int, out: *mut Text) -> c_int {
    with_stream(|stream, scratch, _| {
        let info = &*stream.info;
        let address = |address: Option<SocketAddr>, bytes: &mut Vec<u8>| {
            bytes.clear();
            if let Some(address) = address {
                // Writing to a vector cannot fail.
                let _ = write!(bytes, "{address}");
            }
        };
        let text: Option<&[u8]> = match what {
            0 => Some(stream.request.version().as_str().as_bytes()),
            1 => stream.route.and_then(|route| route.name.as_deref()).map(str::as_bytes),
            2 => stream.route.map(|route| route.virtual_host.as_bytes()),
            4 | 5 => {
                address(info.downstream_local, &mut scratch.bytes);
                Some(&scratch.bytes)
            }
            6 => {
                address(info.downstream_remote, &mut scratch.bytes);
                Some(&scratch.bytes)
            }
            7 => {
                address(info.downstream_direct_remote, &mut scratch.bytes);
                Some(&scratch.bytes)
            }
            8 => info.upstream_cluster.as_deref().map(str::as_bytes),
            9 => info.upstream_remote.as_deref().map(str::as_bytes),
            10 => info.virtual_cluster.as_deref().map(str::as_bytes),
            _ => return NOT_HERE,
        };
        let Some(text) = text else { return NONE };
        // SAFETY: the SDK passes a place of its own.
        unsafe { put(out, text) };
        OK
    })
}

/// When the stream began, in milliseconds since the epoch; 0 outside a stream.
pub(super) unsafe extern "C" fn start_time() -> c_double {
    let mut start = 0.0;
    with_stream(|stream, _, _| {
        start = millis(stream.info.start);
        OK
    });
    start
}

/// The wall clock in milliseconds since the epoch, with fractions.
pub(super) unsafe extern "C" fn now() -> c_double {
    millis(SystemTime::now())
}

fn millis(at: SystemTime) -> f64 {
    at.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64() * 1000.0)
}

/// Writes a line to the application log: levels 0 trace to 5 critical.
pub(super) unsafe extern "C" fn log(level: c_int, text: *const c_char, length: usize) -> c_int {
    with(|turn| {
        let levels = [Level::Trace, Level::Debug, Level::Info, Level::Warning, Level::Error, Level::Critical];
        let Some(level) = usize::try_from(level).ok().and_then(|level| levels.get(level)) else { return INVALID };
        // SAFETY: the SDK passes a Lua string with its length.
        let text = String::from_utf8_lossy(unsafe { take(text, length) });
        turn.plugin.log_own(*level, &text);
        OK
    })
}

/// Whether a line of this level would be written.
pub(super) unsafe extern "C" fn log_enabled(level: c_int) -> c_int {
    let levels = [Level::Trace, Level::Debug, Level::Info, Level::Warning, Level::Error, Level::Critical];
    let level = usize::try_from(level).ok().and_then(|level| levels.get(level));
    c_int::from(level.is_some_and(|level| crate::plugin::log_enabled(*level)))
}

/// Appends to the plugin's own log file, if it has one.
pub(super) unsafe extern "C" fn file_log(text: *const c_char, length: usize) -> c_int {
    with(|turn| {
        // SAFETY: the SDK passes a Lua string with its length.
        turn.plugin.file_log(unsafe { take(text, length) });
        OK
    })
}

/// The route is looked up again before it is next used.
pub(super) unsafe extern "C" fn clear_route_cache() -> c_int {
    with_stream(|stream, _, _| {
        stream.info.route_is_stale = true;
        OK
    })
}

/// The client's connection ends after this stream.
pub(super) unsafe extern "C" fn drain() -> c_int {
    with_stream(|stream, _, _| {
        stream.info.drain_connection = true;
        OK
    })
}

/// Asks for a host of the cluster: `ip` or `ip:port`.
pub(super) unsafe extern "C" fn override_host(host: *const c_char, length: usize, strict: c_int) -> c_int {
    with_stream(|stream, _, _| {
        // SAFETY: the SDK passes a Lua string with its length.
        let Ok(host) = std::str::from_utf8(unsafe { take(host, length) }) else { return INVALID };
        let Some(chosen) = UpstreamOverride::read(host, strict != 0) else { return INVALID };
        stream.info.upstream_override = Some(chosen);
        OK
    })
}

/// The reason phrase of the response.
pub(super) unsafe extern "C" fn set_reason(text: *const c_char, length: usize) -> c_int {
    with_stream(|stream, _, script| {
        // SAFETY: the SDK passes a Lua string with its length.
        let text = unsafe { take(text, length) };
        match script.has_response && !script.is_released(Side::Response) {
            true if stream.response.set_reason(text).is_ok() => OK,
            true => INVALID,
            false => NOT_HERE,
        }
    })
}

/// The script keeps something for this stream: it wants to be told when it is over.
pub(super) unsafe extern "C" fn keep() -> c_int {
    with_stream(|_, _, script| {
        script.is_kept = true;
        OK
    })
}

/// Where the route leads: 1 to a cluster, 0 to an answer of its own, -1 without one.
pub(super) unsafe extern "C" fn route_kind() -> c_int {
    with_stream(|stream, _, _| stream.route.map_or(NOT_HERE, |route| c_int::from(route.forwards)))
}
