//! `/runtime` and `/runtime_modify`: the layers of the configuration, which are changed there and not here.

use crate::control::Control;
use crate::request::{Request, parse_query};
use crate::response::Reply;
use hyper::StatusCode;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

const USAGE: &str = "usage: /runtime_modify?key1=value1&key2=value2&keyN=valueN\n       or send the parameters as form values\n\
                     use an empty value to remove a previously added override";

/// Every key with its value in each layer; the last layer that has one counts.
pub(super) fn runtime(control: &dyn Control, _: &Request) -> Reply {
    let layers = layers(control);
    let mut entries: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (at, layer) in layers.iter().enumerate() {
        if let Some(values) = layer.get("static_layer") {
            flatten("", values, &mut |key, value| {
                let of_key = entries.entry(key.to_owned()).or_insert_with(|| vec![String::new(); layers.len()]);
                if let Some(of_layer) = of_key.get_mut(at) {
                    *of_layer = value;
                }
            });
        }
    }
    let entries = entries.into_iter().map(|(key, values)| {
        let last = values.iter().rfind(|value| !value.is_empty()).cloned().unwrap_or_default();
        (key, json!({ "final_value": last, "layer_values": values }))
    });
    let names = layers.iter().map(|layer| layer.get("name").cloned().unwrap_or_default());
    Reply::json(&json!({ "layers": names.collect::<Vec<_>>(), "entries": entries.collect::<Map<_, _>>() }))
}

/// Nothing changes: a value that nobody reads again would only seem to.
pub(super) fn modify(control: &dyn Control, request: &Request) -> Reply {
    let form = String::from_utf8_lossy(&request.body);
    if request.query.is_empty() && parse_query(&form).is_empty() {
        return Reply::bad_request(USAGE);
    }
    let has_admin_layer = layers(control).iter().any(|layer| layer.get("admin_layer").is_some());
    let message = match has_admin_layer {
        true => "Runtime values are not changed here: change a static layer, and the file is read again\n",
        false => "No admin layer specified",
    };
    Reply::refusal(StatusCode::SERVICE_UNAVAILABLE, message)
}

fn layers(control: &dyn Control) -> Vec<Value> {
    let dump = control.config_dump();
    let found = dump.iter().find_map(|section| section.pointer("/bootstrap/layered_runtime/layers"));
    found.and_then(Value::as_array).cloned().unwrap_or_default()
}

/// `{"a": {"b": 1}}` is the key `a.b`; a fraction is a value.
fn flatten(prefix: &str, value: &Value, each: &mut impl FnMut(&str, String)) {
    match value {
        Value::Object(entries) if !entries.contains_key("numerator") => {
            for (key, value) in entries {
                let key = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                flatten(&key, value, each);
            }
        }
        Value::String(text) => each(prefix, text.clone()),
        Value::Number(number) => each(prefix, whole(number).unwrap_or_else(|| number.to_string())),
        value => each(prefix, value.to_string()),
    }
}

/// A `Struct` holds floating point numbers only: `1.0` was written as `1`.
fn whole(number: &serde_json::Number) -> Option<String> {
    let value = number.as_f64()?;
    (value.fract() == 0.0 && value.abs() < 9e15).then(|| format!("{value:.0}"))
}
