//! Plugin manifests (`postrider.filters.http.plugin.v1.Plugin`) whose runtime is `native`.

use std::borrow::Cow;
use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::plugin::{Facts, Sight};
use postrider_filter_api::{ConfigError, Factory, Filter, Place, RouteConfig, ScopedConfigs, WatchedFile};
use postrider_filter_plugin::json::to_json_text;
use postrider_filter_plugin::read::keep;
use postrider_filter_plugin::{Code, Edition, Manifest, Missing, Override, Schema, Takes};
use postrider_model::{Value, ValueError};

use crate::config::{Config, Given, Phases};
use crate::hooks::Hosted;
use crate::library::{Library, Options};
use crate::on_worker::OnWorker;
use crate::source::{fetched, unbounded};

pub(crate) const RUNTIME: &str = "native";

/// What the names of a plugin's own statistics begin with, unless its options say otherwise.
const NAMESPACE: &str = "native";

/// Reads a manifest, loads its module and has it make its configuration.
pub(crate) fn build(_: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    let mut errors = Vec::new();
    let code = code(value, &mut errors);
    // What it is in a manifest, with a text in the place of the code that is no text.
    let source = code.as_ref().map_or("-", |(code, _)| code.source.as_str());
    let manifest = match Manifest::read(&with_code(value, source), Takes::Texts) {
        Ok(manifest) => manifest,
        Err(found) => return Err([errors, found].concat()),
    };
    if value.fields().ok().and_then(|mut fields| fields.value("budget").cloned()).is_some_and(|it| it != Value::Null) {
        let message = "machine code runs as long and takes as much as it wants: the runtime `native` keeps no budget";
        errors.push(ValueError { path: "budget".to_owned(), message: message.to_owned() });
    }
    let mut fields = manifest.options.fields().map_err(|error| vec![error])?;
    let mut found = Vec::new();
    let name = keep(fields.string("filter_name"), &mut found).flatten().unwrap_or(&manifest.name).to_owned();
    let options = Options {
        stays: keep(fields.bool("do_not_close"), &mut found).flatten().unwrap_or(false),
        global: keep(fields.bool("load_globally"), &mut found).flatten().unwrap_or(false),
    };
    let namespace = keep(fields.string("metrics_namespace"), &mut found).flatten().filter(|name| !name.is_empty());
    found.extend(fields.finish().err().into_iter().flatten());
    let below = |error: ValueError| ValueError { path: format!("options.{}", error.path), message: error.message };
    errors.extend(found.into_iter().map(below));
    let Some((code, place)) = code.filter(|_| errors.is_empty()) else { return Err(errors) };
    let facts = manifest.facts(RUNTIME);
    let facts = Facts { policy: unbounded(facts.policy), ..facts };
    if code.missing.is_some() {
        return Ok(Arc::new(Missing::new(Facts { source: code.source, ..facts }, manifest.schema, Takes::Texts)));
    }
    let at = |path: &str, message: String| vec![ValueError { path: path.to_owned(), message }];
    let path = Path::new(&code.source);
    let (library, digest) = Library::copied(path, &code.text, options).map_err(|message| at(place, message))?;
    let library = Arc::new(library);
    let facts = Facts { source: code.source.clone(), digest, ..facts };
    let namespace = namespace.map_or_else(|| format!("{NAMESPACE}.{}", manifest.name), str::to_owned);
    let plugin = Plugin {
        edition: code.edition(),
        files: code.files,
        phases: Phases::named(&manifest.phases),
        schema: manifest.schema.clone(),
        library,
        facts,
        namespace,
        name,
        config: None,
    };
    let config = plugin.configured(&manifest.config).map_err(|message| at("config", message))?;
    Ok(Arc::new(Plugin { config: Some(config), ..plugin }))
}

