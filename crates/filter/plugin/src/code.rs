//! A plugin's code, from wherever its configuration says.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_filter_api::{ConfigError, WatchedFile, fingerprint};
use postrider_model::{Fields, ValueError};

use crate::library::{Found, library};
use crate::remote::{Pull, Remote};

/// Largest code: a megabyte of script is hundreds of times what plugins have.
pub const MAX_CODE_BYTES: u64 = 1 << 20;

/// Most files in a plugin's folder.
pub const MAX_FOLDER_FILES: usize = 256;

/// Most bytes in a plugin's folder.
pub const MAX_FOLDER_BYTES: u64 = 8 << 20;

/// Deepest nesting of a plugin's folder; ends a circle of symbolic links as well.
const MAX_FOLDER_DEPTH: usize = 8;

/// What a folder's code begins with: the first of them that is there.
const ENTRIES: [&str; 2] = ["plugin.lua", "init.lua"];

/// Where code may come from.
const PLACES: [&str; 5] = ["inline_string", "inline_bytes", "filename", "environment_variable", "directory"];

/// Code as it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Code {
    pub text: Vec<u8>,
    /// Where it came from, for people: a path, `inline`, `environment variable NAME`.
    pub source: String,
    /// What it was read from; of a folder every file, the entry first.
    pub files: Vec<WatchedFile>,
    /// The folder that the entry stands in, when a folder was named.
    pub directory: Option<PathBuf>,
    /// Tells two versions apart: 16 hexadecimal digits made from the content.
    pub digest: String,
    /// Where it was fetched from; `None` when it was on this machine.
    pub remote: Option<Remote>,
    /// Why there is no code as yet: it is elsewhere, and not here. There is nothing to run then; see [`crate::Missing`].
    pub missing: Option<String>,
}

impl Code {
    /// Code that stands in no file.
    pub fn inline(text: impl Into<Vec<u8>>, source: &str) -> Code {
        let text = text.into();
        let digest = Digest::default().and(&text).hex();
        Code {
            text,
            source: source.to_owned(),
            files: Vec::new(),
            directory: None,
            digest,
            remote: None,
            missing: None,
        }
    }

    /// Reads the code from wherever `source` says: one of the places of [`Code::read`], or `remote` (see [`Remote`]), of
    /// which at most `limit` bytes are taken.
    ///
    /// # Errors
    /// As [`Code::read`], and what is wrong with `remote` or kept it from being fetched.
    pub fn read_anywhere(mut source: Fields<'_>, limit: u64) -> Result<Code, ConfigError> {
        let remote = source.map("remote").map_err(|error| vec![error])?;
        let Some(remote) = remote else { return Code::read_up_to(source, limit) };
        if let Some(place) = PLACES.iter().find(|place| source.value(place).is_some()) {
            return Err(vec![source.error("remote", format!("`{place}` is set too; code has one place"))]);
        }
        source.finish()?;
        Code::fetched(remote, limit)
    }

    /// Reads an `AsyncDataSource` of Envoy: `local`, with one of the places of [`Code::read`], or `remote`.
    ///
    /// # Errors
    /// As [`Code::read_anywhere`].
    pub fn read_async(source: Fields<'_>, limit: u64) -> Result<Code, ConfigError> {
        Code::read_async_pulled(source, Pull::default(), limit)
    }

    /// The same, where something else says how an image is pulled.
    ///
    /// # Errors
    /// As [`Code::read_anywhere`].
    pub fn read_async_pulled(mut source: Fields<'_>, pull: Pull, limit: u64) -> Result<Code, ConfigError> {
        let local = source.map("local").map_err(|error| vec![error])?;
        let remote = source.map("remote").map_err(|error| vec![error])?;
        let read = match (local, remote) {
            (Some(mut local), None) => pass_watched_directory(&mut local).and_then(|()| Code::read_up_to(local, limit)),
            (None, Some(remote)) => Code::pulled(remote, pull, limit),
            (Some(_), Some(_)) => Err(vec![source.error("remote", "`local` is set too; code has one place")]),
            (None, None) => Err(vec![source.error("local", "there is neither `local` nor `remote`")]),
        };
        match (read, source.finish()) {
            (read, Ok(())) => read,
            (Ok(_), Err(errors)) => Err(errors),
            (Err(errors), Err(more)) => Err([errors, more].concat()),
        }
    }

