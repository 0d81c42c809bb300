//! From files to a configuration that can run: one way for `run`, reload, `validate`, `explain` and the others.
//!
//! [`check`] reads, loads and compiles; every error of all three steps is a diagnostic with a place. It binds nothing and
//! contacts nobody.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use std::{fmt, io};

use postrider_config_core::{Diagnostic, SourceFile, render};
use postrider_config_envoy::extensions::Listed;
use postrider_config_envoy::lower::FilterKinds;
use postrider_config_envoy::{LoadOptions, Outcome, PluginFile, RuntimeOptions};
use postrider_config_short::Short;
use postrider_filter_api::Registry;
use postrider_filter_plugin::{Override, Takes, library};
use postrider_model::{FilterConfig, FilterSlot, Origin, Snapshot, Value, ValueError};
use postrider_worker::Plan;

use crate::certificates;

/// The name of standard input in diagnostics.
const STDIN_NAME: &str = "<stdin>";

/// The name of `--config-yaml` in diagnostics.
const INLINE_NAME: &str = "<config-yaml>";

/// Where a configuration comes from, and how it is read.
#[derive(Debug, Clone)]
pub struct Input {
    source: Source,
    overlay: Option<String>,
    allow_unknown_fields: bool,
    /// Extensions that it may not use.
    disabled: Vec<String>,
    service: Service,
    /// The values of the runtime's admin layer.
    overrides: BTreeMap<String, String>,
    /// Manifests of plugins beside the file, by their names.
    manifests: Manifests,
}

/// Manifests of plugins, by their names.
pub type Manifests = BTreeMap<String, String>;

#[derive(Debug, Clone)]
enum Source {
    File(PathBuf),
    Stdin,
    Inline(String),
    /// Was read before.
    Held(SourceFile),
}

/// Who the proxy says it is, whatever the file says (`--service-*`): as in Envoy, the flag wins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Service {
    pub cluster: Option<String>,
    pub node: Option<String>,
    pub zone: Option<String>,
}

/// A configuration that was read.
pub struct Checked {
    /// What was found. It holds megabytes: drop it when its findings are told and its `dump` is taken.
    pub outcome: Outcome,
    /// Ready for the workers; `None` when there are errors.
    pub plan: Option<Plan>,
}

/// A file that cannot be read.
#[derive(Debug)]
pub struct ReadError {
    name: String,
    error: io::Error,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot read {}: {}", self.name, self.error)
    }
}

impl std::error::Error for ReadError {}

impl Input {
    /// A file as a command's argument names it; `-` is standard input.
    pub fn argument(path: &Path) -> Input {
        let source = if path == Path::new("-") { Source::Stdin } else { Source::File(path.to_owned()) };
        Input {
            source,
            overlay: None,
            allow_unknown_fields: false,
            disabled: Vec::new(),
            service: Service::default(),
            overrides: BTreeMap::new(),
            manifests: Manifests::new(),
        }
    }

    /// `-c` and `--config-yaml`; `None` when there is neither.
    pub fn flags(
        path: Option<PathBuf>,
        inline: Option<String>,
        allow_unknown_fields: bool,
        service: Service,
    ) -> Option<Input> {
        let (source, overlay) = match (path, inline) {
            (Some(path), inline) => (Source::File(path), inline),
            (None, Some(inline)) => (Source::Inline(inline), None),
            (None, None) => return None,
        };
        Some(Input {
            source,
            overlay,
            allow_unknown_fields,
            disabled: Vec::new(),
            service,
            overrides: BTreeMap::new(),
            manifests: Manifests::new(),
        })
    }

    /// The same with other values in the runtime's admin layer.
    #[must_use]
    pub fn with_overrides(&self, overrides: &BTreeMap<String, String>) -> Input {
        Input { overrides: overrides.clone(), ..self.clone() }
    }

    /// The same with these plugins in it.
    #[must_use]
    pub fn with_manifests(&self, manifests: &Manifests) -> Input {
        Input { manifests: manifests.clone(), ..self.clone() }
    }

