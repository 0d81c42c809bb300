//! The filters of Envoy that run plugins.

use std::fmt::Write;
use std::path::Path;

use crate::plugin::{Plugin, Runtime, Task};
use crate::shape::{PASSWORD, USER};

/// The entry of `http_filters` for a plugin with this file, indented for the connection manager of the bootstrap.
pub fn filter(plugin: Plugin, path: &Path) -> String {
    let module = path.display();
    match plugin.runtime {
        Runtime::WasmC | Runtime::WasmGo | Runtime::WasmRust => {
            let configuration = match plugin.task {
                Task::BasicAuth | Task::BasicAuthOnGoroutine => {
                    format!(r#"{{ "username": "{USER}", "password": "{PASSWORD}" }}"#)
                }
                Task::Passthrough | Task::Like(_) => "{}".to_owned(),
            };
            format!(
                "          - name: envoy.filters.http.wasm
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm
              config:
                name: bench
                configuration:
                  \"@type\": type.googleapis.com/google.protobuf.StringValue
                  value: '{configuration}'
                vm_config:
                  runtime: envoy.wasm.runtime.v8
                  code: {{ local: {{ filename: {module} }} }}
"
            )
        }
        Runtime::Golang => {
            let (name, configuration) = go(plugin.task);
            format!(
                "          - name: envoy.filters.http.golang
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.golang.v3alpha.Config
              library_id: bench
              library_path: {module}
              plugin_name: {name}
              plugin_config:
                \"@type\": type.googleapis.com/xds.type.v3.TypedStruct
                value: {configuration}
"
            )
        }
        Runtime::GolangApart => {
            let (name, configuration) = go(plugin.task);
            format!(
                "          - name: bench
            typed_config:
              \"@type\": type.googleapis.com/postrider.filters.http.plugin.v1.Plugin
              name: bench
              runtime: go
              code: {{ filename: {module} }}
              config: {configuration}
              options: {{ plugin_name: {name}, isolation: process }}
"
            )
        }
        Runtime::RiderC => {
            let folder = path.parent().unwrap_or(Path::new(".")).display();
            let mut yaml = String::from(
                "          - name: bench
            typed_config:
              \"@type\": type.googleapis.com/postrider.filters.http.plugin.v1.Plugin
              name: bench
              runtime: rider
              code:
                inline_string: |
",
            );
            for line in include_str!("../../lua/body100.capi.lua").lines() {
                let _ = writeln!(yaml, "                  {line}");
            }
            let _ = writeln!(yaml, "              options: {{ package_cpath: [\"{folder}/?.so\"] }}");
            yaml
        }
        Runtime::Native => {
            let name = plugin.task.name();
            let configuration =
                if plugin.task.asks_for_password() { format!("{USER}:{PASSWORD}") } else { String::new() };
            format!(
                "          - name: envoy.filters.http.dynamic_modules
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter
              dynamic_module_config:
                module: {{ local: {{ filename: {module} }} }}
              filter_name: {name}
              filter_config:
                \"@type\": type.googleapis.com/google.protobuf.StringValue
                value: \"{configuration}\"
"
            )
        }
    }
}

/// What the library calls a plugin, and its configuration.
fn go(task: Task) -> (&'static str, String) {
    match task {
        Task::Passthrough | Task::Like(_) => (task.name(), "{}".to_owned()),
        Task::BasicAuth => ("basic", format!("{{ user: {USER}, password: {PASSWORD} }}")),
        Task::BasicAuthOnGoroutine => ("basic", format!("{{ user: {USER}, password: {PASSWORD}, async: true }}")),
    }
}
