//! `envoy.filters.http.dynamic_modules`.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_filter_api::plugin::{Facts, OnError, Policy};
use postrider_filter_api::{ConfigError, Factory, Filter, Place, RouteConfig, ScopedConfigs, WatchedFile};
use postrider_filter_plugin::json::to_json_text;
use postrider_filter_plugin::read::{data_source, keep};
use postrider_filter_plugin::{Edition, Missing, Takes};
use postrider_model::{Fields, Value, ValueError};

use crate::callbacks::runtime;
use crate::config::{Config, Given, Phases, RouteSettings, Secrets};
use crate::hooks::Hosted;
use crate::on_worker::OnWorker;
use crate::source::{Found, absent, facts, module};

pub(crate) const KIND: &str = "envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter";
const ROUTE_KIND: &str = "envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilterPerRoute";

/// Envoy's word for a module that cannot make its part of a stream.
const FAILED: &str = "dynamic_module_filter_init_failed";

/// Loads the module and has it make its configuration.
pub(crate) fn build(name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    let mut fields = value.fields().map_err(|error| vec![error])?;
    let mut errors = Vec::new();
    let module = module(&mut fields, &mut errors);
    let filter = keep(fields.string("filter_name"), &mut errors).flatten().unwrap_or_default().to_owned();
    let config = bytes(&mut fields, "filter_config", &mut errors);
    let mut files = Vec::new();
    let secrets = secrets(&mut fields, &mut files, &mut errors);
    // Nothing but the order of filters says that one is terminal here.
    let _ = keep(fields.bool("terminal_filter"), &mut errors);
    errors.extend(fields.finish().err().into_iter().flatten());
    let module = match module.filter(|_| errors.is_empty()) {
        Some(Found::Here(module)) => module,
        Some(Found::Missing(source)) => return Ok(Arc::new(Missing::new(absent(name, source), None, Takes::Texts))),
        None => return Err(errors),
    };
    let facts = facts(name, &module.library);
    // Envoy answers so when a module cannot make its part of a stream.
    let facts = Facts { policy: Policy { on_error: OnError::Respond(500), ..facts.policy }, ..facts };
    let given = Given { namespace: module.namespace, secrets };
    let make = || Config::new(module.library, facts, given, Phases::ALL, &filter, &config, FAILED);
    let made = runtime::known_during(module.runtime, make);
    let config = made.map_err(|message| vec![ValueError { path: "filter_config".to_owned(), message }])?;
    Ok(Arc::new(Modular { config, files, edition: module.edition, lacks: AtomicBool::new(false) }))
}

/// A module's filter from Envoy's configuration.
struct Modular {
    config: Arc<Config>,
    /// Of secrets.
    files: Vec<WatchedFile>,
    edition: Option<Edition>,
    /// The module of some override is not here.
    lacks: AtomicBool,
}

/// An override, as the factory keeps it.
struct OfRoute {
    /// `None` while its module is not here.
    settings: Option<Arc<RouteSettings>>,
}

impl Modular {
    fn on_worker(&self, configs: &ScopedConfigs, place: &Place<'_>) -> OnWorker {
        let route = configs.most_specific::<OfRoute>().and_then(|of_route| of_route.settings.clone());
        OnWorker::new(&self.config, route, place)
    }
}

impl Factory for Modular {
    fn route_config(&self, kind: &str, value: &Value) -> Result<RouteConfig, ConfigError> {
        if kind != ROUTE_KIND {
            let message = format!("a module's filter is overridden by {ROUTE_KIND}, not by {kind}");
            return Err(vec![ValueError { path: String::new(), message }]);
        }
        let mut fields = value.fields().map_err(|error| vec![error])?;
        let mut errors = Vec::new();
        let module = module(&mut fields, &mut errors);
        let old_name = keep(fields.string("per_route_config_name"), &mut errors).flatten().unwrap_or_default();
        let name = keep(fields.string("filter_name"), &mut errors).flatten().filter(|name| !name.is_empty());
        let config = bytes(&mut fields, "filter_config", &mut errors);
        errors.extend(fields.finish().err().into_iter().flatten());
        let module = match module.filter(|_| errors.is_empty()) {
            Some(Found::Here(module)) => module,
            Some(Found::Missing(_)) => {
                self.lacks.store(true, Ordering::Relaxed);
                return Ok(RouteConfig::new(OfRoute { settings: None }, value));
            }
            None => return Err(errors),
        };
        let make = || RouteSettings::new(module.library, name.unwrap_or(old_name), &config);
        let made = runtime::known_during(module.runtime, make);
        let made = made.map_err(|message| vec![ValueError { path: "filter_config".to_owned(), message }])?;
        Ok(RouteConfig::new(OfRoute { settings: Some(Arc::new(made)) }, value))
    }

