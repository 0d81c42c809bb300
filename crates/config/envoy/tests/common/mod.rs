//! What the tests of lowering begin and end with: a text that is loaded, and what is said of it.

use std::sync::Arc;

use postrider_config_core::{SourceFile, render};
use postrider_config_envoy::lower::FilterKinds;
use postrider_config_envoy::{LoadOptions, Outcome, load};
use postrider_model::Snapshot;

/// Loads a text as `envoy.yaml`.
pub fn outcome(text: &str, kinds: &dyn FilterKinds) -> Outcome {
    load(&SourceFile::new("envoy.yaml", text), &LoadOptions::default(), kinds)
}

/// Everything that was found, as the terminal shows it.
pub fn said(outcome: &Outcome) -> String {
    render::text(&outcome.diagnostics, &outcome.sources, false)
}

/// What the text means; panics with what was found where it is refused.
#[track_caller]
pub fn snapshot(outcome: &Outcome) -> Arc<Snapshot> {
    outcome.snapshot.clone().unwrap_or_else(|| panic!("{}", said(outcome)))
}
