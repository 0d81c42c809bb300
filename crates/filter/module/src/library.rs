//! A module in the process: found, checked, loaded once, initialised once.

use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr, c_void};
use std::fs::DirBuilder;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::{env, fs};

use postrider_telemetry::log::{Component, Level};

use crate::elf::{self, Contents};
use crate::entry::{INIT, Init};

/// Where modules are looked for by name; the working directory without it.
const SEARCH_PATH: &str = "ENVOY_DYNAMIC_MODULES_SEARCH_PATH";

/// How a module is loaded.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Options {
    /// It stays in the process when nobody uses it any more.
    pub(crate) stays: bool,
    /// What is loaded later sees its symbols.
    pub(crate) global: bool,
}

/// A loaded module. Dropping the last one of a module unloads it, unless it is to stay.
#[derive(Debug)]
pub(crate) struct Library {
    handle: *mut c_void,
    /// What was loaded, for people.
    pub(crate) source: String,
    /// Of the file as it was when it was loaded.
    pub(crate) contents: Arc<Contents>,
}

// SAFETY: the loader's handles belong to the process, not to a thread.
unsafe impl Send for Library {}
// SAFETY: as above; looking a symbol up is safe from any thread.
unsafe impl Sync for Library {}

impl Library {
    /// Loads `lib<name>.so`: from the folder of the search path, else from wherever the system's loader finds it.
    ///
    /// # Errors
    /// Why it cannot be used, in a sentence.
    pub(crate) fn named(name: &str, options: Options) -> Result<Library, String> {
        if name.is_empty() || name.contains('/') {
            return Err(format!("`{name}` is no name of a module: it stands for a file `lib<name>.so`"));
        }
        let file = format!("lib{name}.so");
        let folder = env::var_os(SEARCH_PATH).map_or_else(|| PathBuf::from("."), PathBuf::from);
        let path = folder.join(&file);
        if path.is_file() {
            return Library::at(&path, options);
        }
        // Without a slash, the loader searches by its own rules.
        // Which file that is, it does not say.
        let elsewhere = Library::open(OsStr::new(&file), &file, Contents::default(), options);
        elsewhere.map_err(|error| format!("there is no {}, and {error}", path.display()))
    }

    /// Loads a file.
    ///
    /// # Errors
    /// As for [`Library::named`].
    pub(crate) fn at(path: &Path, options: Options) -> Result<Library, String> {
        let path = path.canonicalize().map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let source = path.display().to_string();
        let content = fs::read(&path).map_err(|error| format!("cannot read {source}: {error}"))?;
        let contents = elf::check(&content).map_err(|error| format!("{source}: {error}"))?;
        Library::open(path.as_os_str(), &source, contents, options)
    }

    /// Loads a file's content from a copy of its own, so that a file with other content is another module although it has
    /// the same name. Answers what tells one content from another, too.
    ///
    /// # Errors
    /// As for [`Library::named`].
    pub(crate) fn copied(path: &Path, content: &[u8], options: Options) -> Result<(Library, String), String> {
        let source = path.display().to_string();
        let contents = elf::check(content).map_err(|error| format!("{source}: {error}"))?;
        let digest = contents.digest.clone();
        let name = path.file_name().unwrap_or(OsStr::new("module.so"));
        let folder = env::temp_dir().join(format!("postrider-module-{}-{digest}", std::process::id()));
        let copy = folder.join(name);
        let failed = |error: std::io::Error| format!("cannot copy {source} to {}: {error}", copy.display());
        // Two configurations may have the same module: the folder is one thread's at a time.
        static COPYING: Mutex<()> = Mutex::new(());
        let _copying = COPYING.lock().unwrap_or_else(PoisonError::into_inner);
        DirBuilder::new().mode(0o700).create(&folder).map_err(failed)?;
        let opened = fs::write(&copy, content).map_err(failed).and_then(|()| {
            // The loader knows the one that it has by this name, whether or not the file is still there.
            Library::open(copy.as_os_str(), &source, contents, options)
        });
        // What is loaded stays without its file.
        let _ = fs::remove_dir_all(&folder);
        Ok((opened?, digest))
    }

