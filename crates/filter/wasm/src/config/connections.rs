//! `envoy.filters.network.wasm` (`envoy.extensions.filters.network.wasm.v3.Wasm`).

use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::plugin::{Ends, Facts, OnError};
use postrider_filter_api::{ConfigError, NetworkFactory, NetworkFilter, Place, WatchedFile};
use postrider_model::Value;

use super::envoy::Read;
use crate::connections::{Closing, Watching};
use crate::seat::Seat;

pub(super) const KIND: &str = "envoy.extensions.filters.network.wasm.v3.Wasm";

/// Builds the filter of connections.
pub(super) fn build(name: &str, value: &Value) -> Result<Arc<dyn NetworkFactory>, ConfigError> {
    let mut read = Read::of(name, value)?;
    let policy = &mut Arc::make_mut(&mut read.facts).policy;
    policy.ends = Some(match policy.on_error {
        OnError::Continue => Ends::OneConnection,
        OnError::Respond(_) => Ends::Connection,
    });
    Ok(Arc::new(OfConnections(read)))
}

struct OfConnections(Read);

impl NetworkFactory for OfConnections {
    fn network_filter(&self, place: &Place<'_>) -> Rc<dyn NetworkFilter> {
        match &self.0.plugin {
            Some(plugin) => Rc::new(Watching { seat: Seat::of(plugin, place) }),
            None => Rc::new(Closing { all: self.0.facts.policy.on_error != OnError::Continue }),
        }
    }

    fn files(&self) -> &[WatchedFile] {
        &self.0.files
    }

    fn is_current(&self) -> bool {
        self.0.is_current()
    }

    fn plugin(&self) -> Option<&Facts> {
        Some(&self.0.facts)
    }
}
