//! What a file of tests is about: a script, or a module, which is loaded by whoever knows the runtimes.

use std::path::{Path, PathBuf};

use postrider_filter_trial::Loaded;
use postrider_model::Value;

use super::Plugin;
use super::plugin::{Runtime, is_module};

/// Loads a module as a configuration would.
pub type LoadModule<'l> = dyn Fn(Module) -> Result<Loaded, Vec<String>> + 'l;

/// A plugin that is no script, with what a stream's test says of it.
#[derive(Debug, Clone)]
pub struct Module {
    pub path: PathBuf,
    /// As the test names it; told from the file without.
    pub runtime: Option<String>,
    pub config: Value,
    pub rules: Value,
}

/// The plugin that is tested.
pub(super) enum Subject<'l> {
    Script(Plugin),
    Module { path: PathBuf, runtime: Option<String>, load: &'l LoadModule<'l> },
}

impl<'l> Subject<'l> {
    /// The plugin in a file; its runtime told from the file unless it is named.
    ///
    /// # Errors
    /// The file cannot be read, or does not say whose it is.
    pub(super) fn open(path: &Path, named: Option<String>, load: &'l LoadModule<'l>) -> Result<Subject<'l>, String> {
        let script = named.as_deref().map(|name| Runtime::ALL.into_iter().find(|runtime| runtime.name() == name));
        let is_module = match script {
            Some(script) => script.is_none(),
            None => {
                let code = std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
                is_module(&code)
            }
        };
        match is_module {
            true => Ok(Subject::Module { path: path.to_owned(), runtime: named, load }),
            false => Plugin::open(path, script.flatten()).map(Subject::Script),
        }
    }

    pub(super) fn load(&self, config: Value, rules: Value) -> Result<Loaded, Vec<String>> {
        match self {
            Subject::Script(plugin) => Plugin { config, rules, ..plugin.clone() }.load(),
            Subject::Module { path, runtime, load } => {
                load(Module { path: path.clone(), runtime: runtime.clone(), config, rules })
            }
        }
    }
}
