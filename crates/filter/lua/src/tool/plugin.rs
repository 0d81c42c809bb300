//! A plugin's file, loaded as its configuration would load it.

use std::path::{Path, PathBuf};

use postrider_filter_api::Registry;
use postrider_filter_trial::{Loaded, RouteKind};
use postrider_model::Value;

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
            return Err(format!("{}: {what}; only scripts can be tried without a proxy", path.display()));
        }
        let runtime = runtime.or_else(|| Runtime::detect(&source)).ok_or_else(|| {
            format!(
                "{}: neither Rider's (no `require(\"rider…\")`, returns nothing) nor Envoy's (no `envoy_on_request`, \
                 no `envoy_on_response`): say which with --runtime",
                path.display()
            )
        })?;
        Ok(Plugin { path: path.to_owned(), runtime, config: Value::Null, rules: Value::Null })
    }

    /// Loads it as a configuration would.
    ///
    /// # Errors
    /// What is wrong with the script or with its configuration.
    pub fn load(&self) -> Result<Loaded, Vec<String>> {
        let mut registry = Registry::default();
        crate::register(&mut registry);
        let (kind, value) = self.filter();
        let route = match self.runtime {
            Runtime::Rider => RouteKind { kind: postrider_filter_plugin::ROUTE_KIND, field: "config" },
            Runtime::EnvoyLua => {
                RouteKind { kind: "envoy.extensions.filters.http.lua.v3.LuaPerRoute", field: "filter_context" }
            }
        };
        Loaded::build(&registry, &self.name(), kind, &value, route)
    }

    /// What statistics and logs would call it.
    fn name(&self) -> String {
        let stem = |path: &Path| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        match stem(&self.path).as_deref() {
            Some("plugin" | "init") | None => {
                let folder = self.path.canonicalize().ok();
                folder.as_deref().and_then(Path::parent).and_then(stem).unwrap_or_else(|| "plugin".to_owned())
            }
            Some(name) => name.to_owned(),
        }
    }

    /// The filter's type and its configuration.
    fn filter(&self) -> (&'static str, Value) {
        let text = |text: String| Value::String(text);
        let code = Value::Map(vec![("filename".to_owned(), text(self.path.display().to_string()))]);
        let config = match &self.config {
            Value::Null => Value::Map(Vec::new()),
            config => config.clone(),
        };
        let folder = match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let modules =
            [format!("{}/?.lua", folder.display()), format!("{}/?/init.lua", folder.display())].map(text).to_vec();
        let map = |entries: Vec<(&str, Value)>| {
            Value::Map(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
        };
        match self.runtime {
            Runtime::Rider => {
                let mut manifest = vec![
                    ("name".to_owned(), text(self.name())),
                    ("runtime".to_owned(), text(self.runtime.name().to_owned())),
                    ("code".to_owned(), code),
                    ("config".to_owned(), config),
                ];
                let mut options = vec![("package_path".to_owned(), Value::List(modules))];
                let rules = if let Value::Map(rules) = &self.rules { rules.clone() } else { Vec::new() };
                let (own, others) = rules.into_iter().partition(|(key, _)| OPTIONS.contains(&key.as_str()));
                options.extend::<Vec<_>>(own);
                manifest.extend::<Vec<_>>(others);
                manifest.push(("options".to_owned(), Value::Map(options)));
                (postrider_filter_plugin::KIND, Value::Map(manifest))
            }
            Runtime::EnvoyLua => (
                "envoy.extensions.filters.http.lua.v3.Lua",
                map(vec![
                    ("default_source_code", code),
                    ("filter_context", config),
                    ("package_paths", Value::List(modules)),
                    ("postrider.rules", self.rules.clone()),
                ]),
            ),
        }
    }
}

/// What a file is that holds code of another kind than scripts.
fn compiled(source: &[u8]) -> Option<&'static str> {
    const KINDS: [(&[u8], &str); 3] = [
        (b"\0asm", "a WebAssembly module"),
        (b"\x7fELF", "a native module or a Go library"),
        (b"\x1bLJ", "compiled Lua, which no sandbox holds"),
    ];
    KINDS.into_iter().find(|(mark, _)| source.starts_with(mark)).map(|(_, what)| what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_that_is_no_script_is_called_what_it_is() {
        for (source, what) in [
            (&b"\0asm\x01\0\0\0"[..], Some("a WebAssembly module")),
            (b"\x7fELF\x02", Some("a native module or a Go library")),
            (b"\x1bLJ\x02", Some("compiled Lua, which no sandbox holds")),
            (b"return {}", None),
            (b"", None),
        ] {
            assert_eq!(compiled(source), what, "{source:?}");
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
