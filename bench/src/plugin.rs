//! Plugins that are compiled before a run, and where `.ci/` puts what it builds of them.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::shape::Script;

/// One task in one runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plugin {
    pub runtime: Runtime,
    pub task: Task,
}

/// What runs a plugin, and which language it was written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    WasmC,
    WasmGo,
    WasmRust,
    /// Envoy's Go filter. The Envoy of the comparison is built without it.
    Golang,
    /// The same library in a process of its own, which only Postrider has.
    GolangApart,
    /// A shared object in C, by Envoy's interface of dynamic modules.
    Native,
    /// A Rider plugin that reads bodies by a module in C, through Lua's own interface for those.
    RiderC,
}

/// What a plugin does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    Passthrough,
    /// Decodes the credentials and compares user and password.
    BasicAuth,
    /// The same on a goroutine of its own.
    BasicAuthOnGoroutine,
    /// What this script does. In the native module alone.
    Like(Script),
}

impl Plugin {
    /// Its file below the folder of tools that `.ci/wasm`, `.ci/golang` and `.ci/native` build into.
    ///
    /// # Errors
    /// It was not built.
    pub fn module(self, tools: &Path) -> Result<PathBuf> {
        let task = self.task.name();
        let (file, program, hint) = match self.runtime {
            Runtime::WasmC => {
                (format!("wasm/c/{task}.wasm"), "a WebAssembly module in C", ".ci/wasm target/tools/wasm c")
            }
            Runtime::WasmGo => {
                (format!("wasm/go/{task}.wasm"), "a WebAssembly module in Go", ".ci/wasm target/tools/wasm go")
            }
            Runtime::WasmRust => {
                (format!("wasm/rust/{task}.wasm"), "a WebAssembly module in Rust", ".ci/wasm target/tools/wasm rust")
            }
            Runtime::Golang | Runtime::GolangApart => {
                ("golang/sdk38.so".to_owned(), "the library of Go filters", ".ci/golang target/tools/golang")
            }
            Runtime::Native => ("native/filters.so".to_owned(), "the native module", ".ci/native target/tools/native"),
            Runtime::RiderC => ("native/capi.so".to_owned(), "the Lua module in C", ".ci/native target/tools/native"),
        };
        let path = tools.join(file);
        if path.is_file() { Ok(path) } else { Err(Error::Missing { program, hint }) }
    }
}

impl Task {
    /// What the modules call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Passthrough => "passthrough",
            Self::BasicAuth | Self::BasicAuthOnGoroutine => "basic_auth",
            Self::Like(script) => script.name(),
        }
    }

    /// Whether a request without a password is answered with 401.
    pub fn asks_for_password(self) -> bool {
        matches!(self, Self::BasicAuth | Self::BasicAuthOnGoroutine)
    }
}
