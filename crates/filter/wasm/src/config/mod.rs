//! From configurations to filters, loggers and services: Envoy's, and plugin manifests.

mod connections;
mod envoy;
mod factory;
mod logger;
mod manifest;
mod service;

use postrider_filter_api::Registry;
use postrider_filter_plugin::{Code, library, register_runtimes};

/// Largest module: twenty times what compilers make of a plugin.
const MAX_MODULE_BYTES: u64 = 64 << 20;

/// Makes the host known by the types of its configurations.
pub fn register(registry: &mut Registry) {
    registry.register(factory::KIND, factory::build);
    registry.register_network(connections::KIND, connections::build);
    registry.register_logger(logger::KIND, logger::build);
    registry.register_service(service::KIND, service::build);
    registry.register_service(service::SINK, service::build_sink);
    register_runtimes(registry, &["wasm"], manifest::build);
}

/// What is fetched of a module counts where Envoy counts it.
fn count_fetches(code: &Code) {
    if let Some(remote) = &code.remote {
        library().count_below(remote, "wasm");
    }
}
