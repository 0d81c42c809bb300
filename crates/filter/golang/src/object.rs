//! Shared objects in this process that Go built. None is ever unloaded: Go's runtime cannot be.
//!
//! One may hold filters of requests, filters of connections and choosers of clusters, each with functions of its own: see
//! [`Object::finder`].

use std::ffi::{CStr, CString, c_void};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use postrider_telemetry::{info, warning};

use crate::elf::{self, Inspected};
use crate::epoch::Sdk;
use crate::{environment, exports, plugin_names, scheduler};

/// Most libraries of a process. Each has a runtime of its own, with threads and a heap, for as long as the process lives.
pub(crate) const MAX_LIBRARIES: usize = 32;

/// Largest file: the largest collections of plugins have some 50 MB.
const MAX_BYTES: u64 = 1 << 30;

/// What every host function's name begins with.
const HOST_PREFIX: &str = "envoyGo";

/// In libraries whose SDK passes the headers of a reply as Go's strings: a function of that SDK.
const PASSES_STRINGS: &[u8] = b"goHeadersToCHeaders";

/// A shared object that was loaded.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) path: PathBuf,
    pub(crate) sdk: Sdk,
    /// The headers of a reply come as Go's strings, not as C's.
    pub(crate) passes_strings: bool,
    /// A hash of the file as it was.
    pub(crate) digest: String,
    file: FileIdentity,
    handle: Handle,
}

/// The loader's.
#[derive(Debug)]
struct Handle(*mut c_void);

// SAFETY: it is never closed, and the loader's functions may be called from any thread.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// Tells files apart, and one that was replaced from what it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileIdentity {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

/// Every library of this process.
static LOADED: Mutex<Vec<&'static Object>> = Mutex::new(Vec::new());

/// The library at this path, loaded if it is not yet. Never on a worker.
///
/// # Errors
/// Why it cannot be loaded, or cannot be what this host runs.
pub(crate) fn load(path: &Path) -> Result<&'static Object, String> {
    let shown = path.display();
    // A bare name would be looked for where the system's libraries are.
    let path = &std::path::absolute(path).map_err(|error| format!("cannot find {shown}: {error}"))?;
    let file = FileIdentity::of(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
    // A panic with the lock held leaves a whole list behind.
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = loaded.iter().find(|object| object.path == *path) {
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
    if loaded.is_empty() {
        environment::put_in_force();
    }
    let began = Instant::now();
    let handle = open(path).map_err(|reason| format!("cannot load {shown}: {reason}"))?;
    let object: &'static Object = Box::leak(Box::new(Object {
        path: path.to_owned(),
        passes_strings: examined.passes_strings,
        digest: examined.digest,
        file,
        sdk: examined.sdk,
        handle,
    }));
    loaded.push(object);
    info!(
        Filter,
        "loaded the Go library {shown} in {:.1?}: SDK {} ({:?}), {}; {} of at most {MAX_LIBRARIES} in this process",
        began.elapsed(),
        object.sdk.version.as_deref().unwrap_or("of unknown version"),
        object.sdk.epoch,
        examined.go.as_deref().unwrap_or("Go of unknown version"),
        loaded.len(),
    );
    Ok(object)
}

impl Object {
    /// One that has nothing.
    #[cfg(test)]
    pub(crate) fn fake() -> &'static Object {
        Box::leak(Box::new(Object {
            path: PathBuf::from("/fake.so"),
            sdk: Sdk { epoch: crate::epoch::Epoch::E6, version: None },
            passes_strings: false,
            digest: String::new(),
            file: FileIdentity { device: 0, inode: 0, size: 0, changed: (0, 0) },
            handle: Handle(std::ptr::null_mut()),
        }))
    }

    /// Whether that text stands anywhere in it. Of a file that was replaced since it was loaded nobody knows.
    pub(crate) fn mentions(&self, text: &str) -> bool {
        let is_same = FileIdentity::of(&self.path).is_ok_and(|file| file == self.file);
        !is_same || plugin_names::stands_in(&self.path, text)
    }

    /// Looks for functions.
    pub(crate) fn finder(&self) -> Finder<'_> {
        Finder { object: self, missing: Vec::new() }
    }
}

/// Looks for functions of an object, and notes those that it lacks.
pub(crate) struct Finder<'o> {
    object: &'o Object,
    missing: Vec<&'static CStr>,
}

/// The address of a function that was looked for; null for one that is missing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found(*mut c_void);

