//! A Go module with a plugin in it, for those who begin one.

use postrider_filter_trial::module_test;

/// The files of a plugin of this name: where each lies in its folder, and what is in it.
pub fn template(name: &str) -> Vec<(&'static str, String)> {
    let test = module_test(None, "\"ahoy\"");
    let files = [
        ("go.mod", include_str!("template/go.mod.txt")),
        ("main.go", include_str!("template/main.go.txt")),
        ("plugin_test.lua", &test),
        ("proxy.yaml", include_str!("template/proxy.yaml")),
        ("README.md", include_str!("template/README.md")),
    ];
    files.map(|(file, text)| (file, text.replace("NAME", name))).into()
}