    fn filter(&self, configs: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        Rc::new(Hosted::new(self.on_worker(configs, place)))
    }

    fn upstream_filter(&self, configs: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        Rc::new(Hosted::new(OnWorker { is_upstream: true, ..self.on_worker(configs, place) }))
    }

    fn files(&self) -> &[WatchedFile] {
        &self.files
    }

    fn is_current(&self) -> bool {
        !self.lacks.load(Ordering::Relaxed) && self.edition.as_ref().is_none_or(Edition::is_current)
    }

    fn uses_connection(&self) -> bool {
        self.config.uses_connection()
    }

    fn plugin(&self) -> Option<&Facts> {
        Some(&self.config.facts)
    }
}

/// `generic_secrets`: those that the module may ask for. One that cannot be read is an error when it does.
fn secrets(fields: &mut Fields<'_>, files: &mut Vec<WatchedFile>, errors: &mut ConfigError) -> Secrets {
    let mut all = Vec::new();
    for mut one in keep(fields.maps("generic_secrets"), errors).unwrap_or_default() {
        let name = keep(one.string("name"), errors).flatten().unwrap_or_default().to_owned();
        let mut wrong = Vec::new();
        let mut bytes = Vec::new();
        if let Some(mut secret) = keep(one.map("generic_secret"), &mut wrong).flatten() {
            if secret.value("secrets").is_some() {
                wrong.push(secret.error("secrets", "secrets of several parts are not supported"));
            }
            if let Some(source) = keep(secret.map("secret"), &mut wrong).flatten() {
                bytes = data_source(source, files, &mut wrong);
            }
        }
        let secret = wrong.into_iter().next().map_or(Ok(bytes), |error| Err(error.message));
        all.push((name, secret));
        one.value("generic_secret");
        errors.extend(one.finish().err().into_iter().flatten());
    }
    all
}

/// A module's configuration as it gets it: a text or bytes as they are, everything else as JSON.
pub(crate) fn bytes(fields: &mut Fields<'_>, name: &str, errors: &mut ConfigError) -> Vec<u8> {
    let Some(value) = fields.value(name) else { return Vec::new() };
    let Value::Map(entries) = value else {
        errors.push(fields.error(name, "expected a typed configuration"));
        return Vec::new();
    };
    let of = |wanted: &str| entries.iter().find(|(key, _)| key == wanted).map(|(_, value)| value);
    let kind = match of("@type") {
        Some(Value::String(kind)) => kind.rsplit('/').next().unwrap_or_default(),
        _ => "",
    };
    match (kind, of("value")) {
        ("google.protobuf.StringValue", Some(Value::String(text))) => text.clone().into_bytes(),
        ("google.protobuf.BytesValue", Some(Value::String(text))) => STANDARD.decode(text).unwrap_or_else(|error| {
            errors.push(fields.error(name, format!("no base64: {error}")));
            Vec::new()
        }),
        ("google.protobuf.StringValue" | "google.protobuf.BytesValue", _) => Vec::new(),
        ("google.protobuf.Struct", Some(value)) => to_json_text(value).into_bytes(),
        ("google.protobuf.Struct", None) => {
            let entries = entries.iter().filter(|(key, _)| key != "@type").cloned().collect();
            to_json_text(&Value::Map(entries)).into_bytes()
        }
        (kind, _) if kind.ends_with(".TypedStruct") => {
            to_json_text(of("value").unwrap_or(&Value::Map(Vec::new()))).into_bytes()
        }
        (kind, _) => {
            let message = format!("expected a StringValue, BytesValue, Struct or TypedStruct, found `{kind}`");
            errors.push(fields.error(name, message));
            Vec::new()
        }
    }
}
