//! Code on the disk, by its SHA-256, so that it is fetched once per machine.
//!
//! Only a folder of our own is used: this user's, closed to everybody else. A file appears whole under its name or not at
//! all, and what it says is checked whenever it is read: one that is not as it was written is fetched again. An image's
//! file of another kind remembers which code its name stands for. Without such a folder nothing is kept.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use postrider_filter_plugin::own_folder;
use postrider_telemetry::{info, warning};

use crate::client::MAX_CODE_BYTES;
use crate::sum;

/// Most files kept; the one that was not used for longest goes first.
const MAX_FILES: usize = 256;

/// Names the folder; empty turns the cache off.
const FOLDER_VARIABLE: &str = "POSTRIDER_CODE_CACHE";

/// Hexadecimal digits of a SHA-256.
const SUM_DIGITS: usize = 64;

/// Begins the file of an image's name.
const NAMED: &str = "image-";

/// The folder, or none.
#[derive(Debug, Default)]
pub struct Cache(Option<PathBuf>);

impl Cache {
    /// Where the environment says: `POSTRIDER_CODE_CACHE`, `CACHE_DIRECTORY` (systemd's), or below `XDG_CACHE_HOME` or
    /// `HOME`.
    pub fn of_user() -> Cache {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        if std::env::var_os(FOLDER_VARIABLE).is_some_and(|value| value.is_empty()) {
            return Cache(None);
        }
        let below = |folder: PathBuf| folder.join("postrider/code");
        let folder = set(FOLDER_VARIABLE)
            .or_else(|| set("CACHE_DIRECTORY").map(|folder| folder.join("code")))
            .or_else(|| set("XDG_CACHE_HOME").map(below))
            .or_else(|| set("HOME").map(|home| below(home.join(".cache"))));
        folder.map_or(Cache(None), |folder| Cache::at(&folder))
    }

    /// In this folder, which is made; none when it is not ours alone.
    pub fn at(folder: &Path) -> Cache {
        match own_folder(folder) {
            Ok(()) => Cache(Some(folder.to_owned())),
            Err(error) => {
                info!(Config, "fetched code is not kept: {}: {error}", folder.display());
                Cache(None)
            }
        }
    }

    /// The content with that sum.
    pub(crate) fn read(&self, sum: &str) -> Option<Vec<u8>> {
        let path = self.0.as_ref()?.join(sum);
        let bytes = match contents(&path, MAX_CODE_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                warning!(Config, "{}: {error}", path.display());
                return None;
            }
        };
        if crate::sum(&bytes) != sum {
            warning!(Config, "{}: it is not as it was written; it is fetched again", path.display());
            // One that stays is written over.
            let _ = fs::remove_file(&path);
            return None;
        }
        was_used(&path);
        Some(bytes)
    }

    /// Keeps content under its sum.
    pub(crate) fn write(&self, sum: &str, bytes: &[u8]) {
        let Some(folder) = &self.0 else { return };
        if let Err(error) = whole(folder, sum, bytes) {
            warning!(Config, "fetched code is not kept: {}: {error}", folder.display());
        }
        tidy(folder);
    }

    /// What an image's name stood for when it was pulled: by its manifest's sum, if `manifest` says which that must be.
    pub(crate) fn read_named(&self, reference: &str, manifest: Option<&str>) -> Option<Vec<u8>> {
        let path = self.0.as_ref()?.join(name_of(reference));
        let text = String::from_utf8(contents(&path, 1024).ok()?).ok()?;
        let (known, code) = text.trim_end().split_once(' ')?;
        let code = (manifest.is_none_or(|wanted| wanted == known)).then(|| self.read(code)).flatten()?;
        was_used(&path);
        Some(code)
    }

    /// Remembers what an image's name stands for.
    pub(crate) fn name(&self, reference: &str, manifest: &str, code: &str) {
        let Some(folder) = &self.0 else { return };
        if let Err(error) = whole(folder, &name_of(reference), format!("{manifest} {code}\n").as_bytes()) {
            warning!(Config, "fetched code is not kept: {}: {error}", folder.display());
        }
    }
}

fn name_of(reference: &str) -> String {
    format!("{NAMED}{}", sum(reference.as_bytes()))
}

/// One that keeps its old time only goes sooner.
fn was_used(path: &Path) {
    let _ = File::open(path).and_then(|file| file.set_modified(SystemTime::now()));
}

fn contents(path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > limit {
        return Err(io::Error::other("it is too large"));
    }
    Ok(bytes)
}

/// Under another name first, so that nobody sees half of it.
fn whole(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let own = format!(".{name}.{}.{}", process::id(), LAST.fetch_add(1, Ordering::Relaxed));
    let own = folder.join(own);
    let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&own).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&own, folder.join(name))
    });
    if written.is_err() {
        // What cannot be written can often be removed; the error that counts is the first.
        let _ = fs::remove_file(&own);
    }
    written
}

