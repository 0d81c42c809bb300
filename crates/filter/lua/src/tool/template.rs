//! What `plugin new` writes: a plugin that works, its test, a configuration that runs it, and how to go on.

use super::Runtime;

/// One file of a new plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateFile {
    pub name: &'static str,
    pub text: String,
}

/// The files of a new plugin; `None` when the name is none: a letter, then letters, digits, `-` and `_`.
pub fn template(name: &str, runtime: Runtime) -> Option<Vec<TemplateFile>> {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) || !name.chars().all(good) {
        return None;
    }
    let files = match runtime {
        Runtime::Rider => [
            ("plugin.lua", include_str!("template/rider.lua")),
            ("plugin_test.lua", include_str!("template/rider_test.lua")),
            ("proxy.yaml", include_str!("template/rider.yaml")),
            ("README.md", include_str!("template/README.md")),
        ],
        Runtime::EnvoyLua => [
            ("plugin.lua", include_str!("template/envoy.lua")),
            ("plugin_test.lua", include_str!("template/envoy_test.lua")),
            ("proxy.yaml", include_str!("template/envoy.yaml")),
            ("README.md", include_str!("template/README.md")),
        ],
    };
    Some(files.map(|(file, text)| TemplateFile { name: file, text: text.replace("NAME", name) }).into())
}