    /// Machine code: `filename` alone, which is looked at but neither kept nor watched, since it is loaded by its path.
    ///
    /// # Errors
    /// No `filename`, one that cannot be read, and every other field.
    pub fn machine(mut source: Fields<'_>) -> Result<Code, ConfigError> {
        let path = source.string("filename").map_err(|error| vec![error])?.unwrap_or_default();
        let code = match fs::read(path) {
            _ if path.is_empty() => Err("machine code is loaded from a file: set `filename`".to_owned()),
            Ok(content) => Ok(Code { text: Vec::new(), ..Code::inline(content, path) }),
            Err(error) => Err(format!("cannot read {path}: {error}")),
        };
        let code = code.map_err(|message| vec![source.error("filename", message)]);
        match (code, source.finish()) {
            (Ok(code), Ok(())) => Ok(code),
            (code, rest) => Err(code.err().into_iter().chain(rest.err()).flatten().collect()),
        }
    }

    /// What tells later whether code that was fetched is still what its place has; `None` for other code.
    pub fn edition(&self) -> Option<Edition> {
        self.remote.clone().map(|remote| Edition { remote, digest: self.digest.clone() })
    }

    /// Reads the code that `remote` names, which somebody fetched before.
    ///
    /// # Errors
    /// What is wrong with `remote`, or kept the code from being fetched.
    pub fn fetched(remote: Fields<'_>, limit: u64) -> Result<Code, ConfigError> {
        Code::pulled(remote, Pull::default(), limit)
    }

    fn pulled(remote: Fields<'_>, pull: Pull, limit: u64) -> Result<Code, ConfigError> {
        let path = remote.path().to_owned();
        let refused = |message: String| vec![ValueError { path: path.clone(), message }];
        let remote = Remote::read_pulled(remote, pull)?;
        let name = remote.name();
        match library().find(&remote) {
            Found::Here(bytes) if bytes.is_empty() => Err(refused(format!("the code is empty ({name})"))),
            Found::Here(bytes) if bytes.len() as u64 > limit => {
                Err(refused(too_large(&name, bytes.len() as u64, limit)))
            }
            Found::Here(bytes) => Ok(Code { remote: Some(remote), ..Code::inline(bytes.to_vec(), &name) }),
            Found::Missing(reason) => {
                Ok(Code { remote: Some(remote), missing: Some(reason), ..Code::inline(Vec::new(), &name) })
            }
            Found::Failed(reason) => Err(refused(format!("{name} cannot be fetched: {reason}"))),
        }
    }

    /// Reads the code from the one place that `source` names: `inline_string`, `inline_bytes` (base64), `filename`,
    /// `environment_variable` or `directory`, a folder with a `plugin.lua` or `init.lua`. Relative paths are relative to
    /// the working directory.
    ///
    /// # Errors
    /// No place, several, one that cannot be read or holds nothing, and every other field.
    pub fn read(source: Fields<'_>) -> Result<Code, ConfigError> {
        Code::read_up_to(source, MAX_CODE_BYTES)
    }

    /// The same, of which at most `limit` bytes are taken.
    ///
    /// # Errors
    /// As for [`Code::read`].
    pub fn read_up_to(source: Fields<'_>, limit: u64) -> Result<Code, ConfigError> {
        Code::read_one(source, &PLACES, limit).and_then(|(place, code)| match code.text.is_empty() {
            true => Err(vec![ValueError { path: place, message: format!("the code is empty ({})", code.source) }]),
            false => Ok(code),
        })
    }

    /// Reads a `DataSource` of Envoy: a script, which may be empty there.
    ///
    /// # Errors
    /// As for [`Code::read`], but for code that is empty.
    pub fn read_data_source(mut source: Fields<'_>) -> Result<Code, ConfigError> {
        pass_watched_directory(&mut source)?;
        let [places @ .., _] = &PLACES;
        Code::read_one(source, places, MAX_CODE_BYTES).map(|(_, code)| code)
    }

    /// The code with the path of the place that it came from.
    fn read_one(mut source: Fields<'_>, places: &[&str], limit: u64) -> Result<(String, Code), ConfigError> {
        let mut errors = Vec::new();
        let mut named = None;
        for place in places {
            match source.string(place) {
                Ok(None) => {}
                Ok(Some(value)) => match named {
                    None => named = Some((place, value)),
                    Some((other, _)) => {
                        errors.push(source.error(place, format!("`{other}` is set too; code has one place")));
                    }
                },
                Err(error) => errors.push(error),
            }
        }
        let code = match named {
            None if errors.is_empty() => {
                let message = format!("there is no code: set one of {}", places.join(", "));
                errors.push(ValueError { path: source.path().to_owned(), message });
                None
            }
            None => None,
            Some((place, value)) => match read(place, value, limit) {
                Ok(code) => Some((source.path_of(place), code)),
                Err(message) => {
                    errors.push(source.error(place, message));
                    None
                }
            },
        };
        errors.extend(source.finish().err().into_iter().flatten());
        match code {
            Some(code) if errors.is_empty() => Ok(code),
            _ => Err(errors),
        }
    }
}

