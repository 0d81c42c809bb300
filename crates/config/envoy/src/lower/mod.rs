//! From Envoy's bootstrap message to [`model::Snapshot`].
//!
//! What it is for: giving every field of the bootstrap its meaning, with Envoy's defaults, except where Envoy's default is
//! unsafe: there an absent field means the safe value and an explicit one means what it means in Envoy (each such place is
//! recorded as a [`Difference`]).
//!
//! What it must never do: stop at the first error, ignore a field (the reader's ledger refuses what nobody read), or do
//! what a file does not say. It opens no socket and resolves no name; it reads only the files that a configuration
//! names as data (bodies and formats). Keys and certificates are named in the model and read by who uses them.
//!
//! Who calls it: [`crate::load`] after the loader; `doctor` through it.

mod access_log;
mod acme;
mod address;
mod balancing;
mod bind;
mod bootstrap;
mod callees;
mod chain_match;
mod checks;
mod client_certificate;
mod cluster;
mod context;
mod cors;
mod data;
mod detection;
mod dns;
mod dns_resolver;
mod endpoints;
mod extensions;
mod filters;
mod formatters;
mod forward;
mod grpc_target;
mod hash_policy;
mod headers;
mod health;
mod http;
mod http2;
mod inspection;
mod listener;
mod locate;
mod log_service;
mod match_tree;
mod matchers;
mod metadata;
mod mirrors;
mod names;
mod network;
mod original_dst;
mod otlp_log;
mod otlp_sink;
mod outlier;
mod overload;
mod override_checks;
mod plugin_rules;
mod plugins;
mod policy;
mod priority_groups;
mod proxy_header;
mod rate_limits;
mod retry;
mod rider;
mod route;
mod runtime;
mod secrets;
mod statistics;
mod stats_sinks;
mod subsets;
mod tables;
mod tcp;
mod tls;
mod tracing;
mod transport;
mod upstream;
mod upstream_filters;
pub(crate) mod value;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use postrider_config_core::{Diagnostics, Sources};
use postrider_model as model;

use crate::coverage::{Coverage, UnsupportedPolicy};
use crate::load::SecretFiles;
use crate::message::Message;
use crate::reader::Reader;
use crate::runtime::Runtime;

pub use context::Difference;
pub use locate::locate;

use context::Lowering;
use secrets::Secrets;

/// Which filters exist, by the full name of their configuration's type. The binary passes its registry.
pub trait FilterKinds {
    /// Whether a filter takes this type as its configuration in a chain.
    fn known(&self, kind: &str) -> bool;

    /// What the filter called `name` finds wrong with its configuration, so that it is reported with everything else of
    /// the file.
    fn check(&self, _name: &str, _kind: &str, _config: &model::Value) -> Vec<model::ValueError> {
        Vec::new()
    }

    /// What the filter of this slot finds wrong with overrides, by their places in the list. Asked only where the file is refused
    /// anyway; otherwise whoever compiles the snapshot finds it.
    fn check_overrides(
        &self,
        _slot: &model::FilterSlot,
        _overrides: &[&model::FilterConfig],
    ) -> Vec<(usize, model::ValueError)> {
        Vec::new()
    }
}

impl<F: Fn(&str) -> bool> FilterKinds for F {
    fn known(&self, kind: &str) -> bool {
        self(kind)
    }
}

/// What lowering made of a bootstrap.
#[derive(Debug)]
pub struct Lowered {
    /// `None` when there was an error, here or before.
    pub snapshot: Option<Arc<model::Snapshot>>,
    /// Only what lowering found.
    pub diagnostics: Diagnostics,
    /// Where absent fields mean a safer value than in Envoy.
    pub differences: Vec<Difference>,
    /// Files whose content became part of the configuration.
    pub files: Vec<PathBuf>,
}

/// What the loader made of the files.
#[derive(Clone, Copy, Debug)]
pub struct Input<'i> {
    pub bootstrap: &'i Message,
    pub secrets: &'i SecretFiles,
    /// Records which fields are read, for `doctor`.
    pub coverage: &'i Coverage,
    /// Whose values stand in the bootstrap already.
    pub runtime: &'i Runtime,
    /// What the loader found: a message in which it already refused a field is not blamed a second time for what it
    /// lacks.
    pub earlier: &'i Diagnostics,
    pub sources: &'i Sources,
}

/// Gives a bootstrap its meaning.
pub fn lower_bootstrap(input: &Input<'_>, kinds: &dyn FilterKinds, policy: UnsupportedPolicy) -> Lowered {
    let root = Reader::root(input.bootstrap, input.coverage);
    let secrets = Secrets::new(&root, input.secrets, input.coverage);
    let mut cx = Lowering::new(kinds, input.earlier, input.sources, input.runtime, secrets);
    cx.plugin_rules = plugin_rules::PluginRules::of(input.bootstrap);
    let snapshot = bootstrap::bootstrap(&mut cx, &root);
    plugin_rules::finish(&mut cx);
    rider::finish(&mut cx);
    secrets::finish(&mut cx, policy);
    root.finish(&mut cx.diagnostics, policy);
    if input.earlier.has_errors() || cx.diagnostics.has_errors() {
        override_checks::check(&mut cx, &snapshot, input.bootstrap);
    }
    once_per_place(&mut cx.diagnostics);
    let sound = !input.earlier.has_errors() && !cx.diagnostics.has_errors();
    Lowered {
        snapshot: sound.then(|| Arc::new(snapshot)),
        diagnostics: cx.diagnostics,
        differences: cx.differences,
        files: cx.files,
    }
}

/// What stands behind a YAML alias is lowered wherever the alias is, and told once.
fn once_per_place(diagnostics: &mut Diagnostics) {
    let mut told = HashSet::new();
    diagnostics.retain(|each| match each.span {
        Some(span) => told.insert((span, each.code, each.message.clone())),
        None => true,
    });
}
