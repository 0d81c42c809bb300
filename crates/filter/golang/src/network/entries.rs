//! Libraries with filters of connections.

use std::ffi::c_void;
use std::path::Path;
use std::ptr;

use super::line::Line;
use crate::object::{self, Known, Object, functions};
use crate::parsed::address;

/// A shared object that has such filters.
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) object: &'static Object,
    pub(super) entries: Entries,
}

/// How Go code knows a connection: a number that stands where an address would.
type Number = *mut c_void;

functions! {
    /// The functions of a library that its host calls. Numbers and flags are as wide as Go's `int`.
    #[derive(Debug)]
    pub(super) struct Entries {
        /// The library's name and the configuration, each with its length.
        pub(super) new_config: unsafe extern "C" fn(u64, u64, u64, u64) -> u64 = c"envoyGoFilterOnNetworkFilterConfig",
        on_connection: unsafe extern "C" fn(Number, u64, u64, u64) -> u64 = c"envoyGoFilterOnDownstreamConnection",
        on_received: Data = c"envoyGoFilterOnDownstreamData",
        on_sent: Data = c"envoyGoFilterOnDownstreamWrite",
        on_event: unsafe extern "C" fn(Number, i64) = c"envoyGoFilterOnDownstreamEvent",
        on_upstream_ready: unsafe extern "C" fn(Number, u64) = c"envoyGoFilterOnUpstreamConnectionReady",
        on_upstream_failed: unsafe extern "C" fn(Number, i64, u64) = c"envoyGoFilterOnUpstreamConnectionFailure",
        on_upstream_received: unsafe extern "C" fn(Number, u64, u64, i64, i64) = c"envoyGoFilterOnUpstreamData",
        on_upstream_event: unsafe extern "C" fn(Number, i64) = c"envoyGoFilterOnUpstreamEvent",
        answered: unsafe extern "C" fn(Number) = c"envoyGoFilterOnSemaDec",
    }
}

/// All bytes, slices of them as pairs of address and length, how many slices, and whether nothing follows.
type Data = unsafe extern "C" fn(Number, u64, u64, i64, i64) -> u64;

/// What becomes of a connection, as Envoy numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    RemoteClose = 0,
    LocalClose = 1,
    Connected = 2,
}

/// The library at this path, loaded if it is not yet. Never on a worker.
///
/// # Errors
/// Why it cannot be loaded, or has no such filters.
pub(super) fn load(path: &Path) -> Result<&'static Library, String> {
    let object = object::load(path)?;
    KNOWN.of(object, || {
        let entries = Entries::of(object);
        let entries =
            entries.map_err(|reason| format!("{} has no filters of connections: {reason}", path.display()))?;
        Ok(Library { object, entries })
    })
}

/// The library of that name.
pub(super) fn named(name: &[u8]) -> Option<&'static Library> {
    KNOWN.find(|library| library.name().as_bytes() == name)
}

static KNOWN: Known<Library> = Known::new();

impl Library {
    /// Its name in Go code.
    pub(super) fn name(&self) -> String {
        self.object.path.display().to_string()
    }

    /// A client's connection of a plugin begins; whether it is held back.
    pub(super) fn begin(&self, line: &Line, plugin: &str, config: u64) -> bool {
        // SAFETY: the number is one that was never used before, and the name outlives the call. So below: the number is one
        // that Go code was told of, and that did not end for it.
        unsafe {
            (self.entries.on_connection)(number(line), address(plugin.as_bytes()), plugin.len() as u64, config) != 0
        }
    }

    /// What came from the client; whether it is held back.
    pub(super) fn received(&self, line: &Line, data: &[u8], end: bool) -> bool {
        // SAFETY: as above; the bytes outlive the call, in which Go code copies them.
        slices(data, |all, first, count| unsafe {
            (self.entries.on_received)(number(line), all, first, count, i64::from(end)) != 0
        })
    }

    /// The same of what goes to it.
    pub(super) fn sent(&self, line: &Line, data: &[u8], end: bool) -> bool {
        // SAFETY: as above.
        slices(data, |all, first, count| unsafe {
            (self.entries.on_sent)(number(line), all, first, count, i64::from(end)) != 0
        })
    }

    pub(super) fn tell(&self, line: &Line, event: Event) {
        // SAFETY: as above.
        unsafe { (self.entries.on_event)(number(line), event as i64) };
    }

    /// A connection of Go code's own is there.
    pub(super) fn upstream_ready(&self, line: &Line, own: u64) {
        // SAFETY: as above; `own` is the library's number for it, which it has not heard of yet.
        unsafe { (self.entries.on_upstream_ready)(number(line), own) };
    }

    /// It does not come to be.
    pub(super) fn upstream_failed(&self, line: &Line, reason: i64, own: u64) {
        // SAFETY: as above.
        unsafe { (self.entries.on_upstream_failed)(number(line), reason, own) };
    }

    pub(super) fn upstream_received(&self, line: &Line, data: &[u8], end: bool) {
        // SAFETY: as above.
        slices(data, |all, first, count| unsafe {
            (self.entries.on_upstream_received)(number(line), all, first, count, i64::from(end));
        });
    }

    pub(super) fn upstream_tell(&self, line: &Line, event: Event) {
        // SAFETY: as above.
        unsafe { (self.entries.on_upstream_event)(number(line), event as i64) };
    }

    /// What a goroutine asked for is there.
    pub(super) fn answered(&self, line: &Line) {
        // SAFETY: as above.
        unsafe { (self.entries.answered)(number(line)) };
    }
}

fn number(line: &Line) -> Number {
    ptr::without_provenance_mut(usize::try_from(line.number).unwrap_or_default())
}

/// Calls with bytes as Go code takes them: their number, the address of the first slice, and how many slices there are.
fn slices<T>(data: &[u8], call: impl FnOnce(u64, u64, i64) -> T) -> T {
    let slices = [address(data), data.len() as u64];
    call(data.len() as u64, slices.as_ptr() as u64, i64::from(!data.is_empty()))
}
