//! A plugin's file as what it is: a script, a WebAssembly module, a Go library or a native module.

use std::path::Path;
use std::time::Duration;

use memchr::memmem;
use postrider_filter_lua::tool::{Plugin, Runtime};
use postrider_filter_trial::{ByManifest, Loaded};
use postrider_model::Value;

use super::AnyRuntime;
use crate::config;

/// Keys of `--rules` that are options of the manifest of a WebAssembly module.
const WASM_OPTIONS: [&str; 7] = [
    "root_id",
    "vm_id",
    "vm_configuration",
    "configuration",
    "environment",
    "capabilities",
    "allow_on_headers_stop_iteration",
];

/// The same of a Go library.
const GO_OPTIONS: [&str; 1] = ["plugin_name"];

/// The same of a native module.
const NATIVE_OPTIONS: [&str; 4] = ["filter_name", "do_not_close", "load_globally", "metrics_namespace"];

/// How long a message may wait for threads of machine code: goroutines, and what a native module starts.
const PATIENCE: Duration = Duration::from_secs(2);

/// Go writes it into everything that it builds, in front of what it says about the build.
const GO_BUILD: &[u8] = b"\xff Go buildinf:";

/// Loads a plugin as a configuration would.
///
/// # Errors
/// What is wrong with the file or with its configuration.
pub(in crate::commands::plugin) fn load(
    path: &Path,
    runtime: AnyRuntime,
    config: Value,
    rules: Value,
) -> Result<Loaded, Vec<String>> {
    let one = |message| vec![message];
    let runtime = match runtime {
        AnyRuntime::Auto => kind_of(path).map_err(one)?,
        given => given,
    };
    let (runtime, options, patience) = match runtime {
        AnyRuntime::Wasm => ("wasm", &WASM_OPTIONS[..], Duration::ZERO),
        AnyRuntime::Go => ("go", &GO_OPTIONS[..], PATIENCE),
        AnyRuntime::Native => ("native", &NATIVE_OPTIONS[..], PATIENCE),
        script => {
            let runtime = match script {
                AnyRuntime::Rider => Some(Runtime::Rider),
                AnyRuntime::EnvoyLua => Some(Runtime::EnvoyLua),
                _ => None,
            };
            let plugin = Plugin::open(path, runtime).map_err(one)?;
            return Plugin { config, rules, ..plugin }.load();
        }
    };
    let manifest = ByManifest { path, runtime, config, rules, options, more: Vec::new() };
    manifest.load(&config::filters()).map(|loaded| loaded.with_patience(patience))
}

/// What runs this file; `Auto` for a script, which says itself whose it is.
fn kind_of(path: &Path) -> Result<AnyRuntime, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    if bytes.starts_with(b"\0asm") {
        return Ok(AnyRuntime::Wasm);
    }
    if !bytes.starts_with(b"\x7fELF") {
        return Ok(AnyRuntime::Auto);
    }
    match memmem::find(&bytes, GO_BUILD) {
        Some(_) => Ok(AnyRuntime::Go),
        None => Ok(AnyRuntime::Native),
    }
}
