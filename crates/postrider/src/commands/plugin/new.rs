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
}

pub fn run(arguments: &Arguments) -> Exit {
    let runtime = match arguments.runtime {
        RuntimeName::Rider => Runtime::Rider,
        RuntimeName::EnvoyLua => Runtime::EnvoyLua,
    };
    let Some(files) = tool::template(&arguments.name, runtime) else {
        eprintln!("error: `{}` is no name: a letter, then letters, digits, `-` and `_`", arguments.name);
        return Exit::Usage;
    };
    let folder = arguments.dir.join(&arguments.name);
    if let Some(there) = files.iter().map(|file| folder.join(file.name)).find(|path| path.exists()) {
        return terminal::fail(format_args!("{} is there already: nothing was written", there.display()));
    }
    if let Err(error) = fs::create_dir_all(&folder) {
        return terminal::fail(format_args!("cannot make {}: {error}", folder.display()));
    }
    let mut written = String::new();
    for file in files {
        let path = folder.join(file.name);
        // Made new: whoever was quicker keeps what they wrote.
        let made = OpenOptions::new().write(true).create_new(true).open(&path);
        if let Err(error) = made.and_then(|mut made| made.write_all(file.text.as_bytes())) {
            return terminal::fail(format_args!("cannot write {}: {error}", path.display()));
        }
        written.push_str(&format!("{}\n", path.display()));
    }
    terminal::print(&written)
}
