//! Runtime layers on the disk: a folder whose files are values, each named by its path.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// How deep folders may lie in each other, as in Envoy.
const MAX_DEPTH: u32 = 16;

/// The most bytes that all files of a layer have together: values are short, and all stay in memory.
const MAX_BYTES: u64 = 4 << 20;

/// A layer's folder as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Disk {
    /// What is swapped to bring new values in.
    root: PathBuf,
    folder: PathBuf,
    content: Content,
}

#[derive(Clone, Debug, PartialEq)]
enum Content {
    /// There is no such folder.
    Absent,
    /// The values as texts, by their keys, and every folder that was looked into.
    Read {
        texts: BTreeMap<String, String>,
        folders: Vec<PathBuf>,
    },
    Failed(String),
}

impl Disk {
    pub fn read(root: &str, below: &str) -> Disk {
        let root = PathBuf::from(root);
        let folder = root.join(below);
        let content = content(&folder);
        Disk { root, folder, content }
    }

    /// `None` where there is no folder or it could not be read.
    pub fn texts(&self) -> Option<&BTreeMap<String, String>> {
        match &self.content {
            Content::Read { texts, .. } => Some(texts),
            Content::Absent | Content::Failed(_) => None,
        }
    }

    /// Why the folder could not be read.
    pub fn failure(&self) -> Option<&str> {
        match &self.content {
            Content::Failed(reason) => Some(reason),
            Content::Absent | Content::Read { .. } => None,
        }
    }

    /// Whether the folder still says the same.
    pub fn is_current(&self) -> bool {
        content(&self.folder) == self.content
    }

    /// Paths whose surroundings change when the layer does: whoever watches the folders that lead to them misses nothing.
    pub fn watched(&self) -> impl Iterator<Item = PathBuf> + '_ {
        let folders = match &self.content {
            Content::Read { folders, .. } => folders.as_slice(),
            Content::Absent | Content::Failed(_) => &[],
        };
        // A name in the folder stands for all that may come into it.
        let inside = folders.iter().map(|folder| folder.join("value"));
        [self.root.clone(), self.folder.join("value")].into_iter().chain(inside)
    }
}

fn content(folder: &Path) -> Content {
    if !folder.is_dir() {
        return Content::Absent;
    }
    let (mut texts, mut folders, mut left) = (BTreeMap::new(), Vec::new(), MAX_BYTES);
    match walk(folder, "", 1, &mut texts, &mut folders, &mut left) {
        Ok(()) => Content::Read { texts, folders },
        Err(reason) => Content::Failed(reason),
    }
}

fn walk(
    folder: &Path,
    prefix: &str,
    depth: u32,
    texts: &mut BTreeMap<String, String>,
    folders: &mut Vec<PathBuf>,
    left: &mut u64,
) -> Result<(), String> {
    let failed = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    if depth > MAX_DEPTH {
        return Err(format!("{}: folders lie deeper than {MAX_DEPTH} levels in each other", folder.display()));
    }
    folders.push(folder.to_owned());
    for entry in std::fs::read_dir(folder).map_err(|error| failed(folder, error))? {
        let entry = entry.map_err(|error| failed(folder, error))?;
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        let key = if prefix.is_empty() { name.into_owned() } else { format!("{prefix}.{name}") };
        // Behind a link, as in folders that Kubernetes mounts.
        let Ok(kind) = std::fs::metadata(&path) else { continue };
        if kind.is_dir() {
            walk(&path, &key, depth + 1, texts, folders, left)?;
        } else if kind.is_file() {
            *left = left
                .checked_sub(kind.len())
                .ok_or_else(|| format!("{}: the files are larger than {MAX_BYTES} bytes", folder.display()))?;
            let bytes = std::fs::read(&path).map_err(|error| failed(&path, error))?;
            let text = without_comments(&String::from_utf8_lossy(&bytes));
            if !text.is_empty() {
                texts.insert(key, text);
            }
        }
    }
    Ok(())
}

/// Lines with a `#` at their beginning are comments; a file of nothing else holds a place and no value.
fn without_comments(text: &str) -> String {
    let lines: Vec<&str> = text.split('\n').filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    lines.join("\n").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_values_by_their_paths() {
        let root = std::env::temp_dir().join(format!("postrider-runtime-{}", std::process::id()));
        let folder = root.join("v1/a/b");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("c"), "# why\n\n 30 \n").unwrap();
        std::fs::write(root.join("v1/a/empty"), "# later\n").unwrap();
        std::os::unix::fs::symlink("v1", root.join("now")).unwrap();
        let disk = Disk::read(root.join("now").to_str().unwrap(), "a");
        assert_eq!(disk.texts().unwrap().iter().collect::<Vec<_>>(), [(&"b.c".to_owned(), &" 30".to_owned())]);
        assert!(disk.is_current());
        std::fs::write(folder.join("d"), "1").unwrap();
        assert!(!disk.is_current());
        assert_eq!(Disk::read(root.join("none").to_str().unwrap(), "").texts(), None);
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn folders_that_lie_too_deep_are_a_failure() {
        let root = std::env::temp_dir().join(format!("postrider-runtime-deep-{}", std::process::id()));
        std::fs::create_dir_all(root.join("a/".repeat(MAX_DEPTH as usize))).unwrap();
        let disk = Disk::read(root.to_str().unwrap(), "");
        assert!(disk.failure().unwrap().ends_with("deeper than 16 levels in each other"), "{disk:?}");
        std::fs::remove_dir_all(root).unwrap();
    }
}
