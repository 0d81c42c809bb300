//! Notices that the configuration file changed: edited in place, replaced, or swapped behind a symbolic link as
//! Kubernetes does with mounted config maps.
//!
//! The folders that lead to the file are watched, not the file: a rename or a new link target is an event there. What
//! counts in the end is whether the content differs from what was read last, so events that mean nothing cost a read.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;

/// Changes that come closer together than this are one: editors and copies write in steps.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// Watches one file. Dropping it ends the watch.
pub struct FileWatch {
    path: PathBuf,
    events: mpsc::Receiver<()>,
    watcher: RecommendedWatcher,
    folders: BTreeSet<PathBuf>,
}

impl FileWatch {
    /// # Errors
    /// The system cannot watch, or the folder is gone.
    pub fn new(path: &Path) -> notify::Result<FileWatch> {
        let (sender, events) = mpsc::channel(1);
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            if event.is_ok_and(|event| !event.kind.is_access()) {
                // One that waits already says the same.
                let _ = sender.try_send(());
            }
        })?;
        let mut watch = FileWatch { path: path.to_owned(), events, watcher, folders: BTreeSet::new() };
        watch.follow_links()?;
        Ok(watch)
    }

    /// Waits until something happened and then nothing for a moment.
    pub async fn changed(&mut self) {
        if self.events.recv().await.is_none() {
            // The watcher is part of this struct: this cannot end while somebody waits.
            return std::future::pending().await;
        }
        while tokio::time::timeout(DEBOUNCE, self.events.recv()).await.is_ok_and(|event| event.is_some()) {}
        // The links may lead elsewhere now. A folder that cannot be watched leaves the others.
        let _ = self.follow_links();
    }

    /// Watches the folder of the file and of everything that its links lead over.
    fn follow_links(&mut self) -> notify::Result<()> {
        let mut path = self.path.clone();
        // As many links as the kernel follows.
        for _ in 0..40 {
            let folder = match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
                _ => PathBuf::from("."),
            };
            if !self.folders.contains(&folder) {
                self.watcher.watch(&folder, RecursiveMode::NonRecursive)?;
                self.folders.insert(folder.clone());
            }
            if let Ok(real) = folder.canonicalize()
                && real != folder
                && !self.folders.contains(&real)
            {
                self.watcher.watch(&real, RecursiveMode::NonRecursive)?;
                self.folders.insert(real);
            }
            match std::fs::read_link(&path) {
                Ok(target) => path = folder.join(target),
                Err(_) => break,
            }
        }
        Ok(())
    }
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
            let mut watch = FileWatch::new(&folder.join("proxy.yaml")).unwrap();
            std::os::unix::fs::symlink("v2", folder.join("..next")).unwrap();
            std::fs::rename(folder.join("..next"), folder.join("..data")).unwrap();
            tokio::time::timeout(Duration::from_secs(10), watch.changed()).await.unwrap();
            assert_eq!(std::fs::read_to_string(folder.join("proxy.yaml")).unwrap(), "v2");
            std::fs::write(folder.join("v2").join("proxy.yaml"), "v3").unwrap();
            tokio::time::timeout(Duration::from_secs(10), watch.changed()).await.unwrap();
        });
        std::fs::remove_dir_all(folder).unwrap();
    }
}
