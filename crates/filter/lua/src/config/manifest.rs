//! Plugin manifests (`postrider.filters.http.plugin.v1.Plugin`) whose runtime is Lua.

use std::path::PathBuf;
use std::sync::Arc;

use postrider_filter_api::{ConfigError, Factory};
use postrider_filter_plugin::read::keep;
use postrider_filter_plugin::{Manifest, Missing};
use postrider_model::{Value, ValueError};

use super::rider::{Overrides, Rider, with_required};
use super::rules::{refuse_riders, sandbox_and_sdk};
use super::shared::{Recipe, paths};
use crate::last_error::LastError;
use crate::program::{Dialect, Program, Sandbox};

/// Reads a manifest and tries its plugin out.
pub(super) fn build(_: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    let manifest = Manifest::read(value)?;
    let mut errors = Vec::new();
    let (dialect, runtime) = match manifest.runtime.as_str() {
        "rider" => (Dialect::Rider, "rider"),
        "envoy-lua" => (Dialect::Envoy, "envoy-lua"),
        other => {
            let message = format!("there is no runtime `{other}`; expected `rider` or `envoy-lua`");
            return Err(vec![ValueError { path: "runtime".to_owned(), message }]);
        }
    };
    let mut options = match manifest.options.fields() {
        Ok(options) => options,
        Err(error) => return Err(vec![error]),
    };
    let below = |error: ValueError| ValueError { path: format!("options.{}", error.path), message: error.message };
    if dialect == Dialect::Envoy {
        refuse_riders(&mut options, &RIDER_OPTIONS, &format!("`{runtime}`"), &mut errors);
    }
    let (sandbox, sdk) = sandbox_and_sdk(&mut options, &mut errors);
    let log_file = keep(options.string("log_file"), &mut errors).flatten().map(PathBuf::from);
    let clears_route_cache = keep(options.bool("clear_route_cache"), &mut errors).flatten();
    let mut package_path = paths(&mut options, "package_path", &mut errors);
    if let Some(folder) = &manifest.code.directory {
        package_path = format!("{0}/?.lua;{0}/?/init.lua;{package_path}", folder.display());
    }
    let package_cpath = paths(&mut options, "package_cpath", &mut errors);
    if !package_cpath.is_empty() && sandbox == Sandbox::Strict {
        errors.push(options.error("package_cpath", "the sandbox level `strict` loads no machine code"));
    }
    let allow_no_route = keep(options.bool("allow_no_route"), &mut errors).flatten().unwrap_or(true);
    errors.extend(options.finish().err().into_iter().flatten());
    let mut errors: ConfigError = errors.into_iter().map(below).collect();
    errors.extend(unknown_phases(&manifest.phases, dialect, runtime));
    if manifest.code.missing.is_some() && errors.is_empty() {
        return Ok(Arc::new(Missing::new(manifest.facts(runtime), manifest.schema)));
    }
    let program = Program {
        dialect,
        name: match manifest.code.files.first() {
            Some(file) => format!("@{}", file.path.display()),
            None => format!("={}", manifest.name),
        },
        source: manifest.code.text.clone(),
        sandbox,
        sdk,
        package_path,
        package_cpath,
        clears_route_cache: clears_route_cache.unwrap_or(dialect == Dialect::Envoy),
        log_file,
    };
    if !errors.is_empty() {
        return Err(errors);
    }
    let last_error = LastError::default();
    match Recipe::new(manifest.facts(runtime), program, "", &last_error) {
        Ok(recipe) => Ok(Arc::new(Rider {
            last_error,
            edition: manifest.code.edition(),
            files: with_required(manifest.code.files, &recipe),
            recipe,
            allow_no_route,
            kind: Overrides::Manifest(manifest.schema),
            skipped: skipped(&manifest.phases),
        })),
        Err(message) => {
            let message = format!("the plugin does not load: {message}");
            Err(vec![ValueError { path: "code".to_owned(), message }])
        }
    }
}

/// Options that only Rider plugins have.
const RIDER_OPTIONS: [&str; 4] = ["sdk", "copy_route_config", "log_file", "allow_no_route"];

/// The phases that scripts of a dialect have functions for.
fn phases_of(dialect: Dialect) -> &'static [&'static str] {
    match dialect {
        Dialect::Envoy => &["request_headers", "response_headers"],
        Dialect::Rider => &["request_headers", "request_body", "response_headers", "response_body"],
    }
}

/// An error for each phase that a manifest names and its scripts cannot have a function for.
fn unknown_phases(phases: &[String], dialect: Dialect, runtime: &str) -> ConfigError {
    let known = phases_of(dialect);
    let error = |(index, phase): (usize, &String)| {
        let message = format!("no plugin of the runtime `{runtime}` has a hook there; expected {}", known.join(", "));
        (!known.contains(&phase.as_str())).then(|| ValueError { path: format!("phases[{index}]"), message })
    };
    phases.iter().enumerate().filter_map(error).collect()
}

/// The functions that `phases` leaves out, by their [`crate::machine::Hook`]; none when it names none.
fn skipped(phases: &[String]) -> [bool; 4] {
    let left_out = |name: &str| !phases.is_empty() && !phases.iter().any(|phase| phase == name);
    ["request_headers", "request_body", "response_headers", "response_body"].map(left_out)
}
