//! Compiled modules on the disk, so that code is compiled once per machine.
//!
//! What lies there runs as it is, so only a folder of our own is used: this user's, closed to everybody else. A file is
//! named after the code and after everything that the compiler's output depends on, and ends with a digest of itself. One
//! that is not as it was written is compiled again. Without such a folder everything is compiled at every start.

use std::fs::{self, File, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use postrider_filter_plugin::own_folder;
use postrider_telemetry::log::{Component, Level};
use sha2::{Digest, Sha256};
use wasmtime::{Engine, Module};

/// Most files kept; the one that was not used for longest goes first.
const MAX_FILES: usize = 64;

/// Largest file read: a module of several megabytes becomes twice that.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// Names the folder; empty turns the cache off.
const FOLDER_VARIABLE: &str = "POSTRIDER_WASM_CACHE";

const DIGEST_BYTES: usize = 32;

/// The folder of this user, or `None`: then nothing is kept.
pub(crate) struct Cache(Option<PathBuf>);

impl Cache {
    /// Where the environment says: `POSTRIDER_WASM_CACHE`, `CACHE_DIRECTORY` (systemd's), or below `XDG_CACHE_HOME` or
    /// `HOME`.
    pub(crate) fn of_user() -> Cache {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        if std::env::var_os(FOLDER_VARIABLE).is_some_and(|value| value.is_empty()) {
            return Cache(None);
        }
        let below = |folder: PathBuf| folder.join("postrider/wasm");
        let folder = set(FOLDER_VARIABLE)
            .or_else(|| set("CACHE_DIRECTORY").map(|folder| folder.join("wasm")))
            .or_else(|| set("XDG_CACHE_HOME").map(below))
            .or_else(|| set("HOME").map(|home| below(home.join(".cache"))));
        Cache::at(folder)
    }

    fn at(folder: Option<PathBuf>) -> Cache {
        let Some(folder) = folder else { return Cache(None) };
        match own_folder(&folder) {
            Ok(()) => Cache(Some(folder)),
            Err(error) => {
                let folder = folder.display();
                tell(Level::Info, format_args!("compiled WebAssembly is not kept: {folder}: {error}"));
                Cache(None)
            }
        }
    }

    /// The module, compiled now or before.
    ///
    /// # Errors
    /// What the compiler says.
    pub(crate) fn module(&self, engine: &Engine, code: &[u8]) -> Result<Module, String> {
        let Some(folder) = &self.0 else { return compile(engine, code) };
        let file = folder.join(name(engine, code));
        match read(&file) {
            Ok(Some(artifact)) => {
                // SAFETY: the bytes are what `write` wrote: the file lies in a folder that nobody but this user can open,
                // belongs to this user, and its digest is that of its content.
                match unsafe { Module::deserialize(engine, artifact) } {
                    Ok(module) => return Ok(module),
                    Err(error) => tell(Level::Info, format_args!("{}: {error:#}", file.display())),
                }
            }
            Ok(None) => {}
            Err(error) => tell(Level::Warning, format_args!("{}: {error}", file.display())),
        }
        let module = compile(engine, code)?;
        let written = module.serialize().map_err(|error| format!("{error:#}"));
        let written = written.and_then(|artifact| write(folder, &file, &artifact).map_err(|error| error.to_string()));
        if let Err(error) = written {
            tell(Level::Warning, format_args!("{}: {error}", file.display()));
        }
        Ok(module)
    }
}

fn compile(engine: &Engine, code: &[u8]) -> Result<Module, String> {
    Module::from_binary(engine, code).map_err(|error| format!("{error:#}"))
}

fn name(engine: &Engine, code: &[u8]) -> String {
    struct Fold(Sha256);
    impl Hasher for Fold {
        fn write(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }
        fn finish(&self) -> u64 {
            0
        }
    }
    let mut settings = Fold(Sha256::new());
    engine.precompile_compatibility_hash().hash(&mut settings);
    format!("{}-{}.cwasm", hex(&Sha256::digest(code)), hex(settings.0.finalize().get(..8).unwrap_or_default()))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `None` when there is none.
fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    const NO_FOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    let mut file = match OpenOptions::new().read(true).custom_flags(NO_FOLLOW).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let about = file.metadata()?;
    let is_ours = about.is_file() && about.uid() == rustix::process::geteuid().as_raw() && about.mode() & 0o077 == 0;
    if !is_ours || about.len() > MAX_FILE_BYTES {
        return Err(io::Error::other("the file is not one of ours; it is replaced"));
    }
    let mut bytes = Vec::with_capacity(about.len() as usize);
    file.read_to_end(&mut bytes)?;
    let content = bytes.len().saturating_sub(DIGEST_BYTES);
    let digest = bytes.split_off(content);
    if Sha256::digest(&bytes).as_slice() != digest.as_slice() {
        return Err(io::Error::other("the file is damaged; it is replaced"));
    }
    // For what was not used for longest: not being able to say so is no harm.
    let _ = file.set_modified(std::time::SystemTime::now());
    Ok(Some(bytes))
}

fn write(folder: &Path, path: &Path, artifact: &[u8]) -> io::Result<()> {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    let unfinished = folder.join(format!("{}-{number}.tmp", std::process::id()));
    // One that a process of the same number left behind.
    let _ = fs::remove_file(&unfinished);
    let written = (|| {
        let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
        file.write_all(artifact)?;
        file.write_all(&Sha256::digest(artifact))?;
        fs::rename(&unfinished, path)
    })();
    if written.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    written?;
    tidy(folder)
}

fn tidy(folder: &Path) -> io::Result<()> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.path().extension().is_some_and(|extension| extension == "cwasm") {
            files.push((entry.metadata()?.modified()?, entry.path()));
        }
    }
    files.sort();
    let surplus = files.len().saturating_sub(MAX_FILES);
    for (_, path) in files.into_iter().take(surplus) {
        fs::remove_file(path)?;
    }
    Ok(())
}

