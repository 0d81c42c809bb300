//! What route tables, virtual hosts, routes and weighted clusters say for a plugin, and how that is merged.

use std::sync::Arc;

use postrider_filter_api::ConfigError;
use postrider_filter_plugin::read::keep;
use postrider_filter_plugin::{Schema, Takes};
use postrider_model::{Value, ValueError};

use super::any;
use crate::parsed::{Home, Parsed, RouteParsed};

pub(super) const ROUTE_KIND: &str = "envoy.extensions.filters.http.golang.v3alpha.ConfigsPerRoute";

/// What one scope says for one plugin.
#[derive(Debug)]
pub(super) enum Override {
    /// Nothing: it names other plugins.
    Silent,
    Disabled,
    Config(RouteParsed),
}

/// Which overrides a plugin takes.
pub(super) enum Overrides {
    Envoy,
    Manifest(Option<Schema>),
}

/// What a plugin gets when several scopes have a configuration for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum MergePolicy {
    /// All of them, merged by the plugin's own code.
    #[default]
    All,
    /// Those of scopes merged, without the filter's own.
    Scopes,
    /// The most specific one as it is.
    MostSpecific,
}

impl MergePolicy {
    /// By its name in Envoy's configuration.
    pub(super) fn parse(name: &str) -> Option<MergePolicy> {
        Some(match name {
            "MERGE_VIRTUALHOST_ROUTER_FILTER" => MergePolicy::All,
            "MERGE_VIRTUALHOST_ROUTER" => MergePolicy::Scopes,
            "OVERRIDE" => MergePolicy::MostSpecific,
            _ => return None,
        })
    }

    /// `scopes` begins with the most specific. `None` where the plugin is switched off.
    pub(super) fn merged(self, base: &Arc<Parsed>, scopes: &[&Override]) -> Option<Arc<Parsed>> {
        let speaking = || scopes.iter().filter(|scope| !matches!(scope, Override::Silent));
        if let Some(Override::Disabled) = speaking().next() {
            return None;
        }
        let mut configs = speaking().rev().filter_map(|scope| match scope {
            Override::Config(config) => Some(config),
            Override::Silent | Override::Disabled => None,
        });
        Some(match self {
            MergePolicy::All => configs.fold(base.clone(), |parent, config| config.on_top_of(&parent)),
            MergePolicy::Scopes => match configs.next() {
                Some(first) => configs.fold(first.own.clone(), |parent, config| config.on_top_of(&parent)),
                None => base.clone(),
            },
            MergePolicy::MostSpecific => configs.next_back().map_or_else(|| base.clone(), |config| config.own.clone()),
        })
    }
}

impl Overrides {
    /// Has Go code parse what one scope says.
    ///
    /// # Errors
    /// It is of another type, or what is wrong with it.
    pub(super) fn read(
        &self,
        kind: &str,
        value: &Value,
        home: &Home,
        plugin: &'static str,
        workers: u32,
    ) -> Result<Override, ConfigError> {
        let (config, path) = match self {
            Overrides::Manifest(schema) => {
                let own = postrider_filter_plugin::Override::read(kind, value, schema.as_ref(), Takes::Texts)?;
                match own.config {
                    _ if own.disabled => return Ok(Override::Disabled),
                    None => return Ok(Override::Silent),
                    Some(config) => (any::of(&config), "config".to_owned()),
                }
            }
            Overrides::Envoy if kind != ROUTE_KIND => {
                let message = format!("a Go filter is overridden by {ROUTE_KIND}, not by {kind}");
                return Err(vec![ValueError { path: String::new(), message }]);
            }
            Overrides::Envoy => match read(value, plugin)? {
                Said::Nothing => return Ok(Override::Silent),
                Said::Disabled => return Ok(Override::Disabled),
                Said::Config(config) => (config, format!("plugins_config.{plugin}.config")),
            },
        };
        match Parsed::of_route(home, plugin, &config, workers) {
            Ok(own) => Ok(Override::Config(RouteParsed::new(own))),
            Err(why) => Err(vec![ValueError { path, message: super::in_words(plugin, why) }]),
        }
    }
}

enum Said {
    Nothing,
    Disabled,
    Config(Vec<u8>),
}

/// `ConfigsPerRoute`: of several plugins by name, what is said for this one. The others are read to see that nothing is
/// wrong with them.
fn read(value: &Value, plugin: &str) -> Result<Said, ConfigError> {
    let mut errors = Vec::new();
    let mut fields = value.fields().map_err(|error| vec![error])?;
    let mut said = Said::Nothing;
    if let Some(mut plugins) = keep(fields.map("plugins_config"), &mut errors).flatten() {
        for name in plugins.keys().collect::<Vec<_>>() {
            let Some(mut own) = keep(plugins.map(name), &mut errors).flatten() else { continue };
            let disabled = keep(own.bool("disabled"), &mut errors).flatten().unwrap_or(false);
            let path = format!("{}.config", own.path());
            let config =
                keep(own.value("config").map(|value| any::encode(Some(value), &path)).transpose(), &mut errors);
            match config.flatten() {
                Some(_) if disabled => errors.push(own.error("disabled", "it has a `config`, too")),
                Some(config) if name == plugin => said = Said::Config(config),
                None if disabled && name == plugin => said = Said::Disabled,
                _ => {}
            }
            errors.extend(own.finish().err().into_iter().flatten());
        }
        errors.extend(plugins.finish().err().into_iter().flatten());
    }
    errors.extend(fields.finish().err().into_iter().flatten());
    if errors.is_empty() { Ok(said) } else { Err(errors) }
}
