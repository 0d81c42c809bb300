//! Access log sinks: workers gather lines, one thread writes all files.
//!
//! A worker appends to its own [`LogBuffer`] and hands it over when it is full or a flush is due; it never touches a file
//! and never waits. The queue is bounded: when the disk is slower than the traffic, lines are dropped and counted. Buffers
//! come back through a pool, so nothing is allocated in the steady state. Files are opened for appending, and again when
//! an operator has moved them away (SIGUSR1).

use crate::stats::sets::{access_log, filesystem};
use crate::stats::{Block, Registry};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A buffer that holds this much is handed over without waiting for the next flush. As much as in Envoy: each hand-over wakes
/// the writer, which may interrupt a worker.
pub const HAND_OVER_BYTES: usize = 64 * 1024;
/// Buffers that may wait for the writer, of all workers and files together; what comes beyond is dropped.
pub const QUEUE_BUFFERS: usize = 64;
/// Empty buffers kept for each file; more than its workers can have under way at once only after a burst.
const POOLED_BUFFERS: usize = 8;
/// A buffer that one huge line has grown beyond this is not kept.
const POOLED_CAPACITY: usize = 2 * HAND_OVER_BYTES;
/// How long a line may wait in a worker's buffer. Envoy waits ten seconds (`--file-flush-interval-msec`); an operator who
/// follows a log expects to see what just happened.
pub const DEFAULT_FLUSH_INTERVAL: Duration = Duration::from_secs(1);
/// How often dropped lines are brought into the statistics when nothing is written.
const TALLY_INTERVAL: Duration = Duration::from_secs(1);

/// Where lines go.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// `/dev/stdout` and `/dev/stderr` mean the process's own streams, open or not.
    Path(PathBuf),
    Stdout,
    Stderr,
}

/// The writer thread and what it serves. Lines handed over before [`LogWriter::shutdown`] are written.
#[derive(Debug)]
pub struct LogWriter {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// One sink, for all workers; the file is closed when the last clone and the last buffer are gone.
#[derive(Debug, Clone)]
pub struct LogFile {
    sink: Arc<Sink>,
    shared: Arc<Shared>,
}

/// One worker's lines for one sink.
#[derive(Debug)]
pub struct LogBuffer {
    file: LogFile,
    bytes: Vec<u8>,
    lines: u64,
}

impl LogWriter {
    /// Starts the writer thread. Fails when the system refuses a thread. `flush_interval` is what
    /// [`LogFile::flush_interval`] tells the workers.
    pub fn start(registry: &Registry, flush_interval: Duration) -> io::Result<Self> {
        let (queue, incoming) = sync_channel(QUEUE_BUFFERS);
        let shared = Arc::new(Shared {
            queue,
            flush_interval,
            reopen: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            sinks: Mutex::default(),
        });
        let (registry, of_thread) = (registry.clone(), shared.clone());
        let thread = std::thread::Builder::new()
            .name("access-log".into())
            .spawn(move || Writer::new(&registry, of_thread).run(&incoming))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// The sink for `target`, opened now if nobody has it open: an error here refuses the configuration that named it.
    pub fn open(&self, target: Target) -> io::Result<LogFile> {
        let target = match target {
            Target::Path(path) if path == Path::new("/dev/stdout") => Target::Stdout,
            Target::Path(path) if path == Path::new("/dev/stderr") => Target::Stderr,
            other => other,
        };
        let mut sinks = self.shared.sinks.lock().unwrap_or_else(PoisonError::into_inner);
        sinks.retain(|sink| sink.strong_count() > 0);
        let known = sinks.iter().filter_map(Weak::upgrade).find(|sink| sink.target == target);
        let sink = match known {
            Some(sink) => sink,
            None => {
                let output = Output::open(&target)?;
                let sink = Arc::new(Sink { target, output: Mutex::new(output), pool: Mutex::default() });
                sinks.push(Arc::downgrade(&sink));
                sink
            }
        };
        Ok(LogFile { sink, shared: self.shared.clone() })
    }

    /// Opens every file again before its next line is written. A file that cannot be opened stays as it is and counts in
    /// `filesystem.reopen_failed`.
    pub fn reopen(&self) {
        self.shared.reopen.fetch_add(1, Relaxed);
        // Only wakes the thread: when the queue is full it is awake.
        let _ = self.shared.queue.try_send(Message::Wake);
    }

    /// Lines that were dropped because the queue was full or a write failed.
    pub fn dropped_lines(&self) -> u64 {
        self.shared.dropped.load(Relaxed)
    }

    /// Writes what was handed over until now and ends the thread. Workers flush their buffers before; what they hand over
    /// later is dropped and counted.
    pub fn shutdown(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // Waits for room in the queue; an error means that the thread is gone.
            let _ = self.shared.queue.send(Message::Stop);
            let _ = thread.join();
        }
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.stop();
    }
}

impl LogFile {
    /// A worker's buffer for this sink.
    pub fn buffer(&self) -> LogBuffer {
        LogBuffer { file: self.clone(), bytes: Vec::new(), lines: 0 }
    }

