//! A file for each trace, written by one thread for all taps of the process.
//!
//! It starts with the first trace. Nothing on a worker waits for it: traces beyond [`QUEUE_TRACES`] are lost and counted.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use postrider_grpc::tap::TraceWrapper;
use postrider_telemetry::{error, warning};

use super::format::Format;
use super::outlet::{Waiting, Weight};

/// Traces that may wait for the thread; what comes beyond is lost.
const QUEUE_TRACES: usize = 256;

/// How long [`finish`] waits for those that do wait.
const FINISH: Duration = Duration::from_secs(5);

/// The queue to the thread; `None` when the system refused it. One for the process: a disk is no faster for having several.
static QUEUE: OnceLock<Option<SyncSender<Job>>> = OnceLock::new();

/// Files that begin with the same path.
#[derive(Debug)]
pub(super) struct Files {
    prefix: String,
    format: Format,
    waiting: Waiting,
    /// Traces that could not be written and are not counted yet.
    failed: Arc<AtomicU64>,
}

enum Job {
    Write(Box<Writing>),
    /// Answered when everything before it is written.
    Answer(SyncSender<()>),
}

struct Writing {
    path: PathBuf,
    is_first: bool,
    trace: TraceWrapper,
    format: Format,
    /// Where a failure is noted.
    failed: Arc<AtomicU64>,
    _weight: Weight,
}

impl Files {
    pub(super) fn new(prefix: &str, format: Format) -> Files {
        Files { prefix: prefix.to_owned(), format, waiting: Waiting::default(), failed: Arc::default() }
    }

    /// As [`super::outlet::Outlet::submit`]: what failed earlier counts as well.
    pub(super) fn submit(&self, number: u64, is_first: bool, trace: TraceWrapper) -> u64 {
        let failed = if self.failed.load(Relaxed) == 0 { 0 } else { self.failed.swap(0, Relaxed) };
        let Some(weight) = self.waiting.weigh(&trace) else { return failed + 1 };
        let writing = Writing {
            path: PathBuf::from(format!("{}_{number}.{}", self.prefix, self.format.extension())),
            is_first,
            trace,
            format: self.format,
            failed: self.failed.clone(),
            _weight: weight,
        };
        let queued = |queue: &SyncSender<Job>| queue.try_send(Job::Write(Box::new(writing))).is_ok();
        match QUEUE.get_or_init(start).as_ref().is_some_and(queued) {
            true => failed,
            false => failed + 1,
        }
    }
}

/// Waits until the traces that were handed over are in their files. For the end of the process.
pub fn finish() {
    let Some(Some(queue)) = QUEUE.get() else { return };
    let (done, answer) = sync_channel(1);
    // Waits for room; an error means that the thread is gone.
    if queue.send(Job::Answer(done)).is_ok() {
        let _ = answer.recv_timeout(FINISH);
    }
}

fn start() -> Option<SyncSender<Job>> {
    let (queue, jobs) = sync_channel(QUEUE_TRACES);
    let thread = std::thread::Builder::new().name("tap-files".into()).spawn(move || run(&jobs));
    thread.map_err(|error| error!(Filter, "no thread for the files of taps: {error}")).ok()?;
    Some(queue)
}

fn run(jobs: &Receiver<Job>) {
    // The log tells of the first failure of a row.
    let mut failing = false;
    for job in jobs {
        match job {
            Job::Write(writing) => {
                let Writing { path, is_first, trace, format, failed, _weight } = *writing;
                let written = write(&path, is_first, &format.write(&trace));
                if let Err(error) = &written {
                    failed.fetch_add(1, Relaxed);
                    if !failing {
                        warning!(Filter, "a trace cannot be written to {}: {error}", path.display());
                    }
                }
                failing = written.is_err();
            }
            Job::Answer(done) => {
                // Whoever waited too long is gone.
                let _ = done.try_send(());
            }
        }
    }
}

fn write(path: &Path, is_first: bool, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.create(true);
    match is_first {
        true => options.write(true).truncate(true),
        false => options.append(true),
    };
    options.open(path)?.write_all(bytes)
}