    fn open(file: &OsStr, source: &str, contents: Contents, options: Options) -> Result<Library, String> {
        // Two configurations may be read at once: the second one must not see a module before it was initialised. By the
        // loader's handle: a file may be another one by now than the one that was loaded.
        static LOADING: Mutex<Option<HashMap<usize, Arc<Contents>>>> = Mutex::new(None);
        let mut loading = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = loading.get_or_insert_default();
        let name = CString::new(file.as_bytes()).map_err(|_| format!("{source}: no name of a file"))?;
        let mut flags = libc::RTLD_LAZY | if options.global { libc::RTLD_GLOBAL } else { libc::RTLD_LOCAL };
        if options.stays {
            flags |= libc::RTLD_NODELETE;
        }
        // SAFETY: a text that ends; it runs nothing of the module.
        let known = unsafe { libc::dlopen(name.as_ptr(), flags | libc::RTLD_NOLOAD) };
        if !known.is_null() {
            let contents = loaded.get(&known.addr()).cloned().unwrap_or_default();
            let library = Library { handle: known, source: source.to_owned(), contents };
            // One that is to stay is there although it was refused.
            library.find_wanted()?;
            return Ok(library);
        }
        let handle = match contents.runs_at_once && !contents.wanted.is_empty() {
            true => open_whole(&name, flags, source, &contents)?,
            // SAFETY: a text that ends. That the module's constructors do no harm is for whoever configured it to know.
            false => unsafe { libc::dlopen(name.as_ptr(), flags) },
        };
        if handle.is_null() {
            return Err(last_error());
        }
        let contents = Arc::new(contents);
        loaded.insert(handle.addr(), contents.clone());
        let library = Library { handle, source: source.to_owned(), contents };
        library.find_wanted()?;
        library.initialise()?;
        Ok(library)
    }