/// Whether a file's name is one that this cache gives: also of one that was never finished.
fn is_ours(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let whole = name.strip_prefix('.').and_then(|rest| rest.split('.').next()).unwrap_or(name);
    let sum = whole.strip_prefix(NAMED).unwrap_or(whole);
    sum.len() == SUM_DIGITS && sum.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Removes what was not used for longest, when there is too much. What somebody else put here stays.
fn tidy(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let used = |entry: &fs::DirEntry| entry.metadata().and_then(|about| about.modified()).ok();
    let mut files: Vec<(SystemTime, PathBuf)> = entries
        .flatten()
        .filter(|entry| is_ours(&entry.file_name()))
        .filter_map(|entry| Some((used(&entry)?, entry.path())))
        .collect();
    files.sort();
    let surplus = files.len().saturating_sub(MAX_FILES);
    for (_, path) in files.into_iter().take(surplus) {
        // Another process of ours may have been faster.
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A folder that is gone at the end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("postrider-fetch-{name}-{}", process::id()));
            let _ = fs::remove_dir_all(&path);
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_is_kept_is_checked_when_it_is_read() {
        let scratch = Scratch::new("kept");
        let cache = Cache::at(&scratch.0);
        let sum = sum(b"code");
        assert_eq!(cache.read(&sum), None);
        cache.write(&sum, b"code");
        assert_eq!(cache.read(&sum).as_deref(), Some(&b"code"[..]));
        assert_eq!(fs::metadata(&scratch.0).unwrap().permissions().mode() & 0o777, 0o700);
        fs::write(scratch.0.join(&sum), "evil").unwrap();
        assert_eq!(cache.read(&sum), None);
        assert!(!scratch.0.join(&sum).exists(), "what is wrong goes");
    }

    #[test]
    fn a_name_stands_for_code_while_its_manifest_is_the_wanted_one() {
        let scratch = Scratch::new("named");
        let cache = Cache::at(&scratch.0);
        let sum = sum(b"code");
        cache.write(&sum, b"code");
        cache.name("r.io/a:1", "abc", &sum);
        assert_eq!(cache.read_named("r.io/a:1", None).as_deref(), Some(&b"code"[..]));
        assert_eq!(cache.read_named("r.io/a:1", Some("abc")).as_deref(), Some(&b"code"[..]));
        assert_eq!(cache.read_named("r.io/a:1", Some("def")), None);
        assert_eq!(cache.read_named("r.io/a:2", None), None);
    }

    #[test]
    fn a_folder_that_others_may_open_is_not_used() {
        let scratch = Scratch::new("open");
        fs::create_dir(&scratch.0).unwrap();
        fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(Cache::at(&scratch.0).0.is_none());
        assert!(Cache::at(Path::new("/dev/null/x")).0.is_none());
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let scratch = Scratch::new("many");
        let cache = Cache::at(&scratch.0);
        let file = |n: u64| {
            let path = scratch.0.join(format!("{n:064}"));
            let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(n);
            File::create(&path).unwrap().set_modified(at).unwrap();
            path
        };
        let files: Vec<PathBuf> = (1..=MAX_FILES as u64).map(file).collect();
        cache.write(&sum(b"x"), b"x");
        assert!(!files[0].exists() && files[1].exists());
        assert!(cache.read(&sum(b"x")).is_some());
    }

    #[test]
    fn files_of_somebody_else_stay_although_there_are_many() {
        let scratch = Scratch::new("theirs");
        let cache = Cache::at(&scratch.0);
        let theirs: Vec<PathBuf> = (0..MAX_FILES + 1).map(|n| scratch.0.join(format!("notes-{n}.txt"))).collect();
        for path in &theirs {
            File::create(path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        }
        let unfinished = scratch.0.join(format!(".image-{}.1.1", sum(b"y")));
        fs::write(&unfinished, "").unwrap();
        cache.write(&sum(b"x"), b"x");
        assert!(theirs.iter().all(|path| path.exists()));
        assert!(is_ours(unfinished.file_name().unwrap()) && is_ours(OsStr::new(&sum(b"x"))));
    }

    #[test]
    fn a_name_that_is_used_stays_as_long_as_its_code() {
        let scratch = Scratch::new("used");
        let cache = Cache::at(&scratch.0);
        let code = sum(b"code");
        cache.write(&code, b"code");
        cache.name("r.io/a:1", "abc", &code);
        let name = scratch.0.join(name_of("r.io/a:1"));
        File::open(&name).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert!(cache.read_named("r.io/a:1", None).is_some());
        assert!(fs::metadata(&name).unwrap().modified().unwrap() > SystemTime::UNIX_EPOCH);
    }
}
