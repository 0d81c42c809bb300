//! `envoy.access_loggers.wasm` (`envoy.extensions.access_loggers.wasm.v3.WasmAccessLog`).

use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::plugin::{Ends, Facts};
use postrider_filter_api::{AccessLogger, ConfigError, LoggerFactory, Place, WatchedFile};
use postrider_model::Value;

use super::envoy::Read;
use crate::logger::Telling;
use crate::seat::Seat;

pub(super) const KIND: &str = "envoy.extensions.access_loggers.wasm.v3.WasmAccessLog";

/// Builds the logger.
pub(super) fn build(name: &str, value: &Value) -> Result<Arc<dyn LoggerFactory>, ConfigError> {
    let mut read = Read::of(name, value)?;
    Arc::make_mut(&mut read.facts).policy.ends = Some(Ends::Record);
    Ok(Arc::new(Logger(read)))
}

struct Logger(Read);

impl LoggerFactory for Logger {
    fn logger(&self, place: &Place<'_>) -> Rc<dyn AccessLogger> {
        Rc::new(Telling {
            seat: self.0.plugin.as_ref().map(|plugin| Seat::of(plugin, place)),
            host: place.host.clone(),
        })
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
