//! `plugin new`: a folder with a plugin that works.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use postrider_filter_lua::tool::{self, Runtime, TemplateFile};

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

    /// For native: the folder of the crate postrider-module. Without it, the one of the repository that the plugin or this
    /// program lies in, else the crate that was published
    #[cfg(feature = "modules")]
    #[arg(long, value_name = "FOLDER")]
    pub sdk: Option<PathBuf>,
}

/// The runtimes that there is a template for.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimeName {
    Rider,
    /// A script for Envoy's Lua filter
    #[value(alias = "lua")]
    EnvoyLua,
    /// A crate in Rust for proxy-wasm
    #[cfg(feature = "wasm")]
    Wasm,
    /// A module with Envoy's Go SDK
    #[cfg(feature = "golang")]
    Go,
    /// A crate in Rust
    #[cfg(feature = "modules")]
    Native,
}

pub fn run(arguments: &Arguments) -> Exit {
    #[cfg(feature = "modules")]
    if let Some(sdk) = arguments.sdk.as_ref().filter(|sdk| !postrider_filter_module::is_sdk(sdk)) {
        eprintln!("error: {} is not the folder of the crate postrider-module", sdk.display());
        return Exit::Usage;
    }
    let Some(files) = files(arguments) else {
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
fn files(arguments: &Arguments) -> Option<Vec<(&'static str, String)>> {
    let name = &arguments.name;
    // The same for every runtime.
    let scripts = tool::template(name, Runtime::Rider)?;
    let runtime = match arguments.runtime {
        RuntimeName::Rider => return Some(plain(scripts)),
        RuntimeName::EnvoyLua => Runtime::EnvoyLua,
        #[cfg(feature = "wasm")]
        RuntimeName::Wasm => return Some(postrider_filter_wasm::template(name)),
        #[cfg(feature = "golang")]
        RuntimeName::Go => return Some(postrider_filter_golang::template(name)),
        #[cfg(feature = "modules")]
        RuntimeName::Native => return Some(postrider_filter_module::template(name, sdk(arguments).as_deref())),
    };
    tool::template(name, runtime).map(plain)
}

fn plain(files: Vec<TemplateFile>) -> Vec<(&'static str, String)> {
    files.into_iter().map(|file| (file.name, file.text)).collect()
}

/// The folder of the crate `postrider-module`, if there is one: what was asked for, or that of the repository around the new
/// plugin or around this program.
#[cfg(feature = "modules")]
fn sdk(arguments: &Arguments) -> Option<PathBuf> {
    if let Some(asked) = &arguments.sdk {
        return asked.canonicalize().ok();
    }
    let around = [arguments.dir.canonicalize().ok(), std::env::current_exe().ok()];
    let folders = around.iter().flatten().flat_map(|path| path.ancestors());
    folders.map(|folder| folder.join("crates/module")).find(|folder| postrider_filter_module::is_sdk(folder))
}
