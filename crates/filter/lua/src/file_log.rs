//! Log files of plugins: a thread appends, so that a slow disk stops no worker.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use postrider_telemetry::warning;

/// Entries that may wait for the disk; what comes beyond is dropped, and that is told.
const QUEUE: usize = 4096;

/// How long a file that could not be opened or written to is left alone: its folder may come, and a disk gets room again.
const RETRY: Duration = Duration::from_secs(1);

type Entry = (PathBuf, Vec<u8>);

/// How often it was asked to open the files again.
static REOPENED: AtomicU64 = AtomicU64::new(0);

static WRITER: OnceLock<Option<SyncSender<Entry>>> = OnceLock::new();

/// Files are opened again by their names, because somebody renamed them.
pub fn reopen_logs() {
    REOPENED.fetch_add(1, Ordering::Relaxed);
    // Nothing to write, so that the old files are closed at once; when the queue is full the thread sees it anyway.
    if let Some(Some(writer)) = WRITER.get() {
        let _ = writer.try_send(Entry::default());
    }
}

/// One plugin's file.
pub(crate) struct FileLog {
    path: PathBuf,
}

impl FileLog {
    /// The file is opened with the first entry.
    pub(crate) fn open(path: &Path) -> FileLog {
        FileLog { path: path.to_owned() }
    }

    pub(crate) fn append(&self, bytes: &[u8]) {
        let Some(writer) = writer() else { return };
        if let Err(TrySendError::Full(_)) = writer.try_send((self.path.clone(), bytes.to_vec())) {
            warning!(Filter, "{}: the disk is too slow, entries are dropped", self.path.display());
        }
    }
}

fn writer() -> Option<&'static SyncSender<Entry>> {
    let writer = WRITER.get_or_init(|| {
        let (sender, receiver) = sync_channel(QUEUE);
        let thread = std::thread::Builder::new().name("plugin-logs".to_owned()).spawn(move || write(&receiver));
        thread.ok().map(|_| sender)
    });
    writer.as_ref()
}

fn write(entries: &Receiver<Entry>) {
    let mut files = Files::default();
    let mut reopened = 0;
    for (path, bytes) in entries {
        let asked = REOPENED.load(Ordering::Relaxed);
        if asked != reopened {
            reopened = asked;
            files = Files::default();
        }
        if !bytes.is_empty() {
            files.append(path, &bytes, Instant::now());
        }
    }
}

/// The files that are written to.
#[derive(Default)]
struct Files(HashMap<PathBuf, Opened>);

/// A file, or when it last turned out that there is none.
enum Opened {
    File(File),
    Failed(Instant),
}

impl Files {
    /// What a file could not take is dropped; the file is opened anew then, once in [`RETRY`].
    fn append(&mut self, path: PathBuf, bytes: &[u8], now: Instant) {
        if let Some(Opened::Failed(at)) = self.0.get(&path)
            && now.saturating_duration_since(*at) < RETRY
        {
            return;
        }
        let opened = match self.0.remove(&path) {
            Some(Opened::File(file)) => Ok(file),
            Some(Opened::Failed(_)) | None => OpenOptions::new().append(true).create(true).open(&path),
        };
        let written = opened.and_then(|mut file| file.write_all(bytes).map(|()| file));
        let after = written.map(Opened::File).unwrap_or_else(|error| {
            warning!(Filter, "cannot write to {}: {error}", path.display());
            Opened::Failed(now)
        });
        self.0.insert(path, after);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_could_not_be_written_to_is_tried_again() {
        let folder = std::env::temp_dir().join(format!("postrider-file-log-{}", std::process::id()));
        let path = folder.join("log");
        let (mut files, began) = (Files::default(), Instant::now());
        files.append(path.clone(), b"nowhere\n", began);
        std::fs::create_dir_all(&folder).unwrap();
        // A disk without room.
        std::os::unix::fs::symlink("/dev/full", &path).unwrap();
        files.append(path.clone(), b"soon\n", began);
        files.append(path.clone(), b"full\n", began + RETRY);
        std::fs::remove_file(&path).unwrap();
        files.append(path.clone(), b"soon again\n", began + RETRY);
        files.append(path.clone(), b"one\n", began + RETRY * 2);
        files.append(path.clone(), b"two\n", began + RETRY * 2);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
