//! Plugin manifests whose runtime is Go.

use std::sync::Arc;

use postrider_filter_api::plugin::Facts;
use postrider_filter_api::{ConfigError, Factory};
use postrider_filter_plugin::read::keep;
use postrider_filter_plugin::{Code, Manifest, Takes};
use postrider_model::{Value, ValueError};

use super::routes::{MergePolicy, Overrides};
use super::{GoFactory, Wanted, any, unbounded};
use crate::apart::Limits;
use crate::filter::Recipe;
use crate::questions::Secrets;

/// The name of this runtime in manifests.
pub(super) const RUNTIME: &str = "go";

/// Phases that Go code only comes to through the head of the message.
const BEHIND_HEADS: [(&str, &str); 4] = [
    ("request_body", "request_headers"),
    ("request_trailers", "request_headers"),
    ("response_body", "response_headers"),
    ("response_trailers", "response_headers"),
];

/// Reads a manifest, and has its library read the configuration.
pub(super) fn build(_: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    let manifest = Manifest::read_with(value, Takes::Texts, Code::machine)?;
    let mut errors = refused(&manifest);
    let Options { plugin, apart } = options(&manifest, &mut errors);
    let budget = limits(value);
    if !apart && budget.is_some() {
        let message = "Go code cannot be stopped or bounded from outside, unless it has a process of its own \
                       (`isolation: process`)";
        errors.insert(0, ValueError { path: "budget".to_owned(), message: message.to_owned() });
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let wanted = Wanted {
        path: &manifest.code.source,
        apart: apart.then(|| budget.unwrap_or_default()),
        plugin: &plugin,
        config: any::of(&manifest.config),
        merge: MergePolicy::MostSpecific,
        overrides: Overrides::Manifest(manifest.schema.clone()),
        files: Vec::new(),
    };
    let facts = manifest.facts(RUNTIME);
    let facts = Facts { policy: unbounded(facts.policy.clone()), ..facts };
    let recipe = |_: &super::Loaded<'_>| Recipe {
        facts: Arc::new(facts),
        secrets: Secrets::default(),
        answers_as_envoy: false,
        phases: manifest.phases.clone(),
    };
    GoFactory::load(wanted, recipe, ["code.filename", "options.plugin_name", "config"])
}

/// What a manifest may say and Go code cannot be held to.
fn refused(manifest: &Manifest) -> ConfigError {
    let mut errors = Vec::new();
    let mut refuse = |path: &str, message: &str| {
        errors.push(ValueError { path: path.to_owned(), message: message.to_owned() });
    };
    if manifest.policy.clusters.is_some() {
        refuse("clusters", "Go code makes its calls by itself: the runtime `go` cannot bound them to clusters");
    }
    let names = |phase: &str| manifest.phases.iter().any(|named| named == phase);
    for (phase, head) in BEHIND_HEADS {
        if names(phase) && !names(head) {
            refuse("phases", &format!("`{phase}` needs `{head}` beside it: Go code sees the head of a message first"));
        }
    }
    errors
}

/// `budget`, as it is written.
fn limits(value: &Value) -> Option<Limits> {
    let mut budget = value.fields().ok()?.map("budget").ok()??;
    let mut limits = Limits::default();
    // What is wrong with either was told by whoever read the manifest.
    if let Ok(Some(deadline)) = budget.duration("cpu") {
        limits.deadline = deadline;
    }
    if let Ok(Some(bytes)) = budget.integer("memory_bytes") {
        limits.memory = u64::try_from(bytes).ok().filter(|bytes| *bytes > 0);
    }
    Some(limits)
}

/// What `options` say.
#[derive(Default)]
struct Options {
    /// The name that the library knows the plugin by: the manifest's, unless `plugin_name` says another.
    plugin: String,
    /// `isolation: process`: the library runs in a process of its own.
    apart: bool,
}

fn options(manifest: &Manifest, errors: &mut ConfigError) -> Options {
    let mut options = match manifest.options.fields() {
        Ok(options) => options,
        Err(error) => {
            errors.push(error);
            return Options::default();
        }
    };
    let mut found = Vec::new();
    let name = keep(options.string("plugin_name"), &mut found).flatten().filter(|name| !name.is_empty());
    let plugin = name.unwrap_or(&manifest.name).to_owned();
    let apart = match keep(options.string("isolation"), &mut found).flatten() {
        None | Some("none") => false,
        Some("process") => true,
        Some(other) => {
            found.push(options.error("isolation", format!("expected `none` or `process`, found `{other}`")));
            false
        }
    };
    found.extend(options.finish().err().into_iter().flatten());
    let below = |error: ValueError| ValueError { path: format!("options.{}", error.path), message: error.message };
    errors.extend(found.into_iter().map(below));
    Options { plugin, apart }
}

#[cfg(test)]
mod tests {
    use postrider_filter_plugin::json::from_json_text;

    use super::*;

    #[test]
    fn what_go_code_cannot_be_held_to_is_refused() {
        let own = std::env::current_exe().unwrap();
        let text = format!(
            r#"{{"name": "n", "runtime": "go", "code": {{"filename": {own:?}}}, "budget": {{"cpu": "0.010s"}},
                "clusters": ["a"], "phases": ["request_body"], "options": {{"isolation": "thread", "x": 1}}}}"#
        );
        let errors = build("", &from_json_text(&text).unwrap()).err().unwrap();
        let paths: Vec<&str> = errors.iter().map(|error| error.path.as_str()).collect();
        assert_eq!(paths, ["budget", "clusters", "phases", "options.isolation", "options.x"]);
        let inline = r#"{"name": "n", "runtime": "go", "code": {"inline_string": "x"}}"#;
        let errors = build("", &from_json_text(inline).unwrap()).err().unwrap();
        assert_eq!((errors[0].path.as_str(), errors.len()), ("code.filename", 2), "{errors:?}");
    }
}
