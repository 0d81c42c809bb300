//! Whether a library has a plugin, as far as its file tells: a name that code registers stands in it.
//!
//! What was found is kept: a configuration may name one plugin a thousand times, and a library has tens of megabytes.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{LazyLock, Mutex, PoisonError};

use memchr::memmem;

use crate::object::FileIdentity;

/// Most answers that are kept: more than there are plugins, and then all are looked for anew.
const MAX_KNOWN: usize = 1024;

type Known = HashMap<(FileIdentity, String), bool>;

static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

/// Whether that text stands anywhere in the file; so it does in one that cannot be read. Never on a worker.
pub(crate) fn stands_in(path: &Path, text: &str) -> bool {
    look(path, text).unwrap_or(true)
}

fn look(path: &Path, text: &str) -> io::Result<bool> {
    // What is read is the file that is asked who it is, also where another takes its place meanwhile.
    let mut file = File::open(path)?;
    let key = (FileIdentity::from(&file.metadata()?), text.to_owned());
    // A panic with the lock held leaves a whole table behind.
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = known.get(&key) {
        return Ok(*found);
    }
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    let found = memmem::find(&content, text.as_bytes()).is_some();
    if known.len() >= MAX_KNOWN {
        known.clear();
    }
    known.insert(key, found);
    Ok(found)
}

/// Why a plugin that nothing in the library mentions is refused.
pub(crate) fn unknown(path: &str, plugin: &str) -> String {
    format!("nothing in {path} is called `{plugin}`")
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn a_file_is_read_once_for_a_name_until_it_changes() {
        let path = std::env::temp_dir().join(format!("postrider-plugin-names-{}", std::process::id()));
        let write = |content: &str, time: SystemTime| {
            std::fs::write(&path, content).unwrap();
            File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        };
        let then = SystemTime::now() - Duration::from_secs(60);
        write("one two", then);
        assert!(stands_in(&path, "two") && !stands_in(&path, "three"));
        write("ono tvo", then);
        assert!(stands_in(&path, "two"), "the file looks the same, so it is not read again");
        assert!(!stands_in(&path, "one"), "of this name nothing was known");
        write("ono tvo", then + Duration::from_secs(1));
        assert!(!stands_in(&path, "two"));
        std::fs::remove_file(&path).unwrap();
        assert!(stands_in(&path, "two"), "of what cannot be read nobody knows");
    }
}
