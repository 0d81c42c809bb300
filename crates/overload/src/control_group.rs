//! What the control group of this process uses and may use, versions 1 and 2, as it looks from inside a container.

use std::io;
use std::path::{Path, PathBuf};

/// Where the system shows it.
pub(crate) struct ControlGroup(PathBuf);

/// Memory in bytes; `None` is no limit.
pub(crate) struct Memory {
    pub used: u64,
    pub limit: Option<u64>,
    /// What of `used` are pages of files that the system can drop.
    pub droppable: u64,
}

/// A limit of version 1 above this is none: it says the largest number of pages.
const NO_LIMIT: u64 = 1 << 60;

impl Default for ControlGroup {
    fn default() -> ControlGroup {
        ControlGroup(PathBuf::from("/sys/fs/cgroup"))
    }
}

impl ControlGroup {
    #[cfg(test)]
    pub(crate) fn at(root: &Path) -> ControlGroup {
        ControlGroup(root.to_path_buf())
    }

    /// # Errors
    /// There is no control group, or it does not tell.
    pub(crate) fn memory(&self) -> io::Result<Memory> {
        let (used, limit, stat) = match number(&self.0.join("memory.current")) {
            Ok(used) => (used, self.0.join("memory.max"), self.0.join("memory.stat")),
            Err(_) => {
                let folder = self.0.join("memory");
                let used = number(&folder.join("memory.usage_in_bytes"));
                let used = used.map_err(|_| io::Error::other("no control group tells of its memory"))?;
                (used, folder.join("memory.limit_in_bytes"), folder.join("memory.stat"))
            }
        };
        // "max", in version 2.
        let limit = number(&limit).ok().filter(|limit| *limit < NO_LIMIT);
        let droppable = entry(&stat, "total_inactive_file").or_else(|| entry(&stat, "inactive_file")).unwrap_or(0);
        Ok(Memory { used, limit, droppable })
    }

    /// Microseconds of processor time used so far, and how many processors that may be at once.
    ///
    /// # Errors
    /// There is no control group of version 2, or it does not tell.
    pub(crate) fn processor(&self) -> io::Result<(u64, f64)> {
        let used = entry(&self.0.join("cpu.stat"), "usage_usec");
        let used = used.ok_or_else(|| io::Error::other("no control group (version 2) tells of its processor time"))?;
        let all = postrider_sys::processor_count() as f64;
        let quota = std::fs::read_to_string(self.0.join("cpu.max")).ok().and_then(|text| {
            let (quota, period) = text.trim().split_once(' ')?;
            Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
        });
        Ok((used, quota.map_or(all, |quota| quota.min(all))))
    }
}

fn number(path: &Path) -> io::Result<u64> {
    std::fs::read_to_string(path)?.trim().parse().map_err(io::Error::other)
}

/// The number behind `name` in a file of lines `name number`.
fn entry(path: &Path, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(known, _)| *known == name)?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_testkit::TempDir;

    fn write(folder: &TempDir, files: &[(&str, &str)]) -> ControlGroup {
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        ControlGroup::at(folder.path())
    }

    #[test]
    fn both_versions_tell_of_memory() {
        let folder = TempDir::new();
        let two = write(
            &folder,
            &[
                ("memory.current", "800\n"),
                ("memory.max", "1000\n"),
                ("memory.stat", "anon 5\ninactive_file 300\n"),
                ("cpu.stat", "usage_usec 77\n"),
                ("cpu.max", "50000 100000\n"),
            ],
        );
        let memory = two.memory().unwrap();
        assert_eq!((memory.used, memory.limit, memory.droppable), (800, Some(1000), 300));
        assert_eq!(two.processor().unwrap(), (77, 0.5));
        let folder = TempDir::new();
        let one = write(
            &folder,
            &[
                ("memory/memory.usage_in_bytes", "800\n"),
                ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
                ("memory/memory.stat", "inactive_file 1\ntotal_inactive_file 2\n"),
            ],
        );
        let memory = one.memory().unwrap();
        assert_eq!((memory.used, memory.limit, memory.droppable), (800, None, 2));
        assert!(one.processor().is_err());
        assert!(ControlGroup::at(Path::new("/nowhere")).memory().is_err());
    }
}
