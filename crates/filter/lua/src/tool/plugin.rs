//! A plugin's file, loaded as its configuration would load it.

use std::path::{Path, PathBuf};

use postrider_filter_api::Registry;
use postrider_filter_api::plugin::{DEFAULT_CPU, DEFAULT_MEMORY};
use postrider_filter_trial::{ByManifest, Loaded, RouteKind, name_of};
use postrider_model::Value;

use crate::vm::Vm;

/// Whose functions a script uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runtime {
    Rider,
    EnvoyLua,
}

/// Rules that are options in a manifest.
const OPTIONS: [&str; 3] = ["sandbox", "sdk", "copy_route_config"];

/// A plugin to try out.
#[derive(Debug, Clone, PartialEq)]
pub struct Plugin {
    pub path: PathBuf,
    pub runtime: Runtime,
    /// The gateway-level configuration: of Envoy's filter, the filter context.
    pub config: Value,
    /// What it may do and use: the keys that the metadata of the node has for scripts of Envoy's own types.
    pub rules: Value,
}

impl Runtime {
    pub const ALL: [Runtime; 2] = [Runtime::Rider, Runtime::EnvoyLua];

    /// As manifests name it.
    pub fn name(self) -> &'static str {
        match self {
            Runtime::Rider => "rider",
            Runtime::EnvoyLua => "envoy-lua",
        }
    }

    /// Told from what a script does: one that requires Rider's modules or returns a table is Rider's, one that defines
    /// `envoy_on_request` or `envoy_on_response` is for Envoy's filter.
    pub fn detect(source: &[u8]) -> Option<Runtime> {
        let source = String::from_utf8_lossy(source);
        let code: Vec<&str> = source.lines().map(|line| line.split("--").next().unwrap_or_default()).collect();
        let requires_rider = |line: &&str| {
            line.split("require").skip(1).any(|rest| {
                let name = rest.trim_start().trim_start_matches('(').trim_start();
                name.starts_with("\"rider") || name.starts_with("'rider") || name.starts_with("[[rider")
            })
        };
        if code.iter().any(requires_rider) {
            return Some(Runtime::Rider);
        }
        if code.iter().any(|line| line.contains("envoy_on_request") || line.contains("envoy_on_response")) {
            return Some(Runtime::EnvoyLua);
        }
        // Only the chunk's own return stands in the first column of code that people write.
        code.iter().any(|line| line.starts_with("return")).then_some(Runtime::Rider)
    }
}

impl Plugin {
    /// The plugin in a file; its runtime told from the script unless it is given.
    ///
    /// # Errors
    /// The file cannot be read, or does not say whose it is.
    pub fn open(path: &Path, runtime: Option<Runtime>) -> Result<Plugin, String> {
        let source = std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        if let Some(what) = compiled(&source) {
            return Err(format!("{}: {what}", path.display()));
        }
        let Some(runtime) = runtime.or_else(|| Runtime::detect(&source)) else {
            compile(path, &source)?;
            return Err(format!(
                "{}: neither Rider's (no `require(\"rider…\")`, returns nothing) nor Envoy's (no `envoy_on_request`, \
                 no `envoy_on_response`): say which with --runtime",
                path.display()
            ));
        };
        Ok(Plugin { path: path.to_owned(), runtime, config: Value::Null, rules: Value::Null })
    }

