//! From files to a configuration that can run, for every command alike.

use std::path::{Path, PathBuf};

/// Where a configuration comes from, and how strictly it is read. At least one of file and inline text is there.
#[derive(Debug, Clone)]
pub struct Input {
    path: Option<PathBuf>,
    inline: Option<String>,
    allow_unknown_fields: bool,
}

impl Input {
    /// `None` when there is neither a file nor inline text.
    pub fn new(path: Option<PathBuf>, inline: Option<String>, allow_unknown_fields: bool) -> Option<Input> {
        (path.is_some() || inline.is_some()).then_some(Input { path, inline, allow_unknown_fields })
    }

    /// The file, if there is one: what a reload reads again and what is watched.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }
}