/// Files are watched by what is in them, so a folder whose links are swapped need not be.
fn pass_watched_directory(source: &mut Fields<'_>) -> Result<(), ConfigError> {
    let Some(mut folder) = source.map("watched_directory").map_err(|error| vec![error])? else { return Ok(()) };
    folder.string("path").map_err(|error| vec![error])?;
    folder.finish()
}

/// Code that was fetched, as it was then.
#[derive(Debug, Clone, PartialEq)]
pub struct Edition {
    remote: Remote,
    digest: String,
}

impl Edition {
    /// Whether what was fetched last is the same. Answers [`postrider_filter_api::Factory::is_current`] of a plugin.
    pub fn is_current(&self) -> bool {
        match library().find(&self.remote) {
            Found::Here(bytes) => Digest::default().and(&bytes).hex() == self.digest,
            Found::Missing(_) | Found::Failed(_) => true,
        }
    }
}

fn read(place: &str, value: &str, limit: u64) -> Result<Code, String> {
    let code = match place {
        "inline_bytes" => {
            Code::inline(STANDARD.decode(value).map_err(|error| format!("no base64: {error}"))?, "inline")
        }
        "filename" => {
            let path = Path::new(value);
            let text = file(path, limit)?;
            Code { files: vec![WatchedFile::new(path, Some(&text))], ..Code::inline(text, value) }
        }
        "environment_variable" => {
            let text = std::env::var(value).map_err(|error| format!("{value}: {error}"))?;
            Code::inline(text, &format!("environment variable {value}"))
        }
        "directory" => folder(Path::new(value))?,
        _ => Code::inline(value, "inline"),
    };
    if code.text.len() as u64 > limit {
        return Err(too_large(&code.source, code.text.len() as u64, limit));
    }
    Ok(code)
}

fn file(path: &Path, limit: u64) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| {
        if error.kind() == std::io::ErrorKind::NotFound {
            WatchedFile::note_absent(path);
        }
        format!("cannot read {}: {error}", path.display())
    };
    let about = fs::metadata(path).map_err(failed)?;
    if about.is_dir() {
        return Err(format!("{} is a folder: name it by `directory`", path.display()));
    }
    if about.len() > limit {
        return Err(too_large(&path.display().to_string(), about.len(), limit));
    }
    fs::read(path).map_err(failed)
}

fn folder(path: &Path) -> Result<Code, String> {
    if !path.is_dir() {
        return Err(format!("{} is no folder", path.display()));
    }
    let Some(entry) = ENTRIES.iter().map(|name| path.join(name)).find(|entry| entry.is_file()) else {
        return Err(format!("{} has neither {}", path.display(), ENTRIES.join(" nor ")));
    };
    let mut names = Vec::new();
    list(path, 0, &mut names)?;
    names.sort();
    let text = file(&entry, MAX_CODE_BYTES)?;
    let mut files = vec![WatchedFile::new(&entry, Some(&text))];
    let mut left = MAX_FOLDER_BYTES;
    let mut digest = Digest::default();
    for name in names {
        let content = file(&name, left).map_err(|error| format!("{error}; its folder may have {MAX_FOLDER_BYTES}"))?;
        left = left.saturating_sub(content.len() as u64);
        let within = name.strip_prefix(path).unwrap_or(&name);
        digest = digest.and(within.as_os_str().as_encoded_bytes()).and(&content);
        if name != entry {
            files.push(WatchedFile::new(&name, Some(&content)));
        }
    }
    let source = entry.display().to_string();
    Ok(Code {
        text,
        source,
        files,
        directory: Some(path.to_owned()),
        digest: digest.hex(),
        remote: None,
        missing: None,
    })
}

/// Every file below a folder but hidden ones, among which are those that Kubernetes swaps volumes by.
fn list(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), String> {
    if depth > MAX_FOLDER_DEPTH {
        return Err(format!("{} is nested deeper than {MAX_FOLDER_DEPTH} folders", folder.display()));
    }
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        if hidden {
            continue;
        }
        if path.is_dir() {
            list(&path, depth + 1, files)?;
        } else if path.is_file() {
            files.push(path);
        }
        if files.len() > MAX_FOLDER_FILES {
            return Err(format!("{} has more than {MAX_FOLDER_FILES} files", folder.display()));
        }
    }
    Ok(())
}

