//! WebAssembly modules in the configurations of tests; `.ci/wasm` builds them from `tests/modules/wasm`.

use std::path::{Path, PathBuf};

use postrider_testkit::config::extension;
use serde_json::{Value, json};

/// Languages in which every plugin for requests is written.
pub fn languages() -> Vec<&'static str> {
    complete_languages().into_iter().chain(["assemblyscript"]).collect()
}

/// Those whose SDK has words for all functions. Rust is among them where a compiler for its target could be had, and `.ci/wasm`
/// says where not.
pub fn complete_languages() -> Vec<&'static str> {
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

/// What such a module imports, with an allocator that begins anew when its room is used up.
const PRELUDE: &str = r#"
(import "env" "proxy_get_property" (func $get_property (param i32 i32 i32 i32) (result i32)))
(import "env" "proxy_set_property" (func $set_property (param i32 i32 i32 i32) (result i32)))
(import "env" "proxy_get_header_map_value" (func $get (param i32 i32 i32 i32 i32) (result i32)))
(import "env" "proxy_add_header_map_value" (func $add (param i32 i32 i32 i32 i32) (result i32)))
(import "env" "proxy_replace_header_map_value" (func $replace (param i32 i32 i32 i32 i32) (result i32)))
(import "env" "proxy_remove_header_map_value" (func $remove (param i32 i32 i32) (result i32)))
(import "env" "proxy_get_buffer_bytes" (func $get_buffer (param i32 i32 i32 i32 i32) (result i32)))
(import "env" "proxy_set_buffer_bytes" (func $set_buffer (param i32 i32 i32 i32 i32) (result i32)))
(import "env" "proxy_send_local_response" (func $respond (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
(import "env" "proxy_continue_stream" (func $continue (param i32) (result i32)))
(import "env" "proxy_close_stream" (func $close (param i32) (result i32)))
(import "env" "proxy_set_effective_context" (func $effective (param i32) (result i32)))
(import "env" "proxy_http_call" (func $http_call (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
(import "env" "proxy_define_metric" (func $define_metric (param i32 i32 i32 i32) (result i32)))
(import "env" "proxy_increment_metric" (func $increment (param i32 i64) (result i32)))
(import "env" "proxy_record_metric" (func $record (param i32 i64) (result i32)))
(import "env" "proxy_set_tick_period_milliseconds" (func $tick_period (param i32) (result i32)))
(import "env" "proxy_register_shared_queue" (func $register_queue (param i32 i32 i32) (result i32)))
(import "env" "proxy_resolve_shared_queue" (func $resolve_queue (param i32 i32 i32 i32 i32) (result i32)))
(import "env" "proxy_enqueue_shared_queue" (func $enqueue (param i32 i32 i32) (result i32)))
(import "env" "proxy_dequeue_shared_queue" (func $dequeue (param i32 i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "environ_sizes_get" (func $environ_sizes (param i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "environ_get" (func $environ (param i32 i32) (result i32)))
(memory (export "memory") 4)
(global $heap (mut i32) (i32.const 131072))
(func (export "malloc") (param i32) (result i32)
    (if (i32.gt_u (global.get $heap) (i32.const 200000)) (then (global.set $heap (i32.const 131072))))
    (global.get $heap)
    (global.set $heap (i32.add (global.get $heap) (i32.and (i32.add (local.get 0) (i32.const 15)) (i32.const -8)))))
(func $place (result i32) (i32.load (i32.const 16)))
(func $length (result i32) (i32.load (i32.const 20)))
;; Adds a digit to a map.
(func $digit (param i32 i32 i32 i32)
    (i32.store8 (i32.const 0) (i32.add (local.get 3) (i32.const 48)))
    (drop (call $add (local.get 0) (local.get 1) (local.get 2) (i32.const 0) (i32.const 1))))
"#;

/// A module with these functions, in base64. `$"text"` stands for the place and length of a text.
pub fn text_module(abi: &str, functions: &str) -> Vec<u8> {
    let abi = format!("(func (export \"proxy_abi_version_{abi}\"))");
    whole(&format!("{PRELUDE}\n{abi}\n{functions}"))
}

/// The same of a module that brings everything.
pub fn whole(functions: &str) -> Vec<u8> {
    let (mut data, mut place) = (String::new(), 1024);
    let mut parts = functions.split("$\"");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (literal, rest) = part.split_once('"').expect("a text ends");
        let length = literal.len() - literal.matches('\\').count() * 2;
        data.push_str(&format!("(data (i32.const {place}) \"{literal}\")\n"));
        text.push_str(&format!("(i32.const {place}) (i32.const {length}){rest}"));
        place += length + 1;
    }
    wat::parse_str(format!("(module {text}\n{data})")).unwrap_or_else(|error| panic!("{error}"))
}
