//! Envoy's Go filter (`envoy.extensions.filters.http.golang.v3alpha`).

use std::sync::Arc;

use postrider_filter_api::plugin::{CircuitRule, DEFAULT_CIRCUIT, Facts, OnError, Policy};
use postrider_filter_api::{ConfigError, Factory, WatchedFile};
use postrider_filter_plugin::read::{data_source, keep};
use postrider_model::{Fields, Value};

use super::routes::{MergePolicy, Overrides};
use super::{GoFactory, Wanted, any, required, unbounded};
use crate::apart::Limits;
use crate::filter::Recipe;

pub(super) const KIND: &str = "envoy.extensions.filters.http.golang.v3alpha.Config";

/// What panics are answered with, as in Envoy.
const PANIC_STATUS: u16 = 500;

/// Reads a gateway-level configuration.
pub(super) fn build(_: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    let mut errors = Vec::new();
    let mut fields = value.fields().map_err(|error| vec![error])?;
    // Libraries are told apart by their paths: the id is a name for people, and for who isolates them.
    let [id, path, plugin] =
        ["library_id", "library_path", "plugin_name"].map(|key| required(&mut fields, key, &mut errors));
    let config = keep(any::encode(fields.value("plugin_config"), "plugin_config"), &mut errors).unwrap_or_default();
    let merge = match keep(fields.string("merge_policy"), &mut errors).flatten() {
        None => MergePolicy::default(),
        Some(name) => MergePolicy::parse(name).unwrap_or_else(|| {
            errors.push(fields.error("merge_policy", format!("there is no policy `{name}`")));
            MergePolicy::default()
        }),
    };
    let mut files = Vec::new();
    let secrets = secrets(&mut fields, &mut files, &mut errors);
    errors.extend(fields.finish().err().into_iter().flatten());
    if !errors.is_empty() {
        return Err(errors);
    }
    let shown = value.clone();
    let wanted = Wanted {
        path: &path,
        apart: isolated(&id),
        plugin: &plugin,
        config,
        merge,
        overrides: Overrides::Envoy,
        files,
    };
    let recipe = |loaded: &super::Loaded<'_>| Recipe {
        facts: Arc::new(Facts {
            name: plugin.clone(),
            version: String::new(),
            runtime: "envoy-golang",
            source: loaded.path.display().to_string(),
            digest: loaded.digest.to_owned(),
            policy: Policy {
                on_error: OnError::Respond(PANIC_STATUS),
                // Envoy has none: a plugin that panics is called again with the next request.
                circuit: CircuitRule { faults: 0, ..DEFAULT_CIRCUIT },
                ..unbounded(Policy::default())
            },
            config: config_of(&shown),
            schema: None,
        }),
        secrets: Arc::new(secrets),
        answers_as_envoy: true,
        phases: Vec::new(),
    };
    GoFactory::load(wanted, recipe, ["library_path", "plugin_name", "plugin_config"])
}

/// Libraries of Envoy's configurations that run in processes of their own, by their ids and apart by commas; `*` is all of
/// them. These types have no field for it, and Envoy, which reads the same file, does not know this.
const ISOLATED: &str = "POSTRIDER_GO_ISOLATION";

fn isolated(id: &str) -> Option<Limits> {
    names(&std::env::var(ISOLATED).unwrap_or_default(), id).then(Limits::default)
}

fn names(list: &str, id: &str) -> bool {
    list.split(',').map(str::trim).any(|one| one == "*" || one == id && !id.is_empty())
}

/// The plugin's own configuration, as the admin shows it.
fn config_of(value: &Value) -> Value {
    let config = value.fields().ok().and_then(|mut fields| fields.value("plugin_config").cloned());
    config.unwrap_or(Value::Map(Vec::new()))
}

/// `generic_secrets`: what each names was put into it by whoever knows names.
fn secrets(fields: &mut Fields<'_>, files: &mut Vec<WatchedFile>, errors: &mut ConfigError) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<(String, Vec<u8>)> = Vec::new();
    for mut one in keep(fields.maps("generic_secrets"), errors).unwrap_or_default() {
        let name = keep(one.string("name"), errors).flatten().unwrap_or_default().to_owned();
        one.value("sds_config");
        if all.iter().any(|(known, _)| *known == name) {
            errors.push(one.error("name", format!("the secret `{name}` is named twice")));
        }
        if let Some(mut secret) = keep(one.map("generic_secret"), errors).flatten() {
            if secret.value("secrets").is_some() {
                errors.push(secret.error("secrets", "secrets of several parts are not supported"));
            }
            let bytes = match keep(secret.map("secret"), errors).flatten() {
                Some(source) => data_source(source, files, errors),
                None => Vec::new(),
            };
            errors.extend(secret.finish().err().into_iter().flatten());
            all.push((name, bytes));
        }
        errors.extend(one.finish().err().into_iter().flatten());
    }
    all
}

#[cfg(test)]
mod tests {
    use postrider_model::ValueError;

    use super::*;

    #[test]
    fn libraries_that_are_isolated_are_named() {
        assert!(names("a, b", "b") && names("*", "b"));
        assert!(!names("", "") && !names("ab", "b") && !names("a,,c", ""));
    }

    #[test]
    fn every_fault_is_told_at_once() {
        let text = |text: &str| Value::String(text.to_owned());
        let value = Value::Map(vec![
            ("library_path".into(), text("")),
            ("plugin_config".into(), Value::Map(vec![("@type".into(), text("x/a.B"))])),
            ("merge_policy".into(), text("SOME")),
            ("other".into(), text("x")),
        ]);
        let errors: Vec<ValueError> = build("", &value).err().unwrap();
        let paths: Vec<&str> = errors.iter().map(|error| error.path.as_str()).collect();
        assert_eq!(paths, ["library_id", "library_path", "plugin_name", "plugin_config", "merge_policy", "other"]);
    }
}