/// The shared object that `code` names, and by which field.
fn code(value: &Value, errors: &mut ConfigError) -> Option<(Code, &'static str)> {
    let mut fields = value.fields().ok()?;
    let mut code = fields.map("code").ok().flatten()?;
    let remote = keep(code.map("remote"), errors).flatten();
    let file = keep(code.string("filename"), errors).flatten().filter(|file| !file.is_empty());
    let read = match (file, remote) {
        (Some(file), None) => match fs::read(file) {
            Ok(content) => {
                let files = vec![WatchedFile::new(Path::new(file), Some(&content))];
                Ok((Code { files, ..Code::inline(content, file) }, "code.filename"))
            }
            Err(error) => Err(vec![code.error("filename", format!("cannot read {file}: {error}"))]),
        },
        (None, Some(remote)) => fetched(remote).map(|code| (code, "code.remote")),
        (Some(_), Some(_)) => Err(vec![code.error("remote", "`filename` is set too; code has one place")]),
        (None, None) => Err(vec![code.error("filename", "a native module is a shared object: there is no `filename`")]),
    };
    errors.extend(code.finish().err().into_iter().flatten());
    read.map_err(|found| errors.extend(found)).ok()
}

fn with_code(value: &Value, text: &str) -> Value {
    let Value::Map(entries) = value else { return value.clone() };
    let code = Value::Map(vec![("inline_string".to_owned(), Value::String(text.to_owned()))]);
    let entry = |(key, old): &(String, Value)| {
        let is_code = key == "code" && matches!(old, Value::Map(_));
        (key.clone(), if is_code { code.clone() } else { old.clone() })
    };
    Value::Map(entries.iter().map(entry).collect())
}

/// A module as a plugin.
struct Plugin {
    library: Arc<Library>,
    facts: Facts,
    namespace: String,
    phases: Phases,
    /// The module's name for the filter.
    name: String,
    schema: Option<Schema>,
    edition: Option<Edition>,
    files: Vec<WatchedFile>,
    /// The gateway's.
    config: Option<Arc<Config>>,
}

/// An override, made when it was read.
struct Own {
    /// `None` leaves the gateway's.
    config: Option<Arc<Config>>,
    disabled: bool,
}

impl Plugin {
    /// Has the module make a configuration of its own: from a text as it is, from an object as JSON.
    fn configured(&self, config: &Value) -> Result<Arc<Config>, String> {
        let text = match config {
            Value::String(text) => Cow::Borrowed(text.as_str()),
            object => Cow::Owned(to_json_text(object)),
        };
        let (library, facts) = (self.library.clone(), self.facts.clone());
        let given = Given { namespace: self.namespace.clone(), secrets: Vec::new() };
        Config::new(library, facts, given, self.phases, &self.name, text.as_bytes(), "plugin_failed")
    }
}

impl Factory for Plugin {
    fn route_config(&self, kind: &str, value: &Value) -> Result<RouteConfig, ConfigError> {
        let own = Override::read(kind, value, self.schema.as_ref(), Takes::Texts)?;
        let config = own.config.as_ref().map(|config| self.configured(config)).transpose();
        let config = config.map_err(|message| vec![ValueError { path: "config".to_owned(), message }])?;
        Ok(RouteConfig::new(Own { config, disabled: own.disabled }, value))
    }

    fn filter(&self, configs: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        let own = configs.most_specific::<Own>();
        let config = own.and_then(|own| own.config.as_ref()).or(self.config.as_ref());
        match config.filter(|_| !own.is_some_and(|own| own.disabled)) {
            Some(config) => Rc::new(Hosted::new(OnWorker::new(config, None, place))),
            None => Rc::new(Off),
        }
    }

    fn files(&self) -> &[WatchedFile] {
        &self.files
    }

    fn is_current(&self) -> bool {
        self.edition.as_ref().is_none_or(Edition::is_current)
    }

    fn uses_connection(&self) -> bool {
        self.library.contents.uses_connection
    }

    fn sight(&self, configs: &ScopedConfigs) -> Option<Sight> {
        Some(Override::sight(configs))
    }

    fn plugin(&self) -> Option<&Facts> {
        Some(&self.facts)
    }
}

/// Where a plugin is switched off.
struct Off;

impl Filter for Off {
    fn hooks(&self) -> postrider_filter_api::Hooks {
        postrider_filter_api::Hooks::default()
    }
}
