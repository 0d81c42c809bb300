//! `envoy.filters.http.lua` (`envoy.extensions.filters.http.lua.v3`).

use std::any::Any;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::plugin::{Facts, Script, Sight, Standing};
use postrider_filter_api::{ConfigError, Factory, Filter, Hooks, Place, RouteConfig, ScopedConfigs, WatchedFile};
use postrider_filter_plugin::Code;
use postrider_filter_plugin::read::{keep, object};
use postrider_model::{Fields, Value, ValueError};

use super::rules::{self, Rules};
use super::shared::{Recipe, paths, too_little_memory};
use crate::hooks::Scripted;
use crate::last_error::LastError;
use crate::program::{Dialect, Program, Sandbox, Sdk};
use crate::view::View;
use crate::vm::Fault;

pub(super) const KIND: &str = "envoy.extensions.filters.http.lua.v3.Lua";
const ROUTE_KIND: &str = "envoy.extensions.filters.http.lua.v3.LuaPerRoute";

/// Reads a gateway-level configuration and tries its scripts out.
pub(super) fn build(name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    let mut fields = value.fields().map_err(|error| vec![error])?;
    let mut errors = Vec::new();
    let stat_prefix = keep(fields.string("stat_prefix"), &mut errors).flatten().unwrap_or_default().to_owned();
    let clears_route_cache = keep(fields.bool("clear_route_cache"), &mut errors).flatten().unwrap_or(true);
    let filter_context = object(&mut fields, "filter_context", &mut errors);
    let rules = rules::take(&mut fields, Dialect::Envoy, &mut errors);
    let mut template = Template {
        name: name.to_owned(),
        stat_prefix,
        clears_route_cache,
        rules,
        last_error: LastError::default(),
        package_path: paths(&mut fields, "package_paths", &mut errors),
        package_cpath: paths(&mut fields, "package_cpaths", &mut errors),
        files: Vec::new(),
    };
    let default = default_script(&mut fields, &mut template, &mut errors);
    let mut named = BTreeMap::new();
    if let Value::Map(entries) = object(&mut fields, "source_codes", &mut errors) {
        for (key, source) in &entries {
            let path = format!("source_codes[\"{key}\"]");
            if let Some(recipe) = template.script(source, &path, &mut errors) {
                named.insert(key.clone(), Arc::new(recipe));
            }
        }
    }
    errors.extend(fields.finish().err().into_iter().flatten());
    if !errors.is_empty() {
        return Err(errors);
    }
    let facts = match default.as_ref().or(named.values().next()) {
        Some(recipe) => (*recipe.facts).clone(),
        None => template.facts("none", String::new()),
    };
    Ok(Arc::new(Lua { facts, default, named, filter_context, template }))
}

/// `default_source_code`, or `inline_code`, which it replaced.
fn default_script(fields: &mut Fields<'_>, template: &mut Template, errors: &mut ConfigError) -> Option<Arc<Recipe>> {
    let inline = keep(fields.string("inline_code"), errors).flatten().filter(|code| !code.is_empty());
    let source = fields.value("default_source_code").filter(|source| **source != Value::Null);
    match (inline, source) {
        (Some(_), Some(_)) => {
            errors.push(fields.error("inline_code", "`default_source_code` is set too; only one of them can be"));
            None
        }
        (Some(code), None) => {
            let code = Code::inline(code, "inline");
            template.recipe(code, "inline_code", errors).map(Arc::new)
        }
        (None, Some(source)) => template.script(source, "default_source_code", errors).map(Arc::new),
        (None, None) => None,
    }
}

/// What all scripts of one filter share.
struct Template {
    name: String,
    stat_prefix: String,
    clears_route_cache: bool,
    rules: Rules,
    last_error: LastError,
    package_path: String,
    package_cpath: String,
    files: Vec<WatchedFile>,
}

