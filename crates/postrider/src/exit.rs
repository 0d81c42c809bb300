//! How the process ends.

use std::process::ExitCode;

/// The exit codes that scripts may rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// What was asked for was done.
    Done = 0,
    /// It failed at run time: a file that cannot be read, an address in use.
    Failed = 1,
    /// The command line was wrong.
    Usage = 2,
    /// The configuration was refused.
    InvalidConfig = 3,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}