    pub fn manifests(&self) -> &Manifests {
        &self.manifests
    }

    /// The same, but as it was read before instead of as it is now.
    #[must_use]
    pub fn held(&self, file: SourceFile) -> Input {
        Input { source: Source::Held(file), ..self.clone() }
    }

    /// Unknown fields are warnings instead of errors.
    #[must_use]
    pub fn allow_unknown_fields(mut self, allow: bool) -> Input {
        self.allow_unknown_fields = allow;
        self
    }

    /// It may not use these extensions.
    #[must_use]
    pub fn without(mut self, extensions: Vec<String>) -> Input {
        self.disabled = extensions;
        self
    }

    /// The file, if there is one: what a reload reads again and what is watched.
    pub fn path(&self) -> Option<&Path> {
        match &self.source {
            Source::File(path) => Some(path),
            Source::Stdin | Source::Inline(_) | Source::Held(_) => None,
        }
    }

    /// Whether it can be read once more.
    pub fn lasts(&self) -> bool {
        !matches!(self.source, Source::Stdin)
    }

    /// As diagnostics name it.
    pub fn name(&self) -> String {
        match &self.source {
            Source::File(path) => path.display().to_string(),
            Source::Stdin => STDIN_NAME.to_owned(),
            Source::Inline(_) => INLINE_NAME.to_owned(),
            Source::Held(file) => file.name().to_owned(),
        }
    }

    /// Reads the file as it is now.
    ///
    /// # Errors
    /// The system's reason.
    pub fn read(&self) -> Result<SourceFile, ReadError> {
        let bytes = match &self.source {
            Source::File(path) => std::fs::read(path),
            Source::Stdin => {
                let mut bytes = Vec::new();
                io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
            }
            Source::Inline(text) => Ok(text.clone().into_bytes()),
            Source::Held(file) => return Ok(file.clone()),
        };
        let bytes = bytes.map_err(|error| ReadError { name: self.name(), error })?;
        Ok(SourceFile::from_bytes(self.name(), bytes))
    }
}

/// The filters that this binary has.
pub fn filters() -> Registry {
    let mut registry = Registry::default();
    postrider_filter_native::register(&mut registry);
    postrider_filter_lua::register(&mut registry);
    postrider_filter_lua::read_messages_with(postrider_config_envoy::unpack);
    #[cfg(feature = "modules")]
    postrider_filter_module::register(&mut registry);
    #[cfg(not(feature = "modules"))]
    {
        registry.register("envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter", |_, _| {
            Err(left_out("native modules", "modules"))
        });
        registry.register_network(
            "envoy.extensions.filters.network.dynamic_modules.v3.DynamicModuleNetworkFilter",
            |_, _| Err(left_out("native modules", "modules")),
        );
        registry
            .register_logger("envoy.extensions.access_loggers.dynamic_modules.v3.DynamicModuleAccessLog", |_, _| {
                Err(left_out("native modules", "modules"))
            });
    }
    #[cfg(feature = "wasm")]
    postrider_filter_wasm::register(&mut registry);
    #[cfg(not(feature = "wasm"))]
    {
        registry.register("envoy.extensions.filters.http.wasm.v3.Wasm", |_, _| Err(left_out("WebAssembly", "wasm")));
        registry.register_network("envoy.extensions.filters.network.wasm.v3.Wasm", |_, _| {
            Err(left_out("WebAssembly", "wasm"))
        });
        registry.register_logger("envoy.extensions.access_loggers.wasm.v3.WasmAccessLog", |_, _| {
            Err(left_out("WebAssembly", "wasm"))
        });
        registry.register_service("envoy.extensions.wasm.v3.WasmService", |_, _| Err(left_out("WebAssembly", "wasm")));
        registry
            .register_service("envoy.extensions.stat_sinks.wasm.v3.Wasm", |_, _| Err(left_out("WebAssembly", "wasm")));
    }
    #[cfg(feature = "golang")]
    postrider_filter_golang::register(&mut registry);
    #[cfg(not(feature = "golang"))]
    {
        registry.register("envoy.extensions.filters.http.golang.v3alpha.Config", |_, _| {
            Err(left_out("Go filters", "golang"))
        });
        registry.register_network("envoy.extensions.filters.network.golang.v3alpha.Config", |_, _| {
            Err(left_out("Go filters", "golang"))
        });
        registry.register_chooser("envoy.extensions.router.cluster_specifier.golang.v3alpha.Config", |_| {
            Err(left_out("Go filters", "golang"))
        });
        registry.register_bridge("envoy.extensions.upstreams.http.tcp.golang.v3alpha.Config", |_| {
            Err(left_out("Go filters", "golang"))
        });
    }
    registry
}