    /// How often a worker calls [`LogBuffer::flush`].
    pub fn flush_interval(&self) -> Duration {
        self.shared.flush_interval
    }
}

impl LogBuffer {
    /// Appends what `write` appends, which should be one line with its line break, and hands the buffer over when it is
    /// full.
    #[inline]
    pub fn line(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.bytes.capacity() == 0 {
            self.bytes = self.file.sink.empty_buffer();
        }
        write(&mut self.bytes);
        self.lines += 1;
        if self.bytes.len() >= HAND_OVER_BYTES {
            self.hand_over(false);
        }
    }

    /// Hands over what is there: call it once per [`LogFile::flush_interval`] and before ending.
    pub fn flush(&mut self) {
        self.hand_over(true);
    }

    fn hand_over(&mut self, by_timer: bool) {
        if self.bytes.is_empty() {
            return;
        }
        let bytes = std::mem::take(&mut self.bytes);
        let lines = std::mem::take(&mut self.lines);
        let shared = &self.file.shared;
        shared.waiting.fetch_add(bytes.len() as u64, Relaxed);
        let message = Message::Lines { sink: self.file.sink.clone(), bytes, lines, by_timer };
        if let Err(TrySendError::Full(message) | TrySendError::Disconnected(message)) = shared.queue.try_send(message) {
            shared.dropped.fetch_add(lines, Relaxed);
            if let Message::Lines { mut bytes, .. } = message {
                shared.waiting.fetch_sub(bytes.len() as u64, Relaxed);
                bytes.clear();
                self.bytes = bytes;
            }
        }
    }

    /// Whether lines wait for the next flush.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl Drop for LogBuffer {
    fn drop(&mut self) {
        self.flush();
    }
}

#[derive(Debug)]
struct Shared {
    queue: SyncSender<Message>,
    flush_interval: Duration,
    /// Counts the requests to reopen; the thread remembers which it has followed.
    reopen: AtomicU64,
    dropped: AtomicU64,
    /// Bytes in the queue.
    waiting: AtomicU64,
    sinks: Mutex<Vec<Weak<Sink>>>,
}

#[derive(Debug)]
struct Sink {
    target: Target,
    /// Locked by the writer thread only, but for the moment of opening.
    output: Mutex<Output>,
    pool: Mutex<Vec<Vec<u8>>>,
}

#[derive(Debug)]
enum Message {
    Lines { sink: Arc<Sink>, bytes: Vec<u8>, lines: u64, by_timer: bool },
    Wake,
    Stop,
}

#[derive(Debug)]
enum Output {
    File(File),
    Stdout,
    Stderr,
}

impl Output {
    fn open(target: &Target) -> io::Result<Self> {
        match target {
            Target::Path(path) => Ok(Self::File(append(path)?)),
            Target::Stdout => Ok(Self::Stdout),
            Target::Stderr => Ok(Self::Stderr),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::File(file) => file.write_all(bytes),
            Self::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(bytes).and_then(|()| stdout.flush())
            }
            Self::Stderr => io::stderr().write_all(bytes),
        }
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

impl Sink {
    /// From the pool, unless the writer is just returning one: a worker does not wait for it.
    fn empty_buffer(&self) -> Vec<u8> {
        let pooled = self.pool.try_lock().ok().and_then(|mut pool| pool.pop());
        // Room for the line that makes it full, so that it need not grow.
        pooled.unwrap_or_else(|| Vec::with_capacity(HAND_OVER_BYTES + HAND_OVER_BYTES / 4))
    }

