//! What can stop a measurement. Text appears only when a person is told.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug)]
pub enum Error {
    /// A program that the measurement needs is not installed or not built.
    Missing { program: &'static str, hint: &'static str },
    /// Fewer CPUs may be used than the bench pins to.
    TooFewCpus { allowed: usize },
    /// A file, socket or process operation failed.
    Io { doing: String, cause: io::Error },
    /// A started program ended although it should serve.
    Ended { name: String, status: ExitStatus, log: String },
    /// A started program did not answer its first request in time.
    NotReady { name: String, seconds: u64, last: String },
    /// A proxy answers, but not what the scenario asks for.
    WrongAnswer { name: String, expected: String, got: String },
    /// A tool printed something that its parser does not know.
    Unreadable { tool: &'static str, output: String },
    /// The load had failures, so its figures mean nothing.
    FailedLoad { detail: String },
    /// A name that no scenario, peer or CPU has.
    UnknownName { kind: &'static str, name: String, known: String },
    /// A temporary directory of that name is there already.
    Occupied(PathBuf),
}

impl Error {
    pub fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |cause| Self::Io { doing, cause }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { program, hint } => write!(f, "{program} is missing: {hint}"),
            Self::TooFewCpus { allowed } => {
                write!(f, "the bench pins the proxy to one CPU and the load to another, but may use only {allowed}")
            }
            Self::Io { doing, cause } => write!(f, "{doing}: {cause}"),
            Self::Ended { name, status, log } => write!(f, "{name} ended with {status}; it said:\n{log}"),
            Self::NotReady { name, seconds, last } => {
                write!(f, "{name} gave no correct answer within {seconds} s; last: {last}")
            }
            Self::WrongAnswer { name, expected, got } => write!(f, "{name} answered {got} instead of {expected}"),
            Self::Unreadable { tool, output } => write!(f, "the output of {tool} was not understood:\n{output}"),
            Self::FailedLoad { detail } => write!(f, "the load had failures: {detail}"),
            Self::UnknownName { kind, name, known } => write!(f, "no {kind} is called `{name}`; there are: {known}"),
            Self::Occupied(path) => write!(f, "{} exists already", path.display()),
        }
    }
}

impl std::error::Error for Error {}
