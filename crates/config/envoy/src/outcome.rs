//! [`load`]: from a file to a snapshot, with everything that was found on the way.
//!
//! What it is for: the one entry of the binary. What it must never do: stay in memory: an [`Outcome`] holds the message
//! tree and its descriptors (megabytes), so it is dropped once its findings are printed and its snapshot is taken;
//! [`Dump`] keeps the text only. Who calls it: every command that reads a configuration, and the reload.

use std::path::PathBuf;
use std::sync::Arc;

use postrider_config_core::{Diagnostic, Diagnostics, Severity, SourceFile, Sources, Span};
use postrider_model as model;

use crate::coverage::{Coverage, UnsupportedPolicy};
use crate::disabled;
use crate::doctor::Report;
use crate::dump::Dump;
use crate::form::OwnForms;
use crate::google_grpc;
use crate::load::{LoadOptions, SecretFiles, load_bootstrap, load_secrets};
use crate::lower::{Difference, FilterKinds, Input, locate, lower_bootstrap};
use crate::message::Message;
use crate::runtime::Runtime;
use crate::write::message_to_yaml;

/// A configuration as far as it could be understood.
#[derive(Debug)]
pub struct Outcome {
    /// What the configuration means; `None` when there are errors.
    pub snapshot: Option<Arc<model::Snapshot>>,
    pub diagnostics: Diagnostics,
    /// The files that the spans of `diagnostics` refer to.
    pub sources: Sources,
    /// Where absent fields mean a safer value than in Envoy.
    pub differences: Vec<Difference>,
    /// The values that keys of the configuration stand for.
    pub runtime: Arc<Runtime>,
    /// With the runtime's values in their places, and clusters for targets of Google's gRPC client.
    bootstrap: Option<Message>,
    /// As it was written, where one of those changes anything.
    written: Option<Message>,
    secrets: SecretFiles,
    /// Other files whose content became part of the configuration.
    contents: Vec<PathBuf>,
    coverage: Coverage,
    own_forms: OwnForms,
    dump: Dump,
}

/// Loads a file and gives it its meaning. Every error of the file is in the outcome's diagnostics.
pub fn load(file: &SourceFile, options: &LoadOptions, filters: &dyn FilterKinds) -> Outcome {
    let loaded = load_bootstrap(file, options);
    let policy = if options.allow_unknown_static_fields { UnsupportedPolicy::Warn } else { UnsupportedPolicy::Refuse };
    let coverage = Coverage::new();
    let mut outcome = Outcome {
        snapshot: None,
        diagnostics: loaded.diagnostics,
        sources: loaded.sources,
        differences: Vec::new(),
        runtime: Arc::default(),
        bootstrap: loaded.bootstrap,
        written: None,
        secrets: SecretFiles::default(),
        contents: Vec::new(),
        coverage,
        own_forms: loaded.own_forms,
        dump: Dump::new(file.clone(), options.clone()),
    };
    if let Some(written) = &outcome.bootstrap {
        outcome.runtime = Arc::new(Runtime::read(written, &options.runtime));
        if let Some(resolved) = outcome.runtime.resolve(written) {
            outcome.written = outcome.bootstrap.replace(resolved);
        }
    }
    if let Some(bootstrap) = &outcome.bootstrap
        && let Some(resolved) = google_grpc::resolve(bootstrap, &mut outcome.diagnostics)
    {
        let before = outcome.bootstrap.replace(resolved);
        outcome.written = outcome.written.or(before);
    }
    if let Some(bootstrap) = &outcome.bootstrap {
        outcome.secrets = load_secrets(bootstrap, options, &mut outcome.sources, &mut outcome.diagnostics);
        let input = Input {
            bootstrap,
            secrets: &outcome.secrets,
            coverage: &outcome.coverage,
            runtime: &outcome.runtime,
            earlier: &outcome.diagnostics,
            sources: &outcome.sources,
        };
        let lowered = lower_bootstrap(&input, filters, policy);
        outcome.snapshot = lowered.snapshot;
        outcome.differences = lowered.differences;
        outcome.contents = lowered.files;
        outcome.contents.sort();
        outcome.contents.dedup();
        outcome.diagnostics.append(lowered.diagnostics);
        let errors = outcome.diagnostics.errors();
        disabled::refuse(bootstrap, &options.disabled, &mut outcome.diagnostics);
        if outcome.diagnostics.errors() > errors {
            outcome.snapshot = None;
        }
    }
    outcome.diagnostics.iter_mut().for_each(|found| outcome.own_forms.relabel(found));
    outcome.diagnostics.sort();
    outcome
}

impl Outcome {
    /// The place of a path, such as a [`model::Origin`]; of the nearest thing around it when it does not exist.
    pub fn locate(&self, path: &str) -> Option<Span> {
        match self.secrets.enter(path) {
            Some((file, path)) => locate(file, path),
            None => locate(self.bootstrap.as_ref()?, path),
        }
    }

    /// Files beside the one that was loaded whose content became part of the configuration: files of secrets, and what
    /// formats stand for. Keys and certificates are not among them; the model names those.
    pub fn files(&self) -> Vec<PathBuf> {
        self.secrets.paths().map(PathBuf::from).chain(self.contents.iter().cloned()).collect()
    }

    /// Adds what a filter found wrong with its configuration. `origin` is that of the slot or override. The configuration
    /// is refused.
    pub fn refuse_filter(&mut self, origin: &model::Origin, error: &model::ValueError) {
        let path = match (origin.0.as_str(), error.path.as_str()) {
            (origin, "") => origin.to_owned(),
            ("", below) => below.to_owned(),
            (origin, below) if below.starts_with('[') => format!("{origin}{below}"),
            (origin, below) => format!("{origin}.{below}"),
        };
        self.refuse(&model::Origin(path), "invalid-filter-config", error.message.clone());
    }

    /// Adds what somebody who uses the snapshot found wrong with the part at `origin`, such as a key that does not fit
    /// its certificate. The configuration is refused.
    pub fn refuse(&mut self, origin: &model::Origin, code: &'static str, message: impl Into<String>) {
        self.add(Severity::Error, origin, code, message);
        self.snapshot = None;
    }

    /// Adds what somebody who uses the snapshot noticed about the part at `origin`, such as a certificate that ends soon.
    pub fn warn(&mut self, origin: &model::Origin, code: &'static str, message: impl Into<String>) {
        self.add(Severity::Warning, origin, code, message);
    }

    fn add(&mut self, severity: Severity, origin: &model::Origin, code: &'static str, message: impl Into<String>) {
        let span = self.locate(&origin.0);
        let mut diagnostic = Diagnostic::new(severity, code, message).at(span).path(origin.0.clone());
        self.own_forms.relabel(&mut diagnostic);
        self.diagnostics.push(diagnostic);
        self.diagnostics.sort();
    }

    /// The configuration in Envoy's v3 form, as YAML; `None` when nothing of it could be read.
    pub fn to_envoy_yaml(&self) -> Option<String> {
        self.written.as_ref().or(self.bootstrap.as_ref()).map(message_to_yaml)
    }

    /// What is supported of the file, field by field.
    pub fn report(&self) -> Report {
        let mut fields = self.bootstrap.as_ref().map(|root| self.coverage.support(root, "")).unwrap_or_default();
        for (path, secret) in self.secrets.secrets() {
            fields.extend(self.coverage.support(secret, &path));
        }
        Report::new(fields, self.differences.clone())
    }

    /// What `/config_dump` shows, made when it is asked for.
    pub fn dump(&self) -> Dump {
        self.dump.clone()
    }
}
