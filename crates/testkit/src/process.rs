//! Child processes that end with the test: the proxy under test, peers such as
//! nginx, and finite tools. Never ends a process it did not start.

use crate::{DEADLINE, net, wait_until};
use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

/// A running child, killed by its own pid on drop.
pub struct Running {
    child: Child,
    status: Option<ExitStatus>,
}

impl Running {
    pub fn spawn(command: &mut Command) -> Self {
        let child = command.stdin(Stdio::null()).spawn().unwrap_or_else(|error| panic!("spawn {command:?}: {error}"));
        Self { child, status: None }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The exit status, once the process has ended.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().expect("wait");
        }
        self.status
    }

    /// Waits for the process to end by itself.
    pub fn wait(&mut self) -> ExitStatus {
        wait_until("process exit", || self.exited().is_some());
        self.status.expect("exited")
    }

    /// Sends a signal by name, such as `TERM` or `HUP`.
    pub fn signal(&mut self, name: &str) {
        if self.exited().is_none() {
            signal(self.pid(), name);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.exited().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The processes that one started and that are still there, by what stands in `/proc`.
pub fn children(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let all = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let numbers = |some: String| some.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>();
    all.flat_map(numbers).collect()
}

/// Sends a signal by name to a process of ours, through the shell's built-in.
pub fn signal(pid: u32, name: &str) {
    let status = Command::new("sh").arg("-c").arg(format!("kill -{name} {pid}")).status();
    assert!(status.expect("sh").success(), "kill -{name} {pid}");
}

/// Has the system stop a process of ours, and waits until none of its threads runs any more.
pub fn stop(pid: u32) {
    signal(pid, "STOP");
    // The state follows the name, which is in parentheses and may hold anything.
    let is_stopped = |thread: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    };
    wait_until("the process is stopped", || {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("its threads");
        threads.flatten().all(is_stopped)
    });
}

/// What a finished command left behind.
#[derive(Debug)]
pub struct Finished {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs a command to its end; panics when it takes longer than three
/// deadlines.
pub fn run(command: &mut Command) -> Finished {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("spawn {command:?}: {error}"));
    let mut stdout = child.stdout.take().expect("stdout");
    let mut stderr = child.stderr.take().expect("stderr");
    let errors = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stderr.read_to_end(&mut bytes).expect("stderr");
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let output = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stdout.read_to_end(&mut bytes).expect("stdout");
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let deadline = Instant::now() + DEADLINE * 3;
    let status = loop {
        if let Some(status) = child.try_wait().expect("wait") {
            break status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            panic!("{command:?} did not end");
        }
        net::pause();
    };
    Finished {
        code: status.code(),
        stdout: output.join().expect("stdout thread"),
        stderr: errors.join().expect("stderr thread"),
    }
}

/// Where a program is on `PATH`, or in the places where Debian keeps servers.
pub fn program(name: impl AsRef<OsStr>) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    folders.map(|folder| folder.join(Path::new(name.as_ref()))).find(|candidate| candidate.is_file())
}

/// Resident memory of a process that is its own. Pages of files, such as the program's, come and go with the page cache.
pub fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("/proc status");
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).expect("RssAnon");
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number of kB")
}

/// Open file descriptors of a process.
pub fn open_files(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).expect("/proc fd").count()
}
