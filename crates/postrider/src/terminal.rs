//! What people and scripts see: results on standard output, everything else on standard error, colour and progress only
//! where a terminal shows them.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::exit::Exit;

/// Work that takes longer than this says that it goes on.
const PROGRESS_AFTER: Duration = Duration::from_secs(1);

/// How often the line of progress is drawn anew.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// The form of a command's result (`--output`).
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    #[default]
    Text,
    Json,
}

/// Writes a result. A reader that went away (`| head`) is no failure of ours.
pub fn print(text: &str) -> Exit {
    match io::stdout().lock().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        Ok(()) => Exit::Done,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Done,
        Err(error) => fail(format_args!("cannot write to standard output: {error}")),
    }
}

/// Writes a value as indented JSON and a line break.
pub fn print_json(value: &serde_json::Value) -> Exit {
    print(&format!("{value:#}\n"))
}

/// Says what went wrong at run time.
pub fn fail(message: impl std::fmt::Display) -> Exit {
    eprintln!("error: {message}");
    Exit::Failed
}

/// Whether what goes to standard output may have colours (<https://no-color.org>).
pub fn stdout_colour() -> bool {
    colour_allowed() && io::stdout().is_terminal()
}

/// Whether what goes to standard error may have colours.
pub fn stderr_colour() -> bool {
    colour_allowed() && io::stderr().is_terminal()
}

fn colour_allowed() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Does `work`, and on a terminal shows `what` with the seconds gone once it takes longer than a second.
pub fn with_progress<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let _progress = io::stderr().is_terminal().then(|| Progress::start(what.to_owned()));
    work()
}

/// Draws until it is dropped.
struct Progress {
    done: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    fn start(what: String) -> Progress {
        let (done, ended) = mpsc::sync_channel(1);
        let started = Instant::now();
        let thread = std::thread::spawn(move || {
            let mut wait = PROGRESS_AFTER;
            let mut drawn = false;
            while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                eprint!("\r{what}… {} s", started.elapsed().as_secs());
                (drawn, wait) = (true, PROGRESS_EVERY);
            }
            if drawn {
                eprint!("\r\x1b[K");
            }
        });
        Progress { done: Some(done), thread: Some(thread) }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.done.take());
        if let Some(thread) = self.thread.take() {
            // A panic there has only cost a line of progress.
            let _ = thread.join();
        }
    }
}