/// Why a filter that people know of is not there.
#[cfg(not(all(feature = "golang", feature = "modules", feature = "wasm")))]
fn left_out(what: &str, feature: &str) -> Vec<ValueError> {
    let message = format!("this binary was built without {what}: build it with the feature `{feature}`");
    vec![ValueError { path: String::new(), message }]
}

/// Reads, loads and compiles a configuration. What did not change since `previous` is carried over.
///
/// # Errors
/// The file cannot be read. A configuration that is wrong is no error of this function: see the outcome's diagnostics.
pub fn check(input: &Input, previous: Option<&Plan>, workers: usize) -> Result<Checked, ReadError> {
    #[cfg(feature = "modules")]
    postrider_filter_module::set_concurrency(u32::try_from(workers).unwrap_or(u32::MAX));
    #[cfg(feature = "golang")]
    {
        postrider_filter_golang::settle_checks();
        postrider_filter_golang::settle_workers(workers);
    }
    let registry = filters();
    library().check();
    // What was read from a pipe cannot be read again.
    #[cfg(feature = "golang")]
    postrider_filter_golang::at_start(previous.is_none() && input.lasts());
    let checked = load(input, &registry).map(|outcome| compile(input, outcome, previous, &registry, workers));
    #[cfg(feature = "golang")]
    postrider_filter_golang::at_start(false);
    checked
}

fn load(input: &Input, registry: &Registry) -> Result<Outcome, ReadError> {
    let options = LoadOptions {
        allow_unknown_static_fields: input.allow_unknown_fields,
        disabled: input.disabled.clone(),
        overlay: input.overlay.as_ref().map(|text| SourceFile::new(INLINE_NAME, text.as_str())),
        runtime: RuntimeOptions { overrides: input.overrides.clone(), service_cluster: input.service.cluster.clone() },
        forms: vec![&Short],
        plugins: input.manifests.iter().map(plugin_file).collect(),
        ..LoadOptions::default()
    };
    Ok(postrider_config_envoy::load(&input.read()?, &options, &Kinds(registry)))
}

/// What Envoy has, too, and works here.
pub fn offered() -> Vec<Listed> {
    postrider_config_envoy::extensions::offered(&Kinds(&filters())).collect()
}

/// As diagnostics name it.
fn plugin_file((name, manifest): (&String, &String)) -> PluginFile {
    let manifest = SourceFile::new(format!("/plugins/{name}"), manifest.as_str());
    PluginFile { name: name.clone(), manifest }
}

/// The filters, as lowering asks about them.
struct Kinds<'r>(&'r Registry);

