//! Libraries in this process. None is ever unloaded: Go's runtime cannot be.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use postrider_telemetry::{info, warning};

use crate::abi::{HttpConfig, HttpRequest, LOG_AT_END, ProcessState};
use crate::elf::{self, Inspected};
use crate::epoch::{Epoch, Sdk};
use crate::exports;
use crate::request::{Ends, Request};
use crate::scheduler;

/// Most libraries of a process. Each has a runtime of its own, with threads and a heap, for as long as the process lives.
pub(crate) const MAX_LIBRARIES: usize = 32;

/// Largest file: the largest collections of plugins have some 50 MB.
const MAX_BYTES: u64 = 1 << 30;

/// What every host function's name begins with.
const HOST_PREFIX: &str = "envoyGo";

/// In libraries whose SDK passes the headers of a reply as Go's strings: a function of that SDK.
const PASSES_STRINGS: &[u8] = b"goHeadersToCHeaders";

/// A library that was loaded.
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) path: PathBuf,
    pub(crate) sdk: Sdk,
    /// The headers of a reply come as Go's strings, not as C's.
    pub(crate) passes_strings: bool,
    pub(crate) entries: Entries,
    /// A hash of the file as it was.
    pub(crate) digest: String,
    file: FileIdentity,
}

/// Tells files apart, and one that was replaced from what it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileIdentity {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
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

/// Every library of this process.
static LOADED: Mutex<Vec<&'static Library>> = Mutex::new(Vec::new());

/// The library at this path, loaded if it is not yet. Never on a worker.
///
/// # Errors
/// Why it cannot be loaded, or cannot be what this host runs.
pub(crate) fn load(path: &Path) -> Result<&'static Library, String> {
    let shown = path.display();
    // A bare name would be looked for where the system's libraries are.
    let path = &std::path::absolute(path).map_err(|error| format!("cannot find {shown}: {error}"))?;
    let file = FileIdentity::of(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
    // A panic with the lock held leaves a whole list behind.
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = loaded.iter().find(|library| library.path == *path) {
        if known.file != file {
            warning!(
                Filter,
                "{shown} is another file than the library that was loaded from there, which stays in force: Go code \
                 cannot be unloaded. Name the new one by a path of its own, or restart"
            );
        }
        return Ok(known);
    }
    if loaded.len() >= MAX_LIBRARIES {
        return Err(format!(
            "there are {MAX_LIBRARIES} Go libraries in this process, and none can be unloaded: restart it to load {shown}"
        ));
    }
    let examined = examine(path)?;
    let began = Instant::now();
    let entries = open(path).map_err(|reason| format!("cannot load {shown}: {reason}"))?;
    let library: &'static Library = Box::leak(Box::new(Library {
        path: path.to_owned(),
        passes_strings: examined.passes_strings,
        entries,
        digest: examined.digest,
        file,
        sdk: examined.sdk,
    }));
    loaded.push(library);
    info!(
        Filter,
        "loaded the Go library {shown} in {:.1?}: SDK {} ({:?}), {}; {} of at most {MAX_LIBRARIES} in this process",
        began.elapsed(),
        library.sdk.version.as_deref().unwrap_or("of unknown version"),
        library.sdk.epoch,
        examined.go.as_deref().unwrap_or("Go of unknown version"),
        loaded.len(),
    );
    Ok(library)
}

/// What a library's file says of itself. Nothing of it is run.
pub(crate) struct Examined {
    pub(crate) sdk: Sdk,
    pub(crate) digest: String,
    go: Option<String>,
    passes_strings: bool,
}

/// Looks at the library at this path.
///
/// # Errors
/// Why it cannot be what this host runs.
pub(crate) fn examine(path: &Path) -> Result<Examined, String> {
    let shown = path.display();
    let unreadable = |error: std::io::Error| format!("cannot read {shown}: {error}");
    let size = std::fs::metadata(path).map_err(unreadable)?.size();
    if size > MAX_BYTES {
        return Err(format!("{shown} has {size} bytes; at most {MAX_BYTES} are taken"));
    }
    let content = std::fs::read(path).map_err(unreadable)?;
    let refused = |reason: String| format!("cannot load {shown}: {reason}");
    let inspected = elf::inspect(&content).map_err(|error| refused(error.to_string()))?;
    let sdk = Sdk::of(&inspected).map_err(refused)?;
    check_symbols(&inspected).map_err(refused)?;
    Ok(Examined { sdk, digest: digest(&content), go: inspected.go, passes_strings: contains(&content, PASSES_STRINGS) })
}

impl FileIdentity {
    pub(crate) fn of(path: &Path) -> std::io::Result<FileIdentity> {
        let about = std::fs::metadata(path)?;
        Ok(FileIdentity {
            device: about.dev(),
            inode: about.ino(),
            size: about.size(),
            changed: (about.mtime(), about.mtime_nsec()),
        })
    }
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
            let states = (&raw mut (*request).states).cast::<ProcessState>();
            (self.on_log)(
                request.cast(),
                LOG_AT_END,
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
        self.sdk.epoch >= epoch
    }
}

