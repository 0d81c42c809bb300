//! `migrate`: v2, or a file with faults whose repair is certain, to v3 YAML. The result goes to standard output, each
//! change to standard error.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use postrider_config_core::{Sources, render};
use postrider_config_envoy::migrate::migrate;

use crate::config::Input;
use crate::exit::Exit;
use crate::terminal;

#[derive(Args, Debug)]
pub struct Arguments {
    /// The file; `-` is standard input
    pub file: PathBuf,

    /// Replace the file instead of printing the result
    #[arg(long, conflicts_with = "dry_run")]
    pub write: bool,

    /// Tell the changes only
    #[arg(long)]
    pub dry_run: bool,
}

pub fn run(arguments: &Arguments) -> Exit {
    let input = Input::argument(&arguments.file);
    if arguments.write && input.path().is_none() {
        eprintln!("error: --write needs a file: standard input cannot be replaced");
        return Exit::Usage;
    }
    let file = match input.read() {
        Ok(file) => file,
        Err(error) => return terminal::fail(error),
    };
    let migrated = terminal::with_progress(&format!("migrating {}", input.name()), || migrate(&file));
    if !migrated.diagnostics.is_empty() {
        eprint!("{}", render::text(&migrated.diagnostics, &Sources::of(file), terminal::stderr_colour()));
    }
    let Some(yaml) = migrated.yaml else { return Exit::InvalidConfig };
    match input.path() {
        _ if arguments.dry_run => Exit::Done,
        Some(path) if arguments.write => match replace(path, &yaml) {
            Ok(()) => Exit::Done,
            Err(error) => terminal::fail(format_args!("cannot write {}: {error}", path.display())),
        },
        _ => terminal::print(&yaml),
    }
}

/// Puts `text` in place of a file at once: whoever reads sees the old or the new one whole. Links are followed and the
/// mode is kept.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let path = path.canonicalize()?;
    let mode = path.metadata()?.permissions();
    let mut beside = path.clone().into_os_string();
    beside.push(format!(".{}.new", std::process::id()));
    let written = std::fs::write(&beside, text)
        .and_then(|()| std::fs::set_permissions(&beside, mode))
        .and_then(|()| std::fs::rename(&beside, &path));
    if written.is_err() {
        // What is left of the attempt is of no use; the first error is what matters.
        let _ = std::fs::remove_file(&beside);
    }
    written
}