impl FilterKinds for Kinds<'_> {
    fn known(&self, kind: &str) -> bool {
        self.0.knows(kind)
    }

    fn check(&self, name: &str, kind: &str, config: &Value) -> Vec<ValueError> {
        self.0.check(name, kind, config)
    }

    fn check_overrides(&self, slot: &FilterSlot, overrides: &[&FilterConfig]) -> Vec<(usize, ValueError)> {
        let filter = self.0.build(&slot.name, &slot.kind, &slot.config).and_then(Result::ok);
        // Where the plugin itself is refused, its schema still says what is wrong; whether it takes a text, its runtime would know.
        let schema = match &filter {
            Some(_) => None,
            None if slot.kind == postrider_filter_plugin::KIND => Override::schema_of(&slot.config),
            None => return Vec::new(),
        };
        let check = |config: &FilterConfig| match (&filter, &schema) {
            (Some(filter), _) => filter.route_config(&config.kind, &config.value).err(),
            (None, schema) => Override::read(&config.kind, &config.value, schema.as_ref(), Takes::Texts).err(),
        };
        let found = |(index, config)| check(config).into_iter().flatten().map(move |error| (index, error));
        overrides.iter().copied().enumerate().flat_map(found).collect()
    }
}

fn compile(
    input: &Input,
    mut outcome: Outcome,
    previous: Option<&Plan>,
    registry: &Registry,
    workers: usize,
) -> Checked {
    let Some(mut snapshot) = outcome.snapshot.clone() else { return Checked { outcome, plan: None } };
    input.service.apply(&mut snapshot);
    postrider_acme::stand_in(&mut snapshot);
    let plan = match Plan::compile(snapshot, previous, registry, workers) {
        Ok(plan) => {
            for (origin, message) in certificates::ending(&plan, SystemTime::now()) {
                outcome.warn(&origin, "certificate-ends", message);
            }
            Some(plan)
        }
        Err(errors) => {
            for error in errors {
                outcome.refuse(&Origin(error.path), error.code, error.message);
            }
            None
        }
    };
    Checked { outcome, plan }
}

impl Service {
    fn apply(&self, snapshot: &mut Arc<Snapshot>) {
        if *self == Service::default() {
            return;
        }
        let node = &mut Arc::make_mut(snapshot).node;
        for (flag, field) in
            [(&self.cluster, &mut node.cluster), (&self.node, &mut node.id), (&self.zone, &mut node.zone)]
        {
            if let Some(flag) = flag {
                field.clone_from(flag);
            }
        }
    }
}

impl Checked {
    /// Every finding, for people. Empty when there is none.
    pub fn findings(&self, colour: bool) -> String {
        if self.outcome.diagnostics.is_empty() {
            return String::new();
        }
        render::text(&self.outcome.diagnostics, &self.outcome.sources, colour)
    }

    /// One line per error, `file:line:col: message` and what was probably meant: for a log and for the history of reloads.
    pub fn error_lines(&self) -> Vec<String> {
        let errors = self.outcome.diagnostics.iter().filter(|d| d.severity == postrider_config_core::Severity::Error);
        errors.map(|error| self.line(error)).collect()
    }

    fn line(&self, diagnostic: &Diagnostic) -> String {
        let place = match diagnostic.span.and_then(|span| self.outcome.sources.location(span)) {
            Some((file, at)) => format!("{}:{}:{}: ", file.name(), at.line, at.column),
            None => String::new(),
        };
        let hint = match (&diagnostic.suggestion, &diagnostic.expected) {
            (Some(suggestion), _) => format!("; did you mean `{suggestion}`?"),
            (None, Some(expected)) => format!("; expected {expected}"),
            (None, None) => String::new(),
        };
        format!("{place}{}{hint}", diagnostic.message)
    }
}

/// Where the parts of a configuration were written.
pub struct Places<'o>(pub &'o Outcome);

/// A line of a file; both numbers from 1.
pub struct Place<'o> {
    pub file: &'o str,
    pub line: u32,
    pub column: u32,
}

impl<'o> Places<'o> {
    /// The place of what a path (a [`postrider_model::Origin`]) names.
    pub fn find(&self, path: &str) -> Option<Place<'o>> {
        if path.is_empty() {
            return None;
        }
        let (file, at) = self.0.sources.location(self.0.locate(path)?)?;
        Some(Place { file: file.name(), line: at.line, column: at.column })
    }
}

#[cfg(test)]
mod tests;
