//! Where Envoy's configurations say that a module is: by its name, in a file, or behind a URL.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use postrider_filter_api::ConfigError;
use postrider_filter_api::plugin::{CircuitRule, Facts, OnError, Policy};
use postrider_filter_plugin::read::keep;
use postrider_filter_plugin::{Code, Edition};
use postrider_model::{Fields, Value, ValueError};

use crate::library::{Library, Options};

/// What the names of a module's statistics begin with, as Envoy has it.
const NAMESPACE: &str = "dynamicmodulescustom";

/// Largest module that is fetched: as much as whoever fetches takes.
const MAX_MODULE_BYTES: u64 = 64 << 20;

/// What `DynamicModuleConfig` names.
pub(crate) enum Found {
    Here(Module),
    /// It is elsewhere, as this says, and was not fetched. What stands in its place lets everything pass, as in Envoy.
    Missing(String),
}

/// A module, loaded.
pub(crate) struct Module {
    pub(crate) library: Arc<Library>,
    /// Of one that was fetched.
    pub(crate) edition: Option<Edition>,
    pub(crate) namespace: String,
    /// The runtime's keys with their values, for while it makes configurations.
    pub(crate) runtime: Vec<(String, Value)>,
}

/// Machine code runs as long and takes as much as it wants: nothing stops a call, so none counts as stopped.
pub(crate) fn unbounded(policy: Policy) -> Policy {
    let circuit = CircuitRule { cpu_kills: 0, ..policy.circuit };
    Policy { cpu: Duration::MAX, memory: usize::MAX, circuit, ..policy }
}

/// What the admin tells of a module that Envoy's configuration names.
pub(crate) fn facts(name: &str, library: &Library) -> Facts {
    Facts { digest: library.contents.digest.clone(), ..absent(name, library.source.clone()) }
}

/// The same of a module that is not here.
pub(crate) fn absent(name: &str, source: String) -> Facts {
    let policy = unbounded(Policy { on_error: OnError::Continue, ..Policy::default() });
    Facts {
        name: name.to_owned(),
        version: String::new(),
        runtime: "native",
        source,
        digest: String::new(),
        // Envoy has none: a module that fails is called again with the next stream.
        policy: Policy { circuit: CircuitRule { faults: 0, ..policy.circuit }, ..policy },
        config: Value::Map(Vec::new()),
        schema: None,
    }
}

/// `DynamicModuleConfig`
pub(crate) fn module(fields: &mut Fields<'_>, errors: &mut ConfigError) -> Option<Found> {
    let Some(mut module) = keep(fields.map("dynamic_module_config"), errors).flatten() else {
        errors.push(fields.error("dynamic_module_config", "there is no `dynamic_module_config`"));
        return None;
    };
    let name = keep(module.string("name"), errors).flatten().unwrap_or_default();
    let options = Options {
        stays: keep(module.bool("do_not_close"), errors).flatten().unwrap_or(false),
        global: keep(module.bool("load_globally"), errors).flatten().unwrap_or(false),
    };
    let namespace = keep(module.string("metrics_namespace"), errors).flatten().filter(|name| !name.is_empty());
    let runtime = match module.value("runtime") {
        Some(Value::Map(entries)) => entries.clone(),
        _ => Vec::new(),
    };
    let mut at = module.path_of("name");
    let (mut edition, mut missing) = (None, None);
    let library = match keep(module.map("module"), errors).flatten() {
        None if name.is_empty() => {
            errors.push(module.error("name", "there is neither a `name` nor a `module`"));
            None
        }
        None => Some(Library::named(name, options)),
        Some(mut source) => {
            let found = match keep(source.map("remote"), errors).flatten() {
                Some(_) if source.value("local").is_some() => {
                    errors.push(source.error("remote", "`local` is set too; a module has one place"));
                    None
                }
                Some(remote) => {
                    at = source.path_of("remote");
                    match fetched(remote) {
                        Ok(Code { missing: Some(_), source, .. }) => {
                            missing = Some(source);
                            None
                        }
                        Ok(code) => {
                            edition = code.edition();
                            Some(
                                Library::copied(Path::new(&code.source), &code.text, options)
                                    .map(|(library, _)| library),
                            )
                        }
                        Err(found) => {
                            errors.extend(found);
                            None
                        }
                    }
                }
                None => local(&mut source, &mut at, errors).map(|file| Library::at(Path::new(&file), options)),
            };
            errors.extend(source.finish().err().into_iter().flatten());
            found
        }
    };
    // Says what happens before the module is here: a configuration always waits for it.
    let _ = keep(module.bool("nack_on_cache_miss"), errors);
    errors.extend(module.finish().err().into_iter().flatten());
    if let Some(source) = missing {
        return Some(Found::Missing(source));
    }
    match library? {
        Ok(library) => {
            let namespace = namespace.unwrap_or(NAMESPACE).to_owned();
            Some(Found::Here(Module { library: Arc::new(library), edition, namespace, runtime }))
        }
        Err(message) => {
            errors.push(ValueError { path: at, message });
            None
        }
    }
}

/// Machine code that somebody fetched before: a file behind a URL. Images hold modules of WebAssembly alone.
///
/// # Errors
/// What is wrong with the place, or kept it from being fetched.
pub(crate) fn fetched(mut remote: Fields<'_>) -> Result<Code, ConfigError> {
    let url = match remote.value("url") {
        Some(Value::String(url)) => url.clone(),
        _ => match remote.map("http_uri") {
            Ok(Some(mut uri)) => uri.string("uri").ok().flatten().unwrap_or_default().to_owned(),
            _ => String::new(),
        },
    };
    if url.starts_with("oci://") {
        let message = format!("a native module is a file behind http or https, not an image (`{url}`)");
        return Err(vec![ValueError { path: remote.path().to_owned(), message }]);
    }
    Code::fetched(remote, MAX_MODULE_BYTES)
}

fn local(source: &mut Fields<'_>, at: &mut String, errors: &mut ConfigError) -> Option<String> {
    let mut local = keep(source.map("local"), errors).flatten()?;
    let file = keep(local.string("filename"), errors).flatten().map(str::to_owned);
    *at = local.path_of("filename");
    if file.is_none() {
        errors.push(local.error("filename", "a module is a file: there is no `filename`"));
    }
    errors.extend(local.finish().err().into_iter().flatten());
    file
}
