//! Runtime layers: of their keys only connection limits of listeners have a meaning here, and native modules may ask for any.

use postrider_model::Value;
use serde_json::Value as Json;

use super::context::Lowering;
use crate::reader::Reader;

const LIMIT_PREFIX: &str = "envoy.resource_limits.listener.";
const LIMIT_SUFFIX: &str = ".connection_limit";

pub(super) fn layers(cx: &mut Lowering<'_>, root: &Reader<'_>) {
    let Some(runtime) = root.message("layered_runtime") else { return };
    for layer in runtime.list("layers") {
        layer.ignore("name", "layers are told apart by their order");
        layer.ignore("admin_layer", "the admin interface changes no runtime key");
        if layer.has("disk_layer") {
            cx.refuse(&layer, "disk_layer", "a runtime layer on disk");
        }
        if layer.has("rtds_layer") {
            cx.refuse(&layer, "rtds_layer", "a runtime layer from a control plane (RTDS)");
        }
        let Some(Json::Object(entries)) = layer.json("static_layer") else { continue };
        layer.whole("static_layer");
        let mut flat = Vec::new();
        flatten("", &Json::Object(entries), &mut flat);
        for (key, value) in flat {
            let listener = key.strip_prefix(LIMIT_PREFIX).and_then(|rest| rest.strip_suffix(LIMIT_SUFFIX));
            match (listener, number(&value)) {
                (Some(listener), Some(limit)) => {
                    cx.connection_limits.insert(listener.to_owned(), limit);
                }
                (Some(_), None) => {
                    let text = format!("`{key}` must be a number of connections, not {value}");
                    cx.error(&layer, "static_layer", "invalid-value", text);
                }
                (None, _) => {
                    let text = format!("the runtime key `{key}` has no effect but on native modules that ask for it");
                    cx.warn(&layer, "static_layer", "no-effect", text);
                }
            }
            cx.runtime.retain(|(known, _)| *known != key);
            cx.runtime.push((key, plain(&value)));
        }
    }
}

/// `{"a": {"b": 1}}` is the key `a.b`.
fn flatten(prefix: &str, value: &Json, flat: &mut Vec<(String, Json)>) {
    match value {
        Json::Object(entries) if !entries.contains_key("numerator") => {
            for (key, value) in entries {
                let key = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                flatten(&key, value, flat);
            }
        }
        value => flat.push((prefix.to_owned(), value.clone())),
    }
}

/// As modules get it. What is no plain value stands for nothing, but hides the key of an earlier layer.
fn plain(value: &Json) -> Value {
    match value {
        Json::Bool(truth) => Value::Bool(*truth),
        Json::Number(number) => Value::Number(number.as_f64().unwrap_or_default()),
        Json::String(text) => Value::String(text.clone()),
        _ => Value::Null,
    }
}

fn number(value: &Json) -> Option<u64> {
    match value {
        Json::Number(number) => number.as_u64().or_else(|| {
            let float = number.as_f64()?;
            (float >= 0.0 && float.fract() == 0.0 && float < 9e15).then_some(float as u64)
        }),
        Json::String(text) => text.parse().ok(),
        _ => None,
    }
}
