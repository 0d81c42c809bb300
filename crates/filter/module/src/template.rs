//! A crate with a plugin in it, for those who begin one.

use std::path::Path;

use postrider_filter_trial::module_test;

/// The crate that modules are written with.
const SDK: &str = "postrider-module";

/// The files of a plugin of this name: where each lies in its folder, and what is in it. The crate `postrider-module` comes
/// from its folder `sdk`, or was published.
pub fn template(name: &str, sdk: Option<&Path>) -> Vec<(&'static str, String)> {
    let dependency = match sdk {
        // A string of TOML takes the same escapes.
        Some(folder) => format!("{{ path = {:?} }}", folder.to_string_lossy()),
        None => format!("{:?}", env!("CARGO_PKG_VERSION")),
    };
    let test = module_test(Some("target/release/libplugin.so"), "'{\"greeting\":\"ahoy\"}'");
    let files = [
        ("Cargo.toml", include_str!("template/Cargo.toml")),
        ("src/lib.rs", include_str!("template/lib.rs.txt")),
        ("plugin_test.lua", &test),
        ("proxy.yaml", include_str!("template/proxy.yaml")),
        ("README.md", include_str!("template/README.md")),
    ];
    files.map(|(file, text)| (file, text.replace("NAME", name).replace("DEPENDENCY", &dependency))).into()
}

/// Whether a folder is that of the crate `postrider-module`.
pub fn is_sdk(folder: &Path) -> bool {
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml"));
    manifest.is_ok_and(|text| text.lines().any(|line| line == format!("name = \"{SDK}\"")))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{is_sdk, template};

    #[test]
    fn the_crate_comes_from_a_folder_or_was_published() {
        let manifest = |sdk: Option<&Path>| template("my-plugin", sdk).swap_remove(0).1;
        assert!(manifest(None).contains(concat!("postrider-module = \"", env!("CARGO_PKG_VERSION"), "\"\n")));
        assert!(manifest(Some(Path::new("/a b/module"))).contains("postrider-module = { path = \"/a b/module\" }\n"));
        assert!(manifest(None).contains("name = \"my-plugin\""));
        assert!(template("my-plugin", None).iter().all(|(_, text)| !text.contains("NAME")));
    }

    #[test]
    fn the_crates_folder_is_known_by_its_manifest() {
        let own = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert!(is_sdk(&own.join("../../module")));
        assert!(!is_sdk(own) && !is_sdk(&own.join("src")));
    }
}
