//! A crate with a plugin in it, for those who begin one.

use postrider_filter_trial::module_test;

/// The files of a plugin of this name: where each lies in its folder, and what is in it.
pub fn template(name: &str) -> Vec<(&'static str, String)> {
    let test = module_test(Some("target/wasm32-wasip1/release/plugin.wasm"), "'{\"greeting\":\"ahoy\"}'");
    let files = [
        ("Cargo.toml", include_str!("template/Cargo.toml")),
        ("src/lib.rs", include_str!("template/lib.rs.txt")),
        ("plugin_test.lua", &test),
        ("proxy.yaml", include_str!("template/proxy.yaml")),
        ("README.md", include_str!("template/README.md")),
    ];
    files.map(|(file, text)| (file, text.replace("NAME", name))).into()
}
