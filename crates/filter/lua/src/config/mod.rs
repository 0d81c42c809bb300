//! From configurations to filters: Envoy's Lua filter, Rider's, and plugin manifests for either.

mod envoy;
mod manifest;
mod rider;
mod rules;
mod shared;

use postrider_filter_api::Registry;
use postrider_filter_plugin::register_runtimes;

use crate::choice;
pub(crate) use rules::TYPED_CIRCUIT;

/// Makes the Lua filters known by the types of their configurations.
pub fn register(registry: &mut Registry) {
    registry.register(envoy::KIND, envoy::build);
    registry.register(rider::KIND, rider::build);
    register_runtimes(registry, &["rider", "envoy-lua"], manifest::build);
    registry.register_chooser(choice::SPECIFIER_KIND, choice::build_chooser);
    registry.register_judge(choice::MATCHER_KIND, choice::build_judge);
}