    /// Finds everything that the module wants where the loader would: in the process, in the module and in its libraries.
    /// The loader does so at the first call of each function, and ends the process where there is none.
    fn find_wanted(&self) -> Result<(), String> {
        // SAFETY: texts that end; the handle is open as long as `self` is.
        let is_found = |name: &CStr| unsafe {
            let everywhere = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
            !everywhere.is_null() || !libc::dlsym(self.handle, name.as_ptr()).is_null()
        };
        let missing = self.contents.wanted.iter().filter(|name| !is_found(name));
        let missing: Vec<_> = missing.map(|name| name.to_string_lossy()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let source = &self.source;
        Err(format!("{source}: the module needs functions that none of its libraries has: {}", missing.join(", ")))
    }

    fn initialise(&self) -> Result<(), String> {
        let source = &self.source;
        let Some(init) = self.find(INIT) else {
            return Err(format!("{source} is no module: it has no {}", INIT.to_string_lossy()));
        };
        // SAFETY: the interface says what a function of this name takes and answers.
        let init = unsafe { std::mem::transmute::<*mut c_void, Init>(init) };
        // SAFETY: called once, before anything else of the module.
        let version = unsafe { init() };
        if version.is_null() {
            return Err(format!("{source} refuses to be initialised"));
        }
        // SAFETY: the interface says that it is a text that ends.
        let version = unsafe { CStr::from_ptr(version) }.to_string_lossy();
        match Version::of(&version) {
            Version::Known => Ok(()),
            Version::Other => {
                let line = format_args!(
                    "the module {source} was built for version {version} of the interface; v0.1 and v0.2 are known here"
                );
                postrider_telemetry::log::write(Component::Filter, Level::Warning, line);
                Ok(())
            }
            Version::Hash => Err(format!(
                "{source} was built for Envoy 1.37 or earlier (its interface has no version but `{version}`): build it \
                 with the SDK of Envoy 1.38 or later"
            )),
        }
    }

    /// The address of something that the module exports.
    pub(crate) fn find(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the handle is open as long as `self` is.
        let found = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: whoever has pointers into the module keeps the library.
        unsafe { libc::dlclose(self.handle) };
    }
}

/// Opens a module whose constructors run inside of the loader, where a function that is missing would end the process before
/// [`Library::find_wanted`] could tell: the loader is to find all of them first. It names one only. What the module's libraries
/// lack, and may never call, keeps it from nothing.
fn open_whole(name: &CStr, flags: i32, source: &str, contents: &Contents) -> Result<*mut c_void, String> {
    let at_once = flags & !libc::RTLD_LAZY | libc::RTLD_NOW;
    // SAFETY: as where modules without constructors are opened.
    let handle = unsafe { libc::dlopen(name.as_ptr(), at_once) };
    if !handle.is_null() {
        return Ok(handle);
    }
    let error = last_error();
    let is_in_error = |wanted: &CString| error.split([' ', ',', ':']).any(|word| word.as_bytes() == wanted.as_bytes());
    match contents.wanted.iter().find(|wanted| is_in_error(wanted)) {
        Some(missing) => Err(format!(
            "{source}: the module needs a function, maybe others, that none of its libraries has: {}",
            missing.to_string_lossy()
        )),
        // SAFETY: as above.
        None => Ok(unsafe { libc::dlopen(name.as_ptr(), flags) }),
    }
}

/// What of `wanted` is nowhere, of a module that will not be loaded: nothing where one of its libraries is not in the process yet,
/// since that would run code of its.
pub(crate) fn nowhere(wanted: Vec<CString>, libraries: &[&str]) -> Vec<CString> {
    let known = |library: &&str| {
        let name = CString::new(*library).ok()?;
        // SAFETY: a text that ends; it loads nothing.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        (!handle.is_null()).then_some(handle)
    };
    let handles: Vec<_> = libraries.iter().filter_map(known).collect();
    let is_missing = |name: &CString| {
        // SAFETY: texts that end; the handles are open.
        let found = |handle| !unsafe { libc::dlsym(handle, name.as_ptr()) }.is_null();
        !found(libc::RTLD_DEFAULT) && !handles.iter().any(|handle| found(*handle))
    };
    let all_known = handles.len() == libraries.len();
    let missing = wanted.into_iter().filter(|name| all_known && is_missing(name)).collect();
    // SAFETY: each was opened once above, and nothing of it was kept.
    handles.iter().for_each(|handle| _ = unsafe { libc::dlclose(*handle) });
    missing
}

/// What a module says that it was built for.
#[derive(Debug, PartialEq, Eq)]
enum Version {
    Known,
    Other,
    /// Before there were versions: other functions under the same names.
    Hash,
}

impl Version {
    fn of(text: &str) -> Version {
        let known = ["v0.1.", "v0.2."].iter().any(|known| text.starts_with(known)) || matches!(text, "v0.1" | "v0.2");
        if known {
            return Version::Known;
        }
        if text.len() >= 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            Version::Hash
        } else {
            Version::Other
        }
    }
}