/// What it asks for must be here: a function that is not found when it is first called ends the process.
fn check_symbols(inspected: &Inspected) -> Result<(), String> {
    let known = |name: &&String| exports::NAMES.contains(&name.as_str());
    let unknown: Vec<&str> = inspected
        .undefined
        .iter()
        .filter(|name| name.starts_with(HOST_PREFIX) && !known(name))
        .map(String::as_str)
        .collect();
    if !unknown.is_empty() {
        return Err(format!("it asks for functions that Postrider has not: {}", unknown.join(", ")));
    }
    Ok(())
}

fn open(path: &Path) -> Result<Entries, String> {
    let name = CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| "its path has a zero in it".to_owned())?;
    // The table keeps the linker from dropping what only libraries call.
    std::hint::black_box(&exports::TABLE);
    // SAFETY: the name is a string of C. Loading runs the library's initialisers, which is what the user asks for.
    let handle = scheduler::with_slack(|| unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) });
    if handle.is_null() {
        return Err(last_error());
    }
    let mut missing = Vec::new();
    let mut find = |name: &'static CStr| {
        // SAFETY: the handle is open and stays so.
        let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
        if found.is_null() {
            missing.push(name.to_string_lossy());
        }
        found
    };
    let new_config = find(c"envoyGoFilterNewHttpPluginConfig");
    let merge_config = find(c"envoyGoFilterMergeHttpPluginConfig");
    let destroy_config = find(c"envoyGoFilterDestroyHttpPluginConfig");
    let on_header = find(c"envoyGoFilterOnHttpHeader");
    let on_data = find(c"envoyGoFilterOnHttpData");
    let on_log = find(c"envoyGoFilterOnHttpLog");
    let on_destroy = find(c"envoyGoFilterOnHttpDestroy");
    let answered = find(c"envoyGoRequestSemaDec");
    find(c"envoyGoFilterCleanUp");
    if !missing.is_empty() {
        return Err(format!("it lacks functions of Envoy's Go SDK: {}", missing.join(", ")));
    }
    // SAFETY: the handle is open and stays so.
    let on_complete = unsafe { libc::dlsym(handle, c"envoyGoFilterOnHttpStreamComplete".as_ptr()) };
    // SAFETY: all were found, and these are the types that the SDK declares for functions of these names; the one that
    // libraries of E3 lack is looked for apart.
    unsafe {
        Ok(Entries {
            new_config: function(new_config),
            merge_config: function(merge_config),
            destroy_config: function(destroy_config),
            on_header: function(on_header),
            on_data: function(on_data),
            on_log: function(on_log),
            on_complete: (!on_complete.is_null()).then(|| function(on_complete)),
            on_destroy: function(on_destroy),
            answered: function(answered),
        })
    }
}

/// # Safety
/// `address` is that of a function of type `F`.
unsafe fn function<F: Copy>(address: *mut c_void) -> F {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: as promised; a function pointer is as large as an address.
    unsafe { std::mem::transmute_copy(&address) }
}

fn last_error() -> String {
    // SAFETY: the text lasts until this thread's next call of these functions.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the loader does not say why".to_owned();
    }
    // SAFETY: a string of C.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn contains(content: &[u8], wanted: &[u8]) -> bool {
    memchr::memmem::find(content, wanted).is_some()
}

/// FNV-1a over words: enough to tell two builds apart.
fn digest(content: &[u8]) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for word in content.chunks(8) {
        let mut bytes = [0; 8];
        bytes.iter_mut().zip(word).for_each(|(to, from)| *to = *from);
        hash = (hash ^ u64::from_le_bytes(bytes)).wrapping_mul(0x0100_0000_01b3);
    }
    format!("{hash:016x}")
}

/// The type of a flag in C.
pub(crate) fn flag(set: bool) -> c_int {
    c_int::from(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_library_asks_for_must_be_here() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let asks =
            |undefined: &[&str]| check_symbols(&Inspected { undefined: names(undefined), ..Inspected::default() });
        assert_eq!(asks(&["malloc", "envoyGoFilterHttpContinue", "envoyGoFilterLog"]), Ok(()));
        let refused = asks(&["envoyGoFilterHttpNew", "envoyGoFilterHttpNewer", "x"]).unwrap_err();
        assert_eq!(
            refused,
            "it asks for functions that Postrider has not: envoyGoFilterHttpNew, envoyGoFilterHttpNewer"
        );
    }

    #[test]
    fn a_file_that_is_no_library_is_refused_with_the_reason() {
        let own = std::env::current_exe().unwrap();
        assert!(load(&own).unwrap_err().contains("no library of Envoy's Go filters"));
        assert!(load(Path::new("/no/such.so")).unwrap_err().contains("cannot read /no/such.so: No such file"));
    }
}