fn too_large(what: &str, bytes: u64, limit: u64) -> String {
    format!("{what} has {bytes} bytes; at most {limit} are read")
}

/// Of parts, each closed by its length, so that moving a byte from one to the next changes it.
#[derive(Default)]
struct Digest(u64);

impl Digest {
    fn and(self, part: &[u8]) -> Digest {
        Digest(fingerprint(self.0, part))
    }

    fn hex(&self) -> String {
        format!("{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use postrider_model::Value;

    use super::*;

    /// A folder that is empty at first and gone at the end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("postrider-code-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Scratch(path)
        }

        fn write(&self, name: &str, text: &str) -> String {
            let path = self.0.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn code(fields: &[(&str, &str)]) -> Result<Code, Vec<String>> {
        let entries = fields.iter().map(|(key, value)| ((*key).to_owned(), Value::String((*value).to_owned())));
        let value = Value::Map(vec![("code".into(), Value::Map(entries.collect()))]);
        let code = Code::read(value.fields().unwrap().map("code").unwrap().unwrap());
        code.map_err(|errors| errors.iter().map(|error| format!("{}: {}", error.path, error.message)).collect())
    }

    fn is_current(file: &WatchedFile) -> bool {
        file.is_current(fs::read(&file.path).ok().as_deref())
    }

    #[test]
    fn inline_code_is_text_or_base64() {
        let text = code(&[("inline_string", "return {}")]).unwrap();
        assert_eq!((text.text.as_slice(), text.source.as_str(), text.files.len()), (&b"return {}"[..], "inline", 0));
        assert_eq!(text, code(&[("inline_bytes", &STANDARD.encode("return {}"))]).unwrap());
        assert_eq!(text.digest.len(), 16);
        assert_ne!(text.digest, code(&[("inline_string", "return { }")]).unwrap().digest);
        assert!(code(&[("inline_bytes", "!")]).unwrap_err()[0].starts_with("code.inline_bytes: no base64"));
    }

    #[test]
    fn a_file_is_read_once_and_watched() {
        let scratch = Scratch::new("file");
        let path = scratch.write("a.lua", "return 1");
        let read = code(&[("filename", &path)]).unwrap();
        assert_eq!((read.source.as_str(), read.text.as_slice()), (path.as_str(), &b"return 1"[..]));
        assert!(is_current(&read.files[0]));
        scratch.write("a.lua", "return 2");
        assert!(!is_current(&read.files[0]));
        fs::write(&path, vec![b' '; MAX_CODE_BYTES as usize + 1]).unwrap();
        assert!(code(&[("filename", &path)]).unwrap_err()[0].contains("at most 1048576 are read"));
        assert!(code(&[("filename", "/no/such.lua")]).unwrap_err()[0].contains("cannot read /no/such.lua"));
        let folder = scratch.0.to_str().unwrap();
        assert!(code(&[("filename", folder)]).unwrap_err()[0].contains("name it by `directory`"));
        let large = " ".repeat(MAX_CODE_BYTES as usize + 1);
        assert!(code(&[("inline_string", &large)]).unwrap_err()[0].contains("inline has 1048577 bytes"));
    }

    #[test]
    fn a_folder_is_its_entry_and_whatever_is_beside_it() {
        let scratch = Scratch::new("folder");
        let folder = scratch.0.to_str().unwrap().to_owned();
        assert!(code(&[("directory", &folder)]).unwrap_err()[0].contains("neither plugin.lua nor init.lua"));
        let init = scratch.write("init.lua", "-- init");
        assert_eq!(code(&[("directory", &folder)]).unwrap().source, init);
        let entry = scratch.write("plugin.lua", "return require 'lib.a'");
        scratch.write("lib/a.lua", "return {}");
        scratch.write("..data/hidden.lua", "");
        let read = code(&[("directory", &folder)]).unwrap();
        assert_eq!((read.source.as_str(), read.text.as_slice()), (entry.as_str(), &b"return require 'lib.a'"[..]));
        assert_eq!(read.directory.as_deref(), Some(scratch.0.as_path()));
        let names: Vec<_> =
            read.files.iter().map(|file| file.path.strip_prefix(&scratch.0).unwrap().to_owned()).collect();
        assert_eq!(names, [Path::new("plugin.lua"), Path::new("init.lua"), Path::new("lib/a.lua")]);
        scratch.write("lib/a.lua", "return { 1 }");
        assert_ne!(code(&[("directory", &folder)]).unwrap().digest, read.digest);
        assert!(code(&[("directory", "/no/such")]).unwrap_err()[0].contains("is no folder"));
        (0..=MAX_FOLDER_FILES).for_each(|n| drop(scratch.write(&format!("many/{n}"), "")));
        assert!(code(&[("directory", &folder)]).unwrap_err()[0].contains("more than 256 files"));
    }

    #[test]
    fn code_has_exactly_one_place() {
        assert!(code(&[]).unwrap_err()[0].starts_with("code: there is no code: set one of inline_string"));
        let wrong = code(&[("inline_string", "x"), ("filename", "y"), ("remote", "z")]).unwrap_err();
        assert_eq!(
            wrong,
            [
                "code.filename: `inline_string` is set too; code has one place",
                "code.remote: the field `remote` is not supported"
            ]
        );
        assert!(code(&[("inline_string", "")]).unwrap_err()[0].contains("the code is empty"));
        assert!(code(&[("environment_variable", "POSTRIDER_NO_SUCH")]).unwrap_err()[0].contains("POSTRIDER_NO_SUCH"));
        let from_environment = code(&[("environment_variable", "PATH")]).unwrap();
        assert_eq!(from_environment.source, "environment variable PATH");
    }

    #[test]
    fn a_data_source_of_envoys_may_be_empty_and_name_a_folder_to_watch() {
        use crate::json::from_json_text;

        let read = |text: &str| Code::read_data_source(from_json_text(text).unwrap().fields().unwrap());
        assert_eq!(read(r#"{"inline_string": ""}"#).unwrap().text, b"");
        let scratch = Scratch::new("watched");
        let path = scratch.write("a.lua", "return 1");
        let watched = format!(r#"{{"filename": "{path}", "watched_directory": {{"path": "/tmp"}}}}"#);
        assert_eq!(read(&watched).unwrap().files.len(), 1);
        let local = format!(r#"{{"local": {watched}}}"#);
        let value = from_json_text(&local).unwrap();
        assert_eq!(Code::read_async(value.fields().unwrap(), 100).unwrap().text, b"return 1");
        assert_eq!(read(r#"{"directory": "/"}"#).unwrap_err()[0].path, "");
        let wrong = read(r#"{"filename": "/a", "watched_directory": {"paths": "/"}}"#).unwrap_err();
        assert_eq!(wrong[0].path, "watched_directory.paths");
    }

    #[test]
    fn code_from_elsewhere_is_missing_until_somebody_fetched_it() {
        use crate::json::from_json_text;
        use crate::library::library;
        use crate::remote::Remote;

        let read = |text: &str| Code::read_anywhere(from_json_text(text).unwrap().fields().unwrap(), 4);
        let fails = |text: &str, wanted: &str| {
            let error = read(text).unwrap_err().remove(0);
            assert_eq!(format!("{}: {}", error.path, error.message), wanted);
        };
        let text = r#"{"remote": {"url": "oci://code.test/a:1"}}"#;
        let missing = read(text).unwrap();
        assert_eq!((missing.source.as_str(), missing.text.len()), ("oci://code.test/a:1", 0));
        assert_eq!(missing.missing.as_deref(), Some("it was not fetched yet"));
        let remote = from_json_text(r#"{"url": "oci://code.test/a:1"}"#).unwrap();
        let remote = Remote::read(remote.fields().unwrap()).unwrap();
        library().put(remote.clone(), Ok(b"code".to_vec()));
        let here = read(text).unwrap();
        assert_eq!((here.text.as_slice(), &here.missing, here.files.len()), (&b"code"[..], &None, 0));
        assert!(here.edition().unwrap().is_current());
        library().put(remote.clone(), Ok(b"large".to_vec()));
        assert!(!here.edition().unwrap().is_current());
        fails(text, "remote: oci://code.test/a:1 has 5 bytes; at most 4 are read");
        library().put(remote.clone(), Ok(Vec::new()));
        fails(text, "remote: the code is empty (oci://code.test/a:1)");
        library().put(remote, Err("no".to_owned()));
        fails(text, "remote: oci://code.test/a:1 cannot be fetched: no");
        fails(r#"{"remote": {}, "filename": "a"}"#, "remote: `filename` is set too; code has one place");
    }
}