fn last_error() -> String {
    // SAFETY: it answers null or a text that ends, which is this thread's until the next call.
    let error = unsafe { libc::dlerror() };
    if error.is_null() {
        return "the system's loader refuses it".to_owned();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_say_whether_the_functions_are_known() {
        for (text, wanted) in [
            ("v0.1.0", Version::Known),
            ("v0.2.7", Version::Known),
            ("v0.20.0", Version::Other),
            ("v1.0.0", Version::Other),
            ("4dae397a7c9ff0e0a5ac66b7c8a8b9b2b2fbcd62b4ac29a50d87bd1f7a0a1bd7", Version::Hash),
        ] {
            assert_eq!(Version::of(text), wanted, "{text}");
        }
    }

    #[test]
    fn what_is_not_there_is_told_with_where_it_was_looked_for() {
        let error = Library::named("postrider_no_such", Options::default()).unwrap_err();
        assert!(error.starts_with("there is no ./libpostrider_no_such.so, and "), "{error}");
        let error = Library::named("../x", Options::default()).unwrap_err();
        assert!(error.contains("no name of a module"), "{error}");
        let error = Library::at(Path::new("/no/such.so"), Options::default()).unwrap_err();
        assert!(error.starts_with("cannot read /no/such.so"), "{error}");
    }
    /// Builds `lib<name>.so` in a folder of its own.
    fn built(folder: &Path, name: &str, source: &str, more: &[&str]) -> PathBuf {
        use std::io::Write;
        use std::process::{Command, Stdio};
        let path = folder.join(format!("lib{name}.so"));
        let mut compiler = Command::new("cc")
            .args(["-fPIC", "-shared", "-Wl,-z,lazy", "-x", "c", "-", "-x", "none", "-o"])
            .arg(&path)
            .args(more)
            .current_dir(folder)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        compiler.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
        assert!(compiler.wait().unwrap().success());
        path
    }

    #[test]
    fn a_module_whose_functions_are_nowhere_is_refused_before_one_of_them_ends_the_process() {
        let folder = env::temp_dir().join(format!("postrider-library-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let source =
            "int one_unknown(void); int another_unknown(void); double cos(double); int printf(const char *, ...);
            const char *envoy_dynamic_module_on_program_init(void) { return \"v0.1.0\"; }
            int f(double x) { return printf(\"%f\", cos(x)) + one_unknown() + another_unknown(); }";
        let alone = built(&folder, "alone", source, &["-lm"]);
        for stays in [false, true, true] {
            let error = Library::at(&alone, Options { stays, global: false }).unwrap_err();
            let told = "the module needs functions that none of its libraries has: another_unknown, one_unknown";
            assert_eq!(error, format!("{}: {told}", alone.canonicalize().unwrap().display()));
        }
        let unknown = "int one_unknown(void); int envoy_dynamic_module_callback_nope(void);
            int f(void) { return one_unknown() + envoy_dynamic_module_callback_nope(); }";
        let both = built(&folder, "both", unknown, &[]);
        let error = Library::at(&both, Options::default()).unwrap_err();
        let told = "the module needs functions that this proxy does not have: envoy_dynamic_module_callback_nope; \
            and others that none of its libraries has: one_unknown";
        assert_eq!(error, format!("{}: {told}", both.canonicalize().unwrap().display()));
        // It would end the process while it is loaded.
        let constructor = "__attribute__((constructor)) static void begin(void) { f(1.0); }";
        let early = built(&folder, "early", &format!("{source} {constructor}"), &["-lm"]);
        let error = Library::at(&early, Options::default()).unwrap_err();
        let told = "the module needs a function, maybe others, that none of its libraries has: ";
        let begin = format!("{}: {told}", early.canonicalize().unwrap().display());
        let named = error.strip_prefix(&begin).unwrap_or_else(|| panic!("{error}"));
        assert!(matches!(named, "another_unknown" | "one_unknown"), "{error}");
        // What a library of its own lacks and nobody calls is no reason.
        built(
            &folder,
            "lacking",
            "int nowhere(void); int one_unknown(void) { return 1; } int g(void) { return nowhere(); }
            int another_unknown(void) { return 2; }",
            &[],
        );
        let more = ["-L.", "-llacking", "-lm", "-Wl,-rpath,$ORIGIN", "-Wl,--allow-shlib-undefined"];
        let lucky = built(&folder, "lucky", &format!("{source} {constructor}"), &more);
        Library::at(&lucky, Options::default()).unwrap();
        // They may be in a library of its own.
        built(&folder, "brought", "int one_unknown(void) { return 1; } int another_unknown(void) { return 2; }", &[]);
        let whole = built(&folder, "whole", source, &["-L.", "-lbrought", "-lm", "-Wl,-rpath,$ORIGIN"]);
        let loaded = Library::at(&whole, Options::default());
        fs::remove_dir_all(&folder).unwrap();
        loaded.unwrap();
    }
}
