//! `proxy.filters.http.rider` (`proxy.filters.http.rider.v3alpha1`).

use std::any::Any;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::plugin::{Facts, Sight, Standing};
use postrider_filter_api::{ConfigError, Factory, Filter, Hooks, Place, RouteConfig, ScopedConfigs, WatchedFile};
use postrider_filter_plugin::read::{keep, object};
use postrider_filter_plugin::{Code, Edition, MAX_CODE_BYTES, Missing, Override, Takes};
use postrider_model::{Fields, Value, ValueError};

use super::rules::{self, Rules};
use super::shared::{Places, Recipe, does_not_load, next_config_id};
use crate::hooks::Scripted;
use crate::last_error::LastError;
use crate::program::{Dialect, Program};
use crate::view::View;

pub(super) const KIND: &str = "proxy.filters.http.rider.v3alpha1.FilterConfig";
const ROUTE_KIND: &str = "proxy.filters.http.rider.v3alpha1.RouteFilterConfig";

/// Reads a gateway-level configuration and tries its plugin out.
pub(super) fn build(_: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    let mut fields = value.fields().map_err(|error| vec![error])?;
    let mut errors = Vec::new();
    let rules = rules::take(&mut fields, Dialect::Rider, &mut errors);
    let plugin = match keep(fields.map("plugin"), &mut errors) {
        Some(Some(plugin)) => read(plugin, rules, &mut errors),
        Some(None) => {
            errors.push(fields.error("plugin", "there is no `plugin`"));
            None
        }
        None => None,
    };
    errors.extend(fields.finish().err().into_iter().flatten());
    plugin.filter(|_| errors.is_empty()).ok_or(errors)
}

fn read(mut fields: Fields<'_>, rules: Rules, errors: &mut ConfigError) -> Option<Arc<dyn Factory>> {
    let name = keep(fields.string("name"), errors).flatten().unwrap_or_default().to_owned();
    if name.is_empty() {
        errors.push(fields.error("name", "there is no `name`: routes and statistics know the plugin by it"));
    }
    let config = object(&mut fields, "config", errors);
    let mut package_path = String::new();
    if let Some(mut vm) = keep(fields.map("vm_config"), errors).flatten() {
        // Plugins do not share a machine here, whatever the id.
        let _ = keep(vm.string("vm_id"), errors);
        if let Some(path) = keep(vm.string("package_path"), errors).flatten().filter(|path| !path.is_empty()) {
            package_path = format!("{};", path.trim_end_matches(';'));
        }
        errors.extend(vm.finish().err().into_iter().flatten());
    }
    let log_file = keep(fields.map("log_file"), errors).flatten().and_then(|mut log| {
        let path = keep(log.string("path"), errors).flatten().filter(|path| !path.is_empty()).map(PathBuf::from);
        errors.extend(log.finish().err().into_iter().flatten());
        path
    });
    let allow_no_route = keep(fields.bool("allow_no_route"), errors).flatten().unwrap_or(false);
    let code = match keep(fields.map("code"), errors) {
        Some(Some(code)) => Code::read_async(code, MAX_CODE_BYTES).map_err(|found| errors.extend(found)).ok(),
        Some(None) => {
            errors.push(fields.error("code", "there is no `code`"));
            None
        }
        None => None,
    };
    let (code_path, config_path) = (fields.path_of("code"), fields.path_of("config"));
    errors.extend(fields.finish().err().into_iter().flatten());
    let code = code?;
    let facts = Facts {
        name: name.clone(),
        version: String::new(),
        runtime: "rider",
        source: code.source.clone(),
        digest: code.digest.clone(),
        policy: rules.policy,
        config,
        schema: None,
    };
    if code.missing.is_some() {
        return Some(Arc::new(Missing::new(facts, None, Takes::Objects)));
    }
    let (files, edition) = (code.files.clone(), code.edition());
    let program = Program {
        dialect: Dialect::Rider,
        name: match code.files.first() {
            Some(file) => format!("@{}", file.path.display()),
            None => format!("={name}"),
        },
        source: code.text,
        sandbox: rules.sandbox,
        sdk: rules.sdk,
        package_path,
        package_cpath: String::new(),
        clears_route_cache: false,
        log_file,
        required: Vec::new(),
    };
    let last_error = LastError::default();
    let memory = facts.policy.memory;
    match Recipe::new(facts, program, "", &last_error) {
        Ok(recipe) => Some(Arc::new(Rider {
            last_error,
            files: with_required(files, &recipe),
            edition,
            recipe,
            allow_no_route,
            kind: Overrides::Rider,
            skipped: [false; 4],
        })),
        Err(fault) => {
            let budget = format!("{}.budget.memory_bytes", rules::KEY);
            let places = Places { code: &code_path, config: &config_path, memory: &budget };
            errors.push(does_not_load(&fault, memory, places));
            None
        }
    }
}

/// A plugin's files with those that it requires.
pub(super) fn with_required(mut files: Vec<WatchedFile>, recipe: &Recipe) -> Vec<WatchedFile> {
    for required in &recipe.program.required {
        if !files.contains(required) {
            files.push(required.clone());
        }
    }
    files
}

/// A Rider plugin, from its own configuration or from a manifest.
pub(super) struct Rider {
    pub(super) recipe: Recipe,
    pub(super) last_error: LastError,
    pub(super) files: Vec<WatchedFile>,
    /// Where its code was fetched from, if it was.
    pub(super) edition: Option<Edition>,
    pub(super) allow_no_route: bool,
    pub(super) kind: Overrides,
    /// Functions that are not called although the script has them.
    pub(super) skipped: [bool; 4],
}

