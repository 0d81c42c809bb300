//! Plugin manifests (`postrider.filters.http.plugin.v1.Plugin`) whose runtime is `wasm`.

use std::sync::Arc;

use postrider_filter_api::{ConfigError, Factory};
use postrider_filter_plugin::read::keep;
use postrider_filter_plugin::{Manifest, Missing, PHASES, Takes};
use postrider_model::{Fields, Value, ValueError};

use super::factory::{Wasm, bytes_of, next_id, try_out};
use super::{MAX_MODULE_BYTES, count_fetches};
use crate::program::{Failure, Plugin, Program, Source};

/// Reads a manifest, compiles its code and tries it out.
pub(super) fn build(_: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    let manifest = Manifest::read_up_to(value, Takes::Texts, MAX_MODULE_BYTES)?;
    let mut errors = Vec::new();
    let options = match manifest.options.fields() {
        Ok(options) => Options::read(options, &mut errors),
        Err(error) => return Err(vec![error]),
    };
    let below = |error: ValueError| ValueError { path: format!("options.{}", error.path), message: error.message };
    let mut errors: ConfigError = errors.into_iter().map(below).collect();
    // Modules are told of every end.
    if let Some(index) = manifest.phases.iter().position(|phase| phase == "complete") {
        let known = PHASES.split_last().map(|(_, others)| others.join(", ")).unwrap_or_default();
        let message = format!("no plugin of the runtime `wasm` has a hook there; expected {known}");
        errors.push(ValueError { path: format!("phases[{index}]"), message });
    }
    if options.configuration.is_some() && matches!(manifest.config, Value::String(_)) {
        let message = "`config` is a text, too; a plugin has one configuration".to_owned();
        errors.push(ValueError { path: "options.configuration".to_owned(), message });
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    count_fetches(&manifest.code);
    if manifest.code.missing.is_some() {
        return Ok(Arc::new(Missing::new(manifest.facts("wasm"), manifest.schema, Takes::Texts)));
    }
    let refused = |message: String| vec![ValueError { path: "code".to_owned(), message }];
    let program = Program::new(Source {
        code: &manifest.code.text,
        vm_id: &options.vm_id,
        configuration: options.vm_configuration.into_bytes(),
        environment: options.environment,
        capabilities: options.capabilities,
        memory: manifest.policy.memory,
        cpu: manifest.policy.cpu,
    });
    let program = program.map_err(|message| refused(format!("the module does not load: {message}")))?;
    let configuration = match options.configuration {
        Some(text) => text.into_bytes(),
        None => bytes_of(&manifest.config),
    };
    let plugin = Arc::new(Plugin {
        id: next_id(),
        program: Arc::new(program),
        facts: Arc::new(manifest.facts("wasm")),
        root_id: options.root_id,
        configuration,
        failure: Failure::Policy,
        stops_heads_alone: options.stops_heads_alone,
        phases: manifest.phases.clone(),
    });
    try_out(&plugin).map_err(|message| refused(format!("the plugin does not start: {message}")))?;
    let edition = manifest.code.edition();
    Ok(Arc::new(Wasm { plugin, schema: manifest.schema, files: manifest.code.files, edition }))
}

/// What only this runtime has.
#[derive(Default)]
struct Options {
    root_id: String,
    vm_id: String,
    vm_configuration: String,
    /// A text in the place of `config`, for modules that read no JSON.
    configuration: Option<String>,
    environment: Vec<(String, String)>,
    capabilities: Option<Vec<String>>,
    stops_heads_alone: bool,
}

impl Options {
    fn read(mut fields: Fields<'_>, errors: &mut ConfigError) -> Options {
        let mut text = |key: &str| keep(fields.string(key), errors).flatten().map(str::to_owned);
        let mut options = Options {
            root_id: text("root_id").unwrap_or_default(),
            vm_id: text("vm_id").unwrap_or_default(),
            vm_configuration: text("vm_configuration").unwrap_or_default(),
            configuration: text("configuration"),
            ..Options::default()
        };
        options.stops_heads_alone =
            keep(fields.bool("allow_on_headers_stop_iteration"), errors).flatten().unwrap_or(false);
        if let Some(mut variables) = keep(fields.map("environment"), errors).flatten() {
            for key in variables.keys().collect::<Vec<_>>() {
                if let Some(value) = keep(variables.string(key), errors).flatten() {
                    options.environment.push((key.to_owned(), value.to_owned()));
                }
            }
        }
        let capabilities = keep(fields.list("capabilities"), errors).unwrap_or_default();
        let mut names = Vec::new();
        for (path, item) in capabilities {
            match item {
                Value::String(name) => names.push(name.clone()),
                _ => errors.push(ValueError { path, message: "expected the name of a function".to_owned() }),
            }
        }
        options.capabilities = (!names.is_empty()).then_some(names);
        errors.extend(fields.finish().err().into_iter().flatten());
        options
    }
}
