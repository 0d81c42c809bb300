//! Notices that the configuration file, or one that it names, changed: edited in place, replaced, or swapped behind a
//! symbolic link as Kubernetes does with mounted config maps.
//!
//! The folders that lead to the files are watched, not the files: a rename or a new link target is an event there. What
//! counts in the end is whether the content differs from what was read last, so events that mean nothing cost a read.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;

/// Changes that come closer together than this are one: editors and copies write in steps.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// Changes are not waited out any longer than this: a log in the same folder may be written all the time.
const LONGEST: Duration = Duration::from_secs(1);

/// Watches files. Dropping it ends the watch.
pub struct FileWatch {
    paths: Vec<PathBuf>,
    events: mpsc::Receiver<()>,
    /// Something happened that nobody was told of yet.
    noticed: bool,
    watcher: RecommendedWatcher,
    folders: BTreeSet<PathBuf>,
}

impl FileWatch {
    /// # Errors
    /// The system cannot watch, or the folder is gone.
    pub fn new(paths: Vec<PathBuf>) -> notify::Result<FileWatch> {
        let (sender, events) = mpsc::channel(1);
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            if event.is_ok_and(|event| !event.kind.is_access()) {
                // One that waits already says the same.
                let _ = sender.try_send(());
            }
        })?;
        let mut watch = FileWatch { paths, events, noticed: false, watcher, folders: BTreeSet::new() };
        watch.follow_links()?;
        Ok(watch)
    }

    /// Watches these files from now on.
    ///
    /// # Errors
    /// Some folder cannot be watched; the others are.
    pub fn watch(&mut self, paths: Vec<PathBuf>) -> notify::Result<()> {
        self.paths = paths;
        self.follow_links()
    }

    /// Waits until something happened and then nothing for a moment, or for long enough. Whoever gives up waiting misses nothing by it.
    pub async fn changed(&mut self) {
        if !self.noticed && self.events.recv().await.is_none() {
            // The watcher is part of this struct: this cannot end while somebody waits.
            return std::future::pending().await;
        }
        self.noticed = true;
        let calm = async {
            while tokio::time::timeout(DEBOUNCE, self.events.recv()).await.is_ok_and(|event| event.is_some()) {}
        };
        // What happens later is another change.
        let _ = tokio::time::timeout(LONGEST, calm).await;
        self.noticed = false;
        // The links may lead elsewhere now. A folder that cannot be watched leaves the others.
        let _ = self.follow_links();
    }

    /// Watches the folders that lead to the files, and no others.
    fn follow_links(&mut self) -> notify::Result<()> {
        let mut wanted = BTreeSet::new();
        self.paths.iter().for_each(|path| leading(path, &mut wanted));
        for folder in self.folders.difference(&wanted) {
            // One that is gone is watched no longer anyway.
            let _ = self.watcher.unwatch(folder);
        }
        self.folders.retain(|folder| wanted.contains(folder));
        let mut failed = Ok(());
        for folder in wanted {
            if self.folders.contains(&folder) {
                continue;
            }
            match self.watcher.watch(&folder, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    self.folders.insert(folder);
                }
                Err(error) => failed = failed.and(Err(error)),
            }
        }
        failed
    }
}

/// The real folder of the file, and those in which a link on the way to it stands: each once, by one name, because the
/// system watches a folder and not its name.
fn leading(path: &Path, folders: &mut BTreeSet<PathBuf>) {
    let Ok(path) = std::path::absolute(path) else { return };
    let mut left: Vec<PathBuf> = parts(&path);
    let mut at = PathBuf::from("/");
    let mut links = 0;
    while let Some(part) = left.pop() {
        if part == Path::new("..") {
            at.pop();
            continue;
        }
        let next = at.join(part);
        match std::fs::read_link(&next) {
            // As many links as the kernel follows.
            Ok(target) if links < 40 => {
                links += 1;
                folders.insert(at.clone());
                if target.is_absolute() {
                    at = PathBuf::from("/");
                }
                left.extend(parts(&target));
            }
            _ => at = next,
        }
    }
    // One that is not there yet appears in a folder that is.
    while at.pop() {
        if at.is_dir() {
            folders.insert(at);
            return;
        }
    }
}

