//! Who may come in: users and the SHA-1 digests of their passwords, as `htpasswd -s` writes them.

use std::collections::HashMap;
use std::hint::black_box;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_filter_api::ConfigError;
use postrider_model::{Fields, ValueError};
use sha1::{Digest, Sha1};

/// Bytes of a SHA-1 digest.
const DIGEST: usize = 20;

/// Largest user file read: tens of thousands of lines, but not whatever a path happens to lead to.
const MAX_FILE_BYTES: u64 = 8 << 20;

#[derive(Debug)]
pub(super) struct Users {
    by_name: HashMap<Box<[u8]>, u32>,
    entries: Vec<(Box<[u8]>, [u8; DIGEST])>,
}

impl Users {
    /// Reads the list from the place that `source` names: `inline_string`, `inline_bytes`, `filename` or
    /// `environment_variable`.
    ///
    /// # Errors
    /// No place or several, a place that cannot be read, or every line that is not `user:{SHA}digest`.
    pub(super) fn read(mut source: Fields<'_>) -> Result<Users, ConfigError> {
        let text = text_of(&mut source)?;
        let path = source.path().to_owned();
        source.finish()?;
        Users::parse(&text).map_err(|messages| {
            messages.into_iter().map(|message| ValueError { path: path.clone(), message }).collect()
        })
    }

    /// The number of the user with this name, if the password is right. Takes as long for a user that does not exist.
    pub(super) fn verify(&self, name: &[u8], password: &[u8]) -> Option<u32> {
        const NOBODY: [u8; DIGEST] = [0; DIGEST];
        let number = self.by_name.get(name).copied();
        let known = number.and_then(|number| self.entries.get(number as usize));
        let given: [u8; DIGEST] = Sha1::digest(password).into();
        let right = same_in_constant_time(&given, known.map_or(&NOBODY, |(_, digest)| digest));
        number.filter(|_| right)
    }

    /// Empty for a number that [`Users::verify`] never gave.
    pub(super) fn name(&self, number: u32) -> &[u8] {
        self.entries.get(number as usize).map_or(&[], |(name, _)| name)
    }

    fn parse(text: &str) -> Result<Users, Vec<String>> {
        let mut users = Users { by_name: HashMap::new(), entries: Vec::new() };
        let mut errors = Vec::new();
        for (line, at) in text.lines().zip(1..) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match parse_line(line) {
                Ok((name, digest)) => {
                    let number = users.entries.len() as u32;
                    if users.by_name.insert(name.as_bytes().into(), number).is_some() {
                        errors.push(format!("line {at}: the user \"{name}\" is there twice"));
                    }
                    users.entries.push((name.as_bytes().into(), digest));
                }
                Err(message) => errors.push(format!("line {at}: {message}")),
            }
        }
        if errors.is_empty() { Ok(users) } else { Err(errors) }
    }
}

fn parse_line(line: &str) -> Result<(&str, [u8; DIGEST]), &'static str> {
    let (name, hash) = line.split_once(':').ok_or("expected user:{SHA}digest, found no colon")?;
    if name.is_empty() {
        return Err("the user's name is empty");
    }
    if name.bytes().any(|byte| byte.is_ascii_control()) {
        return Err("the user's name has a control character in it");
    }
    let digest = hash.strip_prefix("{SHA}").ok_or("only {SHA} passwords are supported (htpasswd -s writes them)")?;
    let bytes = STANDARD.decode(digest).map_err(|_| "what follows {SHA} is no base64")?;
    let bytes = bytes.try_into().map_err(|_| "what follows {SHA} is not the base64 of 20 bytes")?;
    Ok((name, bytes))
}

fn text_of(source: &mut Fields<'_>) -> Result<String, ConfigError> {
    const PLACES: [&str; 4] = ["inline_string", "inline_bytes", "filename", "environment_variable"];
    let mut named = None;
    for place in PLACES {
        if let Some(value) = source.string(place).map_err(|error| vec![error])?
            && let Some((other, _)) = named.replace((place, value))
        {
            return Err(vec![source.error(place, format!("{other} is set too; one place is wanted"))]);
        }
    }
    let Some((place, value)) = named.filter(|(_, value)| !value.is_empty()) else {
        let message = format!("the users are missing: set one of {}", PLACES.join(", "));
        return Err(vec![ValueError { path: source.path().to_owned(), message }]);
    };
    let text = match place {
        "inline_bytes" => STANDARD.decode(value).map_err(|error| error.to_string()).and_then(utf8),
        "filename" => read_file(value),
        "environment_variable" => std::env::var(value).map_err(|error| format!("{value}: {error}")),
        _ => Ok(value.to_owned()),
    };
    text.map_err(|message| vec![source.error(place, message)])
}