    fn give_back(&self, mut bytes: Vec<u8>) {
        bytes.clear();
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if pool.len() < POOLED_BUFFERS && bytes.capacity() <= POOLED_CAPACITY {
            pool.push(bytes);
        }
    }
}

/// The thread's side.
struct Writer {
    shared: Arc<Shared>,
    files: Rc<Block>,
    drops: Rc<Block>,
    reopened: u64,
}

impl Writer {
    fn new(registry: &Registry, shared: Arc<Shared>) -> Self {
        let stats = registry.worker(u32::MAX);
        let (files, drops) = (stats.block(&filesystem::SET, ""), stats.block(&access_log::SET, ""));
        Self { shared, files, drops, reopened: 0 }
    }

    fn run(mut self, incoming: &Receiver<Message>) {
        let mut last_tally = Instant::now();
        loop {
            let message = incoming.recv_timeout(TALLY_INTERVAL);
            self.reopen_if_asked();
            match message {
                Ok(Message::Lines { sink, bytes, lines, by_timer }) => self.write(&sink, bytes, lines, by_timer),
                Ok(Message::Wake) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => break,
            }
            if last_tally.elapsed() >= TALLY_INTERVAL {
                self.tally();
                last_tally = Instant::now();
            }
        }
        self.tally();
    }

    fn write(&self, sink: &Arc<Sink>, bytes: Vec<u8>, lines: u64, by_timer: bool) {
        let mut output = sink.output.lock().unwrap_or_else(PoisonError::into_inner);
        self.files.inc(filesystem::WRITE_BUFFERED);
        if by_timer {
            self.files.inc(filesystem::FLUSHED_BY_TIMER);
        }
        match output.write_all(&bytes) {
            Ok(()) => self.files.inc(filesystem::WRITE_COMPLETED),
            Err(error) => {
                self.files.inc(filesystem::WRITE_FAILED);
                self.shared.dropped.fetch_add(lines, Relaxed);
                crate::error!(File, "cannot write {lines} lines to {:?}: {error}", sink.target);
            }
        }
        drop(output);
        self.shared.waiting.fetch_sub(bytes.len() as u64, Relaxed);
        sink.give_back(bytes);
    }

    fn reopen_if_asked(&mut self) {
        let asked = self.shared.reopen.load(Relaxed);
        if asked == self.reopened {
            return;
        }
        self.reopened = asked;
        let sinks = self.shared.sinks.lock().unwrap_or_else(PoisonError::into_inner);
        for sink in sinks.iter().filter_map(Weak::upgrade) {
            let mut output = sink.output.lock().unwrap_or_else(PoisonError::into_inner);
            if let (Output::File(file), Target::Path(path)) = (&mut *output, &sink.target) {
                match append(path) {
                    Ok(new) => *file = new,
                    Err(error) => {
                        self.files.inc(filesystem::REOPEN_FAILED);
                        crate::warning!(File, "cannot reopen {}: {error}", path.display());
                    }
                }
            }
        }
    }

