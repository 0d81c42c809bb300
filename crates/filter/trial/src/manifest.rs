//! The manifest that a file would have which is tried out.

use std::path::Path;

use postrider_filter_api::Registry;
use postrider_filter_plugin::{KIND, ROUTE_KIND};
use postrider_model::Value;

use crate::{Loaded, RouteKind};

/// A plugin's file with what its manifest says.
#[derive(Debug, Clone)]
pub struct ByManifest<'p> {
    pub path: &'p Path,
    /// As manifests name it.
    pub runtime: &'static str,
    pub config: Value,
    /// What it may do and use: keys of a manifest, and those of its `options` that `options` names.
    pub rules: Value,
    /// The runtime's own keys.
    pub options: &'p [&'p str],
    /// Options that the file's place says.
    pub more: Vec<(String, Value)>,
}

impl ByManifest<'_> {
    /// Loads it as a configuration would.
    ///
    /// # Errors
    /// What is wrong with the plugin or with its configuration.
    pub fn load(self, registry: &Registry) -> Result<Loaded, Vec<String>> {
        let name = name_of(self.path);
        let route = RouteKind { kind: ROUTE_KIND, field: "config" };
        Loaded::build(registry, &name, KIND, &self.value(&name), route)
    }

    fn value(self, name: &str) -> Value {
        let text = |text: &str| Value::String(text.to_owned());
        let map = |key: &str, value: Value| Value::Map(vec![(key.to_owned(), value)]);
        let config = match self.config {
            Value::Null => Value::Map(Vec::new()),
            config => config,
        };
        let rules = if let Value::Map(rules) = self.rules { rules } else { Vec::new() };
        let (own, others): (Vec<_>, Vec<_>) =
            rules.into_iter().partition(|(key, _)| self.options.contains(&key.as_str()));
        let mut manifest = vec![
            ("name".to_owned(), text(name)),
            ("runtime".to_owned(), text(self.runtime)),
            ("code".to_owned(), map("filename", text(&self.path.display().to_string()))),
            ("config".to_owned(), config),
        ];
        manifest.extend(others);
        manifest.push(("options".to_owned(), Value::Map(self.more.into_iter().chain(own).collect())));
        Value::Map(manifest)
    }
}

/// What statistics and logs would call a plugin that is in this file.
pub fn name_of(path: &Path) -> String {
    let stem = |path: &Path| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    match stem(path).as_deref() {
        Some("plugin" | "init") | None => {
            let folder = path.canonicalize().ok();
            folder.as_deref().and_then(Path::parent).and_then(stem).unwrap_or_else(|| "plugin".to_owned())
        }
        Some(name) => name.to_owned(),
    }
}
