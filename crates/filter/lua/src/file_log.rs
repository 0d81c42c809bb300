//! Log files of plugins: a thread appends, so that a slow disk stops no worker.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use postrider_telemetry::warning;

/// Entries that may wait for the disk; what comes beyond is dropped, and that is told.
const QUEUE: usize = 4096;

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
    let mut files: HashMap<PathBuf, Option<File>> = HashMap::new();
    let mut reopened = 0;
    for (path, bytes) in entries {
        let asked = REOPENED.load(Ordering::Relaxed);
        if asked != reopened {
            reopened = asked;
            files.clear();
        }
        if bytes.is_empty() {
            continue;
        }
        let file = files.entry(path).or_insert_with_key(|path| {
            let opened = OpenOptions::new().append(true).create(true).open(path);
            opened.inspect_err(|error| warning!(Filter, "cannot open {}: {error}", path.display())).ok()
        });
        if let Some(open) = file
            && open.write_all(&bytes).is_err()
        {
            *file = None;
        }
    }
}