fn read_file(path: &str) -> Result<String, String> {
    let size = std::fs::metadata(path).map_err(|error| format!("cannot read {path}: {error}"))?.len();
    if size > MAX_FILE_BYTES {
        return Err(format!("{path} has {size} bytes; a list of users may have {MAX_FILE_BYTES}"));
    }
    std::fs::read(path).map_err(|error| format!("cannot read {path}: {error}")).and_then(utf8)
}

fn utf8(bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|_| "the list of users is not UTF-8".to_owned())
}

/// Whether two byte strings are equal, in a time that tells no more than whether their lengths are.
pub(super) fn same_in_constant_time(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let difference = a.iter().zip(b).fold(0, |difference, (a, b)| black_box(difference | (a ^ b)));
    black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{object, text};

    /// The password is `test1`.
    const USER: &str = "u1:{SHA}tESsBmE/yNY3lb6a0L6vVQEZNqw=";

    #[test]
    fn lists_are_read_line_by_line() {
        let users = Users::parse(&format!("# who\n\n{USER}\r\nu2:{{SHA}}EJ9LPFDXsN9ynSmbxvjp75Bmlx8=\n")).unwrap();
        assert_eq!(users.verify(b"u1", b"test1"), Some(0));
        assert_eq!(users.verify(b"u2", b"test2"), Some(1));
        assert_eq!(users.name(1), b"u2");
        for (name, password) in [("u1", "test2"), ("u1", ""), ("u3", "test1"), ("", ""), ("U1", "test1")] {
            assert_eq!(users.verify(name.as_bytes(), password.as_bytes()), None, "{name}:{password}");
        }
    }

    #[test]
    fn every_bad_line_is_reported_by_number() {
        let list = format!("u1\n:{{SHA}}x\nu1:plain\nu1:{{SHA}}bad!\nu1:{{SHA}}AAAA\n{USER}\n{USER}");
        let errors = Users::parse(&list).unwrap_err();
        let wanted = ["no colon", "name is empty", "only {SHA}", "no base64", "20 bytes", "\"u1\" is there twice"];
        assert_eq!(errors.len(), wanted.len());
        for ((error, want), line) in errors.iter().zip(wanted).zip([1, 2, 3, 4, 5, 7]) {
            assert!(error.starts_with(&format!("line {line}: ")) && error.contains(want), "{error}");
        }
    }

    #[test]
    fn the_list_comes_from_exactly_one_place() {
        let read = |value: &postrider_model::Value| Users::read(value.fields().unwrap());
        let file = std::env::temp_dir().join(format!("postrider-users-{}", std::process::id()));
        std::fs::write(&file, USER).unwrap();
        let by_file = object([("filename", text(file.to_str().unwrap()))]);
        assert_eq!(read(&by_file).unwrap().verify(b"u1", b"test1"), Some(0));
        std::fs::remove_file(&file).unwrap();
        assert!(read(&by_file).unwrap_err()[0].message.contains("cannot read"));

        let bytes = object([("inline_bytes", text(&STANDARD.encode(USER)))]);
        assert_eq!(read(&bytes).unwrap().verify(b"u1", b"test1"), Some(0));
        let two = object([("inline_string", text(USER)), ("filename", text("x"))]);
        assert_eq!(read(&two).unwrap_err()[0].path, "filename");
        assert!(read(&object([])).unwrap_err()[0].message.contains("inline_string"));
        assert!(read(&object([("inline_string", text(""))])).is_err());
        let watched = object([("inline_string", text(USER)), ("watched_directory", object([]))]);
        assert_eq!(read(&watched).unwrap_err()[0].path, "watched_directory");
    }

    #[test]
    fn equality_looks_at_every_byte() {
        assert!(same_in_constant_time(b"", b""));
        assert!(same_in_constant_time(b"abc", b"abc"));
        for other in [&b"abd"[..], b"bbc", b"ab", b"abcd", b""] {
            assert!(!same_in_constant_time(b"abc", other));
        }
    }
}
