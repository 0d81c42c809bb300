//! Which host a manifest is for.

use std::sync::Arc;

use postrider_filter_api::{Build, ConfigError, Factory, Registry};
use postrider_model::{Value, ValueError};

use crate::manifest::{KIND, Manifest, Takes};

/// Makes a host known for manifests that name one of these runtimes.
pub fn register_runtimes(registry: &mut Registry, names: &[&'static str], build: Build) {
    if !registry.knows(KIND) {
        registry.register_wrapper(KIND, build_manifest);
    }
    names.iter().for_each(|name| registry.register_runtime(name, build));
}

fn build_manifest(registry: &Registry, name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    let runtime = value.fields().ok().and_then(|mut fields| fields.string("runtime").ok().flatten().map(str::to_owned));
    let Some(runtime) = runtime.filter(|runtime| !runtime.is_empty()) else {
        // Says so, and what else is wrong.
        return Err(Manifest::read(value, Takes::Texts).err().unwrap_or_default());
    };
    match registry.find_runtime(&runtime) {
        Some(build) => build(name, value),
        None => {
            let known: Vec<String> = registry.runtimes().map(|name| format!("`{name}`")).collect();
            let expected = match known.split_last() {
                Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
                _ => known.concat(),
            };
            let message = format!("there is no runtime `{runtime}`; expected {expected}");
            // What else is wrong; but how code is to be read, and whether a text configures it, the runtime would know.
            let others = Manifest::read(value, Takes::Texts).err().unwrap_or_default();
            let others = others.into_iter().filter(|error| !error.path.starts_with("code"));
            Err(std::iter::once(ValueError { path: "runtime".to_owned(), message }).chain(others).collect())
        }
    }
}