impl Finder<'_> {
    /// One that must be there.
    pub(crate) fn find(&mut self, name: &'static CStr) -> Found {
        let found = self.find_any(name);
        if found.0.is_null() {
            self.missing.push(name);
        }
        found
    }

    /// One that may be missing.
    pub(crate) fn find_any(&self, name: &'static CStr) -> Found {
        // SAFETY: the handle is open and stays so.
        Found(unsafe { libc::dlsym(self.object.handle.0, name.as_ptr()) })
    }

    /// # Errors
    /// Some are missing.
    pub(crate) fn finish(self) -> Result<(), String> {
        if self.missing.is_empty() {
            return Ok(());
        }
        let names: Vec<_> = self.missing.iter().map(|name| name.to_string_lossy()).collect();
        Err(format!("it lacks functions of Envoy's Go SDK: {}", names.join(", ")))
    }
}

impl Found {
    /// # Safety
    /// It was found, and is that of a function of type `F`.
    pub(crate) unsafe fn function<F: Copy>(self) -> F {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: as promised; a function pointer is as large as an address.
        unsafe { std::mem::transmute_copy(&self.0) }
    }

    /// The same of one that may be missing.
    ///
    /// # Safety
    /// If it was found, it is that of a function of type `F`.
    pub(crate) unsafe fn any<F: Copy>(self) -> Option<F> {
        // SAFETY: as promised.
        (!self.0.is_null()).then(|| unsafe { self.function() })
    }
}

/// Libraries of one kind that were asked for. Like their objects, they stay.
pub(crate) struct Known<L: 'static>(Mutex<Vec<(&'static Object, &'static L)>>);

impl<L> Known<L> {
    pub(crate) const fn new() -> Known<L> {
        Known(Mutex::new(Vec::new()))
    }

    /// The one of this object, made if it is not known yet.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn of<E>(&self, object: &'static Object, make: impl FnOnce() -> Result<L, E>) -> Result<&'static L, E> {
        let mut known = self.lock();
        if let Some((_, library)) = known.iter().find(|(of, _)| std::ptr::eq(*of, object)) {
            return Ok(library);
        }
        let library: &'static L = Box::leak(Box::new(make()?));
        known.push((object, library));
        Ok(library)
    }

    pub(crate) fn find(&self, wanted: impl Fn(&L) -> bool) -> Option<&'static L> {
        self.lock().iter().find(|(_, library)| wanted(library)).map(|(_, library)| *library)
    }

    /// A panic with the lock held leaves a whole list behind.
    fn lock(&self) -> MutexGuard<'_, Vec<(&'static Object, &'static L)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A table of a library's functions: each with its type and the name that the SDK gives it. `may_lack` stands before the name of one
/// that need not be there, whose type is an option.
macro_rules! functions {
    ($(#[$about:meta])* $sight:vis struct $table:ident {
        $($(#[$says:meta])* $field_sight:vis $field:ident: $kind:ty = $($may_lack:ident)? $name:literal,)*
    }) => {
        $(#[$about])*
        $sight struct $table {
            $($(#[$says])* $field_sight $field: $kind,)*
        }

        impl $table {
            /// Looks for them.
            ///
            /// # Errors
            /// The object lacks some.
            $sight fn of(object: &$crate::object::Object) -> Result<$table, String> {
                let mut finder = object.finder();
                $(let $field = $crate::object::functions!(@find finder $($may_lack)? $name);)*
                finder.finish()?;
                // SAFETY: all were found but those that may be missing, and these are the types that the SDK declares for
                // functions of these names.
                Ok(unsafe { $table { $($field: $crate::object::functions!(@found $field $($may_lack)?),)* } })
            }
        }
    };
    (@find $finder:ident $name:literal) => { $finder.find($name) };
    (@find $finder:ident may_lack $name:literal) => { $finder.find_any($name) };
    (@found $found:ident) => { $found.function() };
    (@found $found:ident may_lack) => { $found.any() };
}

pub(crate) use functions;

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
        std::fs::metadata(path).map(|about| FileIdentity::from(&about))
    }
}

impl From<&Metadata> for FileIdentity {
    fn from(about: &Metadata) -> Self {
        let changed = (about.mtime(), about.mtime_nsec());
        FileIdentity { device: about.dev(), inode: about.ino(), size: about.size(), changed }
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

fn open(path: &Path) -> Result<Handle, String> {
    let name = CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| "its path has a zero in it".to_owned())?;
    // The table keeps the linker from dropping what only libraries call.
    std::hint::black_box(&exports::TABLE);
    // SAFETY: the name is a string of C. Loading runs the library's initialisers, which is what the user asks for.
    let handle = scheduler::with_slack(|| unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) });
    if handle.is_null() { Err(last_error()) } else { Ok(Handle(handle)) }
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
