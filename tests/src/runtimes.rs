//! Every runtime of plugins, and the plugins that are written for all of them: `tests/modules/README.md` says what they do.

use std::path::{Path, PathBuf};

use postrider_testkit::config::{overlay, router};
use postrider_testkit::{Config, TempDir, proxy};
use serde_json::{Value, json};

use crate::{golang, modules, plugins, wasm};

/// What runs a plugin, and the language that it is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    Rider,
    EnvoyLua,
    /// A module in this language.
    Wasm(&'static str),
    Go,
    /// Go code in a process beside the proxy.
    IsolatedGo,
    NativeC,
    NativeRust,
}

impl Runtime {
    pub fn all() -> Vec<Runtime> {
        let mut all = vec![Runtime::Rider, Runtime::EnvoyLua];
        all.extend(wasm::languages().into_iter().map(Runtime::Wasm));
        all.extend([Runtime::Go, Runtime::IsolatedGo, Runtime::NativeC, Runtime::NativeRust]);
        all
    }

    /// Whether it runs code that nothing can stop or bound.
    pub fn is_machine_code(self) -> bool {
        matches!(self, Runtime::Go | Runtime::NativeC | Runtime::NativeRust)
    }

    /// Whether what a plugin does wrong ends a process beside the proxy, which another one follows in its own time.
    pub fn has_process(self) -> bool {
        self == Runtime::IsolatedGo
    }

    /// Whether a plugin can see a body pass without holding it.
    pub fn sees_pieces(self) -> bool {
        self != Runtime::Rider
    }

    /// The file with a plugin's code; panics when it was not built.
    pub fn code(self, plugin: &str) -> PathBuf {
        let script = |dialect: &str| {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("modules/lua").join(dialect);
            folder.join(format!("{plugin}.lua"))
        };
        match self {
            Runtime::Rider => script("rider"),
            Runtime::EnvoyLua => script("envoy"),
            Runtime::Wasm(language) => wasm::module(language, plugin),
            Runtime::Go | Runtime::IsolatedGo => golang::library("sdk38"),
            Runtime::NativeC => modules::plugins_in_c().to_owned(),
            Runtime::NativeRust => modules::plugins_in_rust().to_owned(),
        }
    }

    /// Has these plugins compiled, where a runtime compiles them, so that a proxy with several of them is soon live: on a busy
    /// machine a module of Go takes seconds. What was compiled is kept on the disk.
    pub fn compile(self, all: &[(&str, Value)]) {
        if !matches!(self, Runtime::Wasm(_)) {
            return;
        }
        let folder = TempDir::new();
        for (plugin, config) in all {
            let filters = [self.manifest(plugin, config, json!({})), router()];
            let routes = json!({"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": []}]});
            let config = Config::new().http(json!({"http_filters": filters, "route_config": routes}));
            let file = folder.write("config.yaml", config.to_yaml());
            let done = proxy::run(&["validate", file.to_str().expect("a path in UTF-8")]);
            assert_eq!(done.code, Some(0), "{self:?} {plugin}: {}{}", done.stdout, done.stderr);
        }
    }

    /// A plugin's manifest, as a filter of the chain that is named like the plugin.
    pub fn manifest(self, plugin: &str, config: &Value, more: Value) -> Value {
        let runtime = match self {
            Runtime::Rider => "rider",
            Runtime::EnvoyLua => "envoy-lua",
            Runtime::Wasm(_) => "wasm",
            Runtime::Go | Runtime::IsolatedGo => "go",
            Runtime::NativeC | Runtime::NativeRust => "native",
        };
        let mut fields = json!({"runtime": runtime, "code": {"filename": self.code(plugin)}, "config": config});
        if self.has_process() {
            fields["options"] = json!({"isolation": "process"});
        }
        overlay(&mut fields, more);
        plugins::manifest(plugin, fields)
    }

    /// Fields of a manifest with a budget, where the runtime can keep one.
    pub fn budget(self, cpu: &str, memory_bytes: u64) -> Value {
        match self.is_machine_code() {
            true => json!({}),
            false => json!({"budget": {"cpu": cpu, "memory_bytes": memory_bytes}}),
        }
    }
}

/// What a scope says in place of a plugin's configuration.
pub fn in_place(plugin: &str, config: &Value) -> Value {
    json!({plugin: {"@type": plugins::MANIFEST_ROUTE, "config": config}})
}
