//! Compiled modules on the disk, so that code is compiled once per machine.
//!
//! What lies there runs as it is, so only a folder of our own is used: this user's, closed to everybody else. A file is
//! named after the code and after everything that the compiler's output depends on, and ends with a checksum of itself. One
//! that is not as it was written is compiled again. Without such a folder everything is compiled at every start.
//!
//! A file is never changed, only replaced, so it is mapped: what a machine never runs is never read into memory, and
//! processes that run the same modules share what they do run.

use std::fs::{self, File, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use postrider_filter_plugin::own_folder;
use postrider_telemetry::log::{Component, Level};
use sha2::{Digest, Sha256};
use wasmtime::{Engine, Module};
use zlib_rs::crc32::crc32;

/// Most files kept; the one that was not used for longest goes first.
const MAX_FILES: usize = 64;

/// Largest file read: a module of several megabytes becomes twice that.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// Names the folder; empty turns the cache off.
const FOLDER_VARIABLE: &str = "POSTRIDER_WASM_CACHE";

/// At the end of a file: the CRC-32 of what stands before it, the lowest byte first. It tells of damage; who may write here
/// is a matter of the folder.
const CHECKSUM_BYTES: usize = 4;

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

    pub(crate) fn at(folder: Option<PathBuf>) -> Cache {
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

    /// What that engine compiled before, if it is here. `digest` is the SHA-256 of the code.
    pub(crate) fn kept(&self, engine: &Engine, digest: &[u8; 32]) -> Option<Module> {
        let path = self.path(engine, digest)?;
        match open(&path) {
            Ok(Some(file)) => match load(engine, file) {
                Ok(module) => return Some(module),
                Err(error) => tell(Level::Info, format_args!("{}: {error}", path.display())),
            },
            Ok(None) => {}
            Err(error) => tell(Level::Warning, format_args!("{}: {error}", path.display())),
        }
        None
    }

    /// Compiles a module, and keeps it.
    ///
    /// # Errors
    /// What the compiler says.
    pub(crate) fn compile(&self, engine: &Engine, code: &[u8], digest: &[u8; 32]) -> Result<Module, String> {
        let module = Module::from_binary(engine, code).map_err(|error| format!("{error:#}"))?;
        if self.0.is_some() {
            match module.serialize() {
                Ok(artifact) => self.keep(engine, &artifact, digest),
                Err(error) => tell(Level::Warning, format_args!("compiled WebAssembly is not kept: {error:#}")),
            }
        }
        Ok(module)
    }

    /// Keeps what the compiler made for that engine elsewhere; the module.
    ///
    /// # Errors
    /// The engine does not take it.
    pub(crate) fn adopt(&self, engine: &Engine, artifact: Vec<u8>, digest: &[u8; 32]) -> Result<Module, String> {
        self.keep(engine, &artifact, digest);
        self.kept(engine, digest).map_or_else(
            // SAFETY: the caller has it from the compiler.
            || unsafe { Module::deserialize(engine, artifact) }.map_err(|error| format!("{error:#}")),
            Ok,
        )
    }

    /// What that engine compiled is not needed any more.
    pub(crate) fn forget(&self, engine: &Engine, digest: &[u8; 32]) {
        // It may never have been kept.
        let _ = self.path(engine, digest).map(fs::remove_file);
    }

    fn keep(&self, engine: &Engine, artifact: &[u8], digest: &[u8; 32]) {
        let (Some(folder), Some(path)) = (&self.0, self.path(engine, digest)) else { return };
        if let Err(error) = write(folder, &path, artifact) {
            tell(Level::Warning, format_args!("{}: {error}", path.display()));
        }
    }

    fn path(&self, engine: &Engine, digest: &[u8; 32]) -> Option<PathBuf> {
        Some(self.0.as_ref()?.join(name(engine, digest)))
    }
}

/// What was compiled before, from a file that [`open`] found good.
fn load(engine: &Engine, file: File) -> Result<Module, String> {
    let copy = file.try_clone();
    // SAFETY: the file is what `write` wrote: it lies in a folder that nobody but this user can open, belongs to this user
    // and has its checksum. Nobody changes it any more: `write` puts another one in its place, and `tidy` takes it away.
    let mapped = unsafe { Module::deserialize_open_file(engine, file) };
    mapped.or_else(|error| {
        // Perhaps a file system that lets nothing run from it: a copy in memory may.
        let mut copy = copy.map_err(|_| format!("{error:#}"))?;
        let mut artifact = Vec::new();
        copy.rewind().and_then(|()| copy.read_to_end(&mut artifact)).map_err(|error| error.to_string())?;
        // SAFETY: as above.
        unsafe { Module::deserialize(engine, artifact) }.map_err(|error| format!("{error:#}"))
    })
}

fn name(engine: &Engine, digest: &[u8; 32]) -> String {
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
    format!("{}-{}.cwasm", hex(digest), hex(settings.0.finalize().get(..8).unwrap_or_default()))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A file as it was written; `None` when there is none.
fn open(path: &Path) -> io::Result<Option<File>> {
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
    if !is_whole(&mut file, about.len())? {
        return Err(io::Error::other("the file is damaged; it is replaced"));
    }
    // For what was not used for longest: not being able to say so is no harm.
    let _ = file.set_modified(std::time::SystemTime::now());
    Ok(Some(file))
}

/// Whether a file of so many bytes ends with the checksum of what stands before it.
fn is_whole(file: &mut File, length: u64) -> io::Result<bool> {
    /// Fits the processor's cache.
    const PIECE: usize = 256 << 10;
    let Some(content) = length.checked_sub(CHECKSUM_BYTES as u64) else { return Ok(false) };
    let (mut left, mut sum, mut piece) = (content, 0, vec![0; PIECE]);
    while left > 0 {
        let most = PIECE.min(usize::try_from(left).unwrap_or(PIECE));
        let Some(place) = piece.get_mut(..most) else { return Ok(false) };
        file.read_exact(place)?;
        sum = crc32(sum, place);
        left -= most as u64;
    }
    let mut noted = [0; CHECKSUM_BYTES];
    file.read_exact(&mut noted)?;
    Ok(u32::from_le_bytes(noted) == sum)
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
        file.write_all(&crc32(0, artifact).to_le_bytes())?;
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
pub(crate) mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::engine::engine;

    pub(crate) struct Folder(pub(crate) PathBuf);

    impl Folder {
        pub(crate) fn new(name: &str) -> Folder {
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

    fn module(cache: &Cache, code: &[u8]) -> Result<Module, String> {
        let (engine, digest) = (engine()?, Sha256::digest(code).into());
        cache.kept(engine, &digest).map_or_else(|| cache.compile(engine, code, &digest), Ok)
    }

    const CODE: &str = r#"(module (func (export "f") (result i32) i32.const 7))"#;

    #[test]
    fn what_was_compiled_is_kept_and_used_again() {
        let folder = Folder::new("kept");
        let cache = Cache::at(Some(folder.0.clone()));
        let code = wat::parse_str(CODE).unwrap();
        module(&cache, &code).unwrap();
        let files = folder.files();
        assert_eq!(files.len(), 1, "{files:?}");
        assert_eq!(fs::metadata(&files[0]).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(&folder.0).unwrap().mode() & 0o777, 0o700);
        assert!(open(&files[0]).unwrap().is_some());
        assert!(module(&cache, &code).unwrap().get_export("f").is_some());
        assert_eq!(folder.files(), files);
    }

    #[test]
    fn a_damaged_file_is_compiled_again() {
        let folder = Folder::new("damaged");
        let cache = Cache::at(Some(folder.0.clone()));
        let code = wat::parse_str(CODE).unwrap();
        module(&cache, &code).unwrap();
        let file = folder.files().remove(0);
        let mut bytes = fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&file, &bytes).unwrap();
        assert!(open(&file).unwrap_err().to_string().contains("damaged"));
        assert!(module(&cache, &code).is_ok());
        assert!(open(&file).unwrap().is_some(), "it was replaced");
    }

    #[test]
    fn a_file_or_folder_that_others_may_change_is_not_used() {
        let folder = Folder::new("open");
        let cache = Cache::at(Some(folder.0.clone()));
        let code = wat::parse_str(CODE).unwrap();
        module(&cache, &code).unwrap();
        let file = folder.files().remove(0);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(open(&file).unwrap_err().to_string().contains("not one of ours"));
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
        module(&cache, &code).unwrap();
        assert_eq!(folder.files().len(), MAX_FILES);
    }
}
