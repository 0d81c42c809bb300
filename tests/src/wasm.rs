//! WebAssembly modules in the configurations of tests; `.ci/wasm` builds them from `tests/modules/wasm`.

use std::path::{Path, PathBuf};

use postrider_testkit::config::extension;
use serde_json::{Value, json};

/// Languages in which every plugin is written. Rust is among them where a compiler for its target could be had, and `.ci/wasm`
/// says where not.
pub fn languages() -> Vec<&'static str> {
    let left_out = folder("rust").join("built").exists() && !folder("rust").join("passthrough.wasm").exists();
    if left_out { vec!["c", "go"] } else { vec!["c", "go", "rust"] }
}

fn folder(language: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"));
    target.join("tools/wasm").join(language)
}

/// The file of a plugin's module; panics when it was not built.
pub fn module(language: &str, plugin: &str) -> PathBuf {
    let path = folder(language).join(format!("{plugin}.wasm"));
    assert!(path.exists(), "{} is not built: `make test` builds it, or .ci/wasm", path.display());
    path.canonicalize().expect("the module's folder is there")
}

/// Envoy's filter with that module and a configuration that the plugin gets as JSON.
pub fn filter(module: &Path, config: &Value) -> Value {
    with_code(json!({"local": {"filename": module}}), config, json!({}))
}

/// The same with code from elsewhere, and with more fields of the plugin's configuration.
pub fn with_code(code: Value, config: &Value, more: Value) -> Value {
    let text = json!({"@type": "type.googleapis.com/google.protobuf.StringValue", "value": config.to_string()});
    let mut fields = json!({
        "name": "plugin",
        "vm_config": {"runtime": "envoy.wasm.runtime.v8", "code": code},
        "configuration": text,
    });
    postrider_testkit::config::overlay(&mut fields, more);
    extension("envoy.filters.http.wasm", "filters.http.wasm.v3.Wasm", json!({"config": fields}))
}
