//! From configurations to filters: Envoy's Wasm filter, and plugin manifests.

mod envoy;
mod factory;
mod manifest;

use postrider_filter_api::Registry;
use postrider_filter_plugin::register_runtimes;

/// Largest module: twenty times what compilers make of a plugin.
const MAX_MODULE_BYTES: u64 = 64 << 20;

/// Makes the host known by the types of its configurations.
pub fn register(registry: &mut Registry) {
    registry.register(envoy::KIND, envoy::build);
    register_runtimes(registry, &["wasm"], manifest::build);
}