impl Template {
    /// The script of a `DataSource`.
    fn script(&mut self, source: &Value, path: &str, errors: &mut ConfigError) -> Option<Recipe> {
        let below = |error: ValueError| {
            let path = if error.path.is_empty() { path.to_owned() } else { format!("{path}.{}", error.path) };
            ValueError { path, message: error.message }
        };
        let code = source.fields().map_err(|error| vec![error]).and_then(Code::read_data_source);
        match code {
            Ok(code) => self.recipe(code, path, errors),
            Err(found) => {
                errors.extend(found.into_iter().map(below));
                None
            }
        }
    }

    fn recipe(&mut self, code: Code, path: &str, errors: &mut ConfigError) -> Option<Recipe> {
        if self.rules.sandbox == Sandbox::Strict && !self.package_cpath.is_empty() {
            let message =
                "the sandbox level `strict` loads no machine code: there can be no `package_cpaths`".to_owned();
            errors.push(ValueError { path: path.to_owned(), message });
            return None;
        }
        self.files.extend(code.files.iter().cloned());
        let facts = self.facts(&code.source, code.digest);
        let program = Program {
            dialect: Dialect::Envoy,
            name: match code.files.first() {
                Some(file) => format!("@{}", file.path.display()),
                None => format!("={}", self.name),
            },
            source: code.text,
            sandbox: self.rules.sandbox,
            sdk: Sdk::BuiltIn,
            package_path: self.package_path.clone(),
            package_cpath: self.package_cpath.clone(),
            clears_route_cache: self.clears_route_cache,
            log_file: None,
            required: Vec::new(),
        };
        match Recipe::new(facts, program, &self.stat_prefix, &self.last_error) {
            Ok(recipe) => {
                self.files.extend(recipe.program.required.iter().cloned());
                Some(recipe)
            }
            Err(fault) => {
                let message = match &fault {
                    Fault::Memory => too_little_memory("the script", self.rules.policy.memory),
                    fault => format!("script load error: {fault}"),
                };
                errors.push(ValueError { path: path.to_owned(), message });
                None
            }
        }
    }

    fn facts(&self, source: &str, digest: String) -> Facts {
        Facts {
            name: self.name.clone(),
            version: String::new(),
            runtime: "envoy-lua",
            source: source.to_owned(),
            digest,
            policy: self.rules.policy.clone(),
            config: Value::Null,
            schema: None,
        }
    }
}

struct Lua {
    facts: Facts,
    default: Option<Arc<Recipe>>,
    named: BTreeMap<String, Arc<Recipe>>,
    filter_context: Value,
    template: Template,
}

/// `LuaPerRoute`
enum Override {
    Disabled,
    Named(String, Option<Value>),
    Script(Arc<Recipe>, Option<Value>),
    /// Only the context differs, if that.
    Context(Option<Value>),
}

impl Lua {
    /// What a route with these overrides runs.
    fn script<'l>(&'l self, configs: &'l ScopedConfigs) -> Option<&'l Arc<Recipe>> {
        match configs.most_specific::<Override>() {
            None | Some(Override::Context(_)) => self.default.as_ref(),
            Some(Override::Disabled) => None,
            Some(Override::Named(name, _)) => self.named.get(name),
            Some(Override::Script(recipe, _)) => Some(recipe),
        }
    }
}

