//! Libraries with filters of requests.

use std::ffi::{c_char, c_int};
use std::path::Path;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use crate::abi::{HttpConfig, HttpRequest, LOG_AT_END, ProcessState};
use crate::epoch::Epoch;
use crate::object::{self, Object};
use crate::request::{Ends, Request};

/// A shared object that has such filters.
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) object: &'static Object,
    pub(crate) entries: Entries,
}

/// The functions of a library that its host calls.
#[derive(Debug)]
pub(crate) struct Entries {
    pub(crate) new_config: unsafe extern "C" fn(*mut HttpConfig) -> u64,
    pub(crate) merge_config: unsafe extern "C" fn(*const c_char, u64, u64, u64) -> u64,
    pub(crate) destroy_config: unsafe extern "C" fn(u64, i64),
    pub(crate) on_header: unsafe extern "C" fn(*mut ProcessState, u64, u64, u64) -> u64,
    pub(crate) on_data: unsafe extern "C" fn(*mut ProcessState, u64, u64, u64) -> u64,
    pub(crate) on_log: OnLog,
    /// Since E4.
    pub(crate) on_complete: Option<unsafe extern "C" fn(*mut HttpRequest)>,
    pub(crate) on_destroy: unsafe extern "C" fn(*mut HttpRequest, u64),
    pub(crate) answered: unsafe extern "C" fn(*mut HttpRequest),
}

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
    static KNOWN: Mutex<Vec<&'static Library>> = Mutex::new(Vec::new());
    let object = object::load(path)?;
    // A panic with the lock held leaves a whole list behind.
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(library) = known.iter().find(|library| ptr::eq(library.object, object)) {
        return Ok(library);
    }
    let entries = entries(object).map_err(|reason| format!("cannot use {}: {reason}", path.display()))?;
    let library: &'static Library = Box::leak(Box::new(Library { object, entries }));
    known.push(library);
    Ok(library)
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

fn entries(object: &Object) -> Result<Entries, String> {
    let mut finder = object.finder();
    let new_config = finder.find(c"envoyGoFilterNewHttpPluginConfig");
    let merge_config = finder.find(c"envoyGoFilterMergeHttpPluginConfig");
    let destroy_config = finder.find(c"envoyGoFilterDestroyHttpPluginConfig");
    let on_header = finder.find(c"envoyGoFilterOnHttpHeader");
    let on_data = finder.find(c"envoyGoFilterOnHttpData");
    let on_log = finder.find(c"envoyGoFilterOnHttpLog");
    let on_destroy = finder.find(c"envoyGoFilterOnHttpDestroy");
    let answered = finder.find(c"envoyGoRequestSemaDec");
    finder.find(c"envoyGoFilterCleanUp");
    // Libraries of E3 lack it.
    let on_complete = finder.find_any(c"envoyGoFilterOnHttpStreamComplete");
    finder.finish()?;
    // SAFETY: all were found but the one that may be missing, and these are the types that the SDK declares for functions
    // of these names.
    unsafe {
        Ok(Entries {
            new_config: new_config.function(),
            merge_config: merge_config.function(),
            destroy_config: destroy_config.function(),
            on_header: on_header.function(),
            on_data: on_data.function(),
            on_log: on_log.function(),
            on_complete: on_complete.any(),
            on_destroy: on_destroy.function(),
            answered: answered.function(),
        })
    }
}

/// The type of a flag in C.
pub(crate) fn flag(set: bool) -> c_int {
    c_int::from(set)
}