    /// Loads it as a configuration would.
    ///
    /// # Errors
    /// What is wrong with the script or with its configuration.
    pub fn load(&self) -> Result<Loaded, Vec<String>> {
        let mut registry = Registry::default();
        crate::register(&mut registry);
        let text = |text: String| Value::String(text);
        let folder = match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let modules =
            [format!("{}/?.lua", folder.display()), format!("{}/?/init.lua", folder.display())].map(text).to_vec();
        let config = self.config.clone();
        match self.runtime {
            Runtime::Rider => {
                let (rules, modules) = with_own_path(self.rules.clone(), modules);
                ByManifest {
                    path: &self.path,
                    runtime: self.runtime.name(),
                    config,
                    rules,
                    options: &OPTIONS,
                    more: vec![("package_path".to_owned(), modules)],
                }
                .load(&registry)
            }
            Runtime::EnvoyLua => {
                let code = Value::Map(vec![("filename".to_owned(), text(self.path.display().to_string()))]);
                let config = if config == Value::Null { Value::Map(Vec::new()) } else { config };
                let fields = [
                    ("default_source_code", code),
                    ("filter_context", config),
                    ("package_paths", Value::List(modules)),
                    ("postrider.rules", self.rules.clone()),
                ];
                let value = Value::Map(fields.map(|(key, value)| (key.to_owned(), value)).into());
                let route =
                    RouteKind { kind: "envoy.extensions.filters.http.lua.v3.LuaPerRoute", field: "filter_context" };
                let kind = "envoy.extensions.filters.http.lua.v3.Lua";
                Loaded::build(&registry, &name_of(&self.path), kind, &value, route)
            }
        }
    }
}

/// The rules without their `package_path`, and that with the plugin's own modules behind it.
fn with_own_path(rules: Value, modules: Vec<Value>) -> (Value, Value) {
    let Value::Map(rules) = rules else { return (rules, Value::List(modules)) };
    let (paths, rules): (Vec<_>, Vec<_>) = rules.into_iter().partition(|(key, _)| key == "package_path");
    let path = match paths.into_iter().next() {
        Some((_, Value::List(own))) => Value::List(own.into_iter().chain(modules).collect()),
        // Whoever reads it says what is wrong with it.
        Some((_, other)) => other,
        None => Value::List(modules),
    };
    (Value::Map(rules), path)
}

/// Whether it is Lua at all.
///
/// # Errors
/// Where it is not.
fn compile(path: &Path, source: &[u8]) -> Result<(), String> {
    let vm = Vm::new(DEFAULT_MEMORY, DEFAULT_CPU).map_err(|fault| fault.to_string())?;
    let compiled = vm.load(&format!("@{}", path.display()), source);
    compiled.map(drop).map_err(|fault| fault.to_string())
}

/// What a file is that holds code of another kind than scripts.
fn compiled(source: &[u8]) -> Option<&'static str> {
    const KINDS: [(&[u8], &str); 3] = [
        (WASM, "a WebAssembly module and no script"),
        (ELF, "machine code and no script"),
        (b"\x1bLJ", "compiled Lua, which no sandbox holds"),
    ];
    KINDS.into_iter().find(|(mark, _)| source.starts_with(mark)).map(|(_, what)| what)
}

const WASM: &[u8] = b"\0asm";
const ELF: &[u8] = b"\x7fELF";

/// Whether a file holds a module for another runtime than those of scripts.
pub(super) fn is_module(code: &[u8]) -> bool {
    code.starts_with(WASM) || code.starts_with(ELF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_that_is_no_script_is_called_what_it_is() {
        for (source, what) in [
            (&b"\0asm\x01\0\0\0"[..], "a WebAssembly module"),
            (b"\x7fELF\x02", "machine code"),
            (b"\x1bLJ\x02", "compiled Lua, which no sandbox holds"),
        ] {
            assert!(compiled(source).is_some_and(|said| said.starts_with(what)), "{source:?}");
        }
        for source in [&b"return {}"[..], b""] {
            assert_eq!(compiled(source), None, "{source:?}");
        }
    }

    #[test]
    fn a_script_says_whose_it_is() {
        for (source, runtime) in [
            ("require(\"rider.v2\")\nreturn {}", Some(Runtime::Rider)),
            ("local r = require 'rider'", Some(Runtime::Rider)),
            ("-- require(\"rider\")\nfunction envoy_on_request(h) end", Some(Runtime::EnvoyLua)),
            ("envoy_on_response = function(h) end", Some(Runtime::EnvoyLua)),
            ("local h = {}\nreturn h", Some(Runtime::Rider)),
            ("-- envoy_on_request\nlocal x = 1", None),
        ] {
            assert_eq!(Runtime::detect(source.as_bytes()), runtime, "{source}");
        }
    }
}