impl Factory for Lua {
    fn route_config(&self, kind: &str, value: &Value) -> Result<RouteConfig, ConfigError> {
        if kind != ROUTE_KIND {
            let message = format!("the Lua filter is overridden by {ROUTE_KIND}, not by {kind}");
            return Err(vec![ValueError { path: String::new(), message }]);
        }
        let mut fields = value.fields().map_err(|error| vec![error])?;
        let mut errors = Vec::new();
        let disabled = keep(fields.bool("disabled"), &mut errors).flatten();
        if disabled == Some(false) {
            errors.push(fields.error("disabled", "can only be true: leave it out to keep the filter on"));
        }
        let name = keep(fields.string("name"), &mut errors).flatten().map(str::to_owned);
        if name.as_deref() == Some("") {
            errors.push(fields.error("name", "there is no name"));
        }
        // An empty one is one: the route sees nothing of the filter's.
        let given = fields.value("filter_context").is_some_and(|context| *context != Value::Null);
        let context = given.then(|| object(&mut fields, "filter_context", &mut errors));
        // A route's own script has a machine of its own, and none of the filter's paths.
        let mut template = Template {
            name: self.template.name.clone(),
            stat_prefix: self.template.stat_prefix.clone(),
            clears_route_cache: self.template.clears_route_cache,
            rules: self.template.rules.clone(),
            last_error: self.template.last_error.clone(),
            package_path: paths(&mut fields, "package_paths", &mut errors),
            package_cpath: paths(&mut fields, "package_cpaths", &mut errors),
            files: Vec::new(),
        };
        let script = fields.value("source_code").filter(|source| **source != Value::Null);
        if [disabled.is_some(), name.is_some(), script.is_some()].into_iter().filter(|set| *set).count() > 1 {
            let message = "only one of `disabled`, `name` and `source_code` can be set".to_owned();
            errors.push(ValueError { path: fields.path().to_owned(), message });
        }
        let script = script.and_then(|source| template.script(source, "source_code", &mut errors));
        errors.extend(fields.finish().err().into_iter().flatten());
        if !errors.is_empty() {
            return Err(errors);
        }
        let config = match (disabled, name, script) {
            (Some(true), ..) => Override::Disabled,
            (_, Some(name), _) => Override::Named(name, context),
            (_, None, Some(script)) => Override::Script(Arc::new(script), context),
            (_, None, None) => Override::Context(context),
        };
        // With the digest of its own script, since the text may be long and the file may change.
        let mut shown = value.clone();
        if let (Override::Script(recipe, _), Value::Map(fields)) = (&config, &mut shown) {
            fields.push(("digest".to_owned(), Value::String(recipe.facts.digest.clone())));
        }
        Ok(RouteConfig { files: template.files, ..RouteConfig::new(config, &shown) })
    }

    fn filter(&self, configs: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        let recipe = self.script(configs);
        let filter_context = match configs.most_specific::<Override>() {
            Some(Override::Disabled) => Value::Null,
            Some(
                Override::Named(_, Some(context))
                | Override::Script(_, Some(context))
                | Override::Context(Some(context)),
            ) => context.clone(),
            Some(Override::Named(..) | Override::Script(..) | Override::Context(_)) | None => {
                self.filter_context.clone()
            }
        };
        Rc::new(Scripted {
            hooks: recipe.map_or(Hooks::default(), |recipe| recipe.hooks),
            allow_no_route: true,
            view: Rc::new(View {
                plugin: recipe.map(|recipe| recipe.plugin(place)),
                filter_context,
                ..View::default()
            }),
        })
    }

    fn warm(&self, configs: &ScopedConfigs, place: &Place<'_>) -> Option<Rc<dyn Any>> {
        let recipe = self.script(configs)?;
        recipe.warm(recipe.hooks, place)
    }

    fn files(&self) -> &[WatchedFile] {
        &self.template.files
    }

    fn sight(&self, configs: &ScopedConfigs) -> Option<Sight> {
        let own = configs.narrowest().and_then(|(_, own)| Some((own.value.downcast_ref()?, &own.shown)));
        Some(match own {
            None => Sight::Nothing,
            Some((Override::Disabled, _)) => Sight::Off,
            Some((Override::Named(name, _), _)) if !self.named.contains_key(name) => Sight::Off,
            Some((_, shown)) => Sight::Config(shown.clone()),
        })
    }

    fn plugin(&self) -> Option<&Facts> {
        Some(&self.facts)
    }

    fn standing(&self) -> Standing {
        let script = |(name, recipe): (&String, &Arc<Recipe>)| Script {
            name: name.clone(),
            source: recipe.facts.source.clone(),
            digest: recipe.facts.digest.clone(),
        };
        Standing { scripts: self.named.iter().map(script).collect(), last_error: self.template.last_error.seen() }
    }
}