fn tell(level: Level, message: std::fmt::Arguments<'_>) {
    postrider_telemetry::log::write(Component::Filter, level, message);
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::engine::engine;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("postrider-wasm-cache-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Folder(path)
        }

        fn files(&self) -> Vec<PathBuf> {
            fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path()).collect()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const CODE: &str = r#"(module (func (export "f") (result i32) i32.const 7))"#;

    #[test]
    fn what_was_compiled_is_kept_and_used_again() {
        let folder = Folder::new("kept");
        let cache = Cache::at(Some(folder.0.clone()));
        let (engine, code) = (engine().unwrap(), wat::parse_str(CODE).unwrap());
        cache.module(engine, &code).unwrap();
        let files = folder.files();
        assert_eq!(files.len(), 1, "{files:?}");
        assert_eq!(fs::metadata(&files[0]).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(&folder.0).unwrap().mode() & 0o777, 0o700);
        assert!(read(&files[0]).unwrap().is_some());
        assert!(cache.module(engine, &code).unwrap().get_export("f").is_some());
        assert_eq!(folder.files(), files);
    }

    #[test]
    fn a_damaged_file_is_compiled_again() {
        let folder = Folder::new("damaged");
        let cache = Cache::at(Some(folder.0.clone()));
        let (engine, code) = (engine().unwrap(), wat::parse_str(CODE).unwrap());
        cache.module(engine, &code).unwrap();
        let file = folder.files().remove(0);
        let mut bytes = fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&file, &bytes).unwrap();
        assert!(read(&file).unwrap_err().to_string().contains("damaged"));
        assert!(cache.module(engine, &code).is_ok());
        assert!(read(&file).unwrap().is_some(), "it was replaced");
    }

    #[test]
    fn a_file_or_folder_that_others_may_change_is_not_used() {
        let folder = Folder::new("open");
        let cache = Cache::at(Some(folder.0.clone()));
        let (engine, code) = (engine().unwrap(), wat::parse_str(CODE).unwrap());
        cache.module(engine, &code).unwrap();
        let file = folder.files().remove(0);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(read(&file).unwrap_err().to_string().contains("not one of ours"));
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(Cache::at(Some(folder.0.clone())).0.is_none());
    }

    #[test]
    fn the_oldest_files_go() {
        let folder = Folder::new("many");
        let cache = Cache::at(Some(folder.0.clone()));
        for number in 0..MAX_FILES + 3 {
            fs::write(folder.0.join(format!("{number}.cwasm")), b"").unwrap();
        }
        let code = wat::parse_str(CODE).unwrap();
        cache.module(engine().unwrap(), &code).unwrap();
        assert_eq!(folder.files().len(), MAX_FILES);
    }
}
