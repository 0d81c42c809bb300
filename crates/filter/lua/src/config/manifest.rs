//! Plugin manifests (`postrider.filters.http.plugin.v1.Plugin`) whose runtime is Lua.

use std::path::PathBuf;
use std::sync::Arc;

use postrider_filter_api::{ConfigError, Factory};
use postrider_filter_plugin::Manifest;
use postrider_filter_plugin::read::keep;
use postrider_model::{Value, ValueError};

use super::rider::{Overrides, Rider, with_required};
use super::shared::{Recipe, paths};
use crate::program::{Dialect, Program, Sandbox, Sdk};

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
    let sandbox = match keep(options.string("sandbox"), &mut errors).flatten() {
        None => Sandbox::default(),
        Some(name) => Sandbox::parse(name).unwrap_or_else(|| {
            errors.push(options.error("sandbox", format!("expected full, standard or strict, found `{name}`")));
            Sandbox::default()
        }),
    };
    let sdk = match keep(options.string("sdk"), &mut errors).flatten() {
        None | Some("builtin") => Sdk::BuiltIn,
        Some("filesystem") => Sdk::Filesystem,
        Some(name) => {
            errors.push(options.error("sdk", format!("expected builtin or filesystem, found `{name}`")));
            Sdk::BuiltIn
        }
    };
    if sdk == Sdk::Filesystem && sandbox == Sandbox::Strict {
        errors.push(options.error("sdk", "SDK files need ffi and debug, which the sandbox level `strict` has not"));
    }
    let sdk = match keep(options.bool("copy_route_config"), &mut errors).flatten() {
        Some(true) if sdk == Sdk::BuiltIn => Sdk::BuiltInCopying,
        _ => sdk,
    };
    let log_file = keep(options.string("log_file"), &mut errors).flatten().map(PathBuf::from);
    let clears_route_cache = keep(options.bool("clear_route_cache"), &mut errors).flatten();
    let mut package_path = paths(&mut options, "package_path", &mut errors);
    if let Some(folder) = &manifest.code.directory {
        package_path = format!("{0}/?.lua;{0}/?/init.lua;{package_path}", folder.display());
    }
    let package_cpath = paths(&mut options, "package_cpath", &mut errors);
    let allow_no_route = keep(options.bool("allow_no_route"), &mut errors).flatten().unwrap_or(true);
    errors.extend(options.finish().err().into_iter().flatten());
    let errors: ConfigError = errors.into_iter().map(below).collect();
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
    match Recipe::new(manifest.facts(runtime), program, "") {
        Ok(recipe) => Ok(Arc::new(Rider {
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

/// The functions that `phases` leaves out, by their [`crate::machine::Hook`]; none when it names none.
fn skipped(phases: &[String]) -> [bool; 4] {
    let left_out = |name: &str| !phases.is_empty() && !phases.iter().any(|phase| phase == name);
    ["request_headers", "request_body", "response_headers", "response_body"].map(left_out)
}
