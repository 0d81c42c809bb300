//! Libraries with filters of requests.

use std::ffi::{c_char, c_int};
use std::path::Path;

use crate::abi::{HttpConfig, HttpRequest, LOG_AT_END, ProcessState};
use crate::epoch::Epoch;
use crate::object::{self, Known, Object, functions};
use crate::request::{Ends, Request};

/// A shared object that has such filters.
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) object: &'static Object,
    pub(crate) entries: Entries,
}

functions! {
    /// The functions of a library that its host calls.
    #[derive(Debug)]
    pub(crate) struct Entries {
        pub(crate) new_config: unsafe extern "C" fn(*mut HttpConfig) -> u64 = c"envoyGoFilterNewHttpPluginConfig",
        pub(crate) merge_config: unsafe extern "C" fn(*const c_char, u64, u64, u64) -> u64
            = c"envoyGoFilterMergeHttpPluginConfig",
        pub(crate) destroy_config: unsafe extern "C" fn(u64, i64) = c"envoyGoFilterDestroyHttpPluginConfig",
        pub(crate) on_header: unsafe extern "C" fn(*mut ProcessState, u64, u64, u64) -> u64
            = c"envoyGoFilterOnHttpHeader",
        pub(crate) on_data: unsafe extern "C" fn(*mut ProcessState, u64, u64, u64) -> u64 = c"envoyGoFilterOnHttpData",
        pub(crate) on_log: OnLog = c"envoyGoFilterOnHttpLog",
        /// Since E4.
        pub(crate) on_complete: Option<OnComplete> = may_lack c"envoyGoFilterOnHttpStreamComplete",
        pub(crate) on_destroy: unsafe extern "C" fn(*mut HttpRequest, u64) = c"envoyGoFilterOnHttpDestroy",
        pub(crate) answered: unsafe extern "C" fn(*mut HttpRequest) = c"envoyGoRequestSemaDec",
        /// A library has it, and goes on to the end of the process.
        _clean_up: unsafe extern "C" fn() = c"envoyGoFilterCleanUp",
    }
}

pub(crate) type OnComplete = unsafe extern "C" fn(*mut HttpRequest);

/// Libraries of E3 take the first two arguments and never look at the others, as the calling convention of C allows.
type OnLog = unsafe extern "C" fn(
    *mut HttpRequest,
    u64,
    *mut ProcessState,
    *mut ProcessState,
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
);

/// The library at this path, loaded if it is not yet. Never on a worker.
///
/// # Errors
/// Why it cannot be loaded, or cannot be what this host runs.
pub(crate) fn load(path: &Path) -> Result<&'static Library, String> {
    static KNOWN: Known<Library> = Known::new();
    let object = object::load(path)?;
    KNOWN.of(object, || {
        let entries = Entries::of(object).map_err(|reason| format!("cannot use {}: {reason}", path.display()))?;
        Ok(Library { object, entries })
    })
}

impl Entries {
    /// Tells of a stream's end, and has it logged.
    ///
    /// # Safety
    /// The stream is one that this library was given and that is not destroyed, and has so many fields.
    pub(crate) unsafe fn end(&self, request: *mut Request, ends: &Ends) {
        // SAFETY: as promised; the states are part of the stream's object.
        unsafe {
            if let Some(on_complete) = self.on_complete {
                on_complete(request.cast());
            }
            self.log(request, LOG_AT_END, ends);
        }
    }

    /// Has a stream logged.
    ///
    /// # Safety
    /// As for [`Entries::end`].
    pub(crate) unsafe fn log(&self, request: *mut Request, moment: u64, ends: &Ends) {
        // SAFETY: as promised; the states are part of the stream's object.
        unsafe {
            let states = (&raw mut (*request).states).cast::<ProcessState>();
            (self.on_log)(
                request.cast(),
                moment,
                states,
                states.add(1),
                ends.request_head.0 as u64,
                ends.request_head.1 as u64,
                ends.request_trailers.0 as u64,
                ends.request_trailers.1 as u64,
                ends.response_head.0 as u64,
                ends.response_head.1 as u64,
                ends.response_trailers.0 as u64,
                ends.response_trailers.1 as u64,
            );
        }
    }
}

impl Library {
    pub(crate) fn has(&self, epoch: Epoch) -> bool {
        self.object.sdk.epoch >= epoch
    }
}

/// The type of a flag in C.
pub(crate) fn flag(set: bool) -> c_int {
    c_int::from(set)
}
