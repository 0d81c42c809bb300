//! What is the same for the whole process.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use postrider_filter_trial::observe::{self, Event};
use postrider_telemetry::log::{Component, Level, enabled, write_of};

use super::put;
use crate::abi::Buffer;

/// Whose lines in the log those of modules are: they do not say of which plugin they are.
const LOG_SPEAKER: &str = "native modules";

/// Most names in one of the tables.
const MAX_NAMES: usize = 10_000;

static WORKERS: AtomicU32 = AtomicU32::new(1);
static VALIDATING: AtomicBool = AtomicBool::new(false);

/// How many workers there will be, for modules that ask when they are loaded.
pub fn set_concurrency(workers: u32) {
    WORKERS.store(workers, Ordering::Relaxed);
}

/// The process only looks at its configuration.
pub fn set_validating() {
    VALIDATING.store(true, Ordering::Relaxed);
}

pub(super) unsafe fn concurrency() -> u32 {
    WORKERS.load(Ordering::Relaxed)
}

pub(super) unsafe fn is_validating() -> bool {
    VALIDATING.load(Ordering::Relaxed)
}

fn level(level: c_int) -> Option<Level> {
    let levels = [Level::Trace, Level::Debug, Level::Info, Level::Warning, Level::Error, Level::Critical];
    usize::try_from(level).ok().and_then(|level| levels.get(level)).copied()
}

pub(super) unsafe fn log(number: c_int, text: Buffer) {
    // SAFETY: the caller is a module that follows the interface, here and below.
    let text = unsafe { text.bytes() };
    if let Some(level) = level(number).filter(|level| is_heard(*level)) {
        tell(level, &String::from_utf8_lossy(text));
    }
}

/// A line with the place in the module that it comes from, where the module says one.
pub(super) unsafe fn log_at(number: c_int, text: Buffer, file: Buffer, line: u32) {
    // SAFETY: as in `log`.
    let (text, file) = unsafe { (text.bytes(), file.bytes()) };
    let Some(level) = level(number).filter(|level| is_heard(*level)) else { return };
    let (text, file) = (String::from_utf8_lossy(text), String::from_utf8_lossy(file));
    if file.is_empty() {
        tell(level, &text);
    } else {
        tell(level, &format!("{file}:{line}: {text}"));
    }
}

/// Whether anybody sees a line of this level.
fn is_heard(level: Level) -> bool {
    enabled(Component::Filter, level) || observe::is_on()
}

fn tell(level: Level, text: &str) {
    if observe::is_on() {
        return observe::note(Event::Log { level, text: text.to_owned() });
    }
    write_of(LOG_SPEAKER, Component::Filter, level, format_args!("{text}"));
}

/// The least level of lines that are written.
pub(super) unsafe fn log_level() -> c_int {
    let known = if observe::is_on() { Level::Trace } else { postrider_telemetry::log::level(Component::Filter) };
    // The interface has the same levels in the same order.
    known as c_int
}

pub(super) unsafe fn log_enabled(number: c_int) -> bool {
    level(number).is_some_and(is_heard)
}

/// Addresses by name.
type Table = Mutex<Option<HashMap<Vec<u8>, usize>>>;

static FUNCTIONS: Table = Mutex::new(None);
static DATA: Table = Mutex::new(None);

fn register(table: &Table, key: &[u8], address: *mut c_void, replaces: bool) -> bool {
    let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
    let table = table.get_or_insert_default();
    let is_new = !table.contains_key(key);
    if address.is_null() || !is_new && !replaces || is_new && table.len() >= MAX_NAMES {
        return false;
    }
    table.insert(key.to_vec(), address.expose_provenance());
    true
}

unsafe fn find(table: &Table, key: Buffer, out: *mut *mut c_void) -> bool {
    // SAFETY: as in `log`.
    let key = unsafe { key.bytes() };
    let table = table.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(address) = table.as_ref().and_then(|table| table.get(key)) else { return false };
    // SAFETY: as in `log`.
    unsafe { put(out, std::ptr::with_exposed_provenance_mut(*address)) };
    true
}

/// A function for other modules, once per name.
pub(super) unsafe fn register_function(key: Buffer, function: *mut c_void) -> bool {
    // SAFETY: as in `log`.
    register(&FUNCTIONS, unsafe { key.bytes() }, function, false)
}

pub(super) unsafe fn function(key: Buffer, out: *mut *mut c_void) -> bool {
    // SAFETY: as in `log`.
    unsafe { find(&FUNCTIONS, key, out) }
}

/// Something for other modules, in the place of what had that name.
pub(super) unsafe fn register_data(key: Buffer, data: *mut c_void) -> bool {
    // SAFETY: as in `log`.
    register(&DATA, unsafe { key.bytes() }, data, true)
}

pub(super) unsafe fn data(key: Buffer, out: *mut *mut c_void) -> bool {
    // SAFETY: as in `log`.
    unsafe { find(&DATA, key, out) }
}