/// What a path is made of, the last part first.
fn parts(path: &Path) -> Vec<PathBuf> {
    use std::path::Component;
    let named = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    let mut parts: Vec<PathBuf> = path.components().filter(named).map(|part| PathBuf::from(part.as_os_str())).collect();
    parts.reverse();
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn a_swapped_link_behind_the_file_is_noticed() {
        let folder = std::env::temp_dir().join(format!("postrider-watch-{}", std::process::id()));
        for version in ["v1", "v2"] {
            std::fs::create_dir_all(folder.join(version)).unwrap();
            std::fs::write(folder.join(version).join("proxy.yaml"), version).unwrap();
        }
        std::os::unix::fs::symlink("v1", folder.join("..data")).unwrap();
        std::os::unix::fs::symlink("..data/proxy.yaml", folder.join("proxy.yaml")).unwrap();
        runtime().block_on(async {
            let mut watch = FileWatch::new(vec![folder.join("proxy.yaml")]).unwrap();
            std::os::unix::fs::symlink("v2", folder.join("..next")).unwrap();
            std::fs::rename(folder.join("..next"), folder.join("..data")).unwrap();
            tokio::time::timeout(Duration::from_secs(10), watch.changed()).await.unwrap();
            assert_eq!(std::fs::read_to_string(folder.join("proxy.yaml")).unwrap(), "v2");
            std::fs::write(folder.join("v2").join("proxy.yaml"), "v3").unwrap();
            tokio::time::timeout(Duration::from_secs(10), watch.changed()).await.unwrap();
        });
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_change_is_not_missed_by_who_gives_up_waiting() {
        let folder = std::env::temp_dir().join(format!("postrider-watch-patience-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        runtime().block_on(async {
            let mut watch = FileWatch::new(vec![folder.join("proxy.yaml")]).unwrap();
            std::fs::write(folder.join("proxy.yaml"), "v1").unwrap();
            for _ in 0..10 {
                // Shorter than the quiet that is waited for.
                assert!(tokio::time::timeout(DEBOUNCE / 5, watch.changed()).await.is_err());
            }
            tokio::time::timeout(Duration::from_secs(10), watch.changed()).await.unwrap();
        });
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_change_is_noticed_although_another_file_of_the_folder_is_written_all_the_time() {
        let folder = std::env::temp_dir().join(format!("postrider-watch-noise-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        runtime().block_on(async {
            let mut watch = FileWatch::new(vec![folder.join("proxy.yaml")]).unwrap();
            let noise = async {
                for line in 0.. {
                    std::fs::write(folder.join("access.log"), format!("{line}")).unwrap();
                    tokio::time::sleep(DEBOUNCE / 10).await;
                }
            };
            std::fs::write(folder.join("proxy.yaml"), "v1").unwrap();
            tokio::select! {
                () = noise => {}
                noticed = tokio::time::timeout(Duration::from_secs(10), watch.changed()) => noticed.unwrap(),
            }
        });
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_files_that_are_watched_can_change() {
        let folder = std::env::temp_dir().join(format!("postrider-watch-more-{}", std::process::id()));
        for name in ["a", "b"] {
            std::fs::create_dir_all(folder.join(name)).unwrap();
        }
        runtime().block_on(async {
            let mut watch = FileWatch::new(vec![folder.join("a/proxy.yaml")]).unwrap();
            watch.watch(vec![folder.join("b/plugin.lua")]).unwrap();
            std::fs::write(folder.join("b/plugin.lua"), "return {}").unwrap();
            tokio::time::timeout(Duration::from_secs(10), watch.changed()).await.unwrap();
            assert_eq!(watch.folders, BTreeSet::from([folder.canonicalize().unwrap().join("b")]));
        });
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_swapped_folder_is_noticed_where_its_link_stands() {
        let folder = std::env::temp_dir().join(format!("postrider-watch-folder-{}", std::process::id()));
        for version in ["v1", "v2"] {
            std::fs::create_dir_all(folder.join(version)).unwrap();
            std::fs::write(folder.join(version).join("plugin.lua"), version).unwrap();
        }
        std::os::unix::fs::symlink("v1", folder.join("current")).unwrap();
        runtime().block_on(async {
            let mut watch = FileWatch::new(vec![folder.join("current/plugin.lua")]).unwrap();
            let real = folder.canonicalize().unwrap();
            assert_eq!(watch.folders, BTreeSet::from([real.clone(), real.join("v1")]));
            std::os::unix::fs::symlink("v2", folder.join("next")).unwrap();
            std::fs::rename(folder.join("next"), folder.join("current")).unwrap();
            tokio::time::timeout(Duration::from_secs(10), watch.changed()).await.unwrap();
            assert_eq!(watch.folders, BTreeSet::from([real.clone(), real.join("v2")]));
        });
        std::fs::remove_dir_all(folder).unwrap();
    }
}