/// Which overrides a plugin takes.
pub(super) enum Overrides {
    Rider,
    Manifest(Option<postrider_filter_plugin::Schema>),
}

/// The entries of a `RouteFilterConfig` in their order: several plugins read the same one.
struct Entries(Vec<Entry>);

struct Entry {
    name: String,
    config: Option<Value>,
    id: f64,
}

/// An override of a manifest's.
struct Own {
    config: Option<Value>,
    disabled: bool,
    id: f64,
}

impl Rider {
    /// The entry of this plugin. The most specific list counts alone, whether it names the plugin or not.
    fn entry<'c>(&self, configs: &'c ScopedConfigs) -> Option<&'c Entry> {
        let name = &self.recipe.facts.name;
        configs.most_specific::<Entries>().and_then(|all| all.0.iter().find(|entry| entry.name == *name))
    }

    /// What the pipeline is asked for: a side whose functions are all skipped is none of this plugin's.
    fn hooks(&self) -> Hooks {
        let [request_head, request_body, response_head, response_body] = self.skipped;
        let (no_request, no_response) = (request_head && request_body, response_head && response_body);
        let all = self.recipe.hooks;
        Hooks {
            request_headers: all.request_headers && !no_request,
            request_body: all.request_body && !no_request,
            request_trailers: all.request_trailers && !no_request,
            response_headers: all.response_headers && !no_response,
            response_body: all.response_body && !no_response,
            response_trailers: all.response_trailers && !no_response,
            complete: all.complete,
            declares_length: all.declares_length,
            ..Hooks::default()
        }
    }
}

impl Factory for Rider {
    fn route_config(&self, kind: &str, value: &Value) -> Result<RouteConfig, ConfigError> {
        if let Overrides::Manifest(schema) = &self.kind {
            let own = Override::read(kind, value, schema.as_ref(), Takes::Objects)?;
            // Without a configuration of its own an override says nothing to the script.
            let id = if own.config.is_some() { next_config_id() } else { 0.0 };
            let own = Own { config: own.config, disabled: own.disabled, id };
            return Ok(RouteConfig::new(own, value));
        }
        if kind != ROUTE_KIND {
            let message = format!("a Rider plugin is overridden by {ROUTE_KIND}, not by {kind}");
            return Err(vec![ValueError { path: String::new(), message }]);
        }
        let mut fields = value.fields().map_err(|error| vec![error])?;
        let mut errors = Vec::new();
        let mut entries = Vec::new();
        for mut plugin in keep(fields.maps("plugins"), &mut errors).unwrap_or_default() {
            let name = keep(plugin.string("name"), &mut errors).flatten().unwrap_or_default().to_owned();
            if name.is_empty() {
                errors.push(plugin.error("name", "there is no `name`"));
            }
            let config = match plugin.value("config") {
                None | Some(Value::Null) => None,
                Some(_) => Some(object(&mut plugin, "config", &mut errors)),
            };
            errors.extend(plugin.finish().err().into_iter().flatten());
            entries.push(Entry { name, config, id: next_config_id() });
        }
        errors.extend(fields.finish().err().into_iter().flatten());
        if errors.is_empty() { Ok(RouteConfig::new(Entries(entries), value)) } else { Err(errors) }
    }

    fn filter(&self, configs: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        let entry = self.entry(configs);
        let own = configs.most_specific::<Own>();
        let disabled = own.is_some_and(|own| own.disabled);
        let (config, id, is_named) = match (entry, own) {
            (Some(entry), _) => (entry.config.clone(), entry.id, true),
            (None, Some(own)) => (own.config.clone(), own.id, true),
            // A manifest's plugin runs wherever it is not switched off.
            (None, None) => (None, 0.0, matches!(self.kind, Overrides::Manifest(_))),
        };
        Rc::new(Scripted {
            hooks: if disabled { Hooks::default() } else { self.hooks() },
            allow_no_route: self.allow_no_route,
            view: Rc::new(View {
                plugin: (!disabled).then(|| self.recipe.plugin(place)),
                route_config: config.clone(),
                route_config_id: id,
                is_named,
                skipped: self.skipped,
                // Envoy's dialect has one configuration: the most specific.
                filter_context: config.clone().unwrap_or_else(|| self.recipe.facts.config.clone()),
            }),
        })
    }

    fn warm(&self, configs: &ScopedConfigs, place: &Place<'_>) -> Option<Rc<dyn Any>> {
        let is_disabled = configs.most_specific::<Own>().is_some_and(|own| own.disabled);
        if is_disabled { None } else { self.recipe.warm(self.hooks(), place) }
    }

    fn files(&self) -> &[WatchedFile] {
        &self.files
    }

    fn is_current(&self) -> bool {
        self.edition.as_ref().is_none_or(Edition::is_current)
    }

    fn sight(&self, configs: &ScopedConfigs) -> Option<Sight> {
        Some(match (&self.kind, self.entry(configs)) {
            (Overrides::Manifest(_), _) => Override::sight(configs),
            (Overrides::Rider, Some(Entry { config: Some(config), .. })) => Sight::Config(config.clone()),
            (Overrides::Rider, _) => Sight::Nothing,
        })
    }

    fn plugin(&self) -> Option<&Facts> {
        Some(&self.recipe.facts)
    }

    fn standing(&self) -> Standing {
        Standing { last_error: self.last_error.seen(), ..Standing::default() }
    }
}
