//! What belongs to no stream: statistics, logs.

use std::ffi::{c_int, c_void};

use postrider_filter_trial::observe::{self, Event};
use postrider_telemetry::error;
use postrider_telemetry::log::{self, Component, Level};

use super::{bytes, text};
use crate::LOG_SPEAKER;
use crate::abi::status;
use crate::apart;
use crate::metrics::{Metrics, Sort};
use crate::parsed::{self, ConfigSlot};

/// Longest name of a statistic.
const MAX_NAME: usize = 512;

/// # Safety
/// `config` is one that Go code was given and has not finalized.
unsafe fn metrics<'c>(config: *mut c_void) -> &'c Metrics {
    // SAFETY: as promised.
    unsafe { &(*config.cast::<ConfigSlot>()).metrics }
}

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoConfigHttpFinalize(config: *mut c_void) {
    // SAFETY: Go's collector does this once, when nothing refers to the configuration any more.
    unsafe { parsed::finalize(config) };
}

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterHttpDefineMetric(
    config: *mut c_void,
    sort: u32,
    name: *const c_void,
    name_len: c_int,
    id: *mut u32,
) -> c_int {
    let sort = match sort {
        0 => Sort::Counter,
        1 => Sort::Gauge,
        2 => Sort::Histogram,
        _ => return status::NOT_FOUND,
    };
    // SAFETY: Go code passes a configuration of its own, a text with its length, and a place for the number.
    unsafe {
        let name = text(name, name_len);
        let fits = !name.is_empty() && name.len() <= MAX_NAME;
        *id = fits.then(|| metrics(config).define(sort, &name)).flatten().unwrap_or_else(|| {
            error!(Filter, "the statistic `{name}` of a Go plugin is not counted: see the limits of statistics");
            u32::MAX
        });
    }
    status::OK
}

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterHttpIncrementMetric(config: *mut c_void, id: u32, offset: i64) -> c_int {
    // SAFETY: Go code passes a configuration of its own.
    unsafe { metrics(config) }.increment(id, offset);
    status::OK
}

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterHttpGetMetric(config: *mut c_void, id: u32, value: *mut u64) -> c_int {
    // SAFETY: Go code passes a configuration of its own, and a place for the number.
    unsafe {
        if let Some(found) = metrics(config).value(id) {
            *value = found;
        }
    }
    status::OK
}

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterHttpRecordMetric(config: *mut c_void, id: u32, value: u64) -> c_int {
    // SAFETY: Go code passes a configuration of its own.
    unsafe { metrics(config) }.record(id, value);
    status::OK
}

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterLog(level: u32, message: *const c_void, len: c_int) {
    let level = match level {
        0 => Level::Trace,
        1 => Level::Debug,
        2 => Level::Info,
        3 => Level::Warning,
        4 => Level::Error,
        5 => Level::Critical,
        _ => return,
    };
    // SAFETY: Go code passes a text with its length.
    let said = || String::from_utf8_lossy(unsafe { bytes(message, len) });
    if observe::is_on_anywhere() {
        observe::note_from_anywhere(Event::Log { level, text: said().trim_end().to_owned() });
    } else if apart::log_level().is_some() {
        apart::forward_log(level as u32, said().trim_end());
    } else if log::enabled(Component::Filter, level) {
        let message = said();
        log::write_of(LOG_SPEAKER, Component::Filter, level, format_args!("{}", message.trim_end()));
    }
}

/// Asked once a second, and first while the library is loaded.
// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) extern "C" fn envoyGoFilterLogLevel() -> u32 {
    let level = if observe::is_on_anywhere() { Level::Trace } else { log::level(Component::Filter) };
    apart::log_level().unwrap_or(level as u32)
}
