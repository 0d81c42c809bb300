//! Programs that the bench starts: pinned, logged, and stopped again whatever happens to the bench.
//!
//! Every started process is in a register until it has ended. Dropping a `Process` (also while a panic unwinds) and the
//! signals INT, TERM and HUP end all of them, by process id and with their descendants.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::error::{Error, Result};
use crate::pause::{POLL, pause};
use crate::pin::{Cpus, pin_to};
use crate::proc_stat;

/// How long a program may take to end after it was asked to, before it is killed.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// Lines of a program's log that an error message shows.
const LOG_TAIL_LINES: usize = 15;

/// Processes to end and directories to remove should the bench be interrupted.
struct Register {
    processes: Vec<u32>,
    directories: Vec<PathBuf>,
}

static REGISTER: Mutex<Register> = Mutex::new(Register { processes: Vec::new(), directories: Vec::new() });

/// A running program of the bench.
pub struct Process {
    child: Child,
    name: String,
    log: PathBuf,
    started: Instant,
}

impl Process {
    /// Starts `command` on the CPU; its output goes to `log`.
    pub fn start(name: &str, mut command: Command, cpu: usize, cpus: Cpus, log: &Path) -> Result<Self> {
        let output = File::create(log).map_err(Error::io(format!("creating {}", log.display())))?;
        let errors = output.try_clone().map_err(Error::io("sharing a log file"))?;
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        pin_to(cpu)?;
        let started = Instant::now();
        let spawned = command.spawn();
        pin_to(cpus.load)?;
        let child = spawned.map_err(Error::io(format!("starting {name}")))?;
        register().processes.push(child.id());
        Ok(Self { child, name: name.to_owned(), log: log.to_owned(), started })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// When it was started.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// The process and its descendants.
    pub fn tree(&self) -> Vec<u32> {
        proc_stat::tree(self.child.id())
    }

    /// An error with the end of the log if the program is no longer there.
    pub fn check_running(&mut self) -> Result<()> {
        match self.child.try_wait().map_err(Error::io(format!("waiting for {}", self.name)))? {
            None => Ok(()),
            Some(status) => Err(Error::Ended { name: self.name.clone(), status, log: self.log_tail() }),
        }
    }

    /// Waits for a program that ends by itself.
    pub fn finish(mut self, patience: Duration) -> Result<ExitStatus> {
        self.wait(patience)
    }

    /// Asks the program to end, kills it if it does not.
    pub fn stop(mut self) -> Result<ExitStatus> {
        terminate(self.child.id());
        self.wait(STOP_PATIENCE)
    }

    /// Asks only the descendants to end (the program is a tracer that ends after them).
    pub fn stop_traced(mut self, patience: Duration) -> Result<ExitStatus> {
        for pid in self.tree().into_iter().skip(1) {
            terminate(pid);
        }
        self.wait(patience)
    }

    /// Asks the program to end and gives it this long (a program under valgrind writes its results then).
    pub fn stop_within(mut self, patience: Duration) -> Result<ExitStatus> {
        terminate(self.child.id());
        self.wait(patience)
    }

    pub fn log_tail(&self) -> String {
        let text = fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }

    fn wait(&mut self, patience: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + patience;
        loop {
            match self.child.try_wait().map_err(Error::io(format!("waiting for {}", self.name)))? {
                Some(status) => return Ok(status),
                None if Instant::now() >= deadline => {
                    let log = self.log_tail();
                    kill_tree(self.child.id());
                    let status = self.child.wait().map_err(Error::io(format!("waiting for {}", self.name)))?;
                    return Err(Error::Ended {
                        name: self.name.clone(),
                        status,
                        log: format!("{log}\n(killed: it did not end within {} s)", patience.as_secs()),
                    });
                }
                None => pause(POLL),
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            kill_tree(self.child.id());
            let _ = self.child.wait();
        }
        register().processes.retain(|&pid| pid != self.child.id());
    }
}

/// A directory of the run, removed at its end.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn create() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("postrider-bench-{}", std::process::id()));
        fs::create_dir(&path).map_err(|cause| match cause.kind() {
            std::io::ErrorKind::AlreadyExists => Error::Occupied(path.clone()),
            _ => Error::Io { doing: format!("creating {}", path.display()), cause },
        })?;
        register().directories.push(path.clone());
        Ok(Self(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A new empty directory inside.
    pub fn subdirectory(&self, name: &str) -> Result<PathBuf> {
        let path = self.0.join(name);
        if path.exists() {
            fs::remove_dir_all(&path).map_err(Error::io(format!("emptying {}", path.display())))?;
        }
        fs::create_dir(&path).map_err(Error::io(format!("creating {}", path.display())))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
        register().directories.retain(|path| *path != self.0);
    }
}

/// From now on an interrupt ends everything that was started and then the bench itself.
pub fn stop_everything_on_signals() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::io("building the signal runtime"))?;
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            runtime.block_on(async {
                use tokio::signal::unix::{SignalKind, signal};
                let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
                let mut waits = tokio::task::JoinSet::new();
                for kind in kinds {
                    if let Ok(mut stream) = signal(kind) {
                        waits.spawn(async move { stream.recv().await });
                    }
                }
                waits.join_next().await;
            });
            let mut register = register();
            for pid in register.processes.drain(..) {
                kill_tree(pid);
            }
            for directory in register.directories.drain(..) {
                let _ = fs::remove_dir_all(directory);
            }
            eprintln!("\ninterrupted: everything that was started is stopped");
            // The register stays locked, so that no further process can be started.
            std::process::exit(130);
        })
        .map_err(Error::io("starting the signal thread"))?;
    Ok(())
}

fn register() -> MutexGuard<'static, Register> {
    REGISTER.lock().unwrap_or_else(PoisonError::into_inner)
}

fn terminate(pid: u32) {
    send(pid, Signal::TERM);
}

fn kill_tree(root: u32) {
    for pid in proc_stat::tree(root) {
        send(pid, Signal::KILL);
    }
}

fn send(pid: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid as i32) {
        // An error means that it has ended already.
        let _ = kill_process(pid, signal);
    }
}
