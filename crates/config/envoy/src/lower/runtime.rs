//! Runtime layers: whether they can be. Their values stand in the bootstrap already, but for those that a setting of ours
//! has another place for.

use std::collections::HashSet;

use postrider_model::ConnectionBound;
use serde_json::Value as Json;

use super::context::Lowering;
use crate::reader::Reader;
use crate::runtime::{OF_ENVOYS_CODE, OF_OURS_AS_WELL, flatten};

/// The limit of all listeners together, where no monitor of the overload manager has one.
const ALL_CONNECTIONS: &str = "overload.global_downstream_max_connections";

/// What such a monitor is called.
const MONITOR: &str = "envoy.resource_monitors.global_downstream_max_connections";

pub(super) fn layers(cx: &mut Lowering<'_>, root: &Reader<'_>) {
    let Some(config) = root.message("layered_runtime") else { return };
    let mut names = HashSet::new();
    let mut admin_layers = 0;
    let mut failures: Vec<Option<String>> = cx.runtime.failures().map(|reason| reason.map(str::to_owned)).collect();
    failures.reverse();
    for layer in config.list("layers") {
        let name = layer.str("name");
        if !names.insert(name.to_owned()) {
            cx.error(&layer, "name", "duplicate-name", format!("there is a layer `{name}` already"));
        }
        match layer.oneof("layer_specifier") {
            Some("static_layer") => fixed(cx, &layer),
            Some("disk_layer") => {
                layer.whole("disk_layer");
                if let Some(Some(reason)) = failures.pop() {
                    cx.warn(&layer, "disk_layer", "runtime-layer", format!("the layer is left out: {reason}"));
                }
            }
            Some("admin_layer") => {
                layer.whole("admin_layer");
                admin_layers += 1;
                if admin_layers == 2 {
                    cx.error(&layer, "admin_layer", "conflict", "there is an admin layer already, and one at most");
                }
            }
            Some("rtds_layer") => cx.refuse(&layer, "rtds_layer", "a runtime layer from a control plane (RTDS)"),
            _ => cx.missing(&layer, "the layer has no values", "`static_layer`, `disk_layer` or `admin_layer`"),
        }
    }
}

fn fixed(cx: &mut Lowering<'_>, layer: &Reader<'_>) {
    const FIELD: &str = "static_layer";
    layer.whole(FIELD);
    let Some(Json::Object(entries)) = layer.json(FIELD) else { return };
    for (key, value) in &entries {
        flatten(key, value, &mut |key, value| {
            if matches!(value, Json::Null | Json::Array(_)) {
                cx.error(
                    layer,
                    FIELD,
                    "invalid-value",
                    format!("the runtime key `{key}` has no value that could be one"),
                );
            }
            let is_envoys = OF_ENVOYS_CODE.iter().any(|prefix| key.starts_with(prefix));
            if is_envoys && !OF_OURS_AS_WELL.contains(&key) {
                let text = format!("the runtime key `{key}` has no effect: it is about code that only Envoy has");
                cx.warn(layer, FIELD, "no-effect", text);
            }
        });
    }
}

/// `envoy.resource_limits.listener.<name>.connection_limit`.
pub(super) fn connection_limit(cx: &Lowering<'_>, listener: &str) -> Option<u64> {
    cx.runtime.integer(&format!("envoy.resource_limits.listener.{listener}.connection_limit"))
}

pub(super) fn connections(cx: &Lowering<'_>) -> Option<ConnectionBound> {
    let most = cx.runtime.integer(ALL_CONNECTIONS)?;
    Some(ConnectionBound { name: MONITOR.to_owned(), most })
}
