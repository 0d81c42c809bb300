//! Plugin manifests (`postrider.filters.http.plugin.v1.Plugin`) whose runtime is Lua.

use std::path::PathBuf;
use std::sync::Arc;

use postrider_filter_api::{ConfigError, Factory};
use postrider_filter_plugin::read::keep;
use postrider_filter_plugin::{Manifest, Missing, PHASES, Takes};
use postrider_model::{Value, ValueError};

use super::rider::{Overrides, Rider, with_required};
use super::rules::{refuse_riders, sandbox_and_sdk};
use super::shared::{Places, Recipe, does_not_load, paths};
use crate::last_error::LastError;
use crate::program::{Dialect, Program, Sandbox, Sdk};

/// Reads a manifest and tries its plugin out.
pub(super) fn build(_: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    let manifest =
        Manifest::read(value, Takes::Objects).map_err(|errors| [errors, wrong_for_runtime(value)].concat())?;
    let runtime = Runtime::named(&manifest.runtime).map_err(|error| vec![error])?;
    let mut errors = Vec::new();
    let options = Options::read(&manifest.options, runtime, &mut errors);
    errors.extend(unknown_phases(&manifest.phases, runtime));
    let Some(options) = options.filter(|_| errors.is_empty()) else { return Err(errors) };
    let Runtime { dialect, name: runtime } = runtime;
    let Options { sandbox, sdk, log_file, clears_route_cache, mut package_path, package_cpath, allow_no_route } =
        options;
    if let Some(folder) = &manifest.code.directory {
        package_path = format!("{0}/?.lua;{0}/?/init.lua;{package_path}", folder.display());
    }
    if manifest.code.missing.is_some() {
        return Ok(Arc::new(Missing::new(manifest.facts(runtime), manifest.schema, Takes::Objects)));
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
        required: Vec::new(),
    };
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
        Err(fault) => {
            let places = Places { code: "code", config: "config", memory: "budget.memory_bytes" };
            Err(vec![does_not_load(&fault, manifest.policy.memory, places)])
        }
    }
}

/// A runtime of this crate.
#[derive(Clone, Copy)]
struct Runtime {
    dialect: Dialect,
    name: &'static str,
}

impl Runtime {
    /// # Errors
    /// There is none of that name here.
    fn named(name: &str) -> Result<Runtime, ValueError> {
        match name {
            "rider" => Ok(Runtime { dialect: Dialect::Rider, name: "rider" }),
            "envoy-lua" => Ok(Runtime { dialect: Dialect::Envoy, name: "envoy-lua" }),
            other => {
                let message = format!("there is no runtime `{other}`; expected `rider` or `envoy-lua`");
                Err(ValueError { path: "runtime".to_owned(), message })
            }
        }
    }
}

/// What the options of a manifest say.
struct Options {
    sandbox: Sandbox,
    sdk: Sdk,
    log_file: Option<PathBuf>,
    clears_route_cache: Option<bool>,
    package_path: String,
    package_cpath: String,
    allow_no_route: bool,
}

impl Options {
    /// `None` when they are no object.
    fn read(options: &Value, runtime: Runtime, errors: &mut ConfigError) -> Option<Options> {
        let mut options = keep(options.fields(), errors)?;
        let mut found = Vec::new();
        if runtime.dialect == Dialect::Envoy {
            refuse_riders(&mut options, &RIDER_OPTIONS, &format!("`{}`", runtime.name), &mut found);
        }
        let (sandbox, sdk) = sandbox_and_sdk(&mut options, &mut found);
        let read = Options {
            sandbox,
            sdk,
            log_file: keep(options.string("log_file"), &mut found).flatten().map(PathBuf::from),
            clears_route_cache: keep(options.bool("clear_route_cache"), &mut found).flatten(),
            package_path: paths(&mut options, "package_path", &mut found),
            package_cpath: paths(&mut options, "package_cpath", &mut found),
            allow_no_route: keep(options.bool("allow_no_route"), &mut found).flatten().unwrap_or(true),
        };
        if !read.package_cpath.is_empty() && sandbox == Sandbox::Strict {
            found.push(options.error("package_cpath", "the sandbox level `strict` loads no machine code"));
        }
        found.extend(options.finish().err().into_iter().flatten());
        let below = |error: ValueError| ValueError { path: format!("options.{}", error.path), ..error };
        errors.extend(found.into_iter().map(below));
        Some(read)
    }
}

/// What is wrong by the rules of the runtime in a manifest that has other faults: all are told at once.
fn wrong_for_runtime(manifest: &Value) -> ConfigError {
    let mut errors = Vec::new();
    if let Ok(mut fields) = manifest.fields()
        && let Ok(Some(name)) = fields.string("runtime")
        && let Ok(runtime) = Runtime::named(name)
    {
        let phases = fields.list("phases").unwrap_or_default().into_iter();
        let phases: Vec<String> = phases
            .map(|(_, phase)| match phase {
                Value::String(phase) => phase.clone(),
                _ => String::new(),
            })
            .collect();
        errors.extend(unknown_phases(&phases, runtime));
        if let Some(options @ Value::Map(_)) = fields.value("options") {
            Options::read(options, runtime, &mut errors);
        }
    }
    errors
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
fn unknown_phases(phases: &[String], runtime: Runtime) -> ConfigError {
    let known = phases_of(runtime.dialect);
    let runtime = runtime.name;
    let error = |(index, phase): (usize, &String)| {
        let message = format!("no plugin of the runtime `{runtime}` has a hook there; expected {}", known.join(", "));
        // What is no phase anywhere was told before.
        (PHASES.contains(&phase.as_str()) && !known.contains(&phase.as_str()))
            .then(|| ValueError { path: format!("phases[{index}]"), message })
    };
    phases.iter().enumerate().filter_map(error).collect()
}

/// The functions that `phases` leaves out, by their [`crate::machine::Hook`]; none when it names none.
fn skipped(phases: &[String]) -> [bool; 4] {
    let left_out = |name: &str| !phases.is_empty() && !phases.iter().any(|phase| phase == name);
    ["request_headers", "request_body", "response_headers", "response_body"].map(left_out)
}
