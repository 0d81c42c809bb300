//! Who may come in: users and the SHA-1 digests of their passwords, as `htpasswd -s` writes them.

use std::collections::HashMap;
use std::hint::black_box;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_filter_api::WatchedFile;
use postrider_model::Reading;
use sha1::{Digest, Sha1};

use crate::read::data_source_of;

/// Bytes of a SHA-1 digest.
const DIGEST: usize = 20;

/// Nobody, by default.
#[derive(Debug, Default)]
pub(super) struct Users {
    by_name: HashMap<Box<[u8]>, u32>,
    entries: Vec<(Box<[u8]>, [u8; DIGEST])>,
}

impl Users {
    /// Reads the list from the place that `users` names. A file is added to `files`.
    pub(super) fn read(at: &mut Reading<'_>, files: &mut Vec<WatchedFile>) -> Users {
        if !at.has("users") {
            at.error("users", "the users are required");
        }
        let read = at.map("users", |at| match data_source_of(at, files).map(String::from_utf8)? {
            Ok(text) if text.is_empty() => {
                at.wrong("the users are missing: the list is empty");
                None
            }
            Ok(text) => {
                let users = Users::parse(&text);
                users.map_err(|messages| messages.into_iter().for_each(|message| at.wrong(message))).ok()
            }
            Err(_) => {
                at.wrong("the list of users is not UTF-8");
                None
            }
        });
        read.flatten().unwrap_or_default()
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
        let read = |source: &postrider_model::Value| {
            let mut files = Vec::new();
            let config = object([("users", source.clone())]);
            let users = Reading::all(&config, |at| Users::read(at, &mut files))?;
            Ok::<_, Vec<postrider_model::ValueError>>((users, files.len()))
        };
        let file = std::env::temp_dir().join(format!("postrider-users-{}", std::process::id()));
        std::fs::write(&file, USER).unwrap();
        let folder = object([("path", text("/tmp"))]);
        let by_file = object([("filename", text(file.to_str().unwrap())), ("watched_directory", folder)]);
        let (users, files) = read(&by_file).unwrap();
        assert_eq!((users.verify(b"u1", b"test1"), files), (Some(0), 1));
        std::fs::remove_file(&file).unwrap();
        assert!(read(&by_file).unwrap_err()[0].message.contains("cannot read"));

        let bytes = object([("inline_bytes", text(&STANDARD.encode(USER)))]);
        assert_eq!(read(&bytes).unwrap().0.verify(b"u1", b"test1"), Some(0));
        let two = object([("inline_string", text(USER)), ("filename", text("x"))]);
        for (wrong, says) in [
            (two, "exactly one of inline_string"),
            (object([]), "exactly one of inline_string"),
            (object([("inline_string", text(""))]), "is empty"),
            (object([("inline_bytes", text("/w=="))]), "not UTF-8"),
        ] {
            let error = read(&wrong).unwrap_err().remove(0);
            assert!(error.path == "users" && error.message.contains(says), "{error:?}");
        }
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