    fn tally(&self) {
        let dropped = self.shared.dropped.load(Relaxed);
        self.drops.add(access_log::LINES_DROPPED, dropped.wrapping_sub(self.drops.value(access_log::LINES_DROPPED)));
        self.files.gauge_set(filesystem::WRITE_TOTAL_BUFFERED, self.shared.waiting.load(Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("postrider-access-log-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn file(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn writer() -> (Registry, LogWriter) {
        let registry = Registry::new();
        let writer = LogWriter::start(&registry, DEFAULT_FLUSH_INTERVAL).unwrap();
        (registry, writer)
    }

    fn total(registry: &Registry, set: &'static crate::StatSet, name: &str) -> u64 {
        let at = set.cells.iter().position(|stat| stat.name == name).unwrap();
        registry.read(&[]).iter().filter(|scope| scope.set == set).map(|scope| scope.cells[at]).sum()
    }

    #[test]
    fn lines_of_several_workers_arrive_whole_and_in_order() {
        let folder = Folder::new("order");
        let (registry, writer) = writer();
        let file = writer.open(Target::Path(folder.file("a.log"))).unwrap();
        let same = writer.open(Target::Path(folder.file("a.log"))).unwrap();
        assert!(Arc::ptr_eq(&file.sink, &same.sink), "one path is one sink");
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let file = file.clone();
                scope.spawn(move || {
                    let mut buffer = file.buffer();
                    for n in 0..20_000 {
                        buffer.line(|out| writeln!(out, "{worker} {n}").unwrap());
                    }
                });
            }
        });
        writer.shutdown();
        let text = fs::read_to_string(folder.file("a.log")).unwrap();
        let mut next = [0; 4];
        for line in text.lines() {
            let (worker, n) = line.split_once(' ').unwrap();
            let worker: usize = worker.parse().unwrap();
            assert_eq!(n.parse::<u32>().unwrap(), next[worker]);
            next[worker] += 1;
        }
        assert_eq!(next, [20_000; 4]);
        assert_eq!(total(&registry, &access_log::SET, "lines_dropped"), 0);
        let written = total(&registry, &filesystem::SET, "write_completed");
        assert!((8..=16).contains(&written), "{written} hand-overs for 4 x 150 KB");
        assert_eq!(total(&registry, &filesystem::SET, "flushed_by_timer"), 4, "the last one of each worker");
    }

    #[test]
    fn a_moved_file_is_opened_again_when_asked() {
        let folder = Folder::new("reopen");
        let (_, writer) = writer();
        let path = folder.file("b.log");
        let file = writer.open(Target::Path(path.clone())).unwrap();
        let mut buffer = file.buffer();
        buffer.line(|out| out.extend_from_slice(b"old\n"));
        buffer.flush();
        // The writer has handled the first line once its buffer is back.
        while file.sink.pool.lock().unwrap().is_empty() {
            std::thread::yield_now();
        }
        fs::rename(&path, folder.file("b.log.1")).unwrap();
        writer.reopen();
        buffer.line(|out| out.extend_from_slice(b"new\n"));
        drop(buffer);
        writer.shutdown();
        assert_eq!(fs::read_to_string(folder.file("b.log.1")).unwrap(), "old\n");
        assert_eq!(fs::read_to_string(path).unwrap(), "new\n");
    }

    #[test]
    fn a_stuck_disk_costs_lines_and_never_time() {
        let folder = Folder::new("stuck");
        let (registry, writer) = writer();
        let file = writer.open(Target::Path(folder.file("c.log"))).unwrap();
        let stuck = file.sink.output.lock().unwrap();
        let mut buffer = file.buffer();
        for _ in 0..2 * QUEUE_BUFFERS {
            buffer.line(|out| out.resize(HAND_OVER_BYTES, b'x'));
        }
        let dropped = writer.dropped_lines();
        assert!(dropped >= QUEUE_BUFFERS as u64 - 1, "{dropped} dropped");
        drop(stuck);
        writer.shutdown();
        let kept = fs::metadata(folder.file("c.log")).unwrap().len() / HAND_OVER_BYTES as u64;
        assert_eq!(kept + dropped, 2 * QUEUE_BUFFERS as u64);
        assert_eq!(total(&registry, &access_log::SET, "lines_dropped"), dropped);
        buffer.line(|out| out.push(b'x'));
        buffer.flush();
        assert_eq!(buffer.file.shared.dropped.load(Relaxed), dropped + 1, "after the end, dropped and counted");
    }

    #[test]
    fn buffers_go_round() {
        let folder = Folder::new("pool");
        let (_, writer) = writer();
        let file = writer.open(Target::Path(folder.file("d.log"))).unwrap();
        let mut buffer = file.buffer();
        for _ in 0..100 {
            buffer.line(|out| out.resize(HAND_OVER_BYTES, b'x'));
            while file.sink.pool.lock().unwrap().is_empty() {
                std::thread::yield_now();
            }
        }
        assert_eq!(file.sink.pool.lock().unwrap().len(), 1, "the same buffer each time");
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_refused() {
        let (_, writer) = writer();
        let error = writer.open(Target::Path("/nonexistent-folder/x.log".into())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let stdout = writer.open(Target::Path("/dev/stdout".into())).unwrap();
        assert_eq!(stdout.sink.target, Target::Stdout);
    }
}
