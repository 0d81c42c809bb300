//! `envoy.bootstrap.wasm` (`envoy.extensions.wasm.v3.WasmService`): a plugin without any listener. `envoy.stat_sinks.wasm`
//! (`envoy.extensions.stat_sinks.wasm.v3.Wasm`): one that is told of statistics.

use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::plugin::Facts;
use postrider_filter_api::{ConfigError, Place, Service, ServiceFactory, WatchedFile};
use postrider_filter_plugin::read::keep;
use postrider_model::Value;

use super::envoy::Read;
use crate::seat::Seat;
use crate::service::Resident;

pub(super) const KIND: &str = "envoy.extensions.wasm.v3.WasmService";
pub(super) const SINK: &str = "envoy.extensions.stat_sinks.wasm.v3.Wasm";

/// Builds the service.
pub(super) fn build(name: &str, value: &Value) -> Result<Arc<dyn ServiceFactory>, ConfigError> {
    let (read, singleton) =
        Read::beside(name, value, |fields, errors| keep(fields.bool("singleton"), errors).flatten().unwrap_or(false))?;
    Ok(Arc::new(WithoutListener { read, singleton }))
}

/// Builds a sink: the first worker has it.
pub(super) fn build_sink(name: &str, value: &Value) -> Result<Arc<dyn ServiceFactory>, ConfigError> {
    Ok(Arc::new(WithoutListener { read: Read::of(name, value)?, singleton: true }))
}

struct WithoutListener {
    read: Read,
    /// On the first worker alone.
    singleton: bool,
}

impl ServiceFactory for WithoutListener {
    fn begin(&self, place: &Place<'_>) -> Option<Rc<dyn Service>> {
        if self.singleton && place.worker != 0 {
            return None;
        }
        let plugin = self.read.plugin.as_ref()?;
        Some(Resident::begin(Seat::of(plugin, place), place.host))
    }

    fn files(&self) -> &[WatchedFile] {
        &self.read.files
    }

    fn is_current(&self) -> bool {
        self.read.is_current()
    }

    fn plugin(&self) -> Option<&Facts> {
        Some(&self.read.facts)
    }

    fn note(&self) -> Option<&'static str> {
        let plugin = self.read.plugin.as_ref()?;
        plugin.program.note().or(plugin.failure.note())
    }
}
