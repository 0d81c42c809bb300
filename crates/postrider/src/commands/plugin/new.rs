//! `plugin new`: a folder with a plugin that works.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use postrider_filter_lua::tool::{self, Runtime};

use crate::exit::Exit;
use crate::terminal;

#[derive(Args, Debug)]
pub struct Arguments {
    /// The plugin's name: a letter, then letters, digits, `-` and `_`
    pub name: String,

    /// Whose functions it uses
    #[arg(long, value_enum, default_value = "rider")]
    pub runtime: RuntimeName,

    /// Where its folder is made
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    pub dir: PathBuf,
}

/// The runtimes that there is a template for.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimeName {
    Rider,
    EnvoyLua,
    /// A crate in Rust
    #[cfg(feature = "modules")]
    Native,
}

pub fn run(arguments: &Arguments) -> Exit {
    let Some(files) = files(&arguments.name, arguments.runtime) else {
        eprintln!("error: `{}` is no name: a letter, then letters, digits, `-` and `_`", arguments.name);
        return Exit::Usage;
    };
    let folder = arguments.dir.join(&arguments.name);
    if let Some(there) = files.iter().map(|(name, _)| folder.join(name)).find(|path| path.exists()) {
        return terminal::fail(format_args!("{} is there already: nothing was written", there.display()));
    }
    let mut written = String::new();
    for (name, text) in files {
        let path = folder.join(name);
        let within = path.parent().unwrap_or(&folder);
        if let Err(error) = fs::create_dir_all(within) {
            return terminal::fail(format_args!("cannot make {}: {error}", within.display()));
        }
        // Made new: whoever was quicker keeps what they wrote.
        let made = OpenOptions::new().write(true).create_new(true).open(&path);
        if let Err(error) = made.and_then(|mut made| made.write_all(text.as_bytes())) {
            return terminal::fail(format_args!("cannot write {}: {error}", path.display()));
        }
        written.push_str(&format!("{}\n", path.display()));
    }
    terminal::print(&written)
}

/// What there is in the plugin's folder; `None` when its name is none.
fn files(name: &str, runtime: RuntimeName) -> Option<Vec<(&'static str, String)>> {
    let runtime = match runtime {
        RuntimeName::Rider => Runtime::Rider,
        RuntimeName::EnvoyLua => Runtime::EnvoyLua,
        #[cfg(feature = "modules")]
        RuntimeName::Native => return postrider_filter_module::template(name),
    };
    let files = tool::template(name, runtime)?;
    Some(files.into_iter().map(|file| (file.name, file.text)).collect())
}
